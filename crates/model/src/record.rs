//! A kept connection: numbered facts beside the counters.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{
    counters::TcpCounters,
    flow::Direction,
    ids::{BootId, CgroupId, Epoch},
    time::BootNanos,
};

/// What makes two records the same one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordId {
    /// `metadata.uid` of the Node.
    pub node_uid: String,
    /// The node's boot.
    pub boot_id: BootId,
    /// The pin set.
    pub epoch: Epoch,
    /// CPU that wrote it.
    pub cpu: u32,
    /// Unique for the CPU: a lane's number and the lane (`ebpf-src/tcp/record.bpf.h`).
    pub sequence: u64,
}

/// What happened to the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordKind {
    /// It was ESTABLISHED and ended.
    Closed,
    /// It is open and moved in this window.
    Progress,
    /// It ended before ESTABLISHED.
    Failed,
}

/// Why a record was kept, as bits; several may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct KeepReasons(pub u32);

impl KeepReasons {
    /// The hash of the ISN pair lies at or below the threshold.
    pub const HASH: u32 = 1 << 0;
    /// It failed before ESTABLISHED.
    pub const FAILED: u32 = 1 << 1;
    /// A RST ended it.
    pub const RESET: u32 = 1 << 2;
    /// It retransmitted.
    pub const RETRANSMIT: u32 = 1 << 3;
    /// Its handshake or its RTT passed the slow bound.
    pub const SLOW: u32 = 1 << 4;

    /// Whether a rule, not the sample, kept it: its weight in counts is then 1.
    #[must_use]
    pub fn by_rule(self) -> bool {
        self.0 & !Self::HASH != 0
    }

    /// Names of the bits that are set, in the order of the bits.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(u32, &str); 5] = [
            (KeepReasons::HASH, "hash"),
            (KeepReasons::FAILED, "failed"),
            (KeepReasons::RESET, "reset"),
            (KeepReasons::RETRANSMIT, "retransmit"),
            (KeepReasons::SLOW, "slow"),
        ];
        NAMES.into_iter().filter(move |(bit, _)| self.0 & bit != 0).map(|(_, name)| name)
    }
}

/// Initial sequence numbers of both ends: the same pair at either end, through NAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct IsnPair {
    /// The connecting end's.
    pub client: u32,
    /// The accepting end's.
    pub server: u32,
}

impl IsnPair {
    /// The hash by which both ends keep the same connections: `isn_hash` of `ebpf-src/tcp`, the
    /// 32-bit finalizer of Murmur3 (Appleby, public domain) over the pair.
    #[must_use]
    pub fn hash(self) -> u32 {
        let mut hash = self.client ^ self.server.wrapping_mul(0x9e37_79b1);
        hash ^= hash >> 16;
        hash = hash.wrapping_mul(0x85eb_ca6b);
        hash ^= hash >> 13;
        hash = hash.wrapping_mul(0xc2b2_ae35);
        hash ^ (hash >> 16)
    }
}

/// A connection as its own kernel saw it, over its whole life so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConnectionRecord {
    /// CPU that wrote it.
    pub cpu: u32,
    /// Unique for the CPU.
    pub sequence: u64,
    /// What happened.
    pub kind: RecordKind,
    /// The local side's cgroup.
    pub cgroup: CgroupId,
    /// Inode of the socket's network namespace.
    pub network_namespace: u32,
    /// Which end this is.
    pub direction: Direction,
    /// Local address as the socket had it.
    pub local_address: IpAddr,
    /// Remote address as the socket had it.
    pub remote_address: IpAddr,
    /// Local port.
    pub local_port: u16,
    /// Remote port.
    pub remote_port: u16,
    /// `SO_COOKIE`.
    pub socket_cookie: u64,
    /// None before ESTABLISHED, with TCP Fast Open, and for adopted connections.
    pub isn: Option<IsnPair>,
    /// Open before the agent was: counters begin at adoption.
    pub preexisting: bool,
    /// SYN sent or received; adoption for a preexisting connection.
    pub start: BootNanos,
    /// None if it never was.
    pub established: Option<BootNanos>,
    /// End, or the time of the progress record.
    pub end: BootNanos,
    /// Whole-life values.
    pub counters: TcpCounters,
    /// Smoothed RTT at the end, in microseconds.
    pub srtt_us: u32,
    /// The kernel's windowed minimum RTT, in microseconds.
    pub min_rtt_us: u32,
    /// RTT variance as `ss` shows it (`mdev_us >> 2`), in microseconds.
    pub rttvar_us: u32,
    /// Kernel errno of the end; 0: none.
    pub errno: u32,
    /// Why it was kept.
    pub keep_reasons: KeepReasons,
    /// Threshold in force at ESTABLISHED: the hash keeps when it is at or below; `u32::MAX` keeps all.
    pub sampling_threshold: u32,
    /// Thread group that owned the socket; 0: not known.
    pub pid: u32,
}

// === impl ConnectionRecord ===

impl ConnectionRecord {
    /// The service's port: the remote one outbound, the local one inbound.
    #[must_use]
    pub fn service_port(&self) -> u16 {
        match self.direction {
            Direction::Outbound => self.remote_port,
            Direction::Inbound => self.local_port,
        }
    }
}
