//! Spec to what the operator works with, or every reason why not, each with its place and remedy.

use std::{fmt, time::Duration};

use keelson_model::{WINDOW_SECONDS, steers_terminal};

use crate::{
    application::{ApplicationSpec, WorkloadReference},
    policy::{HealthPolicySpec, SignalRule},
    quantity::{self, QuantityError},
};

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// Path of the field, such as `spec.workload.ref.kind`.
    pub path: String,
    /// What is wrong and what helps.
    pub message: String,
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Kinds that can be adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkloadKind {
    /// apps/v1 Deployment.
    Deployment,
    /// apps/v1 StatefulSet.
    StatefulSet,
    /// apps/v1 DaemonSet.
    DaemonSet,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Signal {
    /// Retransmitted segments of data segments sent.
    RetransmitRatio,
    /// Failed connects of all attempts.
    ConnectFailureRatio,
    /// Resets of connections opened.
    ResetRatio,
    /// Mean smoothed RTT.
    RttMillis,
}

/// A spec that can be.
#[derive(Clone, Debug, PartialEq)]
pub struct ValidatedApplication {
    /// Kind of the workload.
    pub kind: WorkloadKind,
    /// Its name, in the Application's namespace.
    pub name: String,
    /// Whether KernelHealthy=False makes Ready False too.
    pub gates_ready: bool,
    /// How it is judged.
    pub policy: Policy,
}

/// Rules that can be.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// One a signal.
    pub rules: Vec<Rule>,
    /// How long a verdict holds without evidence.
    pub freshness: Duration,
}

/// When one signal is bad.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// What is counted.
    pub signal: Signal,
    /// Bad from here on: a ratio, or milliseconds.
    pub enter: f64,
    /// Good again at or below.
    pub leave: f64,
    /// Bad windows in a row that make it bad.
    pub enter_windows: u32,
    /// Good windows in a row that make it good.
    pub leave_windows: u32,
    /// Fewer samples say nothing.
    pub min_samples: u64,
}

impl WorkloadKind {
    const ALL: [Self; 3] = [Self::Deployment, Self::StatefulSet, Self::DaemonSet];

    /// The kind of that name, if it can be adopted.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|known| known.as_str() == name)
    }

    /// As Kubernetes writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "Deployment",
            Self::StatefulSet => "StatefulSet",
            Self::DaemonSet => "DaemonSet",
        }
    }
}

impl Signal {
    /// Every signal.
    pub const ALL: [Self; 4] =
        [Self::RetransmitRatio, Self::ConnectFailureRatio, Self::ResetRatio, Self::RttMillis];

    /// As the policy writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RetransmitRatio => "RetransmitRatio",
            Self::ConnectFailureRatio => "ConnectFailureRatio",
            Self::ResetRatio => "ResetRatio",
            Self::RttMillis => "RttMillis",
        }
    }

    /// A value of it as the policy writes it.
    #[must_use]
    pub fn show(self, value: f64) -> String {
        match self {
            Self::RttMillis => significant(value, 1),
            _ => format!("{}%", significant(value * 100.0, 2)),
        }
    }

    fn read(self, text: &str) -> Result<f64, QuantityError> {
        match self {
            Self::RttMillis => quantity::millis(text),
            _ => quantity::percent(text),
        }
    }
}

/// Checks a spec as a whole.
///
/// # Errors
/// Everything that is wrong with it.
pub fn validate(
    spec: &ApplicationSpec,
    namespace: &str,
) -> Result<ValidatedApplication, Vec<FieldError>> {
    let mut errors = Errors::default();
    let kind = check_reference(&spec.workload.reference, namespace, &mut errors);
    let policy = check_policy(&spec.health.policy, &mut errors);
    match (kind, policy) {
        (Some(kind), Some(policy)) if errors.0.is_empty() => Ok(ValidatedApplication {
            kind,
            name: spec.workload.reference.name.clone(),
            gates_ready: spec.health.gates_ready,
            policy,
        }),
        _ => Err(errors.0),
    }
}

#[derive(Default)]
struct Errors(Vec<FieldError>);

impl Errors {
    fn add(&mut self, path: impl Into<String>, message: impl Into<String>) {
        self.0.push(FieldError { path: path.into(), message: message.into() });
    }

    /// The value, or its error under that path.
    fn take<T>(
        &mut self,
        path: impl Into<String>,
        text: &str,
        read: Result<T, QuantityError>,
    ) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(error) => {
                self.add(path, format!("{} is {error}", quoted(text)));
                None
            }
        }
    }
}

fn check_reference(
    reference: &WorkloadReference,
    namespace: &str,
    errors: &mut Errors,
) -> Option<WorkloadKind> {
    const PATH: &str = "spec.workload.ref";
    let WorkloadReference { api_version, kind, name, namespace: other } = reference;
    if api_version != "apps/v1" {
        let message = format!("{} is not supported; use apps/v1", quoted(api_version));
        errors.add(format!("{PATH}.apiVersion"), message);
    }
    if name.is_empty() {
        errors.add(format!("{PATH}.name"), "is empty; name the workload");
    } else if !is_object_name(name) {
        let message = format!(
            "{} cannot be the name of a workload: it has other characters than a-z, 0-9, - and ., or more than 253; correct it",
            quoted(name),
        );
        errors.add(format!("{PATH}.name"), message);
    }
    if let Some(other) = other
        && other != namespace
    {
        let message = format!(
            "{} is another namespace; an Application and its workload live in one: make the Application in {}, or leave the field out",
            quoted(other),
            quoted(other),
        );
        errors.add(format!("{PATH}.namespace"), message);
    }
    let known = WorkloadKind::parse(kind);
    if known.is_none() {
        let message = format!(
            "{} has no pods that could be found by a selector; use Deployment, StatefulSet or DaemonSet",
            quoted(kind),
        );
        errors.add(format!("{PATH}.kind"), message);
    }
    known
}

