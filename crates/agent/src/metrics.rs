//! What the agent counts of itself.

use prometheus_client::{
    metrics::{counter::Counter, gauge::Gauge},
    registry::Registry,
};

/// The agent's metrics; clones share their values.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Windows cut.
    pub windows: Counter,
    /// Records handed on with their windows.
    pub records: Counter,
    /// Series in the kernel's map.
    pub series: Gauge,
    /// Series dropped from it because their cgroup was gone for long.
    pub retired_series: Counter,
    /// Records that wait for the collector.
    pub held_records: Gauge,
    /// Walks of the cgroup tree because a name was missing.
    pub walks: Counter,
    /// Records dropped because too many waited for the collector.
    pub dropped_records: Counter,
    /// Windows merged into their follower because too many waited.
    pub merged_windows: Counter,
    /// 1 while a stream to the collector stands.
    pub connected: Gauge,
}

impl Metrics {
    /// Registers all.
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("keelson_agent");
        registry.register("windows", "Windows cut", self.windows.clone());
        registry.register("records", "Records handed on", self.records.clone());
        registry.register("series", "Series in the kernel's map", self.series.clone());
        registry.register(
            "retired_series",
            "Series dropped from the kernel's map because their cgroup was gone for long",
            self.retired_series.clone(),
        );
        registry.register(
            "held_records",
            "Records that wait for the collector",
            self.held_records.clone(),
        );
        registry.register(
            "cgroup_walks",
            "Walks of the cgroup tree because a name was missing",
            self.walks.clone(),
        );
        registry.register(
            "dropped_records",
            "Records dropped because too many waited for the collector",
            self.dropped_records.clone(),
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
