//! Which rows a query wants: `allow` and `deny`, each an OR of filters, each an AND of fields.
//!
//! Pure. A filter is compiled once from the wire and refused with the field's name when it cannot
//! mean anything; matching allocates nothing.

use std::{collections::BTreeSet, net::IpAddr};

use keelson_model::{Direction, Endpoint, PodRef, Remote, limits};
use keelson_proto::query as wire;

use crate::{
    cidr::{Cidr, CidrError},
    sight::Sight,
};

/// Compiled filters.
#[derive(Clone, Debug, Default)]
pub struct Filters {
    allow: Vec<Filter>,
    deny: Vec<Filter>,
    /// What the caller may see.
    pub sight: Sight,
}

#[derive(Clone, Debug, Default)]
struct Filter {
    local: Side,
    peer: Side,
    node: Vec<String>,
    remote: Vec<Cidr>,
    port: Vec<u16>,
    direction: Option<Direction>,
}

/// What is asked of one end.
#[derive(Clone, Debug, Default)]
struct Side {
    namespace: Vec<String>,
    pod: Vec<String>,
    workload: Vec<(String, String)>,
}

/// What a filter looks at.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The node that counted.
    pub node: &'a str,
    /// The end on it.
    pub local: &'a Endpoint,
    /// The other end, named.
    pub peer: &'a Endpoint,
    /// The other end as the socket had it.
    pub remote: Remote,
    /// The service's port.
    pub port: u16,
    /// Which end `local` is.
    pub direction: Direction,
}

/// A filter that cannot mean anything.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FilterError {
    /// More filters than a query may have.
    #[error("a query takes at most {} filters", limits::QUERY_FILTERS)]
    TooManyFilters,
    /// More values than a field may have.
    #[error("field {field} takes at most {} values", limits::QUERY_FILTER_VALUES)]
    TooManyValues {
        /// The field.
        field: &'static str,
    },
    /// A workload that is not `Kind/name`.
    #[error("field {field} takes Kind/name such as Deployment/web, not `{value}`")]
    Workload {
        /// The field.
        field: &'static str,
        /// What was given, shortened.
        value: String,
    },
    /// A port above 65535.
    #[error("field port takes 0 to 65535, not {value}")]
    Port {
        /// What was given.
        value: u32,
    },
    /// A direction that this version does not know.
    #[error("field direction has the unknown value {value}")]
    Direction {
        /// What was given.
        value: i32,
    },
    /// No address range.
    #[error("field remote_cidr is wrong")]
    RemoteCidr(#[from] CidrError),
}

// === impl Filters ===

impl Filters {
    /// Compiles what came over the wire; none means every row.
    ///
    /// # Errors
    /// A field cannot mean anything, or there are too many.
    pub fn compile(filters: Option<&wire::Filters>) -> Result<Self, FilterError> {
        let Some(filters) = filters else { return Ok(Self::default()) };
        if filters.allow.len() + filters.deny.len() > limits::QUERY_FILTERS {
            return Err(FilterError::TooManyFilters);
        }
        let compile = |list: &[wire::Filter]| -> Result<Vec<Filter>, FilterError> {
            list.iter().map(Filter::compile).collect()
        };
        let (allow, deny) = (compile(&filters.allow)?, compile(&filters.deny)?);
        Ok(Self { allow, deny, sight: Sight::All })
    }

    /// The filters for a caller who may see so much.
    #[must_use]
    pub fn seen_by(self, sight: Sight) -> Self {
        Self { sight, ..self }
    }

    /// The namespaces whose pods are asked for by name.
    #[must_use]
    pub fn namespaces(&self) -> BTreeSet<String> {
        let of_pods = |filter: &Filter| {
            let pods = filter.local.pod.iter().filter_map(|pod| pod.split_once('/'));
            pods.map(|(namespace, _)| namespace.to_owned()).collect::<Vec<_>>()
        };
        let named = self.allow.iter().flat_map(|filter| filter.local.namespace.clone());
        named.chain(self.allow.iter().flat_map(of_pods)).collect()
    }

    /// Whether the row is wanted.
    #[must_use]
    pub fn matches(&self, row: &Row<'_>) -> bool {
        if !self.sight.shows(row.local) {
            return false;
        }
        let is_allowed =
            self.allow.is_empty() || self.allow.iter().any(|filter| filter.matches(row));
        is_allowed && !self.deny.iter().any(|filter| filter.matches(row))
    }

    /// Whether a flow that its pairs name is wanted: only where a filter asks for a peer's pod or
    /// workload. Its counts are also part of the Service's flow, which such a filter never matches.
    #[must_use]
    pub fn matches_pair(&self, row: &Row<'_>) -> bool {
        let asks = |filter: &&Filter| filter.peer.asks_for_pods();
        self.sight.shows(row.local)
            && self.allow.iter().filter(asks).any(|filter| filter.matches(row))
            && !self.deny.iter().any(|filter| filter.matches(row))
    }

