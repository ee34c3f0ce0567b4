//! Rows as a person or a program reads them.
//!
//! Pure: model values in, text out. Every name passes `escape` on its way to the terminal.

use keelson_model::{
    ConnectionRecord, Direction, Endpoint, Flow, NodeName, PeerSource, RecordId, UnixNanos,
    UnknownReason,
};

pub mod columns;
pub mod json;
pub mod table;

/// One thing to print.
#[derive(Clone, Debug)]
pub enum Row {
    /// A difference of one window.
    Flow(Box<Flow>),
    /// A kept connection.
    Connection(Box<Connection>),
    /// What the answer lacks.
    Lost(Lost),
    /// All that was held has been given.
    CaughtUp,
}

/// A kept connection with names.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The node whose agent kept it.
    pub node: NodeName,
    /// Its identity.
    pub id: RecordId,
    /// The end on the node.
    pub local: Endpoint,
    /// The other end.
    pub peer: Endpoint,
    /// What gave it its name.
    pub peer_source: PeerSource,
    /// Begin.
    pub start: UnixNanos,
    /// End, or the time of the progress record.
    pub end: UnixNanos,
    /// The facts.
    pub record: ConnectionRecord,
}

/// What an answer lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lost {
    /// Of this node; empty: of the collector.
    pub node: String,
    /// A loss reason.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// A time as RFC 3339 in UTC, to the millisecond.
#[must_use]
pub fn rfc3339(at: UnixNanos) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(at.0)) {
        Ok(time) => format!("{time:.3}"),
        Err(_) => format!("{} ns", at.0),
    }
}

/// A time as RFC 3339 in UTC, to the second.
#[must_use]
pub fn seconds(at: UnixNanos) -> String {
    match jiff::Timestamp::from_nanosecond(i128::from(at.0)) {
        Ok(time) => format!("{time:.0}"),
        Err(_) => format!("{} ns", at.0),
    }
}

/// An end as one short word for a table, safe to print.
#[must_use]
pub fn endpoint(endpoint: &Endpoint) -> String {
    let text = match endpoint {
        Endpoint::Pod(pod) => format!("{}/{}", pod.namespace, pod.name),
        Endpoint::Node(node) => format!("node/{node}"),
        Endpoint::Service(service) => format!("service/{}/{}", service.namespace, service.name),
        Endpoint::External(address) => address.to_string(),
        Endpoint::Other => "(others)".into(),
        Endpoint::Unknown(reason) => format!("({})", unknown(*reason).replace('_', " ")),
    };
    crate::escape::terminal(&text).into_owned()
}

/// The stable name of a reason.
#[must_use]
pub fn unknown(reason: UnknownReason) -> &'static str {
    match reason {
        UnknownReason::HostProcess => "host_process",
        UnknownReason::PodNotSeen => "pod_not_seen",
        UnknownReason::NoCgroup => "no_cgroup",
        UnknownReason::TableFull => "table_full",
        UnknownReason::NotPermitted => "not_permitted",
        UnknownReason::Unrecognised => "unrecognised",
    }
}

/// Who called whom, from the local end.
#[must_use]
pub fn arrow(direction: Direction) -> &'static str {
    match direction {
        Direction::Outbound => "->",
        Direction::Inbound => "<-",
    }
}

/// Bytes in three digits.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn bytes(count: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if count < 1_000 {
        return format!("{count} B");
    }
    let mut value = count as f64 / 1_000.0;
    let mut units = UNITS.iter();
    let mut unit = units.next().copied().unwrap_or_default();
    for next in units {
        if value < 999.5 {
            break;
        }
        value /= 1_000.0;
        unit = next;
    }
    let decimals = if value < 9.995 { 2 } else { usize::from(value < 99.95) };
    format!("{value:.decimals$} {unit}")
}

/// Microseconds in three digits.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
pub fn micros(micros: u64) -> String {
    match micros {
        0..1_000 => format!("{micros} us"),
        1_000..1_000_000 => format!("{:.1} ms", micros as f64 / 1_000.0),
        _ => format!("{:.2} s", micros as f64 / 1_000_000.0),
    }
}

/// `part` of `whole` in percent, or a dash where there is no whole.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
pub fn percent(part: u64, whole: u64) -> String {
    match (part, whole) {
        (0, 0) => "-".into(),
        (_, 0) => "?".into(),
        (0, _) => "0%".into(),
        _ => format!("{:.2}%", part as f64 * 100.0 / whole as f64),
    }
}

#[cfg(test)]
mod tests;
