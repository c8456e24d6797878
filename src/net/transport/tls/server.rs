//! The server's side of TLS: its settings, read from files.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::{CryptoProvider, ring};
use rustls::server::{
    NoServerSessionStorage, ServerSessionMemoryCache, StoresServerSessions, WebPkiClientVerifier,
};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    CipherSuite, Error, InconsistentKeys, RootCertStore, ServerConfig, SupportedProtocolVersion,
};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use super::stream::TlsStream;
use crate::engine::{CertificateName, ClientCertificates, TlsSettings};

/// What new TLS connections begin with.
#[derive(Clone)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    name: CertificateName,
}

impl TlsServer {
    /// The session of a new connection; `None` if the system has no randomness.
    pub fn stream(&self) -> Option<TlsStream> {
        TlsStream::new(&self.config)
    }

    /// What of a client's certificate names its user.
    pub fn name(&self) -> CertificateName {
        self.name
    }
}

/// Reads the files that the settings name.
///
/// # Errors
/// The setting that is wrong, and why.
pub fn tls_server(settings: &TlsSettings) -> Result<TlsServer, String> {
    if let Some(unsupported) = settings.unsupported.first() {
        return Err(format!("{unsupported} is set, and midi's TLS port does not support it"));
    }
    let provider = Arc::new(provider(settings)?);
    let versions = versions(&settings.protocols)?;
    let key = certified_key(settings, &provider)?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions)
        .map_err(|error| format!("tls-ciphersuites and tls-protocols: {error}"))?;
    let builder = match settings.clients {
        ClientCertificates::Ignored => builder.with_no_client_auth(),
        wanted => {
            let roots = Arc::new(roots(settings)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider);
            let verifier = match wanted {
                ClientCertificates::Optional => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let verifier =
                verifier.build().map_err(|error| format!("tls-ca-cert-file: {error}"))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
    config.ignore_client_order = settings.prefer_server_ciphers;
    if settings.session_cache == 0 {
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    } else {
        config.session_storage = Arc::new(Sessions {
            all: ServerSessionMemoryCache::new(settings.session_cache),
            since: Instant::now(),
            timeout: settings.session_timeout,
        });
    }
    Ok(TlsServer { config: Arc::new(config), name: settings.name })
}

/// The cipher suites: all but those of TLS 1.3 that are not listed.
fn provider(settings: &TlsSettings) -> Result<CryptoProvider, String> {
    let mut provider = ring::default_provider();
    let wanted: Vec<&str> =
        settings.ciphersuites.split(':').filter(|suite| !suite.is_empty()).collect();
    if wanted.is_empty() {
        return Ok(provider);
    }
    let name = |suite: CipherSuite| suite.as_str().unwrap_or("").replacen("TLS13_", "TLS_", 1);
    let mut suites = Vec::new();
    for wanted in wanted {
        let known = provider.cipher_suites.iter().copied();
        let mut known = known.filter(|known| known.tls13().is_some());
        let found = known.find(|known| name(known.suite()) == wanted);
        suites.push(found.ok_or_else(|| {
            format!("tls-ciphersuites: midi's TLS port does not support '{wanted}'")
        })?);
    }
    let older = provider.cipher_suites.iter().copied().filter(|suite| suite.tls13().is_none());
    suites.extend(older);
    provider.cipher_suites = suites;
    Ok(provider)
}

/// The protocols of a list as the host writes it; all that there are if it is empty.
fn versions(list: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let names = list.split([' ', ',']).filter(|name| !name.is_empty());
    let known = names.map(|name| match name {
        "TLSv1.2" => Ok(&rustls::version::TLS12),
        "TLSv1.3" => Ok(&rustls::version::TLS13),
        other => Err(format!("tls-protocols: midi's TLS port does not support '{other}'")),
    });
    let known: Vec<_> = known.collect::<Result<_, _>>()?;
    Ok(if known.is_empty() { rustls::ALL_VERSIONS.to_vec() } else { known })
}

fn certified_key(
    settings: &TlsSettings,
    provider: &CryptoProvider,
) -> Result<CertifiedKey, String> {
    let (cert_file, key_file) = (&settings.cert_file, &settings.key_file);
    if cert_file.is_empty() {
        return Err("tls-cert-file is not set".into());
    }
    let chain = certificates("tls-cert-file", cert_file)?;
    // One file may have both, as for OpenSSL.
    let key_file = if key_file.is_empty() { cert_file } else { key_file };
    let failed = |error: &dyn std::fmt::Display| format!("tls-key-file: {key_file}: {error}");
    let key = PrivateKeyDer::from_pem_file(key_file).map_err(|error| failed(&error))?;
    let key = provider.key_provider.load_private_key(key).map_err(|error| failed(&error))?;
    let certified = CertifiedKey::new(chain, key);
    match certified.keys_match() {
        Err(error @ Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => Err(failed(&error)),
        // Others come from certificates that webpki does not read: clients may.
        _ => Ok(certified),
    }
}

/// The certificates of a file.
fn certificates(setting: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("{setting}: {path}: {error}");
    let found = CertificateDer::pem_file_iter(path).map_err(|error| failed(&error))?;
    let found: Vec<_> = found.collect::<Result<_, _>>().map_err(|error| failed(&error))?;
    if found.is_empty() { Err(failed(&"it has no certificate")) } else { Ok(found) }
}

/// The authorities that may have signed clients' certificates.
fn roots(settings: &TlsSettings) -> Result<RootCertStore, String> {
    let (file, folder) = (&settings.ca_cert_file, &settings.ca_cert_dir);
    let mut roots = RootCertStore::empty();
    if !file.is_empty() {
        let (_, ignored) = roots.add_parsable_certificates(certificates("tls-ca-cert-file", file)?);
        if roots.is_empty() && ignored > 0 {
            return Err(format!("tls-ca-cert-file: {file}: no certificate there can be used"));
        }
    }
    if !folder.is_empty() {
        let failed = |error: std::io::Error| format!("tls-ca-cert-dir: {folder}: {error}");
        for entry in fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            // As OpenSSL does, it passes over files that are something else.
            let found = CertificateDer::pem_file_iter(path).into_iter().flatten().flatten();
            roots.add_parsable_certificates(found);
        }
    }
    if roots.is_empty() {
        return Err(
            "tls-ca-cert-file and tls-ca-cert-dir name no authority, and tls-auth-clients \
                    is not no"
                .into(),
        );
    }
    Ok(roots)
}

/// Sessions that clients may resume, for some time.
#[derive(Debug)]
struct Sessions {
    all: Arc<ServerSessionMemoryCache>,
    since: Instant,
    timeout: Duration,
}

impl Sessions {
    /// Milliseconds since the settings were read.
    fn now(&self) -> u64 {
        self.since.elapsed().as_millis() as u64
    }

    /// A session as it was given, if it is not too old. The time of its end stands before it.
    fn fresh(&self, kept: Vec<u8>) -> Option<Vec<u8>> {
        let (end, session) = kept.split_first_chunk()?;
        (self.now() <= u64::from_le_bytes(*end)).then(|| session.to_vec())
    }
}

impl StoresServerSessions for Sessions {
    fn put(&self, key: Vec<u8>, session: Vec<u8>) -> bool {
        let end = self.now() + self.timeout.as_millis() as u64;
        self.all.put(key, [&end.to_le_bytes()[..], &session].concat())
    }

    fn get(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.fresh(self.all.get(key)?)
    }

    fn take(&self, key: &[u8]) -> Option<Vec<u8>> {
        self.fresh(self.all.take(key)?)
    }

    fn can_cache(&self) -> bool {
        true
    }
}
