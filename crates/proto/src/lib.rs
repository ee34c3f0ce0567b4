//! The wire: generated gRPC code, checked in, and the only conversions between it and the model.
//!
//! `proto/README.md` has the rules by which messages may change.

#![forbid(unsafe_code)]

pub mod convert;

/// The generated modules stand as their packages do, since they name each other so.
#[allow(missing_docs, clippy::all, clippy::pedantic, reason = "generated")]
mod generated {
    pub mod telemetry {
        pub mod v1alpha1 {
            include!("gen/keelson.telemetry.v1alpha1.rs");
        }
    }
    pub mod query {
        pub mod v1alpha1 {
            include!("gen/keelson.query.v1alpha1.rs");
        }
    }
}

/// Package `keelson.query.v1alpha1`: people and the operator to the collector.
pub use generated::query::v1alpha1 as query;
/// Package `keelson.telemetry.v1alpha1`: agents to the collector.
pub use generated::telemetry::v1alpha1 as telemetry;

/// All packages as an encoded `FileDescriptorSet`, for reflection and compatibility checks.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("gen/descriptors.bin");
