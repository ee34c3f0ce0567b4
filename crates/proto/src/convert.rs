//! Wire to model and back. What comes from the wire is parsed: a value that cannot be is an error
//! that names its field, an enum number of a newer version is tolerated where the model has a word
//! for it.

use std::net::IpAddr;

use keelson_model::{
    BootNanos, ClockReading, Direction, PodRef, TcpCounters, UnixNanos, UnknownReason, WorkloadRef,
};

use crate::telemetry as wire;

mod answer;
mod coverage;
mod record;
mod series;

pub use answer::{
    endpoint_from_wire, endpoint_to_wire, flow_from_wire, flow_to_wire, peer_source_from_wire,
    peer_source_to_wire,
};
pub use coverage::{coverage_from_wire, coverage_to_wire, ledger_from_wire, ledger_to_wire};
pub use record::{record_from_wire, record_to_wire};
pub use series::{series_from_wire, series_to_wire};

/// A message that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("field `{field}` {problem}")]
pub struct ConvertError {
    /// Name of the field in the proto file.
    pub field: &'static str,
    /// What is wrong with it.
    pub problem: Problem,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Problem {
    /// Not set.
    #[error("is missing")]
    Missing,
    /// An enum's number without a meaning here.
    #[error("has the unknown number {0}")]
    UnknownNumber(i32),
    /// Neither an IPv4 nor an IPv6 address.
    #[error("is no address: it has {0} bytes, not 4 or 16")]
    AddressLength(usize),
    /// A port above 65,535.
    #[error("is no port: {0}")]
    Port(u32),
    /// Longer than the bound.
    #[error("has {length} bytes, more than {bound}")]
    TooLong {
        /// Bytes given.
        length: usize,
        /// Bytes allowed.
        bound: usize,
    },
    /// Must not be empty.
    #[error("is empty")]
    Empty,
    /// More entries than the bound.
    #[error("has {length} entries, more than {bound}")]
    TooMany {
        /// Entries given.
        length: usize,
        /// Entries allowed.
        bound: usize,
    },
}

impl Problem {
    pub(crate) fn at(self, field: &'static str) -> ConvertError {
        ConvertError { field, problem: self }
    }
}

/// The direction as a wire number.
#[must_use]
pub fn direction_to_wire(direction: Direction) -> wire::Direction {
    match direction {
        Direction::Outbound => wire::Direction::Outbound,
        Direction::Inbound => wire::Direction::Inbound,
    }
}

/// The direction of a wire number.
///
/// # Errors
/// Unset or unknown.
pub fn direction_from_wire(number: i32) -> Result<Direction, ConvertError> {
    match wire::Direction::try_from(number) {
        Ok(wire::Direction::Outbound) => Ok(Direction::Outbound),
        Ok(wire::Direction::Inbound) => Ok(Direction::Inbound),
        Ok(wire::Direction::Unspecified) => Err(Problem::Missing.at("direction")),
        Err(_) => Err(Problem::UnknownNumber(number).at("direction")),
    }
}

/// The reason as a wire number.
#[must_use]
pub fn unknown_reason_to_wire(reason: UnknownReason) -> wire::UnknownReason {
    match reason {
        UnknownReason::HostProcess => wire::UnknownReason::HostProcess,
        UnknownReason::PodNotSeen => wire::UnknownReason::PodNotSeen,
        UnknownReason::NoCgroup => wire::UnknownReason::NoCgroup,
        UnknownReason::TableFull => wire::UnknownReason::TableFull,
        UnknownReason::NotPermitted => wire::UnknownReason::NotPermitted,
        UnknownReason::Unrecognised => wire::UnknownReason::Unspecified,
    }
}

/// The reason of a wire number; one of a newer version is `Unrecognised`.
#[must_use]
pub fn unknown_reason_from_wire(number: i32) -> UnknownReason {
    match wire::UnknownReason::try_from(number) {
        Ok(wire::UnknownReason::HostProcess) => UnknownReason::HostProcess,
        Ok(wire::UnknownReason::PodNotSeen) => UnknownReason::PodNotSeen,
        Ok(wire::UnknownReason::NoCgroup) => UnknownReason::NoCgroup,
        Ok(wire::UnknownReason::TableFull) => UnknownReason::TableFull,
        Ok(wire::UnknownReason::NotPermitted) => UnknownReason::NotPermitted,
        Ok(wire::UnknownReason::Unspecified) | Err(_) => UnknownReason::Unrecognised,
    }
}

/// An address as 4 or 16 bytes.
#[must_use]
pub fn address_to_wire(address: IpAddr) -> Vec<u8> {
    match address.to_canonical() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The address of 4 or 16 bytes; IPv4 mapped into IPv6 is given as IPv4.
///
/// # Errors
/// Another length.
pub fn address_from_wire(bytes: &[u8], field: &'static str) -> Result<IpAddr, ConvertError> {
    if let Ok(octets) = <[u8; 4]>::try_from(bytes) {
        return Ok(octets.into());
    }
    match <[u8; 16]>::try_from(bytes) {
        Ok(octets) => Ok(IpAddr::from(octets).to_canonical()),
        Err(_) => Err(Problem::AddressLength(bytes.len()).at(field)),
    }
}

pub(crate) fn port_from_wire(port: u32, field: &'static str) -> Result<u16, ConvertError> {
    u16::try_from(port).map_err(|_| Problem::Port(port).at(field))
}

/// The workload on the wire.
#[must_use]
pub fn workload_to_wire(workload: &WorkloadRef) -> wire::Workload {
    let WorkloadRef { api_version, kind, name } = workload.clone();
    wire::Workload { api_version, kind, name }
}

/// The workload from the wire.
#[must_use]
pub fn workload_from_wire(workload: wire::Workload) -> WorkloadRef {
    let wire::Workload { api_version, kind, name } = workload;
    WorkloadRef { api_version, kind, name }
}

/// A pod of the agent's own node.
#[must_use]
pub fn pod_to_wire(pod: &PodRef) -> wire::Pod {
    wire::Pod {
        uid: pod.uid.as_str().to_owned(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        workload: pod.workload.as_ref().map(workload_to_wire),
        revision: pod.revision.clone(),
        host_network: pod.host_network,
    }
}

/// A pod of the node that sent it.
///
/// # Errors
/// It has no uid, or a text is longer than any that Kubernetes allows.
pub fn pod_from_wire(
    pod: wire::Pod,
    node: &keelson_model::NodeName,
) -> Result<PodRef, ConvertError> {
    let wire::Pod { uid, namespace, name, workload, revision, host_network } = pod;
    if uid.is_empty() {
        return Err(Problem::Empty.at("pods.uid"));
    }
    for (text, field) in [
        (&uid, "pods.uid"),
        (&namespace, "pods.namespace"),
        (&name, "pods.name"),
        (&revision, "pods.revision"),
    ] {
        bounded(text, field)?;
    }
    let workload = workload.map(workload_from_wire);
    if let Some(WorkloadRef { api_version, kind, name }) = &workload {
        bounded(api_version, "pods.workload.api_version")?;
        bounded(kind, "pods.workload.kind")?;
        bounded(name, "pods.workload.name")?;
    }
    let (uid, node) = (uid.into(), node.clone());
    Ok(PodRef { uid, namespace, name, node, workload, revision, host_network })
}

/// Longest name of Kubernetes, a DNS subdomain (RFC 1123), with room for a group and version.
pub const NAME_BYTES: usize = 320;

pub(crate) fn bounded(text: &str, field: &'static str) -> Result<(), ConvertError> {
    if text.len() > NAME_BYTES {
        return Err(Problem::TooLong { length: text.len(), bound: NAME_BYTES }.at(field));
    }
    Ok(())
}

/// A reading of the clocks on the wire.
#[must_use]
pub fn clock_to_wire(clock: ClockReading) -> wire::Clock {
    let ClockReading { unix_minus_boot_ns, uncertainty_ns, unix } = clock;
    wire::Clock { unix_minus_boot_ns, uncertainty_ns, unix_ns: unix.0 }
}

/// A reading of the clocks from the wire.
#[must_use]
pub fn clock_from_wire(clock: wire::Clock) -> ClockReading {
    let wire::Clock { unix_minus_boot_ns, uncertainty_ns, unix_ns } = clock;
    ClockReading { unix_minus_boot_ns, uncertainty_ns, unix: UnixNanos(unix_ns) }
}

macro_rules! same_counters {
    ($from:ty => $to:ident, $value:expr) => {{
        let value: $from = $value;
        $to {
            opened: value.opened,
            closed: value.closed,
            connect_failed: value.connect_failed,
            bytes_sent: value.bytes_sent,
            bytes_received: value.bytes_received,
            data_segments_sent: value.data_segments_sent,
            data_segments_received: value.data_segments_received,
            retransmitted_segments: value.retransmitted_segments,
            retransmitted_bytes: value.retransmitted_bytes,
            syn_retransmits: value.syn_retransmits,
            synack_retransmits: value.synack_retransmits,
            resets_sent: value.resets_sent,
            resets_received: value.resets_received,
            rtt_samples: value.rtt_samples,
            rtt_sum_us: value.rtt_sum_us,
            rtt_min_us: value.rtt_min_us,
            rtt_max_us: value.rtt_max_us,
            connect_samples: value.connect_samples,
            connect_sum_us: value.connect_sum_us,
            connect_max_us: value.connect_max_us,
        }
    }};
}

/// Counters on the wire.
#[must_use]
pub fn counters_to_wire(counters: &TcpCounters) -> wire::TcpCounters {
    use wire::TcpCounters as Wire;
    same_counters!(TcpCounters => Wire, *counters)
}

/// Counters from the wire.
#[must_use]
pub fn counters_from_wire(counters: wire::TcpCounters) -> TcpCounters {
    same_counters!(wire::TcpCounters => TcpCounters, counters)
}

pub(crate) fn boot_or_none(nanos: u64) -> Option<BootNanos> {
    (nanos != 0).then_some(BootNanos(nanos))
}

#[cfg(test)]
mod tests;
