//! Who stands at an end of a connection.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::ids::{NodeName, PodUid};

/// An end of a connection, named as far as it is known; never guessed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Endpoint {
    /// A pod of this cluster.
    Pod(PodRef),
    /// A node's own address: host processes, host-network pods, masqueraded traffic.
    Node(NodeName),
    /// A Service's virtual address whose backend is not known.
    Service(ServiceRef),
    /// An address outside the cluster.
    External(IpAddr),
    /// The peers beyond a bound, together.
    Other,
    /// Not known, and why.
    Unknown(UnknownReason),
}

/// A pod, with what is needed to say whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodRef {
    /// `metadata.uid`.
    pub uid: PodUid,
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// `spec.nodeName`.
    pub node: NodeName,
    /// The workload that owns it: the Deployment above a ReplicaSet, else the controlling owner.
    pub workload: Option<WorkloadRef>,
    /// `pod-template-hash` or `controller-revision-hash`; empty where there is none.
    pub revision: String,
    /// `spec.hostNetwork`: its address is its node's.
    pub host_network: bool,
}

/// A workload in the namespace of its pods.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkloadRef {
    /// For example `apps/v1`.
    pub api_version: String,
    /// For example `Deployment`.
    pub kind: String,
    /// `metadata.name`.
    pub name: String,
}

/// A Service.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServiceRef {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// Why an end has no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnknownReason {
    /// The cgroup is no pod's: a process of the host.
    HostProcess,
    /// The pod was not seen at the API server within the bound.
    PodNotSeen,
    /// The socket had no cgroup that could be read, or one that was never found in the tree.
    NoCgroup,
    /// A table was full.
    TableFull,
    /// It lies in a namespace that the caller may not see.
    NotPermitted,
    /// The sender gave a reason that this version does not know.
    Unrecognised,
}

// === impl Endpoint ===

impl Endpoint {
    /// The pod, if it is one.
    #[must_use]
    pub fn pod(&self) -> Option<&PodRef> {
        match self {
            Self::Pod(pod) => Some(pod),
            _ => None,
        }
    }
}
