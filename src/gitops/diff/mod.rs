//! Desired against live, field by field, each with what it does to running nodes.
//!
//! Two manifests are equal when a cluster would treat them alike: `1000m` is `1`, `60m` is `1h`, the order of
//! requirement values is nothing, a missing field is its default, and an empty map is none. What remains is a list of
//! fields with the old value, the new one, the line of the repository that set it, and the nodes that it replaces.

pub mod impact;
mod owners;
mod shape;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::desired::{DesiredObject, DesiredState, ObjectRef, Origin};
use super::live::{Fleet, LiveObject};
use super::tracking::{ANNOTATION_TRACKING, LABEL_ENVIRONMENT, LABEL_INSTALLATION};
use impact::Scope;
pub use impact::{FIELD_RULES, FieldRule, NodeImpact, Rolling};
pub use owners::MIGRATED_MANAGERS;
use owners::{FieldOwner, FieldOwners, element_key};
pub(crate) use owners::{co_applier, last_writer};
use shape::Shape;

/// What separates two states of one object.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectDiff {
    pub object: ObjectRef,
    pub kind: DiffKind,
    /// Sorted by path. Empty unless the object exists on both sides.
    pub fields: Vec<FieldChange>,
    /// Values that others set and that stay as they are.
    pub kept: Vec<KeptField>,
    /// The worst of the fields' impacts, each node counted once.
    #[serde(flatten)]
    pub impact: NodeImpact,
    /// The nodes that any of the fields touches, sorted by name.
    pub affected: Vec<Arc<str>>,
    pub origin: Option<Origin>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum DiffKind {
    Same,
    Added,
    Changed,
    Removed,
}

/// One field that differs.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct FieldChange {
    /// Dotted path. Elements of lists with an identity are named by it: `requirements[kubernetes.io/arch].values`.
    pub path: String,
    /// `None` when the field is new.
    pub from: Option<Value>,
    /// `None` when the field goes away.
    pub to: Option<Value>,
    pub origin: Option<Origin>,
    #[serde(flatten)]
    pub impact: NodeImpact,
    /// Another manager that keeps the value although it left Git.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub released_to: Option<String>,
}

/// A value that somebody else set on an object of ours, and that we have no opinion about.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KeptField {
    pub path: String,
    pub value: Value,
    /// Who set it, if the object tells.
    pub manager: Option<String>,
}

impl FieldChange {
    /// The path without the leading `spec.` that nearly all share.
    pub fn short_path(&self) -> &str {
        self.path.strip_prefix("spec.").unwrap_or(&self.path)
    }

    /// The path up to the first list: lists are written as a whole.
    pub(crate) fn whole_list(&self) -> &str {
        self.path.split('[').next().unwrap_or(&self.path)
    }
}

/// `path  from → to  impact`, for one line of a list.
impl fmt::Display for FieldChange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}  {} → {}", self.short_path(), show(self.from.as_ref()), show(self.to.as_ref()))?;
        if self.impact != NodeImpact::NoRoll {
            write!(out, "  {}", self.impact)?;
        }
        if let Some(manager) = &self.released_to {
            write!(out, "  kept by {manager}")?;
        }
        Ok(())
    }
}

/// A value as one cell of a table: `-` for none, lists and maps on one line.
pub fn show(value: Option<&Value>) -> Cow<'_, str> {
    match value {
        None | Some(Value::Null) => "-".into(),
        Some(Value::String(text)) => text.into(),
        Some(Value::Array(items)) => {
            let items: Vec<_> = items.iter().map(|item| show(Some(item))).collect();
            format!("[{}]", items.join(", ")).into()
        }
        Some(Value::Object(map)) => {
            let items: Vec<_> =
                map.iter().map(|(key, item)| format!("{key}: {}", show(Some(item)))).collect();
            format!("{{{}}}", items.join(", ")).into()
        }
        Some(other) => other.to_string().into(),
    }
}

/// Compares what is live with what is wanted. Without a fleet, numbers of nodes are unknown, not zero.
///
/// `desired` is taken as it would be applied. Of what is live only, a field counts as a difference if it is ours.
pub fn diff_object(
    object: &ObjectRef,
    live: Option<&LiveObject>,
    desired: Option<&DesiredObject>,
    fleet: Option<&Fleet>,
) -> ObjectDiff {
    let owners = match live {
        Some(live) => FieldOwners::of(live),
        None => FieldOwners::All,
    };
    diff_manifests(
        object,
        live.map(|live| &live.manifest),
        desired.map(|desired| &desired.manifest),
        desired,
        &owners,
        fleet,
    )
}

