//! The live values of an application's pods: both views of each path, the worst first.
//!
//! Pure: flows of the last windows in, columns out. It shows values and decides nothing.

use std::{cmp::Reverse, collections::BTreeMap};

use keelson_model::{Endpoint, Flow, PodRef, TcpCounters};

use crate::render::{columns::Columns, endpoint, micros, percent};

/// Paths shown; the others are counted.
const PATHS: usize = 20;

/// Whose pods are looked at.
#[derive(Clone, Copy, Debug)]
pub struct Workload<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// For example `Deployment`.
    pub kind: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// Whose kernel counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum View {
    Own,
    Peer,
}

type Paths = BTreeMap<(String, View, String), TcpCounters>;

// === impl Workload ===

impl Workload<'_> {
    /// Whether the end is one of its pods.
    #[must_use]
    pub fn has(&self, end: &Endpoint) -> bool {
        end.pod().is_some_and(|pod| self.owns(pod))
    }

    fn owns(&self, pod: &PodRef) -> bool {
        let is_ours =
            |owner: &keelson_model::WorkloadRef| owner.kind == self.kind && owner.name == self.name;
        pod.namespace == self.namespace && pod.workload.as_ref().is_some_and(is_ours)
    }
}

/// The values as columns; none: nothing moved.
#[must_use]
pub fn table(flows: &[Flow], workload: Workload<'_>) -> Option<String> {
    let mut paths: Vec<_> = paths(flows, workload).into_iter().collect();
    if paths.is_empty() {
        return None;
    }
    paths.sort_by_key(|(_, counters)| Reverse(badness(counters)));
    let mut columns = Columns::new([
        "POD",
        "COUNTED BY",
        "PEER",
        ">SEGMENTS",
        ">RETRANS",
        ">RTT",
        ">OPENED",
        ">FAILED",
        ">RESETS",
    ]);
    let shown = paths.len().min(PATHS);
    let rows: Vec<_> = paths.iter().take(shown).map(cells).collect();
    let mut text = columns.block(&rows);
    if paths.len() > shown {
        let more = paths.len() - shown;
        text.push_str(&format!("(and {more} paths with less to see)\n"));
    }
    Some(text)
}

fn paths(flows: &[Flow], workload: Workload<'_>) -> Paths {
    let mut paths = Paths::new();
    let mut add = |pod: &Endpoint, view: View, peer: &Endpoint, delta: &TcpCounters| {
        let sum = paths.entry((endpoint(pod), view, endpoint(peer))).or_default();
        *sum = sum.plus(delta);
    };
    for flow in flows {
        if workload.has(&flow.local) {
            add(&flow.local, View::Own, &flow.peer, &flow.delta);
        }
        if workload.has(&flow.peer) {
            add(&flow.peer, View::Peer, &flow.local, &flow.delta);
        }
    }
    paths
}

/// Parts sent again per million, then the mean RTT.
fn badness(counters: &TcpCounters) -> (u64, u64) {
    let again = counters.retransmitted_segments.saturating_mul(1_000_000);
    let part = again.checked_div(counters.data_segments_sent).unwrap_or_default();
    (part, counters.mean_rtt_us().unwrap_or_default())
}

fn cells(((pod, view, peer), counters): &((String, View, String), TcpCounters)) -> [String; 9] {
    [
        pod.clone(),
        match view {
            View::Own => "the pod's node".into(),
            View::Peer => "the peer's node".into(),
        },
        peer.clone(),
        counters.data_segments_sent.to_string(),
        percent(counters.retransmitted_segments, counters.data_segments_sent),
        counters.mean_rtt_us().map_or_else(|| "-".into(), micros),
        counters.opened.to_string(),
        counters.connect_failed.to_string(),
        counters.resets_sent.saturating_add(counters.resets_received).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use keelson_model::{Direction, Remote, WindowId, WorkloadRef};

    use super::*;

    fn pod(name: &str, workload: &str) -> Endpoint {
        Endpoint::Pod(PodRef {
            uid: name.into(),
            namespace: "shop".into(),
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

    fn flow(local: Endpoint, peer: Endpoint, sent: u64, again: u64) -> Flow {
        Flow {
            window: WindowId(1),
            node: "node-a".into(),
            local,
            peer,
            peer_source: keelson_model::PeerSource::Address,
            remote: Remote::Other,
            direction: Direction::Inbound,
            port: 80,
            delta: TcpCounters {
                data_segments_sent: sent,
                retransmitted_segments: again,
                ..Default::default()
            },
        }
    }

    const WEB: Workload<'static> = Workload { namespace: "shop", kind: "Deployment", name: "web" };

    #[test]
    fn both_views_are_summed_over_the_windows_and_the_worst_comes_first() {
        let flows = [
            flow(pod("web-1", "web"), pod("cart-1", "cart"), 100, 1),
            flow(pod("web-1", "web"), pod("cart-1", "cart"), 100, 1),
            flow(pod("cart-1", "cart"), pod("web-2", "web"), 100, 5),
            flow(pod("cart-1", "cart"), pod("db-1", "db"), 100, 90),
        ];
        let expected = "\
POD         COUNTED BY       PEER         SEGMENTS  RETRANS  RTT  OPENED  FAILED  RESETS
shop/web-2  the peer's node  shop/cart-1       100    5.00%    -       0       0       0
shop/web-1  the pod's node   shop/cart-1       200    1.00%    -       0       0       0
";
        assert_eq!(table(&flows, WEB).unwrap(), expected);
    }

    #[test]
    fn nothing_that_moved_is_none_and_many_paths_are_counted() {
        assert_eq!(table(&[], WEB), None);
        let many: Vec<_> = (0..30)
            .map(|number| flow(pod(&format!("web-{number}"), "web"), Endpoint::Other, 1, 0))
            .collect();
        let text = table(&many, WEB).unwrap();
        assert!(text.ends_with("(and 10 paths with less to see)\n"), "{text}");
    }
}
