//! Where telemetry comes from: the kernel, or nothing where no program can run. Behind a trait, so
//! that the rest is tested with a source of values.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, sync_channel},
    },
    thread::{self, JoinHandle},
};

use keelson_abi::Event;
use keelson_model::{
    BootNanos, CgroupId, CoverageReason, Epoch, LedgerCut, LossReason, ProgramStatus, SeriesKey,
    SeriesValue, limits,
};
use keelson_probes::{LoadError, RawBatch, Reader, TcpProbe, TcpProbeConfig};
use tokio::sync::mpsc;

/// What the window loop asks at each cut.
pub trait Source: Send {
    /// All series, cumulative.
    ///
    /// # Errors
    /// They cannot be read now.
    fn series(&mut self) -> anyhow::Result<Vec<(SeriesKey, SeriesValue)>>;

    /// Drops the series of cgroups that are gone; gives how many.
    ///
    /// # Errors
    /// They cannot be dropped now.
    fn retire(&mut self, cgroups: &HashSet<CgroupId>) -> anyhow::Result<u64>;

    /// The account since the pin set was made, but for what became of the records that this
    /// process took: that is the caller's to add.
    ///
    /// # Errors
    /// It cannot be read now.
    fn ledger(&self) -> anyhow::Result<LedgerCut>;

    /// Notes for the next agent where all records went whose end is known.
    ///
    /// # Errors
    /// It cannot be written now.
    fn settle(&self, cut: &LedgerCut) -> anyhow::Result<()>;

    /// Nothing more is counted; the events end as soon as all were taken.
    fn stop(&mut self);

    /// Counts that the kernel had no room for, as `Loss` in coverage.
    ///
    /// # Errors
    /// They cannot be read now.
    fn refusals(&self) -> anyhow::Result<u64>;

    /// Every program.
    fn programs(&self) -> Vec<ProgramStatus>;

    /// Why the view is less than whole.
    fn reasons(&self) -> Vec<CoverageReason>;

    /// Called about once a second.
    ///
    /// # Errors
    /// The note cannot be written.
    fn note_alive(&self) -> anyhow::Result<()>;
}

/// The kernel's probe with its reader and decoder.
pub struct KernelSource {
    probe: TcpProbe,
    /// Records that could not be decoded.
    undecodable: Arc<AtomicU64>,
    /// Before the decoder: its end lets the decoder end.
    reader: Option<Reader>,
    decoder: Option<JoinHandle<()>>,
}

/// Events in the order of their arrival.
pub type Events = mpsc::Receiver<Vec<Event>>;

// === impl KernelSource ===

impl KernelSource {
    /// Loads the probe and starts its threads.
    ///
    /// # Errors
    /// Nothing can run.
    pub fn start(config: &TcpProbeConfig) -> anyhow::Result<(Self, Events)> {
        let probe = TcpProbe::load(config)?;
        let undecodable = Arc::new(AtomicU64::new(0));
        let (raw_sink, raw) = sync_channel(limits::AGENT_RAW_BATCHES);
        let (sink, events) = mpsc::channel(limits::AGENT_EVENT_BATCHES);
        let reader = probe.start_reader(raw_sink)?;
        let refused = Arc::clone(&undecodable);
        let decoder = thread::Builder::new()
            .name("keelson-decode".into())
            .spawn(move || decode(&raw, &sink, &refused))?;
        let source = Self { probe, undecodable, reader: Some(reader), decoder: Some(decoder) };
        Ok((source, events))
    }

    /// Random number of the pin set.
    #[must_use]
    pub fn epoch(&self) -> Epoch {
        self.probe.epoch()
    }

    /// When an agent before this one was last known to run.
    #[must_use]
    pub fn seen_before(&self) -> Option<BootNanos> {
        self.probe.seen_before()
    }
}

impl Source for KernelSource {
    fn series(&mut self) -> anyhow::Result<Vec<(SeriesKey, SeriesValue)>> {
        Ok(self.probe.series()?)
    }

