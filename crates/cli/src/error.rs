//! What can go wrong between a person and the collector, each with what helps.
//!
//! Every variant names the operation and has a remedy; `main` prints both, and the chain of causes.

use kube::core::Status;

/// A command could not be done.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// No usable kubeconfig.
    #[error("no kubeconfig could be used")]
    Config(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The API server did not answer.
    #[error("the API server at {server} did not answer")]
    Unreachable {
        /// Its address.
        server: String,
        /// Why.
        source: kube::Error,
    },
    /// The API server does not know the caller.
    #[error("the API server does not accept your credentials")]
    Unauthorized,
    /// The caller may not.
    #[error("you may not {verb} {resource} in namespace {namespace}")]
    Forbidden {
        /// The verb.
        verb: &'static str,
        /// The resource, with its subresource.
        resource: &'static str,
        /// Where.
        namespace: String,
    },
    /// No pod of the collector exists.
    #[error("no collector runs in namespace {namespace}")]
    NotInstalled {
        /// Where it was looked for.
        namespace: &'static str,
    },
    /// Pods of the collector exist, none is ready.
    #[error("no collector pod is ready: {}", .pods.join(", "))]
    NotReady {
        /// Name and phase of each.
        pods: Vec<String>,
    },
    /// The authority's certificate is not there.
    #[error("ConfigMap {namespace}/{name} has no ca.crt")]
    NoAuthority {
        /// Where.
        namespace: &'static str,
        /// Its name.
        name: &'static str,
    },
    /// The port-forward or TLS inside it failed.
    #[error("no secure connection to collector pod {pod}")]
    Connect {
        /// The pod.
        pod: String,
        /// Why.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The caller may not see it.
    #[error("the collector refuses: {message}")]
    NotAllowed {
        /// In its words.
        message: String,
    },
    /// The collector does not believe who calls.
    #[error("the collector does not accept your credentials: {message}")]
    Denied {
        /// In its words.
        message: String,
    },
    /// The collector could not answer.
    #[error("the collector could not answer: {message}")]
    Collector {
        /// Code and message.
        message: String,
    },
    /// The answer holds something that this version cannot read.
    #[error("the collector's answer cannot be read: {message}")]
    Answer {
        /// What.
        message: String,
    },
    /// The CRD is not installed.
    #[error("this cluster does not know the kind Application (keelson.dev)")]
    NoApplications,
    /// No such Application.
    #[error("no Application {name} in namespace {namespace}{}", hint(.near))]
    NotFound {
        /// As asked for.
        name: String,
        /// Where.
        namespace: String,
        /// Names that come near, with their namespace where it is another.
        near: Vec<String>,
    },
    /// The Application cannot be read.
    #[error("Application {name} cannot be read: {message}")]
    Unreadable {
        /// Its name.
        name: String,
        /// Why.
        message: String,
    },
    /// Anything else that the API server said.
    #[error("could not {doing}")]
    Api {
        /// The operation.
        doing: String,
        /// Why.
        source: kube::Error,
    },
    /// The output could not be written.
    #[error("could not write the output")]
    Output(#[from] std::io::Error),
}

// === impl CliError ===

impl CliError {
    /// What a call to the API server failed with, as far as it can be told.
    #[must_use]
    pub fn api(call: Call<'_>, error: kube::Error) -> Self {
        let Call { doing, verb, resource, namespace, server } = call;
        match status_code(&error) {
            Some(401) => Self::Unauthorized,
            Some(403) => Self::Forbidden { verb, resource, namespace: namespace.to_owned() },
            None if is_transport(&error) => {
                Self::Unreachable { server: server.to_owned(), source: error }
            }
            _ => Self::Api { doing: doing.to_owned(), source: error },
        }
    }

    /// What the collector's status means.
    #[must_use]
    pub fn collector(status: &tonic::Status) -> Self {
        let message = status.message().to_owned();
        match status.code() {
            tonic::Code::Unauthenticated => Self::Denied { message },
            tonic::Code::PermissionDenied => Self::NotAllowed { message },
            code => Self::Collector { message: format!("{code:?}: {message}") },
        }
    }

    /// What helps.
    #[must_use]
    pub fn remedy(&self) -> String {
        match self {
            Self::Config(_) => "give --kubeconfig FILE, or set KUBECONFIG; `kubectl config get-contexts` \
                lists the contexts that --context takes"
                .into(),
            Self::Unreachable { .. } => {
                "is the cluster up, and is this the right context? `kubectl cluster-info` tries the same"
                    .into()
            }
            Self::Unauthorized => "log in to the cluster anew; `kubectl auth whoami` tries the same".into(),
            Self::Forbidden { verb, resource, namespace } => format!(
                "ask an administrator of the cluster for a role with the verb {verb} on {resource}; \
                 `kubectl auth can-i {verb} {resource} -n {namespace}` tries the same"
            ),
            Self::NotInstalled { .. } => {
                "install Keelson (`kubectl apply -k deploy/overlays/dev`), or choose the cluster where it \
                 is with --context"
                    .into()
            }
            Self::NotReady { .. } => "`kubectl -n keelson-system describe pods` and `kubectl -n \
                keelson-system logs deploy/keelson-collector` say why"
                .into(),
            Self::NoAuthority { .. } => "the operator makes it: `kubectl -n keelson-system get deploy \
                keelson-operator` says whether it runs"
                .into(),
            Self::Connect { .. } => "try again; if it stays so, `kubectl -n keelson-system logs \
                deploy/keelson-collector` says what the collector made of it"
                .into(),
            Self::NotAllowed { .. } => "choose a namespace where you have the role view with -n; an administrator \
                can give the ClusterRole keelson-flows for all"
                .into(),
            Self::Denied { .. } => "log in to the cluster anew; the collector's logs name what it does not accept, \
                and its clock and the API server's must agree"
                .into(),
            Self::Collector { .. } => {
                "`kubectl -n keelson-system logs deploy/keelson-collector` may say more".into()
            }
            Self::Answer { .. } => "use a `keelson` of the collector's version".into(),
            Self::NoApplications => "install the CRDs: `kubectl apply -k deploy/crds`".into(),
            Self::NotFound { namespace, .. } => {
                format!("`kubectl get applications -n {namespace}` lists what is there; -n chooses another namespace")
            }
            Self::Unreadable { .. } => "use a `keelson` of the operator's version".into(),
            Self::Api { source, .. } if status_code(source).is_some() => {
                "the API server's answer above says why".into()
            }
            Self::Api { .. } => "the API server gave no answer that could be read".into(),
            Self::Output(_) => "is the disk full, or the pipe closed?".into(),
        }
    }
}

/// A call to the API server, for its error.
#[derive(Clone, Copy, Debug)]
pub struct Call<'a> {
    /// For people: "list the collector's pods".
    pub doing: &'a str,
    /// The RBAC verb.
    pub verb: &'static str,
    /// The RBAC resource.
    pub resource: &'static str,
    /// Where.
    pub namespace: &'a str,
    /// The API server.
    pub server: &'a str,
}

/// The HTTP status of the API server's answer, if there was one.
#[must_use]
pub fn status_code(error: &kube::Error) -> Option<u16> {
    match error {
        kube::Error::Api(status) => Some(status_number(status)),
        kube::Error::UpgradeConnection(kube::client::UpgradeConnectionError::ProtocolSwitch(
            code,
        )) => Some(code.as_u16()),
        _ => None,
    }
}

fn status_number(status: &Status) -> u16 {
    status.code
}

fn is_transport(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_))
}

