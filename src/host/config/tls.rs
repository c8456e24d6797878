//! How the ports speak TLS: midi's settings, or the host's of the same name.

use std::time::Duration;

use super::super::api::{Ctx, Level, c_text, log};
use super::super::instance::if_begun;
use super::speak_tls;
use super::table::written;
use crate::engine::{CertificateName, ClientCertificates, TlsSettings};
use crate::limits::TLS_SESSIONS;

/// Settings of the host that midi's TLS does not support.
const UNSUPPORTED: [&str; 2] = ["tls-ciphers", "tls-dh-params-file"];

/// The current settings.
pub fn settings(ctx: Ctx<'_>) -> TlsSettings {
    let of_host = |name: &str| {
        let value = ctx.config_text(&c_text(name)).unwrap_or_default();
        String::from_utf8_lossy(&value).into_owned()
    };
    let value = |name: &str| {
        Some(written(name)).filter(|own| !own.is_empty()).unwrap_or_else(|| of_host(name))
    };
    // A certificate of midi's own does not go with the host's key.
    let has_own_key = !written("tls-cert-file").is_empty();
    let key_file = if has_own_key { written("tls-key-file") } else { value("tls-key-file") };
    let mut unsupported: Vec<_> =
        UNSUPPORTED.into_iter().filter(|name| !of_host(name).is_empty()).collect();
    if !has_own_key && !of_host("tls-key-file-pass").is_empty() {
        unsupported.push("tls-key-file-pass");
    }
    let number = |name: &str, default: u64| of_host(name).parse().unwrap_or(default);
    let session_cache = match number("tls-session-cache-size", 20 << 10) as usize {
        _ if of_host("tls-session-caching") == "no" => 0,
        // Without a limit, for the host.
        0 => TLS_SESSIONS,
        size => size.min(TLS_SESSIONS),
    };
    TlsSettings {
        cert_file: value("tls-cert-file"),
        key_file,
        ca_cert_file: value("tls-ca-cert-file"),
        ca_cert_dir: value("tls-ca-cert-dir"),
        clients: match &*value("tls-auth-clients") {
            "no" => ClientCertificates::Ignored,
            "optional" => ClientCertificates::Optional,
            // Also where the host does not tell.
            _ => ClientCertificates::Needed,
        },
        name: match &*value("tls-auth-clients-user").to_ascii_lowercase() {
            "cn" => CertificateName::CommonName,
            "uri" => CertificateName::Uri,
            _ => CertificateName::Off,
        },
        protocols: value("tls-protocols"),
        ciphersuites: value("tls-ciphersuites"),
        prefer_server_ciphers: of_host("tls-prefer-server-ciphers") == "yes",
        session_cache,
        session_timeout: Duration::from_secs(number("tls-session-cache-timeout", 300)),
        unsupported,
    }
}

/// Has the ports begin new TLS connections with the current settings, if they have such a port.
///
/// # Errors
/// The setting that is wrong, and why: new connections begin as before.
pub fn refresh(ctx: Ctx<'_>) -> Result<(), String> {
    let Some(instance) = if_begun().filter(|_| speak_tls()) else { return Ok(()) };
    let Some(ports) = instance.engine.context().outside.ports() else { return Ok(()) };
    ports.set_tls(&settings(ctx))
}

/// Some of the host's settings have been set, which may be those that midi follows.
pub fn host_has_changed(ctx: Ctx<'_>) {
    if let Err(why) = refresh(ctx) {
        log(ctx, Level::Warning, &format!("midi's TLS port goes on with what it had: {why}"));
    }
}
