//! Answers `Connections`: what is held in the order of its arrival, or the newest rows; then what
//! arrives.

use std::{collections::VecDeque, sync::Arc};

use keelson_model::{Endpoint, LossReason, PeerSource};
use keelson_proto::query as wire;

use super::{
    answer::{self, Lacks, Losses, Range},
    filter::Filters,
    rows,
};
use crate::{shared::Shared, store::ConnectionRow};

/// Rows looked at between two pauses.
const CHUNK: usize = 512;

#[derive(Debug)]
enum Phase {
    Held,
    Follow,
    Done,
}

/// An answer in the making.
pub struct ConnectionsReader {
    shared: Arc<Shared>,
    filters: Filters,
    range: Range,
    last: usize,
    follow: bool,
    phase: Phase,
    cursor: u64,
    /// What had arrived when the question came.
    before: u64,
    newest: VecDeque<Arc<ConnectionRow>>,
    ready: VecDeque<wire::ConnectionsResponse>,
    losses: Losses,
}

// === impl ConnectionsReader ===

impl ConnectionsReader {
    /// A reader at its beginning.
    #[must_use]
    pub fn new(
        shared: Arc<Shared>,
        filters: Filters,
        range: Range,
        last: usize,
        follow: bool,
    ) -> Self {
        let (cursor, before) = {
            let core = shared.core();
            (core.connections.first(), core.connections.arrival_cursor())
        };
        Self {
            shared,
            filters,
            range,
            last,
            follow,
            phase: Phase::Held,
            cursor,
            before,
            newest: VecDeque::new(),
            ready: VecDeque::new(),
            losses: Losses::new(range, Lacks::Records),
        }
    }

    /// The next message; none: the answer is complete.
    pub async fn next(&mut self) -> Option<wire::ConnectionsResponse> {
        let mut bell = self.shared.listen();
        loop {
            if let Some(response) = self.ready.pop_front() {
                return Some(response);
            }
            match self.phase {
                Phase::Held => {
                    self.read_held();
                    tokio::task::yield_now().await;
                }
                Phase::Follow => {
                    bell.borrow_and_update();
                    if !self.read_arrived() {
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

    fn read_held(&mut self) {
        let room =
            usize::try_from(self.before.saturating_sub(self.cursor)).unwrap_or(CHUNK).min(CHUNK);
        let (start, rows) = self.shared.core().connections.from(self.cursor, room);
        if room == 0 || rows.is_empty() || start >= self.before {
            self.finish_held();
            return;
        }
        self.cursor = start + rows.len() as u64;
        for row in rows {
            if !self.is_wanted(&row) {
                continue;
            }
            if self.last == 0 {
                self.answer(&row);
                continue;
            }
            if self.newest.len() == self.last {
                self.newest.pop_front();
            }
            self.newest.push_back(row);
        }
    }

    fn finish_held(&mut self) {
        for row in std::mem::take(&mut self.newest) {
            self.answer(&row);
        }
        self.say_losses();
        // Rows that made room for others while this read let it run ahead are not given again.
        self.cursor = self.cursor.max(self.before);
        self.phase = if self.follow {
            let response = wire::connections_response::Response::CaughtUp(wire::CaughtUp {});
            self.ready.push_back(wire::ConnectionsResponse { response: Some(response) });
            Phase::Follow
        } else {
            Phase::Done
        };
    }

    /// Takes what arrived; false: nothing.
    fn read_arrived(&mut self) -> bool {
        let (start, rows) = self.shared.core().connections.from(self.cursor, CHUNK);
        let missed = start.saturating_sub(self.cursor);
        if missed > 0 {
            self.ready.push_back(lost(answer::lost("", LossReason::SubscriberSlow, missed)));
        }
        self.cursor = start + rows.len() as u64;
        for row in &rows {
            if self.is_wanted(row) {
                self.answer(row);
            }
        }
        self.say_losses();
        if self.shared.now() > self.range.until {
            self.phase = Phase::Done;
        }
        !rows.is_empty() || missed > 0 || matches!(self.phase, Phase::Done)
    }

    fn is_wanted(&self, row: &ConnectionRow) -> bool {
        let Range { since, until } = self.range;
        if row.end < since || row.start >= until {
            return false;
        }
        self.filters.matches(&rows::connection_row(row, &self.peer(row).0))
    }

    fn answer(&mut self, row: &ConnectionRow) {
        let (peer, source) = self.peer(row);
        let connection = answer::connection(row, &peer, source);
        let response = wire::connections_response::Response::Connection(connection);
        self.ready.push_back(wire::ConnectionsResponse { response: Some(response) });
    }

    fn peer(&self, row: &ConnectionRow) -> (Arc<Endpoint>, PeerSource) {
        let core = self.shared.core();
        let (peer, source) = rows::connection_peer(&core.pairs, &self.shared.names(), row);
        (self.filters.sight.veil(peer), source)
    }

    fn say_losses(&mut self) {
        let news = self.losses.news(&self.shared.core().store, self.shared.now());
        let news = news.into_iter().map(|news| self.filters.sight.veil_lost(news));
        self.ready.extend(news.map(lost));
    }
}

fn lost(lost: wire::Lost) -> wire::ConnectionsResponse {
    wire::ConnectionsResponse { response: Some(wire::connections_response::Response::Lost(lost)) }
}
