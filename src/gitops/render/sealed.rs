//! What `final` means for `overrides`: a word that may not change may not be overridden in the object either.
//!
//! Which fields of the object a word becomes is asked of the template itself: those whose origin is the word. A word
//! that is not set is tried with the example of its schema.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Run;
use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::normal;
use crate::gitops::overlay::merge;
use crate::gitops::overrides::{self, leads_into, overlap, written};
use crate::gitops::read::{Format, document};
use crate::gitops::rendered::{Draft, Origins};
use crate::gitops::schema::{Draft as SchemaDraft, SchemaKind, schema_value};
use crate::gitops::tree::{Entry, Map, Node, Tree};

const REQUIREMENTS: &str = "spec.template.spec.requirements";

/// A pool or a class that is being rendered.
pub(super) struct Subject<'s> {
    /// `pools` or `classes`.
    pub table: &'static str,
    pub name: &'s str,
    pub node: &'s Node,
    pub key: &'s Place,
}

/// A mark that concerns the subject.
struct Mark<'m> {
    /// The layer that has it: those above may not change the word.
    layer: usize,
    word: &'m str,
    /// What follows the word: one key of a table.
    rest: String,
    /// As it is written.
    path: String,
    wish: &'m Place,
}

/// A field of the object that a final word becomes.
#[derive(Clone, Debug, PartialEq)]
enum Sealed {
    Path(String),
    /// The requirements on a label.
    Label(String),
}

/// Overrides of one layer: what they write, and the entry that holds them.
struct Written<'w> {
    path: String,
    place: &'w Place,
}

impl Subject<'_> {
    fn kind(&self) -> &'static str {
        if self.table == "pools" { "NodePool" } else { "EC2NodeClass" }
    }

    /// The name under `defaults`.
    fn default(&self) -> &'static str {
        if self.table == "pools" { "pool" } else { "class" }
    }

    fn mark<'m>(&self, layer: usize, path: &'m [String], wish: &'m Place) -> Option<Mark<'m>> {
        let [table, name, word, rest @ ..] = path else { return None };
        let is_own = table == self.table && (name == "*" || name == self.name);
        let is_default = table == "defaults" && name == self.default();
        if !(is_own || is_default) {
            return None;
        }
        let rest =
            rest.iter().take_while(|key| *key != "*").map(String::as_str).collect::<Vec<_>>().join(".");
        // A file is a way to write the same field.
        let word = if word == "user-data-file" { "user-data" } else { word };
        Some(Mark { layer, word, rest, path: path.join("."), wish })
    }

    /// The object that `overrides` are merged onto.
    fn draft<'d>(&self, drafts: &'d [Draft]) -> Option<&'d Draft> {
        let mut of_kind = drafts.iter().filter(|draft| draft.manifest["kind"] == self.kind());
        let is_named = |draft: &&Draft| draft.manifest["metadata"]["name"] == self.name;
        of_kind.clone().find(is_named).or_else(|| of_kind.next())
    }

    /// `overrides` as a layer has them for the subject.
    fn overrides<'l>(&self, layer: &'l Node) -> impl Iterator<Item = &'l Entry> + use<'l> {
        let own = layer.at([self.table, self.name]);
        let default = layer.at(["defaults", self.default()]);
        [own, default].into_iter().flatten().filter_map(|node| node.entry("overrides"))
    }
}

