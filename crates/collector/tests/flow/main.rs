//! Agents' streams in, answers out, over real TLS: what was sent is what is counted.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a broken expectation is a failed test"
)]

mod harness;

use harness::{
    Collector, FIRST, all, batch, hello, know, know_pod, know_service, message, record, series,
    with_token,
};
use keelson_proto::{
    query::{self as wire, evidence_response, flows_response},
    telemetry,
};
use tonic::Code;

const SERVER: [u8; 4] = [10, 1, 0, 7];
const OUTSIDE: [u8; 4] = [203, 0, 113, 9];

async fn flows(collector: &Collector, request: wire::FlowsRequest) -> Vec<wire::FlowsResponse> {
    let answer = collector.queries().flows(with_token(request, "reader")).await.unwrap();
    all(answer.into_inner()).await
}

/// Window, local pod, peer, segments and segments again of each flow.
fn shape(responses: &[wire::FlowsResponse]) -> Vec<(u64, String, String, u64, u64)> {
    responses
        .iter()
        .filter_map(|response| match &response.response {
            Some(flows_response::Response::Flow(flow)) => Some(row(flow)),
            _ => None,
        })
        .collect()
}

fn row(flow: &wire::Flow) -> (u64, String, String, u64, u64) {
    let delta = flow.delta.unwrap();
    (
        flow.window - FIRST,
        name(flow.local.as_ref()),
        name(flow.peer.as_ref()),
        delta.data_segments_sent,
        delta.retransmitted_segments,
    )
}

fn name(endpoint: Option<&wire::Endpoint>) -> String {
    use wire::endpoint::Endpoint;
    match endpoint.and_then(|endpoint| endpoint.endpoint.as_ref()).unwrap() {
        Endpoint::Pod(pod) => format!("{}/{}", pod.namespace, pod.name),
        Endpoint::External(_) => "external".into(),
        other => format!("{other:?}"),
    }
}

fn expected(rows: &[(u64, &str, &str, u64, u64)]) -> Vec<(u64, String, String, u64, u64)> {
    rows.iter()
        .map(|(window, local, peer, sent, again)| {
            (*window, (*local).to_owned(), (*peer).to_owned(), *sent, *again)
        })
        .collect()
}

async fn evidence(
    answer: &mut tonic::Streaming<wire::EvidenceResponse>,
) -> (Vec<u8>, wire::EvidenceWindow) {
    let response = answer.message().await.unwrap().unwrap();
    match response.response {
        Some(evidence_response::Response::Window(window)) => (response.resume_token, window),
        other => panic!("no window but {other:?}"),
    }
}

