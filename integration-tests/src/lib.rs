//! The harness: Keelson's own local Kubernetes, its images, and what tests ask of them.
//!
//! It is here, and not in a script, because `down` must be exact: what `up` makes is named in one
//! place ([`layout`]) and [`cleanup`] removes it by that name, whoever died in between. The harness
//! knows nothing of Keelson's domain; the demo and the tests bring that.

pub mod audit;
pub mod cleanup;
pub mod cluster;
pub mod command;
pub mod control_plane;
pub mod host;
pub mod images;
pub mod interrupt;
pub mod layout;
pub mod lock;
pub mod node;
pub mod oci;
pub mod packages;
pub mod pki;
pub mod pod;
pub mod processes;
pub mod progress;
pub mod toolcache;
pub mod wait;

pub use cluster::Cluster;
pub use pod::Pod;
