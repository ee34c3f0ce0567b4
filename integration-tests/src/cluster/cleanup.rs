//! Ends a cluster from its state directory alone, however it came to stand as it does, and leaves
//! no process, mount, network namespace, link, nft table or cgroup behind.

use std::{fs, path::Path, time::Duration};

use super::{NODES, left, node};
use crate::process::{Started, marked, recorded, run, wait_for};

/// Where CNI plugins keep what they answered; it cannot be set per containerd.
const CNI_RESULTS: &str = "/var/lib/cni/results";
/// A killed process's namespaces, mounts and cgroups go a moment after it.
const GONE_WITHIN: Duration = Duration::from_secs(15);

/// Pods first, then the processes, then what they left, until nothing is left.
///
/// # Errors
/// A process does not end, or something stays; it is named.
pub fn down(state: &Path) -> anyhow::Result<()> {
    let started = recorded(state);
    let end = |wanted: &dyn Fn(&str) -> bool| -> anyhow::Result<()> {
        started.iter().filter(|process| wanted(&process.name)).try_for_each(|p| p.end(state))
    };
    end(&|name| !name.starts_with("containerd-") && name != "etcd" && name != "apiserver")?;
    for name in NODES {
        end_containers(state, name, &started);
    }
    end(&|name| name == "apiserver")?;
    end(&|_| true)?;
    end_shims(state);
    // What lost its record in a crash.
    marked(state).iter().try_for_each(|process| process.end(state))?;
    wait_for("the cluster's remains to go", GONE_WITHIN, || {
        unmount(state);
        remove_network();
        remove_cgroups();
        left::pins(state).iter().for_each(|path| drop(fs::remove_dir_all(path)));
        let left = left::left(state);
        if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
    })?;
    remove_cni_results();
    // Credentials and data are of this cluster; logs and image archives may be of use.
    for name in NODES.iter().copied().chain(["etcd", "pki", "run"]) {
        let _ = fs::remove_dir_all(state.join(name));
    }
    Ok(())
}

fn end_containers(state: &Path, name: &str, started: &[Started]) {
    let containerd = format!("containerd-{name}");
    if !started.iter().any(|process| process.name == containerd && process.is_running()) {
        return;
    }
    let socket = node::socket(state, name);
    let ctr = |args: &[&str]| {
        let mut all = vec!["-a", &socket, "-n", "k8s.io"];
        all.extend(args);
        run("ctr", &all).unwrap_or_default()
    };
    for task in ctr(&["tasks", "ls", "-q"]).lines() {
        ctr(&["tasks", "kill", "-s", "KILL", task]);
    }
    for container in ctr(&["containers", "ls", "-q"]).lines() {
        ctr(&["tasks", "rm", "-f", container]);
        ctr(&["containers", "rm", container]);
    }
}

/// Of a containerd that was killed; their containers are their children.
fn end_shims(state: &Path) {
    left::shims(state).into_iter().for_each(kill_tree);
}

fn kill_tree(pid: i32) {
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    for child in children.split_whitespace().filter_map(|child| child.parse().ok()) {
        kill_tree(child);
    }
    if let Some(pid) = rustix::process::Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

fn unmount(state: &Path) {
    for path in left::mounts(state).into_iter().rev() {
        let _ = run("umount", &["-l", &path]);
    }
}

fn remove_network() {
    for name in left::namespaces() {
        let _ = run("ip", &["netns", "del", &name]);
        // `ip` leaves the file of a namespace that was unmounted before.
        let _ = fs::remove_file(Path::new("/run/netns").join(name));
    }
    for index in 0..NODES.len() {
        let _ = run("ip", &["link", "del", &node::bridge(index)]);
    }
    for family in ["ip", "ip6"] {
        let _ = run("nft", &["delete", "table", family, "kube-proxy"]);
    }
}

/// Of pods that were killed without the plugins being asked: both files of each pod of our nodes.
fn remove_cni_results() {
    for entry in fs::read_dir(CNI_RESULTS).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let pod = NODES.iter().find_map(|node| name.strip_prefix(node)?.strip_prefix('-'));
        if let Some(container) = pod.and_then(|pod| pod.strip_suffix("-eth0")) {
            let loopback = format!("cni-loopback-{container}-lo");
            let _ = fs::remove_file(Path::new(CNI_RESULTS).join(loopback));
            let _ = fs::remove_file(entry.path());
        }
    }
}

fn remove_cgroups() {
    for hierarchy in fs::read_dir(node::CGROUPS).into_iter().flatten().flatten() {
        for name in left::CGROUP_ROOTS {
            remove_tree(&hierarchy.path().join(name));
        }
    }
}

/// A cgroup's directory goes when it has no children; its files cannot be removed.
fn remove_tree(path: &Path) {
    for child in fs::read_dir(path).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&child.path());
        }
    }
    let _ = fs::remove_dir(path);
}
