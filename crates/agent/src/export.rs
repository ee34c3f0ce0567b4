//! Windows to the collector: a bounded outbox, and one ordered, acknowledged stream that empties it.

pub mod encode;
pub mod outbox;
pub mod stream;
