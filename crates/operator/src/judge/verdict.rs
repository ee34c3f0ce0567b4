//! One Application's windows to its verdict and the evidence for it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use keelson_api::{
    conditions::HealthReason,
    validate::{Policy, Rule, Signal},
};
use keelson_model::{NodeName, WINDOW_SECONDS, WindowId};

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

/// What one window says by one rule.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    /// In a word.
    pub sign: Sign,
    /// Pods that are named, worst first.
    pub findings: Vec<Finding>,
}

/// One rule's verdict so far.
#[derive(Clone, Debug, Default, PartialEq)]
struct Track {
    hysteresis: Hysteresis,
    /// Of the last window that had any, while they matter.
    findings: Vec<Finding>,
}

/// What an earlier process left in a status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its verdict.
    pub verdict: Verdict,
    /// The signal that made it; none where all rules share it, or it is not known.
    pub signal: Option<Signal>,
}

/// An Application's judgement so far: each rule has a history of its own, so that one signal's good
/// windows do not end another's bad ones.
#[derive(Clone, Debug, PartialEq)]
pub struct Judgement {
    /// What the rules begin with.
    stored: Stored,
    tracks: BTreeMap<Signal, Track>,
    /// Last window that was read.
    pub last: WindowId,
    /// Nodes of its pods that the last window did not see whole.
    pub missing: BTreeSet<NodeName>,
}

impl Default for Judgement {
    fn default() -> Self {
        Self::seeded(Stored { verdict: Verdict::Unknown(HealthReason::NoTraffic), signal: None })
    }
}

// === impl Judgement ===

impl Judgement {
    /// Begins where an earlier process left off.
    #[must_use]
    pub fn seeded(stored: Stored) -> Self {
        let (tracks, missing) = (BTreeMap::new(), BTreeSet::new());
        Self { stored, tracks, last: WindowId::default(), missing }
    }

    /// Forgets every rule's history: all begin anew from this. Windows that were read stay read.
    pub fn restart(&mut self, reason: HealthReason) {
        let stored = Stored { verdict: Verdict::Unknown(reason), signal: None };
        *self = Self { last: self.last, ..Self::seeded(stored) };
    }

    /// The worst of the rules' verdicts.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let verdicts = self.tracks.values().map(|track| track.hysteresis.verdict());
        verdicts.max_by_key(|verdict| rank(*verdict)).unwrap_or(self.stored.verdict)
    }

    /// What the verdict rests on, its own signal first.
    #[must_use]
    pub fn findings(&self) -> Vec<&Finding> {
        let mut tracks: Vec<&Track> = self.tracks.values().filter(|track| track.is_bad()).collect();
        tracks.sort_by_key(|track| std::cmp::Reverse(rank(track.hysteresis.verdict())));
        tracks.into_iter().flat_map(|track| &track.findings).take(SHOWN).collect()
    }

    /// Takes the windows that are new.
    pub fn read<'a>(
        &mut self,
        windows: impl Iterator<Item = &'a WindowEvidence>,
        pods: &BTreeSet<Party>,
        directory: &PodDirectory,
        policy: &Policy,
    ) {
        self.tracks.retain(|signal, _| policy.rules.iter().any(|rule| rule.signal == *signal));
        for window in windows {
            let is_first = self.tracks.is_empty();
            let (coverage, missing) = coverage(window, pods, directory);
            for rule in &policy.rules {
                let seed = self.stored.of(rule.signal).filter(|_| is_first);
                let track = self.tracks.entry(rule.signal).or_insert_with(|| Track::new(seed));
                let reading = read(window, pods, directory, rule, track.against(), coverage);
                track.take(reading, patience(rule, policy));
            }
            self.last = window.id;
            self.missing = missing;
        }
    }
}

// === impl Stored ===

impl Stored {
    /// What the rule of that signal begins with.
    fn of(self, signal: Signal) -> Option<Verdict> {
        self.signal.is_none_or(|own| own == signal).then_some(self.verdict)
    }
}

// === impl Track ===

impl Track {
    fn new(seed: Option<Verdict>) -> Self {
        let hysteresis = seed.map_or_else(Hysteresis::default, Hysteresis::seeded);
        Self { hysteresis, findings: Vec::new() }
    }

    fn is_bad(&self) -> bool {
        rank(self.hysteresis.verdict()) >= rank(Verdict::Unknown(HealthReason::PeerPathDegraded))
    }

    fn against(&self) -> Against {
        match self.hysteresis.verdict() {
            Verdict::Unhealthy(_) => Against::Leave,
            Verdict::Healthy | Verdict::Unknown(_) => Against::Enter,
        }
    }

    fn take(&mut self, reading: Reading, patience: Patience) {
        self.hysteresis.step(reading.sign, patience);
        if !reading.findings.is_empty() {
            self.findings = reading.findings;
        } else if self.hysteresis.verdict() == Verdict::Healthy {
            self.findings.clear();
        }
    }
}

/// How much a verdict says: blame before doubt, doubt before good news, good news before none.
fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Unhealthy(HealthReason::NodeDegraded) => 7,
        Verdict::Unhealthy(_) => 6,
        Verdict::Unknown(HealthReason::PeerPathDegraded) => 5,
        Verdict::Healthy => 4,
        Verdict::Unknown(HealthReason::NoTraffic) => 3,
        Verdict::Unknown(HealthReason::NoCoverage) => 2,
        Verdict::Unknown(HealthReason::Stale) => 1,
        Verdict::Unknown(_) => 0,
    }
}

fn patience(rule: &Rule, policy: &Policy) -> Patience {
    let uncovered = policy.freshness.as_secs().div_ceil(WINDOW_SECONDS);
    Patience {
        enter: rule.enter_windows,
        leave: rule.leave_windows,
        uncovered: u32::try_from(uncovered).unwrap_or(u32::MAX),
    }
}

/// How much of the pods a window saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coverage {
    Whole,
    Partly,
    Nothing,
}

/// With the nodes that were not seen whole.
fn coverage(
    window: &WindowEvidence,
    pods: &BTreeSet<Party>,
    directory: &PodDirectory,
) -> (Coverage, BTreeSet<NodeName>) {
    let nodes: BTreeSet<&NodeName> =
        pods.iter().filter_map(|pod| directory.get(pod)).map(|facts| &facts.node).collect();
    let seen = |node: &NodeName| window.nodes.get(node).copied().unwrap_or(Seen::Absent);
    let missing: BTreeSet<NodeName> =
        nodes.iter().copied().filter(|node| seen(node) != Seen::Complete).cloned().collect();
    let coverage = if missing.is_empty() {
        Coverage::Whole
    } else if nodes.iter().all(|node| seen(node) == Seen::Absent) {
        Coverage::Nothing
    } else {
        Coverage::Partly
    };
    (coverage, missing)
}

/// What one window says of the pods of an Application by one rule.
fn read(
    window: &WindowEvidence,
    pods: &BTreeSet<Party>,
    directory: &PodDirectory,
    rule: &Rule,
    against: Against,
    coverage: Coverage,
) -> Reading {
    if coverage == Coverage::Nothing {
        return Reading { sign: Sign::NoCoverage, findings: Vec::new() };
    }
    let graph = graph(window, rule, against);
    let blamed = blame(&graph);
    match sign(&graph, &blamed, pods, directory, rule) {
        // What was not seen may be bad.
        Sign::Good | Sign::NoTraffic if coverage == Coverage::Partly => {
            Reading { sign: Sign::Partly, findings: Vec::new() }
        }
        sign => {
            let findings = findings(&graph, &blamed, pods, rule, against, window.id);
            Reading { sign, findings }
        }
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
