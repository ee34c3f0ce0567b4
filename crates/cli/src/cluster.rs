//! The cluster as kubectl would reach it: kubeconfig, context and namespace.
//!
//! It knows Kubernetes only; the way to the collector is `collector`'s.

use std::time::Duration;

use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};

use crate::{
    args::ClusterArgs,
    error::{Call, CliError},
};

/// A reachable API server, as far as the kubeconfig tells.
#[derive(Clone)]
pub struct Cluster {
    /// Its client.
    pub client: Client,
    /// The namespace chosen, or the context's.
    pub namespace: String,
    server: String,
}

// === impl Cluster ===

impl Cluster {
    /// Reads the kubeconfig; nothing is asked of the cluster yet.
    ///
    /// # Errors
    /// There is no kubeconfig, or it is wrong, or lacks the context.
    pub async fn open(args: &ClusterArgs) -> Result<Self, CliError> {
        let mut config = config(args).await?;
        // People wait for these: an API server that is away should say so soon.
        config.connect_timeout = Some(Duration::from_secs(10));
        let server = config.cluster_url.to_string().trim_end_matches('/').to_owned();
        let namespace = args.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| CliError::Config(Box::new(error)))?;
        Ok(Self { client, namespace, server })
    }

    /// Describes a call, for its error.
    #[must_use]
    pub fn call<'a>(
        &'a self,
        doing: &'a str,
        (verb, resource): (&'static str, &'static str),
        namespace: &'a str,
    ) -> Call<'a> {
        Call { doing, verb, resource, namespace, server: &self.server }
    }
}

async fn config(args: &ClusterArgs) -> Result<Config, CliError> {
    let options = KubeConfigOptions { context: args.context.clone(), ..Default::default() };
    if let Some(path) = &args.kubeconfig {
        let file =
            Kubeconfig::read_from(path).map_err(|error| CliError::Config(Box::new(error)))?;
        let config = Config::from_custom_kubeconfig(file, &options).await;
        return config.map_err(|error| CliError::Config(Box::new(error)));
    }
    if args.context.is_some() {
        let config = Config::from_kubeconfig(&options).await;
        return config.map_err(|error| CliError::Config(Box::new(error)));
    }
    Config::infer().await.map_err(|error| CliError::Config(Box::new(error)))
}
