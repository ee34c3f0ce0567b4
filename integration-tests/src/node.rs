//! One node: a containerd and a kubelet with directories, addresses and a cgroup root of their own.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::Context;

use crate::layout::{CGROUPS, DNS_SERVICE, Layout, NodeSpec};
use crate::toolcache::Tools;
use crate::wait::{self, Look};
use crate::{command, images, processes};

/// Starts the node's containerd and gives it the base images.
///
/// # Errors
/// When containerd does not answer or an import fails.
pub fn start_runtime(layout: &Layout, node: &NodeSpec) -> anyhow::Result<()> {
    let home = layout.node(node.name);
    let networks = home.join("cni");
    std::fs::create_dir_all(&networks)?;
    std::fs::write(networks.join("10-pods.conflist"), network(&home, node))?;
    let configuration = home.join("containerd.toml");
    std::fs::write(&configuration, runtime_configuration(&home))?;
    let arguments = ["--config".into(), configuration.display().to_string()];
    processes::start(layout, &format!("containerd-{}", node.name), Path::new("containerd"), &arguments)?;
    wait::until(&format!("containerd of {}", node.name), Duration::from_secs(20), || {
        Ok(match ctr(layout, node.name, &["version"]) {
            Ok(_) => Look::Done(()),
            Err(error) => Look::NotYet(format!("{error:#}")),
        })
    })?;
    images::load_base(layout, node.name)
}

/// Starts the node's kubelet; the Node object follows by itself.
///
/// # Errors
/// When a cgroup or a file cannot be made or the kubelet not be started.
pub fn start_kubelet(layout: &Layout, tools: &Tools, node: &NodeSpec) -> anyhow::Result<()> {
    make_cgroups(node).with_context(|| format!("make cgroups of {}", node.name))?;
    let home = layout.node(node.name);
    let configuration = home.join("kubelet.yaml");
    std::fs::write(&configuration, kubelet_configuration(layout, &home, node))?;
    let arguments = [
        "kubelet".into(),
        format!("--config={}", configuration.display()),
        format!("--kubeconfig={}", layout.kubeconfig(node.name).display()),
        format!("--root-dir={}", home.join("kubelet").display()),
        format!("--cert-dir={}", home.join("pki").display()),
        format!("--hostname-override={}", node.name),
        format!("--node-ip={}", node.address),
    ];
    processes::start(layout, &format!("kubelet-{}", node.name), &tools.kubernetes, &arguments).map(drop)
}

/// Runs `ctr` against a node's containerd.
///
/// # Errors
/// When the command fails.
pub fn ctr(layout: &Layout, node: &str, arguments: &[&str]) -> anyhow::Result<String> {
    command::output(
        Command::new("ctr")
            .arg("--address")
            .arg(layout.containerd_socket(node))
            .args(["--namespace", "k8s.io"])
            .args(arguments)
            .env(crate::layout::MARKER, layout.root()),
    )
}

/// The cgroup hierarchies of this machine: controllers of v1 and the unified one.
#[must_use]
pub fn hierarchies() -> Vec<PathBuf> {
    let entries = std::fs::read_dir(CGROUPS).into_iter().flatten().flatten();
    let mounted: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(|path| path.is_dir()).collect();
    if Path::new(CGROUPS).join("cgroup.controllers").exists() { vec![CGROUPS.into()] } else { mounted }
}

fn make_cgroups(node: &NodeSpec) -> std::io::Result<()> {
    for hierarchy in hierarchies() {
        let mut path = hierarchy.clone();
        for part in node.cgroup_root.split('/').filter(|part| !part.is_empty()) {
            let parent = path.clone();
            path.push(part);
            std::fs::create_dir_all(&path)?;
            // A cpuset of v1 starts empty and refuses processes.
            for file in ["cpuset.cpus", "cpuset.mems"] {
                if hierarchy.ends_with("cpuset") && parent.join(file).exists() {
                    std::fs::write(path.join(file), std::fs::read(parent.join(file))?)?;
                }
            }
        }
    }
    Ok(())
}

/// Each pod on a veth of its own, routed by the host: all pod traffic passes the host's own tables,
/// so that a Service works between pods of one node too.
fn network(home: &Path, node: &NodeSpec) -> String {
    format!(
        r#"{{"cniVersion":"0.4.0","name":"keelson-{}","plugins":[{{"type":"ptp","ipMasq":false,"mtu":1500,
"ipam":{{"type":"host-local","dataDir":"{}/ipam","ranges":[[{{"subnet":"{}"}}]],"routes":[{{"dst":"0.0.0.0/0"}}]}}}}]}}"#,
        node.name,
        home.display(),
        node.pod_subnet()
    )
}

fn runtime_configuration(home: &Path) -> String {
    let home = home.display();
    format!(
        r#"version = 2
root = "{home}/containerd/root"
state = "{home}/containerd/state"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.devmapper"]
[grpc]
  address = "{home}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{home}/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  # Lowering the score needs a capability that root may lack in a virtual machine.
  restrict_oom_score_adj = true
  disable_apparmor = true
  # Network namespaces lie in the state directory, where `down` finds them.
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{home}/cni"
"#
    )
}

fn kubelet_configuration(layout: &Layout, home: &Path, node: &NodeSpec) -> String {
    let (root, home, name) = (layout.root().display(), home.display(), node.name);
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {{enabled: false}}
  webhook: {{enabled: true}}
  x509: {{clientCAFile: {root}/pki/ca.crt}}
authorization: {{mode: Webhook}}
address: {address}
port: 10250
healthzPort: {healthz}
tlsCertFile: {root}/pki/{name}.crt
tlsPrivateKeyFile: {root}/pki/{name}.key
cgroupDriver: cgroupfs
cgroupRoot: {cgroup_root}
failCgroupV1: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix://{home}/containerd.sock
podLogsDir: {home}/pod-logs
volumePluginDir: {home}/volume-plugins
makeIPTablesUtilChains: false
clusterDNS: [\"{DNS_SERVICE}\"]
clusterDomain: cluster.local
failSwapOn: false
evictionHard: {{memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 100
oomScoreAdj: 0
localStorageCapacityIsolation: false
maxPods: 100
shutdownGracePeriod: 0s
",
        address = node.address,
        healthz = 10248 - 100 * u16::from(node.index),
        cgroup_root = node.cgroup_root,
    )
}
