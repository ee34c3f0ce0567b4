//! An Application's health in words: the condition, what it stands on, what Kubernetes says beside
//! it, live values, and what to do next.
//!
//! Pure: facts in, text out. It judges nothing; the words follow the operator's reasons.

use std::fmt::Write as _;

use k8s_openapi::{
    api::core::v1::Pod,
    apimachinery::pkg::apis::meta::v1::{Condition, Time},
};
use keelson_api::{
    application::{Application, ApplicationStatus, Evidence},
    conditions::HealthReason,
};
use keelson_model::Flow;

use super::live::{self, Workload};
use crate::{escape, render::columns::Columns};

/// What is known.
#[derive(Debug)]
pub struct Facts<'a> {
    /// The Application as the API server has it.
    pub application: &'a Application,
    /// The workload's pods; none: there is no such workload.
    pub pods: Option<Vec<PodFacts>>,
    /// What the kernels counted just now.
    pub live: Live,
}

/// What the kernels counted just now.
#[derive(Debug)]
pub enum Live {
    /// Flows of the last minute, from both ends.
    Flows(Vec<Flow>),
    /// The collector could not be asked.
    Unavailable {
        /// Why.
        problem: String,
        /// What helps.
        remedy: String,
    },
}

/// What Kubernetes says of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodFacts {
    /// Its name.
    pub name: String,
    /// Its node.
    pub node: String,
    /// Its phase.
    pub phase: String,
    /// Kubernetes calls it ready.
    pub is_ready: bool,
    /// Restarts of its containers.
    pub restarts: i32,
}

// === impl PodFacts ===

impl PodFacts {
    /// Of a pod as the API server has it.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_ref()).into_iter().flatten();
        let containers = status.and_then(|status| status.container_statuses.as_ref());
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.clone());
        Self {
            name: pod.metadata.name.clone().unwrap_or_default(),
            node: node.unwrap_or_default(),
            phase: status.and_then(|status| status.phase.clone()).unwrap_or_default(),
            is_ready: conditions
                .into_iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            restarts: containers.into_iter().flatten().map(|status| status.restart_count).sum(),
        }
    }
}

/// All of it as text that is safe to print.
#[must_use]
pub fn explain(facts: &Facts<'_>) -> String {
    let application = facts.application;
    let status = application.status.clone().unwrap_or_default();
    let health = condition(&status, "KernelHealthy");
    let mut text = title(application);
    text.push_str(&verdict(application, health));
    text.push_str(&evidence(&status));
    text.push_str(&kubernetes(facts, &status));
    text.push_str(&now(facts));
    text.push_str(&next(facts, health));
    escape::lines(&text)
}

fn title(application: &Application) -> String {
    let metadata = &application.metadata;
    let reference = &application.spec.workload.reference;
    format!(
        "Application {}/{} ({} {})\n\n",
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
        reference.kind,
        reference.name,
    )
}

fn verdict(application: &Application, health: Option<&Condition>) -> String {
    let Some(health) = health else {
        return "What the kernels say: nothing yet. The operator has not judged it.\n\n".into();
    };
    let Condition { status, reason, message, last_transition_time, observed_generation, .. } =
        health;
    let mut text = format!(
        "What the kernels say: KernelHealthy is {status}, {reason}, since {}.\n",
        time(last_transition_time)
    );
    if let Some(reason) = HealthReason::parse(reason) {
        let _ = writeln!(text, "  {}", meaning(reason));
    }
    if !message.is_empty() {
        let _ = writeln!(text, "  {message}");
    }
    let generation = application.metadata.generation;
    if observed_generation.is_some() && *observed_generation != generation {
        text.push_str(
            "  This speaks of an earlier spec; the operator has not looked at the newest yet.\n",
        );
    }
    text.push('\n');
    text
}

