//! Which addresses a repository may have, decided before anything is connected or spawned.
//!
//! An address is data from a person or a cluster object, and some addresses are commands in disguise
//! (`ext::sh -c …`, `ssh://-oProxyCommand=…`). So this is a list of what is understood; the rest is refused. What is
//! understood is kept in parts, and nobody parses the text again.

use std::fmt;
use std::path::{Path, PathBuf};

use thiserror::Error;

/// What the place that names the address permits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UrlRules {
    pub allow_insecure_http: bool,
    /// Plain paths and `file://`: always on the command line, by a flag in a cluster.
    pub allow_local: bool,
}

/// A checked address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RepositoryUrl {
    place: Place,
    shown: String,
}

/// Where a repository is and how it is reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Http { is_secure: bool, host: String, port: Option<u16>, path: String },
    Ssh { user: Option<String>, host: String, port: Option<u16>, path: SshPath },
    Local(PathBuf),
}

/// The path as the remote shell must get it: the scp form counts from the home directory, `ssh://` from the root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SshPath(pub(crate) String);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UrlError {
    #[error("the repository address is empty")]
    Empty,
    #[error("the repository address has a control character at byte {at}")]
    ControlCharacter { at: usize },
    #[error("`{helper}::` names a program to run, not a repository")]
    Helper { helper: String },
    #[error("scheme `{scheme}://` of `{url}` is not supported")]
    Scheme { scheme: String, url: String },
    #[error("`{url}` uses the git protocol, which neither encrypts nor authenticates")]
    GitProtocol { url: String },
    #[error("`{url}` is not encrypted")]
    InsecureHttp { url: String },
    #[error("`{url}` is a local repository, and local repositories are not allowed here")]
    LocalRefused { url: String },
    #[error("`{url}` has a password in it")]
    Password { url: String },
    #[error("the {part} of `{url}` begins with `-`, which a program would read as an option")]
    LeadingDash { part: &'static str, url: String },
    #[error("`{url}` names no host")]
    NoHost { url: String },
    #[error("`{host}` is not a host name (in `{url}`)")]
    BadHost { host: String, url: String },
    #[error("`{user}` is not a user name (in `{url}`)")]
    BadUser { user: String, url: String },
    #[error("`{port}` is not a port (in `{url}`)")]
    BadPort { port: String, url: String },
    #[error("`{url}` names no repository on its host")]
    NoPath { url: String },
    #[error("`{url}` has a query or a fragment, which the address of a repository cannot have")]
    QueryOrFragment { url: String },
    #[error("`{url}` looks like a port in the scp form `user@host:path`, which has no place for one")]
    ScpPort { url: String, suggestion: String },
    #[error("`{url}` names the host `{host}`, and files are only read on this machine")]
    FileHost { host: String, url: String },
}

impl UrlError {
    pub fn help(&self) -> String {
        match self {
            Self::Empty => "Give a path, or an address such as `https://github.com/you/fleet`.".into(),
            Self::ControlCharacter { .. } => "Type the address again; pasted text sometimes carries a line break.".into(),
            Self::Helper { .. } | Self::Scheme { .. } => {
                "Use `https://`, `ssh://`, `user@host:path`, `file://` or a path.".into()
            }
            Self::GitProtocol { .. } => "Use the `https://` or `ssh://` address of the same repository.".into(),
            Self::InsecureHttp { .. } => {
                "Use `https://`; or accept that anyone on the way can change the content, with `--allow-insecure-http`.".into()
            }
            Self::LocalRefused { .. } => "Use an `https://` or `ssh://` address, or allow file sources.".into(),
            Self::Password { .. } => {
                "Remove it, and replace it on the server: an address is shown in logs and statuses.".into()
            }
            Self::LeadingDash { part: "path", .. } => "Write `./` before it.".into(),
            Self::LeadingDash { .. } | Self::NoHost { .. } | Self::BadHost { .. } | Self::BadUser { .. } => {
                "An address reads `https://HOST/PATH` or `ssh://USER@HOST/PATH`.".into()
            }
            Self::BadPort { .. } => "A port is a number from 1 to 65535.".into(),
            Self::NoPath { .. } => "Add the path of the repository after the host.".into(),
            Self::QueryOrFragment { .. } => {
                "Remove what follows `?` or `#`; a branch, tag or commit is named separately.".into()
            }
            Self::ScpPort { suggestion, .. } => format!("Write `{suggestion}`."),
            Self::FileHost { .. } => "Write `file:///absolute/path`.".into(),
        }
    }
}

