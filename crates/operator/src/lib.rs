//! Makes the cluster match each Application and says so in its status.
//!
//! Two reconcilers, each its own field manager of the status: `converge` says how the workload
//! stands, `judge` what the kernels say. Their deciding parts are pure; `engine` does the I/O.

#![forbid(unsafe_code)]

pub mod args;
pub mod caches;
pub mod converge;
pub mod engine;
pub mod evidence;
pub mod judge;
pub mod metrics;
pub mod run;
pub mod status;
