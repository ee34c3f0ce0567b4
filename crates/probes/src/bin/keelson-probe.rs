//! Loads the probe `tcp` and says what it sees, for a look at a kernel without a cluster:
//!
//!     keelson-probe [SECONDS] [BTF FILE]
//!
//! Lines: `program ...` for each program, `series ...`, `record ...` and `ledger ...` after SECONDS.
#![expect(clippy::print_stdout, reason = "it is a program that prints")]

use std::{
    process::ExitCode,
    sync::mpsc::{Receiver, sync_channel},
    time::{Duration, Instant},
};

use keelson_abi::Event;
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
    let mut arguments = std::env::args().skip(1);
    let seconds: f64 = arguments.next().map_or(Ok(5.0), |text| text.parse())?;
    let config = TcpProbeConfig { btf: arguments.next().map(Into::into), ..Default::default() };
    let mut probe = TcpProbe::load(&config)?;
    for program in probe.programs() {
        let state = format!("{:?}", program.state).to_lowercase();
        println!("program {} {state} {} {}", program.function, program.hook, program.reason);
    }
    let (sink, batches) = sync_channel(BATCHES);
    let reader = probe.start_reader(sink)?;
    println!("ready");
    let records = receive(&batches, Duration::from_secs_f64(seconds));
    drop(reader);
    for (key, value) in probe.series()? {
        println!("series {key:?} {:?}", value.counters);
    }
    let cut = probe.kernel_ledger()?;
    println!("ledger produced={} received={records} lost={}", cut.produced, cut.lost_total());
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