#[tokio::test]
async fn what_agents_send_is_what_flows_and_evidence_say() {
    let collector = Collector::start().await;
    know(&collector, "server-1", "node-b", SERVER);
    let mut a = collector.agent("node-a", "agent-a").await;
    let mut b = collector.agent("node-b", "agent-b").await;
    let first = vec![series(SERVER, 0, 100, 5), series(OUTSIDE, 0, 10, 0)];
    collector.at(FIRST, 5_100);
    assert_eq!(a.send(batch(1, FIRST, "client-1", first)).await.unwrap(), 1);
    assert_eq!(b.send(batch(1, FIRST, "server-1", vec![])).await.unwrap(), 1);
    collector.at(FIRST + 1, 5_100);
    let second = vec![series(SERVER, 0, 180, 7)];
    assert_eq!(a.send(batch(2, FIRST + 1, "client-1", second)).await.unwrap(), 2);
    collector.at(FIRST + 1, 9_000);

    let rows = expected(&[
        (0, "shop/client-1", "shop/server-1", 100, 5),
        (0, "shop/client-1", "external", 10, 0),
        (1, "shop/client-1", "shop/server-1", 80, 2),
    ]);
    assert_eq!(shape(&flows(&collector, wire::FlowsRequest::default()).await), rows);
    let newest = wire::FlowsRequest { last: 2, ..Default::default() };
    assert_eq!(shape(&flows(&collector, newest).await), rows[1..]);
    let by_peer = wire::Filter { peer_pod: vec!["server-1".into()], ..Default::default() };
    let filters = Some(wire::Filters { allow: vec![by_peer.clone()], deny: vec![] });
    let request = wire::FlowsRequest { filters, ..Default::default() };
    let towards_server = [rows[0].clone(), rows[2].clone()];
    assert_eq!(shape(&flows(&collector, request).await), towards_server);
    let filters = Some(wire::Filters { allow: vec![], deny: vec![by_peer] });
    let request = wire::FlowsRequest { filters, ..Default::default() };
    assert_eq!(shape(&flows(&collector, request).await), rows[1..2]);

    let request = with_token(wire::EvidenceRequest::default(), "operator");
    let mut answer = collector.queries().evidence(request).await.unwrap().into_inner();
    let (token, window) = evidence(&mut answer).await;
    assert_eq!((window.window, window.last_part), (FIRST, true));
    assert_eq!(window.flows.iter().map(row).collect::<Vec<_>>(), rows[..2]);
    let complete = wire::NodeWindowState::Complete;
    assert!(window.nodes.iter().all(|node| node.state() == complete), "{:?}", window.nodes);
    let (_, window) = evidence(&mut answer).await;
    assert_eq!(window.flows.iter().map(row).collect::<Vec<_>>(), rows[2..]);
    let states: Vec<_> =
        window.nodes.iter().map(|node| (node.node.as_str(), node.state())).collect();
    assert_eq!(states, [("node-a", complete), ("node-b", wire::NodeWindowState::Absent)]);

    let again = with_token(wire::EvidenceRequest { resume_token: token }, "operator");
    let mut resumed = collector.queries().evidence(again).await.unwrap().into_inner();
    assert_eq!(evidence(&mut resumed).await.1.window, FIRST + 1);
    collector.stop().await;
}

/// Two clients of one Service address, each with a connection to another pod behind it; the node of
/// one of these pods kept no record.
#[tokio::test]
async fn behind_a_service_stands_the_pod_that_its_own_record_names() {
    use telemetry::Direction::{Inbound, Outbound};
    const CLIENT: [u8; 4] = [10, 1, 0, 5];
    const SERVICE: [u8; 4] = [10, 96, 0, 7];
    let collector = Collector::start().await;
    know_service(&collector, "server", SERVICE);
    let mut a = collector.agent("node-a", "agent-a").await;
    let mut b = collector.agent("node-b", "agent-b").await;
    let (paired, alone) = ((11, 12), (21, 22));
    for (number, sent) in [(1, 100), (2, 250)] {
        let window = FIRST + number - 1;
        collector.at(window, 5_100);
        let mut client = batch(number, window, "client-1", vec![series(SERVICE, 0, 2 * sent, 5)]);
        client.records = vec![
            record(number, paired, Outbound, SERVICE, (sent, 5)),
            record(number, alone, Outbound, SERVICE, (sent, 0)),
        ];
        client.ledgers = kept(2 * number);
        a.send(client).await.unwrap();
        let mut server = batch(number, window, "server-1", vec![]);
        server.records = vec![record(number, paired, Inbound, CLIENT, (sent, 0))];
        server.ledgers = kept(number);
        b.send(server).await.unwrap();
    }
    collector.at(FIRST + 1, 9_000);

    let all_rows = shape(&flows(&collector, wire::FlowsRequest::default()).await);
    assert_eq!(all_rows.len(), 2, "counts are given once: {all_rows:?}");
    let by_peer =
        wire::Filter { peer_workload: vec!["Deployment/server".into()], ..Default::default() };
    let filters = Some(wire::Filters { allow: vec![by_peer], deny: vec![] });
    let request = wire::FlowsRequest { filters, ..Default::default() };
    let rows = expected(&[
        (0, "shop/client-1", "shop/server-1", 100, 5),
        (1, "shop/client-1", "shop/server-1", 150, 0),
    ]);
    assert_eq!(shape(&flows(&collector, request.clone()).await), rows);
    let newest = wire::FlowsRequest { last: 1, ..request };
    assert_eq!(shape(&flows(&collector, newest).await), rows[1..]);

    let request = with_token(wire::EvidenceRequest::default(), "operator");
    let mut answer = collector.queries().evidence(request).await.unwrap().into_inner();
    let (_, window) = evidence(&mut answer).await;
    assert!(window.flows.iter().map(row).any(|flow| flow == rows[0]), "{:?}", window.flows);

    let request = with_token(wire::ConnectionsRequest::default(), "reader");
    let answer = collector.queries().connections(request).await.unwrap().into_inner();
    let mut sources: Vec<(String, wire::PeerSource)> = all(answer)
        .await
        .into_iter()
        .filter_map(|response| match response.response {
            Some(wire::connections_response::Response::Connection(row)) => {
                Some((name(row.peer.as_ref()), row.peer_source()))
            }
            _ => None,
        })
        .collect();
    // Services last.
    sources.sort_by_key(|(name, _)| (name.starts_with("Service"), name.clone()));
    sources.dedup();
    let (service, rest) = sources.split_last().unwrap();
    assert!(service.0.starts_with("Service"), "{sources:?}");
    assert_eq!(service.1, wire::PeerSource::OtherEndNotSampled);
    let named = |name: &str, source| (name.to_owned(), source);
    let expected = [
        named("external", wire::PeerSource::Address),
        named("shop/server-1", wire::PeerSource::Pair),
    ];
    assert_eq!(rest, expected);
    collector.stop().await;
}

