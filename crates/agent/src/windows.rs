//! The window loop: events as they come, a cut at each window's end, everything named, accounted
//! and handed to the outbox. The thin shell around `aggregate`.

use std::{
    collections::HashSet,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use keelson_abi::Event;
use keelson_model::{
    CgroupId, ClockReading, Coverage, CoverageReason, LedgerCut, LossReason, SeriesKey,
    SeriesValue, UnixNanos, WindowId, coverage::Interval,
};
use keelson_runtime::{clock::Clock, logs, shutdown::Shutdown};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::{
    aggregate::{Aggregator, Cut},
    cgroup::{
        CgroupIndex, Lookup,
        walk::{self, PodTree},
    },
    enrich,
    export::{outbox, stream::SharedOutbox},
    metrics::Metrics,
    orphans::Orphans,
    pods::watch::SharedPods,
    source::{Events, Source},
    window::{ProbeLedger, SeriesId, TCP},
};

/// After a window's end, so that records of its last moments have left the kernel's buffer.
const SETTLE: Duration = Duration::from_millis(150);
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// How long the last events may take at shutdown.
const DRAIN: Duration = Duration::from_secs(2);
/// How long a blind interval is reported.
const REPORT_BLIND_NS: u64 = 600_000_000_000;

/// The loop's parts.
pub struct Windows {
    /// The kernel.
    pub source: Box<dyn Source>,
    /// Its events.
    pub events: Events,
    /// Cgroups of our tree.
    pub cgroups: CgroupIndex,
    /// Where that tree lies.
    pub tree: PodTree,
    /// Pods of this node.
    pub pods: SharedPods,
    /// Where windows go.
    pub outbox: Arc<SharedOutbox>,
    /// No program ran in this interval before our start.
    pub blind: Option<Interval>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub metrics: Metrics,
}

/// What the loop counts itself.
#[derive(Debug, Default)]
struct Progress {
    aggregator: Aggregator,
    /// Events that are no records of connections.
    consumed: u64,
    last: WindowId,
    refusals: u64,
    orphans: Orphans,
}

// === impl Windows ===

impl Windows {
    /// Runs until shutdown; the window under way is then cut and handed over.
    ///
    /// # Errors
    /// None; the type is that of a task.
    pub async fn run(mut self, shutdown: Shutdown) -> Result<(), anyhow::Error> {
        let mut progress =
            Progress { last: WindowId::containing(self.now()), ..Progress::default() };
        let mut seconds = interval(HOUSEKEEPING);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Skip);
        loop {
            let cut_in = self.until_cut(progress.last);
            tokio::select! {
                events = self.events.recv(), if !self.events.is_closed() => {
                    self.take(events.unwrap_or_default(), &mut progress);
                }
                () = tokio::time::sleep(cut_in) => {
                    let ended = ended_window(self.now(), progress.last);
                    self.cut(ended, &mut progress);
                    progress.last = ended.next();
                }
                _ = seconds.tick() => self.housekeeping(&progress),
                () = shutdown.cancelled() => {
                    self.end(progress).await;
                    return Ok(());
                }
            }
        }
    }

    /// Nothing is in hand when we go: the programs end first, then what they made is handed over.
    async fn end(mut self, mut progress: Progress) {
        self.source.stop();
        let rest = async {
            while let Some(events) = self.events.recv().await {
                self.take(events, &mut progress);
            }
        };
        if timeout(DRAIN, rest).await.is_err() {
            tracing::warn!("the kernel's buffer was not empty in time");
        }
        self.cut(progress.last, &mut progress);
        self.outbox.close();
        self.outbox.left().await;
        self.settle(&progress);
    }

    fn take(&mut self, events: Vec<Event>, progress: &mut Progress) {
        let now = self.now();
        let (cgroups, pods) = (&mut self.cgroups, &self.pods);
        for event in events {
            match event {
                Event::Connection(record) => pods.with(|pods| {
                    let name = |cgroup| enrich::name(cgroup, cgroups, pods);
                    progress.aggregator.record(record, name, now);
                }),
                Event::CgroupMade { cgroup, parent, name } => {
                    progress.consumed += 1;
                    cgroups.add(cgroup, parent, &name);
                }
                Event::CgroupRemoved { cgroup } => {
                    progress.consumed += 1;
                    cgroups.remove(cgroup, now);
                }
            }
        }
    }

    fn cut(&mut self, window: WindowId, progress: &mut Progress) {
        if progress.aggregator.is_waiting() || self.cgroups.is_full() {
            self.walk();
        }
        let series = match self.source.series() {
            Ok(series) => series,
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "cannot read the kernel's series");
                return;
            }
        };
        self.retire(&series, &mut progress.orphans);
        let live: HashSet<SeriesId> =
            series.iter().map(|(key, value)| (*key, value.start)).collect();
        self.metrics.series.set(i64::try_from(series.len()).unwrap_or(i64::MAX));
        let cut = Cut { window, clock: read_clocks(), coverage: self.coverage(progress) };
        let cgroups = &self.cgroups;
        let mut cut = self.pods.with(|pods| {
            let name = |cgroup| enrich::name(cgroup, cgroups, pods);
            progress.aggregator.cut(cut, series, name)
        });
        let account = self.account(progress, progress.aggregator.counts().delivered);
        cut.ledgers =
            account.into_iter().map(|cut| ProbeLedger { probe: TCP.into(), cut }).collect();
        self.metrics.windows.inc();
        let mut outbox = self.outbox.lock();
        outbox.retain(&live);
        outbox.push(cut);
        drop(outbox);
        self.outbox.ring();
    }

    /// The account with `delivered` records of ours: our counts stand still meanwhile, the
    /// kernel's are read last. What is nowhere else is held: in the kernel's buffer, on the way, or
    /// waiting for its name.
    fn account(&self, progress: &Progress, delivered: u64) -> Option<LedgerCut> {
        let mut cut = match self.source.ledger() {
            Ok(cut) => cut,
            Err(error) => {
                tracing::error!(error = format!("{error:#}"), "cannot read the kernel's ledger");
                return None;
            }
        };
        cut.delivered = cut.delivered.saturating_add(delivered);
        cut.consumed = cut.consumed.saturating_add(progress.consumed);
        cut.lose(LossReason::PendingFull, progress.aggregator.counts().pending_full);
        cut.held = rest(&cut);
        Some(cut)
    }

    /// Notes what is known of our records' ends, for metrics and for the agent after us.
    fn settle(&self, progress: &Progress) {
        let counts = self.outbox.lock().counts();
        let Some(mut cut) = self.account(progress, counts.acknowledged_records) else { return };
        cut.lose(LossReason::QueueFull, counts.dropped_records);
        outbox::recover(&mut cut, counts.recovered_records);
        cut.held = rest(&LedgerCut { held: 0, ..cut.clone() });
        self.metrics.account(&cut);
        if let Err(error) = self.source.settle(&cut) {
            tracing::warn!(error = format!("{error:#}"), "cannot note where records went");
        }
    }

    /// Makes room in the kernel's map: what is retired now was in the cuts of more than a minute.
    fn retire(&mut self, series: &[(SeriesKey, SeriesValue)], orphans: &mut Orphans) {
        // A cgroup for which the index had no room is not gone.
        if self.cgroups.is_full() {
            return;
        }
        let is_missing = |cgroup: &CgroupId| self.cgroups.lookup(*cgroup) == Lookup::Missing;
        let missing = series.iter().map(|(key, _)| key.cgroup).filter(is_missing).collect();
        let due = orphans.due(&missing, self.now());
        if due.is_empty() {
            return;
        }
        match self.source.retire(&due) {
            Ok(retired) => _ = self.metrics.retired_series.inc_by(retired),
            Err(error) => {
                tracing::warn!(
                    error = format!("{error:#}"),
                    "cannot retire series of cgroups gone"
                );
            }
        }
    }

    /// A `cgroup_mkdir` may have been lost: looks for itself.
    fn walk(&mut self) {
        self.metrics.walks.inc();
        let now = self.now();
        if let Err(error) = walk::fill(&mut self.cgroups, &self.tree, now) {
            tracing::warn!(error = logs::chain(&error), "cannot walk the cgroup tree");
        }
    }

    fn coverage(&self, progress: &mut Progress) -> Coverage {
        let now = self.now();
        let is_recent = |blind: &Interval| now.0.saturating_sub(blind.to.0) < REPORT_BLIND_NS;
        let blind = self.blind.filter(is_recent);
        let mut reasons = self.source.reasons();
        if blind.is_some() {
            reasons.push(CoverageReason::BlindInterval);
        }
        if !self.pods.is_synced() {
            reasons.push(CoverageReason::PodsUnknown);
        }
        let refusals = self.source.refusals().unwrap_or(progress.refusals);
        if refusals > progress.refusals {
            reasons.push(CoverageReason::Loss);
        }
        progress.refusals = refusals;
        Coverage { programs: self.source.programs(), reasons, blind: blind.into_iter().collect() }
    }

    fn housekeeping(&mut self, progress: &Progress) {
        let now = self.now();
        self.cgroups.expire(now);
        self.pods.with(|pods| pods.expire(now));
        let merged = self.outbox.lock().counts().merged_windows;
        self.metrics.merged_windows.inner().store(merged, Ordering::Relaxed);
        self.settle(progress);
        if let Err(error) = self.source.note_alive() {
            tracing::warn!(error = format!("{error:#}"), "cannot note that the agent runs");
        }
    }

    fn until_cut(&self, window: WindowId) -> Duration {
        let settled = u64::try_from(SETTLE.as_nanos()).unwrap_or(0);
        let at = window.end().0.saturating_add(settled);
        Duration::from_nanos(at.saturating_sub(self.now().0))
            // A clock that went far back must not stop the windows.
            .min(Duration::from_secs(2 * keelson_model::WINDOW_SECONDS))
    }

    fn now(&self) -> UnixNanos {
        UnixNanos(self.clock.unix_ns())
    }
}

