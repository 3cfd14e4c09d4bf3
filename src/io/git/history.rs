//! How two commits of one branch relate: did it move on, or was it rewritten?

use std::collections::{BTreeSet, VecDeque};

use gix::ObjectId;

use super::error::GitError;
use super::tree::{Objects, commit_id, object_id, subject};
use crate::model::history::{DroppedCommit, History, Rewrite};
use crate::model::repository::CommitId;

/// A walk longer than this is not worth the answer: it counts as unknown.
const WALK_MAX: usize = 100_000;
/// Dropped commits that are named; whoever needs more asks Git.
const DROPPED_MAX: usize = 50;

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
    let dropped = match how {
        Rewrite::Unknown => Vec::new(),
        _ => dropped(objects, old_id, &of_new)?,
    };
    Ok(History::Rewritten { old: old.clone(), new: new.clone(), how, dropped })
}

/// What `old` has and the new head has not, newest first.
fn dropped(objects: &Objects<'_>, old: ObjectId, of_new: &Ancestry) -> Result<Vec<DroppedCommit>, GitError> {
    let mut found = Vec::new();
    let mut seen = BTreeSet::new();
    let mut waiting = VecDeque::from([old]);
    while let Some(id) = waiting.pop_front() {
        if found.len() == DROPPED_MAX {
            break;
        }
        if of_new.commits.contains(&id) || !seen.insert(id) || objects.try_kind(id)?.is_none() {
            continue;
        }
        let data = objects.read_commit(id)?;
        let commit = objects.parse_commit(id, &data)?;
        found.push(DroppedCommit { commit: commit_id(id), subject: subject(&commit) });
        waiting.extend(commit.parents());
    }
    Ok(found)
}

/// The youngest commit that both come from; `None` if the store shows none. Where there are several, the first by its id.
pub(super) fn merge_base(
    objects: &Objects<'_>,
    one: &CommitId,
    other: &CommitId,
) -> Result<Option<CommitId>, GitError> {
    let of_one = ancestry(objects, object_id(one, objects.source_name)?)?;
    let of_other = ancestry(objects, object_id(other, objects.source_name)?)?;
    let common: BTreeSet<ObjectId> = of_one.commits.intersection(&of_other.commits).copied().collect();
    // What another common commit comes from is older than that.
    let mut older = BTreeSet::new();
    for id in &common {
        let data = objects.read_commit(*id)?;
        older.extend(objects.parse_commit(*id, &data)?.parents());
    }
    Ok(common.into_iter().find(|id| !older.contains(id)).map(commit_id))
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

/// The commit and all that came before it; `None` if the store does not have all of it.
pub(super) fn ancestors(
    objects: &Objects<'_>,
    tip: ObjectId,
) -> Result<Option<BTreeSet<ObjectId>>, GitError> {
    let ancestry = ancestry(objects, tip)?;
    Ok(ancestry.is_complete.then_some(ancestry.commits))
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
