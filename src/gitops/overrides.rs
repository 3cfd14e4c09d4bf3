//! Every field of the real object, reached from the strategy file: `overrides`, merged onto what was rendered.
//!
//! Keys are tables or dotted paths: `spec.disruption.budgets[0].nodes`. Below tables whose keys are free, such as
//! `labels` or `evictionHard`, the rest of a path is one key, so `spec.template.metadata.labels.example.com/team`
//! means what it looks like. Tables merge, lists and scalars replace, `{ "$remove" = true }` deletes.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::read::NESTING_MAX;
use crate::gitops::rendered::{Draft, Origins, joined, note_keys, note_places};
use crate::gitops::shape::beside_removal;
use crate::gitops::tree::{Node, Tree};
use crate::model::visible::shortened;

/// Tables whose keys are names with dots in them.
const FREE: [&str; 15] = [
    "labels",
    "annotations",
    "tags",
    "limits",
    "matchLabels",
    "nodeSelector",
    "kubeReserved",
    "systemReserved",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
    "capacity",
    "featureGates",
    "provisionerParameters",
];

const TOO_DEEP: &str = "it has more parts than an object may be deep (64)";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

/// Merges `overrides` onto a draft; what does not fit is pushed to `found`.
pub(crate) fn apply(draft: &mut Draft, overrides: &Node, found: &mut Vec<Diagnostic>) {
    let Some(map) = overrides.as_map() else { return };
    twice(overrides, found);
    for (key, entry) in map.iter() {
        let at = At { path: String::new(), depth: 0, free: false };
        let mut notes = Notes { origins: &mut draft.origins, keys: &mut draft.keys, found };
        merge_key(&mut draft.manifest, at, key, &entry.key, &entry.node, &mut notes);
    }
}

/// What is written down on the way.
struct Notes<'a> {
    origins: &'a mut Origins,
    keys: &'a mut Origins,
    found: &'a mut Vec<Diagnostic>,
}

/// A path may be written in two ways, with dots and as tables. Written in both, only chance would say which one counts.
fn twice(overrides: &Node, found: &mut Vec<Diagnostic>) {
    let mut leaves = Vec::new();
    leaves_of(overrides, "", false, &mut leaves, found);
    let mut seen: BTreeMap<&str, &Place> = BTreeMap::new();
    for (path, place) in &leaves {
        match seen.get(path.as_str()) {
            Some(first) => found.push(
                Diagnostic::error("PRV1509", (*place).clone(), format!("`{path}` is overridden twice"))
                    .also("the other time", (*first).clone())
                    .help(
                        "keep one of the two; a file that extends another writes the path as that one does",
                    ),
            ),
            None => {
                seen.insert(path, place);
            }
        }
    }
}

/// Every path that `overrides` write or remove, with the place of its last key.
pub(crate) fn written(overrides: &Node) -> Vec<(String, &Place)> {
    let mut leaves = Vec::new();
    leaves_of(overrides, "", false, &mut leaves, &mut Vec::new());
    leaves
}

/// Whether one path is the other or leads into it.
pub(crate) fn overlap(one: &str, other: &str) -> bool {
    leads_into(one, other) || leads_into(other, one)
}

/// Whether `inner` is `outer` or something inside of it.
pub(crate) fn leads_into(outer: &str, inner: &str) -> bool {
    match (steps_of(outer), steps_of(inner)) {
        (Ok(outer), Ok(inner)) => inner.starts_with(&outer),
        _ => false,
    }
}

fn leaves_of<'n>(
    node: &'n Node,
    path: &str,
    is_free: bool,
    leaves: &mut Vec<(String, &'n Place)>,
    found: &mut Vec<Diagnostic>,
) {
    for (key, entry) in node.as_map().into_iter().flat_map(|map| map.iter()) {
        let steps =
            if is_free { vec![Step::Key(key.to_string())] } else { steps_of(key).unwrap_or_default() };
        let (mut path, mut is_free) = (path.to_owned(), is_free);
        for step in &steps {
            match step {
                Step::Key(key) => {
                    path = joined(&path, key);
                    is_free = !is_free && FREE.contains(&key.as_str());
                }
                Step::Index(index) => {
                    path = format!("{path}[{index}]");
                    is_free = false;
                }
            }
        }
        if entry.node.is_removal() {
            found.extend(beside_removal(&entry.node, &[]));
        }
        if entry.node.as_map().is_some() && !entry.node.is_removal() {
            leaves_of(&entry.node, &path, is_free, leaves, found);
        } else if !steps.is_empty() {
            leaves.push((path, &entry.key));
        }
    }
}

