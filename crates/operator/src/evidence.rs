//! The collector's windows as the judge reads them: counters by pair of parties, and what each
//! node saw. `stream` fills it; a judge never waits for the network.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use keelson_model::{
    Direction, Endpoint, Flow, NodeName, PodUid, TcpCounters, UnixNanos, WindowId, limits,
};
use prometheus_client::encoding::EncodeLabelValue;

pub mod stream;

/// Someone who votes, or is voted on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Party {
    /// A pod of this cluster.
    Pod(PodUid),
    /// A node of this cluster.
    Node(NodeName),
    /// All outside addresses together.
    External,
}

/// How much a node saw of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// All of it.
    Complete,
    /// Some of it is missing.
    Partial,
    /// Nothing.
    Absent,
}

/// One closed window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowEvidence {
    /// The window.
    pub id: WindowId,
    /// Observer and peer to what the observer's sockets counted.
    pub pairs: BTreeMap<(Party, Party), BTreeMap<Direction, TcpCounters>>,
    /// Every node that the collector knows.
    pub nodes: BTreeMap<NodeName, Seen>,
}

/// Recent windows, oldest first, bounded.
#[derive(Clone, Debug, Default)]
pub struct EvidenceCache {
    windows: VecDeque<WindowEvidence>,
}

/// Why a window is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the names are the label values")]
pub enum Refusal {
    /// It says nothing of now: a collector plays back what it holds.
    #[error("it is older than {} s", limits::OPERATOR_EVIDENCE_SKEW_SECONDS)]
    old,
    /// A judge would wait for time to come to it.
    #[error(
        "it lies in the future: do the clocks of the collector's and the operator's node agree?"
    )]
    future,
    /// It was taken before, or a later one was.
    #[error("it or a later one was taken already")]
    repeated,
    /// More flows than one window may hold.
    #[error("it has more than {} flows", limits::OPERATOR_WINDOW_FLOWS)]
    too_many_flows,
}

// === impl Party ===

impl Party {
    /// The party of an endpoint; none for those that do not vote.
    #[must_use]
    pub fn of(endpoint: &Endpoint) -> Option<Self> {
        match endpoint {
            Endpoint::Pod(pod) => Some(Self::Pod(pod.uid.clone())),
            Endpoint::Node(node) => Some(Self::Node(node.clone())),
            Endpoint::External(_) => Some(Self::External),
            // Behind a Service's address stands one of several pods; the rest is not known.
            Endpoint::Service(_) | Endpoint::Other | Endpoint::Unknown(_) => None,
        }
    }

    /// Only pods are blamed.
    #[must_use]
    pub fn is_pod(&self) -> bool {
        matches!(self, Self::Pod(_))
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pod(uid) => write!(f, "{uid}"),
            Self::Node(node) => write!(f, "node {node}"),
            Self::External => f.write_str("external"),
        }
    }
}

// === impl WindowEvidence ===

impl WindowEvidence {
    /// Adds a flow to its pair.
    pub fn add(&mut self, flow: &Flow) {
        let (Some(observer), Some(peer)) = (Party::of(&flow.local), Party::of(&flow.peer)) else {
            return;
        };
        if !observer.is_pod() {
            return;
        }
        let directions = self.pairs.entry((observer, peer)).or_default();
        let counters = directions.entry(flow.direction).or_default();
        *counters = counters.plus(&flow.delta);
    }
}

// === impl EvidenceCache ===

impl EvidenceCache {
    /// Takes a closed window, whole, with late flows of earlier ones.
    ///
    /// # Errors
    /// It is not about now, or was taken before.
    pub fn push(
        &mut self,
        id: WindowId,
        nodes: BTreeMap<NodeName, Seen>,
        flows: &[Flow],
        now: UnixNanos,
    ) -> Result<(), Refusal> {
        let skew_ns = limits::OPERATOR_EVIDENCE_SKEW_SECONDS * 1_000_000_000;
        if id.end().0.saturating_add(skew_ns) < now.0 {
            return Err(Refusal::old);
        }
        if id.end().0 > now.0.saturating_add(skew_ns) {
            return Err(Refusal::future);
        }
        if self.newest().is_some_and(|newest| id <= newest) {
            return Err(Refusal::repeated);
        }
        self.windows.push_back(WindowEvidence { id, nodes, ..Default::default() });
        for flow in flows {
            if let Some(window) = self.windows.iter_mut().find(|held| held.id == flow.window) {
                window.add(flow);
            }
        }
        while self.windows.len() > limits::OPERATOR_WINDOWS {
            self.windows.pop_front();
        }
        Ok(())
    }

    /// Windows after `last`, oldest first.
    pub fn after(&self, last: WindowId) -> impl Iterator<Item = &WindowEvidence> {
        self.windows.iter().filter(move |window| window.id > last)
    }

    /// The newest window that was taken.
    #[must_use]
    pub fn newest(&self) -> Option<WindowId> {
        self.windows.back().map(|window| window.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(cache: &mut EvidenceCache, id: u64, second: u64) -> Result<(), Refusal> {
        cache.push(WindowId(id), BTreeMap::new(), &[], UnixNanos(second * 1_000_000_000))
    }

    #[test]
    fn only_windows_about_now_are_taken_each_once_and_in_order() {
        let mut cache = EvidenceCache::default();
        // Window 100 ends at second 505.
        assert_eq!(push(&mut cache, 100, 536), Err(Refusal::old));
        assert_eq!(push(&mut cache, 100, 474), Err(Refusal::future));
        assert_eq!(push(&mut cache, 100, 505), Ok(()));
        assert_eq!(push(&mut cache, 100, 506), Err(Refusal::repeated));
        assert_eq!(push(&mut cache, 99, 506), Err(Refusal::repeated));
        for id in 101..200 {
            assert_eq!(push(&mut cache, id, (id + 1) * 5), Ok(()));
        }
        assert_eq!(cache.after(WindowId(0)).count(), limits::OPERATOR_WINDOWS);
        assert_eq!(cache.newest(), Some(WindowId(199)));
    }
}
