//! The stream to the collector: connects, says hello, empties the outbox, takes acknowledgements,
//! and begins anew with backoff when it breaks or before its token expires.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use keelson_cluster::tokens::expiry_ns;
use keelson_model::limits;
use keelson_proto::telemetry::{
    self as wire, agent_message, collector_message, telemetry_client::TelemetryClient,
};
use keelson_runtime::{
    backoff::Backoff,
    clock::Clock,
    logs,
    shutdown::Shutdown,
    tls::{ClientTls, TlsError},
};
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Status, Streaming, codec::CompressionEncoding, metadata::MetadataValue};

use super::{
    encode,
    outbox::{Outbox, Part},
};
use crate::window::TCP;

const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(15);
/// A stream that held so long was no failure: the backoff begins anew.
const HELD_WELL: Duration = Duration::from_secs(30);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// How long the last windows may take at shutdown.
const FLUSH: Duration = Duration::from_secs(5);
/// A stream ends so long before its token does.
const BEFORE_EXPIRY_NS: u64 = 60_000_000_000;
/// A window's messages are a handful and come every five seconds: none gets here in this
/// universe's time, and numbers after it do not overflow.
const HIGHEST_NUMBER: u64 = u64::MAX / 2;
/// Where the token does not say when it expires.
const LONGEST_STREAM: Duration = Duration::from_secs(600);

/// The outbox, and a bell for what is new in it.
#[derive(Debug, Default)]
pub struct SharedOutbox {
    outbox: Mutex<Outbox>,
    bell: Notify,
    is_closed: AtomicBool,
    /// Cancelled when nobody empties it any more.
    is_left: CancellationToken,
}

/// How the collector is reached, and who we are.
pub struct Exporter {
    /// Server and authority.
    pub collector: ClientTls,
    /// Our token's file.
    pub token: PathBuf,
    /// The first message of every stream.
    pub hello: wire::Hello,
    /// What waits.
    pub outbox: Arc<SharedOutbox>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Told whether a stream stands.
    pub connected: Box<dyn Fn(bool) + Send + Sync>,
}

/// Why a stream ended.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    /// The token's file cannot be read.
    #[error("cannot read the token {path}; is a projected token mounted there?")]
    Token {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// It is no token.
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
    /// It said nothing, or something else.
    #[error("the collector did not say welcome")]
    NoWelcome,
    /// It claims to hold a message that no process can have sent.
    #[error("the collector claims to hold batch {0}, which no agent can have sent")]
    Number(u64),
    /// The connection was closed.
    #[error("the stream was closed")]
    Closed,
}

impl From<Status> for StreamError {
    fn from(status: Status) -> Self {
        Self::Refused(Box::new(status))
    }
}

// === impl SharedOutbox ===

impl SharedOutbox {
    /// The outbox, for a moment.
    pub fn lock(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Something new lies in it.
    pub fn ring(&self) {
        self.bell.notify_one();
    }

    /// The last window lies in it.
    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
        self.ring();
    }

    /// An outbox that goes on after agents before us.
    #[must_use]
    pub fn new(outbox: Outbox) -> Self {
        Self { outbox: Mutex::new(outbox), ..Self::default() }
    }

    /// Waits until nobody empties it any more.
    pub async fn left(&self) {
        self.is_left.cancelled().await;
    }

    /// Nothing waits, and nothing will come.
    fn is_done(&self) -> bool {
        self.is_closed.load(Ordering::Acquire) && self.lock().is_empty()
    }
}

/// An open stream.
struct Open {
    sink: mpsc::Sender<wire::AgentMessage>,
    answers: Streaming<wire::CollectorMessage>,
    credit: u64,
    until: Instant,
}

// === impl Exporter ===

