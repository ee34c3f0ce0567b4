//! What waits for the collector, in order: numbered when first sent, kept until acknowledged.
//!
//! Pure: `stream` moves its messages. When it is full, windows are merged: aggregates are
//! cumulative, so that nothing of them is lost; only records beyond the bound are, and counted.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    ops::RangeInclusive,
};

use keelson_model::{LedgerCut, LossReason, limits};

use crate::window::{SeriesId, SeriesRow, TCP, Window};

/// Bounded queue of windows, and the baseline of those that were acknowledged.
#[derive(Debug, Default)]
pub struct Outbox {
    queue: VecDeque<Queued>,
    /// Values as of the last acknowledged window, for the next stream.
    baseline: HashMap<SeriesId, SeriesRow>,
    /// That window without its content.
    baseline_frame: Option<Window>,
    last_number: u64,
    acknowledged: u64,
    /// Messages up to this one were handed to the present stream.
    sent: u64,
    counts: OutboxCounts,
    /// What the agents before us delivered, as they knew, and what they had in hand when they ended.
    before: Before,
}

#[derive(Debug, Default)]
struct Before {
    delivered: u64,
    in_hand: u64,
    /// The collector was asked what of it arrived, or can no longer tell.
    is_settled: bool,
}

/// What the outbox did, since the agent began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutboxCounts {
    /// Windows that were merged into their follower.
    pub merged_windows: u64,
    /// Records dropped because too many waited.
    pub dropped_records: u64,
    /// Records that the collector has acknowledged.
    pub acknowledged_records: u64,
    /// Records that agents before us had in hand, as it seemed, and that had arrived.
    pub recovered_records: u64,
}

#[derive(Debug)]
struct Queued {
    window: Window,
    /// Numbers of its messages, once it was sent.
    numbers: Option<RangeInclusive<u64>>,
}

/// One message: a part of a window.
#[derive(Clone, Debug, PartialEq)]
pub struct Part {
    /// The message's number; a baseline repeats the last acknowledged one.
    pub number: u64,
    /// Its share of the window.
    pub window: Window,
    /// The window has no further part.
    pub is_last: bool,
    /// It repeats acknowledged values and closes no window.
    pub is_baseline: bool,
}

// === impl Outbox ===

impl Outbox {
    /// An outbox that goes on after the agents whose records' account is `inherited`.
    #[must_use]
    pub fn after(inherited: &LedgerCut) -> Self {
        let in_hand = inherited.lost.get(&LossReason::AgentRestart).copied().unwrap_or(0);
        let before = Before { delivered: inherited.delivered, in_hand, is_settled: false };
        Self { before, ..Self::default() }
    }

    /// Takes a window whose account counts all its records and those before it as delivered;
    /// merges it with the one before when there is no room.
    pub fn push(&mut self, window: Window) {
        let is_full = self.queue.len() >= limits::AGENT_UNACKED_BATCHES;
        match self.queue.back_mut() {
            Some(Queued { window: last, numbers: None }) if is_full => {
                self.counts.dropped_records += merge(last, window);
                self.counts.merged_windows += 1;
            }
            _ => self.queue.push_back(Queued { window, numbers: None }),
        }
        let counts = self.counts;
        if let Some(cut) = self.queue.back_mut().and_then(|queued| account(&mut queued.window)) {
            cut.delivered = cut.delivered.saturating_sub(counts.dropped_records);
            cut.lose(LossReason::QueueFull, counts.dropped_records);
            recover(cut, counts.recovered_records);
        }
    }

    /// A stream begins, and the collector holds all messages up to `held`, and `delivered` records
    /// of our pin set, if it knows: gives the baseline.
    ///
    /// A number beyond ours is of a process before us in the same pod, whose container was
    /// restarted: ours go on after it, else the collector takes them for repeats.
    pub fn reconnect(&mut self, held: u64, delivered: Option<u64>) -> Vec<Part> {
        self.recover(delivered);
        if held > self.last_number {
            self.queue.iter_mut().for_each(|queued| queued.numbers = None);
            (self.last_number, self.acknowledged) = (held, held);
        }
        self.acknowledge(held);
        self.sent = self.acknowledged;
        let Some(frame) = &self.baseline_frame else { return Vec::new() };
        let window = Window { series: self.baseline.values().cloned().collect(), ..frame.clone() };
        let number = self.acknowledged;
        let mut parts = split(&window, number);
        for part in &mut parts {
            part.number = number;
            part.is_baseline = true;
        }
        parts
    }

