use keelson_api::{application::ApplicationSpec, conditions::HealthReason, validate::validate};
use keelson_model::{Direction, TcpCounters};

use super::*;

fn policy() -> Policy {
    let spec: ApplicationSpec = serde_json::from_value(
        serde_json::json!({"workload": {"ref": {"kind": "Deployment", "name": "a"}}}),
    )
    .unwrap();
    validate(&spec, "demo").unwrap().policy
}

fn pod(name: &str) -> Party {
    Party::Pod(name.into())
}

fn pods(names: &str) -> BTreeSet<Party> {
    names.split_whitespace().map(pod).collect()
}

fn directory() -> PodDirectory {
    ["s1", "s2", "c1", "c2", "c3", "c4", "idle"]
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let node = NodeName::from(if index % 2 == 0 { "node-a" } else { "node-b" });
            (pod(name), PodFacts { full_name: format!("demo/{name}"), name: (*name).into(), node })
        })
        .collect()
}

/// Retransmitted of 1,000 segments, by pair `a>b`.
fn window(id: u64, pairs: &[(&str, &str, u64)]) -> WindowEvidence {
    let nodes = ["node-a", "node-b"].map(|node| (NodeName::from(node), Seen::Complete)).into();
    let mut window = WindowEvidence { id: WindowId(id), nodes, ..Default::default() };
    for (observer, peer, retransmitted) in pairs {
        let counters = TcpCounters {
            data_segments_sent: 1000,
            retransmitted_segments: *retransmitted,
            ..TcpCounters::default()
        };
        let pair = (pod(observer), pod(peer));
        window.pairs.entry(pair).or_default().insert(Direction::Outbound, counters);
    }
    window
}

const GOOD: [(&str, &str, u64); 4] =
    [("c1", "s1", 0), ("c1", "s2", 1), ("c2", "s1", 2), ("c2", "s2", 0)];
const FAULT: [(&str, &str, u64); 4] =
    [("c1", "s1", 50), ("c1", "s2", 1), ("c2", "s1", 60), ("c2", "s2", 0)];

fn read_one(window: &WindowEvidence, names: &str, directory: &PodDirectory) -> Reading {
    let (pods, policy) = (pods(names), policy());
    let (coverage, _) = coverage(window, &pods, directory);
    read(window, &pods, directory, &policy.rules[0], Against::Enter, coverage)
}

fn judge(names: &str, windows: &[WindowEvidence]) -> Vec<(Verdict, Vec<Finding>)> {
    let mut judgement = Judgement::default();
    let step = |window| {
        judgement.read(std::iter::once(window), &pods(names), &directory(), &policy());
        (judgement.verdict(), judgement.findings().into_iter().cloned().collect())
    };
    windows.iter().map(step).collect()
}

#[test]
fn a_fault_at_a_servers_door_turns_the_server_and_leaves_its_clients() {
    let windows: Vec<_> = [GOOD, FAULT, FAULT, GOOD, GOOD, GOOD]
        .iter()
        .enumerate()
        .map(|(id, pairs)| window(id as u64 + 1, pairs))
        .collect();
    let server = judge("s1 s2", &windows);
    let unhealthy = Verdict::Unhealthy(HealthReason::HighRetransmitRatio);
    let verdicts: Vec<_> = server.iter().map(|(verdict, _)| *verdict).collect();
    let healthy = Verdict::Healthy;
    assert_eq!(verdicts, [healthy, healthy, unhealthy, unhealthy, unhealthy, healthy]);
    let finding = &server[2].1[0];
    assert_eq!((&finding.pod, finding.view), (&pod("s1"), View::SeenByPeers));
    assert_eq!(finding.peers, [pod("c1"), pod("c2")]);
    assert_eq!((finding.value, finding.threshold, finding.samples), (0.06, 0.02, 2000));
    assert_eq!(server[5].1, []);
    assert!(judge("c1 c2", &windows).iter().all(|(verdict, _)| *verdict == healthy));
}

#[test]
fn an_idle_application_has_no_traffic() {
    let verdicts = judge("idle", &[window(1, &FAULT), window(2, &FAULT)]);
    assert!(
        verdicts.iter().all(|(verdict, _)| *verdict == Verdict::Unknown(HealthReason::NoTraffic))
    );
}

#[test]
fn few_samples_say_nothing() {
    let mut small = window(1, &[]);
    let counters = TcpCounters {
        data_segments_sent: 49,
        retransmitted_segments: 49,
        ..TcpCounters::default()
    };
    small.pairs.insert((pod("c1"), pod("s1")), [(Direction::Outbound, counters)].into());
    assert_eq!(read_one(&small, "s1", &directory()).sign, Sign::NoTraffic);
}

#[test]
fn a_node_that_was_not_seen_whole_is_named_and_keeps_good_from_counting() {
    let mut partial = window(1, &GOOD);
    for seen in [Seen::Absent, Seen::Partial] {
        partial.nodes.insert("node-b".into(), seen);
        assert_eq!(read_one(&partial, "s1 s2", &directory()).sign, Sign::Partly);
        let (_, missing) = coverage(&partial, &pods("s1 s2"), &directory());
        assert_eq!(missing, BTreeSet::from([NodeName::from("node-b")]));
    }
    // What was seen is bad enough.
    let mut bad = window(2, &FAULT);
    bad.nodes.clone_from(&partial.nodes);
    let sign = read_one(&bad, "s1 s2", &directory()).sign;
    assert_eq!(sign, Sign::Bad(Signal::RetransmitRatio));
    partial.nodes.clear();
    assert_eq!(read_one(&partial, "s1 s2", &directory()).sign, Sign::NoCoverage);
}