impl Exporter {
    /// Streams until shutdown, then empties the outbox for as long as [`FLUSH`] allows.
    ///
    /// # Errors
    /// None; the type is that of a task.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), StreamError> {
        let _left = self.outbox.is_left.clone().drop_guard();
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        while !shutdown.is_cancelled() {
            let began = Instant::now();
            let ended = self.stream(&shutdown).await;
            (self.connected)(false);
            match ended {
                Ok(()) => continue,
                Err(error) => {
                    let error = logs::chain(&error);
                    tracing::warn!(error, "the stream to the collector broke; trying again");
                }
            }
            if began.elapsed() >= HELD_WELL {
                backoff.reset();
            }
            tokio::select! {
                () = tokio::time::sleep(backoff.next_wait()) => {}
                () = shutdown.cancelled() => {}
            }
        }
        Ok(())
    }

    /// One stream: Ok when it ended as planned.
    async fn stream(&self, shutdown: &Shutdown) -> Result<(), StreamError> {
        let mut open = self.open().await?;
        (self.connected)(true);
        let mut flush_until = None;
        loop {
            self.send_due(&mut open).await?;
            if shutdown.is_cancelled() {
                let until = *flush_until.get_or_insert_with(|| Instant::now() + FLUSH);
                if self.outbox.is_done() || Instant::now() >= until {
                    return Ok(());
                }
            }
            let until = flush_until.unwrap_or(open.until);
            tokio::select! {
                answer = open.answers.message() => self.take(answer?, &mut open)?,
                () = self.outbox.bell.notified() => {}
                () = tokio::time::sleep_until(until) => return Ok(()),
                () = shutdown.cancelled(), if flush_until.is_none() => {}
            }
        }
    }

    async fn open(&self) -> Result<Open, StreamError> {
        let token = read_token(&self.token)?;
        let channel = self.collector.connect().await?;
        let mut client = TelemetryClient::new(channel)
            .send_compressed(CompressionEncoding::Gzip)
            .max_encoding_message_size(limits::GRPC_MESSAGE_BYTES)
            .max_decoding_message_size(limits::GRPC_MESSAGE_BYTES);
        let (sink, messages) = mpsc::channel(limits::AGENT_STREAM_MESSAGES);
        let hello = agent_message::Message::Hello(self.hello.clone());
        send(&sink, hello).await?;
        let mut request = Request::new(ReceiverStream::new(messages));
        let header: MetadataValue<_> = format!("Bearer {token}")
            .parse()
            .map_err(|_| StreamError::NoToken { path: self.token.clone() })?;
        request.metadata_mut().insert("authorization", header);
        let answers = timeout(ANSWER_WITHIN, client.stream(request));
        let mut answers = answers.await.map_err(|_| StreamError::NoWelcome)??.into_inner();
        let first = timeout(ANSWER_WITHIN, answers.message());
        let first = first.await.map_err(|_| StreamError::NoWelcome)??;
        let Some(collector_message::Message::Welcome(welcome)) =
            first.and_then(|message| message.message)
        else {
            return Err(StreamError::NoWelcome);
        };
        let version = welcome.collector_version;
        tracing::info!(version, last_batch = welcome.last_batch, "streaming to the collector");
        if welcome.last_batch > HIGHEST_NUMBER {
            return Err(StreamError::Number(welcome.last_batch));
        }
        let delivered = welcome.delivered.iter().find(|delivered| delivered.probe == TCP);
        let delivered = delivered.map(|delivered| delivered.count);
        let baseline = self.outbox.lock().reconnect(welcome.last_batch, delivered);
        send_parts(&sink, &baseline).await?;
        let until = Instant::now() + self.stream_time(&token);
        Ok(Open { sink, answers, credit: welcome.credit.into(), until })
    }

    async fn send_due(&self, open: &mut Open) -> Result<(), StreamError> {
        loop {
            let parts = self.outbox.lock().next(open.credit);
            if parts.is_empty() {
                return Ok(());
            }
            send_parts(&open.sink, &parts).await?;
        }
    }

    fn take(
        &self,
        answer: Option<wire::CollectorMessage>,
        open: &mut Open,
    ) -> Result<(), StreamError> {
        let message = answer.ok_or(StreamError::Closed)?.message;
        if let Some(collector_message::Message::Ack(ack)) = message {
            open.credit = ack.credit.into();
            self.outbox.lock().acknowledge(ack.batch);
        }
        Ok(())
    }

    fn stream_time(&self, token: &str) -> Duration {
        let Some(expiry) = expiry_ns(token) else { return LONGEST_STREAM };
        let left = expiry.saturating_sub(self.clock.unix_ns()).saturating_sub(BEFORE_EXPIRY_NS);
        Duration::from_nanos(left).max(Duration::from_secs(1))
    }
}

async fn send_parts(
    sink: &mpsc::Sender<wire::AgentMessage>,
    parts: &[Part],
) -> Result<(), StreamError> {
    for part in parts {
        send(sink, agent_message::Message::Batch(encode::batch(part))).await?;
    }
    Ok(())
}

async fn send(
    sink: &mpsc::Sender<wire::AgentMessage>,
    message: agent_message::Message,
) -> Result<(), StreamError> {
    let message = wire::AgentMessage { message: Some(message) };
    sink.send(message).await.map_err(|_| StreamError::Closed)
}

fn read_token(path: &Path) -> Result<String, StreamError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| StreamError::Token { path: path.to_path_buf(), source })?;
    let token = text.trim();
    if token.is_empty() {
        return Err(StreamError::NoToken { path: path.to_path_buf() });
    }
    Ok(token.to_owned())
}
