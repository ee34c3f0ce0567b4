//! The words of conditions: types and bounded reasons. `docs/runbook.md` has a paragraph on each.

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// Every word there is.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// As it stands in the status.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => stringify!($variant),)* }
            }

            /// The word that stands in a status.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|word| word.as_str() == text)
            }
        }
    };
}

words!(
    /// Types of conditions.
    ConditionType {
        /// The workload is as declared.
        Ready,
        /// A person has to act.
        Stalled,
        /// Enough pods are ready.
        Available,
        /// The workload is on its way.
        Progressing,
        /// What the kernels say.
        KernelHealthy,
    }
);

words!(
    /// Reasons of the conditions that `converge` writes.
    ConvergeReason {
        /// All wanted pods are ready.
        WorkloadReady,
        /// Some are not.
        WorkloadNotReady,
        /// A rollout or a scaling is under way.
        RolloutInProgress,
        /// It is done.
        RolloutComplete,
        /// The workload that is referred to does not exist.
        WorkloadNotFound,
        /// The spec cannot be.
        InvalidSpec,
        /// The kernels say no, and the spec lets that count.
        KernelUnhealthy,
        /// Nothing for a person to do.
        AsDeclared,
    }
);

words!(
    /// Reasons of KernelHealthy.
    HealthReason {
        /// True: traffic was seen and no pod is blamed.
        Healthy,
        /// False: retransmissions blame a pod.
        HighRetransmitRatio,
        /// False: failed connects blame a pod.
        HighConnectFailureRatio,
        /// False: resets blame a pod.
        HighResetRatio,
        /// False: round-trip times blame a pod.
        HighRtt,
        /// False: many pods of one node at once; the node is blamed.
        NodeDegraded,
        /// Unknown: watched, but too few samples.
        NoTraffic,
        /// Unknown: no agent sees its pods.
        NoCoverage,
        /// Unknown: the last evidence is older than the freshness limit.
        Stale,
        /// Unknown: a path between two pods is bad, and neither end can be blamed.
        PeerPathDegraded,
        /// Unknown: nothing to judge, since the spec cannot be or the workload does not exist.
        NotJudged,
    }
);
