//! Structured logs on standard error.

use std::io::{self, IsTerminal};

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

/// Flags of every program's logs.
#[derive(Args, Clone, Debug)]
pub struct LogArgs {
    /// What is logged: a level, or `target=level` pairs as in RUST_LOG
    #[arg(long, env = "KEELSON_LOG", default_value = "info", value_name = "FILTER")]
    pub log: String,
    /// JSON for machines, text for people; by default text on a terminal
    #[arg(long, env = "KEELSON_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
}

/// How a line looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// Text.
    Text,
}

/// The logs cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// `--log` is no filter.
    #[error("--log {filter} is no log filter; for example: info, or keelson_agent=debug,info")]
    Filter {
        /// As given.
        filter: String,
        /// The cause.
        source: tracing_subscriber::filter::ParseError,
    },
    /// A second begin in one process.
    #[error("logs were begun before")]
    Twice(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Begins the process's logs.
///
/// # Errors
/// The filter cannot be read, or they began before.
pub fn init(args: &LogArgs) -> Result<(), LogError> {
    let filter = EnvFilter::try_new(&args.log)
        .map_err(|source| LogError::Filter { filter: args.log.clone(), source })?;
    let by_default = if io::stderr().is_terminal() { LogFormat::Text } else { LogFormat::Json };
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(io::stderr);
    match args.log_format.unwrap_or(by_default) {
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(true).try_init(),
        LogFormat::Text => builder.try_init(),
    }
    .map_err(LogError::Twice)
}

/// An error with its causes, `a: b: c`, for the field `error`.
#[must_use]
pub fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
