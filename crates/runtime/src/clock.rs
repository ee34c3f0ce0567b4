//! Time as a value that is handed in, so that tests decide it.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::{SystemTime, UNIX_EPOCH},
};

/// Gives the wall time.
pub trait Clock: Send + Sync + std::fmt::Debug {
    /// Nanoseconds since the Unix epoch; 0 before it.
    fn unix_ns(&self) -> u64;
}

/// The machine's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn unix_ns(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }
}

/// A clock that stands until it is set.
#[derive(Debug, Default)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that stands at `unix_ns`.
    #[must_use]
    pub fn at(unix_ns: u64) -> Self {
        Self(AtomicU64::new(unix_ns))
    }

    /// Moves it.
    pub fn set(&self, unix_ns: u64) {
        self.0.store(unix_ns, Ordering::SeqCst);
    }

    /// Moves it on.
    pub fn advance(&self, ns: u64) {
        self.0.fetch_add(ns, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn unix_ns(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}
