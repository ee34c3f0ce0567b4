//! The way to the collector: the authority from its ConfigMap, TLS inside the API server's
//! port-forward (the collector serves no address outside the cluster), and who calls: a short token
//! of ServiceAccount `keelson-reader`, who sees everything, where the caller may make one; else the
//! caller's own certificate or token, which sees what the caller's roles let it.

use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::{ConfigMap, Pod, ServiceAccount},
};
use keelson_model::limits;
use keelson_proto::query::query_client::QueryClient;
use kube::api::{Api, ListParams, PostParams};
use tonic::{
    Request,
    metadata::{Ascii, MetadataValue},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::{
    cluster::{Cluster, Own},
    error::CliError,
};

/// Where everything of Keelson runs.
pub const NAMESPACE: &str = "keelson-system";
const ACCOUNT: &str = "keelson-collector";
const READER: &str = "keelson-reader";
const AUDIENCE: &str = "keelson-collector";
const AUTHORITY: &str = "keelson-telemetry-ca";
const SERVER_NAME: &str = "keelson-collector.keelson-system.svc";
const PORT: u16 = 8443;
const TOKEN_SECONDS: i64 = 600;

/// The error that a pod's end of a forwarded port sends, if any.
type PortError = BoxFuture<'static, Option<String>>;

/// A connection to the collector.
#[derive(Clone, Debug)]
pub struct Collector {
    client: QueryClient<Channel>,
    /// None: the certificate says who calls.
    token: Option<MetadataValue<Ascii>>,
}

// === impl Collector ===

impl Collector {
    /// Connects.
    ///
    /// # Errors
    /// Each step has its own; see `CliError`.
    pub async fn connect(cluster: &Cluster) -> Result<Self, CliError> {
        let pod = ready_pod(cluster).await?;
        let authority = authority(cluster).await?;
        let mut tls = ClientTlsConfig::new()
            .ca_certificate(Certificate::from_pem(authority))
            .domain_name(SERVER_NAME);
        let token = match (reader_token(cluster).await, cluster.own_credentials()) {
            (Ok(token), _) => Some(bearer(&token)?),
            (Err(CliError::Forbidden { .. }), Some(Own::Token(token))) => Some(bearer(&token)?),
            (Err(CliError::Forbidden { .. }), Some(Own::Certificate(certificate, key))) => {
                tls = tls.identity(Identity::from_pem(certificate, key));
                None
            }
            (Err(error), _) => return Err(error),
        };
        let channel = channel(cluster, &pod, tls).await?;
        let client = QueryClient::new(channel)
            .max_decoding_message_size(limits::GRPC_MESSAGE_BYTES)
            .max_encoding_message_size(limits::GRPC_MESSAGE_BYTES);
        Ok(Self { client, token })
    }

    /// The query service.
    pub fn queries(&mut self) -> &mut QueryClient<Channel> {
        &mut self.client
    }

    /// A call that says who calls.
    pub fn call<T>(&self, message: T) -> Request<T> {
        let mut request = Request::new(message);
        if let Some(token) = &self.token {
            request.metadata_mut().insert("authorization", token.clone());
        }
        request
    }
}

async fn ready_pod(cluster: &Cluster) -> Result<String, CliError> {
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let selector = format!("spec.serviceAccountName={ACCOUNT}");
    let call = cluster.call("list the collector's pods", ("list", "pods"), NAMESPACE);
    let list = pods.list(&ListParams::default().fields(&selector)).await;
    choose(&list.map_err(|error| CliError::api(call, error))?.items)
}

/// The first ready pod that is not about to end.
fn choose(pods: &[Pod]) -> Result<String, CliError> {
    let named = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    if let Some(pod) = pods.iter().find(|pod| is_ready(pod)) {
        return Ok(named(pod));
    }
    if pods.is_empty() {
        return Err(CliError::NotInstalled { namespace: NAMESPACE });
    }
    let state = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.clone()).unwrap_or_default();
        format!("{} is {phase}", named(pod))
    };
    Err(CliError::NotReady { pods: pods.iter().map(state).collect() })
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    pod.metadata.deletion_timestamp.is_none()
        && conditions
            .into_iter()
            .any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

async fn authority(cluster: &Cluster) -> Result<String, CliError> {
    let maps: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let call = cluster.call("read the authority's certificate", ("get", "configmaps"), NAMESPACE);
    let map = maps.get_opt(AUTHORITY).await.map_err(|error| CliError::api(call, error))?;
    let bundle = map.and_then(|map| map.data).and_then(|mut data| data.remove("ca.crt"));
    bundle.ok_or(CliError::NoAuthority { namespace: NAMESPACE, name: AUTHORITY })
}

