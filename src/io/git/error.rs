//! What can go wrong between an address and the files of a commit, and what should happen next.
//!
//! A message says what, where and why; [`GitError::help`] what to do. [`GitError::class`] decides the exit code of a
//! command, [`GitError::next_step`] whether a controller tries again by itself.

use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

use super::access::AccessError;
use super::ancestry::Abbreviation;
use super::limits::LimitError;
use super::reference::{ReferenceError, range_hint};
use super::url::UrlError;
use crate::model::repository::CommitId;

/// Whose fault it is, as the table of exit codes divides it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// The input is wrong: exit code 2.
    Input,
    /// The outside world failed or refuses for now: exit code 3.
    Outside,
}

/// What a controller does with a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Try again after the back-off, and not before `after` if the server named a time.
    Retry { after: Option<Duration> },
    /// Trying again gives the same answer until a person changes the settings or the repository.
    NeedsPerson,
}

/// Which part of a conversation ran out of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    Listing,
    Fetching,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Self::Listing => "listing the references",
            Self::Fetching => "fetching",
        })
    }
}

#[derive(Debug, Error)]
pub enum GitError {
    #[error(transparent)]
    Url(#[from] UrlError),
    #[error(transparent)]
    Reference(#[from] ReferenceError),
    #[error(transparent)]
    Limit(#[from] LimitError),
    #[error(transparent)]
    Access(#[from] AccessError),

    // The repository was found, the revision was not.
    #[error("{source_name} has no {wanted}")]
    RefNotFound { source_name: String, wanted: String, near: Vec<String> },
    #[error("no tag of {source_name} is a version in the range `{range}`{}", prefixed(prefix))]
    NoVersionInRange { source_name: String, range: String, prefix: String, versions: Vec<String> },
    #[error("`{name}` is both a branch and a tag of {source_name}: `{branch}` and `{tag}`")]
    AmbiguousRef { source_name: String, name: String, branch: String, tag: String },
    #[error("{source_name} is empty: it has no commit yet")]
    EmptyRepository { source_name: String },
    #[error("HEAD of {source_name} names the branch `{branch}`, which has no commit yet")]
    UnbornHead { source_name: String, branch: String, near: Vec<String> },
    #[error("{source_name} has no commit {commit}")]
    CommitNotFound { source_name: String, commit: CommitId },
    #[error("{source_name} has no commit {commit}, and its history is cut off")]
    CommitCutOff { source_name: String, commit: CommitId },
    #[error("commit {commit} of {source_name} is not part of the branch `{branch}`")]
    CommitNotOnBranch { source_name: String, commit: CommitId, branch: String },
    #[error("{source_name} has {count} commits that begin with `{digits}`")]
    AmbiguousCommit { source_name: String, digits: String, count: usize, candidates: Vec<String> },
    #[error("{source_name} has no `{revision}`: commit {} {}", commit.short(), with_parents(*parents))]
    NoAncestor { source_name: String, revision: String, commit: CommitId, parents: usize },
    #[error("{source_name} has no `{revision}`: its history is cut off before that")]
    HistoryEnds { source_name: String, revision: String },
    #[error("`{reference}` of {source_name} is a {kind}, not a commit")]
    NotACommit { source_name: String, reference: String, kind: String },

    // Local repositories and directories.
    #[error("there is nothing at `{}`", path.display())]
    PathMissing { path: PathBuf },
    #[error("`{}` is not a Git repository", path.display())]
    NotARepository { path: PathBuf },
    #[error("`{}` is not a directory", path.display())]
    NotADirectory { path: PathBuf },
    #[error("`{}` could not be read", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{source_name} uses {what}, which is not supported")]
    UnsupportedRepository { source_name: String, what: String },

    // Reading the files of a commit.
    #[error("object {id} of {source_name} is {problem}")]
    Corrupt { source_name: String, id: String, problem: String },
    #[error("`{path}` is not a path inside a repository: {why}")]
    BadSubdirectory { path: String, why: &'static str },
    #[error("{source_name} has no directory `{path}` at {at}")]
    SubdirectoryNotFound { source_name: String, path: String, at: String, near: Vec<String> },
    #[error("`{path}` of {source_name} {refusal}, not a directory")]
    SubdirectoryRefused { source_name: String, path: String, refusal: String },
    #[error("{source_name} has more than {limit} {what} to consider; `{path}` is one too many")]
    TooManyFiles { source_name: String, what: &'static str, limit: usize, path: String },
    #[error("the files of {source_name} are more than {limit} bytes together; `{path}` is one too many")]
    ContentTooLarge { source_name: String, limit: u64, path: String },

    #[error("the submodule `{path}`{} is refused: {why}", at(url))]
    SubmoduleRefused { path: String, url: String, why: String },

    // Talking to a server.
    #[error("the pack of {source_name} is larger than {limit} bytes")]
    RepositoryTooLarge { source_name: String, limit: u64 },
    #[error("{source_name} lists more than {limit} bytes of references")]
    TooManyReferences { source_name: String, limit: u64 },
    #[error("{phase} of {source_name} took longer than {} s", limit.as_secs_f32())]
    Timeout { source_name: String, phase: Phase, limit: Duration },
    #[error("stopped while {phase} of {source_name}")]
    Stopped { source_name: String, phase: Phase },
    #[error("{source_name} cannot be reached: {why}")]
    Unreachable { source_name: String, why: String },
    #[error("{source_name} asks for credentials ({why})")]
    AuthenticationFailed { source_name: String, why: String },
    #[error("{source_name} refuses access (HTTP 403)")]
    AccessDenied { source_name: String },
    #[error("the server has no repository at {source_name} ({why})")]
    NotFoundOnServer { source_name: String, why: String },
    #[error("the server of {source_name} limits the rate of requests (HTTP {status})")]
    RateLimited { source_name: String, status: u16, after: Option<Duration> },
    #[error("the server of {source_name} failed (HTTP {status})")]
    ServerFailed { source_name: String, status: u16, after: Option<Duration> },
    #[error("{source_name} redirects to `{target}`, which is not followed: {why}")]
    Redirected { source_name: String, target: String, why: &'static str },
    #[error("what answers at {source_name} is not a Git repository: {why}")]
    NotGit { source_name: String, why: String },
    #[error("the conversation with {source_name} broke: {why}")]
    Protocol { source_name: String, why: String },
    #[error("the server of {source_name} does not hand out commit {commit} by its id")]
    CommitNotOffered { source_name: String, commit: CommitId },
    #[error("the program `ssh` is needed for {source_name} and could not be started")]
    SshMissing { source_name: String, source: std::io::Error },
    #[error("the host key of {host} is not known")]
    HostKeyUnknown { host: String, offered: Option<String> },
    #[error("the host key of {host} is not the known one: somebody may be in between")]
    HostKeyMismatch { host: String, offered: Option<String> },
    #[error("the host key of {host} is revoked")]
    HostKeyRevoked { host: String, offered: Option<String> },

    // Our own store, and repositories we write.
    #[error("the cache `{}` could not be used", path.display())]
    Cache { path: PathBuf, source: std::io::Error },
    #[error("the repository `{}` could not be written: {why}", path.display())]
    Write { path: PathBuf, why: String },
    #[error("changes of `{}` cannot be watched: {why}", path.display())]
    Watch { path: PathBuf, why: String },
}

fn at(url: &str) -> String {
    if url.is_empty() { String::new() } else { format!(" at `{url}`") }
}

fn with_parents(count: usize) -> String {
    match count {
        0 => "is the first one".into(),
        1 => "has one parent".into(),
        count => format!("has {count} parents"),
    }
}

fn prefixed(prefix: &str) -> String {
    if prefix.is_empty() { String::new() } else { format!(" after the prefix `{prefix}`") }
}

impl GitError {
    /// What to do about it.
    pub fn help(&self) -> String {
        match self {
            Self::Url(error) => error.help(),
            Self::Reference(error) => error.help(),
            Self::Limit(error) => error.help(),
            Self::Access(error) => error.help(),
            Self::RefNotFound { near, wanted, .. } => {
                let there = match near.as_slice() {
                    [] => "The repository has no branch and no tag of that kind; push one, or name another.".into(),
                    near => format!("There is {}.", listed(near)),
                };
                let word = wanted.split('`').nth(1).unwrap_or_default();
                let hint = match word.contains('.') {
                    true => range_hint(word),
                    false => Abbreviation::too_short(word).then(|| {
                        "If it begins the id of a commit, write more of it: four digits at least.".to_owned()
                    }),
                };
                match hint {
                    Some(hint) => format!("{there} {hint}"),
                    None => there,
                }
            }
            Self::NoVersionInRange { versions, .. } => match versions.as_slice() {
                [] => "No tag with that prefix is a version such as `v1.2.3`.".into(),
                versions => {
                    format!("The newest versions are {}. A pre-release counts only if the range names one.", listed(versions))
                }
            },
            Self::AmbiguousRef { branch, tag, .. } => format!("Name it in full: `{branch}` or `{tag}`."),
            Self::EmptyRepository { .. } => "Commit and push the fleet; `provisor init` writes a first one.".into(),
            Self::UnbornHead { near, .. } => match near.as_slice() {
                [] => "Commit and push to it.".into(),
                near => format!("Commit to it, or follow another reference: there is {}.", listed(near)),
            },
            Self::CommitNotFound { .. } => "Check the id; was the commit pushed to this repository?".into(),
            Self::AmbiguousCommit { count, candidates, .. } => {
                let more = if candidates.len() < *count { " and others" } else { "" };
                format!("Write more digits: there is {}{more}.", listed(candidates))
            }
            Self::NoAncestor { parents: 0, .. } => "Count fewer commits back.".into(),
            Self::NoAncestor { .. } => "`^2` is the second parent, which only a merge has; `~2` goes two commits back.".into(),
            Self::CommitCutOff { .. } => {
                "It is a shallow clone: `git fetch --unshallow` there brings the rest (in a pipeline: `fetch-depth: 0`, `GIT_DEPTH: 0`).".into()
            }
            Self::HistoryEnds { .. } => {
                "Is it a shallow clone? `git fetch --unshallow` there brings the rest.".into()
            }
            Self::CommitNotOnBranch { .. } => "Name a commit of that branch, or leave the branch out.".into(),
            Self::NotACommit { .. } => "Name a branch, or a tag of a commit.".into(),
            Self::PathMissing { .. } => "Check the path.".into(),
            Self::NotARepository { .. } => {
                "Run `git init` there and commit; `provisor validate DIR` also reads a plain directory.".into()
            }
            Self::NotADirectory { .. } => "Name the directory that has `fleet.toml` in it.".into(),
            Self::Unreadable { .. } => "Check that it exists and that you may read it.".into(),
            Self::UnsupportedRepository { .. } => {
                "Use a repository in Git's default format (`git init --object-format=sha1 --ref-format=files`).".into()
            }
            Self::Corrupt { .. } => "Run `git fsck` there, and fetch or clone the repository again.".into(),
            Self::BadSubdirectory { .. } => "Write it like `infra/nodes`.".into(),
            Self::SubdirectoryNotFound { near, .. } => match near.as_slice() {
                [] => "The commit has no directories; leave the path out.".into(),
                near => format!("There is {}.", listed(near)),
            },
            Self::SubdirectoryRefused { .. } => "Name a directory of this repository.".into(),
            Self::TooManyFiles { .. } => {
                "Name the directory of the fleet (`--path`), leave files out with `.provisorignore`, or raise the limit (`--limit files=10000`).".into()
            }
            Self::ContentTooLarge { .. } => {
                "Name the directory of the fleet (`--path`), leave files out with `.provisorignore`, or raise the limit (`--limit total_bytes=20MiB`).".into()
            }
            Self::RepositoryTooLarge { .. } => {
                "Move the fleet into a repository of its own, or raise the limit (`--limit pack_bytes=512MiB`).".into()
            }
            Self::TooManyReferences { .. } => {
                "Follow a branch or tag by name, which lists less, or raise the limit (`--limit reference_bytes=64MiB`).".into()
            }
            Self::Timeout { phase: Phase::Listing, .. } => {
                "Is the server slow? Give it more time (`--limit list_timeout=60s`).".into()
            }
            Self::Timeout { phase: Phase::Fetching, .. } => {
                "Is the server slow, or the repository large? Give it more time (`--limit fetch_timeout=5m`).".into()
            }
            Self::Stopped { .. } => "Start it again.".into(),
            Self::Unreachable { .. } => "Check the address, the network and the proxy.".into(),
            Self::AuthenticationFailed { .. } => {
                "Give credentials (`--credentials DIRECTORY` with `username` and `password`, or `bearerToken`), or use `ssh://` and a key.".into()
            }
            Self::AccessDenied { .. } => "Ask for read access.".into(),
            Self::NotFoundOnServer { .. } => {
                "Check the path of the address; some servers say this too if you may not read the repository.".into()
            }
            Self::RateLimited { .. } | Self::ServerFailed { .. } => "Try again later.".into(),
            Self::Redirected { target, .. } => format!("If you trust it, use `{target}` as the address."),
            Self::NotGit { .. } => "Use the address that `git clone` would use.".into(),
            Self::Protocol { .. } => "Try again; if it stays, see what `git ls-remote` says from here.".into(),
            Self::CommitNotOffered { .. } => {
                "Name the branch that has the commit too (`branch`), so that it can be found from there.".into()
            }
            Self::SshMissing { .. } => "Install OpenSSH's client, or use an `https://` address.".into(),
            Self::HostKeyUnknown { offered, host } => {
                let shown = offered.as_ref().map(|key| format!(" It offered {key}.")).unwrap_or_default();
                format!("Compare the key with the one its owner publishes, then add it to `known_hosts` (`ssh-keyscan {host}`).{shown}")
            }
            Self::HostKeyMismatch { host, offered } => {
                let shown = offered.as_ref().map(|key| format!(" It offered {key}.")).unwrap_or_default();
                format!("If its owner announced a new key, replace the old one (`ssh-keygen -R {host}`).{shown}")
            }
            Self::HostKeyRevoked { offered, .. } => {
                let shown = offered.as_ref().map(|key| format!(" It offered {key}.")).unwrap_or_default();
                format!("Do not connect: `known_hosts` marks the key as stolen or retired. Ask the owner for the new one.{shown}")
            }
            Self::SubmoduleRefused { .. } => {
                "Commit the files into this repository, or allow the address (`--submodules https://host/team`).".into()
            }
            Self::Cache { .. } => "Check the space and the rights; the cache may be deleted at any time.".into(),
            Self::Write { .. } => "Check the space and the rights.".into(),
            Self::Watch { .. } => "It is polled instead; on Linux, `fs.inotify.max_user_watches` may be too low.".into(),
        }
    }

    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Unreachable { .. }
            | Self::AuthenticationFailed { .. }
            | Self::AccessDenied { .. }
            | Self::NotFoundOnServer { .. }
            | Self::RateLimited { .. }
            | Self::ServerFailed { .. }
            | Self::Protocol { .. }
            | Self::NotGit { .. }
            | Self::CommitNotOffered { .. }
            | Self::CommitCutOff { .. }
            | Self::HistoryEnds { .. }
            | Self::SshMissing { .. }
            | Self::HostKeyUnknown { .. }
            | Self::HostKeyMismatch { .. }
            | Self::HostKeyRevoked { .. }
            | Self::Timeout { .. }
            | Self::Stopped { .. }
            | Self::Cache { .. }
            | Self::Write { .. }
            | Self::Watch { .. } => ErrorClass::Outside,
            _ => ErrorClass::Input,
        }
    }

    /// Settings that cannot work wait for a person; what a push, a server or a network can mend is tried again.
    pub fn next_step(&self) -> NextStep {
        match self {
            Self::RateLimited { after, .. } | Self::ServerFailed { after, .. } => {
                NextStep::Retry { after: *after }
            }
            Self::Url(_)
            | Self::Reference(_)
            | Self::Limit(_)
            | Self::Access(_)
            | Self::SubmoduleRefused { .. }
            | Self::BadSubdirectory { .. }
            | Self::UnsupportedRepository { .. }
            | Self::SshMissing { .. }
            | Self::HostKeyUnknown { .. }
            | Self::Stopped { .. } => NextStep::NeedsPerson,
            _ => NextStep::Retry { after: None },
        }
    }

    /// One word for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Url(_) => "URLInvalid",
            Self::Reference(_) | Self::BadSubdirectory { .. } => "ReferenceInvalid",
            Self::Limit(_) => "LimitInvalid",
            Self::Access(_) => "CredentialsInvalid",
            Self::SubmoduleRefused { .. } => "SubmoduleRefused",
            Self::RefNotFound { .. }
            | Self::NoVersionInRange { .. }
            | Self::AmbiguousRef { .. }
            | Self::EmptyRepository { .. }
            | Self::UnbornHead { .. }
            | Self::CommitNotFound { .. }
            | Self::CommitCutOff { .. }
            | Self::CommitNotOnBranch { .. }
            | Self::AmbiguousCommit { .. }
            | Self::NoAncestor { .. }
            | Self::HistoryEnds { .. }
            | Self::CommitNotOffered { .. }
            | Self::NotACommit { .. } => "RefNotFound",
            Self::PathMissing { .. }
            | Self::NotARepository { .. }
            | Self::NotADirectory { .. }
            | Self::NotFoundOnServer { .. }
            | Self::NotGit { .. } => "RepositoryNotFound",
            Self::SubdirectoryNotFound { .. } | Self::SubdirectoryRefused { .. } => "PathNotFound",
            Self::UnsupportedRepository { .. } => "UnsupportedRepository",
            Self::TooManyFiles { .. } => "TooManyFiles",
            Self::ContentTooLarge { .. } => "ContentTooLarge",
            Self::RepositoryTooLarge { .. } | Self::TooManyReferences { .. } => "RepoTooLarge",
            Self::Timeout { phase: Phase::Fetching, .. } => "FetchTimeout",
            Self::Timeout { phase: Phase::Listing, .. } => "Timeout",
            Self::AuthenticationFailed { .. } | Self::AccessDenied { .. } => "AuthenticationFailed",
            Self::RateLimited { .. } => "RateLimited",
            Self::HostKeyMismatch { .. } | Self::HostKeyUnknown { .. } | Self::HostKeyRevoked { .. } => {
                "HostKeyMismatch"
            }
            Self::Cache { .. } | Self::Write { .. } => "StorageOperationFailed",
            Self::Unreadable { .. }
            | Self::Corrupt { .. }
            | Self::Stopped { .. }
            | Self::Unreachable { .. }
            | Self::ServerFailed { .. }
            | Self::Redirected { .. }
            | Self::Protocol { .. }
            | Self::SshMissing { .. }
            | Self::Watch { .. } => "GitOperationFailed",
        }
    }
}

/// "`a`, `b` and `c`".
fn listed(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    match quoted.as_slice() {
        [] => String::new(),
        [one] => one.clone(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}
