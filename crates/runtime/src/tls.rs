//! TLS on both sides: a server certificate that is read again when its files change, clients'
//! certificates where they have one, and a client that reads the authority's bundle at every connect. Nothing is served in clear text.

use std::{
    fs, io,
    net::IpAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures::{Stream, StreamExt, stream};
use prometheus_client::metrics::counter::Counter;
use rustls::{
    DigitallySignedStruct, DistinguishedName, RootCertStore, ServerConfig, SignatureScheme,
    client::danger::HandshakeSignatureValid,
    crypto::{CryptoProvider, ring},
    server::{
        ClientHello, ResolvesServerCert, WebPkiClientVerifier,
        danger::{ClientCertVerified, ClientCertVerifier},
    },
    sign::CertifiedKey,
};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject};
use tokio::{
    net::{TcpListener, TcpStream},
    task::{AbortHandle, JoinSet},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint};

use crate::shutdown::Shutdown;

/// How often the certificate's files are looked at.
const RELOAD: Duration = Duration::from_secs(10);
/// A client that has not finished its handshake by then is dropped.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Handshakes under way at once. One more, and the oldest gives way: one that is in earnest takes
/// milliseconds, so those that wait long are those that hold a place.
const HANDSHAKES: usize = 1024;
/// Of them from one address, so that one client cannot drive out the others.
const HANDSHAKES_PER_ADDRESS: usize = 16;
const CONNECT: Duration = Duration::from_secs(5);

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("cannot read {path}; is the Secret or ConfigMap mounted there?")]
    Read {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A file is no PEM of what it should hold.
    #[error("{path} holds no {what} in PEM")]
    Pem {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
    },
    /// rustls refuses certificate or key.
    #[error("the certificate in {directory} cannot be used")]
    Unusable {
        /// Where they lie.
        directory: PathBuf,
        /// The cause.
        source: rustls::Error,
    },
    /// A bundle of clients' authorities holds none.
    #[error("the bundle of the clients' authorities holds no certificate authority in PEM")]
    Clients,
    /// The address of a server is no URI.
    #[error("{address} is no address of a gRPC server; for example: https://host:8443")]
    Address {
        /// As given.
        address: String,
    },
    /// The server cannot be reached, or is not who it should be.
    #[error("cannot connect to {address}")]
    Connect {
        /// Whom.
        address: String,
        /// The cause.
        source: tonic::transport::Error,
    },
}

/// A server's certificate and key, `tls.crt` and `tls.key` of a directory.
#[derive(Debug)]
pub struct ServerTls {
    directory: PathBuf,
    current: Mutex<Arc<CertifiedKey>>,
    clients: Arc<ClientAuthorities>,
}

/// Who vouches for clients that have a certificate; those without are served all the same. Nobody
/// at first; can change while the server runs.
#[derive(Debug, Default)]
pub struct ClientAuthorities {
    current: Mutex<Option<Arc<dyn ClientCertVerifier>>>,
}

// === impl ServerTls ===

impl ServerTls {
    /// Reads the certificate for the first time.
    ///
    /// # Errors
    /// The files cannot be read or used.
    pub fn load(directory: &Path) -> Result<Arc<Self>, TlsError> {
        let current = Mutex::new(Arc::new(read_key(directory)?));
        let (directory, clients) = (directory.to_path_buf(), Arc::default());
        Ok(Arc::new(Self { directory, current, clients }))
    }

    /// Who vouches for clients.
    #[must_use]
    pub fn clients(&self) -> &Arc<ClientAuthorities> {
        &self.clients
    }