/// Where in the object we are.
#[derive(Clone)]
struct At {
    path: String,
    /// How many parts the path has.
    depth: usize,
    /// Whether the keys here are free.
    free: bool,
}

fn merge_key(target: &mut Value, at: At, key: &str, key_place: &Place, node: &Node, notes: &mut Notes<'_>) {
    let steps = match at.free {
        true => Ok(vec![Step::Key(key.to_owned())]),
        false => steps_of(key),
    };
    let steps =
        steps.and_then(|steps| if at.depth + steps.len() > NESTING_MAX { Err(TOO_DEEP) } else { Ok(steps) });
    match steps {
        Ok(steps) => follow(target, at, &steps, key_place, node, notes),
        Err(why) => {
            let message = format!("`{}` is not a path: {why}", shortened(key, 60));
            notes.found.push(
                Diagnostic::error("PRV1507", key_place.clone(), message)
                    .help("write it like `spec.disruption.budgets[0].nodes`"),
            );
        }
    }
}

/// `a.b[0]["c.d"]` in steps, no more than an object may be deep.
pub(crate) fn steps_of(text: &str) -> Result<Vec<Step>, &'static str> {
    let mut steps: Vec<Step> = Vec::new();
    let mut rest = text;
    loop {
        if steps.len() >= NESTING_MAX {
            return Err(TOO_DEEP);
        }
        let is_free = matches!(steps.last(), Some(Step::Key(key)) if FREE.contains(&key.as_str()));
        if let Some(inner) = rest.strip_prefix('[') {
            let quote = inner.chars().next().filter(|c| matches!(c, '"' | '\''));
            let (step, behind) = match quote {
                Some(quote) => {
                    let (key, behind) = inner[1..].split_once(quote).ok_or("a quote is not closed")?;
                    (Step::Key(key.to_owned()), behind.strip_prefix(']').ok_or("a bracket is not closed")?)
                }
                None => {
                    let (index, behind) = inner.split_once(']').ok_or("a bracket is not closed")?;
                    (Step::Index(index.parse().map_err(|_| "an index is a whole number")?), behind)
                }
            };
            steps.push(step);
            rest = behind;
        } else if is_free && !rest.is_empty() {
            steps.push(Step::Key(rest.to_owned()));
            return Ok(steps);
        } else {
            let end = rest.find(['.', '[']).unwrap_or(rest.len());
            if end == 0 {
                return Err("a name is missing");
            }
            steps.push(Step::Key(rest[..end].to_owned()));
            rest = &rest[end..];
        }
        if rest.is_empty() {
            return Ok(steps);
        }
        if let Some(behind) = rest.strip_prefix('.') {
            rest = behind;
        }
    }
}

fn follow(target: &mut Value, at: At, steps: &[Step], key_place: &Place, node: &Node, notes: &mut Notes<'_>) {
    let Some((step, rest)) = steps.split_first() else { return };
    let is_last = rest.is_empty();
    let depth = at.depth + 1;
    let at = match step {
        Step::Key(key) => {
            At { path: joined(&at.path, key), depth, free: !at.free && FREE.contains(&key.as_str()) }
        }
        Step::Index(index) => At { path: format!("{}[{index}]", at.path), depth, free: false },
    };
    if let Some((message, help)) = untouchable(&at.path) {
        notes.found.push(Diagnostic::error("PRV1508", key_place.clone(), message).help(help));
        return;
    }
    let slot = match step {
        Step::Key(key) => key_slot(target, &at, key, key_place, is_last && node.is_removal(), notes.found),
        Step::Index(index) => {
            index_slot(target, &at, *index, key_place, is_last && node.is_removal(), notes.found)
        }
    };
    let Some(slot) = slot else {
        if is_last && node.is_removal() {
            notes.forget(&at.path);
        }
        return;
    };
    // A key that is there already was written by whoever wrote it first.
    if slot.is_null() && matches!(step, Step::Key(_)) {
        notes.keys.insert(at.path.as_str().into(), key_place.clone());
    }
    if !is_last {
        return follow(slot, at, rest, key_place, node, notes);
    }
    set(slot, at, node, notes);
}

/// Why a part of the object is not the strategy's to change, and what to do instead.
fn untouchable(path: &str) -> Option<(String, &'static str)> {
    let named = |why: &str| format!("`{path}` {why} and cannot be overridden");
    match path {
        "apiVersion" | "kind" => Some((
            named("says what kind of object this is"),
            "remove it; a template of your own decides which objects are rendered",
        )),
        "metadata.name" => {
            Some((named("names the object"), "rename the pool or class in the strategy instead"))
        }
        "metadata.namespace" => Some((
            named("would place the object in a namespace"),
            "remove it: pools and classes belong to the cluster as a whole",
        )),
        _ if path == "status" || path.starts_with("status.") => Some((
            format!("`{path}` is written by the cluster, not by people"),
            "remove it; what you want of the object stands under `spec`",
        )),
        _ => None,
    }
}

