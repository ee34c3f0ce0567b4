//! Line 4.6, second half: the fuzz targets for ten minutes each, at once, from their corpora.
//!
//! Without a sanitizer, which stable compilers do not have: what is sought is a panic, and nothing
//! here is unsafe. `RUSTC_BOOTSTRAP` lets cargo-fuzz set the instrumentation's flags.

use std::{
    fs::File,
    path::PathBuf,
    process::{Child, Command, Stdio},
};

use anyhow::{Context, bail};

use super::Outcome;
use crate::{paths, step::step, tools};

const VERSION: &str = "0.13.1";
const TARGETS: [&str; 3] = ["decode", "ingest", "filters"];
const SECONDS: u32 = 600;
/// What the fuzzer makes of the corpus goes to the cache: the tree keeps the seeds alone.
const CORPUS: &str = "fuzz-corpus";

/// Runs every target.
///
/// # Errors
/// cargo-fuzz cannot be had, or a target cannot be built.
pub fn fuzz() -> anyhow::Result<Outcome> {
    tools::packages(&["g++"])?;
    let program = cargo_fuzz()?;
    step("building the fuzz targets", || {
        let status = command(&program).args(["fuzz", "build", "--sanitizer=none"]).status()?;
        if status.success() { Ok(()) } else { bail!("cargo-fuzz could not build the targets") }
    })?;
    let logs = paths::cache().join(CORPUS);
    let mut runs: Vec<(&str, PathBuf, Child)> = Vec::new();
    for target in TARGETS {
        let corpus = logs.join(target);
        std::fs::create_dir_all(&corpus)?;
        let log = logs.join(format!("{target}.log"));
        let child = command(&program)
            .args(["fuzz", "run", "--sanitizer=none", target])
            .arg(&corpus)
            .arg(paths::tree().join("fuzz/corpus").join(target))
            .args(["--", &format!("-max_total_time={SECONDS}"), "-print_final_stats=1"])
            .stdout(Stdio::null())
            .stderr(File::create(&log)?)
            .spawn()?;
        runs.push((target, log, child));
    }
    let mut outcome = Outcome::default();
    step(&format!("fuzzing {} targets for {SECONDS} s", TARGETS.len()), || {
        for (target, log, mut child) in runs {
            let status = child.wait()?;
            let text = std::fs::read_to_string(&log)?;
            let executed =
                text.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
            let executed = executed.unwrap_or("no count of").trim();
            outcome.figures.push(format!("{target}: {executed} inputs in {SECONDS} s"));
            if !status.success() {
                outcome.failures.push(format!("{target} found something; see {}", log.display()));
            }
        }
        Ok(())
    })?;
    Ok(outcome)
}

fn command(program: &PathBuf) -> Command {
    let mut command = Command::new(program);
    command
        .current_dir(paths::tree().join("fuzz"))
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", paths::cache().join("fuzz"));
    command
}

fn cargo_fuzz() -> anyhow::Result<PathBuf> {
    let root = paths::cache().join("tools").join(format!("cargo-fuzz-{VERSION}"));
    let program = root.join("bin/cargo-fuzz");
    if program.is_file() {
        return Ok(program);
    }
    step(&format!("building cargo-fuzz {VERSION} (once)"), || {
        let status = Command::new("cargo")
            .args(["install", "--quiet", "--locked", "--version", VERSION, "cargo-fuzz", "--root"])
            .arg(&root)
            .status()
            .context("cannot run cargo")?;
        if status.success() { Ok(()) } else { bail!("cargo could not install cargo-fuzz") }
    })?;
    Ok(program)
}
