//! Flags of `keelson-agent`.

use std::path::PathBuf;

use clap::Parser;
use keelson_cluster::{COLLECTOR_HOST, COLLECTOR_PORT};
use keelson_runtime::{admin::AdminArgs, logs::LogArgs};

/// Counts TCP in this node's kernel, names the pods, and streams what it counted to the collector.
#[derive(Clone, Debug, Parser)]
#[command(name = "keelson-agent", version)]
pub struct AgentArgs {
    /// Name of this Node (downward API: spec.nodeName)
    #[arg(long, env = "NODE_NAME", value_name = "NAME")]
    pub node_name: String,
    /// Uid of this agent's own pod (downward API: metadata.uid)
    #[arg(long, env = "POD_UID", value_name = "UID")]
    pub pod_uid: String,
    /// The host's cgroup tree; a cgroup v2 mount or the directory with `unified` in it
    #[arg(
        long,
        env = "KEELSON_CGROUP_ROOT",
        default_value = "/sys/fs/cgroup",
        value_name = "DIRECTORY"
    )]
    pub cgroup_root: PathBuf,
    /// A bpffs, for maps that outlive a restart of the agent; none: they end with it
    #[arg(long, env = "KEELSON_BPFFS", value_name = "DIRECTORY")]
    pub bpffs: Option<PathBuf>,
    /// BTF of the kernel, where it has none of its own
    #[arg(long, env = "KEELSON_BTF", value_name = "FILE")]
    pub btf: Option<PathBuf>,
    /// The collector
    #[arg(long, env = "KEELSON_COLLECTOR", default_value_t = format!("https://{COLLECTOR_HOST}:{COLLECTOR_PORT}"), value_name = "URL")]
    pub collector: String,
    /// Certificates of the authority that vouches for the collector
    #[arg(long, env = "KEELSON_CA", default_value = "/etc/keelson/ca/ca.crt", value_name = "FILE")]
    pub ca: PathBuf,
    /// Token with the collector's audience; read at every connect
    #[arg(
        long,
        env = "KEELSON_TOKEN",
        default_value = "/var/run/secrets/keelson/token",
        value_name = "FILE"
    )]
    pub token: PathBuf,
    /// Share of connections whose records are kept, besides those that failed, were reset,
    /// retransmitted or were slow; counts are of all connections always
    #[arg(long, env = "KEELSON_SAMPLE", default_value_t = 1.0, value_parser = fraction, value_name = "0..1")]
    pub sample: f64,
    /// Handshake or RTT in milliseconds from which a connection is kept as slow
    #[arg(long, env = "KEELSON_SLOW_MS", default_value_t = 1000, value_name = "MS")]
    pub slow_ms: u32,
    /// Admin port.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Logs.
    #[command(flatten)]
    pub logs: LogArgs,
}

fn fraction(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "is no number".to_owned())?;
    if (0.0..=1.0).contains(&value) { Ok(value) } else { Err("must lie in 0..1".into()) }
}

/// The threshold of a share: a hash at or below it is kept.
#[must_use]
pub fn threshold(share: f64) -> u32 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the product lies in u32's range, since the share lies in 0..1"
    )]
    let threshold = (share * f64::from(u32::MAX)) as u32;
    threshold
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        AgentArgs::command().debug_assert();
    }

    #[test]
    fn a_share_of_one_keeps_all_and_of_zero_next_to_none() {
        assert_eq!((threshold(1.0), threshold(0.0)), (u32::MAX, 0));
        assert_eq!(threshold(0.5), u32::MAX / 2);
        assert!(fraction("1.5").is_err() && fraction("x").is_err() && fraction("0.1").is_ok());
    }
}
