//! How a new head relates to the commit that was there before: did the branch move on, or was it rewritten?

use std::fmt;
use std::sync::Arc;

use super::repository::CommitId;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum History {
    Same,
    /// The old commit is an ancestor of the new one.
    FastForward,
    /// It is not: commits were dropped or replaced.
    Rewritten {
        old: CommitId,
        new: CommitId,
        how: Rewrite,
        /// What the old head had and the new one has not, newest first, as far as it is known.
        dropped: Vec<DroppedCommit>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rewrite {
    /// The new head is an ancestor of the old one.
    Rewound,
    /// They share older history.
    Diverged,
    /// They share nothing: the repository was replaced.
    Unrelated,
    /// The ancestry could not be obtained.
    Unknown,
}

/// Continues a sentence that began with the new head: "`a1b2c3d` goes back to before".
impl fmt::Display for Rewrite {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Rewound => "goes back to before",
            Self::Diverged => "does not descend from",
            Self::Unrelated => "shares no history with",
            Self::Unknown => "is not known to descend from",
        })
    }
}

/// A commit that a rewritten branch no longer has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DroppedCommit {
    pub commit: CommitId,
    /// The first line of its message.
    pub subject: Arc<str>,
}

impl fmt::Display for DroppedCommit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{} \"{}\"", self.commit.short(), self.subject)
    }
}