/// An account of so many records, all delivered.
fn kept(records: u64) -> Vec<telemetry::Ledger> {
    vec![telemetry::Ledger {
        probe: "tcp".into(),
        produced: records,
        delivered: records,
        ..Default::default()
    }]
}

#[tokio::test]
async fn a_reconnect_that_repeats_batches_counts_them_once() {
    let collector = Collector::start().await;
    collector.at(FIRST, 5_100);
    let mut agent = collector.agent("node-a", "agent-a").await;
    assert_eq!(agent.last_batch, 0);
    agent.send(batch(1, FIRST, "client-1", vec![series(SERVER, 0, 100, 5)])).await.unwrap();
    agent.send(batch(2, FIRST + 1, "client-1", vec![series(SERVER, 0, 150, 6)])).await.unwrap();
    drop(agent);

    let mut agent = collector.agent("node-a", "agent-a").await;
    assert_eq!(agent.last_batch, 2);
    // The acknowledgements were lost: the agent repeats, after the baseline of what it knows of.
    let baseline = telemetry::Batch {
        baseline: true,
        ..batch(1, FIRST, "client-1", vec![series(SERVER, 0, 100, 5)])
    };
    assert_eq!(agent.send(baseline).await.unwrap(), 2);
    let repeated = batch(2, FIRST + 1, "client-1", vec![series(SERVER, 0, 150, 6)]);
    assert_eq!(agent.send(repeated).await.unwrap(), 2);
    let news = batch(3, FIRST + 1, "client-1", vec![series(SERVER, 0, 170, 6)]);
    assert_eq!(agent.send(news).await.unwrap(), 3);
    let rows = shape(&flows(&collector, wire::FlowsRequest::default()).await);
    let total: u64 = rows.iter().map(|row| row.3).sum();
    assert_eq!((total, rows.len()), (170, 3), "{rows:?}");
    assert_eq!(collector.shared.metrics.duplicates.get(), 1);
    collector.stop().await;
}

