//! The status of an Application as each of its two writers wants it, and whether that differs from
//! what stands there. Pure.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use keelson_api::{
    ApplicationStatus,
    application::{Evidence, HealthStatus},
    conditions::{ConditionType, HealthReason},
    validate::Signal,
};
use keelson_model::UnixNanos;

use crate::{
    evidence::Party,
    judge::{
        blame::View,
        hysteresis::{self, Verdict},
        verdict::{Finding, Judgement, PodDirectory, SHOWN, Stored},
    },
};

/// Longest message of a condition.
const MESSAGE_BYTES: usize = 1024;
/// While a verdict is bad its value is written again when it leaves this band, and not before
/// [`REWRITE_AFTER_S`].
const BAND: f64 = 0.25;
const REWRITE_AFTER_S: i64 = 60;
const MISSING_NODES: usize = 10;

/// What is to be written of a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its type.
    pub kind: ConditionType,
    /// True, False or Unknown.
    pub status: &'static str,
    /// Its reason.
    pub reason: &'static str,
    /// Its message, bounded: what is compared is what is stored.
    pub message: String,
}

// === impl Wanted ===

impl Wanted {
    /// A condition with as much of its message as is kept.
    #[must_use]
    pub fn new(
        kind: ConditionType,
        status: &'static str,
        reason: &'static str,
        message: String,
    ) -> Self {
        Self { kind, status, reason, message: bounded(message) }
    }
}

/// The condition of that type that stands in a status.
#[must_use]
pub fn held(status: Option<&ApplicationStatus>, kind: ConditionType) -> Option<&Condition> {
    status?.conditions.iter().find(|condition| condition.type_ == kind.as_str())
}

/// The condition as it is written: the time of its last transition is kept while its status is.
#[must_use]
pub fn condition(
    wanted: Wanted,
    held: Option<&Condition>,
    generation: Option<i64>,
    now: Timestamp,
) -> Condition {
    let since = held.filter(|held| held.status == wanted.status);
    Condition {
        type_: wanted.kind.as_str().to_owned(),
        status: wanted.status.to_owned(),
        reason: wanted.reason.to_owned(),
        message: wanted.message,
        observed_generation: generation,
        last_transition_time: since.map_or(Time(now), |held| held.last_transition_time.clone()),
    }
}

/// KernelHealthy and its evidence, as the judgement has them.
#[must_use]
pub fn health(
    judgement: &Judgement,
    directory: &PodDirectory,
    held: Option<&HealthStatus>,
) -> (Wanted, HealthStatus) {
    let (status, reason) = match judgement.verdict() {
        Verdict::Healthy => ("True", HealthReason::Healthy),
        Verdict::Unhealthy(reason) => ("False", reason),
        Verdict::Unknown(reason) => ("Unknown", reason),
    };
    let shows = status == "False" || reason == HealthReason::PeerPathDegraded;
    let findings = if shows { judgement.findings() } else { Vec::new() };
    let mut evidence: Vec<Evidence> =
        findings.into_iter().map(|finding| self::evidence(finding, directory)).collect();
    // An earlier process's verdict still rests on what that process saw.
    if shows && evidence.is_empty() {
        evidence = held.map(|held| held.evidence.clone()).unwrap_or_default();
    }
    let message = message(reason, &evidence);
    let missing = judgement.missing.iter().take(MISSING_NODES);
    let missing_nodes = missing.map(|node| node.as_str().to_owned()).collect();
    let wanted = Wanted::new(ConditionType::KernelHealthy, status, reason.as_str(), message);
    (wanted, HealthStatus { evidence, missing_nodes })
}

fn evidence(finding: &Finding, directory: &PodDirectory) -> Evidence {
    let facts = directory.get(&finding.pod);
    let uid = match &finding.pod {
        Party::Pod(uid) => uid.as_str().to_owned(),
        Party::Node(_) | Party::External => String::new(),
    };
    let name = |party: &Party| match directory.get(party) {
        Some(facts) => facts.full_name.clone(),
        None => party.to_string(),
    };
    Evidence {
        pod: facts.map_or_else(|| uid.clone(), |facts| facts.name.clone()),
        uid,
        node: facts.map(|facts| facts.node.as_str().to_owned()).unwrap_or_default(),
        view: match finding.view {
            View::Own => "own",
            View::SeenByPeers => "seenByPeers",
        }
        .to_owned(),
        signal: finding.signal.as_str().to_owned(),
        value: finding.signal.show(finding.value),
        threshold: finding.signal.show(finding.threshold),
        samples: i64::try_from(finding.samples).unwrap_or(i64::MAX),
        peers: finding.peers.iter().take(SHOWN).map(name).collect(),
        window_start: time(finding.window.start()),
        window_end: time(finding.window.end()),
    }
}

fn message(reason: HealthReason, evidence: &[Evidence]) -> String {
    let words = match reason {
        HealthReason::Healthy => "traffic is seen and no pod is blamed",
        HealthReason::NoTraffic => "its pods are watched; too little traffic to judge",
        HealthReason::NoCoverage => {
            "the nodes of its pods are not seen whole; see `keelson nodes` for what is missing and why"
        }
        HealthReason::Stale => {
            "no evidence came within the freshness limit; is the collector reachable?"
        }
        HealthReason::NotJudged => "nothing is judged; see the condition Stalled",
        HealthReason::PeerPathDegraded => {
            "a path between two ends is bad, and neither can be blamed"
        }
        HealthReason::NodeDegraded => "many pods of one node are bad at once",
        HealthReason::HighRetransmitRatio
        | HealthReason::HighConnectFailureRatio
        | HealthReason::HighResetRatio
        | HealthReason::HighRtt => "the kernels' votes blame a pod",
    };
    let Some(first) = evidence.first() else { return words.to_owned() };
    let Evidence { pod, node, signal, value, threshold, samples, peers, view, .. } = first;
    let who = if view == "own" { "its own sockets see it" } else { "its peers' sockets see it" };
    format!(
        "{words}: pod {pod} on node {node}, {signal} {value} (threshold {threshold}, {samples} samples); {who}, towards {}",
        peers.join(", "),
    )
}

