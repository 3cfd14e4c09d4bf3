//! NodeClaim: the request for one machine, and how far it has come.

use jiff::{SignedDuration, Timestamp};

use super::label::Labels;
use super::name::{ClaimName, NodeName, PoolName, ProviderId, Uid};
use super::pool::ClassRef;
use super::quantity::Resources;
use super::requirement::Requirements;
use super::symbol::Symbol;
use super::taint::Taint;
use super::time::Patience;

/// What one machine must be. Never changes once created.
#[derive(Clone, Debug, PartialEq, Eq)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    pub status: ConditionStatus,
    pub reason: Symbol,
    pub message: Symbol,
    /// When `status` last changed.
    pub since: Option<Timestamp>,
}

/// The condition types of a claim (api.md 5.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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

    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Conditions(std::collections::BTreeMap<ConditionType, Condition>);

impl Conditions {
    pub fn get(&self, kind: ConditionType) -> Option<&Condition> {
        self.0.get(&kind)
    }

    pub fn is_true(&self, kind: ConditionType) -> bool {
        self.get(kind).is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// When `kind` became true, if it is.
    pub fn true_since(&self, kind: ConditionType) -> Option<Timestamp> {
        self.get(kind)
            .filter(|condition| condition.status == ConditionStatus::True)
            .and_then(|condition| condition.since)
    }

    /// Sets a condition; the moment of the last change stays unless `status` differs.
    pub fn set(
        &mut self,
        kind: ConditionType,
        status: ConditionStatus,
        reason: &str,
        message: &str,
        now: Timestamp,
    ) {
        let same = self.0.get(&kind).filter(|present| present.status == status);
        let since = same.map_or(Some(now), |present| present.since);
        self.0.insert(kind, Condition { status, reason: reason.into(), message: message.into(), since });
    }

    pub fn insert(&mut self, kind: ConditionType, condition: Condition) {
        self.0.insert(kind, condition);
    }

    pub fn clear(&mut self, kind: ConditionType) {
        self.0.remove(&kind);
    }

    pub fn iter(&self) -> impl Iterator<Item = (ConditionType, &Condition)> {
        self.0.iter().map(|(kind, condition)| (*kind, condition))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
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