#[tokio::test]
async fn a_baseline_makes_the_first_difference_exact_and_without_one_nothing_is_invented() {
    let collector = Collector::start().await;
    collector.at(FIRST, 5_100);
    let minute = 60_000;
    let mut told = collector.agent("node-a", "agent-a").await;
    let baseline = telemetry::Batch {
        baseline: true,
        ..batch(41, FIRST - 1, "client-1", vec![series(SERVER, minute, 1_000, 50)])
    };
    assert_eq!(told.send(baseline).await.unwrap(), 41);
    told.send(batch(42, FIRST, "client-1", vec![series(SERVER, minute, 1_010, 51)])).await.unwrap();

    let mut untold = collector.agent("node-b", "agent-b").await;
    let old = vec![series(SERVER, minute, 1_000, 50)];
    untold.send(batch(9, FIRST, "client-2", old)).await.unwrap();
    let old = vec![series(SERVER, minute, 1_004, 50)];
    untold.send(batch(10, FIRST + 1, "client-2", old)).await.unwrap();

    let mut rows = shape(&flows(&collector, wire::FlowsRequest::default()).await);
    rows.sort();
    let rows: Vec<_> = rows.iter().map(|row| (row.0, row.1.as_str(), row.3, row.4)).collect();
    assert_eq!(rows, [(0, "shop/client-1", 10, 1), (1, "shop/client-2", 4, 0)]);
    collector.stop().await;
}

#[tokio::test]
async fn messages_that_cannot_be_are_refused_and_counted() {
    let collector = Collector::start().await;
    let mut agent = collector.agent("node-a", "agent-a").await;
    let broken = telemetry::Series { remote_address: vec![1, 2, 3], ..series(SERVER, 0, 1, 0) };
    let status = agent.send(batch(1, FIRST, "client-1", vec![broken])).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("series.remote_address"), "{status}");

    let no_hello = message(batch(1, FIRST, "client-1", vec![]));
    let status = collector.stream("agent:node-a:agent-a", no_hello).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");

    let mut agent = collector.agent("node-a", "agent-a").await;
    assert_eq!(agent.last_batch, 0, "nothing of the refused batch was taken");
    let sent = agent.send(batch(1, FIRST, "client-1", vec![series(SERVER, 0, 3, 0)])).await;
    assert_eq!(sent.unwrap(), 1);
    let mut text = String::new();
    let mut registry = prometheus_client::registry::Registry::default();
    let refused = collector.shared.metrics.refused.clone();
    registry.register("refused", "refused", refused);
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    assert!(text.contains("refused_total{reason=\"malformed\"} 2"), "{text}");
    collector.stop().await;
}

