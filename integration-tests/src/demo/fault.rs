//! Faults on a pod's network by counted nft rules: one in so many data segments of the server's
//! data port, its probes excluded. The rule goes when the value is dropped.

use anyhow::Context;

use super::view::Pod;
use crate::{cluster::Cluster, process::run};

const TABLE: &str = "keelson-fault";
const PORT: u16 = 8080;
/// Longer than any segment without data.
const WITH_DATA: &str = "meta length gt 100";
/// The demo drops 5 %.
pub const ONE_IN_TWENTY: u32 = 20;

/// Where segments are dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// On their way into the pod: its peers must send again.
    Door,
    /// On their way out, after they have left the pod: it must send again itself.
    Egress,
}

/// A fault that holds.
#[derive(Debug)]
pub struct Fault {
    family: &'static str,
    /// The command line before `nft`: into the pod's network namespace, or nothing.
    enter: Vec<String>,
}

impl Fault {
    /// Begins to drop one data segment in `one_in`.
    ///
    /// # Errors
    /// The pod has no process here, or nft refuses.
    pub fn begin(cluster: &Cluster, pod: &Pod, kind: Kind, one_in: u32) -> anyhow::Result<Self> {
        let drop = format!("{WITH_DATA} numgen inc mod {one_in} eq 0 counter drop");
        let pid = cluster.pod_process(&pod.uid)?.to_string();
        let into_pod = ["nsenter", "-t", &pid, "-n"].map(String::from).to_vec();
        let (fault, chain, rule) = match kind {
            Kind::Door => {
                let rule = format!("tcp dport {PORT} {drop}");
                let fault = Self { family: "inet", enter: into_pod };
                (fault, "{ type filter hook input priority 0; }".to_owned(), rule)
            }
            Kind::Egress => {
                let device = host_end(&into_pod)?;
                let rule = format!("tcp sport {PORT} {drop}");
                let fault = Self { family: "netdev", enter: Vec::new() };
                let chain =
                    format!("{{ type filter hook ingress device \"{device}\" priority 0; }}");
                (fault, chain, rule)
            }
        };
        // What an interrupted run left would count for this one.
        let _ = fault.nft(&["delete", "table", fault.family, TABLE]);
        fault.nft(&["add", "table", fault.family, TABLE])?;
        fault.nft(&["add", "chain", fault.family, TABLE, "fault", &chain])?;
        let mut add = vec!["add", "rule", fault.family, TABLE, "fault"];
        add.extend(rule.split(' '));
        fault.nft(&add)?;
        Ok(fault)
    }

    /// Segments dropped so far.
    ///
    /// # Errors
    /// The rule is gone.
    pub fn dropped(&self) -> anyhow::Result<u64> {
        let text = self.nft(&["list", "table", self.family, TABLE])?;
        let count = text.split("counter packets ").nth(1).and_then(|rest| rest.split(' ').next());
        Ok(count.context("the fault's rule has no counter")?.parse()?)
    }

    fn nft(&self, args: &[&str]) -> anyhow::Result<String> {
        let mut line: Vec<&str> = self.enter.iter().map(String::as_str).collect();
        line.push("nft");
        line.extend(args);
        let (program, args) = line.split_first().context("no command")?;
        run(program, args)
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        // The pod may be gone, and its namespace with it.
        let _ = self.nft(&["delete", "table", self.family, TABLE]);
    }
}

/// Name of the host's end of the pod's veth pair.
fn host_end(into_pod: &[String]) -> anyhow::Result<String> {
    let mut line: Vec<&str> = into_pod.iter().map(String::as_str).collect();
    line.extend(["ip", "-o", "link", "show", "eth0"]);
    let (program, args) = line.split_first().context("no command")?;
    let text = run(program, args)?;
    let index = text.split("eth0@if").nth(1).and_then(|rest| rest.split(':').next());
    let index = index.with_context(|| format!("the pod's eth0 has no peer: {text}"))?;
    let links = run("ip", &["-o", "link"])?;
    let link = links.lines().find(|line| line.starts_with(&format!("{index}: ")));
    let name =
        link.and_then(|line| line.split(": ").nth(1)).and_then(|name| name.split('@').next());
    Ok(name.with_context(|| format!("no link {index} on the host"))?.to_owned())
}