impl RepositoryUrl {
    /// Reads an address and applies every rule that needs no connection.
    pub fn parse(text: &str, rules: UrlRules) -> Result<Self, UrlError> {
        if text.is_empty() {
            return Err(UrlError::Empty);
        }
        if let Some(at) = text.bytes().position(|byte| byte.is_ascii_control()) {
            return Err(UrlError::ControlCharacter { at });
        }
        if let Some((helper, _)) = text.split_once("::")
            && !helper.is_empty()
            && helper.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+.-_".contains(&byte))
        {
            return Err(UrlError::Helper { helper: helper.into() });
        }
        let place = match text.split_once("://") {
            Some((scheme, rest)) => parse_with_scheme(scheme, rest, text, rules)?,
            None => match split_scp(text) {
                Some((authority, path)) => parse_scp(authority, path, text)?,
                None if text.starts_with('-') => {
                    return Err(UrlError::LeadingDash { part: "path", url: text.into() });
                }
                None => local(PathBuf::from(text), text, rules)?,
            },
        };
        Ok(Self { shown: shown(&place, text), place })
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The path, if the repository is on this machine.
    pub fn local_path(&self) -> Option<&Path> {
        match &self.place {
            Place::Local(path) => Some(path),
            Place::Http { .. } | Place::Ssh { .. } => None,
        }
    }

    /// True if anyone on the way could change what is read: a condition to show for as long as it lasts.
    pub fn is_insecure(&self) -> bool {
        matches!(self.place, Place::Http { is_secure: false, .. })
    }

    /// For comparing, never for showing: equal for two spellings of one repository. Case of the host, default ports,
    /// trailing slashes, `.git` and user names do not count.
    pub fn normalized(&self) -> String {
        let trimmed = |path: &str| {
            let path = path.trim_end_matches('/');
            path.strip_suffix(".git").unwrap_or(path).trim_matches('/').to_owned()
        };
        let authority = |host: &str, port: &Option<u16>, default: u16| match port {
            Some(port) if *port != default => format!("{host}:{port}"),
            _ => host.to_owned(),
        };
        match &self.place {
            Place::Http { is_secure: true, host, port, path } => {
                format!("https://{}/{}", authority(host, port, 443), trimmed(path))
            }
            Place::Http { is_secure: false, host, port, path } => {
                format!("http://{}/{}", authority(host, port, 80), trimmed(path))
            }
            Place::Ssh { host, port, path, .. } => {
                format!("ssh://{}/{}", authority(host, port, 22), trimmed(&path.0))
            }
            Place::Local(path) => {
                let path = path.to_string_lossy();
                format!("file://{}", path.trim_end_matches('/'))
            }
        }
    }
}

/// As given, without user-info where that could be a secret.
impl fmt::Display for RepositoryUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.shown)
    }
}

fn shown(place: &Place, text: &str) -> String {
    match place {
        Place::Http { .. } => without_user_info(text),
        Place::Ssh { user, host, port, path } => {
            let user = user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            format!("ssh://{user}{host}{port}/{}", path.0.trim_start_matches('/'))
        }
        Place::Local(path) => path.display().to_string(),
    }
}

/// Cuts everything between the scheme and the last `@` of the authority, secret or not.
fn without_user_info(text: &str) -> String {
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let authority_end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let start = rest[..authority_end].rfind('@').map_or(0, |at| at + 1);
    // A query can carry a token, and it is refused anyway.
    let end = rest.find(['?', '#']).unwrap_or(rest.len());
    format!("{scheme}{}", &rest[start..end.max(start)])
}

