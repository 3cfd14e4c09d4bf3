//! Which commit a source follows: from the words of a person to one object id.
//!
//! Each kind of reference has its own field, so a branch and a tag of one name are never confused; only where a single
//! word is typed (`--ref`) can it be ambiguous, and then it is an error. Versions are looked for among tags only.

mod version;

use std::sync::Arc;

use gix::ObjectId;
use semver::Version;
use thiserror::Error;

use super::ancestry::{Abbreviation, Path};
use super::error::GitError;
use crate::model::repository::CommitId;
use version::VersionRange;

/// What a person wrote, field by field. The first that is set wins, in the order of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReferenceFields {
    /// 40 hexadecimal digits. With `branch`, the commit must be part of that branch.
    pub commit: Option<String>,
    /// A full name such as `refs/heads/main`.
    pub name: Option<String>,
    /// A range such as `1.x` or `>=1.2, <2`, looked for among tags.
    pub semver: Option<String>,
    /// Cut from tags before they are compared with `semver`, such as `prod/`.
    pub tag_prefix: Option<String>,
    pub tag: Option<String>,
    pub branch: Option<String>,
}

/// What the source is followed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Nodes are made from it: only branches and tags.
    Production,
    /// A proposal is judged: also `refs/pull/7/head` and the like.
    Review,
}

/// What is followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// The branch that HEAD names.
    Head,
    Commit {
        id: CommitId,
        branch: Option<RefName>,
    },
    Name(RefName),
    Semver {
        range: VersionRange,
        prefix: String,
    },
    Tag(RefName),
    Branch(RefName),
    /// One word from a command line: a branch or a tag, if only one of them has it, or the beginning of a commit's id.
    Any(RefName),
    /// A commit before another one: `HEAD~2`.
    Before {
        start: Box<Reference>,
        path: Path,
    },
}

/// A name Git accepts for a reference, in full (`refs/heads/main`); for [`Reference::Any`] without its beginning.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RefName(Arc<str>);

