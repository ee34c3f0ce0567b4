//! Every bound by name. Nothing else in the workspace holds a magic size.

/// Series the kernel keeps a node: 65,536 x (56 B key + 176 B value) is about 15 MB of kernel memory.
pub const KERNEL_SERIES: u32 = 65_536;

/// Peers (remote address and port) a cgroup and direction before the rest are `other`.
pub const PEERS_PER_CGROUP: u32 = 512;

/// Text of a `ProgramStatus.reason`, in bytes.
pub const REASON_TEXT_BYTES: usize = 256;

/// Batches an agent keeps unacknowledged; beyond it windows are merged, never dropped.
pub const AGENT_UNACKED_BATCHES: usize = 12;

/// Series in one batch message; a larger window is sent in parts.
pub const SERIES_PER_BATCH: usize = 4_096;

/// Records in one batch message.
pub const RECORDS_PER_BATCH: usize = 4_096;

/// One gRPC message, either way. The largest batch above stays below it.
pub const GRPC_MESSAGE_BYTES: usize = 8 * 1024 * 1024;

/// Windows the collector holds: 10 minutes of 5 s.
pub const COLLECTOR_WINDOWS: usize = 120;

/// Flows the collector holds over all windows.
pub const COLLECTOR_FLOWS: usize = 1_000_000;

/// Connections the collector holds.
pub const COLLECTOR_CONNECTIONS: usize = 200_000;

/// Evidence windows the operator keeps an Application.
pub const OPERATOR_WINDOWS: usize = 24;
