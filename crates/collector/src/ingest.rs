//! The service `keelson.telemetry.v1alpha1.Telemetry`: one ordered stream per node.
//!
//! The caller's token must be the agent's of the very node that `Hello` names. A message that
//! cannot be ends the stream with a status that says why; what was acknowledged stays.

use std::{pin::Pin, sync::Arc, time::Duration};

use futures::{Stream, future::BoxFuture, stream};
use keelson_model::limits;
use keelson_proto::telemetry::{self as wire, agent_message, collector_message, telemetry_server};
use tonic::{Request, Response, Status, Streaming};

use crate::{
    access::{Access, AgentIdentity, Credentials},
    core::{StreamError, StreamHandle},
    ingest::convert::{Dictionary, WireError},
    metrics::Refusal,
    shared::Shared,
};

pub mod convert;

/// An agent says hello at once; who does not is no agent.
const HELLO_WITHIN: Duration = Duration::from_secs(10);
const CREDIT: u32 = 12;
const _: () = assert!(CREDIT as usize == limits::AGENT_UNACKED_BATCHES);

type Answers = Pin<Box<dyn Stream<Item = Result<wire::CollectorMessage, Status>> + Send>>;

/// The telemetry service.
#[derive(Clone)]
pub struct TelemetryService {
    shared: Arc<Shared>,
    access: Access,
}

/// One agent's stream.
struct AgentStream {
    shared: Arc<Shared>,
    messages: Streaming<wire::AgentMessage>,
    open: OpenStream,
    dictionary: Dictionary,
    /// Given before anything else.
    welcome: Option<wire::CollectorMessage>,
    /// The end of its right to send.
    lost: BoxFuture<'static, Status>,
}

/// Ends the stream in the core and in the gauge, however it ends.
struct OpenStream {
    shared: Arc<Shared>,
    handle: StreamHandle,
}

// === impl TelemetryService ===

impl TelemetryService {
    /// A service over the shared state.
    #[must_use]
    pub fn new(shared: Arc<Shared>, access: Access) -> Self {
        Self { shared, access }
    }

    fn refuse(&self, error: &WireError) -> Status {
        self.shared.metrics.refuse(Refusal::malformed, 1);
        Status::invalid_argument(error.to_string())
    }

    fn connect(&self, hello: wire::Hello) -> Result<OpenStream, Status> {
        let agent = convert::agent(hello).map_err(|error| self.refuse(&error))?;
        let handle = self.shared.core().connect(agent).map_err(|error| {
            self.shared.metrics.refuse(Refusal::too_many_nodes, 1);
            Status::resource_exhausted(error.to_string())
        })?;
        self.shared.metrics.streams.inc();
        Ok(OpenStream { shared: Arc::clone(&self.shared), handle })
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.shared.core().disconnect(&self.handle);
        self.shared.metrics.streams.dec();
        tracing::info!(node = %self.handle.node, "agent's stream ended");
    }
}

#[tonic::async_trait]
impl telemetry_server::Telemetry for TelemetryService {
    type StreamStream = Answers;

    async fn stream(
        &self,
        request: Request<Streaming<wire::AgentMessage>>,
    ) -> Result<Response<Answers>, Status> {
        let credentials = Arc::new(Credentials::of(&request));
        let identity = self.access.agent(&credentials).await?;
        let AgentIdentity { node, pod_uid } = identity.clone();
        let mut messages = request.into_inner();
        let hello = hello(&mut messages).await.map_err(|error| match error {
            HelloError::Wire(error) => self.refuse(&error),
            HelloError::Status(status) => status,
        })?;
        if hello.node_name != node.as_str() {
            return Err(self
                .access
                .denied(format!("the token is node {node}'s, not that of hello")));
        }
        if hello.agent_pod_uid != pod_uid.as_str() {
            return Err(self
                .access
                .denied(format!("the token is pod {pod_uid}'s, not that of hello")));
        }
        let lost = self.access.lost(identity, move |access| {
            let credentials = Arc::clone(&credentials);
            async move { access.agent(&credentials).await }
        });
        let version = hello.agent_version.clone();
        let open = self.connect(hello)?;
        let last_batch = open.handle.last_batch;
        tracing::info!(%node, version, last_batch, "agent's stream began");
        let stream = AgentStream {
            shared: Arc::clone(&self.shared),
            messages,
            dictionary: Dictionary::new(node),
            welcome: Some(welcome(&open.handle)),
            open,
            lost,
        };
        let answers = stream::unfold(Some(stream), |stream| async move {
            let mut stream = stream?;
            match stream.next().await? {
                Ok(message) => Some((Ok(message), Some(stream))),
                Err(status) => Some((Err(status), None)),
            }
        });
        Ok(Response::new(Box::pin(answers)))
    }
}

