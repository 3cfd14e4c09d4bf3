//! A plain directory read as if it were a commit: what a person judges before committing.
//!
//! The same files are refused and the same limits hold as for a commit, so what is valid here is valid there. Ignored files
//! are left out (they would not be committed), and nothing but regular files is opened.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use super::Limits;
use super::error::GitError;
use super::intake::{IGNORE_FILE, Intake, joined};
use super::links::{self, Entry, Symlinks, Target, Trail};
use crate::model::repository::{CommitId, LinkProblem, Refusal, Repository, Revision};

/// Reads the files of `path` as they are now on disk, whether or not it is a Git repository.
///
/// The revision is not a commit: its id is the content's SHA-256 (64 digits) and it has no reference.
pub fn read_directory(path: &Path, limits: &Limits, symlinks: Symlinks) -> Result<Repository, GitError> {
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
    let top = add_rules_from_above(path, &mut intake);
    let is_in_work_tree = top.is_some();
    // Links count from the top of the work tree, or from the directory itself where there is none.
    let (top, start) = match &top {
        Some((top, below)) => (top.as_path(), below.clone()),
        None => (path, String::new()),
    };

    let mut waiting = vec![(path.to_owned(), String::new(), Trail::at(start))];
    while let Some((place, directory, trail)) = waiting.pop() {
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
            } else if kind.is_symlink() && symlinks == Symlinks::Refused {
                intake.refuse(&path, Refusal::Symlink)?;
            } else if kind.is_symlink() {
                let link = links::below(&trail.place, &path[directory.len()..]);
                match links::follow(&link, |place| entry_at(&top.join(place)))? {
                    Ok(Target::File { path: target, .. }) => {
                        take(&path, &top.join(target), limits, &mut intake)?
                    }
                    Ok(Target::Directory { path: target, .. }) => match trail.over_link(target.clone()) {
                        Some(trail) => waiting.push((top.join(target), format!("{path}/"), trail)),
                        None => intake.refuse(&path, Refusal::Link(LinkProblem::Circle))?,
                    },
                    Err(refusal) => intake.refuse(&path, refusal)?,
                }
            } else if kind.is_dir() {
                match is_repository(&entry.path()) {
                    true => intake.refuse(&path, Refusal::Submodule)?,
                    false => {
                        let trail = trail.inside(&path[directory.len()..]);
                        waiting.push((entry.path(), format!("{path}/"), trail));
                    }
                }
            } else if kind.is_file() {
                take(&path, &entry.path(), limits, &mut intake)?;
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

fn unreadable(path: &Path, source: std::io::Error) -> GitError {
    GitError::Unreadable { path: path.into(), source }
}

fn take(path: &str, file: &Path, limits: &Limits, intake: &mut Intake<'_>) -> Result<(), GitError> {
    let size = file.symlink_metadata().map_err(|error| unreadable(file, error))?.len();
    if intake.admits(path, size)? {
        let content = read_at_most(file, limits.file_bytes).map_err(|error| unreadable(file, error))?;
        intake.take(path, &content);
    }
    Ok(())
}

fn is_repository(place: &Path) -> bool {
    place.join(".git").symlink_metadata().is_ok()
}

/// What a path without links is.
fn entry_at(place: &Path) -> Result<Entry<()>, GitError> {
    let found = match place.symlink_metadata() {
        Ok(found) => found.file_type(),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            return Ok(Entry::Missing);
        }
        Err(error) => return Err(unreadable(place, error)),
    };
    Ok(if found.is_symlink() {
        let target = fs::read_link(place).map_err(|error| unreadable(place, error))?;
        Entry::Link(target.into_os_string().into_encoded_bytes())
    } else if found.is_file() {
        Entry::File(())
    } else if found.is_dir() {
        Entry::Directory(())
    } else {
        Entry::Other
    })
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

/// If `path` lies in a work tree, adds the `.gitignore` files between its top and `path`. The top, and the way from there.
fn add_rules_from_above(path: &Path, intake: &mut Intake<'_>) -> Option<(PathBuf, String)> {
    let path = path.canonicalize().ok()?;
    let top = path.ancestors().find(|place| place.join(".git").exists())?;
    let below = path.strip_prefix(top).ok().and_then(Path::to_str).unwrap_or_default();
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
    Some((top.into(), below.into()))
}