fn hint(near: &[String]) -> String {
    match near {
        [] => String::new(),
        names => format!("; near it: {}", names.join(", ")),
    }
}

/// The error and its causes in one line, each said once.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        let words = cause.to_string();
        if !text.contains(&words) {
            text.push_str(": ");
            text.push_str(&words);
        }
        next = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call<'static> {
        Call {
            doing: "ask for a token",
            verb: "create",
            resource: "serviceaccounts/token",
            namespace: "keelson-system",
            server: "https://10.0.0.1:6443",
        }
    }

    fn refused(code: u16) -> kube::Error {
        kube::Error::Api(Box::new(Status::failure("no", "Reason").with_code(code)))
    }

    #[test]
    fn what_the_api_server_refuses_is_named_by_verb_and_resource() {
        let error = CliError::api(call(), refused(403));
        assert_eq!(
            error.to_string(),
            "you may not create serviceaccounts/token in namespace keelson-system"
        );
        assert!(error.remedy().contains("can-i create serviceaccounts/token -n keelson-system"));
        assert!(matches!(CliError::api(call(), refused(401)), CliError::Unauthorized));
        assert!(matches!(CliError::api(call(), refused(500)), CliError::Api { .. }));
        let away = kube::Error::Service("connection refused".into());
        let error = CliError::api(call(), away);
        assert!(error.to_string().contains("https://10.0.0.1:6443"), "{error}");
    }

    #[test]
    fn a_refused_upgrade_is_a_refusal() {
        use kube::client::UpgradeConnectionError;
        let status = UpgradeConnectionError::ProtocolSwitch(http_status(403));
        let error = CliError::api(call(), kube::Error::UpgradeConnection(status));
        assert!(matches!(error, CliError::Forbidden { .. }), "{error}");
    }

    fn http_status(code: u16) -> tonic::codegen::http::StatusCode {
        tonic::codegen::http::StatusCode::from_u16(code).unwrap()
    }

    #[test]
    fn the_chain_says_each_cause_once() {
        let inner = std::io::Error::other("connection refused");
        let error = CliError::Connect { pod: "c-1".into(), source: Box::new(inner) };
        let expected = "no secure connection to collector pod c-1: connection refused";
        assert_eq!(chain(&error), expected);
    }

    #[test]
    fn near_names_stand_in_the_message() {
        let error = CliError::NotFound {
            name: "wep".into(),
            namespace: "shop".into(),
            near: vec!["web".into(), "bank/web".into()],
        };
        assert_eq!(
            error.to_string(),
            "no Application wep in namespace shop; near it: web, bank/web"
        );
    }
}
