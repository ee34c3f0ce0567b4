//! One window's telemetry with its local sides named: what `aggregate` makes and `export` sends.

use keelson_model::{
    BootNanos, ClockReading, ConnectionRecord, Coverage, LedgerCut, SeriesKey, SeriesValue,
    WindowId,
};

use crate::enrich::Local;

/// What one window brought.
#[derive(Clone, Debug, PartialEq)]
pub struct Window {
    /// The window; of several merged ones the last.
    pub id: WindowId,
    /// Clocks at its cut.
    pub clock: ClockReading,
    /// Cumulative values of the series that changed.
    pub series: Vec<SeriesRow>,
    /// Kept connections.
    pub records: Vec<RecordRow>,
    /// Accounts at its cut.
    pub ledgers: Vec<ProbeLedger>,
    /// What the agent can see.
    pub coverage: Coverage,
}

/// Cumulative value of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesRow {
    /// The local side.
    pub local: Local,
    /// What it is counted by.
    pub key: SeriesKey,
    /// Cumulative since its start.
    pub value: SeriesValue,
}

/// One kept connection.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordRow {
    /// The local side.
    pub local: Local,
    /// The facts.
    pub record: ConnectionRecord,
}

/// The probe whose records are connections.
pub const TCP: &str = "tcp";

/// A probe's account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeLedger {
    /// For example `tcp`.
    pub probe: String,
    /// Its account.
    pub cut: LedgerCut,
}

/// A series and its life: another start is another series.
pub type SeriesId = (SeriesKey, BootNanos);

// === impl SeriesRow ===

impl SeriesRow {
    /// What makes two rows the same series.
    #[must_use]
    pub fn id(&self) -> SeriesId {
        (self.key, self.value.start)
    }
}