/// The place of a key, made if it is not there; `None` after a removal or a mistake.
fn key_slot<'v>(
    target: &'v mut Value,
    at: &At,
    key: &str,
    place: &Place,
    removes: bool,
    found: &mut Vec<Diagnostic>,
) -> Option<&'v mut Value> {
    if target.is_null() && !removes {
        *target = Value::Object(Map::new());
    }
    let Value::Object(map) = target else {
        let message = format!("`{}` does not fit: its parent in the rendered object is not a table", at.path);
        found.push(
            Diagnostic::error("PRV1507", place.clone(), message).help("override the parent as a whole"),
        );
        return None;
    };
    if removes {
        if map.remove(key).is_none() {
            found.push(nothing_to_remove(at, place));
        }
        return None;
    }
    Some(map.entry(key).or_insert(Value::Null))
}

fn index_slot<'v>(
    target: &'v mut Value,
    at: &At,
    index: usize,
    place: &Place,
    removes: bool,
    found: &mut Vec<Diagnostic>,
) -> Option<&'v mut Value> {
    if target.is_null() && index == 0 && !removes {
        *target = Value::Array(Vec::new());
    }
    let Value::Array(items) = target else {
        let message = format!("`{}` does not fit: the rendered object has no list there", at.path);
        found.push(Diagnostic::error("PRV1507", place.clone(), message).help("override the list as a whole"));
        return None;
    };
    if removes {
        if index >= items.len() {
            found.push(nothing_to_remove(at, place));
        } else {
            items.remove(index);
        }
        return None;
    }
    if index > items.len() {
        let entries =
            if items.len() == 1 { "1 entry".to_owned() } else { format!("{} entries", items.len()) };
        let message = format!("`{}` does not exist: the list has {entries}", at.path);
        found.push(
            Diagnostic::error("PRV1507", place.clone(), message)
                .help(format!("indexes start at 0; [{}] would append", items.len())),
        );
        return None;
    }
    if index == items.len() {
        items.push(Value::Null);
    }
    items.get_mut(index)
}

fn nothing_to_remove(at: &At, place: &Place) -> Diagnostic {
    let message = format!("`{}` is removed, but the rendered object does not have it", at.path);
    Diagnostic::error("PRV1305", place.clone(), message).help("remove the line, or correct the path")
}

fn set(slot: &mut Value, at: At, node: &Node, notes: &mut Notes<'_>) {
    if let Tree::Map(map) = &node.value {
        if !slot.is_object() {
            notes.forget_inside(&at.path);
            *slot = Value::Object(Map::new());
            notes.origins.insert(at.path.as_str().into(), node.place.clone());
        }
        for (key, entry) in map.iter() {
            merge_key(slot, at.clone(), key, &entry.key, &entry.node, notes);
        }
        return;
    }
    notes.forget_inside(&at.path);
    *slot = node.to_json();
    note_places(node, &at.path, notes.origins);
    note_keys(node, &at.path, notes.keys);
}

impl Notes<'_> {
    /// A value is gone, its key too.
    fn forget(&mut self, path: &str) {
        self.forget_inside(path);
        self.keys.remove(path);
    }

    /// A value is another.
    fn forget_inside(&mut self, path: &str) {
        let is_inside =
            |known: &str| known.strip_prefix(path).is_some_and(|rest| rest.starts_with(['.', '[']));
        self.origins.remove(path);
        self.origins.retain(|known, _| !is_inside(known));
        self.keys.retain(|known, _| !is_inside(known));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Step {
        Step::Key(text.to_owned())
    }

    #[test]
    fn paths_have_keys_indexes_and_free_tails() {
        assert_eq!(
            steps_of("spec.disruption.budgets[0].nodes"),
            Ok(vec![key("spec"), key("disruption"), key("budgets"), Step::Index(0), key("nodes")])
        );
        assert_eq!(
            steps_of("spec.template.metadata.labels.example.com/team"),
            Ok(vec![key("spec"), key("template"), key("metadata"), key("labels"), key("example.com/team")])
        );
        assert_eq!(
            steps_of("spec.kubelet.evictionHard[\"memory.available\"]"),
            Ok(vec![key("spec"), key("kubelet"), key("evictionHard"), key("memory.available")])
        );
        assert!(steps_of("spec..a").is_err());
        assert!(steps_of("spec.a[x]").is_err());
    }
}