impl Run<'_> {
    /// Tells the overrides that change what a lower layer marked as final. `render` makes drafts of another entry.
    pub(super) fn check_sealed(
        &mut self,
        subject: &Subject<'_>,
        drafts: &[Draft],
        render: impl Fn(&mut Self, &Node) -> Option<Vec<Draft>>,
    ) {
        let resolved = self.resolved;
        let layers = &resolved.layers;
        let marks: Vec<Mark<'_>> = layers
            .iter()
            .enumerate()
            .flat_map(|(at, layer)| layer.finals.iter().map(move |(path, wish)| (at, path, wish)))
            .filter_map(|(at, path, wish)| subject.mark(at, path, wish))
            .filter(|mark| {
                layers[mark.layer + 1..].iter().any(|above| subject.overrides(&above.tree).next().is_some())
            })
            .collect();
        let Some(draft) = subject.draft(drafts).filter(|_| !marks.is_empty()) else { return };
        let mut sealed: Vec<Vec<Sealed>> =
            marks.iter().map(|mark| mark.becomes(subject.node, draft)).collect();
        if sealed.iter().any(Vec::is_empty) {
            let unset = marks.iter().zip(&sealed).filter(|(_, sealed)| sealed.is_empty());
            let words: Vec<&str> = unset.map(|(mark, _)| mark.word).collect();
            let tried = tried(subject, &words);
            // What is said of an example concerns nobody.
            let (found, unfinished, bytes) = (self.found.len(), self.unfinished.len(), self.bytes);
            let drafts = render(self, &tried).unwrap_or_default();
            self.found.truncate(found);
            self.unfinished.truncate(unfinished);
            self.bytes = bytes;
            if let Some(draft) = subject.draft(&drafts) {
                for (mark, sealed) in marks.iter().zip(&mut sealed).filter(|(_, sealed)| sealed.is_empty()) {
                    *sealed = mark.becomes(&tried, draft);
                }
            }
        }
        for (mark, sealed) in marks.iter().zip(&sealed).filter(|(_, sealed)| !sealed.is_empty()) {
            self.check_mark(subject, draft, mark, sealed);
        }
    }

    fn check_mark(&mut self, subject: &Subject<'_>, draft: &Draft, mark: &Mark<'_>, sealed: &[Sealed]) {
        let resolved = self.resolved;
        let (below, above) = resolved.layers.split_at(mark.layer + 1);
        let lower = merge(below, &mut Vec::new());
        let lower = lower.as_ref().and_then(|tree| Some(&subject.overrides(tree).next()?.node));
        let is_changed = |label: &str| {
            let (before, after) =
                (overridden(draft, lower), overridden(draft, subject.node.get("overrides")));
            asking(&before, label) != asking(&after, label)
        };
        for entry in above.iter().flat_map(|layer| subject.overrides(&layer.tree)) {
            let writes: Vec<Written<'_>> = match (entry.node.is_removal(), lower) {
                (false, _) => written(&entry.node).into_iter().map(Written::from).collect(),
                // What is taken away with all the others.
                (true, Some(lower)) => {
                    let paths = written(lower).into_iter();
                    paths.map(|(path, _)| Written { path, place: &entry.key }).collect()
                }
                (true, None) => Vec::new(),
            };
            for Written { path, place } in writes {
                let hit = sealed.iter().find(|sealed| match sealed {
                    Sealed::Path(sealed) => overlap(sealed, &path),
                    Sealed::Label(label) => overlap(REQUIREMENTS, &path) && is_changed(label),
                });
                let is_told = |one: &Diagnostic| {
                    one.code == "PRV1304"
                        && one.place == *place
                        && one.chain.iter().any(|link| link.place == *mark.wish)
                };
                if hit.is_none() || self.found.iter().any(is_told) {
                    continue;
                }
                let message = format!("`{}` is final, and `{path}` overrides what it becomes", mark.path);
                self.found.push(
                    Diagnostic::error("PRV1304", place.clone(), message)
                        .also("marked final here", mark.wish.clone())
                        .help("remove the override, or lift the mark there"),
                );
            }
        }
    }
}

impl<'w> From<(String, &'w Place)> for Written<'w> {
    fn from((path, place): (String, &'w Place)) -> Self {
        Self { path, place }
    }
}

