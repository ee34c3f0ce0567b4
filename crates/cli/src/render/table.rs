//! Flows and connections as columns for people.

use keelson_model::{Flow, PeerSource, RecordKind, TcpCounters, UnixNanos};

use super::{
    Connection, Lost, Row, arrow, bytes, columns::Columns, endpoint, micros, percent, rfc3339,
};
use crate::escape;

/// Prints rows in blocks.
#[derive(Debug)]
pub enum Table {
    /// Flows.
    Flows(Columns<12>),
    /// Connections.
    Connections(Columns<11>),
}

// === impl Table ===

impl Table {
    /// Columns of `keelson observe`.
    #[must_use]
    pub fn flows() -> Self {
        Self::Flows(Columns::new([
            "WINDOW",
            "POD",
            "",
            "PEER",
            ">PORT",
            ">OPENED",
            ">CLOSED",
            ">FAILED",
            ">SENT",
            ">RECEIVED",
            ">RETRANS",
            ">RTT",
        ]))
    }

    /// Columns of `keelson connections`.
    #[must_use]
    pub fn connections() -> Self {
        Self::Connections(Columns::new([
            "END",
            "STATE",
            "POD",
            "",
            "PEER",
            ">PORT",
            ">SENT",
            ">RECEIVED",
            ">RETRANS",
            ">RTT",
            "KEPT",
        ]))
    }

    /// The rows as lines for the standard output, and notes for the standard error.
    pub fn block(&mut self, rows: &[Row]) -> (String, String) {
        let notes = rows.iter().filter_map(note).collect();
        let text = match self {
            Self::Flows(columns) => {
                let cells: Vec<_> = rows.iter().filter_map(flow_cells).collect();
                columns.block(&cells)
            }
            Self::Connections(columns) => {
                let cells: Vec<_> = rows.iter().filter_map(connection_cells).collect();
                columns.block(&cells)
            }
        };
        (text, notes)
    }
}

fn flow_cells(row: &Row) -> Option<[String; 12]> {
    let Row::Flow(flow) = row else { return None };
    let Flow { window, local, peer, direction, port, delta, .. } = flow.as_ref();
    Some([
        clock(window.start()),
        endpoint(local),
        arrow(*direction).into(),
        endpoint(peer),
        port_text(*port),
        delta.opened.to_string(),
        delta.closed.to_string(),
        delta.connect_failed.to_string(),
        bytes(delta.bytes_sent),
        bytes(delta.bytes_received),
        retransmits(delta),
        delta.mean_rtt_us().map_or_else(|| "-".into(), micros),
    ])
}

fn connection_cells(row: &Row) -> Option<[String; 11]> {
    let Row::Connection(connection) = row else { return None };
    let Connection { local, peer, peer_source, end, record, .. } = connection.as_ref();
    let kept: Vec<&str> = record.keep_reasons.names().collect();
    let doubt = match peer_source {
        PeerSource::OtherEndNotSampled => " (other end not sampled)",
        PeerSource::Address | PeerSource::Pair => "",
    };
    Some([
        clock(*end),
        state(record.kind, record.errno),
        endpoint(local),
        arrow(record.direction).into(),
        format!("{}{doubt}", endpoint(peer)),
        port_text(record.service_port()),
        bytes(record.counters.bytes_sent),
        bytes(record.counters.bytes_received),
        retransmits(&record.counters),
        if record.srtt_us == 0 { "-".into() } else { micros(record.srtt_us.into()) },
        kept.join(","),
    ])
}

fn state(kind: RecordKind, errno: u32) -> String {
    let word = match kind {
        RecordKind::Closed => "closed",
        RecordKind::Progress => "open",
        RecordKind::Failed => "failed",
    };
    match errno_text(errno) {
        None => word.into(),
        Some(text) => format!("{word}: {text}"),
    }
}

/// The usual ends of a connection in the kernel's words; others by number.
fn errno_text(errno: u32) -> Option<String> {
    let text = match errno {
        0 => return None,
        32 => "broken pipe",
        101 => "network unreachable",
        103 => "aborted",
        104 => "reset",
        110 => "timed out",
        111 => "refused",
        112 => "host down",
        113 => "no route",
        other => return Some(format!("errno {other}")),
    };
    Some(text.into())
}

/// Segments sent again, as a part of those sent; handshakes sent again stand beside.
fn retransmits(counters: &TcpCounters) -> String {
    let part = percent(counters.retransmitted_segments, counters.data_segments_sent);
    match counters.syn_retransmits.saturating_add(counters.synack_retransmits) {
        0 => part,
        handshakes => format!("{part} +{handshakes} syn"),
    }
}

fn port_text(port: u16) -> String {
    if port == 0 { "-".into() } else { port.to_string() }
}

fn clock(at: UnixNanos) -> String {
    let text = rfc3339(at);
    text.get(11..19).map_or(text.clone(), ToOwned::to_owned)
}

fn note(row: &Row) -> Option<String> {
    let Row::Lost(Lost { node, reason, count }) = row else { return None };
    let text = match (reason.as_str(), node.is_empty()) {
        ("window_expired", true) => format!(
            "{count} of the windows asked for are not held: the collector keeps ten minutes, from its own \
             start on"
        ),
        ("subscriber_slow", true) => {
            format!("{count} missed, because they were not read as fast as they came")
        }
        ("no_agent" | "blind_interval", false) => {
            format!(
                "node {node} was not seen, or not all the time, in {count} windows: what moved then is not counted"
            )
        }
        (_, true) => format!("{count} missing: {}", reason.replace('_', " ")),
        (_, false) => format!("{count} lost on node {node}: {}", reason.replace('_', " ")),
    };
    Some(format!("note: {}\n", escape::terminal(&text)))
}
