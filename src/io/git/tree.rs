//! The files of a commit, read blob by blob from an object store: never a checkout.
//!
//! So nothing in a repository can run, link or overwrite anything: no hooks, filters, attributes, symbolic links, case
//! folding or executable bits exist here. Every object is checked against its id before it is believed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gix::ObjectId;
use gix::bstr::ByteSlice;
use gix::objs::tree::EntryKind;
use gix::objs::{CommitRef, Kind, TreeRef};

use super::error::{GitError, Phase};
use super::intake::{IGNORE_FILE, Intake, joined};
use super::links::{self, Symlinks, Target, Trail};
use super::reference::Resolved;
use super::{Limits, Subdirectory};
use crate::model::repository::{CommitId, LinkProblem, Refusal, Repository, Revision};

/// Commits are small; a larger object that says it is one is somebody's experiment.
const COMMIT_BYTES_MAX: u64 = 1 << 20;
/// 5,000 entries with long names fit many times.
const TREE_BYTES_MAX: u64 = 16 << 20;
/// The longest path that systems take.
const LINK_BYTES_MAX: u64 = 4096;
/// A tag can point to a tag; this many in a row have no use.
const TAG_HOPS_MAX: usize = 8;

/// An object store with a name for messages.
pub(super) struct Objects<'a> {
    pub(super) repo: &'a gix::Repository,
    pub(super) source_name: &'a str,
}

/// Reads what a revision has at and below `root`; paths are relative to it.
pub(super) fn read_files(
    objects: &Objects<'_>,
    resolved: &Resolved,
    root: &Subdirectory,
    rules: Rules<'_>,
    should_stop: &AtomicBool,
) -> Result<(Repository, Vec<Gitlink>), GitError> {
    let commit_id = object_id(&resolved.commit, objects.source_name)?;
    let data = objects.read_commit(commit_id)?;
    let commit = objects.parse_commit(commit_id, &data)?;
    let revision = revision(resolved, &commit);
    let tree = find_root(objects, &resolved.commit, commit.tree(), root)?;

    let mut reading = Reading {
        objects,
        top: commit.tree(),
        symlinks: rules.symlinks,
        intake: Intake::new(objects.source_name, rules.limits),
        waiting: vec![Directory { id: tree, path: String::new(), trail: Trail::at(root.as_str().into()) }],
        gitlinks: Vec::new(),
    };
    while let Some(directory) = reading.waiting.pop() {
        if should_stop.load(Ordering::Relaxed) {
            return Err(GitError::Stopped {
                source_name: objects.source_name.into(),
                phase: Phase::Fetching,
            });
        }
        reading.intake.enter(directory.path.trim_end_matches('/'))?;
        reading.read_directory(&directory)?;
    }
    Ok((reading.intake.into_repository(revision), reading.gitlinks))
}

/// What is taken, and how.
#[derive(Clone, Copy)]
pub(super) struct Rules<'a> {
    pub(super) limits: &'a Limits,
    pub(super) symlinks: Symlinks,
}

/// A submodule where the fleet has its files.
pub(super) struct Gitlink {
    /// Seen from the directory of the fleet.
    pub(super) path: String,
    /// Seen from the top of the repository.
    pub(super) place: String,
    pub(super) commit: CommitId,
}

struct Directory {
    id: ObjectId,
    /// "" or ending in `/`, seen from the directory of the fleet.
    path: String,
    trail: Trail,
}

struct Reading<'a> {
    objects: &'a Objects<'a>,
    top: ObjectId,
    symlinks: Symlinks,
    intake: Intake<'a>,
    waiting: Vec<Directory>,
    gitlinks: Vec<Gitlink>,
}

