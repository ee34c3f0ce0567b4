//! The agent's stream against a collector that does as the test says: real TLS, real gRPC.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use futures::Stream;
use jiff::Timestamp;
use keelson_agent::{
    enrich::Local,
    export::stream::{Exporter, SharedOutbox},
    window::{SeriesRow, Window},
};
use keelson_cluster::{COLLECTOR_HOST, pki};
use keelson_model::{
    BootNanos, CgroupId, ClockReading, Coverage, Direction, Remote, SeriesKey, SeriesValue,
    TcpCounters, UnknownReason, WindowId,
};
use keelson_proto::telemetry::{
    self as wire, agent_message, collector_message,
    telemetry_server::{Telemetry, TelemetryServer},
};
use keelson_runtime::{
    clock::SystemClock,
    shutdown::Shutdown,
    tls::{ClientTls, ServerTls},
};
use tempfile::TempDir;
use tokio::{
    net::TcpListener,
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming, codec::CompressionEncoding, transport::Server};

const WITHIN: Duration = Duration::from_secs(10);
/// Long enough for a message that should not come.
const A_WHILE: Duration = Duration::from_millis(300);

type Answers = mpsc::Sender<Result<wire::CollectorMessage, Status>>;

/// A stream as it reached the collector.
struct Arrived {
    token: String,
    messages: Streaming<wire::AgentMessage>,
    answers: Answers,
}

struct Script(mpsc::Sender<Arrived>);

#[tonic::async_trait]
impl Telemetry for Script {
    type StreamStream = Pin<Box<dyn Stream<Item = Result<wire::CollectorMessage, Status>> + Send>>;

