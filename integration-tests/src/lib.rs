//! The local cluster, its images, and the harness of tests that need a kernel or a cluster.
//!
//! Real parts only: etcd, API server, controller manager, scheduler, two kubelets with containerd,
//! kube-proxy, CoreDNS, on this machine. One cluster a machine: ports and bridges are the host's.

pub mod acceptance;
#[cfg(test)]
mod architecture;
pub mod cluster;
pub mod delay;
pub mod demo;
pub mod guest;
pub mod images;
pub mod kubectl;
pub mod paths;
pub mod process;
pub mod retransmits;
pub mod step;
pub mod tools;