impl Reading<'_> {
    fn read_directory(&mut self, directory: &Directory) -> Result<(), GitError> {
        let objects = self.objects;
        let data = objects.read(directory.id, Kind::Tree, TREE_BYTES_MAX)?;
        let tree = objects.parse_tree(directory.id, &data)?;
        let is_file = |kind| matches!(kind, EntryKind::Blob | EntryKind::BlobExecutable);
        if let Some(entry) =
            tree.entries.iter().find(|entry| entry.filename == IGNORE_FILE && is_file(entry.mode.kind()))
            && objects.size(entry.oid.to_owned())? <= TREE_BYTES_MAX
        {
            let patterns = objects.read(entry.oid.to_owned(), Kind::Blob, TREE_BYTES_MAX)?;
            self.intake.ignored.add(&directory.path, &patterns);
        }
        // The stack gives back the last first: reversed, so that the order of reading is the order of names.
        let first_new = self.waiting.len();
        for entry in &tree.entries {
            let kind = entry.mode.kind();
            let path = match joined(&directory.path, entry.filename.as_bytes()) {
                Ok(path) => path,
                Err(shown) => {
                    self.intake.refuse(&shown, Refusal::UnsafePath)?;
                    continue;
                }
            };
            if self.intake.ignored.exclude(&path, kind == EntryKind::Tree) {
                self.intake.refuse(&path, Refusal::Ignored)?;
                continue;
            }
            let name = &path[directory.path.len()..];
            let id = entry.oid.to_owned();
            match kind {
                EntryKind::Tree => {
                    let trail = directory.trail.inside(name);
                    self.waiting.push(Directory { id, path: format!("{path}/"), trail });
                }
                EntryKind::Link if self.symlinks == Symlinks::Refused => {
                    self.intake.refuse(&path, Refusal::Symlink)?;
                }
                EntryKind::Link => self.follow(&path, name, &directory.trail)?,
                EntryKind::Commit => {
                    let place = links::below(&directory.trail.place, name);
                    self.gitlinks.push(Gitlink { path: path.clone(), place, commit: commit_id(id) });
                    self.intake.refuse(&path, Refusal::Submodule)?;
                }
                EntryKind::Blob | EntryKind::BlobExecutable => self.take(&path, id)?,
            }
        }
        self.waiting[first_new..].reverse();
        Ok(())
    }

    fn take(&mut self, path: &str, id: ObjectId) -> Result<(), GitError> {
        let size = self.objects.size(id)?;
        if self.intake.admits(path, size)? {
            self.intake.take(path, &self.objects.read(id, Kind::Blob, size)?);
        }
        Ok(())
    }

    fn follow(&mut self, path: &str, name: &str, trail: &Trail) -> Result<(), GitError> {
        let (objects, top) = (self.objects, self.top);
        let place = links::below(&trail.place, name);
        match links::follow(&place, |place| objects.entry_at(top, place))? {
            Ok(Target::File { found, .. }) => self.take(path, found),
            Ok(Target::Directory { path: target, found }) => match trail.over_link(target) {
                Some(trail) => {
                    self.waiting.push(Directory { id: found, path: format!("{path}/"), trail });
                    Ok(())
                }
                None => self.intake.refuse(path, Refusal::Link(LinkProblem::Circle)),
            },
            Err(refusal) => self.intake.refuse(path, refusal),
        }
    }
}

fn revision(resolved: &Resolved, commit: &CommitRef<'_>) -> Revision {
    let author = match commit.author() {
        Ok(author) => {
            format!("{} <{}>", author.name.trim().to_str_lossy(), author.email.trim().to_str_lossy())
        }
        Err(_) => String::new(),
    };
    Revision {
        commit: resolved.commit.clone(),
        reference: resolved.reference.clone(),
        subject: subject(commit),
        author: author.as_str().into(),
    }
}

/// The first line of a commit's message that says something.
pub(super) fn subject(commit: &CommitRef<'_>) -> Arc<str> {
    let line =
        commit.message.lines().map(|line| line.trim()).find(|line| !line.is_empty()).unwrap_or_default();
    line.to_str_lossy().as_ref().into()
}