    /// The messages of the next window that the present stream has not had, while fewer than
    /// `credit` are under way.
    pub fn next(&mut self, credit: u64) -> Vec<Part> {
        if self.sent.saturating_sub(self.acknowledged) >= credit {
            return Vec::new();
        }
        let sent = self.sent;
        let is_due = |queued: &&mut Queued| {
            queued.numbers.as_ref().is_none_or(|numbers| *numbers.end() > sent)
        };
        let Some(queued) = self.queue.iter_mut().find(is_due) else { return Vec::new() };
        let first =
            queued.numbers.as_ref().map_or(self.last_number + 1, |numbers| *numbers.start());
        // From here on the collector's count has records of ours as well.
        self.before.is_settled = true;
        let parts = split(&queued.window, first);
        let last = parts.last().map_or(first, |part| part.number);
        queued.numbers = Some(first..=last);
        self.last_number = self.last_number.max(last);
        self.sent = last;
        parts
    }

    /// The collector holds all messages up to `number`; one that was never sent is ignored.
    pub fn acknowledge(&mut self, number: u64) {
        if number > self.last_number {
            return;
        }
        self.acknowledged = self.acknowledged.max(number);
        while let Some(Queued { numbers: Some(numbers), .. }) = self.queue.front()
            && *numbers.end() <= self.acknowledged
        {
            let Some(done) = self.queue.pop_front() else { return };
            self.counts.acknowledged_records += done.window.records.len() as u64;
            let Window { id, clock, series, records: _, ledgers: _, coverage } = done.window;
            self.baseline.extend(series.into_iter().map(|row| (row.id(), row)));
            let (series, records, ledgers) = (Vec::new(), Vec::new(), Vec::new());
            self.baseline_frame = Some(Window { id, clock, series, records, ledgers, coverage });
        }
    }

    /// An agent that is killed does not learn of its last acknowledgements: what the collector
    /// holds beyond those was not in hand.
    fn recover(&mut self, delivered: Option<u64>) {
        let Before { delivered: known, in_hand, is_settled } = self.before;
        let arrived = delivered.unwrap_or(0).saturating_sub(known).min(in_hand);
        if is_settled || arrived == 0 {
            return;
        }
        self.before.is_settled = true;
        self.counts.recovered_records = arrived;
        for queued in &mut self.queue {
            if let Some(cut) = account(&mut queued.window) {
                recover(cut, arrived);
            }
        }
    }

    /// Forgets the baseline of series that the kernel no longer holds.
    pub fn retain(&mut self, live: &HashSet<SeriesId>) {
        if self.baseline.len() > live.len() {
            self.baseline.retain(|id, _| live.contains(id));
        }
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Records that wait.
    #[must_use]
    pub fn held_records(&self) -> u64 {
        self.queue.iter().map(|queued| queued.window.records.len() as u64).sum()
    }

    /// What it did.
    #[must_use]
    pub fn counts(&self) -> OutboxCounts {
        self.counts
    }
}

fn account(window: &mut Window) -> Option<&mut LedgerCut> {
    let ledger = window.ledgers.iter_mut().find(|ledger| ledger.probe == TCP)?;
    Some(&mut ledger.cut)
}

/// Moves `count` records from those that a killed agent had in hand to those that arrived.
pub(crate) fn recover(cut: &mut LedgerCut, count: u64) {
    if let Some(in_hand) = cut.lost.get_mut(&LossReason::AgentRestart) {
        *in_hand = in_hand.saturating_sub(count);
        cut.delivered = cut.delivered.saturating_add(count);
    }
}

/// Puts `newer` into `window`; gives how many records there was no room for.
fn merge(window: &mut Window, newer: Window) -> u64 {
    let Window { id, clock, series, mut records, ledgers, coverage } = newer;
    window.id = id;
    window.clock = clock;
    window.ledgers = ledgers;
    window.coverage = coverage;
    let moved: HashSet<SeriesId> = series.iter().map(SeriesRow::id).collect();
    window.series.retain(|row| !moved.contains(&row.id()));
    window.series.extend(series);
    let room = limits::AGENT_PENDING_RECORDS.saturating_sub(window.records.len());
    let dropped = records.len().saturating_sub(room);
    records.truncate(room);
    window.records.append(&mut records);
    dropped as u64
}

/// The messages of a window, numbered from `first`; at least one.
fn split(window: &Window, first: u64) -> Vec<Part> {
    let by_series = window.series.len().div_ceil(limits::SERIES_PER_BATCH);
    let by_records = window.records.len().div_ceil(limits::RECORDS_PER_BATCH);
    let count = by_series.max(by_records).max(1);
    let mut series = window.series.chunks(limits::SERIES_PER_BATCH);
    let mut records = window.records.chunks(limits::RECORDS_PER_BATCH);
    let part = |(index, number): (usize, u64)| {
        let is_last = index + 1 == count;
        let window = Window {
            id: window.id,
            clock: window.clock,
            series: series.next().unwrap_or_default().to_vec(),
            records: records.next().unwrap_or_default().to_vec(),
            // Accounts belong to the whole window: they go with its end.
            ledgers: if is_last { window.ledgers.clone() } else { Vec::new() },
            coverage: window.coverage.clone(),
        };
        Part { number, window, is_last, is_baseline: false }
    };
    (0..count).zip(first..).map(part).collect()
}

#[cfg(test)]
mod tests;
