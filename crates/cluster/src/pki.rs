//! The telemetry authority: made once, kept in a Secret, its certificate published in a ConfigMap,
//! and the collector's serving certificate signed by it and renewed in time.
//!
//! First slice: the authority itself is not rotated yet. Only the leading operator calls this.

use std::{collections::BTreeMap, time::Duration};

use jiff::Timestamp;
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, Client};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls_pki_types::{CertificateDer, pem::PemObject};

use crate::{COLLECTOR_HOST, NAMESPACE, apply::apply};

/// Secret with the authority's certificate and key.
pub const AUTHORITY_SECRET: &str = "keelson-telemetry-ca-key";
/// ConfigMap with the authority's certificate, for clients.
pub const BUNDLE: &str = "keelson-telemetry-ca";
/// Secret with the collector's certificate and key.
pub const SERVING_SECRET: &str = "keelson-collector-tls";

const MANAGER: &str = "keelson-pki";
const AUTHORITY_DAYS: u64 = 3650;
const SERVING_DAYS: u64 = 30;
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// Certificates hold from an hour ago: clocks differ.
const BACKDATE: Duration = Duration::from_secs(60 * 60);

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum PkiError {
    /// The API server refuses or cannot be reached.
    #[error("cannot {verb} {kind} {NAMESPACE}/{name}")]
    Api {
        /// What was tried.
        verb: &'static str,
        /// On which kind.
        kind: &'static str,
        /// On which object.
        name: &'static str,
        /// The cause.
        source: Box<kube::Error>,
    },
    /// A Secret holds something else.
    #[error(
        "Secret {NAMESPACE}/{name} holds no certificate and key in PEM; delete it, and it is made anew"
    )]
    Unreadable {
        /// Which.
        name: &'static str,
    },
    /// Signing failed.
    #[error("cannot make a certificate")]
    Make(#[from] rcgen::Error),
}

/// Certificate and key in PEM.
#[derive(Clone)]
pub struct Pair {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

impl std::fmt::Debug for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

/// Makes what is missing and renews what has less than a third of its life left. Gives the
/// authority's certificate.
///
/// # Errors
/// The API server refuses, or a Secret holds something else.
pub async fn ensure(client: &Client, now: Timestamp) -> Result<String, PkiError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), NAMESPACE);
    let authority = match read(&secrets, AUTHORITY_SECRET).await? {
        Some(pair) => pair,
        None => {
            let pair = make_authority(now)?;
            write(client, AUTHORITY_SECRET, &pair).await?;
            tracing::info!(secret = AUTHORITY_SECRET, "made the telemetry authority");
            pair
        }
    };
    publish(client, &authority.certificate).await?;
    let serving = read(&secrets, SERVING_SECRET).await?;
    if serving.is_some_and(|pair| is_fresh(&pair.certificate, now)) {
        return Ok(authority.certificate);
    }
    write(client, SERVING_SECRET, &issue(&authority, now)?).await?;
    tracing::info!(
        secret = SERVING_SECRET,
        days = SERVING_DAYS,
        "made the collector's certificate"
    );
    Ok(authority.certificate)
}

/// The authority's certificate as it is published; none: it is not made yet.
///
/// # Errors
/// The API server refuses, or cannot be reached.
pub async fn published(client: &Client) -> Result<Option<String>, PkiError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), NAMESPACE);
    let map = maps.get_opt(BUNDLE).await.map_err(|source| failed("get", source))?;
    Ok(map.and_then(|map| map.data).and_then(|mut data| data.remove("ca.crt")))
}

