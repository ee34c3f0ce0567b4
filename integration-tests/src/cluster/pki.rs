//! Certificates and kubeconfig files of the local cluster.

use std::{fs, path::Path};

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

use super::config::API_PORT;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
}

/// Makes everything anew.
///
/// # Errors
/// A file cannot be written.
pub fn make(state: &Path, address: &str, nodes: &[&str]) -> anyhow::Result<()> {
    let pki = state.join("pki");
    let authority = authority(&pki, "ca")?;
    self::authority(&pki, "front-ca")?;
    let key = KeyPair::generate()?;
    fs::write(pki.join("sa.key"), key.serialize_pem())?;
    fs::write(pki.join("sa.pub"), key.public_key_pem())?;
    let names = [
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "127.0.0.1",
        "10.96.0.1",
        address,
    ];
    issue(&pki, &authority, "apiserver", ("", "kube-apiserver"), &names)?;
    let masters = "system:masters";
    issue(&pki, &authority, "apiserver-kubelet", (masters, "apiserver-kubelet"), &[])?;
    for (file, group, user) in [
        ("admin", masters, "admin"),
        ("controller-manager", "", "system:kube-controller-manager"),
        ("scheduler", "", "system:kube-scheduler"),
        ("proxy", "", "system:kube-proxy"),
    ] {
        issue(&pki, &authority, file, (group, user), &[])?;
        kubeconfig(state, file)?;
    }
    for node in nodes {
        let user = format!("system:node:{node}");
        issue(&pki, &authority, node, ("system:nodes", &user), &[address])?;
        kubeconfig(state, node)?;
    }
    Ok(())
}

fn authority(pki: &Path, name: &str) -> anyhow::Result<Authority> {
    let key = KeyPair::generate()?;
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.distinguished_name.push(DnType::CommonName, format!("local-{name}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    fs::write(pki.join(format!("{name}.crt")), params.self_signed(&key)?.pem())?;
    fs::write(pki.join(format!("{name}.key")), key.serialize_pem())?;
    Ok(Authority { issuer: Issuer::new(params, key) })
}

fn issue(
    pki: &Path,
    authority: &Authority,
    file: &str,
    (group, user): (&str, &str),
    names: &[&str],
) -> anyhow::Result<()> {
    let key = KeyPair::generate()?;
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    let mut params = CertificateParams::new(names)?;
    if !group.is_empty() {
        params.distinguished_name.push(DnType::OrganizationName, group);
    }
    params.distinguished_name.push(DnType::CommonName, user);
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &authority.issuer)?;
    fs::write(pki.join(format!("{file}.crt")), certificate.pem())
        .with_context(|| format!("cannot write the certificate of {file}"))?;
    fs::write(pki.join(format!("{file}.key")), key.serialize_pem())?;
    Ok(())
}

fn kubeconfig(state: &Path, user: &str) -> anyhow::Result<()> {
    let pki = state.join("pki");
    let pki = pki.display();
    let text = format!(
        r#"apiVersion: v1
kind: Config
clusters: [{{name: local, cluster: {{server: "https://127.0.0.1:{API_PORT}", certificate-authority: {pki}/ca.crt}}}}]
users: [{{name: user, user: {{client-certificate: {pki}/{user}.crt, client-key: {pki}/{user}.key}}}}]
contexts: [{{name: local, context: {{cluster: local, user: user}}}}]
current-context: local
"#
    );
    Ok(fs::write(state.join(format!("{user}.kubeconfig")), text)?)
}
