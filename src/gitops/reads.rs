//! What an environment reads of a commit, and whether that is different in another one.
//!
//! A commit that touches nothing of it needs no work at all. The question is answered by content, never by what a webhook or
//! a history claims: a fingerprint of everything that took part in a rendering, compared with the same of the next commit. A
//! file that is not there takes part too, because its appearance could change the outcome.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use sha2::{Digest, Sha256};
use thiserror::Error;

use super::fleet::{ENVIRONMENTS, FLEET_FILE, Fleet, TEMPLATES, environment_of};
use super::guardrail::POLICIES;
use super::lock::LOCK_FILE;
use super::tree::{Node, Tree};
use crate::model::repository::Repository;

/// Further paths whose changes count, as the cluster's configuration names them.
///
/// `*` and `?` stay within one part of a path, `**` crosses; a directory means everything below it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct WatchPath(String);

#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` cannot be watched: {why}")]
pub struct WatchPathError {
    pub text: String,
    pub why: &'static str,
}

impl WatchPath {
    pub fn parse(text: &str) -> Result<Self, WatchPathError> {
        let refused = |why| Err(WatchPathError { text: text.into(), why });
        let path = text.strip_prefix("./").unwrap_or(text).trim_end_matches('/');
        if path.starts_with('/') {
            return refused("the path is absolute; write it from the directory of the fleet");
        }
        if path.is_empty() {
            return refused("it is empty");
        }
        if path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return refused("a part of the path is empty, `.` or `..`");
        }
        if path.chars().any(|letter| letter.is_control() || letter == '\\') {
            return refused("it has a backslash or a control character");
        }
        Ok(Self(path.into()))
    }

    fn covers(&self, path: &str) -> bool {
        let pattern: Vec<&str> = self.0.split('/').collect();
        let parts: Vec<&str> = path.split('/').collect();
        covers(&pattern, &parts)
    }
}

impl fmt::Display for WatchPath {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

/// Whether the pattern matches the path or a directory above it.
fn covers(pattern: &[&str], parts: &[&str]) -> bool {
    match (pattern.split_first(), parts.split_first()) {
        (None, _) => true,
        (Some((&"**", rest)), _) => {
            rest.is_empty() || (0..parts.len()).any(|skipped| covers(rest, &parts[skipped..]))
        }
        (Some(_), None) => false,
        (Some((first, pattern)), Some((part, parts))) => {
            super::window::matches(first, part) && covers(pattern, parts)
        }
    }
}

/// What one rendering of an environment depends on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reads {
    /// Whole names; `environments/prod.` stands for that name with every ending.
    files: BTreeSet<Arc<str>>,
    folders: BTreeSet<Arc<str>>,
    watched: Vec<WatchPath>,
}

impl Reads {
    /// What rendering `environment` of this commit reads, and what is watched besides.
    pub fn of(repository: &Repository, environment: &str, watched: &[WatchPath]) -> Self {
        let mut reads = Self {
            files: BTreeSet::from([FLEET_FILE.into(), LOCK_FILE.into()]),
            folders: BTreeSet::from([TEMPLATES.into(), POLICIES.into()]),
            watched: watched.to_vec(),
        };
        let resolved = Fleet::load(repository).and_then(|fleet| fleet.resolve(environment));
        match resolved {
            Ok(resolved) => {
                for file in resolved.layers.iter().map(|layer| layer.tree.place.file()) {
                    let stem = environment_of(file).map(|(name, _)| format!("{ENVIRONMENTS}{name}."));
                    reads.files.insert(stem.map_or_else(|| file.clone(), Into::into));
                }
                reads.files.insert(format!("{ENVIRONMENTS}{environment}.").into());
                reads.add_named_files(&resolved.tree);
            }
            // Any of them could mend it.
            Err(_) => drop(reads.folders.insert(ENVIRONMENTS.into())),
        }
        reads
    }

    fn add_named_files(&mut self, node: &Node) {
        match &node.value {
            Tree::Map(map) => {
                for (key, entry) in map.iter() {
                    match (&**key, entry.node.as_text()) {
                        ("user-data-file", Some(path)) => drop(self.files.insert(path.clone())),
                        _ => self.add_named_files(&entry.node),
                    }
                }
            }
            Tree::List(items) => items.iter().for_each(|item| self.add_named_files(item)),
            _ => {}
        }
    }

