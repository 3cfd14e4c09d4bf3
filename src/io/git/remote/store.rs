//! The object store of one remote repository: a bare repository in the cache that nobody but us writes.
//!
//! One writer at a time, across processes. Packs appear whole or not at all. Each commit that was fetched is held by a
//! reference of its own, which is how we know what is here.

use std::fs::{self, File};
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gix::ObjectId;
use gix::odb::pack;
use gix::refs::transaction::PreviousValue;
use sha2::{Digest, Sha256};

use crate::io::git::error::GitError;
use crate::io::git::local::isolated;

const HELD: &str = "refs/provisor/";
/// What we tell a server that we have; more would not make its answer smaller.
const HAVES_MAX: usize = 32;
/// Each fetch leaves a pack; this many make a new start cheaper than looking through all of them.
const PACKS_MAX: usize = 200;
/// No object that we read is near this; one that is would only be a bomb.
const ALLOCATION_MAX: usize = 512 << 20;

#[derive(Clone, Debug)]
pub(super) struct Store {
    path: PathBuf,
    lock_path: PathBuf,
    bytes_max: u64,
}

impl Store {
    /// The place in `cache` for one repository; equal for every spelling of its address.
    pub(super) fn new(cache: &Path, normalized_url: &str, bytes_max: u64) -> Self {
        let digest = Sha256::digest(normalized_url.as_bytes());
        let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self {
            path: cache.join(format!("{name}.git")),
            lock_path: cache.join(format!("{name}.lock")),
            bytes_max,
        }
    }

    /// Waits until no other process writes.
    pub(super) fn lock(&self) -> Result<LockedStore, GitError> {
        let cannot = |source| GitError::Cache { path: self.lock_path.clone(), source };
        fs::create_dir_all(self.lock_path.parent().unwrap_or(Path::new("."))).map_err(cannot)?;
        let file = File::options().create(true).append(true).open(&self.lock_path).map_err(cannot)?;
        file.lock().map_err(cannot)?;
        Ok(LockedStore { store: self.clone(), _file: file })
    }

    pub(super) fn open(&self) -> Result<gix::Repository, GitError> {
        gix::open_opts(&self.path, isolated().open_path_as_is(true)).map_err(|error| self.damaged(&error))
    }

    /// True if the commit was fetched before, whole.
    pub(super) fn has(&self, commit: ObjectId) -> Result<bool, GitError> {
        if !self.path.exists() {
            return Ok(false);
        }
        let repo = self.open()?;
        Ok(repo.try_find_reference(format!("{HELD}{commit}").as_str()).is_ok_and(|found| found.is_some()))
    }

    pub(super) fn discard(&self) -> Result<(), GitError> {
        let _locked = self.lock()?;
        self.remove()
    }

    /// Moves the store away and then deletes it: readers find all of it or nothing.
    fn remove(&self) -> Result<(), GitError> {
        let aside = self.path.with_extension("old");
        let is_missing = |error: &std::io::Error| error.kind() == std::io::ErrorKind::NotFound;
        fs::remove_dir_all(&aside)
            .or_else(|error| if is_missing(&error) { Ok(()) } else { Err(error) })
            .and_then(|()| match fs::rename(&self.path, &aside) {
                Err(error) if is_missing(&error) => Ok(()),
                Err(error) => Err(error),
                Ok(()) => fs::remove_dir_all(&aside),
            })
            .map_err(|source| GitError::Cache { path: self.path.clone(), source })
    }

    fn damaged(&self, error: &gix::Error) -> GitError {
        GitError::Corrupt {
            source_name: format!("the cache `{}`", self.path.display()),
            id: "of the store".into(),
            problem: format!("unreadable: {error}"),
        }
    }
}

/// A store that nobody else writes for as long as this lives.
pub(super) struct LockedStore {
    store: Store,
    _file: File,
}

impl LockedStore {
    /// Opens the store for a fetch: without leftovers of a fetch that was killed, and anew if it has grown too large.
    pub(super) fn prepare(&self) -> Result<gix::Repository, GitError> {
        let packs = self.store.path.join("objects/pack");
        let mut bytes = 0;
        let mut count = 0;
        for entry in fs::read_dir(&packs).into_iter().flatten().flatten() {
            let path = entry.path();
            let is_whole = match path.extension().and_then(|extension| extension.to_str()) {
                Some("pack") => path.with_extension("idx").exists(),
                Some("idx") => path.with_extension("pack").exists(),
                _ => false,
            };
            match is_whole {
                true => bytes += entry.metadata().map_or(0, |found| found.len()),
                // Failing to remove it only costs its space.
                false => drop(fs::remove_file(&path)),
            }
            count += 1;
        }
        if bytes > self.store.bytes_max || count / 2 > PACKS_MAX {
            self.store.remove()?;
        }
        if let Ok(repo) = self.store.open() {
            return Ok(repo);
        }
        self.store.remove()?;
        // Made beside its place and moved there, for the sake of readers, who do not wait for the lock.
        let beside = self.store.path.with_extension("new");
        let cannot = |source| GitError::Cache { path: self.store.path.clone(), source };
        if beside.exists() {
            fs::remove_dir_all(&beside).map_err(cannot)?;
        }
        let kind = gix::create::Kind::Bare;
        gix::ThreadSafeRepository::init_opts(&beside, kind, gix::create::Options::default(), isolated())
            .map_err(|error| self.failed(&error))?;
        fs::rename(&beside, &self.store.path).map_err(cannot)?;
        self.store.open()
    }

    /// Notes that a commit is here, whole.
    pub(super) fn record(&self, commit: ObjectId) -> Result<(), GitError> {
        let repo = self.store.open()?;
        repo.reference(format!("{HELD}{commit}"), commit, PreviousValue::Any, "fetched")
            .map(drop)
            .map_err(|error| self.failed(&error))
    }

    pub(super) fn failed(&self, error: &gix::Error) -> GitError {
        GitError::Cache { path: self.store.path.clone(), source: std::io::Error::other(error.to_string()) }
    }
}

/// Commits that are here, for the server to leave out.
pub(super) fn known_commits(repo: &gix::Repository) -> Vec<ObjectId> {
    let Ok(platform) = repo.references() else { return Vec::new() };
    let Ok(held) = platform.all() else { return Vec::new() };
    held.flatten()
        .filter(|found| found.name().as_bstr().starts_with(HELD.as_bytes()))
        .filter_map(|found| found.try_id().map(gix::Id::detach))
        .filter(|id| repo.has_object(id))
        .take(HAVES_MAX)
        .collect()
}

/// Takes a pack from the wire: written beside the others, indexed and checked, then moved in place.
pub(super) fn write_pack(
    received: &mut dyn BufRead,
    pack_dir: &Path,
    progress: &mut dyn gix::DynNestedProgress,
    interrupt: &AtomicBool,
    bases: gix::OdbHandle,
) -> gix::Result<()> {
    let options =
        pack::bundle::write::Options { alloc_limit_bytes: Some(ALLOCATION_MAX), ..Default::default() };
    let written = pack::Bundle::write_to_directory(
        received,
        Some(pack_dir),
        progress,
        interrupt,
        Some(bases),
        gix::hash::Kind::Sha1,
        options,
    )?;
    if let Some(keep) = written.keep_path {
        // It guards against a garbage collector that never runs here.
        let _ = fs::remove_file(keep);
    }
    Ok(())
}
