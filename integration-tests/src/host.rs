//! What the machine must have before the cluster starts: file systems, forwarding, the nodes' addresses.
//!
//! bpffs and tracefs are mounted as any systemd host has them and stay; the rest is undone by [`restore`].

use std::path::Path;
use std::process::Command;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::layout::{Layout, NODE_LINK, NODES};
use crate::command;

const FORWARD: &str = "/proc/sys/net/ipv4/ip_forward";

/// Settings of the machine as they were before `up`.
#[derive(Debug, Serialize, Deserialize)]
struct Before {
    ip_forward: String,
}

/// Mounts bpffs and tracefs where they belong.
///
/// # Errors
/// When this is not root or a mount fails.
pub fn mount_file_systems() -> anyhow::Result<()> {
    if !rustix::process::geteuid().is_root() {
        bail!("the cluster needs root: containers, mounts and network namespaces are made");
    }
    for (kind, at) in [("bpf", "/sys/fs/bpf"), ("tracefs", "/sys/kernel/tracing")] {
        if !is_mounted(Path::new(at)) {
            command::output(Command::new("mount").args(["-t", kind, kind, at]))?;
        }
    }
    Ok(())
}

/// Prepares the machine and notes in the state directory what it changed.
///
/// # Errors
/// When this is not root or a setting is refused.
pub fn prepare(layout: &Layout) -> anyhow::Result<()> {
    mount_file_systems()?;
    let before = Before { ip_forward: std::fs::read_to_string(FORWARD)? };
    std::fs::write(layout.host(), serde_json::to_vec(&before)?)?;
    std::fs::write(FORWARD, "1").context("turn on IPv4 forwarding")?;
    // A bridge without ports: the kernel here has no dummy links.
    ip(&["link", "add", NODE_LINK, "type", "bridge"])?;
    for node in NODES {
        ip(&["address", "add", &format!("{}/32", node.address), "dev", NODE_LINK])?;
    }
    ip(&["link", "set", NODE_LINK, "up"])
}

/// Undoes [`prepare`] as far as it got.
pub fn restore(layout: &Layout) {
    let before = std::fs::read(layout.host()).ok().and_then(|text| serde_json::from_slice::<Before>(&text).ok());
    if let Some(Before { ip_forward }) = before {
        let _ = std::fs::write(FORWARD, ip_forward);
    }
    if Path::new("/sys/class/net").join(NODE_LINK).exists() {
        let _ = ip(&["link", "delete", NODE_LINK]);
    }
}

/// Every mount point, the innermost last.
#[must_use]
pub fn mount_points() -> Vec<String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    mounts.lines().filter_map(|line| Some(line.split(' ').nth(1)?.replace("\\040", " "))).collect()
}

fn is_mounted(at: &Path) -> bool {
    mount_points().iter().any(|point| Path::new(point) == at)
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    command::output(Command::new("ip").args(arguments)).map(drop)
}
