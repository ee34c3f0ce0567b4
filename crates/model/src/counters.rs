//! What is counted of TCP, cumulative or as a difference.

use serde::{Deserialize, Serialize};

/// Counters of one series or one connection. All but the `*_min_us` and `*_max_us` fields add up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TcpCounters {
    /// Connections that reached ESTABLISHED.
    pub opened: u64,
    /// Connections that were ESTABLISHED and ended.
    pub closed: u64,
    /// Attempts that ended before ESTABLISHED.
    pub connect_failed: u64,
    /// Payload bytes sent, each once (`bytes_sent - bytes_retrans`).
    pub bytes_sent: u64,
    /// Payload bytes received, each once.
    pub bytes_received: u64,
    /// Segments with payload that left, retransmissions included (`data_segs_out`).
    pub data_segments_sent: u64,
    /// Segments with payload that arrived (`data_segs_in`).
    pub data_segments_received: u64,
    /// Segments sent again (`total_retrans`), SYN excluded.
    pub retransmitted_segments: u64,
    /// Bytes sent again (`bytes_retrans`).
    pub retransmitted_bytes: u64,
    /// SYNs sent again by the connecting end.
    pub syn_retransmits: u64,
    /// SYN-ACKs sent again by the accepting end.
    pub synack_retransmits: u64,
    /// RSTs this end sent.
    pub resets_sent: u64,
    /// RSTs this end received.
    pub resets_received: u64,
    /// Readings of the smoothed RTT, at most one per connection and 100 ms.
    pub rtt_samples: u64,
    /// Sum of those readings, in microseconds.
    pub rtt_sum_us: u64,
    /// Smallest reading since the series began; 0 without samples.
    pub rtt_min_us: u64,
    /// Largest reading since the series began.
    pub rtt_max_us: u64,
    /// Handshakes measured at the connecting end.
    pub connect_samples: u64,
    /// Sum of their times from SYN to ESTABLISHED, in microseconds.
    pub connect_sum_us: u64,
    /// Longest of them since the series began.
    pub connect_max_us: u64,
}

// === impl TcpCounters ===

impl TcpCounters {
    /// What came on top of `earlier`; minima and maxima stay those of `self`.
    ///
    /// A counter below its earlier value means another series; it then counts from zero.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.zip(earlier, |now, before| now.checked_sub(before).unwrap_or(now))
    }

    /// Both together; the smaller minimum of those that have samples, the larger maximum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        let mut sum = self.zip(other, u64::saturating_add);
        sum.rtt_min_us = match (self.rtt_samples, other.rtt_samples) {
            (0, _) => other.rtt_min_us,
            (_, 0) => self.rtt_min_us,
            _ => self.rtt_min_us.min(other.rtt_min_us),
        };
        sum.rtt_max_us = self.rtt_max_us.max(other.rtt_max_us);
        sum.connect_max_us = self.connect_max_us.max(other.connect_max_us);
        sum
    }

    /// Each counter times `factor`, rounded down; minima and maxima stay.
    #[must_use]
    pub fn scaled(&self, factor: f64) -> Self {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an estimate; the cast saturates"
        )]
        self.zip(self, |now, _| (now as f64 * factor) as u64)
    }

    /// Nothing was counted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self
            == Self {
                rtt_min_us: self.rtt_min_us,
                rtt_max_us: self.rtt_max_us,
                connect_max_us: self.connect_max_us,
                ..Self::default()
            }
    }

    /// Mean of the RTT readings in microseconds, if there was one.
    #[must_use]
    pub fn mean_rtt_us(&self) -> Option<u64> {
        self.rtt_sum_us.checked_div(self.rtt_samples)
    }

    /// Applies `f` to each counter of both; minima and maxima are taken from `self`.
    fn zip(&self, other: &Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            opened: f(self.opened, other.opened),
            closed: f(self.closed, other.closed),
            connect_failed: f(self.connect_failed, other.connect_failed),
            bytes_sent: f(self.bytes_sent, other.bytes_sent),
            bytes_received: f(self.bytes_received, other.bytes_received),
            data_segments_sent: f(self.data_segments_sent, other.data_segments_sent),
            data_segments_received: f(self.data_segments_received, other.data_segments_received),
            retransmitted_segments: f(self.retransmitted_segments, other.retransmitted_segments),
            retransmitted_bytes: f(self.retransmitted_bytes, other.retransmitted_bytes),
            syn_retransmits: f(self.syn_retransmits, other.syn_retransmits),
            synack_retransmits: f(self.synack_retransmits, other.synack_retransmits),
            resets_sent: f(self.resets_sent, other.resets_sent),
            resets_received: f(self.resets_received, other.resets_received),
            rtt_samples: f(self.rtt_samples, other.rtt_samples),
            rtt_sum_us: f(self.rtt_sum_us, other.rtt_sum_us),
            rtt_min_us: self.rtt_min_us,
            rtt_max_us: self.rtt_max_us,
            connect_samples: f(self.connect_samples, other.connect_samples),
            connect_sum_us: f(self.connect_sum_us, other.connect_sum_us),
            connect_max_us: self.connect_max_us,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_added_to_its_base_gives_the_value_again() {
        let base = TcpCounters { opened: 3, bytes_sent: 100, ..Default::default() };
        let now = TcpCounters {
            opened: 5,
            bytes_sent: 160,
            rtt_samples: 1,
            rtt_sum_us: 90,
            rtt_min_us: 90,
            rtt_max_us: 90,
            ..base
        };
        assert_eq!(base.plus(&now.since(&base)), now);
    }

    #[test]
    fn a_counter_that_went_back_counts_from_zero() {
        let before = TcpCounters { opened: 9, ..Default::default() };
        let after = TcpCounters { opened: 2, ..Default::default() };
        assert_eq!(after.since(&before).opened, 2);
    }

    #[test]
    fn minima_alone_do_not_make_a_difference_look_busy() {
        let idle =
            TcpCounters { rtt_min_us: 4, rtt_max_us: 9, connect_max_us: 2, ..Default::default() };
        assert!(idle.is_empty());
        assert!(!TcpCounters { resets_sent: 1, ..idle }.is_empty());
    }
}
