//! What it takes to be let in: credentials as Kubernetes mounts a Secret, the keys of hosts, a proxy.
//!
//! A credential belongs to the addresses it was configured for and goes nowhere else. The files are read anew for every
//! conversation, so a rotated Secret needs no restart; nothing of them is ever shown.

use std::fmt;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use thiserror::Error;

use super::url::{Place, RepositoryUrl, UrlRules};

/// How a server is reached and convinced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// A directory with the files of a Secret: `username` and `password`, `bearerToken`, `identity` (with `password` as
    /// its passphrase), `known_hosts`, `tls.crt` and `tls.key`, `ca.crt`. With it, no template counts.
    pub credentials: Option<PathBuf>,
    /// The same for all addresses below a prefix; the longest prefix wins.
    pub templates: Vec<CredentialTemplate>,
    /// Host keys for ssh, if the credentials bring none.
    pub known_hosts: Option<PathBuf>,
    /// `http://`, `https://` or `socks5h://`, for this source alone. Without it the proxies of the environment count.
    pub proxy: Option<String>,
}

impl Default for Access {
    /// What a person at a command line has: the host keys that they accepted before.
    fn default() -> Self {
        let home = std::env::var_os("HOME").filter(|home| !home.is_empty()).map(PathBuf::from);
        Self {
            credentials: None,
            templates: Vec::new(),
            known_hosts: home.map(|home| home.join(".ssh/known_hosts")).filter(|file| file.is_file()),
            proxy: None,
        }
    }
}

const PROXIES: [&str; 4] = ["http://", "https://", "socks5://", "socks5h://"];

/// Credentials for every address below a prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialTemplate {
    pub prefix: UrlPrefix,
    pub credentials: PathBuf,
}

/// The beginning of addresses, in whole parts of the path: `https://host/team` covers `https://host/team/fleet.git`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlPrefix(String);

impl UrlPrefix {
    pub fn parse(text: &str) -> Result<Self, super::UrlError> {
        let rules = UrlRules { allow_insecure_http: true, allow_local: false };
        let below = RepositoryUrl::parse(&format!("{}/x", text.trim_end_matches('/')), rules)?.normalized();
        Ok(Self(below.strip_suffix("/x").unwrap_or(&below).into()))
    }

