//! Installs Keelson and the demo's Applications, and waits until they are as they should be.

use std::time::Duration;

use serde_json::Value;

use super::view;
use crate::{cluster::Cluster, paths, process::wait_for, step::step};

/// Namespace of Keelson.
pub const SYSTEM: &str = "keelson-system";
const PATIENCE: Duration = Duration::from_secs(120);

/// Applies the manifests and waits for all pods. Programs whose image changed are started anew.
///
/// # Errors
/// The API server refuses, or a pod does not become ready.
pub fn install(cluster: &Cluster, changed: &[String]) -> anyhow::Result<()> {
    let kubectl = &cluster.kubectl;
    let apply = |directory: &str| {
        let path = paths::tree().join("deploy").join(directory);
        let path = path.to_string_lossy().into_owned();
        kubectl.run(&["apply", "--server-side", "--force-conflicts", "-k", &path]).map(|_| ())
    };
    step("installing Keelson (deploy/overlays/dev)", || {
        // Its kind must be known before its objects are.
        apply("crds")?;
        kubectl.run(&[
            "wait",
            "--for=condition=Established",
            "--timeout=30s",
            "crd/applications.keelson.dev",
        ])?;
        apply("overlays/dev")
    })?;
    for (image, workload) in [
        ("keelson-operator", "deployment/keelson-operator"),
        ("keelson-collector", "deployment/keelson-collector"),
        ("keelson-agent", "daemonset/keelson-agent"),
    ] {
        if changed.iter().any(|name| name.contains(image)) {
            kubectl.run(&["-n", SYSTEM, "rollout", "restart", workload])?;
        }
    }
    step("installing the demo (deploy/demo)", || apply("demo"))?;
    step("waiting for all pods", || {
        all_ready(cluster, SYSTEM)?;
        all_ready(cluster, view::DEMO)
    })
}

/// Waits until every workload of a namespace has all its pods ready and of the newest revision.
///
/// # Errors
/// It does not come so far.
pub fn all_ready(cluster: &Cluster, namespace: &str) -> anyhow::Result<()> {
    wait_for(&format!("the pods of {namespace}"), PATIENCE, || is_all_ready(cluster, namespace))
}

/// Whether every workload of a namespace has all its pods ready and of the newest revision.
///
/// # Errors
/// Those that have not.
pub fn is_all_ready(cluster: &Cluster, namespace: &str) -> Result<(), String> {
    let list = cluster.kubectl.get(&["-n", namespace, "deployments,daemonsets"]);
    let list = list.map_err(|error| format!("{error:#}"))?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let lagging: Vec<String> = items.iter().filter(|item| !is_ready(item)).map(name).collect();
    if lagging.is_empty() { Ok(()) } else { Err(format!("not ready: {}", lagging.join(", "))) }
}

fn is_ready(workload: &Value) -> bool {
    let number = |path: &str| workload.pointer(path).and_then(Value::as_i64);
    let status = |name: &str| number(&format!("/status/{name}"));
    let is_observed = status("observedGeneration") == number("/metadata/generation");
    let (wanted, ready, updated) = match workload["kind"].as_str() {
        Some("DaemonSet") => (
            status("desiredNumberScheduled"),
            status("numberReady"),
            status("updatedNumberScheduled"),
        ),
        _ => (number("/spec/replicas"), status("readyReplicas"), status("updatedReplicas")),
    };
    // Pods of an old revision that still end are counted in `replicas`.
    let total = status("replicas").or(wanted);
    is_observed && wanted > Some(0) && ready == wanted && updated == wanted && total == wanted
}

fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}

/// Waits until every Application of the demo says what it should without a fault.
///
/// # Errors
/// One does not; what they say is in the message.
pub fn settled(cluster: &Cluster) -> anyhow::Result<()> {
    wait_for("healthy Applications", PATIENCE, || {
        let verdicts = view::verdicts(cluster).map_err(|error| format!("{error:#}"))?;
        let is_settled = verdicts.len() == 6
            && verdicts.iter().all(|verdict| match verdict.name.as_str() {
                "idle" => verdict.reason == "NoTraffic",
                _ => verdict.status == "True",
            });
        let shown: Vec<String> = verdicts.iter().map(ToString::to_string).collect();
        if is_settled { Ok(()) } else { Err(shown.join(", ")) }
    })
}
