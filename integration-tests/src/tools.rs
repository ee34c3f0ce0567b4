//! What the cluster is made of: Debian's packages, and programs built from Go modules into the
//! cache, keyed by version and by what they are built from.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};
use sha2::{Digest, Sha256};

use crate::{
    paths,
    process::run,
    step::{say, step},
};

const PACKAGES: &[&str] = &[
    "busybox-static",
    "conntrack",
    "containerd",
    "containernetworking-plugins",
    "gcc",
    "iproute2",
    "iptables",
    "libc6-dev",
    "nftables",
    "runc",
    "util-linux",
];

/// A program built from `hack/tools/<name>`.
struct Tool {
    name: &'static str,
    version: &'static str,
    package: &'static str,
    ldflags: &'static str,
}

const KUBERNETES_FLAGS: &str = "-s -w -X k8s.io/component-base/version.gitVersion=v1.34.4 \
    -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=34";

const TOOLS: [Tool; 3] = [
    Tool { name: "etcd", version: "3.6.4", package: ".", ldflags: "-s -w" },
    Tool { name: "kubernetes", version: "1.34.4", package: ".", ldflags: KUBERNETES_FLAGS },
    Tool {
        name: "coredns",
        version: "1.12.4",
        package: "github.com/coredns/coredns",
        ldflags: "-s -w",
    },
];

/// The programs of the control plane.
#[derive(Clone, Debug)]
pub struct Tools {
    /// etcd.
    pub etcd: PathBuf,
    /// kube-apiserver, kubelet, kubectl and the rest, picked by the first argument.
    pub kubernetes: PathBuf,
    /// CoreDNS.
    pub coredns: PathBuf,
}

/// Installs and builds what is missing.
///
/// # Errors
/// Something cannot be had; the message names it.
pub fn ensure() -> anyhow::Result<Tools> {
    if !rustix::process::getuid().is_root() {
        bail!("the local cluster needs root: it makes network namespaces, mounts and cgroups");
    }
    packages(PACKAGES)?;
    let [etcd, kubernetes, coredns] = TOOLS.map(|tool| build(&tool));
    Ok(Tools { etcd: etcd?, kubernetes: kubernetes?, coredns: coredns? })
}

/// Installs those of Debian's packages that are missing, and says so.
///
/// # Errors
/// apt refuses.
pub fn packages(wanted: &[&str]) -> anyhow::Result<()> {
    let is_missing = |package: &&&str| {
        let status = run("dpkg-query", &["-W", "-f", "${Status}", package]);
        !status.is_ok_and(|status| status.contains("ok installed"))
    };
    let missing: Vec<&str> = wanted.iter().filter(is_missing).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    step(&format!("installing {}", missing.join(" ")), || {
        run("apt-get", &["-qq", "update"])?;
        let mut args = vec!["-qq", "install", "--no-install-recommends", "-y"];
        args.extend(&missing);
        run("apt-get", &args).map(|_| ())
    })
}

fn build(tool: &Tool) -> anyhow::Result<PathBuf> {
    let source = paths::tree().join("hack/tools").join(tool.name);
    let key = hash(&source, tool)?;
    let directory =
        paths::cache().join("tools").join(format!("{}-{}-{key}", tool.name, tool.version));
    let program = directory.join(tool.name);
    if program.is_file() {
        return Ok(program);
    }
    fs::create_dir_all(&directory)?;
    let partial = directory.join("partial");
    step(&format!("building {} {} (once)", tool.name, tool.version), || {
        let status = Command::new("go")
            .args(["build", "-ldflags", tool.ldflags, "-o"])
            .arg(&partial)
            .arg(tool.package)
            .current_dir(&source)
            .env("CGO_ENABLED", "0")
            .env("GOFLAGS", "-mod=readonly")
            .stdin(Stdio::null())
            .status()
            .context("cannot run go; install Go 1.24 or newer")?;
        if !status.success() {
            bail!("go could not build {} in {}", tool.name, source.display());
        }
        Ok(())
    })?;
    fs::rename(&partial, &program)?;
    say(&format!("  {} is in {}", tool.name, program.display()));
    Ok(program)
}

/// Over everything that the build reads of the tree.
fn hash(source: &Path, tool: &Tool) -> anyhow::Result<String> {
    let mut files: Vec<PathBuf> = fs::read_dir(source)
        .with_context(|| format!("cannot read {}", source.display()))?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    let mut hasher = Sha256::new();
    hasher.update(tool.ldflags);
    for file in files {
        hasher.update(fs::read(file)?);
    }
    let digest = hasher.finalize();
    Ok(digest.iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}