fn bearer(token: &str) -> Result<MetadataValue<Ascii>, CliError> {
    let mut value: MetadataValue<Ascii> = format!("Bearer {token}")
        .parse()
        .map_err(|_| CliError::Answer { message: "the token is no header value".into() })?;
    value.set_sensitive(true);
    Ok(value)
}

async fn reader_token(cluster: &Cluster) -> Result<String, CliError> {
    let accounts: Api<ServiceAccount> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let request = TokenRequest {
        spec: TokenRequestSpec {
            audiences: vec![AUDIENCE.into()],
            expiration_seconds: Some(TOKEN_SECONDS),
            bound_object_ref: None,
        },
        ..Default::default()
    };
    let call = cluster.call(
        "ask for a token of ServiceAccount keelson-reader",
        ("create", "serviceaccounts/token"),
        NAMESPACE,
    );
    let answer = accounts.create_token_request(READER, &PostParams::default(), &request).await;
    let status = answer.map_err(|error| CliError::api(call, error))?.status;
    Ok(status.map(|status| status.token).unwrap_or_default())
}

async fn channel(cluster: &Cluster, pod: &str, tls: ClientTlsConfig) -> Result<Channel, CliError> {
    let failed = |source: Box<dyn std::error::Error + Send + Sync>| CliError::Connect {
        pod: pod.to_owned(),
        source,
    };
    // The pods' own port-forward is asked for first, so that a refusal is told as one.
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), NAMESPACE);
    let call =
        cluster.call("forward a port of the collector", ("get", "pods/portforward"), NAMESPACE);
    let first = pods.portforward(pod, &[PORT]).await.map_err(|error| CliError::api(call, error))?;
    let first = Arc::new(Mutex::new(Some(first)));
    let port_error: Arc<Mutex<Option<PortError>>> = Arc::default();
    let endpoint = Endpoint::from_static("https://keelson-collector.keelson-system.svc:8443")
        .tls_config(tls)
        .map_err(|error| failed(Box::new(error)))?;
    let (name, errors) = (pod.to_owned(), Arc::clone(&port_error));
    let connector = tower::service_fn(move |_| {
        let (pods, name) = (pods.clone(), name.clone());
        let (first, errors) = (Arc::clone(&first), Arc::clone(&errors));
        async move {
            let ready = first.lock().unwrap_or_else(PoisonError::into_inner).take();
            let mut forwarder = match ready {
                Some(forwarder) => forwarder,
                None => pods.portforward(&name, &[PORT]).await.map_err(std::io::Error::other)?,
            };
            if let Some(error) = forwarder.take_error(PORT) {
                let mut slot = errors.lock().unwrap_or_else(PoisonError::into_inner);
                *slot = Some(Box::pin(error));
            }
            let stream = forwarder.take_stream(PORT);
            stream
                .map(TokioIo::new)
                .ok_or_else(|| std::io::Error::other("the port was not forwarded"))
        }
    });
    match endpoint.connect_with_connector(connector).await {
        Ok(channel) => Ok(channel),
        Err(error) => match told_by_the_pod(&port_error).await {
            Some(message) => Err(failed(message.into())),
            None => Err(failed(Box::new(error))),
        },
    }
}

/// What the pod's end of the forwarded port said, if it says it at once.
async fn told_by_the_pod(errors: &Mutex<Option<PortError>>) -> Option<String> {
    let error = errors.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    tokio::time::timeout(std::time::Duration::from_millis(200), error).await.ok().flatten()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::{
        api::core::v1::{PodCondition, PodStatus},
        apimachinery::pkg::apis::meta::v1::Time,
    };

    use super::*;

    fn pod(name: &str, ready: &str) -> Pod {
        let mut pod = Pod::default();
        pod.metadata.name = Some(name.into());
        let condition =
            PodCondition { type_: "Ready".into(), status: ready.into(), ..Default::default() };
        pod.status = Some(PodStatus {
            phase: Some("Running".into()),
            conditions: Some(vec![condition]),
            ..Default::default()
        });
        pod
    }

    #[test]
    fn the_first_ready_pod_is_chosen() {
        let mut ending = pod("ending", "True");
        ending.metadata.deletion_timestamp = Some(Time(k8s_openapi::jiff::Timestamp::UNIX_EPOCH));
        let chosen = choose(&[ending, pod("sick", "False"), pod("well", "True")]).unwrap();
        assert_eq!(chosen, "well");
    }

    #[test]
    fn nothing_installed_is_told_from_nothing_ready() {
        assert!(matches!(choose(&[]), Err(CliError::NotInstalled { .. })));
        let error = choose(&[pod("sick", "False")]).unwrap_err();
        assert_eq!(error.to_string(), "no collector pod is ready: sick is Running");
    }
}
