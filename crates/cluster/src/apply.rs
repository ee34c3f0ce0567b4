//! Server-side apply of objects that one manager owns whole.

use k8s_openapi::NamespaceResourceScope;
use kube::{
    Api, Client, Resource,
    api::{Patch, PatchParams},
};
use serde::{Serialize, de::DeserializeOwned};

/// Applies a namespaced object; takes over fields of other managers.
///
/// # Errors
/// The API server refuses, or cannot be reached.
pub async fn apply<K>(
    client: &Client,
    manager: &str,
    namespace: &str,
    object: &K,
) -> kube::Result<K>
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Serialize
        + DeserializeOwned
        + std::fmt::Debug,
{
    let api: Api<K> = Api::namespaced(client.clone(), namespace);
    let name = object.meta().name.clone().unwrap_or_default();
    api.patch(&name, &PatchParams::apply(manager).force(), &Patch::Apply(object)).await
}
