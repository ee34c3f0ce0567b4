//! One run of a fault: what was seen when, and whether the claims held.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use anyhow::Context;

use super::{
    fault::{Fault, Kind, ONE_IN_TWENTY},
    view::{self, Pod, Verdict},
};
use crate::cluster::Cluster;

/// The server's Application must turn within this time of the first dropped segment.
pub const DETECT_WITHIN: Duration = Duration::from_secs(20);
/// And return within this time of the fault's end.
pub const RETURN_WITHIN: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(250);
const HOLD: Duration = Duration::from_secs(8);
const CLIENTS: [&str; 2] = ["checkout", "catalog"];
const UNCONNECTED: [&str; 2] = ["left", "right"];

/// What one run showed.
#[derive(Clone, Debug)]
pub struct Report {
    /// Where segments were dropped.
    pub kind: Kind,
    /// From the first dropped segment to False.
    pub detected: Option<Duration>,
    /// From the fault's end to True.
    pub returned: Option<Duration>,
    /// Segments dropped.
    pub dropped: u64,
    /// The condition in words, while it was False.
    pub message: String,
    /// Claims that did not hold.
    pub failures: Vec<String>,
}

impl Report {
    /// One line.
    #[must_use]
    pub fn summary(&self) -> String {
        let seconds = |time: Option<Duration>| {
            time.map_or("never".into(), |time| format!("{:.1} s", time.as_secs_f64()))
        };
        let place = match self.kind {
            Kind::Door => "into the pod",
            Kind::Egress => "out of the pod",
        };
        let word = if self.failures.is_empty() { "all claims held" } else { "claims FAILED" };
        format!(
            "{} segments dropped on the way {place}; False after {}, True again after {}; {word}",
            self.dropped,
            seconds(self.detected),
            seconds(self.returned)
        )
    }
}

/// Claims that are checked at every look.
struct Watch<'a> {
    cluster: &'a Cluster,
    failures: BTreeSet<String>,
}

/// Breaks the first server pod, waits, mends it, waits; `show` gets the tables.
///
/// # Errors
/// The cluster cannot be used; a claim that fails is in the report.
pub fn fault_run(
    cluster: &Cluster,
    kind: Kind,
    show: &mut dyn FnMut(&str, &str),
) -> anyhow::Result<Report> {
    let pods = view::pods(cluster)?;
    let pod = pods.iter().find(|pod| pod.application == "shop").context("shop has no pod")?;
    let mut watch = Watch { cluster, failures: BTreeSet::new() };
    let fault = Fault::begin(cluster, pod, kind, ONE_IN_TWENTY)?;
    let first = first_drop(&fault)?;
    let detected = watch.until(first + DETECT_WITHIN, "False")?.map(|at| at - first);
    show("DURING", &view::side_by_side(cluster)?);
    let message = watch.check_blame(pod, kind)?;
    let hold_until = Instant::now() + HOLD;
    while Instant::now() < hold_until {
        watch.look()?;
        thread::sleep(LOOK_EVERY);
    }
    let dropped = fault.dropped()?;
    drop(fault);
    let mended = Instant::now();
    let returned = watch.until(mended + RETURN_WITHIN, "True")?.map(|at| at - mended);
    show("AFTER", &view::side_by_side(cluster)?);
    if detected.is_none() {
        watch.fail(format!("shop was not False within {} s", DETECT_WITHIN.as_secs()));
    }
    if returned.is_none() {
        watch.fail(format!("shop was not True again within {} s", RETURN_WITHIN.as_secs()));
    }
    let failures = watch.failures.into_iter().collect();
    Ok(Report { kind, detected, returned, dropped, message, failures })
}

fn first_drop(fault: &Fault) -> anyhow::Result<Instant> {
    let until = Instant::now() + DETECT_WITHIN;
    while fault.dropped()? == 0 {
        anyhow::ensure!(Instant::now() < until, "the fault dropped nothing: is there traffic?");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(Instant::now())
}

impl Watch<'_> {
    fn fail(&mut self, claim: String) {
        self.failures.insert(claim);
    }

    /// Looks until shop's verdict has that status; gives when.
    fn until(&mut self, deadline: Instant, status: &str) -> anyhow::Result<Option<Instant>> {
        loop {
            let verdicts = self.look()?;
            if verdicts.iter().any(|verdict| verdict.name == "shop" && verdict.status == status) {
                return Ok(Some(Instant::now()));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            thread::sleep(LOOK_EVERY);
        }
    }

    /// What must hold at all times.
    fn look(&mut self) -> anyhow::Result<Vec<Verdict>> {
        let (pods, verdicts) = (view::pods(self.cluster)?, view::verdicts(self.cluster)?);
        for pod in pods.iter().filter(|pod| !pod.is_ready) {
            self.fail(format!("pod {} was not Ready", pod.name));
        }
        for verdict in &verdicts {
            let name = verdict.name.as_str();
            let is_as_claimed = if CLIENTS.contains(&name) {
                verdict.status == "True" || verdict.reason == "PeerPathDegraded"
            } else if UNCONNECTED.contains(&name) {
                verdict.status == "True"
            } else {
                name != "idle" || verdict.reason == "NoTraffic"
            };
            if !is_as_claimed {
                self.fail(format!("{verdict}"));
            }
        }
        Ok(verdicts)
    }

    /// The condition names the pod that was broken, seen from the side that must see it.
    fn check_blame(&mut self, pod: &Pod, kind: Kind) -> anyhow::Result<String> {
        let shop = self.cluster.kubectl.get(&["-n", "demo", "application", "shop"])?;
        let evidence = &shop["status"]["health"]["evidence"][0];
        if evidence["pod"] != pod.name.as_str() {
            self.fail(format!("shop blames {}, not {}", evidence["pod"], pod.name));
        }
        if evidence["signal"] != "RetransmitRatio" {
            self.fail(format!("shop blames for {}", evidence["signal"]));
        }
        let all = shop["status"]["health"]["evidence"].as_array().cloned().unwrap_or_default();
        let view = if kind == Kind::Egress { "own" } else { "seenByPeers" };
        if !all.iter().any(|entry| entry["pod"] == pod.name.as_str() && entry["view"] == view) {
            self.fail(format!("no evidence of the view {view}"));
        }
        let verdicts = view::verdicts(self.cluster)?;
        let shop = verdicts.into_iter().find(|verdict| verdict.name == "shop");
        Ok(shop.map(|verdict| verdict.message).unwrap_or_default())
    }
}
