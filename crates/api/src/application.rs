//! `Application`, v1alpha1: a workload and how it is judged.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::policy::HealthPolicySpec;

/// An application that is kept in its declared state by what the kernel sees.
#[derive(CustomResource, Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "keelson.dev",
    version = "v1alpha1",
    kind = "Application",
    shortname = "app",
    category = "keelson",
    namespaced,
    status = "ApplicationStatus",
    derive = "PartialEq",
    doc = "A workload, and how Keelson judges it by what the kernel sees of its connections.",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"Ready\")].status","description":"Whether the workload is as declared."}"#,
    printcolumn = r#"{"name":"KernelHealthy","type":"string","jsonPath":".status.conditions[?(@.type==\"KernelHealthy\")].status","description":"What the kernels of its pods and of their peers say."}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"KernelHealthy\")].reason","description":"Why KernelHealthy is what it is."}"#,
    printcolumn = r#"{"name":"Pod","type":"string","jsonPath":".status.health.evidence[0].pod","description":"The first pod that the evidence names."}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase","priority":1,"description":"Derived from the conditions."}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp","description":"When it was made."}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationSpec {
    /// What runs.
    pub workload: Workload,
    /// How it is judged.
    #[serde(default)]
    pub health: Health,
}

/// What runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Workload {
    /// A workload that exists, in the Application's namespace. It is adopted as it is: none of its
    /// pods is restarted.
    #[serde(rename = "ref")]
    pub reference: WorkloadReference,
}

/// A workload that exists.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadReference {
    /// API version of the workload; apps/v1 where it is left out.
    #[serde(default = "apps_v1")]
    pub api_version: String,
    /// Kind of the workload: Deployment, StatefulSet or DaemonSet.
    pub kind: String,
    /// Name of the workload.
    #[schemars(length(max = 253))]
    pub name: String,
    /// Must be the Application's own namespace, which is what it is where it is left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

fn apps_v1() -> String {
    "apps/v1".to_owned()
}

/// How an Application is judged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Health {
    /// Whether KernelHealthy=False makes Ready False too.
    #[serde(default)]
    pub gates_ready: bool,
    /// Thresholds; sensible ones where it is left out.
    #[serde(default)]
    pub policy: HealthPolicySpec,
}

/// What Keelson found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationStatus {
    /// Generation of the spec that the conditions speak of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Pending, Progressing, Running, Degraded or Terminating; derived from the conditions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Ready, Stalled, Available, Progressing and KernelHealthy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// The workload as it was last seen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadStatus>,
    /// What KernelHealthy stands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health: Option<HealthStatus>,
}

/// The workload as it was last seen.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadStatus {
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Pods that it wants.
    pub desired: i32,
    /// Pods that Kubernetes calls ready.
    pub ready: i32,
}

/// What KernelHealthy stands on; written when the condition changes, and while it is False or a
/// path is degraded when the value leaves a band of 25 %, at most once a minute.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HealthStatus {
    /// Pods that are blamed or whose paths are degraded, worst first; at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub evidence: Vec<Evidence>,
    /// Nodes whose kernels could not be asked in the last window; at most ten.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub missing_nodes: Vec<String>,
}

/// Why a pod is blamed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// Name of the pod.
    pub pod: String,
    /// Uid of the pod.
    pub uid: String,
    /// Node that it runs on.
    pub node: String,
    /// `own`: its own sockets saw it; `seenByPeers`: its peers' sockets saw it.
    pub view: String,
    /// The signal, as in the policy.
    pub signal: String,
    /// Its value over the window, in the threshold's form.
    pub value: String,
    /// The threshold that it passed.
    pub threshold: String,
    /// What the value was counted from: data segments, attempts or readings.
    pub samples: i64,
    /// The other ends, at most five.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 5))]
    pub peers: Vec<String>,
    /// Begin of the window, by the nodes' clocks.
    pub window_start: Time,
    /// End of the window.
    pub window_end: Time,
}
