//! The files of one commit, already read: what a Git source hands to the pure half.
//!
//! Nothing here points back at a disk. Entries that must not be followed (links, submodules, large
//! objects kept elsewhere) are not silently missing: they are listed with the reason, so that whoever
//! needs one can say why it is not there.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

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
}

/// All considered files of one commit, by path with `/` between parts and no leading slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repository {
    pub revision: Revision,
    pub files: BTreeMap<Arc<str>, Arc<[u8]>>,
    pub refused: BTreeMap<Arc<str>, Refusal>,
}
