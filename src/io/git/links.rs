//! Symbolic links, followed by hand inside one repository: nothing here asks an operating system where a link leads.
//!
//! Each part of a path is looked at by itself, so a directory that is a link on the way is seen as one. What would leave the
//! repository, turn in a circle or lead nowhere is refused with that reason.

use std::collections::{BTreeSet, VecDeque};

use super::error::GitError;
use crate::model::repository::{LinkProblem, Refusal};

/// What happens to symbolic links.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Symlinks {
    /// None is followed; one where the fleet needs a file is a mistake.
    #[default]
    Refused,
    /// Followed to files and directories of the same commit.
    WithinRepository,
}

/// Links on the way to one file.
pub(super) const HOPS_MAX: usize = 8;

/// What a path of the repository is, the path itself and not what it may point to.
pub(super) enum Entry<T> {
    Directory(T),
    File(T),
    Link(Vec<u8>),
    Submodule,
    /// A pipe, a device.
    Other,
    Missing,
}

/// Where a link leads: a path without links, from the top of the repository.
pub(super) enum Target<T> {
    Directory { path: String, found: T },
    File { path: String, found: T },
}

/// Follows the link at `path`, which counts from the top of the repository. `look` says what a path without links is.
pub(super) fn follow<T>(
    path: &str,
    mut look: impl FnMut(&str) -> Result<Entry<T>, GitError>,
) -> Result<Result<Target<T>, Refusal>, GitError> {
    let refused = |problem| Ok(Err(Refusal::Link(problem)));
    let mut walked: Vec<String> = Vec::new();
    let mut ahead: VecDeque<String> = path.split('/').map(str::to_owned).collect();
    let mut seen = BTreeSet::new();
    let mut last = None;
    while let Some(part) = ahead.pop_front() {
        match &*part {
            "" | "." => continue,
            ".." if walked.pop().is_none() => return refused(LinkProblem::Escapes),
            ".." => {
                last = None;
                continue;
            }
            _ if part.eq_ignore_ascii_case(".git") => return refused(LinkProblem::Escapes),
            _ => walked.push(part),
        }
        let here = walked.join("/");
        match look(&here)? {
            Entry::Link(target) => {
                if !seen.insert(here) {
                    return refused(LinkProblem::Circle);
                }
                if seen.len() > HOPS_MAX {
                    return refused(LinkProblem::TooManyHops);
                }
                let Ok(target) = String::from_utf8(target) else { return refused(LinkProblem::Dangling) };
                if target.starts_with('/') {
                    return refused(LinkProblem::Absolute);
                }
                if target.contains(['\\', '\0']) || target.is_empty() {
                    return refused(LinkProblem::Dangling);
                }
                walked.pop();
                target.split('/').rev().for_each(|part| ahead.push_front(part.to_owned()));
            }
            Entry::Directory(found) => last = Some(Target::Directory { path: here, found }),
            Entry::File(found) if ahead.iter().all(|part| matches!(&**part, "" | ".")) => {
                last = Some(Target::File { path: here, found });
            }
            Entry::Submodule => return Ok(Err(Refusal::Submodule)),
            Entry::Other => return Ok(Err(Refusal::NotAFile)),
            Entry::File(_) | Entry::Missing => return refused(LinkProblem::Dangling),
        }
    }
    // The last step may have been a `..`: then the directory it led to has to be looked at.
    match last {
        Some(target) => Ok(Ok(target)),
        None => {
            let here = walked.join("/");
            match look(&here)? {
                Entry::Directory(found) => Ok(Ok(Target::Directory { path: here, found })),
                _ => refused(LinkProblem::Dangling),
            }
        }
    }
}

/// A directory being read, and the directories that links led through to it.
#[derive(Clone, Debug, Default)]
pub(super) struct Trail {
    /// Where it really is, from the top of the repository.
    pub(super) place: String,
    through: Vec<String>,
}

impl Trail {
    pub(super) fn at(place: String) -> Self {
        Self { place, through: Vec::new() }
    }

    /// A directory in this one.
    pub(super) fn inside(&self, name: &str) -> Self {
        Self { place: below(&self.place, name), through: self.through.clone() }
    }

    /// The directory that a link in this one leads to; `None` if it holds one that is being read already.
    pub(super) fn over_link(&self, target: String) -> Option<Self> {
        let holds = |place: &str| {
            target.is_empty()
                || place.strip_prefix(&*target).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if holds(&self.place) || self.through.iter().any(|place| holds(place)) {
            return None;
        }
        let mut through = self.through.clone();
        through.push(self.place.clone());
        Some(Self { place: target, through })
    }
}

pub(super) fn below(place: &str, name: &str) -> String {
    if place.is_empty() { name.to_owned() } else { format!("{place}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a/f`, and links by their names.
    fn followed(path: &str, links: &[(&str, &str)]) -> Result<String, Refusal> {
        let look = |path: &str| {
            Ok(match (path, links.iter().find(|(name, _)| *name == path)) {
                (_, Some((_, target))) => Entry::Link(target.as_bytes().to_vec()),
                ("" | "a" | "a/b", None) => Entry::Directory(()),
                ("a/f", None) => Entry::File(()),
                _ => Entry::Missing,
            })
        };
        follow(path, look).expect("looking does not fail").map(|target| match target {
            Target::Directory { path, .. } => format!("{path}/"),
            Target::File { path, .. } => path,
        })
    }

    #[test]
    fn links_are_followed_part_by_part() {
        for (target, led) in
            [("a/f", "a/f"), ("./a/b/../f", "a/f"), ("a", "a/"), ("a/b/..", "a/"), (".", "/")]
        {
            assert_eq!(followed("l", &[("l", target)]).as_deref(), Ok(led), "{target}");
        }
        assert_eq!(
            followed("l", &[("l", "m/f"), ("m", "a")]).as_deref(),
            Ok("a/f"),
            "a directory that is a link"
        );
    }

    #[test]
    fn what_leads_out_round_or_nowhere_is_refused() {
        use LinkProblem::{Absolute, Circle, Dangling, Escapes};
        for (target, problem) in [
            ("/etc/passwd", Absolute),
            ("../x", Escapes),
            ("a/../../x", Escapes),
            (".git/config", Escapes),
            ("l", Circle),
            ("nowhere", Dangling),
            ("a/f/x", Dangling),
            ("", Dangling),
        ] {
            assert_eq!(followed("l", &[("l", target)]), Err(Refusal::Link(problem)), "{target:?}");
        }
        // What looks like `a/x` goes out through a directory.
        assert_eq!(followed("l", &[("l", "a/m/x"), ("a/m", "../../other")]), Err(Refusal::Link(Escapes)));
        let names: Vec<String> = (0..12).map(|number| format!("l{number}")).collect();
        let chain: Vec<(&str, &str)> = names.windows(2).map(|pair| (&*pair[0], &*pair[1])).collect();
        assert_eq!(followed("l0", &chain), Err(Refusal::Link(LinkProblem::TooManyHops)));
    }

    #[test]
    fn directories_that_hold_each_other_end() {
        let trail = Trail::at("infra".into()).inside("d1");
        assert!(trail.over_link("infra".into()).is_none(), "it holds itself");
        let second = trail.over_link("infra/d2".into()).expect("beside");
        assert!(second.over_link("infra/d1".into()).is_none(), "back to the first");
        assert!(second.over_link("infra/d3".into()).is_some());
    }
}
