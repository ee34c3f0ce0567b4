//! One batch of an agent as plain values: what `ingest` hands to `pipeline`.
//!
//! It stands between the wire and the decisions, so that the pipeline knows no generated type and
//! its tests need none.

use std::sync::Arc;

use keelson_model::{
    BootId, ClockReading, ConnectionRecord, Coverage, Endpoint, Epoch, LedgerCut, NodeName, PodUid,
    SeriesKey, SeriesValue, WindowId,
};

/// Who sends: the facts of a stream's `Hello` that later steps need.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    /// Name of its Node, proved by the token.
    pub node: NodeName,
    /// `metadata.uid` of that Node.
    pub node_uid: Arc<str>,
    /// Its own pod: with a batch's number, the identity of a batch.
    pub pod_uid: PodUid,
    /// The node's boot.
    pub boot_id: BootId,
    /// The pin set.
    pub epoch: Epoch,
    /// Version text, bounded.
    pub version: String,
    /// `uname -r`, bounded.
    pub kernel_release: String,
}

/// A validated batch.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    /// Numbered by the agent pod, from 1 without gaps.
    pub number: u64,
    /// Window that this batch closes.
    pub window: WindowId,
    /// Repeats the last acknowledged values and closes no window.
    pub baseline: bool,
    /// The window has no further part.
    pub last_part: bool,
    /// Clocks at the cut.
    pub clock: ClockReading,
    /// Cumulative values.
    pub series: Vec<SeriesRow>,
    /// Kept connections.
    pub records: Vec<RecordRow>,
    /// One account a probe.
    pub ledgers: Vec<ProbeLedger>,
    /// What the agent can see.
    pub coverage: Coverage,
}

/// Cumulative value of one series.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesRow {
    /// The named local side, shared by the rows of a batch.
    pub local: Arc<Endpoint>,
    /// What it is counted by.
    pub key: SeriesKey,
    /// Cumulative since its start.
    pub value: SeriesValue,
}

/// One kept connection.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordRow {
    /// The named local side, shared by the rows of a batch.
    pub local: Arc<Endpoint>,
    /// The facts.
    pub record: ConnectionRecord,
}

/// A probe's account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeLedger {
    /// For example `tcp`.
    pub probe: String,
    /// Its account at the batch's cut.
    pub cut: LedgerCut,
}
