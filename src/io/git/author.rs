//! Writing commits without the `git` program: for `init`, the demo and tests.
//!
//! A commit is made from the tree of HEAD and a few changed files. The files are written to the work tree and the index
//! too, so that a person who looks (`git status`, an editor) finds a clean checkout.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::Arc;

use gix::objs::tree::EntryKind;
use jiff::Timestamp;

use super::error::GitError;
use super::intake::joined;
use super::local::{head_commit, isolated, open};
use super::tree::{commit_id, object_id};
use crate::model::repository::CommitId;

/// Who a commit says made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    pub name: String,
    pub email: String,
}

/// Creates an empty repository with a work tree at `path` (which may exist and have files) and the branch `main`.
pub fn init_repository(path: &Path) -> Result<(), GitError> {
    let kind = gix::create::Kind::WithWorktree;
    gix::ThreadSafeRepository::init_opts(path, kind, gix::create::Options::default(), isolated())
        .map(drop)
        .map_err(|error| cannot_write(path, &error))
}

/// Whether HEAD of the repository at `path` leads to a commit.
pub fn has_commits(path: &Path) -> Result<bool, GitError> {
    Ok(head_commit(&open(path, path)?, &format!("`{}`", path.display()))?.is_some())
}

/// Commits `files` (path to content) on top of HEAD and leaves every other file as it is.
pub fn commit_files(
    path: &Path,
    files: &BTreeMap<Arc<str>, Arc<[u8]>>,
    message: &str,
    author: &Author,
    at: Timestamp,
) -> Result<CommitId, GitError> {
    let changes = files.iter().map(|(path, content)| (path.clone(), Some(content.clone()))).collect();
    commit_changes(path, &changes, message, author, at)
}

/// Commits changes on top of HEAD: a path with content is written, a path with `None` removed.
pub fn commit_changes(
    path: &Path,
    changes: &BTreeMap<Arc<str>, Option<Arc<[u8]>>>,
    message: &str,
    author: &Author,
    at: Timestamp,
) -> Result<CommitId, GitError> {
    for file in changes.keys() {
        let is_safe = file.split('/').all(|part| joined("", part.as_bytes()).is_ok());
        if !is_safe {
            return Err(GitError::Write {
                path: path.into(),
                why: format!("`{file}` is not a path inside it"),
            });
        }
    }
    let source_name = format!("`{}`", path.display());
    let repo = open(path, path)?;
    let parent = head_commit(&repo, &source_name)?;
    let written = write_commit(&repo, parent.as_ref(), changes, message, author, at, &source_name)
        .map_err(|error| cannot_write(path, &error))?;
    write_work_tree(&repo, changes)?;
    write_index(&repo, &written).map_err(|error| cannot_write(path, &error))?;
    Ok(commit_id(written))
}

fn write_commit(
    repo: &gix::Repository,
    parent: Option<&CommitId>,
    changes: &BTreeMap<Arc<str>, Option<Arc<[u8]>>>,
    message: &str,
    author: &Author,
    at: Timestamp,
    source_name: &str,
) -> Result<gix::ObjectId, Box<dyn std::error::Error>> {
    let parent = parent.map(|id| object_id(id, source_name)).transpose()?;
    let base = match parent {
        Some(parent) => repo.find_object(parent)?.try_into_commit()?.tree_id()?.detach(),
        None => repo.empty_tree().id,
    };
    let mut editor = repo.edit_tree(base)?;
    for (path, content) in changes {
        match content {
            Some(content) => {
                let blob = repo.write_blob(content)?.detach();
                editor.upsert(path.as_ref(), EntryKind::Blob, blob)?;
            }
            None => drop(editor.remove(path.as_ref())?),
        }
    }
    let tree = editor.write()?.detach();
    let time = format!("{} +0000", at.as_second());
    let signature = gix::actor::SignatureRef {
        name: author.name.as_str().into(),
        email: author.email.as_str().into(),
        time: &time,
    };
    Ok(repo.commit_as(signature, signature, "HEAD", message, tree, parent)?.detach())
}

fn write_work_tree(
    repo: &gix::Repository,
    changes: &BTreeMap<Arc<str>, Option<Arc<[u8]>>>,
) -> Result<(), GitError> {
    let Some(top) = repo.workdir() else { return Ok(()) };
    for (path, content) in changes {
        let file = top.join(path.as_ref());
        let outcome = match content {
            Some(content) => {
                let made = file.parent().map_or(Ok(()), fs::create_dir_all);
                made.and_then(|()| fs::write(&file, content))
            }
            None => match fs::remove_file(&file) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        };
        outcome.map_err(|error| cannot_write(&file, &error))?;
    }
    Ok(())
}

/// An index that equals the commit: Git compares contents where it has no file times yet.
fn write_index(repo: &gix::Repository, commit: &gix::oid) -> Result<(), Box<dyn std::error::Error>> {
    if repo.workdir().is_none() {
        return Ok(());
    }
    let tree = repo.find_object(commit)?.try_into_commit()?.tree_id()?.detach();
    repo.index_from_tree(&tree)?.write(gix::index::write::Options::default())?;
    Ok(())
}

fn cannot_write(path: &Path, error: &dyn std::fmt::Display) -> GitError {
    GitError::Write { path: path.into(), why: error.to_string() }
}
