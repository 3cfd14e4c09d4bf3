//! What is taken from a tree or a directory, and what is refused: one set of rules for both.
//!
//! Limits are checked before content is loaded, and counted over everything that is looked at, so memory stays bounded
//! however large or hostile the repository is.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::Arc;

use gix::glob::pattern::Case;
use gix::ignore::search::Ignore;

use super::Limits;
use super::error::GitError;
use crate::model::repository::{Refusal, Repository, Revision};

/// The ignore file of a fleet, in the syntax of `.gitignore`.
pub(super) const IGNORE_FILE: &str = ".provisorignore";

const PATH_BYTES_MAX: usize = 4096;
/// An LFS pointer is smaller than this by its specification.
const LFS_POINTER_BYTES_MAX: usize = 1024;
const LFS_POINTER_START: &[u8] = b"version https://git-lfs.github.com/spec/";

/// A repository in the making.
pub(super) struct Intake<'a> {
    source_name: &'a str,
    limits: &'a Limits,
    pub(super) ignored: IgnoreRules,
    files: BTreeMap<Arc<str>, Arc<[u8]>>,
    refused: BTreeMap<Arc<str>, Refusal>,
    entries: usize,
    directories: usize,
    bytes: u64,
}

impl<'a> Intake<'a> {
    pub(super) fn new(source_name: &'a str, limits: &'a Limits) -> Self {
        Self {
            source_name,
            limits,
            ignored: IgnoreRules::default(),
            files: BTreeMap::new(),
            refused: BTreeMap::new(),
            entries: 0,
            directories: 0,
            bytes: 0,
        }
    }

    /// Counts a directory; a tree that contains itself many times over ends here.
    pub(super) fn enter(&mut self, path: &str) -> Result<(), GitError> {
        self.directories += 1;
        self.within(self.directories, "directories", path)
    }

    pub(super) fn refuse(&mut self, path: &str, reason: Refusal) -> Result<(), GitError> {
        self.entries += 1;
        self.within(self.entries, "files", path)?;
        self.refused.insert(path.into(), reason);
        Ok(())
    }

    /// Whether the content of a file should be loaded; if not, it is noted why.
    pub(super) fn admits(&mut self, path: &str, size: u64) -> Result<bool, GitError> {
        if size > self.limits.file_bytes {
            self.refuse(path, Refusal::TooLarge { bytes: size, limit: self.limits.file_bytes })?;
            return Ok(false);
        }
        self.entries += 1;
        self.within(self.entries, "files", path)?;
        self.bytes += size;
        match self.bytes > self.limits.total_bytes {
            true => Err(GitError::ContentTooLarge {
                source_name: self.source_name.into(),
                limit: self.limits.total_bytes,
                path: path.into(),
            }),
            false => Ok(true),
        }
    }

    /// Takes the content of an admitted file.
    pub(super) fn take(&mut self, path: &str, content: &[u8]) {
        let is_lfs_pointer = content.len() < LFS_POINTER_BYTES_MAX && content.starts_with(LFS_POINTER_START);
        match is_lfs_pointer {
            true => drop(self.refused.insert(path.into(), Refusal::LfsPointer)),
            false => drop(self.files.insert(path.into(), content.into())),
        }
    }

    pub(super) fn into_repository(self, revision: Revision) -> Repository {
        Repository { revision, files: self.files, refused: self.refused }
    }

    fn within(&self, count: usize, what: &'static str, path: &str) -> Result<(), GitError> {
        match count > self.limits.files {
            true => Err(GitError::TooManyFiles {
                source_name: self.source_name.into(),
                what,
                limit: self.limits.files,
                path: path.into(),
            }),
            false => Ok(()),
        }
    }
}

/// The path of an entry below `directory` ("" or ending in `/`), or how to show it if it cannot be used.
pub(super) fn joined(directory: &str, name: &[u8]) -> Result<String, String> {
    let shown = |bytes: &[u8]| {
        let mut text = directory.to_owned();
        for chunk in bytes.utf8_chunks() {
            for letter in chunk.valid().chars() {
                match letter.is_control() {
                    true => text.extend(letter.escape_default()),
                    false => text.push(letter),
                }
            }
            for byte in chunk.invalid() {
                write!(text, "\\x{byte:02x}").expect("a string takes every write");
            }
        }
        text
    };
    let Ok(text) = std::str::from_utf8(name) else { return Err(shown(name)) };
    let is_safe = !matches!(text, "" | "." | "..")
        && !text.eq_ignore_ascii_case(".git")
        && !text.chars().any(|letter| letter.is_control() || letter == '\\' || letter == '/')
        && directory.len() + text.len() <= PATH_BYTES_MAX;
    match is_safe {
        true => Ok(format!("{directory}{text}")),
        false => Err(shown(name)),
    }
}

/// Patterns of ignore files, each for its own directory and below, the last match winning.
#[derive(Default)]
pub(super) struct IgnoreRules {
    search: gix::ignore::Search,
    /// Where the paths that are asked about begin, seen from where the patterns begin: "" or ending in `/`.
    pub(super) offset: String,
}

impl IgnoreRules {
    /// Adds the patterns of an ignore file in `directory` ("" or ending in `/`).
    pub(super) fn add(&mut self, directory: &str, patterns: &[u8]) {
        // The two paths only tell the library which directory the patterns count from; nothing is opened.
        let root = PathBuf::from("/root");
        let file = root.join(directory).join(IGNORE_FILE);
        self.search
            .add_patterns_buffer(patterns, file, Some(&root), Ignore::default())
            .expect("the file has a parent directory");
    }

    pub(super) fn exclude(&self, path: &str, is_directory: bool) -> bool {
        if self.search.patterns.is_empty() {
            return false;
        }
        let path = format!("{}{path}", self.offset);
        self.search
            .pattern_matching_relative_path(path.as_str().into(), Some(is_directory), Case::Sensitive)
            .is_some_and(|found| !found.pattern.is_negative())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_plain_text_or_shown_escaped() {
        assert_eq!(joined("environments/", b"prod.toml"), Ok("environments/prod.toml".into()));
        for (name, shown) in [
            (&b".."[..], "d/.."),
            (b".git", "d/.git"),
            (b".GIT", "d/.GIT"),
            (b"a\\b", "d/a\\b"),
            (b"a\nb", "d/a\\nb"),
            (b"caf\xe9", "d/caf\\xe9"),
            (b"a/b", "d/a/b"),
        ] {
            assert_eq!(joined("d/", name), Err(shown.into()));
        }
    }

    #[test]
    fn ignore_files_count_for_their_directory_and_the_last_match_wins() {
        let mut rules = IgnoreRules::default();
        rules.add("", b"*.md\n/docs/\n!KEEP.md\n");
        rules.add("environments/", b"/old.toml\n");
        for (path, is_directory, excluded) in [
            ("README.md", false, true),
            ("environments/x.md", false, true),
            ("KEEP.md", false, false),
            ("docs", true, true),
            ("docs", false, false),
            ("environments/old.toml", false, true),
            ("old.toml", false, false),
            ("environments/sub/old.toml", false, false),
        ] {
            assert_eq!(rules.exclude(path, is_directory), excluded, "{path}");
        }
    }
}