/// What of `produced` is nowhere else.
fn rest(cut: &LedgerCut) -> u64 {
    u64::try_from(cut.imbalance()).unwrap_or(0)
}

/// The window that a cut at `now` ends while `under_way` is the one that was to end: windows that
/// went by without a cut are part of it, and a clock that went back repeats none.
fn ended_window(now: UnixNanos, under_way: WindowId) -> WindowId {
    WindowId(WindowId::containing(now).0.saturating_sub(1)).max(under_way)
}

/// The wall clock between two readings of the boot clock.
#[must_use]
pub fn read_clocks() -> ClockReading {
    let before = nanos(clock_gettime(ClockId::Boottime));
    let unix = nanos(clock_gettime(ClockId::Realtime));
    let after = nanos(clock_gettime(ClockId::Boottime));
    let half = after.saturating_sub(before) / 2;
    let boot = before.saturating_add(half);
    let offset = i128::from(unix) - i128::from(boot);
    ClockReading {
        unix_minus_boot_ns: i64::try_from(offset).unwrap_or(i64::MAX),
        uncertainty_ns: half,
        unix: UnixNanos(unix),
    }
}

fn nanos(time: rustix::time::Timespec) -> u64 {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_ends_each_window_once_whatever_the_clock_does() {
        let at = |id: u64| UnixNanos(WindowId(id).start().0 + 1);
        assert_eq!(ended_window(at(101), WindowId(100)), WindowId(100));
        assert_eq!(ended_window(at(105), WindowId(100)), WindowId(104), "four were slept over");
        assert_eq!(ended_window(at(7), WindowId(100)), WindowId(100), "the clock went back");
    }
}
