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

/// Connections whose two ends the collector brings together; two generations of half as many.
pub const COLLECTOR_PAIRS: usize = 131_072;

/// Nodes whose streams the collector keeps account of.
pub const COLLECTOR_NODES: usize = 5_000;

/// Series whose last value the collector keeps a node: two generations of the kernel's.
pub const COLLECTOR_SERIES_PER_NODE: usize = 2 * KERNEL_SERIES as usize;

/// A series that did not move for so long makes room when the table of its node is full.
pub const COLLECTOR_SERIES_IDLE_SECONDS: u64 = 600;

/// Agent pods of one node whose last batch number the collector remembers.
pub const COLLECTOR_AGENT_PODS: usize = 4;

/// Addresses whose names the collector keeps, ended ones included.
pub const COLLECTOR_ADDRESSES: usize = 200_000;

/// Successive holders of one address that the collector keeps.
pub const COLLECTOR_HOLDERS_PER_ADDRESS: usize = 8;

/// A name that ended is kept for so long: as long as the windows that may need it.
pub const COLLECTOR_ENDED_NAME_SECONDS: u64 = 600;

/// After its end, by the collector's clock, a window waits so long for the slowest node.
pub const COLLECTOR_WINDOW_DEADLINE_SECONDS: u64 = 4;

/// Queries answered at the same time; one more is told RESOURCE_EXHAUSTED.
pub const COLLECTOR_QUERIES: usize = 64;

/// Rows that a query may ask for as its newest.
pub const QUERY_LAST_ROWS: usize = 100_000;

/// Filters of one query, `allow` and `deny` together.
pub const QUERY_FILTERS: usize = 64;

/// Namespaces that a query may name whose caller may not see all of them: each is a question to the
/// API server.
pub const QUERY_NAMESPACES: usize = 32;

/// Values of one field of a filter.
pub const QUERY_FILTER_VALUES: usize = 256;

/// Flows in one part of an evidence window.
pub const EVIDENCE_FLOWS_PER_PART: usize = 4_096;

/// Text fields of `Hello` (names, uids, versions), in bytes.
pub const HELLO_TEXT_BYTES: usize = 256;

/// Text fields of a pod or its workload on the wire, in bytes: Kubernetes allows 253.
pub const NAME_TEXT_BYTES: usize = 256;

/// Evidence windows the operator keeps an Application.
pub const OPERATOR_WINDOWS: usize = 24;

/// Flows of one evidence window that the operator takes: every series of four full kernels.
pub const OPERATOR_WINDOW_FLOWS: usize = 4 * KERNEL_SERIES as usize;

/// How far the end of an evidence window may lie from the operator's clock, either way, in seconds.
pub const OPERATOR_EVIDENCE_SKEW_SECONDS: u64 = 30;

/// Cgroups an agent knows: 110 pods of a few containers each, many times over.
pub const AGENT_CGROUPS: usize = 16_384;

/// Pods an agent knows, gone ones included.
pub const AGENT_PODS: usize = 4_096;

/// How long an agent keeps a cgroup or a pod that is gone: the ends of its connections come late.
pub const AGENT_KEEP_REMOVED_SECONDS: u64 = 60;

/// How long a record or a series waits for its pod to become known.
pub const AGENT_PENDING_SECONDS: u64 = 10;

/// Records that wait so.
pub const AGENT_PENDING_RECORDS: usize = 8_192;

/// Longest pod uid taken from a cgroup's name: a UUID, or the hash of a static pod.
pub const POD_UID_BYTES: usize = 64;

/// Longest container id taken from a cgroup's name: a SHA-256 in hexadecimal.
pub const CONTAINER_ID_BYTES: usize = 64;

/// Reviewed tokens that are remembered: an agent each node, and readers.
pub const TOKENS_REMEMBERED: usize = 8_192;

/// Answers about a user's rights that a service remembers, for seconds.
pub const PERMISSIONS_REMEMBERED: usize = 4_096;

/// Raw batches between a buffer's reader and the decoder.
pub const AGENT_RAW_BATCHES: usize = 16;

/// Decoded batches between the decoder and the window loop.
pub const AGENT_EVENT_BATCHES: usize = 16;

/// Messages between the outbox and the gRPC stream.
pub const AGENT_STREAM_MESSAGES: usize = 4;

/// Applications that the operator writes at once.
pub const OPERATOR_RECONCILES: usize = 8;

/// A file that `validate` reads; a larger one is refused before it is parsed.
pub const VALIDATE_FILE_BYTES: usize = 64 * 1024 * 1024;

/// Values, keys included, of one document that `validate` builds; aliases count expanded.
pub const VALIDATE_DOCUMENT_NODES: usize = 2_000_000;

/// Values that aliases may bring into one document: what the API server's YAML reader allows.
pub const VALIDATE_ALIASED_NODES: usize = 400_000;

/// Levels of nesting of a document, aliases expanded.
pub const VALIDATE_DEPTH: usize = 200;

/// Findings kept of one document; one more is counted, not kept.
pub const VALIDATE_FINDINGS_PER_DOCUMENT: usize = 500;