impl Mark<'_> {
    /// The fields of an object that come from the word of `entry`.
    fn becomes(&self, entry: &Node, draft: &Draft) -> Vec<Sealed> {
        if self.word == "requirements" {
            let whole = || Sealed::Path(REQUIREMENTS.to_owned());
            return vec![if self.rest.is_empty() { whole() } else { Sealed::Label(self.rest.clone()) }];
        }
        let word = match self.word {
            "user-data" => entry.get("user-data-file").or_else(|| entry.get("user-data")),
            word => entry.get(word),
        };
        let Some(word) = word else { return Vec::new() };
        let inner = word.get(&self.rest).or_else(|| word.at(self.rest.split('.')));
        let mut places = Vec::new();
        match inner {
            _ if self.rest.is_empty() => places_in(word, &mut places),
            Some(inner) => places_in(inner, &mut places),
            // A table stands in the object as it is, with any further key.
            None => places.push(&word.place),
        }
        let mut sealed: Vec<Sealed> = Vec::new();
        for (path, _) in draft.origins.iter().filter(|(_, place)| places.contains(place)) {
            let one = match self.requirement(path, draft) {
                Some(label) => Sealed::Label(label),
                None => {
                    let path = path.split('[').next().unwrap_or(path);
                    let value = draft.manifest.pointer(&format!("/{}", path.replace('.', "/")));
                    let is_new_key = !self.rest.is_empty() && inner.is_none();
                    match is_new_key && value.is_some_and(Value::is_object) {
                        true => Sealed::Path(format!("{path}.{}", self.rest)),
                        false => Sealed::Path(path.to_owned()),
                    }
                }
            };
            // What is inside of another is sealed with it.
            let is_known = sealed.iter().any(|known| match (known, &one) {
                (Sealed::Path(known), Sealed::Path(one)) => leads_into(known, one),
                (known, one) => known == one,
            });
            if !is_known {
                sealed.push(one);
            }
        }
        sealed
    }

    /// The label of the requirement that a path of the object leads into.
    fn requirement(&self, path: &str, draft: &Draft) -> Option<String> {
        let index = path.strip_prefix(REQUIREMENTS)?.strip_prefix('[')?.split(']').next()?;
        let index: usize = index.parse().ok()?;
        let requirement = &draft.manifest["spec"]["template"]["spec"]["requirements"][index];
        Some(requirement["key"].as_str()?.to_owned())
    }
}

/// The entry of a subject with the examples of words.
fn tried(subject: &Subject<'_>, words: &[&str]) -> Node {
    let schema = schema_value(SchemaKind::Environment, SchemaDraft::Latest);
    let kind = if subject.table == "pools" { "Pool" } else { "Class" };
    let mut out = subject.node.clone();
    // These decide what is rendered, and become no field.
    for word in words.iter().filter(|word| !matches!(**word, "strategy" | "preset" | "external")) {
        let example = &schema["$defs"][kind]["properties"][*word]["examples"][0];
        if example.is_null() {
            continue;
        }
        let source = Source::new(format!("example:{word}"), json!({ *word: example }).to_string());
        let Some(mut node) = document(&source, Format::Yaml, &mut Vec::new()) else { continue };
        if subject.table == "pools" {
            normal::pool(&mut node);
        }
        if let Some(node) = node.get(word) {
            out.set(word, subject.key.clone(), node.clone());
        }
    }
    out
}

fn places_in<'n>(node: &'n Node, places: &mut Vec<&'n Place>) {
    places.push(&node.place);
    match &node.value {
        Tree::Map(map) => Map::iter(map).for_each(|(_, entry)| places_in(&entry.node, places)),
        Tree::List(items) => items.iter().for_each(|item| places_in(item, places)),
        _ => {}
    }
}

/// The object with `overrides` on it.
fn overridden(draft: &Draft, overrides: Option<&Node>) -> Value {
    let mut draft =
        Draft { manifest: draft.manifest.clone(), origins: Origins::new(), keys: BTreeMap::new() };
    if let Some(overrides) = overrides {
        overrides::apply(&mut draft, overrides, &mut Vec::new());
    }
    draft.manifest
}

/// The requirements of a pool on a label.
fn asking<'m>(manifest: &'m Value, label: &str) -> Vec<&'m Value> {
    let all = manifest["spec"]["template"]["spec"]["requirements"].as_array();
    all.into_iter().flatten().filter(|one| one["key"] == label).collect()
}
