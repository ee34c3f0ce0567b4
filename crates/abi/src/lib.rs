//! Bytes of the kernel to the model, without a panic: the only place that reads them.
//!
//! [`layout`] mirrors `ebpf-src/tcp/tcp.h`; a test of crate `probes` proves both equal from the
//! object's BTF. A record longer than known is read as its known prefix (perf buffers pad), a
//! shorter one is a counted error.

#![forbid(unsafe_code)]

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use keelson_model::{
    BootNanos, CgroupId, ConnectionRecord, Direction, IsnPair, KeepReasons, RecordKind, Remote,
    SeriesKey, SeriesValue, TcpCounters,
};
use zerocopy::{FromBytes, Immutable, KnownLayout};

pub mod layout;

use layout::{TcpCgroupRecord, TcpHeader, TcpRecord, TcpSeriesKey, TcpSeriesValue};

/// One record of a perf buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(clippy::large_enum_variant, reason = "nearly all events are connections")]
pub enum Event {
    /// A kept connection.
    Connection(ConnectionRecord),
    /// A cgroup of our tree was made.
    CgroupMade {
        /// Its id.
        cgroup: CgroupId,
        /// Id of the directory that it lies in.
        parent: CgroupId,
        /// Its own name, without the path; what is no UTF-8 is replaced.
        name: String,
    },
    /// A cgroup of our tree was removed.
    CgroupRemoved {
        /// Its id.
        cgroup: CgroupId,
    },
}

/// Why bytes are no record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// Fewer bytes than the layout has.
    #[error("{what} has {length} bytes, not {expected}")]
    Short {
        /// What should stand there.
        what: &'static str,
        /// Bytes given.
        length: usize,
        /// Bytes needed.
        expected: usize,
    },
    /// Another layout.
    #[error("record has layout {0}, not {version}", version = layout::VERSION)]
    Version(u16),
    /// An enum's number without a meaning.
    #[error("{field} has the unknown number {number}")]
    Unknown {
        /// The field.
        field: &'static str,
        /// What stands there.
        number: u16,
    },
}

/// Decodes one record; pure and total.
///
/// # Errors
/// The bytes are no record of this layout.
pub fn decode(bytes: &[u8]) -> Result<Event, DecodeError> {
    let header: TcpHeader = prefix(bytes, "header")?;
    if header.version != layout::VERSION {
        return Err(DecodeError::Version(header.version));
    }
    match header.kind {
        layout::KIND_CONNECTION => connection(&prefix(bytes, "record")?).map(Event::Connection),
        layout::KIND_CGROUP_MADE => {
            let record: TcpCgroupRecord = prefix(bytes, "cgroup record")?;
            let end = record.name.iter().position(|byte| *byte == 0).unwrap_or(record.name.len());
            Ok(Event::CgroupMade {
                cgroup: CgroupId(header.cgroup_id),
                parent: CgroupId(record.parent_id),
                name: String::from_utf8_lossy(record.name.get(..end).unwrap_or_default()).into(),
            })
        }
        layout::KIND_CGROUP_REMOVED => {
            Ok(Event::CgroupRemoved { cgroup: CgroupId(header.cgroup_id) })
        }
        number => Err(DecodeError::Unknown { field: "kind", number }),
    }
}

/// Decodes one entry of the series map; none while the kernel is making it.
///
/// # Errors
/// The bytes are no entry of this layout.
pub fn decode_series(
    key: &[u8],
    value: &[u8],
) -> Result<Option<(SeriesKey, SeriesValue)>, DecodeError> {
    let key: TcpSeriesKey = prefix(key, "series key")?;
    let value: TcpSeriesValue = prefix(value, "series value")?;
    if value.start_ns == 0 {
        return Ok(None);
    }
    let remote = match key.family {
        layout::AF_OTHER => Remote::Other,
        family => Remote::Address(address(family, key.remote)?),
    };
    let key = SeriesKey {
        cgroup: CgroupId(key.cgroup_id),
        direction: direction(key.direction)?,
        remote,
        port: key.port,
    };
    Ok(Some((key, SeriesValue { start: BootNanos(value.start_ns), counters: counters(&value) })))
}

