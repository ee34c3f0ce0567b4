//! Line 4.3: who may send and who may see, with real tokens, certificates and roles against the
//! running collector.

use std::{
    fs,
    time::{Duration, Instant},
};

use anyhow::{Context, ensure};
use futures::StreamExt;
use keelson_proto::{
    query::{
        self as query, connections_response, endpoint::Endpoint as End, flows_response,
        query_client::QueryClient,
    },
    telemetry::{self as telemetry, agent_message, telemetry_client::TelemetryClient},
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Code, Request, Status, Streaming,
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use super::{Form, Outcome};
use crate::{cluster::Cluster, kubectl::Kubectl, step::say};

const SYSTEM: &str = "keelson-system";
const HOST: &str = "keelson-collector.keelson-system.svc";
const AUDIENCE: &str = "keelson-collector";
/// A node without a kubelet, so that no agent's stream is disturbed.
const GHOST: &str = "ghost";
/// The least that the API server grants a token.
const TOKEN_LIFE: Duration = Duration::from_secs(600);
/// A cached token ends with its ten minutes; then comes the next look, and some room.
const ENDS_WITHIN: Duration = Duration::from_secs(600 + 60 + 15);
/// A right that is withdrawn is noticed at the next look, and an answer believed for ten seconds.
const NOTICED_WITHIN: Duration = Duration::from_secs(60 + 10 + 15);

const OBJECTS: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: ghost}
---
apiVersion: v1
kind: Pod
metadata: {name: ghost-agent, namespace: keelson-system}
spec:
  nodeName: ghost
  serviceAccountName: keelson-agent
  tolerations: [{operator: Exists}]
  containers: [{name: none, image: "localhost/pause:1", imagePullPolicy: Never}]
---
apiVersion: v1
kind: Pod
metadata: {name: ghost-other, namespace: keelson-system}
spec:
  nodeName: ghost
  serviceAccountName: keelson-reader
  tolerations: [{operator: Exists}]
  containers: [{name: none, image: "localhost/pause:1", imagePullPolicy: Never}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: boss, namespace: keelson-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: keelson-test-boss}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: cluster-admin}
subjects: [{kind: ServiceAccount, name: boss, namespace: keelson-system}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: viewer, namespace: demo}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: keelson-test-viewer, namespace: demo}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: view}
subjects: [{kind: ServiceAccount, name: viewer, namespace: demo}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: stranger, namespace: demo}
"#;

/// Tries every way in.
///
/// # Errors
/// The cluster cannot be used.
pub fn identity(cluster: &Cluster, form: Form) -> anyhow::Result<Outcome> {
    cluster.kubectl.apply(OBJECTS)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let outcome = runtime.block_on(try_all(cluster, form));
    for object in [
        &["clusterrolebinding/keelson-test-boss"][..],
        &["-n", SYSTEM, "pod/ghost-agent", "pod/ghost-other", "serviceaccount/boss"],
        &["-n", "demo", "rolebinding/keelson-test-viewer"],
        &["-n", "demo", "serviceaccount/viewer", "serviceaccount/stranger"],
        &["node/ghost"],
    ] {
        let delete = ["delete", "--ignore-not-found", "--force", "--grace-period=0"];
        cluster.kubectl.run(&[&delete, object].concat())?;
    }
    outcome
}

struct Trial<'a> {
    kubectl: &'a Kubectl,
    /// Without a client certificate.
    channel: Channel,
    /// With the administrator's.
    as_administrator: Channel,
    outcome: Outcome,
}

async fn try_all(cluster: &Cluster, form: Form) -> anyhow::Result<Outcome> {
    let pki = cluster.state.join("pki");
    let identity =
        Identity::from_pem(fs::read(pki.join("admin.crt"))?, fs::read(pki.join("admin.key"))?);
    let mut trial = Trial {
        kubectl: &cluster.kubectl,
        channel: connect(&cluster.kubectl, None).await?,
        as_administrator: connect(&cluster.kubectl, Some(identity)).await?,
        outcome: Outcome::default(),
    };
    trial.queries().await?;
    let follow = if form == Form::Long { Some(trial.follow().await?) } else { None };
    trial.agents(form).await?;
    if let Some(follow) = follow {
        trial.withdraw(follow).await?;
    }
    Ok(trial.outcome)
}

