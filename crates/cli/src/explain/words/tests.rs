use k8s_openapi::jiff::Timestamp;
use keelson_api::application::{
    ApplicationSpec, Health, HealthStatus, Workload as WorkloadSpec, WorkloadReference,
};

use super::*;

fn at(text: &str) -> Time {
    Time(text.parse::<Timestamp>().unwrap())
}

fn application(status: Option<ApplicationStatus>) -> Application {
    let reference = WorkloadReference {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        name: "web".into(),
        namespace: None,
    };
    let workload = WorkloadSpec { reference };
    let mut application =
        Application::new("web", ApplicationSpec { workload, health: Health::default() });
    application.metadata.namespace = Some("shop".into());
    application.metadata.generation = Some(2);
    application.status = status;
    application
}

fn kernel_healthy(status: &str, reason: &str) -> Condition {
    Condition {
        type_: "KernelHealthy".into(),
        status: status.into(),
        reason: reason.into(),
        message: "pod web-1 is blamed".into(),
        last_transition_time: at("2026-01-31T12:00:00Z"),
        observed_generation: Some(2),
    }
}

fn blamed() -> ApplicationStatus {
    let evidence = Evidence {
        pod: "web-1".into(),
        uid: "u".into(),
        node: "node-a".into(),
        view: "seenByPeers".into(),
        signal: "RetransmitRatio".into(),
        value: "4.9%".into(),
        threshold: "2%".into(),
        samples: 812,
        peers: vec!["shop/cart-1".into(), "shop/cart-2".into()],
        window_start: at("2026-01-31T12:00:05Z"),
        window_end: at("2026-01-31T12:00:10Z"),
    };
    ApplicationStatus {
        conditions: vec![kernel_healthy("False", "HighRetransmitRatio")],
        health: Some(HealthStatus {
            evidence: vec![evidence],
            missing_nodes: vec!["node-c".into()],
        }),
        ..Default::default()
    }
}

fn pod() -> PodFacts {
    PodFacts {
        name: "web-1".into(),
        node: "node-a".into(),
        phase: "Running".into(),
        is_ready: true,
        restarts: 0,
    }
}

#[test]
fn a_blamed_pod_that_kubernetes_calls_ready_is_explained_side_by_side() {
    let application = application(Some(blamed()));
    let live = Live::Flows(vec![]);
    let facts = Facts { application: &application, pods: Some(vec![pod()]), live };
    let expected = "\
Application shop/web (Deployment web)

What the kernels say: KernelHealthy is False, HighRetransmitRatio, since 2026-01-31T12:00:00Z.
  Segments had to be sent again to or from the pods below, seen towards several peers: they are lost at the pod's end of the path.
  pod web-1 is blamed

Evidence, as the operator wrote it:
  POD    NODE    SIGNAL           VALUE  LIMIT  SAMPLES  SEEN BY             PEERS                     WINDOW
  web-1  node-a  RetransmitRatio   4.9%     2%      812  its peers' kernels  shop/cart-1, shop/cart-2  2026-01-31T12:00:05Z

Nodes that could not be asked: node-c

What Kubernetes says beside it:
  Deployment web: 1 of 1 pods are Ready.
  POD    READY  PHASE    RESTARTS  NODE
  web-1  yes    Running         0  node-a

The last minute: nothing moved to or from its pods.

What to do next:
  - watch it: keelson observe -n shop --application web --view both --follow
  - see its single connections: keelson connections -n shop --pod web-1 --since 5m
  - look at the pod's end of the path: its veth, network policies and rules on node node-a; its CPU limit and its accept queue
  - if a restart may help: kubectl -n shop delete pod web-1 (its controller makes another)
";
    assert_eq!(explain(&facts), expected);
}

#[test]
fn every_reason_has_a_meaning_and_a_next_step() {
    for reason in HealthReason::ALL {
        let conditions = vec![kernel_healthy("Unknown", reason.as_str())];
        let application = application(Some(ApplicationStatus { conditions, ..Default::default() }));
        let live = Live::Flows(vec![]);
        let text = explain(&Facts { application: &application, pods: Some(vec![]), live });
        assert!(text.contains(meaning(*reason)), "{text}");
        assert!(text.contains("What to do next:\n  - "), "{text}");
    }
}

#[test]
fn what_is_missing_is_said() {
    let application = application(None);
    let live = Live::Unavailable { problem: "no collector".into(), remedy: "install it".into() };
    let text = explain(&Facts { application: &application, pods: None, live });
    for expected in [
        "The operator has not judged it.",
        "There is no Deployment web.",
        "Live values are not available: no collector\n  help: install it",
    ] {
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn texts_of_the_cluster_cannot_steer_the_terminal() {
    let mut status = blamed();
    status.conditions[0].message = "\x1b[2Jowned".into();
    let application = application(Some(status));
    let facts =
        Facts { application: &application, pods: Some(vec![pod()]), live: Live::Flows(vec![]) };
    assert!(explain(&facts).contains("\\u{1b}[2Jowned"));
}

#[test]
fn a_verdict_on_an_earlier_spec_is_marked() {
    let mut status = blamed();
    status.conditions[0].observed_generation = Some(1);
    let application = application(Some(status));
    let facts =
        Facts { application: &application, pods: Some(vec![pod()]), live: Live::Flows(vec![]) };
    assert!(explain(&facts).contains("an earlier spec"));
}
