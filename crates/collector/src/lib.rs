//! The collector: takes the agents' streams, keeps a recent window, names peers, answers queries.
//!
//! `ingest` reads the wire, `pipeline` makes differences, `store` keeps the recent past, `names`
//! says whose an address was, `query` answers. It reports and never judges.

#![forbid(unsafe_code)]

pub mod access;
pub mod app;
pub mod args;
pub mod batch;
pub mod cidr;
pub mod core;
pub mod ingest;
pub mod metrics;
pub mod names;
pub mod pairs;
pub mod pipeline;
pub mod query;
pub mod serve;
pub mod shared;
pub mod sight;
pub mod store;
