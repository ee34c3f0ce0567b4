//! Whose a bearer token is, asked of the API server by TokenReview and remembered by the token's
//! hash. That the server cannot be asked is no refusal.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use keelson_model::limits;
use keelson_runtime::clock::Clock;
use kube::{Api, Client, api::PostParams};
use sha2::{Digest, Sha256};

use crate::memory::Memory;

/// Longest that an answer is believed.
const REMEMBER: Duration = Duration::from_secs(600);
/// A refusal is believed for long enough to stop a loop, not for longer.
const REMEMBER_REFUSAL: Duration = Duration::from_secs(10);
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// Longest token that is looked at.
const TOKEN_BYTES: usize = 16 * 1024;

/// Who calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// Whom the API server's authorizers would see.
    pub user: User,
    /// Uid of the pod that the token is bound to.
    pub pod_uid: Option<String>,
    /// Node that the pod runs on; Kubernetes 1.30 or newer.
    pub node_name: Option<String>,
}

/// A user as the API server's authorizers see one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct User {
    /// For example `system:serviceaccount:keelson-system:keelson-agent`.
    pub name: String,
    /// Empty where there is none.
    pub uid: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// What its authenticator adds.
    pub extra: BTreeMap<String, Vec<String>>,
}

/// For whom tokens must be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Audience {
    /// This service.
    Service(&'static str),
    /// The API server, as a person's own token is.
    ApiServer,
}

/// What the API server says of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is good for the audience.
    Ok(Caller),
    /// It is not, and why.
    Denied(String),
    /// The API server cannot be asked.
    Unavailable,
}

/// Asks and remembers.
#[derive(Debug)]
pub struct Reviewer {
    audience: Audience,
    reviews: Option<Api<TokenReview>>,
    clock: Arc<dyn Clock>,
    known: Memory<[u8; 32], Outcome>,
}

// === impl Reviewer ===

impl Reviewer {
    /// A reviewer of tokens for `audience`.
    #[must_use]
    pub fn new(client: Client, audience: Audience, clock: Arc<dyn Clock>) -> Self {
        let reviews = Some(Api::all(client));
        let known = Memory::with_capacity(limits::TOKENS_REMEMBERED);
        Self { audience, reviews, clock, known }
    }

    /// Whose the token is. An answer is remembered until the token expires, at most ten minutes.
    pub async fn review(&self, token: &str) -> Outcome {
        if token.len() > TOKEN_BYTES {
            return Outcome::Denied(format!("it is longer than {TOKEN_BYTES} bytes"));
        }
        let hash: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        if let Some(outcome) = self.known.get(&hash, self.clock.unix_ns()) {
            return outcome;
        }
        let outcome = self.ask(token).await;
        self.remember(hash, token, &outcome);
        outcome
    }

    async fn ask(&self, token: &str) -> Outcome {
        let Some(reviews) = &self.reviews else { return Outcome::Unavailable };
        let spec = TokenReviewSpec {
            audiences: self.audience.service().map(|service| vec![service.to_owned()]),
            token: Some(token.to_owned()),
        };
        let review = TokenReview { spec, ..Default::default() };
        let params = PostParams::default();
        let answer = tokio::time::timeout(ASK_WITHIN, reviews.create(&params, &review)).await;
        match answer {
            Ok(Ok(review)) => judge(review, &self.audience),
            Ok(Err(error)) => {
                let error = keelson_runtime::logs::chain(&error);
                tracing::warn!(error, "the API server cannot review a token");
                Outcome::Unavailable
            }
            Err(_) => Outcome::Unavailable,
        }
    }

    fn remember(&self, hash: [u8; 32], token: &str, outcome: &Outcome) {
        let now = self.clock.unix_ns();
        let most = match outcome {
            Outcome::Ok(_) => REMEMBER,
            Outcome::Denied(_) => REMEMBER_REFUSAL,
            Outcome::Unavailable => return,
        };
        let most = now.saturating_add(nanos(most));
        let until_ns = expiry_ns(token).map_or(most, |expiry| expiry.min(most));
        self.known.put(hash, outcome.clone(), now, until_ns);
    }
}

// === impl Audience ===

impl Audience {
    fn service(&self) -> Option<&'static str> {
        match self {
            Self::Service(name) => Some(name),
            Self::ApiServer => None,
        }
    }
}

fn judge(review: TokenReview, audience: &Audience) -> Outcome {
    let status = review.status.unwrap_or_default();
    if status.authenticated != Some(true) {
        let reason = status.error.unwrap_or_else(|| "the API server does not know it".into());
        return Outcome::Denied(reason);
    }
    // A server that does not know audiences answers without them: its yes means nothing here.
    if let Some(service) = audience.service()
        && !status.audiences.unwrap_or_default().iter().any(|known| known == service)
    {
        return Outcome::Denied(format!("it is not for the audience {service}"));
    }
    Outcome::Ok(caller(status.user.unwrap_or_default()))
}

