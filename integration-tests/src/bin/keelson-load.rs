//! The traffic of tests and of the demo: a server that answers, a client that keeps a steady rate of
//! data segments towards every address of its target, and both with a log of their own.
#![expect(clippy::print_stdout, reason = "its log is what it prints")]

use std::{
    collections::HashSet,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::Context;
use clap::{Args, Parser, Subcommand, ValueEnum};
use keelson_integration_tests::retransmits;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream, lookup_host},
    signal::unix::{SignalKind, signal},
    task::JoinSet,
    time::{MissedTickBehavior, interval, sleep, timeout},
};

/// Requests on one short connection.
const SHORT_EXCHANGES: u32 = 10;
/// Short connections under way to one address: more than a lost segment's time-out needs.
const SHORT_WORKERS: u32 = 16;
const LARGEST: usize = 64 * 1024;
const RESOLVE_EVERY: Duration = Duration::from_secs(2);
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
const CONNECTIONS_AT_ONCE: usize = 4_096;

#[derive(Parser)]
#[command(name = "keelson-load", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Answers each request with as many bytes
    Server(ServerArgs),
    /// Sends requests at a steady rate to every address of a host
    Client(ClientArgs),
}

#[derive(Args)]
struct ServerArgs {
    /// Port of the data
    #[arg(long, default_value_t = 8080)]
    port: u16,
    /// Port that answers HTTP 200, for probes
    #[arg(long, default_value_t = 8081)]
    health_port: u16,
}

#[derive(Args, Clone)]
struct ClientArgs {
    /// HOST:PORT
    #[arg(long)]
    target: String,
    /// How connections are used
    #[arg(long, value_enum)]
    mode: Mode,
    /// Data segments per second to each address
    #[arg(long, default_value_t = 120)]
    rate: u32,
    /// Connections to each address that are kept alive
    #[arg(long, default_value_t = 16)]
    connections: u32,
    /// Requests after which a connection that is kept alive is made anew: what comes behind a
    /// Service's address later gets its share
    #[arg(long, default_value_t = u32::MAX)]
    requests: u32,
    /// Payload bytes of a request; one segment
    #[arg(long, default_value_t = 512)]
    size: usize,
    /// Answered requests, over all connections, after which it ends by itself
    #[arg(long)]
    count: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Mode {
    /// Ten requests, then closed
    Short,
    /// Open for as long as it lasts, or for --requests
    Keepalive,
}

impl ClientArgs {
    /// Requests on one connection.
    fn exchanges(&self) -> u32 {
        match self.mode {
            Mode::Short => SHORT_EXCHANGES,
            Mode::Keepalive => self.requests,
        }
    }
}

/// What this process did.
#[derive(Default)]
struct Log {
    opened: AtomicU64,
    closed: AtomicU64,
    failed: AtomicU64,
    broken: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_received: AtomicU64,
    segments_retransmitted: AtomicU64,
    bytes_retransmitted: AtomicU64,
}

impl Log {
    fn add(counter: &AtomicU64, by: u64) {
        counter.fetch_add(by, Ordering::Relaxed);
    }

    /// At the end of a connection, before its socket is closed.
    fn close(&self, stream: &TcpStream) {
        let retransmits = retransmits::of(stream).unwrap_or_default();
        Self::add(&self.segments_retransmitted, retransmits.segments);
        Self::add(&self.bytes_retransmitted, retransmits.bytes);
        Self::add(&self.closed, 1);
    }

    fn print(&self) {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let line = json!({
            "opened": read(&self.opened),
            "closed": read(&self.closed),
            "failed": read(&self.failed),
            "broken": read(&self.broken),
            "bytesSent": read(&self.bytes_sent),
            "bytesReceived": read(&self.bytes_received),
            "segmentsRetransmitted": read(&self.segments_retransmitted),
            "bytesRetransmitted": read(&self.bytes_retransmitted),
        });
        println!("{line}");
    }
}

/// Requests that a client may still make; without a count there is no end of them.
struct Budget(Option<AtomicU64>);

impl Budget {
    fn of(count: Option<u64>) -> Self {
        Self(count.map(AtomicU64::new))
    }

