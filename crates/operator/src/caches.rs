//! Watch-based caches of what the reconcilers read; each change rings a bell.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use futures::{StreamExt, stream};
use k8s_openapi::api::{
    apps::v1::{DaemonSet, Deployment, StatefulSet},
    core::v1::Pod,
};
use keelson_api::{Application, validate::WorkloadKind};
use keelson_cluster::workload;
use keelson_runtime::{logs, shutdown::Shutdown};
use kube::{
    Api, Client, Resource, ResourceExt,
    core::DeserializeGuard,
    runtime::{
        WatchStreamExt,
        reflector::{ObjectRef, Store, reflector, store},
        watcher,
    },
};
use serde::de::DeserializeOwned;
use tokio::sync::Notify;

use crate::{
    converge::WorkloadFacts,
    evidence::Party,
    judge::verdict::{PodDirectory, PodFacts},
};

/// An Application, or why it cannot be read: one that cannot stalls no other.
pub type GuardedApplication = DeserializeGuard<Application>;

/// The caches.
#[derive(Clone)]
pub struct Caches {
    /// All Applications.
    pub applications: Store<GuardedApplication>,
    deployments: Store<Deployment>,
    stateful_sets: Store<StatefulSet>,
    daemon_sets: Store<DaemonSet>,
    pods: Store<Pod>,
    /// Rings at each change.
    pub bell: Arc<Notify>,
}

/// Pods by workload, and all by party.
#[derive(Debug, Default)]
pub struct PodIndex {
    /// Namespace, kind and name of the workload to its pods.
    pub by_workload: BTreeMap<(String, String, String), BTreeSet<Party>>,
    /// Every pod.
    pub directory: PodDirectory,
}

/// What keeps one cache fresh.
pub type Watch = futures::future::BoxFuture<'static, Result<(), watcher::Error>>;

// === impl Caches ===

impl Caches {
    /// The caches, and the watches that fill them, by name.
    #[must_use]
    pub fn new(client: &Client, shutdown: &Shutdown) -> (Self, Vec<(&'static str, Watch)>) {
        let bell = Arc::new(Notify::new());
        let (applications, watch_applications) = cache(client, &bell, shutdown);
        let (deployments, watch_deployments) = cache(client, &bell, shutdown);
        let (stateful_sets, watch_stateful_sets) = cache(client, &bell, shutdown);
        let (daemon_sets, watch_daemon_sets) = cache(client, &bell, shutdown);
        let (pods, watch_pods) = cache(client, &bell, shutdown);
        let caches = Self { applications, deployments, stateful_sets, daemon_sets, pods, bell };
        let watches = vec![
            ("applications", watch_applications),
            ("deployments", watch_deployments),
            ("statefulsets", watch_stateful_sets),
            ("daemonsets", watch_daemon_sets),
            ("pods", watch_pods),
        ];
        (caches, watches)
    }

    /// Returns when every cache has its first list.
    pub async fn synced(&self) {
        // A writer lives as long as its watch, and that as long as the process.
        let _ = self.applications.wait_until_ready().await;
        let _ = self.deployments.wait_until_ready().await;
        let _ = self.stateful_sets.wait_until_ready().await;
        let _ = self.daemon_sets.wait_until_ready().await;
        let _ = self.pods.wait_until_ready().await;
    }

    /// How a workload stands; none if it does not exist.
    #[must_use]
    pub fn workload(
        &self,
        kind: WorkloadKind,
        namespace: &str,
        name: &str,
    ) -> Option<WorkloadFacts> {
        match kind {
            WorkloadKind::Deployment => {
                let found = self.deployments.get(&ObjectRef::new(name).within(namespace))?;
                let status = found.status.clone().unwrap_or_default();
                let spec = found.spec.as_ref();
                Some(WorkloadFacts {
                    desired: spec.and_then(|spec| spec.replicas).unwrap_or(1),
                    ready: status.ready_replicas.unwrap_or(0),
                    updated: status.updated_replicas.unwrap_or(0),
                    is_observed: status.observed_generation >= found.metadata.generation,
                })
            }
            WorkloadKind::StatefulSet => {
                let found = self.stateful_sets.get(&ObjectRef::new(name).within(namespace))?;
                let status = found.status.clone().unwrap_or_default();
                let spec = found.spec.as_ref();
                Some(WorkloadFacts {
                    desired: spec.and_then(|spec| spec.replicas).unwrap_or(1),
                    ready: status.ready_replicas.unwrap_or(0),
                    updated: status.updated_replicas.unwrap_or(0),
                    is_observed: status.observed_generation >= found.metadata.generation,
                })
            }
            WorkloadKind::DaemonSet => {
                let found = self.daemon_sets.get(&ObjectRef::new(name).within(namespace))?;
                let status = found.status.clone().unwrap_or_default();
                Some(WorkloadFacts {
                    desired: status.desired_number_scheduled,
                    ready: status.number_ready,
                    updated: status.updated_number_scheduled.unwrap_or(0),
                    is_observed: status.observed_generation >= found.metadata.generation,
                })
            }
        }
    }

    /// All pods, indexed anew.
    #[must_use]
    pub fn pod_index(&self) -> PodIndex {
        let mut index = PodIndex::default();
        for pod in self.pods.state() {
            let (Some(uid), Some(namespace)) = (pod.uid(), pod.namespace()) else { continue };
            let party = Party::Pod(uid.into());
            let (name, node) = (pod.name_any(), pod.spec.as_ref());
            let node = node.and_then(|spec| spec.node_name.clone()).unwrap_or_default();
            let full_name = format!("{namespace}/{name}");
            let facts = PodFacts { full_name, name, node: node.into() };
            index.directory.insert(party.clone(), facts);
            if let Some(workload) = workload::of_pod(&pod.metadata) {
                let key = (namespace, workload.kind, workload.name);
                index.by_workload.entry(key).or_default().insert(party);
            }
        }
        index
    }
}

fn cache<K>(client: &Client, bell: &Arc<Notify>, shutdown: &Shutdown) -> (Store<K>, Watch)
where
    K: Resource + Clone + std::fmt::Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Default + Eq + std::hash::Hash + Clone + Send + Sync,
{
    let (reader, writer) = store::<K>();
    let api: Api<K> = Api::all_with(client.clone(), &K::DynamicType::default());
    let events = watcher(api, watcher::Config::default()).default_backoff().modify(|object| {
        object.managed_fields_mut().clear();
    });
    let (bell, shutdown) = (Arc::clone(bell), shutdown.clone());
    let watch = async move {
        let mut events =
            std::pin::pin!(reflector(writer, events).map(Some).chain(stream::once(async { None })));
        loop {
            let event = tokio::select! {
                event = events.next() => event.flatten(),
                () = shutdown.cancelled() => return Ok(()),
            };
            match event {
                Some(Ok(_)) => bell.notify_one(),
                Some(Err(error)) => {
                    let (kind, error) =
                        (K::kind(&K::DynamicType::default()).into_owned(), logs::chain(&error));
                    tracing::warn!(kind, error, "a watch broke; trying again");
                }
                None => return Ok(()),
            }
        }
    };
    (reader, Box::pin(watch))
}
