//! The thin shell: wakes on changes, evidence and time, asks the pure parts of every Application,
//! and writes what differs.
//!
//! Level-triggered: it looks at the caches as they are, never at the event that woke it.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Duration,
};

use futures::{StreamExt, stream};
use jiff::Timestamp;
use keelson_api::{
    Application, ApplicationStatus,
    application::HealthStatus,
    conditions::{ConditionType, HealthReason},
    validate::{FieldError, ValidatedApplication, validate},
};
use keelson_cluster::lease::Leadership;
use keelson_model::limits;
use keelson_runtime::{admin::Condition, backoff::Backoff, clock::Clock, logs, shutdown::Shutdown};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{Patch, PatchParams},
    runtime::events::{Event, EventType, Recorder, Reporter},
};
use serde_json::json;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::{
    caches::{Caches, PodIndex},
    converge::{self, Converged},
    evidence::stream::SharedEvidence,
    judge::verdict::Judgement,
    metrics::Metrics,
    status::{self, Wanted},
};

/// Field manager of Ready, Stalled, Available, Progressing, phase and workload.
pub const CONVERGE: &str = "keelson-converge";
/// Field manager of KernelHealthy and its evidence.
pub const JUDGE: &str = "keelson-judge";

/// Changes come in bursts: one look for all of a burst.
const BURST: Duration = Duration::from_millis(100);
const EVERY: Duration = Duration::from_secs(5);
/// How long a status that we wrote is believed over an older one in the cache.
const OVERLAY: Duration = Duration::from_secs(30);
const FIRST_WAIT: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Longest note of an Event (events.k8s.io/v1).
const NOTE_BYTES: usize = 1024;

/// What the shell works with.
pub struct Engine {
    /// To write.
    pub client: Client,
    /// To read.
    pub caches: Caches,
    /// To judge by.
    pub evidence: Arc<SharedEvidence>,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Counters.
    pub metrics: Metrics,
    /// Told when the caches have their first lists.
    pub synced: Condition,
    /// Who does not lead only keeps its caches warm.
    pub leadership: Leadership,
}

/// What is kept of an Application between two looks.
#[derive(Default)]
struct Memory {
    judgement: Judgement,
    /// Its status as our last write left it.
    written: Option<(Application, Instant)>,
    /// Not before, after a failure.
    retry: Option<(Backoff, Instant)>,
}

/// One Application to be looked at.
struct Task {
    application: Arc<Application>,
    memory: Memory,
}

// === impl Engine ===

