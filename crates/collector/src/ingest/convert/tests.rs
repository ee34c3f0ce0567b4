use super::*;

fn hello() -> wire::Hello {
    wire::Hello {
        agent_version: "0.1.0".into(),
        node_name: "node-a".into(),
        node_uid: "uid-a".into(),
        agent_pod_uid: "uid-pod".into(),
        boot_id: "boot".into(),
        epoch: 7,
        window_seconds: 5,
        kernel_release: "6.18".into(),
    }
}

fn local_pod(index: u32) -> Option<wire::Local> {
    Some(wire::Local { local: Some(local::Local::Pod(index)), container_id: String::new() })
}

fn series() -> wire::Series {
    wire::Series {
        local: local_pod(0),
        direction: wire::Direction::Inbound.into(),
        remote_address: vec![10, 1, 0, 9],
        port: 80,
        start_boot_ns: 5,
        cgroup_id: 9,
        counters: Some(wire::TcpCounters { opened: 3, ..Default::default() }),
        ..Default::default()
    }
}

fn record() -> wire::ConnectionRecord {
    wire::ConnectionRecord {
        sequence: 1,
        kind: wire::RecordKind::Closed.into(),
        local: local_pod(0),
        direction: wire::Direction::Inbound.into(),
        local_address: vec![10, 1, 0, 7],
        remote_address: vec![10, 1, 0, 9],
        counters: Some(wire::TcpCounters::default()),
        ..Default::default()
    }
}

fn batch() -> wire::Batch {
    wire::Batch {
        number: 1,
        window: 200,
        clock: Some(wire::Clock::default()),
        series: vec![series()],
        records: vec![record()],
        pods: vec![wire::Pod { uid: "u".into(), name: "web-1".into(), ..Default::default() }],
        last_part: true,
        ..Default::default()
    }
}

fn read(batch: wire::Batch) -> Result<Batch, WireError> {
    Dictionary::new("node-a".into()).batch(batch)
}

#[test]
fn the_local_side_is_the_pod_of_the_dictionary_on_this_node() {
    let batch = read(batch()).unwrap();
    let Endpoint::Pod(pod) = batch.series[0].local.as_ref() else { panic!("not a pod") };
    assert_eq!((pod.name.as_str(), pod.node.as_str()), ("web-1", "node-a"));
    assert!(Arc::ptr_eq(&batch.series[0].local, &batch.records[0].local));
}

#[test]
fn a_process_of_the_host_is_its_node() {
    let host = wire::UnknownReason::HostProcess.into();
    let local =
        wire::Local { local: Some(local::Local::Unknown(host)), container_id: String::new() };
    let row = wire::Series { local: Some(local), ..series() };
    let batch = read(wire::Batch { series: vec![row], ..batch() }).unwrap();
    assert_eq!(*batch.series[0].local, Endpoint::Node("node-a".into()));
}

#[test]
fn a_hello_that_cannot_be_is_refused_by_its_field() {
    assert_eq!(agent(hello()).unwrap().epoch, Epoch(7));
    let long = "x".repeat(257);
    let rows = [
        (wire::Hello { window_seconds: 10, ..hello() }, "hello.window_seconds"),
        (wire::Hello { window_seconds: 0, ..hello() }, "hello.window_seconds"),
        (wire::Hello { node_name: String::new(), ..hello() }, "hello.node_name"),
        (wire::Hello { agent_pod_uid: String::new(), ..hello() }, "hello.agent_pod_uid"),
        (wire::Hello { kernel_release: long, ..hello() }, "hello.kernel_release"),
    ];
    for (hello, field) in rows {
        let error = agent(hello).unwrap_err();
        assert!(error.to_string().contains(field), "{error}");
    }
}

#[test]
fn a_batch_that_cannot_be_is_refused_by_its_field() {
    let rows = [
        (wire::Batch { clock: None, ..batch() }, "batch.clock"),
        (wire::Batch { pods: vec![], ..batch() }, "local.pod 0"),
        (wire::Batch { baseline: true, ..batch() }, "baseline"),
        (
            wire::Batch { series: vec![series(); limits::SERIES_PER_BATCH + 1], ..batch() },
            "batch.series",
        ),
        (
            wire::Batch { records: vec![record(); limits::RECORDS_PER_BATCH + 1], ..batch() },
            "batch.records",
        ),
        (
            wire::Batch { ledgers: vec![wire::Ledger::default(); PROBES_PER_NODE + 1], ..batch() },
            "batch.ledgers",
        ),
        (
            wire::Batch { series: vec![wire::Series { local: None, ..series() }], ..batch() },
            "batch.series.local",
        ),
        (
            wire::Batch {
                series: vec![wire::Series { remote_address: vec![1, 2, 3], ..series() }],
                ..batch()
            },
            "series.remote_address",
        ),
        (
            wire::Batch {
                records: vec![wire::ConnectionRecord { kind: 99, ..record() }],
                ..batch()
            },
            "records.kind",
        ),
    ];
    for (batch, field) in rows {
        let error = read(batch).unwrap_err();
        assert!(error.to_string().contains(field), "{error} does not name {field}");
    }
}
