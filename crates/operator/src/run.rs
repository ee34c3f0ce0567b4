//! Wires the parts into a process.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use jiff::Timestamp;
use keelson_api::Application;
use keelson_cluster::{
    NAMESPACE,
    lease::{Election, Leadership},
    pki,
};
use keelson_runtime::{
    admin::{self, Readiness},
    clock::{Clock, SystemClock},
    logs,
    shutdown::Shutdown,
    tasks::Tasks,
    tls::ClientTls,
};
use kube::{Api, Client, api::ListParams};
use prometheus_client::registry::Registry;

use crate::{
    args::OperatorArgs,
    caches::Caches,
    engine::Engine,
    evidence::stream::{EvidenceSource, SharedEvidence},
    metrics::Metrics,
};

/// The Lease of the leader.
const LEASE: &str = "keelson-operator";
/// How often certificates are looked at.
const PKI_EVERY: Duration = Duration::from_secs(60 * 60);
/// And after a failure.
const PKI_RETRY: Duration = Duration::from_secs(5);

/// Runs the operator until a signal comes.
///
/// # Errors
/// What it needs is missing; the message names the remedy.
pub async fn run(args: OperatorArgs) -> anyhow::Result<()> {
    logs::init(&args.logs)?;
    let config = keelson_cluster::config().await.context("no way to the API server")?;
    let unfenced = Client::try_from(config.clone()).context("no way to the API server")?;
    let election = Election::new(unfenced, NAMESPACE, LEASE, args.pod_name);
    let leadership = election.leadership();
    // All but the lease itself is written by this one, so that nothing is while another leads.
    let client = leadership.fenced(config).context("no way to the API server")?;
    check_crd(&client).await?;
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let (metrics, readiness) = (Metrics::new(clock.unix_ns()), Readiness::default());
    let mut registry = Registry::default();
    metrics.register(&mut registry);
    let mut tasks = Tasks::new(Shutdown::new());
    let shutdown = tasks.shutdown();
    let certificates = readiness.condition("certificates");
    let synced = readiness.condition("caches");
    tasks.spawn("admin", admin::serve(args.admin, registry, readiness, shutdown.clone()));
    let authority = args.run.join("ca.crt");
    let keeper =
        Keeper { client: client.clone(), file: authority.clone(), leadership: leadership.clone() };
    tasks.spawn("certificates", keeper.run(certificates, shutdown.clone()));

    let (caches, watches) = Caches::new(&client, &shutdown);
    for (name, watch) in watches {
        tasks.spawn(name, watch);
    }
    let evidence = Arc::new(SharedEvidence::default());
    let source = EvidenceSource {
        collector: ClientTls { address: args.collector, authority, server_name: None },
        token: args.token,
        evidence: Arc::clone(&evidence),
        clock: Arc::clone(&clock),
        metrics: metrics.clone(),
    };
    tasks.spawn("evidence", source.run(shutdown.clone()));
    let engine = Engine { client, caches, evidence, clock, metrics, synced, leadership };
    // The lease is given up when what leads has ended, not before.
    let led = Shutdown::new();
    tasks.spawn("election", election.run(led.clone()));
    tasks.spawn("engine", async move {
        let ended = engine.run(shutdown).await;
        led.cancel();
        ended
    });
    Ok(tasks.run().await?)
}

/// Without its resource the operator has nothing to do: better said at once than by a watch that
/// fails forever.
async fn check_crd(client: &Client) -> anyhow::Result<()> {
    let applications: Api<Application> = Api::all(client.clone());
    match applications.list_metadata(&ListParams::default().limit(1)).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => bail!(
            "the cluster does not know applications.keelson.dev: install the CRDs (kubectl apply -k deploy/crds) and start again"
        ),
        Err(error) => Err(error).context("cannot list applications.keelson.dev"),
    }
}

/// Keeps the authority's certificate at hand for the own client; the leader makes and renews it.
struct Keeper {
    client: Client,
    file: PathBuf,
    leadership: Leadership,
}

impl Keeper {
    async fn run(self, ready: admin::Condition, shutdown: Shutdown) -> anyhow::Result<()> {
        loop {
            let is_leader = self.leadership.leads();
            let certificate = if is_leader {
                pki::ensure(&self.client, Timestamp::now()).await.map(Some)
            } else {
                pki::published(&self.client).await
            };
            let wait = match certificate {
                Ok(Some(certificate)) => {
                    std::fs::write(&self.file, certificate).with_context(|| {
                        let file = self.file.display();
                        format!("cannot write {file}; is it a directory of our own?")
                    })?;
                    ready.set(true);
                    PKI_EVERY
                }
                Ok(None) => PKI_RETRY,
                Err(error) => {
                    tracing::warn!(error = logs::chain(&error), "cannot keep the certificates");
                    PKI_RETRY
                }
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                // What the leader before us left undone is ours to do now.
                () = self.leadership.gained(), if !is_leader => {}
                () = shutdown.cancelled() => return Ok(()),
            }
        }
    }
}
