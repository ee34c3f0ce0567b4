//! What the agent counts of itself.

use std::sync::atomic::Ordering;

use keelson_model::LedgerCut;
use prometheus_client::{
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// The agent's metrics; clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Windows cut.
    pub windows: Counter,
    /// Records numbered by the kernel since the pin set was made, as all that follow.
    pub produced: Counter,
    /// Records that the collector has acknowledged.
    pub delivered: Counter,
    /// Records meant for the agent alone, and used by it.
    pub consumed: Counter,
    /// Records lost, by reason.
    pub lost: Family<[(&'static str, &'static str); 1], Counter>,
    /// Connections of other nodes' pods or of the host.
    pub out_of_scope: Counter,
    /// Records in hand: in the kernel's buffer, waiting for a name or for the collector.
    pub held: Gauge,
    /// Series in the kernel's map.
    pub series: Gauge,
    /// Series dropped from it because their cgroup was gone for long.
    pub retired_series: Counter,
    /// Walks of the cgroup tree because a name was missing.
    pub walks: Counter,
    /// Windows merged into their follower because too many waited.
    pub merged_windows: Counter,
    /// 1 while a stream to the collector stands.
    pub connected: Gauge,
}

// === impl Metrics ===

impl Metrics {
    /// Shows the account as it stands.
    pub fn account(&self, cut: &LedgerCut) {
        let show = |counter: &Counter, value| counter.inner().store(value, Ordering::Relaxed);
        show(&self.produced, cut.produced);
        show(&self.delivered, cut.delivered);
        show(&self.consumed, cut.consumed);
        show(&self.out_of_scope, cut.out_of_scope);
        for (reason, count) in &cut.lost {
            show(&self.lost.get_or_create(&[("reason", reason.as_str())]), *count);
        }
        self.held.set(i64::try_from(cut.held).unwrap_or(i64::MAX));
    }

    /// Registers all.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("keelson_agent");
        registry.register("windows", "Windows cut", self.windows.clone());
        registry.register(
            "records_produced",
            "Records numbered by the kernel since the pin set was made",
            self.produced.clone(),
        );
        registry.register(
            "records_delivered",
            "Records that the collector has acknowledged",
            self.delivered.clone(),
        );
        registry.register(
            "records_consumed",
            "Records of cgroups, used by the agent itself",
            self.consumed.clone(),
        );
        registry.register("records_lost", "Records lost, by reason", self.lost.clone());
        registry.register(
            "records_held",
            "Records in the kernel's buffer, waiting for a name or for the collector",
            self.held.clone(),
        );
        registry.register(
            "out_of_scope_connections",
            "Connections of another node's pods or of the host, left out",
            self.out_of_scope.clone(),
        );
        registry.register("series", "Series in the kernel's map", self.series.clone());
        registry.register(
            "retired_series",
            "Series dropped from the kernel's map because their cgroup was gone for long",
            self.retired_series.clone(),
        );
        registry.register(
            "cgroup_walks",
            "Walks of the cgroup tree because a name was missing",
            self.walks.clone(),
        );
        registry.register(
            "merged_windows",
            "Windows merged into their follower because too many waited",
            self.merged_windows.clone(),
        );
        registry.register(
            "collector_connected",
            "1 while a stream to the collector stands",
            self.connected.clone(),
        );
    }
}
