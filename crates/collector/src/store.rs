//! The recent past: flows by window, closed evidence windows, kept connections, all bounded.
//!
//! Pure: the caller gives the time and the nodes. Rows hold no peer's name: names are looked up when
//! a row is read, by the time of its window. Readers hold a cursor, never a queue: who is slower
//! than the store forgets is told what it missed.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    net::IpAddr,
    sync::Arc,
};

use keelson_model::{
    ConnectionRecord, CoverageReason, Direction, Endpoint, IsnPair, LossReason, NodeName, Remote,
    TcpCounters, UnixNanos, WINDOW_SECONDS, WindowId, limits,
};

use crate::batch::Agent;

mod connections;
mod evidence;
mod flows;

pub use connections::Connections;
pub use evidence::{ClosedWindow, EvidenceRead, NodeState, NodeWindow, Presence};
pub use flows::FollowRead;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Difference of one series over one window.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowRow {
    /// The end on the node.
    pub local: Arc<Endpoint>,
    /// The other end, as the socket had it.
    pub remote: Remote,
    /// Which end `local` is.
    pub direction: Direction,
    /// The service's port.
    pub port: u16,
    /// Difference over the window.
    pub delta: TcpCounters,
}

/// What one end of a connection of the sample counted since its record before.
#[derive(Clone, Debug, PartialEq)]
pub struct PairRow {
    /// The end on the node.
    pub local: Arc<Endpoint>,
    /// The other end, as the socket had it.
    pub remote: IpAddr,
    /// Which end `local` is.
    pub direction: Direction,
    /// The service's port.
    pub port: u16,
    /// What tells the other end.
    pub isn: IsnPair,
    /// In force here when it opened.
    pub threshold: u32,
    /// Counted since.
    pub delta: TcpCounters,
}

/// One kept connection, with the times of its record as wall time.
#[derive(Clone, Debug, PartialEq)]
pub struct ConnectionRow {
    /// Who sent it.
    pub agent: Arc<Agent>,
    /// The end on the node.
    pub local: Arc<Endpoint>,
    /// SYN, or adoption.
    pub start: UnixNanos,
    /// End, or the time of the progress record.
    pub end: UnixNanos,
    /// The facts.
    pub record: ConnectionRecord,
}

/// The flows of one batch; never changed, so that readers share it.
#[derive(Debug)]
pub struct Segment {
    /// Window of the node's clock.
    pub window: WindowId,
    /// Who counted.
    pub node: NodeName,
    /// Number of its first row among all that ever arrived.
    pub first_row: u64,
    /// The rows.
    pub rows: Vec<FlowRow>,
    /// What connections of the sample counted; part of the rows as well.
    pub pairs: Vec<PairRow>,
}

/// What one batch says of its window.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Why the node's view is less than whole.
    pub reasons: BTreeSet<CoverageReason>,
    /// Lost since the batch before.
    pub lost: BTreeMap<LossReason, u64>,
    /// The node has delivered the window whole.
    pub closes: bool,
}

/// Why a batch's flows were not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejected {
    /// Its window has left the recent past.
    Expired,
    /// Its window has not begun by our clock: the node's is ahead.
    Future,
    /// There is no room and nothing old to drop.
    Full,
}

/// How much is held.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Windows.
    pub windows: usize,
    /// Flows over all windows.
    pub flows: usize,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { windows: limits::COLLECTOR_WINDOWS, flows: limits::COLLECTOR_FLOWS }
    }
}

/// Flows and evidence of the recent windows.
#[derive(Debug)]
pub struct Store {
    bounds: Bounds,
    slots: BTreeMap<WindowId, Slot>,
    /// Segments in the order of their arrival, for followers.
    arrivals: VecDeque<Arc<Segment>>,
    rows_held: usize,
    rows_arrived: u64,
    rows_evicted_early: u64,
    next_close: WindowId,
    /// Segments that came after their window was closed, for the next evidence.
    late: Vec<Arc<Segment>>,
    closed: VecDeque<Arc<ClosedWindow>>,
}

#[derive(Debug, Default)]
struct Slot {
    segments: Vec<Arc<Segment>>,
    rows: usize,
    reports: BTreeMap<NodeName, Report>,
}

// === impl Store ===

impl Store {
    /// An empty store whose first evidence window is the one that holds `now`.
    #[must_use]
    pub fn new(bounds: Bounds, now: UnixNanos) -> Self {
        Self {
            bounds,
            slots: BTreeMap::new(),
            arrivals: VecDeque::new(),
            rows_held: 0,
            rows_arrived: 0,
            rows_evicted_early: 0,
            next_close: WindowId::containing(now),
            late: Vec::new(),
            closed: VecDeque::new(),
        }
    }

