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

use super::{EvidenceCache, Refusal, Seen};
use crate::metrics::Metrics;

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
    /// Counters.
    pub metrics: Metrics,
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

/// Windows may come in parts: those of the one that is coming.
#[derive(Default)]
struct Parts {
    window: u64,
    flows: Vec<Flow>,
    is_refused: bool,
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
            let newest = self.evidence.lock().newest();
            let ended = tokio::select! {
                ended = self.stream(&mut token) => ended,
                () = shutdown.cancelled() => return Ok(()),
            };
            if let Err(error) = ended {
                let error = logs::chain(&error);
                tracing::warn!(error, "no evidence from the collector; trying again");
            }
            if self.evidence.lock().newest() > newest {
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

    fn take(&self, part: EvidenceWindow, parts: &mut Parts) {
        let EvidenceWindow { window: id, flows, last_part, nodes, .. } = part;
        if id != parts.window {
            *parts = Parts { window: id, ..Parts::default() };
        }
        // A flow that cannot be read is one of a newer version: it says nothing to this one.
        let flows = flows.into_iter().filter_map(|flow| convert::flow_from_wire(flow).ok());
        parts.take(flows);
        if !last_part {
            return;
        }
        let Parts { flows, is_refused, .. } = std::mem::take(parts);
        let nodes: BTreeMap<NodeName, Seen> = nodes.into_iter().map(node).collect();
        let now = UnixNanos(self.clock.unix_ns());
        let taken = match is_refused {
            true => Err(Refusal::too_many_flows),
            false => self.evidence.lock().push(WindowId(id), nodes, &flows, now),
        };
        match taken {
            Ok(()) => self.evidence.bell.notify_one(),
            Err(refusal) => self.refuse(id, refusal),
        }
    }

    fn refuse(&self, window: u64, refusal: Refusal) {
        self.metrics.refused(refusal);
        // What is old or repeated is what any stream begins with.
        match refusal {
            Refusal::old | Refusal::repeated => {
                tracing::debug!(window, %refusal, "a window is not taken");
            }
            Refusal::future | Refusal::too_many_flows => {
                tracing::warn!(window, %refusal, "a window is not taken");
            }
        }
    }
}

// === impl Parts ===

impl Parts {
    /// Takes flows as long as there is room; a window of which some are missing is refused whole.
    fn take(&mut self, flows: impl Iterator<Item = Flow>) {
        let room = limits::OPERATOR_WINDOW_FLOWS - self.flows.len();
        let mut flows = flows.peekable();
        self.flows.extend(flows.by_ref().take(room));
        self.is_refused |= flows.peek().is_some();
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

#[cfg(test)]
mod tests {
    use keelson_proto::query::Flow as WireFlow;
    use keelson_runtime::clock::SystemClock;

    use super::*;
    use crate::metrics::ByReason;

    fn source() -> EvidenceSource {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock);
        EvidenceSource {
            collector: ClientTls {
                address: "x:1".into(),
                authority: "x".into(),
                server_name: None,
            },
            token: "x".into(),
            evidence: Arc::default(),
            metrics: Metrics::new(clock.unix_ns()),
            clock,
        }
    }

    fn part(window: WindowId, last_part: bool) -> EvidenceWindow {
        let nodes = vec![NodeWindow { node: "a".into(), ..NodeWindow::default() }];
        let flows = vec![WireFlow::default()];
        EvidenceWindow { window: window.0, flows, last_part, nodes, closed_unix_ns: 0 }
    }

    #[test]
    fn a_window_is_taken_with_its_last_part_and_counted_when_refused() {
        let (source, mut parts) = (source(), Parts::default());
        let now = WindowId::containing(UnixNanos(source.clock.unix_ns()));
        source.take(part(now, false), &mut parts);
        assert_eq!(source.evidence.lock().newest(), None);
        source.take(part(now, true), &mut parts);
        assert_eq!(source.evidence.lock().newest(), Some(now));
        for (window, reason) in [
            (now, Refusal::repeated),
            (WindowId(now.0 - 100), Refusal::old),
            (WindowId(u64::MAX), Refusal::future),
        ] {
            source.take(part(window, true), &mut parts);
            let refused = source.metrics.evidence_refused.get_or_create(&ByReason { reason }).get();
            assert_eq!(refused, 1, "{reason}");
        }
        assert_eq!(source.evidence.lock().newest(), Some(now));
    }
}
