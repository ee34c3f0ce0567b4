//! The collector's windows as the judge reads them: counters by pair of parties, and what each
//! node saw. `stream` fills it; a judge never waits for the network.

use std::{
    collections::{BTreeMap, VecDeque},
    fmt,
};

use keelson_model::{
    Direction, Endpoint, Flow, NodeName, PodUid, TcpCounters, UnixNanos, WindowId, limits,
};

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
    received: UnixNanos,
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
    /// Takes a closed window, with late flows of earlier ones.
    pub fn push(
        &mut self,
        id: WindowId,
        nodes: BTreeMap<NodeName, Seen>,
        flows: &[Flow],
        now: UnixNanos,
    ) {
        self.received = now;
        let position = self.windows.iter().position(|window| window.id == id);
        match position.and_then(|position| self.windows.get_mut(position)) {
            Some(window) => window.nodes.extend(nodes),
            None => self.windows.push_back(WindowEvidence { id, nodes, ..Default::default() }),
        }
        for flow in flows {
            if let Some(window) = self.windows.iter_mut().find(|held| held.id == flow.window) {
                window.add(flow);
            }
        }
        while self.windows.len() > limits::OPERATOR_WINDOWS {
            self.windows.pop_front();
        }
    }

    /// Windows after `last`, oldest first.
    pub fn after(&self, last: WindowId) -> impl Iterator<Item = &WindowEvidence> {
        self.windows.iter().filter(move |window| window.id > last)
    }

    /// When a window came last, by our clock; zero: never.
    #[must_use]
    pub fn received(&self) -> UnixNanos {
        self.received
    }
}
