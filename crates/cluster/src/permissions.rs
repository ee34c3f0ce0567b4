//! What a user may, asked of the API server by SubjectAccessReview and remembered for a moment: the
//! cluster's own RBAC decides. That the server cannot be asked is no refusal.

use std::{sync::Arc, time::Duration};

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use keelson_model::limits;
use keelson_runtime::clock::Clock;
use kube::{Api, Client, api::PostParams};

use crate::{memory::Memory, tokens::User};

/// Group of the resource that stands for what kernels saw.
pub const GROUP: &str = "query.keelson.dev";
/// That resource; it exists for RBAC alone.
pub const FLOWS: &str = "flows";
/// How long an answer is believed.
const REMEMBER: Duration = Duration::from_secs(10);
const ASK_WITHIN: Duration = Duration::from_secs(5);

/// What the API server says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// The user may.
    Granted,
    /// The user may not.
    Denied,
    /// The API server cannot be asked.
    Unavailable,
}

/// Asks and remembers.
#[derive(Debug)]
pub struct Authorizer {
    reviews: Api<SubjectAccessReview>,
    clock: Arc<dyn Clock>,
    known: Memory<(User, Option<String>), bool>,
}

// === impl Authorizer ===

impl Authorizer {
    /// Asks by `client`.
    #[must_use]
    pub fn new(client: Client, clock: Arc<dyn Clock>) -> Self {
        let known = Memory::with_capacity(limits::PERMISSIONS_REMEMBERED);
        Self { reviews: Api::all(client), clock, known }
    }

    /// Whether `user` may get flows in a namespace, or in all of them.
    pub async fn may_get_flows(&self, user: &User, namespace: Option<&str>) -> Permission {
        let key = (user.clone(), namespace.map(str::to_owned));
        let now_ns = self.clock.unix_ns();
        if let Some(is_granted) = self.known.get(&key, now_ns) {
            return permission(is_granted);
        }
        let review = review(user, namespace);
        let params = PostParams::default();
        let answer = tokio::time::timeout(ASK_WITHIN, self.reviews.create(&params, &review)).await;
        match answer {
            Ok(Ok(review)) => {
                let is_granted = review.status.is_some_and(|status| status.allowed);
                let remember_ns = u64::try_from(REMEMBER.as_nanos()).unwrap_or(u64::MAX);
                self.known.put(key, is_granted, now_ns, now_ns.saturating_add(remember_ns));
                permission(is_granted)
            }
            Ok(Err(error)) => {
                let error = keelson_runtime::logs::chain(&error);
                tracing::warn!(error, "the API server cannot review an access");
                Permission::Unavailable
            }
            Err(_) => Permission::Unavailable,
        }
    }
}

fn permission(is_granted: bool) -> Permission {
    if is_granted { Permission::Granted } else { Permission::Denied }
}

fn review(user: &User, namespace: Option<&str>) -> SubjectAccessReview {
    let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: text(&user.name),
            uid: text(&user.uid),
            groups: Some(user.groups.clone()),
            extra: Some(user.extra.clone()),
            resource_attributes: Some(ResourceAttributes {
                group: Some(GROUP.to_owned()),
                resource: Some(FLOWS.to_owned()),
                verb: Some("get".to_owned()),
                // None: in every namespace.
                namespace: namespace.map(str::to_owned),
                ..Default::default()
            }),
            ..Default::default()
        },
        ..Default::default()
    }
}
