//! The workload above a pod, by what its metadata says; nothing is asked of the API server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use keelson_model::WorkloadRef;

/// Label that a Deployment puts on its ReplicaSets and pods.
pub const POD_TEMPLATE_HASH: &str = "pod-template-hash";
/// Label that StatefulSets and DaemonSets put on their pods.
pub const CONTROLLER_REVISION_HASH: &str = "controller-revision-hash";

/// The workload: the Deployment above a ReplicaSet, else the controlling owner.
///
/// A ReplicaSet's name is its Deployment's and the pod template's hash; without that label on the
/// pod the ReplicaSet stands by itself.
#[must_use]
pub fn of_pod(metadata: &ObjectMeta) -> Option<WorkloadRef> {
    let owners = metadata.owner_references.as_deref().unwrap_or_default();
    let OwnerReference { api_version, kind, name, .. } =
        owners.iter().find(|owner| owner.controller == Some(true))?.clone();
    if kind == "ReplicaSet"
        && let Some(hash) = label(metadata, POD_TEMPLATE_HASH)
        && let Some(deployment) = name.strip_suffix(hash).and_then(|name| name.strip_suffix('-'))
    {
        let name = deployment.to_owned();
        return Some(WorkloadRef { api_version, kind: "Deployment".into(), name });
    }
    Some(WorkloadRef { api_version, kind, name })
}

/// The revision that the pod is of; empty where there is none.
#[must_use]
pub fn revision_of_pod(metadata: &ObjectMeta) -> String {
    let hash = label(metadata, POD_TEMPLATE_HASH).or(label(metadata, CONTROLLER_REVISION_HASH));
    hash.unwrap_or_default().to_owned()
}

fn label<'a>(metadata: &'a ObjectMeta, name: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(name).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(kind: &str, owner: &str, label: Option<(&str, &str)>) -> ObjectMeta {
        let reference = OwnerReference {
            api_version: "apps/v1".into(),
            kind: kind.into(),
            name: owner.into(),
            controller: Some(true),
            ..Default::default()
        };
        ObjectMeta {
            owner_references: Some(vec![reference]),
            labels: label.map(|(name, value)| [(name.to_owned(), value.to_owned())].into()),
            ..Default::default()
        }
    }

    #[test]
    fn the_workload_is_the_deployment_above_a_replica_set_else_the_controller() {
        let hash = Some((POD_TEMPLATE_HASH, "7d9f"));
        let cases = [
            (pod("ReplicaSet", "shop-7d9f", hash), "Deployment", "shop"),
            (pod("ReplicaSet", "shop-7d9f", None), "ReplicaSet", "shop-7d9f"),
            (pod("ReplicaSet", "7d9f", hash), "ReplicaSet", "7d9f"),
            (pod("StatefulSet", "cart", None), "StatefulSet", "cart"),
            (pod("DaemonSet", "proxy", None), "DaemonSet", "proxy"),
        ];
        for (metadata, kind, name) in cases {
            let workload = of_pod(&metadata).unwrap();
            assert_eq!((workload.kind.as_str(), workload.name.as_str()), (kind, name));
        }
        assert_eq!(of_pod(&ObjectMeta::default()), None);
    }
}
