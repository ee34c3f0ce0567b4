//! Series whose cgroup is gone: nobody will move them again, and they hold the room of others. Pure.

use std::collections::{HashMap, HashSet};

use keelson_model::{CgroupId, UnixNanos, limits};

/// Cgroups of series in the kernel's map that no tree holds, each with when that was first seen.
/// No more than the map has series.
#[derive(Debug, Default)]
pub struct Orphans(HashMap<CgroupId, UnixNanos>);

impl Orphans {
    /// Takes the cgroups that are not to be found now, and gives those that were not for as long as
    /// a removed one is kept: by then the last values of their series were read many times over.
    pub fn due(&mut self, missing: &HashSet<CgroupId>, now: UnixNanos) -> HashSet<CgroupId> {
        let keep_ns = limits::AGENT_KEEP_REMOVED_SECONDS * 1_000_000_000;
        self.0.retain(|cgroup, _| missing.contains(cgroup));
        for cgroup in missing {
            self.0.entry(*cgroup).or_insert(now);
        }
        let is_due = |since: &UnixNanos| now.0.saturating_sub(since.0) >= keep_ns;
        self.0.iter().filter(|(_, since)| is_due(since)).map(|(cgroup, _)| *cgroup).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_due_after_a_minute_in_which_it_was_never_found() {
        let set = |ids: &[u64]| ids.iter().map(|id| CgroupId(*id)).collect::<HashSet<_>>();
        let at = |second: u64| UnixNanos(second * 1_000_000_000);
        let mut orphans = Orphans::default();
        assert_eq!(orphans.due(&set(&[1, 2]), at(0)), set(&[]));
        // The second was found by a walk meanwhile, and is lost anew.
        assert_eq!(orphans.due(&set(&[1]), at(30)), set(&[]));
        assert_eq!(orphans.due(&set(&[1, 2]), at(60)), set(&[1]));
        assert_eq!(orphans.due(&set(&[2]), at(119)), set(&[]));
        assert_eq!(orphans.due(&set(&[2]), at(120)), set(&[2]));
    }
}
