//! A series as an agent counts it, and a flow as the collector reports it.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::{
    counters::TcpCounters,
    endpoint::Endpoint,
    ids::{CgroupId, NodeName},
    time::{BootNanos, WindowId},
};

/// Which end of a connection this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// This end called `connect()`.
    Outbound,
    /// This end accepted.
    Inbound,
}

/// The remote side of a series, before it has a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Remote {
    /// An address; IPv4 mapped into IPv6 is given as IPv4.
    Address(IpAddr),
    /// The peers beyond the cgroup's bound, together.
    Other,
}

/// What gave a peer its name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PeerSource {
    /// Its address.
    #[default]
    Address,
    /// The record of the connection's other end, which has the same initial sequence numbers.
    Pair,
    /// Its address, and that is a Service's or a node's: the other end kept no record of it.
    OtherEndNotSampled,
}

/// What a series is counted by: never an ephemeral port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SeriesKey {
    /// The local side.
    pub cgroup: CgroupId,
    /// Which end it is.
    pub direction: Direction,
    /// The remote side.
    pub remote: Remote,
    /// The service's port: the remote one outbound, the local one inbound; 0 for `Other`.
    pub port: u16,
}

/// Cumulative values of a series, with the time at which they began at zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesValue {
    /// Another start is another series.
    pub start: BootNanos,
    /// Cumulative since `start`.
    pub counters: TcpCounters,
}

/// Difference of one series over one window, with both ends named.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Flow {
    /// By the clock of `node`.
    pub window: WindowId,
    /// The node whose agent counted it.
    pub node: NodeName,
    /// The end on that node.
    pub local: Endpoint,
    /// The other end.
    pub peer: Endpoint,
    /// What gave the other end its name.
    pub peer_source: PeerSource,
    /// The remote side as the socket had it.
    pub remote: Remote,
    /// Which end `local` is.
    pub direction: Direction,
    /// The service's port.
    pub port: u16,
    /// Difference over the window.
    pub delta: TcpCounters,
}
