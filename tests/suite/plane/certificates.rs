//! One authority that the API server believes: whoever shows its certificate is the user the certificate names.

use std::path::Path;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};

/// The address Kubernetes' own Service gets: the first of the service range.
const SERVICE_ADDRESS: &str = "10.0.0.1";

pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(crate) pem: String,
}

/// A certificate and its key, as PEM.
pub(crate) struct Identity {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "provisor tests");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let pem = params.self_signed(&key).expect("a certificate").pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// What the API server shows on loopback.
    pub(crate) fn server(&self) -> Identity {
        let names =
            ["127.0.0.1", SERVICE_ADDRESS, "localhost", "kubernetes.default.svc"].map(str::to_owned).to_vec();
        let mut params = CertificateParams::new(names).expect("names and addresses");
        params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// What a user shows: RBAC knows it by `name` and `group`.
    pub(crate) fn user(&self, name: &str, group: Option<&str>) -> Identity {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, name);
        if let Some(group) = group {
            params.distinguished_name.push(DnType::OrganizationName, group);
        }
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate").pem();
        Identity { certificate, key: key.serialize_pem() }
    }
}

/// The key pair that signs tokens of service accounts.
pub(crate) fn write_token_keys(folder: &Path) {
    let key = KeyPair::generate().expect("a key");
    std::fs::write(folder.join("tokens.key"), key.serialize_pem()).expect("the plane's folder is ours");
    std::fs::write(folder.join("tokens.pub"), key.public_key_pem()).expect("the plane's folder is ours");
}
