//! Streams, pipelines and store of all nodes, together: what happens when a stream begins, a batch
//! comes, a stream ends or time passes.
//!
//! Pure but for the tokens that end replaced streams: the caller gives the time and holds the lock.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use keelson_model::{CoverageReason, NodeName, UnixNanos, WindowId, limits};
use tokio_util::sync::CancellationToken;

use crate::{
    batch::{Agent, Batch},
    pairs::Pairs,
    pipeline::{Admission, NodePipeline},
    store::{Bounds, Connections, Presence, Rejected, Report, Store, span_ns},
};

/// Everything that is known of the nodes.
#[derive(Debug)]
pub struct Core {
    nodes: HashMap<NodeName, Node>,
    /// Flows and evidence.
    pub store: Store,
    /// Kept connections.
    pub connections: Connections,
    /// Both ends of connections.
    pub pairs: Pairs,
    generations: u64,
}

#[derive(Debug)]
struct Node {
    pipeline: NodePipeline,
    stream: Option<Stream>,
}

#[derive(Debug)]
struct Stream {
    generation: u64,
    replaced: CancellationToken,
}

/// A node's stream as its task holds it.
#[derive(Clone, Debug)]
pub struct StreamHandle {
    /// The node.
    pub node: NodeName,
    generation: u64,
    /// Cancelled when a newer stream of the node takes its place.
    pub replaced: CancellationToken,
    /// The highest batch of this agent pod that is held; 0: none.
    pub last_batch: u64,
    /// Records of its boot and epoch that are held, by probe.
    pub delivered: Vec<(String, u64)>,
}

/// What became of a batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Acknowledge all up to and with this one.
    pub acknowledged: u64,
    /// It had been seen before.
    pub is_duplicate: bool,
    /// Its flows were not kept.
    pub rejected: Option<(Rejected, u64)>,
}

/// A stream that cannot be served.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum StreamError {
    /// More nodes than the bound.
    #[error("the collector keeps account of at most {} nodes", limits::COLLECTOR_NODES)]
    TooManyNodes,
    /// A newer stream of the node took its place.
    #[error("a newer stream of this node took its place")]
    Replaced,
}

/// One node's state, for an answer.
#[derive(Debug)]
pub struct NodeView<'a> {
    /// What its batches say.
    pub pipeline: &'a NodePipeline,
    /// Its agent has a stream.
    pub is_connected: bool,
}

// === impl Core ===

impl Core {
    /// Nothing known yet.
    #[must_use]
    pub fn new(bounds: Bounds, now: UnixNanos) -> Self {
        Self {
            nodes: HashMap::new(),
            store: Store::new(bounds, now),
            connections: Connections::default(),
            pairs: Pairs::new(now),
            generations: 0,
        }
    }

    /// A stream begins; it takes the place of an older one of the same node.
    ///
    /// # Errors
    /// There are too many nodes.
    pub fn connect(&mut self, agent: Agent) -> Result<StreamHandle, StreamError> {
        let agent = Arc::new(agent);
        let name = agent.node.clone();
        if !self.nodes.contains_key(&name) && self.nodes.len() >= limits::COLLECTOR_NODES {
            return Err(StreamError::TooManyNodes);
        }
        self.generations += 1;
        let generation = self.generations;
        let replaced = CancellationToken::new();
        let node = self.nodes.entry(name.clone()).or_insert_with(|| Node {
            pipeline: NodePipeline::new(Arc::clone(&agent)),
            stream: None,
        });
        node.pipeline.connect(agent);
        let stream = Stream { generation, replaced: replaced.clone() };
        if let Some(older) = node.stream.replace(stream) {
            older.replaced.cancel();
        }
        let last_batch = node.pipeline.last_batch();
        let delivered = node.pipeline.accounts().delivered();
        let delivered = delivered.map(|(probe, count)| (probe.to_owned(), count)).collect();
        Ok(StreamHandle { node: name, generation, replaced, last_batch, delivered })
    }

    /// A batch came, at `now`.
    ///
    /// # Errors
    /// The stream was replaced meanwhile; nothing is taken.
    pub fn take(
        &mut self,
        stream: &StreamHandle,
        batch: Batch,
        now: UnixNanos,
    ) -> Result<Taken, StreamError> {
        let node = self.nodes.get_mut(&stream.node).filter(|node| node.is_served_by(stream));
        let pipeline = &mut node.ok_or(StreamError::Replaced)?.pipeline;
        if pipeline.admit(&batch) == Admission::Duplicate {
            let acknowledged = pipeline.last_batch();
            return Ok(Taken { acknowledged, is_duplicate: true, rejected: None });
        }
        let (window, is_baseline) = (batch.window, batch.baseline);
        let applied = pipeline.apply(batch, now);
        let acknowledged = pipeline.last_batch();
        if is_baseline {
            return Ok(Taken { acknowledged, ..Taken::default() });
        }
        let report =
            Report { reasons: applied.reasons, lost: applied.lost, closes: applied.closes };
        let rows = applied.flows.len() as u64;
        let connections = applied.connections.iter();
        let pairs = connections.filter_map(|row| self.pairs.take(row, now)).collect();
        let kept = self.store.insert(&stream.node, window, applied.flows, pairs, report, now);
        if kept == Err(Rejected::Full) {
            self.store.add_reason(&stream.node, window, CoverageReason::Loss);
        }
        self.connections.insert(applied.connections, now);
        let rejected = kept.err().map(|why| (why, rows));
        Ok(Taken { acknowledged, is_duplicate: false, rejected })
    }