impl RefName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Without `refs/heads/` or `refs/tags/`.
    pub fn short(&self) -> &str {
        shortened(&self.0)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ReferenceError {
    #[error("`{text}` is an abbreviated commit id ({} digits)", text.len())]
    AbbreviatedCommit { text: String },
    #[error("`{text}` is not a commit id")]
    NotACommitId { text: String },
    #[error("{}", not_a_name(kind, text))]
    InvalidName { kind: &'static str, text: String },
    #[error("`{text}` does not say how to go from one commit to another")]
    InvalidAncestor { text: String },
    #[error("`{text}` goes further back than 10000 commits")]
    TooFarBack { text: String },
    #[error("`{text}` is not the full name of a reference")]
    NotAFullName { text: String },
    #[error("`{text}` is neither a branch nor a tag, and may change without a merge")]
    NotForProduction { text: String },
    #[error("`{text}` is not a range of versions: {why}")]
    InvalidRange { text: String, why: String },
}

/// What to write if a word is a range of versions and no name.
pub(super) fn range_hint(word: &str) -> Option<String> {
    VersionRange::parse(word)
        .ok()
        .map(|_| format!("If it is a range of versions, write `--semver '{word}'`."))
}

fn not_a_name(kind: &str, text: &str) -> String {
    match text {
        "" => format!("the name of the {kind} is empty"),
        text => format!("`{text}` is not a name that Git accepts for a {kind}"),
    }
}

impl ReferenceError {
    pub fn help(&self) -> String {
        match self {
            Self::AbbreviatedCommit { .. } => {
                "Write all 40 digits (`git rev-parse ID` prints them): an abbreviation can become ambiguous. On the command line `--ref` takes one."
                    .into()
            }
            Self::NotACommitId { .. } => "A commit id has 40 hexadecimal digits.".into(),
            Self::InvalidName { text, .. } if text.is_empty() => {
                "Name a branch, a tag or a commit, or leave the option out.".into()
            }
            Self::InvalidName { text, .. } if let Some(hint) = range_hint(text) => hint,
            Self::InvalidAncestor { .. } => {
                "Write `HEAD~2` for two commits before, `main^` for the parent, `main^2` for the second parent of a merge.".into()
            }
            Self::TooFarBack { .. } => "Name the commit by its id.".into(),
            Self::InvalidName { .. } => {
                "Names have no spaces, `..`, `~`, `^`, `:`, `?`, `*`, `[` or control characters.".into()
            }
            Self::NotAFullName { .. } => "Write it from `refs/` on, such as `refs/heads/main`.".into(),
            Self::NotForProduction { .. } => {
                "Follow a branch (`refs/heads/…`) or a tag (`refs/tags/…`).".into()
            }
            Self::InvalidRange { .. } => {
                "Write a range such as `1.x`, `>=1.2.0`, `^1.4` or `>=1.2, <2`.".into()
            }
        }
    }
}

impl ReferenceFields {
    /// The reference that wins, checked.
    pub fn choose(&self, purpose: Purpose) -> Result<Reference, ReferenceError> {
        if let Some(commit) = &self.commit {
            let branch =
                self.branch.as_ref().map(|branch| named("refs/heads/", "branch", branch)).transpose()?;
            return Ok(Reference::Commit { id: commit_id(commit)?, branch });
        }
        if let Some(name) = &self.name {
            return full_name(name, purpose).map(Reference::Name);
        }
        if let Some(range) = &self.semver {
            let prefix = self.tag_prefix.clone().unwrap_or_default();
            return Ok(Reference::Semver { range: VersionRange::parse(range)?, prefix });
        }
        if let Some(tag) = &self.tag {
            return named("refs/tags/", "tag", tag).map(Reference::Tag);
        }
        match &self.branch {
            Some(branch) => named("refs/heads/", "branch", branch).map(Reference::Branch),
            None => Ok(Reference::Head),
        }
    }
}

impl Reference {
    /// Reads the one word of `--ref`: a full name, all or the first digits of a commit, the short name of a branch or tag,
    /// or how to go back from one of these.
    pub fn any(text: &str) -> Result<Self, ReferenceError> {
        // A range of versions may have the same signs, and is no word for a commit.
        if VersionRange::parse(text).is_err()
            && let Some((start, path)) = Path::split(text)?
        {
            return Ok(Self::Before { start: Box::new(Self::any(start)?), path });
        }
        if text.starts_with("refs/") {
            return full_name(text, Purpose::Review).map(Self::Name);
        }
        if matches!(text, "HEAD" | "@") {
            return Ok(Self::Head);
        }
        if let Some(id) = CommitId::parse(text) {
            return Ok(Self::Commit { id, branch: None });
        }
        named("refs/heads/", "branch or tag", text)?;
        Ok(Self::Any(RefName(text.into())))
    }

    /// The beginnings of the names that have to be listed to resolve this, for servers that can filter.
    pub(crate) fn prefixes(&self) -> Vec<String> {
        match self {
            Self::Head => vec!["HEAD".into()],
            Self::Commit { branch, .. } => {
                // Something has to be asked for: no prefix at all would list everything.
                vec![branch.as_ref().map_or("HEAD", RefName::as_str).into()]
            }
            Self::Name(name) | Self::Tag(name) | Self::Branch(name) => vec![name.as_str().into()],
            Self::Semver { prefix, .. } => vec![format!("refs/tags/{prefix}")],
            Self::Any(name) => {
                vec![format!("refs/heads/{}", name.as_str()), format!("refs/tags/{}", name.as_str())]
            }
            Self::Before { start, .. } => start.prefixes(),
        }
    }

    /// The digits, if the word can be the beginning of a commit's id.
    pub(super) fn abbreviation(&self) -> Option<Abbreviation> {
        match self {
            Self::Any(name) => Abbreviation::parse(name.as_str()),
            _ => None,
        }
    }
}

fn commit_id(text: &str) -> Result<CommitId, ReferenceError> {
    let is_hex = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    match CommitId::parse(text) {
        Some(id) => Ok(id),
        None if is_hex && text.len() < 40 => Err(ReferenceError::AbbreviatedCommit { text: text.into() }),
        None => Err(ReferenceError::NotACommitId { text: text.into() }),
    }
}

fn full_name(text: &str, purpose: Purpose) -> Result<RefName, ReferenceError> {
    if !text.starts_with("refs/") {
        return Err(ReferenceError::NotAFullName { text: text.into() });
    }
    let name = named("", "reference", text)?;
    let is_branch_or_tag = text.starts_with("refs/heads/") || text.starts_with("refs/tags/");
    match purpose {
        Purpose::Production if !is_branch_or_tag => {
            Err(ReferenceError::NotForProduction { text: text.into() })
        }
        Purpose::Production | Purpose::Review => Ok(name),
    }
}

fn named(before: &str, kind: &'static str, text: &str) -> Result<RefName, ReferenceError> {
    let full = format!("{before}{text}");
    let is_accepted = !text.starts_with('-') && gix::validate::reference::name(full.as_str().into()).is_ok();
    match is_accepted {
        true => Ok(RefName(full.into())),
        false => Err(ReferenceError::InvalidName { kind, text: text.into() }),
    }
}

fn shortened(full: &str) -> &str {
    full.strip_prefix("refs/heads/").or_else(|| full.strip_prefix("refs/tags/")).unwrap_or(full)
}

/// All that a repository says about its references, or the part that was asked for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Advertised {
    pub(crate) head: Option<AdvertisedHead>,
    pub(crate) tips: Vec<Tip>,
}

impl Advertised {
    /// True if there is no commit: a HEAD that is on no branch is one too.
    fn is_empty(&self) -> bool {
        self.tips.is_empty() && self.head.as_ref().is_none_or(|head| head.id.is_none())
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct AdvertisedHead {
    /// The branch it names; `None` if it is detached.
    pub(crate) branch: Option<String>,
    /// `None` if that branch has no commit yet.
    pub(crate) id: Option<ObjectId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tip {
    pub(crate) name: String,
    /// The object the name points to: for an annotated tag, the tag object.
    pub(crate) id: ObjectId,
    /// What the tag object points to in the end, if this is an annotated tag and it is known.
    pub(crate) peeled: Option<ObjectId>,
}

/// Where a reference leads now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolved {
    pub commit: CommitId,
    /// The full name that was followed; `None` for a commit named by its id and for a detached HEAD.
    pub reference: Option<Arc<str>>,
    /// The tag object, if an annotated tag was followed.
    pub tag: Option<CommitId>,
    /// The version that the tag stands for, if a range was followed.
    pub version: Option<Version>,
}

impl Resolved {
    /// A commit that no reference names.
    pub(super) fn unnamed(commit: CommitId) -> Self {
        Self { commit, reference: None, tag: None, version: None }
    }
}

/// One reference picked among the advertised ones; its object is not peeled yet if the server did not say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picked {
    pub(crate) reference: Option<Arc<str>>,
    pub(crate) id: ObjectId,
    pub(crate) peeled: Option<ObjectId>,
    pub(crate) version: Option<Version>,
}

/// Picks what `reference` means. `all` is asked for everything the repository has only to explain a failure.
pub(crate) fn pick(
    reference: &Reference,
    source_name: &str,
    advertised: &Advertised,
    all: impl FnOnce() -> Result<Advertised, GitError>,
) -> Result<Picked, GitError> {
    let of_tip = |tip: &Tip| Picked {
        reference: Some(tip.name.as_str().into()),
        id: tip.id,
        peeled: tip.peeled,
        version: None,
    };
    let find = |name: &str| advertised.tips.iter().find(|tip| tip.name == name);
    let source_name = || source_name.to_owned();
    match reference {
        Reference::Commit { id, .. } => {
            let object = ObjectId::from_hex(id.as_str().as_bytes());
            let id = object.map_err(|_| GitError::UnsupportedRepository {
                source_name: source_name(),
                what: "SHA-256 object ids".into(),
            })?;
            Ok(Picked { reference: None, id, peeled: None, version: None })
        }
        Reference::Head => match &advertised.head {
            Some(AdvertisedHead { branch, id: Some(id) }) => {
                let reference = branch.as_deref().map(Arc::from);
                Ok(Picked { reference, id: *id, peeled: None, version: None })
            }
            Some(AdvertisedHead { branch: Some(branch), id: None }) => {
                let all = all()?;
                match all.tips.is_empty() {
                    true => Err(GitError::EmptyRepository { source_name: source_name() }),
                    false => Err(GitError::UnbornHead {
                        source_name: source_name(),
                        branch: shortened(branch).into(),
                        near: nearest(shortened(branch), "refs/heads/", &all),
                    }),
                }
            }
            _ => {
                let all = all()?;
                match all.tips.is_empty() {
                    true => Err(GitError::EmptyRepository { source_name: source_name() }),
                    false => Err(not_found(source_name(), "HEAD".into(), "main", "refs/heads/", &all)),
                }
            }
        },
        Reference::Name(name) | Reference::Branch(name) | Reference::Tag(name) => {
            if let Some(tip) = find(name.as_str()) {
                return Ok(of_tip(tip));
            }
            let (kind, group) = match reference {
                Reference::Branch(_) => ("branch", "refs/heads/"),
                Reference::Tag(_) => ("tag", "refs/tags/"),
                _ => ("reference", "refs/"),
            };
            let shown = if kind == "reference" { name.as_str() } else { name.short() };
            let wanted = format!("{kind} `{shown}`");
            let all = all()?;
            match all.is_empty() {
                true => Err(GitError::EmptyRepository { source_name: source_name() }),
                false => Err(not_found(source_name(), wanted, shown, group, &all)),
            }
        }
        Reference::Any(name) => {
            let branch = find(&format!("refs/heads/{}", name.as_str()));
            let tag = find(&format!("refs/tags/{}", name.as_str()));
            match (branch, tag) {
                (Some(branch), Some(tag)) => Err(GitError::AmbiguousRef {
                    source_name: source_name(),
                    name: name.as_str().into(),
                    branch: branch.name.clone(),
                    tag: tag.name.clone(),
                }),
                (Some(tip), None) | (None, Some(tip)) => Ok(of_tip(tip)),
                // What a clone remembers of its remote: `origin/main`.
                (None, None) if let Some(tip) = find(&format!("refs/remotes/{}", name.as_str())) => {
                    Ok(of_tip(tip))
                }
                (None, None) => {
                    let all = all()?;
                    let wanted = match Abbreviation::parse(name.as_str()) {
                        Some(_) => format!("branch, tag or commit `{}`", name.as_str()),
                        None => format!("branch or tag `{}`", name.as_str()),
                    };
                    match all.is_empty() {
                        true => Err(GitError::EmptyRepository { source_name: source_name() }),
                        false => Err(not_found(source_name(), wanted, name.as_str(), "", &all)),
                    }
                }
            }
        }
        Reference::Semver { range, prefix } => pick_version(range, prefix, source_name(), advertised),
        Reference::Before { start, .. } => pick(start, &source_name(), advertised, all),
    }
}

fn pick_version(
    range: &VersionRange,
    prefix: &str,
    source_name: String,
    advertised: &Advertised,
) -> Result<Picked, GitError> {
    let group = format!("refs/tags/{prefix}");
    let mut versions: Vec<(Version, &Tip)> = advertised
        .tips
        .iter()
        .filter_map(|tip| Some((version::parse_tag(tip.name.strip_prefix(&group)?)?, tip)))
        .collect();
    versions.sort_by(|(a, a_tip), (b, b_tip)| a.cmp_precedence(b).then_with(|| a_tip.name.cmp(&b_tip.name)));
    match versions.iter().rev().find(|(version, _)| range.contains(version)) {
        Some((version, tip)) => Ok(Picked {
            reference: Some(tip.name.as_str().into()),
            id: tip.id,
            peeled: tip.peeled,
            version: Some(version.clone()),
        }),
        None => Err(GitError::NoVersionInRange {
            source_name,
            range: range.to_string(),
            prefix: prefix.into(),
            versions: versions
                .iter()
                .rev()
                .take(NEAR_MAX)
                .map(|(_, tip)| shortened(&tip.name).into())
                .collect(),
        }),
    }
}

/// How many names an error lists: enough to recognise one's own, few enough to read.
const NEAR_MAX: usize = 5;

fn not_found(source_name: String, wanted: String, near_to: &str, group: &str, all: &Advertised) -> GitError {
    GitError::RefNotFound { source_name, wanted, near: nearest(near_to, group, all) }
}

/// The most similar names of one group, most similar first; without a group, branches and tags by their short names.
fn nearest(wanted: &str, group: &str, all: &Advertised) -> Vec<String> {
    let names = all.tips.iter().filter(|tip| tip.name.starts_with(group));
    let mut names: Vec<(usize, &str)> = names
        .filter(|tip| !group.is_empty() || shortened(&tip.name) != tip.name)
        .map(|tip| if group == "refs/" { tip.name.as_str() } else { shortened(&tip.name) })
        .map(|name| (strsim::damerau_levenshtein(shortened(name), shortened(wanted)), name))
        .collect();
    names.sort_unstable();
    names.dedup();
    names.into_iter().take(NEAR_MAX).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests;
