//! The words of the domain as plain values, and the maths on them: ids, units, counters, flows,
//! records, the loss ledger, coverage and every limit by name.
//!
//! It knows no async, no Kubernetes client, no wire format and no kernel ABI: those convert at
//! their own edges, so that every decision can be tested with values alone.

#![forbid(unsafe_code)]

pub mod counters;
pub mod coverage;
pub mod endpoint;
pub mod flow;
pub mod ids;
pub mod ledger;
pub mod limits;
pub mod record;
pub mod text;
pub mod time;

pub use counters::TcpCounters;
pub use coverage::{Coverage, CoverageReason, ProgramState, ProgramStatus};
pub use endpoint::{Endpoint, PodRef, ServiceRef, UnknownReason, WorkloadRef};
pub use flow::{Direction, Flow, PeerSource, Remote, SeriesKey, SeriesValue};
pub use ids::{BootId, CgroupId, Epoch, NodeName, PodUid};
pub use ledger::{LedgerCut, LossReason};
pub use record::{ConnectionRecord, IsnPair, KeepReasons, RecordId, RecordKind};
pub use text::steers_terminal;
pub use time::{BootNanos, ClockReading, UnixNanos, WINDOW_SECONDS, WindowId};