    /// A stream ended; of no effect if a newer one took its place.
    pub fn disconnect(&mut self, stream: &StreamHandle) {
        if let Some(node) = self.nodes.get_mut(&stream.node)
            && node.is_served_by(stream)
        {
            node.stream = None;
        }
    }

    /// Time passed: closes windows that are due, forgets what is too old. `expected` are the nodes
    /// of the cluster, which are told of also when they never had an agent.
    pub fn tick<'a>(
        &mut self,
        expected: impl Iterator<Item = &'a NodeName>,
        now: UnixNanos,
    ) -> Vec<WindowId> {
        let is_needed = |node: &Node| {
            let silent_ns = now.0.saturating_sub(node.pipeline.last_seen().0);
            node.stream.is_some() || silent_ns < span_ns()
        };
        self.nodes.retain(|_, node| is_needed(node));
        let mut presence: BTreeMap<NodeName, Presence> =
            expected.map(|node| (node.clone(), Presence::default())).collect();
        for (name, node) in &self.nodes {
            presence.insert(name.clone(), node.presence());
        }
        self.connections.expire(now);
        self.pairs.expire(now);
        self.store.close_due(&presence, now)
    }

    /// Every node that has, or had not long ago, an agent.
    pub fn nodes(&self) -> impl Iterator<Item = NodeView<'_>> {
        self.nodes
            .values()
            .map(|node| NodeView { pipeline: &node.pipeline, is_connected: node.stream.is_some() })
    }
}

// === impl Node ===

impl Node {
    fn is_served_by(&self, stream: &StreamHandle) -> bool {
        self.stream.as_ref().is_some_and(|own| own.generation == stream.generation)
    }

    fn presence(&self) -> Presence {
        Presence {
            is_connected: self.stream.is_some(),
            delivered: self.pipeline.delivered(),
            is_skewed: self.pipeline.is_skewed(),
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_model::{ClockReading, Coverage, Epoch};

    use super::*;

    const NOW: UnixNanos = UnixNanos(5_000_000_000_000);

    fn core() -> Core {
        Core::new(Bounds::default(), NOW)
    }

    fn agent(node: &str, pod_uid: &str) -> Agent {
        Agent {
            node: node.into(),
            node_uid: "uid".into(),
            pod_uid: pod_uid.into(),
            boot_id: "boot".into(),
            epoch: Epoch(1),
            version: String::new(),
            kernel_release: String::new(),
        }
    }

    fn batch(number: u64) -> Batch {
        Batch {
            number,
            window: WindowId::containing(NOW),
            baseline: false,
            last_part: true,
            clock: ClockReading { unix: NOW, ..Default::default() },
            series: vec![],
            records: vec![],
            ledgers: vec![],
            coverage: Coverage::default(),
        }
    }

    #[test]
    fn a_newer_stream_of_a_node_takes_the_place_of_the_older() {
        let mut core = core();
        let older = core.connect(agent("a", "pod")).unwrap();
        let other = core.connect(agent("b", "pod")).unwrap();
        assert_eq!(core.take(&older, batch(1), NOW).unwrap().acknowledged, 1);
        let newer = core.connect(agent("a", "pod")).unwrap();
        assert!(older.replaced.is_cancelled() && !other.replaced.is_cancelled());
        assert_eq!(newer.last_batch, 1);
        assert_eq!(core.take(&older, batch(2), NOW), Err(StreamError::Replaced));
        core.disconnect(&older);
        assert!(core.nodes().all(|node| node.is_connected));
        assert_eq!(core.take(&newer, batch(2), NOW).unwrap().acknowledged, 2);
    }

    #[test]
    fn a_duplicate_is_acknowledged_and_not_counted() {
        let mut core = core();
        let stream = core.connect(agent("a", "pod")).unwrap();
        core.take(&stream, batch(1), NOW).unwrap();
        core.take(&stream, batch(2), NOW).unwrap();
        let again = core.take(&stream, batch(1), NOW).unwrap();
        assert_eq!((again.acknowledged, again.is_duplicate), (2, true));
    }

    #[test]
    fn nodes_beyond_the_bound_are_refused_and_silent_ones_forgotten() {
        let mut core = core();
        for number in 0..limits::COLLECTOR_NODES {
            let stream = core.connect(agent(&format!("node-{number}"), "pod")).unwrap();
            core.disconnect(&stream);
        }
        assert_eq!(core.connect(agent("more", "pod")).unwrap_err(), StreamError::TooManyNodes);
        core.tick(std::iter::empty(), NOW);
        assert_eq!(core.nodes().count(), 0, "they never sent anything");
        core.connect(agent("more", "pod")).unwrap();
    }

    #[test]
    fn a_window_far_ahead_is_refused_and_its_rows_are_counted() {
        let mut core = core();
        let stream = core.connect(agent("a", "pod")).unwrap();
        let ahead = Batch { window: WindowId(u64::MAX), ..batch(1) };
        let taken = core.take(&stream, ahead, NOW).unwrap();
        assert_eq!(taken.rejected, Some((Rejected::Future, 0)));
        assert_eq!(taken.acknowledged, 1);
    }
}
