//! The probe `tcp` as its user sees it: loaded, read, accounted.

use std::{
    collections::HashSet,
    fs,
    os::fd::{AsFd, OwnedFd},
    path::{Path, PathBuf},
    sync::mpsc::SyncSender,
};

use keelson_abi::layout::{self, TcpPinSet, ledger};
use keelson_model::{
    BootNanos, CgroupId, CoverageReason, Epoch, LedgerCut, LossReason, ProgramStatus, SeriesKey,
    SeriesValue,
};
use libbpf_rs::{Link, MapCore, MapFlags, Object};
use rustix::{
    fs::{FlockOperation, Mode, OFlags},
    time::{ClockId, clock_gettime},
};
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    config::TcpProbeConfig,
    load::{self, LoadError},
    reader::{RawBatch, Reader, ReaderError},
};

/// Entries of the series map read in one call.
const BATCH: u32 = 1_024;

/// A map cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read map {map}")]
pub struct MapError {
    /// The map.
    pub map: &'static str,
    /// The cause.
    pub source: libbpf_rs::Error,
}

/// The probe, loaded and attached; dropping it detaches.
pub struct TcpProbe {
    object: Object,
    _links: Vec<Link>,
    _pins: Option<OwnedFd>,
    programs: Vec<ProgramStatus>,
    reasons: Vec<CoverageReason>,
    perf_pages: usize,
    epoch: Epoch,
    /// When an agent before this one was last known to run.
    seen_before: Option<BootNanos>,
    undecodable: u64,
}

// === impl TcpProbe ===

impl TcpProbe {
    /// Loads and attaches what this kernel takes. Programs that cannot run are named by
    /// [`Self::programs`].
    ///
    /// # Errors
    /// Nothing can run, or the pins cannot be used.
    pub fn load(config: &TcpProbeConfig) -> Result<Self, LoadError> {
        let mut config = config.clone();
        let pins = config.pin_dir.as_deref().map(lock_pins).transpose()?;
        let pins = pins.map(|(lock, directory)| {
            config.pin_dir = Some(directory);
            lock
        });
        let loaded = load::load(&config)?;
        let mut probe = Self {
            object: loaded.object,
            _links: loaded.links,
            _pins: pins,
            programs: loaded.programs,
            reasons: loaded.reasons,
            perf_pages: config.perf_pages,
            epoch: Epoch(0),
            seen_before: None,
            undecodable: 0,
        };
        probe
            .begin()
            .map_err(|MapError { map, source }| LoadError::Prepare { what: map, source })?;
        Ok(probe)
    }

    /// Every program, with how it runs or why not.
    #[must_use]
    pub fn programs(&self) -> &[ProgramStatus] {
        &self.programs
    }

    /// Why the view is less than whole; empty: it is whole.
    #[must_use]
    pub fn reasons(&self) -> &[CoverageReason] {
        &self.reasons
    }

    /// Random number of the pin set.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// When an agent before this one was last known to run; none for a new pin set.
    #[must_use]
    pub fn seen_before(&self) -> Option<BootNanos> {
        self.seen_before
    }

