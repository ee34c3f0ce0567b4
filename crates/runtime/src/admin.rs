//! The admin port: `/healthz`, `/readyz` and `/metrics` over plain HTTP, inside the pod network.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
};

use axum::{
    Router, extract::State, http::StatusCode, http::header, response::IntoResponse, routing::get,
};
use clap::Args;
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::net::TcpListener;

use crate::shutdown::Shutdown;

/// Flags of the admin port.
#[derive(Args, Clone, Debug)]
pub struct AdminArgs {
    /// Address of /healthz, /readyz and /metrics
    #[arg(long, env = "KEELSON_ADMIN_ADDRESS", default_value_t = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 8080), value_name = "ADDRESS")]
    pub admin_address: SocketAddr,
}

/// What must be true before the process takes work.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    conditions: Arc<Mutex<BTreeMap<&'static str, bool>>>,
}

/// One thing that must be true.
#[derive(Clone, Debug)]
pub struct Condition {
    readiness: Readiness,
    name: &'static str,
}

/// The admin port cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The address cannot be listened on.
    #[error("cannot listen on the admin address {address}; choose another with --admin-address")]
    Listen {
        /// As given.
        address: SocketAddr,
        /// The cause.
        source: std::io::Error,
    },
    /// The server ended.
    #[error("the admin server failed")]
    Serve(#[source] std::io::Error),
}

// === impl Readiness ===

impl Readiness {
    /// Adds a condition that does not hold yet.
    #[must_use]
    pub fn condition(&self, name: &'static str) -> Condition {
        self.set(name, false);
        Condition { readiness: self.clone(), name }
    }

    /// Conditions that do not hold.
    #[must_use]
    pub fn missing(&self) -> Vec<&'static str> {
        let conditions = self.conditions.lock().unwrap_or_else(PoisonError::into_inner);
        conditions.iter().filter(|(_, holds)| !**holds).map(|(name, _)| *name).collect()
    }

    fn set(&self, name: &'static str, holds: bool) {
        self.conditions.lock().unwrap_or_else(PoisonError::into_inner).insert(name, holds);
    }
}

impl Condition {
    /// Says whether it holds.
    pub fn set(&self, holds: bool) {
        self.readiness.set(self.name, holds);
    }
}

/// Serves the admin port until shutdown.
///
/// # Errors
/// The address cannot be listened on, or the server fails.
pub async fn serve(
    args: AdminArgs,
    registry: Registry,
    readiness: Readiness,
    shutdown: Shutdown,
) -> Result<(), AdminError> {
    let address = args.admin_address;
    let listener = TcpListener::bind(address)
        .await
        .map_err(|source| AdminError::Listen { address, source })?;
    serve_on(listener, registry, readiness, shutdown).await
}

/// As [`serve`], on a listener that is open already.
///
/// # Errors
/// The server fails.
pub async fn serve_on(
    listener: TcpListener,
    registry: Registry,
    readiness: Readiness,
    shutdown: Shutdown,
) -> Result<(), AdminError> {
    let router = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready).with_state((readiness, shutdown.clone())))
        .route("/metrics", get(metrics).with_state(Arc::new(registry)));
    axum::serve(listener, router)
        .with_graceful_shutdown(shutdown.cancelled_owned())
        .await
        .map_err(AdminError::Serve)
}

async fn ready(State((readiness, shutdown)): State<(Readiness, Shutdown)>) -> impl IntoResponse {
    if shutdown.is_cancelled() {
        return (StatusCode::SERVICE_UNAVAILABLE, "not ready: shutting down\n".to_owned());
    }
    let missing = readiness.missing();
    if missing.is_empty() {
        (StatusCode::OK, "ok\n".to_owned())
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", missing.join(", ")))
    }
}

async fn metrics(State(registry): State<Arc<Registry>>) -> impl IntoResponse {
    const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => (StatusCode::OK, [(header::CONTENT_TYPE, OPEN_METRICS)], text),
        Err(error) => (
            StatusCode::INTERNAL_SERVER_ERROR,
            [(header::CONTENT_TYPE, "text/plain")],
            format!("metrics cannot be encoded: {error}\n"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn get(address: SocketAddr, path: &str) -> String {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn readiness_names_what_is_missing_and_metrics_are_served() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut registry = Registry::default();
        let counter = Counter::<u64>::default();
        registry.register("batches", "Batches.", counter.clone());
        counter.inc();
        let readiness = Readiness::default();
        let caches = readiness.condition("caches");
        let shutdown = Shutdown::new();
        let server = serve_on(listener, registry, readiness, shutdown.clone());
        let client = async {
            assert!(get(address, "/healthz").await.starts_with("HTTP/1.1 200"));
            let answer = get(address, "/readyz").await;
            assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("caches"), "{answer}");
            caches.set(true);
            assert!(get(address, "/readyz").await.starts_with("HTTP/1.1 200"));
            assert!(get(address, "/metrics").await.contains("batches_total 1"));
            shutdown.cancel();
        };
        let (served, ()) = tokio::join!(server, client);
        served.unwrap();
    }
}
