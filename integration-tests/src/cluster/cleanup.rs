//! Ends a cluster from its state directory alone, however it came to stand as it does, and leaves
//! no process, mount, network namespace, link, nft table or cgroup behind.

use std::{fs, path::Path};

use super::{NODES, node};
use crate::process::{Started, marked, recorded, run};

/// Pods first, then the processes, then what they left.
///
/// # Errors
/// A process does not end.
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
    unmount(state);
    remove_network();
    remove_cgroups();
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

/// Shims outlive a containerd that was killed, and their containers with them: both are told by the
/// state directory's name on the shim's command line.
fn end_shims(state: &Path) {
    let needle = state.join("node-").to_string_lossy().into_owned();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    for pid in pids {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).into_owned();
        if line.contains("containerd-shim") && line.contains(&needle) {
            kill_tree(pid);
        }
    }
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
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let below = format!("{}/", state.display());
    let mut paths: Vec<&str> = mounts
        .lines()
        .filter_map(|line| line.split(' ').nth(1))
        .filter(|path| path.starts_with(&below))
        .collect();
    paths.sort_unstable();
    for path in paths.into_iter().rev() {
        let _ = run("umount", &["-l", path]);
    }
}

fn remove_network() {
    for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
        let name = entry.file_name();
        if let Some(name) = name.to_str().filter(|name| name.starts_with("cni-")) {
            let _ = run("ip", &["netns", "del", name]);
            // `ip` leaves the file of a namespace that was unmounted before.
            let _ = fs::remove_file(entry.path());
        }
    }
    for index in 0..NODES.len() {
        let _ = run("ip", &["link", "del", &format!("pods{index}")]);
    }
    for family in ["ip", "ip6"] {
        let _ = run("nft", &["delete", "table", family, "kube-proxy"]);
    }
}

fn remove_cgroups() {
    for hierarchy in fs::read_dir(node::CGROUPS).into_iter().flatten().flatten() {
        for name in ["kubepods"].into_iter().chain(NODES) {
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