async fn connect(kubectl: &Kubectl, identity: Option<Identity>) -> anyhow::Result<Channel> {
    let authority = kubectl.get(&["-n", SYSTEM, "configmap", "keelson-telemetry-ca"])?;
    let authority = authority["data"]["ca.crt"].as_str().context("no ca.crt")?.to_owned();
    let field = "--field-selector=spec.serviceAccountName=keelson-collector,status.phase=Running";
    let pods = kubectl.get(&["-n", SYSTEM, "pods", field])?;
    let address = pods["items"][0]["status"]["podIP"].as_str().context("no collector")?;
    let mut tls =
        ClientTlsConfig::new().ca_certificate(Certificate::from_pem(authority)).domain_name(HOST);
    if let Some(identity) = identity {
        tls = tls.identity(identity);
    }
    let endpoint = Endpoint::from_shared(format!("https://{address}:8443"))?.tls_config(tls)?;
    Ok(endpoint.connect().await?)
}

fn with_token<T>(message: T, token: Option<&str>) -> anyhow::Result<Request<T>> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", format!("Bearer {token}").parse()?);
    }
    Ok(request)
}

fn in_namespace(namespace: &str, follow: bool) -> query::FlowsRequest {
    let filter = query::Filter { namespace: vec![namespace.into()], ..Default::default() };
    let filters = query::Filters { allow: vec![filter], deny: vec![] };
    query::FlowsRequest { filters: Some(filters), follow, ..Default::default() }
}

/// Namespaces of pods and Services named at either end.
fn namespaces(ends: [Option<query::Endpoint>; 2]) -> impl Iterator<Item = String> {
    ends.into_iter().flatten().filter_map(|end| match end.endpoint {
        Some(End::Pod(pod)) => Some(pod.namespace),
        Some(End::Service(service)) => Some(service.namespace),
        Some(End::Node(node)) => Some(format!("node {node}")),
        _ => None,
    })
}

