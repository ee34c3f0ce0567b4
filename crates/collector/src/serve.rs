//! Puts the services behind TLS, and moves the clock on. It knows no flags and no Kubernetes.

use std::{sync::Arc, time::Duration};

use keelson_model::limits;
use keelson_proto::{
    query::query_server::QueryServer, telemetry::telemetry_server::TelemetryServer,
};
use keelson_runtime::{shutdown::Shutdown, tls::ServerTls};
use tokio::{net::TcpListener, time::MissedTickBehavior};
use tonic::{codec::CompressionEncoding, transport::Server};

use crate::{access::Access, ingest::TelemetryService, query::QueryService, shared::Shared};

/// How late a window may be closed after it is due.
const TICK: Duration = Duration::from_millis(200);
const EXPIRE_NAMES: Duration = Duration::from_secs(10);
/// A peer that is gone without a word is noticed after about twice this.
const KEEPALIVE: Duration = Duration::from_secs(15);
/// gRPC calls at once on one connection.
const CALLS_PER_CONNECTION: u32 = 32;

/// Serves both services on `listener` until shutdown.
///
/// # Errors
/// The server failed.
pub async fn grpc(
    listener: TcpListener,
    tls: Arc<ServerTls>,
    shared: Arc<Shared>,
    access: Access,
    shutdown: Shutdown,
) -> Result<(), tonic::transport::Error> {
    let displaced = shared.metrics.handshakes_displaced.clone();
    let incoming = tls.incoming(listener, displaced, shutdown.clone());
    let telemetry =
        TelemetryServer::new(TelemetryService::new(Arc::clone(&shared), access.clone()))
            .max_decoding_message_size(limits::GRPC_MESSAGE_BYTES)
            .max_encoding_message_size(limits::GRPC_MESSAGE_BYTES)
            .accept_compressed(CompressionEncoding::Gzip);
    let query = QueryServer::new(QueryService::new(shared, access))
        .max_decoding_message_size(limits::GRPC_MESSAGE_BYTES)
        .max_encoding_message_size(limits::GRPC_MESSAGE_BYTES)
        .send_compressed(CompressionEncoding::Gzip);
    Server::builder()
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(KEEPALIVE))
        .max_concurrent_streams(Some(CALLS_PER_CONNECTION))
        .add_service(telemetry)
        .add_service(query)
        .serve_with_incoming_shutdown(incoming, async move {
            shutdown.cancelled().await;
        })
        .await
}

/// Closes windows and forgets the old until shutdown.
///
/// # Errors
/// None; the type is that of a task.
pub async fn clock(
    shared: Arc<Shared>,
    shutdown: Shutdown,
) -> Result<(), std::convert::Infallible> {
    let mut ticks = tokio::time::interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    let mut expiries = tokio::time::interval(EXPIRE_NAMES);
    expiries.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = ticks.tick() => shared.tick(),
            _ = expiries.tick() => shared.expire_names(),
            () = shutdown.cancelled() => return Ok(()),
        }
    }
}
