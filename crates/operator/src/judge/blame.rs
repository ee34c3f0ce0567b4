//! Which end of a bad pair it is.
//!
//! Loss and delay belong to a path; which end retransmits does not tell the direction. So only
//! votes blame. A pod is blamed when
//!
//! 1. at least two peers see it bad, or
//! 2. it sees at least two peers bad that nobody else sees bad, or
//! 3. one peer sees it bad that is well towards at least two other pods.
//!
//! The pod with the most bad counterparts is taken first, and its pairs then count as explained:
//! otherwise a client of two broken servers, seen bad by both, would be blamed with them. Where
//! candidates with equally many are each other's counterparts, nobody can tell, and none is blamed.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Graph, Level};
use crate::evidence::Party;

/// From where the blame is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum View {
    /// The peers' sockets saw it.
    SeenByPeers,
    /// The pod's own sockets saw it.
    Own,
}

/// Why a pod is blamed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blame {
    /// From where.
    pub view: View,
    /// The other ends that count.
    pub peers: Vec<Party>,
}

/// What a window says of all pods.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Blamed {
    /// Pods that are blamed.
    pub pods: BTreeMap<Party, Blame>,
    /// Bad pairs that blame nobody, by pod with its counterparts.
    pub unexplained: BTreeMap<Party, BTreeSet<Party>>,
}

/// Votes that rule 1 and rule 2 need.
const VOTES: usize = 2;

/// Blames pods by the window's votes.
#[must_use]
pub fn blame(graph: &Graph) -> Blamed {
    let mut bad: BTreeSet<(&Party, &Party)> = graph
        .sights
        .iter()
        .filter(|(_, sight)| sight.level == Level::Bad)
        .map(|((observer, peer), _)| (observer, peer))
        .collect();
    let mut blamed = Blamed::default();
    loop {
        let candidates = candidates(&bad, graph);
        let most = candidates.values().map(|(score, _)| *score).max().unwrap_or(0);
        let first: BTreeMap<&Party, Blame> = candidates
            .into_iter()
            .filter(|(_, (score, _))| *score == most)
            .map(|(pod, (_, blame))| (pod, blame))
            .collect();
        let is_tie = bad.iter().any(|(a, b)| first.contains_key(a) && first.contains_key(b));
        if first.is_empty() || is_tie {
            break;
        }
        bad.retain(|(a, b)| !first.contains_key(a) && !first.contains_key(b));
        blamed.pods.extend(first.into_iter().map(|(pod, blame)| (pod.clone(), blame)));
    }
    for (observer, peer) in bad {
        for (pod, other) in [(observer, peer), (peer, observer)] {
            if pod.is_pod() {
                blamed.unexplained.entry(pod.clone()).or_default().insert(other.clone());
            }
        }
    }
    blamed
}

/// Pods that a rule blames over the pairs that are left, with their number of bad counterparts.
fn candidates<'a>(
    bad: &BTreeSet<(&'a Party, &'a Party)>,
    graph: &Graph,
) -> BTreeMap<&'a Party, (usize, Blame)> {
    let mut seen_by: BTreeMap<&Party, BTreeSet<&Party>> = BTreeMap::new();
    let mut counterparts: BTreeMap<&Party, BTreeSet<&Party>> = BTreeMap::new();
    for (observer, peer) in bad.iter().copied() {
        seen_by.entry(peer).or_default().insert(observer);
        counterparts.entry(peer).or_default().insert(observer);
        counterparts.entry(observer).or_default().insert(peer);
    }
    let blame_of = |pod: &'a Party| -> Option<Blame> {
        let none = BTreeSet::new();
        let witnesses = seen_by.get(pod).unwrap_or(&none);
        let by_peers = |peers: Vec<&Party>| Blame {
            view: View::SeenByPeers,
            peers: peers.into_iter().cloned().collect(),
        };
        if witnesses.len() >= VOTES {
            return Some(by_peers(witnesses.iter().copied().collect()));
        }
        let is_only_ours =
            |peer: &&Party| seen_by.get(*peer).is_none_or(|seen| seen.iter().all(|by| *by == pod));
        let towards: Vec<&Party> = bad
            .iter()
            .filter(|(observer, _)| *observer == pod)
            .map(|(_, peer)| *peer)
            .filter(is_only_ours)
            .collect();
        if towards.len() >= VOTES {
            let peers = towards.into_iter().cloned().collect();
            return Some(Blame { view: View::Own, peers });
        }
        let credible = witnesses.iter().copied().find(|by| is_well(by, pod, graph))?;
        Some(by_peers(vec![credible]))
    };
    counterparts
        .iter()
        .filter(|(pod, _)| pod.is_pod())
        .filter_map(|(pod, others)| Some((*pod, (others.len(), blame_of(pod)?))))
        .collect()
}

/// Whether `witness` is well towards at least two pods other than `pod`, and bad towards none.
fn is_well(witness: &Party, pod: &Party, graph: &Graph) -> bool {
    let others = graph
        .sights
        .iter()
        .filter(|((observer, peer), _)| observer == witness && peer != pod && peer.is_pod());
    let mut well = 0;
    for (_, sight) in others {
        match sight.level {
            Level::Good => well += 1,
            Level::Bad => return false,
            Level::Between | Level::Few => {}
        }
    }
    well >= VOTES
}

#[cfg(test)]
mod tests;
