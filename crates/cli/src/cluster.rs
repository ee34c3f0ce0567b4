//! The cluster as kubectl would reach it: kubeconfig, context and namespace.
//!
//! It knows Kubernetes only; the way to the collector is `collector`'s.

use std::time::Duration;

use k8s_openapi::ByteString;
use kube::{
    Client, Config,
    config::{AuthInfo, KubeConfigOptions, Kubeconfig},
};
use secrecy::ExposeSecret;

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
    auth: AuthInfo,
}

/// What the kubeconfig itself says the caller is by.
pub enum Own {
    /// Certificate and key in PEM.
    Certificate(Vec<u8>, Vec<u8>),
    /// A bearer token.
    Token(String),
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
        let auth = config.auth_info.clone();
        let client = Client::try_from(config).map_err(|error| CliError::Config(Box::new(error)))?;
        Ok(Self { client, namespace, server, auth })
    }

    /// The caller's own credentials, for servers beside the API server; none where a plug-in makes
    /// them, or the files cannot be read.
    #[must_use]
    pub fn own_credentials(&self) -> Option<Own> {
        let AuthInfo { client_certificate, client_certificate_data, client_key, .. } = &self.auth;
        let AuthInfo { client_key_data, token, token_file, .. } = &self.auth;
        let key_data = client_key_data.as_ref().map(ExposeSecret::expose_secret);
        let certificate = pem(client_certificate_data.as_deref(), client_certificate.as_deref());
        if let Some(own) = certificate.zip(pem(key_data, client_key.as_deref())) {
            return Some(Own::Certificate(own.0, own.1));
        }
        let from_file = || std::fs::read_to_string(token_file.as_ref()?).ok();
        let token = token.as_ref().map(|token| token.expose_secret().to_owned());
        token.or_else(from_file).map(|token| Own::Token(token.trim().to_owned()))
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

/// As kubeconfigs have it: Base64 in place, or a file.
fn pem(data: Option<&str>, file: Option<&str>) -> Option<Vec<u8>> {
    match data {
        Some(data) => serde_json::from_value(data.into()).ok().map(|ByteString(bytes)| bytes),
        None => std::fs::read(file?).ok(),
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
