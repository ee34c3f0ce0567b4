//! A pod as the host sees it: its address, its first container's process, and its network namespace.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, anyhow};
use serde_json::Value;

use crate::cluster::Cluster;
use crate::node::ctr;
use crate::command;

/// A running pod.
#[derive(Debug, Clone)]
pub struct Pod {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// The node it runs on.
    pub node: String,
    /// Its address; empty before it has one.
    pub address: String,
    /// Whether Kubernetes calls it Ready.
    pub is_ready: bool,
    /// Restarts of all its containers.
    pub restarts: u64,
    /// The host's pid of its first container's first process, if it runs.
    pub pid: Option<i32>,
}

// === impl Pod ===

impl Pod {
    /// Runs a host's program within the pod's network namespace.
    ///
    /// # Errors
    /// When the pod has no process or the program fails.
    pub fn in_network(&self, program: &[&str]) -> anyhow::Result<String> {
        let pid = self.pid.with_context(|| format!("pod {} has no running container", self.name))?;
        command::output(Command::new("nsenter").arg(format!("--net=/proc/{pid}/ns/net")).args(program))
    }

    /// The name of the host's end of the pod's link.
    ///
    /// # Errors
    /// When the pod's link cannot be read.
    pub fn host_link(&self) -> anyhow::Result<String> {
        let peer = self.in_network(&["ip", "-o", "link", "show", "eth0"])?;
        let index = peer.split("eth0@if").nth(1).and_then(|rest| rest.split(':').next()).context("read eth0's peer")?;
        let links = std::fs::read_dir("/sys/class/net")?;
        links
            .flatten()
            .find(|link| {
                std::fs::read_to_string(link.path().join("ifindex")).is_ok_and(|found| found.trim() == index)
            })
            .map(|link| link.file_name().to_string_lossy().into_owned())
            .ok_or_else(|| anyhow!("no link of the host has index {index}"))
    }
}

/// The pods of `namespace` matching `selector`, by name.
///
/// # Errors
/// When kubectl fails.
pub fn list(cluster: &Cluster, namespace: &str, selector: &str) -> anyhow::Result<Vec<Pod>> {
    let found = cluster.json(&["get", "pods", "--namespace", namespace, "--selector", selector])?;
    let items = found["items"].as_array().cloned().unwrap_or_default();
    Ok(items.iter().map(|object| read(cluster, object)).collect())
}

fn read(cluster: &Cluster, object: &Value) -> Pod {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let status = &object["status"];
    let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    let containers = status["containerStatuses"].as_array().cloned().unwrap_or_default();
    let node = text(&object["spec"]["nodeName"]);
    let id = containers.first().map(|first| text(&first["containerID"])).unwrap_or_default();
    let id = id.trim_start_matches("containerd://").to_owned();
    Pod {
        namespace: text(&object["metadata"]["namespace"]),
        name: text(&object["metadata"]["name"]),
        uid: text(&object["metadata"]["uid"]),
        address: text(&status["podIP"]),
        is_ready: conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True"),
        restarts: containers.iter().filter_map(|one| one["restartCount"].as_u64()).sum(),
        pid: container_pid(cluster, &node, &id),
        node,
    }
}

fn container_pid(cluster: &Cluster, node: &str, id: &str) -> Option<i32> {
    if id.is_empty() {
        return None;
    }
    let bundle: PathBuf = cluster.layout().node(node).join("containerd/state/io.containerd.runtime.v2.task/k8s.io");
    let noted = std::fs::read_to_string(bundle.join(id).join("init.pid")).ok();
    let noted = noted.and_then(|text| text.trim().parse().ok());
    noted.or_else(|| {
        let listed = ctr(cluster.layout(), node, &["tasks", "list"]).ok()?;
        let line = listed.lines().find(|line| line.starts_with(id))?;
        line.split_whitespace().nth(1)?.parse().ok()
    })
    .filter(|pid: &i32| Path::new(&format!("/proc/{pid}")).exists())
}
