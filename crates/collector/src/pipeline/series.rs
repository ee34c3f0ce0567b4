//! Cumulative values in, differences out: the table of bases of one node.
//!
//! A difference is given only where its whole value belongs to the time since the last delivered
//! window; what cannot be placed becomes a base and is counted, never attributed.

use std::collections::HashMap;

use keelson_model::{BootNanos, SeriesKey, SeriesValue, TcpCounters, UnixNanos, limits};

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Last cumulative value of each series of a node, bounded.
#[derive(Debug)]
pub struct SeriesTable {
    bases: HashMap<(SeriesKey, BootNanos), Base>,
    capacity: usize,
    /// A series that began before this may have been delivered and forgotten: without a base it is
    /// no news.
    forgotten_before: BootNanos,
    counts: SeriesCounts,
}

/// What the table could not do, since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesCounts {
    /// New series refused because the table was full.
    pub refused: u64,
    /// Series whose first value was taken as base, not as a difference.
    pub unplaced: u64,
    /// Series whose counters went back.
    pub reset: u64,
    /// Idle series that made room.
    pub expired: u64,
}

#[derive(Clone, Copy, Debug)]
struct Base {
    counters: TcpCounters,
    touched: UnixNanos,
}

/// What one value means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Difference {
    /// This came on top since the last delivered window.
    Counted(TcpCounters),
    /// Its earlier values belong to no window that can be told.
    Base,
    /// As `Counted`, but the table was full: the next value will have no base.
    CountedWithoutBase(TcpCounters),
    /// As `Base`, but the table was full.
    Refused,
}

impl Default for SeriesTable {
    fn default() -> Self {
        Self::with_capacity(limits::COLLECTOR_SERIES_PER_NODE)
    }
}

// === impl SeriesTable ===

impl SeriesTable {
    /// A table of at most `capacity` series.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            bases: HashMap::new(),
            capacity,
            forgotten_before: BootNanos(0),
            counts: SeriesCounts::default(),
        }
    }

    /// Series held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bases.len()
    }

    /// Nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bases.is_empty()
    }

    /// What it could not do.
    #[must_use]
    pub fn counts(&self) -> SeriesCounts {
        self.counts
    }

    /// Forgets every base: the node booted anew, and cgroup ids mean others.
    pub fn clear(&mut self) {
        self.bases.clear();
        self.forgotten_before = BootNanos(0);
    }

    /// Takes a baseline's value as base, unless a later value is held already: a batch may have
    /// arrived whose acknowledgement did not.
    pub fn set_base(&mut self, key: SeriesKey, value: SeriesValue, now: UnixNanos) {
        let id = (key, value.start);
        if let Some(base) = self.bases.get_mut(&id) {
            base.touched = now;
        } else if self.has_room(now) {
            self.bases.insert(id, Base { counters: value.counters, touched: now });
        } else {
            self.refuse(value.start);
        }
    }

    /// The difference of `value` to its base, which it replaces.
    ///
    /// Without a base a series counts from zero if it began at or after `since`, from when on all
    /// that the node counted came here; an older one only becomes a base.
    pub fn difference(
        &mut self,
        key: SeriesKey,
        value: SeriesValue,
        since: BootNanos,
        now: UnixNanos,
    ) -> Difference {
        let id = (key, value.start);
        if let Some(base) = self.bases.get_mut(&id) {
            let before = std::mem::replace(&mut base.counters, value.counters);
            base.touched = now;
            if is_monotone(&before, &value.counters) {
                return Difference::Counted(value.counters.since(&before));
            }
            self.counts.reset += 1;
            return self.first(value, since);
        }
        let stored = self.has_room(now);
        let difference = self.first(value, since);
        if stored {
            self.bases.insert(id, Base { counters: value.counters, touched: now });
        } else {
            self.refuse(value.start);
        }
        match (difference, stored) {
            (Difference::Counted(delta), false) => Difference::CountedWithoutBase(delta),
            (Difference::Base, false) => Difference::Refused,
            (difference, _) => difference,
        }
    }

    fn first(&mut self, value: SeriesValue, since: BootNanos) -> Difference {
        if value.start >= since.max(self.forgotten_before) {
            return Difference::Counted(value.counters);
        }
        self.counts.unplaced += 1;
        Difference::Base
    }

    /// Idle series leave only when room is needed: as long as a base is held, a series that moves
    /// again after a long pause is still counted exactly.
    fn has_room(&mut self, now: UnixNanos) -> bool {
        if self.bases.len() < self.capacity {
            return true;
        }
        let idle_ns = limits::COLLECTOR_SERIES_IDLE_SECONDS * NANOS_PER_SECOND;
        let before = self.bases.len();
        let forgotten = &mut self.forgotten_before;
        self.bases.retain(|(_, start), base| {
            let is_kept = now.0.saturating_sub(base.touched.0) < idle_ns;
            if !is_kept {
                *forgotten = (*forgotten).max(after(*start));
            }
            is_kept
        });
        self.counts.expired += (before - self.bases.len()) as u64;
        self.bases.len() < self.capacity
    }

    fn refuse(&mut self, start: BootNanos) {
        self.forgotten_before = self.forgotten_before.max(after(start));
        self.counts.refused += 1;
    }
}

fn after(start: BootNanos) -> BootNanos {
    BootNanos(start.0.saturating_add(1))
}

/// No counter of `now` lies below its value in `before`.
fn is_monotone(before: &TcpCounters, now: &TcpCounters) -> bool {
    // `since` gives a counter that went back whole, so that adding it again overshoots.
    let again = TcpCounters {
        rtt_min_us: now.rtt_min_us,
        rtt_max_us: now.rtt_max_us,
        connect_max_us: now.connect_max_us,
        ..before.plus(&now.since(before))
    };
    again == *now
}

#[cfg(test)]
mod tests;
