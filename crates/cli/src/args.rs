//! The command line: flags as kubectl has them, with an example for each command.
//!
//! Parsing only; nothing here touches the cluster.

use clap::{Args, Parser, Subcommand, ValueEnum, builder::Styles};
use jiff::{SignedDuration, Timestamp};
use keelson_api::validate::is_object_name;

macro_rules! observe_examples {
    () => {
        "\
Examples:
  keelson observe -n shop                         the newest rows of a namespace
  keelson observe -n shop --pod web-7d9f --follow what moves now at one pod
  keelson observe --application web --view both   an Application, and what its peers saw of it
  keelson observe -A --since 5m -o json           everything of five minutes, for a program

A row says what one pod's own kernel counted in one window. RETRANS is the part of the data segments
sent that had to be sent again; RTT is the mean of its readings."
    };
}

macro_rules! connections_examples {
    () => {
        "\
Examples:
  keelson connections -n shop --since 2m           what was kept of two minutes
  keelson connections -A --follow -o json          as it comes, for a program

All counts come from `observe`; single connections are kept where they are rare or bad, and a sample."
    };
}

/// See what the kernel saw of your applications.
///
/// Keelson's agents count every TCP connection of every pod in the kernel. These commands read what
/// the collector holds of the last ten minutes, through the API server's port-forward, and explain
/// what the operator made of it. The program also works as `kubectl keelson` when it stands in the
/// PATH under the name kubectl-keelson.
#[derive(Debug, Parser)]
#[command(
    name = "keelson",
    version,
    styles = Styles::plain(),
    max_term_width = 100,
    after_help = EXIT_CODES,
)]
pub struct Cli {
    /// How to reach the cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

const EXIT_CODES: &str = "\
Exit status:
  0  done
  1  the cluster or the collector could not answer, or what was asked for does not exist
  2  the command line is wrong

Needs in the namespace keelson-system: get and list pods, get and create pods/portforward and get
configmaps (the Role keelson-reach). Who may also create serviceaccounts/token of keelson-reader
(the Role keelson-query) sees all namespaces; others see, by their own certificate or token, what
their roles let them: flows.query.keelson.dev, which is in view, edit and admin.";

/// Flags as kubectl has them.
#[derive(Clone, Debug, Args)]
pub struct ClusterArgs {
    /// Kubeconfig file; default: $KUBECONFIG, then ~/.kube/config, then the pod's own account.
    #[arg(long, global = true, value_name = "FILE", help_heading = "Cluster")]
    pub kubeconfig: Option<std::path::PathBuf>,
    /// Context of the kubeconfig; default: the current one.
    #[arg(long, global = true, value_name = "NAME", help_heading = "Cluster")]
    pub context: Option<String>,
    /// Namespace; default: that of the context.
    #[arg(short, long, global = true, value_name = "NAME", value_parser = name, help_heading = "Cluster")]
    pub namespace: Option<String>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show what moved: counts of each pod towards each peer, in windows of five seconds.
    #[command(after_help = observe_examples!(), after_long_help = OBSERVE_LONG)]
    Observe(ObserveArgs),
    /// Show single connections: those that failed, were reset, retransmitted or were slow, and a sample.
    #[command(after_help = connections_examples!(), after_long_help = CONNECTIONS_LONG)]
    Connections(ObserveArgs),
    /// Show what each node's agent can see, and why not more.
    #[command(after_help = NODES_EXAMPLES)]
    Nodes(NodesArgs),
    /// Say in words how healthy something is, why, and what to do next.
    #[command(subcommand)]
    Explain(Explain),
}

const OBSERVE_LONG: &str = concat!(
    observe_examples!(),
    "

With -o json each line is an object. Its field `type` is `flow`, `lost` or `caughtUp`:
  flow      window, start, end, node, direction (outbound, inbound), local, peer, peerSource,
            remoteAddress, port, counters
  lost      node, reason, count: what the answer lacks; with the reasons no_agent and
            blind_interval windows in which nobody counted there
  caughtUp  all that was held has been printed; with --follow only
An end (local, peer) has the field `kind`:
  pod       uid, namespace, name, node, workload {apiVersion, kind, name} or null, revision
  node      name
  service   namespace, name
  external  address
  unknown   reason
  other     the peers beyond a pod's bound, together
The field `peerSource` says what gave the peer its name:
  address             the remote address, as it was held in the window
  pair                the record of the connection's other end, which has the same initial sequence
                      numbers: behind a Service or a masquerade stands this pod. As a flow, an
                      estimate from the connections that both ends kept, for questions that name a
                      peer's pod or workload; the counts are also part of the Service's flow.
  otherEndNotSampled  the address, which is a Service's or a node's: the other end kept no record
The counters are differences over the window: opened, closed, connectFailed, bytesSent,
bytesReceived, dataSegmentsSent, dataSegmentsReceived, retransmittedSegments, retransmittedBytes,
synRetransmits, synackRetransmits, resetsSent, resetsReceived, rttSamples, rttSumUs, connectSamples,
connectSumUs; rttMinUs, rttMaxUs and connectMaxUs are of the pod and peer since they were first seen.
Times are UTC. Fields are added, never renamed."
);

const CONNECTIONS_LONG: &str = concat!(
    connections_examples!(),
    "

With -o json each line is an object. Its field `type` is `connection`, `lost` or `caughtUp`. A
connection has: record (closed, progress, failed), start, end, node, direction, local, peer,
peerSource, localAddress, localPort, remoteAddress, remotePort, counters (over its whole life), srttUs, minRttUs,
errno, keptBecause, preexisting, id {nodeUid, bootId, epoch, cpu, sequence}; ends and counters as
`keelson observe --help` says."
);

const NODES_EXAMPLES: &str = "\
Examples:
  keelson nodes
  keelson nodes -o json

COVERAGE is `full`, or the reasons for which the last window of the node was less than whole.";

/// What rows, and how.
#[derive(Clone, Debug, Args)]
pub struct ObserveArgs {
    /// All namespaces.
    #[arg(short = 'A', long, conflicts_with = "namespace")]
    pub all_namespaces: bool,
    /// Only this pod.
    #[arg(long, value_name = "NAME", value_parser = name)]
    pub pod: Option<String>,
    /// Only the pods of this Application's workload.
    #[arg(long, value_name = "NAME", value_parser = name, conflicts_with_all = ["pod", "all_namespaces"])]
    pub application: Option<String>,
    /// Whose kernel counted: the chosen pods' own, that of their peers, or both.
    #[arg(long, value_enum, default_value_t = View::Own)]
    pub view: View,
    /// From so long ago (5m, 1h30m) or from a time (2026-01-31T12:00:00Z) on.
    #[arg(long, value_name = "TIME", value_parser = since)]
    pub since: Option<Since>,
    /// At most so many rows, the newest; default 20 without --since and --follow.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub last: Option<u32>,
    /// Go on with what arrives, until Ctrl-C.
    #[arg(short, long)]
    pub follow: bool,
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// What `nodes` prints.
#[derive(Clone, Debug, Args)]
pub struct NodesArgs {
    /// How to print.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub output: Output,
}

/// What can be explained.
#[derive(Clone, Debug, Subcommand)]
pub enum Explain {
    /// The condition KernelHealthy of an Application: evidence, what Kubernetes says beside it, live
    /// values, and what to do next.
    #[command(after_help = EXPLAIN_EXAMPLES, visible_alias = "app")]
    Application {
        /// Name of the Application.
        #[arg(value_parser = name)]
        name: String,
    },
}

const EXPLAIN_EXAMPLES: &str = "\
Examples:
  keelson explain application web -n shop
  kubectl keelson explain app web

The live values need the collector; without it the rest is explained all the same.";

/// Whose kernel counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum View {
    /// The chosen pods' own.
    Own,
    /// Their peers'.
    Peers,
    /// Either; a connection between two chosen pods appears once from each end.
    Both,
}

/// How to print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Columns for people.
    Table,
    /// One JSON object a line.
    Json,
}

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// So long ago.
    Ago(SignedDuration),
    /// At this time.
    At(Timestamp),
}

