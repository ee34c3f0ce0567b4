use keelson_model::{TcpCounters, UnknownReason};

use super::*;

const FIRST: u64 = 1_000;

fn now_in(window: u64, offset_ms: u64) -> UnixNanos {
    UnixNanos(WindowId(window).start().0 + offset_ms * 1_000_000)
}

fn store() -> Store {
    Store::new(Bounds::default(), now_in(FIRST, 0))
}

fn rows(count: u64) -> Vec<FlowRow> {
    let row = |number| FlowRow {
        local: Arc::new(Endpoint::Unknown(UnknownReason::PodNotSeen)),
        remote: Remote::Other,
        direction: Direction::Outbound,
        port: 0,
        delta: TcpCounters { opened: number, ..Default::default() },
    };
    (0..count).map(row).collect()
}

fn whole() -> Report {
    Report { closes: true, ..Default::default() }
}

fn deliver(store: &mut Store, node: &str, window: u64, count: u64, now: UnixNanos) {
    store.insert(&node.into(), WindowId(window), rows(count), vec![], whole(), now).unwrap();
}

fn nodes(list: &[(&str, bool, Option<u64>)]) -> BTreeMap<NodeName, Presence> {
    let presence = |(name, is_connected, delivered): &(&str, bool, Option<u64>)| {
        let delivered = delivered.map(WindowId);
        (
            NodeName::from(*name),
            Presence { is_connected: *is_connected, delivered, is_skewed: false },
        )
    };
    list.iter().map(presence).collect()
}

fn next(store: &Store, after: Option<u64>) -> Arc<ClosedWindow> {
    match store.evidence_after(after.map(WindowId)) {
        EvidenceRead::Window(window) => window,
        other => panic!("no window after {after:?}: {other:?}"),
    }
}

fn shape(window: &ClosedWindow) -> Vec<(u64, usize)> {
    window.segments.iter().map(|segment| (segment.window.0, segment.rows.len())).collect()
}

#[test]
fn a_window_closes_when_every_connected_node_delivered_or_at_its_deadline() {
    type Row = (&'static [(&'static str, bool, Option<u64>)], u64, bool);
    // Milliseconds from the start of the window: it ends at 5,000, the deadline is 9,000.
    const ROWS: &[Row] = &[
        (&[("a", true, Some(FIRST))], 4_999, false),
        (&[("a", true, Some(FIRST))], 5_000, true),
        (&[("a", true, Some(FIRST + 1))], 5_000, true),
        (&[("a", true, Some(FIRST)), ("b", true, Some(FIRST - 1))], 8_999, false),
        (&[("a", true, Some(FIRST)), ("b", true, Some(FIRST - 1))], 9_000, true),
        (&[("a", true, Some(FIRST)), ("b", true, None)], 8_999, false),
        (&[("a", true, Some(FIRST)), ("b", false, None)], 5_000, true),
        (&[("a", false, Some(FIRST))], 8_999, false),
        (&[], 8_999, false),
        (&[], 9_000, true),
    ];
    for (list, offset_ms, closes) in ROWS {
        let closed = store().close_due(&nodes(list), now_in(FIRST, *offset_ms));
        assert_eq!(!closed.is_empty(), *closes, "{list:?} at {offset_ms} ms");
    }
}

#[test]
fn a_closed_window_says_of_every_node_what_it_saw() {
    let mut store = store();
    let now = now_in(FIRST, 5_100);
    deliver(&mut store, "whole", FIRST, 2, now);
    let short = Report { reasons: BTreeSet::from([CoverageReason::Loss]), ..whole() };
    store.insert(&"short".into(), WindowId(FIRST), rows(1), vec![], short, now).unwrap();
    let part = Report::default();
    store.insert(&"part".into(), WindowId(FIRST), rows(1), vec![], part, now).unwrap();
    let known = nodes(&[
        ("absent", true, None),
        ("gone", false, None),
        ("part", true, None),
        ("short", true, Some(FIRST)),
        ("whole", true, Some(FIRST)),
    ]);
    store.close_due(&known, now_in(FIRST, 9_000));
    let window = next(&store, None);
    let states: Vec<_> = window
        .nodes
        .iter()
        .map(|node| {
            (node.node.as_str(), node.state, node.reasons.iter().copied().collect::<Vec<_>>())
        })
        .collect();
    let expected = vec![
        ("absent", NodeState::Absent, vec![]),
        ("gone", NodeState::Absent, vec![CoverageReason::NoAgent]),
        ("part", NodeState::Partial, vec![]),
        ("short", NodeState::Partial, vec![CoverageReason::Loss]),
        ("whole", NodeState::Complete, vec![]),
    ];
    assert_eq!(states, expected);
    assert_eq!(shape(&window), [(FIRST, 2), (FIRST, 1), (FIRST, 1)]);
}

