//! What of a cluster is still on this machine: the other half of `cleanup`, which must not be
//! believed but looked after. It only reads, so that tests may ask it at any time.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use super::{NODES, node};
use crate::process::{marked, run};

/// Roots of pods' cgroups, in every hierarchy: the first node's and the second's.
pub(super) const CGROUP_ROOTS: [&str; 2] = ["kubepods", NODES[1]];

/// Where agents pin their maps, by node uid.
const PINS: &str = "/sys/fs/bpf/keelson";
/// Below the state directory: the uids of its nodes, one a line.
const NODE_UIDS: &str = "run/node-uids";

/// Everything of a cluster with that state directory, one line each; empty when it is gone.
#[must_use]
pub fn left(state: &Path) -> Vec<String> {
    let mut found = processes(state);
    found.extend(mounts(state).into_iter().map(|path| format!("mount {path}")));
    found.extend(namespaces().into_iter().map(|name| format!("network namespace {name}")));
    found.extend(links().into_iter().map(|name| format!("link {name}")));
    found.extend(tables());
    found.extend(cgroups());
    found.extend(pins(state).into_iter().map(|path| format!("pins {}", path.display())));
    found
}

/// Notes a node's uid, under which its agent pins maps.
///
/// # Errors
/// The file cannot be written.
pub(super) fn note_node(state: &Path, uid: &str) -> io::Result<()> {
    let mut file = File::options().create(true).append(true).open(state.join(NODE_UIDS))?;
    writeln!(file, "{uid}")
}

/// Directories of pinned maps of the nodes that were noted.
pub(super) fn pins(state: &Path) -> Vec<PathBuf> {
    let uids = fs::read_to_string(state.join(NODE_UIDS)).unwrap_or_default();
    let pins = uids.lines().map(|uid| Path::new(PINS).join(uid));
    pins.filter(|path| path.exists()).collect()
}

fn processes(state: &Path) -> Vec<String> {
    let shims = shims(state).into_iter().map(|pid| format!("containerd-shim {pid}"));
    let marked = marked(state).into_iter().map(|process| format!("process {}", process.pid));
    shims.chain(marked).collect()
}

/// Shims outlive a containerd that was killed, and their containers with them: they are told by the
/// state directory's name on their command line.
pub(super) fn shims(state: &Path) -> Vec<i32> {
    let needle = state.join("node-").to_string_lossy().into_owned();
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line);
        line.contains("containerd-shim") && line.contains(&needle)
    })
    .collect()
}

/// Mounts below the state directory, outermost first.
pub(super) fn mounts(state: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/mounts").unwrap_or_default();
    let below = format!("{}/", state.display());
    let paths = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let mut paths: Vec<String> =
        paths.filter(|path| path.starts_with(&below)).map(String::from).collect();
    paths.sort_unstable();
    paths
}

/// Network namespaces of pods.
pub(super) fn namespaces() -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    let names = entries.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter(|name| name.starts_with("cni-")).collect()
}

/// Bridges of the nodes, and what hangs on them.
fn links() -> Vec<String> {
    let bridges: Vec<String> = (0..NODES.len()).map(node::bridge).collect();
    let is_bridge = |name: &OsStr| bridges.iter().any(|bridge| name == bridge.as_str());
    let links = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    links
        .filter(|link| {
            let master = fs::read_link(link.path().join("master")).unwrap_or_default();
            is_bridge(&link.file_name()) || master.file_name().is_some_and(is_bridge)
        })
        .map(|link| link.file_name().to_string_lossy().into_owned())
        .collect()
}

fn tables() -> Vec<String> {
    let tables = run("nft", &["list", "tables"]).unwrap_or_default();
    tables.lines().filter(|table| table.ends_with(" kube-proxy")).map(String::from).collect()
}

fn cgroups() -> Vec<String> {
    let hierarchies = fs::read_dir(node::CGROUPS).into_iter().flatten().flatten();
    hierarchies
        .flat_map(|hierarchy| CGROUP_ROOTS.map(|name| hierarchy.path().join(name)))
        .filter(|path| path.exists())
        .map(|path| format!("cgroup {}", path.display()))
        .collect()
}
