//! When a window is closed for a judge, and what a judge then gets.
//!
//! Windows are closed in order, each once. What comes late is not lost: it goes with the next
//! window, marked by its own.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use keelson_model::{CoverageReason, NodeName, UnixNanos, WindowId};

use super::{Segment, Slot, Store, deadline, overlaps};

/// A window as a judge gets it; never changed.
#[derive(Debug)]
pub struct ClosedWindow {
    /// The window.
    pub window: WindowId,
    /// When it was closed, by our clock.
    pub closed_at: UnixNanos,
    /// Flows of this window, and late ones of earlier windows.
    pub segments: Vec<Arc<Segment>>,
    /// Every node known, with what it saw in this window.
    pub nodes: Vec<NodeWindow>,
}

/// What a node saw in a window.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeWindow {
    /// The node.
    pub node: NodeName,
    /// How much.
    pub state: NodeState,
    /// Why not more.
    pub reasons: BTreeSet<CoverageReason>,
}

/// How much of a window a node delivered in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    /// All of it.
    Complete,
    /// Some of it is missing.
    Partial,
    /// Nothing.
    Absent,
}

/// What is known of a node when windows are closed.
#[derive(Clone, Debug, Default)]
pub struct Presence {
    /// Its agent has a stream.
    pub is_connected: bool,
    /// The last window that it delivered whole.
    pub delivered: Option<WindowId>,
    /// Its clock is off by more than a window.
    pub is_skewed: bool,
}

/// What a judge gets next.
#[derive(Debug)]
pub enum EvidenceRead {
    /// The next window.
    Window(Arc<ClosedWindow>),
    /// So many windows were closed or passed that are no longer held.
    Lost {
        /// Read on after this one.
        resume_after: WindowId,
        /// How many windows.
        count: u64,
    },
    /// Nothing is closed yet.
    Wait,
}

// === impl Store ===

impl Store {
    /// Closes every window that is due and drops what has left the recent past. Gives the windows
    /// that were closed.
    ///
    /// A window is due when its time has passed and every connected node has delivered it, or at
    /// its deadline.
    pub fn close_due(
        &mut self,
        nodes: &BTreeMap<NodeName, Presence>,
        now: UnixNanos,
    ) -> Vec<WindowId> {
        // After a leap of the clock there is nothing to close but what could still be held.
        self.next_close = self.next_close.max(self.oldest_kept(WindowId::containing(now)));
        let mut closed = Vec::new();
        while self.is_due(self.next_close, nodes, now) {
            let window = self.next_close;
            self.close(window, nodes, now);
            self.next_close = window.next();
            closed.push(window);
        }
        self.expire(now);
        closed
    }

    /// Closed windows that overlap `[since, until)` in which a node counted nothing for some time, by
    /// node and reason: what nobody counted is in no account.
    #[must_use]
    pub fn unseen(
        &self,
        since: UnixNanos,
        until: UnixNanos,
    ) -> BTreeMap<(NodeName, CoverageReason), u64> {
        let mut unseen = BTreeMap::new();
        let closed = self.closed.iter().filter(|closed| overlaps(closed.window, since, until));
        for node in closed.flat_map(|closed| &closed.nodes) {
            for reason in [CoverageReason::NoAgent, CoverageReason::BlindInterval] {
                if node.reasons.contains(&reason) {
                    *unseen.entry((node.node.clone(), reason)).or_default() += 1;
                }
            }
        }
        unseen
    }

    /// What comes after the window `after`; none: the oldest held.
    #[must_use]
    pub fn evidence_after(&self, after: Option<WindowId>) -> EvidenceRead {
        let wanted = after.map(WindowId::next);
        let next =
            self.closed.iter().find(|closed| wanted.is_none_or(|wanted| closed.window >= wanted));
        let Some(next) = next else { return EvidenceRead::Wait };
        match wanted {
            Some(wanted) if next.window > wanted => EvidenceRead::Lost {
                resume_after: WindowId(next.window.0 - 1),
                count: next.window.0 - wanted.0,
            },
            _ => EvidenceRead::Window(Arc::clone(next)),
        }
    }

    fn is_due(
        &self,
        window: WindowId,
        nodes: &BTreeMap<NodeName, Presence>,
        now: UnixNanos,
    ) -> bool {
        if now < window.end() {
            return false;
        }
        let mut connected = nodes.values().filter(|node| node.is_connected).peekable();
        let all_delivered = connected.peek().is_some()
            && connected.all(|node| node.delivered.is_some_and(|last| last >= window));
        all_delivered || now >= deadline(window)
    }

    fn close(&mut self, window: WindowId, nodes: &BTreeMap<NodeName, Presence>, now: UnixNanos) {
        let slot = self.slots.entry(window).or_default();
        let mut segments = std::mem::take(&mut self.late);
        segments.extend(slot.segments.iter().map(Arc::clone));
        let nodes =
            nodes.iter().map(|(node, presence)| node_window(node, presence, slot)).collect();
        if self.closed.len() == self.bounds.windows {
            self.closed.pop_front();
        }
        self.closed.push_back(Arc::new(ClosedWindow { window, closed_at: now, segments, nodes }));
    }
}

fn node_window(node: &NodeName, presence: &Presence, slot: &Slot) -> NodeWindow {
    let report = slot.reports.get(node);
    let mut reasons = report.map(|report| report.reasons.clone()).unwrap_or_default();
    if presence.is_skewed {
        reasons.insert(CoverageReason::ClockSkew);
    }
    let state = match report {
        None => NodeState::Absent,
        Some(report) if report.closes && reasons.is_empty() => NodeState::Complete,
        Some(_) => NodeState::Partial,
    };
    if state == NodeState::Absent && !presence.is_connected {
        reasons.insert(CoverageReason::NoAgent);
    }
    NodeWindow { node: node.clone(), state, reasons }
}
