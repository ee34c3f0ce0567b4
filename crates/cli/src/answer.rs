//! The collector's messages as rows to print.
//!
//! Values are `proto::convert`'s; here stands what a whole message means.

use keelson_model::{BootId, Epoch, RecordId, UnixNanos};
use keelson_proto::{
    convert::{self, ConvertError},
    query::{self as wire, connections_response, flows_response},
};

use crate::{
    error::CliError,
    render::{Connection, Lost, Row},
};

/// The row of an answer to `Flows`.
///
/// # Errors
/// The message holds what this version cannot read.
pub fn flow_row(response: wire::FlowsResponse) -> Result<Row, CliError> {
    match response.response {
        Some(flows_response::Response::Flow(flow)) => Ok(Row::Flow(Box::new(
            convert::flow_from_wire(flow).map_err(|error| unreadable(&error))?,
        ))),
        Some(flows_response::Response::Lost(lost)) => Ok(Row::Lost(lost_row(lost))),
        Some(flows_response::Response::CaughtUp(_)) => Ok(Row::CaughtUp),
        None => Err(unknown_kind()),
    }
}

/// The row of an answer to `Connections`.
///
/// # Errors
/// The message holds what this version cannot read.
pub fn connection_row(response: wire::ConnectionsResponse) -> Result<Row, CliError> {
    match response.response {
        Some(connections_response::Response::Connection(row)) => {
            Ok(Row::Connection(Box::new(connection(row)?)))
        }
        Some(connections_response::Response::Lost(lost)) => Ok(Row::Lost(lost_row(lost))),
        Some(connections_response::Response::CaughtUp(_)) => Ok(Row::CaughtUp),
        None => Err(unknown_kind()),
    }
}

fn connection(row: wire::Connection) -> Result<Connection, CliError> {
    let record = row.record.ok_or_else(|| missing("connection.record"))?;
    let record = convert::record_from_wire(&record).map_err(|error| unreadable(&error))?;
    let local = row.local.ok_or_else(|| missing("connection.local"))?;
    let peer = row.peer.ok_or_else(|| missing("connection.peer"))?;
    Ok(Connection {
        node: row.node.into(),
        id: RecordId {
            node_uid: row.node_uid,
            boot_id: BootId::from(row.boot_id),
            epoch: Epoch(row.epoch),
            cpu: record.cpu,
            sequence: record.sequence,
        },
        local: convert::endpoint_from_wire(local).map_err(|error| unreadable(&error))?,
        peer: convert::endpoint_from_wire(peer).map_err(|error| unreadable(&error))?,
        peer_source: convert::peer_source_from_wire(row.peer_source),
        start: UnixNanos(row.start_unix_ns),
        end: UnixNanos(row.end_unix_ns),
        record,
    })
}

fn lost_row(lost: wire::Lost) -> Lost {
    let wire::Lost { node, reason, count } = lost;
    Lost { node, reason, count }
}

fn unreadable(error: &ConvertError) -> CliError {
    CliError::Answer { message: error.to_string() }
}

fn missing(field: &str) -> CliError {
    CliError::Answer { message: format!("field `{field}` is missing") }
}

fn unknown_kind() -> CliError {
    CliError::Answer { message: "a message of a kind that this version does not know".into() }
}