    /// Reads the files again every ten seconds until shutdown; files that cannot be used leave the
    /// certificate as it is.
    ///
    /// # Errors
    /// None; the type is that of a task.
    pub async fn keep_fresh(self: Arc<Self>, shutdown: Shutdown) -> Result<(), TlsError> {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                () = tokio::time::sleep(RELOAD) => self.reload(),
            }
        }
    }

    /// Listens with TLS for gRPC (ALPN `h2`): a stream of handshaken connections that ends at
    /// shutdown. `displaced` counts handshakes given up to make room for newer ones.
    pub fn incoming(
        self: &Arc<Self>,
        listener: TcpListener,
        displaced: Counter,
        shutdown: Shutdown,
    ) -> impl Stream<Item = io::Result<TlsStream<TcpStream>>> + use<> {
        let handshakes = Handshakes {
            acceptor: TlsAcceptor::from(Arc::new(self.config())),
            tasks: JoinSet::new(),
            oldest_first: Vec::new(),
            displaced,
        };
        let state = (listener, handshakes, shutdown);
        stream::unfold(state, |(listener, mut handshakes, shutdown)| async move {
            let connection = handshakes.next(&listener, &shutdown).await?;
            Some((Ok(connection), (listener, handshakes, shutdown)))
        })
        .boxed()
    }

    fn config(self: &Arc<Self>) -> ServerConfig {
        let builder = ServerConfig::builder_with_provider(provider());
        #[expect(clippy::expect_used, reason = "the provider and its versions are fixed above")]
        let builder = builder
            .with_safe_default_protocol_versions()
            .expect("invariant: ring serves the default TLS versions");
        let resolver: Arc<dyn ResolvesServerCert> = Arc::clone(self) as _;
        let clients: Arc<dyn ClientCertVerifier> = Arc::clone(&self.clients) as _;
        let mut config = builder.with_client_cert_verifier(clients).with_cert_resolver(resolver);
        config.alpn_protocols = vec![b"h2".to_vec()];
        config
    }

    fn reload(&self) {
        match read_key(&self.directory) {
            Ok(fresh) => {
                let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
                if current.cert != fresh.cert {
                    *current = Arc::new(fresh);
                    tracing::info!(directory = %self.directory.display(), "took a new certificate");
                }
            }
            Err(error) => {
                tracing::warn!(error = crate::logs::chain(&error), "kept the old certificate");
            }
        }
    }
}

impl ResolvesServerCert for ServerTls {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

// === impl ClientAuthorities ===

impl ClientAuthorities {
    /// Takes the certificates of a PEM bundle for the authorities from now on.
    ///
    /// # Errors
    /// It holds no certificate that could be one's.
    pub fn set(&self, bundle: &str) -> Result<(), TlsError> {
        let unusable = || TlsError::Clients;
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(certificate.map_err(|_| unusable())?).map_err(|_| unusable())?;
        }
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        let verifier = builder.allow_unauthenticated().build().map_err(|_| unusable())?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(verifier);
        Ok(())
    }

    fn verifier(&self) -> Result<Arc<dyn ClientCertVerifier>, rustls::Error> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner).clone();
        current.ok_or_else(|| rustls::Error::General("nobody vouches for clients here".into()))
    }
}

impl ClientCertVerifier for ClientAuthorities {
    fn offer_client_auth(&self) -> bool {
        self.verifier().is_ok()
    }

    fn client_auth_mandatory(&self) -> bool {
        false
    }

    // They change, and a borrow of them cannot; clients know their own authority.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verifier()?.verify_client_cert(certificate, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier()?.verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier()?.verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        provider().signature_verification_algorithms.supported_schemes()
    }
}

/// Handshakes under way.
struct Handshakes {
    acceptor: TlsAcceptor,
    tasks: JoinSet<io::Result<TlsStream<TcpStream>>>,
    oldest_first: Vec<(IpAddr, AbortHandle)>,
    displaced: Counter,
}

// === impl Handshakes ===