// === impl Since ===

impl Since {
    /// The time that is meant, at `now`.
    #[must_use]
    pub fn resolve(self, now: Timestamp) -> Timestamp {
        match self {
            Self::At(at) => at,
            Self::Ago(ago) => now.checked_sub(ago).unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }
}

fn name(text: &str) -> Result<String, String> {
    let help = "names have a-z, 0-9, - and . only, and at most 253 of them";
    if is_object_name(text) { Ok(text.to_owned()) } else { Err(help.into()) }
}

fn since(text: &str) -> Result<Since, String> {
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(Since::At(at));
    }
    match text.parse::<SignedDuration>() {
        Ok(ago) if !ago.is_negative() => Ok(Since::Ago(ago)),
        _ => {
            Err("give a duration such as 5m or 1h30m, or a time such as 2026-01-31T12:00:00Z"
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn observe(arguments: &[&str]) -> Result<ObserveArgs, clap::Error> {
        let all = ["keelson", "observe"].iter().chain(arguments);
        match Cli::try_parse_from(all)?.command {
            Command::Observe(observe) => Ok(observe),
            other => panic!("not observe: {other:?}"),
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn a_time_is_a_duration_or_a_point() {
        let now: Timestamp = "2026-01-31T12:00:00Z".parse().unwrap();
        const ROWS: &[(&str, &str)] = &[
            ("5m", "2026-01-31T11:55:00Z"),
            ("1h30m", "2026-01-31T10:30:00Z"),
            ("90s", "2026-01-31T11:58:30Z"),
            ("2026-01-31T08:00:00Z", "2026-01-31T08:00:00Z"),
        ];
        for (text, expected) in ROWS {
            let got = observe(&["--since", text]).unwrap().since.unwrap().resolve(now);
            assert_eq!(got.to_string(), *expected, "{text}");
        }
        for text in ["", "5", "-5m", "yesterday"] {
            assert!(observe(&["--since", text]).is_err(), "{text}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        for arguments in [
            &["-A", "-n", "shop"][..],
            &["--application", "web", "--pod", "web-1"],
            &["--application", "web", "-A"],
            &["--last", "0"],
            &["--pod", "web?x=y"],
            &["-n", ""],
            &["--view", "mine"],
        ] {
            let error = observe(arguments).unwrap_err();
            assert_eq!(error.exit_code(), 2, "{arguments:?}");
        }
    }
}
