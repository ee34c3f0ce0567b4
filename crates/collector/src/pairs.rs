//! Brings the two ends of a connection together by its initial sequence numbers, which are the same
//! at both ends, through Services and masquerade.
//!
//! Pure. Two generations, each of half the bound: what was not touched for a generation leaves.

use std::{collections::HashMap, sync::Arc};

use keelson_model::{
    BootNanos, Direction, Endpoint, IsnPair, NodeName, TcpCounters, UnixNanos, WINDOW_SECONDS,
    limits,
};

use crate::store::{ConnectionRow, PairRow, span_ns};

const WINDOW_NS: u64 = WINDOW_SECONDS * 1_000_000_000;

/// The connections of the recent past by their initial sequence numbers.
#[derive(Debug)]
pub struct Pairs {
    young: HashMap<IsnPair, Ends>,
    old: HashMap<IsnPair, Ends>,
    /// When `young` began.
    began: UnixNanos,
    per_generation: usize,
    evicted_early: u64,
}

#[derive(Clone, Debug, Default)]
struct Ends {
    client: Option<End>,
    server: Option<End>,
    /// Two connections have these numbers: neither can be told.
    is_ambiguous: bool,
}

/// One end as its node's agent named it.
#[derive(Clone, Debug)]
pub struct End {
    local: Arc<Endpoint>,
    node: NodeName,
    network_namespace: u32,
    port: u16,
    /// In force there when it opened.
    threshold: u32,
    counted: TcpCounters,
    at: BootNanos,
}

// === impl Pairs ===

impl Pairs {
    /// None yet.
    #[must_use]
    pub fn new(now: UnixNanos) -> Self {
        Self::with_capacity(limits::COLLECTOR_PAIRS, now)
    }

    /// At most `capacity` connections.
    #[must_use]
    pub fn with_capacity(capacity: usize, now: UnixNanos) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            began: now,
            per_generation: (capacity / 2).max(1),
            evicted_early: 0,
        }
    }

    /// Notes one end, and gives what came on top of its record before; none where that cannot be
    /// told, or where the connection is not of the sample that both ends keep.
    pub fn take(&mut self, row: &ConnectionRow, now: UnixNanos) -> Option<PairRow> {
        let record = &row.record;
        let isn = record.isn?;
        self.expire(now);
        let before = self.old.remove(&isn);
        let ends = self.young.entry(isn).or_insert_with(|| before.unwrap_or_default());
        let slot = match record.direction {
            Direction::Outbound => &mut ends.client,
            Direction::Inbound => &mut ends.server,
        };
        let end = End {
            local: Arc::clone(&row.local),
            node: row.agent.node.clone(),
            network_namespace: record.network_namespace,
            port: record.local_port,
            threshold: record.sampling_threshold,
            counted: record.counters,
            at: record.end,
        };
        let delta = match slot.as_ref() {
            Some(known) if !known.is_same(&end) => {
                ends.is_ambiguous = true;
                return None;
            }
            // Records of two CPUs may come in another order than they were made.
            Some(known) if known.at > end.at => return None,
            Some(known) => record.counters.since(&known.counted),
            // What it counted before the last window was another window's.
            None if row.start.0.saturating_add(2 * WINDOW_NS) < row.end.0 => {
                *slot = Some(end);
                return None;
            }
            None => record.counters,
        };
        *slot = Some(end);
        let is_sampled = isn.hash() <= record.sampling_threshold;
        (is_sampled && !delta.is_empty()).then(|| PairRow {
            local: Arc::clone(&row.local),
            remote: record.remote_address,
            direction: record.direction,
            port: record.service_port(),
            isn,
            threshold: record.sampling_threshold,
            delta,
        })
    }

    /// The end that faces the one of `direction`; none: it is not known, or not for certain.
    #[must_use]
    pub fn other_end(&self, isn: IsnPair, direction: Direction) -> Option<&End> {
        let ends = self.young.get(&isn).or_else(|| self.old.get(&isn))?;
        let end = match direction {
            Direction::Outbound => &ends.server,
            Direction::Inbound => &ends.client,
        };
        end.as_ref().filter(|_| !ends.is_ambiguous)
    }

    /// Forgets what was not touched for long.
    pub fn expire(&mut self, now: UnixNanos) {
        let is_full = self.young.len() >= self.per_generation;
        let is_over = now.0.saturating_sub(self.began.0) >= span_ns();
        if is_full || is_over {
            if is_full && !is_over {
                self.evicted_early += self.old.len() as u64;
            }
            self.old = std::mem::take(&mut self.young);
            self.began = now;
        }
    }

    /// Connections held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// Nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Connections forgotten before their time because of the bound.
    #[must_use]
    pub fn evicted_early(&self) -> u64 {
        self.evicted_early
    }
}

// === impl End ===

impl End {
    /// Its name: the pod, or the node of a process that is no pod's.
    #[must_use]
    pub fn endpoint(&self) -> Arc<Endpoint> {
        match self.local.as_ref() {
            Endpoint::Unknown(_) => Arc::new(Endpoint::Node(self.node.clone())),
            _ => Arc::clone(&self.local),
        }
    }

    /// The threshold in force there when it opened.
    #[must_use]
    pub fn threshold(&self) -> u32 {
        self.threshold
    }

    fn is_same(&self, other: &Self) -> bool {
        (&self.node, self.network_namespace, self.port)
            == (&other.node, other.network_namespace, other.port)
    }
}

#[cfg(test)]
mod tests;