#[test]
fn late_rows_go_with_the_next_window_and_are_held_under_their_own() {
    let mut store = store();
    let known = nodes(&[("a", true, Some(FIRST))]);
    deliver(&mut store, "a", FIRST, 1, now_in(FIRST, 5_000));
    assert_eq!(store.close_due(&known, now_in(FIRST, 5_100)), [WindowId(FIRST)]);
    deliver(&mut store, "b", FIRST, 3, now_in(FIRST, 9_500));
    deliver(&mut store, "a", FIRST + 1, 2, now_in(FIRST + 1, 5_000));
    store.close_due(&known, now_in(FIRST + 1, 9_000));
    assert_eq!(shape(&next(&store, None)), [(FIRST, 1)]);
    assert_eq!(shape(&next(&store, Some(FIRST))), [(FIRST, 3), (FIRST + 1, 2)]);
    let everything = (UnixNanos(0), UnixNanos(u64::MAX));
    let (window, held) = store.held_from(WindowId(0), everything, u64::MAX).unwrap();
    let held: Vec<_> = held.iter().map(|segment| segment.rows.len()).collect();
    assert_eq!((window, held), (WindowId(FIRST), vec![1, 3]));
}

#[test]
fn a_backlog_from_before_the_store_began_is_late_evidence() {
    let mut store = store();
    deliver(&mut store, "a", FIRST - 3, 4, now_in(FIRST, 100));
    store.close_due(&nodes(&[]), now_in(FIRST, 9_000));
    assert_eq!(shape(&next(&store, None)), [(FIRST - 3, 4)]);
}

#[test]
fn windows_out_of_the_recent_past_or_ahead_are_refused() {
    let newest = FIRST + 500;
    let now = now_in(newest, 0);
    let rows_of = [
        (newest - 120, Err(Rejected::Expired)),
        (newest - 119, Ok(())),
        (newest + 1, Ok(())),
        (newest + 2, Err(Rejected::Future)),
    ];
    for (window, expected) in rows_of {
        let got = store().insert(&"a".into(), WindowId(window), rows(1), vec![], whole(), now);
        assert_eq!(got, expected, "window {window}");
    }
}

#[test]
fn readers_of_evidence_are_told_what_is_no_longer_held() {
    let mut store = store();
    for window in FIRST..FIRST + 200 {
        store.close_due(&nodes(&[]), now_in(window, 9_000));
    }
    let oldest = next(&store, None).window.0;
    let EvidenceRead::Lost { resume_after, count } = store.evidence_after(Some(WindowId(FIRST)))
    else {
        panic!("nothing lost")
    };
    assert_eq!((resume_after.0, count), (oldest - 1, oldest - FIRST - 1));
    assert_eq!(next(&store, Some(resume_after.0)).window.0, oldest);
    let newest = WindowId(FIRST + 199);
    assert!(matches!(store.evidence_after(Some(newest)), EvidenceRead::Wait));
}

#[test]
fn a_leap_of_the_clock_closes_no_more_windows_than_are_held() {
    let mut store = store();
    let closed = store.close_due(&nodes(&[]), now_in(FIRST + 1_000_000, 0));
    assert!(closed.len() <= limits::COLLECTOR_WINDOWS, "{}", closed.len());
}

