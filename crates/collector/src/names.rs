//! Whose an address was at a time: pods, nodes and Services of the cluster, by holder and interval.
//!
//! Pure: `watch` feeds it from the API server, tests from tables. Addresses are reused, so every
//! name holds for an interval `[from, to)`; a node's address is the node, never one of its pods;
//! what is not known is said to be unknown, never guessed.

use std::{
    collections::{HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use keelson_model::{
    Endpoint, NodeName, PodUid, Remote, ServiceRef, UnixNanos, UnknownReason, limits,
};

use crate::cidr::Cidr;

pub mod facts;
pub mod watch;

const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Who may hold an address.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Holder {
    /// A pod with an address of its own.
    Pod(PodUid),
    /// A node.
    Node(NodeName),
    /// A Service with a virtual address.
    Service(ServiceRef),
}

/// What kind of holder a relist is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum HolderKind {
    /// Pods.
    Pod,
    /// Nodes.
    Node,
    /// Services.
    Service,
}

/// What the API server says of one holder now.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim {
    /// Who.
    pub holder: Holder,
    /// How it is named in answers.
    pub endpoint: Endpoint,
    /// The addresses that it holds; empty: none any more.
    pub addresses: Vec<IpAddr>,
    /// Addresses that are its only where nobody else claims them: a node's bridge and tunnel.
    pub weak_addresses: Vec<IpAddr>,
    /// Ranges from which a node gives its pods addresses.
    pub pod_ranges: Vec<Cidr>,
    /// Since when, by the API server's clock.
    pub from: UnixNanos,
}

/// A span of time that a name is asked for.
#[derive(Clone, Copy, Debug)]
pub struct During {
    /// First instant.
    pub from: UnixNanos,
    /// First instant after it.
    pub to: UnixNanos,
}

/// The index.
#[derive(Debug)]
pub struct NameIndex {
    addresses: HashMap<IpAddr, Vec<Entry>>,
    holders: HashMap<Holder, Vec<IpAddr>>,
    /// Of the nodes; kept beside them because every unknown address is looked up in it.
    pod_ranges: HashMap<NodeName, Vec<Cidr>>,
    capacity: usize,
    refused: u64,
}

#[derive(Debug)]
struct Entry {
    holder: Holder,
    endpoint: Arc<Endpoint>,
    rank: Rank,
    from: UnixNanos,
    to: Option<UnixNanos>,
}

/// Who wins where several claim an address at one time; the last wins most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    Weak,
    Pod,
    Service,
    Node,
}

impl Default for NameIndex {
    fn default() -> Self {
        Self::with_capacity(limits::COLLECTOR_ADDRESSES)
    }
}

// === impl NameIndex ===

