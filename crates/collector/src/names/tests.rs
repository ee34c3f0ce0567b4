use keelson_model::PodRef;

use super::*;

const SECOND: u64 = NANOS_PER_SECOND;

fn at(seconds: u64) -> UnixNanos {
    UnixNanos(seconds * SECOND)
}

fn during(from: u64, to: u64) -> During {
    During { from: at(from), to: at(to) }
}

fn pod_endpoint(name: &str) -> Endpoint {
    Endpoint::Pod(PodRef {
        uid: format!("uid-{name}").into(),
        namespace: "shop".into(),
        name: name.into(),
        node: "node-a".into(),
        workload: None,
        revision: String::new(),
        host_network: false,
    })
}

fn claim(holder: Holder, endpoint: Endpoint, address: &str, from: u64) -> Claim {
    Claim {
        holder,
        endpoint,
        addresses: vec![address.parse().unwrap()],
        weak_addresses: vec![],
        pod_ranges: vec![],
        from: at(from),
    }
}

fn pod(name: &str, address: &str, from: u64) -> Claim {
    claim(Holder::Pod(format!("uid-{name}").into()), pod_endpoint(name), address, from)
}

fn node(name: &str, address: &str, range: &str) -> Claim {
    let range: Cidr = range.parse().unwrap();
    Claim {
        weak_addresses: range.first_two().to_vec(),
        pod_ranges: vec![range],
        ..claim(Holder::Node(name.into()), Endpoint::Node(name.into()), address, 0)
    }
}

fn service(name: &str, address: &str) -> Claim {
    let service = ServiceRef { namespace: "shop".into(), name: name.into() };
    claim(Holder::Service(service.clone()), Endpoint::Service(service), address, 0)
}

fn name_of(index: &NameIndex, address: &str, during: During) -> String {
    let local = Arc::new(pod_endpoint("local"));
    let remote = Remote::Address(address.parse().unwrap());
    match index.peer(&local, &"node-a".into(), remote, during).as_ref() {
        Endpoint::Pod(pod) => format!("pod {}", pod.name),
        Endpoint::Node(node) => format!("node {node}"),
        Endpoint::Service(service) => format!("service {}", service.name),
        Endpoint::External(address) => format!("external {address}"),
        Endpoint::Other => "other".into(),
        Endpoint::Unknown(reason) => format!("unknown {reason:?}"),
    }
}

#[test]
fn an_address_has_the_name_of_its_holder() {
    let mut index = NameIndex::default();
    index.set(node("node-a", "192.168.0.1", "10.1.0.0/24"), at(0));
    index.set(node("node-b", "192.168.0.2", "10.1.1.0/24"), at(0));
    index.set(pod("server", "10.1.1.7", 0), at(0));
    index.set(service("web", "10.96.0.7"), at(0));
    const ROWS: &[(&str, &str)] = &[
        ("10.1.1.7", "pod server"),
        ("::ffff:10.1.1.7", "pod server"),
        ("192.168.0.2", "node node-b"),
        ("10.1.1.1", "node node-b"),
        ("10.1.1.0", "node node-b"),
        ("10.1.1.8", "unknown PodNotSeen"),
        ("10.96.0.7", "service web"),
        ("203.0.113.5", "external 203.0.113.5"),
        ("127.0.0.1", "pod local"),
        ("::1", "pod local"),
    ];
    for (address, expected) in ROWS {
        assert_eq!(name_of(&index, address, during(10, 15)), *expected, "{address}");
    }
}

#[test]
fn the_peers_beyond_the_bound_stay_other() {
    let local = Arc::new(pod_endpoint("local"));
    let peer = NameIndex::default().peer(&local, &"n".into(), Remote::Other, during(0, 5));
    assert_eq!(*peer, Endpoint::Other);
}

#[test]
fn loopback_of_a_host_network_pod_is_its_node() {
    let Endpoint::Pod(pod) = pod_endpoint("proxy") else { panic!("not a pod") };
    let local = Arc::new(Endpoint::Pod(PodRef { host_network: true, ..pod }));
    let remote = Remote::Address([127, 0, 0, 1].into());
    let peer = NameIndex::default().peer(&local, &"node-a".into(), remote, during(0, 5));
    assert_eq!(*peer, Endpoint::Node("node-a".into()));
}

