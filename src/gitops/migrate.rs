//! Older versions of the language: what their words are called today, and files rewritten to say so.
//!
//! An old word keeps its meaning and earns a warning, so an update of Provisor breaks no repository. Rewriting replaces the
//! words where they stand and touches nothing else: comments, order, spaces and quotes stay as somebody wrote them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::gitops::diagnostic::{Diagnostic, Diagnostics, Place};
use crate::gitops::fleet::{FLEET_FILE, environment_of};
use crate::gitops::read::{Format, document, text_of};
use crate::gitops::schema::SchemaKind;
use crate::gitops::tree::{Map, Node, Tree};
use crate::model::repository::Repository;

/// The version of the language that this build writes, and the newest that it reads.
pub(crate) const FORMAT_VERSION: i64 = 1;

/// Words of a pool that version 0, the language before its first release, called otherwise: in version 1 all that choose
/// instances start with `instance-`.
pub(crate) const RENAMED: [(&str, &str); 3] = [
    ("min-instance-generation", "instance-generation-min"),
    ("min-instance-cpu", "instance-cpu-min"),
    ("max-instance-cpu", "instance-cpu-max"),
];

/// A file in the newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigratedFile {
    pub path: Arc<str>,
    pub text: String,
    /// What was replaced, from the top.
    pub changes: Vec<WordChange>,
}

/// One word that was replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WordChange {
    pub line: u32,
    pub from: String,
    pub to: String,
}

/// Bytes of a file, and what stands there in the newest version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Edit {
    place: Place,
    from: String,
    to: String,
}

/// The strategy files that are not in the newest version, rewritten. One file that cannot be rewritten stops them all.
pub fn migrate(repository: &Repository) -> Result<Vec<MigratedFile>, Diagnostics> {
    let mut found = Vec::new();
    let mut files = Vec::new();
    for (path, bytes) in &repository.files {
        let (kind, format) = if &**path == FLEET_FILE {
            (SchemaKind::Fleet, Format::Toml)
        } else if let Some((_, format)) = environment_of(path) {
            (SchemaKind::Environment, format)
        } else {
            continue;
        };
        files.extend(migrate_file(path, bytes, kind, format, &mut found));
    }
    found.retain(Diagnostic::is_error);
    match found.is_empty() {
        true => Ok(files),
        false => {
            let mut all = Diagnostics::default();
            all.extend(found);
            Err(all.sorted())
        }
    }
}

fn migrate_file(
    path: &Arc<str>,
    bytes: &[u8],
    kind: SchemaKind,
    format: Format,
    found: &mut Vec<Diagnostic>,
) -> Option<MigratedFile> {
    let source = text_of(path, bytes, found)?;
    let mut tree = document(&source, format, found)?;
    let mut edits = modernise(&mut tree, kind, found);
    if edits.is_empty() {
        return None;
    }
    edits.sort_by_key(|edit| (edit.place.start, edit.place.end));
    // An anchor that is used twice is one place in the text.
    edits.dedup_by(|later, earlier| later.place == earlier.place);
    let mut text = source.text.to_string();
    let mut changes = Vec::new();
    for edit in edits.iter().rev() {
        let written = &source.text[edit.place.bytes()];
        if !written.contains(&edit.from) {
            let message = format!("`{}` is spelt so that it cannot be rewritten", edit.from);
            found.push(
                Diagnostic::error("PRV1211", edit.place.clone(), message)
                    .help(format!("write `{}` here yourself", edit.to)),
            );
            return None;
        }
        text.replace_range(edit.place.bytes(), &written.replacen(&edit.from, &edit.to, 1));
        let (line, _) = edit.place.position();
        changes.push(WordChange { line, from: edit.from.clone(), to: edit.to.clone() });
    }
    changes.reverse();
    // The new text must say what the old one said; anything else would be a mistake of ours.
    let mut again = Vec::new();
    let rewritten = text_of(path, text.as_bytes(), &mut again)
        .and_then(|source| document(&source, format, &mut again))
        .map(|mut tree| (modernise(&mut tree, kind, &mut again).is_empty(), tree));
    match rewritten {
        Some((true, new)) if same_but_version(&new, &tree) => {
            Some(MigratedFile { path: path.clone(), text, changes })
        }
        _ => {
            let message = "the file cannot be rewritten without changing what it says";
            found.push(
                Diagnostic::error("PRV1211", Place::start_of(&source), message)
                    .help("replace the old words by hand; `provisor validate` names them"),
            );
            None
        }
    }
}

fn same_but_version(new: &Node, old: &Node) -> bool {
    let plain = |node: &Node| {
        let mut json = node.to_json();
        if let Some(map) = json.as_object_mut() {
            map.shift_remove("format_version");
        }
        json
    };
    plain(new) == plain(old)
}

