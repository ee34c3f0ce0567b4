//! Rows with their peers named, for filters and answers.

use std::{collections::HashMap, net::IpAddr, sync::Arc};

use keelson_model::{
    Direction, Endpoint, IsnPair, PeerSource, Remote, TcpCounters, UnixNanos, WindowId,
};

use crate::{
    names::{During, NameIndex},
    pairs::Pairs,
    query::filter::Row,
    store::{ConnectionRow, FlowRow, PairRow, Segment},
};

/// The name of the other end of a flow, by the time of its window.
#[must_use]
pub fn flow_peer(names: &NameIndex, segment: &Segment, flow: &FlowRow) -> Arc<Endpoint> {
    let during = window(segment.window);
    names.peer(&flow.local, &segment.node, flow.remote, during)
}

/// The name of the other end of a connection and what gave it: by the time of its life, or by the
/// other end's own record where the address does not tell a pod.
#[must_use]
pub fn connection_peer(
    pairs: &Pairs,
    names: &NameIndex,
    row: &ConnectionRow,
) -> (Arc<Endpoint>, PeerSource) {
    let remote = Remote::Address(row.record.remote_address);
    // An instant of its end stands for a connection without any length.
    let to = UnixNanos(row.end.0.saturating_add(1));
    let during = During { from: row.start, to };
    let named = names.peer(&row.local, &row.agent.node, remote, during);
    let (false, Some(isn)) = (tells(&named), row.record.isn) else {
        return (named, PeerSource::Address);
    };
    match pairs.other_end(isn, row.record.direction) {
        Some(end) => (end.endpoint(), PeerSource::Pair),
        None => (named, PeerSource::OtherEndNotSampled),
    }
}

/// What connections of the sample counted in a segment towards peers whose address does not tell
/// them, by the other ends' records: an estimate of all, weighted by the lower of both thresholds.
#[must_use]
pub fn pair_flows(pairs: &Pairs, names: &NameIndex, segment: &Segment) -> Vec<PairFlow> {
    let during = window(segment.window);
    let mut flows: Vec<PairFlow> = Vec::new();
    let mut places: HashMap<Ends, usize> = HashMap::new();
    for row in &segment.pairs {
        let PairRow { local, remote, direction, port, isn, threshold, delta } = row;
        let named = names.peer(local, &segment.node, Remote::Address(*remote), during);
        if tells(&named) {
            continue;
        }
        let Some(other) = pairs.other_end(*isn, *direction) else { continue };
        let Some(delta) = weighted(delta, *isn, (*threshold).min(other.threshold())) else {
            continue;
        };
        let peer = other.endpoint();
        let key = (Arc::clone(local), Arc::clone(&peer), *remote, *direction, *port);
        let place = *places.entry(key).or_insert(flows.len());
        if let Some(flow) = flows.get_mut(place) {
            flow.row.delta = flow.row.delta.plus(&delta);
            continue;
        }
        let (local, remote) = (Arc::clone(local), Remote::Address(*remote));
        let row = FlowRow { local, remote, direction: *direction, port: *port, delta };
        flows.push(PairFlow { row, peer });
    }
    flows
}

/// Local side, peer, its address, direction and the service's port.
type Ends = (Arc<Endpoint>, Arc<Endpoint>, IpAddr, Direction, u16);

/// A flow whose peer its pairs name.
#[derive(Clone, Debug, PartialEq)]
pub struct PairFlow {
    /// An estimate, as if counted towards this peer alone.
    pub row: FlowRow,
    /// The other end.
    pub peer: Arc<Endpoint>,
}

/// Whether the name is that of the very end; behind a Service or a node stands another.
fn tells(named: &Endpoint) -> bool {
    match named {
        Endpoint::Pod(_) | Endpoint::External(_) | Endpoint::Other => true,
        Endpoint::Service(_) | Endpoint::Node(_) | Endpoint::Unknown(_) => false,
    }
}

/// The counters of all connections for which this one stands: those of a consistent sample at
/// `threshold` are one in 2^32 / (threshold + 1). None: it is not of that sample.
fn weighted(delta: &TcpCounters, isn: IsnPair, threshold: u32) -> Option<TcpCounters> {
    let factor = 2_f64.powi(32) / (f64::from(threshold) + 1.0);
    (isn.hash() <= threshold).then(|| if factor > 1.0 { delta.scaled(factor) } else { *delta })
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
    Row {
        node: row.agent.node.as_str(),
        local: &row.local,
        peer,
        remote: Remote::Address(record.remote_address),
        port: record.service_port(),
        direction: record.direction,
    }
}

fn window(window: WindowId) -> During {
    During { from: window.start(), to: window.end() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_a_consistent_sample_stands_for_as_many_as_the_threshold_says() {
        let delta = TcpCounters { data_segments_sent: 10, ..Default::default() };
        let sent = |hash_of: IsnPair, threshold| {
            weighted(&delta, hash_of, threshold).map(|delta| delta.data_segments_sent)
        };
        let mut pairs = (0..1_000).map(|client| IsnPair { client, server: 0 });
        let low = pairs.find(|isn| isn.hash() < u32::MAX / 16).unwrap();
        let high = pairs.find(|isn| isn.hash() > u32::MAX / 2).unwrap();
        assert_eq!((sent(low, u32::MAX), sent(high, u32::MAX)), (Some(10), Some(10)));
        assert_eq!((sent(low, u32::MAX / 4), sent(high, u32::MAX / 4)), (Some(40), None));
    }
}
