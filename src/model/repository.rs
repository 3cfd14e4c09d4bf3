//! The files of one commit, already read: what a Git source hands to the pure half.
//!
//! Nothing here points back at a disk. Entries that must not be followed (links, submodules, large
//! objects kept elsewhere) are not silently missing: they are listed with the reason, so that whoever
//! needs one can say why it is not there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};

/// A full object id in lower-case hexadecimal: 40 digits (SHA-1) or 64 (SHA-256).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CommitId(Arc<str>);

impl CommitId {
    /// Takes 40 or 64 hexadecimal digits; abbreviations are refused because they can become ambiguous.
    pub fn parse(text: &str) -> Option<Self> {
        let is_full = matches!(text.len(), 40 | 64) && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_full.then(|| Self(text.to_ascii_lowercase().into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first seven digits, for people.
    pub fn short(&self) -> &str {
        &self.0[..7]
    }
}

impl fmt::Display for CommitId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// One commit and how it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    pub commit: CommitId,
    /// The full reference that was followed, such as `refs/heads/main`; `None` for a bare commit or a directory.
    pub reference: Option<Arc<str>>,
    /// First line of the commit message, empty if there is none.
    pub subject: Arc<str>,
    pub author: Arc<str>,
}

/// Why a path of the tree is not among the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// A symbolic link: content never leaves the commit.
    Symlink,
    /// A symbolic link where links within the repository are followed, and this one cannot be.
    Link(LinkProblem),
    Submodule,
    /// A Git LFS pointer: the content lives on another server.
    LfsPointer,
    /// Larger than a single file may be.
    TooLarge {
        bytes: u64,
        limit: u64,
    },
    /// A path with `..`, a backslash, a control character or text that is not UTF-8.
    UnsafePath,
    /// Left out on purpose, by `.provisorignore` (or, on disk, by `.gitignore`).
    Ignored,
    /// On disk, neither file nor directory: a pipe, a socket, a device. Opening one could block for ever.
    NotAFile,
}

/// Why a symbolic link leads to nothing that could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkProblem {
    Absolute,
    /// Above the top of the repository, or into Git's own directory.
    Escapes,
    Circle,
    TooManyHops,
    Dangling,
}

impl fmt::Display for LinkProblem {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Absolute => "to an absolute path",
            Self::Escapes => "that leaves the repository",
            Self::Circle => "that leads back to itself",
            Self::TooManyHops => "over more than 8 other links",
            Self::Dangling => "to nothing that can be read",
        })
    }
}

impl Refusal {
    /// What a person can do about it, as a whole sentence.
    pub fn help(self) -> &'static str {
        match self {
            Self::Symlink => {
                "Commit the content itself instead of the link, or allow links within the repository (`--symlinks within-repo`)."
            }
            Self::Link(_) => {
                "Point the link to a file or directory of this repository, or commit the content itself."
            }
            Self::Submodule => {
                "Commit the files into this repository, or allow the address of the submodule (`--submodules https://host/team`)."
            }
            Self::LfsPointer => {
                "Configuration must not be stored in LFS: remove the path from `.gitattributes` and run `git lfs migrate export --include=PATH`."
            }
            Self::TooLarge { .. } => "Split the file; configuration of this size cannot be reviewed.",
            Self::UnsafePath => {
                "Rename it: a path is UTF-8 text with `/` between parts, without `..`, `.git`, backslashes or control characters."
            }
            Self::Ignored => {
                "Remove the pattern from `.provisorignore` (on disk, also `.gitignore`), or what refers to it."
            }
            Self::NotAFile => "Replace it with a regular file.",
        }
    }
}

/// Continues a sentence that began with the path: "`templates/a.j2` is a symbolic link".
impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symlink => out.write_str("is a symbolic link"),
            Self::Link(problem) => write!(out, "is a symbolic link {problem}"),
            Self::Submodule => out.write_str("is a submodule or a nested repository"),
            Self::LfsPointer => out.write_str("is a Git LFS pointer, not the content"),
            Self::TooLarge { bytes, limit } => {
                write!(out, "is too large: {bytes} bytes, and a file may have {limit}")
            }
            Self::UnsafePath => out.write_str("has a path that cannot be used safely"),
            Self::Ignored => out.write_str("is left out by an ignore file"),
            Self::NotAFile => out.write_str("is not a regular file"),
        }
    }
}