// === impl AgentStream ===

impl AgentStream {
    /// The next answer; none: the agent ended the stream.
    async fn next(&mut self) -> Option<Result<wire::CollectorMessage, Status>> {
        if let Some(welcome) = self.welcome.take() {
            return Some(Ok(welcome));
        }
        let message = tokio::select! {
            message = self.messages.message() => message,
            () = self.open.handle.replaced.cancelled() => {
                return Some(Err(Status::aborted(StreamError::Replaced.to_string())));
            }
            status = &mut self.lost => return Some(Err(status)),
            () = self.shared.draining.cancelled() => {
                return Some(Err(Status::unavailable("the collector ends; connect again")));
            }
        };
        match message {
            Ok(None) => None,
            Ok(Some(message)) => Some(self.take(message)),
            Err(status) => {
                if status.code() == tonic::Code::OutOfRange
                    || status.code() == tonic::Code::Internal
                {
                    self.shared.metrics.refuse(Refusal::malformed, 1);
                }
                Some(Err(status))
            }
        }
    }

    fn take(&mut self, message: wire::AgentMessage) -> Result<wire::CollectorMessage, Status> {
        let metrics = &self.shared.metrics;
        let batch = match message.message {
            Some(agent_message::Message::Batch(batch)) => Ok(batch),
            Some(agent_message::Message::Hello(_)) => Err(WireError::SecondHello),
            None => Err(WireError::EmptyMessage),
        };
        let batch = batch.and_then(|batch| self.dictionary.batch(batch)).map_err(|error| {
            metrics.refuse(Refusal::malformed, 1);
            tracing::warn!(node = %self.open.handle.node, %error, "refused a batch");
            Status::invalid_argument(error.to_string())
        })?;
        let now = self.shared.now();
        let taken = self.shared.core().take(&self.open.handle, batch, now);
        let taken = taken.map_err(|error| Status::aborted(error.to_string()))?;
        if taken.is_duplicate {
            metrics.duplicates.inc();
        } else {
            metrics.batches.inc();
        }
        if let Some((rejected, rows)) = taken.rejected {
            metrics.refuse(rejected.into(), rows.max(1));
        }
        self.shared.ring();
        Ok(ack(taken.acknowledged))
    }
}

enum HelloError {
    Wire(WireError),
    Status(Status),
}

async fn hello(messages: &mut Streaming<wire::AgentMessage>) -> Result<wire::Hello, HelloError> {
    let first = tokio::time::timeout(HELLO_WITHIN, messages.message()).await;
    let first = first.map_err(|_| {
        HelloError::Status(Status::deadline_exceeded("no hello came within ten seconds"))
    })?;
    match first.map_err(HelloError::Status)?.and_then(|message| message.message) {
        Some(agent_message::Message::Hello(hello)) => Ok(hello),
        _ => Err(HelloError::Wire(WireError::NoHello)),
    }
}

fn welcome(stream: &StreamHandle) -> wire::CollectorMessage {
    let delivered = stream
        .delivered
        .iter()
        .map(|(probe, count)| wire::Delivered { probe: probe.clone(), count: *count });
    let welcome = wire::Welcome {
        collector_version: env!("CARGO_PKG_VERSION").to_owned(),
        last_batch: stream.last_batch,
        credit: CREDIT,
        delivered: delivered.collect(),
    };
    wire::CollectorMessage { message: Some(collector_message::Message::Welcome(welcome)) }
}

fn ack(batch: u64) -> wire::CollectorMessage {
    let ack = wire::Ack { batch, level: wire::AckLevel::Received.into(), credit: CREDIT };
    wire::CollectorMessage { message: Some(collector_message::Message::Ack(ack)) }
}
