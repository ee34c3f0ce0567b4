//! `keelson-operator`: see `keelson-operator --help`.

use clap::Parser;
use keelson_operator::{args::OperatorArgs, run};

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> anyhow::Result<()> {
    run::run(OperatorArgs::parse()).await
}
