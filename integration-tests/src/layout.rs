//! Where everything of the local cluster lies, and every name and number it takes on this machine.
//!
//! `up` and `down` share nothing else: a crashed `up` can be cleaned from the state directory and
//! these constants alone. Nothing here touches the machine.

use std::path::{Path, PathBuf};

/// The nodes, all on this one kernel.
pub const NODES: [NodeSpec; 2] = [
    // The usual place of pods, `/kubepods`, and one further down: agents must find either.
    NodeSpec { name: "node-a", index: 0, address: "10.245.0.1", cgroup_root: "/" },
    NodeSpec { name: "node-b", index: 1, address: "10.245.0.2", cgroup_root: "/keelson/node-b" },
];
/// The link that carries the nodes' own addresses, so that nothing depends on the machine's network.
pub const NODE_LINK: &str = "keelson-nodes";
/// Address of the API server and of the cluster's DNS server, which run on the first node.
pub const CONTROL_ADDRESS: &str = NODES[0].address;
/// Port of the API server on [`CONTROL_ADDRESS`].
pub const API_PORT: u16 = 26443;
/// Client port of etcd on the loopback.
pub const ETCD_PORT: u16 = 23790;
/// Port of the DNS server on [`CONTROL_ADDRESS`].
pub const DNS_PORT: u16 = 10053;
/// Range of the Services' addresses.
pub const SERVICE_RANGE: &str = "10.96.0.0/16";
/// Address of the API server as pods see it: the first of [`SERVICE_RANGE`].
pub const API_SERVICE: &str = "10.96.0.1";
/// Address of DNS as pods see it.
pub const DNS_SERVICE: &str = "10.96.0.10";
/// Range of all pods; each node has a /24 of it.
pub const POD_RANGE: &str = "10.244.0.0/16";
/// The tables that kube-proxy makes, as (family, name).
pub const NFT_TABLES: [(&str, &str); 2] = [("ip", "kube-proxy"), ("ip6", "kube-proxy")];
/// Root of the cgroup hierarchies.
pub const CGROUPS: &str = "/sys/fs/cgroup";
/// Variable that marks every process of a cluster with its state directory.
pub const MARKER: &str = "KEELSON_CLUSTER_STATE";

/// What distinguishes one node from the other.
#[derive(Debug, Clone, Copy)]
pub struct NodeSpec {
    /// Name of the Node object.
    pub name: &'static str,
    /// Position, which numbers ports and the pod subnet.
    pub index: u8,
    /// The node's own address on [`NODE_LINK`].
    pub address: &'static str,
    /// Cgroup under which this node's `kubepods` lies.
    pub cgroup_root: &'static str,
}

impl NodeSpec {
    /// Range of this node's pods.
    #[must_use]
    pub fn pod_subnet(&self) -> String {
        format!("10.244.{}.0/24", self.index)
    }

    /// Cgroup of all pods of this node, relative to a hierarchy's root.
    #[must_use]
    pub fn kubepods(&self) -> String {
        format!("{}/kubepods", self.cgroup_root.trim_end_matches('/'))
    }
}

/// Paths within one state directory.
#[derive(Debug, Clone)]
pub struct Layout {
    root: PathBuf,
}

// === impl Layout ===

impl Layout {
    /// The layout below `root`, an absolute path.
    #[must_use]
    pub fn new(root: PathBuf) -> Self {
        Self { root }
    }

    /// The cluster of this user: `$KEELSON_CACHE/cluster`.
    #[must_use]
    pub fn of_user() -> Self {
        Self::new(cache_dir().join("cluster"))
    }

    /// The state directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Logs; they outlive `down`.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.root.join("log")
    }

    /// The API server's audit log.
    #[must_use]
    pub fn audit_log(&self) -> PathBuf {
        self.logs().join("audit.log")
    }

    /// One record for each started process.
    #[must_use]
    pub fn run(&self) -> PathBuf {
        self.root.join("run")
    }

    /// What the host was like before `up`.
    #[must_use]
    pub fn host(&self) -> PathBuf {
        self.root.join("host.json")
    }

    /// A file of the certificates' directory.
    #[must_use]
    pub fn pki(&self, file: &str) -> PathBuf {
        self.root.join("pki").join(file)
    }

    /// The kubeconfig of `user`, such as `admin`.
    #[must_use]
    pub fn kubeconfig(&self, user: &str) -> PathBuf {
        self.root.join(format!("{user}.kubeconfig"))
    }

    /// Everything of one node.
    #[must_use]
    pub fn node(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The socket of a node's containerd.
    #[must_use]
    pub fn containerd_socket(&self, node: &str) -> PathBuf {
        self.node(node).join("containerd.sock")
    }
}

/// The cache for tools, build tree and clusters: `$KEELSON_CACHE`, else `~/.cache/keelson`.
#[must_use]
pub fn cache_dir() -> PathBuf {
    let home = || std::env::var_os("HOME").map_or_else(|| PathBuf::from("/root"), PathBuf::from);
    std::env::var_os("KEELSON_CACHE").map_or_else(|| home().join(".cache/keelson"), PathBuf::from)
}

/// The build tree of cargo: `$CARGO_TARGET_DIR`, else in the cache.
#[must_use]
pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| cache_dir().join("target"), PathBuf::from)
}

/// The top of the source tree.
#[must_use]
pub fn source_dir() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}
