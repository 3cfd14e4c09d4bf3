//! Where a pool's values come from: every layer that set one, in order, and the one that won.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use crate::api::crd::{self, Definition};
use crate::gitops::desired::{DesiredObject, DesiredState, Origin};
use crate::gitops::diagnostic::{Diagnostic, Diagnostics, Place, listed};
use crate::gitops::engine::Engine;
use crate::gitops::fleet::{Fleet, Resolved};
use crate::gitops::overlay::merged;
use crate::gitops::overrides::{Step, overlap, steps_of, written};
use crate::gitops::promotion::{offer, rules};
use crate::gitops::render::{RenderSettings, before_overrides, render};
use crate::gitops::rendered::joined;
use crate::gitops::schema::SchemaKind;
use crate::gitops::shape::shape_of;
use crate::gitops::tree::{Node, Tree};
use crate::model::near::nearest;
use crate::model::repository::Repository;
use crate::model::time::render_duration;

/// What `provisor explain ENV POOL [FIELD]` shows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    pub environment: Arc<str>,
    pub pool: Arc<str>,
    pub fields: Vec<ExplainedField>,
    /// Values of other environments that promotion keeps from the pool until they proved themselves there.
    pub held_back: Vec<HeldBack>,
    /// Room that is kept free on nodes of the pool.
    pub headroom: Option<Headroom>,
}

/// A value that another environment has, and this one only gets by promotion.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HeldBack {
    /// As in the strategy: `limits.cpu`.
    pub path: String,
    /// The environment that it comes from.
    pub stage: Arc<str>,
    /// The value today; absent if there is none.
    pub today: Option<Value>,
    /// The value there; absent if promotion would take it away.
    pub there: Option<Value>,
    /// The line of the other environment that sets it.
    pub comes_from: Option<Origin>,
    /// How long it has to stand there, and how.
    pub soak: String,
    pub require: &'static str,
}

/// What `headroom` of a pool asks for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Headroom {
    /// Pods that there is room for.
    pub pods: Value,
    /// What each of them asks for.
    pub requests: Value,
    /// The CapacityBuffer that keeps it: `default/headroom-general`.
    pub buffer: String,
    pub origin: Option<Origin>,
}

/// One value of a pool or of its rendered NodePool.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExplainedField {
    /// `limits.cpu` in the strategy, `spec.limits.cpu` in the object.
    pub path: String,
    /// The value that counts; null if it was taken away.
    pub value: Value,
    /// Everything that set it or took it away, the winner last.
    pub layers: Vec<ExplainedLayer>,
    /// The field of the object that `overrides` take from a value of the strategy: then that is what counts.
    pub overridden: Option<String>,
}

/// One place that set a value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExplainedLayer {
    pub origin: Origin,
    /// Null where the place takes away what was there.
    pub value: Value,
}

/// Explains one field, or without one every field of the pool's strategy and of its NodePool.
pub fn explain(
    repository: &Repository,
    environment: &str,
    pool: &str,
    field: Option<&str>,
    settings: &RenderSettings,
) -> Result<Explanation, Diagnostics> {
    let fleet = Fleet::load(repository)?;
    let resolved = fleet.resolve(environment)?;
    let layers = layers_of(&resolved, pool);
    if resolved.tree.at(["pools", pool]).is_none() {
        return Err(unknown_pool(&resolved, pool).into());
    }
    let engine = Engine::new(repository);
    let (state, _) = render(&fleet, &engine, environment, settings)?;
    let object = state.objects.iter().find(|(name, _)| &*name.kind == "NodePool" && &*name.name == pool);
    let mut fields = Vec::new();
    let mut ignored = Vec::new();
    let effective =
        layers.iter().skip(1).fold(layers[0].clone(), |lower, upper| merged(&lower, upper, &mut ignored));
    let mut paths = Vec::new();
    leaves(&effective, "", &mut paths);
    paths.extend(removed(&layers, &effective));
    for path in &paths {
        let setting = setting(&layers, path);
        let value = find(&effective, path).map_or(Value::Null, Node::to_json);
        fields.push(ExplainedField { path: path.clone(), value, layers: setting, overridden: None });
    }
    if let Some((_, object)) = object {
        let before = before_overrides(&fleet, &engine, &resolved, settings, pool);
        let history = History::of(&fields, &layers, before);
        let mut of_object = Vec::new();
        for (path, value) in values_of(object) {
            paths.push(path.clone());
            if let Some(origin) = object.origin(&path) {
                let layers = history.of_field(&path, &value, origin);
                of_object.push(ExplainedField { path, value, layers, overridden: None });
            }
        }
        fields.iter_mut().for_each(|field| history.decide(field, object));
        fields.extend(of_object);
    }
    fields.retain(|one| field.is_none_or(|field| covers(field, &one.path)));
    let mut held_back = held_back(repository, environment, pool)?;
    held_back.retain(|one| {
        field.is_none_or(|field| covers(field, &one.path) || covers(field, &format!("spec.{}", one.path)))
    });
    let headroom = headroom(&state, pool).filter(|_| field.is_none_or(|field| covers(field, "headroom")));
    if fields.is_empty() && held_back.is_empty() {
        let wanted = field.unwrap_or_default();
        let unknown = unknown_field(&resolved, pool, wanted, &paths);
        return Err(match taken_away(&resolved, &layers, wanted) {
            Some(place) => {
                let message = format!("`{wanted}` of pool `{pool}` is taken away here, so it has no value");
                Diagnostic::error("PRV1108", place, message)
                    .help("remove this line to have what is set below it again")
            }
            None => unknown,
        }
        .into());
    }
    Ok(Explanation { environment: resolved.name.clone(), pool: pool.into(), fields, held_back, headroom })
}

