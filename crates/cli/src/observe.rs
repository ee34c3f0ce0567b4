//! `keelson observe` and `keelson connections`: asks, and prints what comes until it ends or Ctrl-C.

use std::{io::Write, pin::pin};

use futures::{Stream, StreamExt, TryStreamExt};
use jiff::Timestamp;
use keelson_proto::query as wire;
use tonic::Status;

use crate::{
    answer, application,
    args::{ObserveArgs, Output},
    cluster::Cluster,
    collector::Collector,
    error::CliError,
    render::{Row, json, table::Table},
    request::{Ask, Scope},
};

/// Rows aligned and printed together, if they come together.
const BLOCK: usize = 256;

const NOTHING: &str = "nothing of that namespace, pod or Application is held for that time; \
    `kubectl get pods,applications` says what there is, `keelson nodes` which nodes are watched\n";

/// Prints flows.
///
/// # Errors
/// The way to the collector, the question, or the output failed.
pub async fn flows(cluster: &Cluster, args: &ObserveArgs) -> Result<(), CliError> {
    let ask = ask(cluster, args).await?;
    let mut collector = Collector::connect(cluster).await?;
    let call = collector.call(ask.flows());
    let answer = collector.queries().flows(call).await.map_err(|status| failed(&status))?;
    let rows = answer
        .into_inner()
        .map_err(|status| failed(&status))
        .and_then(|row| async { answer::flow_row(row) });
    print(rows, args.output, Table::flows()).await
}

/// Prints kept connections.
///
/// # Errors
/// As `flows`.
pub async fn connections(cluster: &Cluster, args: &ObserveArgs) -> Result<(), CliError> {
    let ask = ask(cluster, args).await?;
    let mut collector = Collector::connect(cluster).await?;
    let call = collector.call(ask.connections());
    let answer = collector.queries().connections(call).await.map_err(|status| failed(&status))?;
    let rows = answer
        .into_inner()
        .map_err(|status| failed(&status))
        .and_then(|row| async { answer::connection_row(row) });
    print(rows, args.output, Table::connections()).await
}

async fn ask(cluster: &Cluster, args: &ObserveArgs) -> Result<Ask, CliError> {
    let scope = scope(cluster, args).await?;
    Ok(Ask::new(args, &scope, Timestamp::now()))
}

async fn scope(cluster: &Cluster, args: &ObserveArgs) -> Result<Scope, CliError> {
    if let Some(name) = &args.application {
        return Ok(application::scope(&application::read(cluster, name).await?));
    }
    let namespace = (!args.all_namespaces).then(|| cluster.namespace.clone());
    Ok(match (&args.pod, namespace) {
        (Some(name), namespace) => Scope::Pod { namespace, name: name.clone() },
        (None, Some(namespace)) => Scope::Namespace(namespace),
        (None, None) => Scope::Cluster,
    })
}

fn failed(status: &Status) -> CliError {
    CliError::collector(status)
}

/// Prints rows as they come. Ctrl-C ends a command that follows as its normal end.
async fn print(
    rows: impl Stream<Item = Result<Row, CliError>>,
    output: Output,
    mut table: Table,
) -> Result<(), CliError> {
    let mut blocks = pin!(rows.ready_chunks(BLOCK));
    let mut interrupt = pin!(tokio::signal::ctrl_c());
    let mut is_empty = true;
    loop {
        let block = tokio::select! {
            block = blocks.next() => block,
            _ = &mut interrupt => return Ok(()),
        };
        let Some(block) = block else {
            if is_empty {
                std::io::stderr().lock().write_all(NOTHING.as_bytes())?;
            }
            return Ok(());
        };
        is_empty = false;
        let mut rows = Vec::with_capacity(block.len());
        let mut end = Ok(());
        for row in block {
            match row {
                Ok(row) => rows.push(row),
                Err(error) => end = Err(error),
            }
        }
        if !write(&rows, output, &mut table)? {
            return Ok(());
        }
        end?;
    }
}

/// Writes a block; false when nobody reads any more.
fn write(rows: &[Row], output: Output, table: &mut Table) -> Result<bool, CliError> {
    let (text, notes) = match output {
        Output::Table => table.block(rows),
        Output::Json => {
            let lines: Result<String, serde_json::Error> = rows.iter().map(json::line).collect();
            (lines.map_err(std::io::Error::other)?, String::new())
        }
    };
    std::io::stderr().lock().write_all(notes.as_bytes())?;
    put(&text)
}

/// Writes to the standard output; false when nobody reads any more, which is no error.
///
/// # Errors
/// The output could not be written otherwise.
pub fn put(text: &str) -> Result<bool, CliError> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Every flow that answers `request`, for a command that shows them together.
///
/// # Errors
/// The collector could not answer.
pub async fn all_flows(
    collector: &mut Collector,
    request: wire::FlowsRequest,
) -> Result<Vec<keelson_model::Flow>, CliError> {
    let call = collector.call(request);
    let answer = collector.queries().flows(call).await.map_err(|status| failed(&status))?;
    let rows = answer
        .into_inner()
        .map_err(|status| failed(&status))
        .and_then(|row| async { answer::flow_row(row) });
    let flow = |row| async {
        Ok(match row {
            Row::Flow(flow) => Some(*flow),
            _ => None,
        })
    };
    rows.try_filter_map(flow).try_collect().await
}
