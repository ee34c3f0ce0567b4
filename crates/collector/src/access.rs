//! Who may do what: an agent may send for its own node, the operator sees everything, people see
//! what the cluster's RBAC lets them.
//!
//! Tokens and rights are checked by `cluster`; here stands only what follows from them. That the API
//! server cannot be asked is UNAVAILABLE, never a refusal: the caller tries again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures::future::BoxFuture;
use keelson_cluster::{
    COLLECTOR_AUDIENCE, certificates,
    permissions::{Authorizer, FLOWS, GROUP, Permission},
    tokens::{Audience, Caller, Outcome, Reviewer, User, is_for},
};
use keelson_model::{NodeName, PodUid, limits};
use keelson_runtime::clock::Clock;
use rustls_pki_types::CertificateDer;
use tonic::{
    Request, Status,
    metadata::MetadataMap,
    transport::server::{TcpConnectInfo, TlsConnectInfo},
};

use crate::{
    metrics::{Metrics, Refusal},
    sight::Sight,
};

/// The agents' account.
pub const AGENT: &str = "system:serviceaccount:keelson-system:keelson-agent";
/// The account whose evidence stream never ends: it is known by name, so that it costs no review.
pub const OPERATOR: &str = "system:serviceaccount:keelson-system:keelson-operator";
/// A stream or an answer ends so long after its caller's right did, at most; where the right is a
/// token, so long after the memory of it, which is ten minutes at most.
pub const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// What the API server is asked.
pub trait Checks: Send + Sync {
    /// Whose a token for this service is.
    fn service_token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Outcome>;
    /// Whose a token for the API server is.
    fn api_server_token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Outcome>;
    /// Whether a user may get flows in a namespace, or in all.
    fn may_get_flows<'a>(
        &'a self,
        user: &'a User,
        namespace: Option<&'a str>,
    ) -> BoxFuture<'a, Permission>;
}

/// The API server itself.
#[derive(Debug)]
pub struct ApiServer {
    service: Reviewer,
    person: Reviewer,
    authorizer: Authorizer,
}

/// Which node an agent is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentIdentity {
    /// Its node.
    pub node: NodeName,
    /// Its own pod.
    pub pod_uid: PodUid,
}

/// What a caller shows to be known by.
#[derive(Clone, Debug, Default)]
pub struct Credentials {
    token: Option<String>,
    /// As TLS believed it; the first is the caller's own.
    certificates: Option<Arc<Vec<CertificateDer<'static>>>>,
}

/// The gate in front of both services.
#[derive(Clone)]
pub struct Access {
    checks: Arc<dyn Checks>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    look_again: Duration,
}

// === impl ApiServer ===

impl ApiServer {
    /// Asks by `client`.
    #[must_use]
    pub fn new(client: &kube::Client, clock: &Arc<dyn Clock>) -> Self {
        let reviewer = |audience| Reviewer::new(client.clone(), audience, Arc::clone(clock));
        Self {
            service: reviewer(Audience::Service(COLLECTOR_AUDIENCE)),
            person: reviewer(Audience::ApiServer),
            authorizer: Authorizer::new(client.clone(), Arc::clone(clock)),
        }
    }
}

impl Checks for ApiServer {
    fn service_token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.service.review(token))
    }

    fn api_server_token<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Outcome> {
        Box::pin(self.person.review(token))
    }

    fn may_get_flows<'a>(
        &'a self,
        user: &'a User,
        namespace: Option<&'a str>,
    ) -> BoxFuture<'a, Permission> {
        Box::pin(self.authorizer.may_get_flows(user, namespace))
    }
}

// === impl Credentials ===

impl Credentials {
    /// Of a request.
    #[must_use]
    pub fn of<T>(request: &Request<T>) -> Self {
        let connection = request.extensions().get::<TlsConnectInfo<TcpConnectInfo>>();
        let certificates = connection.and_then(TlsConnectInfo::peer_certs);
        Self { token: bearer(request.metadata()), certificates }
    }
}

fn bearer(metadata: &MetadataMap) -> Option<String> {
    let header = metadata.get("authorization")?.to_str().ok()?;
    header.strip_prefix("Bearer ").map(str::to_owned)
}

// === impl Access ===

impl Access {
    /// A gate that asks `checks`, and again every `look_again` while a stream or an answer lasts.
    #[must_use]
    pub fn new(
        checks: Arc<dyn Checks>,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        look_again: Duration,
    ) -> Self {
        Self { checks, clock, metrics, look_again }
    }

    /// The node for which the caller may send.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED or UNAVAILABLE.
    pub async fn agent(&self, credentials: &Credentials) -> Result<AgentIdentity, Status> {
        let Some(token) = &credentials.token else { return Err(self.nobody()) };
        let Caller { user, pod_uid, node_name } =
            self.known(self.checks.service_token(token).await)?;
        if user.name != AGENT {
            return Err(self.denied(format!("{} may not send telemetry", user.name)));
        }
        match (node_name, pod_uid) {
            (Some(node), Some(pod)) => {
                Ok(AgentIdentity { node: node.as_str().into(), pod_uid: pod.as_str().into() })
            }
            _ => Err(self.denied(
                "the token names no pod and node: Kubernetes 1.30 or newer binds an agent's token to both"
                    .into(),
            )),
        }
    }

