use std::net::IpAddr;

use keelson_model::{
    CgroupId, ConnectionRecord, Coverage, CoverageReason, Endpoint, Flow, IsnPair, KeepReasons,
    LedgerCut, LossReason, NodeName, PeerSource, ProgramState, ProgramStatus, RecordKind, Remote,
    SeriesKey, SeriesValue, ServiceRef, WindowId, coverage::Interval,
};
use proptest::prelude::*;
use prost::Message;

use super::*;

fn counters() -> impl Strategy<Value = TcpCounters> {
    prop::array::uniform20(any::<u64>()).prop_map(|n| TcpCounters {
        opened: n[0],
        closed: n[1],
        connect_failed: n[2],
        bytes_sent: n[3],
        bytes_received: n[4],
        data_segments_sent: n[5],
        data_segments_received: n[6],
        retransmitted_segments: n[7],
        retransmitted_bytes: n[8],
        syn_retransmits: n[9],
        synack_retransmits: n[10],
        resets_sent: n[11],
        resets_received: n[12],
        rtt_samples: n[13],
        rtt_sum_us: n[14],
        rtt_min_us: n[15],
        rtt_max_us: n[16],
        connect_samples: n[17],
        connect_sum_us: n[18],
        connect_max_us: n[19],
    })
}

fn address() -> impl Strategy<Value = IpAddr> {
    any::<IpAddr>().prop_map(|address| address.to_canonical())
}

fn direction() -> impl Strategy<Value = Direction> {
    prop_oneof![Just(Direction::Outbound), Just(Direction::Inbound)]
}

fn remote() -> impl Strategy<Value = Remote> {
    prop_oneof![address().prop_map(Remote::Address), Just(Remote::Other)]
}

fn pod() -> PodRef {
    PodRef {
        uid: "uid".into(),
        namespace: "shop".into(),
        name: "cart-0".into(),
        node: "node-a".into(),
        workload: Some(WorkloadRef {
            api_version: "apps/v1".into(),
            kind: "StatefulSet".into(),
            name: "cart".into(),
        }),
        revision: "cart-7d".into(),
        host_network: false,
    }
}

fn endpoint() -> impl Strategy<Value = Endpoint> {
    prop_oneof![
        Just(Endpoint::Pod(pod())),
        Just(Endpoint::Node("node-b".into())),
        Just(Endpoint::Service(ServiceRef { namespace: "a".into(), name: "b".into() })),
        address().prop_map(Endpoint::External),
        Just(Endpoint::Other),
        Just(Endpoint::Unknown(UnknownReason::PodNotSeen)),
    ]
}

/// Through the bytes, as a message travels.
fn sent<M: Message + Default>(message: &M) -> M {
    M::decode(message.encode_to_vec().as_slice()).unwrap()
}

proptest! {
    #[test]
    fn a_series_comes_back_as_it_was(
        cgroup: u64, direction in direction(), remote in remote(), port: u16, start: u64, counters in counters(),
    ) {
        let key = SeriesKey { cgroup: CgroupId(cgroup), direction, remote, port };
        let value = SeriesValue { start: BootNanos(start), counters };
        let wire = sent(&series_to_wire(wire::Local::default(), &key, &value));
        prop_assert_eq!(series_from_wire(&wire), Ok((key, value)));
    }

    #[test]
    fn a_record_comes_back_as_it_was(
        n in prop::array::uniform16(any::<u32>()), direction in direction(), local in address(), remote in address(),
        ports: (u16, u16), counters in counters(), is_joined: bool, kind in 0_usize..3,
    ) {
        let record = ConnectionRecord {
            cpu: n[0],
            sequence: n[1].into(),
            kind: [RecordKind::Closed, RecordKind::Progress, RecordKind::Failed][kind],
            cgroup: CgroupId(n[2].into()),
            network_namespace: n[3],
            direction,
            local_address: local,
            remote_address: remote,
            local_port: ports.0,
            remote_port: ports.1,
            socket_cookie: n[4].into(),
            isn: is_joined.then_some(IsnPair { client: n[5], server: n[6] }),
            preexisting: !is_joined,
            start: BootNanos(n[7].into()),
            established: (n[8] != 0).then_some(BootNanos(n[8].into())),
            end: BootNanos(n[9].into()),
            counters,
            srtt_us: n[10],
            min_rtt_us: n[11],
            rttvar_us: n[12],
            errno: n[13],
            keep_reasons: KeepReasons(n[14]),
            sampling_threshold: n[15],
            pid: n[0],
        };
        prop_assert_eq!(record_from_wire(&sent(&record_to_wire(&record))), Ok(record));
    }

    #[test]
    fn a_flow_comes_back_as_it_was(
        window in 0_u64..1 << 32, local in endpoint(), peer in endpoint(), remote in remote(),
        direction in direction(), port: u16, delta in counters(), source in 0_usize..3,
    ) {
        let peer_source =
            [PeerSource::Address, PeerSource::Pair, PeerSource::OtherEndNotSampled][source];
        let node = NodeName::from("node-a");
        let flow = Flow {
            window: WindowId(window), node, local, peer, peer_source, remote, direction, port, delta,
        };
        prop_assert_eq!(flow_from_wire(sent(&flow_to_wire(&flow))), Ok(flow));
    }

    #[test]
    fn no_bytes_make_a_conversion_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(series) = wire::Series::decode(bytes.as_slice()) {
            let _ = series_from_wire(&series);
        }
        if let Ok(record) = wire::ConnectionRecord::decode(bytes.as_slice()) {
            let _ = record_from_wire(&record);
        }
        if let Ok(flow) = crate::query::Flow::decode(bytes.as_slice()) {
            let _ = flow_from_wire(flow);
        }
    }
}

