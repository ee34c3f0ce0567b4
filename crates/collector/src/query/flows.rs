//! Answers `Flows`: what is held, oldest window first, or the newest rows; then what arrives.
//!
//! A reader holds a cursor and at most one window's segments; its pace is its own. What it misses
//! by being slow, or asks for too late, is said in-band.

use std::{collections::VecDeque, sync::Arc};

use keelson_model::{Endpoint, LossReason, PeerSource, WindowId};
use keelson_proto::query as wire;

use super::{
    answer::{self, Losses, Range},
    filter::Filters,
    rows::{self, PairFlow},
};
use crate::{
    names::NameIndex,
    shared::Shared,
    store::{FlowRow, Segment},
};

/// Rows looked at between two pauses, so that one query does not hold a thread or a lock for long.
const CHUNK: usize = 512;
/// Segments taken at once from what arrived.
const SEGMENTS: usize = 64;

/// Where a reader stands.
#[derive(Debug)]
enum Phase {
    /// Reading what is held, from this window on.
    Held(WindowId),
    /// Picking the newest rows.
    Newest,
    /// All that was held has been given.
    End,
    /// Following from this cursor.
    Follow(u64),
    Done,
}

/// A row among the newest.
enum Picked {
    /// By its position.
    Row(usize),
    /// Named by its pairs.
    Pair(PairFlow),
}

/// An answer in the making.
pub struct FlowsReader {
    shared: Arc<Shared>,
    filters: Filters,
    range: Range,
    last: usize,
    follow: bool,
    phase: Phase,
    /// What had arrived when the question came: the rest is the follower's.
    before: u64,
    segments: VecDeque<Arc<Segment>>,
    next_row: usize,
    picked: VecDeque<(Arc<Segment>, Picked)>,
    ready: VecDeque<wire::FlowsResponse>,
    losses: Losses,
}

// === impl FlowsReader ===

impl FlowsReader {
    /// A reader at its beginning.
    #[must_use]
    pub fn new(
        shared: Arc<Shared>,
        filters: Filters,
        range: Range,
        last: usize,
        follow: bool,
    ) -> Self {
        let before = shared.core().store.arrival_cursor();
        let oldest = shared.core().store.oldest_window();
        let mut reader = Self {
            shared,
            filters,
            range,
            last,
            follow,
            phase: if last > 0 { Phase::Newest } else { Phase::Held(WindowId(0)) },
            before,
            segments: VecDeque::new(),
            next_row: 0,
            picked: VecDeque::new(),
            ready: VecDeque::new(),
            losses: Losses::new(range, answer::Lacks::Counts),
        };
        let expired = range.expired_windows(oldest);
        if expired > 0 && last == 0 {
            reader.ready.push_back(lost(answer::lost("", LossReason::WindowExpired, expired)));
        }
        reader
    }

    /// The next message; none: the answer is complete.
    pub async fn next(&mut self) -> Option<wire::FlowsResponse> {
        let mut bell = self.shared.listen();
        loop {
            if let Some(response) = self.ready.pop_front() {
                return Some(response);
            }
            if self.name_some() {
                tokio::task::yield_now().await;
                continue;
            }
            match self.phase {
                Phase::Held(from) => self.read_held(from),
                Phase::Newest => self.pick_newest(),
                Phase::End => self.finish_held(),
                Phase::Follow(cursor) => {
                    bell.borrow_and_update();
                    if !self.read_arrived(cursor) {
                        tokio::select! {
                            _ = bell.changed() => {}
                            () = self.shared.draining.cancelled() => self.phase = Phase::Done,
                        }
                    }
                }
                Phase::Done => return None,
            }
        }
    }

    /// Names and filters some of the rows at hand; false: there are none.
    fn name_some(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        if !self.picked.is_empty() {
            let count = self.picked.len().min(CHUNK);
            for (segment, picked) in self.picked.drain(..count) {
                let response = match picked {
                    Picked::Pair(flow) => pair_answer(&segment, &flow),
                    Picked::Row(position) => {
                        let Some(flow) = segment.rows.get(position) else { continue };
                        let peer = rows::flow_peer(&shared.names(), &segment, flow);
                        let peer = self.filters.sight.veil(peer);
                        answer::flow(&segment, flow, &peer, PeerSource::Address)
                    }
                };
                self.ready.push_back(response);
            }
            return true;
        }
        let Some(segment) = self.segments.front().map(Arc::clone) else { return false };
        let names = shared.names();
        for flow in segment.rows.iter().skip(self.next_row).take(CHUNK) {
            if let Some(peer) = wanted(&names, &self.filters, &segment, flow) {
                self.ready.push_back(answer::flow(&segment, flow, &peer, PeerSource::Address));
            }
        }
        drop(names);
        self.next_row += CHUNK;
        if self.next_row >= segment.rows.len() {
            let pairs = wanted_pairs(&shared, &self.filters, &segment);
            self.ready.extend(pairs.iter().map(|flow| pair_answer(&segment, flow)));
            self.segments.pop_front();
            self.next_row = 0;
        }
        true
    }

