//! Line 7: what cannot be gets a condition that names the remedy.

use std::{path::Path, time::Duration};

use super::{Form, Outcome};
use crate::{
    cluster::Cluster,
    demo::{install, view},
    images,
    process::{run, wait_for},
};

const WITHIN: Duration = Duration::from_secs(20);
/// The freshness limit, the last window and a look.
const STALE_WITHIN: Duration = Duration::from_secs(60);

/// Name, spec, words that the condition Stalled must say.
const CASES: [(&str, &str, &str); 6] = [
    (
        "nothing",
        "workload: {ref: {kind: Deployment, name: nobody}}",
        "does not exist in this namespace; create it",
    ),
    (
        "no-selector",
        "workload: {ref: {kind: ConfigMap, name: x}}",
        "use Deployment, StatefulSet or DaemonSet",
    ),
    (
        "elsewhere",
        "workload: {ref: {kind: Deployment, name: shop, namespace: other}}",
        "make the Application in \"other\"",
    ),
    (
        "upside-down",
        "workload: {ref: {kind: Deployment, name: shop}}\n  health: {policy: {signals: [{signal: RetransmitRatio, enter: 1%, leave: 2%}]}}",
        "swap the two or lower leave",
    ),
    (
        "unknown-signal",
        "workload: {ref: {kind: Deployment, name: shop}}\n  health: {policy: {signals: [{signal: RetransmitRate, enter: 2%, leave: 1%}]}}",
        "did you mean RetransmitRatio?",
    ),
    (
        "no-number",
        "workload: {ref: {kind: Deployment, name: shop}}\n  health: {policy: {signals: [{signal: RetransmitRatio, enter: lots, leave: 1%}]}}",
        "such as 2%",
    ),
];

/// Applies what cannot be, and takes the collector away for a while.
///
/// # Errors
/// The cluster cannot be used.
pub fn bad_input(cluster: &Cluster, _form: Form) -> anyhow::Result<Outcome> {
    let mut outcome = Outcome::default();
    for (name, spec, words) in CASES {
        let name = format!("bad-{name}");
        cluster.kubectl.apply(&format!(
            "apiVersion: keelson.dev/v1alpha1\nkind: Application\nmetadata: {{name: {name}, namespace: demo}}\nspec:\n  {spec}\n"
        ))?;
        let message = wait_for(&format!("{name} Stalled"), WITHIN, || {
            let application = cluster.kubectl.get(&["-n", "demo", "application", &name]);
            let application = application.map_err(|error| format!("{error:#}"))?;
            let conditions = application["status"]["conditions"].as_array().cloned();
            let conditions = conditions.unwrap_or_default();
            let stalled = conditions.iter().find(|condition| condition["type"] == "Stalled");
            match stalled {
                Some(stalled) if stalled["status"] == "True" => {
                    Ok(stalled["message"].as_str().unwrap_or_default().to_owned())
                }
                other => Err(format!("{other:?}")),
            }
        });
        cluster.kubectl.run(&["-n", "demo", "delete", "application", &name, "--wait"])?;
        let message = message?;
        if !message.contains(words) {
            outcome.failures.push(format!("{name}: {message:?} does not say {words:?}"));
        }
        outcome.figures.push(format!("{name}: {message}"));
    }
    outcome.figures.push(collector_away(cluster)?);
    let keelson = images::program("keelson")?;
    for (what, patch, words) in BLIND {
        outcome.figures.push(blind_agents(cluster, &keelson, what, patch, words)?);
    }
    Ok(outcome)
}

/// Agents that cannot see: what is changed in their DaemonSet, and words that `keelson nodes` must
/// say of both nodes.
const BLIND: [(&str, &str, [&str; 2]); 2] = [
    (
        "agents without capabilities",
        r#"[{"op": "replace", "path": "/spec/template/spec/containers/0/securityContext/capabilities", "value": {"drop": ["ALL"]}}]"#,
        ["missing_capability", "add the capabilities BPF and PERFMON to the container"],
    ),
    (
        // An empty directory hides the kernel's BTF from them.
        "agents without BTF",
        r#"[{"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-", "value": {"name": "none", "mountPath": "/sys/kernel/btf"}},
            {"op": "add", "path": "/spec/template/spec/containers/0/volumeMounts/-", "value": {"name": "tracing", "mountPath": "/sys/kernel/tracing", "readOnly": true}},
            {"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "none", "emptyDir": {}}},
            {"op": "add", "path": "/spec/template/spec/volumes/-", "value": {"name": "tracing", "hostPath": {"path": "/sys/kernel/tracing"}}}]"#,
        ["no_kernel_btf", "name a BTF file with --btf"],
    ),
];

fn blind_agents(
    cluster: &Cluster,
    keelson: &Path,
    what: &str,
    patch: &str,
    words: [&str; 2],
) -> anyhow::Result<String> {
    let agent = "daemonset/keelson-agent";
    cluster.kubectl.run(&["-n", install::SYSTEM, "patch", agent, "--type=json", "-p", patch])?;
    let said = wait_for(what, STALE_WITHIN, || {
        let kubeconfig = cluster.kubectl.kubeconfig.to_string_lossy().into_owned();
        let nodes = run(&keelson.to_string_lossy(), &["--kubeconfig", &kubeconfig, "nodes"]);
        let nodes = nodes.map_err(|error| format!("{error:#}"))?;
        match words.iter().all(|word| nodes.matches(word).count() >= 2) {
            true => Ok(()),
            false => Err(nodes),
        }
    });
    // What is not seen is Unknown, and says where to look.
    let unknown = wait_for("shop Unknown/NoCoverage", STALE_WITHIN, || {
        let verdicts = view::verdicts(cluster).map_err(|error| format!("{error:#}"))?;
        let shop = verdicts.into_iter().find(|verdict| verdict.name == "shop");
        match shop {
            Some(shop) if shop.reason == "NoCoverage" => Ok(shop.message),
            other => Err(format!("{other:?}")),
        }
    });
    cluster.kubectl.run(&["-n", install::SYSTEM, "rollout", "undo", agent])?;
    install::all_ready(cluster, install::SYSTEM)?;
    install::settled(cluster)?;
    said?;
    Ok(format!("{what}: {}; {}", words.join(", "), unknown?))
}

fn collector_away(cluster: &Cluster) -> anyhow::Result<String> {
    let scale = |replicas: &str| {
        let replicas = format!("--replicas={replicas}");
        let deployment = "deployment/keelson-collector";
        cluster.kubectl.run(&["-n", install::SYSTEM, "scale", deployment, &replicas])
    };
    scale("0")?;
    let stale = wait_for("shop Unknown/Stale", STALE_WITHIN, || {
        let verdicts = view::verdicts(cluster).map_err(|error| format!("{error:#}"))?;
        let shop = verdicts.into_iter().find(|verdict| verdict.name == "shop");
        match shop {
            Some(shop) if shop.reason == "Stale" => Ok(shop.message),
            other => Err(format!("{other:?}")),
        }
    });
    scale("1")?;
    install::all_ready(cluster, install::SYSTEM)?;
    install::settled(cluster)?;
    Ok(format!("collector away: {}", stale?))
}