#[test]
fn a_reused_address_is_named_by_the_time_of_the_window() {
    let mut index = NameIndex::default();
    index.set(pod("old", "10.1.0.9", 10), at(11));
    index.remove(&Holder::Pod("uid-old".into()), at(100));
    index.set(pod("new", "10.1.0.9", 130), at(131));
    const ROWS: &[(u64, u64, &str)] = &[
        (5, 10, "external 10.1.0.9"),
        (5, 11, "pod old"),
        (95, 100, "pod old"),
        (100, 105, "external 10.1.0.9"),
        (125, 131, "pod new"),
        (500, 505, "pod new"),
        // Both held it in one window: the later holder.
        (95, 135, "pod new"),
    ];
    for (from, to, expected) in ROWS {
        assert_eq!(name_of(&index, "10.1.0.9", during(*from, *to)), *expected, "{from}..{to}");
    }
}

#[test]
fn an_ended_name_is_kept_as_long_as_a_window_may_need_it() {
    let mut index = NameIndex::default();
    index.set(pod("old", "10.1.0.9", 0), at(0));
    index.remove(&Holder::Pod("uid-old".into()), at(100));
    index.expire(at(100 + limits::COLLECTOR_ENDED_NAME_SECONDS - 1));
    assert_eq!(name_of(&index, "10.1.0.9", during(90, 95)), "pod old");
    index.expire(at(100 + limits::COLLECTOR_ENDED_NAME_SECONDS));
    assert_eq!(index.len(), 0);
}

#[test]
fn a_nodes_address_is_the_node_whoever_else_claims_it() {
    let mut index = NameIndex::default();
    index.set(pod("impostor", "192.168.0.1", 50), at(50));
    index.set(node("node-a", "192.168.0.1", "10.1.0.0/24"), at(60));
    assert_eq!(name_of(&index, "192.168.0.1", during(70, 75)), "node node-a");
}

#[test]
fn a_pod_that_takes_the_bridges_address_is_the_pod() {
    let mut index = NameIndex::default();
    index.set(node("node-a", "192.168.0.1", "10.1.0.0/24"), at(0));
    index.set(pod("first", "10.1.0.1", 5), at(5));
    assert_eq!(name_of(&index, "10.1.0.1", during(70, 75)), "pod first");
}

#[test]
fn a_holder_that_changes_its_address_ends_the_former_one() {
    let mut index = NameIndex::default();
    index.set(pod("web", "10.1.0.9", 0), at(0));
    index.set(pod("web", "10.1.0.10", 0), at(50));
    assert_eq!(name_of(&index, "10.1.0.9", during(60, 65)), "external 10.1.0.9");
    assert_eq!(name_of(&index, "10.1.0.9", during(40, 45)), "pod web");
    assert_eq!(name_of(&index, "10.1.0.10", during(60, 65)), "pod web");
}

#[test]
fn after_a_relist_the_absent_are_gone_and_other_kinds_stay() {
    let mut index = NameIndex::default();
    index.set(pod("a", "10.1.0.9", 0), at(0));
    index.set(pod("b", "10.1.0.10", 0), at(0));
    index.set(service("web", "10.96.0.7"), at(0));
    index.retain(HolderKind::Pod, &HashSet::from([Holder::Pod("uid-b".into())]), at(50));
    assert_eq!(name_of(&index, "10.1.0.9", during(60, 65)), "external 10.1.0.9");
    assert_eq!(name_of(&index, "10.1.0.10", during(60, 65)), "pod b");
    assert_eq!(name_of(&index, "10.96.0.7", during(60, 65)), "service web");
}

#[test]
fn a_full_index_refuses_and_counts_and_holders_of_one_address_are_bounded() {
    let mut index = NameIndex::with_capacity(1);
    index.set(pod("a", "10.1.0.9", 0), at(0));
    index.set(pod("b", "10.1.0.10", 0), at(0));
    assert_eq!((index.len(), index.refused()), (1, 1));
    for number in 0..100 {
        let name = format!("churn-{number}");
        index.set(pod(&name, "10.1.0.9", number), at(number));
        index.remove(&Holder::Pod(format!("uid-{name}").into()), at(number + 1));
    }
    let holders = index.addresses.values().map(Vec::len).max();
    assert_eq!(holders, Some(limits::COLLECTOR_HOLDERS_PER_ADDRESS));
    assert_eq!(name_of(&index, "10.1.0.9", during(99, 100)), "pod churn-99");
}
