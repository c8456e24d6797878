//! The bytes of a connection: as they are, or in TLS.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use rustls::client::Resumption;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{ClientConfig, ClientConnection, DigitallySignedStruct, Error, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

use super::Target;

/// A server, and how to connect to it.
#[derive(Clone)]
pub struct Address {
    /// Where it listens.
    pub target: Target,
    /// The settings of TLS, shared by the connections that may resume each other's sessions.
    pub tls: Option<Arc<ClientConfig>>,
}

/// The settings of TLS 1.2 and 1.3, with or without resumption.
///
/// # Errors
/// None that are known; rustls has them in its signature.
pub fn client_config(resumes: bool) -> anyhow::Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider));
    let mut config = builder
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth();
    if !resumes {
        config.resumption = Resumption::disabled();
    }
    Ok(Arc::new(config))
}

/// Accepts every certificate: checking one would cost more than what is measured.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection's socket, and its session if it has TLS.
pub enum Wire {
    /// What is written goes out as it is.
    Plain(OwnedFd),
    /// What is written is sealed.
    Tls(Box<Session>),
}

/// The client's side of a TLS connection.
pub struct Session {
    socket: TcpStream,
    tls: ClientConnection,
}

impl Address {
    /// Connects. The socket blocks; the handshake goes on with the first reads and writes.
    ///
    /// # Errors
    /// No connection.
    pub fn connect(&self) -> anyhow::Result<Wire> {
        let socket = match &self.target {
            Target::Tcp(address) => {
                let stream = TcpStream::connect(address)
                    .with_context(|| format!("connecting to {address}"))?;
                stream.set_nodelay(true)?;
                stream
            }
            Target::Unix(path) => {
                if self.tls.is_some() {
                    bail!("TLS is for ports");
                }
                let at = || format!("connecting to {}", path.display());
                return Ok(Wire::Plain(UnixStream::connect(path).with_context(at)?.into()));
            }
        };
        let Some(config) = &self.tls else { return Ok(Wire::Plain(socket.into())) };
        let mut tls =
            ClientConnection::new(Arc::clone(config), ServerName::try_from("localhost")?)?;
        // A pipeline goes in as a whole.
        tls.set_buffer_limit(None);
        Ok(Wire::Tls(Box::new(Session { socket, tls })))
    }
}

impl Wire {
    /// Takes some of these bytes.
    ///
    /// # Errors
    /// The socket's; `WouldBlock` if it takes none now.
    #[inline]
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(socket) => Ok(rustix::io::write(socket, bytes)?),
            Wire::Tls(session) => session.tls.writer().write(bytes),
        }
    }

    /// Sends what is sealed; returns true when nothing is left.
    ///
    /// # Errors
    /// The socket's.
    #[inline]
    pub fn push(&mut self) -> io::Result<bool> {
        match self {
            Wire::Plain(_) => Ok(true),
            Wire::Tls(session) => session.push(),
        }
    }

    /// Whether a read left something to be sent: a message of the handshake, and what waited for
    /// it.
    #[inline]
    pub fn is_unsent(&self) -> bool {
        matches!(self, Wire::Tls(session) if session.tls.wants_write())
    }

    /// Reads some bytes; 0 at the end.
    ///
    /// # Errors
    /// The socket's, with `WouldBlock` if there are none now; the session's.
    #[inline]
    pub fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Wire::Plain(socket) => Ok(rustix::io::read(socket, buffer)?),
            Wire::Tls(session) => session.read(buffer),
        }
    }
}

impl Session {
    fn push(&mut self) -> io::Result<bool> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.tls.reader().read(buffer) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            if self.tls.read_tls(&mut self.socket)? == 0 {
                return Ok(0);
            }
            self.tls.process_new_packets().map_err(io::Error::other)?;
            self.push()?;
        }
    }
}

impl AsFd for Wire {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Wire::Plain(socket) => socket.as_fd(),
            Wire::Tls(session) => session.socket.as_fd(),
        }
    }
}
