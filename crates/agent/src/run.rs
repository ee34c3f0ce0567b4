//! Wires the parts into a process.

use std::sync::Arc;

use anyhow::Context;
use k8s_openapi::api::core::v1::Node;
use keelson_model::{BootNanos, Epoch, UnixNanos, WINDOW_SECONDS, coverage::Interval};
use keelson_probes::{Scope, TcpProbeConfig};
use keelson_proto::telemetry::Hello;
use keelson_runtime::{
    VERSION,
    admin::{self, Readiness},
    clock::{Clock, SystemClock},
    logs,
    shutdown::Shutdown,
    tasks::Tasks,
    tls::ClientTls,
};
use kube::{Api, Client};
use prometheus_client::registry::Registry;
use tokio::sync::mpsc;

use crate::{
    args::{AgentArgs, threshold},
    cgroup::{CgroupIndex, walk},
    export::{
        outbox::Outbox,
        stream::{Exporter, SharedOutbox},
    },
    metrics::Metrics,
    pods::watch::{self, SharedPods},
    source::{Events, KernelSource, NoSource, Source},
    windows::{Windows, read_clocks},
};

/// Runs the agent until a signal comes.
///
/// # Errors
/// What it needs is missing; the message names the remedy.
pub async fn run(args: AgentArgs) -> anyhow::Result<()> {
    logs::init(&args.logs)?;
    let client = keelson_cluster::client().await.context("no way to the API server")?;
    let node_uid = node_uid(&client, &args.node_name).await?;
    let mount = walk::find_mount(&args.cgroup_root)?;
    let tree = walk::find_pod_tree(&mount, &args.pod_uid.as_str().into())?;
    tracing::info!(path = %tree.path.display(), cgroup = tree.id.0, "found this node's pods");
    let probe = TcpProbeConfig {
        scope: Scope::Below { root: tree.id, level: tree.level },
        btf: args.btf.clone(),
        pin_dir: args.bpffs.as_ref().map(|bpffs| bpffs.join("keelson").join(&node_uid)),
        sampling_threshold: threshold(args.sample),
        slow_us: args.slow_ms.saturating_mul(1000),
        unix_minus_boot_ns: read_clocks().unix_minus_boot_ns,
        ..TcpProbeConfig::default()
    };
    let kernel = start_source(&probe)?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    // After the probe: a cgroup made meanwhile is an event, or found here, or both.
    let mut cgroups = CgroupIndex::default();
    walk::fill(&mut cgroups, &tree, UnixNanos(clock.unix_ns()))?;

    let (metrics, readiness) = (Metrics::default(), Readiness::default());
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let inherited = kernel.source.ledger()?;
    let pods = SharedPods::default();
    let outbox = Arc::new(SharedOutbox::new(Outbox::after(&inherited)));
    let mut tasks = Tasks::new(Shutdown::new());
    let shutdown = tasks.shutdown();
    let exporter = exporter(&args, node_uid, kernel.epoch, &outbox, &clock, &metrics, &readiness)?;
    let windows = Windows {
        source: kernel.source,
        events: kernel.events,
        cgroups,
        tree,
        pods: pods.clone(),
        outbox,
        blind: kernel.blind,
        clock: Arc::clone(&clock),
        metrics,
    };
    let node = args.node_name.as_str().into();
    tasks.spawn("admin", admin::serve(args.admin, registry, readiness, shutdown.clone()));
    tasks.spawn("pods", watch::run(client, node, pods, clock, shutdown.clone()));
    tasks.spawn("windows", windows.run(shutdown.clone()));
    tasks.spawn("export", exporter.run(shutdown));
    Ok(tasks.run().await?)
}

struct Kernel {
    source: Box<dyn Source>,
    events: Events,
    epoch: Epoch,
    blind: Option<Interval>,
}

/// The kernel's source; where no program can run, one that says so.
fn start_source(config: &TcpProbeConfig) -> anyhow::Result<Kernel> {
    match KernelSource::start(config) {
        Ok((source, events)) => {
            let missing = source.reasons();
            tracing::info!(epoch = source.epoch().0, ?missing, "the kernel programs run");
            let (epoch, blind) = (source.epoch(), source.seen_before().map(blind_since));
            Ok(Kernel { source: Box::new(source), events, epoch, blind })
        }
        Err(error) => {
            let source = NoSource::of(&error);
            let source = source.ok_or(error).context("the kernel programs cannot be used")?;
            let reason = source.programs().pop().map(|status| status.reason);
            tracing::error!(reason, "no kernel program runs; this node is not covered");
            let (_, events) = mpsc::channel(1);
            Ok(Kernel { source: Box::new(source), events, epoch: Epoch(0), blind: None })
        }
    }
}

fn blind_since(seen: BootNanos) -> Interval {
    let clocks = read_clocks();
    Interval { from: clocks.to_unix(seen), to: UnixNanos(clocks.unix.0) }
}

async fn node_uid(client: &Client, node: &str) -> anyhow::Result<String> {
    let nodes: Api<Node> = Api::all(client.clone());
    let found = nodes.get_metadata(node).await.with_context(|| {
        format!("cannot get Node {node}: the agent's ServiceAccount needs the verb get on nodes")
    })?;
    found.metadata.uid.with_context(|| format!("Node {node} has no uid"))
}

fn exporter(
    args: &AgentArgs,
    node_uid: String,
    epoch: Epoch,
    outbox: &Arc<SharedOutbox>,
    clock: &Arc<dyn Clock>,
    metrics: &Metrics,
    readiness: &Readiness,
) -> anyhow::Result<Exporter> {
    let read = |path: &str| {
        let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {path}"))?;
        anyhow::Ok(text.trim().to_owned())
    };
    let hello = Hello {
        agent_version: VERSION.to_owned(),
        node_name: args.node_name.clone(),
        node_uid,
        agent_pod_uid: args.pod_uid.clone(),
        boot_id: read("/proc/sys/kernel/random/boot_id")?,
        epoch: epoch.0,
        window_seconds: u32::try_from(WINDOW_SECONDS)?,
        kernel_release: read("/proc/sys/kernel/osrelease")?,
    };
    let (gauge, condition) = (metrics.connected.clone(), readiness.condition("collector"));
    let connected = move |is_connected: bool| {
        gauge.set(is_connected.into());
        // A new agent that cannot reach it stops a rollout; one that loses it later is not at fault.
        if is_connected {
            condition.set(true);
        }
    };
    Ok(Exporter {
        collector: ClientTls {
            address: args.collector.clone(),
            authority: args.ca.clone(),
            server_name: None,
        },
        token: args.token.clone(),
        hello,
        outbox: Arc::clone(outbox),
        clock: Arc::clone(clock),
        connected: Box::new(connected),
    })
}