/// Follows the parts of `root` from the tree of the commit.
fn find_root(
    objects: &Objects<'_>,
    commit: &CommitId,
    top: ObjectId,
    root: &Subdirectory,
) -> Result<ObjectId, GitError> {
    let mut id = top;
    let mut walked = String::new();
    for part in root.parts() {
        let data = objects.read(id, Kind::Tree, TREE_BYTES_MAX)?;
        let tree = objects.parse_tree(id, &data)?;
        walked.push_str(part);
        let source_name = || objects.source_name.to_owned();
        let refused = |refusal: String| GitError::SubdirectoryRefused {
            source_name: source_name(),
            path: walked.clone(),
            refusal,
        };
        match tree.entries.iter().find(|entry| entry.filename == part) {
            Some(entry) => match entry.mode.kind() {
                EntryKind::Tree => id = entry.oid.to_owned(),
                EntryKind::Link => return Err(refused(Refusal::Symlink.to_string())),
                EntryKind::Commit => return Err(refused(Refusal::Submodule.to_string())),
                EntryKind::Blob | EntryKind::BlobExecutable => return Err(refused("is a file".into())),
            },
            None => {
                let parent = &walked[..walked.len() - part.len()];
                let directories = tree.entries.iter().filter(|entry| entry.mode.kind() == EntryKind::Tree);
                let mut near: Vec<(usize, String)> = directories
                    .filter_map(|entry| entry.filename.to_str().ok())
                    .map(|name| (strsim::damerau_levenshtein(name, part), format!("{parent}{name}")))
                    .collect();
                near.sort_unstable();
                return Err(GitError::SubdirectoryNotFound {
                    source_name: source_name(),
                    path: root.as_str().into(),
                    at: format!("commit {}", commit.short()),
                    near: near.into_iter().take(5).map(|(_, path)| path).collect(),
                });
            }
        }
        walked.push('/');
    }
    Ok(id)
}

/// Follows tag objects to the commit, and says which tag object was first.
pub(super) fn peel(
    objects: &Objects<'_>,
    id: ObjectId,
    shown: &str,
) -> Result<(CommitId, Option<CommitId>), GitError> {
    let mut current = id;
    for _ in 0..TAG_HOPS_MAX {
        match objects.kind(current)? {
            Kind::Commit => {
                let tag = (current != id).then(|| commit_id(id));
                return Ok((commit_id(current), tag));
            }
            Kind::Tag => {
                let data = objects.read(current, Kind::Tag, COMMIT_BYTES_MAX)?;
                let tag = gix::objs::TagRef::from_bytes(&data, objects.repo.object_hash())
                    .map_err(|_| objects.corrupt(current, "not a readable tag".into()))?;
                current = tag.target();
            }
            kind @ (Kind::Tree | Kind::Blob) => return Err(objects.not_a_commit(shown, &kind.to_string())),
        }
    }
    Err(objects.not_a_commit(shown, "chain of tags"))
}

pub(super) fn commit_id(id: ObjectId) -> CommitId {
    CommitId::parse(&id.to_string()).expect("an object id is 40 or 64 hexadecimal digits")
}

pub(super) fn object_id(id: &CommitId, source_name: &str) -> Result<ObjectId, GitError> {
    ObjectId::from_hex(id.as_str().as_bytes()).map_err(|_| GitError::UnsupportedRepository {
        source_name: source_name.into(),
        what: "SHA-256 object ids".into(),
    })
}

