//! Three clocks kept apart: the kernel's boot time, a node's wall time, and windows of it.

use serde::{Deserialize, Serialize};

/// Length of an evidence window. The wire's `Hello.window_seconds` must say the same.
pub const WINDOW_SECONDS: u64 = 5;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Nanoseconds since boot (`CLOCK_BOOTTIME`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct BootNanos(pub u64);

/// Nanoseconds since the Unix epoch, by the clock of the node named beside it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct UnixNanos(pub u64);

/// `floor(unix seconds / WINDOW_SECONDS)` of the agent's wall clock.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct WindowId(pub u64);

// === impl WindowId ===

impl WindowId {
    /// The window that `at` falls into.
    #[must_use]
    pub fn containing(at: UnixNanos) -> Self {
        Self(at.0 / (WINDOW_SECONDS * NANOS_PER_SECOND))
    }

    /// First instant of the window.
    #[must_use]
    pub fn start(self) -> UnixNanos {
        UnixNanos(self.0.saturating_mul(WINDOW_SECONDS * NANOS_PER_SECOND))
    }

    /// First instant after the window.
    #[must_use]
    pub fn end(self) -> UnixNanos {
        self.next().start()
    }

    /// The window after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// One reading of the wall clock against the boot clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// Wall time minus boot time, in nanoseconds.
    pub unix_minus_boot_ns: i64,
    /// Half the width of the reading.
    pub uncertainty_ns: u64,
    /// Wall time of the reading.
    pub unix: UnixNanos,
}

impl ClockReading {
    /// Wall time of a kernel time stamp; saturates at zero.
    #[must_use]
    pub fn to_unix(self, at: BootNanos) -> UnixNanos {
        UnixNanos(at.0.saturating_add_signed(self.unix_minus_boot_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_holds_its_start_and_not_its_end() {
        let window = WindowId(7);
        assert_eq!(WindowId::containing(window.start()), window);
        assert_eq!(WindowId::containing(window.end()), window.next());
        assert_eq!(WindowId::containing(UnixNanos(window.end().0 - 1)), window);
    }
}