/// Gives the words of older versions their new names, in the tree only. Returns where the text would have to change.
pub(crate) fn modernise_tree(tree: &mut Node, kind: SchemaKind, found: &mut Vec<Diagnostic>) {
    modernise(tree, kind, found);
}

fn modernise(tree: &mut Node, kind: SchemaKind, found: &mut Vec<Diagnostic>) -> Vec<Edit> {
    let mut edits = Vec::new();
    let version = tree.get("format_version").cloned();
    let number = version.as_ref().and_then(|node| match node.value {
        Tree::Int(number) => Some(number),
        _ => None,
    });
    if let (Some(version), Some(number)) = (&version, number) {
        if number > FORMAT_VERSION {
            let message =
                format!("the file needs format version {number}, and this build reads {FORMAT_VERSION}");
            found.push(
                Diagnostic::error("PRV1208", version.place.clone(), message)
                    .help(format!("update provisor to a release that reads format version {number}")),
            );
            return edits;
        }
        if (0..FORMAT_VERSION).contains(&number) {
            let message =
                format!("the file is written in format version {number}; the newest is {FORMAT_VERSION}");
            found.push(
                Diagnostic::warning("PRV1209", version.place.clone(), message)
                    .help("run `provisor migrate`: it rewrites the old words and leaves comments and order"),
            );
            edits.push(Edit {
                place: version.place.clone(),
                from: number.to_string(),
                to: FORMAT_VERSION.to_string(),
            });
        }
    }
    let mut words = Words { is_newest: number == Some(FORMAT_VERSION), found, edits: &mut edits };
    let Tree::Map(map) = &mut tree.value else { return edits };
    if kind == SchemaKind::Environment
        && let Some(Tree::Map(pools)) = map.0.get_mut("pools").map(|entry| &mut entry.node.value)
    {
        pools.0.values_mut().for_each(|entry| words.pool(&mut entry.node));
    }
    if let Some(Tree::Map(defaults)) = map.0.get_mut("defaults").map(|entry| &mut entry.node.value)
        && let Some(entry) = defaults.0.get_mut("pool")
    {
        words.pool(&mut entry.node);
    }
    if let Some(Tree::List(finals)) = map.0.get_mut("final").map(|entry| &mut entry.node.value) {
        finals.iter_mut().for_each(|path| words.path(path));
    }
    if let Some(Tree::Map(promotion)) = map.0.get_mut("promotion").map(|entry| &mut entry.node.value)
        && let Some(Tree::List(paths)) = promotion.0.get_mut("paths").map(|entry| &mut entry.node.value)
    {
        paths.iter_mut().for_each(|path| words.path(path));
    }
    edits
}

struct Words<'a> {
    /// The file says that it is in the newest version, which no longer has the old words.
    is_newest: bool,
    found: &'a mut Vec<Diagnostic>,
    edits: &'a mut Vec<Edit>,
}

impl Words<'_> {
    fn pool(&mut self, pool: &mut Node) {
        let Tree::Map(map) = &mut pool.value else { return };
        for (old, new) in RENAMED {
            let Some(entry) = map.0.get(old) else { continue };
            let place = entry.key.clone();
            if let Some(other) = map.0.get(new) {
                let message = format!("`{old}` and `{new}` are the same word, and both are set");
                self.found.push(
                    Diagnostic::error("PRV1011", place, message)
                        .also("the other one", other.key.clone())
                        .help(format!("keep `{new}`")),
                );
                continue;
            }
            self.note(old, new, place);
            rename(map, old, new);
        }
    }

    /// A dotted path, in which the word of a pool stands behind the pool's name. What somebody called so keeps its name.
    fn path(&mut self, node: &mut Node) {
        let Tree::Text(text, quoting) = &node.value else { return };
        let (text, quoting) = (text.clone(), *quoting);
        let mut parts: Vec<&str> = text.split('.').collect();
        let word = match parts.as_slice() {
            ["pools", _, word, ..] | ["defaults", "pool", word, ..] => *word,
            _ => return,
        };
        let Some((old, new)) = RENAMED.iter().find(|(old, _)| *old == word) else { return };
        parts[2] = new;
        let renamed = parts.join(".");
        // The word may stand before as a name.
        match text.matches(old).count() {
            1 => self.note(old, new, node.place.clone()),
            _ => self.note(&text, &renamed, node.place.clone()),
        }
        node.value = Tree::Text(renamed.into(), quoting);
    }

    fn note(&mut self, old: &str, new: &str, place: Place) {
        let message = format!("`{old}` is called `{new}` since format version {FORMAT_VERSION}");
        let diagnostic = match self.is_newest {
            true => Diagnostic::error("PRV1210", place.clone(), message).help(format!("write `{new}`")),
            false => Diagnostic::warning("PRV1210", place.clone(), message)
                .help("run `provisor migrate`: it rewrites the old words and leaves comments and order"),
        };
        self.found.push(diagnostic);
        self.edits.push(Edit { place, from: old.to_owned(), to: new.to_owned() });
    }
}