fn time(at: UnixNanos) -> Time {
    let nanos = i128::from(at.0);
    Time(Timestamp::from_nanosecond(nanos).unwrap_or(Timestamp::UNIX_EPOCH))
}

/// Whether KernelHealthy has to be written: when it changes, and while it is bad also when its
/// value has left the band, once a minute at most.
#[must_use]
pub fn must_write_health(
    wanted: &Wanted,
    fresh: &HealthStatus,
    status: Option<&ApplicationStatus>,
    generation: Option<i64>,
    now: Timestamp,
) -> bool {
    let Some(condition) = held(status, ConditionType::KernelHealthy) else { return true };
    if condition.status != wanted.status
        || condition.reason != wanted.reason
        || condition.observed_generation != generation
    {
        return true;
    }
    let stored = status.and_then(|status| status.health.as_ref());
    let (Some(old), Some(new)) =
        (stored.and_then(|health| health.evidence.first()), fresh.evidence.first())
    else {
        return false;
    };
    let age_s = now.as_second().saturating_sub(old.window_end.0.as_second());
    age_s >= REWRITE_AFTER_S && (old.uid != new.uid || is_outside_band(&old.value, &new.value))
}

fn is_outside_band(old: &str, new: &str) -> bool {
    let number = |text: &str| text.trim_end_matches('%').parse::<f64>().ok();
    match (number(old), number(new)) {
        (Some(old), Some(new)) => (new - old).abs() > BAND * old.abs(),
        _ => old != new,
    }
}

/// The verdict that a stored condition stands for; none where it is no word of ours.
#[must_use]
pub fn stored(status: Option<&ApplicationStatus>) -> Option<Stored> {
    let condition = held(status, ConditionType::KernelHealthy)?;
    let reason = HealthReason::parse(&condition.reason)?;
    let verdict = match condition.status.as_str() {
        "True" => Verdict::Healthy,
        "False" => Verdict::Unhealthy(reason),
        _ => Verdict::Unknown(reason),
    };
    let named = status?.health.as_ref().and_then(|health| health.evidence.first());
    let by_evidence = |signal: &Signal| named.is_some_and(|named| named.signal == signal.as_str());
    let signal = Signal::ALL
        .into_iter()
        .find(|signal| hysteresis::reason(*signal) == reason)
        .or_else(|| Signal::ALL.into_iter().find(by_evidence));
    Some(Stored { verdict, signal })
}

fn bounded(mut text: String) -> String {
    let end = (0..=MESSAGE_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or(0));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn with_evidence(value: &str, second: i64) -> ApplicationStatus {
        let judgement = Judgement::default();
        let (wanted, _) = health(&judgement, &PodDirectory::default(), None);
        let evidence = Evidence {
            pod: "a".into(),
            uid: "u".into(),
            node: "n".into(),
            view: "own".into(),
            signal: "RetransmitRatio".into(),
            value: value.into(),
            threshold: "2.00%".into(),
            samples: 1,
            peers: vec![],
            window_start: Time(at(second - 5)),
            window_end: Time(at(second)),
        };
        ApplicationStatus {
            conditions: vec![condition(wanted, None, Some(1), at(0))],
            health: Some(HealthStatus { evidence: vec![evidence], missing_nodes: vec![] }),
            ..Default::default()
        }
    }

    #[test]
    fn evidence_is_written_again_only_outside_the_band_and_after_a_minute() {
        let (wanted, _) = health(&Judgement::default(), &PodDirectory::default(), None);
        let old = with_evidence("4.00%", 100);
        for (value, second, expected) in [
            ("4.90%", 200, false),
            ("5.10%", 200, true),
            ("2.90%", 200, true),
            ("9.00%", 159, false),
        ] {
            let fresh = with_evidence(value, second).health.unwrap();
            let is_due = must_write_health(&wanted, &fresh, Some(&old), Some(1), at(second));
            assert_eq!(is_due, expected, "{value} at {second}");
        }
    }

    #[test]
    fn the_transition_time_is_kept_while_the_status_is() {
        let wanted = |status, message: &str| {
            Wanted::new(ConditionType::Ready, status, "WorkloadReady", message.into())
        };
        let first = condition(wanted("True", "a"), None, None, at(1));
        let same = condition(wanted("True", "b"), Some(&first), None, at(9));
        assert_eq!(same.last_transition_time, first.last_transition_time);
        let other = condition(wanted("False", "b"), Some(&same), None, at(9));
        assert_eq!(other.last_transition_time.0, at(9));
    }

    #[test]
    fn what_is_stored_gives_the_verdict_back() {
        let mut status = with_evidence("1%", 1);
        let verdict = |reason| Verdict::Unhealthy(reason);
        for (reason, signal) in [
            (HealthReason::HighConnectFailureRatio, Signal::ConnectFailureRatio),
            // No signal is in the word: the evidence names it.
            (HealthReason::NodeDegraded, Signal::RetransmitRatio),
        ] {
            status.conditions[0].status = "False".into();
            status.conditions[0].reason = reason.as_str().into();
            let expected = Stored { verdict: verdict(reason), signal: Some(signal) };
            assert_eq!(stored(Some(&status)), Some(expected));
        }
        assert_eq!(stored(None), None);
    }
}