    fn retire(&mut self, cgroups: &HashSet<CgroupId>) -> anyhow::Result<u64> {
        Ok(self.probe.retire(cgroups)?)
    }

    fn ledger(&self) -> anyhow::Result<LedgerCut> {
        // Downstream first: what arrives meanwhile shows as held, never as lost before it was made.
        let undecodable = self.undecodable.load(Ordering::Acquire);
        let mut cut = self.probe.ledger()?;
        cut.lose(LossReason::DecodeFailed, undecodable);
        Ok(cut)
    }

    fn settle(&self, cut: &LedgerCut) -> anyhow::Result<()> {
        Ok(self.probe.settle(cut)?)
    }

    fn stop(&mut self) {
        self.probe.detach();
        if let Some(reader) = &self.reader {
            reader.stop();
        }
    }

    fn refusals(&self) -> anyhow::Result<u64> {
        let refusals = self.probe.kernel_refusals()?;
        Ok(refusals.iter().map(|(_, count)| count).sum())
    }

    fn programs(&self) -> Vec<ProgramStatus> {
        self.probe.programs().to_vec()
    }

    fn reasons(&self) -> Vec<CoverageReason> {
        self.probe.reasons().to_vec()
    }

    fn note_alive(&self) -> anyhow::Result<()> {
        Ok(self.probe.note_alive()?)
    }
}

impl Drop for KernelSource {
    fn drop(&mut self) {
        self.reader.take();
        if let Some(decoder) = self.decoder.take()
            && decoder.join().is_err()
        {
            tracing::error!("the decoder panicked");
        }
    }
}

fn decode(raw: &Receiver<RawBatch>, sink: &mpsc::Sender<Vec<Event>>, undecodable: &AtomicU64) {
    while let Ok(batch) = raw.recv() {
        let received = batch.samples.len() as u64;
        let decoded: Vec<Event> =
            batch.samples.iter().filter_map(|sample| keelson_abi::decode(sample).ok()).collect();
        undecodable.fetch_add(received - decoded.len() as u64, Ordering::Release);
        if sink.blocking_send(decoded).is_err() {
            return;
        }
    }
}

/// No program can run: the agent still says so, window by window.
#[derive(Debug)]
pub struct NoSource {
    programs: Vec<ProgramStatus>,
    reasons: Vec<CoverageReason>,
}

impl NoSource {
    /// What is reported when the probe cannot load; none where the error is no coverage but a
    /// fault of the installation, which should end the process.
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Option<Self> {
        let Some(LoadError::Nothing { reason, coverage }) = error.downcast_ref() else {
            return None;
        };
        let status = ProgramStatus {
            program: "tcp".into(),
            function: "all".into(),
            state: keelson_model::ProgramState::Missing,
            reason: reason.clone(),
            hook: String::new(),
        };
        let reasons = [Some(CoverageReason::ProgramMissing), *coverage];
        Some(Self { programs: vec![status], reasons: reasons.into_iter().flatten().collect() })
    }
}

impl Source for NoSource {
    fn series(&mut self) -> anyhow::Result<Vec<(SeriesKey, SeriesValue)>> {
        Ok(Vec::new())
    }

    fn retire(&mut self, _: &HashSet<CgroupId>) -> anyhow::Result<u64> {
        Ok(0)
    }

    fn ledger(&self) -> anyhow::Result<LedgerCut> {
        Ok(LedgerCut::default())
    }

    fn settle(&self, _: &LedgerCut) -> anyhow::Result<()> {
        Ok(())
    }

    fn stop(&mut self) {}

    fn refusals(&self) -> anyhow::Result<u64> {
        Ok(0)
    }

    fn programs(&self) -> Vec<ProgramStatus> {
        self.programs.clone()
    }

    fn reasons(&self) -> Vec<CoverageReason> {
        self.reasons.clone()
    }

    fn note_alive(&self) -> anyhow::Result<()> {
        Ok(())
    }
}
