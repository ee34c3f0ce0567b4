//! The demo: a pod that Kubernetes calls Ready and the kernels do not. It installs, breaks one
//! server pod's network, prints what both sides say, and checks its own claims.
#![expect(clippy::print_stdout, reason = "what it prints is the demo")]

use std::process::ExitCode;

use crate::{
    cluster::Cluster,
    images,
    step::{say, step},
};

pub mod fault;
pub mod install;
pub mod run;
pub mod view;

use fault::Kind;
use run::Report;

/// Runs the demo; the cluster stays up.
///
/// # Errors
/// Something cannot be had or does not come up; a claim that fails is an exit code.
pub fn run() -> anyhow::Result<ExitCode> {
    let cluster = Cluster::up()?;
    let changed = cluster.load(&images::build()?)?;
    install::install(&cluster, &changed)?;
    step("waiting until the kernels have seen every Application", || install::settled(&cluster))?;
    println!("\nBEFORE\n{}", view::side_by_side(&cluster)?);
    let report = run::fault_run(&cluster, Kind::Door, &mut |moment, text| {
        println!("\n{moment}\n{text}");
    })?;
    println!("\n{}", report.summary());
    if !report.failures.is_empty() {
        for failure in &report.failures {
            say(&format!("claim failed: {failure}"));
        }
        return Ok(ExitCode::FAILURE);
    }
    println!("{NEXT}");
    Ok(ExitCode::SUCCESS)
}

const NEXT: &str = "
The cluster stays up. Try next:
  ./justw cluster kubectl -n demo get applications -o wide
  ./justw keelson explain application shop -n demo
  ./justw keelson observe -n demo --application shop --last 20
  ./justw keelson nodes
  ./justw demo-down                 removes everything";

/// Runs a fault of each kind `times` times and gives the reports.
///
/// # Errors
/// The cluster cannot be used.
pub fn fault_runs(cluster: &Cluster, kinds: &[Kind], times: usize) -> anyhow::Result<Vec<Report>> {
    let mut reports = Vec::new();
    for kind in kinds {
        for number in 1..=times {
            install::settled(cluster)?;
            let report = run::fault_run(cluster, *kind, &mut |_, _| {})?;
            say(&format!("{number}/{times} {}", report.summary()));
            reports.push(report);
        }
    }
    Ok(reports)
}
