//! What a machine has to be told of a cluster so that it can join.
//!
//! The API server knows most of it; what it does not say, or may not be asked, a person has to.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

use super::{Kube, KubeError, Resource};

/// The range of Service addresses that every cluster has had since Kubernetes 1.33.
const SERVICE_CIDR: &str = "kubernetes";
/// CoreDNS keeps the name of what it replaced.
const DNS: (&str, &str) = ("kube-system", "kube-dns");

/// As far as the API server says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joining {
    pub endpoint: String,
    /// PEM in base64; `None`: the authorities of this machine are trusted.
    pub ca_bundle: Option<String>,
    pub service_cidr: Option<String>,
    pub dns: Option<String>,
    /// `major.minor`
    pub version: String,
}

impl Kube {
    /// Asks the API server. What it does not let us read is left out.
    pub async fn joining(&self) -> Result<Joining, KubeError> {
        let version = self.version().await?;
        let range = self.readable(Resource::SERVICE_CIDR, None, SERVICE_CIDR).await?;
        let dns = self.readable(Resource::SERVICE, Some(DNS.0), DNS.1).await?;
        let text = |object: Option<&Value>, pointer: &str| {
            object.and_then(|object| object.pointer(pointer)?.as_str()).map(str::to_owned)
        };
        let authorities = &self.server.authorities;
        Ok(Joining {
            endpoint: self.server.url.to_string(),
            ca_bundle: (!authorities.is_empty()).then(|| STANDARD.encode(pem(authorities))),
            service_cidr: text(range.as_ref(), "/spec/cidrs/0"),
            dns: text(dns.as_ref(), "/spec/clusterIP").filter(|address| address != "None"),
            version,
        })
    }

    /// `major.minor` of Kubernetes.
    pub async fn version(&self) -> Result<String, KubeError> {
        Ok(version_of(&self.ask_at("/version").await?))
    }

    async fn readable(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, KubeError> {
        match self.get(resource, namespace, name).await {
            Err(error) if error.is_forbidden() => Ok(None),
            answer => answer,
        }
    }
}

/// Providers write a minor version such as `34+`.
fn version_of(answer: &Value) -> String {
    let number = |key: &str| {
        let text = answer[key].as_str().unwrap_or_default();
        text.trim_end_matches(|letter: char| !letter.is_ascii_digit()).to_owned()
    };
    format!("{}.{}", number("major"), number("minor"))
}

fn pem(authorities: &[Vec<u8>]) -> String {
    let mut text = String::new();
    for authority in authorities {
        text.push_str("-----BEGIN CERTIFICATE-----\n");
        let encoded = STANDARD.encode(authority);
        for at in (0..encoded.len()).step_by(64) {
            text.push_str(&encoded[at..encoded.len().min(at + 64)]);
            text.push('\n');
        }
        text.push_str("-----END CERTIFICATE-----\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_version_is_two_numbers_and_an_authority_is_pem() {
        assert_eq!(
            version_of(&json!({ "major": "1", "minor": "34+", "gitVersion": "v1.34.2-eks-1" })),
            "1.34"
        );
        assert_eq!(version_of(&json!({ "major": "1", "minor": "36" })), "1.36");
        let text = pem(&[vec![7; 60]]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!((lines.len(), lines[1].len(), lines[2].len()), (4, 64, 16), "{text}");
        assert!(lines[0].contains("BEGIN CERTIFICATE") && lines[3].contains("END CERTIFICATE"));
    }
}
