//! Pods of this node by uid, as the API server's watch tells them.
//!
//! Pure: `watch` feeds it. A pod that is gone stays known for a while, since the ends of its
//! connections come late.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use keelson_model::{PodRef, PodUid, UnixNanos, limits};

pub mod watch;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Uid to pod, bounded.
#[derive(Debug, Default)]
pub struct PodIndex {
    entries: HashMap<PodUid, Entry>,
    refused: u64,
}

#[derive(Debug)]
struct Entry {
    pod: Arc<PodRef>,
    gone: Option<UnixNanos>,
}

// === impl PodIndex ===

impl PodIndex {
    /// A pod is there, or changed.
    pub fn put(&mut self, pod: PodRef) {
        let known = self.entries.get(&pod.uid);
        if let Some(Entry { pod: held, gone: None }) = known
            && **held == pod
        {
            return;
        }
        if known.is_none() && self.is_full() {
            self.refused += 1;
            return;
        }
        self.entries.insert(pod.uid.clone(), Entry { pod: Arc::new(pod), gone: None });
    }

    /// A pod is gone.
    pub fn remove(&mut self, uid: &PodUid, now: UnixNanos) {
        if let Some(entry) = self.entries.get_mut(uid) {
            entry.gone.get_or_insert(now);
        }
    }

    /// After a relist: what is not in `present` is gone.
    pub fn retain(&mut self, present: &HashSet<PodUid>, now: UnixNanos) {
        for (uid, entry) in &mut self.entries {
            if !present.contains(uid) {
                entry.gone.get_or_insert(now);
            }
        }
    }

    /// Forgets what went away long enough ago.
    pub fn expire(&mut self, now: UnixNanos) {
        let keep_ns = limits::AGENT_KEEP_REMOVED_SECONDS * NANOS_PER_SECOND;
        self.entries
            .retain(|_, entry| entry.gone.is_none_or(|at| now.0.saturating_sub(at.0) < keep_ns));
    }

    /// The pod of that uid.
    #[must_use]
    pub fn get(&self, uid: &PodUid) -> Option<&Arc<PodRef>> {
        self.entries.get(uid).map(|entry| &entry.pod)
    }

    /// Pods refused because the index was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// There is no room for another pod.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= limits::AGENT_PODS
    }

    /// Pods held, gone ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}
