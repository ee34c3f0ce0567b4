//! Flags of `keelson-operator`.

use std::path::PathBuf;

use clap::Parser;
use keelson_cluster::{COLLECTOR_HOST, COLLECTOR_PORT};
use keelson_runtime::{admin::AdminArgs, logs::LogArgs};

/// Says of every Application how its workload stands and what the kernels see of it.
#[derive(Clone, Debug, Parser)]
#[command(name = "keelson-operator", version)]
pub struct OperatorArgs {
    /// Name of the own pod, by which it takes part in the election of the leader
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: String,
    /// The collector
    #[arg(long, env = "KEELSON_COLLECTOR", default_value_t = format!("https://{COLLECTOR_HOST}:{COLLECTOR_PORT}"), value_name = "URL")]
    pub collector: String,
    /// Directory of its own, where the authority's certificate is put for the client
    #[arg(long, env = "KEELSON_RUN", default_value = "/run/keelson", value_name = "DIRECTORY")]
    pub run: PathBuf,
    /// Token with the collector's audience; read at every connect
    #[arg(
        long,
        env = "KEELSON_TOKEN",
        default_value = "/var/run/secrets/keelson/token",
        value_name = "FILE"
    )]
    pub token: PathBuf,
    /// Admin port.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Logs.
    #[command(flatten)]
    pub logs: LogArgs,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        OperatorArgs::command().debug_assert();
    }
}
