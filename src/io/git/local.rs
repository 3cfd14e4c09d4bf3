//! A repository on this machine, read by opening its object store: no `git` program, no copy, no configuration but its
//! own format.
//!
//! A path given to us by name is trusted for reading objects whoever owns it: nothing of it is ever executed, and every
//! object is checked against its id. (Git's `safe.directory` guards against executing hooks and configured programs.)

use std::path::{Path, PathBuf};

use gix::refs::TargetRef;

use super::error::GitError;
use super::reference::{Advertised, AdvertisedHead, Picked, Reference, Resolved, Tip, pick};
use super::tree::{Objects, commit_id, peel};
use super::{Subdirectory, history};
use crate::model::repository::CommitId;

/// Where a local repository is, and which of its directories was meant by the path that was given.
#[derive(Clone, Debug)]
pub(super) struct LocalRepository {
    /// The work tree or the Git directory.
    pub(super) path: PathBuf,
    /// The part of the given path below the work tree: `fleet` for `monorepo/fleet`.
    pub(super) below: Option<Subdirectory>,
}

/// Settings under which every repository is opened: its own configuration counts for its format and nothing else.
pub(super) fn isolated() -> gix::open::Options {
    gix::open::Options::isolated()
        .with(gix::sec::Trust::Full)
        // A replacement object would show other content than the commit id promises.
        .config_overrides(["core.useReplaceRefs=false"])
}

/// Finds the repository that `path` is, or that it lies in.
pub(super) fn find(path: &Path) -> Result<LocalRepository, GitError> {
    let absolute = match path.canonicalize() {
        Ok(absolute) => absolute,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(GitError::PathMissing { path: path.into() });
        }
        Err(source) => return Err(GitError::Unreadable { path: path.into(), source }),
    };
    if open(&absolute, path).is_ok() {
        return Ok(LocalRepository { path: absolute, below: None });
    }
    // Closest first. Only work trees: no one means the directory of a bare repository's objects.
    let top = absolute.ancestors().find(|place| place.join(".git").exists());
    let Some(top) = top else { return Err(not_a_repository(&absolute, path)) };
    open(top, path)?;
    let below = absolute.strip_prefix(top).ok().and_then(Path::to_str).unwrap_or_default();
    let below = match below.is_empty() {
        true => None,
        false => Some(Subdirectory::parse(below)?),
    };
    Ok(LocalRepository { path: top.into(), below })
}

pub(super) fn open(path: &Path, shown: &Path) -> Result<gix::Repository, GitError> {
    let repo = gix::open_opts(path, isolated()).map_err(|error| {
        let config = [path.join("config"), path.join(".git/config")];
        let text = config.iter().find_map(|file| std::fs::read_to_string(file).ok()).unwrap_or_default();
        let lower = text.to_ascii_lowercase();
        match lower.contains("objectformat") && lower.contains("sha256") {
            true => unsupported(shown, "SHA-256 object ids"),
            false if lower.contains("refstorage") => unsupported(shown, "the reftable format for references"),
            false
                if path.join(".git").exists()
                    || (path.join("HEAD").exists() && path.join("objects").exists()) =>
            {
                GitError::UnsupportedRepository {
                    source_name: format!("`{}`", shown.display()),
                    what: format!("something that could not be read ({error})"),
                }
            }
            false => not_a_repository(path, shown),
        }
    })?;
    let config = repo.config_snapshot();
    if repo.object_hash() != gix::hash::Kind::Sha1 {
        return Err(unsupported(shown, "SHA-256 object ids"));
    }
    if config.string("extensions.refStorage").is_some_and(|format| format.to_ascii_lowercase() != b"files") {
        return Err(unsupported(shown, "the reftable format for references"));
    }
    Ok(repo)
}

fn unsupported(shown: &Path, what: &str) -> GitError {
    GitError::UnsupportedRepository { source_name: format!("`{}`", shown.display()), what: what.into() }
}

fn not_a_repository(path: &Path, shown: &Path) -> GitError {
    match path.is_dir() {
        true => GitError::NotARepository { path: shown.into() },
        false => GitError::NotADirectory { path: shown.into() },
    }
}

