use keelson_model::{ConnectionRecord, Epoch, KeepReasons, PodRef, RecordKind};

use super::*;
use crate::batch::Agent;

const NOW: UnixNanos = UnixNanos(1_000_000_000_000);
const SECOND: u64 = 1_000_000_000;

fn agent(node: &str) -> Arc<Agent> {
    Arc::new(Agent {
        node: node.into(),
        node_uid: "uid".into(),
        pod_uid: "agent".into(),
        boot_id: "boot".into(),
        epoch: Epoch(1),
        version: String::new(),
        kernel_release: String::new(),
    })
}

/// What one end of connection `isn` counted by `second` since it opened at 0.
fn row(node: &str, direction: Direction, isn: u32, second: u64, segments: u64) -> ConnectionRow {
    let record = ConnectionRecord {
        cpu: 0,
        sequence: second,
        kind: RecordKind::Progress,
        cgroup: keelson_model::CgroupId(1),
        network_namespace: 7,
        direction,
        local_address: [10, 0, 0, 1].into(),
        remote_address: [10, 96, 0, 1].into(),
        local_port: 40_000,
        remote_port: 80,
        socket_cookie: 0,
        isn: Some(IsnPair { client: isn, server: isn + 1 }),
        preexisting: false,
        start: BootNanos(0),
        established: Some(BootNanos(0)),
        end: BootNanos(second * SECOND),
        counters: TcpCounters { data_segments_sent: segments, ..Default::default() },
        srtt_us: 0,
        min_rtt_us: 0,
        rttvar_us: 0,
        errno: 0,
        keep_reasons: KeepReasons(KeepReasons::HASH),
        sampling_threshold: u32::MAX,
        pid: 0,
    };
    let pod = PodRef {
        uid: format!("pod-{node}").into(),
        namespace: "demo".into(),
        name: format!("pod-{node}"),
        node: node.into(),
        workload: None,
        revision: String::new(),
        host_network: false,
    };
    ConnectionRow {
        agent: agent(node),
        local: Arc::new(Endpoint::Pod(pod)),
        start: UnixNanos(NOW.0),
        end: UnixNanos(NOW.0 + second * SECOND),
        record,
    }
}

fn sent(row: Option<PairRow>) -> Option<u64> {
    row.map(|row| row.delta.data_segments_sent)
}

#[test]
fn each_record_adds_what_came_since_the_one_before() {
    let mut pairs = Pairs::new(NOW);
    let mut take = |second, segments| {
        sent(pairs.take(&row("a", Direction::Outbound, 1, second, segments), NOW))
    };
    assert_eq!(take(4, 100), Some(100));
    assert_eq!(take(9, 250), Some(150));
    assert_eq!(take(9, 250), None, "nothing came since");
    assert_eq!(take(8, 200), None, "an older record says nothing new");
    assert_eq!(take(14, 260), Some(10));
}

#[test]
fn the_first_record_of_an_old_connection_is_a_base_only() {
    let mut pairs = Pairs::new(NOW);
    assert_eq!(sent(pairs.take(&row("a", Direction::Outbound, 1, 600, 9_000), NOW)), None);
    assert_eq!(sent(pairs.take(&row("a", Direction::Outbound, 1, 605, 9_020), NOW)), Some(20));
}

#[test]
fn the_ends_meet_and_two_of_one_side_are_told_for_nobody() {
    let mut pairs = Pairs::new(NOW);
    let isn = IsnPair { client: 1, server: 2 };
    pairs.take(&row("a", Direction::Outbound, 1, 4, 1), NOW);
    assert!(pairs.other_end(isn, Direction::Outbound).is_none());
    pairs.take(&row("b", Direction::Inbound, 1, 4, 1), NOW);
    let name = |pairs: &Pairs, direction| {
        let endpoint = pairs.other_end(isn, direction)?.endpoint();
        endpoint.pod().map(|pod| pod.name.clone())
    };
    assert_eq!(name(&pairs, Direction::Outbound).as_deref(), Some("pod-b"));
    assert_eq!(name(&pairs, Direction::Inbound).as_deref(), Some("pod-a"));
    pairs.take(&row("c", Direction::Inbound, 1, 5, 1), NOW);
    assert_eq!(name(&pairs, Direction::Outbound), None);
}

#[test]
fn the_bound_holds_and_what_is_touched_stays() {
    let mut pairs = Pairs::with_capacity(100, NOW);
    for number in 0..1_000 {
        pairs.take(&row("a", Direction::Outbound, 10 * number, 4, 1), NOW);
        pairs.take(&row("a", Direction::Outbound, 5, 4 + u64::from(number), 1), NOW);
        assert!(pairs.len() <= 100);
    }
    assert!(pairs.evicted_early() > 800);
    assert!(pairs.other_end(IsnPair { client: 5, server: 6 }, Direction::Inbound).is_some());
    let later = UnixNanos(NOW.0 + 3 * span_ns());
    pairs.expire(UnixNanos(NOW.0 + span_ns()));
    pairs.expire(later);
    assert!(pairs.is_empty());
}
