//! Loads the probe `tcp` and says what it sees, for a look at a kernel without a cluster:
//!
//!     keelson-probe [SECONDS] [BTF FILE]
//!     keelson-probe --self-test CONNECTIONS
//!
//! The self-test makes so many connections over loopback and says what was counted of them.
//!
//! Lines: `program ...` for each program, `series ...`, `record ...` and `ledger ...` after SECONDS.
#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::ExitCode,
    sync::mpsc::{Receiver, sync_channel},
    thread,
    time::{Duration, Instant},
};

use keelson_abi::Event;
use keelson_model::SeriesValue;
use keelson_probes::{RawBatch, TcpProbe, TcpProbeConfig};

/// Batches between the reader and this program.
const BATCHES: usize = 64;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            println!("failed {}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).peekable();
    if arguments.next_if(|argument| argument == "--self-test").is_some() {
        return self_test(arguments.next().ok_or("how many connections?")?.parse()?);
    }
    let seconds: f64 = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let config = TcpProbeConfig { btf: arguments.next().map(Into::into), ..Default::default() };
    let mut probe = TcpProbe::load(&config)?;
    print_programs(&probe);
    let (sink, batches) = sync_channel(BATCHES);
    let reader = probe.start_reader(sink)?;
    println!("ready");
    let records = receive(&batches, Duration::from_secs_f64(seconds));
    drop(reader);
    for (key, value) in probe.series()? {
        println!("series {key:?} {:?}", value.counters);
    }
    let cut = probe.ledger()?;
    println!("ledger produced={} received={records} lost={}", cut.produced, cut.lost_total());
    Ok(())
}

fn print_programs(probe: &TcpProbe) {
    for program in probe.programs() {
        let state = format!("{:?}", program.state).to_lowercase();
        println!("program {} {state} {} {}", program.function, program.hook, program.reason);
    }
}

/// Bytes of a request and of its reply.
const REQUEST: usize = 64;
const REPLY: usize = 1024;

fn self_test(connections: usize) -> Result<(), Box<dyn std::error::Error>> {
    let mut probe = TcpProbe::load(&TcpProbeConfig::default())?;
    print_programs(&probe);
    let (sink, batches) = sync_channel(BATCHES);
    let reader = probe.start_reader(sink)?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let server = thread::spawn(move || serve(&listener, connections));
    for _ in 0..connections {
        let mut stream = TcpStream::connect(address)?;
        stream.write_all(&[1; REQUEST])?;
        stream.read_exact(&mut [0; REPLY])?;
    }
    server.join().map_err(|_| "the server panicked")??;
    // The last socket closes when its FIN was acknowledged.
    let until = Instant::now() + Duration::from_secs(20);
    let mut sides = Vec::new();
    while Instant::now() < until {
        sides = probe.series()?;
        sides.retain(|(key, _)| key.port == address.port());
        // Where the kernel has no BTF only the connecting side is seen.
        let is_whole = |value: &SeriesValue| value.counters.closed == connections as u64;
        if !sides.is_empty() && sides.iter().all(|(_, value)| is_whole(value)) {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    drop(reader);
    for (key, value) in sides {
        let counters = value.counters;
        println!(
            "self-test {:?} opened={} closed={} sent={} received={}",
            key.direction,
            counters.opened,
            counters.closed,
            counters.bytes_sent,
            counters.bytes_received
        );
    }
    let records = batches.try_iter().map(|batch| batch.samples.len() as u64).sum::<u64>();
    let cut = probe.ledger()?;
    println!("ledger produced={} received={records} lost={}", cut.produced, cut.lost_total());
    Ok(())
}

fn serve(listener: &TcpListener, connections: usize) -> std::io::Result<()> {
    for _ in 0..connections {
        let (mut stream, _) = listener.accept()?;
        stream.read_exact(&mut [0; REQUEST])?;
        stream.write_all(&[2; REPLY])?;
    }
    Ok(())
}

fn receive(batches: &Receiver<RawBatch>, during: Duration) -> u64 {
    let until = Instant::now() + during;
    let mut records = 0;
    while let Ok(batch) = batches.recv_timeout(until.saturating_duration_since(Instant::now())) {
        for sample in batch.samples {
            records += 1;
            match keelson_abi::decode(&sample) {
                Ok(Event::Connection(record)) => println!("record {record:?}"),
                Ok(event) => println!("event {event:?}"),
                Err(error) => println!("undecodable {error}"),
            }
        }
    }
    records
}

fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
