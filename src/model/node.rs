//! Node: a machine that joined the cluster.

use jiff::Timestamp;

use super::label::Labels;
use super::name::{NodeName, ProviderId, Uid};
use super::quantity::Resources;
use super::symbol::Symbol;
use super::taint::Taint;

/// A condition of a Node, such as `Ready` or one that a health agent reports.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct NodeCondition {
    pub kind: Symbol,
    /// `True`, `False` or `Unknown`.
    pub status: Symbol,
    pub since: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Node {
    pub name: NodeName,
    pub uid: Uid,
    pub labels: Labels,
    pub annotations: Labels,
    pub created: Option<Timestamp>,
    pub deleted: Option<Timestamp>,
    pub has_finalizer: bool,
    pub provider_id: Option<ProviderId>,
    pub taints: Vec<Taint>,
    /// `spec.unschedulable`.
    pub is_cordoned: bool,
    pub capacity: Resources,
    pub allocatable: Resources,
    pub conditions: Vec<NodeCondition>,
}

impl Node {
    pub fn is_ready(&self) -> bool {
        self.ready().is_some()
    }

    /// Since when it is ready, if it is and its kubelet says so.
    pub fn ready_since(&self) -> Option<Timestamp> {
        self.ready()?.since
    }

    fn ready(&self) -> Option<&NodeCondition> {
        self.conditions.iter().find(|condition| &*condition.kind == "Ready" && &*condition.status == "True")
    }

    pub fn label(&self, key: Symbol) -> Option<Symbol> {
        self.labels.get(&key).copied()
    }
}
