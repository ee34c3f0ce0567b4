//! Checks a node's accounts: do they balance, and what was lost since the last cut.
//!
//! Loss of records leaves the counts whole; only loss that touches the counts makes a window's
//! evidence less than complete.

use std::collections::BTreeMap;

use keelson_model::{LedgerCut, LossReason};

use crate::batch::ProbeLedger;

/// Probes of one node whose accounts are kept; more are a malformed batch's.
pub const PROBES_PER_NODE: usize = 16;

/// The last account of each probe of one node.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    last: BTreeMap<String, LedgerCut>,
}

/// What a batch's accounts say about the time since those before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// An account does not balance.
    pub is_unbalanced: bool,
    /// Counts, not only records, are missing.
    pub counts_are_short: bool,
    /// Lost since the last cut.
    pub lost: BTreeMap<LossReason, u64>,
}

// === impl Accounts ===

impl Accounts {
    /// Takes the accounts of a batch.
    pub fn audit(&mut self, ledgers: &[ProbeLedger]) -> Audit {
        let mut audit = Audit::default();
        for ProbeLedger { probe, cut } in ledgers {
            audit.is_unbalanced |= cut.imbalance() != 0;
            let before = self.last.get(probe);
            for (reason, total) in &cut.lost {
                let earlier = before.and_then(|cut| cut.lost.get(reason)).copied();
                // The first account of a probe tells of a time before this collector's, and an
                // account that went back is a new one.
                let since = match earlier {
                    Some(earlier) => total.checked_sub(earlier).unwrap_or(*total),
                    None if before.is_some() => *total,
                    None => 0,
                };
                if since > 0 {
                    let lost = audit.lost.entry(*reason).or_default();
                    *lost = lost.saturating_add(since);
                    audit.counts_are_short |= touches_counts(*reason);
                }
            }
            if before.is_some() || self.last.len() < PROBES_PER_NODE {
                self.last.insert(probe.clone(), cut.clone());
            }
        }
        audit
    }

    /// The last account of each probe.
    pub fn last(&self) -> impl Iterator<Item = (&str, &LedgerCut)> {
        self.last.iter().map(|(probe, cut)| (probe.as_str(), cut))
    }
}

/// Whether the loss leaves counters short; the others lose only records, which are a sample.
#[must_use]
pub fn touches_counts(reason: LossReason) -> bool {
    matches!(
        reason,
        LossReason::CounterRefused | LossReason::SocketStateRefused | LossReason::RunSkipped
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ledger(produced: u64, delivered: u64, lost: &[(LossReason, u64)]) -> Vec<ProbeLedger> {
        let cut = LedgerCut {
            produced,
            delivered,
            lost: lost.iter().copied().collect(),
            ..Default::default()
        };
        vec![ProbeLedger { probe: "tcp".into(), cut }]
    }

    #[test]
    fn losses_are_told_as_what_came_on_top() {
        let mut accounts = Accounts::default();
        let full = LossReason::PerfBufferFull;
        let first = accounts.audit(&ledger(10, 7, &[(full, 3)]));
        assert_eq!(first, Audit::default(), "losses before the first account are not this one's");
        let second = accounts.audit(&ledger(20, 12, &[(full, 8)]));
        assert_eq!(second.lost.get(&full), Some(&5));
        assert!(!second.counts_are_short && !second.is_unbalanced);
        let third = accounts.audit(&ledger(21, 12, &[(full, 8), (LossReason::CounterRefused, 1)]));
        assert_eq!(third.lost.get(&LossReason::CounterRefused), Some(&1));
        assert!(third.counts_are_short);
    }

    #[test]
    fn an_account_that_does_not_balance_is_seen_in_either_direction() {
        for (produced, delivered) in [(10, 9), (9, 10)] {
            assert!(Accounts::default().audit(&ledger(produced, delivered, &[])).is_unbalanced);
        }
        assert!(!Accounts::default().audit(&ledger(9, 9, &[])).is_unbalanced);
    }

    #[test]
    fn names_of_probes_do_not_grow_the_table() {
        let mut accounts = Accounts::default();
        for number in 0..100 {
            let probe = format!("probe-{number}");
            accounts.audit(&[ProbeLedger { probe, cut: LedgerCut::default() }]);
        }
        assert_eq!(accounts.last().count(), PROBES_PER_NODE);
    }
}