/// Where the reference leads now.
pub(super) fn resolve(
    repo: &gix::Repository,
    source_name: &str,
    reference: &Reference,
) -> Result<Resolved, GitError> {
    let objects = Objects { repo, source_name };
    if let Reference::Before { start, path } = reference {
        let start = resolve(repo, source_name, start)?;
        let found = path.walk(&objects, &start.commit)?;
        return found.map(Resolved::unnamed).ok_or_else(|| path.ends_early(source_name));
    }
    let advertised = advertised(repo, source_name)?;
    let picked = match pick(reference, source_name, &advertised, || Ok(advertised.clone())) {
        Err(error @ GitError::RefNotFound { .. }) => {
            if let Some((name, id)) = noted(repo, reference) {
                return Ok(Resolved::unnamed(peel(&objects, id, name)?.0));
            }
            let digits = reference.abbreviation();
            let found = digits.map(|digits| digits.find(&objects)).transpose()?.flatten();
            return found.map(Resolved::unnamed).ok_or(error);
        }
        picked => picked?,
    };
    let Picked { reference: name, id, version, .. } = picked;
    if let Reference::Commit { id: wanted, branch } = reference {
        if objects.try_kind(id)?.is_none() {
            let (source_name, commit) = (source_name.into(), wanted.clone());
            return Err(match repo.is_shallow().unwrap_or_default() {
                true => GitError::CommitCutOff { source_name, commit },
                false => GitError::CommitNotFound { source_name, commit },
            });
        }
        if let Some(branch) = branch {
            let branch_tip =
                pick(
                    &Reference::Branch(branch.clone()),
                    source_name,
                    &advertised,
                    || Ok(advertised.clone()),
                )?;
            let (tip, _) = peel(&objects, branch_tip.id, branch.short())?;
            let is_part = history::is_ancestor(&objects, wanted, &tip)?;
            if is_part != Some(true) {
                return Err(GitError::CommitNotOnBranch {
                    source_name: source_name.into(),
                    commit: wanted.clone(),
                    branch: branch.short().into(),
                });
            }
        }
    }
    let shown = name.as_deref().map_or_else(|| id.to_string(), str::to_owned);
    let (commit, tag) = peel(&objects, id, &shown)?;
    Ok(Resolved { commit, reference: name, tag, version })
}

/// What Git noted beside the references: `FETCH_HEAD` is what was fetched last.
fn noted(repo: &gix::Repository, reference: &Reference) -> Option<(&'static str, gix::ObjectId)> {
    let Reference::Any(name) = reference else { return None };
    let name = ["FETCH_HEAD", "ORIG_HEAD", "MERGE_HEAD"].into_iter().find(|noted| *noted == name.as_str())?;
    let id = repo.try_find_reference(name).ok()??.try_id()?.detach();
    Some((name, id))
}

/// Every reference of a local repository. Broken ones are left out: they cannot be followed anyway.
fn advertised(repo: &gix::Repository, source_name: &str) -> Result<Advertised, GitError> {
    let broken = |error: gix::Error| GitError::Corrupt {
        source_name: source_name.into(),
        id: "HEAD".into(),
        problem: format!("unreadable: {error}"),
    };
    let platform = repo.references().map_err(broken)?;
    let mut tips: Vec<Tip> = Vec::new();
    for found in platform.all().map_err(broken)?.flatten() {
        let Ok(name) = std::str::from_utf8(found.name().as_bstr()) else { continue };
        let name = name.to_owned();
        let id = match found.target() {
            TargetRef::Object(id) => id.to_owned(),
            TargetRef::Symbolic(_) => match found.clone().follow_to_object() {
                Ok(id) => id.detach(),
                Err(_) => continue,
            },
        };
        tips.push(Tip { name, id, peeled: None });
    }
    let head = repo.head().map_err(broken)?;
    let branch = head.referent_name().map(|name| name.as_bstr().to_string());
    let id = head.id().map(gix::Id::detach);
    Ok(Advertised { head: Some(AdvertisedHead { branch, id }), tips })
}

/// The commit that HEAD names, for those who write.
pub(super) fn head_commit(repo: &gix::Repository, source_name: &str) -> Result<Option<CommitId>, GitError> {
    Ok(advertised(repo, source_name)?.head.and_then(|head| head.id).map(commit_id))
}
