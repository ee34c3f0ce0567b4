//! Records of kept connections. The local side's name travels beside them, in the dictionary.

use keelson_model::{BootNanos, CgroupId, ConnectionRecord, IsnPair, KeepReasons, RecordKind};

use super::{
    ConvertError, Problem, address_from_wire, address_to_wire, boot_or_none, counters_from_wire,
    counters_to_wire, direction_from_wire, direction_to_wire, port_from_wire,
};
use crate::telemetry as wire;

/// A record without its local side, which the caller sets where there is one.
#[must_use]
pub fn record_to_wire(record: &ConnectionRecord) -> wire::ConnectionRecord {
    let kind = match record.kind {
        RecordKind::Closed => wire::RecordKind::Closed,
        RecordKind::Progress => wire::RecordKind::Progress,
        RecordKind::Failed => wire::RecordKind::Failed,
    };
    let isn = record.isn.unwrap_or(IsnPair { client: 0, server: 0 });
    wire::ConnectionRecord {
        cpu: record.cpu,
        sequence: record.sequence,
        kind: kind.into(),
        local: None,
        cgroup_id: record.cgroup.0,
        direction: direction_to_wire(record.direction).into(),
        local_address: address_to_wire(record.local_address),
        remote_address: address_to_wire(record.remote_address),
        local_port: record.local_port.into(),
        remote_port: record.remote_port.into(),
        socket_cookie: record.socket_cookie,
        network_namespace: record.network_namespace,
        client_isn: isn.client,
        server_isn: isn.server,
        isn_valid: record.isn.is_some(),
        preexisting: record.preexisting,
        start_boot_ns: record.start.0,
        established_boot_ns: record.established.map_or(0, |at| at.0),
        end_boot_ns: record.end.0,
        counters: Some(counters_to_wire(&record.counters)),
        srtt_us: record.srtt_us,
        min_rtt_us: record.min_rtt_us,
        rttvar_us: record.rttvar_us,
        errno: record.errno,
        keep_reasons: record.keep_reasons.0,
        sampling_threshold: record.sampling_threshold,
        pid: record.pid,
    }
}

/// The facts of a record; its `local` is the caller's to look up.
///
/// # Errors
/// A field that cannot be.
pub fn record_from_wire(record: &wire::ConnectionRecord) -> Result<ConnectionRecord, ConvertError> {
    let kind = match wire::RecordKind::try_from(record.kind) {
        Ok(wire::RecordKind::Closed) => RecordKind::Closed,
        Ok(wire::RecordKind::Progress) => RecordKind::Progress,
        Ok(wire::RecordKind::Failed) => RecordKind::Failed,
        Ok(wire::RecordKind::Unspecified) => return Err(Problem::Missing.at("records.kind")),
        Err(_) => return Err(Problem::UnknownNumber(record.kind).at("records.kind")),
    };
    let isn = IsnPair { client: record.client_isn, server: record.server_isn };
    let counters = record.counters.ok_or(Problem::Missing.at("records.counters"))?;
    Ok(ConnectionRecord {
        cpu: record.cpu,
        sequence: record.sequence,
        kind,
        cgroup: CgroupId(record.cgroup_id),
        network_namespace: record.network_namespace,
        direction: direction_from_wire(record.direction)?,
        local_address: address_from_wire(&record.local_address, "records.local_address")?,
        remote_address: address_from_wire(&record.remote_address, "records.remote_address")?,
        local_port: port_from_wire(record.local_port, "records.local_port")?,
        remote_port: port_from_wire(record.remote_port, "records.remote_port")?,
        socket_cookie: record.socket_cookie,
        isn: record.isn_valid.then_some(isn),
        preexisting: record.preexisting,
        start: BootNanos(record.start_boot_ns),
        established: boot_or_none(record.established_boot_ns),
        end: BootNanos(record.end_boot_ns),
        counters: counters_from_wire(counters),
        srtt_us: record.srtt_us,
        min_rtt_us: record.min_rtt_us,
        rttvar_us: record.rttvar_us,
        errno: record.errno,
        keep_reasons: KeepReasons(record.keep_reasons),
        sampling_threshold: record.sampling_threshold,
        pid: record.pid,
    })
}