    /// Takes the flows of one batch and what it says of its window.
    ///
    /// # Errors
    /// The window is too old or has not begun, or there is no room; nothing is kept then.
    pub fn insert(
        &mut self,
        node: &NodeName,
        window: WindowId,
        rows: Vec<FlowRow>,
        pairs: Vec<PairRow>,
        report: Report,
        now: UnixNanos,
    ) -> Result<(), Rejected> {
        let current = WindowId::containing(now);
        if window < self.oldest_kept(current) {
            return Err(Rejected::Expired);
        }
        if window > current.next() {
            return Err(Rejected::Future);
        }
        self.make_room(rows.len() + pairs.len())?;
        self.slots.entry(window).or_default().merge_report(node, report);
        if rows.is_empty() && pairs.is_empty() {
            return Ok(());
        }
        let (node, first_row) = (node.clone(), self.rows_arrived);
        let segment = Arc::new(Segment { window, node, first_row, rows, pairs });
        let count = segment.len();
        self.rows_arrived += count as u64;
        self.rows_held += count;
        if window < self.next_close {
            self.late.push(Arc::clone(&segment));
        }
        self.arrivals.push_back(Arc::clone(&segment));
        let slot = self.slots.entry(window).or_default();
        slot.rows += count;
        slot.segments.push(segment);
        Ok(())
    }

    /// Marks the node's view of a window as short, for a reason found outside its own report.
    pub fn add_reason(&mut self, node: &NodeName, window: WindowId, reason: CoverageReason) {
        if let Some(slot) = self.slots.get_mut(&window) {
            slot.reports.entry(node.clone()).or_default().reasons.insert(reason);
        }
    }

    /// Flows held.
    #[must_use]
    pub fn rows_held(&self) -> usize {
        self.rows_held
    }

    /// Flows dropped before their time because of the bound.
    #[must_use]
    pub fn rows_evicted_early(&self) -> u64 {
        self.rows_evicted_early
    }

    /// Windows that have flows or reports.
    #[must_use]
    pub fn windows_held(&self) -> usize {
        self.slots.len()
    }

    /// What nodes lost in windows that overlap `[since, until)`, by node and reason.
    #[must_use]
    pub fn losses(
        &self,
        since: UnixNanos,
        until: UnixNanos,
    ) -> BTreeMap<(NodeName, LossReason), u64> {
        let mut losses = BTreeMap::new();
        for (_, slot) in self.slots.iter().filter(|(window, _)| overlaps(**window, since, until)) {
            for (node, report) in &slot.reports {
                for (reason, count) in &report.lost {
                    let sum: &mut u64 = losses.entry((node.clone(), *reason)).or_default();
                    *sum = sum.saturating_add(*count);
                }
            }
        }
        losses
    }

    fn oldest_kept(&self, current: WindowId) -> WindowId {
        WindowId(current.0.saturating_sub(self.bounds.windows as u64 - 1))
    }

    /// Drops windows that have left the recent past.
    fn expire(&mut self, now: UnixNanos) {
        let oldest = self.oldest_kept(WindowId::containing(now));
        while let Some((window, _)) = self.slots.first_key_value().filter(|(id, _)| **id < oldest) {
            let window = *window;
            self.evict(window);
        }
    }

    /// The newest windows are worth most: closed ones leave, oldest first, until `count` rows fit.
    fn make_room(&mut self, count: usize) -> Result<(), Rejected> {
        while self.rows_held + count > self.bounds.flows {
            let oldest = self.slots.first_key_value().map(|(window, _)| *window);
            let Some(oldest) = oldest.filter(|window| *window < self.next_close) else {
                return Err(Rejected::Full);
            };
            self.rows_evicted_early += self.evict(oldest) as u64;
        }
        Ok(())
    }

    fn evict(&mut self, window: WindowId) -> usize {
        let rows = self.slots.remove(&window).map_or(0, |slot| slot.rows);
        self.rows_held -= rows;
        self.late.retain(|segment| segment.window != window);
        while self.closed.front().is_some_and(|closed| closed.window <= window) {
            self.closed.pop_front();
        }
        let oldest = self.slots.first_key_value().map(|(window, _)| *window);
        let is_gone = |segment: &Arc<Segment>| oldest.is_none_or(|oldest| segment.window < oldest);
        while self.arrivals.front().is_some_and(is_gone) {
            self.arrivals.pop_front();
        }
        rows
    }
}

// === impl Segment ===

impl Segment {
    /// Rows of both kinds: what the bound counts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len() + self.pairs.len()
    }

    /// Never so of a segment that is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

// === impl Slot ===

impl Slot {
    fn merge_report(&mut self, node: &NodeName, report: Report) {
        let Report { reasons, lost, closes } = report;
        let held = self.reports.entry(node.clone()).or_default();
        held.reasons.extend(reasons);
        for (reason, count) in lost {
            let sum = held.lost.entry(reason).or_default();
            *sum = sum.saturating_add(count);
        }
        held.closes |= closes;
    }
}

/// Whether the window shares an instant with `[since, until)`.
fn overlaps(window: WindowId, since: UnixNanos, until: UnixNanos) -> bool {
    window.end() > since && window.start() < until
}

/// First instant after which a window is closed whoever is missing.
fn deadline(window: WindowId) -> UnixNanos {
    let wait = limits::COLLECTOR_WINDOW_DEADLINE_SECONDS * NANOS_PER_SECOND;
    UnixNanos(window.end().0.saturating_add(wait))
}

/// How long the recent past is.
#[must_use]
pub fn span_ns() -> u64 {
    limits::COLLECTOR_WINDOWS as u64 * WINDOW_SECONDS * NANOS_PER_SECOND
}

#[cfg(test)]
mod tests;