fn prefix<T: FromBytes + KnownLayout + Immutable>(
    bytes: &[u8],
    what: &'static str,
) -> Result<T, DecodeError> {
    let short =
        DecodeError::Short { what, length: bytes.len(), expected: std::mem::size_of::<T>() };
    T::read_from_prefix(bytes).map(|(value, _)| value).map_err(|_| short)
}

fn connection(record: &TcpRecord) -> Result<ConnectionRecord, DecodeError> {
    let kind = match record.event {
        layout::EVENT_CLOSED => RecordKind::Closed,
        layout::EVENT_PROGRESS => RecordKind::Progress,
        layout::EVENT_FAILED => RecordKind::Failed,
        number => return Err(DecodeError::Unknown { field: "event", number: number.into() }),
    };
    let is_open = record.established_ns != 0;
    let isn = IsnPair { client: record.client_isn, server: record.server_isn };
    let counters = TcpCounters {
        opened: is_open.into(),
        closed: u64::from(kind == RecordKind::Closed),
        connect_failed: u64::from(kind == RecordKind::Failed),
        bytes_sent: record.bytes_sent,
        bytes_received: record.bytes_received,
        data_segments_sent: record.data_segs_out.into(),
        data_segments_received: record.data_segs_in.into(),
        retransmitted_segments: record.total_retrans.into(),
        retransmitted_bytes: record.bytes_retrans,
        syn_retransmits: record.syn_retrans.into(),
        synack_retransmits: 0,
        resets_sent: record.resets_sent.into(),
        resets_received: record.resets_received.into(),
        rtt_samples: record.rtt_samples.into(),
        rtt_sum_us: record.rtt_sum_us,
        rtt_min_us: record.rtt_min_us.into(),
        rtt_max_us: record.rtt_max_us.into(),
        ..TcpCounters::default()
    };
    Ok(ConnectionRecord {
        cpu: record.header.cpu,
        sequence: record.header.sequence,
        kind,
        cgroup: CgroupId(record.header.cgroup_id),
        network_namespace: record.header.netns,
        direction: direction(record.direction)?,
        local_address: address(record.family, record.local)?,
        remote_address: address(record.family, record.remote)?,
        local_port: record.local_port,
        remote_port: record.remote_port,
        socket_cookie: record.cookie,
        isn: (record.state & layout::STATE_ISN_VALID != 0).then_some(isn),
        preexisting: record.state & layout::STATE_PREEXISTING != 0,
        start: BootNanos(record.start_ns),
        established: is_open.then_some(BootNanos(record.established_ns)),
        end: BootNanos(record.header.boot_ns),
        counters,
        srtt_us: record.srtt_us,
        min_rtt_us: record.min_rtt_us,
        rttvar_us: record.rttvar_us,
        errno: record.error,
        keep_reasons: KeepReasons(record.keep),
        sampling_threshold: record.threshold,
        pid: record.pid,
    })
}

fn counters(value: &TcpSeriesValue) -> TcpCounters {
    TcpCounters {
        opened: value.opened,
        closed: value.closed,
        connect_failed: value.connect_failed,
        bytes_sent: value.bytes_sent,
        bytes_received: value.bytes_received,
        data_segments_sent: value.data_segs_out,
        data_segments_received: value.data_segs_in,
        retransmitted_segments: value.total_retrans,
        retransmitted_bytes: value.bytes_retrans,
        syn_retransmits: value.syn_retrans,
        synack_retransmits: value.synack_retrans,
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
}

fn direction(number: u8) -> Result<Direction, DecodeError> {
    match number {
        layout::OUTBOUND => Ok(Direction::Outbound),
        layout::INBOUND => Ok(Direction::Inbound),
        number => Err(DecodeError::Unknown { field: "direction", number: number.into() }),
    }
}

fn address(family: u8, bytes: [u8; 16]) -> Result<IpAddr, DecodeError> {
    match family {
        layout::AF_INET => {
            let [a, b, c, d, ..] = bytes;
            Ok(IpAddr::V4(Ipv4Addr::new(a, b, c, d)))
        }
        layout::AF_INET6 => Ok(IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()),
        number => Err(DecodeError::Unknown { field: "family", number: number.into() }),
    }
}

#[cfg(test)]
mod tests;
