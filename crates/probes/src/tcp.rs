//! The probe `tcp` as its user sees it: loaded, read, accounted.

use std::{
    collections::HashSet,
    fs, mem,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::{Path, PathBuf},
    sync::mpsc::SyncSender,
};

use keelson_abi::layout::{self, TcpPinSet, ledger, settled};
use keelson_model::{
    BootNanos, CgroupId, CoverageReason, Epoch, LedgerCut, LossReason, ProgramStatus, SeriesKey,
    SeriesValue,
};
use libbpf_rs::{Link, MapCore, MapFlags, Object, libbpf_sys as sys};
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
/// What the kernel counts of records that did not reach the buffer.
const LOST_IN_KERNEL: [(LossReason, u32); 2] = [
    (LossReason::PerfBufferFull, ledger::BUFFER_FULL),
    (LossReason::PerfOutputFailed, ledger::OUTPUT_FAILED),
];
/// What agents note of records that did not reach the collector.
const LOST_BY_AGENTS: [(LossReason, u32); 4] = [
    (LossReason::DecodeFailed, settled::DECODE_FAILED),
    (LossReason::PendingFull, settled::PENDING_FULL),
    (LossReason::QueueFull, settled::QUEUE_FULL),
    (LossReason::AgentRestart, settled::AGENT_RESTART),
];

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
    links: Vec<Link>,
    _pins: Option<OwnedFd>,
    programs: Vec<ProgramStatus>,
    reasons: Vec<CoverageReason>,
    perf_pages: usize,
    epoch: Epoch,
    /// When an agent before this one was last known to run.
    seen_before: Option<BootNanos>,
    /// Where the records of earlier agents of the pin set went.
    inherited: LedgerCut,
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
        let failed = |MapError { map, source }| LoadError::Prepare { what: map, source };
        let begun = Begun::of(&loaded.object).map_err(failed)?;
        // Only now: what runs from here on is ours to account for.
        let attached = loaded.attach(&config);
        Ok(Self {
            object: loaded.object,
            links: attached.links,
            _pins: pins,
            programs: attached.programs,
            reasons: attached.reasons,
            perf_pages: config.perf_pages,
            epoch: begun.epoch,
            seen_before: begun.seen_before,
            inherited: begun.inherited,
            undecodable: 0,
        })
    }

    /// No program runs any more; what was counted can still be read.
    pub fn detach(&mut self) {
        self.links.clear();
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
        write_pin_set(&self.object, self.epoch, boot_now())
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

    /// The account since the pin set was made: what this agent did with its records is the
    /// caller's to add.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn ledger(&self) -> Result<LedgerCut, MapError> {
        let mut cut = kernel_ledger(&self.object)?;
        cut.delivered = self.inherited.delivered;
        cut.consumed = self.inherited.consumed;
        for (reason, count) in &self.inherited.lost {
            cut.lose(*reason, *count);
        }
        Ok(cut)
    }

    /// Notes for the next agent where all records went whose end is known.
    ///
    /// # Errors
    /// The map cannot be written.
    pub fn settle(&self, cut: &LedgerCut) -> Result<(), MapError> {
        write_settled(&self.object, cut)
    }

    /// Counts that the kernel could not place: socket states and series refused, and runs that it
    /// skipped since this agent began. They are no records, and so stand outside the account of
    /// those.
    ///
    /// # Errors
    /// The map cannot be read.
    pub fn kernel_refusals(&self) -> Result<[(LossReason, u64); 3], MapError> {
        let skipped = self.object.progs().map(|program| skipped_runs(program.as_fd()));
        Ok([
            (LossReason::SocketStateRefused, slot(&self.object, ledger::STATE_REFUSED)?),
            (LossReason::CounterRefused, slot(&self.object, ledger::SERIES_REFUSED)?),
            (LossReason::RunSkipped, skipped.sum()),
        ])
    }

    fn map(&self, name: &'static str) -> Result<libbpf_rs::Map<'_>, MapError> {
        map(&self.object, name)
    }
}

/// What the pins say before a program runs.
struct Begun {
    epoch: Epoch,
    seen_before: Option<BootNanos>,
    inherited: LedgerCut,
}

// === impl Begun ===

impl Begun {
    /// Reads the pins, gives a new set its epoch, and takes what the agent before had in hand for
    /// lost: its programs and its buffer went with it.
    fn of(object: &Object) -> Result<Self, MapError> {
        let bytes = lookup(object, "tcp_pin_set", 0)?;
        let held = TcpPinSet::read_from_prefix(&bytes).ok().map(|(held, _)| held);
        let (epoch, seen_before) = match held {
            Some(TcpPinSet { epoch, seen_ns }) if epoch != 0 => (epoch, Some(BootNanos(seen_ns))),
            _ => (random().max(1), None),
        };
        let epoch = Epoch(epoch);
        write_pin_set(object, epoch, boot_now())?;
        let inherited = inherit(object)?;
        write_settled(object, &inherited)?;
        Ok(Self { epoch, seen_before, inherited })
    }
}

