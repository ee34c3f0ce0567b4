//! Who may do what: agents may send for their own node, the operator and readers may ask.
//!
//! The token is checked by `cluster::tokens`; here stands only what a caller may. That the API
//! server cannot be asked is UNAVAILABLE, never a refusal: the caller tries again.

use std::sync::Arc;

use futures::future::BoxFuture;
use keelson_cluster::tokens::{Outcome, Reviewer};
use keelson_model::NodeName;
use tonic::{Status, metadata::MetadataMap};

use crate::metrics::{Metrics, Refusal};

/// The agents' account.
pub const AGENT: &str = "system:serviceaccount:keelson-system:keelson-agent";
/// Accounts that may ask.
pub const READERS: [&str; 2] = [
    "system:serviceaccount:keelson-system:keelson-operator",
    "system:serviceaccount:keelson-system:keelson-reader",
];

/// Says whose a token is.
pub trait TokenCheck: Send + Sync {
    /// Checks one token for this service's audience.
    fn check<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Checked>;
}

impl TokenCheck for Reviewer {
    fn check<'a>(&'a self, token: &'a str) -> BoxFuture<'a, Checked> {
        Box::pin(async move {
            match self.review(token).await {
                Outcome::Ok(caller) => {
                    Checked::Caller(Caller { user: caller.user, node: caller.node_name })
                }
                Outcome::Denied(reason) => Checked::Denied(reason),
                Outcome::Unavailable => Checked::Unavailable,
            }
        })
    }
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Checked {
    /// The token is this caller's.
    Caller(Caller),
    /// It is nobody's, and why.
    Denied(String),
    /// The API server could not be asked.
    Unavailable,
}

/// Whose a token is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// For example `system:serviceaccount:keelson-system:keelson-agent`.
    pub user: String,
    /// The node of the pod that the token is bound to.
    pub node: Option<String>,
}

/// The gate in front of both services.
#[derive(Clone)]
pub struct Access {
    tokens: Arc<dyn TokenCheck>,
    metrics: Metrics,
}

// === impl Access ===

impl Access {
    /// A gate that asks `tokens`.
    #[must_use]
    pub fn new(tokens: Arc<dyn TokenCheck>, metrics: Metrics) -> Self {
        Self { tokens, metrics }
    }

    /// The node for which the caller may send.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED or UNAVAILABLE.
    pub async fn agent(&self, metadata: &MetadataMap) -> Result<NodeName, Status> {
        let caller = self.caller(metadata).await?;
        if caller.user != AGENT {
            return Err(self.denied(format!("{} may not send telemetry", caller.user)));
        }
        match caller.node {
            Some(node) => Ok(node.as_str().into()),
            None => Err(self.denied(
                "the token names no node: Kubernetes 1.30 or newer binds an agent's token to its node"
                    .into(),
            )),
        }
    }

    /// Whether the caller may ask.
    ///
    /// # Errors
    /// UNAUTHENTICATED, PERMISSION_DENIED or UNAVAILABLE.
    pub async fn reader(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let caller = self.caller(metadata).await?;
        if READERS.contains(&caller.user.as_str()) {
            return Ok(());
        }
        Err(self.denied(format!("{} may not query", caller.user)))
    }

    /// Refuses a message of a caller that is known.
    pub fn denied(&self, message: String) -> Status {
        self.metrics.refuse(Refusal::permission_denied, 1);
        Status::permission_denied(message)
    }

    async fn caller(&self, metadata: &MetadataMap) -> Result<Caller, Status> {
        let header = metadata.get("authorization").and_then(|value| value.to_str().ok());
        let Some(token) = header.and_then(|header| header.strip_prefix("Bearer ")) else {
            self.metrics.refuse(Refusal::unauthenticated, 1);
            return Err(Status::unauthenticated("no bearer token in the metadata `authorization`"));
        };
        match self.tokens.check(token).await {
            Checked::Caller(caller) => Ok(caller),
            Checked::Denied(reason) => {
                self.metrics.refuse(Refusal::unauthenticated, 1);
                Err(Status::unauthenticated(format!("the token is not accepted: {reason}")))
            }
            Checked::Unavailable => {
                self.metrics.refuse(Refusal::review_unavailable, 1);
                Err(Status::unavailable(
                    "the API server cannot be asked about the token; try again",
                ))
            }
        }
    }
}