fn caller(user: UserInfo) -> Caller {
    let extra = user.extra.unwrap_or_default();
    let first = |key: &str| extra.get(key).and_then(|values| values.first()).cloned();
    Caller {
        pod_uid: first("authentication.kubernetes.io/pod-uid"),
        node_name: first("authentication.kubernetes.io/node-name"),
        user: User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra,
        },
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// The claim `exp` of a JWT as Unix nanoseconds. Only to forget in time: the API server judges.
#[must_use]
pub fn expiry_ns(token: &str) -> Option<u64> {
    claims(token)?.get("exp")?.as_u64()?.checked_mul(1_000_000_000)
}

/// Whether a JWT says that it is for `audience`. Only to choose whom to ask: the API server judges.
#[must_use]
pub fn is_for(token: &str, audience: &str) -> bool {
    let claims = claims(token).unwrap_or_default();
    match claims.get("aud") {
        Some(serde_json::Value::Array(all)) => all.iter().any(|one| one == audience),
        Some(one) => one == audience,
        None => false,
    }
}

fn claims(token: &str) -> Option<serde_json::Value> {
    serde_json::from_slice(&decode_base64_url(token.split('.').nth(1)?)?).ok()
}

fn decode_base64_url(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let (mut bits, mut count) = (0_u32, 0_u32);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            b'=' => continue,
            _ => return None,
        };
        bits = (bits << 6) | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from((bits >> count) & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::authentication::v1::TokenReviewStatus;

    use super::*;

    const OURS: Audience = Audience::Service("ours");

    fn answer(status: TokenReviewStatus) -> TokenReview {
        TokenReview { status: Some(status), ..Default::default() }
    }

    #[test]
    fn a_yes_without_our_audience_is_a_no() {
        let yes = TokenReviewStatus { authenticated: Some(true), ..Default::default() };
        assert!(matches!(judge(answer(yes.clone()), &OURS), Outcome::Denied(_)));
        let audiences = Some(vec!["ours".to_owned()]);
        let ours = TokenReviewStatus { audiences, ..yes };
        assert_eq!(judge(answer(ours), &OURS), Outcome::Ok(Caller::default()));
        assert!(matches!(judge(TokenReview::default(), &OURS), Outcome::Denied(_)));
        let persons = TokenReviewStatus { authenticated: Some(true), ..Default::default() };
        let person = Outcome::Ok(Caller::default());
        assert_eq!(judge(answer(persons), &Audience::ApiServer), person);
    }

    #[test]
    fn the_node_comes_from_the_users_extra() {
        let key = "authentication.kubernetes.io/node-name".to_owned();
        let extra = Some([(key, vec!["node-a".to_owned()])].into());
        let user = UserInfo { extra, ..Default::default() };
        assert_eq!(caller(user).node_name.as_deref(), Some("node-a"));
    }

    #[test]
    fn the_expiry_is_read_from_the_payload_and_from_nothing_else() {
        // {"exp":1700000000}
        assert_eq!(expiry_ns("e30.eyJleHAiOjE3MDAwMDAwMDB9.x"), Some(1_700_000_000_000_000_000));
        for token in ["", "a.b.c", "e30.e30.x", "no token"] {
            assert_eq!(expiry_ns(token), None, "{token}");
        }
    }

    #[test]
    fn the_audience_is_read_from_the_payload() {
        // {"aud":["ours"]} and {"aud":"ours"}
        for token in ["e30.eyJhdWQiOlsib3VycyJdfQ.x", "e30.eyJhdWQiOiJvdXJzIn0.x"] {
            assert!(is_for(token, "ours") && !is_for(token, "theirs"), "{token}");
        }
        assert!(!is_for("", "ours") && !is_for("e30.e30.x", "ours"));
    }

    #[tokio::test]
    async fn an_answer_is_remembered_until_its_time() {
        let clock = Arc::new(keelson_runtime::clock::ManualClock::at(1));
        let reviewer = Reviewer {
            audience: OURS,
            reviews: None,
            clock: Arc::clone(&clock) as _,
            known: Memory::with_capacity(1),
        };
        assert_eq!(reviewer.review("token").await, Outcome::Unavailable);
        let hash = Sha256::digest(b"token").into();
        reviewer.remember(hash, "token", &Outcome::Ok(Caller::default()));
        assert_eq!(reviewer.review("token").await, Outcome::Ok(Caller::default()));
        clock.advance(nanos(REMEMBER));
        assert_eq!(reviewer.review("token").await, Outcome::Unavailable);
    }
}
