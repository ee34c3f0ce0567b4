use keelson_model::{
    CgroupId, ClockReading, Direction, Endpoint, Epoch, LedgerCut, Remote, SeriesKey, SeriesValue,
    TcpCounters, UnknownReason, coverage::Interval,
};

use super::*;
use crate::batch::ProbeLedger;

const SECOND: u64 = 1_000_000_000;
/// Wall time of boot: window 200 starts 1,000 s after the epoch, 900 s after boot.
const BOOT: u64 = 100 * SECOND;

fn agent(pod_uid: &str, boot_id: &str) -> Arc<Agent> {
    Arc::new(Agent {
        node: "node-a".into(),
        node_uid: "uid-node-a".into(),
        pod_uid: pod_uid.into(),
        boot_id: boot_id.into(),
        epoch: Epoch(1),
        version: "0.1.0".into(),
        kernel_release: "6.18".into(),
    })
}

fn pipeline() -> NodePipeline {
    NodePipeline::new(agent("pod-1", "boot-1"))
}

fn batch(number: u64, window: u64) -> Batch {
    let window = WindowId(window);
    Batch {
        number,
        window,
        baseline: false,
        last_part: true,
        clock: ClockReading {
            unix_minus_boot_ns: BOOT.cast_signed(),
            uncertainty_ns: 100,
            unix: window.end(),
        },
        series: vec![],
        records: vec![],
        ledgers: vec![],
        coverage: Coverage::default(),
    }
}

fn baseline(number: u64, window: u64) -> Batch {
    Batch { baseline: true, ..batch(number, window) }
}

/// `start` in seconds of wall time.
fn with(mut batch: Batch, cgroup: u64, start: u64, opened: u64) -> Batch {
    let key = SeriesKey {
        cgroup: CgroupId(cgroup),
        direction: Direction::Inbound,
        remote: Remote::Address([10, 1, 0, 9].into()),
        port: 80,
    };
    let value = SeriesValue {
        start: BootNanos(start * SECOND - BOOT),
        counters: TcpCounters { opened, ..Default::default() },
    };
    let local = Arc::new(Endpoint::Unknown(UnknownReason::PodNotSeen));
    batch.series.push(SeriesRow { local, key, value });
    batch
}

fn opened(applied: &Applied) -> u64 {
    applied.flows.iter().map(|flow| flow.delta.opened).sum()
}

/// Receives the batch just after its cut.
fn apply(pipeline: &mut NodePipeline, batch: Batch) -> Applied {
    let now = UnixNanos(batch.clock.unix.0 + SECOND / 10);
    pipeline.apply(batch, now)
}

#[test]
fn a_first_batch_counts_what_began_in_its_window_and_takes_the_rest_as_base() {
    let mut node = pipeline();
    let first = with(with(batch(1, 200), 1, 1_001, 4), 2, 900, 1_000);
    assert_eq!(opened(&apply(&mut node, first)), 4);
    let second = with(with(batch(2, 201), 1, 1_001, 5), 2, 900, 1_002);
    assert_eq!(opened(&apply(&mut node, second)), 1 + 2);
}

#[test]
fn a_baseline_makes_the_first_difference_exact() {
    let mut node = pipeline();
    let applied = apply(&mut node, with(baseline(7, 199), 1, 500, 1_000));
    assert!(applied.flows.is_empty() && !applied.closes);
    // The second series began after the baseline's window, before this one: all of it is news.
    let next = with(with(batch(8, 201), 1, 500, 1_003), 2, 1_001, 9);
    assert_eq!(opened(&apply(&mut node, next)), 3 + 9);
}

#[test]
fn a_series_that_waited_for_its_name_counts_whole() {
    let mut node = pipeline();
    apply(&mut node, batch(1, 200));
    apply(&mut node, batch(2, 201));
    assert_eq!(opened(&apply(&mut node, with(batch(3, 202), 1, 1_001, 7))), 7);
}

#[test]
fn after_missing_batches_an_unknown_series_is_no_news() {
    let mut node = pipeline();
    apply(&mut node, batch(1, 200));
    let after_gap = with(with(batch(3, 202), 1, 1_006, 7), 2, 1_011, 2);
    assert_eq!(opened(&apply(&mut node, after_gap)), 2);
}

