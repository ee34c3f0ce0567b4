//! Rows with their peers named, for filters and answers.

use std::sync::Arc;

use keelson_model::{Direction, Endpoint, Remote, UnixNanos, WindowId};

use crate::{
    names::{During, NameIndex},
    query::filter::Row,
    store::{ConnectionRow, FlowRow, Segment},
};

/// The name of the other end of a flow, by the time of its window.
#[must_use]
pub fn flow_peer(names: &NameIndex, segment: &Segment, flow: &FlowRow) -> Arc<Endpoint> {
    let during = window(segment.window);
    names.peer(&flow.local, &segment.node, flow.remote, during)
}

/// The name of the other end of a connection, by the time of its life.
#[must_use]
pub fn connection_peer(names: &NameIndex, row: &ConnectionRow) -> Arc<Endpoint> {
    let remote = Remote::Address(row.record.remote_address);
    // An instant of its end stands for a connection without any length.
    let to = UnixNanos(row.end.0.saturating_add(1));
    names.peer(&row.local, &row.agent.node, remote, During { from: row.start, to })
}

/// What a filter sees of a flow.
#[must_use]
pub fn flow_row<'a>(segment: &'a Segment, flow: &'a FlowRow, peer: &'a Endpoint) -> Row<'a> {
    Row {
        node: segment.node.as_str(),
        local: &flow.local,
        peer,
        remote: flow.remote,
        port: flow.port,
        direction: flow.direction,
    }
}

/// What a filter sees of a connection.
#[must_use]
pub fn connection_row<'a>(row: &'a ConnectionRow, peer: &'a Endpoint) -> Row<'a> {
    let record = &row.record;
    let port = match record.direction {
        Direction::Outbound => record.remote_port,
        Direction::Inbound => record.local_port,
    };
    Row {
        node: row.agent.node.as_str(),
        local: &row.local,
        peer,
        remote: Remote::Address(record.remote_address),
        port,
        direction: record.direction,
    }
}

fn window(window: WindowId) -> During {
    During { from: window.start(), to: window.end() }
}