    async fn stream(
        &self,
        request: Request<Streaming<wire::AgentMessage>>,
    ) -> Result<Response<Self::StreamStream>, Status> {
        let token = request.metadata().get("authorization").unwrap().to_str().unwrap().to_owned();
        let (answers, receiver) = mpsc::channel(8);
        let arrived = Arrived { token, messages: request.into_inner(), answers };
        self.0.send(arrived).await.map_err(|_| Status::unavailable("the test is over"))?;
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

/// Both ends, running.
struct Pair {
    outbox: Arc<SharedOutbox>,
    streams: mpsc::Receiver<Arrived>,
    agent: JoinSet<()>,
    shutdown: Shutdown,
    _server: JoinSet<()>,
    _files: TempDir,
}

impl Pair {
    async fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let authority = certificates(files.path());
        Self::trusting(&authority, files).await
    }

    async fn trusting(authority: &str, files: TempDir) -> Self {
        let file = |name: &str, text: &str| {
            let path = files.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let (sink, streams) = mpsc::channel(4);
        let incoming = ServerTls::load(files.path()).unwrap().incoming(
            listener,
            Default::default(),
            Shutdown::new(),
        );
        let service =
            TelemetryServer::new(Script(sink)).accept_compressed(CompressionEncoding::Gzip);
        let mut server = JoinSet::new();
        server.spawn(async move {
            Server::builder().add_service(service).serve_with_incoming(incoming).await.unwrap();
        });
        let (outbox, shutdown) = (Arc::new(SharedOutbox::default()), Shutdown::new());
        let exporter = Exporter {
            collector: ClientTls {
                address: format!("https://{address}"),
                authority: file("ca.crt", authority),
                server_name: Some(COLLECTOR_HOST.into()),
            },
            token: file("token", "the-token\n"),
            hello: wire::Hello { node_name: "node-a".into(), ..wire::Hello::default() },
            outbox: Arc::clone(&outbox),
            clock: Arc::new(SystemClock),
            connected: Box::new(|_| {}),
        };
        let mut agent = JoinSet::new();
        let told = shutdown.clone();
        agent.spawn(async move { exporter.run(told).await.unwrap() });
        Self { outbox, streams, agent, shutdown, _server: server, _files: files }
    }

    fn push(&self, window: u64) {
        self.outbox.lock().push(self::window(window));
        self.outbox.ring();
    }

    /// The next stream, welcomed.
    async fn stream(&mut self, last_batch: u64, credit: u32) -> Arrived {
        let mut arrived = timeout(WITHIN, self.streams.recv()).await.unwrap().unwrap();
        assert_eq!(arrived.token, "Bearer the-token");
        let first = arrived.messages.message().await.unwrap().unwrap().message;
        let Some(agent_message::Message::Hello(hello)) = first else { panic!("{first:?}") };
        assert_eq!(hello.node_name, "node-a");
        let welcome = wire::Welcome { last_batch, credit, ..wire::Welcome::default() };
        arrived.answer(collector_message::Message::Welcome(welcome)).await;
        arrived
    }
}

impl Arrived {
    async fn answer(&self, message: collector_message::Message) {
        let message = wire::CollectorMessage { message: Some(message) };
        self.answers.send(Ok(message)).await.unwrap();
    }

    async fn acknowledge(&self, batch: u64, credit: u32) {
        let ack = wire::Ack { batch, credit, ..wire::Ack::default() };
        self.answer(collector_message::Message::Ack(ack)).await;
    }

    /// Number and window of the next batch, and whether it is a baseline; none: nothing comes.
    async fn batch(&mut self) -> Option<(u64, u64, bool)> {
        let message = timeout(A_WHILE, self.messages.message()).await.ok()?.unwrap()?.message;
        let Some(agent_message::Message::Batch(batch)) = message else { panic!("{message:?}") };
        Some((batch.number, batch.window, batch.baseline))
    }
}

fn certificates(directory: &Path) -> String {
    let now = Timestamp::now();
    let authority = pki::make_authority(now).unwrap();
    let pair = pki::issue(&authority, now).unwrap();
    std::fs::write(directory.join("tls.crt"), pair.certificate).unwrap();
    std::fs::write(directory.join("tls.key"), pair.key).unwrap();
    authority.certificate
}

fn window(id: u64) -> Window {
    let remote = Remote::Address(Ipv4Addr::LOCALHOST.into());
    let key = SeriesKey { cgroup: CgroupId(1), direction: Direction::Inbound, remote, port: 80 };
    let counters = TcpCounters { opened: id, ..TcpCounters::default() };
    let value = SeriesValue { start: BootNanos(1), counters };
    let local = Local::Unknown(UnknownReason::HostProcess);
    Window {
        id: WindowId(id),
        clock: ClockReading::default(),
        series: vec![SeriesRow { local, key, value }],
        records: vec![],
        ledgers: vec![],
        coverage: Coverage::default(),
    }
}

#[tokio::test]
async fn windows_go_in_order_as_far_as_the_credit_reaches() {
    let mut pair = Pair::start().await;
    for id in 101..=103 {
        pair.push(id);
    }
    let mut stream = pair.stream(0, 2).await;
    assert_eq!(stream.batch().await, Some((1, 101, false)));
    assert_eq!(stream.batch().await, Some((2, 102, false)));
    assert_eq!(stream.batch().await, None, "two are under way");
    stream.acknowledge(1, 2).await;
    assert_eq!(stream.batch().await, Some((3, 103, false)));
    stream.acknowledge(3, 2).await;
    pair.push(104);
    assert_eq!(stream.batch().await, Some((4, 104, false)));
}

#[tokio::test]
async fn after_a_break_what_was_not_acknowledged_comes_again_behind_the_baseline() {
    let mut pair = Pair::start().await;
    for id in 101..=103 {
        pair.push(id);
    }
    let mut stream = pair.stream(0, 8).await;
    for expected in 1..=3 {
        assert_eq!(stream.batch().await.unwrap().0, expected);
    }
    stream.acknowledge(1, 8).await;
    // The collector kept the second before it went away, and could not say so.
    sleep(A_WHILE).await;
    drop(stream);
    let mut stream = pair.stream(2, 8).await;
    assert_eq!(stream.batch().await, Some((2, 102, true)));
    assert_eq!(stream.batch().await, Some((3, 103, false)));
    assert_eq!(stream.batch().await, None);
}

#[tokio::test]
async fn a_process_that_took_the_place_of_another_goes_on_after_its_numbers() {
    let mut pair = Pair::start().await;
    pair.push(101);
    let mut stream = pair.stream(40, 8).await;
    assert_eq!(stream.batch().await, Some((41, 101, false)));
}

#[tokio::test]
async fn a_number_that_no_agent_can_have_sent_ends_the_stream_and_not_the_agent() {
    let mut pair = Pair::start().await;
    pair.push(101);
    let mut stream = pair.stream(u64::MAX, 8).await;
    assert_eq!(stream.batch().await, None);
    let mut stream = pair.stream(0, 8).await;
    assert_eq!(stream.batch().await, Some((1, 101, false)));
}

#[tokio::test]
async fn at_the_end_the_last_window_is_sent_and_its_acknowledgement_waited_for() {
    let mut pair = Pair::start().await;
    let mut stream = pair.stream(0, 8).await;
    pair.shutdown.cancel();
    // The window loop cuts its last window after the signal.
    sleep(A_WHILE).await;
    pair.push(101);
    pair.outbox.close();
    assert_eq!(stream.batch().await, Some((1, 101, false)));
    assert!(timeout(A_WHILE, pair.agent.join_next()).await.is_err(), "it waits");
    stream.acknowledge(1, 8).await;
    timeout(WITHIN, pair.agent.join_next()).await.unwrap().unwrap().unwrap();
}

#[tokio::test]
async fn a_server_that_the_authority_did_not_sign_gets_no_token() {
    let files = tempfile::tempdir().unwrap();
    certificates(files.path());
    let other = pki::make_authority(Timestamp::now()).unwrap().certificate;
    let mut pair = Pair::trusting(&other, files).await;
    pair.push(101);
    assert!(timeout(A_WHILE, pair.streams.recv()).await.is_err());
    pair.shutdown.cancel();
    timeout(WITHIN, pair.agent.join_next()).await.unwrap().unwrap().unwrap();
}