impl NameIndex {
    /// At most `capacity` addresses.
    #[must_use]
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            addresses: HashMap::new(),
            holders: HashMap::new(),
            pod_ranges: HashMap::new(),
            capacity,
            refused: 0,
        }
    }

    /// Takes what the API server says of one holder, seen at `now`.
    pub fn set(&mut self, claim: Claim, now: UnixNanos) {
        let Claim { holder, endpoint, addresses, weak_addresses, pod_ranges, from } = claim;
        let rank = match &holder {
            Holder::Pod(_) => Rank::Pod,
            Holder::Node(_) => Rank::Node,
            Holder::Service(_) => Rank::Service,
        };
        let strong = addresses.into_iter().map(|address| (address.to_canonical(), rank));
        let weak = weak_addresses.into_iter().map(|address| (address.to_canonical(), Rank::Weak));
        let wanted: Vec<(IpAddr, Rank)> = strong.chain(weak).collect();
        for address in self.holders.remove(&holder).unwrap_or_default() {
            if !wanted.iter().any(|(kept, _)| *kept == address) {
                self.end(address, &holder, now);
            }
        }
        let endpoint = Arc::new(endpoint);
        let mut held = Vec::new();
        for (address, rank) in wanted {
            let entry = Entry {
                holder: holder.clone(),
                endpoint: Arc::clone(&endpoint),
                rank,
                from,
                to: None,
            };
            if self.begin(address, entry) {
                held.push(address);
            }
        }
        if let Holder::Node(node) = &holder {
            self.pod_ranges.insert(node.clone(), pod_ranges);
        }
        self.holders.insert(holder, held);
    }

    /// The holder is gone since `now`.
    pub fn remove(&mut self, holder: &Holder, now: UnixNanos) {
        for address in self.holders.remove(holder).unwrap_or_default() {
            self.end(address, holder, now);
        }
        if let Holder::Node(node) = holder {
            self.pod_ranges.remove(node);
        }
    }

    /// After a relist: every holder of this kind that is not in `present` is gone since `now`.
    pub fn retain(&mut self, kind: HolderKind, present: &HashSet<Holder>, now: UnixNanos) {
        let is_gone = |holder: &&Holder| holder.kind() == kind && !present.contains(*holder);
        let gone: Vec<Holder> = self.holders.keys().filter(is_gone).cloned().collect();
        for holder in gone {
            self.remove(&holder, now);
        }
    }

    /// Forgets names that ended too long ago for any window held.
    pub fn expire(&mut self, now: UnixNanos) {
        let keep_ns = limits::COLLECTOR_ENDED_NAME_SECONDS * NANOS_PER_SECOND;
        let is_needed =
            |entry: &Entry| entry.to.is_none_or(|to| now.0.saturating_sub(to.0) < keep_ns);
        self.addresses.retain(|_, entries| {
            entries.retain(is_needed);
            !entries.is_empty()
        });
    }

    /// Addresses held, ended ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.addresses.len()
    }

    /// Nothing is held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.addresses.is_empty()
    }

    /// Addresses refused because the index was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// The nodes of the cluster.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeName> {
        self.pod_ranges.keys()
    }

    /// The name of the remote side of a row of `local` on `node`.
    #[must_use]
    pub fn peer(
        &self,
        local: &Arc<Endpoint>,
        node: &NodeName,
        remote: Remote,
        during: During,
    ) -> Arc<Endpoint> {
        let address = match remote {
            Remote::Address(address) => address.to_canonical(),
            Remote::Other => return Arc::new(Endpoint::Other),
        };
        if address.is_loopback() {
            // Loopback never leaves the network namespace: the peer is the pod itself, or the host.
            return match local.as_ref() {
                Endpoint::Pod(pod) if !pod.host_network => Arc::clone(local),
                _ => Arc::new(Endpoint::Node(node.clone())),
            };
        }
        if let Some(found) = self.holder_of(address, during) {
            return found;
        }
        if self.is_pod_range(address) {
            return Arc::new(Endpoint::Unknown(UnknownReason::PodNotSeen));
        }
        Arc::new(Endpoint::External(address))
    }

    fn holder_of(&self, address: IpAddr, during: During) -> Option<Arc<Endpoint>> {
        let entries = self.addresses.get(&address)?;
        let holds =
            |entry: &&Entry| entry.from < during.to && entry.to.is_none_or(|to| to > during.from);
        let best = entries.iter().filter(holds).max_by_key(|entry| (entry.rank, entry.from));
        best.map(|entry| Arc::clone(&entry.endpoint))
    }

    fn is_pod_range(&self, address: IpAddr) -> bool {
        self.pod_ranges.values().flatten().any(|range| range.contains(address))
    }

    fn begin(&mut self, address: IpAddr, entry: Entry) -> bool {
        if !self.addresses.contains_key(&address) && self.addresses.len() >= self.capacity {
            self.refused += 1;
            return false;
        }
        let entries = self.addresses.entry(address).or_default();
        let known =
            entries.iter_mut().find(|known| known.to.is_none() && known.holder == entry.holder);
        if let Some(known) = known {
            known.endpoint = entry.endpoint;
            known.rank = entry.rank;
            return true;
        }
        if entries.len() >= limits::COLLECTOR_HOLDERS_PER_ADDRESS {
            let oldest =
                entries.iter().enumerate().min_by_key(|(_, known)| (known.to.is_none(), known.to));
            if let Some((position, _)) = oldest {
                entries.swap_remove(position);
            }
        }
        entries.push(entry);
        true
    }

    fn end(&mut self, address: IpAddr, holder: &Holder, now: UnixNanos) {
        let entries = self.addresses.get_mut(&address);
        for entry in entries.into_iter().flatten() {
            if entry.to.is_none() && entry.holder == *holder {
                entry.to = Some(now);
            }
        }
    }
}

// === impl Holder ===

impl Holder {
    /// Of which kind it is.
    #[must_use]
    pub fn kind(&self) -> HolderKind {
        match self {
            Self::Pod(_) => HolderKind::Pod,
            Self::Node(_) => HolderKind::Node,
            Self::Service(_) => HolderKind::Service,
        }
    }
}

#[cfg(test)]
mod tests;
