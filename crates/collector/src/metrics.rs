//! The collector's own metrics: each family once, with bounded labels.

use prometheus_client::{
    encoding::{EncodeLabelSet, EncodeLabelValue},
    metrics::{counter::Counter, family::Family, gauge::Gauge},
    registry::Registry,
};

/// What was refused, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the names are the label values")]
pub enum Refusal {
    /// A stream or query without a token that is allowed.
    unauthenticated,
    /// A caller that is known and may not.
    permission_denied,
    /// The API server could not be asked.
    review_unavailable,
    /// A message that cannot be.
    malformed,
    /// More nodes than the bound.
    too_many_nodes,
    /// More queries than the bound.
    too_many_queries,
    /// Flows whose window has left the recent past.
    window_expired,
    /// Flows whose window has not begun by our clock.
    clock_skew,
    /// Flows for which there was no room.
    store_full,
}

/// Which query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelValue)]
#[allow(non_camel_case_types, reason = "the names are the label values")]
pub enum Query {
    /// Flows.
    flows,
    /// Kept connections.
    connections,
    /// Evidence windows.
    evidence,
}

/// One label: why.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByReason {
    /// The reason.
    pub reason: Refusal,
}

/// One label: which query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByQuery {
    /// The query.
    pub query: Query,
}

/// All of them.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Streams open.
    pub streams: Gauge,
    /// Batches taken.
    pub batches: Counter,
    /// Batches seen before.
    pub duplicates: Counter,
    /// Series whose last value is held.
    pub series: Gauge,
    /// Flows held.
    pub flows_held: Gauge,
    /// Kept connections held.
    pub connections_held: Gauge,
    /// Addresses with a name.
    pub addresses: Gauge,
    /// Evidence windows closed.
    pub windows: Counter,
    /// What was refused.
    pub refused: Family<ByReason, Counter>,
    /// Queries being answered.
    pub subscribers: Family<ByQuery, Gauge>,
    /// Connections of which an end's record is held.
    pub pairs_held: Gauge,
    /// Of them forgotten before their time because of the bound.
    pub pairs_evicted: Counter,
    /// TLS handshakes given up to make room for newer ones.
    pub handshakes_displaced: Counter,
}

// === impl Metrics ===

impl Metrics {
    /// Registers every family under `keelson_collector`.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let Self {
            streams,
            batches,
            duplicates,
            series,
            flows_held,
            connections_held,
            addresses,
            windows,
            refused,
            subscribers,
            pairs_held,
            pairs_evicted,
            handshakes_displaced,
        } = metrics.clone();
        let registry = registry.sub_registry_with_prefix("keelson_collector");
        registry.register("streams", "agents' streams open", streams);
        registry.register("batches", "batches taken", batches);
        registry.register("duplicate_batches", "batches that had been seen before", duplicates);
        registry.register("series", "series whose last value is held", series);
        registry.register("flows_held", "flows of the recent windows held", flows_held);
        registry.register("connections_held", "kept connections held", connections_held);
        registry.register("addresses", "addresses with a name", addresses);
        registry.register("evidence_windows", "evidence windows closed", windows);
        registry.register("refused", "messages, flows and calls refused, by reason", refused);
        registry.register("subscribers", "queries being answered", subscribers);
        registry.register("pairs_held", "connections of which an end's record is held", pairs_held);
        let help = "connections whose records were forgotten early because of the bound";
        registry.register("pairs_evicted", help, pairs_evicted);
        let help = "TLS handshakes given up to make room for newer ones";
        registry.register("tls_handshakes_displaced", help, handshakes_displaced);
        metrics
    }

    /// Counts one refusal.
    pub fn refuse(&self, reason: Refusal, count: u64) {
        self.refused.get_or_create(&ByReason { reason }).inc_by(count);
    }
}