fn parse_with_scheme(scheme: &str, rest: &str, text: &str, rules: UrlRules) -> Result<Place, UrlError> {
    let scheme = scheme.to_ascii_lowercase();
    let safe = || without_user_info(text);
    match scheme.as_str() {
        "https" | "http" => {
            let parts = Authority::parse(rest, text)?;
            if rest.contains(['?', '#']) {
                return Err(UrlError::QueryOrFragment { url: safe() });
            }
            let is_secure = scheme == "https";
            if !is_secure && !rules.allow_insecure_http {
                return Err(UrlError::InsecureHttp { url: safe() });
            }
            if parts.path.trim_matches('/').is_empty() {
                return Err(UrlError::NoPath { url: safe() });
            }
            Ok(Place::Http { is_secure, host: parts.host, port: parts.port, path: parts.path })
        }
        "ssh" => {
            let parts = Authority::parse(rest, text)?;
            let path = percent_decoded(&parts.path).ok_or_else(|| UrlError::NoPath { url: safe() })?;
            if path.trim_matches('/').is_empty() {
                return Err(UrlError::NoPath { url: safe() });
            }
            // `ssh://host/~user/x` means the home directory, which the other side resolves without the slash.
            let path = if path.starts_with("/~") { path[1..].to_owned() } else { path };
            Ok(Place::Ssh { user: parts.user, host: parts.host, port: parts.port, path: SshPath(path) })
        }
        "file" => {
            let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
            if !(host.is_empty() || host == "localhost") {
                return Err(UrlError::FileHost { host: host.into(), url: text.into() });
            }
            match percent_decoded(path) {
                Some(path) if !path.is_empty() => local(PathBuf::from(path), text, rules),
                _ => Err(UrlError::NoPath { url: text.into() }),
            }
        }
        "git" => Err(UrlError::GitProtocol { url: safe() }),
        _ => Err(UrlError::Scheme { scheme, url: safe() }),
    }
}

fn local(path: PathBuf, text: &str, rules: UrlRules) -> Result<Place, UrlError> {
    match rules.allow_local {
        true => Ok(Place::Local(path)),
        false => Err(UrlError::LocalRefused { url: text.into() }),
    }
}

/// `user@host:path`: a colon before the first slash, as Git decides it (`./a:b` is a path).
fn split_scp(text: &str) -> Option<(&str, &str)> {
    let search_from = match text.find("]:") {
        Some(bracket) if text.contains('[') => bracket + 1,
        _ => 0,
    };
    let colon = search_from + text[search_from..].find(':')?;
    let is_before_slash = text.find('/').is_none_or(|slash| colon < slash);
    is_before_slash.then(|| (&text[..colon], &text[colon + 1..]))
}

fn parse_scp(authority: &str, path: &str, text: &str) -> Result<Place, UrlError> {
    let parts = Authority::parse(authority, text)?;
    let first = path.split('/').next().unwrap_or_default();
    if !first.is_empty() && first.bytes().all(|byte| byte.is_ascii_digit()) {
        let user = parts.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        let rest = path[first.len()..].trim_start_matches('/');
        let suggestion = format!("ssh://{user}{}:{first}/{rest}", parts.host);
        return Err(UrlError::ScpPort { url: text.into(), suggestion });
    }
    if path.trim_matches('/').is_empty() {
        return Err(UrlError::NoPath { url: text.into() });
    }
    Ok(Place::Ssh { user: parts.user, host: parts.host, port: None, path: SshPath(path.into()) })
}

struct Authority {
    user: Option<String>,
    host: String,
    port: Option<u16>,
    path: String,
}

