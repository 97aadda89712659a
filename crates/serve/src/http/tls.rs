//! TLS with the user's certificate.

use std::path::Path;
use std::sync::Arc;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use crate::failure::Failure;

/// Creates an acceptor with a certificate chain and its key, both in PEM format.
pub fn acceptor(certificate: &Path, key: &Path) -> Result<TlsAcceptor, Failure> {
    let failed = |path: &Path, why: &dyn std::fmt::Display| {
        Failure::new(format!("cannot use `{}` for TLS", path.display()), why)
            .hint("--tls-cert with the chain and --tls-key with its key, both PEM")
    };
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(|error| failed(certificate, &error))?;
    if chain.is_empty() {
        return Err(failed(certificate, &"the file has no certificate"));
    }
    let key_of = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|config| config.with_no_client_auth().with_single_cert(chain, key_of))
        .map_err(|error| failed(key, &error))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}
