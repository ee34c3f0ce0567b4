//! `keelson-load`: the traffic generator of the demo and the tests.
fn main() {}
