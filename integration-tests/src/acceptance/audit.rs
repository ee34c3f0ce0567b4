//! The API server's audit log: who wrote what.

use std::{collections::BTreeMap, fs, io::Seek, path::PathBuf};

use anyhow::Context;
use serde_json::Value;

use crate::cluster::Cluster;

/// A place in the log.
#[derive(Clone, Debug)]
pub struct Mark {
    path: PathBuf,
    at: u64,
}

impl Mark {
    /// The log's present end.
    ///
    /// # Errors
    /// There is no log.
    pub fn now(cluster: &Cluster) -> anyhow::Result<Self> {
        let path = cluster.state.join("log/audit.log");
        let at = fs::metadata(&path).context("the API server writes no audit log")?.len();
        Ok(Self { path, at })
    }

    /// Writes of Keelson's accounts since, by verb and resource.
    ///
    /// # Errors
    /// The log cannot be read.
    pub fn writes_of_keelson(&self) -> anyhow::Result<BTreeMap<String, u64>> {
        let mut file = fs::File::open(&self.path)?;
        file.seek(std::io::SeekFrom::Start(self.at))?;
        let text = std::io::read_to_string(file)?;
        let mut writes = BTreeMap::new();
        for line in text.lines() {
            let Ok(event) = serde_json::from_str::<Value>(line) else { continue };
            let user = event["user"]["username"].as_str().unwrap_or_default();
            if !user.starts_with("system:serviceaccount:keelson-system:") {
                continue;
            }
            let word = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let object = &event["objectRef"];
            let what = format!(
                "{} {} {}",
                word(&event["verb"]),
                word(&object["resource"]),
                word(&object["name"])
            );
            *writes.entry(what.trim_end().to_owned()).or_default() += 1;
        }
        Ok(writes)
    }
}
