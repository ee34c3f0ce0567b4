//! What a caller may see: rows whose local end lies in its namespaces, and of their peers the names
//! that lie there too. Pure.

use std::{collections::BTreeSet, sync::Arc};

use keelson_model::{Endpoint, UnknownReason};
use keelson_proto::query as wire;

/// What a caller may see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Sight {
    /// Everything.
    #[default]
    All,
    /// Pods of these namespaces.
    Namespaces(BTreeSet<String>),
}

impl Sight {
    /// Whether rows of this local end are the caller's to see.
    #[must_use]
    pub fn shows(&self, local: &Endpoint) -> bool {
        match self {
            Self::All => true,
            Self::Namespaces(_) => local.pod().is_some() && self.names(local),
        }
    }

    /// The peer, or that its name is not the caller's to see. Its address stands in the row: the
    /// caller's own pod spoke to it.
    #[must_use]
    pub fn veil(&self, peer: Arc<Endpoint>) -> Arc<Endpoint> {
        if self.names(&peer) {
            return peer;
        }
        Arc::new(Endpoint::Unknown(UnknownReason::NotPermitted))
    }

    /// What an answer lacks, without the node: which nodes there are is not the caller's to see.
    #[must_use]
    pub fn veil_lost(&self, mut lost: wire::Lost) -> wire::Lost {
        if *self != Self::All {
            lost.node.clear();
        }
        lost
    }

    fn names(&self, endpoint: &Endpoint) -> bool {
        let Self::Namespaces(seen) = self else { return true };
        match endpoint {
            Endpoint::Pod(pod) => seen.contains(&pod.namespace),
            Endpoint::Service(service) => seen.contains(&service.namespace),
            Endpoint::Node(_) => false,
            Endpoint::External(_) | Endpoint::Other | Endpoint::Unknown(_) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use keelson_model::{PodRef, ServiceRef};

    use super::*;

    fn pod(namespace: &str) -> Endpoint {
        Endpoint::Pod(PodRef {
            uid: "uid".into(),
            namespace: namespace.into(),
            name: "web".into(),
            node: "node-a".into(),
            workload: None,
            revision: String::new(),
            host_network: false,
        })
    }

    #[test]
    fn who_sees_a_namespace_sees_its_pods_and_no_other_names() {
        let shop = Sight::Namespaces(BTreeSet::from(["shop".to_owned()]));
        let service = |namespace: &str| {
            Endpoint::Service(ServiceRef { namespace: namespace.into(), name: "web".into() })
        };
        let node = Endpoint::Node("node-a".into());
        for (endpoint, is_shown, is_named) in [
            (pod("shop"), true, true),
            (pod("bank"), false, false),
            (service("shop"), false, true),
            (service("bank"), false, false),
            (node, false, false),
            (Endpoint::External([203, 0, 113, 1].into()), false, true),
        ] {
            assert_eq!(shop.shows(&endpoint), is_shown, "{endpoint:?}");
            let veiled = shop.veil(Arc::new(endpoint.clone()));
            assert_eq!(*veiled == endpoint, is_named, "{endpoint:?}");
            assert!(Sight::All.shows(&endpoint));
            assert_eq!(*Sight::All.veil(Arc::new(endpoint.clone())), endpoint);
        }
    }
}
