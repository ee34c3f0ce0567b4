//! How a Keelson process behaves: logs, admin port, TLS that reloads, supervised tasks, clock,
//! backoff, shutdown. It knows no domain and no Kubernetes.

#![forbid(unsafe_code)]

pub mod admin;
pub mod backoff;
pub mod clock;
pub mod logs;
pub mod shutdown;
pub mod tasks;
pub mod tls;

/// Version of the workspace that this program was built from.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
