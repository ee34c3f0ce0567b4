//! `ebpf-src/tcp/tcp.h` in Rust, field by field; sizes asserted on both sides.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// `TCP_LAYOUT`.
pub const VERSION: u16 = 3;

/// `enum tcp_record_kind`.
pub const KIND_CONNECTION: u16 = 1;
/// A cgroup was made.
pub const KIND_CGROUP_MADE: u16 = 2;
/// A cgroup was removed.
pub const KIND_CGROUP_REMOVED: u16 = 3;

/// `enum tcp_event`.
pub const EVENT_CLOSED: u8 = 1;
/// It is open and moved.
pub const EVENT_PROGRESS: u8 = 2;
/// It never was ESTABLISHED.
pub const EVENT_FAILED: u8 = 3;

/// `enum tcp_direction`.
pub const OUTBOUND: u8 = 1;
/// It accepted.
pub const INBOUND: u8 = 2;

/// `TCP_AF_OTHER`: the peers beyond the bound.
pub const AF_OTHER: u8 = 0;
/// `AF_INET`.
pub const AF_INET: u8 = 2;
/// `AF_INET6`.
pub const AF_INET6: u8 = 10;

/// `enum tcp_connection_flag`.
pub const STATE_ISN_VALID: u8 = 1 << 0;
/// Open before the agent was.
pub const STATE_PREEXISTING: u8 = 1 << 1;

macro_rules! layout {
    ($(#[$doc:meta])* $name:ident, $size:literal { $($field:ident: $type:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(C)]
        #[allow(missing_docs, reason = "tcp.h documents the fields")]
        pub struct $name { $(pub $field: $type,)* }

        const _: () = assert!(std::mem::size_of::<$name>() == $size);

        impl $name {
            /// Name and offset of each field, for the proof against the object's BTF.
            pub const FIELDS: &'static [(&'static str, usize)] =
                &[$((stringify!($field), std::mem::offset_of!($name, $field)),)*];
        }
    };
}

layout!(
    /// `struct tcp_header`.
    TcpHeader, 40 {
        kind: u16,
        version: u16,
        size: u16,
        flags: u16,
        cpu: u32,
        netns: u32,
        sequence: u64,
        boot_ns: u64,
        cgroup_id: u64,
    }
);

layout!(
    /// `struct tcp_record`.
    TcpRecord, 208 {
        header: TcpHeader,
        cookie: u64,
        start_ns: u64,
        established_ns: u64,
        bytes_sent: u64,
        bytes_received: u64,
        bytes_retrans: u64,
        rtt_sum_us: u64,
        rtt_samples: u32,
        rtt_min_us: u32,
        rtt_max_us: u32,
        client_isn: u32,
        server_isn: u32,
        data_segs_out: u32,
        data_segs_in: u32,
        total_retrans: u32,
        syn_retrans: u32,
        resets_sent: u32,
        resets_received: u32,
        srtt_us: u32,
        min_rtt_us: u32,
        rttvar_us: u32,
        error: u32,
        keep: u32,
        threshold: u32,
        pid: u32,
        local_port: u16,
        remote_port: u16,
        event: u8,
        direction: u8,
        family: u8,
        state: u8,
        local: [u8; 16],
        remote: [u8; 16],
    }
);

layout!(
    /// `struct tcp_cgroup_record`.
    TcpCgroupRecord, 184 {
        header: TcpHeader,
        parent_id: u64,
        level: u32,
        pad: u32,
        name: [u8; 128],
    }
);

layout!(
    /// `struct tcp_series_key`.
    TcpSeriesKey, 32 {
        cgroup_id: u64,
        direction: u8,
        family: u8,
        port: u16,
        pad: u32,
        remote: [u8; 16],
    }
);

layout!(
    /// `struct tcp_series_value`.
    TcpSeriesValue, 168 {
        start_ns: u64,
        opened: u64,
        closed: u64,
        connect_failed: u64,
        bytes_sent: u64,
        bytes_received: u64,
        data_segs_out: u64,
        data_segs_in: u64,
        total_retrans: u64,
        bytes_retrans: u64,
        syn_retrans: u64,
        synack_retrans: u64,
        resets_sent: u64,
        resets_received: u64,
        rtt_samples: u64,
        rtt_sum_us: u64,
        rtt_min_us: u64,
        rtt_max_us: u64,
        connect_samples: u64,
        connect_sum_us: u64,
        connect_max_us: u64,
    }
);

layout!(
    /// `struct tcp_config`.
    TcpConfig, 56 {
        scope_id: u64,
        peers_per_cgroup: u64,
        account_every_ns: u64,
        period_ns: u64,
        period_offset_ns: u64,
        scope_level: u32,
        sampling_threshold: u32,
        slow_us: u32,
        use_storage: u32,
    }
);

layout!(
    /// `struct tcp_pin_set`.
    TcpPinSet, 16 {
        epoch: u64,
        seen_ns: u64,
    }
);

/// Slots of the map `tcp_ledger`, `enum tcp_ledger_slot`.
pub mod ledger {
    /// Records numbered.
    pub const PRODUCED: u32 = 0;
    /// The perf buffer was full.
    pub const BUFFER_FULL: u32 = 1;
    /// The perf buffer refused otherwise.
    pub const OUTPUT_FAILED: u32 = 2;
    /// Connections that are not ours.
    pub const OUT_OF_SCOPE: u32 = 3;
    /// No storage for a socket's state.
    pub const STATE_REFUSED: u32 = 4;
    /// No room for a series.
    pub const SERIES_REFUSED: u32 = 5;
    /// Counted under the overflow key.
    pub const SERIES_OTHER: u32 = 6;
    /// A kernel field could not be read.
    pub const READ_FAILED: u32 = 7;
}

/// Slots of the map `tcp_settled`, `enum tcp_settled_slot`.
pub mod settled {
    /// Acknowledged by the collector.
    pub const DELIVERED: u32 = 0;
    /// Used by the agent itself.
    pub const CONSUMED: u32 = 1;
    /// No records of a known layout.
    pub const DECODE_FAILED: u32 = 2;
    /// Too many were in hand for their names.
    pub const PENDING_FULL: u32 = 3;
    /// Too many waited for the collector.
    pub const QUEUE_FULL: u32 = 4;
    /// In the hand of an agent that was killed.
    pub const AGENT_RESTART: u32 = 5;
}