#[test]
fn a_full_store_drops_its_oldest_closed_window_and_refuses_when_none_is_closed() {
    let bounds = Bounds { windows: 120, flows: 10 };
    let mut store = Store::new(bounds, now_in(FIRST, 0));
    deliver(&mut store, "a", FIRST, 6, now_in(FIRST, 5_000));
    let refused =
        store.insert(&"b".into(), WindowId(FIRST), rows(5), vec![], whole(), now_in(FIRST, 5_000));
    assert_eq!(refused, Err(Rejected::Full));
    store.close_due(&nodes(&[]), now_in(FIRST, 9_000));
    deliver(&mut store, "a", FIRST + 1, 5, now_in(FIRST + 1, 5_000));
    assert_eq!((store.rows_held(), store.rows_evicted_early()), (5, 6));
    assert_eq!(store.oldest_window(), Some(WindowId(FIRST + 1)));
}

#[test]
fn old_windows_leave_with_the_time() {
    let mut store = store();
    deliver(&mut store, "a", FIRST, 6, now_in(FIRST, 5_000));
    store.close_due(&nodes(&[]), now_in(FIRST + 119, 0));
    assert_eq!(store.rows_held(), 6);
    store.close_due(&nodes(&[]), now_in(FIRST + 120, 0));
    assert_eq!((store.rows_held(), store.arrivals.len()), (0, 0));
}

#[test]
fn a_follower_gets_each_row_once_or_is_told_of_it() {
    let bounds = Bounds { windows: 120, flows: 10 };
    let mut store = Store::new(bounds, now_in(FIRST, 0));
    deliver(&mut store, "a", FIRST, 2, now_in(FIRST, 5_000));
    deliver(&mut store, "b", FIRST, 3, now_in(FIRST, 5_000));
    let first = store.arrived_since(0, 1);
    assert_eq!((first.segments.len(), first.cursor, first.lost_rows), (1, 2, 0));
    let second = store.arrived_since(first.cursor, 10);
    assert_eq!((second.segments.len(), second.cursor, second.lost_rows), (1, 5, 0));
    let nothing = store.arrived_since(second.cursor, 10);
    assert_eq!((nothing.segments.len(), nothing.cursor, nothing.lost_rows), (0, 5, 0));
    store.close_due(&nodes(&[]), now_in(FIRST, 9_000));
    deliver(&mut store, "a", FIRST + 1, 9, now_in(FIRST + 1, 5_000));
    let behind = store.arrived_since(first.cursor, 10);
    assert_eq!((behind.segments.len(), behind.lost_rows, behind.cursor), (1, 3, 14));
}

#[test]
fn losses_are_summed_over_the_windows_asked_for() {
    let mut store = store();
    for (window, count) in [(FIRST, 3), (FIRST + 1, 4)] {
        let lost = BTreeMap::from([(LossReason::PerfBufferFull, count)]);
        let report = Report { lost, ..whole() };
        store
            .insert(&"a".into(), WindowId(window), vec![], vec![], report, now_in(window, 5_000))
            .unwrap();
    }
    let key = (NodeName::from("a"), LossReason::PerfBufferFull);
    let all = store.losses(UnixNanos(0), UnixNanos(u64::MAX));
    assert_eq!(all.get(&key), Some(&7));
    let second = store.losses(WindowId(FIRST + 1).start(), UnixNanos(u64::MAX));
    assert_eq!(second.get(&key), Some(&4));
}

#[test]
fn windows_that_a_node_did_not_see_are_told_by_their_reason() {
    let mut store = store();
    let blind = Report { reasons: BTreeSet::from([CoverageReason::BlindInterval]), ..whole() };
    let now = now_in(FIRST, 5_100);
    store.insert(&"a".into(), WindowId(FIRST), rows(1), vec![], blind, now).unwrap();
    deliver(&mut store, "b", FIRST, 1, now);
    let known = nodes(&[("a", true, Some(FIRST)), ("b", true, Some(FIRST)), ("gone", false, None)]);
    store.close_due(&known, now);
    let told = store.unseen(UnixNanos(0), UnixNanos(u64::MAX));
    let blind = (("a".into(), CoverageReason::BlindInterval), 1);
    assert_eq!(told, BTreeMap::from([blind, (("gone".into(), CoverageReason::NoAgent), 1)]));
    assert!(store.unseen(WindowId(FIRST + 1).start(), UnixNanos(u64::MAX)).is_empty());
}
