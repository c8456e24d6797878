//! Certificates for TLS, made anew for each run: an authority, a server, and clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, IsCa, Issuer, KeyPair, SanType,
};
use rustls::client::{ClientConfig, Resumption};
use rustls::crypto::ring;
use rustls::{RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

/// A certificate and its key, in PEM.
pub struct Certified {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: String,
}

/// An authority.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its certificate, in PEM.
    pub certificate: String,
}

impl Authority {
    /// A new one.
    pub fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = named("the authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let certificate = params.self_signed(&key).expect("a certificate").pem();
        Authority { issuer: Issuer::new(params, key), certificate }
    }

    /// A certificate for 127.0.0.1 and localhost.
    pub fn server(&self) -> Certified {
        let mut params = named("midi");
        let name = SanType::DnsName("localhost".try_into().expect("a name"));
        params.subject_alt_names = vec![SanType::IpAddress([127, 0, 0, 1].into()), name];
        self.sign(&params)
    }

    /// A client's, with this common name and these URIs.
    pub fn client(&self, name: &str, uris: &[&str]) -> Certified {
        let mut params = named(name);
        let uris = uris.iter().map(|uri| SanType::URI((*uri).try_into().expect("a URI")));
        params.subject_alt_names = uris.collect();
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Certified {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Certified { certificate, key: key.serialize_pem() }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Authority::new()
    }
}

fn named(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params
}

/// The authority of all servers of this run.
pub fn authority() -> &'static Authority {
    static AUTHORITY: OnceLock<Authority> = OnceLock::new();
    AUTHORITY.get_or_init(Authority::new)
}

/// The server's certificate and key, and the authority, in a server's directory: load arguments
/// that name them.
pub fn install(dir: &Path) -> String {
    let server = authority().server();
    let [cert, key, ca] = files(dir);
    fs::write(&cert, server.certificate).expect("a file");
    fs::write(&key, server.key).expect("a file");
    fs::write(&ca, &authority().certificate).expect("a file");
    format!(
        "tls-cert-file {} tls-key-file {} tls-ca-cert-file {}",
        cert.display(),
        key.display(),
        ca.display()
    )
}

/// Those files: certificate, key, authority.
pub fn files(dir: &Path) -> [PathBuf; 3] {
    ["server.crt", "server.key", "ca.crt"].map(|name| dir.join(name))
}

/// The settings of a client that trusts [`authority`].
pub fn trusting(own: Option<&Certified>) -> Arc<ClientConfig> {
    config(own, rustls::ALL_VERSIONS, &authority().certificate)
}

/// The settings of a client with these protocols that trusts this authority. It resumes nothing.
pub fn config(
    own: Option<&Certified>,
    versions: &[&'static SupportedProtocolVersion],
    authority: &str,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.as_bytes()).expect("PEM");
    roots.add(root).expect("an authority");
    let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let builder = builder.with_protocol_versions(versions).expect("protocols");
    let builder = builder.with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(own) => {
            let chain = CertificateDer::from_pem_slice(own.certificate.as_bytes()).expect("PEM");
            let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).expect("PEM");
            builder.with_client_auth_cert(vec![chain], key).expect("a certificate and its key")
        }
    };
    config.resumption = Resumption::disabled();
    Arc::new(config)
}
