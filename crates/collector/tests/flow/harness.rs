//! A collector on port 0 with real TLS and a clock that stands, fake agents and a fake token check.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures::future::BoxFuture;
use keelson_cluster::{
    permissions::Permission,
    tokens::{Caller, Outcome, User},
};
use keelson_collector::{
    access::{Access, Checks},
    metrics::Metrics,
    names::{Claim, Holder},
    serve,
    shared::Shared,
};
use keelson_model::{Endpoint, PodRef, ServiceRef, UnixNanos, WindowId, WorkloadRef};
use keelson_proto::{
    query::query_client::QueryClient,
    telemetry::{
        self as wire, agent_message, collector_message, telemetry_client::TelemetryClient,
    },
};
use keelson_runtime::{
    clock::ManualClock,
    shutdown::Shutdown,
    tls::{ClientTls, ServerTls},
};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tempfile::TempDir;
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Status, Streaming, transport::Channel};

pub const SERVER_NAME: &str = "keelson-collector.keelson-system.svc";
/// The window in which every test begins.
pub const FIRST: u64 = 350_000_000;
/// The nodes' boot: so long before the first window.
pub const UPTIME_NS: u64 = 1_000_000_000_000;

pub struct Collector {
    pub accounts: Arc<Accounts>,
    pub shared: Arc<Shared>,
    pub clock: Arc<ManualClock>,
    client: ClientTls,
    channel: Channel,
    shutdown: Shutdown,
    tasks: JoinSet<()>,
    _directory: TempDir,
}

/// Tokens are `agent:NODE:POD`, `reader`, `operator`, `stranger`, `viewer` (of the namespace shop) and
/// `away`; whose right is withdrawn may no more.
#[derive(Default)]
pub struct Accounts {
    pub is_withdrawn: AtomicBool,
}

impl Checks for Accounts {
    fn service_token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Outcome> {
        let account = |name: &str, binding: Option<(&str, &str)>| {
            let name = format!("system:serviceaccount:{name}");
            Outcome::Ok(Caller {
                user: User { name, ..User::default() },
                node_name: binding.map(|(node, _)| node.to_owned()),
                pod_uid: binding.map(|(_, pod)| pod.to_owned()),
            })
        };
        let outcome = match token.split_once(':') {
            Some(("agent", bound)) => {
                account("keelson-system:keelson-agent", bound.split_once(':'))
            }
            Some(("unbound", _)) => account("keelson-system:keelson-agent", None),
            _ => match token {
                "reader" => account("keelson-system:keelson-reader", None),
                "operator" => account("keelson-system:keelson-operator", None),
                "stranger" => account("shop:default", None),
                "viewer" => account("shop:viewer", None),
                "away" => Outcome::Unavailable,
                _ => Outcome::Denied("it has expired".into()),
            },
        };
        Box::pin(std::future::ready(outcome))
    }

    fn api_server_token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Outcome> {
        // None of the tokens here is a JWT, which would say for whom it is.
        self.service_token(token)
    }

    fn may_get_flows<'a>(
        &'a self,
        user: &'a User,
        namespace: Option<&'a str>,
    ) -> BoxFuture<'a, Permission> {
        let is_withdrawn = self.is_withdrawn.load(Ordering::SeqCst);
        let permission = match (user.name.as_str(), namespace) {
            _ if is_withdrawn => Permission::Denied,
            ("system:serviceaccount:keelson-system:keelson-reader", _) => Permission::Granted,
            ("system:serviceaccount:shop:viewer", Some("shop")) => Permission::Granted,
            _ => Permission::Denied,
        };
        Box::pin(std::future::ready(permission))
    }
}

impl Collector {
    pub async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let authority = certificates(directory.path());
        let clock = Arc::new(ManualClock::at(WindowId(FIRST).start().0));
        let shutdown = Shutdown::new();
        let shared =
            Arc::new(Shared::new(Arc::clone(&clock) as _, shutdown.clone(), Metrics::default()));
        let accounts = Arc::new(Accounts::default());
        let access = Access::new(
            Arc::clone(&accounts) as _,
            Arc::clone(&clock) as _,
            shared.metrics.clone(),
            Duration::from_millis(100),
        );
        let tls = ServerTls::load(directory.path()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut tasks = JoinSet::new();
        let server = serve::grpc(listener, tls, Arc::clone(&shared), access, shutdown.clone());
        tasks.spawn(async move { server.await.unwrap() });
        let client = ClientTls {
            address: format!("https://127.0.0.1:{port}"),
            authority,
            server_name: Some(SERVER_NAME.into()),
        };
        let channel = client.connect().await.unwrap();
        Self { accounts, shared, clock, client, channel, shutdown, tasks, _directory: directory }
    }

