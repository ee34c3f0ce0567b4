//! Kept connections in the order of their arrival, bounded by number and age.

use std::{collections::VecDeque, sync::Arc};

use keelson_model::{UnixNanos, limits};

use super::{ConnectionRow, span_ns};

/// The recent kept connections.
#[derive(Debug)]
pub struct Connections {
    rows: VecDeque<(UnixNanos, Arc<ConnectionRow>)>,
    /// Number of the oldest row among all that ever arrived.
    first: u64,
    capacity: usize,
    evicted_early: u64,
}

impl Default for Connections {
    fn default() -> Self {
        Self::with_capacity(limits::COLLECTOR_CONNECTIONS)
    }
}

// === impl Connections ===

impl Connections {
    /// At most `capacity` rows.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { rows: VecDeque::new(), first: 0, capacity, evicted_early: 0 }
    }

    /// Takes the rows of one batch; the oldest make room.
    pub fn insert(&mut self, rows: Vec<ConnectionRow>, now: UnixNanos) {
        for row in rows {
            if self.rows.len() >= self.capacity {
                self.pop();
                self.evicted_early += 1;
            }
            self.rows.push_back((now, Arc::new(row)));
        }
    }

    /// Drops what arrived longer ago than the recent past is long.
    pub fn expire(&mut self, now: UnixNanos) {
        let is_old = |(at, _): &(UnixNanos, _)| now.0.saturating_sub(at.0) > span_ns();
        while self.rows.front().is_some_and(is_old) {
            self.pop();
        }
    }

    /// Rows held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Rows dropped before their time because of the bound.
    #[must_use]
    pub fn evicted_early(&self) -> u64 {
        self.evicted_early
    }

    /// Number of the oldest row held.
    #[must_use]
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Cursor behind all that has arrived.
    #[must_use]
    pub fn arrival_cursor(&self) -> u64 {
        self.first + self.rows.len() as u64
    }

    /// At most `count` rows from `cursor` on, with the number of the first of them: larger than
    /// `cursor` where rows between were dropped.
    #[must_use]
    pub fn from(&self, cursor: u64, count: usize) -> (u64, Vec<Arc<ConnectionRow>>) {
        let start = cursor.max(self.first);
        let skip = usize::try_from(start - self.first).unwrap_or(usize::MAX);
        let rows = self.rows.iter().skip(skip).take(count).map(|(_, row)| Arc::clone(row));
        (start, rows.collect())
    }

    fn pop(&mut self) {
        if self.rows.pop_front().is_some() {
            self.first += 1;
        }
    }
}