/// Compares what two commits, or two environments, want. Objects that are alike are left out, and so are our own marks.
pub fn diff_states(base: &DesiredState, head: &DesiredState, fleet: Option<&Fleet>) -> Vec<ObjectDiff> {
    let names: BTreeSet<&ObjectRef> = base.objects.keys().chain(head.objects.keys()).collect();
    names
        .into_iter()
        .map(|object| {
            let (before, after) = (base.objects.get(object), head.objects.get(object));
            diff_manifests(
                object,
                before.map(|before| &before.manifest),
                after.map(|after| &after.manifest),
                after.or(before),
                &FieldOwners::All,
                fleet,
            )
        })
        .map(without_marks)
        .filter(|diff| diff.kind != DiffKind::Same)
        .collect()
}

/// Two environments are not different because each names itself on its objects.
fn without_marks(mut diff: ObjectDiff) -> ObjectDiff {
    diff.fields.retain(|field| !is_mark(&field.path));
    if diff.kind == DiffKind::Changed && diff.fields.is_empty() {
        diff.kind = DiffKind::Same;
    }
    diff
}

/// Where an object comes from is written on it; that it moved to another file or line is no difference.
pub fn without_bookkeeping(mut diff: ObjectDiff) -> Option<ObjectDiff> {
    let had_fields = !diff.fields.is_empty();
    diff.fields.retain(|field| field.path != "metadata.annotations.provisor.dev/origin");
    (!had_fields || !diff.fields.is_empty()).then_some(diff)
}

/// Whether a field only says whose the object is.
pub(crate) fn is_mark(path: &str) -> bool {
    let key = path.strip_prefix("metadata.labels.").or(path.strip_prefix("metadata.annotations."));
    key.is_some_and(|key| [LABEL_ENVIRONMENT, LABEL_INSTALLATION, ANNOTATION_TRACKING].contains(&key))
}

fn diff_manifests(
    object: &ObjectRef,
    live: Option<&Value>,
    desired: Option<&Value>,
    origins: Option<&DesiredObject>,
    owners: &FieldOwners,
    fleet: Option<&Fleet>,
) -> ObjectDiff {
    let scope = Scope { kind: &object.kind, name: &object.name, live, desired, fleet };
    let origin = origins.and_then(|origins| origins.origin("")).cloned();
    let (Some(live), Some(desired)) = (live, desired) else {
        let (kind, (impact, nodes)) = match (live, desired) {
            (None, Some(_)) => (DiffKind::Added, (NodeImpact::NoRoll, BTreeSet::new())),
            (Some(_), None) => (DiffKind::Removed, scope.of_removal()),
            _ => (DiffKind::Same, (NodeImpact::NoRoll, BTreeSet::new())),
        };
        let affected = nodes.into_iter().collect();
        return ObjectDiff {
            object: object.clone(),
            kind,
            fields: vec![],
            kept: vec![],
            impact,
            affected,
            origin,
        };
    };
    let mut walk = Walk { kind: &object.kind, owners, fields: vec![], kept: vec![] };
    for key in sections(live, desired) {
        walk.compare(&At::root(key), live.get(key), desired.get(key));
    }
    for key in ["annotations", "labels"] {
        let at = At::root("metadata").key(key);
        walk.compare(&at, child(live.get("metadata"), key), child(desired.get("metadata"), key));
    }
    let mut worst = NodeImpact::NoRoll;
    // A node that several fields touch counts once, by the worst of them.
    let mut nodes: BTreeMap<Arc<str>, NodeImpact> = BTreeMap::new();
    let mut fields = Vec::new();
    for raw in walk.fields {
        let (impact, touched) = match raw.released_to {
            Some(_) => (NodeImpact::NoRoll, BTreeSet::new()),
            None => scope.of_field(&raw.pattern, raw.element.as_deref()),
        };
        let sort = impact.of_unknown();
        worst = worst.max(sort);
        for node in touched {
            let known = nodes.entry(node).or_insert(sort);
            *known = (*known).max(sort);
        }
        fields.push(FieldChange {
            origin: origins.and_then(|origins| origin_of(origins, &raw)).cloned(),
            path: raw.path,
            from: raw.from,
            to: raw.to,
            impact,
            released_to: raw.released_to,
        });
    }
    fields.sort_by(|a, b| a.path.cmp(&b.path));
    let kind = if fields.is_empty() { DiffKind::Same } else { DiffKind::Changed };
    let count = nodes.values().filter(|impact| **impact == worst).count();
    let impact = if fleet.is_some() { worst.with_nodes(count) } else { worst };
    let affected = nodes.into_keys().collect();
    ObjectDiff { object: object.clone(), kind, fields, kept: walk.kept, impact, affected, origin }
}

