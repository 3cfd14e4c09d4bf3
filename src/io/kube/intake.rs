//! From JSON to news: one reader for everything that is watched, so that equal pods share one shape.

use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::Kind;
use super::record::{Change, Record, Version};
use crate::api::{FieldError, Object, Reader};
use crate::model::name::{ClaimName, ClassName, Namespace, NodeName, ObjectKey, PoolName, ProviderId};
use crate::model::observation::{Observation, Unreadable};
use crate::model::pod::{Pod, PodShape};
use crate::model::symbol::Symbol;

#[derive(Debug, Default)]
pub(super) struct Intake(Mutex<Reader>);

/// An object that cannot be understood. What was understood of it before stays in force, and nothing that hangs on it is ended.
#[derive(Debug, thiserror::Error)]
#[error("{} {} cannot be read, so {}: {}", .kind.resource().kind, shown(*.key), fate(*.kind), joined(.errors))]
pub(super) struct Misread {
    pub kind: Kind,
    pub key: ObjectKey,
    pub errors: Vec<FieldError>,
}

fn fate(kind: Kind) -> &'static str {
    match kind {
        Kind::NodePool => {
            "it stays as it was, or, if it never could be read, it and its machines are left alone"
        }
        Kind::NodeClaim | Kind::Node => "it and its machine are left alone",
        Kind::Pod => "its node is kept, and no place is sought for it",
        _ => "it counts as it was before, or not at all",
    }
}

fn shown(key: ObjectKey) -> String {
    if key.namespace.0.is_empty() { key.name.to_string() } else { key.to_string() }
}

fn joined(errors: &[FieldError]) -> String {
    errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

impl Intake {
    /// Reads an object of `kind`, and tells what is wrong with it if it cannot be understood. Lists leave `apiVersion` and `kind`
    /// out of their items.
    pub fn read(&self, kind: Kind, mut object: Value) -> (Change, Option<Misread>) {
        let resource = kind.resource();
        if let Some(map) = object.as_object_mut() {
            map.insert("apiVersion".into(), resource.api_version.into());
            map.insert("kind".into(), resource.kind.into());
        }
        let (key, version) = (key_of(&object), Version::of(&object));
        let (observation, misread) = {
            let mut reader = self.0.lock().expect("no reader panics");
            match reader.parse(&object) {
                Ok(parsed) => {
                    if let Object::PriorityClass(class) = &parsed {
                        reader.add_priority(class);
                    }
                    (parsed.into_observation(), None)
                }
                Err(errors) => {
                    let legible = reader.parse_legible(&object);
                    (what_is_left(kind, key, &object, legible), Some(Misread { kind, key, errors }))
                }
            }
        };
        let is_written = kind.is_custom() || kind == Kind::Node;
        let record = is_written.then(|| Record::of(&object));
        let manifest = kind.is_synced().then_some(object);
        (Change { kind, key, version, is_gone: false, observation, record, manifest }, misread)
    }
}

/// What is to be known of an object that cannot be understood: enough to leave alone what hangs on it.
fn what_is_left(kind: Kind, key: ObjectKey, object: &Value, legible: Option<Object>) -> Option<Observation> {
    let machine = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).map(ProviderId::new);
    Some(match (kind, legible) {
        (Kind::NodePool, _) => Observation::Unreadable(Unreadable::Pool(PoolName(key.name))),
        (Kind::NodeClaim, _) => {
            let (name, machine) = (ClaimName(key.name), machine("/status/providerID"));
            Observation::Unreadable(Unreadable::Claim { name, machine })
        }
        (Kind::Node, _) => {
            let (name, machine) = (NodeName(key.name), machine("/spec/providerID"));
            Observation::Unreadable(Unreadable::Node { name, machine })
        }
        (Kind::Pod, Some(Object::Pod(pod))) => Observation::Pod(Arc::new(immovable(pod))),
        _ => return None,
    })
}

/// Nobody knows what `pod` needs: it is not moved, and where it does not run yet, no room is made for it.
fn immovable(pod: Pod) -> Pod {
    let shape = PodShape { do_not_disrupt: Some(Symbol::new("true")), ..(*pod.shape).clone() };
    Pod { shape: Arc::new(shape), is_gated: true, ..pod }
}

