//! The loss ledger: nothing is lost without being counted.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

macro_rules! bounded_reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every reason there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The name used on the wire, in metrics and in statuses.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)* }
            }

            /// The reason of that name.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|reason| reason.as_str() == text)
            }
        }
    };
}
pub(crate) use bounded_reasons;

bounded_reasons!(
    /// Where a produced fact can go instead of arriving.
    LossReason {
        /// The perf buffer was full (`-ENOSPC`).
        PerfBufferFull = "perf_buffer_full",
        /// `bpf_perf_event_output` failed otherwise.
        PerfOutputFailed = "perf_output_failed",
        /// The kernel reported lost samples that no helper error explains.
        PerfLostUnreported = "perf_lost_unreported",
        /// No storage for a socket's state.
        SocketStateRefused = "socket_state_refused",
        /// A counter map refused a key and the overflow key too.
        CounterRefused = "counter_refused",
        /// The kernel skipped a run of the program (recursion).
        RunSkipped = "run_skipped",
        /// The bytes were no record of a known layout.
        DecodeFailed = "decode_failed",
        /// The agent's pending list was full.
        PendingFull = "pending_full",
        /// The agent's export queue was full.
        QueueFull = "queue_full",
        /// What a killed agent had in hand.
        AgentRestart = "agent_restart",
        /// A CPU came or went.
        CpuHotplug = "cpu_hotplug",
        /// The collector's recent window was full.
        StoreFull = "store_full",
        /// The collector refused a malformed message.
        Malformed = "malformed",
        /// A query's reader was too slow.
        SubscriberSlow = "subscriber_slow",
        /// Asked for after it had left the recent window.
        WindowExpired = "window_expired",
    }
);

/// One probe's account at a sequence cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LedgerCut {
    /// Numbered by the kernel.
    pub produced: u64,
    /// Handed on to the collector.
    pub delivered: u64,
    /// Meant for the agent alone, and used by it: cgroups made and removed.
    pub consumed: u64,
    /// In hand at the cut.
    pub held: u64,
    /// Lost, by reason.
    pub lost: BTreeMap<LossReason, u64>,
    /// Left out before `produced`, for another node's scope.
    pub out_of_scope: u64,
}

impl LedgerCut {
    /// `produced - delivered - consumed - lost - held`: 0 when the account balances.
    #[must_use]
    pub fn imbalance(&self) -> i128 {
        let lost: i128 = self.lost.values().copied().map(i128::from).sum();
        let arrived = i128::from(self.delivered) + i128::from(self.consumed);
        i128::from(self.produced) - arrived - i128::from(self.held) - lost
    }

    /// Adds to what was lost for `reason`.
    pub fn lose(&mut self, reason: LossReason, count: u64) {
        if count > 0 {
            let lost = self.lost.entry(reason).or_default();
            *lost = lost.saturating_add(count);
        }
    }

    /// All that was lost, whatever the reason.
    #[must_use]
    pub fn lost_total(&self) -> u64 {
        self.lost.values().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_found_again_by_its_name() {
        for reason in LossReason::ALL {
            assert_eq!(LossReason::parse(reason.as_str()), Some(*reason));
        }
    }

    #[test]
    fn a_missing_record_shows_as_imbalance() {
        let mut cut =
            LedgerCut { produced: 10, delivered: 6, consumed: 1, held: 1, ..Default::default() };
        assert_eq!(cut.imbalance(), 2);
        cut.lose(LossReason::PerfBufferFull, 1);
        cut.lose(LossReason::PerfBufferFull, 1);
        assert_eq!(cut.imbalance(), 0);
    }
}
