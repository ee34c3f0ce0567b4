//! Answers `Nodes`: what each node's agent can see and why not more.

use std::collections::BTreeMap;

use keelson_model::CoverageReason;
use keelson_proto::{convert, query as wire};

use crate::{core::NodeView, shared::Shared};

/// Every node of the cluster and every one that had an agent not long ago, by name.
#[must_use]
pub fn answer(shared: &Shared) -> wire::NodesResponse {
    let expected: Vec<_> = shared.names().nodes().cloned().collect();
    let mut nodes: BTreeMap<String, wire::NodeStatus> =
        expected.iter().map(|node| (node.as_str().to_owned(), silent(node.as_str()))).collect();
    for node in shared.core().nodes() {
        let status = status(&node);
        nodes.insert(status.node.clone(), status);
    }
    wire::NodesResponse { nodes: nodes.into_values().collect() }
}

fn silent(node: &str) -> wire::NodeStatus {
    wire::NodeStatus {
        node: node.to_owned(),
        reasons: vec![CoverageReason::NoAgent.as_str().to_owned()],
        ..Default::default()
    }
}

fn status(node: &NodeView<'_>) -> wire::NodeStatus {
    let pipeline = node.pipeline;
    let agent = pipeline.agent();
    let mut reasons: Vec<String> =
        pipeline.reasons().iter().map(|reason| reason.as_str().to_owned()).collect();
    if !node.is_connected {
        reasons.push(CoverageReason::NoAgent.as_str().to_owned());
    }
    let ledgers = pipeline.accounts().last();
    wire::NodeStatus {
        node: agent.node.as_str().to_owned(),
        connected: node.is_connected,
        agent_version: agent.version.clone(),
        kernel_release: agent.kernel_release.clone(),
        last_window: pipeline.delivered().map_or(0, |window| window.0),
        last_seen_unix_ns: pipeline.last_seen().0,
        coverage: Some(convert::coverage_to_wire(pipeline.coverage())),
        ledgers: ledgers.map(|(probe, cut)| convert::ledger_to_wire(probe, cut)).collect(),
        clock_offset_ns: pipeline.clock_offset_ns(),
        reasons,
    }
}
