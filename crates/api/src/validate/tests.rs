use super::*;

const SHORTEST: &str = "workload: {ref: {kind: Deployment, name: shop}}";

fn spec(yaml: &str) -> ApplicationSpec {
    serde_yaml::from_str(yaml).unwrap()
}

#[test]
fn three_lines_are_enough_and_get_sensible_thresholds() {
    let valid = validate(&spec(SHORTEST), "demo").unwrap();
    assert_eq!((valid.kind, valid.name.as_str()), (WorkloadKind::Deployment, "shop"));
    assert!(!valid.gates_ready);
    assert_eq!(valid.policy.freshness, Duration::from_secs(30));
    let retransmits = &valid.policy.rules[0];
    assert_eq!(retransmits.signal, Signal::RetransmitRatio);
    assert_eq!((retransmits.enter, retransmits.leave), (0.02, 0.01));
    assert_eq!((retransmits.enter_windows, retransmits.leave_windows), (2, 3));
}

#[test]
fn every_wrong_field_is_named_with_its_remedy() {
    let rule = |text: &str| format!("{SHORTEST}\nhealth: {{policy: {{signals: [{text}]}}}}");
    let cases = [
        (
            "workload: {ref: {kind: Service, name: shop}}".to_owned(),
            "spec.workload.ref.kind",
            "use Deployment",
        ),
        (
            "workload: {ref: {kind: Deployment, name: ''}}".to_owned(),
            "spec.workload.ref.name",
            "name the workload",
        ),
        (
            "workload: {ref: {kind: Deployment, name: Shop/x}}".to_owned(),
            "spec.workload.ref.name",
            "a-z",
        ),
        (
            "workload: {ref: {kind: Deployment, name: shop, namespace: other}}".to_owned(),
            "spec.workload.ref.namespace",
            "make the Application in \"other\"",
        ),
        (
            "workload: {ref: {apiVersion: apps/v2, kind: Deployment, name: shop}}".to_owned(),
            "spec.workload.ref.apiVersion",
            "use apps/v1",
        ),
        (rule(""), "spec.health.policy.signals", "leave it out for the defaults"),
        (
            rule("{signal: RetransmitRato, enter: 2%, leave: 1%}"),
            "spec.health.policy.signals[0].signal",
            "did you mean RetransmitRatio?",
        ),
        (
            rule("{signal: RetransmitRatio, enter: 1%, leave: 2%}"),
            "spec.health.policy.signals[0].leave",
            "swap the two",
        ),
        (
            rule("{signal: RetransmitRatio, enter: '2', leave: 1%}"),
            "spec.health.policy.signals[0].enter",
            "such as 2%",
        ),
        (
            rule("{signal: RttMillis, enter: '250', leave: '100', for: soon}"),
            "spec.health.policy.signals[0].for",
            "such as 30s",
        ),
        (
            rule("{signal: RttMillis, enter: '250', leave: '100', minSamples: -1}"),
            "spec.health.policy.signals[0].minSamples",
            "1 or more",
        ),
        (
            rule(
                "{signal: RttMillis, enter: '9', leave: '1'}, {signal: RttMillis, enter: '9', leave: '1'}",
            ),
            "spec.health.policy.signals[1].signal",
            "keep one",
        ),
        (
            format!("{SHORTEST}\nhealth: {{policy: {{freshness: 5s}}}}"),
            "spec.health.policy.freshness",
            "10s or more",
        ),
    ];
    for (yaml, path, remedy) in cases {
        let errors = validate(&spec(&yaml), "demo").unwrap_err();
        assert_eq!(errors.len(), 1, "{yaml}: {errors:?}");
        assert_eq!(errors[0].path, path, "{yaml}");
        assert!(errors[0].message.contains(remedy), "{yaml}: {}", errors[0]);
    }
}

#[test]
fn a_users_text_is_bounded_in_messages_and_cannot_move_the_cursor() {
    let mut hostile = spec(SHORTEST);
    hostile.workload.reference.kind = format!("\u{1b}[2J{}", "x".repeat(10_000));
    let error = validate(&hostile, "demo").unwrap_err().remove(0);
    assert!(error.message.len() < 400 && !error.message.contains('\u{1b}'));
    let mut hostile = spec(SHORTEST);
    hostile.workload.reference.name = "sh\u{202e}op".into();
    let error = validate(&hostile, "demo").unwrap_err().remove(0);
    assert!(!error.message.contains('\u{202e}'));
}

#[test]
fn a_small_value_does_not_read_as_zero() {
    assert_eq!(Signal::RttMillis.show(0.0123), "0.01");
    assert_eq!(Signal::RttMillis.show(250.0), "250.0");
    assert_eq!(Signal::RetransmitRatio.show(0.02), "2.00%");
    assert_eq!(Signal::RetransmitRatio.show(0.000_012), "0.001%");
    assert_eq!(Signal::RetransmitRatio.show(0.0), "0.00%");
}

#[test]
fn all_errors_come_at_once() {
    let yaml = "workload: {ref: {kind: Pod, name: ''}}\nhealth: {policy: {freshness: never}}";
    assert_eq!(validate(&spec(yaml), "demo").unwrap_err().len(), 3);
}