impl Objects<'_> {
    /// What a path without links is, from the tree `top`.
    fn entry_at(&self, top: ObjectId, path: &str) -> Result<links::Entry<ObjectId>, GitError> {
        let mut found = links::Entry::Directory(top);
        for part in path.split('/').filter(|part| !part.is_empty()) {
            let links::Entry::Directory(id) = found else { return Ok(links::Entry::Missing) };
            let data = self.read(id, Kind::Tree, TREE_BYTES_MAX)?;
            let tree = self.parse_tree(id, &data)?;
            let Some(entry) = tree.entries.iter().find(|entry| entry.filename == part) else {
                return Ok(links::Entry::Missing);
            };
            let id = entry.oid.to_owned();
            found = match entry.mode.kind() {
                EntryKind::Tree => links::Entry::Directory(id),
                EntryKind::Blob | EntryKind::BlobExecutable => links::Entry::File(id),
                EntryKind::Link => links::Entry::Link(self.read(id, Kind::Blob, LINK_BYTES_MAX)?),
                EntryKind::Commit => links::Entry::Submodule,
            };
        }
        Ok(found)
    }

    /// The content of a file at the top of a commit, if it has one of that name.
    pub(super) fn top_file(&self, commit: &CommitId, name: &str) -> Result<Option<Vec<u8>>, GitError> {
        let id = object_id(commit, self.source_name)?;
        let data = self.read_commit(id)?;
        let top = self.parse_commit(id, &data)?.tree();
        match self.entry_at(top, name)? {
            links::Entry::File(id) => Ok(Some(self.read(id, Kind::Blob, TREE_BYTES_MAX)?)),
            _ => Ok(None),
        }
    }

    /// `None` if the store does not have it.
    pub(super) fn try_kind(&self, id: ObjectId) -> Result<Option<Kind>, GitError> {
        match self.repo.try_find_header(id) {
            Ok(header) => Ok(header.map(|header| header.kind())),
            Err(error) => Err(self.corrupt(id, format!("damaged: {error}"))),
        }
    }

    fn kind(&self, id: ObjectId) -> Result<Kind, GitError> {
        self.try_kind(id)?.ok_or_else(|| self.corrupt(id, "missing".into()))
    }

    fn size(&self, id: ObjectId) -> Result<u64, GitError> {
        match self.repo.try_find_header(id) {
            Ok(Some(header)) => Ok(header.size()),
            Ok(None) => Err(self.corrupt(id, "missing".into())),
            Err(error) => Err(self.corrupt(id, format!("damaged: {error}"))),
        }
    }

    pub(super) fn read_commit(&self, id: ObjectId) -> Result<Vec<u8>, GitError> {
        self.read(id, Kind::Commit, COMMIT_BYTES_MAX)
    }

    pub(super) fn parse_commit<'a>(&self, id: ObjectId, data: &'a [u8]) -> Result<CommitRef<'a>, GitError> {
        CommitRef::from_bytes(data, self.repo.object_hash())
            .map_err(|_| self.corrupt(id, "not a readable commit".into()))
    }

    fn parse_tree<'a>(&self, id: ObjectId, data: &'a [u8]) -> Result<TreeRef<'a>, GitError> {
        TreeRef::from_bytes(data, self.repo.object_hash())
            .map_err(|_| self.corrupt(id, "not a readable tree".into()))
    }

    /// Loads an object of a known kind and at most a known size, and checks that it hashes to its id.
    fn read(&self, id: ObjectId, kind: Kind, size_max: u64) -> Result<Vec<u8>, GitError> {
        let size = self.size(id)?;
        if size > size_max {
            return Err(self.corrupt(id, format!("a {kind} of {size} bytes, more than any use has")));
        }
        let object = match self.repo.try_find_object(id) {
            Ok(Some(object)) => object.detach(),
            Ok(None) => return Err(self.corrupt(id, "missing".into())),
            Err(error) => return Err(self.corrupt(id, format!("damaged: {error}"))),
        };
        if object.kind != kind {
            return Err(self.corrupt(id, format!("a {}, not a {kind}", object.kind)));
        }
        match gix::objs::compute_hash(self.repo.object_hash(), kind, &object.data) {
            Ok(computed) if computed == id => Ok(object.data),
            _ => Err(self.corrupt(id, "damaged: its content does not match its id".into())),
        }
    }

    fn corrupt(&self, id: ObjectId, problem: String) -> GitError {
        GitError::Corrupt { source_name: self.source_name.into(), id: id.to_string(), problem }
    }

    fn not_a_commit(&self, shown: &str, kind: &str) -> GitError {
        GitError::NotACommit {
            source_name: self.source_name.into(),
            reference: shown.into(),
            kind: kind.into(),
        }
    }
}
