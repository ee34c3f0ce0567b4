//! `keelson-dev`: the local cluster, images and the demo. `./justw` calls it.
#![expect(clippy::print_stdout, reason = "it is a command line")]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use keelson_integration_tests::{
    acceptance::verify, cluster::Cluster, demo, images, step::say, tools,
};

#[derive(Parser)]
#[command(name = "keelson-dev", version, about = "The local cluster, images and the demo")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Installs packages and builds tools that are missing
    Setup,
    /// The local cluster
    Cluster {
        #[command(subcommand)]
        command: ClusterCommand,
    },
    /// Builds the images and imports them into the cluster
    Images,
    /// Installs Keelson and the demo, breaks a pod's network, and checks what both sides say
    Demo,
    /// Removes the demo, Keelson and the cluster
    DemoDown,
    /// The long form of acceptance lines; figures go to docs/verification.md
    Verify {
        /// Lines of acceptance; all without one
        #[arg(value_parser = verify::names())]
        lines: Vec<String>,
    },
}

#[derive(Subcommand)]
enum ClusterCommand {
    /// Starts it; what a crash left is cleaned first
    Up,
    /// Ends it and leaves nothing behind but logs
    Down,
    /// One line for each process
    Status,
    /// kubectl as the administrator
    Kubectl {
        /// Arguments of kubectl
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
}

fn main() -> ExitCode {
    // A returned error would be printed with a backtrace where one is asked for.
    run(Cli::parse().command).unwrap_or_else(|error| {
        say(&format!("error: {error:#}"));
        ExitCode::FAILURE
    })
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    match command {
        Command::Setup => tools::ensure().map(|_| ())?,
        Command::Cluster { command } => return cluster(command),
        Command::Images => Cluster::up()?.load(&images::build()?).map(|_| ())?,
        Command::Demo => return demo::run(),
        Command::DemoDown => Cluster::down()?,
        Command::Verify { lines } => verify::verify(&lines)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn cluster(command: ClusterCommand) -> anyhow::Result<ExitCode> {
    match command {
        ClusterCommand::Up => {
            let cluster = Cluster::up()?;
            println!("{}", cluster.kubectl.kubeconfig.display());
        }
        ClusterCommand::Down => Cluster::down()?,
        ClusterCommand::Status => println!("{}", Cluster::open()?.status()),
        ClusterCommand::Kubectl { args } => {
            let args: Vec<&str> = args.iter().map(String::as_str).collect();
            let status = Cluster::open()?.kubectl.command(&args).status()?;
            return Ok(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1).into());
        }
    }
    Ok(ExitCode::SUCCESS)
}
