//! The harness of the local cluster itself, through the command that people type: it comes up and
//! carries pods on both nodes, refuses a second owner, and leaves nothing whatever ended it. As
//! root; one at a time, in the order of their names: the last takes the cluster down.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    fs::File,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::Duration,
};

use keelson_integration_tests::{
    cluster::{Cluster, LOCK, NODES, PATIENCE, condition, left::left},
    paths,
    process::{recorded, run, wait_for},
    tools,
};
use rustix::fs::{FlockOperation, flock};

const WITHIN: Duration = Duration::from_secs(60);

/// Directories below `deploy` with a kustomization, and whether it is a component.
fn kustomizations(directory: &Path) -> Vec<(PathBuf, bool)> {
    let entries = std::fs::read_dir(directory).unwrap().flatten().map(|entry| entry.path());
    let mut found: Vec<_> =
        entries.filter(|path| path.is_dir()).flat_map(|path| kustomizations(&path)).collect();
    if let Ok(text) = std::fs::read_to_string(directory.join("kustomization.yaml")) {
        found.push((directory.to_owned(), text.contains("kind: Component")));
    }
    found
}

#[test]
fn every_kustomization_builds_and_components_change_something() {
    let kustomize = |directory: &Path| {
        let program = tools::ensure().unwrap().kubernetes.to_string_lossy().into_owned();
        run(&program, &["kubectl", "kustomize", &directory.to_string_lossy()]).unwrap()
    };
    let deploy = paths::tree().join("deploy").canonicalize().unwrap();
    let base = kustomize(&deploy.join("base"));
    for (directory, is_component) in kustomizations(&deploy) {
        if !is_component {
            assert!(kustomize(&directory).contains("kind: "), "{}", directory.display());
            continue;
        }
        // A component is built onto the base, from beside it: paths are relative in kustomize.
        let beside = tempfile::tempdir().unwrap();
        let relative = |path: &Path| {
            let up = "../".repeat(beside.path().canonicalize().unwrap().components().count() - 1);
            format!("{up}{}", path.strip_prefix("/").unwrap().display())
        };
        let text = format!(
            "resources: [{}]\ncomponents: [{}]\n",
            relative(&deploy.join("base")),
            relative(&directory)
        );
        std::fs::write(beside.path().join("kustomization.yaml"), text).unwrap();
        assert_ne!(kustomize(beside.path()), base, "{}", directory.display());
    }
}

fn keelson_dev(verb: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_keelson-dev"));
    command.args(["cluster", verb]);
    command
}

fn succeeds(verb: &str) -> Output {
    let output = keelson_dev(verb).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{verb}: {said}");
    output
}

fn leaves_nothing() {
    succeeds("down");
    assert_eq!(left(&paths::cluster_state()), Vec::<String>::new());
}

/// A server and a Service before it, then a client on each node that asks the Service's address.
/// Without `-T`: this wget dies of it where there is no libc beside it.
fn manifests() -> String {
    let pod = |name: &str, node: &str, command: &str| {
        format!(
            "apiVersion: v1
kind: Pod
metadata: {{name: {name}, labels: {{app: {name}}}}}
spec:
  nodeName: {node}
  restartPolicy: Never
  terminationGracePeriodSeconds: 0
  containers:
    - {{name: main, image: localhost/busybox:1, imagePullPolicy: Never, command: [/bin/busybox, sh, -c, '{command}']}}
---
"
        )
    };
    let server = pod(
        "harness-server",
        NODES[0],
        "mkdir -p /www && echo ok > /www/index.html && exec httpd -f -p 8080 -h /www",
    );
    let ask = "until wget -O - http://harness-server.default.svc.cluster.local/; do sleep 1; done";
    let clients = NODES.map(|node| pod(&format!("harness-client-{node}"), node, ask));
    format!(
        "{server}{}apiVersion: v1
kind: Service
metadata: {{name: harness-server}}
spec: {{selector: {{app: harness-server}}, ports: [{{port: 80, targetPort: 8080}}]}}
",
        clients.concat()
    )
}

#[test]
fn a_cluster_comes_up_and_pods_of_both_nodes_reach_a_service() {
    succeeds("up");
    let cluster = Cluster::open().unwrap();
    for node in NODES {
        let is_ready = |node: &_| condition(node, "Ready", "True");
        cluster.kubectl.wait_for("Ready", &["node", node], PATIENCE, is_ready).unwrap();
    }
    cluster.kubectl.apply(&manifests()).unwrap();
    for node in NODES {
        let name = format!("harness-client-{node}");
        cluster
            .kubectl
            .wait_for("an answer", &["pod", &name], WITHIN, |pod| {
                let phase = &pod["status"]["phase"];
                if phase == "Succeeded" { Ok(()) } else { Err(pod["status"].to_string()) }
            })
            .unwrap();
        assert!(cluster.kubectl.run(&["logs", &name]).unwrap().contains("ok"));
    }
    let processes = recorded(&cluster.state).len();
    succeeds("up");
    assert_eq!(recorded(&cluster.state).len(), processes, "up of what is up starts nothing");
}

#[test]
fn b_a_second_owner_is_refused_by_the_name_of_the_first() {
    let file = File::options().create(true).truncate(false).write(true).open(LOCK).unwrap();
    flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
    for verb in ["up", "down"] {
        let output = keelson_dev(verb).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{verb} ignored the lock");
        assert!(said.contains("is being changed by process"), "{said}");
    }
}

#[test]
fn c_a_cluster_outlives_its_starter_and_goes_down_from_its_records() {
    succeeds("up");
    assert_ne!(left(&paths::cluster_state()), Vec::<String>::new());
    leaves_nothing();
    let chains = run("nft", &["list", "chains"]).unwrap();
    let kubelets: Vec<&str> = chains.lines().filter(|line| line.contains("chain KUBE-")).collect();
    assert!(kubelets.is_empty(), "a kubelet changed the host's iptables: {kubelets:?}");
}

#[test]
fn d_an_up_that_is_killed_at_any_point_leaves_what_a_down_takes_away() {
    let state = paths::cluster_state();
    for process in ["etcd", "controller-manager", "containerd-node-b", "kubelet-node-b", "proxy"] {
        let mut up = begin_up();
        let record = state.join("run").join(format!("{process}.json"));
        wait_for_file(&mut up, &record);
        up.kill().unwrap();
        assert_eq!(up.wait().unwrap().signal(), Some(9), "up had ended before {process}");
        leaves_nothing();
    }
}

#[test]
fn e_lost_records_and_a_killed_containerd_do_not_save_a_pod() {
    succeeds("up");
    let cluster = Cluster::open().unwrap();
    cluster.kubectl.apply(&manifests()).unwrap();
    cluster
        .kubectl
        .wait_for("the server", &["pod", "harness-server"], WITHIN, |pod| {
            condition(pod, "Ready", "True")
        })
        .unwrap();
    for process in recorded(&cluster.state) {
        if process.name.starts_with("containerd-") {
            run("kill", &["-KILL", &process.pid.to_string()]).unwrap();
        }
    }
    std::fs::remove_dir_all(cluster.state.join("run")).unwrap();
    leaves_nothing();
}

fn begin_up() -> Child {
    keelson_dev("up").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

fn wait_for_file(up: &mut Child, path: &Path) {
    wait_for(&path.display().to_string(), WITHIN, || {
        if path.exists() || up.try_wait().unwrap().is_some() {
            return Ok(());
        }
        Err("not there yet".to_owned())
    })
    .unwrap();
    assert!(PathBuf::from(path).exists(), "up ended without it");
}