/// What promotion into the environment would change of the pool.
fn held_back(repository: &Repository, environment: &str, pool: &str) -> Result<Vec<HeldBack>, Diagnostics> {
    let all = rules::rules_of(repository)?;
    let Some(rules) = all.into_iter().find(|rules| *rules.environment == *environment) else {
        return Ok(Vec::new());
    };
    let offer = offer(repository, &rules)?;
    let mut held = Vec::new();
    for stage in &rules.from {
        for change in offer.changes_of(stage) {
            let of_pool = change.field.strip_prefix("pools.").and_then(|rest| rest.strip_prefix(pool));
            let Some(path) = of_pool.and_then(|rest| rest.strip_prefix('.')) else { continue };
            held.push(HeldBack {
                path: path.to_owned(),
                stage: stage.clone(),
                today: change.from.clone(),
                there: change.to.clone(),
                comes_from: change.comes_from.clone(),
                soak: render_duration(rules.soak),
                require: rules.require.as_str(),
            });
        }
    }
    Ok(held)
}

/// The room as the objects ask for it.
fn headroom(state: &DesiredState, pool: &str) -> Option<Headroom> {
    let name = format!("headroom-{pool}");
    let object = |kind: &str| {
        let mut objects = state.objects.iter();
        Some(objects.find(|(object, _)| &*object.kind == kind && *object.name == *name)?.1)
    };
    let buffer = object("CapacityBuffer")?;
    let requests = object("PodTemplate").map(|template| {
        template.manifest["template"]["spec"]["containers"][0]["resources"]["requests"].clone()
    });
    let namespace = buffer.manifest["metadata"]["namespace"].as_str().unwrap_or("default");
    Some(Headroom {
        pods: buffer.manifest["spec"]["replicas"].clone(),
        requests: requests.unwrap_or_default(),
        buffer: format!("{namespace}/{name}"),
        origin: buffer.origin("").cloned(),
    })
}

/// Every tree that says something about a pool, lowest first: variables of all layers, defaults of all layers, then the pool
/// in all layers since it was last taken away.
fn layers_of(resolved: &Resolved, pool: &str) -> Vec<Node> {
    let of = |path: [&str; 2]| {
        resolved.layers.iter().filter_map(move |layer| layer.tree.at(path).cloned()).collect::<Vec<_>>()
    };
    let mut layers = vec![Node::map(resolved.tree.place.clone())];
    layers.extend(resolved.layers.iter().filter_map(|layer| layer.tree.only("variables")));
    for path in [["defaults", "pool"], ["pools", pool]] {
        let all = of(path);
        let since = all.iter().rposition(Node::is_removal).map_or(0, |at| at + 1);
        layers.extend(all.into_iter().skip(since));
    }
    layers
}

/// What set the fields of an object: the template, which a field of the strategy may feed with all its layers, and then
/// `overrides`, each layer replacing what was there.
struct History<'a> {
    /// Fields of the strategy, by the line that counts.
    feeding: BTreeMap<Origin, Vec<ExplainedLayer>>,
    layers: &'a [Node],
    before: Option<DesiredObject>,
    values_before: BTreeMap<String, Value>,
}

impl<'a> History<'a> {
    fn of(fields: &[ExplainedField], layers: &'a [Node], before: Option<DesiredObject>) -> Self {
        let feeding = fields
            .iter()
            .filter_map(|field| Some((field.layers.last()?.origin.clone(), field.layers.clone())));
        let values_before = before.iter().flat_map(values_of).collect();
        Self { feeding: feeding.collect(), layers, before, values_before }
    }

