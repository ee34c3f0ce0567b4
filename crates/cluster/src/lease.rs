//! Leader election by a Lease, and a client that writes while it leads and never otherwise.
//!
//! As client-go does it: a lease is another's for as long as its record changes within its duration,
//! by our own monotonic clock since we saw the change, never by the other's wall time. Who holds it
//! leads until the renew deadline after the last renewal *began*, which ends before the lease does.
//! No library of kube's version 5 does this: `kubert` 0.25 and `kube-leader-election` 0.44 are made
//! for older ones, and neither fences requests.

use std::{
    future::Future,
    task::{Context, Poll},
    time::Duration,
};

use futures::future::{Either, Ready, ready};
use http::{Method, Request};
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use keelson_runtime::{logs, shutdown::Shutdown};
use kube::{
    Api, Client, Config,
    api::PostParams,
    client::{Body, ClientBuilder},
};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};
use tower::{BoxError, Layer, Service};

/// How long a lease holds without a renewal.
const HOLDS: Duration = Duration::from_secs(15);
/// How long after the begin of its last renewal a holder leads.
const LEADS: Duration = Duration::from_secs(10);
const RENEW_EVERY: Duration = Duration::from_secs(2);
/// An attempt that takes longer is given up; shorter than [`LEADS`], so that another can follow.
const ATTEMPT: Duration = Duration::from_secs(4);

/// Whether we lead; it ends by itself when no renewal comes.
#[derive(Clone, Debug)]
pub struct Leadership(watch::Receiver<Option<Instant>>);

/// Takes part in an election.
pub struct Election {
    leases: Api<Lease>,
    name: &'static str,
    /// Ours; a pod's name, so that a container that comes back in its pod goes on at once.
    identity: String,
    leads_until: watch::Sender<Option<Instant>>,
    seen: Option<Seen>,
}

/// A lease as it was last seen to change.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    lease: Lease,
    at: Instant,
}

/// What to do with a lease.
#[derive(Clone, Debug, PartialEq)]
enum Step {
    /// It does not exist: make it ours.
    Create(Lease),
    /// It is ours, nobody's, or its holder is gone.
    Replace(Lease),
    /// Another's.
    Wait,
}

/// Refuses to send what could change something while we do not lead.
#[derive(Clone, Debug)]
pub struct Fence<S> {
    inner: S,
    leadership: Leadership,
}

/// Makes fences.
#[derive(Clone, Debug)]
pub struct FenceLayer(Leadership);

/// A request that was not sent.
#[derive(Debug, thiserror::Error)]
#[error("this replica does not lead, so it sends no {0}")]
pub struct Fenced(Method);

// === impl Leadership ===

impl Leadership {
    /// Whether we lead at this instant.
    #[must_use]
    pub fn leads(&self) -> bool {
        self.0.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until we lead.
    pub async fn gained(&self) {
        let mut held = self.0.clone();
        let leads = |until: &Option<Instant>| until.is_some_and(|until| Instant::now() < until);
        if held.wait_for(leads).await.is_err() {
            // The election has ended: nobody leads here any more.
            std::future::pending::<()>().await;
        }
    }

    /// A client that shares `config` and sends changes only while we lead.
    ///
    /// # Errors
    /// The configuration makes no client.
    pub fn fenced(&self, config: Config) -> kube::Result<Client> {
        Ok(ClientBuilder::try_from(config)?.with_layer(&FenceLayer(self.clone())).build())
    }
}

// === impl Election ===

impl Election {
    /// Takes part in the election of `name` in `namespace` as `identity`.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &'static str, identity: String) -> Self {
        let leases = Api::namespaced(client, namespace);
        Self { leases, name, identity, leads_until: watch::Sender::new(None), seen: None }
    }

    /// Whether we lead.
    #[must_use]
    pub fn leadership(&self) -> Leadership {
        Leadership(self.leads_until.subscribe())
    }