/// The same entry under another name, at its place in the order.
fn rename(map: &mut Map, old: &str, new: &str) {
    let entries = std::mem::take(&mut map.0);
    map.0 = entries
        .into_iter()
        .map(|(key, entry)| if &*key == old { (Arc::from(new), entry) } else { (key, entry) })
        .collect();
}

/// Files by path with their new text, for whoever writes them.
pub fn texts(files: &[MigratedFile]) -> BTreeMap<Arc<str>, Arc<[u8]>> {
    files.iter().map(|file| (file.path.clone(), Arc::from(file.text.as_bytes()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ren_037_migrating_keeps_comments_order_and_spelling() {
        let toml = "# the shop\r\nformat_version = 0 # old\r\nfinal = ['pools.*.max-instance-cpu']\r\n\r\n[pools]\r\n  general.\"min-instance-cpu\"  =  4   # enough\r\n  general.strategy = 'spot'\r\n[defaults.pool]\r\nx-note = 'min-instance-cpu stays here'\r\nmax-instance-cpu=8\r\n[promotion]\r\nfrom = ['dev']\r\npaths = ['pools.*.limits', 'pools.*.min-instance-generation'] # the rest\r\n";
        let yaml = "pools:\n  # big ones\n  a: &base\n    strategy: spot\n    min-instance-generation: 6 # new\n  b: *base\n";
        let repository = Repository::for_test(&[
            ("fleet.toml", "name = 'shop'\n"),
            ("environments/dev.yaml", yaml),
            ("environments/prod.toml", toml),
            ("templates/own.yaml.j2", "{{ pool.min_instance_cpu }} min-instance-cpu"),
        ]);
        let files = migrate(&repository).expect("it can be rewritten");
        let [dev, prod] = files.as_slice() else { panic!("{files:?}") };
        assert_eq!(dev.text, yaml.replace("min-instance-generation:", "instance-generation-min:"));
        let wanted = toml
            .replace("format_version = 0", "format_version = 1")
            .replace("*.max-instance-cpu", "*.instance-cpu-max")
            .replace("\"min-instance-cpu\"", "\"instance-cpu-min\"")
            .replace("max-instance-cpu=8", "instance-cpu-max=8")
            .replace("*.min-instance-generation", "*.instance-generation-min");
        assert_eq!(prod.text, wanted);
        let lines: Vec<u32> = prod.changes.iter().map(|change| change.line).collect();
        assert_eq!(lines, [2, 3, 6, 10, 13]);
        let mut after = repository.clone();
        after.files.extend(texts(&files));
        assert_eq!(migrate(&after), Ok(vec![]), "a second time changes nothing");
    }

    #[test]
    fn what_somebody_called_like_an_old_word_keeps_its_name() {
        let kept = "format_version = 1\n[variables]\nmin-instance-cpu = 2\n[pools.max-instance-cpu]\nstrategy = 'spot'\nlabels = { min-instance-cpu = 'a' }\n";
        let paths = |word: &str| {
            format!(
                "final = ['variables.min-instance-cpu', 'pools.max-instance-cpu.{word}']\n{kept}[promotion]\nfrom = ['dev']\n\
                 paths = ['pools.max-instance-cpu.limits', 'pools.*.variables.max-instance-cpu', 'pools.*.labels.min-instance-cpu', 'pools.*.{word}']\n"
            )
        };
        let old = paths("max-instance-cpu").replace("format_version = 1", "format_version = 0");
        let repository =
            Repository::for_test(&[("fleet.toml", "name = 'shop'\n"), ("environments/prod.toml", &old)]);
        let files = migrate(&repository).expect("it can be rewritten");
        assert_eq!(files[0].text, paths("instance-cpu-max"));
    }

    #[test]
    fn what_cannot_be_rewritten_stops_everything() {
        for text in [
            "[pools.a]\nmin-instance-cpu = 1\ninstance-cpu-min = 2\n",
            "[pools.a]\n\"min\\u002dinstance-cpu\" = 1\n",
            "format_version = 3\n[pools.a]\nmin-instance-cpu = 1\n",
            "[pools.a\n",
        ] {
            let files = [
                ("fleet.toml", "name = 'shop'\ndefaults.pool.max-instance-cpu = 4\n"),
                ("environments/a.toml", text),
            ];
            let found = migrate(&Repository::for_test(&files)).expect_err(text);
            assert!(found.iter().all(|one| &**one.place.file() == "environments/a.toml"), "{found}");
        }
    }
}