impl Engine {
    /// Runs until shutdown.
    ///
    /// # Errors
    /// None; the type is that of a task.
    pub async fn run(self, shutdown: Shutdown) -> Result<(), anyhow::Error> {
        tokio::select! {
            () = self.caches.synced() => {}
            () = shutdown.cancelled() => return Ok(()),
        }
        self.metrics.synced.set(1);
        self.synced.set(true);
        let mut memories: HashMap<String, Memory> = HashMap::new();
        let mut ticks = interval(EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while !shutdown.is_cancelled() {
            if !self.leadership.leads() {
                // Another has judged meanwhile: what it wrote is what there is.
                memories.clear();
                self.metrics.leads.set(0);
                tokio::select! {
                    () = self.leadership.gained() => {}
                    () = shutdown.cancelled() => return Ok(()),
                }
                self.metrics.leads.set(1);
            }
            tokio::select! {
                () = self.caches.bell.notified() => sleep(BURST).await,
                () = self.evidence.bell.notified() => {}
                _ = ticks.tick() => {}
                () = shutdown.cancelled() => return Ok(()),
            }
            memories = self.look(memories).await;
        }
        Ok(())
    }

    async fn look(&self, mut memories: HashMap<String, Memory>) -> HashMap<String, Memory> {
        let index = self.caches.pod_index();
        let mut tasks = Vec::new();
        for guarded in self.caches.applications.state() {
            match &guarded.0 {
                Ok(application) => {
                    let Some(uid) = application.uid() else { continue };
                    let memory = memories.remove(&uid).unwrap_or_else(|| seed(application));
                    let application = Arc::new(application.clone());
                    tasks.push((uid, Task { application, memory }));
                }
                Err(invalid) => {
                    self.metrics.undecodable.inc();
                    let name = invalid.metadata.name.as_deref();
                    let error = logs::chain(invalid);
                    tracing::warn!(name, error, "an Application cannot be read");
                }
            }
        }
        self.metrics.applications.set(i64::try_from(tasks.len()).unwrap_or(i64::MAX));
        stream::iter(tasks)
            .map(|(uid, task)| async { (uid, self.reconcile(task, &index).await) })
            .buffer_unordered(limits::OPERATOR_RECONCILES)
            .collect()
            .await
    }

    async fn reconcile(&self, task: Task, index: &PodIndex) -> Memory {
        let Task { application, mut memory } = task;
        if memory.retry.as_ref().is_some_and(|(_, until)| Instant::now() < *until) {
            return memory;
        }
        self.metrics.reconciles.inc();
        let latest = latest(&application, memory.written.as_ref());
        match self.converge_and_judge(&latest, &mut memory, index).await {
            Ok(()) => memory.retry = None,
            Err(error) => {
                self.metrics.errors.inc();
                let (name, namespace) = (latest.name_any(), latest.namespace());
                let error = logs::chain(&error);
                tracing::warn!(name, namespace, error, "cannot write a status; trying again");
                let retry = memory.retry.take().map(|(backoff, _)| backoff);
                let mut backoff = retry.unwrap_or_else(|| Backoff::new(FIRST_WAIT, LONGEST_WAIT));
                let wait = backoff.next_wait();
                memory.retry = Some((backoff, Instant::now() + wait));
            }
        }
        memory
    }

    async fn converge_and_judge(
        &self,
        application: &Application,
        memory: &mut Memory,
        index: &PodIndex,
    ) -> kube::Result<()> {
        let namespace = application.namespace().unwrap_or_default();
        let valid = validate(&application.spec, &namespace);
        let now = Timestamp::now();
        let status = application.status.as_ref();
        let generation = application.metadata.generation;

        let converged = self.converge(&valid, &namespace, status);
        // Neither writer waits for the other: a conflict of one keeps no verdict back.
        let converge_written = match converge::must_write(&converged, status, generation) {
            true => {
                let patch = converge_patch(&converged, status, generation, now);
                self.write(application, CONVERGE, patch, memory).await
            }
            false => Ok(()),
        };

        let is_there = converged.workload.is_some();
        let valid = valid.ok().filter(|_| is_there);
        let held = status.and_then(|status| status.health.as_ref());
        let (wanted, health) = self.judge(valid, &namespace, memory, index, held);
        if status::must_write_health(&wanted, &health, status, generation, now) {
            let held = status::held(status, ConditionType::KernelHealthy);
            let is_change = held.is_none_or(|held| held.status != wanted.status);
            let condition = status::condition(wanted.clone(), held, generation, now);
            let patch = json!({"conditions": [condition], "health": health});
            self.write(application, JUDGE, patch, memory).await?;
            if is_change {
                self.publish(application, &wanted).await;
            }
        }
        converge_written
    }

    fn converge(
        &self,
        valid: &Result<ValidatedApplication, Vec<FieldError>>,
        namespace: &str,
        status: Option<&ApplicationStatus>,
    ) -> Converged {
        match valid {
            Ok(valid) => {
                let facts = self.caches.workload(valid.kind, namespace, &valid.name);
                converge::converge(valid, facts, status)
            }
            Err(errors) => converge::invalid(errors),
        }
    }

    fn judge(
        &self,
        valid: Option<ValidatedApplication>,
        namespace: &str,
        memory: &mut Memory,
        index: &PodIndex,
        held: Option<&HealthStatus>,
    ) -> (Wanted, HealthStatus) {
        let judgement = &mut memory.judgement;
        let Some(valid) = valid else {
            judgement.restart(HealthReason::NotJudged);
            return status::health(judgement, &index.directory, held);
        };
        let key = (namespace.to_owned(), valid.kind.as_str().to_owned(), valid.name);
        let none = BTreeSet::new();
        let pods = index.by_workload.get(&key).unwrap_or(&none);
        let cache = self.evidence.lock();
        let windows = cache.after(judgement.last);
        judgement.read(windows, pods, &index.directory, &valid.policy);
        let newest = cache.newest().map_or(0, |window| window.end().0);
        drop(cache);
        let age_ns = self.clock.unix_ns().saturating_sub(newest.max(self.metrics.began_ns()));
        if u128::from(age_ns) > valid.policy.freshness.as_nanos() {
            judgement.restart(HealthReason::Stale);
        }
        status::health(judgement, &index.directory, held)
    }

    async fn write(
        &self,
        application: &Application,
        manager: &str,
        status: serde_json::Value,
        memory: &mut Memory,
    ) -> kube::Result<()> {
        let namespace = application.namespace().unwrap_or_default();
        let api: Api<Application> = Api::namespaced(self.client.clone(), &namespace);
        let patch = json!({
            "apiVersion": Application::api_version(&()),
            "kind": Application::kind(&()),
            "metadata": {"name": application.name_any(), "uid": application.uid()},
            "status": status,
        });
        let params = PatchParams::apply(manager).force();
        let written =
            api.patch_status(&application.name_any(), &params, &Patch::Apply(&patch)).await?;
        self.metrics.writes.inc();
        memory.written = Some((written, Instant::now()));
        Ok(())
    }

    async fn publish(&self, application: &Application, wanted: &Wanted) {
        let reporter = Reporter { controller: "keelson-operator".into(), instance: None };
        let recorder = Recorder::new(self.client.clone(), reporter);
        let type_ = match wanted.status {
            "False" => EventType::Warning,
            _ => EventType::Normal,
        };
        let mut note = format!("KernelHealthy is {}: {}", wanted.status, wanted.message);
        let end = (0..=NOTE_BYTES.min(note.len())).rev().find(|end| note.is_char_boundary(*end));
        note.truncate(end.unwrap_or(0));
        let event = Event {
            type_,
            reason: wanted.reason.to_owned(),
            note: Some(note),
            action: "Judge".into(),
            secondary: None,
        };
        // An Event is a courtesy: the condition stands without it.
        if let Err(error) = recorder.publish(&event, &application.object_ref(&())).await {
            self.metrics.errors.inc();
            tracing::warn!(error = logs::chain(&error), "cannot publish an Event");
        }
    }
}

fn seed(application: &Application) -> Memory {
    let stored = status::stored(application.status.as_ref());
    let judgement = stored.map_or_else(Judgement::default, Judgement::seeded);
    Memory { judgement, ..Memory::default() }
}

/// The newer of the cache's object and our last write. Resource versions are compared as numbers,
/// as they are with etcd; where they are not, the cache counts.
fn latest(cached: &Arc<Application>, written: Option<&(Application, Instant)>) -> Arc<Application> {
    let version = |application: &Application| {
        application.resource_version().and_then(|version| version.parse::<u64>().ok())
    };
    match written {
        Some((written, at)) if at.elapsed() < OVERLAY && version(written) > version(cached) => {
            Arc::new(written.clone())
        }
        _ => Arc::clone(cached),
    }
}

fn converge_patch(
    converged: &Converged,
    status: Option<&ApplicationStatus>,
    generation: Option<i64>,
    now: Timestamp,
) -> serde_json::Value {
    let conditions: Vec<_> = converged
        .conditions
        .iter()
        .map(|wanted| {
            let held = status::held(status, wanted.kind);
            status::condition(wanted.clone(), held, generation, now)
        })
        .collect();
    let mut patch = json!({
        "observedGeneration": generation,
        "phase": converged.phase,
        "conditions": conditions,
    });
    if let Some(workload) = &converged.workload {
        patch["workload"] = json!(workload);
    }
    patch
}
