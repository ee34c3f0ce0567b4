//! `keelson-dev`: what the justfile calls for everything beyond a line of shell.
//!
//! Only reads arguments and prints; the work is in the harness library.

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Parser, Subcommand};
use harness::cluster::Started;
use harness::layout::Layout;
use harness::toolcache::Tools;
use harness::{Cluster, cleanup, host, images, interrupt, packages, processes, progress};

/// Keelson's development tool: packages, local cluster, images.
#[derive(Debug, Parser)]
#[command(name = "keelson-dev")]
struct Args {
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Installs missing packages and builds missing tools
    Setup {
        /// Only the packages
        #[arg(long)]
        packages: bool,
    },
    /// The local two-node cluster
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// The project's images
    #[command(subcommand)]
    Images(ImagesVerb),
}

#[derive(Debug, Subcommand)]
enum ClusterVerb {
    /// Starts it; does nothing when it runs
    Up {
        /// End a running one first
        #[arg(long)]
        fresh: bool,
    },
    /// Ends it and leaves nothing but its logs
    Down,
    /// Says what runs
    Status,
    /// kubectl as administrator
    #[command(disable_help_flag = true)]
    Kubectl {
        /// Passed on as they are
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Subcommand)]
enum ImagesVerb {
    /// Builds the named images, or all
    Build {
        /// Such as keelson-agent
        names: Vec<String>,
    },
    /// Imports the built images into both nodes of the running cluster
    Load,
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.is::<interrupt::Interrupted>() => ExitCode::from(130),
        Err(error) => {
            progress::say(&format!("error: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> anyhow::Result<()> {
    interrupt::install().context("handle signals")?;
    match args.command {
        Verb::Setup { packages: true } => packages::ensure(),
        Verb::Setup { packages: false } => {
            packages::ensure()?;
            Tools::ensure()?;
            host::mount_file_systems()
        }
        Verb::Cluster(ClusterVerb::Up { fresh }) => up(fresh),
        Verb::Cluster(ClusterVerb::Down) => Cluster::down(&Layout::of_user()),
        Verb::Cluster(ClusterVerb::Status) => status(),
        Verb::Cluster(ClusterVerb::Kubectl { arguments }) => kubectl(&arguments),
        Verb::Images(ImagesVerb::Build { names }) => images::build(&names),
        Verb::Images(ImagesVerb::Load) => Cluster::attach()?.load_images(),
    }
}

fn up(fresh: bool) -> anyhow::Result<()> {
    packages::ensure()?;
    if fresh {
        Cluster::down(&Layout::of_user())?;
    }
    let (cluster, started) = progress::step("cluster up", || Cluster::up("cluster up"))?;
    let word = if started == Started::Before { "already up" } else { "up" };
    progress::say(&format!("{word}: export KUBECONFIG={}", cluster.kubeconfig().display()));
    Ok(())
}

fn status() -> anyhow::Result<()> {
    let layout = Layout::of_user();
    progress::say(&format!("state: {}", layout.root().display()));
    for record in processes::recorded(&layout) {
        let word = if record.id.is_alive() { "runs" } else { "dead" };
        progress::say(&format!("{word}  pid {:<8} {}", record.id.pid, record.name));
    }
    let left = cleanup::leftovers(&layout);
    if left.is_empty() {
        progress::say("down: nothing of a cluster is on this machine");
        return Ok(());
    }
    Cluster::attach()?;
    progress::say("up: both nodes are Ready");
    Ok(())
}

fn kubectl(arguments: &[String]) -> anyhow::Result<()> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut command = std::process::Command::new(Tools::ensure()?.kubernetes);
    command.arg("kubectl").arg("--kubeconfig").arg(Layout::of_user().kubeconfig("admin")).args(words);
    Err(command.exec()).context("run kubectl")
}
