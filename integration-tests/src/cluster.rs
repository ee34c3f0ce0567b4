//! The local cluster as one value: up, down, kubectl, and waiting for what it should become.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use serde_json::Value;

use crate::layout::{Layout, NODES};
use crate::lock::Lock;
use crate::toolcache::Tools;
use crate::wait::{self, Look};
use crate::{audit, cleanup, command, control_plane, host, images, interrupt, node, pki, pod, processes, progress};

/// Longest wait for one part of the cluster to start; two busy cores need a third of it.
const START: Duration = Duration::from_secs(90);

/// Whether `up` had to do anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Started {
    /// It started the cluster.
    Now,
    /// It found it running.
    Before,
}

/// A running cluster. While a value from [`Cluster::up`] lives, the machine's lock is held.
#[derive(Debug)]
pub struct Cluster {
    layout: Layout,
    tools: Tools,
    _lock: Option<Lock>,
}

// === impl Cluster ===

impl Cluster {
    /// Starts the user's cluster, or takes the running one, and locks it for `purpose`.
    ///
    /// # Errors
    /// When another process holds the lock, something needed is missing, or a part does not start;
    /// in the last case nothing is left but the logs.
    pub fn up(purpose: &str) -> anyhow::Result<(Self, Started)> {
        Self::up_at(Layout::of_user(), purpose)
    }

    /// As [`Cluster::up`], in another state directory.
    ///
    /// # Errors
    /// As [`Cluster::up`].
    pub fn up_at(layout: Layout, purpose: &str) -> anyhow::Result<(Self, Started)> {
        let lock = Lock::take(purpose)?;
        lock.claim(layout.root())?;
        let cluster = Self { layout, tools: Tools::ensure()?, _lock: Some(lock) };
        if cluster.check().is_ok() {
            return Ok((cluster, Started::Before));
        }
        if !cleanup::leftovers(&cluster.layout).is_empty() {
            progress::say("  cleaning what an earlier cluster left");
        }
        cleanup::sweep(&cluster.layout)?;
        if let Err(error) = cluster.start() {
            interrupt::clear();
            if let Err(left) = cleanup::sweep(&cluster.layout) {
                progress::say(&format!("  {left:#}"));
            }
            return Err(error.context(format!("start the cluster; logs are in {}", cluster.layout.logs().display())));
        }
        Ok((cluster, Started::Now))
    }

    /// The user's running cluster, without the lock: to look, not to change.
    ///
    /// # Errors
    /// When it does not run.
    pub fn attach() -> anyhow::Result<Self> {
        let cluster = Self { layout: Layout::of_user(), tools: Tools::ensure()?, _lock: None };
        cluster.check().context("no cluster runs; start one with `./justw cluster up`")?;
        Ok(cluster)
    }

    /// Ends the cluster of `layout`, whoever started it and however far it got.
    ///
    /// # Errors
    /// When another process uses it or something is left.
    pub fn down(layout: &Layout) -> anyhow::Result<()> {
        let lock = Lock::take("cluster down")?;
        progress::step("cluster down", || cleanup::sweep(layout))?;
        lock.release(layout.root());
        Ok(())
    }

