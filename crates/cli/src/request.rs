//! What a command line asks of the collector.
//!
//! Pure: flags, scope and time in, messages of the query service out.

use jiff::Timestamp;
use keelson_proto::query as wire;

use crate::args::{ObserveArgs, Since, View};

/// Rows that a command without a range shows.
const DEFAULT_ROWS: u32 = 20;

/// Whose rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everybody's.
    Cluster,
    /// Those of a namespace.
    Namespace(String),
    /// Those of a pod.
    Pod {
        /// Its namespace; none: any.
        namespace: Option<String>,
        /// Its name.
        name: String,
    },
    /// Those of a workload's pods.
    Workload {
        /// Its namespace.
        namespace: String,
        /// For example `Deployment`.
        kind: String,
        /// Its name.
        name: String,
    },
}

/// Rows, range and whether to go on.
#[derive(Clone, Debug, PartialEq)]
pub struct Ask {
    /// Which rows.
    pub filters: Option<wire::Filters>,
    /// From when.
    pub range: Option<wire::TimeRange>,
    /// At most so many; 0: all.
    pub last: u32,
    /// Go on.
    pub follow: bool,
}

// === impl Ask ===

impl Ask {
    /// What the flags ask for, at `now`.
    #[must_use]
    pub fn new(args: &ObserveArgs, scope: &Scope, now: Timestamp) -> Self {
        let since = match (args.since, args.last, args.follow) {
            (Some(since), _, _) => Some(since),
            // A follower that names no past wants none.
            (None, None, true) => Some(Since::At(now)),
            (None, _, _) => None,
        };
        let last = match (args.last, since) {
            (Some(last), _) => last,
            (None, Some(_)) => 0,
            (None, None) => DEFAULT_ROWS,
        };
        let range = since.map(|since| wire::TimeRange {
            since_unix_ns: unix_nanos(since.resolve(now)),
            until_unix_ns: 0,
        });
        Self { filters: filters(scope, args.view), range, last, follow: args.follow }
    }

    /// As a question for flows.
    #[must_use]
    pub fn flows(self) -> wire::FlowsRequest {
        let Self { filters, range, last, follow } = self;
        wire::FlowsRequest { filters, range, last, follow }
    }

    /// As a question for connections.
    #[must_use]
    pub fn connections(self) -> wire::ConnectionsRequest {
        let Self { filters, range, last, follow } = self;
        wire::ConnectionsRequest { filters, range, last, follow }
    }
}

/// Filters for the rows of `scope` by whose kernel counted.
#[must_use]
pub fn filters(scope: &Scope, view: View) -> Option<wire::Filters> {
    if *scope == Scope::Cluster {
        return None;
    }
    let allow = match view {
        View::Own => vec![own(scope)],
        View::Peers => vec![peers(scope)],
        View::Both => vec![own(scope), peers(scope)],
    };
    Some(wire::Filters { allow, deny: vec![] })
}

fn own(scope: &Scope) -> wire::Filter {
    match scope.clone() {
        Scope::Cluster => wire::Filter::default(),
        Scope::Namespace(namespace) => {
            wire::Filter { namespace: vec![namespace], ..Default::default() }
        }
        Scope::Pod { namespace, name } => wire::Filter {
            namespace: namespace.into_iter().collect(),
            pod: vec![name],
            ..Default::default()
        },
        Scope::Workload { namespace, kind, name } => wire::Filter {
            namespace: vec![namespace],
            workload: vec![format!("{kind}/{name}")],
            ..Default::default()
        },
    }
}

fn peers(scope: &Scope) -> wire::Filter {
    let wire::Filter { namespace, pod, workload, .. } = own(scope);
    wire::Filter {
        peer_namespace: namespace,
        peer_pod: pod,
        peer_workload: workload,
        ..Default::default()
    }
}

/// As the wire has times; before 1970 is 1970.
#[must_use]
pub fn unix_nanos(at: Timestamp) -> u64 {
    u64::try_from(at.as_nanosecond()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Cli, Command};

    fn ask(arguments: &[&str]) -> Ask {
        let all = ["keelson", "observe"].iter().chain(arguments);
        let Command::Observe(args) = Cli::try_parse_from(all).unwrap().command else {
            panic!("not observe")
        };
        let now = "1970-01-01T01:00:00Z".parse().unwrap();
        Ask::new(&args, &Scope::Namespace("shop".into()), now)
    }

    #[test]
    fn without_a_range_the_newest_rows_and_with_one_all_of_it() {
        const HOUR: u64 = 3_600_000_000_000;
        /// Arguments, since, last, follow.
        type Row = (&'static [&'static str], Option<u64>, u32, bool);
        const ROWS: &[Row] = &[
            (&[], None, 20, false),
            (&["--last", "5"], None, 5, false),
            (&["--since", "30m"], Some(HOUR / 2), 0, false),
            (&["--since", "30m", "--last", "5"], Some(HOUR / 2), 5, false),
            (&["--follow"], Some(HOUR), 0, true),
            (&["--follow", "--last", "5"], None, 5, true),
            (&["--follow", "--since", "30m"], Some(HOUR / 2), 0, true),
        ];
        for (arguments, since, last, follow) in ROWS {
            let got = ask(arguments);
            let got = (got.range.map(|range| range.since_unix_ns), got.last, got.follow);
            assert_eq!(got, (*since, *last, *follow), "{arguments:?}");
        }
    }

    #[test]
    fn the_view_says_whose_kernel_counted() {
        let scope = Scope::Workload {
            namespace: "shop".into(),
            kind: "Deployment".into(),
            name: "web".into(),
        };
        let own = filters(&scope, View::Own).unwrap().allow;
        assert_eq!(own.len(), 1);
        assert_eq!(
            (own[0].workload[0].as_str(), own[0].namespace[0].as_str()),
            ("Deployment/web", "shop")
        );
        let peers = filters(&scope, View::Peers).unwrap().allow;
        assert_eq!((peers[0].peer_workload.len(), peers[0].workload.len()), (1, 0));
        assert_eq!(filters(&scope, View::Both).unwrap().allow.len(), 2);
        assert_eq!(filters(&Scope::Cluster, View::Both), None);
    }
}
