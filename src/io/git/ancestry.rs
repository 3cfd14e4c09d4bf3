//! Commits that no reference names: the ones before another (`HEAD~2`, `main^`), and abbreviated ids.

use std::collections::{BTreeSet, HashSet};

use gix::ObjectId;
use gix::hash::Prefix;
use gix::objs::Kind;

use super::error::GitError;
use super::reference::ReferenceError;
use super::tree::{Objects, commit_id, object_id, peel};
use crate::model::repository::CommitId;

/// The fewest digits that stand for a commit, as in Git.
const DIGITS_MIN: usize = 4;
/// Nobody counts further back than this by hand.
const GENERATIONS_MAX: usize = 10_000;
/// How many commits an error lists when several begin with the same digits.
const CANDIDATES_MAX: usize = 5;

/// The way from a commit to one before it: the number of the parent to go to, once for each generation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Path {
    /// The whole word, for messages.
    text: String,
    parents: Vec<usize>,
}

impl Path {
    /// Splits `main~2^2` into the word it begins at and the way from there; `None` if it is only a word.
    pub(super) fn split(text: &str) -> Result<Option<(&str, Self)>, ReferenceError> {
        let Some(at) = text.find(['~', '^']) else { return Ok(None) };
        let bad = || ReferenceError::InvalidAncestor { text: text.into() };
        let (base, mut rest) = text.split_at(at);
        let mut parents = Vec::new();
        while let Some(sign) = rest.chars().next() {
            let after = &rest[sign.len_utf8()..];
            let end = after.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(after.len());
            let (digits, next) = after.split_at(end);
            let number = match digits {
                "" => 1,
                digits => digits.parse::<usize>().map_err(|_| bad())?,
            };
            match sign {
                '~' if number <= GENERATIONS_MAX - parents.len() => {
                    parents.extend(std::iter::repeat_n(1, number));
                }
                // The commit itself.
                '^' if number == 0 => {}
                '^' if parents.len() < GENERATIONS_MAX => parents.push(number),
                '~' | '^' => return Err(ReferenceError::TooFarBack { text: text.into() }),
                _ => return Err(bad()),
            }
            rest = next;
        }
        let base = if base.is_empty() { return Err(bad()) } else { base };
        Ok(Some((base, Self { text: text.into(), parents })))
    }

    /// How much history is needed to walk it, the first commit included.
    pub(super) fn depth(&self) -> u32 {
        u32::try_from(self.parents.len() + 1).unwrap_or(u32::MAX)
    }

    /// Walks it; `None` if the store ends before it does, and history may go on.
    pub(super) fn walk(&self, objects: &Objects<'_>, from: &CommitId) -> Result<Option<CommitId>, GitError> {
        let mut current = object_id(from, objects.source_name)?;
        for number in &self.parents {
            if objects.try_kind(current)?.is_none() {
                return Ok(None);
            }
            let data = objects.read_commit(current)?;
            let parents: Vec<_> = objects.parse_commit(current, &data)?.parents().collect();
            let Some(parent) = parents.get(number - 1) else {
                return Err(GitError::NoAncestor {
                    source_name: objects.source_name.into(),
                    revision: self.text.clone(),
                    commit: commit_id(current),
                    parents: parents.len(),
                });
            };
            current = *parent;
        }
        Ok(objects.try_kind(current)?.map(|_| commit_id(current)))
    }

    /// Why there is no answer although all there is has been asked for.
    pub(super) fn ends_early(&self, source_name: &str) -> GitError {
        GitError::HistoryEnds { source_name: source_name.into(), revision: self.text.clone() }
    }
}

/// The beginning of a commit's id: four digits or more, and fewer than all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Abbreviation(String);

impl Abbreviation {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
        (is_hex && (DIGITS_MIN..40).contains(&text.len())).then(|| Self(text.to_ascii_lowercase()))
    }

    /// Whether the word would be one with a digit more or two.
    pub(super) fn too_short(text: &str) -> bool {
        (1..DIGITS_MIN).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_hexdigit())
    }

    /// The one commit of a whole store that begins so, or that a tag object that begins so names; `None` if none does.
    pub(super) fn find(&self, objects: &Objects<'_>) -> Result<Option<CommitId>, GitError> {
        let Ok(prefix) = Prefix::from_hex(&self.0) else { return Ok(None) };
        let mut candidates = HashSet::new();
        let found = objects.repo.objects.lookup_prefix(prefix, Some(&mut candidates));
        found.map_err(|error| GitError::Corrupt {
            source_name: objects.source_name.into(),
            id: self.0.clone(),
            problem: format!("unreadable: {error}"),
        })?;
        let mut commits = BTreeSet::new();
        for id in candidates {
            if let Some(Kind::Commit | Kind::Tag) = objects.try_kind(id)?
                && let Ok((commit, _)) = peel(objects, id, &self.0)
            {
                commits.insert(commit);
            }
        }
        self.only(objects.source_name, commits)
    }

    /// The one among these commits.
    pub(super) fn find_among(
        &self,
        source_name: &str,
        commits: impl IntoIterator<Item = ObjectId>,
    ) -> Result<Option<CommitId>, GitError> {
        let begins_so = |commit: &CommitId| commit.as_str().starts_with(&self.0);
        self.only(source_name, commits.into_iter().map(commit_id).filter(begins_so).collect())
    }

    fn only(&self, source_name: &str, mut commits: BTreeSet<CommitId>) -> Result<Option<CommitId>, GitError> {
        match commits.len() {
            0 | 1 => Ok(commits.pop_first()),
            count => Err(GitError::AmbiguousCommit {
                source_name: source_name.into(),
                digits: self.0.clone(),
                count,
                candidates: commits.iter().take(CANDIDATES_MAX).map(ToString::to_string).collect(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_read_as_git_reads_them() {
        let split = |text| {
            let split = Path::split(text).expect(text);
            split.map(|(base, path)| (base.to_owned(), path.parents))
        };
        for (text, base, parents) in [
            ("HEAD~", "HEAD", vec![1]),
            ("HEAD~3", "HEAD", vec![1, 1, 1]),
            ("main^", "main", vec![1]),
            ("main^^2", "main", vec![1, 2]),
            ("v1.0~2^2~1", "v1.0", vec![1, 1, 2, 1]),
            ("main^0", "main", vec![]),
            ("main~0", "main", vec![]),
        ] {
            assert_eq!(split(text), Some((base.to_owned(), parents)), "{text}");
        }
        assert_eq!(split("release/1.0"), None);
        for text in ["~1", "^", "HEAD^{tree}", "HEAD~x", "HEAD^-1", "HEAD~1é", "HEAD~99999999999999999999999"]
        {
            assert!(matches!(Path::split(text), Err(ReferenceError::InvalidAncestor { .. })), "{text}");
        }
        for text in ["HEAD~10001", "HEAD~10000~1", "HEAD~10000^"] {
            assert!(matches!(Path::split(text), Err(ReferenceError::TooFarBack { .. })), "{text}");
        }
    }

    #[test]
    fn abbreviations_have_four_digits_and_not_all() {
        for text in ["abcd", "0123456", "ABCDEF01"] {
            assert!(Abbreviation::parse(text).is_some(), "{text}");
        }
        for text in ["abc", "main", "abcg", &"a".repeat(40)] {
            assert!(Abbreviation::parse(text).is_none(), "{text}");
        }
        for (text, is_short) in [("6bd", true), ("6", true), ("", false), ("dev", false), ("6bd0", false)] {
            assert_eq!(Abbreviation::too_short(text), is_short, "{text}");
        }
    }
}