    /// What the caller may see, of the namespaces that it names.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED (it may see none of them) or UNAVAILABLE.
    pub async fn sight(
        &self,
        credentials: &Credentials,
        named: &BTreeSet<String>,
    ) -> Result<Sight, Status> {
        let user = self.person(credentials).await?;
        if user.name == OPERATOR || self.may(&user, None).await? {
            return Ok(Sight::All);
        }
        if named.len() > limits::QUERY_NAMESPACES {
            let limit = limits::QUERY_NAMESPACES;
            return Err(self.denied(format!(
                "{} may not get {FLOWS}.{GROUP} in all namespaces, and only {limit} can be named at once",
                user.name
            )));
        }
        let mut seen = BTreeSet::new();
        for namespace in named {
            if self.may(&user, Some(namespace)).await? {
                seen.insert(namespace.clone());
            }
        }
        if seen.is_empty() {
            let place = match named.iter().next() {
                None => "in all namespaces; name one".to_owned(),
                Some(first) if named.len() == 1 => format!("in namespace {first}"),
                Some(_) => "in any of the namespaces named".to_owned(),
            };
            return Err(self.denied(format!(
                "{} may not get {FLOWS}.{GROUP} {place}; the roles view, edit and admin of a namespace allow it",
                user.name
            )));
        }
        Ok(Sight::Namespaces(seen))
    }

    /// That the caller may see everything, for what cannot be told by namespace.
    ///
    /// # Errors
    /// As `sight`.
    pub async fn everything(&self, credentials: &Credentials) -> Result<Sight, Status> {
        self.sight(credentials, &BTreeSet::new()).await
    }

    /// Completes when what was granted does not hold any more; that the API server cannot be asked
    /// ends nothing.
    #[must_use]
    pub fn lost<T, F>(
        &self,
        granted: T,
        ask: impl Fn(Self) -> F + Send + 'static,
    ) -> BoxFuture<'static, Status>
    where
        T: PartialEq + Send + 'static,
        F: Future<Output = Result<T, Status>> + Send,
    {
        let access = self.clone();
        Box::pin(async move {
            loop {
                tokio::time::sleep(access.look_again).await;
                match ask(access.clone()).await {
                    Ok(now) if now == granted => {}
                    Ok(_) => return access.denied("your rights changed; ask again".into()),
                    Err(status) if status.code() == tonic::Code::Unavailable => {}
                    Err(status) => return status,
                }
            }
        })
    }

    /// Refuses a message of a caller that is known.
    pub fn denied(&self, message: String) -> Status {
        self.metrics.refuse(Refusal::permission_denied, 1);
        Status::permission_denied(message)
    }

    /// A token says who calls, else the certificate does.
    async fn person(&self, credentials: &Credentials) -> Result<User, Status> {
        if let Some(token) = &credentials.token {
            let outcome = if is_for(token, COLLECTOR_AUDIENCE) {
                self.checks.service_token(token).await
            } else {
                self.checks.api_server_token(token).await
            };
            return self.known(outcome).map(|caller| caller.user);
        }
        let certificate = credentials.certificates.as_deref().and_then(|chain| chain.first());
        let Some(certificate) = certificate else { return Err(self.nobody()) };
        let now = i64::try_from(self.clock.unix_ns() / 1_000_000_000).unwrap_or(i64::MAX);
        certificates::user(certificate, now).ok_or_else(|| {
            self.metrics.refuse(Refusal::unauthenticated, 1);
            Status::unauthenticated("the client certificate names no user, or has expired")
        })
    }

    fn known(&self, outcome: Outcome) -> Result<Caller, Status> {
        match outcome {
            Outcome::Ok(caller) => Ok(caller),
            Outcome::Denied(reason) => {
                self.metrics.refuse(Refusal::unauthenticated, 1);
                Err(Status::unauthenticated(format!("the token is not accepted: {reason}")))
            }
            Outcome::Unavailable => Err(self.unavailable("the token")),
        }
    }

    async fn may(&self, user: &User, namespace: Option<&str>) -> Result<bool, Status> {
        match self.checks.may_get_flows(user, namespace).await {
            Permission::Granted => Ok(true),
            Permission::Denied => Ok(false),
            Permission::Unavailable => Err(self.unavailable("your rights")),
        }
    }

    fn nobody(&self) -> Status {
        self.metrics.refuse(Refusal::unauthenticated, 1);
        Status::unauthenticated(
            "no bearer token in the metadata `authorization`, and no client certificate",
        )
    }

    fn unavailable(&self, what: &str) -> Status {
        self.metrics.refuse(Refusal::review_unavailable, 1);
        Status::unavailable(format!("the API server cannot be asked about {what}; try again"))
    }
}
