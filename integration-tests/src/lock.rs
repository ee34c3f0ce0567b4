//! One cluster a machine: a lock that names its owner, and a claim that outlives the owner.
//!
//! The lock (`flock`) is held while a process changes the cluster or needs it for itself; the kernel
//! drops it with the process. The claim says which state directory the machine's cluster belongs to,
//! so that another user's cluster is refused and never torn down.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// The lock of this machine.
const LOCK: &str = "/run/lock/keelson-cluster.lock";
/// The state directory of the cluster that runs here.
const CLAIM: &str = "/run/lock/keelson-cluster.claim";

/// Who holds the lock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Owner {
    /// What it is doing.
    pub purpose: String,
    /// Its process.
    pub pid: u32,
    /// Since when, in seconds of the wall clock.
    pub since_unix: u64,
}

/// Why the machine's cluster is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process works with it.
    #[error("the cluster is in use by {} (pid {}) for {} s; wait for it or end it", owner.purpose, owner.pid, age.as_secs())]
    Held {
        /// Who.
        owner: Owner,
        /// For how long.
        age: Duration,
    },
    /// It belongs to another state directory.
    #[error("this machine's cluster belongs to {}; end it there first", state.display())]
    Claimed {
        /// That directory.
        state: PathBuf,
    },
    /// The lock file cannot be used.
    #[error("use {path}")]
    Io {
        /// The file.
        path: &'static str,
        /// The cause.
        source: std::io::Error,
    },
}

/// The right to change the cluster, until dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

// === impl Lock ===

impl Lock {
    /// Takes the machine's lock at once or says who has it.
    ///
    /// # Errors
    /// [`LockError::Held`] with owner and age, or an I/O error.
    pub fn take(purpose: &str) -> Result<Self, LockError> {
        Self::take_at(Path::new(LOCK), purpose)
    }

    /// As [`Lock::take`], with the lock file given.
    ///
    /// # Errors
    /// As [`Lock::take`].
    pub fn take_at(path: &Path, purpose: &str) -> Result<Self, LockError> {
        let io = |source| LockError::Io { path: LOCK, source };
        let mut file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).map_err(io)?;
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_err() {
            let mut text = String::new();
            file.read_to_string(&mut text).map_err(io)?;
            let unknown = Owner { purpose: "an unknown process".into(), pid: 0, since_unix: now_unix() };
            let owner: Owner = serde_json::from_str(&text).unwrap_or(unknown);
            let age = Duration::from_secs(now_unix().saturating_sub(owner.since_unix));
            return Err(LockError::Held { owner, age });
        }
        let owner = Owner { purpose: purpose.into(), pid: std::process::id(), since_unix: now_unix() };
        let text = serde_json::to_string(&owner).map_err(|error| io(error.into()))?;
        file.set_len(0).map_err(io)?;
        file.rewind().map_err(io)?;
        file.write_all(text.as_bytes()).map_err(io)?;
        Ok(Self { _file: file })
    }

    /// Binds the machine's cluster to `state`.
    ///
    /// # Errors
    /// [`LockError::Claimed`] when another directory has it, or an I/O error.
    pub fn claim(&self, state: &Path) -> Result<(), LockError> {
        let other = std::fs::read_to_string(CLAIM).map(PathBuf::from).unwrap_or_default();
        if other != state && other.exists() {
            return Err(LockError::Claimed { state: other });
        }
        std::fs::write(CLAIM, state.as_os_str().as_encoded_bytes())
            .map_err(|source| LockError::Io { path: CLAIM, source })
    }

    /// Gives the claim of `state` back; another's is left alone.
    pub fn release(&self, state: &Path) {
        if std::fs::read_to_string(CLAIM).is_ok_and(|owner| Path::new(&owner) == state) {
            let _ = std::fs::remove_file(CLAIM);
        }
    }
}

fn now_unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused_with_the_first_ones_purpose_and_age() {
        let path = std::env::temp_dir().join(format!("keelson-lock-test-{}", std::process::id()));
        let first = Lock::take_at(&path, "the first test").expect("the lock is free");
        let refused = Lock::take_at(&path, "the second test").expect_err("the lock is held");
        let LockError::Held { owner, age } = refused else { panic!("not a holder: {refused}") };
        assert_eq!((owner.purpose.as_str(), owner.pid), ("the first test", std::process::id()));
        assert!(age < Duration::from_secs(60));
        drop(first);
        Lock::take_at(&path, "the second test").expect("free again");
        std::fs::remove_file(path).expect("the file is ours");
    }
}
