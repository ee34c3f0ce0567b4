//! How the workload stands: dereference (from the caches), validate, and the conditions for it.
//! Pure; the caller reads the caches and writes the status.

use keelson_api::{
    ApplicationStatus,
    application::WorkloadStatus,
    conditions::{ConditionType, ConvergeReason},
    validate::{FieldError, ValidatedApplication},
};

use crate::status::{Wanted, held};

/// The workload as a cache holds it, whatever its kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkloadFacts {
    /// Pods that it wants.
    pub desired: i32,
    /// Pods that Kubernetes calls ready.
    pub ready: i32,
    /// Pods of the newest revision.
    pub updated: i32,
    /// Its controller has seen the newest spec.
    pub is_observed: bool,
}

/// What is to be written.
#[derive(Clone, Debug, PartialEq)]
pub struct Converged {
    /// Ready, Stalled, Available and Progressing.
    pub conditions: Vec<Wanted>,
    /// Derived from them.
    pub phase: &'static str,
    /// None where there is none.
    pub workload: Option<WorkloadStatus>,
}

/// Conditions of a spec that cannot be.
#[must_use]
pub fn invalid(errors: &[FieldError]) -> Converged {
    let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
    stalled(ConvergeReason::InvalidSpec, &texts.join("; "))
}

/// Conditions of a valid spec, with its workload as far as it exists.
#[must_use]
pub fn converge(
    application: &ValidatedApplication,
    facts: Option<WorkloadFacts>,
    status: Option<&ApplicationStatus>,
) -> Converged {
    let (kind, name) = (application.kind.as_str(), application.name.as_str());
    let Some(facts) = facts else {
        let message = format!(
            "{kind} {name} does not exist in this namespace; create it, or correct spec.workload.ref"
        );
        return stalled(ConvergeReason::WorkloadNotFound, &message);
    };
    let WorkloadFacts { desired, ready, updated, is_observed } = facts;
    let is_available = ready >= desired;
    let is_moving = !is_observed || updated < desired;
    let is_unhealthy = application.gates_ready
        && held(status, ConditionType::KernelHealthy).is_some_and(|held| held.status == "False");
    let count = format!("{ready} of {desired} pods of {kind} {name} are ready");
    let available = match is_available {
        true => wanted(ConditionType::Available, true, ConvergeReason::WorkloadReady, &count),
        false => wanted(ConditionType::Available, false, ConvergeReason::WorkloadNotReady, &count),
    };
    let progressing = match is_moving {
        true => wanted(
            ConditionType::Progressing,
            true,
            ConvergeReason::RolloutInProgress,
            &format!("{updated} of {desired} pods are of the newest revision"),
        ),
        false => wanted(
            ConditionType::Progressing,
            false,
            ConvergeReason::RolloutComplete,
            "all pods are of the newest revision",
        ),
    };
    let ready = if is_moving {
        wanted(ConditionType::Ready, false, ConvergeReason::RolloutInProgress, &count)
    } else if !is_available {
        wanted(ConditionType::Ready, false, ConvergeReason::WorkloadNotReady, &count)
    } else if is_unhealthy {
        let message = "the kernels' votes blame a pod; see KernelHealthy";
        wanted(ConditionType::Ready, false, ConvergeReason::KernelUnhealthy, message)
    } else {
        wanted(ConditionType::Ready, true, ConvergeReason::WorkloadReady, &count)
    };
    let phase = match (is_moving, is_available && !is_unhealthy) {
        (true, _) => "Progressing",
        (false, true) => "Running",
        (false, false) => "Degraded",
    };
    let message = "nothing for a person to do";
    let stalled = wanted(ConditionType::Stalled, false, ConvergeReason::AsDeclared, message);
    let workload =
        WorkloadStatus { kind: kind.into(), name: name.into(), desired, ready: facts.ready };
    let conditions = vec![ready, stalled, available, progressing];
    Converged { conditions, phase, workload: Some(workload) }
}

fn stalled(reason: ConvergeReason, message: &str) -> Converged {
    let conditions = [
        (ConditionType::Ready, false),
        (ConditionType::Stalled, true),
        (ConditionType::Available, false),
        (ConditionType::Progressing, false),
    ];
    let conditions =
        conditions.into_iter().map(|(kind, status)| wanted(kind, status, reason, message));
    Converged { conditions: conditions.collect(), phase: "Pending", workload: None }
}

