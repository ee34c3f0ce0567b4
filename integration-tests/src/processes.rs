//! The cluster's long-running processes: started in sessions of their own, recorded, ended by id.
//!
//! A process is (pid, start time): a reused pid is never signalled. Every process also carries the
//! state directory in its environment, so one that was started but not yet recorded when the harness
//! died is found all the same, and so are containerd's shims, which inherit it.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

use crate::layout::{Layout, MARKER};
use crate::wait;

/// A process that cannot be mistaken for a later one with its pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// The pid.
    pub pid: i32,
    /// Start time in clock ticks since boot.
    pub start_ticks: u64,
}

/// What is kept of a started process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Record {
    /// Its name within the cluster, such as `kubelet-node-a`.
    pub name: String,
    /// Which process.
    pub id: ProcessId,
}

// === impl ProcessId ===

impl ProcessId {
    /// The process that has `pid` now.
    #[must_use]
    pub fn of(pid: i32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name may hold spaces and brackets; the fields after the last bracket are counted.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let is_gone = fields.first().is_some_and(|state| matches!(*state, "Z" | "X"));
        let start_ticks = fields.get(19)?.parse().ok()?;
        (!is_gone).then_some(Self { pid, start_ticks })
    }

    /// Whether it still runs.
    #[must_use]
    pub fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(descriptor) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        // Checked after the descriptor is open: from here on it cannot become another process.
        if self.is_alive() {
            let _ = pidfd_send_signal(descriptor, signal);
        }
    }
}

/// Starts `program` in its own session, with its output in `log/<name>.log`, and records it.
///
/// # Errors
/// When the program or its log cannot be opened.
pub fn start(layout: &Layout, name: &str, program: &Path, arguments: &[String]) -> anyhow::Result<Record> {
    let log_path = layout.logs().join(format!("{name}.log"));
    let log = File::create(&log_path).with_context(|| format!("make {}", log_path.display()))?;
    // setsid(1) replaces itself with the program, so the child's pid is the program's.
    let mut child = Command::new("setsid")
        .arg(program)
        .args(arguments)
        .current_dir(layout.root())
        .env(MARKER, layout.root())
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("start {name}: {}", program.display()))?;
    let pid = i32::try_from(child.id()).context("a pid fits into 31 bits")?;
    let Some(id) = ProcessId::of(pid) else {
        anyhow::bail!("{name} ended at once ({}); see {}", child.wait()?, log_path.display());
    };
    // Reaps it should it end before this program does.
    std::thread::Builder::new().name(format!("reap-{name}")).spawn(move || drop(child.wait()))?;
    let record = Record { name: name.into(), id };
    std::fs::write(record_path(layout, name), serde_json::to_vec(&record)?)?;
    Ok(record)
}

/// Every recorded process, running or not.
#[must_use]
pub fn recorded(layout: &Layout) -> Vec<Record> {
    let Ok(entries) = std::fs::read_dir(layout.run()) else { return Vec::new() };
    entries
        .filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.ok()?.path()).ok()?).ok())
        .collect()
}

/// Every running process that carries the cluster's mark, recorded or not, but for the caller.
#[must_use]
pub fn marked(layout: &Layout) -> Vec<ProcessId> {
    let mark = [MARKER.as_bytes(), b"=", layout.root().as_os_str().as_encoded_bytes()].concat();
    all_pids()
        .filter(|pid| u32::try_from(*pid) != Ok(std::process::id()))
        .filter(|pid| {
            std::fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|entry| entry == mark))
        })
        .filter_map(ProcessId::of)
        .collect()
}

/// Asks all to end, and after `patience` kills those that have not.
pub fn end(processes: &[ProcessId], patience: Duration) {
    for process in processes {
        process.signal(Signal::TERM);
    }
    let all_gone = || processes.iter().all(|process| !process.is_alive());
    if wait::until_true("processes to end", patience, all_gone).is_err() {
        kill(processes);
    }
}

/// Kills all and waits until they are gone.
pub fn kill(processes: &[ProcessId]) {
    for process in processes {
        process.signal(Signal::KILL);
    }
    let _ = wait::until_true("killed processes", Duration::from_secs(5), || {
        processes.iter().all(|process| !process.is_alive())
    });
}

/// The processes within a cgroup and all below it.
#[must_use]
pub fn in_cgroup(path: &Path) -> Vec<ProcessId> {
    let own = std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let mut found: Vec<ProcessId> =
        own.lines().filter_map(|line| ProcessId::of(line.trim().parse().ok()?)).collect();
    for child in std::fs::read_dir(path).into_iter().flatten().flatten() {
        if child.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(in_cgroup(&child.path()));
        }
    }
    found
}

fn all_pids() -> impl Iterator<Item = i32> {
    std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn record_path(layout: &Layout, name: &str) -> PathBuf {
    layout.run().join(format!("{name}.json"))
}
