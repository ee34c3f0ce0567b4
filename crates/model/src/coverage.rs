//! What a node's agent can see, and why not more: a value, never only a log line.

use serde::{Deserialize, Serialize};

use crate::{ledger::bounded_reasons, time::UnixNanos};

/// How a program came to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProgramState {
    /// The first choice runs.
    Attached,
    /// Another program serves its function.
    Fallback,
    /// Nothing serves its function.
    Missing,
}

/// One program of a probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProgramStatus {
    /// Name as loaded, for example `tcp_set_state`.
    pub program: String,
    /// What it serves, for example `retransmits`.
    pub function: String,
    /// How it came to run.
    pub state: ProgramState,
    /// Why not the first choice, with the remedy; empty when attached. Bounded text.
    pub reason: String,
    /// Hook in use, for example `tp_btf/inet_sock_set_state`.
    pub hook: String,
}

bounded_reasons!(
    /// Why a node's view is less than whole.
    CoverageReason {
        /// The kernel has no BTF and none was given.
        NoKernelBtf = "no_kernel_btf",
        /// A capability is missing.
        MissingCapability = "missing_capability",
        /// A program neither loads nor has a fallback that does.
        ProgramMissing = "program_missing",
        /// No program ran for some time.
        BlindInterval = "blind_interval",
        /// Records or counts were lost.
        Loss = "loss",
        /// The node's clock is off by more than a window.
        ClockSkew = "clock_skew",
        /// The agent could not find the cgroup tree of its pods.
        NoScope = "no_scope",
        /// No agent reports for this node.
        NoAgent = "no_agent",
        /// The agent cannot reach the API server and so cannot name new pods.
        PodsUnknown = "pods_unknown",
    }
);

/// A span of wall time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interval {
    /// First instant.
    pub from: UnixNanos,
    /// First instant after it.
    pub to: UnixNanos,
}

/// What one agent can see.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Coverage {
    /// Every program that the agent wants to run.
    pub programs: Vec<ProgramStatus>,
    /// Empty: fully covered.
    pub reasons: Vec<CoverageReason>,
    /// No program of ours ran in these.
    pub blind: Vec<Interval>,
}
