//! Line 3 on the cluster: what `keelson observe` adds up to is what the traffic's own log says, for
//! clients on the server's node and on another, while one in fifty data segments is dropped.

use std::{collections::BTreeMap, path::Path, process::Command, time::Duration};

use anyhow::Context;
use serde_json::Value;

use super::{Form, Outcome};
use crate::{
    cluster::{Cluster, condition},
    demo::{
        fault::{Fault, Kind},
        view::Pod,
    },
    images,
    process::wait_for,
};

const NAMESPACE: &str = "values";
const SIZE: u64 = 600;
const ONE_IN: u32 = 50;
const START_WITHIN: Duration = Duration::from_secs(60);
/// The last window's end, its deadline, and a few looks.
const SEEN_WITHIN: Duration = Duration::from_secs(30);
/// Client, mode, and whether it runs beside the server.
const CLIENTS: [(&str, &str, bool); 4] = [
    ("kept-near", "keepalive", true),
    ("kept-far", "keepalive", false),
    ("short-near", "short", true),
    ("short-far", "short", false),
];
/// A name in the generator's log, and the counter that must add up to it.
const COUNTERS: [(&str, &str); 6] = [
    ("opened", "opened"),
    ("closed", "closed"),
    ("bytesSent", "bytesSent"),
    ("bytesReceived", "bytesReceived"),
    ("segmentsRetransmitted", "retransmittedSegments"),
    ("bytesRetransmitted", "retransmittedBytes"),
];

/// Sums by the names of the generator's log.
type Sums = BTreeMap<&'static str, u64>;

/// Sends so many requests from each client, and compares.
///
/// # Errors
/// The cluster cannot be used.
pub fn values(cluster: &Cluster, form: Form) -> anyhow::Result<Outcome> {
    let count = if form == Form::Short { 2_000 } else { 40_000 };
    let outcome = compare(cluster, count);
    cluster.kubectl.run(&["delete", "namespace", NAMESPACE, "--wait", "--ignore-not-found"])?;
    outcome
}

fn compare(cluster: &Cluster, count: u64) -> anyhow::Result<Outcome> {
    let keelson = images::program("keelson")?;
    let begin = jiff::Timestamp::now();
    let nodes = cluster.kubectl.get(&["nodes"])?;
    let node = |index: usize| nodes["items"][index]["metadata"]["name"].as_str().unwrap_or("");
    let (near, far) = (node(0), node(1));
    cluster.kubectl.apply(&format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n---\n{}",
        pod("server", near, "server")
    ))?;
    let server = wait_for("the server", START_WITHIN, || {
        let server = cluster.kubectl.get(&["-n", NAMESPACE, "pod", "server"]);
        let server = server.map_err(|error| format!("{error:#}"))?;
        condition(&server, "Ready", "True").map(|()| Pod::of(&server))
    })?;
    let fault = Fault::begin(cluster, &server, Kind::Door, ONE_IN)?;
    let address = &server.address;
    let clients = CLIENTS.map(|(name, mode, is_near)| {
        let args = format!(
            "client, --target={address}:8080, --mode={mode}, --rate=400, --size={SIZE}, --count={count}"
        );
        pod(name, if is_near { near } else { far }, &args)
    });
    cluster.kubectl.apply(&clients.join("---\n"))?;
    let within = START_WITHIN + Duration::from_secs(count / 100);
    wait_for("the clients' end", within, || {
        let pods = cluster.kubectl.get(&["-n", NAMESPACE, "pods"]);
        let pods = pods.map_err(|error| format!("{error:#}"))?;
        let phases = pods["items"].as_array().into_iter().flatten();
        let phases: Vec<&str> = phases.filter_map(|pod| pod["status"]["phase"].as_str()).collect();
        let ended = phases.iter().filter(|phase| **phase == "Succeeded").count();
        if ended == CLIENTS.len() { Ok(()) } else { Err(format!("{phases:?}")) }
    })?;
    let dropped = fault.dropped()?;
    drop(fault);

    let mut outcome = Outcome::default();
    let mut expected: BTreeMap<&str, Sums> = BTreeMap::new();
    for (name, ..) in CLIENTS {
        let log = cluster.kubectl.run(&["-n", NAMESPACE, "logs", name, "--tail=1"])?;
        let log: Value = serde_json::from_str(&log).with_context(|| format!("{name}: {log}"))?;
        let of_log = |(word, _)| (word, log[word].as_u64().unwrap_or(0));
        expected.insert(name, COUNTERS.map(of_log).into());
        let sent = &log["bytesSent"];
        // What a broken connection had sent is sent again, and both count.
        if log["broken"] == 0 && sent.as_u64() != Some(count * SIZE) {
            outcome.failures.push(format!("{name} sent {sent} bytes, not {}", count * SIZE));
        }
        outcome.figures.push(format!("{name}: {log}"));
    }
    outcome.figures.push(format!("{dropped} segments dropped"));
    let seen = wait_for("the sums of keelson observe", SEEN_WITHIN, || {
        let seen = observed(cluster, &keelson, begin).map_err(|error| format!("{error:#}"))?;
        let is_equal = expected.iter().all(|(name, sums)| seen.get(*name) == Some(sums));
        let server = seen.get("server").and_then(|server| server.get("opened"));
        let opened = expected.values().filter_map(|sums| sums.get("opened")).sum::<u64>();
        let is_equal = is_equal && server == Some(&opened);
        if is_equal { Ok(()) } else { Err(format!("seen {seen:?}, logged {expected:?}")) }
    });
    match seen {
        Ok(()) => outcome.figures.push("observe adds up to each client's log".into()),
        Err(error) => outcome.failures.push(format!("{error:#}")),
    }
    Ok(outcome)
}

fn pod(name: &str, node: &str, args: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: {NAMESPACE}}}\nspec:\n  nodeName: {node}\n  restartPolicy: Never\n  terminationGracePeriodSeconds: 2\n  containers:\n    - {{name: load, image: \"keelson.dev/keelson-load:dev\", imagePullPolicy: Never, args: [{args}]}}\n"
    )
}

/// What the command line prints of the namespace, added up by pod: of the clients' own sockets and
/// of the server's accepted ones.
fn observed(
    cluster: &Cluster,
    keelson: &Path,
    begin: jiff::Timestamp,
) -> anyhow::Result<BTreeMap<String, Sums>> {
    let output = Command::new(keelson)
        .arg("--kubeconfig")
        .arg(&cluster.kubectl.kubeconfig)
        .args(["observe", "-n", NAMESPACE, "-o", "json", "--since", &begin.to_string()])
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "keelson observe: {said}");
    let mut sums: BTreeMap<String, Sums> = BTreeMap::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let line: Value = serde_json::from_str(line)?;
        anyhow::ensure!(line["type"] == "flow", "{line}");
        let (local, direction) = (line["local"]["name"].as_str(), line["direction"].as_str());
        let is_server = local == Some("server");
        if line["port"] != 8080 || is_server != (direction == Some("inbound")) {
            continue;
        }
        let sums = sums.entry(local.unwrap_or_default().to_owned()).or_default();
        for (word, counter) in COUNTERS {
            let value = line["counters"][counter].as_u64();
            *sums.entry(word).or_default() += value.with_context(|| format!("{line}"))?;
        }
    }
    Ok(sums)
}