impl Authority {
    /// Splits `[user@]host[:port][/path]`.
    fn parse(rest: &str, text: &str) -> Result<Self, UrlError> {
        let safe = || without_user_info(text);
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let (user_info, host_port) = match authority.rfind('@') {
            Some(at) => (Some(&authority[..at]), &authority[at + 1..]),
            None => (None, authority),
        };
        let user = user_info.map(|user| Self::user(user, text)).transpose()?.flatten();
        let (host, port) = match host_port.strip_prefix('[').and_then(|inner| inner.split_once(']')) {
            Some((address, after)) => (format!("[{address}]"), after.strip_prefix(':')),
            None => match host_port.rsplit_once(':') {
                Some((host, port)) => (host.to_owned(), Some(port)),
                None => (host_port.to_owned(), None),
            },
        };
        let host = percent_decoded(&host).unwrap_or(host).to_ascii_lowercase();
        if host.is_empty() {
            return Err(UrlError::NoHost { url: safe() });
        }
        if host.starts_with('-') {
            return Err(UrlError::LeadingDash { part: "host", url: safe() });
        }
        let is_address = host.starts_with('[');
        let is_fine = |byte: u8| {
            byte.is_ascii_alphanumeric() || b".-_".contains(&byte) || (is_address && b"[]:%".contains(&byte))
        };
        if !host.bytes().all(is_fine) {
            return Err(UrlError::BadHost { host, url: safe() });
        }
        let port = match port {
            None | Some("") => None,
            Some(digits) => match digits.parse::<u16>() {
                Ok(port) if port > 0 && digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(port),
                _ => return Err(UrlError::BadPort { port: digits.into(), url: safe() }),
            },
        };
        let path = path.split(['?', '#']).next().unwrap_or_default().to_owned();
        Ok(Self { user, host, port, path })
    }

    fn user(user_info: &str, text: &str) -> Result<Option<String>, UrlError> {
        let safe = || without_user_info(text);
        if user_info.contains(':') {
            return Err(UrlError::Password { url: safe() });
        }
        let Some(user) = percent_decoded(user_info) else {
            return Err(UrlError::BadUser { user: "…".into(), url: safe() });
        };
        if user.starts_with('-') {
            return Err(UrlError::LeadingDash { part: "user", url: safe() });
        }
        // Decoding must not have smuggled in what was refused above.
        if user.contains(':') {
            return Err(UrlError::Password { url: safe() });
        }
        if user
            .bytes()
            .any(|byte| byte.is_ascii_control() || byte.is_ascii_whitespace() || b"@/".contains(&byte))
        {
            return Err(UrlError::BadUser { user: "…".into(), url: safe() });
        }
        Ok((!user.is_empty()).then_some(user))
    }
}

