//! How two commits of one branch relate: did it move on, or was it rewritten?

use std::collections::BTreeSet;

use super::error::GitError;
use super::tree::{Objects, object_id};
use crate::model::repository::CommitId;

/// A walk longer than this is not worth the answer: it counts as unknown.
const WALK_MAX: usize = 100_000;

/// The relation of a new head to the commit that was there before.
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

/// All ancestors of a commit, itself included, as far as the store has them.
struct Ancestry {
    commits: BTreeSet<gix::ObjectId>,
    /// False if the store ends before the history does.
    is_complete: bool,
}

pub(super) fn relation(objects: &Objects<'_>, old: &CommitId, new: &CommitId) -> Result<History, GitError> {
    if old == new {
        return Ok(History::Same);
    }
    let (old_id, new_id) = (object_id(old, objects.source_name)?, object_id(new, objects.source_name)?);
    let of_new = ancestry(objects, new_id)?;
    if of_new.commits.contains(&old_id) {
        return Ok(History::FastForward);
    }
    let of_old = ancestry(objects, old_id)?;
    let how = if of_old.commits.contains(&new_id) {
        Rewrite::Rewound
    } else if !of_new.is_complete {
        Rewrite::Unknown
    } else if of_old.commits.intersection(&of_new.commits).next().is_some() {
        Rewrite::Diverged
    } else if of_old.is_complete {
        Rewrite::Unrelated
    } else {
        Rewrite::Unknown
    };
    Ok(History::Rewritten { old: old.clone(), new: new.clone(), how })
}

/// `None` if the store does not have enough history to know.
pub(super) fn is_ancestor(
    objects: &Objects<'_>,
    ancestor: &CommitId,
    of: &CommitId,
) -> Result<Option<bool>, GitError> {
    let ancestor = object_id(ancestor, objects.source_name)?;
    let ancestry = ancestry(objects, object_id(of, objects.source_name)?)?;
    Ok(match ancestry.commits.contains(&ancestor) {
        true => Some(true),
        false => ancestry.is_complete.then_some(false),
    })
}

fn ancestry(objects: &Objects<'_>, tip: gix::ObjectId) -> Result<Ancestry, GitError> {
    let mut commits = BTreeSet::new();
    let mut is_complete = true;
    let mut waiting = vec![tip];
    while let Some(id) = waiting.pop() {
        if commits.contains(&id) {
            continue;
        }
        if commits.len() == WALK_MAX || objects.try_kind(id)?.is_none() {
            is_complete = false;
            continue;
        }
        commits.insert(id);
        let data = objects.read_commit(id)?;
        waiting.extend(objects.parse_commit(id, &data)?.parents());
    }
    Ok(Ancestry { commits, is_complete })
}
