//! kubectl against the local cluster.

use std::{
    io::Write,
    path::PathBuf,
    process::{Command, Stdio},
    time::Duration,
};

use anyhow::{Context, bail};
use serde_json::Value;

use crate::process::wait_for;

/// kubectl with its kubeconfig.
#[derive(Clone, Debug)]
pub struct Kubectl {
    /// The multi-call program.
    pub program: PathBuf,
    /// The administrator's.
    pub kubeconfig: PathBuf,
}

impl Kubectl {
    /// A command, for callers that want its streams.
    #[must_use]
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("kubectl").arg("--kubeconfig").arg(&self.kubeconfig).args(args);
        command
    }

    /// Runs it to its end.
    ///
    /// # Errors
    /// It fails; what it said is the message.
    pub fn run(&self, args: &[&str]) -> anyhow::Result<String> {
        let output = self.command(args).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr);
            bail!("kubectl {}: {}", args.join(" "), stderr.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Gets something as JSON.
    ///
    /// # Errors
    /// It is not there.
    pub fn get(&self, args: &[&str]) -> anyhow::Result<Value> {
        let mut all = vec!["get", "-o", "json"];
        all.extend(args);
        Ok(serde_json::from_str(&self.run(&all)?)?)
    }

    /// Applies manifests.
    ///
    /// # Errors
    /// The API server refuses.
    pub fn apply(&self, manifests: &str) -> anyhow::Result<()> {
        let mut child = self
            .command(&["apply", "--server-side", "--force-conflicts", "-f", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().context("kubectl has no standard input")?;
        stdin.write_all(manifests.as_bytes())?;
        drop(stdin);
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!("kubectl apply: {}", String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(())
    }

    /// Waits until `look` accepts what `get` gives.
    ///
    /// # Errors
    /// It does not within the time.
    pub fn wait_for<T>(
        &self,
        what: &str,
        args: &[&str],
        within: Duration,
        look: impl Fn(&Value) -> Result<T, String>,
    ) -> anyhow::Result<T> {
        wait_for(what, within, || {
            let found = self.get(args).map_err(|error| format!("{error:#}"))?;
            look(&found)
        })
    }
}
