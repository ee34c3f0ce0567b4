//! `keelson-collector`: flags, logs, and the process.

use std::process::ExitCode;

use clap::Parser;
use keelson_collector::{app, args::CollectorArgs};
use keelson_runtime::logs;

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let args = CollectorArgs::parse();
    logs::init(&args.logs)?;
    match app::run(args).await {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => {
            let error = logs::chain(&error);
            tracing::error!(error, "collector ended");
            Ok(ExitCode::FAILURE)
        }
    }
}
