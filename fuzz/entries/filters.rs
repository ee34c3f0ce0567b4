//! A query's filters: none makes the collector panic, and what is denied is never wanted.

use keelson_collector::query::filter::{Filters, Row};
use keelson_model::{Direction, Endpoint, PodRef, Remote, WorkloadRef};
use keelson_proto::query as wire;
use prost::Message as _;

/// `keelson.query.v1alpha1.Filters` as it comes over the wire.
pub fn run(bytes: &[u8]) {
    let Ok(filters) = wire::Filters::decode(bytes) else { return };
    let Ok(compiled) = Filters::compile(Some(&filters)) else { return };
    let denied = wire::Filters { allow: filters.deny, deny: vec![] };
    let denies = !denied.allow.is_empty();
    let Ok(denied) = Filters::compile(Some(&denied)) else { return };
    let pod = Endpoint::Pod(PodRef {
        uid: "uid".into(),
        namespace: "shop".into(),
        name: "web-1".into(),
        node: "node-a".into(),
        workload: Some(WorkloadRef {
            api_version: "apps/v1".into(),
            kind: "Deployment".into(),
            name: "web".into(),
        }),
        revision: "r1".into(),
        host_network: false,
    });
    for (direction, peer) in [(Direction::Outbound, &pod), (Direction::Inbound, &Endpoint::Other)] {
        let row = Row {
            node: "node-a",
            local: &pod,
            peer,
            remote: Remote::Address([10, 1, 0, 9].into()),
            port: 8080,
            direction,
        };
        assert!(!(denies && denied.matches(&row) && compiled.matches(&row)));
        assert!(!compiled.matches_pair(&row) || compiled.matches(&row));
    }
}
