use std::net::Ipv4Addr;

use keelson_model::{
    BootNanos, CgroupId, ClockReading, Coverage, Direction, Remote, SeriesKey, SeriesValue,
    TcpCounters, UnknownReason, WindowId,
};

use super::*;
use crate::{enrich::Local, window::ProbeLedger};

fn row(port: u16, opened: u64) -> SeriesRow {
    let remote = Remote::Address(Ipv4Addr::LOCALHOST.into());
    let key = SeriesKey { cgroup: CgroupId(1), direction: Direction::Inbound, remote, port };
    let counters = TcpCounters { opened, ..Default::default() };
    let value = SeriesValue { start: BootNanos(1), counters };
    SeriesRow { local: Local::Unknown(UnknownReason::HostProcess), key, value }
}

fn window(id: u64, series: Vec<SeriesRow>) -> Window {
    Window {
        id: WindowId(id),
        clock: ClockReading::default(),
        series,
        records: vec![],
        ledgers: vec![],
        coverage: Coverage::default(),
    }
}

fn numbers(parts: &[Part]) -> Vec<u64> {
    parts.iter().map(|part| part.number).collect()
}

#[test]
fn messages_are_numbered_once_and_repeated_after_a_reconnect_with_the_same_numbers() {
    let mut outbox = Outbox::default();
    for id in 1..=3 {
        outbox.push(window(id, vec![row(1, id)]));
    }
    assert_eq!(numbers(&outbox.next(9)), [1]);
    assert_eq!(numbers(&outbox.next(9)), [2]);
    outbox.acknowledge(1);
    let baseline = outbox.reconnect(1, None);
    assert_eq!((baseline.len(), baseline[0].is_baseline, baseline[0].number), (1, true, 1));
    assert_eq!(baseline[0].window.series, [row(1, 1)]);
    assert_eq!(numbers(&outbox.next(9)), [2]);
    assert_eq!(numbers(&outbox.next(9)), [3]);
    assert_eq!(numbers(&outbox.next(9)), [] as [u64; 0]);
}

#[test]
fn what_the_collector_already_holds_is_not_sent_again() {
    let mut outbox = Outbox::default();
    outbox.push(window(1, vec![row(1, 1)]));
    outbox.push(window(2, vec![row(1, 2)]));
    outbox.next(9);
    outbox.next(9);
    let baseline = outbox.reconnect(2, None);
    assert_eq!(baseline[0].window.series, [row(1, 2)], "the next difference needs it");
    assert!(outbox.is_empty() && outbox.next(9).is_empty());
}

#[test]
fn a_process_restarted_in_its_pod_goes_on_after_the_numbers_of_the_one_before() {
    let mut outbox = Outbox::default();
    outbox.push(window(1, vec![row(1, 1)]));
    assert_eq!(outbox.reconnect(40, None), vec![], "nothing of ours is acknowledged");
    assert_eq!(numbers(&outbox.next(9)), [41]);
    outbox.acknowledge(41);
    assert!(outbox.is_empty());
}

#[test]
fn messages_under_way_are_numbered_anew_for_a_collector_that_knew_the_process_before() {
    let mut outbox = Outbox::default();
    outbox.push(window(1, vec![row(1, 1)]));
    assert_eq!(outbox.reconnect(0, None), vec![]);
    assert_eq!(numbers(&outbox.next(9)), [1]);
    outbox.reconnect(40, None);
    assert_eq!(numbers(&outbox.next(9)), [41]);
}

#[test]
fn credit_bounds_what_is_under_way() {
    let mut outbox = Outbox::default();
    for id in 1..=3 {
        outbox.push(window(id, vec![]));
    }
    assert_eq!((outbox.next(2).len(), outbox.next(2).len(), outbox.next(2).len()), (1, 1, 0));
    outbox.acknowledge(1);
    assert_eq!(numbers(&outbox.next(2)), [3]);
}

#[test]
fn a_full_outbox_merges_windows_and_keeps_the_latest_values() {
    let mut outbox = Outbox::default();
    let bound = limits::AGENT_UNACKED_BATCHES as u64;
    for id in 1..=bound + 2 {
        outbox.push(window(id, vec![row(1, id), row(2, 7)]));
    }
    assert_eq!(outbox.counts().merged_windows, 2);
    let mut last = Vec::new();
    loop {
        let parts = outbox.next(u64::MAX);
        if parts.is_empty() {
            break;
        }
        last = parts;
    }
    assert_eq!(last[0].number, bound);
    assert_eq!(last[0].window.id, WindowId(bound + 2));
    assert_eq!(last[0].window.series, [row(1, bound + 2), row(2, 7)]);
}

#[test]
fn a_large_window_goes_in_parts_of_which_the_last_closes_it() {
    let mut outbox = Outbox::default();
    let ports = 0..u16::try_from(limits::SERIES_PER_BATCH + 1).unwrap();
    outbox.push(window(1, ports.map(|port| row(port, 1)).collect()));
    outbox.push(window(2, vec![]));
    let parts = outbox.next(9);
    assert_eq!(numbers(&parts), [1, 2]);
    assert_eq!(parts.iter().map(|part| part.is_last).collect::<Vec<_>>(), [false, true]);
    assert_eq!(numbers(&outbox.next(9)), [3]);
    outbox.acknowledge(1);
    assert_eq!(outbox.counts().acknowledged_records, 0);
    assert!(!outbox.is_empty(), "half a window is not acknowledged");
}

#[test]
fn the_baseline_forgets_series_that_left_the_kernel() {
    let mut outbox = Outbox::default();
    outbox.push(window(1, vec![row(1, 1), row(2, 1)]));
    outbox.next(9);
    outbox.acknowledge(1);
    outbox.retain(&HashSet::from([row(2, 1).id()]));
    outbox.push(window(2, vec![]));
    assert_eq!(outbox.reconnect(1, None)[0].window.series, [row(2, 1)]);
}

fn accounted(id: u64, cut: LedgerCut) -> Window {
    let ledgers = vec![ProbeLedger { probe: TCP.into(), cut }];
    Window { ledgers, ..window(id, vec![]) }
}

/// Of 100 records, agents before us delivered 60 as they knew, and had 40 in hand.
fn inherited() -> LedgerCut {
    let lost = [(LossReason::AgentRestart, 40)].into();
    LedgerCut { produced: 100, delivered: 60, lost, ..LedgerCut::default() }
}

fn shown(parts: &[Part]) -> (u64, u64) {
    let cut = &parts[0].window.ledgers[0].cut;
    assert_eq!(cut.imbalance(), 0, "{cut:?}");
    (cut.delivered, cut.lost[&LossReason::AgentRestart])
}

#[test]
fn what_arrived_from_a_killed_agent_was_not_in_its_hand() {
    let mut outbox = Outbox::after(&inherited());
    outbox.push(accounted(1, inherited()));
    outbox.reconnect(0, Some(75));
    assert_eq!(shown(&outbox.next(9)), (75, 25), "a window that waited");
    outbox.push(accounted(2, inherited()));
    assert_eq!(shown(&outbox.next(9)), (75, 25), "a later one");
    outbox.reconnect(0, Some(90));
    assert_eq!(outbox.counts().recovered_records, 15, "the collector's count has ours by now");
}

#[test]
fn a_collector_that_knows_less_or_claims_too_much_changes_no_more_than_there_is() {
    for (claim, recovered) in [(None, 0), (Some(10), 0), (Some(u64::MAX), 40)] {
        let mut outbox = Outbox::after(&inherited());
        outbox.reconnect(0, claim);
        assert_eq!(outbox.counts().recovered_records, recovered, "{claim:?}");
    }
}
