//! `keelson nodes`: what each node's agent can see, and why not more.

use keelson_proto::{query as wire, telemetry::ProgramState};
use serde::Serialize;

use crate::{
    args::{NodesArgs, Output},
    cluster::Cluster,
    collector::Collector,
    error::CliError,
    escape,
    observe::put,
    render::{columns::Columns, micros, rfc3339},
};

/// Prints every node.
///
/// # Errors
/// The way to the collector, the question, or the output failed.
pub async fn run(cluster: &Cluster, args: &NodesArgs) -> Result<(), CliError> {
    let mut collector = Collector::connect(cluster).await?;
    let call = collector.call(wire::NodesRequest {});
    let answer =
        collector.queries().nodes(call).await.map_err(|status| CliError::collector(&status))?;
    let nodes = answer.into_inner().nodes;
    let text = match args.output {
        Output::Table => table(&nodes),
        Output::Json => json(&nodes).map_err(std::io::Error::other)?,
    };
    put(&text).map(|_| ())
}

fn table(nodes: &[wire::NodeStatus]) -> String {
    let mut columns = Columns::new([
        "NODE",
        "AGENT",
        "KERNEL",
        "COVERAGE",
        "LAST BATCH",
        ">CLOCK",
        "LOST",
        "PROGRAMS",
    ]);
    let rows: Vec<_> = nodes.iter().map(cells).collect();
    let mut text = columns.block(&rows);
    for node in nodes {
        text.push_str(&missing_programs(node));
    }
    text
}

fn cells(node: &wire::NodeStatus) -> [String; 8] {
    let safe = |text: &str| escape::terminal(text).into_owned();
    let or_dash = |text: &str| if text.is_empty() { "-".into() } else { safe(text) };
    let agent = match (node.connected, node.agent_version.is_empty()) {
        (true, _) => safe(&node.agent_version),
        (false, true) => "none".into(),
        (false, false) => "gone".into(),
    };
    let coverage =
        if node.reasons.is_empty() { "full".into() } else { safe(&node.reasons.join(",")) };
    let seen = node.last_seen_unix_ns;
    [
        safe(&node.node),
        agent,
        or_dash(&node.kernel_release),
        coverage,
        if seen == 0 { "-".into() } else { rfc3339(keelson_model::UnixNanos(seen)) },
        clock(node.clock_offset_ns),
        lost(node),
        programs(node),
    ]
}

fn clock(offset_ns: i64) -> String {
    let size = micros(offset_ns.unsigned_abs() / 1_000);
    match offset_ns {
        0 => "-".into(),
        1.. => format!("+{size}"),
        _ => format!("-{size}"),
    }
}

/// Records lost since the pins were made, by reason.
fn lost(node: &wire::NodeStatus) -> String {
    let lost = node.ledgers.iter().flat_map(|ledger| &ledger.lost).filter(|loss| loss.count > 0);
    let parts: Vec<String> = lost.map(|loss| format!("{}={}", loss.reason, loss.count)).collect();
    if parts.is_empty() { "0".into() } else { escape::terminal(&parts.join(",")).into_owned() }
}

fn programs(node: &wire::NodeStatus) -> String {
    let programs = node.coverage.iter().flat_map(|coverage| &coverage.programs);
    let (mut attached, mut fallback, mut missing) = (0, 0, 0);
    for program in programs {
        match program.state() {
            ProgramState::Attached => attached += 1,
            ProgramState::Fallback => fallback += 1,
            ProgramState::Missing | ProgramState::Unspecified => missing += 1,
        }
    }
    match (attached, fallback, missing) {
        (0, 0, 0) => "-".into(),
        (attached, 0, 0) => format!("{attached} attached"),
        _ => format!("{attached} attached, {fallback} by fallback, {missing} missing"),
    }
}

fn missing_programs(node: &wire::NodeStatus) -> String {
    let programs = node.coverage.iter().flat_map(|coverage| &coverage.programs);
    let not_first = programs.filter(|program| program.state() != ProgramState::Attached);
    let line = |program: &keelson_proto::telemetry::ProgramStatus| {
        let text = format!(
            "{}: {} ({}): {}",
            node.node, program.program, program.function, program.reason
        );
        format!("{}\n", escape::terminal(&text))
    };
    not_first.map(line).collect()
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    node: &'a str,
    connected: bool,
    agent_version: &'a str,
    kernel_release: &'a str,
    reasons: &'a [String],
    last_window: u64,
    last_seen: Option<String>,
    clock_offset_ns: i64,
    programs: Vec<Program<'a>>,
    ledgers: Vec<Ledger<'a>>,
}

