//! Ports and addresses of the local cluster, and what the API server audits.

/// Port of the API server.
pub const API_PORT: u16 = 26443;
/// Port of etcd.
pub const ETCD_PORT: u16 = 23790;
/// Port of CoreDNS on the host.
pub const DNS_PORT: u16 = 10053;
/// Services' addresses.
pub const SERVICES: &str = "10.96.0.0/16";
/// Address of the DNS Service.
pub const DNS_ADDRESS: &str = "10.96.0.10";
/// Pods' addresses; each node has a part.
pub const PODS: &str = "10.244.0.0/16";

/// Writes and reviews, without their bodies: what tests of quiet and of leadership read.
pub const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    verbs: [create, update, patch, delete, deletecollection]
  - level: None
";
