//! A stream's messages as plain values, or the reason why they cannot be.
//!
//! Single values are `proto::convert`'s; here stands what a message as a whole must keep: bounds,
//! the dictionary of pods, and that windows are the collector's own.

use std::sync::Arc;

use keelson_model::{Endpoint, Epoch, NodeName, UnknownReason, WINDOW_SECONDS, WindowId, limits};
use keelson_proto::{
    convert::{self, ConvertError},
    telemetry::{self as wire, local},
};

use crate::{
    batch::{Agent, Batch, ProbeLedger, RecordRow, SeriesRow},
    pipeline::ledger::PROBES_PER_NODE,
};

/// A message that cannot be.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum WireError {
    /// The stream did not begin with `Hello`.
    #[error("a stream begins with hello")]
    NoHello,
    /// `Hello` came again.
    #[error("hello comes once, first")]
    SecondHello,
    /// A message without content, or of a kind that this version does not know.
    #[error("the message holds nothing that this collector knows")]
    EmptyMessage,
    /// A text field of `Hello`.
    #[error("hello.{field} must have 1 to {} bytes, not {length}", limits::HELLO_TEXT_BYTES)]
    HelloText {
        /// The field.
        field: &'static str,
        /// Its length.
        length: usize,
    },
    /// Windows of another length.
    #[error("hello.window_seconds must be {WINDOW_SECONDS}, not {seconds}")]
    WindowLength {
        /// As said.
        seconds: u32,
    },
    /// A field must be set.
    #[error("batch.{field} is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// A list is too long.
    #[error("batch.{field} has {length} entries, at most {bound} are allowed")]
    TooMany {
        /// The field.
        field: &'static str,
        /// Its length.
        length: usize,
        /// The bound.
        bound: usize,
    },
    /// A pod that the batch does not list.
    #[error("local.pod {index} is not in batch.pods")]
    UnknownPod {
        /// The index.
        index: u32,
    },
    /// A baseline carries no records.
    #[error("a baseline carries no records")]
    BaselineRecords,
    /// A value that cannot be.
    #[error("batch holds what cannot be: {0}")]
    Value(ConvertError),
}

impl From<ConvertError> for WireError {
    fn from(error: ConvertError) -> Self {
        Self::Value(error)
    }
}

/// Reads the batches of one node's stream.
#[derive(Clone, Debug)]
pub struct Dictionary {
    node: NodeName,
}

/// Who sends.
///
/// # Errors
/// A text is missing or too long, or the windows are not the collector's.
pub fn agent(hello: wire::Hello) -> Result<Agent, WireError> {
    let wire::Hello {
        agent_version,
        node_name,
        node_uid,
        agent_pod_uid,
        boot_id,
        epoch,
        window_seconds,
        kernel_release,
    } = hello;
    if u64::from(window_seconds) != WINDOW_SECONDS {
        return Err(WireError::WindowLength { seconds: window_seconds });
    }
    for (field, text) in [
        ("agent_version", &agent_version),
        ("node_name", &node_name),
        ("node_uid", &node_uid),
        ("agent_pod_uid", &agent_pod_uid),
        ("boot_id", &boot_id),
        ("kernel_release", &kernel_release),
    ] {
        if text.is_empty() || text.len() > limits::HELLO_TEXT_BYTES {
            return Err(WireError::HelloText { field, length: text.len() });
        }
    }
    Ok(Agent {
        node: node_name.into(),
        node_uid: node_uid.into(),
        pod_uid: agent_pod_uid.into(),
        boot_id: boot_id.into(),
        epoch: Epoch(epoch),
        version: agent_version,
        kernel_release,
    })
}

// === impl Dictionary ===

impl Dictionary {
    /// For the streams of `node`.
    #[must_use]
    pub fn new(node: NodeName) -> Self {
        Self { node }
    }

    /// The batch as plain values.
    ///
    /// # Errors
    /// A field is missing, too long or cannot be; the message names it.
    pub fn batch(&self, batch: wire::Batch) -> Result<Batch, WireError> {
        let wire::Batch {
            number,
            window,
            baseline,
            clock,
            series,
            records,
            ledgers,
            coverage,
            pods,
            last_part,
        } = batch;
        bounded("series", series.len(), limits::SERIES_PER_BATCH)?;
        bounded("records", records.len(), limits::RECORDS_PER_BATCH)?;
        bounded("pods", pods.len(), limits::SERIES_PER_BATCH + limits::RECORDS_PER_BATCH)?;
        bounded("ledgers", ledgers.len(), PROBES_PER_NODE)?;
        if baseline && !records.is_empty() {
            return Err(WireError::BaselineRecords);
        }
        let clock = clock.ok_or(WireError::Missing { field: "clock" })?;
        let locals = self.locals(pods)?;
        let series =
            series.iter().map(|row| self.series(row, &locals)).collect::<Result<_, _>>()?;
        let records =
            records.iter().map(|row| self.record(row, &locals)).collect::<Result<_, _>>()?;
        Ok(Batch {
            number,
            window: WindowId(window),
            baseline,
            last_part,
            clock: convert::clock_from_wire(clock),
            series,
            records,
            ledgers: ledgers.iter().map(ledger).collect::<Result<_, _>>()?,
            coverage: convert::coverage_from_wire(&coverage.unwrap_or_default())?,
        })
    }

    fn locals(&self, pods: Vec<wire::Pod>) -> Result<Vec<Arc<Endpoint>>, WireError> {
        let local = |pod| {
            let pod = convert::pod_from_wire(pod, &self.node)?;
            Ok(Arc::new(Endpoint::Pod(pod)))
        };
        pods.into_iter().map(local).collect()
    }

    fn series(&self, row: &wire::Series, locals: &[Arc<Endpoint>]) -> Result<SeriesRow, WireError> {
        let (key, value) = convert::series_from_wire(row)?;
        let local = self.local(row.local.as_ref(), "series.local", locals)?;
        Ok(SeriesRow { local, key, value })
    }

    fn record(
        &self,
        row: &wire::ConnectionRecord,
        locals: &[Arc<Endpoint>],
    ) -> Result<RecordRow, WireError> {
        let record = convert::record_from_wire(row)?;
        let local = self.local(row.local.as_ref(), "records.local", locals)?;
        Ok(RecordRow { local, record })
    }

    /// The local side; a process of the host is its node.
    fn local(
        &self,
        local: Option<&wire::Local>,
        field: &'static str,
        locals: &[Arc<Endpoint>],
    ) -> Result<Arc<Endpoint>, WireError> {
        let local = local.and_then(|local| local.local.as_ref());
        match local.ok_or(WireError::Missing { field })? {
            local::Local::Pod(index) => {
                let position = usize::try_from(*index).unwrap_or(usize::MAX);
                locals.get(position).map(Arc::clone).ok_or(WireError::UnknownPod { index: *index })
            }
            local::Local::Unknown(reason) => {
                Ok(Arc::new(match convert::unknown_reason_from_wire(*reason) {
                    UnknownReason::HostProcess => Endpoint::Node(self.node.clone()),
                    reason => Endpoint::Unknown(reason),
                }))
            }
        }
    }
}

fn ledger(ledger: &wire::Ledger) -> Result<ProbeLedger, WireError> {
    let (probe, cut) = convert::ledger_from_wire(ledger)?;
    Ok(ProbeLedger { probe, cut })
}

fn bounded(field: &'static str, length: usize, bound: usize) -> Result<(), WireError> {
    if length > bound {
        return Err(WireError::TooMany { field, length, bound });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