    /// Where its files lie.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The administrator's kubeconfig.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.layout.kubeconfig("admin")
    }

    /// A kubectl command of the administrator, to be run as the caller likes.
    #[must_use]
    pub fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.tools.kubernetes);
        command.arg("kubectl").arg("--kubeconfig").arg(self.kubeconfig()).args(arguments);
        command
    }

    /// Runs kubectl and returns what it prints.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<String> {
        command::output(&mut self.kubectl_command(arguments))
    }

    /// Runs kubectl with `-o json` and returns the object.
    ///
    /// # Errors
    /// When it fails or prints no JSON.
    pub fn json(&self, arguments: &[&str]) -> anyhow::Result<Value> {
        let printed = command::output(self.kubectl_command(arguments).args(["-o", "json"]))?;
        serde_json::from_str(&printed).context("read kubectl's JSON")
    }

    /// Applies objects given as YAML, by server-side apply.
    ///
    /// # Errors
    /// When the API server refuses one.
    pub fn apply(&self, yaml: &str) -> anyhow::Result<()> {
        let mut command = self.kubectl_command(&["apply", "--server-side", "--force-conflicts", "-f", "-"]);
        command::output_of_input(&mut command, yaml).map(drop)
    }

    /// Deletes objects given as YAML and waits until they are gone; absent ones are fine.
    ///
    /// # Errors
    /// When the API server refuses or they stay.
    pub fn delete(&self, yaml: &str) -> anyhow::Result<()> {
        let mut command = self.kubectl_command(&["delete", "--ignore-not-found", "--timeout=60s", "-f", "-"]);
        command::output_of_input(&mut command, yaml).map(drop)
    }

    /// Waits until the object of `arguments` (as in [`Cluster::json`]) satisfies `holds`, which says in
    /// words what is missing; returns the object.
    ///
    /// # Errors
    /// After `patience`, with the last state.
    pub fn wait_for(
        &self,
        what: &str,
        patience: Duration,
        arguments: &[&str],
        mut holds: impl FnMut(&Value) -> Result<(), String>,
    ) -> anyhow::Result<Value> {
        wait::until(what, patience, || {
            Ok(match self.json(arguments) {
                Ok(object) => match holds(&object) {
                    Ok(()) => Look::Done(object),
                    Err(last) => Look::NotYet(last),
                },
                Err(error) => Look::NotYet(format!("{error:#}")),
            })
        })
    }

    /// The pods of a namespace that match a label selector, with their host processes.
    ///
    /// # Errors
    /// When kubectl or the runtime fails.
    pub fn pods(&self, namespace: &str, selector: &str) -> anyhow::Result<Vec<pod::Pod>> {
        pod::list(self, namespace, selector)
    }

    /// What the API server has logged of writes and reviews, the oldest first.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn audit(&self) -> anyhow::Result<Vec<audit::Event>> {
        audit::read(&self.layout.audit_log())
    }

    /// Imports the built images into the nodes.
    ///
    /// # Errors
    /// When an import fails.
    pub fn load_images(&self) -> anyhow::Result<()> {
        images::load(&self.layout)
    }

    /// Succeeds when every process runs and every node is Ready.
    ///
    /// # Errors
    /// Saying what is not as it should be.
    pub fn check(&self) -> anyhow::Result<()> {
        let running: BTreeSet<String> = processes::recorded(&self.layout)
            .into_iter()
            .filter(|record| record.id.is_alive())
            .map(|record| record.name)
            .collect();
        let dead: Vec<String> = expected_processes().into_iter().filter(|name| !running.contains(name)).collect();
        if !dead.is_empty() {
            bail!("not running: {}", dead.join(", "));
        }
        let nodes = self.json(&["get", "nodes", "--request-timeout=5s"])?;
        unready_nodes(&nodes).map_or(Ok(()), |names| Err(anyhow!("nodes not ready: {names}")))
    }

    fn start(&self) -> anyhow::Result<()> {
        let Self { layout, tools, _lock } = self;
        for directory in [layout.logs(), layout.run()] {
            std::fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
        }
        let _ = std::fs::remove_file(layout.audit_log());
        host::prepare(layout)?;
        pki::write(layout)?;
        control_plane::start_api_server(layout, tools)?;
        // The API server takes its time; the runtimes start meanwhile.
        progress::step("start both container runtimes", || {
            NODES.iter().try_for_each(|node| node::start_runtime(layout, node))
        })?;
        progress::step("API server ready", || {
            wait::until("the API server", START, || {
                Ok(match self.kubectl(&["get", "--raw", "/readyz"]) {
                    Ok(_) => Look::Done(()),
                    Err(error) => Look::NotYet(format!("{error:#}")),
                })
            })
        })?;
        control_plane::start_controllers(layout, tools)?;
        NODES.iter().try_for_each(|node| node::start_kubelet(layout, tools, node))?;
        self.apply(&control_plane::dns_objects())?;
        progress::step("nodes ready", || {
            self.wait_for("both nodes Ready", START, &["get", "nodes"], |nodes| {
                unready_nodes(nodes).map_or(Ok(()), |names| Err(format!("not ready: {names}")))
            })
        })?;
        // Pods are refused until the controller manager has made it.
        let account = ["get", "serviceaccount", "default", "--namespace", "default"];
        self.wait_for("the default ServiceAccount", START, &account, |_| Ok(())).map(drop)
    }
}

fn expected_processes() -> Vec<String> {
    let mut names: Vec<String> =
        ["etcd", "apiserver", "controller-manager", "scheduler", "proxy", "coredns"].map(String::from).to_vec();
    for node in NODES {
        names.extend([format!("containerd-{}", node.name), format!("kubelet-{}", node.name)]);
    }
    names
}

/// The nodes that are missing or not Ready, joined, or nothing.
fn unready_nodes(list: &Value) -> Option<String> {
    let is_ready = |name: &str| {
        list["items"].as_array().into_iter().flatten().any(|node| {
            let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
            node["metadata"]["name"] == name
                && conditions.into_iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
        })
    };
    let names: Vec<&str> = NODES.iter().map(|node| node.name).filter(|name| !is_ready(name)).collect();
    (!names.is_empty()).then(|| names.join(", "))
}
