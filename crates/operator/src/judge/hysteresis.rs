//! From windows to a verdict that does not flap: how many windows in a row it takes to change.

use keelson_api::{conditions::HealthReason, validate::Signal};

/// What one window says of an Application.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A pod of it is blamed.
    Bad(Signal),
    /// Many pods of a node of it are blamed at once.
    BadNode,
    /// A pair is bad that blames nobody.
    Path,
    /// Traffic was seen and none of it is bad.
    Good,
    /// Neither good nor bad: between the thresholds.
    Unclear,
    /// Nothing bad, as far as it was seen: a node of its pods was not seen whole.
    Partly,
    /// Too few samples.
    NoTraffic,
    /// No agent saw its pods.
    NoCoverage,
}

/// What the condition says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// True.
    Healthy,
    /// False.
    Unhealthy(HealthReason),
    /// Unknown.
    Unknown(HealthReason),
}

/// How many windows in a row a change takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// To become bad.
    pub enter: u32,
    /// To become good again.
    pub leave: u32,
    /// To say that its pods are not covered.
    pub uncovered: u32,
}

/// Windows without traffic until a good verdict becomes `NoTraffic`: a minute, so that an
/// Application with pauses does not change its condition in each.
const QUIET: u32 = 12;

/// A verdict with its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hysteresis {
    verdict: Verdict,
    bad: u32,
    path: u32,
    good: u32,
    quiet: u32,
    uncovered: u32,
}

impl Default for Hysteresis {
    fn default() -> Self {
        Self::seeded(Verdict::Unknown(HealthReason::NoTraffic))
    }
}

// === impl Hysteresis ===

impl Hysteresis {
    /// Begins with a verdict that stands in a status.
    #[must_use]
    pub fn seeded(verdict: Verdict) -> Self {
        Self { verdict, bad: 0, path: 0, good: 0, quiet: 0, uncovered: 0 }
    }

    /// The verdict now.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        self.verdict
    }

    /// Takes the next window's sign.
    pub fn step(&mut self, sign: Sign, patience: Patience) -> Verdict {
        let is = |wanted: bool, count: u32| if wanted { count.saturating_add(1) } else { 0 };
        self.bad = is(matches!(sign, Sign::Bad(_) | Sign::BadNode), self.bad);
        self.path = is(matches!(sign, Sign::Path), self.path);
        self.good = is(matches!(sign, Sign::Good), self.good);
        self.quiet = is(matches!(sign, Sign::NoTraffic), self.quiet);
        self.uncovered = is(matches!(sign, Sign::Partly | Sign::NoCoverage), self.uncovered);
        if let Some(next) = self.next(sign, patience) {
            self.verdict = next;
        }
        self.verdict
    }

    fn next(&self, sign: Sign, patience: Patience) -> Option<Verdict> {
        let is_bad = matches!(self.verdict, Verdict::Unhealthy(_))
            || self.verdict == Verdict::Unknown(HealthReason::PeerPathDegraded);
        match sign {
            Sign::Bad(signal) if self.bad >= patience.enter => {
                Some(Verdict::Unhealthy(reason(signal)))
            }
            Sign::BadNode if self.bad >= patience.enter => {
                Some(Verdict::Unhealthy(HealthReason::NodeDegraded))
            }
            // A path that stays bad while its blame fades keeps the verdict.
            Sign::Path
                if self.path >= patience.enter
                    && !matches!(self.verdict, Verdict::Unhealthy(_)) =>
            {
                Some(Verdict::Unknown(HealthReason::PeerPathDegraded))
            }
            Sign::Path if self.path >= patience.enter.max(patience.leave) => {
                Some(Verdict::Unknown(HealthReason::PeerPathDegraded))
            }
            Sign::Good if !is_bad || self.good >= patience.leave => Some(Verdict::Healthy),
            // Nothing was known, and now it is known that nothing is bad.
            Sign::Unclear if !is_bad => Some(Verdict::Healthy),
            Sign::NoTraffic if self.quiet >= QUIET => {
                Some(Verdict::Unknown(HealthReason::NoTraffic))
            }
            // Nothing was known, and now it is known that there is no traffic.
            Sign::NoTraffic if matches!(self.verdict, Verdict::Unknown(_)) && !is_bad => {
                Some(Verdict::Unknown(HealthReason::NoTraffic))
            }
            Sign::Partly | Sign::NoCoverage if self.uncovered >= patience.uncovered => {
                Some(Verdict::Unknown(HealthReason::NoCoverage))
            }
            _ => None,
        }
    }
}