    fn includes(&self, path: &str) -> bool {
        let is_named = self.files.iter().any(|file| match file.strip_suffix('.') {
            Some(_) => path.starts_with(&**file),
            None => &**file == path,
        });
        is_named
            || self.folders.iter().any(|folder| path.starts_with(&**folder))
            || self.watched.iter().any(|watched| watched.covers(path))
    }

    /// A refused directory stands for everything that could have been in it.
    fn could_hold(&self, refused: &str) -> bool {
        let inside = format!("{refused}/");
        self.files.iter().chain(&self.folders).any(|path| path.starts_with(&inside))
            || self.watched.iter().any(|watched| watched.0.starts_with(&inside) || watched.0.starts_with('*'))
    }

    /// Names the content of all that is read: equal for two commits that render the same.
    pub fn fingerprint(&self, repository: &Repository) -> Fingerprint {
        let mut hash = Sha256::new();
        let mut take = |part: &[u8]| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        for watched in &self.watched {
            take(watched.0.as_bytes());
        }
        take(b"files");
        for (path, content) in repository.files.iter().filter(|(path, _)| self.includes(path)) {
            take(path.as_bytes());
            take(content);
        }
        take(b"refused");
        let is_part = |path: &str| self.includes(path) || self.could_hold(path);
        for (path, refusal) in repository.refused.iter().filter(|(path, _)| is_part(path)) {
            take(path.as_bytes());
            take(refusal.to_string().as_bytes());
        }
        Fingerprint(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    }
}

/// See [`Reads::fingerprint`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(String);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::repository::Refusal;

    const FILES: [(&str, &str); 6] = [
        ("fleet.toml", "name = \"shop\"\n"),
        ("environments/base.toml", "abstract = true\n[classes.own]\nuser-data-file = \"boot/node.sh\"\n"),
        ("environments/prod.toml", "extends = \"base\"\n[pools.general]\nstrategy = \"own\"\n"),
        ("environments/dev.toml", "[pools.general]\nstrategy = \"spot\"\n"),
        ("templates/own.yaml.j2", "{% include 'deep/part.j2' %}"),
        ("boot/node.sh", "true"),
    ];

    #[test]
    fn what_a_rendering_reads_is_noticed_and_nothing_else() {
        let before = Repository::for_test(&FILES);
        let reads = Reads::of(&before, "prod", &[]);
        let is_noticed = |path: &str| {
            let mut after = before.clone();
            after.files.insert(path.into(), b"other".as_slice().into());
            reads.fingerprint(&after) != reads.fingerprint(&before)
        };
        for path in [
            "fleet.toml",
            "provisor.lock",
            "environments/prod.toml",
            "environments/prod.yaml",
            "environments/base.toml",
            "templates/own.yaml.j2",
            "templates/deep/part.j2",
            "templates/spot.yaml.j2",
            "boot/node.sh",
            "policies/spend.toml",
        ] {
            assert!(is_noticed(path), "{path}");
        }
        for path in
            ["docs/index.md", "environments/dev.toml", "environments/production.toml", "boot/other.sh"]
        {
            assert!(!is_noticed(path), "{path}");
        }
        let mut refused = before.clone();
        refused.refused.insert("boot".into(), Refusal::Submodule);
        assert_ne!(reads.fingerprint(&refused), reads.fingerprint(&before));
    }

    #[test]
    fn an_environment_that_does_not_resolve_reads_all_of_them() {
        let broken =
            Repository::for_test(&[FILES[0], FILES[3], ("environments/prod.toml", "extends = \"base\"\n")]);
        let reads = Reads::of(&broken, "prod", &[]);
        let mended = Repository::for_test(&FILES);
        assert_ne!(reads.fingerprint(&mended), reads.fingerprint(&broken));
    }

    #[test]
    fn watched_paths_are_globs_inside_of_the_repository() {
        for (pattern, path, is_covered) in [
            ("base", "base/a/b.toml", true),
            ("base", "base2/a", false),
            ("shared/*.toml", "shared/a.toml", true),
            ("shared/*.toml", "shared/deep/a.toml", false),
            ("shared/**/*.toml", "shared/deep/er/a.toml", true),
            ("**/*.md", "README.md", true),
            ("shared/**", "shared/a", true),
        ] {
            let watched = WatchPath::parse(pattern).expect(pattern);
            assert_eq!(watched.covers(path), is_covered, "{pattern} {path}");
        }
        for text in ["/etc", "../other", "a/../b", "", "a//b", "a\\b"] {
            assert!(WatchPath::parse(text).is_err(), "{text:?}");
        }
    }
}
