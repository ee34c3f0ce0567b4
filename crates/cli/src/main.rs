//! `keelson`, also `kubectl keelson`: parses, runs, says what went wrong and what helps.

use std::{io::Write, process::ExitCode};

use clap::{CommandFactory, FromArgMatches};
use keelson_cli::{args::Cli, error, escape};

fn main() -> ExitCode {
    let name = called_as(std::env::args_os().next());
    let matches = Cli::command().bin_name(name).get_matches();
    let cli = match Cli::from_arg_matches(&matches) {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return fail(&format!("error: no runtime could be made: {error}\n")),
    };
    match runtime.block_on(keelson_cli::run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let (problem, remedy) = (error::chain(&failure), failure.remedy());
            fail(&format!("error: {problem}\n  help: {remedy}\n"))
        }
    }
}

fn fail(message: &str) -> ExitCode {
    // Nothing is left to be done where even this cannot be written.
    let _ = std::io::stderr().lock().write_all(escape::lines(message).as_bytes());
    ExitCode::FAILURE
}

/// kubectl runs its plug-in as `kubectl-keelson`: usage and examples then say `kubectl keelson`.
fn called_as(program: Option<std::ffi::OsString>) -> &'static str {
    let path = std::path::PathBuf::from(program.unwrap_or_default());
    match path.file_stem().and_then(|stem| stem.to_str()) {
        Some("kubectl-keelson") => "kubectl keelson",
        _ => "keelson",
    }
}