impl Handshakes {
    /// The next connection whose handshake is done; none at shutdown.
    async fn next(
        &mut self,
        listener: &TcpListener,
        shutdown: &Shutdown,
    ) -> Option<TlsStream<TcpStream>> {
        loop {
            tokio::select! {
                () = shutdown.cancelled() => return None,
                accepted = listener.accept() => match accepted {
                    Ok((stream, peer)) => self.begin(stream, peer.ip()),
                    Err(error) => {
                        // Out of descriptors, most often: let some go before the next try.
                        tracing::warn!(%error, "cannot accept a connection");
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                },
                Some(done) = self.tasks.join_next() => match done {
                    Ok(Ok(connection)) => return Some(connection),
                    Ok(Err(error)) => tracing::debug!(%error, "a TLS handshake failed"),
                    Err(error) if error.is_cancelled() => {}
                    Err(error) => tracing::warn!(%error, "a TLS handshake's task failed"),
                },
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, from: IpAddr) {
        self.oldest_first.retain(|(_, task)| !task.is_finished());
        let same = |(address, _): &&(IpAddr, AbortHandle)| *address == from;
        let displaced = if self.oldest_first.iter().filter(same).count() >= HANDSHAKES_PER_ADDRESS {
            self.oldest_first.iter().position(|(address, _)| *address == from)
        } else {
            (self.oldest_first.len() >= HANDSHAKES).then_some(0)
        };
        if let Some(index) = displaced {
            self.oldest_first.remove(index).1.abort();
            self.displaced.inc();
        }
        let acceptor = self.acceptor.clone();
        let task = self.tasks.spawn(async move { shake_hands(&acceptor, stream).await });
        self.oldest_first.push((from, task));
    }
}

async fn shake_hands(
    acceptor: &TlsAcceptor,
    stream: TcpStream,
) -> io::Result<TlsStream<TcpStream>> {
    stream.set_nodelay(true)?;
    timeout(HANDSHAKE, acceptor.accept(stream)).await?
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// Makes ring the process's provider, for libraries that ask for the default one.
pub fn install_provider() {
    // A second call finds the first one's; there is only one choice.
    let _ = ring::default_provider().install_default();
}

fn read_key(directory: &Path) -> Result<CertifiedKey, TlsError> {
    let (crt, key) = (directory.join("tls.crt"), directory.join("tls.key"));
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&read(&crt)?).collect();
    let chain = chain.ok().filter(|chain| !chain.is_empty());
    let chain = chain.ok_or(TlsError::Pem { path: crt, what: "certificate" })?;
    let key = PrivateKeyDer::from_pem_slice(&read(&key)?)
        .map_err(|_| TlsError::Pem { path: key, what: "private key" })?;
    CertifiedKey::from_der(chain, key, &provider())
        .map_err(|source| TlsError::Unusable { directory: directory.to_path_buf(), source })
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|source| TlsError::Read { path: path.to_path_buf(), source })
}

/// Where a gRPC server is and by whom it is vouched for.
#[derive(Clone, Debug)]
pub struct ClientTls {
    /// For example `https://keelson-collector.keelson-system.svc:8443`.
    pub address: String,
    /// File with the authority's certificates; read at every connect, so that a rotated one counts.
    pub authority: PathBuf,
    /// Name that the server's certificate must have, where it is not the address's host.
    pub server_name: Option<String>,
}

// === impl ClientTls ===

impl ClientTls {
    /// Connects; the channel does not outlive a change of the authority for longer than the
    /// caller keeps it.
    ///
    /// # Errors
    /// The bundle cannot be read, or the server cannot be reached or trusted.
    pub async fn connect(&self) -> Result<Channel, TlsError> {
        let failed = |source| TlsError::Connect { address: self.address.clone(), source };
        let bundle = read(&self.authority)?;
        let mut tls = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(bundle));
        if let Some(name) = &self.server_name {
            tls = tls.domain_name(name);
        }
        let endpoint = Endpoint::from_shared(self.address.clone())
            .map_err(|_| TlsError::Address { address: self.address.clone() })?;
        endpoint
            .tls_config(tls)
            .map_err(failed)?
            .connect_timeout(CONNECT)
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(10))
            .keep_alive_while_idle(true)
            .connect()
            .await
            .map_err(failed)
    }
}

#[cfg(test)]
mod tests;