fn wanted(kind: ConditionType, status: bool, reason: ConvergeReason, message: &str) -> Wanted {
    let status = if status { "True" } else { "False" };
    Wanted::new(kind, status, reason.as_str(), message.to_owned())
}

/// Whether what stands in the status differs in more than time.
#[must_use]
pub fn must_write(
    converged: &Converged,
    status: Option<&ApplicationStatus>,
    generation: Option<i64>,
) -> bool {
    let Some(held_status) = status else { return true };
    let differs = |wanted: &Wanted| {
        held(status, wanted.kind).is_none_or(|held| {
            held.status != wanted.status
                || held.reason != wanted.reason
                || held.message != wanted.message
                || held.observed_generation != generation
        })
    };
    held_status.observed_generation != generation
        || held_status.phase.as_deref() != Some(converged.phase)
        || held_status.workload != converged.workload
        || converged.conditions.iter().any(differs)
}

#[cfg(test)]
mod tests {
    use keelson_api::{application::ApplicationSpec, validate::validate};

    use super::*;

    fn application(gates_ready: bool) -> ValidatedApplication {
        let spec = serde_json::json!({
            "workload": {"ref": {"kind": "Deployment", "name": "shop"}},
            "health": {"gatesReady": gates_ready},
        });
        let spec: ApplicationSpec = serde_json::from_value(spec).unwrap();
        validate(&spec, "demo").unwrap()
    }

    fn summary(converged: &Converged) -> String {
        let texts: Vec<String> = converged
            .conditions
            .iter()
            .map(|wanted| format!("{}={}/{}", wanted.kind.as_str(), wanted.status, wanted.reason))
            .collect();
        format!("{} {}", converged.phase, texts.join(" "))
    }

    #[test]
    fn conditions_follow_the_workload() {
        let facts = |desired, ready, updated| {
            Some(WorkloadFacts { desired, ready, updated, is_observed: true })
        };
        let cases = [
            (
                facts(2, 2, 2),
                "Running Ready=True/WorkloadReady Stalled=False/AsDeclared Available=True/WorkloadReady Progressing=False/RolloutComplete",
            ),
            (
                facts(2, 1, 2),
                "Degraded Ready=False/WorkloadNotReady Stalled=False/AsDeclared Available=False/WorkloadNotReady Progressing=False/RolloutComplete",
            ),
            (
                facts(2, 2, 1),
                "Progressing Ready=False/RolloutInProgress Stalled=False/AsDeclared Available=True/WorkloadReady Progressing=True/RolloutInProgress",
            ),
            (
                None,
                "Pending Ready=False/WorkloadNotFound Stalled=True/WorkloadNotFound Available=False/WorkloadNotFound Progressing=False/WorkloadNotFound",
            ),
        ];
        for (facts, expected) in cases {
            assert_eq!(summary(&converge(&application(false), facts, None)), expected);
        }
    }

    #[test]
    fn the_same_conditions_are_not_written_again() {
        let facts = Some(WorkloadFacts { desired: 1, ready: 1, updated: 1, is_observed: true });
        let converged = converge(&application(false), facts, None);
        assert!(must_write(&converged, None, Some(1)));
        let now = jiff::Timestamp::now();
        let conditions = converged.conditions.iter().cloned();
        let status = ApplicationStatus {
            observed_generation: Some(1),
            phase: Some(converged.phase.into()),
            conditions: conditions
                .map(|wanted| crate::status::condition(wanted, None, Some(1), now))
                .collect(),
            workload: converged.workload.clone(),
            health: None,
        };
        assert!(!must_write(&converged, Some(&status), Some(1)));
        assert!(must_write(&converged, Some(&status), Some(2)));
    }

    #[test]
    fn what_was_written_does_not_differ_however_long_its_message() {
        let error = FieldError { path: "spec".into(), message: "é".repeat(4_000) };
        let converged = invalid(&[error]);
        let condition = |wanted: &Wanted| {
            crate::status::condition(wanted.clone(), None, Some(1), jiff::Timestamp::UNIX_EPOCH)
        };
        let status = ApplicationStatus {
            observed_generation: Some(1),
            phase: Some(converged.phase.into()),
            conditions: converged.conditions.iter().map(condition).collect(),
            ..Default::default()
        };
        assert!(!must_write(&converged, Some(&status), Some(1)));
        assert!(must_write(&converged, Some(&status), Some(2)));
    }
}
