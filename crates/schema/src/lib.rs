//! Offline checking of YAML and JSON against CRD and built-in schemas, with exact places.
//!
//! A text becomes a tree of values with places (`yaml`, `json`), the tree is checked against a
//! schema as the API server would, and what is wrong is a finding that names the place, the rule
//! and what helps. The crate reads no file, no network and no clock: callers bring texts.

#![forbid(unsafe_code)]

pub mod source;
pub mod tree;
pub mod yaml;
