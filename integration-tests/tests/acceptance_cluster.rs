//! The acceptance lines on the real cluster, each once in its short form. As root; one at a time,
//! in the order of their names, since they share the cluster; the last takes it down.
#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "a test that cannot go on has failed, and says what it saw"
)]

use std::sync::OnceLock;

use keelson_integration_tests::{
    acceptance::{Form, Outcome, bad_input, faults, identity, installed, quiet, restart, values},
    cluster::{Cluster, left::left},
};

fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| installed().unwrap_or_else(|error| panic!("{error:#}")))
}

fn holds(line: fn(&Cluster, Form) -> anyhow::Result<Outcome>) {
    let outcome = line(cluster(), Form::Short).unwrap_or_else(|error| panic!("{error:#}"));
    println!("{}", outcome.figures.join("\n"));
    assert!(outcome.failures.is_empty(), "{:#?}", outcome.failures);
}

#[test]
fn line_3_2_a_fault_turns_the_right_application_and_no_other() {
    holds(faults);
}

#[test]
fn line_3_3_what_is_observed_adds_up_to_what_the_traffic_logged() {
    holds(values::values);
}

#[test]
fn line_3_5_steady_traffic_causes_no_write() {
    holds(quiet::quiet);
}

#[test]
fn line_3_6_restarts_under_a_fault_leave_the_verdicts_right() {
    holds(restart::restarts);
}

#[test]
fn line_3_7_bad_input_is_answered_with_the_remedy() {
    holds(bad_input::bad_input);
}

#[test]
fn line_4_3_who_may_send_and_who_may_see() {
    holds(identity::identity);
}

#[test]
fn z_the_cluster_goes_down_and_leaves_nothing() {
    let state = cluster().state.clone();
    Cluster::down().unwrap();
    assert_eq!(left(&state), Vec::<String>::new());
}