    /// Whether such a flow could be wanted at all.
    #[must_use]
    pub fn wants_pairs(&self) -> bool {
        self.allow.iter().any(|filter| filter.peer.asks_for_pods())
    }
}

// === impl Filter ===

impl Filter {
    fn compile(filter: &wire::Filter) -> Result<Self, FilterError> {
        let wire::Filter {
            namespace,
            pod,
            workload,
            node,
            remote_cidr,
            port,
            direction,
            peer_namespace,
            peer_pod,
            peer_workload,
        } = filter;
        bounded("node", node.len())?;
        bounded("remote_cidr", remote_cidr.len())?;
        bounded("port", port.len())?;
        let remote: Result<Vec<Cidr>, CidrError> =
            remote_cidr.iter().map(|text| text.parse()).collect();
        let to_port =
            |value: &u32| u16::try_from(*value).map_err(|_| FilterError::Port { value: *value });
        Ok(Self {
            local: Side::compile(["namespace", "pod", "workload"], namespace, pod, workload)?,
            peer: Side::compile(
                ["peer_namespace", "peer_pod", "peer_workload"],
                peer_namespace,
                peer_pod,
                peer_workload,
            )?,
            node: node.clone(),
            remote: remote?,
            port: port.iter().map(to_port).collect::<Result<_, _>>()?,
            direction: direction_of(*direction)?,
        })
    }

    fn matches(&self, row: &Row<'_>) -> bool {
        let Self { local, peer, node, remote, port, direction } = self;
        local.matches(row.local)
            && peer.matches(row.peer)
            && (node.is_empty() || node.iter().any(|wanted| wanted == row.node))
            && (remote.is_empty() || address(row.remote).is_some_and(|at| lies_in(remote, at)))
            && (port.is_empty() || port.contains(&row.port))
            && direction.is_none_or(|wanted| wanted == row.direction)
    }
}

// === impl Side ===

impl Side {
    fn compile(
        [namespace_field, pod_field, workload_field]: [&'static str; 3],
        namespace: &[String],
        pod: &[String],
        workload: &[String],
    ) -> Result<Self, FilterError> {
        bounded(namespace_field, namespace.len())?;
        bounded(pod_field, pod.len())?;
        bounded(workload_field, workload.len())?;
        let split = |text: &String| {
            let parts =
                text.split_once('/').filter(|(kind, name)| !kind.is_empty() && !name.is_empty());
            let (kind, name) = parts.ok_or_else(|| FilterError::Workload {
                field: workload_field,
                value: text.chars().take(64).collect(),
            })?;
            Ok((kind.to_owned(), name.to_owned()))
        };
        Ok(Self {
            namespace: namespace.to_vec(),
            pod: pod.to_vec(),
            workload: workload.iter().map(split).collect::<Result<_, FilterError>>()?,
        })
    }

    fn asks_for_pods(&self) -> bool {
        !self.pod.is_empty() || !self.workload.is_empty()
    }

    fn matches(&self, endpoint: &Endpoint) -> bool {
        let Self { namespace, pod, workload } = self;
        if namespace.is_empty() && pod.is_empty() && workload.is_empty() {
            return true;
        }
        if let (Endpoint::Service(service), true) =
            (endpoint, pod.is_empty() && workload.is_empty())
        {
            return namespace.contains(&service.namespace);
        }
        let Some(found) = endpoint.pod() else { return false };
        (namespace.is_empty() || namespace.contains(&found.namespace))
            && (pod.is_empty() || pod.iter().any(|wanted| is_pod(wanted, found)))
            && (workload.is_empty() || workload.iter().any(|wanted| is_of(wanted, found)))
    }
}

/// `name` or `namespace/name`.
fn is_pod(wanted: &str, pod: &PodRef) -> bool {
    match wanted.split_once('/') {
        Some((namespace, name)) => namespace == pod.namespace && name == pod.name,
        None => wanted == pod.name,
    }
}

fn is_of((kind, name): &(String, String), pod: &PodRef) -> bool {
    pod.workload.as_ref().is_some_and(|workload| workload.kind == *kind && workload.name == *name)
}

fn address(remote: Remote) -> Option<IpAddr> {
    match remote {
        Remote::Address(address) => Some(address),
        Remote::Other => None,
    }
}

fn lies_in(ranges: &[Cidr], address: IpAddr) -> bool {
    ranges.iter().any(|range| range.contains(address))
}

fn direction_of(value: i32) -> Result<Option<Direction>, FilterError> {
    match value {
        0 => Ok(None),
        1 => Ok(Some(Direction::Outbound)),
        2 => Ok(Some(Direction::Inbound)),
        value => Err(FilterError::Direction { value }),
    }
}

fn bounded(field: &'static str, count: usize) -> Result<(), FilterError> {
    if count > limits::QUERY_FILTER_VALUES {
        return Err(FilterError::TooManyValues { field });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
