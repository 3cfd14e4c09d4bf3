//! What surrounds pods: DaemonSets, disruption budgets, volumes, namespaces.

use std::sync::Arc;

use jiff::Timestamp;

use super::label::Labels;
use super::name::{NodeName, ObjectKey, Uid};
use super::pod::{NodeTerm, PodShape, Selector};
use super::requirement::Requirements;
use super::symbol::Symbol;

/// A DaemonSet: the pod that it will put on every node that suits.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct DaemonSet {
    pub key: ObjectKey,
    pub uid: Uid,
    /// Of its template, with limits copied into missing requests.
    pub shape: Arc<PodShape>,
}

/// A number of pods, or a percentage of those selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum CountOrPercent {
    Count(i64),
    Percent(u32),
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PodDisruptionBudget {
    pub key: ObjectKey,
    /// `None` selects nothing.
    pub selector: Option<Selector>,
    pub min_available: Option<CountOrPercent>,
    pub max_unavailable: Option<CountOrPercent>,
    /// `status.disruptionsAllowed`; `None` if the object has no status.
    pub disruptions_allowed: Option<i64>,
    /// `unhealthyPodEvictionPolicy: AlwaysAllow`.
    pub always_allows_unhealthy: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PersistentVolumeClaim {
    pub key: ObjectKey,
    /// The volume it is bound to.
    pub volume: Option<Symbol>,
    /// `None`: not set at all; empty text: explicitly none.
    pub storage_class: Option<Symbol>,
    pub is_lost: bool,
    pub is_deleting: bool,
    /// The annotation `pv.kubernetes.io/bind-completed` is there.
    pub is_bind_completed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PersistentVolume {
    pub name: Symbol,
    /// Required node affinity, ORed; empty: anywhere.
    pub terms: Vec<NodeTerm>,
    /// Local disk or host path: its host name requirement does not bind a new node.
    pub is_local: bool,
    /// The CSI driver, in-tree EBS translated.
    pub driver: Option<Symbol>,
    pub is_deleting: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct StorageClass {
    pub name: Symbol,
    /// In-tree names translated to those of the CSI drivers.
    pub provisioner: Symbol,
    pub binds_immediately: bool,
    /// Allowed topologies, ORed; empty: anywhere.
    pub topologies: Vec<Requirements>,
    pub is_default: bool,
    pub created: Option<Timestamp>,
}

/// The class of claims that name none: of those marked as default the newest, and the first by name among equally new ones.
pub fn default_class<'c>(classes: impl IntoIterator<Item = &'c StorageClass>) -> Option<&'c StorageClass> {
    let marked = classes.into_iter().filter(|class| class.is_default);
    marked.max_by_key(|class| (class.created, std::cmp::Reverse(class.name)))
}

/// How many volumes of each driver a node can attach.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct CsiNode {
    pub node: NodeName,
    /// `(driver, limit)`; a driver without a limit is not listed.
    pub limits: Vec<(Symbol, u32)>,
}

/// A Service, as far as it says which pods belong together.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Service {
    pub key: ObjectKey,
    /// Empty: none.
    pub selector: Labels,
}

/// A volume that is attached, or being attached, to a node.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct VolumeAttachment {
    pub name: Symbol,
    pub node: NodeName,
    pub volume: Option<Symbol>,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NamespaceFacts {
    pub name: super::name::Namespace,
    pub labels: Labels,
}
