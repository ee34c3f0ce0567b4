//! Line 5: with steady traffic nothing is written but Leases and at most one review a minute.

use std::{thread, time::Duration};

use super::{Form, Outcome, audit::Mark};
use crate::{cluster::Cluster, demo::install, process::wait_for};

/// Applications in all; the demo has six.
const APPLICATIONS: usize = 20;
const SETTLE_WITHIN: Duration = Duration::from_secs(60);

/// Watches the audit log for a while.
///
/// # Errors
/// The cluster cannot be used.
pub fn quiet(cluster: &Cluster, form: Form) -> anyhow::Result<Outcome> {
    let minutes = if form == Form::Short { 1 } else { 5 };
    let workloads = ["shop", "checkout", "catalog", "left", "right"];
    let extra: Vec<String> = (6..APPLICATIONS)
        .map(|number| {
            let workload = workloads.get(number % workloads.len()).copied().unwrap_or("shop");
            format!(
                "apiVersion: keelson.dev/v1alpha1\nkind: Application\nmetadata: {{name: quiet-{number}, namespace: demo, labels: {{quiet: yes-please}}}}\nspec: {{workload: {{ref: {{kind: Deployment, name: {workload}}}}}}}\n"
            )
        })
        .collect();
    cluster.kubectl.apply(&extra.join("---\n"))?;
    let settled = wait_for("twenty Applications", SETTLE_WITHIN, || {
        let list = cluster.kubectl.get(&["-n", "demo", "applications", "-l", "quiet"]);
        let list = list.map_err(|error| format!("{error:#}"))?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        let is_healthy = |item: &serde_json::Value| {
            crate::cluster::condition(item, "KernelHealthy", "True").is_ok()
        };
        let healthy = items.iter().filter(|item| is_healthy(item)).count();
        if healthy == APPLICATIONS - 6 { Ok(()) } else { Err(format!("{healthy} are healthy")) }
    });
    let outcome = settled.and_then(|()| watch(cluster, minutes));
    cluster.kubectl.run(&["-n", "demo", "delete", "applications", "-l", "quiet", "--wait"])?;
    install::settled(cluster)?;
    outcome
}

fn watch(cluster: &Cluster, minutes: u64) -> anyhow::Result<Outcome> {
    let mark = Mark::now(cluster)?;
    thread::sleep(Duration::from_secs(60 * minutes));
    let writes = mark.writes_of_keelson()?;
    let is_review = |what: &str| what.contains("tokenreviews") || what.contains("accessreviews");
    let reviews: u64 =
        writes.iter().filter(|(what, _)| is_review(what)).map(|(_, count)| count).sum();
    let mut outcome = Outcome::default();
    outcome.figures.push(format!(
        "{APPLICATIONS} Applications, {minutes} min: {reviews} reviews, writes: {writes:?}"
    ));
    if reviews > minutes {
        outcome.failures.push(format!("{reviews} reviews in {minutes} min"));
    }
    for (what, count) in writes {
        if !is_review(&what) && !what.contains("leases") {
            outcome.failures.push(format!("written {count} times: {what}"));
        }
    }
    Ok(outcome)
}
