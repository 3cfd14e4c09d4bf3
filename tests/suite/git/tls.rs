//! An authority of our own, and servers that it vouches for.

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};

pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("a certificate") }
    }

    /// What a client has to know.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// A certificate and its key for a name.
    pub fn vouch(&self, name: &str) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        (params.signed_by(&key, &self.issuer).expect("signed"), key)
    }

    /// A server at 127.0.0.1, for everybody or for those whose certificate is ours.
    pub fn server(&self, asks_for_certificate: bool) -> Arc<ServerConfig> {
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .expect("versions of TLS");
        let builder = match asks_for_certificate {
            false => builder.with_no_client_auth(),
            true => {
                let mut roots = RootCertStore::empty();
                roots.add(self.issuer.der().clone()).expect("a root");
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider)
                    .build()
                    .expect("a verifier");
                builder.with_client_cert_verifier(verifier)
            }
        };
        let (certificate, key) = self.vouch("127.0.0.1");
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let config = builder.with_single_cert(vec![certificate.der().clone()], key);
        Arc::new(config.expect("a certificate and its key"))
    }
}