fn check_policy(policy: &HealthPolicySpec, errors: &mut Errors) -> Option<Policy> {
    const PATH: &str = "spec.health.policy";
    let freshness = quantity::duration(&policy.freshness);
    let freshness = errors.take(format!("{PATH}.freshness"), &policy.freshness, freshness);
    if freshness.is_some_and(|freshness| freshness < Duration::from_secs(2 * WINDOW_SECONDS)) {
        errors.add(format!("{PATH}.freshness"), "is shorter than two windows; use 10s or more");
    }
    if policy.signals.is_empty() {
        errors.add(
            format!("{PATH}.signals"),
            "names no signal, so nothing would be judged; leave it out for the defaults",
        );
    }
    let mut rules: Vec<Rule> = Vec::new();
    for (index, rule) in policy.signals.iter().enumerate() {
        let path = format!("{PATH}.signals[{index}]");
        let Some(rule) = check_rule(rule, &path, errors) else { continue };
        if rules.iter().any(|known| known.signal == rule.signal) {
            errors.add(format!("{path}.signal"), "has a rule already; keep one");
        }
        rules.push(rule);
    }
    Some(Policy { rules, freshness: freshness? })
}

fn check_rule(rule: &SignalRule, path: &str, errors: &mut Errors) -> Option<Rule> {
    let SignalRule { signal: name, enter, leave, hold, leave_for, min_samples } = rule;
    let Some(signal) = Signal::ALL.into_iter().find(|signal| signal.as_str() == name) else {
        let names = Signal::ALL.map(Signal::as_str).join(", ");
        let hint = nearest_signal(name).map(|near| format!(" did you mean {near}?"));
        let hint = hint.unwrap_or_default();
        let message = format!("{} is no signal;{hint} there are {names}", quoted(name));
        errors.add(format!("{path}.signal"), message);
        return None;
    };
    let enter_value = errors.take(format!("{path}.enter"), enter, signal.read(enter));
    let leave_value = errors.take(format!("{path}.leave"), leave, signal.read(leave));
    let hold = errors.take(format!("{path}.for"), hold, quantity::duration(hold));
    let leave_for =
        errors.take(format!("{path}.leaveFor"), leave_for, quantity::duration(leave_for));
    let samples = u64::try_from(*min_samples).ok().filter(|samples| *samples > 0);
    if samples.is_none() {
        errors.add(format!("{path}.minSamples"), "must be 1 or more");
    }
    let (enter_value, leave_value) = (enter_value?, leave_value?);
    if leave_value >= enter_value {
        let message = format!(
            "{} does not lie below enter, {}: the verdict would flap; swap the two or lower leave",
            quoted(leave),
            quoted(enter),
        );
        errors.add(format!("{path}.leave"), message);
    }
    Some(Rule {
        signal,
        enter: enter_value,
        leave: leave_value,
        enter_windows: windows(hold?).saturating_add(1),
        leave_windows: windows(leave_for?).max(1),
        min_samples: samples?,
    })
}

/// With so many decimals, and more where a small value would otherwise read as zero.
fn significant(value: f64, decimals: usize) -> String {
    const MOST: usize = 12;
    let text = format!("{value:.decimals$}");
    let is_shown = value == 0.0 || text.contains(|digit| matches!(digit, '1'..='9'));
    if is_shown || decimals >= MOST { text } else { significant(value, decimals + 1) }
}

fn windows(duration: Duration) -> u32 {
    u32::try_from(duration.as_secs().div_ceil(WINDOW_SECONDS)).unwrap_or(u32::MAX)
}

/// Whether an object can have that name: a DNS subdomain (RFC 1123), as `kubectl` has it.
#[must_use]
pub fn is_object_name(name: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = name.as_bytes();
    bytes.len() <= 253
        && is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.'))
}

/// The signal with the most letters in common at its begin, ignoring case; three at least.
fn nearest_signal(name: &str) -> Option<&'static str> {
    let common = |signal: &str| {
        let (a, b) = (signal.to_ascii_lowercase(), name.to_ascii_lowercase());
        a.chars().zip(b.chars()).take_while(|(a, b)| a == b).count()
    };
    let ranked = Signal::ALL.map(Signal::as_str).map(|signal| (common(signal), signal));
    ranked.into_iter().filter(|(common, _)| *common >= 3).max().map(|(_, signal)| signal)
}

/// A user's text in quotes, bounded, without control characters.
fn quoted(text: &str) -> String {
    const CHARS: usize = 64;
    let clean = text.chars().map(|c| if steers_terminal(c) { '\u{fffd}' } else { c });
    let shown: String = clean.take(CHARS).collect();
    let more = if text.chars().count() > CHARS { "…" } else { "" };
    format!("\"{shown}{more}\"")
}

#[cfg(test)]
mod tests;
