//! `keelson explain application`: gathers what is known and prints it in words.
//!
//! A thin shell: it asks the API server and the collector; `words` and `live` say it. A collector
//! that cannot be asked leaves the rest explained.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::{api::core::v1::Pod, apimachinery::pkg::apis::meta::v1::LabelSelector};
use keelson_api::{
    application::Application,
    validate::{WorkloadKind, is_object_name},
};
use kube::{
    api::{Api, ApiResource, DynamicObject, ListParams},
    core::{GroupVersionKind, Selector},
};

use crate::{
    application,
    args::View,
    cluster::Cluster,
    collector::Collector,
    error::{self, CliError, status_code},
    observe,
    request::{Ask, filters, unix_nanos},
};
use keelson_proto::query as wire;

pub mod live;
pub mod words;

use words::{Facts, Live, PodFacts};

/// So much of the past counts as live.
const LIVE: SignedDuration = SignedDuration::from_secs(60);

/// Explains one Application.
///
/// # Errors
/// It cannot be read, or the output cannot be written.
pub async fn run(cluster: &Cluster, name: &str) -> Result<(), CliError> {
    let application = application::read(cluster, name).await?;
    let (pods, live) = tokio::join!(pods(cluster, &application), live(cluster, &application));
    let live = match live {
        Ok(flows) => Live::Flows(flows),
        Err(failure) => {
            Live::Unavailable { problem: error::chain(&failure), remedy: failure.remedy() }
        }
    };
    let facts = Facts { application: &application, pods: pods?, live };
    observe::put(&words::explain(&facts)).map(|_| ())
}

/// The pods that the workload's selector names; none: the workload does not exist.
async fn pods(
    cluster: &Cluster,
    application: &Application,
) -> Result<Option<Vec<PodFacts>>, CliError> {
    let namespace = application.metadata.namespace.clone().unwrap_or_default();
    let reference = &application.spec.workload.reference;
    let call = cluster.call("read the workload", ("get", "deployments.apps"), &namespace);
    // What cannot be adopted is not looked for; the condition says what is wrong.
    let kind = WorkloadKind::parse(&reference.kind);
    let Some(kind) = kind.filter(|_| is_object_name(&reference.name)) else { return Ok(None) };
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("apps", "v1", kind.as_str()));
    let workloads: Api<DynamicObject> =
        Api::namespaced_with(cluster.client.clone(), &namespace, &resource);
    let workload = match workloads.get(&reference.name).await {
        Ok(workload) => workload,
        Err(error) if status_code(&error) == Some(404) => return Ok(None),
        Err(error) => return Err(CliError::api(call, error)),
    };
    let selector = workload.data.pointer("/spec/selector").cloned().unwrap_or_default();
    let selector: Option<LabelSelector> = serde_json::from_value(selector).ok();
    let selector = selector.and_then(|selector| Selector::try_from(selector).ok());
    // Without a selector nothing is its own; with an empty one everything would be.
    let Some(selector) = selector.filter(|selector| !selector.selects_all()) else {
        return Ok(Some(Vec::new()));
    };
    let api: Api<Pod> = Api::namespaced(cluster.client.clone(), &namespace);
    let call = cluster.call("list the workload's pods", ("list", "pods"), &namespace);
    let list = api.list(&ListParams::default().labels_from(&selector)).await;
    let list = list.map_err(|error| CliError::api(call, error))?;
    Ok(Some(list.items.iter().map(PodFacts::of).collect()))
}

async fn live(
    cluster: &Cluster,
    application: &Application,
) -> Result<Vec<keelson_model::Flow>, CliError> {
    let mut collector = Collector::connect(cluster).await?;
    let since = Timestamp::now().checked_sub(LIVE).unwrap_or(Timestamp::UNIX_EPOCH);
    let ask = Ask {
        filters: filters(&application::scope(application), View::Both),
        range: Some(wire::TimeRange { since_unix_ns: unix_nanos(since), until_unix_ns: 0 }),
        last: 0,
        follow: false,
    };
    observe::all_flows(&mut collector, ask.flows()).await
}
