//! What `HealthPolicy` will be, word for word: thresholds on what the kernel counts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Thresholds on what the kernel counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthPolicySpec {
    /// Rules by signal. Where it is left out: RetransmitRatio from 2% to 1% and ConnectFailureRatio
    /// from 5% to 2%.
    #[serde(default = "default_signals")]
    #[schemars(
        length(min = 1, max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["signal"])
    )]
    pub signals: Vec<SignalRule>,
    /// How long a verdict holds when no evidence comes; a duration such as 30s.
    #[serde(default = "default_freshness")]
    pub freshness: String,
}

/// When one signal is bad, per pair of pods and window of five seconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SignalRule {
    /// RetransmitRatio, ConnectFailureRatio, ResetRatio or RttMillis.
    pub signal: String,
    /// Bad from here on: a percentage such as 2% for a ratio, milliseconds such as 250 for a time.
    pub enter: String,
    /// Good again at or below this; must lie below `enter`.
    pub leave: String,
    /// How long it must be bad after the first bad window; a duration.
    #[serde(rename = "for", default = "default_for")]
    pub hold: String,
    /// How long it must be good before the verdict returns; a duration.
    #[serde(default = "default_leave_for")]
    pub leave_for: String,
    /// Fewer data segments, attempts or readings in a window say nothing.
    #[serde(default = "default_min_samples")]
    #[schemars(range(min = 1, max = 1_000_000))]
    pub min_samples: i32,
}

fn rule(signal: &str, enter: &str, leave: &str, min_samples: i32) -> SignalRule {
    SignalRule {
        signal: signal.to_owned(),
        enter: enter.to_owned(),
        leave: leave.to_owned(),
        hold: default_for(),
        leave_for: default_leave_for(),
        min_samples,
    }
}

fn default_signals() -> Vec<SignalRule> {
    vec![rule("RetransmitRatio", "2%", "1%", 50), rule("ConnectFailureRatio", "5%", "2%", 10)]
}

fn default_freshness() -> String {
    "30s".to_owned()
}

fn default_for() -> String {
    "5s".to_owned()
}

fn default_leave_for() -> String {
    "15s".to_owned()
}

fn default_min_samples() -> i32 {
    50
}

impl Default for HealthPolicySpec {
    fn default() -> Self {
        Self { signals: default_signals(), freshness: default_freshness() }
    }
}
