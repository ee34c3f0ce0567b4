use keelson_model::{ServiceRef, WorkloadRef};

use super::*;

fn pod(namespace: &str, name: &str, workload: &str) -> Endpoint {
    Endpoint::Pod(PodRef {
        uid: name.into(),
        namespace: namespace.into(),
        name: name.into(),
        node: "node-a".into(),
        workload: Some(WorkloadRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: workload.into(),
        }),
        revision: String::new(),
        host_network: false,
    })
}

fn matches(filters: &wire::Filters, peer: &Endpoint) -> bool {
    let local = pod("shop", "web-1", "web");
    let row = Row {
        node: "node-a",
        local: &local,
        peer,
        remote: Remote::Address([10, 1, 0, 9].into()),
        port: 80,
        direction: Direction::Outbound,
    };
    Filters::compile(Some(filters)).unwrap().matches(&row)
}

fn allow(filter: wire::Filter) -> wire::Filters {
    wire::Filters { allow: vec![filter], deny: vec![] }
}

fn texts(values: &[&str]) -> Vec<String> {
    values.iter().map(|value| (*value).to_owned()).collect()
}

#[test]
fn every_field_matches_its_own_and_no_other() {
    let rows: Vec<(wire::Filter, bool)> = vec![
        (wire::Filter::default(), true),
        (wire::Filter { namespace: texts(&["shop"]), ..Default::default() }, true),
        (wire::Filter { namespace: texts(&["bank", "shop"]), ..Default::default() }, true),
        (wire::Filter { namespace: texts(&["bank"]), ..Default::default() }, false),
        (wire::Filter { pod: texts(&["web-1"]), ..Default::default() }, true),
        (wire::Filter { pod: texts(&["shop/web-1"]), ..Default::default() }, true),
        (wire::Filter { pod: texts(&["bank/web-1"]), ..Default::default() }, false),
        (wire::Filter { pod: texts(&["web"]), ..Default::default() }, false),
        (wire::Filter { workload: texts(&["Deployment/web"]), ..Default::default() }, true),
        (wire::Filter { workload: texts(&["StatefulSet/web"]), ..Default::default() }, false),
        (wire::Filter { node: texts(&["node-a"]), ..Default::default() }, true),
        (wire::Filter { node: texts(&["node-b"]), ..Default::default() }, false),
        (wire::Filter { remote_cidr: texts(&["10.0.0.0/8"]), ..Default::default() }, true),
        (wire::Filter { remote_cidr: texts(&["10.2.0.0/16"]), ..Default::default() }, false),
        (wire::Filter { port: vec![443, 80], ..Default::default() }, true),
        (wire::Filter { port: vec![443], ..Default::default() }, false),
        (wire::Filter { direction: 1, ..Default::default() }, true),
        (wire::Filter { direction: 2, ..Default::default() }, false),
        (wire::Filter { peer_namespace: texts(&["bank"]), ..Default::default() }, true),
        (wire::Filter { peer_namespace: texts(&["shop"]), ..Default::default() }, false),
        (wire::Filter { peer_pod: texts(&["db-1"]), ..Default::default() }, true),
        (wire::Filter { peer_workload: texts(&["Deployment/db"]), ..Default::default() }, true),
        // All fields of one filter must match.
        (wire::Filter { pod: texts(&["web-1"]), port: vec![443], ..Default::default() }, false),
    ];
    let peer = pod("bank", "db-1", "db");
    for (filter, expected) in rows {
        assert_eq!(matches(&allow(filter.clone()), &peer), expected, "{filter:?}");
    }
}

#[test]
fn one_of_several_allows_suffices_and_any_deny_refuses() {
    let web = wire::Filter { pod: texts(&["web-1"]), ..Default::default() };
    let other = wire::Filter { pod: texts(&["other"]), ..Default::default() };
    let peer = pod("bank", "db-1", "db");
    let either = wire::Filters { allow: vec![other.clone(), web.clone()], deny: vec![] };
    assert!(matches(&either, &peer));
    assert!(!matches(&wire::Filters { deny: vec![web], ..either.clone() }, &peer));
    assert!(matches(&wire::Filters { deny: vec![other], ..either }, &peer));
}

#[test]
fn a_service_has_a_namespace_but_is_no_pod() {
    let service = Endpoint::Service(ServiceRef { namespace: "bank".into(), name: "db".into() });
    let by_namespace = wire::Filter { peer_namespace: texts(&["bank"]), ..Default::default() };
    assert!(matches(&allow(by_namespace), &service));
    let by_pod = wire::Filter { peer_pod: texts(&["db"]), ..Default::default() };
    assert!(!matches(&allow(by_pod), &service));
}

#[test]
fn what_cannot_mean_anything_is_refused_by_the_name_of_its_field() {
    let many = vec!["x".to_owned(); limits::QUERY_FILTER_VALUES + 1];
    let rows = [
        (wire::Filter { workload: texts(&["web"]), ..Default::default() }, "workload"),
        (wire::Filter { peer_workload: texts(&["/web"]), ..Default::default() }, "peer_workload"),
        (wire::Filter { port: vec![65_536], ..Default::default() }, "port"),
        (wire::Filter { direction: 3, ..Default::default() }, "direction"),
        (
            wire::Filter { remote_cidr: texts(&["10.0.0.0/40"]), ..Default::default() },
            "remote_cidr",
        ),
        (wire::Filter { pod: many, ..Default::default() }, "pod"),
    ];
    for (filter, field) in rows {
        let error = Filters::compile(Some(&allow(filter))).unwrap_err();
        assert!(error.to_string().contains(&format!("field {field}")), "{error}");
    }
    let filters = wire::Filters { allow: vec![wire::Filter::default(); 65], deny: vec![] };
    assert_eq!(Filters::compile(Some(&filters)).unwrap_err(), FilterError::TooManyFilters);
}