/// What a reason means, for a person who meets it first.
fn meaning(reason: HealthReason) -> &'static str {
    match reason {
        HealthReason::Healthy => {
            "Traffic was seen, and no pod is blamed by its own kernel and its peers'."
        }
        HealthReason::HighRetransmitRatio => {
            "Segments had to be sent again to or from the pods below, seen towards several peers: they \
             are lost at the pod's end of the path."
        }
        HealthReason::HighConnectFailureRatio => {
            "Too many attempts to connect to or from the pods below failed, seen towards several peers."
        }
        HealthReason::HighResetRatio => {
            "Too many connections of the pods below were reset, seen towards several peers."
        }
        HealthReason::HighRtt => {
            "Round trips to or from the pods below take too long, seen towards several peers."
        }
        HealthReason::NodeDegraded => {
            "Many pods of one node are bad at once: the node is blamed, not the pods."
        }
        HealthReason::NoTraffic => {
            "Its pods are watched, but too little moved to say anything. That is no fault."
        }
        HealthReason::NoCoverage => "No agent sees its pods, so that nothing can be said of them.",
        HealthReason::Stale => "The last evidence is too old to hold.",
        HealthReason::PeerPathDegraded => {
            "A path between two pods is bad, and the votes do not say which end: neither is blamed."
        }
        HealthReason::NotJudged => {
            "There is nothing to judge: the spec cannot be, or the workload does not exist."
        }
    }
}

fn evidence(status: &ApplicationStatus) -> String {
    let Some(health) = &status.health else { return String::new() };
    let mut text = String::new();
    if !health.evidence.is_empty() {
        text.push_str("Evidence, as the operator wrote it:\n");
        let mut columns = Columns::new([
            "  POD", "NODE", "SIGNAL", ">VALUE", ">LIMIT", ">SAMPLES", "SEEN BY", "PEERS", "WINDOW",
        ]);
        let rows: Vec<_> = health.evidence.iter().map(evidence_cells).collect();
        text.push_str(&columns.block(&rows));
        text.push('\n');
    }
    if !health.missing_nodes.is_empty() {
        let nodes = health.missing_nodes.join(", ");
        let _ = writeln!(text, "Nodes that could not be asked: {nodes}\n");
    }
    text
}

fn evidence_cells(evidence: &Evidence) -> [String; 9] {
    let seen_by = match evidence.view.as_str() {
        "own" => "its own kernel".into(),
        "seenByPeers" => "its peers' kernels".into(),
        other => other.to_owned(),
    };
    [
        format!("  {}", evidence.pod),
        evidence.node.clone(),
        evidence.signal.clone(),
        evidence.value.clone(),
        evidence.threshold.clone(),
        evidence.samples.to_string(),
        seen_by,
        evidence.peers.join(", "),
        time(&evidence.window_start),
    ]
}

fn kubernetes(facts: &Facts<'_>, status: &ApplicationStatus) -> String {
    let mut text = String::from("What Kubernetes says beside it:\n");
    let reference = &facts.application.spec.workload.reference;
    let Some(pods) = &facts.pods else {
        let _ = writeln!(text, "  There is no {} {}.\n", reference.kind, reference.name);
        return text;
    };
    let ready = pods.iter().filter(|pod| pod.is_ready).count();
    let _ = writeln!(
        text,
        "  {} {}: {ready} of {} pods are Ready.",
        reference.kind,
        reference.name,
        pods.len()
    );
    for name in ["Available", "Ready"] {
        if let Some(Condition { status, reason, message, .. }) = condition(status, name) {
            let _ = writeln!(text, "  {name} is {status}, {reason}: {message}");
        }
    }
    if !pods.is_empty() {
        let mut columns = Columns::new(["  POD", "READY", "PHASE", ">RESTARTS", "NODE"]);
        let cells = |pod: &PodFacts| {
            let ready = if pod.is_ready { "yes" } else { "no" };
            [
                format!("  {}", pod.name),
                ready.into(),
                pod.phase.clone(),
                pod.restarts.to_string(),
                pod.node.clone(),
            ]
        };
        text.push_str(&columns.block(&pods.iter().map(cells).collect::<Vec<_>>()));
    }
    text.push('\n');
    text
}

