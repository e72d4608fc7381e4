//! Who this server is and whom it trusts: a CA made at start, a server certificate, a bearer token, a kubeconfig.
//!
//! Keys live in memory only; whoever writes the kubeconfig to a file must keep it private (mode 0600): it holds the token.

use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde_json::json;

/// Why an identity could not be made.
#[derive(Debug, thiserror::Error)]
pub enum IdentityError {
    /// Keys, certificates.
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    /// rustls does not take what was made.
    #[error("cannot set up TLS: {0}")]
    Tls(#[from] rustls::Error),
    /// The kernel gave no random bytes.
    #[error("cannot read /dev/urandom: {0}")]
    Random(#[from] std::io::Error),
}

/// CA, server certificate and token of one server.
#[derive(Clone)]
pub struct Identity {
    ca_pem: String,
    token: String,
    tls: Arc<rustls::ServerConfig>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Identity { .. }")
    }
}

impl Identity {
    /// A fresh identity whose certificate is good for these DNS names and addresses.
    pub fn generate(names: &[&str]) -> Result<Self, IdentityError> {
        let ca_key = KeyPair::generate()?;
        let mut ca = CertificateParams::new(Vec::new())?;
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name
            .push(DnType::CommonName, "roadstead-ca");
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let ca_cert = ca.self_signed(&ca_key)?;
        let issuer = Issuer::new(ca, ca_key);

        let key = KeyPair::generate()?;
        let mut server = CertificateParams::new(
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<Vec<_>>(),
        )?;
        server
            .distinguished_name
            .push(DnType::CommonName, "roadstead-api-server");
        server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        let cert = server.signed_by(&key, &issuer)?;

        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![cert.der().clone(), ca_cert.der().clone()], key)?;
        tls.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let token = URL_SAFE_NO_PAD.encode(random_bytes::<32>()?);
        Ok(Self {
            ca_pem: ca_cert.pem(),
            token,
            tls: Arc::new(tls),
        })
    }

    /// The CA certificate, PEM.
    pub fn ca_pem(&self) -> &str {
        &self.ca_pem
    }

    /// The bearer token of the one user, an administrator.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// TLS settings of the listener: HTTP/2 and HTTP/1.1.
    pub fn tls(&self) -> Arc<rustls::ServerConfig> {
        self.tls.clone()
    }

    /// A kubeconfig for this server at `server_url`, as JSON (which is YAML). Addresses and names in the URL must be among
    /// those given to [`Identity::generate`].
    pub fn kubeconfig(&self, server_url: &str) -> String {
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "roadstead",
            "clusters": [{"name": "roadstead", "cluster": {
                "server": server_url, "certificate-authority-data": STANDARD.encode(&self.ca_pem),
            }}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "roadstead", "context": {"cluster": "roadstead", "user": "admin", "namespace": "default"}}],
        });
        serde_yaml_ng::to_string(&config).expect("JSON is YAML")
    }

    /// `https://address:port` with brackets where IPv6 needs them.
    pub fn url(address: IpAddr, port: u16) -> String {
        format!("https://{}", std::net::SocketAddr::new(address, port))
    }
}

/// Random bytes from the kernel.
pub(crate) fn random_bytes<const N: usize>() -> std::io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
