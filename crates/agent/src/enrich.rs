//! Gives the local side its name: cgroup id to pod, or why not. Never guesses.
//!
//! Pure over the two indexes. What may still become known is `Pending`; the caller bounds the wait.

use std::sync::Arc;

use keelson_model::{CgroupId, PodRef, UnknownReason};

use crate::{
    cgroup::{CgroupIndex, Lookup},
    pods::PodIndex,
};

/// The local side of a series or a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Local {
    /// A pod of this node.
    Pod {
        /// The pod.
        pod: Arc<PodRef>,
        /// The runtime's container id, where the cgroup is a container's.
        container: Option<Arc<str>>,
    },
    /// No name, and why.
    Unknown(UnknownReason),
}

/// A name, or the reason that it would have if the wait ended now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Naming {
    /// Settled.
    Settled(Local),
    /// The cgroup's event or the API server's answer may be under way.
    Pending(UnknownReason),
}

/// Names a cgroup.
#[must_use]
pub fn name(cgroup: CgroupId, cgroups: &CgroupIndex, pods: &PodIndex) -> Naming {
    if cgroup.0 == 0 {
        return Naming::Settled(Local::Unknown(UnknownReason::NoCgroup));
    }
    match cgroups.lookup(cgroup) {
        Lookup::Owned(owner) => match pods.get(&owner.pod) {
            Some(pod) => Naming::Settled(Local::Pod {
                pod: Arc::clone(pod),
                container: owner.container.clone(),
            }),
            None if pods.is_full() => Naming::Settled(Local::Unknown(UnknownReason::TableFull)),
            None => Naming::Pending(UnknownReason::PodNotSeen),
        },
        Lookup::NoPod => Naming::Settled(Local::Unknown(UnknownReason::HostProcess)),
        Lookup::Missing if cgroups.is_full() => {
            Naming::Settled(Local::Unknown(UnknownReason::TableFull))
        }
        // Only what lies in our tree is counted, so that it is no process of the host.
        Lookup::Missing => Naming::Pending(UnknownReason::NoCgroup),
    }
}