fn now(facts: &Facts<'_>) -> String {
    let reference = &facts.application.spec.workload.reference;
    let workload = Workload {
        namespace: facts.application.metadata.namespace.as_deref().unwrap_or_default(),
        kind: &reference.kind,
        name: &reference.name,
    };
    match &facts.live {
        Live::Flows(flows) => match live::table(flows, workload) {
            Some(table) => format!("The last minute, the worst path first:\n{}\n", indent(&table)),
            None => "The last minute: nothing moved to or from its pods.\n\n".into(),
        },
        Live::Unavailable { problem, remedy } => {
            format!("Live values are not available: {problem}\n  help: {remedy}\n\n")
        }
    }
}

fn next(facts: &Facts<'_>, health: Option<&Condition>) -> String {
    let application = facts.application;
    let namespace = application.metadata.namespace.as_deref().unwrap_or_default();
    let name = application.metadata.name.as_deref().unwrap_or_default();
    let evidence = application
        .status
        .as_ref()
        .and_then(|status| status.health.as_ref())
        .and_then(|health| health.evidence.first());
    let reason = health.and_then(|health| HealthReason::parse(&health.reason));
    let mut text = String::from("What to do next:\n");
    for step in steps(reason, evidence, namespace, name) {
        let _ = writeln!(text, "  - {step}");
    }
    text
}

fn steps(
    reason: Option<HealthReason>,
    evidence: Option<&Evidence>,
    namespace: &str,
    name: &str,
) -> Vec<String> {
    let watch = format!(
        "watch it: keelson observe -n {namespace} --application {name} --view both --follow"
    );
    let (pod, node) = evidence.map_or(("POD", "NODE"), |evidence| (&evidence.pod, &evidence.node));
    match reason {
        Some(
            HealthReason::HighRetransmitRatio
            | HealthReason::HighConnectFailureRatio
            | HealthReason::HighResetRatio
            | HealthReason::HighRtt,
        ) => vec![
            watch,
            format!("see its single connections: keelson connections -n {namespace} --pod {pod} --since 5m"),
            format!(
                "look at the pod's end of the path: its veth, network policies and rules on node {node}; \
                 its CPU limit and its accept queue"
            ),
            format!(
                "if a restart may help: kubectl -n {namespace} delete pod {pod} (its controller makes another)"
            ),
        ],
        Some(HealthReason::NodeDegraded) => vec![
            format!("look at node {node}: its link, drops on its interfaces, its load"),
            format!("keep new pods away: kubectl cordon {node}"),
            watch,
        ],
        Some(HealthReason::PeerPathDegraded) => vec![
            watch,
            "compare with other pods of both nodes: a path that is bad for one pair alone lies between them"
                .into(),
        ],
        Some(HealthReason::NoCoverage | HealthReason::Stale) => vec![
            "see what the nodes' agents can see: keelson nodes".into(),
            "see that they run: kubectl -n keelson-system get pods -o wide".into(),
        ],
        Some(HealthReason::NotJudged) => vec![
            format!("see what is wrong with it: kubectl -n {namespace} describe application {name}"),
        ],
        Some(HealthReason::NoTraffic) => vec![
            format!("nothing, if it is meant to be idle; else see what reaches it: {watch}"),
            "lower minSamples in spec.health.policy if it is meant to be quiet".into(),
        ],
        Some(HealthReason::Healthy) => vec![format!("nothing; to {watch}")],
        None => vec![
            "see that the operator runs: kubectl -n keelson-system get deploy keelson-operator".into(),
            watch,
        ],
    }
}

fn condition<'a>(status: &'a ApplicationStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().find(|condition| condition.type_ == type_)
}

fn time(time: &Time) -> String {
    let nanos = u64::try_from(time.0.as_nanosecond()).unwrap_or_default();
    crate::render::seconds(keelson_model::UnixNanos(nanos))
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

#[cfg(test)]
mod tests;
