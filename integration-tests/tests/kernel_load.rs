//! The generator of traffic, whose log the probe and `keelson observe` are held against: what it
//! says of itself must be exact first. As root; each test has a network namespace of its own.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use keelson_integration_tests::process::{run, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

const WITHIN: Duration = Duration::from_secs(20);
const SIZE: u64 = 600;

/// A network namespace with a loopback of its own, and a generator's server in it.
struct Server {
    namespace: String,
    child: Child,
}

impl Server {
    fn start(name: &str) -> Self {
        let namespace = format!("keelson-load-{name}");
        let _ = run("ip", &["netns", "del", &namespace]);
        run("ip", &["netns", "add", &namespace]).unwrap();
        run("ip", &["-n", &namespace, "link", "set", "lo", "up"]).unwrap();
        let child = load(&namespace, &["server"]).stdout(Stdio::piped()).spawn().unwrap();
        wait_for("the server's ports", WITHIN, || {
            let sockets = inside(&namespace, &["ss", "-Hltn"]);
            let listens = |port: &str| sockets.contains(port);
            if listens(":8080 ") && listens(":8081 ") { Ok(()) } else { Err(sockets) }
        })
        .unwrap();
        Self { namespace, child }
    }

    /// Runs a client to its own end and gives its last summary.
    fn client(&self, mode: &str, count: u64) -> Value {
        let (count, size) = (count.to_string(), SIZE.to_string());
        let target = ["client", "--target", "127.0.0.1:8080", "--mode", mode, "--rate", "800"];
        let mut args = target.to_vec();
        args.extend(["--size", &size, "--count", &count]);
        let output = load(&self.namespace, &args).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        last(&output.stdout)
    }

    /// Asks it to end and gives its last summary.
    fn end(self) -> Value {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        let output = self.child.wait_with_output().unwrap();
        run("ip", &["netns", "del", &self.namespace]).unwrap();
        assert!(output.status.success());
        last(&output.stdout)
    }
}

fn load(namespace: &str, args: &[&str]) -> Command {
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_keelson-load")]).args(args);
    command
}

fn inside(namespace: &str, command: &[&str]) -> String {
    let mut args = vec!["netns", "exec", namespace];
    args.extend(command);
    run("ip", &args).unwrap()
}

fn last(output: &[u8]) -> Value {
    let text = String::from_utf8_lossy(output);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Both ends say the same, and it is what was asked for.
fn is_exact(client: &Value, server: &Value, count: u64, connections: u64) {
    for (summary, who) in [(client, "client"), (server, "server")] {
        assert_eq!(summary["opened"], connections, "{who}: {summary}");
        assert_eq!(summary["closed"], connections, "{who}: {summary}");
        assert_eq!(summary["bytesSent"], count * SIZE, "{who}: {summary}");
        assert_eq!(summary["bytesReceived"], count * SIZE, "{who}: {summary}");
        assert_eq!(summary["failed"], 0, "{who}: {summary}");
        assert_eq!(summary["broken"], 0, "{who}: {summary}");
    }
}

#[test]
fn connections_that_are_kept_carry_every_request_and_are_closed_at_the_end() {
    let server = Server::start("kept");
    let client = server.client("keepalive", 400);
    is_exact(&client, &server.end(), 400, 16);
    assert_eq!(client["segmentsRetransmitted"], 0, "{client}");
}

#[test]
fn what_the_sockets_sent_again_is_in_the_log_and_requests_count_once() {
    let server = Server::start("lost");
    let chain = "{ type filter hook input priority 0; }";
    let rule = "tcp dport 8080 meta length gt 100 numgen inc mod 50 eq 0 counter drop";
    inside(&server.namespace, &["nft", "add", "table", "inet", "loss"]);
    inside(&server.namespace, &["nft", "add", "chain", "inet", "loss", "in", chain]);
    inside(&server.namespace, &["nft", "add", "rule", "inet", "loss", "in", rule]);
    let client = server.client("keepalive", 400);
    let rules = inside(&server.namespace, &["nft", "list", "table", "inet", "loss"]);
    let dropped = rules.split("counter packets ").nth(1).unwrap().split(' ').next().unwrap();
    let dropped: u64 = dropped.parse().unwrap();
    is_exact(&client, &server.end(), 400, 16);
    // The peer may be late on a busy machine, so that more was sent again than was lost.
    let (segments, bytes) = (&client["segmentsRetransmitted"], &client["bytesRetransmitted"]);
    assert!(dropped >= 8 && segments.as_u64() >= Some(dropped), "{dropped} dropped: {client}");
    assert_eq!(bytes.as_u64(), segments.as_u64().map(|segments| segments * SIZE), "{client}");
}

#[test]
fn short_connections_carry_ten_requests_each() {
    let server = Server::start("short");
    let client = server.client("short", 400);
    let opened = client["opened"].as_u64().unwrap();
    // The last workers may share the last requests.
    assert!((40..=48).contains(&opened), "{client}");
    is_exact(&client, &server.end(), 400, opened);
}

#[test]
fn a_client_goes_on_when_its_server_is_away_for_a_while() {
    let server = Server::start("away");
    let namespace = server.namespace.clone();
    kill_process(Pid::from_child(&server.child), Signal::KILL).unwrap();
    let mut child = server.child;
    child.wait().unwrap();
    let args = ["client", "--target", "127.0.0.1:8080", "--mode", "keepalive", "--count", "100"];
    let client = load(&namespace, &args).stdout(Stdio::piped()).spawn().unwrap();
    wait_for("a refused connection", WITHIN, || {
        let counters = inside(&namespace, &["cat", "/proc/net/snmp"]);
        let tcp = counters.lines().rfind(|line| line.starts_with("Tcp:")).unwrap();
        let fails = tcp.split(' ').nth(7).unwrap();
        if fails == "0" { Err(tcp.to_owned()) } else { Ok(()) }
    })
    .unwrap();
    let server = load(&namespace, &["server"]).stdout(Stdio::piped()).spawn().unwrap();
    let summary = last(&client.wait_with_output().unwrap().stdout);
    assert!(summary["failed"].as_u64() > Some(0), "{summary}");
    assert_eq!((&summary["broken"], &summary["bytesReceived"]), (&0.into(), &51_200.into()));
    Server { namespace, child: server }.end();
}
