//! Evidence to a verdict, by pure functions: `graph` (who sees whom how), `blame` (which end it
//! is), `hysteresis` (since when), `verdict` (in words). It never builds and never applies.

pub mod blame;
pub mod graph;
pub mod hysteresis;
pub mod verdict;
