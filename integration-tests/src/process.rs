//! Processes that outlive their starter, ended by id: a recycled id is told by its start time.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde::{Deserialize, Serialize};

/// How long a process may take to end by itself.
const GRACE: Duration = Duration::from_secs(5);
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Name of the mark in the environment of what was started: its value is the state directory. It
/// finds processes whose record was lost, and the shims that inherit it.
pub const MARK: &str = "KEELSON_CLUSTER_STATE";

/// A process that was started, as recorded in the state directory.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Started {
    /// Its name: of the record and of the log.
    pub name: String,
    /// Its id.
    pub pid: i32,
    /// Its start time in clock ticks since boot.
    pub start_ticks: u64,
}

/// Starts a program in a session of its own, its output in `log/<name>.log`, recorded in
/// `run/<name>.json`.
///
/// # Errors
/// It cannot be started or recorded.
pub fn start(state: &Path, name: &str, command: &[String]) -> anyhow::Result<Started> {
    let log = state.join("log").join(format!("{name}.log"));
    let output = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let child = Command::new("setsid")
        .args(command)
        .current_dir(state)
        .env(MARK, state)
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .spawn()
        .with_context(|| format!("cannot start {name}: {command:?}"))?;
    let pid = i32::try_from(child.id())?;
    let start_ticks =
        start_ticks(pid).with_context(|| format!("{name} ended at once; see {}", log.display()))?;
    let started = Started { name: name.to_owned(), pid, start_ticks };
    let record = state.join("run").join(format!("{name}.json"));
    fs::write(&record, serde_json::to_vec(&started)?)?;
    Ok(started)
}

/// All that were recorded.
#[must_use]
pub fn recorded(state: &Path) -> Vec<Started> {
    let entries = fs::read_dir(state.join("run")).into_iter().flatten().flatten();
    entries.filter_map(|entry| serde_json::from_slice(&fs::read(entry.path()).ok()?).ok()).collect()
}

impl Started {
    /// It runs still.
    #[must_use]
    pub fn is_running(&self) -> bool {
        start_ticks(self.pid) == Some(self.start_ticks)
    }

    /// Asks it to end, insists after a while, and forgets it.
    ///
    /// # Errors
    /// It does not end.
    pub fn end(&self, state: &Path) -> anyhow::Result<()> {
        for signal in [Signal::TERM, Signal::KILL] {
            let until = Instant::now() + GRACE;
            if let Some(pid) = Pid::from_raw(self.pid)
                && self.is_running()
            {
                let _ = kill_process(pid, signal);
            }
            while self.is_running() && Instant::now() < until {
                thread::sleep(LOOK_EVERY);
            }
        }
        if self.is_running() {
            bail!("{} (process {}) does not end", self.name, self.pid);
        }
        let _ = fs::remove_file(state.join("run").join(format!("{}.json", self.name)));
        Ok(())
    }
}

/// Every process with the mark of that state directory, recorded or not.
#[must_use]
pub fn marked(state: &Path) -> Vec<Started> {
    let mark = format!("{MARK}={}", state.display());
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let is_marked = environment.split(|byte| *byte == 0).any(|word| word == mark.as_bytes());
        let start_ticks = is_marked.then(|| start_ticks(pid)).flatten()?;
        Some(Started { name: format!("process-{pid}"), pid, start_ticks })
    })
    .collect()
}

/// Field 22 of /proc/PID/stat; none for a process that is gone or only waits to be reaped.
fn start_ticks(pid: i32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold anything, a parenthesis too.
    let (_, rest) = stat.rsplit_once(") ")?;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    if state == "Z" || state == "X" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// Waits until `is_there` holds.
///
/// # Errors
/// It does not within the time; `what` is named with the last answer.
pub fn wait_for<T>(
    what: &str,
    within: Duration,
    mut look: impl FnMut() -> Result<T, String>,
) -> anyhow::Result<T> {
    let until = Instant::now() + within;
    loop {
        match look() {
            Ok(found) => return Ok(found),
            Err(last) if Instant::now() >= until => {
                bail!("gave up on {what} after {} s; last: {last}", within.as_secs())
            }
            Err(_) => thread::sleep(LOOK_EVERY),
        }
    }
}

/// Runs a command to its end; its output is part of the error.
///
/// # Errors
/// It cannot be run, or ends with a failure.
pub fn run(program: &str, args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {program}"))?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let stderr = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {} failed: {}{}", args.join(" "), stdout, stderr.trim());
    }
    Ok(stdout)
}
