//! What each pod's sockets saw towards each peer in one window, by one rule of a policy.

use std::collections::BTreeMap;

use keelson_api::validate::{Rule, Signal};
use keelson_model::{Direction, TcpCounters};

use crate::evidence::{Party, WindowEvidence};

/// How a pair looks from one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    /// At or above `enter`; where it must still leave, above `leave`.
    Bad,
    /// Between the two thresholds.
    Between,
    /// At or below `leave`.
    Good,
    /// Too few samples to say.
    Few,
}

/// One end's view of a pair.
#[derive(Clone, Debug, PartialEq)]
pub struct Sight {
    /// How it looks.
    pub level: Level,
    /// The signal's value: a ratio, or milliseconds.
    pub value: f64,
    /// What it was counted from.
    pub samples: u64,
}

/// Observer and peer to sight; the observer is a pod of this cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Graph {
    /// In the order of the parties, so that results do not depend on chance.
    pub sights: BTreeMap<(Party, Party), Sight>,
}

/// Which threshold makes a pair bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Against {
    /// To turn bad.
    Enter,
    /// To stay bad.
    Leave,
}

/// The window as one rule sees it.
#[must_use]
pub fn graph(window: &WindowEvidence, rule: &Rule, against: Against) -> Graph {
    let sights = window.pairs.iter().filter(|((observer, peer), _)| observer != peer);
    let sights = sights.filter_map(|(pair, counters)| {
        let (value, samples) = measure(rule.signal, counters)?;
        let level = level(value, samples, rule, against);
        Some((pair.clone(), Sight { level, value, samples }))
    });
    Graph { sights: sights.collect() }
}

fn level(value: f64, samples: u64, rule: &Rule, against: Against) -> Level {
    // So that a `leave` of zero can be reached.
    let has_left = value <= rule.leave;
    if samples < rule.min_samples {
        Level::Few
    } else if value >= rule.enter || (against == Against::Leave && !has_left) {
        Level::Bad
    } else if !has_left {
        Level::Between
    } else {
        Level::Good
    }
}

/// Value and samples of a signal over a pair's counters; none where there is nothing to count.
fn measure(signal: Signal, counters: &BTreeMap<Direction, TcpCounters>) -> Option<(f64, u64)> {
    let both = counters.values().fold(TcpCounters::default(), |sum, one| sum.plus(one));
    let (part, whole) = match signal {
        Signal::RetransmitRatio => (both.retransmitted_segments, both.data_segments_sent),
        Signal::ConnectFailureRatio => {
            let outbound = counters.get(&Direction::Outbound)?;
            (outbound.connect_failed, outbound.connect_failed.saturating_add(outbound.opened))
        }
        Signal::ResetRatio => (both.resets_sent.saturating_add(both.resets_received), both.opened),
        Signal::RttMillis => (both.rtt_sum_us, both.rtt_samples),
    };
    if whole == 0 {
        return None;
    }
    #[expect(clippy::cast_precision_loss, reason = "counts of one window lie far below 2^52")]
    let value = part as f64 / whole as f64;
    let value = if signal == Signal::RttMillis { value / 1000.0 } else { value };
    Some((value, whole))
}
