//! Wires the parts into a process.

use std::{path::PathBuf, sync::Arc, time::Duration};

use anyhow::{Context, bail};
use jiff::Timestamp;
use keelson_api::Application;
use keelson_cluster::pki;
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
    let client = keelson_cluster::client().await.context("no way to the API server")?;
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
        keep_certificates(client.clone(), authority.clone(), certificates, shutdown.clone());
    tasks.spawn("certificates", keeper);

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
    let engine = Engine { client, caches, evidence, clock, metrics, synced };
    tasks.spawn("engine", engine.run(shutdown));
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

async fn keep_certificates(
    client: Client,
    file: PathBuf,
    ready: admin::Condition,
    shutdown: Shutdown,
) -> anyhow::Result<()> {
    loop {
        let wait = match pki::ensure(&client, Timestamp::now()).await {
            Ok(certificate) => {
                std::fs::write(&file, certificate).with_context(|| {
                    format!("cannot write {}; is it a directory of our own?", file.display())
                })?;
                ready.set(true);
                PKI_EVERY
            }
            Err(error) => {
                tracing::warn!(error = logs::chain(&error), "cannot keep the certificates");
                PKI_RETRY
            }
        };
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = shutdown.cancelled() => return Ok(()),
        }
    }
}
