use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tokio_rustls::{TlsConnector, rustls::ClientConfig, rustls::RootCertStore};

use super::*;

struct Authority {
    issuer: Issuer<'static, KeyPair>,
    der: CertificateDer<'static>,
    pem: String,
}

fn authority() -> Authority {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec![]).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let certificate = params.self_signed(&key).unwrap();
    let (der, pem) = (certificate.der().clone(), certificate.pem());
    Authority { issuer: Issuer::new(params, key), der, pem }
}

fn issue(authority: &Authority, directory: &Path, name: &str) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
    let certificate = params.signed_by(&key, &authority.issuer).unwrap();
    fs::write(directory.join("tls.crt"), certificate.pem()).unwrap();
    fs::write(directory.join("tls.key"), key.serialize_pem()).unwrap();
}

async fn shake(address: std::net::SocketAddr, authority: &Authority, name: &str) -> io::Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(authority.der.clone()).unwrap();
    let config = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await?;
    let name = name.to_owned().try_into().unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.map(|_| ())
}

#[tokio::test]
async fn a_new_certificate_is_served_without_a_restart_and_a_broken_one_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let authority = authority();
    issue(&authority, directory.path(), "one.test");
    let tls = ServerTls::load(directory.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let mut incoming = Box::pin(tls.incoming(listener, Counter::default(), shutdown.clone()));
    let mut served = 0;
    let client = async {
        shake(address, &authority, "one.test").await.unwrap();
        issue(&authority, directory.path(), "two.test");
        tls.reload();
        shake(address, &authority, "two.test").await.unwrap();
        shake(address, &authority, "one.test").await.unwrap_err();
        fs::write(directory.path().join("tls.crt"), "no certificate").unwrap();
        tls.reload();
        shake(address, &authority, "two.test").await.unwrap();
        shutdown.cancel();
    };
    let server = async {
        while let Some(connection) = incoming.next().await {
            connection.unwrap();
            served += 1;
        }
    };
    tokio::join!(client, server);
    assert!(served > 0, "no connection came out of the stream");
}

#[tokio::test]
async fn those_that_hold_a_place_and_say_nothing_give_way() {
    let directory = tempfile::tempdir().unwrap();
    let authority = authority();
    issue(&authority, directory.path(), "one.test");
    let tls = ServerTls::load(directory.path()).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let shutdown = Shutdown::new();
    let displaced = Counter::default();
    let mut incoming = Box::pin(tls.incoming(listener, displaced.clone(), shutdown.clone()));
    let client = async {
        let mut silent = Vec::new();
        for _ in 0..4 * HANDSHAKES_PER_ADDRESS {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        timeout(HANDSHAKE / 2, shake(address, &authority, "one.test")).await.unwrap().unwrap();
        shutdown.cancel();
    };
    let server = async { while incoming.next().await.is_some() {} };
    tokio::join!(client, server);
    assert!(displaced.get() >= 3 * HANDSHAKES_PER_ADDRESS as u64);
}

#[tokio::test]
async fn errors_name_the_file_and_the_address() {
    let directory = tempfile::tempdir().unwrap();
    let error = ServerTls::load(directory.path()).unwrap_err();
    assert!(error.to_string().contains("tls.crt") && error.to_string().contains("mounted"));
    fs::write(directory.path().join("ca.crt"), authority().pem).unwrap();
    let client = ClientTls {
        address: "not an address".into(),
        authority: directory.path().join("ca.crt"),
        server_name: None,
    };
    assert!(client.connect().await.unwrap_err().to_string().contains("not an address"));
}
