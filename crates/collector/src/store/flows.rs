//! Reading flows: what is held, window by window, then what arrives.

use std::sync::Arc;

use keelson_model::{UnixNanos, WindowId};

use super::{Segment, Store, overlaps};

/// What arrived after a cursor.
#[derive(Debug)]
pub struct FollowRead {
    /// In the order of arrival, at most as many as asked.
    pub segments: Vec<Arc<Segment>>,
    /// Rows between the cursor and the first of them that are no longer held.
    pub lost_rows: u64,
    /// Cursor for the next read.
    pub cursor: u64,
}

// === impl Store ===

impl Store {
    /// Cursor behind all that has arrived: a follower that starts here misses nothing that a read
    /// of what is held, bounded by it, has not given.
    #[must_use]
    pub fn arrival_cursor(&self) -> u64 {
        self.rows_arrived
    }

    /// The first window at or after `from` that overlaps `[since, until)`, with its segments that
    /// arrived before the cursor `before`.
    #[must_use]
    pub fn held_from(
        &self,
        from: WindowId,
        (since, until): (UnixNanos, UnixNanos),
        before: u64,
    ) -> Option<(WindowId, Vec<Arc<Segment>>)> {
        let mut slots = self.slots.range(from..);
        let (window, slot) = slots.find(|(window, _)| overlaps(**window, since, until))?;
        let is_before = |segment: &&Arc<Segment>| segment.first_row < before;
        Some((*window, slot.segments.iter().filter(is_before).map(Arc::clone).collect()))
    }

    /// As `held_from`, backwards: the last window before `until_window`.
    #[must_use]
    pub fn held_before(
        &self,
        until_window: WindowId,
        (since, until): (UnixNanos, UnixNanos),
        before: u64,
    ) -> Option<(WindowId, Vec<Arc<Segment>>)> {
        let mut slots = self.slots.range(..until_window).rev();
        let (window, slot) = slots.find(|(window, _)| overlaps(**window, since, until))?;
        let is_before = |segment: &&Arc<Segment>| segment.first_row < before;
        Some((*window, slot.segments.iter().filter(is_before).map(Arc::clone).collect()))
    }

    /// At most `count` segments that arrived at or after `cursor`.
    #[must_use]
    pub fn arrived_since(&self, cursor: u64, count: usize) -> FollowRead {
        let from = self.arrivals.partition_point(|segment| segment.first_row < cursor);
        let segments: Vec<_> =
            self.arrivals.iter().skip(from).take(count).map(Arc::clone).collect();
        let first = segments.first().map_or(self.rows_arrived, |segment| segment.first_row);
        let next = segments
            .last()
            .map_or(self.rows_arrived, |segment| segment.first_row + segment.len() as u64);
        FollowRead { lost_rows: first.saturating_sub(cursor), segments, cursor: next }
    }

    /// The oldest window held.
    #[must_use]
    pub fn oldest_window(&self) -> Option<WindowId> {
        self.slots.first_key_value().map(|(window, _)| *window)
    }
}
