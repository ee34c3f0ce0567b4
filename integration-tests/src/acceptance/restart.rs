//! Line 6: agent, collector and operator are restarted under traffic, one pod of the server being
//! faulted; the conditions are right again in time and nobody else turns False. Once by deleting
//! their pods, once by killing their processes, which come back in the same pods.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};

use super::{Form, Outcome};
use crate::{
    cluster::Cluster,
    demo::{
        fault::{Fault, Kind, ONE_IN_TWENTY},
        install, view,
    },
    process::wait_for,
};

const RIGHT_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The verdict must hold for so long after it is right.
const HOLD: Duration = Duration::from_secs(10);
const PARTS: [&str; 3] = ["keelson-agent", "keelson-collector", "keelson-operator"];

/// How a part is restarted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// A new pod takes its place.
    Delete,
    /// Its process is killed without a word and comes back in its pod.
    Kill,
}

/// Restarts each part in both ways, once in the short form, three times in the long one.
///
/// # Errors
/// The cluster cannot be used.
pub fn restarts(cluster: &Cluster, form: Form) -> anyhow::Result<Outcome> {
    let times = if form == Form::Short { 1 } else { 3 };
    install::settled(cluster)?;
    let pods = view::pods(cluster)?;
    let pod = pods.iter().find(|pod| pod.application == "shop").context("shop has no pod")?;
    let fault = Fault::begin(cluster, pod, Kind::Door, ONE_IN_TWENTY)?;
    wait_for("shop False", RIGHT_WITHIN, || is_right(cluster))?;
    let mut outcome = Outcome::default();
    for _ in 0..times {
        for part in PARTS {
            for how in [How::Delete, How::Kill] {
                restart(cluster, part, how, &mut outcome)?;
            }
        }
    }
    drop(fault);
    install::settled(cluster)?;
    Ok(outcome)
}

fn delete(cluster: &Cluster, label: &str) -> anyhow::Result<()> {
    let delete = ["delete", "pods", "-l", label, "--wait=false"];
    cluster.kubectl.run(&[&["-n", install::SYSTEM], delete.as_slice()].concat()).map(|_| ())
}

fn kill(cluster: &Cluster, part: &str, label: &str) -> anyhow::Result<()> {
    let pods = cluster.kubectl.get(&["-n", install::SYSTEM, "pods", "-l", label])?;
    let mut killed = 0;
    for pod in pods["items"].as_array().into_iter().flatten() {
        let uid = pod["metadata"]["uid"].as_str().context("a pod without a uid")?;
        // The kernel cuts names: `pause` is no beginning of ours.
        let processes = cluster.pod_processes(uid)?;
        for (pid, _) in processes.iter().filter(|(_, name)| part.starts_with(name.as_str())) {
            kill_process(Pid::from_raw(*pid).context("no process id")?, Signal::KILL)?;
            killed += 1;
        }
    }
    anyhow::ensure!(killed > 0, "{part} has no process on this machine");
    Ok(())
}

fn restart(cluster: &Cluster, part: &str, how: How, outcome: &mut Outcome) -> anyhow::Result<()> {
    let label = format!("app.kubernetes.io/name={part}");
    match how {
        How::Delete => delete(cluster, &label)?,
        How::Kill => kill(cluster, part, &label)?,
    }
    let part = match how {
        How::Delete => format!("{part} deleted"),
        How::Kill => format!("{part} killed"),
    };
    let began = Instant::now();
    let mut right_since = None;
    while right_since.is_none_or(|since: Instant| since.elapsed() < HOLD) {
        for verdict in view::verdicts(cluster)? {
            if verdict.status == "False" && verdict.name != "shop" {
                outcome.failures.push(format!("{part}: {verdict}"));
            }
        }
        let is_up = install::is_all_ready(cluster, install::SYSTEM);
        match (is_right(cluster), is_up) {
            (Ok(()), Ok(())) => right_since = right_since.or(Some(Instant::now())),
            (Err(last), _) | (_, Err(last)) => {
                right_since = None;
                if began.elapsed() > RIGHT_WITHIN {
                    let within = RIGHT_WITHIN.as_secs();
                    outcome.failures.push(format!("{part}: not right in {within} s: {last}"));
                    return Ok(());
                }
            }
        }
        thread::sleep(LOOK_EVERY);
    }
    let seconds = right_since.map_or(0.0, |since| (since - began).as_secs_f64());
    outcome.figures.push(format!("{part}: right after {seconds:.1} s"));
    Ok(())
}

/// Shop is False; all others are as without a fault.
fn is_right(cluster: &Cluster) -> Result<(), String> {
    let verdicts = view::verdicts(cluster).map_err(|error| format!("{error:#}"))?;
    let wrong: Vec<String> = verdicts
        .iter()
        .filter(|verdict| match verdict.name.as_str() {
            "shop" => verdict.status != "False",
            "idle" => verdict.reason != "NoTraffic",
            "left" | "right" => verdict.status != "True",
            _ => verdict.status != "True" && verdict.reason != "PeerPathDegraded",
        })
        .map(ToString::to_string)
        .collect();
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join(", ")) }
}
