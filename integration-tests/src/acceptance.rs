//! The acceptance lines on the real cluster, in a short form for CI and a long one for `verify`.

use std::time::Duration;

use crate::{
    cluster::Cluster,
    demo::{self, fault::Kind, install},
    images,
};

pub mod audit;
pub mod bad_input;
pub mod fuzz;
pub mod identity;
pub mod quiet;
pub mod restart;
pub mod values;
pub mod verify;

/// How long a line is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Once, in CI.
    Short,
    /// As the line says.
    Long,
}

/// What was seen of a line: figures in words, and what did not hold.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// One a figure.
    pub figures: Vec<String>,
    /// Empty: the line holds.
    pub failures: Vec<String>,
}

/// The cluster with Keelson and the demo on it, as the checkout builds them.
///
/// # Errors
/// Something does not come up.
pub fn installed() -> anyhow::Result<Cluster> {
    let cluster = Cluster::up()?;
    let changed = cluster.load(&images::build()?)?;
    install::install(&cluster, &changed)?;
    install::settled(&cluster)?;
    Ok(cluster)
}

/// Line 2: faults into and out of a server's pod.
///
/// # Errors
/// The cluster cannot be used.
pub fn faults(cluster: &Cluster, form: Form) -> anyhow::Result<Outcome> {
    let times = if form == Form::Short { 1 } else { 10 };
    let mut outcome = Outcome::default();
    for kind in [Kind::Door, Kind::Egress] {
        let reports = demo::fault_runs(cluster, &[kind], times)?;
        let mut detected: Vec<Duration> =
            reports.iter().filter_map(|report| report.detected).collect();
        let mut returned: Vec<Duration> =
            reports.iter().filter_map(|report| report.returned).collect();
        outcome.figures.push(format!(
            "{kind:?}: {} runs, False after {} and True again after {}",
            reports.len(),
            spread(&mut detected),
            spread(&mut returned)
        ));
        if detected.get(detected.len() / 2).is_none_or(|median| *median > MEDIAN_WITHIN) {
            outcome.failures.push(format!("{kind:?}: the median is over {MEDIAN_WITHIN:?}"));
        }
        outcome.failures.extend(reports.into_iter().flat_map(|report| report.failures));
    }
    Ok(outcome)
}

const MEDIAN_WITHIN: Duration = Duration::from_secs(15);

/// Minimum, median and maximum.
fn spread(times: &mut [Duration]) -> String {
    times.sort();
    let at = |index: usize| times.get(index).map_or(0.0, Duration::as_secs_f64);
    let last = times.len().saturating_sub(1);
    format!("{:.1} / {:.1} / {:.1} s (min / median / max)", at(0), at(times.len() / 2), at(last))
}
