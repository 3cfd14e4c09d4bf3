//! CapacityBuffer `autoscaling.x-k8s.io` (api.md 7): room kept free for pods to come; and the PodTemplate that it may name.

use serde_json::{Map, Value, json};

use super::field::Field;
use super::pod::{PodShapes, Priorities, read_shape};
use super::{condition, metadata};
use crate::model::buffer::{ACTIVE_CAPACITY, BufferSource, BufferStatus, CapacityBuffer, PodTemplate};
use crate::model::name::{Namespace, ObjectKey};
use crate::model::symbol::Symbol;

/// Reads a buffer; notes everything wrong with it.
pub(crate) fn read(object: &Field<'_, '_>) -> Option<CapacityBuffer> {
    object.only(&["apiVersion", "kind", "metadata", "spec", "status"]);
    let metadata = metadata::read(object);
    let spec = object.get("spec").required();
    spec.only(&["provisioningStrategy", "podTemplateRef", "scalableRef", "replicas", "percentage", "limits"]);
    let strategy = spec.get("provisioningStrategy").symbol().filter(|text| !text.is_empty());
    let source = read_source(&spec);
    let (replicas, percentage) = (spec.get("replicas"), spec.get("percentage"));
    let count =
        |field: &Field<'_, '_>| field.integer_in(0..=i64::from(i32::MAX)).and_then(|n| u32::try_from(n).ok());
    let (replicas_read, percentage_read) = (count(&replicas), count(&percentage));
    let limits = spec.get("limits");
    let limits_read = limits.resources();
    if spec.get("podTemplateRef").is_present() && !replicas.is_present() && !limits.is_present() {
        spec.error_with_help(
            "has a `podTemplateRef`, but nothing says how many pods to keep room for".into(),
            "set `replicas` or `limits`",
        );
    }
    Some(CapacityBuffer {
        key: ObjectKey { namespace: Namespace(metadata.namespace), name: metadata.name },
        uid: metadata.uid,
        created: metadata.created,
        is_deleting: metadata.deleted.is_some(),
        strategy: strategy.unwrap_or(Symbol::new(ACTIVE_CAPACITY)),
        source,
        replicas: replicas_read,
        percentage: percentage_read,
        limits: limits_read,
        status: read_status(&object.get("status")),
    })
}

fn read_source(spec: &Field<'_, '_>) -> Option<BufferSource> {
    let (template, scalable) = (spec.get("podTemplateRef"), spec.get("scalableRef"));
    let mut source = None;
    if template.only(&["name"])
        && let Some(name) = template.get("name").required_text()
    {
        source = Some(BufferSource::Template(Symbol::new(name)));
    }
    if scalable.only(&["apiGroup", "kind", "name"]) {
        let group = Symbol::new(scalable.get("apiGroup").text().unwrap_or_default());
        let (kind, name) = (scalable.get("kind").required_text(), scalable.get("name").required_text());
        if let (Some(kind), Some(name)) = (kind, name) {
            source = Some(BufferSource::Scalable { group, kind: Symbol::new(kind), name: Symbol::new(name) });
        }
    }
    if template.is_present() && scalable.is_present() {
        spec.error_with_help("names both `podTemplateRef` and `scalableRef`".into(), "leave one of them out");
    }
    source
}

fn read_status(status: &Field<'_, '_>) -> BufferStatus {
    let name = status.get("podTemplateRef").get("name").symbol();
    let generation = status.get("podTemplateGeneration").integer();
    BufferStatus {
        template: name.map(|name| (name, generation.unwrap_or(0))),
        replicas: status.get("replicas").integer().and_then(|count| u32::try_from(count).ok()),
        strategy: status.get("provisioningStrategy").symbol(),
        conditions: condition::read(&status.get("conditions")),
    }
}

pub(crate) fn render_status(status: &BufferStatus) -> Value {
    let mut rendered = Map::new();
    if let Some((name, generation)) = status.template {
        rendered.insert("podTemplateRef".into(), json!({ "name": name.as_str() }));
        rendered.insert("podTemplateGeneration".into(), generation.into());
    }
    if let Some(replicas) = status.replicas {
        rendered.insert("replicas".into(), replicas.into());
    }
    if let Some(strategy) = status.strategy {
        rendered.insert("provisioningStrategy".into(), strategy.as_str().into());
    }
    rendered.insert("conditions".into(), condition::render(&status.conditions));
    rendered.into()
}

/// A PodTemplate of the core API.
pub(crate) fn read_template(
    object: &Field<'_, '_>,
    shapes: &mut PodShapes,
    priorities: &Priorities,
) -> PodTemplate {
    let metadata = metadata::read(object);
    let template = object.get("template").required();
    let pod = template.get("spec").required();
    let namespace = Namespace(metadata.namespace);
    let shape = read_shape(&template, namespace, &pod, None, priorities);
    PodTemplate {
        key: ObjectKey { namespace, name: metadata.name },
        generation: object.get("metadata").get("generation").integer().unwrap_or(0),
        shape: shapes.share(shape),
    }
}