    /// Notes in the pins that an agent runs now; to be called about once a second.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn note_alive(&self) -> Result<(), MapError> {
        self.write_pin_set(TcpPinSet { epoch: self.epoch.0, seen_ns: boot_now().0 })
    }

    /// Starts the reader's thread.
    ///
    /// # Errors
    /// The buffer cannot be made.
    pub fn start_reader(&self, sink: SyncSender<RawBatch>) -> Result<Reader, ReaderError> {
        let map = self.object.maps().find(|map| map.name() == "tcp_events");
        let descriptor = map.map(|map| map.as_fd().try_clone_to_owned());
        let missing = || std::io::Error::from_raw_os_error(2);
        let descriptor = descriptor.unwrap_or_else(|| Err(missing()));
        let descriptor =
            descriptor.map_err(|source| ReaderError::Buffer { pages: self.perf_pages, source })?;
        Reader::start("keelson-tcp", descriptor, self.perf_pages, sink)
    }

    /// All series, cumulative. Live keys are never deleted.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn series(&mut self) -> Result<Vec<(SeriesKey, SeriesValue)>, MapError> {
        let mut raw = Vec::new();
        {
            let map = self.map("tcp_series")?;
            let failed = |source| MapError { map: "tcp_series", source };
            let entries = map.lookup_batch(BATCH, MapFlags::ANY, MapFlags::ANY).map_err(failed)?;
            raw.extend(entries);
        }
        let mut series = Vec::with_capacity(raw.len());
        for (key, value) in raw {
            match keelson_abi::decode_series(&key, &value) {
                Ok(decoded) => series.extend(decoded),
                Err(_) => self.undecodable += 1,
            }
        }
        Ok(series)
    }

    /// Drops the series of cgroups that are gone for good; gives how many. Whoever still holds a
    /// socket of theirs begins a series with a new start.
    ///
    /// # Errors
    /// A map cannot be changed.
    pub fn retire(&self, cgroups: &HashSet<CgroupId>) -> Result<u64, MapError> {
        let map = self.map("tcp_series")?;
        let cgroup_of = |key: &[u8]| key.first_chunk().map(|id| CgroupId(u64::from_ne_bytes(*id)));
        let is_gone = |key: &Vec<u8>| cgroup_of(key).is_some_and(|id| cgroups.contains(&id));
        // All keys first: a walk over a map that loses keys begins anew.
        let keys: Vec<Vec<u8>> = map.keys().filter(is_gone).collect();
        for key in &keys {
            map.delete(key).map_err(|source| MapError { map: "tcp_series", source })?;
        }
        let peers = self.map("tcp_peers")?;
        for cgroup in cgroups {
            // Outbound and inbound; absent where there was no peer.
            for direction in [1_u64, 2] {
                let _ = peers.delete(&[cgroup.0, direction].map(u64::to_ne_bytes).concat());
            }
        }
        Ok(keys.len() as u64)
    }

    /// Entries of the series map that could not be decoded so far.
    #[must_use]
    pub fn undecodable(&self) -> u64 {
        self.undecodable
    }

    /// The kernel's side of the account: `delivered` and `held` are the reader's to fill in.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn kernel_ledger(&self) -> Result<LedgerCut, MapError> {
        let mut cut = LedgerCut {
            produced: self.slot(ledger::PRODUCED)?,
            out_of_scope: self.slot(ledger::OUT_OF_SCOPE)?,
            ..LedgerCut::default()
        };
        for (reason, slot) in [
            (LossReason::PerfBufferFull, ledger::BUFFER_FULL),
            (LossReason::PerfOutputFailed, ledger::OUTPUT_FAILED),
        ] {
            let count = self.slot(slot)?;
            if count > 0 {
                cut.lost.insert(reason, count);
            }
        }
        Ok(cut)
    }

    /// Counts that the kernel could not place: socket states and series refused. They are no
    /// records, and so stand outside the account of those.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn kernel_refusals(&self) -> Result<[(LossReason, u64); 2], MapError> {
        Ok([
            (LossReason::SocketStateRefused, self.slot(ledger::STATE_REFUSED)?),
            (LossReason::CounterRefused, self.slot(ledger::SERIES_REFUSED)?),
        ])
    }

    fn begin(&mut self) -> Result<(), MapError> {
        let bytes = self
            .map("tcp_pin_set")?
            .lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| MapError { map: "tcp_pin_set", source })?;
        let held =
            bytes.and_then(|bytes| TcpPinSet::read_from_prefix(&bytes).ok().map(|(held, _)| held));
        let now = boot_now();
        match held {
            Some(TcpPinSet { epoch, seen_ns }) if epoch != 0 => {
                self.epoch = Epoch(epoch);
                self.seen_before = Some(BootNanos(seen_ns));
            }
            _ => self.epoch = Epoch(random().max(1)),
        }
        self.write_pin_set(TcpPinSet { epoch: self.epoch.0, seen_ns: now.0 })
    }

    fn write_pin_set(&self, set: TcpPinSet) -> Result<(), MapError> {
        self.map("tcp_pin_set")?
            .update(&0_u32.to_ne_bytes(), set.as_bytes(), MapFlags::ANY)
            .map_err(|source| MapError { map: "tcp_pin_set", source })
    }

    fn slot(&self, slot: u32) -> Result<u64, MapError> {
        let values = self
            .map("tcp_ledger")?
            .lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| MapError { map: "tcp_ledger", source })?
            .unwrap_or_default();
        let value = |bytes: &Vec<u8>| {
            bytes.get(..8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_ne_bytes)
        };
        Ok(values.iter().map(value).fold(0, u64::wrapping_add))
    }

    fn map(&self, name: &'static str) -> Result<libbpf_rs::Map<'_>, MapError> {
        let found = self.object.maps().find(|map| map.name() == name);
        let missing = || libbpf_rs::Error::from(std::io::Error::from_raw_os_error(2));
        found.ok_or_else(|| MapError { map: name, source: missing() })
    }
}

