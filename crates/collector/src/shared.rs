//! What streams, queries and watches share: the core and the names behind their locks, the clock,
//! and a bell that rings when something arrived.
//!
//! No lock is held across an await, and never both but in the order core, then names.

use std::{
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
};

use keelson_model::UnixNanos;
use keelson_runtime::{clock::Clock, shutdown::Shutdown};
use tokio::sync::{Semaphore, watch};

use crate::{
    core::Core,
    metrics::{Metrics, Refusal},
    names::NameIndex,
    store::{Bounds, Rejected},
};

/// Shared state of one collector process.
pub struct Shared {
    core: Mutex<Core>,
    names: RwLock<NameIndex>,
    bell: watch::Sender<()>,
    clock: Arc<dyn Clock>,
    /// Random number of this process, so that a token of another one is told from its own.
    pub instance: u64,
    /// Queries that may begin.
    pub queries: Arc<Semaphore>,
    /// Cancelled when streams and answers shall end.
    pub draining: Shutdown,
    /// The process's metrics.
    pub metrics: Metrics,
}

// === impl Shared ===

impl Shared {
    /// Nothing known yet.
    #[must_use]
    pub fn new(clock: Arc<dyn Clock>, draining: Shutdown, metrics: Metrics) -> Self {
        let now = unix(clock.as_ref());
        Self {
            core: Mutex::new(Core::new(Bounds::default(), now)),
            names: RwLock::default(),
            bell: watch::Sender::new(()),
            clock,
            instance: random(),
            queries: Arc::new(Semaphore::new(keelson_model::limits::COLLECTOR_QUERIES)),
            draining,
            metrics,
        }
    }

    /// The time, by the collector's clock.
    #[must_use]
    pub fn now(&self) -> UnixNanos {
        unix(self.clock.as_ref())
    }

    /// The core. A panic elsewhere leaves counts short at worst, which the ledger shows.
    pub fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names, to read.
    pub fn names(&self) -> RwLockReadGuard<'_, NameIndex> {
        self.names.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The names, to change.
    pub fn names_mut(&self) -> RwLockWriteGuard<'_, NameIndex> {
        self.names.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// Rings when something arrived or was closed.
    #[must_use]
    pub fn listen(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }

    /// Something arrived.
    pub fn ring(&self) {
        self.bell.send_replace(());
    }

    /// Forgets names that no window needs any more.
    pub fn expire_names(&self) {
        let now = self.now();
        self.names_mut().expire(now);
        gauge(&self.metrics.addresses, self.names().len());
    }

    /// Time passed: closes windows, forgets the old, refreshes the gauges.
    pub fn tick(&self) {
        let now = self.now();
        let (closed, series) = {
            let mut core = self.core();
            let expected: Vec<_> = self.names().nodes().cloned().collect();
            let closed = core.tick(expected.iter(), now);
            let series: usize = core.nodes().map(|node| node.pipeline.series().0).sum();
            gauge(&self.metrics.flows_held, core.store.rows_held());
            gauge(&self.metrics.connections_held, core.connections.len());
            gauge(&self.metrics.pairs_held, core.pairs.len());
            let evicted = core.pairs.evicted_early();
            self.metrics.pairs_evicted.inc_by(evicted - self.metrics.pairs_evicted.get());
            (closed.len(), series)
        };
        gauge(&self.metrics.series, series);
        if closed > 0 {
            self.metrics.windows.inc_by(closed as u64);
            self.ring();
        }
    }
}

impl From<Rejected> for Refusal {
    fn from(rejected: Rejected) -> Self {
        match rejected {
            Rejected::Expired => Self::window_expired,
            Rejected::Future => Self::clock_skew,
            Rejected::Full => Self::store_full,
        }
    }
}

fn unix(clock: &dyn Clock) -> UnixNanos {
    UnixNanos(clock.unix_ns())
}

/// The standard library's hasher keys are random per process; telling processes apart needs no more.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}

fn gauge(gauge: &prometheus_client::metrics::gauge::Gauge, value: usize) {
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
}
