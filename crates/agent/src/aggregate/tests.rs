use std::net::{IpAddr, Ipv4Addr};

use keelson_model::{
    BootNanos, Direction, KeepReasons, RecordKind, Remote, UnknownReason, WindowId,
};

use super::*;

const CGROUP: CgroupId = CgroupId(7);
const HOST: Local = Local::Unknown(UnknownReason::HostProcess);

fn key(port: u16) -> SeriesKey {
    let remote = Remote::Address(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)));
    SeriesKey { cgroup: CGROUP, direction: Direction::Outbound, remote, port }
}

fn value(opened: u64) -> SeriesValue {
    let counters = TcpCounters { opened, ..Default::default() };
    SeriesValue { start: BootNanos(1), counters }
}

fn record(sequence: u64) -> ConnectionRecord {
    ConnectionRecord {
        cpu: 0,
        sequence,
        kind: RecordKind::Closed,
        cgroup: CGROUP,
        network_namespace: 0,
        direction: Direction::Outbound,
        local_address: Ipv4Addr::LOCALHOST.into(),
        remote_address: Ipv4Addr::LOCALHOST.into(),
        local_port: 1,
        remote_port: 2,
        socket_cookie: 3,
        isn: None,
        preexisting: false,
        start: BootNanos(0),
        established: None,
        end: BootNanos(0),
        counters: TcpCounters::default(),
        srtt_us: 0,
        min_rtt_us: 0,
        rttvar_us: 0,
        errno: 0,
        keep_reasons: KeepReasons(0),
        sampling_threshold: 0,
        pid: 0,
    }
}

fn cut(second: u64) -> Cut {
    let unix = UnixNanos(second * NANOS_PER_SECOND);
    Cut {
        window: WindowId::containing(unix),
        clock: ClockReading { unix, ..Default::default() },
        coverage: Coverage::default(),
    }
}

fn known(_: CgroupId) -> Naming {
    Naming::Settled(HOST)
}

fn unknown(_: CgroupId) -> Naming {
    Naming::Pending(UnknownReason::PodNotSeen)
}

#[test]
fn only_series_that_moved_are_handed_on_and_always_cumulative() {
    let mut aggregator = Aggregator::default();
    let all = vec![(key(1), value(1)), (key(2), value(5))];
    assert_eq!(aggregator.cut(cut(5), all.clone(), known).series.len(), 2);
    assert_eq!(aggregator.cut(cut(10), all, known).series, vec![]);
    let moved = aggregator.cut(cut(15), vec![(key(1), value(1)), (key(2), value(6))], known).series;
    assert_eq!(moved.len(), 1);
    assert_eq!((moved[0].key, moved[0].value), (key(2), value(6)));
}

#[test]
fn a_series_waits_for_its_name_without_losing_a_count() {
    let mut aggregator = Aggregator::default();
    assert_eq!(aggregator.cut(cut(5), vec![(key(1), value(1))], unknown).series, vec![]);
    let named = aggregator.cut(cut(8), vec![(key(1), value(4))], known).series;
    assert_eq!((named.len(), named[0].value), (1, value(4)));
}

#[test]
fn what_never_gets_a_name_goes_as_unknown_with_its_reason() {
    let mut aggregator = Aggregator::default();
    aggregator.record(record(1), unknown, UnixNanos(5 * NANOS_PER_SECOND));
    aggregator.cut(cut(5), vec![(key(1), value(1))], unknown);
    let after = 5 + limits::AGENT_PENDING_SECONDS;
    let before = aggregator.cut(cut(after - 1), vec![(key(1), value(2))], unknown);
    assert!(before.series.is_empty() && before.records.is_empty());
    let window = aggregator.cut(cut(after), vec![(key(1), value(3))], unknown);
    let reason = Local::Unknown(UnknownReason::PodNotSeen);
    assert_eq!((&window.series[0].local, window.series[0].value), (&reason, value(3)));
    assert_eq!(window.records[0].local, reason);
    assert_eq!(aggregator.counts(), RecordCounts { delivered: 1, pending_full: 0 });
}

#[test]
fn too_many_records_in_hand_are_refused_and_counted() {
    let mut aggregator = Aggregator::default();
    let bound = limits::AGENT_PENDING_RECORDS as u64;
    for sequence in 0..bound + 3 {
        aggregator.record(record(sequence), unknown, UnixNanos(0));
    }
    assert_eq!((aggregator.held(), aggregator.counts().pending_full), (bound, 3));
}

#[test]
fn a_series_that_left_the_kernel_is_forgotten() {
    let mut aggregator = Aggregator::default();
    aggregator.cut(cut(5), vec![(key(1), value(1)), (key(2), value(1))], known);
    aggregator.cut(cut(10), vec![(key(2), value(1))], known);
    assert_eq!(aggregator.handed_on.len(), 1);
}