    /// Takes part until `ended`; a lease that is ours is then given up, so that another takes it at
    /// once. `ended` comes after the work that leads has ended, not when its end begins.
    ///
    /// # Errors
    /// None; the type is that of a task.
    pub async fn run(mut self, ended: Shutdown) -> Result<(), std::convert::Infallible> {
        while !ended.is_cancelled() {
            let began = Instant::now();
            match timeout(ATTEMPT, self.attempt()).await {
                Ok(Ok(true)) => self.lead_until(Some(began + LEADS)),
                Ok(Ok(false)) => self.lead_until(None),
                Ok(Err(error)) => {
                    let error = logs::chain(&error);
                    tracing::warn!(lease = self.name, error, "cannot renew or read the lease");
                }
                Err(_) => tracing::warn!(lease = self.name, "the lease took too long"),
            }
            tokio::select! {
                () = sleep(RENEW_EVERY) => {}
                () = ended.cancelled() => {}
            }
        }
        let led = self.leads_until.borrow().is_some();
        self.lead_until(None);
        if led {
            match timeout(ATTEMPT, self.give_up()).await {
                Ok(Ok(())) => tracing::info!(lease = self.name, "gave the lease up"),
                _ => tracing::warn!(lease = self.name, "could not give the lease up; it runs out"),
            }
        }
        Ok(())
    }

    /// Makes the lease ours or keeps it so; false: it is another's.
    async fn attempt(&mut self) -> kube::Result<bool> {
        let found = self.leases.get_opt(self.name).await?;
        let now = Instant::now();
        self.seen = found.map(|lease| see(self.seen.take(), lease, now));
        let step = step(self.seen.as_ref(), self.name, &self.identity, now, Timestamp::now());
        let params = PostParams::default();
        let written = match &step {
            Step::Wait => return Ok(false),
            Step::Create(lease) => self.leases.create(&params, lease).await,
            Step::Replace(lease) => self.leases.replace(self.name, &params, lease).await,
        };
        match written {
            Ok(lease) => {
                self.seen = Some(Seen { lease, at: now });
                Ok(true)
            }
            // Another was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn give_up(&self) -> kube::Result<()> {
        let Some(lease) = self.leases.get_opt(self.name).await? else { return Ok(()) };
        let spec = lease.spec.clone().unwrap_or_default();
        if spec.holder_identity.as_deref() != Some(&self.identity) {
            return Ok(());
        }
        let spec = LeaseSpec {
            holder_identity: None,
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(Timestamp::now())),
            ..spec
        };
        let lease = Lease { spec: Some(spec), ..lease };
        self.leases.replace(self.name, &PostParams::default(), &lease).await.map(|_| ())
    }

    fn lead_until(&self, until: Option<Instant>) {
        let leads = |held: &Option<Instant>| held.is_some_and(|held| Instant::now() < held);
        let led = leads(&self.leads_until.borrow());
        self.leads_until.send_replace(until);
        if led != until.is_some() {
            tracing::info!(lease = self.name, leads = until.is_some(), "leadership changed");
        }
    }
}

/// The lease as seen now; unchanged since it was seen, it keeps the time of that.
fn see(seen: Option<Seen>, lease: Lease, now: Instant) -> Seen {
    match seen {
        Some(seen) if seen.lease.spec == lease.spec => Seen { lease, at: seen.at },
        _ => Seen { lease, at: now },
    }
}

fn step(seen: Option<&Seen>, name: &str, me: &str, now: Instant, wall: Timestamp) -> Step {
    let ours = |spec: LeaseSpec| LeaseSpec {
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(HOLDS.as_secs()).ok(),
        renew_time: Some(MicroTime(wall)),
        ..spec
    };
    let Some(Seen { lease, at }) = seen else {
        let acquire_time = Some(MicroTime(wall));
        let spec = ours(LeaseSpec { acquire_time, ..LeaseSpec::default() });
        let metadata = ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() };
        return Step::Create(Lease { metadata, spec: Some(spec) });
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.as_deref().unwrap_or_default();
    let seconds = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
    let holds = seconds.map_or(HOLDS, Duration::from_secs);
    if holder != me && !holder.is_empty() && now.duration_since(*at) < holds {
        return Step::Wait;
    }
    let spec = if holder == me {
        ours(spec)
    } else {
        let lease_transitions = Some(spec.lease_transitions.unwrap_or(0).saturating_add(1));
        let acquire_time = Some(MicroTime(wall));
        ours(LeaseSpec { lease_transitions, acquire_time, ..spec })
    };
    Step::Replace(Lease { spec: Some(spec), ..lease.clone() })
}