    /// Ends the service; all that it runs must end by itself.
    pub async fn stop(mut self) {
        self.shutdown.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// Moves the clock to `offset_ms` after the start of `window` and closes what is due.
    pub fn at(&self, window: u64, offset_ms: u64) {
        self.clock.set(WindowId(window).start().0 + offset_ms * 1_000_000);
        self.shared.tick();
    }

    pub fn queries(&self) -> QueryClient<Channel> {
        QueryClient::new(self.channel.clone())
    }

    /// A client on a connection of its own.
    pub async fn connect(&self) -> QueryClient<Channel> {
        QueryClient::new(self.client.connect().await.unwrap())
    }

    /// Begins a stream without looking at its answers.
    pub async fn stream(
        &self,
        token: &str,
        first: wire::AgentMessage,
    ) -> Result<(mpsc::Sender<wire::AgentMessage>, Streaming<wire::CollectorMessage>), Status> {
        let (sender, receiver) = mpsc::channel(64);
        sender.send(first).await.unwrap();
        let request = with_token(ReceiverStream::new(receiver), token);
        let answer = TelemetryClient::new(self.channel.clone()).stream(request).await?;
        Ok((sender, answer.into_inner()))
    }

    /// An agent of `node` that was welcomed.
    pub async fn agent(&self, node: &str, pod_uid: &str) -> Agent {
        let hello = hello(node, pod_uid);
        let (sender, mut answers) =
            self.stream(&format!("agent:{node}:{pod_uid}"), hello).await.unwrap();
        let first = answers.message().await.unwrap().unwrap();
        let Some(collector_message::Message::Welcome(welcome)) = first.message else {
            panic!("no welcome but {first:?}")
        };
        Agent { sender, answers, last_batch: welcome.last_batch }
    }
}

pub struct Agent {
    sender: mpsc::Sender<wire::AgentMessage>,
    answers: Streaming<wire::CollectorMessage>,
    pub last_batch: u64,
}

impl Agent {
    /// Sends a batch and gives what was acknowledged.
    pub async fn send(&mut self, batch: wire::Batch) -> Result<u64, Status> {
        self.sender.send(message(batch)).await.unwrap();
        self.answer().await
    }

