//! CapacityBuffer: room that is kept free for pods to come; and what it takes the measure of those pods from.

use std::sync::Arc;

use jiff::Timestamp;

use super::condition::{ConditionKind, ConditionSet};
use super::name::{ObjectKey, Uid};
use super::pod::{PodShape, Selector};
use super::quantity::Resources;
use super::symbol::Symbol;

/// Where a buffer takes the shape of its pods from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum BufferSource {
    /// A PodTemplate of the buffer's namespace.
    Template(Symbol),
    /// Something of the buffer's namespace that keeps a number of pods.
    Scalable { group: Symbol, kind: Symbol, name: Symbol },
}

/// The condition types of a buffer (api.md 7.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum BufferCondition {
    ReadyForProvisioning,
    Provisioning,
}

impl ConditionKind for BufferCondition {
    fn all() -> &'static [Self] {
        &[Self::ReadyForProvisioning, Self::Provisioning]
    }

    fn word(self) -> &'static str {
        match self {
            Self::ReadyForProvisioning => "ReadyForProvisioning",
            Self::Provisioning => "Provisioning",
        }
    }
}

pub type BufferConditions = ConditionSet<BufferCondition>;

/// What is reported at a buffer.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BufferStatus {
    /// The PodTemplate that it was resolved to, and which generation of it.
    pub template: Option<(Symbol, i64)>,
    pub replicas: Option<u32>,
    pub strategy: Option<Symbol>,
    pub conditions: BufferConditions,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CapacityBuffer {
    pub key: ObjectKey,
    pub uid: Uid,
    pub created: Option<Timestamp>,
    pub is_deleting: bool,
    /// `spec.provisioningStrategy`; only [`ACTIVE_CAPACITY`] is acted upon.
    pub strategy: Symbol,
    /// `None`: it names none.
    pub source: Option<BufferSource>,
    pub replicas: Option<u32>,
    /// Of the replicas that the scalable source wants.
    pub percentage: Option<u32>,
    /// The most that its pods may ask for together.
    pub limits: Option<Resources>,
    pub status: BufferStatus,
}

/// The strategy that keeps nodes running for the room.
pub const ACTIVE_CAPACITY: &str = "buffer.x-k8s.io/active-capacity";

impl CapacityBuffer {
    /// Whether `other` differs from this in nothing but its status.
    pub fn is_same_but_for_status(&self, other: &Self) -> bool {
        let stripped = |buffer: &Self| Self { status: BufferStatus::default(), ..buffer.clone() };
        stripped(self) == stripped(other)
    }
}

/// PodTemplate of the core API: what a pod would be.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PodTemplate {
    pub key: ObjectKey,
    pub generation: i64,
    pub shape: Arc<PodShape>,
}

/// A Deployment, StatefulSet, ReplicaSet or ReplicationController.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Scalable {
    pub kind: Symbol,
    pub key: ObjectKey,
    /// How many pods it wants.
    pub replicas: u32,
    /// Of the pods that are its own.
    pub selector: Option<Selector>,
    pub shape: Arc<PodShape>,
    /// The last pod that it asked for was refused, by a quota or by whoever admits pods: none may come for a while.
    #[serde(default)]
    pub is_refused: bool,
}
