//! The collector's evidence stream into the cache: resumes where it broke, tries again with backoff.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use keelson_model::{Flow, NodeName, UnixNanos, WindowId, limits};
use keelson_proto::{
    convert,
    query::{
        EvidenceRequest, EvidenceWindow, NodeWindow, NodeWindowState, evidence_response,
        query_client::QueryClient,
    },
};
use keelson_runtime::{
    backoff::Backoff,
    clock::Clock,
    logs,
    shutdown::Shutdown,
    tls::{ClientTls, TlsError},
};
use tokio::sync::Notify;
use tonic::{Request, Status, codec::CompressionEncoding, metadata::MetadataValue};

use super::{EvidenceCache, Seen};

const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// A collector that closes no window for so long is no better than none.
const SILENCE: Duration = Duration::from_secs(30);

/// The cache, and a bell for new windows.
#[derive(Debug, Default)]
pub struct SharedEvidence {
    cache: Mutex<EvidenceCache>,
    /// Rings for each new window.
    pub bell: Notify,
}

// === impl SharedEvidence ===

impl SharedEvidence {
    /// The cache, for a moment.
    pub fn lock(&self) -> MutexGuard<'_, EvidenceCache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where evidence comes from.
#[derive(Debug)]
pub struct EvidenceSource {
    /// Server and authority.
    pub collector: ClientTls,
    /// Our token's file; read at every connect.
    pub token: PathBuf,
    /// Where it goes.
    pub evidence: Arc<SharedEvidence>,
    /// Time.
    pub clock: Arc<dyn Clock>,
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub enum EvidenceError {
    /// The token cannot be read.
    #[error("cannot read the token {path}; is a projected token mounted there?")]
    Token {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The file holds no token.
    #[error("{path} holds no token")]
    NoToken {
        /// The file.
        path: PathBuf,
    },
    /// No connection.
    #[error(transparent)]
    Connect(#[from] TlsError),
    /// The collector refused or broke off.
    #[error("the collector ended the stream")]
    Refused(#[source] Box<Status>),
    /// No window for too long.
    #[error("the collector closed no window for {} s", SILENCE.as_secs())]
    Silent,
    /// The connection was closed.
    #[error("the stream was closed")]
    Closed,
}

impl From<Status> for EvidenceError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

/// Windows may come in parts.
#[derive(Default)]
struct Parts {
    flows: Vec<Flow>,
}

// === impl EvidenceSource ===

impl EvidenceSource {
    /// Streams until shutdown.
    ///
    /// # Errors
    /// None; the type is that of a task.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), EvidenceError> {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        let mut token = Vec::new();
        loop {
            let received = self.evidence.lock().received();
            let ended = tokio::select! {
                ended = self.stream(&mut token) => ended,
                () = shutdown.cancelled() => return Ok(()),
            };
            if let Err(error) = ended {
                let error = logs::chain(&error);
                tracing::warn!(error, "no evidence from the collector; trying again");
            }
            if self.evidence.lock().received() > received {
                backoff.reset();
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_wait()) => {}
                () = shutdown.cancelled() => return Ok(()),
            }
        }
    }

    async fn stream(&self, resume: &mut Vec<u8>) -> Result<(), EvidenceError> {
        let failed = |source| EvidenceError::Token { path: self.token.clone(), source };
        let token = std::fs::read_to_string(&self.token).map_err(failed)?;
        let channel = self.collector.connect().await?;
        let mut client = QueryClient::new(channel)
            .accept_compressed(CompressionEncoding::Gzip)
            .max_decoding_message_size(limits::GRPC_MESSAGE_BYTES);
        let mut request = Request::new(EvidenceRequest { resume_token: resume.clone() });
        let header: MetadataValue<_> = format!("Bearer {}", token.trim())
            .parse()
            .map_err(|_| EvidenceError::NoToken { path: self.token.clone() })?;
        request.metadata_mut().insert("authorization", header);
        let mut answers = client.evidence(request).await?.into_inner();
        tracing::info!("reading evidence from the collector");
        let mut parts = Parts::default();
        loop {
            let answer = tokio::time::timeout(SILENCE, answers.message()).await;
            let answer = answer.map_err(|_| EvidenceError::Silent)??;
            let answer = answer.ok_or(EvidenceError::Closed)?;
            match answer.response {
                Some(evidence_response::Response::Window(window)) => self.take(window, &mut parts),
                Some(evidence_response::Response::Lost(lost)) => {
                    tracing::warn!(reason = lost.reason, count = lost.count, "windows were missed");
                }
                None => {}
            }
            *resume = answer.resume_token;
        }
    }

    fn take(&self, window: EvidenceWindow, parts: &mut Parts) {
        let EvidenceWindow { window: id, flows, last_part, nodes, .. } = window;
        // A flow that cannot be read is one of a newer version: it says nothing to this one.
        parts.flows.extend(flows.into_iter().filter_map(|flow| convert::flow_from_wire(flow).ok()));
        if !last_part {
            return;
        }
        let flows = std::mem::take(&mut parts.flows);
        let nodes: BTreeMap<NodeName, Seen> = nodes.into_iter().map(node).collect();
        let now = UnixNanos(self.clock.unix_ns());
        self.evidence.lock().push(WindowId(id), nodes, &flows, now);
        self.evidence.bell.notify_one();
    }
}

fn node(node: NodeWindow) -> (NodeName, Seen) {
    let seen = match NodeWindowState::try_from(node.state) {
        Ok(NodeWindowState::Complete) => Seen::Complete,
        Ok(NodeWindowState::Partial) => Seen::Partial,
        _ => Seen::Absent,
    };
    (node.node.into(), seen)
}
