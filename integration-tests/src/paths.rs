//! Where things lie outside the tree.

use std::{env, path::PathBuf};

/// The cache: `KEELSON_CACHE`, else `~/.cache/keelson`.
#[must_use]
pub fn cache() -> PathBuf {
    let home = || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into()));
    env::var_os("KEELSON_CACHE").map_or_else(|| home().join(".cache/keelson"), PathBuf::from)
}

/// State of the local cluster.
#[must_use]
pub fn cluster_state() -> PathBuf {
    cache().join("cluster")
}

/// The checkout.
#[must_use]
pub fn tree() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}
