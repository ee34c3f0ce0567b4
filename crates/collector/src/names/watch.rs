//! Feeds the index from watches of Pods, Nodes and Services.
//!
//! A thin shell: each event becomes claims by `facts`; a relist ends what is no longer there. A
//! watch that breaks is begun again with growing pauses, and the names known so far stay.

use std::{collections::HashSet, fmt::Debug, sync::Arc};

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::core::v1::{Node, Pod, Service};
use keelson_runtime::admin::Condition;
use kube::{
    Api, Client, Resource,
    runtime::{
        WatchStreamExt,
        watcher::{self, Event},
    },
};
use serde::de::DeserializeOwned;

use super::{Claim, Holder, HolderKind, facts};
use crate::shared::Shared;

/// A watch ends only with the process.
type Watched = Result<(), std::convert::Infallible>;

/// Objects in one page of a list.
const PAGE: u32 = 500;

/// How one kind of object becomes claims.
struct Kind<K> {
    kind: HolderKind,
    claim: fn(&K) -> Option<Claim>,
    holder: fn(&K) -> Option<Holder>,
}

/// Watches Pods of all namespaces. `synced` holds once the first list is in.
///
/// # Errors
/// None; the type is that of a task.
pub async fn pods(client: Client, shared: Arc<Shared>, synced: Condition) -> Watched {
    let kind = Kind { kind: HolderKind::Pod, claim: facts::pod, holder: facts::pod_holder };
    watch(Api::<Pod>::all(client), kind, &shared, &synced).await;
    Ok(())
}

/// Watches Nodes. `synced` holds once the first list is in.
///
/// # Errors
/// None; the type is that of a task.
pub async fn nodes(client: Client, shared: Arc<Shared>, synced: Condition) -> Watched {
    let kind = Kind { kind: HolderKind::Node, claim: facts::node, holder: facts::node_holder };
    watch(Api::<Node>::all(client), kind, &shared, &synced).await;
    Ok(())
}

/// Watches Services of all namespaces. `synced` holds once the first list is in.
///
/// # Errors
/// None; the type is that of a task.
pub async fn services(client: Client, shared: Arc<Shared>, synced: Condition) -> Watched {
    let kind =
        Kind { kind: HolderKind::Service, claim: facts::service, holder: facts::service_holder };
    watch(Api::<Service>::all(client), kind, &shared, &synced).await;
    Ok(())
}

async fn watch<K>(api: Api<K>, kind: Kind<K>, shared: &Shared, synced: &Condition)
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().page_size(PAGE);
    let events = watcher::watcher(api, config).default_backoff();
    pin_mut!(events);
    let mut present = HashSet::new();
    loop {
        let event = tokio::select! {
            event = events.next() => event,
            () = shared.draining.cancelled() => return,
        };
        match event {
            Some(Ok(event)) => {
                if take(event, &kind, &mut present, shared) {
                    synced.set(true);
                }
            }
            Some(Err(error)) => {
                let error = keelson_runtime::logs::chain(&error);
                tracing::warn!(kind = ?kind.kind, error, "a watch broke and begins again");
            }
            None => return,
        }
    }
}

/// Takes one event; true when a list is in.
fn take<K>(
    event: Event<K>,
    kind: &Kind<K>,
    present: &mut HashSet<Holder>,
    shared: &Shared,
) -> bool {
    let now = shared.now();
    match event {
        Event::Init => present.clear(),
        Event::InitApply(object) => {
            present.extend((kind.holder)(&object));
            claim(kind, &object, shared);
        }
        Event::InitDone => {
            shared.names_mut().retain(kind.kind, present, now);
            present.clear();
            return true;
        }
        Event::Apply(object) => claim(kind, &object, shared),
        Event::Delete(object) => {
            if let Some(holder) = (kind.holder)(&object) {
                shared.names_mut().remove(&holder, now);
            }
        }
    }
    false
}

fn claim<K>(kind: &Kind<K>, object: &K, shared: &Shared) {
    if let Some(claim) = (kind.claim)(object) {
        shared.names_mut().set(claim, shared.now());
    }
}