/// The line to look at for a change. What is gone was written by nobody here, and least of all by a built-in template.
fn origin_of<'o>(origins: &'o DesiredObject, raw: &RawChange) -> Option<&'o Origin> {
    let origin = origins.origin(&raw.source)?;
    match raw.to.is_none() && origin.file.starts_with("built-in:") {
        true => origins.origin(""),
        false => Some(origin),
    }
}

/// What of two manifests is compared besides labels and annotations: all but identity and what controllers write.
fn sections<'a>(live: &'a Value, desired: &'a Value) -> BTreeSet<&'a str> {
    let keys = |manifest: &'a Value| manifest.as_object().into_iter().flat_map(|map| map.keys());
    keys(live)
        .chain(keys(desired))
        .map(String::as_str)
        .filter(|key| !matches!(*key, "apiVersion" | "kind" | "metadata" | "status"))
        .collect()
}

/// A difference before its impact is known.
struct RawChange {
    path: String,
    source: String,
    pattern: String,
    /// Identity of the list element on the way to the field, such as a requirement's key.
    element: Option<String>,
    from: Option<Value>,
    to: Option<Value>,
    released_to: Option<String>,
}

/// A position in both manifests at once.
#[derive(Clone, Debug)]
struct At {
    /// What a person reads.
    path: String,
    /// With the positions of the desired manifest, as origins are recorded.
    source: String,
    /// With every list element written `[]`, as the field tables are written.
    pattern: String,
    /// Keys from the root to here, up to the first list: the unit of field ownership.
    keys: Vec<String>,
    is_in_list: bool,
    element: Option<String>,
}

impl At {
    fn root(key: &str) -> Self {
        Self {
            path: key.into(),
            source: key.into(),
            pattern: key.into(),
            keys: vec![key.into()],
            is_in_list: false,
            element: None,
        }
    }

    fn key(&self, key: &str) -> Self {
        let mut at = self.clone();
        for text in [&mut at.path, &mut at.source, &mut at.pattern] {
            text.push('.');
            text.push_str(key);
        }
        if !at.is_in_list {
            at.keys.push(key.into());
        }
        at
    }

    fn element(&self, identity: &str, index: usize) -> Self {
        let mut at = self.clone();
        at.path.push_str(&format!("[{identity}]"));
        at.source.push_str(&format!("[{index}]"));
        at.pattern.push_str("[]");
        at.is_in_list = true;
        at.element.get_or_insert_with(|| identity.into());
        at
    }

    /// An element that only the old list has: where it stood, the new one has another or none.
    fn gone(&self, identity: &str, index: usize) -> Self {
        Self { source: self.source.clone(), ..self.element(identity, index) }
    }
}

struct Walk<'a> {
    kind: &'a str,
    owners: &'a FieldOwners,
    fields: Vec<RawChange>,
    kept: Vec<KeptField>,
}