    pub(super) fn covers(&self, url: &RepositoryUrl) -> bool {
        let own = self.0.strip_suffix(".git").unwrap_or(&self.0);
        let of = |prefix: &str, url: &str| {
            url.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let url = url.normalized();
        of(&self.0, &url) || own == url
    }
}

impl fmt::Display for UrlPrefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[derive(Debug, Error)]
pub enum AccessError {
    #[error("the credentials `{}` could not be read", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("`{}` has `{given}` and no `{missing}`: they come together", path.display())]
    Half { path: PathBuf, given: &'static str, missing: &'static str },
    #[error("`{}` has both `username` and `bearerToken`", path.display())]
    TwoKinds { path: PathBuf },
    #[error("`{}` holds {what} that cannot be used: {why}", path.display())]
    Unusable { path: PathBuf, what: &'static str, why: String },
    #[error("the private key `{}` is encrypted, and there is no passphrase", path.display())]
    Encrypted { path: PathBuf },
    #[error("{source_name} is reached by ssh, and `known_hosts` is missing")]
    NoKnownHosts { source_name: String },
    #[error("the file of host keys `{}` does not exist", path.display())]
    KnownHostsMissing { path: PathBuf },
    #[error("`{proxy}` cannot be used as a proxy: {why}")]
    Proxy { proxy: String, why: String },
    #[error("`{text}` is not `PREFIX=DIRECTORY`")]
    Template { text: String },
}

impl AccessError {
    pub(super) fn help(&self) -> String {
        match self {
            Self::Unreadable { .. } => "Name a directory with one file for each key, as a mounted Secret has them.".into(),
            Self::Half { missing, .. } => format!("Add `{missing}`, or remove the other."),
            Self::TwoKinds { .. } => "Keep one of the two.".into(),
            Self::Unusable { .. } => "Write it in PEM form; a certificate and its key must belong together.".into(),
            Self::Encrypted { .. } => "Add the passphrase as `password` beside it, or use a key without one.".into(),
            Self::NoKnownHosts { .. } | Self::KnownHostsMissing { .. } => {
                "Put the host's key into a file (`ssh-keyscan HOST`, compared with what its owner publishes) and name it: `known_hosts` of the credentials, or `--known-hosts FILE`.".into()
            }
            Self::Proxy { .. } => {
                "Write `http://host:port`, `https://host:port` or `socks5h://host:port`; ssh goes through none.".into()
            }
            Self::Template { .. } => "Write it like `https://git.example.com/team=/etc/provisor/team`.".into(),
        }
    }
}

/// What one conversation uses. It has no `Debug`, so that nothing of it gets into a log.
#[derive(Clone, Default, PartialEq, Eq)]
pub(super) struct Credentials {
    basic: Option<(String, String)>,
    bearer: Option<String>,
    pub(super) certificate_and_key: Option<Vec<u8>>,
    pub(super) ca: Option<Vec<u8>>,
    pub(super) identity: Option<PathBuf>,
    pub(super) passphrase_file: Option<PathBuf>,
    pub(super) known_hosts: Option<PathBuf>,
    pub(super) proxy: Option<String>,
}

impl Credentials {
    /// The value of the header `Authorization`.
    pub(super) fn authorization(&self) -> Option<String> {
        let basic = self.basic.as_ref().map(|(user, password)| {
            format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")))
        });
        basic.or_else(|| self.bearer.as_ref().map(|token| format!("Bearer {token}")))
    }
}

impl Access {
    /// Reads what counts for an address now. Everything that can be wrong before anybody is asked, is found here.
    pub(super) fn read(&self, url: &RepositoryUrl, source_name: &str) -> Result<Credentials, AccessError> {
        let template = self
            .templates
            .iter()
            .filter(|template| template.prefix.covers(url))
            .max_by_key(|template| template.prefix.0.len())
            .map(|template| &template.credentials);
        let mut credentials = match self.credentials.as_ref().or(template) {
            Some(directory) => read_secret(directory)?,
            None => Credentials::default(),
        };
        credentials.known_hosts = credentials.known_hosts.or_else(|| self.known_hosts.clone());
        credentials.proxy.clone_from(&self.proxy);
        if let Some(proxy) = &self.proxy
            && !PROXIES.iter().any(|scheme| proxy.starts_with(scheme))
        {
            let why = "that is no kind of proxy that is known".into();
            return Err(AccessError::Proxy { proxy: without_password(proxy), why });
        }
        if matches!(url.place(), Place::Ssh { .. }) {
            match &credentials.known_hosts {
                None => return Err(AccessError::NoKnownHosts { source_name: source_name.into() }),
                Some(path) if !path.is_file() => {
                    return Err(AccessError::KnownHostsMissing { path: path.clone() });
                }
                Some(_) => {}
            }
            if let Some(proxy) = &self.proxy {
                let why = "the address is reached by ssh".into();
                return Err(AccessError::Proxy { proxy: without_password(proxy), why });
            }
            if let Some(identity) = &credentials.identity {
                let is_open = credentials.passphrase_file.is_some();
                if !is_open && is_encrypted(&read_file(identity)?.unwrap_or_default()) {
                    return Err(AccessError::Encrypted { path: identity.clone() });
                }
            }
        }
        Ok(credentials)
    }
}

fn read_secret(directory: &Path) -> Result<Credentials, AccessError> {
    if let Err(source) = std::fs::read_dir(directory) {
        return Err(AccessError::Unreadable { path: directory.into(), source });
    }
    let path = |name: &str| directory.join(name);
    let text = |name: &str| -> Result<Option<String>, AccessError> {
        let Some(content) = read_file(&path(name))? else { return Ok(None) };
        let text = String::from_utf8_lossy(&content).trim_end_matches(['\r', '\n']).to_owned();
        match text.chars().any(char::is_control) {
            true => Err(AccessError::Unusable {
                path: path(name),
                what: "a text",
                why: "it has a control character".into(),
            }),
            false => Ok(Some(text)),
        }
    };
    let there = |name: &str| Some(path(name)).filter(|file| file.is_file());
    let half = |given, missing| Err(AccessError::Half { path: directory.into(), given, missing });
    let (user, bearer) = (text("username")?, text("bearerToken")?);
    let identity = there("identity");
    let password = if identity.is_some() { None } else { text("password")? };
    let basic = match (user, password) {
        (Some(user), Some(password)) => Some((user, password)),
        (Some(_), None) if identity.is_none() => return half("username", "password"),
        (None, Some(_)) => return half("password", "username"),
        _ => None,
    };
    if basic.is_some() && bearer.is_some() {
        return Err(AccessError::TwoKinds { path: directory.into() });
    }
    let certificate_and_key = match (read_file(&path("tls.crt"))?, read_file(&path("tls.key"))?) {
        (Some(_), None) => return half("tls.crt", "tls.key"),
        (None, Some(_)) => return half("tls.key", "tls.crt"),
        (Some(mut pem), Some(key)) => {
            pem.push(b'\n');
            pem.extend(key);
            Some(pem)
        }
        (None, None) => None,
    };
    Ok(Credentials {
        basic,
        bearer,
        certificate_and_key,
        ca: read_file(&path("ca.crt"))?,
        passphrase_file: identity.as_ref().and_then(|_| there("password")),
        identity,
        known_hosts: there("known_hosts"),
        proxy: None,
    })
}

fn read_file(path: &Path) -> Result<Option<Vec<u8>>, AccessError> {
    match std::fs::read(path) {
        Ok(content) => Ok(Some(content)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(AccessError::Unreadable { path: path.into(), source }),
    }
}

/// Whether a private key needs a passphrase: OpenSSH's own form names its cipher, the older ones say so in words.
fn is_encrypted(key: &[u8]) -> bool {
    let text = String::from_utf8_lossy(key);
    if text.contains("BEGIN ENCRYPTED PRIVATE KEY") || text.contains("Proc-Type: 4,ENCRYPTED") {
        return true;
    }
    let Some((_, rest)) = text.split_once("-----BEGIN OPENSSH PRIVATE KEY-----") else { return false };
    let Some((body, _)) = rest.split_once("-----END") else { return false };
    let body: String = body.split_whitespace().collect();
    let Ok(bytes) = BASE64_STANDARD.decode(body) else { return false };
    let Some(fields) = bytes.strip_prefix(b"openssh-key-v1\0") else { return false };
    let Some((length, rest)) = fields.split_first_chunk::<4>() else { return false };
    let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
    rest.get(..length).is_some_and(|cipher| cipher != b"none")
}

/// The address of a proxy as it may be shown.
pub(super) fn without_password(proxy: &str) -> String {
    match proxy.split_once("://").map(|(scheme, rest)| (scheme, rest.rsplit_once('@'))) {
        Some((scheme, Some((_, host)))) => format!("{scheme}://{host}"),
        _ => proxy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(text: &str) -> RepositoryUrl {
        RepositoryUrl::parse(text, UrlRules { allow_insecure_http: true, allow_local: true }).expect(text)
    }

    #[test]
    fn prefixes_cover_whole_parts_of_a_path() {
        for (prefix, address, is_covered) in [
            ("https://h/a", "https://h/a/b/c.git", true),
            ("https://h/a/", "https://H/a", true),
            ("https://h/a", "https://h/ab", false),
            ("https://h", "https://h:443/any/thing", true),
            ("https://h", "https://h.example.com/any", false),
            ("https://h", "http://h/any", false),
            ("https://h:8443", "https://h/any", false),
            ("ssh://h/team", "git@h:team/fleet", true),
            ("https://h/fleet.git", "https://h/fleet", true),
        ] {
            let prefix = UrlPrefix::parse(prefix).expect(prefix);
            assert_eq!(prefix.covers(&url(address)), is_covered, "{prefix} {address}");
        }
        assert!(UrlPrefix::parse("ext::sh").is_err());
    }

    #[test]
    fn proxies_are_shown_without_their_password() {
        assert_eq!(without_password("socks5h://ada:secret@proxy:1080"), "socks5h://proxy:1080");
        assert_eq!(without_password("http://proxy:8080"), "http://proxy:8080");
    }
}
