//! A node: containerd and a kubelet with a pod network, ports and a cgroup root of their own.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    config::{DNS_ADDRESS, PODS},
    wait_for_path,
};
use crate::{
    process::{run, start as start_process},
    tools::Tools,
};

/// Directory of the host's cgroup v1 controllers and, on hybrid hosts, of the v2 tree.
pub const CGROUPS: &str = "/sys/fs/cgroup";

/// Where the node's containerd listens.
#[must_use]
pub fn socket(state: &Path, name: &str) -> String {
    state.join(name).join("containerd.sock").to_string_lossy().into_owned()
}

/// The node's part of the pods' addresses.
#[must_use]
pub fn pod_cidr(index: usize) -> String {
    PODS.replace(".0.0/16", &format!(".{index}.0/24"))
}

/// Name of the node's bridge.
#[must_use]
pub fn bridge(index: usize) -> String {
    format!("pods{index}")
}

/// Starts containerd and then the kubelet.
///
/// # Errors
/// One of them does not come up.
pub fn start(
    tools: &Tools,
    state: &Path,
    name: &str,
    index: usize,
    address: &str,
) -> anyhow::Result<()> {
    prepare_host()?;
    let directory = state.join(name);
    fs::create_dir_all(directory.join("cni"))?;
    let subnet = pod_cidr(index);
    fs::write(directory.join("cni/10-bridge.conflist"), cni(name, index, &subnet, &directory))?;
    fs::write(directory.join("containerd.toml"), containerd(&directory))?;
    let root = if index == 0 { "/".to_owned() } else { format!("/{name}") };
    if index != 0 {
        make_cgroup_root(name)?;
    }
    let kubelet = kubelet(state, name, index, address, &root);
    fs::write(directory.join("kubelet.yaml"), kubelet)?;

    let config = directory.join("containerd.toml").to_string_lossy().into_owned();
    let line = ["containerd".to_owned(), "-c".into(), config];
    start_process(state, &format!("containerd-{name}"), &line)?;
    wait_for_path(&PathBuf::from(socket(state, name)))?;
    let path = |file: &str| directory.join(file).to_string_lossy().into_owned();
    let line = [
        tools.kubernetes.to_string_lossy().into_owned(),
        "kubelet".into(),
        format!("--config={}", path("kubelet.yaml")),
        format!("--kubeconfig={}", state.join(format!("{name}.kubeconfig")).display()),
        format!("--root-dir={}", path("kubelet")),
        format!("--cert-dir={}", path("pki")),
        format!("--hostname-override={name}"),
        format!("--node-ip={address}"),
    ];
    start_process(state, &format!("kubelet-{name}"), &line).map(|_| ())
}

/// What pods and probes need of the host.
fn prepare_host() -> anyhow::Result<()> {
    run("sysctl", &["-qw", "net.ipv4.ip_forward=1"])?;
    if run("mountpoint", &["-q", "/run/netns"]).is_err() {
        // The first `ip netns add` mounts the directory over itself: done later, it would hide the
        // pods' namespaces that lie there by then, and nobody could remove them.
        run("ip", &["netns", "add", "keelson-first"])?;
        run("ip", &["netns", "del", "keelson-first"])?;
    }
    for (kind, path) in [("bpf", "/sys/fs/bpf"), ("tracefs", "/sys/kernel/tracing")] {
        if run("mountpoint", &["-q", path]).is_err() {
            run("mount", &["-t", kind, kind, path])?;
        }
    }
    Ok(())
}

/// A second kubelet needs a cgroup root beside the first one's, in every hierarchy.
fn make_cgroup_root(name: &str) -> anyhow::Result<()> {
    for hierarchy in fs::read_dir(CGROUPS)?.flatten() {
        let root = hierarchy.path().join(name);
        // A file, or a link to a hierarchy that was done already.
        let _ = fs::create_dir(&root);
    }
    // A new cpuset is empty, and then no task may enter.
    let cpuset = Path::new(CGROUPS).join("cpuset");
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if let Ok(all) = fs::read_to_string(cpuset.join(file)) {
            fs::write(cpuset.join(name).join(file), all.trim())?;
        }
    }
    Ok(())
}

fn cni(name: &str, index: usize, subnet: &str, directory: &Path) -> String {
    let (data, bridge) = (directory.join("ipam"), bridge(index));
    let data = data.display();
    format!(
        r#"{{"cniVersion":"0.4.0","name":"{name}","plugins":[{{"type":"bridge","bridge":"{bridge}","isGateway":true,"ipMasq":false,"hairpinMode":true,"ipam":{{"type":"host-local","dataDir":"{data}","ranges":[[{{"subnet":"{subnet}"}}]],"routes":[{{"dst":"0.0.0.0/0"}}]}}}},{{"type":"portmap","capabilities":{{"portMappings":true}}}}]}}
"#
    )
}

fn containerd(directory: &Path) -> String {
    let directory = directory.display();
    format!(
        r#"version = 2
root = "{directory}/containerd/root"
state = "{directory}/containerd/state"
[grpc]
  address = "{directory}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/pause:1"
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{directory}/cni"
"#
    )
}

fn kubelet(state: &Path, name: &str, index: usize, address: &str, root: &str) -> String {
    let (port, health) = (10250 + 10 * index, 10248 + 10 * index);
    let pki = state.join("pki");
    let (pki, directory) = (pki.display(), state.join(name));
    let directory = directory.display();
    format!(
        "apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {{anonymous: {{enabled: false}}, webhook: {{enabled: true}}, x509: {{clientCAFile: {pki}/ca.crt}}}}
authorization: {{mode: Webhook}}
address: {address}
port: {port}
healthzPort: {health}
tlsCertFile: {pki}/{name}.crt
tlsPrivateKeyFile: {pki}/{name}.key
cgroupDriver: cgroupfs
cgroupRoot: {root}
failCgroupV1: false
enforceNodeAllocatable: []
containerRuntimeEndpoint: unix://{directory}/containerd.sock
# Each kubelet removes what it does not know from the common default directory.
podLogsDir: {directory}/pod-logs
clusterDNS: [{DNS_ADDRESS}]
clusterDomain: cluster.local
failSwapOn: false
# Chains in the host's own iptables, which a kubelet never takes away; kube-proxy needs none here.
makeIPTablesUtilChains: false
evictionHard: {{memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}}
imageGCHighThresholdPercent: 100
oomScoreAdj: 0
localStorageCapacityIsolation: false
"
    )
}
