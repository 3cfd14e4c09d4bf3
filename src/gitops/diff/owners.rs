//! Whose a live field is, so that what left Git is told from what others added.
//!
//! `metadata.managedFields` is the truth where a store keeps it. Next best is what we applied last. With neither, all of
//! `spec` counts as ours and of labels and annotations only our own marks: a structural comparison.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::gitops::live::LiveObject;
use crate::gitops::tracking::FIELD_MANAGER;
use crate::model::label::annotation;

/// Managers of a person's hand-made writes, which the first sync takes over. Otherwise a field that leaves Git stays behind
/// in the cluster for ever (kubernetes/kubernetes#99003).
pub const MIGRATED_MANAGERS: [&str; 3] = ["kubectl-client-side-apply", "kubectl-edit", "kubectl-create"];

pub(super) enum FieldOwners {
    /// Nobody else writes: both sides are ours.
    All,
    Managed(Vec<Manager>),
    LastApplied(Value),
    Structural,
}

pub(super) struct Manager {
    name: String,
    is_us: bool,
    fields: BTreeSet<Vec<String>>,
}

pub(super) enum FieldOwner {
    Us,
    /// Somebody else, by name if the object tells.
    Other(Option<String>),
    /// We and somebody else: the field stays with them when we let go.
    Both(String),
}

impl FieldOwners {
    pub(super) fn of(live: &LiveObject) -> Self {
        if let Some(entries) = live.manifest.pointer("/metadata/managedFields").and_then(Value::as_array) {
            return Self::Managed(entries.iter().filter_map(manager).collect());
        }
        match &live.last_applied {
            Some(applied) => Self::LastApplied(applied.clone()),
            None => Self::Structural,
        }
    }

    pub(super) fn owner(&self, keys: &[String]) -> FieldOwner {
        match self {
            Self::All => FieldOwner::Us,
            Self::Managed(managers) => {
                let (ours, others): (Vec<&Manager>, Vec<&Manager>) =
                    managers.iter().filter(|manager| manager.owns(keys)).partition(|manager| manager.is_us);
                match (ours.is_empty(), others.first()) {
                    (false, None) => FieldOwner::Us,
                    (false, Some(other)) => FieldOwner::Both(other.name.clone()),
                    (true, other) => FieldOwner::Other(other.map(|other| other.name.clone())),
                }
            }
            Self::LastApplied(applied) => {
                let found = keys.iter().try_fold(applied, |at, key| step(at, key));
                if found.is_some() { FieldOwner::Us } else { FieldOwner::Other(None) }
            }
            Self::Structural => {
                let is_ours = match keys {
                    // What the engine remembers at an object is no part of the repository.
                    [first, .., last] if first == "metadata" => {
                        last.starts_with("provisor.dev/") && *last != *annotation::ROLL_FAILURES.as_str()
                    }
                    _ => true,
                };
                if is_ours { FieldOwner::Us } else { FieldOwner::Other(None) }
            }
        }
    }
}

impl Manager {
    /// Owns the field, something inside it, or the whole of which it is an inseparable part.
    fn owns(&self, keys: &[String]) -> bool {
        self.fields.iter().any(|field| field.starts_with(keys) || keys.starts_with(field))
    }
}

/// Who wrote a field last, us excepted, by its dotted path up to the first list.
pub(crate) fn last_writer(live: &LiveObject, path: &str) -> Option<String> {
    writers(live, path)
        .filter(|(entry, _)| !is_our_apply(entry))
        .max_by_key(|(time, _)| time_of(time))
        .map(|(_, name)| name)
}

/// Another manager that applies a field, so that it stays theirs when we say nothing of it.
pub(crate) fn co_applier(live: &LiveObject, path: &str) -> Option<String> {
    let is_apply = |entry: &Value| entry.get("operation").and_then(Value::as_str) == Some("Apply");
    writers(live, path).find(|(entry, _)| is_apply(entry) && !is_our_apply(entry)).map(|(_, name)| name)
}

fn is_our_apply(entry: &Value) -> bool {
    entry.get("manager").and_then(Value::as_str) == Some(FIELD_MANAGER)
}

fn time_of(entry: &Value) -> &str {
    entry.get("time").and_then(Value::as_str).unwrap_or("")
}

/// The `managedFields` entries that hold a field, with the names of their managers.
fn writers<'a>(live: &'a LiveObject, path: &'a str) -> impl Iterator<Item = (&'a Value, String)> {
    let entries = live.manifest.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().filter_map(move |entry| {
        let manager = manager(entry)?;
        let holds = manager.fields.iter().any(|field| {
            let field = field.join(".");
            let is_below = |long: &str, short: &str| {
                long.strip_prefix(short).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            };
            is_below(&field, path) || is_below(path, &field)
        });
        holds.then_some((entry, manager.name))
    })
}

fn manager(entry: &Value) -> Option<Manager> {
    if entry.get("subresource").and_then(Value::as_str).is_some_and(|subresource| !subresource.is_empty()) {
        return None;
    }
    let name = entry.get("manager")?.as_str()?.to_owned();
    let is_apply = entry.get("operation").and_then(Value::as_str) == Some("Apply");
    let is_us = if is_apply { name == FIELD_MANAGER } else { MIGRATED_MANAGERS.contains(&name.as_str()) };
    let mut fields = BTreeSet::new();
    collect(entry.get("fieldsV1")?, &mut Vec::new(), &mut fields);
    Some(Manager { name, is_us, fields })
}

/// The field of a map, or the element of a list that [`element_key`] names.
fn step<'v>(at: &'v Value, key: &str) -> Option<&'v Value> {
    let Some(identity) = key.strip_prefix(ELEMENT) else { return at.get(key) };
    let identity: Value = serde_json::from_str(identity).ok()?;
    let is_it = |item: &&Value| {
        identity.as_object().into_iter().flatten().all(|(key, value)| item.get(key) == Some(value))
    };
    at.as_array()?.iter().find(is_it)
}

/// How `managedFields` names the element of a list whose field `field` is `name`.
pub(super) fn element_key(field: &str, name: &str) -> String {
    format!("{ELEMENT}{}", json!({ field: name }))
}

const ELEMENT: &str = "k:";

/// Field sets nest as `f:name`, and `k:{…}` for elements that have a name; a `.` or a set value stands for the field that holds it.
fn collect(set: &Value, at: &mut Vec<String>, fields: &mut BTreeSet<Vec<String>>) {
    let children: Vec<(&str, &Value)> = set
        .as_object()
        .into_iter()
        .flatten()
        .filter_map(|(key, inner)| match key.strip_prefix("f:") {
            Some(name) => Some((name, inner)),
            None => key.starts_with(ELEMENT).then_some((key.as_str(), inner)),
        })
        .collect();
    if children.is_empty() && !at.is_empty() {
        fields.insert(at.clone());
    }
    for (name, inner) in children {
        at.push(name.into());
        collect(inner, at, fields);
        at.pop();
    }
}
