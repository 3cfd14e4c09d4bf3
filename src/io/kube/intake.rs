//! From JSON to news: one reader for everything that is watched, so that equal pods share one shape.

use std::sync::Mutex;

use serde_json::Value;

use super::Kind;
use super::record::{Change, Record, Version};
use crate::api::{FieldError, Object, Reader};
use crate::model::name::{ClaimName, ClassName, Namespace, NodeName, ObjectKey, PoolName};
use crate::model::observation::Observation;
use crate::model::symbol::Symbol;

#[derive(Debug, Default)]
pub(super) struct Intake(Mutex<Reader>);

/// An object that cannot be understood. It is left out, as if it were not there.
#[derive(Debug, thiserror::Error)]
#[error("{kind} {key} is ignored: {}", .errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
pub(super) struct Unreadable {
    pub kind: &'static str,
    pub key: ObjectKey,
    pub version: Version,
    pub errors: Vec<FieldError>,
}

impl Intake {
    /// Reads an object of `kind`. Lists leave `apiVersion` and `kind` out of their items.
    pub fn read(&self, kind: Kind, mut object: Value) -> Result<Change, Unreadable> {
        let resource = kind.resource();
        if let Some(map) = object.as_object_mut() {
            map.insert("apiVersion".into(), resource.api_version.into());
            map.insert("kind".into(), resource.kind.into());
        }
        let (key, version) = (key_of(&object), Version::of(&object));
        let parsed = {
            let mut reader = self.0.lock().expect("no reader panics");
            let parsed = reader.parse(&object);
            if let Ok(Object::PriorityClass(class)) = &parsed {
                reader.add_priority(class);
            }
            parsed
        };
        let observation = match parsed {
            Ok(parsed) => parsed.into_observation(),
            Err(errors) => return Err(Unreadable { kind: resource.kind, key, version, errors }),
        };
        let is_written = kind.is_custom() || kind == Kind::Node;
        let record = is_written.then(|| Record::of(&object));
        let manifest = kind.is_synced().then_some(object);
        Ok(Change { kind, key, version, is_gone: false, observation, record, manifest })
    }
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
