//! One Application's windows to its verdict and the evidence for it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use keelson_api::validate::{Policy, Rule, Signal};
use keelson_model::{NodeName, WindowId};

use super::{
    blame::{Blamed, View, blame},
    graph::{Against, Graph, Level, Sight, graph},
    hysteresis::{Hysteresis, Patience, Sign, Verdict},
};
use crate::evidence::{Party, Seen, WindowEvidence};

/// Evidence entries and peers named in a status.
pub const SHOWN: usize = 5;
/// A node is blamed when at least so many of its pods are, and at least half of those with traffic.
const PODS_OF_A_NODE: usize = 3;

/// What is known of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// `namespace/name`.
    pub full_name: String,
    /// `metadata.name`.
    pub name: String,
    /// Node that it runs on.
    pub node: NodeName,
}

/// Pods of the cluster by party.
pub type PodDirectory = BTreeMap<Party, PodFacts>;

/// Why a pod is named in a status.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// The pod.
    pub pod: Party,
    /// From where it was seen.
    pub view: View,
    /// What was measured.
    pub signal: Signal,
    /// Worst value.
    pub value: f64,
    /// The threshold that it passed.
    pub threshold: f64,
    /// What it was counted from, over all peers named.
    pub samples: u64,
    /// The other ends.
    pub peers: Vec<Party>,
    /// The window.
    pub window: WindowId,
}

/// What one window says.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// In a word.
    pub sign: Sign,
    /// Pods that are named, worst first.
    pub findings: Vec<Finding>,
    /// Nodes of its pods that saw nothing.
    pub missing: BTreeSet<NodeName>,
}

/// An Application's judgement so far.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Judgement {
    /// Verdict and history.
    pub hysteresis: Hysteresis,
    /// Last window that was read.
    pub last: WindowId,
    /// Findings of the last window that had any, while they matter.
    pub findings: Vec<Finding>,
    /// Of the last window.
    pub missing: BTreeSet<NodeName>,
}

// === impl Judgement ===

impl Judgement {
    /// Takes the windows that are new.
    pub fn read<'a>(
        &mut self,
        windows: impl Iterator<Item = &'a WindowEvidence>,
        pods: &BTreeSet<Party>,
        directory: &PodDirectory,
        policy: &Policy,
    ) {
        let patience = Patience {
            enter: policy.rules.iter().map(|rule| rule.enter_windows).max().unwrap_or(2),
            leave: policy.rules.iter().map(|rule| rule.leave_windows).max().unwrap_or(3),
        };
        for window in windows {
            let is_bad = matches!(self.hysteresis.verdict(), Verdict::Unhealthy(_));
            let against = if is_bad { Against::Leave } else { Against::Enter };
            let reading = read(window, pods, directory, policy, against);
            self.hysteresis.step(reading.sign, patience);
            self.last = window.id;
            self.missing = reading.missing;
            if !reading.findings.is_empty() {
                self.findings = reading.findings;
            }
        }
        if self.hysteresis.verdict() == Verdict::Healthy {
            self.findings.clear();
        }
    }
}

/// What one window says of the pods of an Application.
#[must_use]
pub fn read(
    window: &WindowEvidence,
    pods: &BTreeSet<Party>,
    directory: &PodDirectory,
    policy: &Policy,
    against: Against,
) -> Reading {
    let nodes: BTreeSet<&NodeName> =
        pods.iter().filter_map(|pod| directory.get(pod)).map(|facts| &facts.node).collect();
    let is_missing =
        |node: &&NodeName| window.nodes.get(*node).copied().unwrap_or(Seen::Absent) == Seen::Absent;
    let missing: BTreeSet<NodeName> = nodes.iter().copied().filter(is_missing).cloned().collect();
    if !nodes.is_empty() && missing.len() == nodes.len() {
        return Reading { sign: Sign::NoCoverage, findings: Vec::new(), missing };
    }
    let mut reading = Reading { sign: Sign::NoTraffic, findings: Vec::new(), missing };
    for rule in &policy.rules {
        let graph = graph(window, rule, against);
        let blamed = blame(&graph);
        let sign = sign(&graph, &blamed, pods, directory, rule);
        if severity(sign) > severity(reading.sign) {
            reading.sign = sign;
            reading.findings = findings(&graph, &blamed, pods, rule, against, window.id);
        }
    }
    if reading.sign == Sign::Good && !reading.missing.is_empty() {
        reading.sign = Sign::Unclear;
    }
    reading
}