impl Walk<'_> {
    fn compare(&mut self, at: &At, live: Option<&Value>, desired: Option<&Value>) {
        let shape = shape::shape(self.kind, &at.pattern);
        let (live, desired) = (shape::present(live, shape), shape::present(desired, shape));
        if live.is_none() && desired.is_none() {
            return;
        }
        if [live, desired].into_iter().flatten().all(Value::is_object) {
            return self.compare_maps(at, live, desired);
        }
        // A field that one side leaves out has its default there.
        let default = shape::default_value(self.kind, &at.pattern);
        let is_implied = desired.is_none();
        let before = live.or(default.as_ref());
        let after = desired.or(default.as_ref());
        if let (Some(before), Some(after)) = (before, after)
            && shape::equal(self.kind, &at.pattern, shape, before, after)
        {
            return;
        }
        if is_implied && let Some(value) = live {
            match self.owners.owner(&at.keys) {
                FieldOwner::Us => {}
                FieldOwner::Other(manager) => {
                    if !at.path.starts_with("metadata.") {
                        self.kept.push(KeptField { path: at.path.clone(), value: value.clone(), manager });
                    }
                    return;
                }
                FieldOwner::Both(manager) => {
                    return self.push(at, live, live, Some(manager));
                }
            }
        }
        let is_list = |side: Option<&Value>| side.is_none_or(Value::is_array);
        match shape {
            Shape::Keyed(identity) if is_list(before) && is_list(after) => {
                self.compare_keyed(at, identity, before, after);
            }
            Shape::Bag if is_list(before) && is_list(after) => self.compare_bag(at, before, after),
            _ => self.push(at, before, after, None),
        }
    }

    fn compare_maps(&mut self, at: &At, live: Option<&Value>, desired: Option<&Value>) {
        let keys: BTreeSet<&String> = [live, desired]
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .flat_map(|map| map.keys())
            .collect();
        for key in keys {
            self.compare(&at.key(key), child(live, key), child(desired, key));
        }
    }

    /// Elements are the same if their identity is; an identity that occurs twice is compared as a whole.
    fn compare_keyed(
        &mut self,
        at: &At,
        identity: fn(&Value) -> String,
        live: Option<&Value>,
        desired: Option<&Value>,
    ) {
        let (live, desired) = (items(live), items(desired));
        let names: BTreeSet<String> = live.iter().chain(desired).map(identity).collect();
        for name in names {
            let of = |side: &[Value]| -> Vec<(usize, Value)> {
                let found = side.iter().enumerate().filter(|(_, item)| identity(item) == name);
                found.map(|(index, item)| (index, item.clone())).collect()
            };
            let (before, after) = (of(live), of(desired));
            let index = after.first().or(before.first()).map_or(0, |(index, _)| *index);
            let list_key = shape::list_key(self.kind, &at.pattern);
            let mut at = match after.is_empty() {
                true => at.gone(&name, index),
                false => at.element(&name, index),
            };
            if let Some(field) = list_key {
                at.keys.push(element_key(field, &name));
                at.is_in_list = false;
                if let ([(_, value)], []) = (&before[..], &after[..])
                    && let FieldOwner::Other(manager) = self.owners.owner(&at.keys)
                {
                    self.kept.push(KeptField { path: at.path.clone(), value: value.clone(), manager });
                    continue;
                }
            }
            if let ([(_, before)], [(_, after)]) = (&before[..], &after[..]) {
                self.compare_maps(&at, Some(before), Some(after));
                continue;
            }
            let whole = |side: Vec<(usize, Value)>| -> Option<Value> {
                let mut items: Vec<Value> = side.into_iter().map(|(_, item)| item).collect();
                if items.len() > 1 { Some(Value::Array(items)) } else { items.pop() }
            };
            let (before, after) = (whole(before), whole(after));
            if let (Some(Value::Array(before)), Some(Value::Array(after))) = (&before, &after)
                && shape::equal_bags(self.kind, &at.pattern, before, after)
            {
                continue;
            }
            self.push(&at, before.as_ref(), after.as_ref(), None);
        }
    }

    /// Equal elements cancel out wherever they stand; the rest are paired in order.
    fn compare_bag(&mut self, at: &At, live: Option<&Value>, desired: Option<&Value>) {
        let (live, desired) = (items(live), items(desired));
        let pattern = format!("{}[]", at.pattern);
        let mut spare: Vec<(usize, &Value)> = live.iter().enumerate().collect();
        let mut wanted: Vec<(usize, &Value)> = Vec::new();
        for (index, item) in desired.iter().enumerate() {
            let twin = spare
                .iter()
                .position(|(_, other)| shape::equal(self.kind, &pattern, Shape::Plain, other, item));
            match twin {
                Some(twin) => drop(spare.remove(twin)),
                None => wanted.push((index, item)),
            }
        }
        let mut spare = spare.into_iter();
        for (index, item) in wanted {
            let at = at.element(&index.to_string(), index);
            match spare.next() {
                Some((_, before)) if before.is_object() && item.is_object() => {
                    self.compare_maps(&at, Some(before), Some(item));
                }
                before => self.push(&at, before.map(|(_, value)| value), Some(item), None),
            }
        }
        for (index, item) in spare {
            self.push(&at.gone(&index.to_string(), index), Some(item), None, None);
        }
    }

    fn push(&mut self, at: &At, from: Option<&Value>, to: Option<&Value>, released_to: Option<String>) {
        self.fields.push(RawChange {
            path: at.path.clone(),
            source: at.source.clone(),
            pattern: at.pattern.clone(),
            element: at.element.clone(),
            from: from.cloned(),
            to: to.cloned(),
            released_to,
        });
    }
}

fn child<'v>(value: Option<&'v Value>, key: &str) -> Option<&'v Value> {
    value.and_then(|value| value.get(key))
}

fn items(side: Option<&Value>) -> &[Value] {
    side.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}