/// `None` if an escape is cut short, not hexadecimal, or decodes to a control character or to no UTF-8.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let (high, low) = (rest.next()?, rest.next()?);
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let decoded = u8::try_from(digit(high)? * 16 + digit(low)?).ok()?;
        if decoded.is_ascii_control() {
            return None;
        }
        bytes.push(decoded);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const COMMAND_LINE: UrlRules = UrlRules { allow_insecure_http: false, allow_local: true };

    fn parse(text: &str) -> Result<RepositoryUrl, UrlError> {
        RepositoryUrl::parse(text, COMMAND_LINE)
    }

    fn message(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    #[test]
    fn git_014_the_scp_form_is_ssh_and_has_no_port() {
        let error = parse("git@host:2222/team/repo.git").expect_err("a port");
        assert_eq!(error.help(), "Write `ssh://git@host:2222/team/repo.git`.");
        let url = parse("git@host:team/repo").expect("scp form");
        assert_eq!(url.to_string(), "ssh://git@host/team/repo");
        assert_eq!(url.normalized(), parse("ssh://git@HOST:22/team/repo.git/").expect("ssh").normalized());
        // Counted from the home directory, as ssh does it.
        assert!(matches!(url.place(), Place::Ssh { path, .. } if path.0 == "team/repo"));
        assert!(matches!(parse("./a:b").expect("a path").place(), Place::Local(_)));
        assert!(
            matches!(parse("git@[::1]:r").expect("scp").place(), Place::Ssh { host, .. } if host == "[::1]")
        );
    }

    #[test]
    fn git_015_a_password_is_refused_and_never_shown() {
        for text in [
            "https://user:pw@host/r",
            "https://user%3Apw@host/r",
            "ssh://user:pw@host/r",
            "http://user:pw@host/r",
        ] {
            let error = parse(text).expect_err(text);
            assert!(matches!(error, UrlError::Password { .. }), "{text}: {error}");
            let told = format!("{error} {error:?} {}", error.help());
            assert!(!told.contains("pw"), "{told}");
        }
        assert_eq!(message("https://user:pw@host/r"), "`https://host/r` has a password in it");
        // A token in the place of a user is not shown either.
        assert_eq!(parse("https://ghp_secret@host/r").expect("user only").to_string(), "https://host/r");
        assert!(!message("https://ghp_secret@host/r?x=1").contains("ghp"));
        assert!(!message("https://host/r?token=abc").contains("abc"));
    }

    #[test]
    fn git_016_a_leading_dash_is_refused() {
        for text in [
            "ssh://-oProxyCommand=touch%20x@host/r",
            "ssh://%2DoProxyCommand=x@host/r",
            "ssh://-x/r",
            "ssh://git@-x/r",
            "https://-x/r",
            "-x:r",
            "git@-x:r",
            "-x",
        ] {
            let error = parse(text).expect_err(text);
            assert!(matches!(error, UrlError::LeadingDash { .. }), "{text}: {error}");
        }
    }

    #[test]
    fn git_017_helpers_and_unknown_schemes_are_refused() {
        assert_eq!(message("ext::sh -c x"), "`ext::` names a program to run, not a repository");
        assert_eq!(message("fd::7"), "`fd::` names a program to run, not a repository");
        assert_eq!(message("ftp://host/r"), "scheme `ftp://` of `ftp://host/r` is not supported");
    }

    #[test]
    fn git_018_plain_http_needs_the_opt_in() {
        assert_eq!(message("http://host/r"), "`http://host/r` is not encrypted");
        let url =
            RepositoryUrl::parse("http://host/r", UrlRules { allow_insecure_http: true, ..COMMAND_LINE });
        assert!(url.expect("allowed").is_insecure());
        assert!(!parse("https://host/r").expect("https").is_insecure());
    }

    #[test]
    fn git_019_local_repositories_need_the_flag_in_a_cluster() {
        let cluster = UrlRules { allow_local: false, ..COMMAND_LINE };
        for text in ["file:///srv/fleet", "/srv/fleet", "fleet"] {
            assert!(
                matches!(RepositoryUrl::parse(text, cluster), Err(UrlError::LocalRefused { .. })),
                "{text}"
            );
            assert!(parse(text).expect("command line").local_path().is_some());
        }
    }

    #[test]
    fn git_020_the_git_protocol_is_refused() {
        assert!(matches!(parse("git://host/r"), Err(UrlError::GitProtocol { .. })));
    }

    #[test]
    fn parts_that_make_no_sense_are_named() {
        assert_eq!(message(""), "the repository address is empty");
        assert_eq!(message("https://host/a\nb"), "the repository address has a control character at byte 14");
        assert_eq!(message("https://"), "`https://` names no host");
        assert_eq!(message("https://host"), "`https://host` names no repository on its host");
        assert_eq!(message("https://host:0/r"), "`0` is not a port (in `https://host:0/r`)");
        assert_eq!(message("https://ho st/r"), "`ho st` is not a host name (in `https://ho st/r`)");
        assert_eq!(
            message("file://server/r"),
            "`file://server/r` names the host `server`, and files are only read on this machine"
        );
        assert_eq!(parse("file:///a%20b").expect("escaped").local_path(), Some(Path::new("/a b")));
    }

    #[test]
    fn spellings_of_one_repository_are_equal_only_for_comparing() {
        let spellings = ["https://Host/Team/r", "https://host:443/Team/r.git", "https://u@host/Team/r/"];
        let keys: Vec<_> = spellings.iter().map(|text| parse(text).expect(text).normalized()).collect();
        assert!(keys.iter().all(|key| key == "https://host/Team/r"), "{keys:?}");
        assert_eq!(parse(spellings[1]).expect("url").to_string(), spellings[1]);
    }
}
