//! The custom resources of `keelson.dev`: types, defaults, pure validation, condition vocabulary.
//!
//! The same [`validate::validate`] serves operator, webhook and command line. It asks nothing of a
//! cluster.

#![forbid(unsafe_code)]

pub mod application;
pub mod conditions;
pub mod crds;
pub mod policy;
pub mod quantity;
pub mod validate;

pub use application::{Application, ApplicationSpec, ApplicationStatus};
pub use validate::{ValidatedApplication, validate};