    fn of_field(&self, path: &str, value: &Value, origin: &Origin) -> Vec<ExplainedLayer> {
        let overriding: Vec<ExplainedLayer> =
            self.layers.iter().flat_map(|layer| overrides_of(layer, path)).collect();
        if overriding.is_empty() {
            return self.fed(value, origin);
        }
        let replaced = self.before.as_ref().and_then(|before| before.origin(path));
        let replaced = replaced.zip(self.values_before.get(path));
        let mut all = replaced.map_or_else(Vec::new, |(origin, value)| self.fed(value, origin));
        all.extend(overriding);
        // The line that counts comes last, whatever the overrides of one file do to each other.
        if all.last().is_some_and(|last| last.origin != *origin) {
            all.retain(|layer| layer.origin != *origin);
            all.push(ExplainedLayer { origin: origin.clone(), value: value.clone() });
        }
        all
    }

    /// The value that counts, for a field of the strategy that became one of the object which an override changed.
    fn decide(&self, field: &mut ExplainedField, object: &DesiredObject) {
        let (Some(before), Some(set_by)) = (&self.before, field.layers.last().map(|last| &last.origin))
        else {
            return;
        };
        let fed = before.origins.iter().filter(|(_, origin)| *origin == set_by).map(|(path, _)| path);
        for path in fed {
            let (was, is) = (
                counting(&before.manifest, &before.manifest, path),
                counting(&before.manifest, &object.manifest, path),
            );
            let overriding: Vec<(&Node, String, &Place)> = self
                .layers
                .iter()
                .filter_map(|layer| layer.get("overrides"))
                .flat_map(|node| written(node).into_iter().map(move |(path, place)| (node, path, place)))
                .filter(|(_, written, _)| overlap(path, written))
                .collect();
            let Some((_, written, _)) = overriding.last().filter(|_| was != is) else { continue };
            field.overridden = Some(written.clone());
            field.value = is;
            for (node, written, place) in &overriding {
                let mut nodes = Vec::new();
                overrides_at(node, &steps_of(written).unwrap_or_default(), &mut nodes);
                let value = nodes
                    .first()
                    .filter(|node| !node.is_removal())
                    .map_or(Value::Null, |node| node.to_json());
                let place = nodes.first().map_or(*place, |node| &node.place);
                field.layers.push(ExplainedLayer { origin: place.origin(), value });
            }
            return;
        }
    }

    fn fed(&self, value: &Value, origin: &Origin) -> Vec<ExplainedLayer> {
        let own = || vec![ExplainedLayer { origin: origin.clone(), value: value.clone() }];
        self.feeding.get(origin).cloned().unwrap_or_else(own)
    }
}

/// What stands at a path of an object. Of a list of requirements it is what stands for the same label, wherever.
fn counting(before: &Value, object: &Value, path: &str) -> Value {
    let mut at = (before, object);
    for step in steps_of(path).unwrap_or_default() {
        at = match &step {
            Step::Key(key) => (&at.0[key.as_str()], &at.1[key.as_str()]),
            Step::Index(index) => {
                let entry = &at.0[*index];
                if let Some(label) = entry["key"].as_str().filter(|_| !entry["operator"].is_null()) {
                    let all = at.1.as_array().into_iter().flatten();
                    let same: Vec<&Value> = all.filter(|one| one["key"] == label).collect();
                    return match same.as_slice() {
                        [] => Value::Null,
                        [only] if only["operator"] == "In" => only["values"].clone(),
                        _ => json!(same),
                    };
                }
                (entry, &at.1[*index])
            }
        };
    }
    at.1.clone()
}

/// What the `overrides` of one layer say of a field.
fn overrides_of(layer: &Node, path: &str) -> Vec<ExplainedLayer> {
    let mut found = Vec::new();
    if let (Ok(steps), Some(overrides)) = (steps_of(path), layer.get("overrides")) {
        overrides_at(overrides, &steps, &mut found);
    }
    found.retain(|node| !node.is_removal());
    found.iter().map(|node| ExplainedLayer { origin: node.place.origin(), value: node.to_json() }).collect()
}

