//! One node's batches in, rows of windows out: duplicates dropped, differences made, accounts and
//! clock checked.
//!
//! Pure: the caller gives the time, and what comes out is for the store. It knows no wire type, no
//! Kubernetes and no peer's name.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use keelson_model::{
    BootNanos, Coverage, CoverageReason, LossReason, PodUid, UnixNanos, WindowId, limits,
};

use crate::{
    batch::{Agent, Batch, SeriesRow},
    store::{ConnectionRow, FlowRow},
};

pub mod ledger;
pub mod series;
pub mod skew;

use ledger::{Accounts, Audit};
use series::{Difference, SeriesCounts, SeriesTable};
use skew::ClockOffset;

/// What is kept of one node between its batches.
#[derive(Debug)]
pub struct NodePipeline {
    agent: Arc<Agent>,
    numbers: VecDeque<(PodUid, u64)>,
    series: SeriesTable,
    accounts: Accounts,
    clock: ClockOffset,
    coverage: Coverage,
    delivered: Option<WindowId>,
    /// Since when everything that the node counted came here: a series without a base that began
    /// later was never delivered before, however long it waited for its name.
    known_since: Option<BootNanos>,
    reasons: BTreeSet<CoverageReason>,
    last_seen: UnixNanos,
}

/// What a batch brought.
#[derive(Debug, Default)]
pub struct Applied {
    /// Differences that are not empty.
    pub flows: Vec<FlowRow>,
    /// Kept connections.
    pub connections: Vec<ConnectionRow>,
    /// Why the node's view of this window is less than whole; empty: it is whole.
    pub reasons: BTreeSet<CoverageReason>,
    /// Lost since the batch before.
    pub lost: BTreeMap<LossReason, u64>,
    /// The node has delivered the window whole.
    pub closes: bool,
}

/// Whether a batch is news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// To be applied.
    New,
    /// Seen before: acknowledge it again.
    Duplicate,
}

// === impl NodePipeline ===

impl NodePipeline {
    /// A node that has not delivered anything yet.
    #[must_use]
    pub fn new(agent: Arc<Agent>) -> Self {
        Self {
            agent,
            numbers: VecDeque::new(),
            series: SeriesTable::default(),
            accounts: Accounts::default(),
            clock: ClockOffset::default(),
            coverage: Coverage::default(),
            delivered: None,
            known_since: None,
            reasons: BTreeSet::new(),
            last_seen: UnixNanos::default(),
        }
    }

    /// A stream of this node began: another boot makes every base meaningless.
    pub fn connect(&mut self, agent: Arc<Agent>) {
        if agent.boot_id != self.agent.boot_id {
            self.series.clear();
            self.delivered = None;
            self.known_since = None;
        }
        if agent.epoch != self.agent.epoch || agent.boot_id != self.agent.boot_id {
            self.accounts = Accounts::default();
        }
        self.agent = agent;
    }

    /// Who sends now, or sent last.
    #[must_use]
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The highest batch of this agent pod that was applied; 0: none.
    #[must_use]
    pub fn last_batch(&self) -> u64 {
        let known = self.numbers.iter().find(|(pod, _)| *pod == self.agent.pod_uid);
        known.map_or(0, |(_, number)| *number)
    }

    /// Whether `batch` is news. A baseline always is: it only fills what is missing.
    #[must_use]
    pub fn admit(&self, batch: &Batch) -> Admission {
        if batch.baseline || batch.number > self.last_batch() {
            Admission::New
        } else {
            Admission::Duplicate
        }
    }

    /// Takes an admitted batch, received at `now`.
    pub fn apply(&mut self, batch: Batch, now: UnixNanos) -> Applied {
        let leaves_gap = self.remember(batch.number) && !batch.baseline;
        self.last_seen = now;
        if batch.baseline {
            self.take_baseline(&batch, now);
            return Applied::default();
        }
        self.clock.observe(batch.clock.unix, now);
        let audit = self.accounts.audit(&batch.ledgers, batch.records.len());
        let refused_before = self.series.counts().refused;
        let since = self.since(&batch, leaves_gap);
        let flows = batch.series.iter().filter_map(|row| self.flow(row, since, now)).collect();
        let is_short = self.series.counts().refused > refused_before;
        let applied = Applied {
            flows,
            connections: connections(&self.agent, &batch),
            reasons: self.window_reasons(&batch, &audit, is_short),
            lost: audit.lost,
            closes: batch.last_part,
        };
        if batch.last_part {
            self.delivered = Some(batch.window);
        }
        self.reasons.clone_from(&applied.reasons);
        self.coverage = batch.coverage;
        applied
    }

    /// The last window delivered whole.
    #[must_use]
    pub fn delivered(&self) -> Option<WindowId> {
        self.delivered
    }

