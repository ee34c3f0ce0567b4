//! What every Keelson service needs of Kubernetes: whose a token is and what a user may, the two authorities' store,
//! server-side apply, and the workload above a pod. It knows no resource of Keelson's own.

#![forbid(unsafe_code)]

pub mod apply;
pub mod certificates;
pub mod lease;
mod memory;
pub mod permissions;
pub mod pki;
pub mod tokens;
pub mod workload;

/// Namespace that Keelson runs in.
pub const NAMESPACE: &str = "keelson-system";
/// Audience of tokens for the collector.
pub const COLLECTOR_AUDIENCE: &str = "keelson-collector";
/// Host name that the collector's certificate is made out to.
pub const COLLECTOR_HOST: &str = "keelson-collector.keelson-system.svc";
/// Port of the collector's Service.
pub const COLLECTOR_PORT: u16 = 8443;

/// A client for the cluster that this process runs in, or that its kubeconfig names.
///
/// # Errors
/// Neither is there, or the file cannot be used.
pub async fn client() -> kube::Result<kube::Client> {
    kube::Client::try_from(config().await?)
}

/// Where that cluster is, for clients of one's own.
///
/// # Errors
/// As [`client`].
pub async fn config() -> kube::Result<kube::Config> {
    keelson_runtime::tls::install_provider();
    kube::Config::infer().await.map_err(kube::Error::InferConfig)
}