impl Trial<'_> {
    fn expect(&mut self, what: &str, expected: Code, got: Result<(), Status>) {
        let code = got.as_ref().err().map_or(Code::Ok, Status::code);
        let text = got.err().map(|status| status.message().to_owned()).unwrap_or_default();
        let line = format!("{what}: {code:?} {text}");
        if code == expected {
            self.outcome.figures.push(line.trim_end().to_owned());
        } else {
            self.outcome.failures.push(format!("{line}; not {expected:?}"));
        }
    }

    fn check(&mut self, what: &str, holds: bool) {
        if !holds {
            self.outcome.failures.push(what.to_owned());
        }
    }

    fn token(&self, namespace: &str, account: &str, more: &[&str]) -> anyhow::Result<String> {
        let token = ["create", "token", "-n", namespace, account];
        Ok(self.kubectl.run(&[&token, more].concat())?.trim().to_owned())
    }

    /// A token of the ghost's pod `pod`.
    fn bound(&self, account: &str, pod: &str, audience: &str) -> anyhow::Result<String> {
        let audience = format!("--audience={audience}");
        let more = ["--bound-object-kind=Pod", "--bound-object-name", pod, &audience];
        self.token(SYSTEM, account, &more)
    }

    async fn nodes(
        &self,
        channel: &Channel,
        token: Option<&str>,
    ) -> anyhow::Result<Result<(), Status>> {
        let request = with_token(query::NodesRequest {}, token)?;
        Ok(QueryClient::new(channel.clone()).nodes(request).await.map(|_| ()))
    }

    async fn flows(
        &self,
        channel: &Channel,
        token: Option<&str>,
        request: query::FlowsRequest,
    ) -> anyhow::Result<Result<Vec<query::FlowsResponse>, Status>> {
        let request = with_token(request, token)?;
        let answer = match QueryClient::new(channel.clone()).flows(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Ok(Err(status)),
        };
        Ok(answer.collect::<Vec<_>>().await.into_iter().collect())
    }

    async fn queries(&mut self) -> anyhow::Result<()> {
        let (anybody, administrator) = (self.channel.clone(), self.as_administrator.clone());
        let tokens = [
            ("an administrator's token", self.token(SYSTEM, "boss", &[])?, Code::Ok),
            (
                "the reader's token",
                self.token(SYSTEM, "keelson-reader", &["--audience", AUDIENCE])?,
                Code::Ok,
            ),
            (
                "an account without a role",
                self.token("demo", "stranger", &[])?,
                Code::PermissionDenied,
            ),
            ("a namespace's viewer", self.token("demo", "viewer", &[])?, Code::PermissionDenied),
            (
                "a token for another audience",
                self.token(SYSTEM, "boss", &["--audience=other"])?,
                Code::Unauthenticated,
            ),
            ("no token at all", "x".into(), Code::Unauthenticated),
        ];
        for (who, token, code) in tokens {
            let got = self.nodes(&anybody, Some(&token)).await?;
            self.expect(&format!("Nodes by {who}"), code, got);
        }
        let got = self.nodes(&anybody, None).await?;
        self.expect("Nodes by nobody", Code::Unauthenticated, got);
        let got = self.nodes(&administrator, None).await?;
        self.expect("Nodes by the administrator's certificate", Code::Ok, got);
        self.viewer(&anybody).await
    }

    /// What a viewer of the demo's namespace gets to see.
    async fn viewer(&mut self, channel: &Channel) -> anyhow::Result<()> {
        let token = self.token("demo", "viewer", &["--audience", AUDIENCE])?;
        let token = Some(token.as_str());
        let everything = query::FlowsRequest::default();
        for (what, request) in [
            ("all namespaces", everything),
            ("another namespace", in_namespace("kube-system", false)),
        ] {
            let got = self.flows(channel, token, request).await?.map(|_| ());
            if let Err(status) = &got {
                self.check("a refusal names demo", !status.message().contains("demo/"));
            }
            self.expect(&format!("a viewer asks for {what}"), Code::PermissionDenied, got);
        }
        let request = with_token(query::EvidenceRequest::default(), token)?;
        let got = QueryClient::new(channel.clone()).evidence(request).await.map(|_| ());
        self.expect("a viewer asks for evidence", Code::PermissionDenied, got);

        let rows = self.flows(channel, token, in_namespace("demo", false)).await??;
        let rows = rows.into_iter().filter_map(|row| row.response);
        let mut seen: Vec<String> = Vec::new();
        for row in rows {
            match row {
                flows_response::Response::Flow(flow) => {
                    seen.extend(namespaces([flow.local, flow.peer]));
                }
                flows_response::Response::Lost(lost) => {
                    self.check("a loss names its node", lost.node.is_empty());
                }
                flows_response::Response::CaughtUp(_) => {}
            }
        }
        let connections = query::ConnectionsRequest {
            filters: in_namespace("demo", false).filters,
            ..Default::default()
        };
        let mut client = QueryClient::new(channel.clone());
        let mut answer = client.connections(with_token(connections, token)?).await?.into_inner();
        while let Some(row) = answer.next().await {
            if let Some(connections_response::Response::Connection(row)) = row?.response {
                seen.extend(namespaces([row.local, row.peer]));
            }
        }
        self.outcome
            .figures
            .push(format!("a viewer of demo sees {} names of pods and Services", seen.len()));
        self.check("the viewer sees nothing", !seen.is_empty());
        seen.retain(|namespace| namespace != "demo");
        seen.sort();
        seen.dedup();
        self.check(&format!("the viewer sees {seen:?}"), seen.is_empty());
        Ok(())
    }

    async fn follow(&self) -> anyhow::Result<Streaming<query::FlowsResponse>> {
        let token = self.token("demo", "viewer", &["--audience", AUDIENCE])?;
        let request = with_token(in_namespace("demo", true), Some(&token))?;
        Ok(QueryClient::new(self.channel.clone()).flows(request).await?.into_inner())
    }

    async fn withdraw(&mut self, follow: Streaming<query::FlowsResponse>) -> anyhow::Result<()> {
        self.kubectl.run(&["-n", "demo", "delete", "rolebinding", "keelson-test-viewer"])?;
        let (status, took) = end(follow, NOTICED_WITHIN).await?;
        self.outcome.figures.push(format!("a follow ended {} s after its right", took.as_secs()));
        self.expect("a follow whose right is withdrawn", Code::PermissionDenied, Err(status));
        Ok(())
    }

    /// Begins a stream of the ghost's agent and waits for its welcome.
    async fn stream(
        &self,
        token: &str,
        node: &str,
        pod_uid: &str,
    ) -> anyhow::Result<Result<AgentStream, Status>> {
        let hello = telemetry::Hello {
            agent_version: "test".into(),
            node_name: node.into(),
            node_uid: "ghost".into(),
            agent_pod_uid: pod_uid.into(),
            boot_id: "ghost".into(),
            epoch: 1,
            window_seconds: 5,
            kernel_release: "test".into(),
        };
        let (sender, receiver) = mpsc::channel(1);
        let message =
            telemetry::AgentMessage { message: Some(agent_message::Message::Hello(hello)) };
        sender.send(message).await?;
        let request = with_token(ReceiverStream::new(receiver), Some(token))?;
        let answer = TelemetryClient::new(self.channel.clone()).stream(request).await;
        let mut answers = match answer {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Ok(Err(status)),
        };
        Ok(answers.message().await.map(|_| AgentStream { _sender: sender, answers }))
    }

    async fn agents(&mut self, form: Form) -> anyhow::Result<()> {
        let pod = self.kubectl.get(&["-n", SYSTEM, "pod", "ghost-agent"])?;
        let uid = pod["metadata"]["uid"].as_str().context("the ghost's pod has no uid")?.to_owned();
        let good = self.bound("keelson-agent", "ghost-agent", AUDIENCE)?;
        let (other, elsewhere) = (
            self.bound("keelson-reader", "ghost-other", AUDIENCE)?,
            self.bound("keelson-agent", "ghost-agent", "other")?,
        );
        let unbound = self.token(SYSTEM, "keelson-agent", &["--audience", AUDIENCE])?;
        let uncached = self.bound("keelson-agent", "ghost-agent", AUDIENCE)?;
        let begun = Instant::now();
        for (what, token, node, pod, code) in [
            ("the right one", &good, GHOST, uid.as_str(), Code::Ok),
            ("another node's name", &good, "node-a", &uid, Code::PermissionDenied),
            ("another pod's uid", &good, GHOST, "another", Code::PermissionDenied),
            ("another account of the node", &other, GHOST, &uid, Code::PermissionDenied),
            ("another audience", &elsewhere, GHOST, &uid, Code::Unauthenticated),
            ("a token of no pod", &unbound, GHOST, &uid, Code::PermissionDenied),
            ("garbage", &"garbage".to_owned(), GHOST, &uid, Code::Unauthenticated),
        ] {
            let got = self.stream(token, node, pod).await?.map(drop);
            self.expect(&format!("an agent's stream with {what}"), code, got);
        }
        let open = self.stream(&good, GHOST, &uid).await??;
        let delete = ["-n", SYSTEM, "delete", "pod", "ghost-agent", "--force", "--grace-period=0"];
        self.kubectl.run(&delete)?;
        let got = self.stream(&uncached, GHOST, &uid).await?.map(drop);
        self.expect("a deleted pod's token, not seen before", Code::Unauthenticated, got);
        if form == Form::Long {
            say("waiting until a deleted pod's cached token and an old one have ended");
            let old = self.token(SYSTEM, "boss", &["--duration=600s"])?;
            let got = self.nodes(&self.channel, Some(&old)).await?;
            self.expect("a token at the begin of its life", Code::Ok, got);
            let (status, took) = end(open.answers, ENDS_WITHIN).await?;
            self.expect("the open stream of a deleted pod", Code::Unauthenticated, Err(status));
            self.outcome.figures.push(format!("it ended after {} s", took.as_secs()));
            tokio::time::sleep(
                (TOKEN_LIFE + Duration::from_secs(20)).saturating_sub(begun.elapsed()),
            )
            .await;
            let got = self.nodes(&self.channel, Some(&old)).await?;
            self.expect("a token after its life", Code::Unauthenticated, got);
        }
        Ok(())
    }
}

/// A stream, with the side that keeps it open.
struct AgentStream {
    _sender: mpsc::Sender<telemetry::AgentMessage>,
    answers: Streaming<telemetry::CollectorMessage>,
}

/// The status that ends a stream, and when.
async fn end<T>(mut answers: Streaming<T>, within: Duration) -> anyhow::Result<(Status, Duration)> {
    let begin = Instant::now();
    let last = async {
        loop {
            match answers.message().await {
                Ok(Some(_)) => {}
                Ok(None) => return Status::new(Code::Ok, "it ended by itself"),
                Err(status) => return status,
            }
        }
    };
    let status = tokio::time::timeout(within, last).await;
    ensure!(status.is_ok(), "a stream goes on after {} s", within.as_secs());
    Ok((status?, begin.elapsed()))
}
