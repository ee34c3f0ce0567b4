//! The collector: takes the agents' streams, keeps a recent window, names peers, answers queries.

#![forbid(unsafe_code)]

pub mod batch;
pub mod cidr;
pub mod names;
pub mod pipeline;
pub mod store;
