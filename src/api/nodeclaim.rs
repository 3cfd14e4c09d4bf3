//! NodeClaim `karpenter.sh/v1` (api.md 5), into the model and back.

use serde_json::{Map, Value, json};

use super::field::Field;
use super::requirement::Place;
use super::{condition, metadata, nodepool, render, requirement, taint};
use crate::model::claim::{ClaimSpec, NodeClaim};
use crate::model::label;
use crate::model::name::{ClaimName, NodeName, ProviderId};
use crate::model::quantity::Resources;
use crate::model::symbol::Symbol;
use crate::model::time::render_duration;

pub(crate) fn read(object: &Field<'_, '_>) -> Option<NodeClaim> {
    object.only(&["apiVersion", "kind", "metadata", "spec", "status"]);
    let metadata = metadata::read(object);
    let spec = read_spec(&object.get("spec").required());
    let status = object.get("status");
    let name = |key: &str| status.get(key).symbol().filter(|name| !name.is_empty());
    let resources = |key: &str| -> Resources { status.get(key).resources().unwrap_or_default() };
    Some(NodeClaim {
        name: ClaimName(metadata.name),
        uid: metadata.uid,
        labels: metadata.labels,
        annotations: metadata::read_annotations(object),
        created: metadata.created,
        deleted: metadata.deleted,
        has_finalizer: metadata.has_finalizer,
        spec: spec?,
        node: name("nodeName").map(NodeName),
        provider_id: name("providerID").map(ProviderId),
        image: name("imageID"),
        capacity: resources("capacity"),
        allocatable: resources("allocatable"),
        conditions: condition::read(&status.get("conditions")),
        last_pod_event: status.get("lastPodEventTime").timestamp(),
    })
}

fn read_spec(spec: &Field<'_, '_>) -> Option<ClaimSpec> {
    spec.only(&[
        "taints",
        "startupTaints",
        "requirements",
        "resources",
        "nodeClassRef",
        "terminationGracePeriod",
        "expireAfter",
    ]);
    let taints = taint::read_checked(&spec.get("taints"));
    let startup_taints = taint::read_checked(&spec.get("startupTaints"));
    let resources = spec.get("resources");
    resources.only(&["requests"]);
    let requests = resources.get("requests").resources().unwrap_or_default();
    let requirements = requirement::read(&spec.get("requirements").required_list(), Place::Claim);
    let class = nodepool::read_class_ref(&spec.get("nodeClassRef").required());
    let termination_grace = nodepool::read_grace(&spec.get("terminationGracePeriod"));
    let expire_after = nodepool::read_expire_after(spec);
    Some(ClaimSpec {
        requirements,
        requests,
        taints,
        startup_taints,
        class: class?,
        expire_after,
        termination_grace,
    })
}

/// The claim as Karpenter would write it: owned by its pool, finalizer and status included.
pub(crate) fn render(claim: &NodeClaim) -> Value {
    let mut metadata = json!({ "name": claim.name.as_str(), "uid": claim.uid.as_str() });
    for (key, labels) in [("labels", &claim.labels), ("annotations", &claim.annotations)] {
        if !labels.is_empty() {
            metadata[key] = render::labels(labels);
        }
    }
    for (key, moment) in [("creationTimestamp", claim.created), ("deletionTimestamp", claim.deleted)] {
        if let Some(moment) = moment {
            metadata[key] = moment.to_string().into();
        }
    }
    if claim.has_finalizer {
        metadata["finalizers"] = json!([metadata::TERMINATION_FINALIZER]);
    }
    if let Some(pool) = claim.labels.get(&*label::NODEPOOL) {
        metadata["ownerReferences"] = json!([{
            "apiVersion": nodepool::API_VERSION,
            "kind": "NodePool",
            "name": pool.as_str(),
            "uid": metadata::made_up_uid("default", pool).as_str(),
            "blockOwnerDeletion": true,
        }]);
    }
    json!({
        "apiVersion": nodepool::API_VERSION,
        "kind": "NodeClaim",
        "metadata": metadata,
        "spec": render_spec(&claim.spec),
        "status": render_status(claim),
    })
}

fn render_spec(claim: &ClaimSpec) -> Map<String, Value> {
    let mut spec = Map::new();
    render::constraints(&mut spec, &claim.taints, &claim.startup_taints);
    spec.insert("requirements".into(), requirement::render(&claim.requirements));
    if !claim.requests.is_empty() {
        spec.insert("resources".into(), json!({ "requests": render::resources(&claim.requests) }));
    }
    spec.insert("nodeClassRef".into(), render::class_ref(&claim.class));
    if let Some(grace) = claim.termination_grace {
        spec.insert("terminationGracePeriod".into(), render_duration(grace).into());
    }
    spec.insert("expireAfter".into(), claim.expire_after.to_string().into());
    spec
}

fn render_status(claim: &NodeClaim) -> Map<String, Value> {
    let mut status = Map::new();
    let texts: [(&str, Option<Symbol>); 3] = [
        ("nodeName", claim.node.map(|node| node.0)),
        ("providerID", claim.provider_id.map(|id| id.0)),
        ("imageID", claim.image),
    ];
    for (key, text) in texts {
        if let Some(text) = text {
            status.insert(key.into(), text.as_str().into());
        }
    }
    for (key, resources) in [("capacity", &claim.capacity), ("allocatable", &claim.allocatable)] {
        if !resources.is_empty() {
            status.insert(key.into(), render::resources(resources));
        }
    }
    let conditions = condition::render(&claim.conditions);
    if conditions.as_array().is_some_and(|list| !list.is_empty()) {
        status.insert("conditions".into(), conditions);
    }
    if let Some(at) = claim.last_pod_event {
        status.insert("lastPodEventTime".into(), at.to_string().into());
    }
    status
}