fn inherit(object: &Object) -> Result<LedgerCut, MapError> {
    let value = |slot: u32| lookup(object, "tcp_settled", slot).map(|bytes| number(&bytes));
    let mut inherited = LedgerCut {
        delivered: value(settled::DELIVERED)?,
        consumed: value(settled::CONSUMED)?,
        ..LedgerCut::default()
    };
    for (reason, slot) in LOST_BY_AGENTS {
        inherited.lose(reason, value(slot)?);
    }
    let kernel = kernel_ledger(object)?;
    let reached_buffer = kernel.produced.saturating_sub(kernel.lost_total());
    let in_hand = LedgerCut { produced: reached_buffer, ..inherited.clone() }.imbalance();
    inherited.lose(LossReason::AgentRestart, u64::try_from(in_hand).unwrap_or(0));
    Ok(inherited)
}

fn kernel_ledger(object: &Object) -> Result<LedgerCut, MapError> {
    let mut cut = LedgerCut::default();
    // Downstream first: what is lost meanwhile shows as held, never as lost before it was made.
    for (reason, at) in LOST_IN_KERNEL {
        cut.lose(reason, slot(object, at)?);
    }
    cut.out_of_scope = slot(object, ledger::OUT_OF_SCOPE)?;
    cut.produced = slot(object, ledger::PRODUCED)?;
    Ok(cut)
}

fn write_settled(object: &Object, cut: &LedgerCut) -> Result<(), MapError> {
    let lost = LOST_BY_AGENTS.map(|(reason, at)| (at, cut.lost.get(&reason).copied()));
    let arrived =
        [(settled::DELIVERED, Some(cut.delivered)), (settled::CONSUMED, Some(cut.consumed))];
    for (at, value) in arrived.into_iter().chain(lost) {
        update(object, "tcp_settled", at, &value.unwrap_or(0).to_ne_bytes())?;
    }
    Ok(())
}

fn write_pin_set(object: &Object, epoch: Epoch, seen: BootNanos) -> Result<(), MapError> {
    let set = TcpPinSet { epoch: epoch.0, seen_ns: seen.0 };
    update(object, "tcp_pin_set", 0, set.as_bytes())
}

/// The sum of a slot over all CPUs.
fn slot(object: &Object, slot: u32) -> Result<u64, MapError> {
    let values = map(object, "tcp_ledger")?
        .lookup_percpu(&slot.to_ne_bytes(), MapFlags::ANY)
        .map_err(|source| MapError { map: "tcp_ledger", source })?
        .unwrap_or_default();
    Ok(values.iter().map(|bytes| number(bytes)).fold(0, u64::wrapping_add))
}

fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_ne_bytes(*bytes))
}

fn lookup(object: &Object, name: &'static str, key: u32) -> Result<Vec<u8>, MapError> {
    let found = map(object, name)?.lookup(&key.to_ne_bytes(), MapFlags::ANY);
    Ok(found.map_err(|source| MapError { map: name, source })?.unwrap_or_default())
}

fn update(object: &Object, name: &'static str, key: u32, value: &[u8]) -> Result<(), MapError> {
    map(object, name)?
        .update(&key.to_ne_bytes(), value, MapFlags::ANY)
        .map_err(|source| MapError { map: name, source })
}

fn map<'a>(object: &'a Object, name: &'static str) -> Result<libbpf_rs::Map<'a>, MapError> {
    let found = object.maps().find(|map| map.name() == name);
    let missing = || libbpf_rs::Error::from(std::io::Error::from_raw_os_error(2));
    found.ok_or_else(|| MapError { map: name, source: missing() })
}

/// Runs of a program that the kernel skipped because it was running already on that CPU; 0 before
/// 5.12 (9ed9e9ba2337), which does not count them.
fn skipped_runs(program: BorrowedFd<'_>) -> u64 {
    // SAFETY: all zeroes is a valid bpf_prog_info, a plain C struct of integers, that asks for no
    // array.
    let mut info: sys::bpf_prog_info = unsafe { mem::zeroed() };
    let mut size = u32::try_from(mem::size_of_val(&info)).unwrap_or(0);
    // SAFETY: the descriptor is open, and the kernel writes at most `size` bytes.
    let failed =
        unsafe { sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut size) };
    if failed == 0 { info.recursion_misses } else { 0 }
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