    /// When the last batch came, by our clock.
    #[must_use]
    pub fn last_seen(&self) -> UnixNanos {
        self.last_seen
    }

    /// Node's clock minus ours, in nanoseconds.
    #[must_use]
    pub fn clock_offset_ns(&self) -> i64 {
        self.clock.nanos()
    }

    /// The node's clock is off by more than a window.
    #[must_use]
    pub fn is_skewed(&self) -> bool {
        self.clock.is_skewed()
    }

    /// What the last batch said the agent can see.
    #[must_use]
    pub fn coverage(&self) -> &Coverage {
        &self.coverage
    }

    /// Why the last batch's window was less than whole.
    #[must_use]
    pub fn reasons(&self) -> &BTreeSet<CoverageReason> {
        &self.reasons
    }

    /// The last accounts.
    #[must_use]
    pub fn accounts(&self) -> &Accounts {
        &self.accounts
    }

    /// Series held, and what the table could not do.
    #[must_use]
    pub fn series(&self) -> (usize, SeriesCounts) {
        (self.series.len(), self.series.counts())
    }

    /// Notes the number; true when numbers before it are missing.
    fn remember(&mut self, number: u64) -> bool {
        let pod_uid = self.agent.pod_uid.clone();
        if let Some((_, last)) = self.numbers.iter_mut().find(|(pod, _)| *pod == pod_uid) {
            let leaves_gap = number > last.saturating_add(1);
            *last = (*last).max(number);
            return leaves_gap;
        }
        if self.numbers.len() == limits::COLLECTOR_AGENT_PODS {
            self.numbers.pop_front();
        }
        self.numbers.push_back((pod_uid, number));
        false
    }

    fn take_baseline(&mut self, batch: &Batch, now: UnixNanos) {
        for SeriesRow { key, value, .. } in &batch.series {
            self.series.set_base(*key, *value, now);
        }
        if batch.last_part {
            self.delivered = self.delivered.max(Some(batch.window));
            self.known_since.get_or_insert(to_boot(batch, batch.window.end()));
        }
    }

    /// The time at or after which a series without a base is wholly news: since then everything
    /// came here. Without anything before, that is the start of this window.
    fn since(&mut self, batch: &Batch, leaves_gap: bool) -> BootNanos {
        let start = to_boot(batch, batch.window.start());
        let since = self.known_since.get_or_insert(start);
        if leaves_gap {
            *since = (*since).max(start);
        }
        *since
    }

    fn flow(&mut self, row: &SeriesRow, since: BootNanos, now: UnixNanos) -> Option<FlowRow> {
        let delta = match self.series.difference(row.key, row.value, since, now) {
            Difference::Counted(delta) | Difference::CountedWithoutBase(delta) => delta,
            Difference::Base | Difference::Refused => return None,
        };
        (!delta.is_empty()).then(|| FlowRow {
            local: Arc::clone(&row.local),
            remote: row.key.remote,
            direction: row.key.direction,
            port: row.key.port,
            delta,
        })
    }

    fn window_reasons(
        &self,
        batch: &Batch,
        audit: &Audit,
        series_were_refused: bool,
    ) -> BTreeSet<CoverageReason> {
        let coverage = &batch.coverage;
        let mut reasons: BTreeSet<_> = coverage.reasons.iter().copied().collect();
        // The agent may report a blind interval for longer than it concerns.
        let (start, end) = (batch.window.start(), batch.window.end());
        let is_blind = coverage.blind.iter().any(|blind| blind.from < end && blind.to > start);
        if is_blind {
            reasons.insert(CoverageReason::BlindInterval);
        } else if !coverage.blind.is_empty() {
            reasons.remove(&CoverageReason::BlindInterval);
        }
        if audit.is_unbalanced || audit.counts_are_short || series_were_refused {
            reasons.insert(CoverageReason::Loss);
        }
        if self.clock.is_skewed() {
            reasons.insert(CoverageReason::ClockSkew);
        }
        reasons
    }
}

fn to_boot(batch: &Batch, at: UnixNanos) -> BootNanos {
    let unix = i128::from(at.0);
    let boot = unix - i128::from(batch.clock.unix_minus_boot_ns);
    BootNanos(u64::try_from(boot.max(0)).unwrap_or(u64::MAX))
}

fn connections(agent: &Arc<Agent>, batch: &Batch) -> Vec<ConnectionRow> {
    let row = |row: &crate::batch::RecordRow| ConnectionRow {
        agent: Arc::clone(agent),
        local: Arc::clone(&row.local),
        start: batch.clock.to_unix(row.record.start),
        end: batch.clock.to_unix(row.record.end),
        record: row.record.clone(),
    };
    batch.records.iter().map(row).collect()
}

#[cfg(test)]
mod tests;
