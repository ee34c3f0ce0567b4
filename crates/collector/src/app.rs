//! The process: which tasks run, what makes it ready, how it ends. It decides nothing.

use std::{io, net::SocketAddr, path::Path, pin::pin, sync::Arc, time::Duration};

use futures::future::{Either, select};
use keelson_cluster::certificates;
use keelson_runtime::{
    VERSION,
    admin::{self, Readiness},
    clock::{Clock, SystemClock},
    logs,
    shutdown::Shutdown,
    tasks::{Failure, Tasks},
    tls::{self, ClientAuthorities, ServerTls},
};
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;

use crate::{
    access::{self, Access, ApiServer},
    args::CollectorArgs,
    metrics::Metrics,
    names::watch,
    serve,
    shared::Shared,
};

/// Between two looks for a certificate that is not there yet.
const LOOK_AGAIN: Duration = Duration::from_secs(2);
/// Between two looks for who vouches for client certificates; they change once in years.
const LOOK_FOR_CLIENTS: Duration = Duration::from_secs(60);

/// The process cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// No client for the API server.
    #[error("no client for the API server; run in a pod, or set KUBECONFIG")]
    Client(#[source] kube::Error),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}; choose another with --listen")]
    Listen {
        /// As given.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// A task failed.
    #[error("the collector ends")]
    Task(#[from] Failure),
}

/// Runs until SIGTERM or the first failure.
///
/// # Errors
/// What is missing to begin, or the first task that failed.
pub async fn run(args: CollectorArgs) -> Result<(), AppError> {
    tls::install_provider();
    let CollectorArgs { listen, tls, admin, logs: _ } = args;
    let mut tasks = Tasks::new(Shutdown::new());
    let shutdown = tasks.shutdown();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock);
    let mut registry = Registry::default();
    let metrics = Metrics::register(&mut registry);
    let shared = Arc::new(Shared::new(Arc::clone(&clock), shutdown.clone(), metrics.clone()));
    let client = keelson_cluster::client().await.map_err(AppError::Client)?;
    let access =
        Access::new(Arc::new(ApiServer::new(&client, &clock)), clock, metrics, access::LOOK_AGAIN);

    let readiness = Readiness::default();
    let has_tls = readiness.condition("tls");
    let pods = readiness.condition("pods");
    let nodes = readiness.condition("nodes");
    let services = readiness.condition("services");
    tasks.spawn("admin", admin::serve(admin, registry, readiness, shutdown.clone()));
    tasks.spawn("pods", watch::pods(client.clone(), Arc::clone(&shared), pods));
    tasks.spawn("nodes", watch::nodes(client.clone(), Arc::clone(&shared), nodes));
    tasks.spawn("services", watch::services(client.clone(), Arc::clone(&shared), services));
    tasks.spawn("clock", serve::clock(Arc::clone(&shared), shutdown.clone()));

    let listener = TcpListener::bind(listen)
        .await
        .map_err(|source| AppError::Listen { address: listen, source })?;
    tracing::info!(version = VERSION, address = %listen, "collector begins");
    tasks.spawn("grpc", async move {
        let Some(tls) = certificate(&tls, &shutdown).await else { return Ok(()) };
        has_tls.set(true);
        let clients = keep_clients(client, Arc::clone(tls.clients()), shutdown.clone());
        let fresh = pin!(async {
            let _ = tokio::join!(Arc::clone(&tls).keep_fresh(shutdown.clone()), clients);
        });
        let served =
            pin!(serve::grpc(listener, Arc::clone(&tls), shared, access, shutdown.clone()));
        match select(served, fresh).await {
            Either::Left((served, _)) => served,
            // Shutdown began; what is being answered may end.
            Either::Right((_, served)) => served.await,
        }
    });
    tasks.run().await?;
    Ok(())
}

/// Believes the clients whom the API server believes, from when it says who vouches for them, until
/// shutdown.
async fn keep_clients(client: Client, clients: Arc<ClientAuthorities>, shutdown: Shutdown) {
    let mut held = String::new();
    loop {
        match certificates::authorities(&client).await {
            Ok(Some(bundle)) if bundle != held => match clients.set(&bundle) {
                Ok(()) => {
                    tracing::info!("believes client certificates as the API server does");
                    held = bundle;
                }
                Err(error) => tracing::warn!(error = logs::chain(&error), "kept the old ones"),
            },
            Ok(_) => {}
            Err(error) => {
                let error = logs::chain(&error);
                tracing::warn!(error, "cannot read who vouches for client certificates");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_FOR_CLIENTS) => {}
            () = shutdown.cancelled() => return,
        }
    }
}

/// The server's certificate, as soon as the operator has made it; none: the process ends before.
async fn certificate(directory: &Path, shutdown: &Shutdown) -> Option<Arc<ServerTls>> {
    loop {
        match ServerTls::load(directory) {
            Ok(tls) => return Some(tls),
            Err(error) => {
                let error = logs::chain(&error);
                tracing::warn!(error, "no certificate yet; the operator makes it");
            }
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK_AGAIN) => {}
            () = shutdown.cancelled() => return None,
        }
    }
}
