//! The Debian packages that builds, cluster and tests need, each with its reason.

use std::process::Command;

use anyhow::{Context, bail};

use crate::{command, progress};

/// (package, what needs it)
const PACKAGES: [(&str, &str); 17] = [
    ("gcc", "linking, and the C parts of crates"),
    ("make", "libbpf-sys"),
    ("pkg-config", "libbpf-sys"),
    ("clang-19", "BPF objects"),
    ("libelf-dev", "libbpf, linked statically"),
    ("zlib1g-dev", "libbpf, linked statically"),
    ("containerd", "the nodes"),
    ("runc", "the nodes"),
    ("containernetworking-plugins", "pod networks"),
    ("nftables", "kube-proxy, and faults in tests"),
    ("iproute2", "links and network namespaces"),
    ("util-linux", "setsid, nsenter and umount"),
    ("busybox-static", "the test workload, the pause image and guests"),
    ("qemu-system-x86", "tests on other kernels"),
    ("cpio", "the guests' root file system"),
    ("kmod", "the guests' modules"),
    ("ca-certificates", "fetching Go modules"),
];

/// Installs what is missing and says so.
///
/// # Errors
/// When something is missing and cannot be installed; the error names it and the command to run.
pub fn ensure() -> anyhow::Result<()> {
    let missing = missing()?;
    if missing.is_empty() {
        return Ok(());
    }
    let names: Vec<&str> = missing.iter().map(|(name, _)| *name).collect();
    let remedy = format!("as root: apt-get install {}", names.join(" "));
    if !rustix::process::geteuid().is_root() {
        bail!("packages are missing and this is not root; {remedy}");
    }
    for (name, reason) in &missing {
        progress::say(&format!("  installing package {name}: {reason}"));
    }
    progress::step("apt-get update", || command::output(Command::new("apt-get").args(["-q", "update"])))
        .with_context(|| remedy.clone())?;
    progress::step("apt-get install", || {
        command::output(
            Command::new("apt-get")
                .args(["-q", "-y", "install", "--no-install-recommends"])
                .args(&names)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )
    })
    .context(remedy)?;
    Ok(())
}

fn missing() -> anyhow::Result<Vec<(&'static str, &'static str)>> {
    let listed = Command::new("dpkg-query")
        .args(["-W", "-f", "${Package} ${Status}\n"])
        .output()
        .context("dpkg-query: the harness installs packages on Debian only")?;
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    let is_installed = |name: &str| listed.lines().any(|line| line == format!("{name} install ok installed"));
    Ok(PACKAGES.into_iter().filter(|(name, _)| !is_installed(name)).collect())
}
