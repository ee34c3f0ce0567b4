//! One JSON object a line: the stable output for programs, as `keelson observe --help` documents it.

use std::net::IpAddr;

use keelson_model::{Endpoint, Flow, PeerSource, RecordKind, Remote, TcpCounters, WorkloadRef};
use serde::Serialize;

use super::{Connection, Lost, Row, rfc3339, unknown};
use crate::escape;

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Line<'a> {
    Flow {
        window: u64,
        start: String,
        end: String,
        node: &'a str,
        direction: keelson_model::Direction,
        local: End<'a>,
        peer: End<'a>,
        peer_source: PeerSource,
        remote_address: Option<IpAddr>,
        port: u16,
        counters: &'a TcpCounters,
    },
    Connection {
        record: RecordKind,
        start: String,
        end: String,
        node: &'a str,
        direction: keelson_model::Direction,
        local: End<'a>,
        peer: End<'a>,
        peer_source: PeerSource,
        local_address: IpAddr,
        local_port: u16,
        remote_address: IpAddr,
        remote_port: u16,
        counters: &'a TcpCounters,
        srtt_us: u32,
        min_rtt_us: u32,
        errno: u32,
        kept_because: Vec<&'static str>,
        preexisting: bool,
        id: Id<'a>,
    },
    Lost {
        node: &'a str,
        reason: &'a str,
        count: u64,
    },
    CaughtUp,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Id<'a> {
    node_uid: &'a str,
    boot_id: &'a str,
    epoch: u64,
    cpu: u32,
    sequence: u64,
}

#[derive(Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum End<'a> {
    Pod {
        uid: &'a str,
        namespace: &'a str,
        name: &'a str,
        node: &'a str,
        workload: Option<&'a WorkloadRef>,
        revision: &'a str,
    },
    Node {
        name: &'a str,
    },
    Service {
        namespace: &'a str,
        name: &'a str,
    },
    External {
        address: IpAddr,
    },
    Other,
    Unknown {
        reason: &'static str,
    },
}

/// The row as one line, its line break included.
///
/// # Errors
/// Serialization failed, which no value of these types makes happen.
pub fn line(row: &Row) -> Result<String, serde_json::Error> {
    let line = match row {
        Row::Flow(flow) => flow_line(flow),
        Row::Connection(connection) => connection_line(connection),
        Row::Lost(Lost { node, reason, count }) => Line::Lost { node, reason, count: *count },
        Row::CaughtUp => Line::CaughtUp,
    };
    let text = serde_json::to_string(&line)?;
    Ok(format!("{}\n", escape::json(&text)))
}

fn flow_line(flow: &Flow) -> Line<'_> {
    let Flow { window, node, local, peer, peer_source, remote, direction, port, delta } = flow;
    Line::Flow {
        window: window.0,
        start: rfc3339(window.start()),
        end: rfc3339(window.end()),
        node: node.as_str(),
        direction: *direction,
        local: end(local),
        peer: end(peer),
        peer_source: *peer_source,
        remote_address: match remote {
            Remote::Address(address) => Some(*address),
            Remote::Other => None,
        },
        port: *port,
        counters: delta,
    }
}

fn connection_line(connection: &Connection) -> Line<'_> {
    let Connection { node, id, local, peer, peer_source, start, end: ended, record } = connection;
    Line::Connection {
        record: record.kind,
        start: rfc3339(*start),
        end: rfc3339(*ended),
        node: node.as_str(),
        direction: record.direction,
        local: end(local),
        peer: end(peer),
        peer_source: *peer_source,
        local_address: record.local_address,
        local_port: record.local_port,
        remote_address: record.remote_address,
        remote_port: record.remote_port,
        counters: &record.counters,
        srtt_us: record.srtt_us,
        min_rtt_us: record.min_rtt_us,
        errno: record.errno,
        kept_because: record.keep_reasons.names().collect(),
        preexisting: record.preexisting,
        id: Id {
            node_uid: &id.node_uid,
            boot_id: id.boot_id.as_str(),
            epoch: id.epoch.0,
            cpu: id.cpu,
            sequence: id.sequence,
        },
    }
}

fn end(endpoint: &Endpoint) -> End<'_> {
    match endpoint {
        Endpoint::Pod(pod) => End::Pod {
            uid: pod.uid.as_str(),
            namespace: &pod.namespace,
            name: &pod.name,
            node: pod.node.as_str(),
            workload: pod.workload.as_ref(),
            revision: &pod.revision,
        },
        Endpoint::Node(node) => End::Node { name: node.as_str() },
        Endpoint::Service(service) => {
            End::Service { namespace: &service.namespace, name: &service.name }
        }
        Endpoint::External(address) => End::External { address: *address },
        Endpoint::Other => End::Other,
        Endpoint::Unknown(reason) => End::Unknown { reason: unknown(*reason) },
    }
}
