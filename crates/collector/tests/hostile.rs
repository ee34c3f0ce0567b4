//! Whatever an agent sends, the collector refuses it or counts it; it never panics.

#![allow(clippy::unwrap_used, reason = "a broken expectation is a failed test")]

use keelson_collector::{
    core::Core,
    ingest::convert::{self, Dictionary},
    store::Bounds,
};
use keelson_model::UnixNanos;
use keelson_proto::telemetry as wire;
use proptest::{collection::vec, prelude::*, prop_oneof};

const NOW: UnixNanos = UnixNanos(1_750_000_000_000_000_000);
const WINDOW: u64 = NOW.0 / 5_000_000_000;

/// Numbers where arithmetic breaks, numbers that mean something, and any other.
fn number() -> impl Strategy<Value = u64> {
    prop_oneof![
        Just(0),
        Just(1),
        Just(u64::MAX),
        Just(1 << 63),
        WINDOW - 130..WINDOW + 3,
        any::<u64>()
    ]
}

fn counters() -> impl Strategy<Value = wire::TcpCounters> {
    (number(), number(), number()).prop_map(|(opened, sent, rtt)| wire::TcpCounters {
        opened,
        bytes_sent: sent,
        data_segments_sent: sent,
        retransmitted_segments: opened,
        rtt_samples: opened,
        rtt_sum_us: rtt,
        rtt_min_us: rtt,
        ..Default::default()
    })
}

fn local() -> impl Strategy<Value = Option<wire::Local>> {
    use wire::local::Local;
    prop_oneof![
        (0_u32..3).prop_map(Local::Pod).prop_map(Some),
        any::<i32>().prop_map(Local::Unknown).prop_map(Some),
        Just(None),
    ]
    .prop_map(|local| Some(wire::Local { local, container_id: String::new() }))
}

fn address() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![vec(any::<u8>(), 4), vec(any::<u8>(), 16), vec(any::<u8>(), 0..20)]
}

fn series() -> impl Strategy<Value = wire::Series> {
    let head = (local(), 0_i32..4, address(), 0_u32..70_000, any::<bool>());
    (head, number(), 0_u64..3, counters()).prop_map(
        |((local, direction, remote_address, port, other), start, cgroup_id, counters)| {
            wire::Series {
                local,
                direction,
                remote_address,
                port,
                other,
                start_boot_ns: start,
                cgroup_id,
                counters: Some(counters),
            }
        },
    )
}

fn record() -> impl Strategy<Value = wire::ConnectionRecord> {
    let times = (number(), number(), number());
    (local(), 0_i32..5, address(), times, counters()).prop_map(
        |(local, kind, address, (start, established, end), counters)| wire::ConnectionRecord {
            kind,
            local,
            direction: 1,
            local_address: address.clone(),
            remote_address: address,
            start_boot_ns: start,
            established_boot_ns: established,
            end_boot_ns: end,
            counters: Some(counters),
            ..Default::default()
        },
    )
}

fn ledger() -> impl Strategy<Value = wire::Ledger> {
    let reasons = ["perf_buffer_full", "run_skipped", "of_a_newer_version"];
    let loss = (0..reasons.len(), number())
        .prop_map(move |(index, count)| wire::Loss { reason: reasons[index].into(), count });
    (number(), number(), number(), vec(loss, 0..4)).prop_map(|(produced, delivered, held, lost)| {
        wire::Ledger {
            probe: "tcp".into(),
            produced,
            delivered,
            held,
            consumed: held,
            lost,
            out_of_scope: produced,
        }
    })
}

fn batch() -> impl Strategy<Value = wire::Batch> {
    let clock = (any::<i64>(), number(), number()).prop_map(|(offset, uncertainty_ns, unix_ns)| {
        wire::Clock { unix_minus_boot_ns: offset, uncertainty_ns, unix_ns }
    });
    let head = (number(), number(), any::<bool>(), any::<bool>(), clock);
    let blind = (number(), number())
        .prop_map(|(from_unix_ns, to_unix_ns)| wire::Interval { from_unix_ns, to_unix_ns });
    let body = (vec(series(), 0..4), vec(record(), 0..3), vec(ledger(), 0..3), vec(blind, 0..2));
    (head, body).prop_map(
        |((number, window, baseline, last_part, clock), (series, records, ledgers, blind))| {
            wire::Batch {
                number,
                window,
                baseline,
                last_part,
                clock: Some(clock),
                series,
                records,
                ledgers,
                coverage: Some(wire::Coverage { blind, ..Default::default() }),
                pods: vec![
                    wire::Pod { uid: "u".into(), ..Default::default() },
                    wire::Pod { uid: "v".into(), ..Default::default() },
                ],
            }
        },
    )
}

fn hello() -> wire::Hello {
    wire::Hello {
        agent_version: "v".into(),
        node_name: "node-a".into(),
        node_uid: "uid".into(),
        agent_pod_uid: "pod".into(),
        boot_id: "boot".into(),
        epoch: 1,
        window_seconds: 5,
        kernel_release: "6".into(),
    }
}

proptest! {
    #[test]
    fn any_batches_are_refused_or_counted(batches in vec(batch(), 1..12)) {
        let mut core = Core::new(Bounds { windows: 120, flows: 20 }, NOW);
        let stream = core.connect(convert::agent(hello()).unwrap()).unwrap();
        let dictionary = Dictionary::new("node-a".into());
        let mut now = NOW;
        for batch in batches {
            if let Ok(batch) = dictionary.batch(batch) {
                core.take(&stream, batch, now).unwrap();
            }
            now = UnixNanos(now.0 + 5_000_000_000);
            core.tick(std::iter::empty(), now);
            prop_assert!(core.store.rows_held() <= 20);
            let _ = core.store.losses(UnixNanos(0), UnixNanos(u64::MAX));
        }
    }

    #[test]
    fn any_bytes_are_no_message_or_one_that_is_judged(bytes in vec(any::<u8>(), 0..512)) {
        if let Ok(batch) = <wire::Batch as prost::Message>::decode(bytes.as_slice()) {
            let _ = Dictionary::new("node-a".into()).batch(batch);
        }
    }
}
