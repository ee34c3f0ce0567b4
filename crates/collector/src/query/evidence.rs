//! Answers `Evidence`: closed windows in order, each in parts, resumable by a token.
//!
//! The token names the last window given whole and the process that closed it. A subscriber that
//! is slower than the recent past is told how many windows it lost.

use std::{
    collections::{HashSet, VecDeque},
    sync::Arc,
};

use keelson_model::{
    Direction, Endpoint, LossReason, PeerSource, PodUid, Remote, WindowId, limits,
};
use keelson_proto::query as wire;

use super::{
    answer,
    rows::{self, PairFlow},
};
use crate::{
    names::NameIndex,
    pairs::Pairs,
    shared::Shared,
    store::{ClosedWindow, EvidenceRead, FlowRow, NodeState, NodeWindow, Segment},
};

/// Where a subscriber left off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumeToken {
    /// Of the process that closed the window.
    pub instance: u64,
    /// The last window given whole.
    pub window: WindowId,
}

/// A token that this service did not make.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("resume_token is not one of this service's; leave it empty to begin anew")]
pub struct TokenError;

/// An answer in the making.
pub struct EvidenceReader {
    shared: Arc<Shared>,
    after: Option<WindowId>,
    open: Option<OpenWindow>,
    /// The first windows that are missing had left before the subscriber came.
    has_begun: bool,
}

/// A window being given in parts.
struct OpenWindow {
    window: Arc<ClosedWindow>,
    segment: usize,
    row: usize,
    /// Flows that pairs name, still to be given.
    pairs: VecDeque<wire::Flow>,
    /// Rows that pairs stand for: a node's address must not vote beside the pods behind it.
    replaced: HashSet<(PodUid, Remote, Direction, u16)>,
}

// === impl ResumeToken ===

impl ResumeToken {
    /// As bytes.
    #[must_use]
    pub fn encode(self) -> Vec<u8> {
        [self.instance.to_be_bytes(), self.window.0.to_be_bytes()].concat()
    }

    /// From bytes; none: empty.
    ///
    /// # Errors
    /// The bytes are no token.
    pub fn decode(bytes: &[u8]) -> Result<Option<Self>, TokenError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let bytes: [u8; 16] = bytes.try_into().map_err(|_| TokenError)?;
        let [instance, window] = [0, 8].map(|from| {
            let eight = bytes.get(from..from + 8).and_then(|eight| eight.try_into().ok());
            u64::from_be_bytes(eight.unwrap_or_default())
        });
        Ok(Some(Self { instance, window: WindowId(window) }))
    }
}

// === impl EvidenceReader ===

impl EvidenceReader {
    /// A reader that goes on after `token`.
    #[must_use]
    pub fn new(shared: Arc<Shared>, token: Option<ResumeToken>) -> Self {
        let current = WindowId::containing(shared.now());
        // Another process's clock may have been ahead: its future is not waited for.
        let is_ours =
            |token: &ResumeToken| token.instance == shared.instance || token.window < current;
        let after = token.filter(is_ours).map(|token| token.window);
        Self { shared, after, open: None, has_begun: false }
    }

    /// The next message; none: the service ends.
    pub async fn next(&mut self) -> Option<wire::EvidenceResponse> {
        let mut bell = self.shared.listen();
        loop {
            if let Some(part) = self.next_part() {
                return Some(part);
            }
            bell.borrow_and_update();
            let read = self.shared.core().store.evidence_after(self.after);
            match read {
                EvidenceRead::Window(window) => {
                    self.has_begun = true;
                    let core = self.shared.core();
                    self.open = Some(OpenWindow::new(window, &core.pairs, &self.shared.names()));
                }
                EvidenceRead::Lost { resume_after, count } => {
                    self.after = Some(resume_after);
                    let reason = match std::mem::replace(&mut self.has_begun, true) {
                        true => LossReason::SubscriberSlow,
                        false => LossReason::WindowExpired,
                    };
                    return Some(self.lost(reason, count));
                }
                EvidenceRead::Wait => tokio::select! {
                    _ = bell.changed() => {}
                    () = self.shared.draining.cancelled() => return None,
                },
            }
        }
    }

