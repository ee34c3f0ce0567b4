//! Certificates and kubeconfig files of one run of the cluster, made anew at every `up`.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
};

use crate::layout::{API_PORT, API_SERVICE, CONTROL_ADDRESS, Layout, NODES};

/// (file, common name, organization) of everybody who talks to the API server.
const CLIENTS: [(&str, &str, &str); 6] = [
    ("admin", "admin", "system:masters"),
    ("apiserver-kubelet", "apiserver-kubelet", "system:masters"),
    ("controller-manager", "system:kube-controller-manager", "keelson"),
    ("scheduler", "system:kube-scheduler", "keelson"),
    ("proxy", "system:kube-proxy", "keelson"),
    ("coredns", "keelson:coredns", "keelson"),
];

/// Writes all certificates, keys and kubeconfig files.
///
/// # Errors
/// When a key cannot be made or a file not be written.
pub fn write(layout: &Layout) -> anyhow::Result<()> {
    std::fs::create_dir_all(layout.pki("")).context("make the directory of certificates")?;
    let authority = authority(layout, "ca", "keelson-local-ca")?;
    authority_of_front_proxy(layout)?;
    let tokens = KeyPair::generate()?;
    secret(&layout.pki("service-accounts.key"), &tokens.serialize_pem())?;
    std::fs::write(layout.pki("service-accounts.pub"), tokens.public_key_pem())?;

    let names: Vec<String> = [
        "localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local", "127.0.0.1", API_SERVICE, CONTROL_ADDRESS,
    ]
    .map(String::from)
    .to_vec();
    issue(layout, &authority, &Subject { file: "apiserver", name: "kube-apiserver", group: "keelson", hosts: names })?;
    for (file, name, group) in CLIENTS {
        issue(layout, &authority, &Subject { file, name, group, hosts: vec![] })?;
        kubeconfig(layout, file)?;
    }
    for node in NODES {
        let name = format!("system:node:{}", node.name);
        let hosts = vec![node.name.into(), node.address.into()];
        issue(layout, &authority, &Subject { file: node.name, name: &name, group: "system:nodes", hosts })?;
        kubeconfig(layout, node.name)?;
    }
    Ok(())
}

struct Subject<'a> {
    file: &'a str,
    name: &'a str,
    group: &'a str,
    hosts: Vec<String>,
}

fn authority(layout: &Layout, file: &str, name: &str) -> anyhow::Result<Issuer<'static, KeyPair>> {
    let mut params = CertificateParams::new(Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(DnType::CommonName, name);
    params.key_usages =
        vec![KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?;
    std::fs::write(layout.pki(&format!("{file}.crt")), certificate.pem())?;
    secret(&layout.pki(&format!("{file}.key")), &key.serialize_pem())?;
    Ok(Issuer::new(params, key))
}

/// The API server publishes this authority for extension servers; nothing here is signed by it.
fn authority_of_front_proxy(layout: &Layout) -> anyhow::Result<()> {
    authority(layout, "front-proxy-ca", "keelson-local-front-proxy-ca").map(drop)
}

fn issue(layout: &Layout, authority: &Issuer<'_, KeyPair>, subject: &Subject<'_>) -> anyhow::Result<()> {
    let Subject { file, name, group, hosts } = subject;
    let mut params = CertificateParams::new(hosts.clone())?;
    params.distinguished_name.push(DnType::OrganizationName, *group);
    params.distinguished_name.push(DnType::CommonName, *name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    if !hosts.is_empty() {
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ServerAuth);
    }
    let key = KeyPair::generate()?;
    let certificate = params.signed_by(&key, authority)?;
    std::fs::write(layout.pki(&format!("{file}.crt")), certificate.pem())?;
    secret(&layout.pki(&format!("{file}.key")), &key.serialize_pem())
}

fn kubeconfig(layout: &Layout, user: &str) -> anyhow::Result<()> {
    let (authority, certificate, key) =
        (layout.pki("ca.crt"), layout.pki(&format!("{user}.crt")), layout.pki(&format!("{user}.key")));
    let text = format!(
        "apiVersion: v1
kind: Config
clusters:
- name: keelson
  cluster: {{server: \"https://{CONTROL_ADDRESS}:{API_PORT}\", certificate-authority: \"{}\"}}
users:
- name: {user}
  user: {{client-certificate: \"{}\", client-key: \"{}\"}}
contexts:
- name: keelson
  context: {{cluster: keelson, user: {user}}}
current-context: keelson
",
        authority.display(),
        certificate.display(),
        key.display()
    );
    secret(&layout.kubeconfig(user), &text)
}

fn secret(path: &Path, text: &str) -> anyhow::Result<()> {
    std::fs::write(path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(std::fs::set_permissions(path, Permissions::from_mode(0o600))?)
}
