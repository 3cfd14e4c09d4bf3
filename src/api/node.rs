//! Node, into the model and back; CSINode and VolumeAttachment, which say what hangs on a node.

use serde_json::{Map, Value, json};

use super::field::Field;
use super::{metadata, render, taint};
use crate::model::name::{NodeName, ProviderId};
use crate::model::node::{Node, NodeCondition};
use crate::model::symbol::Symbol;
use crate::model::workload::{CsiNode, VolumeAttachment};

pub(crate) fn read(object: &Field<'_, '_>) -> Node {
    let metadata = metadata::read(object);
    let (spec, status) = (object.get("spec"), object.get("status"));
    let conditions = status.get("conditions");
    let read_condition = |condition: Field<'_, '_>| {
        let text = |key: &str| condition.get(key).symbol();
        let since = condition.get("lastTransitionTime").timestamp();
        Some(NodeCondition { kind: text("type")?, status: text("status")?, since })
    };
    let provider_id = spec.get("providerID").symbol().filter(|id| !id.is_empty());
    Node {
        name: NodeName(metadata.name),
        uid: metadata.uid,
        labels: metadata.labels,
        annotations: metadata::read_annotations(object),
        created: metadata.created,
        deleted: metadata.deleted,
        has_finalizer: metadata.has_finalizer,
        provider_id: provider_id.map(ProviderId),
        taints: taint::read_stored(&spec.get("taints")),
        is_cordoned: spec.get("unschedulable").boolean().unwrap_or(false),
        capacity: status.get("capacity").resources().unwrap_or_default(),
        allocatable: status.get("allocatable").resources().unwrap_or_default(),
        conditions: conditions.items().filter_map(read_condition).collect(),
    }
}

pub(crate) fn render(node: &Node) -> Value {
    let mut metadata = json!({ "name": node.name.as_str(), "uid": node.uid.as_str() });
    for (key, labels) in [("labels", &node.labels), ("annotations", &node.annotations)] {
        if !labels.is_empty() {
            metadata[key] = render::labels(labels);
        }
    }
    for (key, moment) in [("creationTimestamp", node.created), ("deletionTimestamp", node.deleted)] {
        if let Some(moment) = moment {
            metadata[key] = moment.to_string().into();
        }
    }
    if node.has_finalizer {
        metadata["finalizers"] = json!([metadata::TERMINATION_FINALIZER]);
    }
    let mut spec = Map::new();
    if let Some(id) = node.provider_id {
        spec.insert("providerID".into(), id.as_str().into());
    }
    if !node.taints.is_empty() {
        spec.insert("taints".into(), taint::render(&node.taints));
    }
    if node.is_cordoned {
        spec.insert("unschedulable".into(), true.into());
    }
    let condition = |condition: &NodeCondition| {
        let mut entry = json!({ "type": condition.kind.as_str(), "status": condition.status.as_str() });
        if let Some(since) = condition.since {
            entry["lastTransitionTime"] = since.to_string().into();
        }
        entry
    };
    let mut status = Map::new();
    for (key, resources) in [("capacity", &node.capacity), ("allocatable", &node.allocatable)] {
        if !resources.is_empty() {
            status.insert(key.into(), render::resources(resources));
        }
    }
    if !node.conditions.is_empty() {
        status.insert("conditions".into(), node.conditions.iter().map(condition).collect());
    }
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": status })
}

pub(crate) fn read_csi_node(object: &Field<'_, '_>) -> CsiNode {
    let metadata = metadata::read(object);
    let spec = object.get("spec");
    let drivers = spec.get("drivers");
    let limit = |driver: Field<'_, '_>| {
        let name = driver.get("name").required_text()?;
        let count = driver.get("allocatable").get("count").integer()?;
        Some((Symbol::new(name), u32::try_from(count).ok()?))
    };
    CsiNode { node: NodeName(metadata.name), limits: drivers.items().filter_map(limit).collect() }
}

pub(crate) fn read_volume_attachment(object: &Field<'_, '_>) -> Option<VolumeAttachment> {
    let metadata = metadata::read(object);
    let spec = object.get("spec").required();
    Some(VolumeAttachment {
        name: metadata.name,
        node: NodeName::new(spec.get("nodeName").required_text()?),
        volume: spec.get("source").get("persistentVolumeName").symbol(),
    })
}