fn overrides_at<'n>(node: &'n Node, steps: &[Step], found: &mut Vec<&'n Node>) {
    match steps {
        [] => found.push(node),
        [Step::Index(index), rest @ ..] if node.as_list().is_some() => {
            if let Some(item) = node.as_list().and_then(|items| items.get(*index)) {
                overrides_at(item, rest, found);
            }
        }
        steps => {
            for (key, entry) in node.as_map().into_iter().flat_map(|map| map.iter()) {
                // Where keys are free, a dot is a part of one.
                let own = match steps.first() {
                    Some(Step::Key(free)) if **free == **key => vec![Step::Key(free.clone())],
                    _ => steps_of(key).unwrap_or_default(),
                };
                if let Some(rest) = steps.strip_prefix(own.as_slice()).filter(|_| !own.is_empty()) {
                    overrides_at(&entry.node, rest, found);
                }
            }
        }
    }
}

fn values_of(object: &DesiredObject) -> Vec<(String, Value)> {
    let mut values = Vec::new();
    collect(&object.manifest["spec"], "spec", &mut values);
    values
}

/// All layers that say something of a path, lowest first. A list that adds nothing to the one below is none of them.
fn setting(layers: &[Node], path: &str) -> Vec<ExplainedLayer> {
    let mut all = Vec::new();
    let mut below = layers[0].clone();
    let mut ignored = Vec::new();
    for layer in layers {
        let merged = merged(&below, layer, &mut ignored);
        if let Some(node) = find(layer, path) {
            let values = [&below, &merged].map(|tree| find(tree, path).map(Node::to_json));
            let is_empty = node.as_list().is_some_and(<[Node]>::is_empty);
            let is_idle = is_empty && values[0].is_some() && values[0] == values[1];
            let value = if node.is_removal() { Value::Null } else { node.to_json() };
            if !is_idle {
                all.push(ExplainedLayer { origin: node.place.origin(), value });
            }
        }
        below = merged;
    }
    all
}

/// What was set by a layer and taken away above it: fields, and lists whose last entry went.
fn removed(layers: &[Node], effective: &Node) -> Vec<String> {
    let mut all = BTreeSet::new();
    layers.iter().for_each(|layer| removals(layer, "", &mut all));
    all.retain(|path| {
        find(effective, path).is_none_or(|node| node.as_list().is_some_and(<[Node]>::is_empty))
    });
    let known = {
        let mut paths = Vec::new();
        leaves(effective, "", &mut paths);
        paths
    };
    all.into_iter().filter(|path| !known.contains(path)).collect()
}

/// The last place that takes away a field, or what it is in: of the strategy, of the object, or of all defaults.
fn taken_away(resolved: &Resolved, layers: &[Node], field: &str) -> Option<Place> {
    let steps = steps_of(field).ok()?;
    let own = field.strip_prefix("spec.").unwrap_or(field);
    let ends = |text: &str| text.match_indices('.').map(|(at, _)| at).chain([text.len()]).collect::<Vec<_>>();
    let mut places = Vec::new();
    let defaults = resolved.layers.iter().filter_map(|layer| layer.tree.at(["defaults", "pool"]));
    let mut below: Option<&Node> = None;
    for defaults in defaults {
        let had = below.take().is_some_and(|below| find(below, own).is_some());
        if defaults.is_removal() && had {
            places.push(defaults.place.clone());
        }
        below = Some(defaults);
    }
    for layer in layers {
        let of_pool = ends(own).into_iter().filter_map(|end| find(layer, &own[..end]));
        places.extend(of_pool.filter(|node| node.is_removal()).map(|node| node.place.clone()));
        let Some(overrides) = layer.get("overrides") else { continue };
        let mut nodes = Vec::new();
        (1..=steps.len()).for_each(|count| overrides_at(overrides, &steps[..count], &mut nodes));
        places.extend(nodes.into_iter().filter(|node| node.is_removal()).map(|node| node.place.clone()));
    }
    places.pop()
}

fn removals(node: &Node, path: &str, out: &mut BTreeSet<String>) {
    let has_removals = node.as_list().is_some_and(|items| items.iter().any(Node::is_removal));
    if !path.is_empty() && (node.is_removal() || has_removals) {
        out.insert(path.to_owned());
        return;
    }
    let entries = node.as_map().into_iter().flat_map(|map| map.iter());
    for (key, entry) in entries.filter(|(key, _)| !(path.is_empty() && &***key == "overrides")) {
        removals(&entry.node, &joined(path, key), out);
    }
}

