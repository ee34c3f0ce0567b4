//! Starts etcd, the API server, its controllers and the services every node shares.

use std::time::Duration;

use anyhow::Context;

use crate::layout::{
    API_PORT, CONTROL_ADDRESS, DNS_PORT, DNS_SERVICE, ETCD_PORT, Layout, NODES, POD_RANGE, SERVICE_RANGE,
};
use crate::processes;
use crate::toolcache::Tools;
use crate::wait;

/// Every write, TokenReview and SubjectAccessReview (both are creates) leaves a line; reads do not.
const AUDIT_POLICY: &str = "apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
  verbs: [create, update, patch, delete, deletecollection]
- level: None
";

/// Starts etcd and the API server; [`is_ready`](crate::Cluster) tells when the latter serves.
///
/// # Errors
/// When a program does not start or etcd does not answer.
pub fn start_api_server(layout: &Layout, tools: &Tools) -> anyhow::Result<()> {
    let root = layout.root().display();
    let etcd = format!("http://127.0.0.1:{ETCD_PORT}");
    let arguments = [
        format!("--data-dir={root}/etcd"),
        format!("--listen-client-urls={etcd}"),
        format!("--advertise-client-urls={etcd}"),
        "--listen-peer-urls=http://127.0.0.1:0".into(),
        // The data does not outlive the cluster.
        "--unsafe-no-fsync".into(),
    ];
    processes::start(layout, "etcd", &tools.etcd, &arguments)?;
    wait::until_true("etcd to listen", Duration::from_secs(20), || {
        std::net::TcpStream::connect(("127.0.0.1", ETCD_PORT)).is_ok()
    })?;

    std::fs::write(layout.root().join("audit-policy.yaml"), AUDIT_POLICY)?;
    let pki = layout.pki("").display().to_string();
    let pki = pki.trim_end_matches('/');
    let arguments = [
        "kube-apiserver".into(),
        format!("--etcd-servers={etcd}"),
        format!("--secure-port={API_PORT}"),
        format!("--bind-address={CONTROL_ADDRESS}"),
        format!("--advertise-address={CONTROL_ADDRESS}"),
        format!("--tls-cert-file={pki}/apiserver.crt"),
        format!("--tls-private-key-file={pki}/apiserver.key"),
        format!("--client-ca-file={pki}/ca.crt"),
        format!("--kubelet-client-certificate={pki}/apiserver-kubelet.crt"),
        format!("--kubelet-client-key={pki}/apiserver-kubelet.key"),
        format!("--kubelet-certificate-authority={pki}/ca.crt"),
        "--kubelet-preferred-address-types=InternalIP".into(),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={pki}/service-accounts.pub"),
        format!("--service-account-signing-key-file={pki}/service-accounts.key"),
        format!("--requestheader-client-ca-file={pki}/front-proxy-ca.crt"),
        "--requestheader-allowed-names=".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--authorization-mode=Node,RBAC".into(),
        "--enable-admission-plugins=NodeRestriction".into(),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--allow-privileged=true".into(),
        "--profiling=false".into(),
        format!("--audit-policy-file={root}/audit-policy.yaml"),
        format!("--audit-log-path={}", layout.audit_log().display()),
        "--audit-log-maxsize=200".into(),
        "--audit-log-maxbackup=1".into(),
    ];
    processes::start(layout, "apiserver", &tools.kubernetes, &arguments).map(drop)
}

/// Starts controller manager, scheduler, kube-proxy and CoreDNS.
///
/// # Errors
/// When a program does not start.
pub fn start_controllers(layout: &Layout, tools: &Tools) -> anyhow::Result<()> {
    let pki = layout.pki("").display().to_string();
    let pki = pki.trim_end_matches('/');
    let mut manager = client_arguments(layout, "kube-controller-manager", "controller-manager");
    manager.extend([
        format!("--root-ca-file={pki}/ca.crt"),
        format!("--service-account-private-key-file={pki}/service-accounts.key"),
        format!("--cluster-signing-cert-file={pki}/ca.crt"),
        format!("--cluster-signing-key-file={pki}/ca.key"),
        "--use-service-account-credentials".into(),
    ]);
    processes::start(layout, "controller-manager", &tools.kubernetes, &manager)?;
    let scheduler = client_arguments(layout, "kube-scheduler", "scheduler");
    processes::start(layout, "scheduler", &tools.kubernetes, &scheduler)?;
    // One for both nodes: they share the host's network namespace and so its tables.
    let proxy = [
        "kube-proxy".into(),
        format!("--kubeconfig={}", layout.kubeconfig("proxy").display()),
        "--proxy-mode=nftables".into(),
        format!("--cluster-cidr={POD_RANGE}"),
        format!("--hostname-override={}", NODES[0].name),
        "--bind-address=127.0.0.1".into(),
        "--healthz-bind-address=127.0.0.1:10256".into(),
        "--metrics-bind-address=127.0.0.1:10249".into(),
        "--conntrack-max-per-core=0".into(),
        "--conntrack-tcp-timeout-established=0".into(),
        "--conntrack-tcp-timeout-close-wait=0".into(),
    ];
    processes::start(layout, "proxy", &tools.kubernetes, &proxy)?;
    let corefile = layout.root().join("Corefile");
    let kubeconfig = layout.kubeconfig("coredns");
    let text = format!(
        ".:{DNS_PORT} {{
  bind {CONTROL_ADDRESS}
  errors
  loadbalance
  kubernetes cluster.local in-addr.arpa {{
    kubeconfig {}
    ttl 5
  }}
}}
",
        kubeconfig.display()
    );
    std::fs::write(&corefile, text).context("write the DNS configuration")?;
    processes::start(layout, "coredns", &tools.coredns, &["-conf".into(), corefile.display().to_string()]).map(drop)
}

fn client_arguments(layout: &Layout, program: &str, user: &str) -> Vec<String> {
    let kubeconfig = layout.kubeconfig(user).display().to_string();
    vec![
        program.into(),
        format!("--kubeconfig={kubeconfig}"),
        format!("--authentication-kubeconfig={kubeconfig}"),
        format!("--authorization-kubeconfig={kubeconfig}"),
        "--leader-elect=false".into(),
        "--bind-address=127.0.0.1".into(),
    ]
}

/// The objects that make DNS reachable from pods.
#[must_use]
pub fn dns_objects() -> String {
    format!(
        "apiVersion: v1
kind: Service
metadata: {{name: kube-dns, namespace: kube-system}}
spec:
  clusterIP: {DNS_SERVICE}
  ports:
  - {{name: dns, port: 53, targetPort: {DNS_PORT}, protocol: UDP}}
  - {{name: dns-tcp, port: 53, targetPort: {DNS_PORT}, protocol: TCP}}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {{kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{{addresses: [\"{CONTROL_ADDRESS}\"]}}]
ports:
- {{name: dns, port: {DNS_PORT}, protocol: UDP}}
- {{name: dns-tcp, port: {DNS_PORT}, protocol: TCP}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{name: keelson:coredns}}
rules:
- {{apiGroups: [\"\"], resources: [services, namespaces, pods, endpoints], verbs: [list, watch]}}
- {{apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{name: keelson:coredns}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: keelson:coredns}}
subjects: [{{kind: User, name: keelson:coredns, apiGroup: rbac.authorization.k8s.io}}]
"
    )
}
