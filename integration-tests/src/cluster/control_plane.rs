//! etcd, API server, controller manager, scheduler, kube-proxy and CoreDNS.

use std::{fs, path::Path};

use super::{
    PATIENCE,
    config::{API_PORT, AUDIT_POLICY, DNS_ADDRESS, DNS_PORT, ETCD_PORT, PODS, SERVICES},
};
use crate::{kubectl::Kubectl, process::wait_for, tools::Tools};

/// A command line: the program, its first argument, then `--name=value` for each pair.
fn command(program: &Path, first: &[&str], flags: &[(&str, &str)]) -> Vec<String> {
    let program = program.to_string_lossy().into_owned();
    let flags = flags.iter().map(|(name, value)| format!("--{name}={value}"));
    [program].into_iter().chain(first.iter().map(ToString::to_string)).chain(flags).collect()
}

/// Starts everything but proxy and DNS, and waits for the API server.
///
/// # Errors
/// A part does not come up.
pub fn start(tools: &Tools, state: &Path, address: &str, kubectl: &Kubectl) -> anyhow::Result<()> {
    let etcd = format!("http://127.0.0.1:{ETCD_PORT}");
    let data = state.join("etcd").to_string_lossy().into_owned();
    let flags = [
        ("data-dir", data.as_str()),
        ("listen-client-urls", &etcd),
        ("advertise-client-urls", &etcd),
        ("listen-peer-urls", "http://127.0.0.1:0"),
    ];
    let mut line = command(&tools.etcd, &[], &flags);
    line.push("--unsafe-no-fsync".into());
    crate::process::start(state, "etcd", &line)?;

    fs::write(state.join("audit-policy.yaml"), AUDIT_POLICY)?;
    let port = API_PORT.to_string();
    let flags = [
        ("etcd-servers", etcd.as_str()),
        ("secure-port", &port),
        ("bind-address", "0.0.0.0"),
        ("advertise-address", address),
        ("tls-cert-file", "pki/apiserver.crt"),
        ("tls-private-key-file", "pki/apiserver.key"),
        ("client-ca-file", "pki/ca.crt"),
        ("kubelet-client-certificate", "pki/apiserver-kubelet.crt"),
        ("kubelet-client-key", "pki/apiserver-kubelet.key"),
        ("kubelet-preferred-address-types", "InternalIP"),
        ("service-account-issuer", "https://kubernetes.default.svc"),
        ("service-account-key-file", "pki/sa.pub"),
        ("service-account-signing-key-file", "pki/sa.key"),
        ("requestheader-client-ca-file", "pki/front-ca.crt"),
        ("requestheader-allowed-names", ""),
        ("requestheader-extra-headers-prefix", "X-Remote-Extra-"),
        ("requestheader-group-headers", "X-Remote-Group"),
        ("requestheader-username-headers", "X-Remote-User"),
        ("authorization-mode", "Node,RBAC"),
        ("enable-admission-plugins", "NodeRestriction"),
        ("service-cluster-ip-range", SERVICES),
        ("allow-privileged", "true"),
        ("audit-policy-file", "audit-policy.yaml"),
        ("audit-log-path", "log/audit.log"),
    ];
    let line = command(&tools.kubernetes, &["kube-apiserver"], &flags);
    crate::process::start(state, "apiserver", &line)?;
    wait_for("the API server", PATIENCE, || {
        kubectl.run(&["get", "--raw", "/readyz"]).map_err(|error| format!("{error:#}"))
    })?;
    start_managers(tools, state)?;
    // Pods are refused until the controller manager has made this.
    wait_for("the default ServiceAccount", PATIENCE, || {
        kubectl
            .run(&["-n", "default", "get", "serviceaccount", "default"])
            .map_err(|error| format!("{error:#}"))
    })?;
    Ok(())
}

fn start_managers(tools: &Tools, state: &Path) -> anyhow::Result<()> {
    let common = |name: &'static str| {
        [
            ("kubeconfig", name),
            ("authentication-kubeconfig", name),
            ("authorization-kubeconfig", name),
            ("leader-elect", "false"),
            ("bind-address", "127.0.0.1"),
        ]
    };
    let mut flags = common("controller-manager.kubeconfig").to_vec();
    flags.extend([
        ("root-ca-file", "pki/ca.crt"),
        ("service-account-private-key-file", "pki/sa.key"),
        ("cluster-signing-cert-file", "pki/ca.crt"),
        ("cluster-signing-key-file", "pki/ca.key"),
        ("use-service-account-credentials", "true"),
    ]);
    let line = command(&tools.kubernetes, &["kube-controller-manager"], &flags);
    start_named(state, "controller-manager", &line)?;
    let flags = common("scheduler.kubeconfig");
    start_named(state, "scheduler", &command(&tools.kubernetes, &["kube-scheduler"], &flags))
}

fn start_named(state: &Path, name: &str, line: &[String]) -> anyhow::Result<()> {
    crate::process::start(state, name, line).map(|_| ())
}

/// Starts kube-proxy, one for the one network namespace that both nodes share.
///
/// # Errors
/// It cannot be started.
pub fn start_proxy(tools: &Tools, state: &Path) -> anyhow::Result<()> {
    let flags = [
        ("kubeconfig", "proxy.kubeconfig"),
        ("proxy-mode", "nftables"),
        ("cluster-cidr", PODS),
        ("hostname-override", super::NODES[0]),
        ("conntrack-max-per-core", "0"),
        ("conntrack-tcp-timeout-established", "0"),
        ("conntrack-tcp-timeout-close-wait", "0"),
    ];
    start_named(state, "proxy", &command(&tools.kubernetes, &["kube-proxy"], &flags))
}

/// Starts CoreDNS on the host, behind the cluster's DNS Service.
///
/// # Errors
/// It cannot be started, or the API server refuses its Service.
pub fn start_dns(
    tools: &Tools,
    state: &Path,
    address: &str,
    kubectl: &Kubectl,
) -> anyhow::Result<()> {
    let kubeconfig = state.join("admin.kubeconfig");
    let kubeconfig = kubeconfig.display();
    let corefile = format!(
        ".:{DNS_PORT} {{\n  errors\n  kubernetes cluster.local in-addr.arpa ip6.arpa {{\n    kubeconfig {kubeconfig}\n  }}\n}}\n"
    );
    fs::write(state.join("Corefile"), corefile)?;
    let line = [tools.coredns.to_string_lossy().into_owned(), "-conf".into(), "Corefile".into()];
    start_named(state, "coredns", &line)?;
    kubectl.apply(&format!(
        "apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system}}
spec: {{clusterIP: {DNS_ADDRESS}, ports: [{{name: dns, port: 53, targetPort: {DNS_PORT}, protocol: UDP}}, {{name: dns-tcp, port: 53, targetPort: {DNS_PORT}, protocol: TCP}}]}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {{name: kube-dns, namespace: kube-system, labels: {{kubernetes.io/service-name: kube-dns}}}}
addressType: IPv4
endpoints: [{{addresses: [\"{address}\"]}}]
ports: [{{name: dns, port: {DNS_PORT}, protocol: UDP}}, {{name: dns-tcp, port: {DNS_PORT}, protocol: TCP}}]
"
    ))
}