/// The news that an object is gone.
pub(super) fn gone(kind: Kind, key: ObjectKey, version: Version) -> Change {
    let name = key.name;
    let observation = match kind {
        Kind::PriorityClass => None,
        Kind::Namespace => Some(Observation::NamespaceGone(Namespace(name))),
        Kind::NodePool => Some(Observation::PoolGone(PoolName(name))),
        Kind::NodeClass => Some(Observation::ClassGone(ClassName(name))),
        Kind::NodeOverlay => Some(Observation::OverlayGone(name)),
        Kind::NodeClaim => Some(Observation::ClaimGone(ClaimName(name))),
        Kind::Node => Some(Observation::NodeGone(NodeName(name))),
        Kind::Pod => Some(Observation::PodGone(key)),
        Kind::DaemonSet => Some(Observation::DaemonSetGone(key)),
        Kind::Budget => Some(Observation::BudgetGone(key)),
        Kind::VolumeClaim => Some(Observation::VolumeClaimGone(key)),
        Kind::Volume => Some(Observation::VolumeGone(name)),
        Kind::StorageClass => Some(Observation::StorageClassGone(name)),
        Kind::CsiNode => Some(Observation::CsiNodeGone(NodeName(name))),
        Kind::VolumeAttachment => Some(Observation::VolumeAttachmentGone(name)),
        Kind::Buffer => Some(Observation::BufferGone(key)),
        Kind::PodTemplate => Some(Observation::PodTemplateGone(key)),
        Kind::Service => Some(Observation::ServiceGone(key)),
        Kind::Deployment | Kind::StatefulSet | Kind::ReplicaSet | Kind::ReplicationController => {
            Some(Observation::ScalableGone { kind: Symbol::new(kind.resource().kind), key })
        }
    };
    Change { kind, key, version, is_gone: true, observation, record: None, manifest: None }
}

pub(super) fn key_of(object: &Value) -> ObjectKey {
    let text = |key: &str| {
        let value = object.get("metadata").and_then(|metadata| metadata.get(key));
        value.and_then(Value::as_str).unwrap_or_default()
    };
    ObjectKey { namespace: Namespace::new(text("namespace")), name: Symbol::new(text("name")) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(kind: Kind, object: Value) -> (Change, String) {
        let (change, misread) = Intake::default().read(kind, object);
        (change, misread.map(|misread| misread.to_string()).unwrap_or_default())
    }

    #[test]
    fn a_pod_that_cannot_be_read_keeps_its_node() {
        let container = |cpu: &str| json!({ "name": "main", "resources": { "requests": { "cpu": cpu } } });
        let pod = |cpu: &str| {
            json!({
                "metadata": { "name": "web", "namespace": "default", "uid": "1", "resourceVersion": "7" },
                "spec": { "nodeName": "a", "containers": [container(cpu)] }, "status": { "phase": "Running" },
            })
        };
        let (change, told) = read(Kind::Pod, pod("100m"));
        let Some(Observation::Pod(legible)) = change.observation else { panic!("a pod") };
        assert!(told.is_empty() && legible.shape.do_not_disrupt.is_none() && !legible.is_gated);

        let (change, told) = read(Kind::Pod, pod("much"));
        let Some(Observation::Pod(torn)) = change.observation else { panic!("a pod") };
        assert!(told.contains("Pod default/web cannot be read, so its node is kept"), "{told}");
        assert!(told.contains("spec.containers[0].resources.requests.cpu"), "{told}");
        assert_eq!((change.is_gone, change.version), (false, Version(7)));
        assert_eq!((torn.node, torn.phase, torn.uid), (legible.node, legible.phase, legible.uid));
        assert_eq!(torn.shape.do_not_disrupt, Some("true".into()));
        assert!(torn.is_gated, "no room is made for what nobody can measure");
    }

    #[test]
    fn of_what_machines_hang_on_it_is_told_that_it_is_there() {
        let id = "aws:///us-east-1a/i-1";
        let (claim, told) = read(
            Kind::NodeClaim,
            json!({ "metadata": { "name": "c" }, "spec": 7, "status": { "providerID": id } }),
        );
        let Some(Observation::Unreadable(Unreadable::Claim { name, machine })) = claim.observation else {
            panic!("{claim:?}")
        };
        assert_eq!((name, machine), (ClaimName::new("c"), Some(ProviderId::new(id))));
        assert!(told.contains("NodeClaim c cannot be read, so it and its machine are left alone"), "{told}");

        let node = json!({
            "metadata": { "name": "n" }, "spec": { "providerID": id },
            "status": { "allocatable": { "cpu": "much" } },
        });
        let (node, _) = read(Kind::Node, node);
        let Some(Observation::Unreadable(Unreadable::Node { name, machine })) = node.observation else {
            panic!("{node:?}")
        };
        assert_eq!((name, machine), (NodeName::new("n"), Some(ProviderId::new(id))));

        let (pool, _) = read(Kind::NodePool, json!({ "metadata": { "name": "p" }, "spec": {} }));
        let is_pool = matches!(pool.observation, Some(Observation::Unreadable(Unreadable::Pool(_))));
        assert!(is_pool && pool.manifest.is_some() && !pool.is_gone, "{pool:?}");

        let container = json!({ "name": "main", "resources": { "requests": { "cpu": "much" } } });
        let daemons = json!({
            "metadata": { "name": "d", "namespace": "default" },
            "spec": { "template": { "spec": { "containers": [container] } } },
        });
        let (set, told) = read(Kind::DaemonSet, daemons);
        assert!(told.contains("so it counts as it was before, or not at all"), "{told}");
        assert!(set.observation.is_none() && !set.is_gone, "what was known of it stays: {set:?}");
    }
}
