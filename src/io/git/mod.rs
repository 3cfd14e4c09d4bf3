//! Git repositories as a source of files: an address and a reference in, the files of one commit out.
//!
//! Blobs are read straight from an object store, so a repository is never checked out and nothing in it can run. Git
//! configuration of the user and the machine, credential helpers, hooks, `netrc` and `GIT_*` variables have no effect.
//! Everything here blocks: call it from a thread that may wait (`tokio::task::spawn_blocking`).
//!
//! `run` and `demo` follow commits ([`GitSource`]); `validate` judges the files on disk ([`read_directory`]), because that
//! is what a person has just edited.

mod url;
mod reference;
mod error;
mod limits;
mod local;
mod remote;
mod tree;
mod intake;
mod links;
mod directory;
mod submodule;
mod access;
mod history;
mod ancestry;
mod poll;
mod watch;
mod author;
mod acknowledged;
mod remembered;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

pub use crate::model::history::{DroppedCommit, History, Rewrite};
pub use access::{Access, AccessError, CredentialTemplate, UrlPrefix};
pub use acknowledged::Acknowledgement;
pub use author::{Author, commit_changes, commit_files, has_commits, init_repository};
pub use directory::read_directory;
pub use error::{ErrorClass, GitError, NextStep, Phase};
pub use limits::{LimitError, Limits};
pub use links::Symlinks;
pub use poll::{AfterFailure, INTERVAL_MIN, Poller};
pub use reference::{Purpose, RefName, Reference, ReferenceError, ReferenceFields, Resolved};
pub use remembered::Remembered;
pub use url::{RepositoryUrl, UrlError, UrlRules};
pub use watch::{Change, Lookout, Watch, watch};

use crate::model::repository::{CommitId, Repository};
use local::LocalRepository;
use remote::RemoteRepository;
use tree::{Objects, Rules};

/// One repository to follow.
#[derive(Clone, Debug)]
pub struct Source {
    /// An address, or a path on this machine.
    pub url: String,
    pub reference: Reference,
    /// The directory of the fleet inside the repository.
    pub subdirectory: Subdirectory,
    pub limits: Limits,
    /// Accept `http://`, where anyone on the way can change the content.
    pub allow_insecure_http: bool,
    /// Accept paths and `file://`: always on the command line, by a flag in a cluster.
    pub allow_local: bool,
    pub symlinks: Symlinks,
    /// Submodules of these addresses are read too, one level deep; without any, none is.
    pub submodules: Vec<UrlPrefix>,
    pub access: Access,
    /// The program for `ssh://`. `GIT_SSH_COMMAND` has no effect.
    pub ssh_program: PathBuf,
}

impl Source {
    /// What a command line means by an address: HEAD, the whole repository, the usual limits, paths allowed.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            reference: Reference::Head,
            subdirectory: Subdirectory::default(),
            limits: Limits::default(),
            allow_insecure_http: false,
            allow_local: true,
            symlinks: Symlinks::Refused,
            submodules: Vec::new(),
            access: Access::default(),
            ssh_program: "ssh".into(),
        }
    }
}

/// A directory inside a repository; the default is its top.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subdirectory(String);

impl Subdirectory {
    /// Takes a relative path with `/` between parts; `.` and a trailing slash are forgiven, leaving the repository is not.
    pub fn parse(text: &str) -> Result<Self, GitError> {
        let refused = |why| Err(GitError::BadSubdirectory { path: text.into(), why });
        if text.starts_with('/') {
            return refused("it is absolute");
        }
        let mut parts = Vec::new();
        for part in text.split('/').filter(|part| !matches!(*part, "" | ".")) {
            match part {
                ".." => return refused("it leaves the repository"),
                _ if part.eq_ignore_ascii_case(".git") => return refused("`.git` is not part of a commit"),
                _ if part.chars().any(|letter| letter.is_control() || letter == '\\') => {
                    return refused("it has a backslash or a control character");
                }
                _ => parts.push(part),
            }
        }
        Ok(Self(parts.join("/")))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/').filter(|part| !part.is_empty())
    }

    fn join(&self, below: &Self) -> Self {
        let joined: Vec<&str> = self.parts().chain(below.parts()).collect();
        Self(joined.join("/"))
    }
}

/// What is happening, for a person who waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Connecting,
    Listing,
    Receiving { bytes: u64 },
    Reading,
}

/// Told about each step; it must not wait.
pub type Progress<'a> = dyn Fn(Step) + Sync + 'a;

/// An opened source.
#[derive(Debug)]
pub struct GitSource {
    source: Source,
    cache: PathBuf,
    source_name: String,
    identity: String,
    is_insecure: bool,
    store: Store,
}

#[derive(Debug)]
enum Store {
    Local(LocalRepository),
    Remote(Box<RemoteRepository>),
}

