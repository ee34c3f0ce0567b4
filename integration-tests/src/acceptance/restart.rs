//! Line 6: agent, collector and operator are restarted under traffic, one pod of the server being
//! faulted; the conditions are right again in time and nobody else turns False.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;

use super::{Form, Outcome};
use crate::{
    cluster::Cluster,
    demo::{
        fault::{Fault, Kind},
        install, view,
    },
    process::wait_for,
};

const RIGHT_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// The verdict must hold for so long after it is right.
const HOLD: Duration = Duration::from_secs(10);
const PARTS: [&str; 3] = ["keelson-agent", "keelson-collector", "keelson-operator"];

/// Restarts each part, once in the short form, three times in the long one.
///
/// # Errors
/// The cluster cannot be used.
pub fn restarts(cluster: &Cluster, form: Form) -> anyhow::Result<Outcome> {
    let times = if form == Form::Short { 1 } else { 3 };
    install::settled(cluster)?;
    let pods = view::pods(cluster)?;
    let pod = pods.iter().find(|pod| pod.application == "shop").context("shop has no pod")?;
    let fault = Fault::begin(cluster, pod, Kind::Door)?;
    wait_for("shop False", RIGHT_WITHIN, || is_right(cluster))?;
    let mut outcome = Outcome::default();
    for _ in 0..times {
        for part in PARTS {
            restart(cluster, part, &mut outcome)?;
        }
    }
    drop(fault);
    install::settled(cluster)?;
    Ok(outcome)
}

fn restart(cluster: &Cluster, part: &str, outcome: &mut Outcome) -> anyhow::Result<()> {
    let label = format!("app.kubernetes.io/name={part}");
    cluster.kubectl.run(&[
        "-n",
        install::SYSTEM,
        "delete",
        "pods",
        "-l",
        &label,
        "--wait=false",
    ])?;
    let began = Instant::now();
    let mut right_since = None;
    while right_since.is_none_or(|since: Instant| since.elapsed() < HOLD) {
        for verdict in view::verdicts(cluster)? {
            if verdict.status == "False" && verdict.name != "shop" {
                outcome.failures.push(format!("{part} restarted: {verdict}"));
            }
        }
        let is_up = install::is_all_ready(cluster, install::SYSTEM);
        match (is_right(cluster), is_up) {
            (Ok(()), Ok(())) => right_since = right_since.or(Some(Instant::now())),
            (Err(last), _) | (_, Err(last)) => {
                right_since = None;
                if began.elapsed() > RIGHT_WITHIN {
                    let within = RIGHT_WITHIN.as_secs();
                    outcome
                        .failures
                        .push(format!("{part} restarted: not right in {within} s: {last}"));
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
