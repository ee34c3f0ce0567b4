//! Checks a node's accounts: do they balance, and what was lost since the last cut.
//!
//! Loss of records leaves the counts whole; only loss that touches the counts makes a window's
//! evidence less than complete.

use std::collections::BTreeMap;

use keelson_model::{LedgerCut, LossReason};

use crate::batch::ProbeLedger;

/// Probes of one node whose accounts are kept; more are a malformed batch's.
pub const PROBES_PER_NODE: usize = 16;

/// The probe whose records are connections.
const TCP: &str = "tcp";

/// The last account of each probe of one node.
#[derive(Clone, Debug, Default)]
pub struct Accounts {
    last: BTreeMap<String, LedgerCut>,
    /// Records that came since the last account of [`TCP`].
    received: u64,
}

/// What a batch's accounts say about the time since those before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// An account does not balance, or says that other records were delivered than came here.
    pub is_unbalanced: bool,
    /// Counts, not only records, are missing.
    pub counts_are_short: bool,
    /// Lost since the last cut.
    pub lost: BTreeMap<LossReason, u64>,
}

// === impl Accounts ===

impl Accounts {
    /// Takes the accounts of a batch that brought `records` connections.
    pub fn audit(&mut self, ledgers: &[ProbeLedger], records: usize) -> Audit {
        let mut audit = Audit::default();
        self.received = self.received.saturating_add(records as u64);
        for ProbeLedger { probe, cut } in ledgers {
            audit.is_unbalanced |= cut.imbalance() != 0;
            let before = self.last.get(probe);
            if probe == TCP {
                let received = std::mem::take(&mut self.received);
                let expected = before.map(|before| before.delivered.saturating_add(received));
                audit.is_unbalanced |= expected.is_some_and(|expected| expected != cut.delivered);
            }
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

    /// Records of each probe that came here or to a collector before us; none where no account
    /// says so yet.
    pub fn delivered(&self) -> impl Iterator<Item = (&str, u64)> {
        self.last.iter().map(|(probe, cut)| {
            let since = if probe == TCP { self.received } else { 0 };
            (probe.as_str(), cut.delivered.saturating_add(since))
        })
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
        let first = accounts.audit(&ledger(10, 7, &[(full, 3)]), 7);
        assert_eq!(first, Audit::default(), "losses before the first account are not this one's");
        let second = accounts.audit(&ledger(20, 12, &[(full, 8)]), 5);
        assert_eq!(second.lost.get(&full), Some(&5));
        assert!(!second.counts_are_short && !second.is_unbalanced);
        let third =
            accounts.audit(&ledger(21, 12, &[(full, 8), (LossReason::CounterRefused, 1)]), 0);
        assert_eq!(third.lost.get(&LossReason::CounterRefused), Some(&1));
        assert!(third.counts_are_short);
    }

    #[test]
    fn an_account_that_does_not_balance_is_seen_in_either_direction() {
        for (produced, delivered) in [(10, 9), (9, 10)] {
            assert!(Accounts::default().audit(&ledger(produced, delivered, &[]), 0).is_unbalanced);
        }
        assert!(!Accounts::default().audit(&ledger(9, 9, &[]), 0).is_unbalanced);
    }

    #[test]
    fn records_that_came_must_be_those_that_were_delivered() {
        for (came, is_unbalanced) in [(5, false), (4, true), (6, true)] {
            let mut accounts = Accounts::default();
            assert!(!accounts.audit(&ledger(9, 9, &[]), 2).is_unbalanced, "nothing before it");
            // A window in two parts: its account comes with the second.
            accounts.audit(&[], came);
            assert_eq!(accounts.delivered().collect::<Vec<_>>(), [("tcp", 9 + came as u64)]);
            assert_eq!(accounts.audit(&ledger(15, 15, &[]), 1).is_unbalanced, is_unbalanced);
        }
    }

    #[test]
    fn names_of_probes_do_not_grow_the_table() {
        let mut accounts = Accounts::default();
        for number in 0..100 {
            let probe = format!("probe-{number}");
            accounts.audit(&[ProbeLedger { probe, cut: LedgerCut::default() }], 0);
        }
        assert_eq!(accounts.last().count(), PROBES_PER_NODE);
    }
}
