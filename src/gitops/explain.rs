//! Where a pool's values come from: every layer that set one, in order, and the one that won.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::gitops::desired::{DesiredState, Origin};
use crate::gitops::diagnostic::{Diagnostic, Diagnostics, Place, listed, nearest};
use crate::gitops::engine::Engine;
use crate::gitops::fleet::{Fleet, Resolved};
use crate::gitops::overlay::merged;
use crate::gitops::overrides::{Step, steps_of};
use crate::gitops::promotion::{offer, rules};
use crate::gitops::render::{RenderSettings, render};
use crate::gitops::tree::{Node, Tree};
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
    /// The value that counts.
    pub value: Value,
    /// Everything that set it, the winner last.
    pub layers: Vec<ExplainedLayer>,
}

/// One place that set a value.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ExplainedLayer {
    pub origin: Origin,
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
    for path in &paths {
        let setting: Vec<ExplainedLayer> = layers.iter().filter_map(|layer| explained(layer, path)).collect();
        let value = find(&effective, path).map_or(Value::Null, Node::to_json);
        fields.push(ExplainedField { path: path.clone(), value, layers: setting });
    }
    if let Some((_, object)) = object {
        let mut values = Vec::new();
        collect(&object.manifest["spec"], "spec", &mut values);
        for (path, value) in values {
            if let Some(origin) = object.origin(&path) {
                let layer = ExplainedLayer { origin: origin.clone(), value: value.clone() };
                fields.push(ExplainedField { path, value, layers: vec![layer] });
            }
        }
        link(&mut fields, &layers);
    }
    fields.retain(|one| field.is_none_or(|field| covers(field, &one.path)));
    let mut held_back = held_back(repository, environment, pool)?;
    held_back.retain(|one| {
        field.is_none_or(|field| covers(field, &one.path) || covers(field, &format!("spec.{}", one.path)))
    });
    let headroom = headroom(&state, pool).filter(|_| field.is_none_or(|field| covers(field, "headroom")));
    if fields.is_empty() && held_back.is_empty() {
        let wanted = field.unwrap_or_default();
        return Err(unknown_field(&resolved, pool, wanted, &paths).into());
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
/// in all layers.
fn layers_of(resolved: &Resolved, pool: &str) -> Vec<Node> {
    let of = |path: [&str; 2]| {
        resolved.layers.iter().filter_map(move |layer| layer.tree.at(path).cloned()).collect::<Vec<_>>()
    };
    let mut layers = vec![Node::map(resolved.tree.place.clone())];
    layers.extend(resolved.layers.iter().filter_map(|layer| layer.tree.only("variables")));
    layers.extend(of(["defaults", "pool"]));
    layers.extend(of(["pools", pool]));
    layers
}

/// Object fields that a strategy field feeds were set by all its layers.
fn link(fields: &mut [ExplainedField], layers: &[Node]) {
    let known: Vec<(String, Vec<ExplainedLayer>)> = fields
        .iter()
        .filter(|field| !field.path.starts_with("spec."))
        .map(|field| (field.path.clone(), field.layers.clone()))
        .collect();
    for field in fields.iter_mut().filter(|field| field.path.starts_with("spec.")) {
        let origin = field.layers[0].origin.clone();
        let feeding =
            known.iter().find(|(_, layers)| layers.last().is_some_and(|last| last.origin == origin));
        if let Some((_, feeding)) = feeding {
            field.layers = feeding.clone();
        }
        let overridden = layers.iter().filter_map(|layer| override_of(layer, &field.path));
        for layer in overridden {
            if !field.layers.contains(&layer) {
                field.layers.insert(field.layers.len() - 1, layer);
            }
        }
    }
}

fn override_of(layer: &Node, path: &str) -> Option<ExplainedLayer> {
    let steps = steps_of(path).ok()?;
    let node = override_at(layer.get("overrides")?, &steps)?;
    Some(ExplainedLayer { origin: node.place.origin(), value: node.to_json() })
}

fn override_at<'n>(node: &'n Node, steps: &[Step]) -> Option<&'n Node> {
    if steps.is_empty() {
        return Some(node);
    }
    node.as_map()?.iter().find_map(|(key, entry)| {
        let own = steps_of(key).ok()?;
        override_at(&entry.node, steps.strip_prefix(own.as_slice())?)
    })
}

fn explained(layer: &Node, path: &str) -> Option<ExplainedLayer> {
    let node = find(layer, path)?;
    Some(ExplainedLayer { origin: node.place.origin(), value: node.to_json() })
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
                leaves(&entry.node, &crate::gitops::rendered::joined(path, key), out);
            }
        }
        _ if path.is_empty() => {}
        _ => out.push(path.to_owned()),
    }
}

fn collect(value: &Value, path: &str, out: &mut Vec<(String, Value)>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            map.iter()
                .for_each(|(key, value)| collect(value, &crate::gitops::rendered::joined(path, key), out));
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
    let help = match nearest(field, paths.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "leave the field out to see all of them".to_owned(),
    };
    Diagnostic::error("PRV1108", place, message).help(help)
}
