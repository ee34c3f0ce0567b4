use keelson_model::{CgroupId, Direction, Remote};
use proptest::prelude::*;

use super::*;

const NOW: UnixNanos = UnixNanos(1_000 * NANOS_PER_SECOND);

fn key(cgroup: u64) -> SeriesKey {
    SeriesKey {
        cgroup: CgroupId(cgroup),
        direction: Direction::Outbound,
        remote: Remote::Address([10, 0, 0, 1].into()),
        port: 80,
    }
}

fn value(start: u64, opened: u64) -> SeriesValue {
    SeriesValue {
        start: BootNanos(start),
        counters: TcpCounters { opened, rtt_min_us: 7, ..Default::default() },
    }
}

fn opened(difference: Difference) -> Option<u64> {
    match difference {
        Difference::Counted(delta) | Difference::CountedWithoutBase(delta) => Some(delta.opened),
        Difference::Base | Difference::Refused => None,
    }
}

#[test]
fn values_become_differences_to_what_was_last_delivered() {
    /// Base if one is set, start, end of the window before, value, difference.
    type Row = (Option<u64>, u64, u64, u64, Option<u64>);
    const ROWS: &[Row] = &[
        (None, 100, 50, 3, Some(3)),
        (None, 100, 100, 3, Some(3)),
        (None, 100, 101, 3, None),
        (Some(2), 100, 500, 3, Some(1)),
        (Some(3), 100, 500, 3, Some(0)),
        // Back: another series under the same name. It began before the window: no window's own.
        (Some(4), 100, 500, 3, None),
        (Some(4), 600, 500, 3, Some(3)),
    ];
    for row in ROWS {
        let (base, start, since, now_value, expected) = *row;
        let mut table = SeriesTable::default();
        if let Some(base) = base {
            table.set_base(key(1), value(start, base), NOW);
        }
        let got = table.difference(key(1), value(start, now_value), BootNanos(since), NOW);
        assert_eq!(opened(got), expected, "{row:?}");
        // Whatever the first gave, the next one is exact.
        let next = table.difference(key(1), value(start, now_value + 2), BootNanos(since), NOW);
        assert_eq!(opened(next), Some(2), "{row:?}");
    }
}

#[test]
fn another_start_is_another_series() {
    let mut table = SeriesTable::default();
    table.difference(key(1), value(100, 5), BootNanos(0), NOW);
    let second = table.difference(key(1), value(200, 2), BootNanos(150), NOW);
    assert_eq!(opened(second), Some(2));
    let first = table.difference(key(1), value(100, 6), BootNanos(150), NOW);
    assert_eq!(opened(first), Some(1));
    assert_eq!(table.len(), 2);
}

#[test]
fn a_baseline_older_than_what_is_held_does_not_count_twice() {
    let mut table = SeriesTable::default();
    table.difference(key(1), value(100, 5), BootNanos(0), NOW);
    table.set_base(key(1), value(100, 3), NOW);
    let next = table.difference(key(1), value(100, 6), BootNanos(150), NOW);
    assert_eq!(opened(next), Some(1));
}

#[test]
fn a_full_table_drops_idle_series_first_and_then_refuses() {
    let mut table = SeriesTable::with_capacity(2);
    let idle = limits::COLLECTOR_SERIES_IDLE_SECONDS * NANOS_PER_SECOND;
    let later = UnixNanos(NOW.0 + idle);
    table.difference(key(1), value(100, 1), BootNanos(0), NOW);
    table.difference(key(2), value(100, 1), BootNanos(0), later);
    assert_eq!(table.len(), 2);
    table.difference(key(3), value(100, 1), BootNanos(0), later);
    assert_eq!((table.len(), table.counts().expired), (2, 1));
    let refused = table.difference(key(4), value(200, 9), BootNanos(0), later);
    assert!(matches!(refused, Difference::CountedWithoutBase(_)), "{refused:?}");
    let again = table.difference(key(4), value(200, 12), BootNanos(0), later);
    assert_eq!(again, Difference::Refused, "what was counted once is not counted again");
    assert_eq!((table.len(), table.counts().refused), (2, 2));
}

#[test]
fn a_series_that_was_forgotten_is_no_news() {
    let mut table = SeriesTable::with_capacity(1);
    let later = UnixNanos(NOW.0 + limits::COLLECTOR_SERIES_IDLE_SECONDS * NANOS_PER_SECOND);
    table.difference(key(1), value(100, 5), BootNanos(0), NOW);
    table.difference(key(2), value(200, 1), BootNanos(0), later);
    let much_later = UnixNanos(later.0 * 2);
    let back = table.difference(key(1), value(100, 6), BootNanos(0), much_later);
    assert_eq!(back, Difference::Base);
}

#[test]
fn an_idle_series_stays_exact_while_there_is_room() {
    let mut table = SeriesTable::with_capacity(2);
    table.difference(key(1), value(100, 1), BootNanos(0), NOW);
    let much_later = UnixNanos(NOW.0 * 100);
    let moved = table.difference(key(1), value(100, 4), BootNanos(5_000), much_later);
    assert_eq!(opened(moved), Some(3));
}

proptest! {
    #[test]
    fn differences_add_up_to_the_last_value(steps in prop::collection::vec(0_u64..1_000, 1..50)) {
        let mut table = SeriesTable::default();
        let (mut total, mut sum) = (0, 0);
        for step in steps {
            total += step;
            let got = table.difference(key(1), value(100, total), BootNanos(0), NOW);
            sum += opened(got).unwrap();
        }
        prop_assert_eq!(sum, total);
    }
}
