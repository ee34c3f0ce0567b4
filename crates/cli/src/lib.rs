//! The human front door: what the kernel saw of the cluster's applications, in the terminal.
//!
//! It reads the collector through the API server's port-forward and the Application's status; it
//! decides nothing about health.

#![forbid(unsafe_code)]

pub mod answer;
pub mod application;
pub mod args;
pub mod cluster;
pub mod collector;
pub mod error;
pub mod escape;
pub mod explain;
pub mod nodes;
pub mod observe;
pub mod render;
pub mod request;

use args::{Cli, Command, Explain};
use cluster::Cluster;
use error::CliError;

/// Runs one command line.
///
/// # Errors
/// What went wrong, with what helps.
pub async fn run(cli: Cli) -> Result<(), CliError> {
    // A second installation finds the first one's; there is only one choice.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let cluster = Cluster::open(&cli.cluster).await?;
    match &cli.command {
        Command::Observe(args) => observe::flows(&cluster, args).await,
        Command::Connections(args) => observe::connections(&cluster, args).await,
        Command::Nodes(args) => nodes::run(&cluster, args).await,
        Command::Explain(Explain::Application { name }) => explain::run(&cluster, name).await,
    }
}