    /// The next acknowledgement.
    pub async fn answer(&mut self) -> Result<u64, Status> {
        match self.answers.message().await?.and_then(|answer| answer.message) {
            Some(collector_message::Message::Ack(ack)) => {
                assert_eq!(ack.level(), wire::AckLevel::Received);
                Ok(ack.batch)
            }
            other => panic!("no acknowledgement but {other:?}"),
        }
    }
}

pub fn with_token<T>(message: T, token: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    request
}

pub fn hello(node: &str, pod_uid: &str) -> wire::AgentMessage {
    let hello = wire::Hello {
        agent_version: "0.1.0".into(),
        node_name: node.into(),
        node_uid: format!("uid-{node}"),
        agent_pod_uid: pod_uid.into(),
        boot_id: "boot".into(),
        epoch: 1,
        window_seconds: 5,
        kernel_release: "6.18.0".into(),
    };
    wire::AgentMessage { message: Some(agent_message::Message::Hello(hello)) }
}

pub fn message(batch: wire::Batch) -> wire::AgentMessage {
    wire::AgentMessage { message: Some(agent_message::Message::Batch(batch)) }
}

/// A batch of one pod's series, cut at the end of its window.
pub fn batch(number: u64, window: u64, pod: &str, series: Vec<wire::Series>) -> wire::Batch {
    let boot = WindowId(FIRST).start().0 - UPTIME_NS;
    wire::Batch {
        number,
        window,
        clock: Some(wire::Clock {
            unix_minus_boot_ns: boot.cast_signed(),
            uncertainty_ns: 100,
            unix_ns: WindowId(window).end().0,
        }),
        series,
        pods: vec![wire::Pod {
            uid: format!("uid-{pod}"),
            namespace: "shop".into(),
            name: pod.into(),
            workload: Some(wire::Workload {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                name: pod.split('-').next().unwrap_or_default().into(),
            }),
            revision: "r1".into(),
            host_network: false,
        }],
        last_part: true,
        ..Default::default()
    }
}

/// Cumulative values towards `remote`, begun `before_ms` before the first window.
pub fn series(remote: [u8; 4], before_ms: u64, segments: u64, again: u64) -> wire::Series {
    wire::Series {
        local: Some(wire::Local {
            local: Some(wire::local::Local::Pod(0)),
            container_id: String::new(),
        }),
        direction: wire::Direction::Outbound.into(),
        remote_address: remote.to_vec(),
        port: 8080,
        start_boot_ns: UPTIME_NS - before_ms * 1_000_000,
        cgroup_id: 77,
        counters: Some(wire::TcpCounters {
            opened: 1,
            data_segments_sent: segments,
            retransmitted_segments: again,
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Record number `number` of one end of the connection with these numbers, cumulative.
pub fn record(
    number: u64,
    isn: (u32, u32),
    direction: wire::Direction,
    remote: [u8; 4],
    (segments, again): (u64, u64),
) -> wire::ConnectionRecord {
    wire::ConnectionRecord {
        local: Some(wire::Local {
            local: Some(wire::local::Local::Pod(0)),
            container_id: String::new(),
        }),
        sequence: number,
        kind: wire::RecordKind::Progress.into(),
        direction: direction.into(),
        network_namespace: 4_026_531_840,
        local_address: vec![10, 1, 0, 5],
        remote_address: remote.to_vec(),
        local_port: 8080,
        remote_port: 8080,
        client_isn: isn.0,
        server_isn: isn.1,
        isn_valid: true,
        start_boot_ns: UPTIME_NS,
        established_boot_ns: UPTIME_NS,
        end_boot_ns: UPTIME_NS + number * 1_000_000_000,
        sampling_threshold: u32::MAX,
        keep_reasons: 1,
        counters: Some(wire::TcpCounters {
            data_segments_sent: segments,
            retransmitted_segments: again,
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Makes an address known as a Service's.
pub fn know_service(collector: &Collector, name: &str, address: [u8; 4]) {
    let service = ServiceRef { namespace: "shop".into(), name: name.into() };
    let claim = Claim {
        holder: Holder::Service(service.clone()),
        endpoint: Endpoint::Service(service),
        addresses: vec![address.into()],
        weak_addresses: vec![],
        pod_ranges: vec![],
        from: UnixNanos(0),
    };
    collector.shared.names_mut().set(claim, collector.shared.now());
}

/// Makes an address known as a pod's.
pub fn know(collector: &Collector, pod: &str, node: &str, address: [u8; 4]) {
    know_as(collector, ("shop", pod), node, address);
}

/// Makes an address known as that of a pod of another namespace.
pub fn know_pod(collector: &Collector, namespace: &str, pod: &str, address: [u8; 4]) {
    know_as(collector, (namespace, pod), "node-b", address);
}

fn know_as(collector: &Collector, (namespace, pod): (&str, &str), node: &str, address: [u8; 4]) {
    let uid = format!("uid-{pod}");
    let claim = Claim {
        holder: Holder::Pod(uid.as_str().into()),
        endpoint: Endpoint::Pod(PodRef {
            uid: uid.as_str().into(),
            namespace: namespace.into(),
            name: pod.into(),
            node: node.into(),
            workload: Some(WorkloadRef {
                api_version: "apps/v1".into(),
                kind: "Deployment".into(),
                name: pod.split('-').next().unwrap_or_default().into(),
            }),
            revision: "r1".into(),
            host_network: false,
        }),
        addresses: vec![address.into()],
        weak_addresses: vec![],
        pod_ranges: vec![],
        from: UnixNanos(0),
    };
    collector.shared.names_mut().set(claim, collector.shared.now());
}

/// Everything of a finite answer.
pub async fn all<T>(mut answer: Streaming<T>) -> Vec<T> {
    let mut messages = Vec::new();
    while let Some(message) = answer.message().await.unwrap() {
        messages.push(message);
    }
    messages
}

fn certificates(directory: &Path) -> std::path::PathBuf {
    let ca_key = KeyPair::generate().unwrap();
    let mut ca = CertificateParams::new(vec![]).unwrap();
    ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_pem = ca.self_signed(&ca_key).unwrap().pem();
    let issuer = Issuer::new(ca, ca_key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec![SERVER_NAME.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    std::fs::write(directory.join("tls.crt"), leaf.pem()).unwrap();
    std::fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
    let path = directory.join("ca.crt");
    std::fs::write(&path, ca_pem).unwrap();
    path
}
