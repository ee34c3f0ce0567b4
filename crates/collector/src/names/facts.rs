//! What Pods, Nodes and Services say about addresses, as claims for the index.
//!
//! Pure over objects as the API server gives them; text that is no address is left out.

use std::net::IpAddr;

use k8s_openapi::{
    api::core::v1::{Node, Pod, Service},
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use keelson_cluster::workload;
use keelson_model::{Endpoint, NodeName, PodRef, ServiceRef, UnixNanos};

use super::{Claim, Holder};
use crate::cidr::Cidr;

/// The claim of a pod; none before it has a node. A pod on the host's network and one that has
/// ended hold no address.
#[must_use]
pub fn pod(pod: &Pod) -> Option<Claim> {
    let spec = pod.spec.as_ref()?;
    let node = spec.node_name.as_deref().filter(|node| !node.is_empty())?;
    let uid = pod.metadata.uid.as_deref()?;
    let status = pod.status.as_ref();
    let host_network = spec.host_network.unwrap_or_default();
    let phase = status.and_then(|status| status.phase.as_deref()).unwrap_or_default();
    let has_ended = matches!(phase, "Succeeded" | "Failed");
    let addresses = if host_network || has_ended {
        vec![]
    } else {
        let listed = status.and_then(|status| status.pod_ips.as_ref()).into_iter().flatten();
        let first = status.and_then(|status| status.pod_ip.as_deref());
        parse(listed.map(|entry| entry.ip.as_str()).chain(first))
    };
    let started = status.and_then(|status| status.start_time.as_ref());
    let endpoint = Endpoint::Pod(PodRef {
        uid: uid.into(),
        namespace: pod.metadata.namespace.clone().unwrap_or_default(),
        name: pod.metadata.name.clone().unwrap_or_default(),
        node: node.into(),
        workload: workload::of_pod(&pod.metadata),
        revision: workload::revision_of_pod(&pod.metadata),
        host_network,
    });
    Some(Claim {
        holder: Holder::Pod(uid.into()),
        endpoint,
        addresses,
        weak_addresses: vec![],
        pod_ranges: vec![],
        from: started.map_or_else(|| created(&pod.metadata), unix),
    })
}

/// The holder that a pod is, also when it claims nothing any more.
#[must_use]
pub fn pod_holder(pod: &Pod) -> Option<Holder> {
    pod.metadata.uid.as_deref().map(|uid| Holder::Pod(uid.into()))
}

/// The claim of a node: its addresses, and weakly the first two of its pods' ranges, which its
/// bridge or tunnel uses and masqueraded traffic comes from.
#[must_use]
pub fn node(node: &Node) -> Option<Claim> {
    let holder = node_holder(node)?;
    let name: NodeName = node.metadata.name.as_deref()?.into();
    let listed = node.status.iter().flat_map(|status| status.addresses.iter().flatten());
    let addresses = parse(listed.map(|entry| entry.address.as_str()));
    let spec = node.spec.as_ref();
    let ranges = spec.and_then(|spec| spec.pod_cidrs.as_ref()).into_iter().flatten();
    let pod_ranges: Vec<Cidr> = ranges.filter_map(|range| range.parse().ok()).collect();
    let weak_addresses = pod_ranges.iter().flat_map(Cidr::first_two).collect();
    Some(Claim {
        holder,
        endpoint: Endpoint::Node(name),
        addresses,
        weak_addresses,
        pod_ranges,
        from: created(&node.metadata),
    })
}

/// The holder that a node is.
#[must_use]
pub fn node_holder(node: &Node) -> Option<Holder> {
    node.metadata.name.as_deref().map(|name| Holder::Node(name.into()))
}

/// The claim of a Service; a headless one has no address.
#[must_use]
pub fn service(service: &Service) -> Option<Claim> {
    let holder = service_holder(service)?;
    let Holder::Service(reference) = &holder else { return None };
    let spec = service.spec.as_ref();
    let listed = spec.and_then(|spec| spec.cluster_ips.as_ref()).into_iter().flatten();
    let first = spec.and_then(|spec| spec.cluster_ip.as_ref());
    let addresses = parse(listed.chain(first).map(String::as_str));
    Some(Claim {
        endpoint: Endpoint::Service(reference.clone()),
        holder,
        addresses,
        weak_addresses: vec![],
        pod_ranges: vec![],
        from: created(&service.metadata),
    })
}

/// The holder that a Service is.
#[must_use]
pub fn service_holder(service: &Service) -> Option<Holder> {
    let ObjectMeta { name, namespace, .. } = &service.metadata;
    let (namespace, name) = (namespace.clone().unwrap_or_default(), name.clone()?);
    Some(Holder::Service(ServiceRef { namespace, name }))
}

fn parse<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = texts.filter_map(|text| text.parse().ok()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

fn created(metadata: &ObjectMeta) -> UnixNanos {
    metadata.creation_timestamp.as_ref().map(unix).unwrap_or_default()
}

fn unix(time: &Time) -> UnixNanos {
    UnixNanos(u64::try_from(time.0.as_nanosecond()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::serde_json::{Value, from_value, json};

    use super::*;

    fn pod_of(spec: &Value, status: &Value) -> Pod {
        let metadata = json!({"name": "web-1", "namespace": "shop", "uid": "u-1",
            "creationTimestamp": "1970-01-01T00:01:40Z"});
        from_value(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    fn addresses(claim: &Claim) -> Vec<String> {
        claim.addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_pod_claims_its_addresses_from_its_start_until_it_ends() {
        let spec = json!({"nodeName": "node-a", "containers": []});
        let host = json!({"nodeName": "node-a", "hostNetwork": true, "containers": []});
        let running = json!({"phase": "Running", "startTime": "1970-01-01T00:02:00Z",
            "podIP": "10.1.0.9", "podIPs": [{"ip": "10.1.0.9"}, {"ip": "fd00::9"}]});
        let ended = json!({"phase": "Succeeded", "podIP": "10.1.0.9"});
        let rows = [
            (pod_of(&spec, &running), vec!["10.1.0.9", "fd00::9"], 120),
            (pod_of(&spec, &json!({})), vec![], 100),
            (pod_of(&spec, &ended), vec![], 100),
            (pod_of(&host, &running), vec![], 120),
        ];
        for (object, expected, from) in rows {
            let claim = pod(&object).unwrap();
            assert_eq!(addresses(&claim), expected, "{object:?}");
            assert_eq!(claim.from.0 / 1_000_000_000, from, "{object:?}");
        }
        let unscheduled = pod_of(&json!({"containers": []}), &json!({}));
        assert_eq!(pod(&unscheduled), None);
    }

    #[test]
    fn a_node_claims_its_addresses_and_weakly_its_bridge() {
        let object: Node = from_value(json!({
            "metadata": {"name": "node-a"},
            "spec": {"podCIDRs": ["10.1.0.0/24", "nonsense"]},
            "status": {"addresses": [
                {"type": "InternalIP", "address": "192.168.0.1"},
                {"type": "Hostname", "address": "node-a"},
            ]},
        }))
        .unwrap();
        let claim = node(&object).unwrap();
        assert_eq!(addresses(&claim), ["192.168.0.1"]);
        let weak: Vec<_> = claim.weak_addresses.iter().map(ToString::to_string).collect();
        assert_eq!(weak, ["10.1.0.0", "10.1.0.1"]);
        assert_eq!(claim.pod_ranges.len(), 1);
    }

    #[test]
    fn a_service_claims_its_virtual_addresses_and_a_headless_one_none() {
        let of = |spec: Value| {
            let object: Service =
                from_value(json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": spec}))
                    .unwrap();
            addresses(&service(&object).unwrap())
        };
        let both = json!({"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00:1::7"]});
        assert_eq!(of(both), ["10.96.0.7", "fd00:1::7"]);
        assert!(of(json!({"clusterIP": "None", "clusterIPs": ["None"]})).is_empty());
    }
}
