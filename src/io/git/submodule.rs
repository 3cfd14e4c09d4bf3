//! Submodules, where they are allowed: read like a source of their own, one level deep, at the commit that is pinned.
//!
//! `.gitmodules` is content, so whoever may commit could name any address there. Only addresses below the allowed prefixes are
//! contacted, by the rules of every source, and with no other credentials than a template has for them.

use std::path::Path;
use std::sync::atomic::AtomicBool;

use gix::bstr::ByteSlice;

use super::access::Access;
use super::error::GitError;
use super::reference::{Reference, Resolved};
use super::tree::{Gitlink, Objects};
use super::url::{RepositoryUrl, UrlRules};
use super::{Progress, Source};
use crate::model::repository::Repository;

/// A submodule that may be read.
pub(super) struct Submodule {
    path: String,
    url: String,
    pinned: Resolved,
}

/// The addresses of gitlinks, each judged. Without any allowed prefix submodules are not looked at.
pub(super) fn find(
    objects: &Objects<'_>,
    resolved: &Resolved,
    gitlinks: Vec<Gitlink>,
    source: &Source,
) -> Result<Vec<Submodule>, GitError> {
    if source.submodules.is_empty() || gitlinks.is_empty() {
        return Ok(Vec::new());
    }
    let text = objects.top_file(&resolved.commit, ".gitmodules")?.unwrap_or_default();
    gitlinks
        .into_iter()
        .map(|link| {
            let refused = |url: &str, why: &str| GitError::SubmoduleRefused {
                path: link.path.clone(),
                url: url.into(),
                why: why.into(),
            };
            let url = url_of(&text, &link.place)
                .ok_or_else(|| refused("", "`.gitmodules` has no address for it"))?;
            let url = absolute(&url, &source.url).ok_or_else(|| refused(&url, "it leaves its server"))?;
            let rules = UrlRules { allow_insecure_http: source.allow_insecure_http, allow_local: false };
            let parsed = RepositoryUrl::parse(&url, rules).map_err(|error| {
                // An address with a secret in it is not repeated.
                refused("", &error.to_string())
            })?;
            if !source.submodules.iter().any(|prefix| prefix.covers(&parsed)) {
                return Err(refused(&parsed.to_string(), "it is not below an allowed prefix"));
            }
            let pinned = Resolved { commit: link.commit.clone(), reference: None, tag: None, version: None };
            Ok(Submodule { path: link.path, url, pinned })
        })
        .collect()
}

/// Reads a submodule and adds its files below its path. All limits hold for it, and the sums for everything together.
pub(super) fn read_into(
    repository: &mut Repository,
    submodule: &Submodule,
    parent: &Source,
    cache: &Path,
    progress: &Progress<'_>,
    should_stop: &AtomicBool,
) -> Result<(), GitError> {
    let source = Source {
        url: submodule.url.clone(),
        reference: Reference::Commit { id: submodule.pinned.commit.clone(), branch: None },
        subdirectory: super::Subdirectory::default(),
        allow_local: false,
        submodules: Vec::new(),
        access: Access { credentials: None, ..parent.access.clone() },
        ..parent.clone()
    };
    let read = super::open(&source, cache)?.fetch(&submodule.pinned, progress, should_stop)?;
    repository.refused.remove(&*submodule.path);
    let below = |path: &str| format!("{}/{path}", submodule.path).into();
    repository.files.extend(read.files.into_iter().map(|(path, content)| (below(&path), content)));
    repository.refused.extend(read.refused.into_iter().map(|(path, refusal)| (below(&path), refusal)));
    let source_name = || format!("`{}` with its submodules", parent.url);
    if repository.files.len() > parent.limits.files {
        return Err(GitError::TooManyFiles {
            source_name: source_name(),
            what: "files",
            limit: parent.limits.files,
            path: submodule.path.clone(),
        });
    }
    let bytes: u64 = repository.files.values().map(|content| content.len() as u64).sum();
    if bytes > parent.limits.total_bytes {
        return Err(GitError::ContentTooLarge {
            source_name: source_name(),
            limit: parent.limits.total_bytes,
            path: submodule.path.clone(),
        });
    }
    Ok(())
}

/// The address that `.gitmodules` has for a path.
fn url_of(text: &[u8], place: &str) -> Option<String> {
    let file = gix::config::File::try_from(text.to_str().ok()?).ok()?;
    let mut sections = file.sections_by_name("submodule")?;
    sections.find_map(|section| {
        let is_meant = section.value("path").is_some_and(|path| path.to_str_lossy() == place);
        is_meant.then(|| section.value("url")).flatten().map(|url| url.to_str_lossy().into_owned())
    })
}

/// A relative address counts from the parent's; it never leaves the parent's server.
fn absolute(url: &str, parent: &str) -> Option<String> {
    if !(url.starts_with("./") || url.starts_with("../")) {
        return Some(url.to_owned());
    }
    let parent = parent.trim_end_matches('/');
    let root = match parent.split_once("://") {
        Some((scheme, rest)) => scheme.len() + 3 + rest.find('/')?,
        None => parent.find(':')? + 1,
    };
    let (root, path) = parent.split_at(root);
    let mut parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    for part in url.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    let slash = if root.ends_with(':') { "" } else { "/" };
    Some(format!("{root}{slash}{}", parts.join("/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_addresses_count_from_the_parent_and_stay_on_its_server() {
        for (url, parent, absolute_url) in [
            ("../other", "https://h/team/fleet", Some("https://h/team/other")),
            ("./sub", "https://h/team/fleet/", Some("https://h/team/fleet/sub")),
            ("../../x/y.git", "ssh://git@h:22/a/b", Some("ssh://git@h:22/x/y.git")),
            ("../other", "git@h:team/fleet", Some("git@h:team/other")),
            ("../../../x", "https://h/team/fleet", None),
            ("https://else/x", "https://h/team/fleet", Some("https://else/x")),
        ] {
            assert_eq!(absolute(url, parent).as_deref(), absolute_url, "{url} at {parent}");
        }
    }
}
