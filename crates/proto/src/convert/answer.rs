//! What the collector answers: endpoints and flows.

use keelson_model::{Endpoint, Flow, NodeName, PeerSource, PodRef, Remote, ServiceRef, WindowId};

use super::{
    ConvertError, Problem, address_from_wire, address_to_wire, counters_from_wire,
    counters_to_wire, direction_from_wire, direction_to_wire, port_from_wire,
    unknown_reason_from_wire, unknown_reason_to_wire, workload_from_wire, workload_to_wire,
};
use crate::query as wire;

/// An endpoint on the wire. `host_network` is not part of it: such a pod is named by its node there.
#[must_use]
pub fn endpoint_to_wire(endpoint: &Endpoint) -> wire::Endpoint {
    use wire::endpoint::Endpoint as Wire;
    let endpoint = match endpoint {
        Endpoint::Pod(pod) => Wire::Pod(wire::PodEndpoint {
            uid: pod.uid.as_str().to_owned(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            node: pod.node.as_str().to_owned(),
            workload: pod.workload.as_ref().map(workload_to_wire),
            revision: pod.revision.clone(),
        }),
        Endpoint::Node(node) => Wire::Node(node.as_str().to_owned()),
        Endpoint::Service(ServiceRef { namespace, name }) => Wire::Service(wire::ServiceEndpoint {
            namespace: namespace.clone(),
            name: name.clone(),
        }),
        Endpoint::External(address) => Wire::External(address_to_wire(*address)),
        Endpoint::Other => Wire::Other(true),
        Endpoint::Unknown(reason) => Wire::Unknown(unknown_reason_to_wire(*reason).into()),
    };
    wire::Endpoint { endpoint: Some(endpoint) }
}

/// An endpoint from the wire.
///
/// # Errors
/// It is not set, or holds no address where there must be one.
pub fn endpoint_from_wire(endpoint: wire::Endpoint) -> Result<Endpoint, ConvertError> {
    use wire::endpoint::Endpoint as Wire;
    Ok(match endpoint.endpoint.ok_or(Problem::Missing.at("endpoint"))? {
        Wire::Pod(pod) => Endpoint::Pod(PodRef {
            uid: pod.uid.into(),
            namespace: pod.namespace,
            name: pod.name,
            node: pod.node.into(),
            workload: pod.workload.map(workload_from_wire),
            revision: pod.revision,
            host_network: false,
        }),
        Wire::Node(node) => Endpoint::Node(NodeName::from(node)),
        Wire::Service(wire::ServiceEndpoint { namespace, name }) => {
            Endpoint::Service(ServiceRef { namespace, name })
        }
        Wire::External(address) => {
            Endpoint::External(address_from_wire(&address, "endpoint.external")?)
        }
        Wire::Unknown(reason) => Endpoint::Unknown(unknown_reason_from_wire(reason)),
        Wire::Other(_) => Endpoint::Other,
    })
}

/// A flow on the wire.
#[must_use]
pub fn flow_to_wire(flow: &Flow) -> wire::Flow {
    wire::Flow {
        window: flow.window.0,
        start_unix_ns: flow.window.start().0,
        end_unix_ns: flow.window.end().0,
        node: flow.node.as_str().to_owned(),
        local: Some(endpoint_to_wire(&flow.local)),
        peer: Some(endpoint_to_wire(&flow.peer)),
        remote_address: match flow.remote {
            Remote::Address(address) => address_to_wire(address),
            Remote::Other => Vec::new(),
        },
        direction: direction_to_wire(flow.direction).into(),
        port: flow.port.into(),
        delta: Some(counters_to_wire(&flow.delta)),
        peer_source: peer_source_to_wire(flow.peer_source).into(),
    }
}

/// A flow from the wire.
///
/// # Errors
/// A field that cannot be.
pub fn flow_from_wire(flow: wire::Flow) -> Result<Flow, ConvertError> {
    let local = flow.local.ok_or(Problem::Missing.at("flow.local"))?;
    let peer = flow.peer.ok_or(Problem::Missing.at("flow.peer"))?;
    let delta = flow.delta.ok_or(Problem::Missing.at("flow.delta"))?;
    let remote = if flow.remote_address.is_empty() {
        Remote::Other
    } else {
        Remote::Address(address_from_wire(&flow.remote_address, "flow.remote_address")?)
    };
    Ok(Flow {
        window: WindowId(flow.window),
        node: flow.node.into(),
        local: endpoint_from_wire(local)?,
        peer: endpoint_from_wire(peer)?,
        peer_source: peer_source_from_wire(flow.peer_source),
        remote,
        direction: direction_from_wire(flow.direction)?,
        port: port_from_wire(flow.port, "flow.port")?,
        delta: counters_from_wire(delta),
    })
}

/// What gave a peer its name, on the wire.
#[must_use]
pub fn peer_source_to_wire(source: PeerSource) -> wire::PeerSource {
    match source {
        PeerSource::Address => wire::PeerSource::Address,
        PeerSource::Pair => wire::PeerSource::Pair,
        PeerSource::OtherEndNotSampled => wire::PeerSource::OtherEndNotSampled,
    }
}

/// What gave a peer its name, from the wire; a collector that does not say so knew addresses only.
#[must_use]
pub fn peer_source_from_wire(source: i32) -> PeerSource {
    match wire::PeerSource::try_from(source) {
        Ok(wire::PeerSource::Pair) => PeerSource::Pair,
        Ok(wire::PeerSource::OtherEndNotSampled) => PeerSource::OtherEndNotSampled,
        Ok(wire::PeerSource::Address | wire::PeerSource::Unspecified) | Err(_) => {
            PeerSource::Address
        }
    }
}