#[test]
fn coverage_and_ledger_come_back_as_they_were() {
    let coverage = Coverage {
        programs: vec![ProgramStatus {
            program: "tcp_set_state".into(),
            function: "state".into(),
            state: ProgramState::Fallback,
            reason: "no kernel BTF".into(),
            hook: "tracepoint/sock/inet_sock_set_state".into(),
        }],
        reasons: CoverageReason::ALL.to_vec(),
        blind: vec![Interval { from: UnixNanos(1), to: UnixNanos(2) }],
    };
    assert_eq!(coverage_from_wire(&sent(&coverage_to_wire(&coverage))), Ok(coverage));
    let cut = LedgerCut {
        produced: 9,
        delivered: 4,
        consumed: 2,
        held: 1,
        lost: LossReason::ALL.iter().map(|reason| (*reason, 3)).collect(),
        out_of_scope: 5,
    };
    assert_eq!(ledger_from_wire(&sent(&ledger_to_wire("tcp", &cut))), Ok(("tcp".into(), cut)));
}

#[test]
fn a_loss_of_a_newer_version_still_counts() {
    let lost = vec![wire::Loss { reason: "of_tomorrow".into(), count: 2 }];
    let (_, cut) =
        ledger_from_wire(&wire::Ledger { produced: 2, lost, ..Default::default() }).unwrap();
    assert_eq!(cut.imbalance(), 0);
}

#[test]
fn a_value_that_cannot_be_names_its_field() {
    let key = SeriesKey {
        cgroup: CgroupId(1),
        direction: Direction::Inbound,
        remote: Remote::Other,
        port: 80,
    };
    let value = SeriesValue { start: BootNanos(0), counters: TcpCounters::default() };
    let good = series_to_wire(wire::Local::default(), &key, &value);
    let cases = [
        (
            wire::Series { direction: 9, ..good.clone() },
            "field `direction` has the unknown number 9",
        ),
        (wire::Series { port: 70_000, ..good.clone() }, "field `series.port` is no port: 70000"),
        (wire::Series { counters: None, ..good.clone() }, "field `series.counters` is missing"),
        (
            wire::Series { other: false, remote_address: vec![1, 2], ..good },
            "field `series.remote_address` is no address: it has 2 bytes, not 4 or 16",
        ),
    ];
    for (series, expected) in cases {
        assert_eq!(series_from_wire(&series).unwrap_err().to_string(), expected);
    }
    let endless = wire::Pod { uid: "u".repeat(NAME_BYTES + 1), ..Default::default() };
    let error = pod_from_wire(endless, &"node-a".into()).unwrap_err();
    assert_eq!(error.field, "pods.uid");
}

#[test]
fn a_pod_comes_back_as_it_was() {
    assert_eq!(pod_from_wire(sent(&pod_to_wire(&pod())), &"node-a".into()), Ok(pod()));
}
