//! YAML as Kubernetes reads it, into trees with places.
pub mod scalar;