#[test]
fn one_signals_good_windows_do_not_end_anothers_bad_ones() {
    // Connects fail in every window, and in every other one segments are lost besides: neither
    // signal's history is interrupted by the other's, and both are named.
    let failures = TcpCounters { connect_failed: 50, opened: 50, ..TcpCounters::default() };
    let windows: Vec<_> = (1..=6)
        .map(|id| {
            let mut window = window(id, if id < 3 { &FAULT } else { &GOOD });
            for client in ["c1", "c2"] {
                let counters = window.pairs.get_mut(&(pod(client), pod("s1"))).unwrap();
                let one = counters.get_mut(&Direction::Outbound).unwrap();
                *one = one.plus(&failures);
            }
            window
        })
        .collect();
    let verdicts = judge("s1", &windows);
    let retransmits = Verdict::Unhealthy(HealthReason::HighRetransmitRatio);
    let failures = Verdict::Unhealthy(HealthReason::HighConnectFailureRatio);
    let signals = |index: usize| -> BTreeSet<Signal> {
        verdicts[index].1.iter().map(|finding| finding.signal).collect()
    };
    // The end of the loss after three good windows leaves the failures, without a pause.
    assert_eq!(signals(1), BTreeSet::from([Signal::RetransmitRatio, Signal::ConnectFailureRatio]));
    assert!(verdicts[1..4].iter().all(|(verdict, _)| matches!(verdict, Verdict::Unhealthy(_))));
    assert!([retransmits, failures].contains(&verdicts[1].0));
    assert_eq!(verdicts[4].0, failures);
    assert_eq!(signals(4), BTreeSet::from([Signal::ConnectFailureRatio]));
}

#[test]
fn a_stored_verdict_is_its_own_signals_alone() {
    let bad = Verdict::Unhealthy(HealthReason::HighConnectFailureRatio);
    let stored = Stored { verdict: bad, signal: Some(Signal::ConnectFailureRatio) };
    let mut judgement = Judgement::seeded(stored);
    assert_eq!(judgement.verdict(), bad);
    // Good segments say nothing of connects; a minute without any does.
    for id in 1..=11 {
        let window = window(id, &GOOD);
        judgement.read(std::iter::once(&window), &pods("s1 s2"), &directory(), &policy());
        assert_eq!(judgement.verdict(), bad, "{id}");
    }
    let window = window(12, &GOOD);
    judgement.read(std::iter::once(&window), &pods("s1 s2"), &directory(), &policy());
    assert_eq!(judgement.verdict(), Verdict::Healthy);
}

#[test]
fn many_pods_of_one_node_blame_the_node() {
    let mut all = Vec::new();
    for server in ["s1", "c1", "c3"] {
        for client in ["s2", "c2", "c4"] {
            all.push((client, server, 100));
        }
    }
    let window = window(1, &all);
    let mut directory = directory();
    for name in ["s1", "c1", "c3"] {
        directory.get_mut(&pod(name)).unwrap().node = "node-c".into();
    }
    let nodes =
        [("node-a", Seen::Complete), ("node-b", Seen::Complete), ("node-c", Seen::Complete)];
    let nodes = nodes.map(|(node, seen)| (NodeName::from(node), seen)).into();
    let window = WindowEvidence { nodes, ..window };
    assert_eq!(read_one(&window, "s1", &directory).sign, Sign::BadNode);
}

#[test]
fn windows_that_were_read_do_not_count_again() {
    let mut judgement = Judgement::default();
    let windows = [window(1, &FAULT), window(2, &FAULT)];
    let (pods, directory, policy) = (pods("s1"), directory(), policy());
    for _ in 0..3 {
        let last = judgement.last;
        let new = windows[..1].iter().filter(|window| window.id > last);
        judgement.read(new, &pods, &directory, &policy);
    }
    assert_eq!(judgement.verdict(), Verdict::Unknown(HealthReason::NoTraffic));
}

#[test]
fn a_leave_of_zero_is_reached_by_zero() {
    let mut policy = policy();
    policy.rules.truncate(1);
    policy.rules[0].leave = 0.0;
    let clean: Vec<_> = GOOD.iter().map(|(from, to, _)| (*from, *to, 0)).collect();
    let mut judgement = Judgement::default();
    let mut verdicts = Vec::new();
    for (id, pairs) in [&clean[..], &FAULT, &FAULT, &clean, &clean, &clean].iter().enumerate() {
        let window = window(id as u64 + 1, pairs);
        judgement.read(std::iter::once(&window), &pods("s1 s2"), &directory(), &policy);
        verdicts.push(judgement.verdict());
    }
    let (healthy, bad) = (Verdict::Healthy, Verdict::Unhealthy(HealthReason::HighRetransmitRatio));
    assert_eq!(verdicts, [healthy, healthy, bad, bad, bad, healthy]);
}
