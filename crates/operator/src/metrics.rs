//! What the operator counts of itself.

use prometheus_client::{
    encoding::EncodeLabelSet,
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

use crate::evidence::Refusal;

/// One label: why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByReason {
    /// The reason.
    pub reason: Refusal,
}

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
    /// Windows of evidence that were not taken.
    pub evidence_refused: Family<ByReason, Counter>,
    /// Applications known.
    pub applications: Gauge,
    /// 1 when the caches have their first lists.
    pub synced: Gauge,
    /// 1 while this replica leads.
    pub leads: Gauge,
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

    /// Counts a window that was not taken.
    pub fn refused(&self, reason: Refusal) {
        self.evidence_refused.get_or_create(&ByReason { reason }).inc();
    }

    /// Registers all.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("keelson_operator");
        registry.register("reconciles", "Looks at an Application", self.reconciles.clone());
        registry.register("reconcile_errors", "Looks that failed", self.errors.clone());
        registry.register("status_writes", "Statuses written", self.writes.clone());
        let text = "Applications that could not be read";
        registry.register("undecodable", text, self.undecodable.clone());
        let text = "Windows of evidence that were not taken";
        registry.register("evidence_windows_refused", text, self.evidence_refused.clone());
        registry.register("applications", "Applications known", self.applications.clone());
        let text = "1 when the caches have their first lists";
        registry.register("caches_synced", text, self.synced.clone());
        registry.register("leader", "1 while this replica leads", self.leads.clone());
    }
}