/// All considered files of one commit, by path with `/` between parts and no leading slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    pub revision: Revision,
    pub files: BTreeMap<Arc<str>, Arc<[u8]>>,
    pub refused: BTreeMap<Arc<str>, Refusal>,
}

impl Repository {
    /// Why `path` is not among the files, if it or a directory above it was refused: the refused path and the reason.
    pub fn refusal_of(&self, path: &str) -> Option<(&str, Refusal)> {
        let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
        ends.map(|end| &path[..end])
            .find_map(|part| self.refused.get_key_value(part))
            .map(|(refused, &reason)| (&**refused, reason))
    }

    /// The refused paths that are `path` itself or lie below it, in order.
    pub fn refusals_under<'a>(&'a self, path: &'a str) -> impl Iterator<Item = (&'a str, Refusal)> {
        self.refused.iter().map(|(refused, &reason)| (&**refused, reason)).filter(move |(refused, _)| {
            refused.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    /// Where the files are, to end a sentence with: a directory has the fingerprint of its files for a commit.
    pub fn place(&self) -> &'static str {
        if self.is_directory() { "on disk" } else { "at this commit" }
    }

    /// Whether these are the files of a directory and of no commit.
    pub fn is_directory(&self) -> bool {
        let Revision { commit, reference, .. } = &self.revision;
        reference.is_none() && commit.as_str() == self.content_digest()
    }

    /// A fingerprint (SHA-256, 64 hexadecimal digits) of every path, content and refusal, and of nothing else: equal
    /// for two commits whose considered files are equal.
    pub fn content_digest(&self) -> String {
        let mut hash = Sha256::new();
        for (path, content) in &self.files {
            hash.update((path.len() as u64).to_le_bytes());
            hash.update(path.as_bytes());
            hash.update((content.len() as u64).to_le_bytes());
            hash.update(content);
        }
        for (path, reason) in &self.refused {
            hash.update((path.len() as u64).to_le_bytes());
            hash.update(path.as_bytes());
            hash.update(reason.to_string().as_bytes());
        }
        hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

#[cfg(test)]
impl Repository {
    /// A commit with exactly these files.
    pub(crate) fn for_test(files: &[(&str, &str)]) -> Self {
        Self {
            revision: Revision {
                commit: CommitId::parse(&"a".repeat(40)).expect("40 digits"),
                reference: None,
                subject: "".into(),
                author: "".into(),
            },
            files: files.iter().map(|(path, text)| ((*path).into(), text.as_bytes().into())).collect(),
            refused: BTreeMap::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repository(files: &[(&str, &str)], refused: &[(&str, Refusal)]) -> Repository {
        let refused = refused.iter().map(|(path, reason)| ((*path).into(), *reason)).collect();
        Repository { refused, ..Repository::for_test(files) }
    }

    #[test]
    fn a_refused_directory_explains_everything_below_it() {
        let repository =
            repository(&[], &[("templates", Refusal::Symlink), ("environments/a.toml", Refusal::LfsPointer)]);
        assert_eq!(repository.refusal_of("templates/spot.yaml.j2"), Some(("templates", Refusal::Symlink)));
        assert_eq!(repository.refusal_of("templates2/spot.yaml.j2"), None);
        let under: Vec<_> = repository.refusals_under("environments").collect();
        assert_eq!(under, [("environments/a.toml", Refusal::LfsPointer)]);
        assert_eq!(repository.refusals_under("env").count(), 0);
    }

    #[test]
    fn a_directory_is_no_commit() {
        let mut repository = repository(&[("a", "b")], &[]);
        assert_eq!(repository.place(), "at this commit");
        repository.revision.commit = CommitId::parse(&repository.content_digest()).expect("64 digits");
        assert_eq!(repository.place(), "on disk");
    }

    #[test]
    fn the_digest_sees_content_and_not_the_commit() {
        let one = repository(&[("a", "bc")], &[]);
        let mut same = one.clone();
        same.revision.commit = CommitId::parse(&"b".repeat(40)).expect("40 digits");
        assert_eq!(one.content_digest(), same.content_digest());
        assert_ne!(one.content_digest(), repository(&[("ab", "c")], &[]).content_digest());
        assert_ne!(
            one.content_digest(),
            repository(&[("a", "bc")], &[("d", Refusal::Symlink)]).content_digest()
        );
    }
}
