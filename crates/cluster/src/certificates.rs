//! Whose a client certificate is, as the API server reads one: the common name is the user, the
//! organizations are its groups. Whether to believe it was TLS's question.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use x509_parser::parse_x509_certificate;

use crate::tokens::User;

/// Every user whom the API server knows is in it.
const AUTHENTICATED: &str = "system:authenticated";
/// Namespace of the ConfigMap in which the API server publishes who vouches for its clients.
const NAMESPACE: &str = "kube-system";
const CONFIG_MAP: &str = "extension-apiserver-authentication";
const BUNDLE: &str = "client-ca-file";

/// The user that a certificate names while it holds; none: it names nobody, or does not hold at
/// `unix_seconds`.
#[must_use]
pub fn user(der: &[u8], unix_seconds: i64) -> Option<User> {
    let (_, certificate) = parse_x509_certificate(der).ok()?;
    let validity = certificate.validity();
    let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let subject = certificate.subject();
    let name = subject.iter_common_name().next()?.as_str().ok()?.to_owned();
    let organizations = subject.iter_organization().filter_map(|group| group.as_str().ok());
    let groups = organizations.chain([AUTHENTICATED]).map(str::to_owned).collect();
    let is_user = !name.is_empty() && (from..=to).contains(&unix_seconds);
    is_user.then(|| User { name, groups, ..User::default() })
}

/// The authorities of clients that the API server itself believes, in PEM; none: it believes none.
///
/// # Errors
/// The API server refuses, or cannot be reached.
pub async fn authorities(client: &Client) -> kube::Result<Option<String>> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = maps.get_opt(CONFIG_MAP).await?;
    Ok(map.and_then(|map| map.data).and_then(|mut data| data.remove(BUNDLE)))
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, KeyPair};

    use super::*;

    #[test]
    fn the_subject_names_user_and_groups_while_it_holds() {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.distinguished_name.push(DnType::CommonName, "ada");
        params.distinguished_name.push(DnType::OrganizationName, "sre");
        (params.not_before, params.not_after) =
            (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2021, 1, 1));
        let der = params.self_signed(&KeyPair::generate().unwrap()).unwrap();
        let found = user(der.der(), 1_590_000_000).unwrap();
        assert_eq!(
            (found.name.as_str(), found.groups),
            ("ada", vec!["sre".into(), AUTHENTICATED.into()])
        );
        assert_eq!(user(der.der(), 1_790_000_000), None);
        assert_eq!(user(b"no certificate", 1_590_000_000), None);
    }
}