fn severity(sign: Sign) -> u8 {
    match sign {
        Sign::NoCoverage => 0,
        Sign::NoTraffic => 1,
        Sign::Good => 2,
        Sign::Unclear => 3,
        Sign::Path => 4,
        Sign::Bad(_) => 5,
        Sign::BadNode => 6,
    }
}

fn sign(
    graph: &Graph,
    blamed: &Blamed,
    pods: &BTreeSet<Party>,
    directory: &PodDirectory,
    rule: &Rule,
) -> Sign {
    let ours: Vec<&Party> = blamed.pods.keys().filter(|pod| pods.contains(pod)).collect();
    if !ours.is_empty() {
        let nodes = ours.iter().filter_map(|pod| directory.get(pod)).map(|facts| &facts.node);
        let is_node = nodes.into_iter().any(|node| is_node_bad(graph, blamed, directory, node));
        return if is_node { Sign::BadNode } else { Sign::Bad(rule.signal) };
    }
    if blamed.unexplained.keys().any(|pod| pods.contains(pod)) {
        return Sign::Path;
    }
    let mut sign = Sign::NoTraffic;
    for ((observer, peer), sight) in &graph.sights {
        if !pods.contains(observer) && !pods.contains(peer) {
            continue;
        }
        sign = match sight.level {
            // Bad, and the other end is blamed for it: that says nothing against us.
            Level::Bad | Level::Good if sign == Sign::NoTraffic => Sign::Good,
            Level::Between => return Sign::Unclear,
            _ => sign,
        };
    }
    sign
}

fn is_node_bad(graph: &Graph, blamed: &Blamed, directory: &PodDirectory, node: &NodeName) -> bool {
    let is_there = |pod: &&Party| directory.get(*pod).is_some_and(|facts| facts.node == *node);
    let bad = blamed.pods.keys().filter(is_there).count();
    let with_traffic: BTreeSet<&Party> =
        graph.sights.keys().map(|(observer, _)| observer).filter(is_there).collect();
    bad >= PODS_OF_A_NODE && 2 * bad >= with_traffic.len()
}

fn findings(
    graph: &Graph,
    blamed: &Blamed,
    pods: &BTreeSet<Party>,
    rule: &Rule,
    against: Against,
    window: WindowId,
) -> Vec<Finding> {
    let threshold = if against == Against::Enter { rule.enter } else { rule.leave };
    let ours = blamed.pods.keys().chain(blamed.unexplained.keys()).filter(|pod| pods.contains(pod));
    // Both views are evidence, whichever of them blamed.
    let views = ours.flat_map(|pod| [View::SeenByPeers, View::Own].map(|view| (pod, view)));
    let mut findings: Vec<Finding> = views
        .filter_map(|(pod, view)| {
            let bad = bad_sights(graph, pod, view);
            let value = bad.iter().map(|(_, sight)| sight.value).max_by(f64::total_cmp)?;
            let samples = bad.iter().map(|(_, sight)| sight.samples).fold(0, u64::saturating_add);
            let peers = bad.into_iter().map(|(peer, _)| peer.clone()).collect();
            let (pod, signal) = (pod.clone(), rule.signal);
            Some(Finding { pod, view, signal, value, threshold, samples, peers, window })
        })
        .collect();
    let is_alone = |finding: &Finding| finding.peers.len() < 2;
    findings
        .sort_by(|a, b| is_alone(a).cmp(&is_alone(b)).then_with(|| b.value.total_cmp(&a.value)));
    findings.truncate(SHOWN);
    findings
}

/// The bad sights of a pod from one side, with the other ends.
fn bad_sights<'a>(graph: &'a Graph, pod: &Party, view: View) -> Vec<(&'a Party, &'a Sight)> {
    let sights = graph.sights.iter().filter(|(_, sight)| sight.level == Level::Bad);
    let other_end = |(observer, peer): &'a (Party, Party)| match view {
        View::Own => (observer == pod).then_some(peer),
        View::SeenByPeers => (peer == pod).then_some(observer),
    };
    sights.filter_map(|(pair, sight)| Some((other_end(pair)?, sight))).collect()
}

#[cfg(test)]
mod tests;