/// The value at a path of a layer; entries of keyed lists are found by their place in the merged list only, so a list is
/// a leaf here.
fn find<'n>(node: &'n Node, path: &str) -> Option<&'n Node> {
    let mut at = node;
    let mut rest = path;
    while !rest.is_empty() {
        let map = at.as_map()?;
        // The longest key that fits: labels have dots in them.
        let (key, entry) = map
            .iter()
            .filter(|(key, _)| {
                rest.strip_prefix(&***key).is_some_and(|after| after.is_empty() || after.starts_with('.'))
            })
            .max_by_key(|(key, _)| key.len())?;
        rest = rest[key.len()..].trim_start_matches('.');
        at = &entry.node;
    }
    Some(at)
}

fn leaves(node: &Node, path: &str, out: &mut Vec<String>) {
    match &node.value {
        Tree::Map(map) if !map.is_empty() => {
            for (key, entry) in map.iter().filter(|(key, _)| !(path.is_empty() && &***key == "overrides")) {
                leaves(&entry.node, &joined(path, key), out);
            }
        }
        _ if path.is_empty() => {}
        _ => out.push(path.to_owned()),
    }
}

fn collect(value: &Value, path: &str, out: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter().for_each(|(key, value)| collect(value, &joined(path, key), out));
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().enumerate().for_each(|(at, value)| collect(value, &format!("{path}[{at}]"), out));
        }
        Value::Null => {}
        value => out.push((path.to_owned(), value.clone())),
    }
}

/// Whether `path` is the field or something inside it.
fn covers(field: &str, path: &str) -> bool {
    path.strip_prefix(field).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn unknown_pool(resolved: &Resolved, pool: &str) -> Diagnostic {
    let names: Vec<&str> = resolved
        .tree
        .get("pools")
        .and_then(Node::as_map)
        .map_or_else(Vec::new, |map| map.0.keys().map(|key| &**key).collect());
    let place = Place::start_of(&resolved.tree.place.source);
    let message = format!("environment `{}` has no pool `{pool}`", resolved.name);
    let help = match nearest(pool, names.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("its pools are {}", listed(names)),
    };
    Diagnostic::error("PRV1107", place, message).help(help)
}

fn unknown_field(resolved: &Resolved, pool: &str, field: &str, paths: &[String]) -> Diagnostic {
    let place = Place::start_of(&resolved.tree.place.source);
    let message = format!("pool `{pool}` has no value at `{field}`");
    // A table or list that has values is as good a name as one of them.
    let known = paths.iter().flat_map(|path| {
        let ends = path.match_indices(['.', '[']).map(|(at, _)| at).chain([path.len()]);
        ends.map(move |end| &path[..end])
    });
    let unset = possible_fields();
    let all = known.chain(unset.iter().map(String::as_str));
    let help = match nearest(field, all) {
        _ if unset.contains(&first_entries(field)) => {
            "nothing sets it; leave the field out to see all that is set".to_owned()
        }
        Some(near) => format!("did you mean `{near}`?"),
        None => "leave the field out to see all of them".to_owned(),
    };
    Diagnostic::error("PRV1108", place, message).help(help)
}

/// Every field that a pool or its NodePool can have, set or not; of lists those of the first entry.
fn possible_fields() -> Vec<String> {
    let mut fields = shape_of(SchemaKind::Environment).fields_below(&["pools", "*"]);
    let kinds = crd::definitions();
    let pool = kinds.iter().find(|kind| kind.kind == "NodePool").map(Definition::manifest);
    if let Some(pool) = pool {
        let schema = &pool["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        note_properties(&schema["properties"]["spec"], "spec", &mut fields);
    }
    fields
}

fn note_properties(schema: &Value, path: &str, out: &mut Vec<String>) {
    for (name, inner) in schema["properties"].as_object().into_iter().flatten() {
        let path = joined(path, name);
        out.push(path.clone());
        note_properties(inner, &path, out);
    }
    if !schema["items"].is_null() {
        note_properties(&schema["items"], &format!("{path}[0]"), out);
    }
}

/// `a[3].b` as `a[0].b`.
fn first_entries(path: &str) -> String {
    let parts = path.split('[').map(|part| match part.split_once(']') {
        Some((_, rest)) => format!("0]{rest}"),
        None => part.to_owned(),
    });
    parts.collect::<Vec<_>>().join("[")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_nothing_sets_are_known() {
        let fields = possible_fields();
        for field in [
            "weight",
            "limits",
            "budgets[0].schedule",
            "headroom.cpu",
            "spec.weight",
            "spec.replicas",
            "spec.disruption.budgets[0].reasons",
            "spec.template.spec.taints[0].effect",
        ] {
            assert!(fields.iter().any(|known| known == field), "{field} is missing in {fields:?}");
        }
        assert_eq!(first_entries("spec.disruption.budgets[12].nodes"), "spec.disruption.budgets[0].nodes");
    }
}
