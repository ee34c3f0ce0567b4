//! Kernel records in, attributed and aggregated telemetry out, within limits.
//!
//! The deciding parts (`cgroup`, `pods`, `enrich`, `aggregate`, `export::outbox`) are pure; the
//! shells around them do the I/O. It never judges: it reports, with coverage.

pub mod aggregate;
pub mod args;
pub mod cgroup;
pub mod enrich;
pub mod export;
pub mod metrics;
pub mod orphans;
pub mod pods;
pub mod run;
pub mod source;
pub mod window;
pub mod windows;