#[tokio::test]
async fn who_may_not_is_refused_and_a_review_that_cannot_be_made_is_no_refusal() {
    let collector = Collector::start().await;
    let rows = [
        ("reader", Code::PermissionDenied),
        ("agent:node-b:agent-a", Code::PermissionDenied),
        ("agent:node-a:agent-b", Code::PermissionDenied),
        ("unbound:", Code::PermissionDenied),
        ("stranger", Code::PermissionDenied),
        ("expired", Code::Unauthenticated),
        ("away", Code::Unavailable),
    ];
    for (token, code) in rows {
        let status = collector.stream(token, hello("node-a", "agent-a")).await.unwrap_err();
        assert_eq!(status.code(), code, "{token}: {status}");
    }
    let rows = [
        ("agent:node-a:agent-a", Code::PermissionDenied),
        ("stranger", Code::PermissionDenied),
        ("viewer", Code::PermissionDenied),
        ("expired", Code::Unauthenticated),
        ("away", Code::Unavailable),
    ];
    for (token, code) in rows {
        let request = with_token(wire::NodesRequest {}, token);
        let status = collector.queries().nodes(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{token}: {status}");
    }
    let status = collector.queries().nodes(wire::NodesRequest {}).await.unwrap_err();
    assert_eq!(status.code(), Code::Unauthenticated, "without a token");
    collector.stop().await;
}

#[tokio::test]
async fn a_viewer_sees_the_own_namespace_alone_and_for_as_long_as_it_may() {
    let collector = Collector::start().await;
    know(&collector, "server-1", "node-b", SERVER);
    let foreign = [10, 1, 0, 9];
    know_pod(&collector, "bank", "vault-1", foreign);
    let mut agent = collector.agent("node-a", "agent-a").await;
    collector.at(FIRST, 5_100);
    let mut mixed = batch(1, FIRST, "client-1", vec![]);
    let mut teller = mixed.pods[0].clone();
    (teller.namespace, teller.name, teller.uid) =
        ("bank".into(), "teller-1".into(), "uid-t".into());
    mixed.pods.push(teller);
    let of_bank = telemetry::Series {
        local: Some(telemetry::Local {
            local: Some(telemetry::local::Local::Pod(1)),
            container_id: String::new(),
        }),
        cgroup_id: 78,
        ..series(SERVER, 0, 7, 0)
    };
    mixed.series = vec![series(SERVER, 0, 100, 5), series(foreign, 0, 10, 0), of_bank];
    agent.send(mixed).await.unwrap();

    let ask = |filter: wire::Filter, follow| {
        let filters = Some(wire::Filters { allow: vec![filter], deny: vec![] });
        with_token(wire::FlowsRequest { filters, follow, ..Default::default() }, "viewer")
    };
    let shop = || wire::Filter { namespace: vec!["shop".into()], ..Default::default() };
    let answer = collector.queries().flows(ask(shop(), false)).await.unwrap();
    let rows = shape(&all(answer.into_inner()).await);
    let peers: Vec<_> = rows.iter().map(|row| (row.1.as_str(), row.2.as_str())).collect();
    let seen = [("shop/client-1", "shop/server-1"), ("shop/client-1", "Unknown(NotPermitted)")];
    assert_eq!(peers, seen);

    // What is not to be seen is not found by asking for it either.
    let both = wire::Filter { namespace: vec!["shop".into(), "bank".into()], ..Default::default() };
    let answer = collector.queries().flows(ask(both, false)).await.unwrap();
    assert_eq!(shape(&all(answer.into_inner()).await).len(), 2);
    let guess = wire::Filter { peer_pod: vec!["vault-1".into()], ..shop() };
    let answer = collector.queries().flows(ask(guess, false)).await.unwrap();
    assert_eq!(shape(&all(answer.into_inner()).await).len(), 0);
    for filter in [
        wire::Filter::default(),
        wire::Filter { namespace: vec!["bank".into()], ..Default::default() },
        wire::Filter { peer_namespace: vec!["shop".into()], ..Default::default() },
    ] {
        let status = collector.queries().flows(ask(filter, false)).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
        assert!(status.message().contains("flows.query.keelson.dev"), "{status}");
    }

    let mut follow = collector.queries().flows(ask(shop(), true)).await.unwrap().into_inner();
    assert!(follow.message().await.unwrap().is_some());
    collector.accounts.is_withdrawn.store(true, std::sync::atomic::Ordering::SeqCst);
    let ended = loop {
        match follow.message().await {
            Ok(Some(_)) => {}
            other => break other,
        }
    };
    assert_eq!(ended.unwrap_err().code(), Code::PermissionDenied);
    collector.stop().await;
}

#[tokio::test]
async fn a_newer_stream_of_a_node_takes_the_place_of_the_older() {
    let collector = Collector::start().await;
    collector.at(FIRST, 5_100);
    let mut older = collector.agent("node-a", "agent-a").await;
    let mut newer = collector.agent("node-a", "agent-b").await;
    assert_eq!(older.answer().await.unwrap_err().code(), Code::Aborted);
    newer.send(batch(1, FIRST, "client-1", vec![])).await.unwrap();
    let request = with_token(wire::NodesRequest {}, "reader");
    let nodes = collector.queries().nodes(request).await.unwrap().into_inner().nodes;
    assert_eq!((nodes.len(), nodes[0].connected, nodes[0].last_window), (1, true, FIRST));
    collector.stop().await;
}

#[tokio::test]
async fn a_follower_is_told_when_it_has_caught_up_and_gets_what_arrives() {
    let collector = Collector::start().await;
    collector.at(FIRST, 5_100);
    let mut agent = collector.agent("node-a", "agent-a").await;
    agent.send(batch(1, FIRST, "client-1", vec![series(SERVER, 0, 100, 5)])).await.unwrap();
    let request = wire::FlowsRequest { follow: true, ..Default::default() };
    let answer = collector.queries().flows(with_token(request, "reader")).await.unwrap();
    let mut answer = answer.into_inner();
    let held = answer.message().await.unwrap().unwrap();
    assert_eq!(shape(&[held]).len(), 1);
    let caught_up = answer.message().await.unwrap().unwrap();
    assert!(matches!(caught_up.response, Some(flows_response::Response::CaughtUp(_))));
    agent.send(batch(2, FIRST + 1, "client-1", vec![series(SERVER, 0, 103, 5)])).await.unwrap();
    let news = answer.message().await.unwrap().unwrap();
    assert_eq!(shape(&[news])[0].3, 3);
    collector.stop().await;
    assert!(answer.message().await.unwrap().is_none(), "the answer ends with the service");
}

#[tokio::test]
async fn kept_connections_are_answered_with_names_and_losses() {
    let collector = Collector::start().await;
    know(&collector, "server-1", "node-b", SERVER);
    collector.at(FIRST, 5_100);
    let mut agent = collector.agent("node-a", "agent-a").await;
    let ledger = |produced, lost| telemetry::Ledger {
        probe: "tcp".into(),
        produced,
        delivered: produced - lost,
        lost: vec![telemetry::Loss { reason: "perf_buffer_full".into(), count: lost }],
        ..Default::default()
    };
    let record = telemetry::ConnectionRecord {
        sequence: 1,
        kind: telemetry::RecordKind::Failed.into(),
        local: Some(telemetry::Local {
            local: Some(telemetry::local::Local::Pod(0)),
            container_id: String::new(),
        }),
        direction: telemetry::Direction::Outbound.into(),
        local_address: vec![10, 1, 0, 5],
        remote_address: SERVER.to_vec(),
        local_port: 40_000,
        remote_port: 8080,
        start_boot_ns: harness::UPTIME_NS,
        end_boot_ns: harness::UPTIME_NS + 1_000,
        counters: Some(telemetry::TcpCounters::default()),
        errno: 111,
        ..Default::default()
    };
    let first = telemetry::Batch {
        records: vec![record],
        ledgers: vec![ledger(1, 0)],
        ..batch(1, FIRST, "client-1", vec![])
    };
    agent.send(first).await.unwrap();
    let second =
        telemetry::Batch { ledgers: vec![ledger(4, 3)], ..batch(2, FIRST + 1, "client-1", vec![]) };
    agent.send(second).await.unwrap();
    let request = with_token(wire::ConnectionsRequest::default(), "reader");
    let answer = collector.queries().connections(request).await.unwrap().into_inner();
    let answer = all(answer).await;
    let [row, lost] = answer.as_slice() else { panic!("{answer:?}") };
    let Some(wire::connections_response::Response::Connection(row)) = &row.response else {
        panic!("{row:?}")
    };
    assert_eq!(name(row.peer.as_ref()), "shop/server-1");
    assert_eq!(row.start_unix_ns, keelson_model::WindowId(FIRST).start().0);
    let Some(wire::connections_response::Response::Lost(lost)) = &lost.response else {
        panic!("{lost:?}")
    };
    assert_eq!(
        (lost.node.as_str(), lost.reason.as_str(), lost.count),
        ("node-a", "perf_buffer_full", 3)
    );
    collector.stop().await;
}

#[tokio::test]
async fn an_evidence_subscriber_is_told_what_it_came_too_late_for() {
    let collector = Collector::start().await;
    for window in FIRST..FIRST + 150 {
        collector.at(window, 9_000);
    }
    let token = [7_u64.to_be_bytes(), FIRST.to_be_bytes()].concat();
    let request = with_token(wire::EvidenceRequest { resume_token: token }, "operator");
    let mut answer = collector.queries().evidence(request).await.unwrap().into_inner();
    let first = answer.message().await.unwrap().unwrap();
    let Some(evidence_response::Response::Lost(lost)) = first.response else { panic!("{first:?}") };
    assert_eq!(lost.reason, "window_expired");
    let (_, window) = evidence(&mut answer).await;
    assert_eq!(window.window, FIRST + 1 + lost.count, "the windows follow what was lost");
    let broken = with_token(wire::EvidenceRequest { resume_token: vec![1] }, "operator");
    let status = collector.queries().evidence(broken).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    collector.stop().await;
}

#[tokio::test]
async fn a_token_of_another_collectors_future_is_not_waited_for() {
    let collector = Collector::start().await;
    collector.at(FIRST, 9_000);
    let token = [7_u64.to_be_bytes(), (FIRST + 1_000_000).to_be_bytes()].concat();
    let request = with_token(wire::EvidenceRequest { resume_token: token }, "operator");
    let mut answer = collector.queries().evidence(request).await.unwrap().into_inner();
    assert_eq!(evidence(&mut answer).await.1.window, FIRST);
    collector.stop().await;
}

#[tokio::test]
async fn one_query_more_than_the_bound_is_told_so_and_an_ended_one_makes_room() {
    let collector = Collector::start().await;
    let follow = || with_token(wire::FlowsRequest { follow: true, ..Default::default() }, "reader");
    let bound = keelson_model::limits::COLLECTOR_QUERIES;
    let mut held = Vec::new();
    // One connection serves fewer calls at once than that.
    let mut clients =
        [collector.connect().await, collector.connect().await, collector.connect().await];
    for number in 0..bound {
        let client = &mut clients[number % 3];
        held.push(client.flows(follow()).await.unwrap().into_inner());
    }
    let status = clients[0].flows(follow()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    held.clear();
    let permits = &collector.shared.queries;
    let room = tokio::time::timeout(std::time::Duration::from_secs(10), permits.acquire());
    room.await.expect("an ended query gives its place back").unwrap().forget();
    collector.stop().await;
}

#[tokio::test]
async fn a_window_in_parts_is_one_window_and_large_evidence_comes_in_parts() {
    let collector = Collector::start().await;
    collector.at(FIRST, 5_100);
    let mut agent = collector.agent("node-a", "agent-a").await;
    let peers = |from: u16| {
        let row = |number: u16| {
            let [high, low] = (from + number).to_be_bytes();
            series([10, 9, high, low], 0, 1, 0)
        };
        (0..3_000).map(row).collect()
    };
    let first = telemetry::Batch { last_part: false, ..batch(1, FIRST, "client-1", peers(0)) };
    agent.send(first).await.unwrap();
    agent.send(batch(2, FIRST, "client-1", peers(3_000))).await.unwrap();
    collector.at(FIRST, 5_200);
    let request = with_token(wire::EvidenceRequest::default(), "operator");
    let mut answer = collector.queries().evidence(request).await.unwrap().into_inner();
    let (token, part) = evidence(&mut answer).await;
    assert_eq!((part.flows.len(), part.last_part, part.nodes.len()), (4_096, false, 0));
    assert!(token.is_empty(), "a part is nothing to resume after");
    let (_, part) = evidence(&mut answer).await;
    assert_eq!((part.flows.len(), part.last_part, part.nodes.len()), (1_904, true, 1));
    collector.stop().await;
}