// === impl Fence ===

impl<S> Layer<S> for FenceLayer {
    type Service = Fence<S>;

    fn layer(&self, inner: S) -> Fence<S> {
        Fence { inner, leadership: self.0.clone() }
    }
}

impl<S> Service<Request<Body>> for Fence<S>
where
    S: Service<Request<Body>, Error: Into<BoxError>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Either<MapError<S::Future>, Ready<Result<S::Response, BoxError>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let changes = request.method() != Method::GET && request.method() != Method::HEAD;
        if changes && !self.leadership.leads() {
            return Either::Right(ready(Err(Fenced(request.method().clone()).into())));
        }
        Either::Left(MapError(Box::pin(self.inner.call(request))))
    }
}

/// A future whose error is boxed.
pub struct MapError<F>(std::pin::Pin<Box<F>>);

impl<F, T, E> Future for MapError<F>
where
    F: Future<Output = Result<T, E>>,
    E: Into<BoxError>,
{
    type Output = Result<T, BoxError>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context).map_err(Into::into)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(by: &str, transitions: i32) -> Lease {
        let spec = LeaseSpec {
            holder_identity: (!by.is_empty()).then(|| by.to_owned()),
            lease_duration_seconds: Some(15),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        };
        Lease { metadata: ObjectMeta::default(), spec: Some(spec) }
    }

    /// The holder and transitions after a step; none: it waits.
    fn after(seen: Option<&Seen>, now: Instant) -> Option<(String, i32)> {
        let lease = match step(seen, "lease", "me", now, Timestamp::UNIX_EPOCH) {
            Step::Wait => return None,
            Step::Create(lease) | Step::Replace(lease) => lease,
        };
        let spec = lease.spec.unwrap();
        Some((spec.holder_identity.unwrap(), spec.lease_transitions.unwrap_or(0)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_taken_when_it_is_nobodys_ours_or_has_run_out_since_it_was_seen() {
        let now = Instant::now();
        let later = now + HOLDS;
        let seen = |by| Seen { lease: held(by, 3), at: now };
        let me = |transitions| Some(("me".to_owned(), transitions));
        assert_eq!(after(None, now), me(0));
        assert_eq!(after(Some(&seen("")), now), me(4));
        assert_eq!(after(Some(&seen("me")), now), me(3));
        assert_eq!(after(Some(&seen("other")), now), None);
        assert_eq!(after(Some(&seen("other")), later - Duration::from_nanos(1)), None);
        assert_eq!(after(Some(&seen("other")), later), me(4));
        // A renewal makes it young again; the same record does not.
        let renewed = Lease {
            spec: Some(LeaseSpec {
                renew_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
                ..held("other", 3).spec.unwrap()
            }),
            ..held("other", 3)
        };
        assert_eq!(after(Some(&see(Some(seen("other")), renewed, later)), later), None);
        assert_eq!(after(Some(&see(Some(seen("other")), held("other", 3), later)), later), me(4));
    }

    #[tokio::test(start_paused = true)]
    async fn leadership_ends_by_itself_and_the_fence_with_it() {
        let (sender, receiver) = watch::channel(None);
        let leadership = Leadership(receiver);
        let sent = tower::service_fn(|_: Request<Body>| ready(Ok::<_, BoxError>(())));
        let mut fence = FenceLayer(leadership.clone()).layer(sent);
        let mut send = |method: Method| {
            let request = Request::builder().method(method).body(Body::empty()).unwrap();
            fence.call(request)
        };
        assert!(!leadership.leads());
        assert!(send(Method::GET).await.is_ok());
        assert!(send(Method::PATCH).await.unwrap_err().is::<Fenced>());
        sender.send_replace(Some(Instant::now() + LEADS));
        assert!(leadership.leads());
        for method in [Method::PATCH, Method::POST, Method::PUT, Method::DELETE] {
            assert!(send(method).await.is_ok());
        }
        tokio::time::advance(LEADS).await;
        assert!(!leadership.leads());
        assert!(send(Method::POST).await.unwrap_err().is::<Fenced>());
    }
}