    fn read_held(&mut self, from: WindowId) {
        let held = self.shared.core().store.held_from(from, self.range.bounds(), self.before);
        match held {
            Some((window, segments)) => {
                self.segments.extend(segments);
                self.phase = Phase::Held(window.next());
            }
            None => self.phase = Phase::End,
        }
    }

    fn pick_newest(&mut self) {
        let mut until = WindowId(u64::MAX);
        while self.picked.len() < self.last {
            let range = self.range.bounds();
            let held = self.shared.core().store.held_before(until, range, self.before);
            let Some((window, segments)) = held else { break };
            until = window;
            for segment in segments.iter().rev() {
                let room = self.last.saturating_sub(self.picked.len());
                let pairs = wanted_pairs(&self.shared, &self.filters, segment);
                for flow in pairs.into_iter().take(room) {
                    self.picked.push_front((Arc::clone(segment), Picked::Pair(flow)));
                }
                let names = self.shared.names();
                for (position, flow) in segment.rows.iter().enumerate().rev() {
                    if self.picked.len() < self.last
                        && wanted(&names, &self.filters, segment, flow).is_some()
                    {
                        self.picked.push_front((Arc::clone(segment), Picked::Row(position)));
                    }
                }
            }
        }
        self.phase = Phase::End;
    }

    fn finish_held(&mut self) {
        self.say_losses();
        self.phase = if self.follow {
            self.ready.push_back(caught_up());
            Phase::Follow(self.before)
        } else {
            Phase::Done
        };
    }

    /// Takes what arrived; false: nothing.
    fn read_arrived(&mut self, cursor: u64) -> bool {
        let read = self.shared.core().store.arrived_since(cursor, SEGMENTS);
        self.phase = Phase::Follow(read.cursor);
        if read.lost_rows > 0 {
            self.ready.push_back(lost(answer::lost(
                "",
                LossReason::SubscriberSlow,
                read.lost_rows,
            )));
        }
        let (since, until) = self.range.bounds();
        let in_range =
            |segment: &Arc<Segment>| segment.window.end() > since && segment.window.start() < until;
        let has_more = !read.segments.is_empty();
        self.segments.extend(read.segments.into_iter().filter(in_range));
        self.say_losses();
        if self.shared.now() > until {
            self.phase = Phase::Done;
        }
        has_more || read.lost_rows > 0 || matches!(self.phase, Phase::Done)
    }

    fn say_losses(&mut self) {
        let news = self.losses.news(&self.shared.core().store, self.shared.now());
        let news = news.into_iter().map(|news| self.filters.sight.veil_lost(news));
        self.ready.extend(news.map(lost));
    }
}

/// The peer of a row that the filters want.
fn wanted(
    names: &NameIndex,
    filters: &Filters,
    segment: &Segment,
    flow: &FlowRow,
) -> Option<Arc<Endpoint>> {
    let peer = filters.sight.veil(rows::flow_peer(names, segment, flow));
    filters.matches(&rows::flow_row(segment, flow, &peer)).then_some(peer)
}

/// The flows named by pairs that the filters want.
fn wanted_pairs(shared: &Shared, filters: &Filters, segment: &Segment) -> Vec<PairFlow> {
    if segment.pairs.is_empty() || !filters.wants_pairs() {
        return Vec::new();
    }
    let mut flows = rows::pair_flows(&shared.core().pairs, &shared.names(), segment);
    for flow in &mut flows {
        flow.peer = filters.sight.veil(Arc::clone(&flow.peer));
    }
    flows.retain(|flow| filters.matches_pair(&rows::flow_row(segment, &flow.row, &flow.peer)));
    flows
}

fn pair_answer(segment: &Segment, PairFlow { row, peer }: &PairFlow) -> wire::FlowsResponse {
    answer::flow(segment, row, peer, PeerSource::Pair)
}

fn caught_up() -> wire::FlowsResponse {
    let response = wire::flows_response::Response::CaughtUp(wire::CaughtUp {});
    wire::FlowsResponse { response: Some(response) }
}

fn lost(lost: wire::Lost) -> wire::FlowsResponse {
    wire::FlowsResponse { response: Some(wire::flows_response::Response::Lost(lost)) }
}