impl std::fmt::Debug for TcpProbe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TcpProbe").field("epoch", &self.epoch).finish_non_exhaustive()
    }
}

/// Boot time now.
fn boot_now() -> BootNanos {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    BootNanos(seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0))
}

/// A random number from the standard library's hasher keys, which the kernel's generator seeds.
fn random() -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(boot_now().0)
}

/// Makes the layout's directory and locks it: bpffs takes no plain file, so the directory itself.
fn lock_pins(root: &Path) -> Result<(OwnedFd, PathBuf), LoadError> {
    let path = root.join(load::layout_directory());
    let failed = |source: std::io::Error| LoadError::PinDirectory { path: path.clone(), source };
    fs::create_dir_all(&path).map_err(failed)?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory =
        rustix::fs::open(&path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| LoadError::PinsInUse { path: path.clone() })?;
    remove_older(root);
    Ok((directory, path))
}

/// Removes the pins of layouts older than the one before: nobody goes back further.
fn remove_older(root: &Path) {
    let entries = fs::read_dir(root).into_iter().flatten().flatten();
    let is_old = |name: &str| load::layout_of(name).is_some_and(|of| of + 1 < layout::VERSION);
    for entry in entries.filter(|entry| entry.file_name().to_str().is_some_and(is_old)) {
        if let Err(error) = fs::remove_dir_all(entry.path()) {
            tracing::warn!(path = %entry.path().display(), %error, "cannot remove old pins");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pins_of_this_layout_and_the_one_before_stay_and_so_does_what_is_not_ours() {
        let root = tempfile::tempdir().unwrap();
        let newest = layout::VERSION;
        let ours = |version: u16| format!("tcp-{version}");
        for name in
            [ours(newest - 2), ours(newest - 1), ours(newest + 1), "tcp-x".into(), "dns-0".into()]
        {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        fs::write(root.path().join(ours(newest - 2)).join("tcp_series"), "").unwrap();
        let (_lock, directory) = lock_pins(root.path()).unwrap();
        assert!(matches!(lock_pins(root.path()), Err(LoadError::PinsInUse { .. })));
        assert_eq!(directory, root.path().join(ours(newest)));
        let there = fs::read_dir(root.path()).unwrap().flatten();
        let mut there: Vec<_> =
            there.map(|entry| entry.file_name().into_string().unwrap()).collect();
        there.sort();
        let mut expected =
            [ours(newest - 1), ours(newest), ours(newest + 1), "tcp-x".into(), "dns-0".into()];
        expected.sort();
        assert_eq!(there, expected);
    }
}