    /// One request less, unless none is left.
    fn take(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        let Some(left) = &self.0 else { return true };
        left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// A request that was taken had no answer: another may be made in its place.
    fn give_back(&self) {
        if let Some(left) = &self.0 {
            left.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_spent(&self) -> bool {
        self.0.as_ref().is_some_and(|left| left.load(Ordering::Relaxed) == 0)
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let log = Arc::new(Log::default());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let work = async {
        match Cli::parse().command {
            Command::Server(args) => serve(args, &log).await,
            Command::Client(args) => drive(args, &log).await,
        }
    };
    let report = async {
        let mut ticks = interval(Duration::from_secs(10));
        loop {
            ticks.tick().await;
            log.print();
        }
    };
    let ended = tokio::select! {
        ended = work => ended,
        () = report => Ok(()),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    log.print();
    ended
}

async fn serve(args: ServerArgs, log: &Arc<Log>) -> anyhow::Result<()> {
    let listen = |port: u16| async move {
        let address = SocketAddr::from(([0, 0, 0, 0], port));
        TcpListener::bind(address).await.with_context(|| format!("cannot listen on {address}"))
    };
    let (data, health) = (listen(args.port).await?, listen(args.health_port).await?);
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = data.accept(), if tasks.len() < CONNECTIONS_AT_ONCE => {
                let Ok((stream, _)) = accepted else { continue };
                let log = Arc::clone(log);
                tasks.spawn(async move { answer(stream, &log).await });
            }
            accepted = health.accept(), if tasks.len() < CONNECTIONS_AT_ONCE => {
                let Ok((stream, _)) = accepted else { continue };
                tasks.spawn(async move { say_healthy(stream).await });
            }
            Some(_) = tasks.join_next() => {}
        }
    }
}

async fn answer(mut stream: TcpStream, log: &Log) {
    Log::add(&log.opened, 1);
    if stream.set_nodelay(true).is_ok() {
        let mut message = Vec::new();
        while read_message(&mut stream, &mut message).await.is_ok() {
            Log::add(&log.bytes_received, message.len() as u64);
            if stream.write_all(&message).await.is_err() {
                break;
            }
            Log::add(&log.bytes_sent, message.len() as u64);
        }
    }
    log.close(&stream);
}

/// A message is its length, four bytes big-endian, and so many bytes with the length among them.
async fn read_message(stream: &mut TcpStream, message: &mut Vec<u8>) -> std::io::Result<()> {
    let length = stream.read_u32().await?;
    let wanted = usize::try_from(length).unwrap_or(usize::MAX);
    if !(4..=LARGEST).contains(&wanted) {
        return Err(std::io::ErrorKind::InvalidData.into());
    }
    message.clear();
    message.extend(length.to_be_bytes());
    message.resize(wanted, 0);
    let body = message.get_mut(4..).unwrap_or_default();
    stream.read_exact(body).await.map(|_| ())
}

async fn say_healthy(mut stream: TcpStream) {
    let mut request = [0; 1024];
    let _ = timeout(ANSWER_WITHIN, stream.read(&mut request)).await;
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let _ = stream.write_all(answer).await;
    let _ = stream.shutdown().await;
}

async fn drive(args: ClientArgs, log: &Arc<Log>) -> anyhow::Result<()> {
    anyhow::ensure!(
        args.rate > 0 && args.connections > 0,
        "--rate and --connections must be 1 or more"
    );
    anyhow::ensure!((4..=LARGEST).contains(&args.size), "--size must lie in 4..={LARGEST}");
    let budget = Arc::new(Budget::of(args.count));
    let mut known = HashSet::new();
    let mut tasks = JoinSet::new();
    let mut resolve = interval(RESOLVE_EVERY);
    loop {
        tokio::select! {
            _ = resolve.tick() => {
                let Ok(addresses) = lookup_host(&args.target).await else { continue };
                for address in addresses.filter(|address| known.insert(*address)) {
                    let workers = match args.mode {
                        Mode::Short => SHORT_WORKERS,
                        Mode::Keepalive => args.connections,
                    };
                    for worker in 1..=workers {
                        // Not all made anew at once: the first of each lasts a part of its life.
                        let share = match args.mode {
                            Mode::Short => workers,
                            Mode::Keepalive => worker,
                        };
                        let first = u64::from(args.exchanges()) * u64::from(share);
                        let first = first.div_ceil(workers.into());
                        let (args, log) = (args.clone(), Arc::clone(log));
                        let budget = Arc::clone(&budget);
                        tasks.spawn(async move {
                            work(address, &args, (workers, first), &budget, &log).await
                        });
                    }
                }
            }
            // A worker ends when its address is gone for good; it may come back.
            Some(Ok(address)) = tasks.join_next() => {
                if budget.is_spent() && tasks.is_empty() {
                    return Ok(());
                }
                known.remove(&address);
            }
        }
    }
}

/// Connects again and again until all requests are made; gives up on an address that is not there
/// any more.
async fn work(
    address: SocketAddr,
    args: &ClientArgs,
    (workers, first): (u32, u64),
    budget: &Budget,
    log: &Log,
) -> SocketAddr {
    let mut wait = FIRST_WAIT;
    let mut exchanges = first;
    let every = Duration::from_secs(1) * workers / args.rate;
    while !budget.is_spent() {
        match timeout(ANSWER_WITHIN, TcpStream::connect(address)).await {
            Ok(Ok(mut stream)) => {
                Log::add(&log.opened, 1);
                wait = FIRST_WAIT;
                let ended = exchange(&mut stream, args, (every, exchanges), budget, log).await;
                exchanges = args.exchanges().into();
                log.close(&stream);
                if ended.is_err() || stream.shutdown().await.is_err() {
                    Log::add(&log.broken, 1);
                }
            }
            Ok(Err(_)) | Err(_) => {
                Log::add(&log.failed, 1);
                sleep(wait).await;
                wait = (wait * 2).min(LONGEST_WAIT);
                if wait == LONGEST_WAIT && !is_still_there(address, args).await {
                    return address;
                }
            }
        }
    }
    address
}

async fn is_still_there(address: SocketAddr, args: &ClientArgs) -> bool {
    let found = lookup_host(&args.target).await;
    found.is_ok_and(|mut addresses| addresses.any(|known| known == address))
}

async fn exchange(
    stream: &mut TcpStream,
    args: &ClientArgs,
    (every, exchanges): (Duration, u64),
    budget: &Budget,
    log: &Log,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let length = u32::try_from(args.size).unwrap_or(4);
    let mut request = vec![0; args.size];
    if let Some(head) = request.get_mut(..4) {
        head.copy_from_slice(&length.to_be_bytes());
    }
    let mut reply = Vec::new();
    let mut ticks = interval(every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut left = exchanges;
    while left > 0 && budget.take() {
        left -= 1;
        ticks.tick().await;
        let answered = ask(stream, &request, &mut reply, log).await;
        answered.inspect_err(|_| budget.give_back())?;
    }
    Ok(())
}

async fn ask(
    stream: &mut TcpStream,
    request: &[u8],
    reply: &mut Vec<u8>,
    log: &Log,
) -> std::io::Result<()> {
    stream.write_all(request).await?;
    Log::add(&log.bytes_sent, request.len() as u64);
    let read = timeout(ANSWER_WITHIN, read_message(stream, reply)).await;
    read.map_err(|_| std::io::ErrorKind::TimedOut)??;
    Log::add(&log.bytes_received, reply.len() as u64);
    Ok(())
}
