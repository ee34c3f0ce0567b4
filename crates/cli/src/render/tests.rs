use keelson_model::{PodRef, Remote, TcpCounters, WindowId, WorkloadRef};

use super::*;

fn pod(name: &str) -> Endpoint {
    Endpoint::Pod(PodRef {
        uid: format!("uid-{name}").into(),
        namespace: "shop".into(),
        name: name.into(),
        node: "node-a".into(),
        workload: Some(WorkloadRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "web".into(),
        }),
        revision: "7d9f".into(),
        host_network: false,
    })
}

fn flow(local: &str, peer: Endpoint) -> Row {
    Row::Flow(Box::new(Flow {
        window: WindowId(354_000_000),
        node: "node-a".into(),
        local: pod(local),
        peer,
        peer_source: keelson_model::PeerSource::Address,
        remote: Remote::Address([10, 1, 0, 9].into()),
        direction: Direction::Outbound,
        port: 5432,
        delta: TcpCounters {
            opened: 12,
            closed: 11,
            bytes_sent: 1_234_567,
            bytes_received: 99,
            data_segments_sent: 1_000,
            retransmitted_segments: 51,
            rtt_samples: 4,
            rtt_sum_us: 5_200,
            ..Default::default()
        },
    }))
}

#[test]
fn a_flow_reads_as_a_line_and_lost_rows_as_a_note() {
    let lost = Lost { node: "node-b".into(), reason: "perf_buffer_full".into(), count: 3 };
    let rows = [flow("web-1", pod("db-1")), Row::Lost(lost), Row::CaughtUp];
    let (text, notes) = table::Table::flows().block(&rows);
    let expected = "\
WINDOW    POD             PEER       PORT  OPENED  CLOSED  FAILED     SENT  RECEIVED  RETRANS     RTT
02:40:00  shop/web-1  ->  shop/db-1  5432      12      11       0  1.23 MB      99 B    5.10%  1.3 ms
";
    assert_eq!(text, expected);
    assert_eq!(notes, "note: 3 lost on node node-b: perf buffer full\n");
}

#[test]
fn names_cannot_steer_the_terminal() {
    let rows = [flow("web\x1b[2J", pod("db\r\nshop/other"))];
    let (text, _) = table::Table::flows().block(&rows);
    assert!(text.contains("web\\u{1b}[2J") && text.contains("db\\u{d}\\u{a}shop"), "{text}");
    assert_eq!(text.lines().count(), 2);
    let line = json::line(&rows[0]).unwrap();
    assert!(!line.trim_end().chars().any(char::is_control), "{line}");
}

#[test]
fn a_flow_in_json_has_the_documented_fields() {
    let line = json::line(&flow("web-1", Endpoint::External([203, 0, 113, 9].into()))).unwrap();
    let value: serde_json::Value = serde_json::from_str(&line).unwrap();
    let expected = serde_json::json!({
        "type": "flow",
        "window": 354_000_000,
        "start": "2026-02-02T02:40:00.000Z",
        "end": "2026-02-02T02:40:05.000Z",
        "node": "node-a",
        "direction": "outbound",
        "local": {
            "kind": "pod", "uid": "uid-web-1", "namespace": "shop", "name": "web-1",
            "node": "node-a", "revision": "7d9f",
            "workload": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        },
        "peer": {"kind": "external", "address": "203.0.113.9"},
        "peerSource": "address",
        "remoteAddress": "10.1.0.9",
        "port": 5432,
        "counters": {
            "opened": 12, "closed": 11, "connectFailed": 0, "bytesSent": 1_234_567,
            "bytesReceived": 99, "dataSegmentsSent": 1_000, "dataSegmentsReceived": 0,
            "retransmittedSegments": 51, "retransmittedBytes": 0, "synRetransmits": 0,
            "synackRetransmits": 0, "resetsSent": 0, "resetsReceived": 0, "rttSamples": 4,
            "rttSumUs": 5_200, "rttMinUs": 0, "rttMaxUs": 0, "connectSamples": 0,
            "connectSumUs": 0, "connectMaxUs": 0,
        },
    });
    assert_eq!(value, expected);
}

#[test]
fn the_other_lines_say_what_they_are() {
    let lost = Row::Lost(Lost { node: "n".into(), reason: "window_expired".into(), count: 2 });
    let expected = "{\"type\":\"lost\",\"node\":\"n\",\"reason\":\"window_expired\",\"count\":2}\n";
    assert_eq!(json::line(&lost).unwrap(), expected);
    assert_eq!(json::line(&Row::CaughtUp).unwrap(), "{\"type\":\"caughtUp\"}\n");
}

#[test]
fn values_show_three_digits() {
    const BYTES: &[(u64, &str)] = &[
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.00 kB"),
        (12_345, "12.3 kB"),
        (999_499, "999 kB"),
        (999_500, "1.00 MB"),
        (u64::MAX, "18.4 EB"),
    ];
    for (count, expected) in BYTES {
        assert_eq!(bytes(*count), *expected);
    }
    const MICROS: &[(u64, &str)] = &[(999, "999 us"), (1_300, "1.3 ms"), (2_500_000, "2.50 s")];
    for (count, expected) in MICROS {
        assert_eq!(micros(*count), *expected);
    }
    const PERCENT: &[(u64, u64, &str)] =
        &[(0, 0, "-"), (0, 10, "0%"), (1, 3, "33.33%"), (1, 0, "?"), (1, 100_000, "0.00%")];
    for (part, whole, expected) in PERCENT {
        assert_eq!(percent(*part, *whole), *expected);
    }
}

#[test]
fn ends_are_told_apart() {
    let rows = [
        (pod("web-1"), "shop/web-1"),
        (Endpoint::Node("node-a".into()), "node/node-a"),
        (Endpoint::External([1, 1, 1, 1].into()), "1.1.1.1"),
        (Endpoint::Other, "(others)"),
        (Endpoint::Unknown(UnknownReason::PodNotSeen), "(pod not seen)"),
    ];
    for (end, expected) in rows {
        assert_eq!(endpoint(&end), expected);
    }
}
