//! The names in a client's certificate that may be a user's: `midi.tls-auth-clients-user`.

use rustls_pki_types::CertificateDer;
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

use crate::engine::CertificateName;

/// The candidates, in the order in which they are tried; none if the certificate has none.
pub fn names(certificate: &CertificateDer<'_>, which: CertificateName) -> Vec<Box<[u8]>> {
    let Ok((_, certificate)) = X509Certificate::from_der(certificate) else { return Vec::new() };
    match which {
        CertificateName::Off => Vec::new(),
        CertificateName::CommonName => {
            let name = certificate.subject().iter_common_name().next();
            let name = name.and_then(|name| name.as_str().ok());
            name.map(|name| name.as_bytes().into()).into_iter().collect()
        }
        CertificateName::Uri => {
            let others = certificate.subject_alternative_name().ok().flatten();
            let others = others.map(|names| &names.value.general_names[..]).unwrap_or_default();
            let uris = others.iter().filter_map(|name| match name {
                GeneralName::URI(uri) => Some(uri.as_bytes().into()),
                _ => None,
            });
            uris.collect()
        }
    }
}
