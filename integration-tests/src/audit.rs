//! The API server's audit log: who wrote what.

use std::path::Path;

use anyhow::Context;
use serde::Deserialize;

/// One write or review.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    /// create, update, patch, delete or deletecollection.
    pub verb: String,
    /// Who did it.
    pub user: User,
    /// To what; none for a path that is no object.
    pub object_ref: Option<ObjectRef>,
    /// When the API server received it, RFC 3339 with microseconds: it sorts as text.
    pub request_received_timestamp: String,
    /// The answer.
    pub response_status: Option<ResponseStatus>,
}

/// The caller.
#[derive(Debug, Clone, Deserialize)]
pub struct User {
    /// Such as `system:serviceaccount:keelson-system:keelson-operator`.
    pub username: String,
}

/// The object written.
#[derive(Debug, Clone, Deserialize)]
pub struct ObjectRef {
    /// Plural name, such as `leases`.
    pub resource: String,
    /// Such as `status`.
    pub subresource: Option<String>,
    /// Empty for objects of the cluster.
    pub namespace: Option<String>,
    /// Absent for creates.
    pub name: Option<String>,
}

/// How the API server answered.
#[derive(Debug, Clone, Deserialize)]
pub struct ResponseStatus {
    /// The HTTP code.
    pub code: Option<u16>,
}

/// Reads the whole log; a line cut short by the writer is left out.
///
/// # Errors
/// When the log cannot be read.
pub fn read(path: &Path) -> anyhow::Result<Vec<Event>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}
