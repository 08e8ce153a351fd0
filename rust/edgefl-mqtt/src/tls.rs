//! TLS with client certificates: who has none from the fleet's authority is not let in.

use std::sync::Arc;

use rustls::crypto::ring;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::EndpointError;
use crate::settings::TlsMaterial;

/// Makes the TLS side of the listeners.
///
/// Sessions are not resumed: that would let a peer in whose certificate has expired meanwhile.
///
/// # Errors
/// The PEM cannot be read, the key does not fit the certificate, or an authority is unusable.
pub(crate) fn server_config(material: &TlsMaterial) -> Result<Arc<ServerConfig>, EndpointError> {
    let provider = Arc::new(ring::default_provider());
    let mut authorities = RootCertStore::empty();
    for certificate in certificates(&material.client_authorities, "authorities")? {
        authorities
            .add(certificate)
            .map_err(|error| problem("authorities", &error))?;
    }
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(authorities), provider.clone())
            .build()
            .map_err(|error| problem("authorities", &error))?;
    let chain = certificates(&material.certificate_chain, "certificate")?;
    // The library's words could hold a line of the key's file.
    let key = PrivateKeyDer::from_pem_slice(&material.private_key)
        .map_err(|_| EndpointError::Tls("the private key cannot be read".to_owned()))?;
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| problem("versions", &error))?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain, key)
        .map_err(|error| problem("certificate and key", &error))?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    Ok(Arc::new(config))
}

fn certificates(pem: &[u8], what: &str) -> Result<Vec<CertificateDer<'static>>, EndpointError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| problem(what, &error))?;
    if found.is_empty() {
        return Err(EndpointError::Tls(format!(
            "{what}: no certificate in the PEM"
        )));
    }
    Ok(found)
}

fn problem(what: &str, error: &dyn std::fmt::Display) -> EndpointError {
    EndpointError::Tls(format!("{what}: {error}"))
}
