//! The local cluster: up, down, status.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, bail};
use rustix::fs::{FlockOperation, flock};
use serde_json::Value;

use crate::{
    images::{self, Image},
    kubectl::Kubectl,
    paths,
    process::{self, recorded, run, wait_for},
    step::{say, step},
    tools::{self, Tools},
};

pub mod cleanup;
pub mod config;
pub mod control_plane;
pub mod left;
pub mod node;
pub mod pki;

/// Names of the nodes; they share this machine's kernel.
pub const NODES: [&str; 2] = ["node-a", "node-b"];
/// Longest that a part may take to come up on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster that is up.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// Its state, logs and credentials.
    pub state: PathBuf,
    /// The administrator's kubectl.
    pub kubectl: Kubectl,
}

/// Holds the machine for one change of the cluster at a time.
struct Lock {
    _file: fs::File,
}

impl Cluster {
    /// The cluster as it stands in the state directory, up or not.
    ///
    /// # Errors
    /// The programs cannot be had.
    pub fn open() -> anyhow::Result<Self> {
        let tools = tools::ensure()?;
        Ok(Self::of(&tools, &paths::cluster_state()))
    }

    fn of(tools: &Tools, state: &Path) -> Self {
        let kubeconfig = state.join("admin.kubeconfig");
        let program = tools.kubernetes.clone();
        Self { state: state.to_path_buf(), kubectl: Kubectl { program, kubeconfig } }
    }

    /// Starts it, or finds it up; what a crash left behind is cleaned first.
    ///
    /// # Errors
    /// A part does not come up; its log is named.
    pub fn up() -> anyhow::Result<Self> {
        let tools = tools::ensure()?;
        let state = paths::cluster_state();
        let _lock = lock(&state)?;
        let cluster = Self::of(&tools, &state);
        if cluster.is_up() {
            say("the cluster is up");
            return Ok(cluster);
        }
        step("cleaning what an earlier cluster left", || cleanup::down(&state))?;
        match cluster.start(&tools) {
            Ok(()) => Ok(cluster),
            Err(error) => {
                say(&format!("the logs are in {}", state.join("log").display()));
                Err(error)
            }
        }
    }

    fn start(&self, tools: &Tools) -> anyhow::Result<()> {
        let state = &self.state;
        for directory in ["pki", "log", "run", "images"] {
            fs::create_dir_all(state.join(directory))?;
        }
        let address = host_address()?;
        step("certificates", || pki::make(state, &address, &NODES))?;
        step("etcd and the control plane", || {
            control_plane::start(tools, state, &address, &self.kubectl)
        })?;
        step("two nodes", || {
            let base = base_images(state)?;
            for (index, name) in NODES.iter().enumerate() {
                node::start(tools, state, name, index, &address)?;
                self.import(name, &base)?;
            }
            control_plane::start_proxy(tools, state)?;
            for (index, name) in NODES.iter().enumerate() {
                let uid =
                    self.kubectl.wait_for("node Ready", &["node", name], PATIENCE, |node| {
                        condition(node, "Ready", "True")?;
                        node["metadata"]["uid"].as_str().map(String::from).ok_or("no uid".into())
                    })?;
                left::note_node(state, &uid)?;
                // So that a bridge's address is known as its node's.
                let cidr = node::pod_cidr(index);
                let patch = format!(r#"{{"spec":{{"podCIDR":"{cidr}","podCIDRs":["{cidr}"]}}}}"#);
                self.kubectl.run(&["patch", "node", name, "-p", &patch])?;
            }
            Ok(())
        })?;
        step("DNS", || control_plane::start_dns(tools, state, &address, &self.kubectl))
    }

    /// Every process that was started runs, and the API server says it is ready.
    #[must_use]
    pub fn is_up(&self) -> bool {
        let started = recorded(&self.state);
        !started.is_empty()
            && started.iter().all(process::Started::is_running)
            && self.kubectl.run(&["get", "--raw", "/readyz"]).is_ok()
    }

    /// Ends it and leaves nothing behind but logs.
    ///
    /// # Errors
    /// Something does not end.
    pub fn down() -> anyhow::Result<()> {
        let state = paths::cluster_state();
        if !state.exists() {
            return Ok(());
        }
        let _lock = lock(&state)?;
        step("taking the cluster down", || cleanup::down(&state))
    }

    /// One line for each process.
    #[must_use]
    pub fn status(&self) -> String {
        let mut started = recorded(&self.state);
        started.sort_by(|a, b| a.name.cmp(&b.name));
        let line = |process: &process::Started| {
            let word = if process.is_running() { "running" } else { "ended" };
            format!("{:<20} {:>8} {word}", process.name, process.pid)
        };
        let lines: Vec<String> = started.iter().map(line).collect();
        let word = if self.is_up() { "up" } else { "down" };
        format!("cluster {word}, state in {}\n{}", self.state.display(), lines.join("\n"))
    }

    /// Imports images into every node, those only that changed; gives their names.
    ///
    /// # Errors
    /// An archive cannot be written or imported.
    pub fn load(&self, images: &[Image]) -> anyhow::Result<Vec<String>> {
        step("importing images", || {
            let mut changed = Vec::new();
            for node in NODES {
                changed.extend(self.import(node, images)?);
            }
            Ok(changed)
        })
    }

    fn import(&self, node: &str, images: &[Image]) -> anyhow::Result<Vec<String>> {
        let mut changed = Vec::new();
        for image in images {
            let file = image.name.replace(['/', ':'], "_");
            let archive = self.state.join("images").join(format!("{file}.tar"));
            let digest = images::write_archive(image, &archive)?;
            let mark = self.state.join(node).join(format!("{file}.digest"));
            if fs::read_to_string(&mark).is_ok_and(|held| held == digest) {
                continue;
            }
            let socket = node::socket(&self.state, node);
            let archive = archive.to_string_lossy().into_owned();
            run("ctr", &["-a", &socket, "-n", "k8s.io", "images", "import", &archive])?;
            fs::write(mark, digest)?;
            changed.push(image.name.clone());
        }
        Ok(changed)
    }

    /// Id of a process of a pod, for its network namespace.
    ///
    /// # Errors
    /// The pod has no process here.
    pub fn pod_process(&self, uid: &str) -> anyhow::Result<i32> {
        let first = self.pod_processes(uid)?.first().map(|(pid, _)| *pid);
        first.with_context(|| format!("no process of pod {uid} on this machine"))
    }

    /// Ids and names (as the kernel cuts them, 15 bytes) of a pod's processes on this machine.
    ///
    /// # Errors
    /// `/proc` cannot be read.
    pub fn pod_processes(&self, uid: &str) -> anyhow::Result<Vec<(i32, String)>> {
        let needle = format!("pod{uid}");
        let process = |entry: fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let groups = fs::read_to_string(entry.path().join("cgroup")).ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?;
            groups.contains(&needle).then(|| (pid, name.trim().to_owned()))
        };
        Ok(fs::read_dir("/proc")?.flatten().filter_map(process).collect())
    }
}

