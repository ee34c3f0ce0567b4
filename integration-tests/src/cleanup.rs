//! Removes everything of a cluster from the machine, from its state directory alone.
//!
//! One path for an orderly `down` and for what a killed `up` left: each stage takes what it finds and
//! none trusts a process that the cluster itself started. [`leftovers`] is the proof.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::bail;

use crate::layout::{Layout, NFT_TABLES, NODE_LINK, NODES};
use crate::processes::{self, ProcessId};
use crate::{command, host, node, wait};

/// Where the runtime keeps sockets and container states outside the node's own directory.
const SHIM_SOCKETS: &str = "/run/containerd/s";
const RUNC_STATES: &str = "/run/containerd/runc/k8s.io";
const CNI_RESULTS: &str = "/var/lib/cni/results";
const CONTAINER_LOGS: &str = "/var/log/containers";

/// Ends and removes everything but the logs.
///
/// # Errors
/// When something is left after all; the error lists it.
pub fn sweep(layout: &Layout) -> anyhow::Result<()> {
    end_processes(layout);
    let sockets = remove_runtime_traces(layout);
    for point in own_mounts(layout).iter().rev() {
        let _ = command::output(Command::new("umount").args(["--lazy", point]));
    }
    for (family, table) in NFT_TABLES {
        let _ = command::output(Command::new("nft").args(["delete", "table", family, table]));
    }
    host::restore(layout);
    for path in sockets {
        let _ = std::fs::remove_file(path);
    }
    let _ = wait::until_true("cgroups to empty", Duration::from_secs(5), || {
        own_cgroups().iter().for_each(|path| remove_cgroups(path));
        own_cgroups().is_empty()
    });
    // Namespaces die after their last process, and the host's ends of veths with them.
    let _ = wait::until_true("links to go", Duration::from_secs(5), || own_links().is_empty());
    remove_state(layout);
    let left = leftovers(layout);
    if !left.is_empty() {
        bail!("the cluster is down, but this is left: {}", left.join(", "));
    }
    Ok(())
}

/// Everything of the cluster that is on the machine now, in words.
#[must_use]
pub fn leftovers(layout: &Layout) -> Vec<String> {
    let mut found: Vec<String> = processes::marked(layout).iter().map(|id| format!("process {}", id.pid)).collect();
    found.extend(own_mounts(layout).into_iter().map(|point| format!("mount {point}")));
    found.extend(own_cgroups().into_iter().map(|path| format!("cgroup {}", path.display())));
    found.extend(own_links().into_iter().map(|link| format!("link {link}")));
    let tables = command::output(Command::new("nft").args(["list", "tables"])).unwrap_or_default();
    for (family, table) in NFT_TABLES {
        let line = format!("table {family} {table}");
        if tables.lines().any(|listed| listed == line) {
            found.push(format!("nft {line}"));
        }
    }
    found
}

fn end_processes(layout: &Layout) {
    let recorded = processes::recorded(layout);
    let is_runtime = |name: &str| name.starts_with("containerd-");
    let of = |wanted: &dyn Fn(&str) -> bool| -> Vec<ProcessId> {
        recorded.iter().filter(|record| wanted(&record.name)).map(|record| record.id).collect()
    };
    // Kubelets first, else they start again what is ended below.
    processes::end(&of(&|name| name.starts_with("kubelet-")), Duration::from_secs(3));
    let pods: Vec<ProcessId> = own_cgroups().iter().flat_map(|path| processes::in_cgroup(path)).collect();
    processes::kill(&pods);
    // Their state is thrown away, so none of these needs to end in order.
    processes::kill(&of(&|name| !is_runtime(name)));
    processes::end(&of(&is_runtime), Duration::from_secs(2));
    // What was started but not recorded, and the shims. A marked process may be starting another one.
    let _ = wait::until_true("marked processes to end", Duration::from_secs(10), || {
        let marked = processes::marked(layout);
        processes::kill(&marked);
        marked.is_empty()
    });
}

/// Removes what the runtime keeps outside the state directory; returns the shims' sockets.
fn remove_runtime_traces(layout: &Layout) -> Vec<PathBuf> {
    let mut sockets = Vec::new();
    for node in NODES {
        let tasks = layout.node(node.name).join("containerd/state/io.containerd.runtime.v2.task/k8s.io");
        for bundle in children(&tasks) {
            let address = std::fs::read_to_string(bundle.join("address")).unwrap_or_default();
            let socket = PathBuf::from(address.trim().trim_start_matches("unix://"));
            if socket.starts_with(SHIM_SOCKETS) {
                sockets.push(socket);
            }
            if let Some(id) = bundle.file_name() {
                let _ = std::fs::remove_dir_all(Path::new(RUNC_STATES).join(id));
            }
        }
        let prefix = format!("keelson-{}-", node.name);
        for result in children(Path::new(CNI_RESULTS)) {
            if result.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)) {
                let _ = std::fs::remove_file(result);
            }
        }
    }
    for link in children(Path::new(CONTAINER_LOGS)) {
        if std::fs::read_link(&link).is_ok_and(|target| target.starts_with(layout.root())) {
            let _ = std::fs::remove_file(link);
        }
    }
    sockets
}

fn own_mounts(layout: &Layout) -> Vec<String> {
    host::mount_points().into_iter().filter(|point| Path::new(point).starts_with(layout.root())).collect()
}

fn own_cgroups() -> Vec<PathBuf> {
    let tops = NODES.iter().flat_map(|node| [node.kubepods(), node.cgroup_root.into()]);
    let tops: Vec<String> = tops.filter(|top| top != "/").chain(["/keelson".into()]).collect();
    let hierarchies = node::hierarchies();
    hierarchies
        .iter()
        .flat_map(|hierarchy| tops.iter().map(|top| hierarchy.join(top.trim_start_matches('/'))))
        .filter(|path| path.is_dir())
        .collect()
}

fn own_links() -> Vec<String> {
    let is_own = |name: &str| name == NODE_LINK || is_pod_link(name);
    children(Path::new("/sys/class/net"))
        .iter()
        .filter_map(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .filter(|name| is_own(name))
        .collect()
}

/// The CNI plugin names the host's end of a pod's link `veth` and eight hex digits.
fn is_pod_link(name: &str) -> bool {
    name.strip_prefix("veth").is_some_and(|rest| rest.len() == 8 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

fn remove_cgroups(path: &Path) {
    for child in children(path) {
        if child.is_dir() {
            remove_cgroups(&child);
        }
    }
    let _ = std::fs::remove_dir(path);
}

fn remove_state(layout: &Layout) {
    for entry in children(layout.root()) {
        if entry == layout.logs() {
            continue;
        }
        let _ = if entry.is_dir() { std::fs::remove_dir_all(entry) } else { std::fs::remove_file(entry) };
    }
}

fn children(path: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