#[test]
fn a_baseline_after_a_reconnect_does_not_undo_what_is_held() {
    let mut node = pipeline();
    apply(&mut node, with(batch(1, 200), 1, 1_001, 4));
    apply(&mut node, with(batch(2, 201), 1, 1_001, 6));
    node.connect(agent("pod-1", "boot-1"));
    // The acknowledgement of batch 2 was lost: the agent's baseline is of batch 1.
    apply(&mut node, with(baseline(1, 200), 1, 1_001, 4));
    let again = with(batch(2, 201), 1, 1_001, 6);
    assert_eq!(node.admit(&again), Admission::Duplicate);
    assert_eq!(opened(&apply(&mut node, with(batch(3, 202), 1, 1_001, 7))), 1);
}

#[test]
fn batches_are_told_apart_by_agent_pod_and_number() {
    let mut node = pipeline();
    assert_eq!(node.last_batch(), 0);
    apply(&mut node, batch(1, 200));
    assert_eq!(node.admit(&batch(1, 200)), Admission::Duplicate);
    assert_eq!(node.admit(&batch(2, 201)), Admission::New);
    node.connect(agent("pod-2", "boot-1"));
    assert_eq!((node.last_batch(), node.admit(&batch(1, 201))), (0, Admission::New));
    node.connect(agent("pod-1", "boot-1"));
    assert_eq!((node.last_batch(), node.admit(&batch(1, 201))), (1, Admission::Duplicate));
}

#[test]
fn a_new_agent_pod_goes_on_from_the_bases_of_the_former() {
    let mut node = pipeline();
    apply(&mut node, with(batch(9, 200), 1, 1_001, 4));
    node.connect(agent("pod-2", "boot-1"));
    assert_eq!(opened(&apply(&mut node, with(batch(1, 205), 1, 1_001, 10))), 6);
}

#[test]
fn another_boot_forgets_every_base() {
    let mut node = pipeline();
    apply(&mut node, with(batch(9, 200), 1, 1_001, 4));
    node.connect(agent("pod-2", "boot-2"));
    assert_eq!(opened(&apply(&mut node, with(batch(1, 205), 1, 1_026, 10))), 10);
}

#[test]
fn a_window_in_parts_closes_with_its_last_part() {
    let mut node = pipeline();
    apply(&mut node, batch(1, 199));
    let part = Batch { last_part: false, ..with(batch(2, 200), 1, 1_000, 1) };
    let applied = apply(&mut node, part);
    assert!(!applied.closes);
    assert_eq!((opened(&applied), node.delivered()), (1, Some(WindowId(199))));
    let applied = apply(&mut node, with(batch(3, 200), 2, 1_000, 2));
    assert!(applied.closes);
    assert_eq!((opened(&applied), node.delivered()), (2, Some(WindowId(200))));
}

#[test]
fn what_did_not_move_makes_no_row() {
    let mut node = pipeline();
    apply(&mut node, with(batch(1, 200), 1, 1_001, 4));
    assert!(apply(&mut node, with(batch(2, 201), 1, 1_001, 4)).flows.is_empty());
}

#[test]
fn a_window_is_less_than_whole_for_the_reasons_that_touch_it() {
    let blind = |from: u64, to: u64| Coverage {
        blind: vec![Interval { from: UnixNanos(from * SECOND), to: UnixNanos(to * SECOND) }],
        reasons: vec![CoverageReason::BlindInterval],
        ..Default::default()
    };
    let unbalanced = LedgerCut { produced: 2, delivered: 1, ..Default::default() };
    let whole = batch(1, 200);
    let rows = [
        (whole.clone(), vec![]),
        (Batch { coverage: blind(990, 1_000), ..whole.clone() }, vec![]),
        (
            Batch { coverage: blind(990, 1_001), ..whole.clone() },
            vec![CoverageReason::BlindInterval],
        ),
        (
            Batch {
                coverage: Coverage {
                    reasons: vec![CoverageReason::PodsUnknown],
                    ..Default::default()
                },
                ..whole.clone()
            },
            vec![CoverageReason::PodsUnknown],
        ),
        (
            Batch {
                ledgers: vec![ProbeLedger { probe: "tcp".into(), cut: unbalanced }],
                ..whole.clone()
            },
            vec![CoverageReason::Loss],
        ),
    ];
    for (batch, expected) in rows {
        let applied = apply(&mut pipeline(), batch.clone());
        assert_eq!(applied.reasons.into_iter().collect::<Vec<_>>(), expected, "{batch:?}");
    }
}

#[test]
fn a_clock_ahead_by_more_than_a_window_is_said() {
    let mut node = pipeline();
    let early = batch(1, 200);
    let now = UnixNanos(early.clock.unix.0 - 6 * SECOND);
    let applied = node.apply(early, now);
    assert!(applied.reasons.contains(&CoverageReason::ClockSkew));
    assert_eq!(node.clock_offset_ns(), 6 * SECOND.cast_signed());
}