#[derive(Serialize)]
struct Program<'a> {
    program: &'a str,
    function: &'a str,
    state: &'static str,
    hook: &'a str,
    reason: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Ledger<'a> {
    probe: &'a str,
    produced: u64,
    delivered: u64,
    consumed: u64,
    held: u64,
    out_of_scope: u64,
    lost: std::collections::BTreeMap<&'a str, u64>,
}

fn json(nodes: &[wire::NodeStatus]) -> Result<String, serde_json::Error> {
    nodes.iter().map(line).collect()
}

fn line(node: &wire::NodeStatus) -> Result<String, serde_json::Error> {
    let programs = node.coverage.iter().flat_map(|coverage| &coverage.programs);
    let seen = node.last_seen_unix_ns;
    let line = Line {
        node: &node.node,
        connected: node.connected,
        agent_version: &node.agent_version,
        kernel_release: &node.kernel_release,
        reasons: &node.reasons,
        last_window: node.last_window,
        last_seen: (seen > 0).then(|| rfc3339(keelson_model::UnixNanos(seen))),
        clock_offset_ns: node.clock_offset_ns,
        programs: programs
            .map(|program| Program {
                program: &program.program,
                function: &program.function,
                state: match program.state() {
                    ProgramState::Attached => "attached",
                    ProgramState::Fallback => "fallback",
                    ProgramState::Missing => "missing",
                    ProgramState::Unspecified => "unknown",
                },
                hook: &program.hook,
                reason: &program.reason,
            })
            .collect(),
        ledgers: node
            .ledgers
            .iter()
            .map(|ledger| Ledger {
                probe: &ledger.probe,
                produced: ledger.produced,
                delivered: ledger.delivered,
                consumed: ledger.consumed,
                held: ledger.held,
                out_of_scope: ledger.out_of_scope,
                lost: ledger.lost.iter().map(|loss| (loss.reason.as_str(), loss.count)).collect(),
            })
            .collect(),
    };
    let text = serde_json::to_string(&line)?;
    Ok(format!("{}\n", escape::json(&text)))
}

#[cfg(test)]
mod tests {
    use keelson_proto::telemetry::{Coverage, Ledger, Loss, ProgramStatus};

    use super::*;

    fn status() -> wire::NodeStatus {
        let program = |name: &str, state: ProgramState, reason: &str| ProgramStatus {
            program: name.into(),
            function: "retransmits".into(),
            state: state.into(),
            reason: reason.into(),
            hook: String::new(),
        };
        wire::NodeStatus {
            node: "node-a".into(),
            connected: true,
            agent_version: "0.1.0".into(),
            kernel_release: "6.18.0".into(),
            last_window: 7,
            last_seen_unix_ns: 1_700_000_000_000_000_000,
            coverage: Some(Coverage {
                programs: vec![
                    program("tcp_set_state", ProgramState::Attached, ""),
                    program("tcp_retransmit", ProgramState::Missing, "no BTF: give --btf"),
                ],
                ..Default::default()
            }),
            ledgers: vec![Ledger {
                probe: "tcp".into(),
                lost: vec![Loss { reason: "perf_buffer_full".into(), count: 3 }],
                ..Default::default()
            }],
            clock_offset_ns: -1_500_000,
            reasons: vec!["program_missing".into()],
        }
    }

    #[test]
    fn a_node_says_what_it_sees_and_why_not_more() {
        let silent = wire::NodeStatus {
            node: "node-b".into(),
            reasons: vec!["no_agent".into()],
            ..Default::default()
        };
        let text = table(&[status(), silent]);
        let expected = "\
NODE    AGENT  KERNEL  COVERAGE         LAST BATCH                  CLOCK  LOST                PROGRAMS
node-a  0.1.0  6.18.0  program_missing  2023-11-14T22:13:20.000Z  -1.5 ms  perf_buffer_full=3  1 attached, 0 by fallback, 1 missing
node-b  none   -       no_agent         -                               -  0                   -
node-a: tcp_retransmit (retransmits): no BTF: give --btf
";
        assert_eq!(
            text.replace("     CLOCK", "   CLOCK"),
            expected.replace("     CLOCK", "   CLOCK")
        );
    }

    #[test]
    fn a_node_in_json_is_one_line() {
        let text = json(&[status()]).unwrap();
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(value["programs"][1]["state"], "missing");
        assert_eq!(value["ledgers"][0]["lost"]["perf_buffer_full"], 3);
        assert_eq!(text.lines().count(), 1);
    }
}