/// The reason of a verdict that a signal made.
#[must_use]
pub fn reason(signal: Signal) -> HealthReason {
    match signal {
        Signal::RetransmitRatio => HealthReason::HighRetransmitRatio,
        Signal::ConnectFailureRatio => HealthReason::HighConnectFailureRatio,
        Signal::ResetRatio => HealthReason::HighResetRatio,
        Signal::RttMillis => HealthReason::HighRtt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Patience = Patience { enter: 2, leave: 3, uncovered: 6 };
    const BAD: Sign = Sign::Bad(Signal::RetransmitRatio);
    const FALSE: Verdict = Verdict::Unhealthy(HealthReason::HighRetransmitRatio);

    fn run(mut from: Hysteresis, signs: &[Sign]) -> Vec<Verdict> {
        signs.iter().map(|sign| from.step(*sign, PATIENCE)).collect()
    }

    #[test]
    fn one_bad_window_changes_nothing_two_in_a_row_do() {
        let healthy = Hysteresis::seeded(Verdict::Healthy);
        let verdicts = run(healthy, &[BAD, Sign::Good, BAD, BAD]);
        assert_eq!(verdicts, [Verdict::Healthy, Verdict::Healthy, Verdict::Healthy, FALSE]);
    }

    #[test]
    fn it_takes_three_good_windows_in_a_row_to_return() {
        let verdicts = run(
            Hysteresis::seeded(FALSE),
            &[Sign::Good, Sign::Good, Sign::Unclear, Sign::Good, Sign::Good, Sign::Good],
        );
        assert_eq!(verdicts[..5], [FALSE; 5]);
        assert_eq!(verdicts[5], Verdict::Healthy);
    }

    #[test]
    fn absence_never_makes_it_false_and_a_verdict_holds_over_it() {
        let signs = [Sign::NoCoverage; 6];
        let verdicts = run(Hysteresis::seeded(FALSE), &signs);
        assert_eq!(verdicts[..5], [FALSE; 5]);
        assert_eq!(verdicts[5], Verdict::Unknown(HealthReason::NoCoverage));
    }

    #[test]
    fn what_is_seen_in_part_keeps_the_verdict_for_as_long_as_nothing_seen() {
        let verdicts = run(Hysteresis::seeded(Verdict::Healthy), &[Sign::Partly; 6]);
        assert_eq!(verdicts[..5], [Verdict::Healthy; 5]);
        assert_eq!(verdicts[5], Verdict::Unknown(HealthReason::NoCoverage));
    }

    #[test]
    fn a_first_good_window_is_enough_where_nothing_was_known() {
        assert_eq!(run(Hysteresis::default(), &[Sign::Good]), [Verdict::Healthy]);
    }

    #[test]
    fn between_the_thresholds_is_good_where_nothing_was_bad() {
        assert_eq!(run(Hysteresis::default(), &[Sign::Unclear]), [Verdict::Healthy]);
    }

    #[test]
    fn a_pause_in_traffic_keeps_the_verdict_and_a_minute_does_not() {
        let quiet = [Sign::NoTraffic; 12];
        let verdicts = run(Hysteresis::seeded(Verdict::Healthy), &quiet);
        assert_eq!(verdicts[10], Verdict::Healthy);
        assert_eq!(verdicts[11], Verdict::Unknown(HealthReason::NoTraffic));
    }

    #[test]
    fn a_path_that_blames_nobody_is_unknown_and_returns_like_a_fault() {
        let signs = [Sign::Path, Sign::Path, Sign::Good, Sign::Good, Sign::Good];
        let verdicts = run(Hysteresis::seeded(Verdict::Healthy), &signs);
        let path = Verdict::Unknown(HealthReason::PeerPathDegraded);
        assert_eq!(verdicts, [Verdict::Healthy, path, path, path, Verdict::Healthy]);
    }

    #[test]
    fn a_verdict_from_a_status_is_kept_over_a_restart_of_the_operator() {
        assert_eq!(run(Hysteresis::seeded(FALSE), &[Sign::Unclear, BAD]), [FALSE, FALSE]);
    }
}
