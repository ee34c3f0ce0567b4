//! `keelson-agent`: see `keelson-agent --help`.

use clap::Parser;
use keelson_agent::{args::AgentArgs, run};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    run::run(AgentArgs::parse()).await
}
