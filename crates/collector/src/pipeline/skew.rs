//! How far a node's clock stands from the collector's, told from delay.
//!
//! A batch carries the wall time of its cut; it arrives later by an unknown delay. Delay only makes
//! a clock look slow, so the largest reading of a few is the nearest to the truth.

use std::collections::VecDeque;

use keelson_model::{UnixNanos, WINDOW_SECONDS, limits};

/// One more than the backlog an agent may bring: at least one reading was not held up.
const READINGS: usize = limits::AGENT_UNACKED_BATCHES + 1;

const WINDOW_NS: i64 = WINDOW_SECONDS.cast_signed() * 1_000_000_000;

/// Recent readings of one node's clock.
#[derive(Clone, Debug, Default)]
pub struct ClockOffset {
    readings_ns: VecDeque<i64>,
}

// === impl ClockOffset ===

impl ClockOffset {
    /// Adds the reading of a batch cut at `cut` (node's clock) and received at `now` (ours).
    pub fn observe(&mut self, cut: UnixNanos, now: UnixNanos) {
        if self.readings_ns.len() == READINGS {
            self.readings_ns.pop_front();
        }
        let offset = i128::from(cut.0) - i128::from(now.0);
        let clamped = offset.clamp(i128::from(i64::MIN), i128::from(i64::MAX));
        self.readings_ns.push_back(i64::try_from(clamped).unwrap_or_default());
    }

    /// Node's clock minus ours, in nanoseconds, as near as the readings tell.
    #[must_use]
    pub fn nanos(&self) -> i64 {
        self.readings_ns.iter().copied().max().unwrap_or_default()
    }

    /// The clock is off by more than a window. That it is ahead shows at once; that it is behind
    /// shows only after more batches than a backlog can hold.
    #[must_use]
    pub fn is_skewed(&self) -> bool {
        let is_ahead = self.readings_ns.back().is_some_and(|last| *last > WINDOW_NS);
        let is_behind = self.readings_ns.len() == READINGS && self.nanos() < -WINDOW_NS;
        is_ahead || is_behind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const NOW: UnixNanos = UnixNanos(1_000_000 * SECOND.cast_unsigned());

    fn after(offsets_s: &[i64]) -> ClockOffset {
        let mut clock = ClockOffset::default();
        for offset in offsets_s {
            clock.observe(UnixNanos(NOW.0.saturating_add_signed(offset * SECOND)), NOW);
        }
        clock
    }

    #[test]
    fn a_clock_ahead_shows_at_once_and_one_behind_after_a_backlog() {
        let rows: &[(&[i64], bool)] = &[
            (&[], false),
            (&[0], false),
            (&[5], false),
            (&[6], true),
            (&[6, 0], false),
            (&[-6], false),
            (&[-60, -55, -50, -45, -40, -35, -30, -25, -20, -15, -10, -5, 0], false),
            (&[-6; 12], false),
            (&[-6; 13], true),
            (&[-6, -6, -6, -6, -6, -6, -6, -6, -6, -6, -6, -6, -4], false),
        ];
        for (offsets, skewed) in rows {
            assert_eq!(after(offsets).is_skewed(), *skewed, "{offsets:?}");
        }
    }

    #[test]
    fn the_largest_reading_is_the_offset() {
        assert_eq!(after(&[-9, -2, -4]).nanos(), -2 * SECOND);
    }
}
