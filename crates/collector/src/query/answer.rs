//! Rows as messages of the query service, and what an answer says that it lacks.

use std::collections::BTreeMap;

use keelson_model::{Endpoint, LossReason, NodeName, PeerSource, UnixNanos, WindowId};
use keelson_proto::{convert, query as wire};

use crate::{
    pipeline::ledger,
    store::{ConnectionRow, FlowRow, Segment, Store},
};

/// The span of time that a query asks for; open ends are the ends of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First instant.
    pub since: UnixNanos,
    /// First instant after it.
    pub until: UnixNanos,
}

/// What kind of loss makes an answer short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lacks {
    /// Loss of counts.
    Counts,
    /// Loss of records.
    Records,
}

/// The losses that an answer has told of.
#[derive(Debug)]
pub struct Losses {
    range: Range,
    lacks: Lacks,
    said: BTreeMap<(NodeName, &'static str), u64>,
    /// The window in which the store was last asked: once a window is enough.
    asked_in: Option<WindowId>,
}

// === impl Range ===

impl Range {
    /// From the wire; 0 is an open end.
    #[must_use]
    pub fn new(range: Option<wire::TimeRange>) -> Self {
        let range = range.unwrap_or_default();
        let until = match range.until_unix_ns {
            0 => u64::MAX,
            until => until,
        };
        Self { since: UnixNanos(range.since_unix_ns), until: UnixNanos(until) }
    }

    /// As a pair.
    #[must_use]
    pub fn bounds(self) -> (UnixNanos, UnixNanos) {
        (self.since, self.until)
    }

    /// Windows asked for by a named beginning that lie before the oldest held.
    #[must_use]
    pub fn expired_windows(self, oldest: Option<WindowId>) -> u64 {
        match oldest {
            Some(oldest) if self.since.0 > 0 => {
                oldest.0.saturating_sub(WindowId::containing(self.since).0)
            }
            _ => 0,
        }
    }
}

// === impl Losses ===

impl Losses {
    /// None told yet.
    #[must_use]
    pub fn new(range: Range, lacks: Lacks) -> Self {
        Self { range, lacks, said: BTreeMap::new(), asked_in: None }
    }

    /// What the nodes lost, and windows that they did not see, since this was asked last.
    pub fn news(&mut self, store: &Store, now: UnixNanos) -> Vec<wire::Lost> {
        let window = WindowId::containing(now);
        if self.asked_in == Some(window) {
            return Vec::new();
        }
        self.asked_in = Some(window);
        let Range { since, until } = self.range;
        let is_counts = self.lacks == Lacks::Counts;
        let lost = store.losses(since, until).into_iter();
        let lost = lost.filter(|((_, reason), _)| ledger::touches_counts(*reason) == is_counts);
        let lost = lost.map(|((node, reason), count)| ((node, reason.as_str()), count));
        let unseen = store.unseen(since, until).into_iter();
        let unseen = unseen.map(|((node, reason), count)| ((node, reason.as_str()), count));
        let mut news = Vec::new();
        for ((node, reason), total) in lost.chain(unseen) {
            let said = self.said.entry((node.clone(), reason)).or_default();
            let count = total.saturating_sub(*said);
            // As windows leave, totals shrink; what was told stays told.
            *said = total;
            if count > 0 {
                let (node, reason) = (node.as_str().to_owned(), reason.to_owned());
                news.push(wire::Lost { node, reason, count });
            }
        }
        news
    }
}

/// A flow as a message.
#[must_use]
pub fn flow(
    segment: &Segment,
    row: &FlowRow,
    peer: &Endpoint,
    peer_source: PeerSource,
) -> wire::FlowsResponse {
    let flow = wire_flow(segment, row, peer, peer_source);
    wire::FlowsResponse { response: Some(wire::flows_response::Response::Flow(flow)) }
}

/// A flow, for an answer or an evidence window.
#[must_use]
pub fn wire_flow(
    segment: &Segment,
    row: &FlowRow,
    peer: &Endpoint,
    peer_source: PeerSource,
) -> wire::Flow {
    convert::flow_to_wire(&keelson_model::Flow {
        window: segment.window,
        node: segment.node.clone(),
        local: row.local.as_ref().clone(),
        peer: peer.clone(),
        peer_source,
        remote: row.remote,
        direction: row.direction,
        port: row.port,
        delta: row.delta,
    })
}

/// What an answer lacks.
#[must_use]
pub fn lost(node: &str, reason: LossReason, count: u64) -> wire::Lost {
    wire::Lost { node: node.to_owned(), reason: reason.as_str().to_owned(), count }
}

/// A kept connection as a message.
#[must_use]
pub fn connection(
    row: &ConnectionRow,
    peer: &Endpoint,
    peer_source: PeerSource,
) -> wire::Connection {
    let agent = &row.agent;
    wire::Connection {
        node: agent.node.as_str().to_owned(),
        node_uid: agent.node_uid.to_string(),
        boot_id: agent.boot_id.as_str().to_owned(),
        epoch: agent.epoch.0,
        local: Some(convert::endpoint_to_wire(&row.local)),
        peer: Some(convert::endpoint_to_wire(peer)),
        start_unix_ns: row.start.0,
        end_unix_ns: row.end.0,
        record: Some(convert::record_to_wire(&row.record)),
        peer_source: convert::peer_source_to_wire(peer_source).into(),
    }
}
