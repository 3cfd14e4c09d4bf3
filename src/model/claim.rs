//! NodeClaim: the request for one machine, and how far it has come.

use jiff::{SignedDuration, Timestamp};

pub use super::condition::{Condition, ConditionStatus};
use super::condition::{ConditionKind, ConditionSet};
use super::label::Labels;
use super::name::{ClaimName, NodeName, PoolName, ProviderId, Uid};
use super::pool::ClassRef;
use super::quantity::Resources;
use super::requirement::Requirements;
use super::symbol::Symbol;
use super::taint::Taint;
use super::time::Patience;

/// What one machine must be. Never changes once created.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClaimSpec {
    pub requirements: Requirements,
    /// Sum of the pods (and daemons) it was created for.
    pub requests: Resources,
    pub taints: Vec<Taint>,
    pub startup_taints: Vec<Taint>,
    pub class: ClassRef,
    pub expire_after: Patience,
    pub termination_grace: Option<SignedDuration>,
}

/// The condition types of a claim (api.md 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum ConditionType {
    Launched,
    Registered,
    Initialized,
    Consolidatable,
    Drifted,
    DisruptionReason,
    Drained,
    VolumesDetached,
    InstanceTerminating,
    ConsistentStateFound,
    Ready,
}

impl ConditionType {
    pub const ALL: [Self; 11] = [
        Self::Launched,
        Self::Registered,
        Self::Initialized,
        Self::Consolidatable,
        Self::Drifted,
        Self::DisruptionReason,
        Self::Drained,
        Self::VolumesDetached,
        Self::InstanceTerminating,
        Self::ConsistentStateFound,
        Self::Ready,
    ];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Launched => "Launched",
            Self::Registered => "Registered",
            Self::Initialized => "Initialized",
            Self::Consolidatable => "Consolidatable",
            Self::Drifted => "Drifted",
            Self::DisruptionReason => "DisruptionReason",
            Self::Drained => "Drained",
            Self::VolumesDetached => "VolumesDetached",
            Self::InstanceTerminating => "InstanceTerminating",
            Self::ConsistentStateFound => "ConsistentStateFound",
            Self::Ready => "Ready",
        }
    }
}

impl ConditionKind for ConditionType {
    fn all() -> &'static [Self] {
        &Self::ALL
    }

    fn word(self) -> &'static str {
        self.as_str()
    }
}

/// The conditions of a claim.
pub type Conditions = ConditionSet<ConditionType>;

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeClaim {
    pub name: ClaimName,
    pub uid: Uid,
    pub labels: Labels,
    pub annotations: Labels,
    pub created: Option<Timestamp>,
    /// Deletion was asked for; finalizers may hold the object.
    pub deleted: Option<Timestamp>,
    pub has_finalizer: bool,
    pub spec: ClaimSpec,
    // Status.
    pub node: Option<NodeName>,
    pub provider_id: Option<ProviderId>,
    pub image: Option<Symbol>,
    /// The provider's estimate, set at launch.
    pub capacity: Resources,
    pub allocatable: Resources,
    pub conditions: Conditions,
    /// When a pod was last bound to its node or left it.
    pub last_pod_event: Option<Timestamp>,
}

impl NodeClaim {
    /// The pool it belongs to; `None` for a claim that a person made.
    pub fn pool(&self) -> Option<PoolName> {
        self.labels.get(&*super::label::NODEPOOL).map(|name| PoolName(*name))
    }
}
