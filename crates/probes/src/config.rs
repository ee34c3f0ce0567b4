//! What a probe is told before it loads.

use std::path::PathBuf;

use keelson_abi::layout::TcpConfig;
use keelson_model::{CgroupId, WINDOW_SECONDS, limits};

/// Which sockets are ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of cgroups below this one.
    Below {
        /// Root of the kubelet's pods.
        root: CgroupId,
        /// Its depth below the mount of the cgroup tree.
        level: u32,
    },
    /// All of the kernel's: for tests.
    Everything,
}

/// Settings of the probe `tcp`.
#[derive(Clone, Debug)]
pub struct TcpProbeConfig {
    /// Which sockets are ours.
    pub scope: Scope,
    /// BTF of the kernel, where it has none of its own.
    pub btf: Option<PathBuf>,
    /// Directory below a bpffs for maps that outlive the process; none: they end with it.
    pub pin_dir: Option<PathBuf>,
    /// Pages of the perf buffer of each CPU; a power of two. Halved while the kernel refuses.
    pub perf_pages: usize,
    /// Connections whose hash lies at or below it are kept; `u32::MAX` keeps all.
    pub sampling_threshold: u32,
    /// Handshake or RTT in microseconds from which a connection is kept as slow.
    pub slow_us: u32,
    /// Unix time minus boot time in nanoseconds: tells where windows end.
    pub unix_minus_boot_ns: i64,
}

/// Progress records are made so long before a window's cut: late enough to hold most of the window,
/// early enough to be part of it.
const BEFORE_CUT_NS: i64 = 500_000_000;

impl Default for TcpProbeConfig {
    fn default() -> Self {
        Self {
            scope: Scope::Everything,
            btf: None,
            pin_dir: None,
            perf_pages: 64,
            sampling_threshold: u32::MAX,
            slow_us: 1_000_000,
            unix_minus_boot_ns: 0,
        }
    }
}

impl TcpProbeConfig {
    pub(crate) fn kernel_config(&self, use_storage: bool) -> TcpConfig {
        let (scope_id, scope_level) = match self.scope {
            Scope::Below { root, level } => (root.0, level),
            Scope::Everything => (0, 0),
        };
        let period_ns = WINDOW_SECONDS * 1_000_000_000;
        let offset_ns = self.unix_minus_boot_ns.saturating_add(BEFORE_CUT_NS);
        let period_offset_ns = offset_ns.rem_euclid(period_ns.cast_signed()).cast_unsigned();
        TcpConfig {
            scope_id,
            peers_per_cgroup: limits::PEERS_PER_CGROUP.into(),
            account_every_ns: 100_000_000,
            period_ns,
            period_offset_ns,
            scope_level,
            sampling_threshold: self.sampling_threshold,
            slow_us: self.slow_us,
            use_storage: use_storage.into(),
        }
    }
}
