//! Records and map drains into windows: what changed, with its name, or waiting for it.
//!
//! Pure: names come from a function over a snapshot, time from the caller. It knows no wire type.

use std::collections::{HashMap, HashSet, VecDeque};

use keelson_model::{
    CgroupId, ClockReading, ConnectionRecord, Coverage, SeriesKey, SeriesValue, TcpCounters,
    UnixNanos, WindowId, limits,
};

use crate::{
    enrich::{Local, Naming},
    window::{RecordRow, SeriesId, SeriesRow, Window},
};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// What is kept between two cuts.
#[derive(Debug, Default)]
pub struct Aggregator {
    /// Values as of the last window in which the series was handed on.
    handed_on: HashMap<SeriesId, TcpCounters>,
    /// Since when a series waits for its name.
    waiting: HashMap<SeriesId, UnixNanos>,
    records: Vec<RecordRow>,
    pending: VecDeque<Pending>,
    counts: RecordCounts,
}

#[derive(Debug)]
struct Pending {
    since: UnixNanos,
    record: ConnectionRecord,
}

/// Where records went, since the agent began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordCounts {
    /// Put into a window.
    pub delivered: u64,
    /// Refused because too many were in hand for their names or for the window.
    pub pending_full: u64,
}

/// What the caller knows at a cut.
#[derive(Debug)]
pub struct Cut {
    /// The window that ends.
    pub window: WindowId,
    /// Clocks now.
    pub clock: ClockReading,
    /// What can be seen.
    pub coverage: Coverage,
}

// === impl Aggregator ===

impl Aggregator {
    /// Takes one record; it joins the next window as soon as its local side has a name.
    pub fn record(
        &mut self,
        record: ConnectionRecord,
        name: impl Fn(CgroupId) -> Naming,
        now: UnixNanos,
    ) {
        if self.held() >= limits::AGENT_PENDING_RECORDS as u64 {
            self.counts.pending_full += 1;
            return;
        }
        match name(record.cgroup) {
            Naming::Settled(local) => self.records.push(RecordRow { local, record }),
            Naming::Pending(_) => self.pending.push_back(Pending { since: now, record }),
        }
    }

    /// Ends a window: `series` are all that the kernel holds, cumulative. The caller adds the
    /// accounts, which know then what the window took.
    pub fn cut(
        &mut self,
        cut: Cut,
        series: Vec<(SeriesKey, SeriesValue)>,
        name: impl Fn(CgroupId) -> Naming,
    ) -> Window {
        let now = cut.clock.unix;
        self.settle_pending(&name, now);
        self.forget_all_but(&series);
        let series = series
            .into_iter()
            .filter_map(|(key, value)| self.changed(key, value, &name, now))
            .collect();
        let records = std::mem::take(&mut self.records);
        self.counts.delivered += records.len() as u64;
        let Cut { window, clock, coverage } = cut;
        Window { id: window, clock, series, records, ledgers: Vec::new(), coverage }
    }

    /// Records in hand.
    #[must_use]
    pub fn held(&self) -> u64 {
        (self.records.len() + self.pending.len()) as u64
    }

    /// Something waits for its name.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !(self.pending.is_empty() && self.waiting.is_empty())
    }

    /// Where records went.
    #[must_use]
    pub fn counts(&self) -> RecordCounts {
        self.counts
    }

    fn settle_pending(&mut self, name: &impl Fn(CgroupId) -> Naming, now: UnixNanos) {
        for _ in 0..self.pending.len() {
            let Some(Pending { since, record }) = self.pending.pop_front() else { return };
            match settle(name(record.cgroup), since, now) {
                Some(local) => self.records.push(RecordRow { local, record }),
                None => self.pending.push_back(Pending { since, record }),
            }
        }
    }

    /// The row of a series that moved since it was last handed on, unless it waits for its name:
    /// its values are cumulative, so that waiting loses nothing.
    fn changed(
        &mut self,
        key: SeriesKey,
        value: SeriesValue,
        name: &impl Fn(CgroupId) -> Naming,
        now: UnixNanos,
    ) -> Option<SeriesRow> {
        let id = (key, value.start);
        if self.handed_on.get(&id) == Some(&value.counters) {
            return None;
        }
        let since = *self.waiting.entry(id).or_insert(now);
        let local = settle(name(key.cgroup), since, now)?;
        self.waiting.remove(&id);
        self.handed_on.insert(id, value.counters);
        Some(SeriesRow { local, key, value })
    }

    /// The kernel's map bounds ours.
    fn forget_all_but(&mut self, series: &[(SeriesKey, SeriesValue)]) {
        if self.handed_on.len() + self.waiting.len() <= series.len() {
            return;
        }
        let live: HashSet<SeriesId> =
            series.iter().map(|(key, value)| (*key, value.start)).collect();
        self.handed_on.retain(|id, _| live.contains(id));
        self.waiting.retain(|id, _| live.contains(id));
    }
}

/// The name, if there is one or the wait is over.
fn settle(naming: Naming, since: UnixNanos, now: UnixNanos) -> Option<Local> {
    match naming {
        Naming::Settled(local) => Some(local),
        Naming::Pending(reason) => {
            let waited_ns = now.0.saturating_sub(since.0);
            (waited_ns >= limits::AGENT_PENDING_SECONDS * NANOS_PER_SECOND)
                .then_some(Local::Unknown(reason))
        }
    }
}

#[cfg(test)]
mod tests;
