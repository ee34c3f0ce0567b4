//! Cgroup ids to pods: names of the kubelet's cgroup tree parsed, and an index fed by a walk at
//! start, by the kernel's `cgroup_mkdir` and `cgroup_rmdir`, and by another walk when one was lost.
//!
//! Pure: it reads no file system and no clock; `walk` does the first, the caller gives the second.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use keelson_model::{CgroupId, PodUid, UnixNanos, limits};

pub mod walk;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// What the name of one directory of the tree says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// `kubepods` or `kubepods.slice`: the root of a kubelet's pods.
    Root,
    /// A pod's cgroup.
    Pod(PodUid),
    /// Anything else: a QoS class, a container, or what a container made below itself.
    Other,
}

/// The pod and container that a cgroup belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// The pod.
    pub pod: PodUid,
    /// The runtime's container id; none for the pod's own cgroup.
    pub container: Option<Arc<str>>,
}

/// What is known of a cgroup id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup<'a> {
    /// It is a pod's.
    Owned(&'a Owner),
    /// It lies in the tree and is no pod's.
    NoPod,
    /// Never heard of: the event may be under way.
    Missing,
}

/// Cgroup id to owner, bounded.
#[derive(Debug)]
pub struct CgroupIndex {
    entries: HashMap<CgroupId, Entry>,
    capacity: usize,
    refused: u64,
}

#[derive(Debug)]
struct Entry {
    owner: Option<Owner>,
    removed: Option<UnixNanos>,
}

/// Reads the name of one directory, as the cgroupfs or the systemd driver of the kubelet makes it.
#[must_use]
pub fn parse_name(name: &str) -> Part {
    if name == "kubepods" || name == "kubepods.slice" {
        return Part::Root;
    }
    match pod_uid(name) {
        Some(uid) => Part::Pod(uid),
        None => Part::Other,
    }
}

/// `pod<uid>` or `kubepods[-<qos>]-pod<uid with _>.slice`.
fn pod_uid(name: &str) -> Option<PodUid> {
    let uid = match name.strip_suffix(".slice") {
        Some(slice) => {
            let (prefix, uid) = slice.rsplit_once("-pod")?;
            if !prefix.starts_with("kubepods") {
                return None;
            }
            uid.replace('_', "-")
        }
        None => name.strip_prefix("pod")?.to_owned(),
    };
    let is_uid = (16..=limits::POD_UID_BYTES).contains(&uid.len())
        && uid.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    is_uid.then(|| uid.into())
}

/// `<id>`, or `<runtime>-<id>.scope` as the systemd driver makes it.
fn container_id(name: &str) -> Option<&str> {
    let id = match name.strip_suffix(".scope") {
        Some(scope) => scope.rsplit_once('-')?.1,
        None => name,
    };
    let is_id = (32..=limits::CONTAINER_ID_BYTES).contains(&id.len())
        && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then_some(id)
}

// === impl CgroupIndex ===

impl Default for CgroupIndex {
    fn default() -> Self {
        Self::with_capacity(limits::AGENT_CGROUPS)
    }
}

impl CgroupIndex {
    /// An index of at most `capacity` cgroups.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self { entries: HashMap::new(), capacity, refused: 0 }
    }

    /// Adds the root of the tree: what is made below it is ours, all else is not.
    pub fn add_root(&mut self, root: CgroupId) {
        self.entries.insert(root, Entry { owner: None, removed: None });
    }

    /// Adds a directory of the tree; one whose parent is not in it is left out.
    pub fn add(&mut self, id: CgroupId, parent: CgroupId, name: &str) {
        let Some(parent) = self.entries.get(&parent) else { return };
        let owner = match (&parent.owner, parse_name(name)) {
            (None, Part::Pod(pod)) => Some(Owner { pod, container: None }),
            (None, _) => None,
            (Some(Owner { pod, container: None }), _) => {
                let container = container_id(name).map(Into::into);
                Some(Owner { pod: pod.clone(), container })
            }
            (Some(owner), _) => Some(owner.clone()),
        };
        if self.is_full() && !self.entries.contains_key(&id) {
            self.refused += 1;
            return;
        }
        self.entries.insert(id, Entry { owner, removed: None });
    }

    /// A directory is gone; it stays known for a while, since its connections' ends come late.
    pub fn remove(&mut self, id: CgroupId, now: UnixNanos) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.removed.get_or_insert(now);
        }
    }

    /// After a walk of the whole tree: what is not in `present` is gone.
    pub fn retain(&mut self, present: &HashSet<CgroupId>, now: UnixNanos) {
        for (id, entry) in &mut self.entries {
            if !present.contains(id) {
                entry.removed.get_or_insert(now);
            }
        }
    }

    /// Forgets what went away long enough ago.
    pub fn expire(&mut self, now: UnixNanos) {
        let keep_ns = limits::AGENT_KEEP_REMOVED_SECONDS * NANOS_PER_SECOND;
        self.entries
            .retain(|_, entry| entry.removed.is_none_or(|at| now.0.saturating_sub(at.0) < keep_ns));
    }

    /// Whose `id` is.
    #[must_use]
    pub fn lookup(&self, id: CgroupId) -> Lookup<'_> {
        match self.entries.get(&id) {
            Some(Entry { owner: Some(owner), .. }) => Lookup::Owned(owner),
            Some(_) => Lookup::NoPod,
            None => Lookup::Missing,
        }
    }

    /// Directories refused because the index was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// There is no room for another directory.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.entries.len() >= self.capacity
    }

    /// Directories held.
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

#[cfg(test)]
mod tests;
