//! What the operator counts of itself.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// The operator's metrics; clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Looks at an Application.
    pub reconciles: Counter,
    /// Looks that failed.
    pub errors: Counter,
    /// Statuses written.
    pub writes: Counter,
    /// Applications that could not be read.
    pub undecodable: Counter,
    /// Applications known.
    pub applications: Gauge,
    /// 1 when the caches have their first lists.
    pub synced: Gauge,
    began_ns: u64,
}

impl Metrics {
    /// All at zero, for a process that began at `began_ns`.
    #[must_use]
    pub fn new(began_ns: u64) -> Self {
        Self { began_ns, ..Self::default() }
    }

    /// When the process began, as Unix nanoseconds: evidence cannot be older than that to us.
    #[must_use]
    pub fn began_ns(&self) -> u64 {
        self.began_ns
    }

    /// Registers all.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("keelson_operator");
        registry.register("reconciles", "Looks at an Application", self.reconciles.clone());
        registry.register("reconcile_errors", "Looks that failed", self.errors.clone());
        registry.register("status_writes", "Statuses written", self.writes.clone());
        let text = "Applications that could not be read";
        registry.register("undecodable", text, self.undecodable.clone());
        registry.register("applications", "Applications known", self.applications.clone());
        let text = "1 when the caches have their first lists";
        registry.register("caches_synced", text, self.synced.clone());
    }
}
