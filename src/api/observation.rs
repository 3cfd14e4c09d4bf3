//! Objects as news for the engine: a snapshot, a watch and a proposal are read in one way.

use std::sync::Arc;

use super::Object;
use super::workload::Workload;
use crate::model::buffer::Scalable;
use crate::model::observation::Observation;

/// Whose pods are alike for ever: a buffer may follow them, and they are spread among each other.
const SCALABLE: [&str; 4] = ["Deployment", "StatefulSet", "ReplicaSet", "ReplicationController"];

impl Object {
    /// What the object tells; nothing, if it decides nothing by itself.
    pub fn into_observation(self) -> Option<Observation> {
        Some(match self {
            Self::NodePool(pool) => Observation::Pool(Arc::new(pool)),
            Self::NodeClaim(claim) => Observation::Claim(Arc::from(claim)),
            Self::NodeClass(class) => Observation::Class(Arc::new(class)),
            Self::NodeOverlay(overlay) => Observation::Overlay(Arc::new(overlay)),
            Self::Node(node) => Observation::Node(Arc::new(node)),
            Self::Pod(pod) => Observation::Pod(Arc::new(pod)),
            Self::DaemonSet(set) => Observation::DaemonSet(Arc::new(set)),
            Self::PodDisruptionBudget(budget) => Observation::Budget(Arc::new(budget)),
            Self::PersistentVolume(volume) => Observation::Volume(Arc::new(volume)),
            Self::PersistentVolumeClaim(claim) => Observation::VolumeClaim(Arc::new(claim)),
            Self::StorageClass(class) => Observation::StorageClass(Arc::new(class)),
            Self::CsiNode(node) => Observation::CsiNode(Arc::new(node)),
            Self::VolumeAttachment(attachment) => Observation::VolumeAttachment(Arc::new(attachment)),
            Self::Service(service) => Observation::Service(Arc::new(service)),
            Self::Namespace(namespace) => Observation::Namespace(Arc::new(namespace)),
            Self::CapacityBuffer(buffer) => Observation::Buffer(Arc::new(buffer)),
            Self::PodTemplate(template) => Observation::PodTemplate(Arc::new(template)),
            // What a Deployment had before: it is kept for years, and nothing depends on it.
            Self::Workload(workload) if is_former(&workload) => {
                Observation::ScalableGone { kind: workload.kind, key: workload.key }
            }
            Self::Workload(workload) if SCALABLE.contains(&workload.kind.as_str()) => {
                Observation::Scalable(Arc::new(Scalable {
                    kind: workload.kind,
                    key: workload.key,
                    replicas: workload.pods,
                    selector: workload.selector,
                    shape: workload.shape,
                    is_refused: workload.is_refused,
                }))
            }
            Self::Workload(_) | Self::PriorityClass(_) | Self::Unknown(_) => return None,
        })
    }
}

/// Whether it is a ReplicaSet of a Deployment that wants no pods of it any more.
fn is_former(workload: &Workload) -> bool {
    &*workload.kind == "ReplicaSet"
        && workload.pods == 0
        && workload.owners.iter().any(|owner| owner.is_controller)
}
