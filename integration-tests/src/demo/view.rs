//! What Kubernetes says of the demo's pods, and what Keelson says of its Applications.

use std::fmt;

use serde_json::Value;

use crate::cluster::{Cluster, condition};

/// Namespace of the demo.
pub const DEMO: &str = "demo";

/// KernelHealthy of one Application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The Application.
    pub name: String,
    /// True, False, Unknown, or empty before the first.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// The first pod that the evidence names.
    pub pod: String,
    /// The condition in words.
    pub message: String,
}

/// A pod as Kubernetes sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its application's name, by label.
    pub application: String,
    /// Its address.
    pub address: String,
    /// Kubernetes calls it Ready.
    pub is_ready: bool,
}

impl Pod {
    /// Of the object that the API server gives.
    #[must_use]
    pub fn of(object: &Value) -> Self {
        Self {
            name: text(&object["metadata"]["name"]),
            uid: text(&object["metadata"]["uid"]),
            application: text(&object["metadata"]["labels"]["app.kubernetes.io/name"]),
            address: text(&object["status"]["podIP"]),
            is_ready: condition(object, "Ready", "True").is_ok(),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.name, self.status, self.reason)
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// All Applications of the demo.
///
/// # Errors
/// The API server cannot be asked.
pub fn verdicts(cluster: &Cluster) -> anyhow::Result<Vec<Verdict>> {
    let list = cluster.kubectl.get(&["-n", DEMO, "applications"])?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().map(verdict).collect())
}

fn verdict(application: &Value) -> Verdict {
    let conditions = application["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == "KernelHealthy");
    let none = Value::Null;
    let found = found.unwrap_or(&none);
    Verdict {
        name: text(&application["metadata"]["name"]),
        status: text(&found["status"]),
        reason: text(&found["reason"]),
        pod: text(&application["status"]["health"]["evidence"][0]["pod"]),
        message: text(&found["message"]),
    }
}

/// All pods of the demo.
///
/// # Errors
/// The API server cannot be asked.
pub fn pods(cluster: &Cluster) -> anyhow::Result<Vec<Pod>> {
    let list = cluster.kubectl.get(&["-n", DEMO, "pods"])?;
    let items = list["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().map(Pod::of).collect())
}

/// Both sides in one table.
///
/// # Errors
/// The API server cannot be asked.
pub fn side_by_side(cluster: &Cluster) -> anyhow::Result<String> {
    let (pods, verdicts) = (pods(cluster)?, verdicts(cluster)?);
    let mut lines =
        vec![format!("{:<10} {:<24} {:<34} {}", "", "Kubernetes says", "the kernels say", "pod")];
    for verdict in &verdicts {
        let ours: Vec<&Pod> = pods.iter().filter(|pod| pod.application == verdict.name).collect();
        let ready = ours.iter().filter(|pod| pod.is_ready).count();
        let kubernetes = format!("{ready}/{} pods Ready", ours.len());
        let kernels = format!("{} ({})", verdict.status, verdict.reason);
        lines.push(format!("{:<10} {kubernetes:<24} {kernels:<34} {}", verdict.name, verdict.pod));
    }
    for verdict in verdicts.iter().filter(|verdict| verdict.status == "False") {
        lines.push(format!("  {}: {}", verdict.name, verdict.message));
    }
    Ok(lines.join("\n"))
}