/// A new authority.
///
/// # Errors
/// Signing fails.
pub fn make_authority(now: Timestamp) -> Result<Pair, PkiError> {
    let key = KeyPair::generate()?;
    let mut params = params(vec![], now, AUTHORITY_DAYS)?;
    params.distinguished_name.push(DnType::CommonName, "keelson-telemetry");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let certificate = params.self_signed(&key)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

/// A serving certificate for the collector.
///
/// # Errors
/// The authority cannot be read, or signing fails.
pub fn issue(authority: &Pair, now: Timestamp) -> Result<Pair, PkiError> {
    let issuer_key = KeyPair::from_pem(&authority.key)?;
    let issuer = Issuer::from_ca_cert_pem(&authority.certificate, issuer_key)?;
    let key = KeyPair::generate()?;
    let names = vec![COLLECTOR_HOST.to_owned(), format!("{COLLECTOR_HOST}.cluster.local")];
    let mut params = params(names, now, SERVING_DAYS)?;
    params.distinguished_name.push(DnType::CommonName, "keelson-collector");
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let certificate = params.signed_by(&key, &issuer)?.pem();
    Ok(Pair { certificate, key: key.serialize_pem() })
}

/// Whether more than a third of the certificate's life is left.
#[must_use]
pub fn is_fresh(certificate: &str, now: Timestamp) -> bool {
    let Ok(der) = CertificateDer::from_pem_slice(certificate.as_bytes()) else { return false };
    let Ok((_, parsed)) = x509_parser::parse_x509_certificate(&der) else { return false };
    let validity = parsed.validity();
    let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    let left = to.saturating_sub(now.as_second());
    left > to.saturating_sub(from) / 3
}

fn params(names: Vec<String>, now: Timestamp, days: u64) -> Result<CertificateParams, PkiError> {
    let mut params = CertificateParams::new(names)?;
    let at = std::time::SystemTime::from(now);
    params.not_before = (at - BACKDATE).into();
    params.not_after = (at + DAY * u32::try_from(days).unwrap_or(u32::MAX)).into();
    Ok(params)
}

async fn read(secrets: &Api<Secret>, name: &'static str) -> Result<Option<Pair>, PkiError> {
    let secret = secrets.get_opt(name).await.map_err(|source| PkiError::Api {
        verb: "get",
        kind: "Secret",
        name,
        source: Box::new(source),
    })?;
    let Some(secret) = secret else { return Ok(None) };
    let data = secret.data.unwrap_or_default();
    let text = |key| data.get(key).and_then(|value| String::from_utf8(value.0.clone()).ok());
    match (text("tls.crt"), text("tls.key")) {
        (Some(certificate), Some(key)) => Ok(Some(Pair { certificate, key })),
        _ => Err(PkiError::Unreadable { name }),
    }
}

async fn write(client: &Client, name: &'static str, pair: &Pair) -> Result<(), PkiError> {
    let data: BTreeMap<_, _> = [("tls.crt", &pair.certificate), ("tls.key", &pair.key)]
        .map(|(key, text)| (key.to_owned(), ByteString(text.clone().into_bytes())))
        .into();
    let secret = Secret {
        metadata: metadata(name),
        type_: Some("kubernetes.io/tls".into()),
        data: Some(data),
        ..Default::default()
    };
    let applied = apply(client, MANAGER, NAMESPACE, &secret).await;
    applied.map(|_| ()).map_err(|source| PkiError::Api {
        verb: "patch",
        kind: "Secret",
        name,
        source: Box::new(source),
    })
}

async fn publish(client: &Client, certificate: &str) -> Result<(), PkiError> {
    if published(client).await?.as_deref() == Some(certificate) {
        return Ok(());
    }
    let data = Some([("ca.crt".to_owned(), certificate.to_owned())].into());
    let map = ConfigMap { metadata: metadata(BUNDLE), data, ..Default::default() };
    apply(client, MANAGER, NAMESPACE, &map)
        .await
        .map(|_| ())
        .map_err(|source| failed("patch", source))
}

fn failed(verb: &'static str, source: kube::Error) -> PkiError {
    PkiError::Api { verb, kind: "ConfigMap", name: BUNDLE, source: Box::new(source) }
}

fn metadata(name: &str) -> ObjectMeta {
    let labels = [
        ("app.kubernetes.io/name", "keelson"),
        ("app.kubernetes.io/component", "pki"),
        ("app.kubernetes.io/managed-by", "keelson-operator"),
    ];
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: Some(NAMESPACE.to_owned()),
        labels: Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn days(now: Timestamp, days: u64) -> Timestamp {
        now + DAY * u32::try_from(days).unwrap()
    }

    #[test]
    fn a_certificate_is_renewed_when_a_third_of_its_life_is_left() {
        let now = Timestamp::from_second(1_800_000_000).unwrap();
        let authority = make_authority(now).unwrap();
        let serving = issue(&authority, now).unwrap();
        assert!(is_fresh(&serving.certificate, now));
        assert!(is_fresh(&serving.certificate, days(now, 19)));
        assert!(!is_fresh(&serving.certificate, days(now, 21)));
        assert!(!is_fresh("no certificate", now));
    }

    #[test]
    fn the_serving_certificate_is_signed_by_the_authority_for_the_collectors_host() {
        let now = Timestamp::now();
        let authority = make_authority(now).unwrap();
        let serving = issue(&authority, now).unwrap();
        let parse = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let (ca, leaf) = (parse(&authority.certificate), parse(&serving.certificate));
        let (_, ca) = x509_parser::parse_x509_certificate(&ca).unwrap();
        let (_, leaf) = x509_parser::parse_x509_certificate(&leaf).unwrap();
        assert_eq!(leaf.issuer(), ca.subject());
        let names = format!("{:?}", leaf.subject_alternative_name().unwrap());
        assert!(names.contains(COLLECTOR_HOST), "{names}");
    }
}
