//! Keeps the index of this node's pods as the API server tells it.

use std::{
    collections::HashSet,
    pin::pin,
    sync::{Arc, Mutex, PoisonError},
};

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::Pod;
use keelson_cluster::workload;
use keelson_model::{NodeName, PodRef, PodUid, UnixNanos};
use keelson_runtime::{clock::Clock, logs, shutdown::Shutdown};
use kube::{
    Api, Client, ResourceExt,
    runtime::{WatchStreamExt, watcher, watcher::Event},
};

use super::PodIndex;

/// The index, and whether the watch stands.
#[derive(Clone, Debug, Default)]
pub struct SharedPods {
    index: Arc<Mutex<PodIndex>>,
    is_synced: Arc<std::sync::atomic::AtomicBool>,
}

// === impl SharedPods ===

impl SharedPods {
    /// Runs `f` with the index.
    pub fn with<T>(&self, f: impl FnOnce(&mut PodIndex) -> T) -> T {
        f(&mut self.index.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The list came and no watch broke since.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.is_synced.load(std::sync::atomic::Ordering::Relaxed)
    }

    fn set_synced(&self, is_synced: bool) {
        self.is_synced.store(is_synced, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Watches until shutdown; a watch that breaks begins anew with backoff.
///
/// # Errors
/// None; the type is that of a task.
pub async fn run(
    client: Client,
    node: NodeName,
    pods: SharedPods,
    clock: Arc<dyn Clock>,
    shutdown: Shutdown,
) -> Result<(), watcher::Error> {
    let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
    let api: Api<Pod> = Api::all(client);
    let mut events = pin!(watcher(api, config).default_backoff());
    let mut listed: HashSet<PodUid> = HashSet::new();
    loop {
        let event = tokio::select! {
            event = events.try_next() => event,
            () = shutdown.cancelled() => return Ok(()),
        };
        match event {
            Ok(Some(event)) => take(event, &mut listed, &node, &pods, UnixNanos(clock.unix_ns())),
            Ok(None) => return Ok(()),
            Err(error) => {
                pods.set_synced(false);
                let error = logs::chain(&error);
                tracing::warn!(error, "the watch of this node's pods broke; trying again");
            }
        }
    }
}

fn take(
    event: Event<Pod>,
    listed: &mut HashSet<PodUid>,
    node: &NodeName,
    pods: &SharedPods,
    now: UnixNanos,
) {
    match event {
        Event::Init => listed.clear(),
        Event::InitApply(pod) => {
            if let Some(pod) = reference(&pod, node) {
                listed.insert(pod.uid.clone());
                pods.with(|index| index.put(pod));
            }
        }
        Event::InitDone => {
            pods.with(|index| index.retain(listed, now));
            listed.clear();
            pods.set_synced(true);
        }
        Event::Apply(pod) => {
            pods.set_synced(true);
            if let Some(pod) = reference(&pod, node) {
                pods.with(|index| index.put(pod));
            }
        }
        Event::Delete(pod) => {
            if let Some(uid) = pod.uid() {
                pods.with(|index| index.remove(&uid.into(), now));
            }
        }
    }
}

fn reference(pod: &Pod, node: &NodeName) -> Option<PodRef> {
    let host_network = pod.spec.as_ref().and_then(|spec| spec.host_network) == Some(true);
    Some(PodRef {
        uid: pod.uid()?.into(),
        namespace: pod.namespace().unwrap_or_default(),
        name: pod.name_any(),
        node: node.clone(),
        workload: workload::of_pod(&pod.metadata),
        revision: workload::revision_of_pod(&pod.metadata),
        host_network,
    })
}