/// Whether an object has a condition with that status.
///
/// # Errors
/// It has not; what it has is the error.
pub fn condition(object: &Value, kind: &str, status: &str) -> Result<(), String> {
    let conditions = object["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let found = conditions.iter().find(|condition| condition["type"] == kind);
    match found {
        Some(found) if found["status"] == status => Ok(()),
        Some(found) => Err(found.to_string()),
        None => Err(format!("no condition {kind}")),
    }
}

fn base_images(state: &Path) -> anyhow::Result<Vec<Image>> {
    let pause = state.join("images/pause");
    let source = paths::tree().join("hack/pause.c");
    let (from, to) = (source.to_string_lossy(), pause.to_string_lossy());
    run("gcc", &["-static", "-Os", "-o", &to, &from])?;
    let links = ["sh", "sleep", "wget", "nc", "cat", "ls", "ip", "httpd", "nslookup"];
    Ok(vec![
        Image {
            name: "localhost/pause:1".into(),
            entrypoint: vec!["/pause".into()],
            files: vec![("/pause".into(), pause)],
            links: Vec::new(),
        },
        Image {
            name: "localhost/busybox:1".into(),
            entrypoint: ["/bin/busybox", "sleep", "infinity"].map(String::from).into(),
            files: vec![("/bin/busybox".into(), "/bin/busybox".into())],
            links: links.map(|name| (format!("/bin/{name}"), "busybox".into())).into(),
        },
    ])
}

/// The machine's own address: the source of its default route.
fn host_address() -> anyhow::Result<String> {
    let addresses = run("hostname", &["-I"])?;
    let first = addresses.split_whitespace().next();
    first.map(String::from).context("this machine has no address besides loopback")
}

/// One for the machine, whatever the state directory: ports, cgroups and nft tables are shared.
pub const LOCK: &str = "/run/lock/keelson-cluster.lock";

fn lock(state: &Path) -> anyhow::Result<Lock> {
    fs::create_dir_all(state)?;
    fs::create_dir_all("/run/lock")?;
    let path = Path::new(LOCK);
    let file =
        fs::File::options().create(true).truncate(false).read(true).write(true).open(path)?;
    let owner = fs::read_to_string(path).unwrap_or_default();
    if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
        bail!("the cluster is being changed by {}; wait for it", owner.trim());
    }
    // A cluster of another state directory that still runs is another's: never torn down.
    let held_by = owner.split(" for ").nth(1).map(|other| PathBuf::from(other.trim()));
    if let Some(other) = held_by.filter(|other| other != state)
        && !process::marked(&other).is_empty()
    {
        let other = other.display();
        bail!("this machine runs another cluster, with its state in {other}; take that down first");
    }
    let now = jiff::Zoned::now();
    let owner = format!("process {} since {now} for {}", std::process::id(), state.display());
    fs::write(path, owner)?;
    Ok(Lock { _file: file })
}

/// Waits for a file, a socket most often.
pub(crate) fn wait_for_path(path: &Path) -> anyhow::Result<()> {
    wait_for(&path.display().to_string(), PATIENCE, || {
        if path.exists() { Ok(()) } else { Err("it is not there".to_owned()) }
    })
}
