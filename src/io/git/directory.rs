//! A plain directory read as if it were a commit: what a person judges before committing.
//!
//! The same files are refused and the same limits hold as for a commit, so what is valid here is valid there. Links are
//! not followed, ignored files are left out (they would not be committed), and nothing but regular files is opened.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::Limits;
use super::error::GitError;
use super::intake::{IGNORE_FILE, Intake, joined};
use crate::model::repository::{CommitId, Refusal, Repository, Revision};

/// Reads the files of `path` as they are now on disk, whether or not it is a Git repository.
///
/// The revision is not a commit: its id is the content's SHA-256 (64 digits) and it has no reference.
pub fn read_directory(path: &Path, limits: &Limits) -> Result<Repository, GitError> {
    let unreadable = |path: &Path, source: std::io::Error| GitError::Unreadable { path: path.into(), source };
    // Without a trailing slash, which would show up in every message.
    let path = path.components().collect::<PathBuf>();
    let path = path.as_path();
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {}
        Ok(_) => return Err(GitError::NotADirectory { path: path.into() }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Err(GitError::PathMissing { path: path.into() });
        }
        Err(error) => return Err(unreadable(path, error)),
    }
    let source_name = format!("`{}`", path.display());
    let mut intake = Intake::new(&source_name, limits);
    let is_in_work_tree = add_rules_from_above(path, &mut intake);

    let mut waiting = vec![(path.to_owned(), String::new())];
    while let Some((place, directory)) = waiting.pop() {
        intake.enter(directory.trim_end_matches('/'))?;
        add_rules(&place, &directory, is_in_work_tree, &mut intake);
        let mut entries = fs::read_dir(&place)
            .and_then(|entries| entries.collect::<Result<Vec<_>, _>>())
            .map_err(|error| unreadable(&place, error))?;
        entries.sort_by_key(fs::DirEntry::file_name);
        let first_new = waiting.len();
        for entry in entries {
            let name = entry.file_name();
            if name == ".git" {
                continue;
            }
            let kind = entry.file_type().map_err(|error| unreadable(&entry.path(), error))?;
            let path = match joined(&directory, name.as_encoded_bytes()) {
                Ok(path) => path,
                Err(shown) => {
                    intake.refuse(&shown, Refusal::UnsafePath)?;
                    continue;
                }
            };
            if intake.ignored.exclude(&path, kind.is_dir()) {
                intake.refuse(&path, Refusal::Ignored)?;
            } else if kind.is_symlink() {
                intake.refuse(&path, Refusal::Symlink)?;
            } else if kind.is_dir() {
                match entry.path().join(".git").symlink_metadata().is_ok() {
                    true => intake.refuse(&path, Refusal::Submodule)?,
                    false => waiting.push((entry.path(), format!("{path}/"))),
                }
            } else if kind.is_file() {
                let size = entry.metadata().map_err(|error| unreadable(&entry.path(), error))?.len();
                if intake.admits(&path, size)? {
                    let content = read_at_most(&entry.path(), limits.file_bytes)
                        .map_err(|error| unreadable(&entry.path(), error))?;
                    intake.take(&path, &content);
                }
            } else {
                intake.refuse(&path, Refusal::NotAFile)?;
            }
        }
        waiting[first_new..].reverse();
    }
    let mut repository = intake.into_repository(Revision {
        commit: CommitId::parse(&"0".repeat(64)).expect("64 digits"),
        reference: None,
        subject: "files on disk".into(),
        author: "".into(),
    });
    repository.revision.commit =
        CommitId::parse(&repository.content_digest()).expect("a digest has 64 digits");
    Ok(repository)
}

/// A file may grow between being measured and being read; then only what was measured counts.
fn read_at_most(path: &Path, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(path)?.take(limit).read_to_end(&mut content)?;
    Ok(content)
}

fn add_rules(place: &Path, directory: &str, is_in_work_tree: bool, intake: &mut Intake<'_>) {
    let directory = format!("{}{directory}", intake.ignored.offset);
    let names = [".gitignore", IGNORE_FILE];
    for name in names.into_iter().filter(|name| is_in_work_tree || *name == IGNORE_FILE) {
        let path = place.join(name);
        let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
        if is_file && let Ok(patterns) = read_at_most(&path, 1 << 20) {
            intake.ignored.add(&directory, &patterns);
        }
    }
}

/// If `path` lies in a work tree, adds the `.gitignore` files between its top and `path`.
fn add_rules_from_above(path: &Path, intake: &mut Intake<'_>) -> bool {
    let Ok(path) = path.canonicalize() else { return false };
    let Some(top) = path.ancestors().find(|place| place.join(".git").exists()) else { return false };
    let Some(below) = path.strip_prefix(top).ok().and_then(Path::to_str) else { return true };
    let mut place = PathBuf::from(top);
    for part in below.split('/').filter(|part| !part.is_empty()) {
        let directory = intake.ignored.offset.clone();
        let file = place.join(".gitignore");
        if let Ok(patterns) = read_at_most(&file, 1 << 20) {
            intake.ignored.add(&directory, &patterns);
        }
        place.push(part);
        intake.ignored.offset = format!("{directory}{part}/");
    }
    true
}