/// Checks the address and opens the repository if it is on this machine; nothing is connected yet.
///
/// `cache` is a directory for object stores of remote repositories. It is created when needed, may be shared by
/// processes, and may be deleted at any time.
pub fn open(source: &Source, cache: &Path) -> Result<GitSource, GitError> {
    let rules = UrlRules { allow_insecure_http: source.allow_insecure_http, allow_local: source.allow_local };
    let url = RepositoryUrl::parse(&source.url, rules)?;
    let source_name = format!("`{url}`");
    let store = match url.local_path() {
        Some(path) => Store::Local(local::find(path)?),
        None => {
            // What can be wrong with it is told now, and not when a server has been asked.
            source.access.read(&url, &source_name)?;
            Store::Remote(Box::new(RemoteRepository::new(&url, &source_name, source, cache)))
        }
    };
    Ok(GitSource {
        source: source.clone(),
        cache: cache.into(),
        source_name,
        identity: url.normalized(),
        is_insecure: url.is_insecure(),
        store,
    })
}

impl GitSource {
    /// The address as it may be shown: never with a secret.
    pub fn name(&self) -> &str {
        self.source_name.trim_matches('`')
    }

    /// The same for all ways to write the address of one repository.
    fn identity(&self) -> String {
        match &self.store {
            Store::Local(local) => std::fs::canonicalize(&local.path)
                .unwrap_or_else(|_| local.path.clone())
                .display()
                .to_string(),
            Store::Remote(_) => self.identity.clone(),
        }
    }

    /// True if anyone on the way could change what is read: a condition to show for as long as it lasts.
    pub fn is_insecure(&self) -> bool {
        self.is_insecure
    }

    /// The path to watch for commits, if the repository is on this machine.
    pub fn local_path(&self) -> Option<&Path> {
        match &self.store {
            Store::Local(local) => Some(&local.path),
            Store::Remote(_) => None,
        }
    }

    /// Asks where the reference leads now. No object is downloaded, but for the history behind a word like `main~2` that
    /// is not here yet: an answer equal to the last one means that there is nothing to do.
    pub fn resolve(&self) -> Result<Resolved, GitError> {
        match &self.store {
            Store::Local(local) => {
                let repo = local::open(&local.path, &local.path)?;
                local::resolve(&repo, &self.source_name, &self.source.reference)
            }
            Store::Remote(remote) => remote.resolve(&self.source.reference),
        }
    }

    /// Hands over the files of a resolved commit.
    pub fn fetch(
        &self,
        resolved: &Resolved,
        progress: &Progress<'_>,
        should_stop: &AtomicBool,
    ) -> Result<Repository, GitError> {
        let rules = Rules { limits: &self.source.limits, symlinks: self.source.symlinks };
        let (mut repository, submodules) = match &self.store {
            Store::Local(local) => {
                let repo = local::open(&local.path, &local.path)?;
                progress(Step::Reading);
                let root = match &local.below {
                    Some(below) => below.join(&self.source.subdirectory),
                    None => self.source.subdirectory.clone(),
                };
                let objects = Objects { repo: &repo, source_name: &self.source_name };
                let (repository, gitlinks) = tree::read_files(&objects, resolved, &root, rules, should_stop)?;
                let found = submodule::find(&objects, resolved, gitlinks, &self.source)?;
                (repository, found)
            }
            Store::Remote(remote) => {
                let Source { reference, subdirectory, .. } = &self.source;
                remote.fetch(reference, resolved, subdirectory, rules, progress, should_stop)?
            }
        };
        for found in &submodules {
            submodule::read_into(&mut repository, found, &self.source, &self.cache, progress, should_stop)?;
        }
        Ok(repository)
    }

    /// How a new commit relates to the one that was there before.
    pub fn history(
        &self,
        old: &CommitId,
        new: &CommitId,
        should_stop: &AtomicBool,
    ) -> Result<History, GitError> {
        match &self.store {
            Store::Local(local) => {
                let repo = local::open(&local.path, &local.path)?;
                history::relation(&Objects { repo: &repo, source_name: &self.source_name }, old, new)
            }
            Store::Remote(remote) => remote.history(old, new, should_stop),
        }
    }

    /// The commit that both come from; `None` if they share none, or the server does not hand out enough history.
    pub fn merge_base(
        &self,
        one: &CommitId,
        other: &CommitId,
        should_stop: &AtomicBool,
    ) -> Result<Option<CommitId>, GitError> {
        match &self.store {
            Store::Local(local) => {
                let repo = local::open(&local.path, &local.path)?;
                history::merge_base(&Objects { repo: &repo, source_name: &self.source_name }, one, other)
            }
            Store::Remote(remote) => remote.merge_base(one, other, should_stop),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdirectories_stay_inside() {
        for (text, path) in [("", ""), (".", ""), ("./a//b/", "a/b"), ("a", "a")] {
            assert_eq!(Subdirectory::parse(text).expect(text).as_str(), path);
        }
        for text in ["/a", "../a", "a/../b", "a/.git/b", "a\\b", "a\nb"] {
            assert!(Subdirectory::parse(text).is_err(), "{text:?}");
        }
    }
}
