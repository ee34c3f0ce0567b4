//! The kernel side from user space: loads the programs with fallbacks, reads buffers and maps.
//!
//! It hands on raw bytes and map values; meaning is `abi`'s and the agent's. What cannot run is a
//! value with its reason, never only a log line.

mod classic;
pub mod config;
mod load;
mod reader;
mod tcp;

pub use config::{Scope, TcpProbeConfig};
pub use load::LoadError;
pub use reader::{RawBatch, Reader};
pub use tcp::{MapError, TcpProbe};
