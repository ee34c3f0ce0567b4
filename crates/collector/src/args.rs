//! Flags of `keelson-collector`.

use std::{net::SocketAddr, path::PathBuf};

use clap::Parser;
use keelson_runtime::{admin::AdminArgs, logs::LogArgs};

/// Takes the agents' streams, keeps a recent window of what the kernels counted, names peers and
/// answers queries.
#[derive(Clone, Debug, Parser)]
#[command(name = "keelson-collector", version)]
pub struct CollectorArgs {
    /// Address of the gRPC services, with TLS
    #[arg(long, env = "KEELSON_LISTEN", default_value = "0.0.0.0:8443", value_name = "ADDRESS")]
    pub listen: SocketAddr,
    /// Directory with tls.crt and tls.key; read again when they change
    #[arg(long, env = "KEELSON_TLS", default_value = "/etc/keelson/tls", value_name = "DIRECTORY")]
    pub tls: PathBuf,
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
        CollectorArgs::command().debug_assert();
    }
}