    /// The next part of the window that is open.
    fn next_part(&mut self) -> Option<wire::EvidenceResponse> {
        let open = self.open.as_mut()?;
        let flows = open.take_flows(&self.shared.names());
        let is_last = open.is_exhausted();
        let window = wire::EvidenceWindow {
            window: open.window.window.0,
            flows,
            last_part: is_last,
            nodes: if is_last { open.window.nodes.iter().map(node).collect() } else { vec![] },
            closed_unix_ns: open.window.closed_at.0,
        };
        if is_last {
            self.after = Some(open.window.window);
            self.open = None;
        }
        let response = wire::evidence_response::Response::Window(window);
        Some(wire::EvidenceResponse { resume_token: self.token(), response: Some(response) })
    }

    fn lost(&self, reason: LossReason, count: u64) -> wire::EvidenceResponse {
        let lost = answer::lost("", reason, count);
        let response = wire::evidence_response::Response::Lost(lost);
        wire::EvidenceResponse { resume_token: self.token(), response: Some(response) }
    }

    fn token(&self) -> Vec<u8> {
        let token = |window| ResumeToken { instance: self.shared.instance, window }.encode();
        self.after.map(token).unwrap_or_default()
    }
}

// === impl OpenWindow ===

impl OpenWindow {
    fn new(window: Arc<ClosedWindow>, pairs: &Pairs, names: &NameIndex) -> Self {
        let (mut flows, mut replaced) = (VecDeque::new(), HashSet::new());
        for segment in &window.segments {
            for PairFlow { row, peer } in rows::pair_flows(pairs, names, segment) {
                if let Some(pod) = row.local.pod().filter(|_| peer.pod().is_some()) {
                    replaced.insert((pod.uid.clone(), row.remote, row.direction, row.port));
                }
                if concerns_a_pod(&row, &peer) {
                    flows.push_back(answer::wire_flow(segment, &row, &peer, PeerSource::Pair));
                }
            }
        }
        Self { window, segment: 0, row: 0, pairs: flows, replaced }
    }

    fn take_flows(&mut self, names: &NameIndex) -> Vec<wire::Flow> {
        let count = self.pairs.len().min(limits::EVIDENCE_FLOWS_PER_PART);
        let mut flows: Vec<wire::Flow> = self.pairs.drain(..count).collect();
        while let Some(segment) = self.window.segments.get(self.segment) {
            let room = limits::EVIDENCE_FLOWS_PER_PART - flows.len();
            if room == 0 {
                break;
            }
            let rows = segment.rows.iter().skip(self.row).take(room);
            flows.extend(rows.filter_map(|row| self.evidence(names, segment, row)));
            self.row += room;
            if self.row >= segment.rows.len() {
                self.segment += 1;
                self.row = 0;
            }
        }
        flows
    }

    fn is_exhausted(&self) -> bool {
        self.pairs.is_empty() && self.segment >= self.window.segments.len()
    }

    /// The flow, if it is evidence of any application and nothing better stands for it.
    fn evidence(&self, names: &NameIndex, segment: &Segment, row: &FlowRow) -> Option<wire::Flow> {
        let peer = rows::flow_peer(names, segment, row);
        let is_replaced = matches!(peer.as_ref(), Endpoint::Node(_))
            && row.local.pod().is_some_and(|pod| {
                let key = (pod.uid.clone(), row.remote, row.direction, row.port);
                self.replaced.contains(&key)
            });
        (concerns_a_pod(row, &peer) && !is_replaced)
            .then(|| answer::wire_flow(segment, row, &peer, PeerSource::Address))
    }
}

/// A pod stands at one of its ends: others are no evidence of any application.
fn concerns_a_pod(row: &FlowRow, peer: &Endpoint) -> bool {
    row.local.pod().is_some() || peer.pod().is_some()
}

fn node(node: &NodeWindow) -> wire::NodeWindow {
    let state = match node.state {
        NodeState::Complete => wire::NodeWindowState::Complete,
        NodeState::Partial => wire::NodeWindowState::Partial,
        NodeState::Absent => wire::NodeWindowState::Absent,
    };
    wire::NodeWindow {
        node: node.node.as_str().to_owned(),
        state: state.into(),
        reasons: node.reasons.iter().map(|reason| reason.as_str().to_owned()).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_comes_back_as_it_was_and_nothing_else_is_one() {
        let token = ResumeToken { instance: 7, window: WindowId(354_000_000) };
        assert_eq!(ResumeToken::decode(&token.encode()), Ok(Some(token)));
        assert_eq!(ResumeToken::decode(&[]), Ok(None));
        assert_eq!(ResumeToken::decode(&[1, 2, 3]), Err(TokenError));
    }
}
