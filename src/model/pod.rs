//! Pods. What equal pods have in common is kept once, as their shape: a Deployment of 10,000 is one shape and
//! 10,000 short records.

use std::sync::Arc;

use jiff::Timestamp;

use super::label::Labels;
use super::name::{Namespace, NodeName, ObjectKey, Uid};
use super::quantity::Resources;
use super::requirement::{Operator, Requirements};
use super::symbol::Symbol;
use super::taint::Toleration;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum PodPhase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

/// One `matchExpressions` entry of a label selector, or one `matchLabels` pair as `In`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct SelectorTerm {
    pub key: Symbol,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: Operator,
    pub values: Vec<Symbol>,
}

/// A label selector: all terms must hold. Without terms it selects everything.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Selector {
    pub terms: Vec<SelectorTerm>,
}

impl Selector {
    pub fn selects(&self, labels: &Labels) -> bool {
        self.terms.iter().all(|term| {
            let value = labels.get(&term.key);
            let is_listed = value.is_some_and(|value| term.values.contains(value));
            match term.operator {
                Operator::In => is_listed,
                Operator::NotIn => !is_listed,
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::Gt | Operator::Lt | Operator::Gte | Operator::Lte => false,
            }
        })
    }
}

/// One term of node affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct NodeTerm {
    /// As written, so that validation can name an entry: `(key, operator, values)`.
    pub expressions: Vec<SelectorTerm>,
    /// `matchFields` is there; a required term with it cannot be planned for.
    pub has_fields: bool,
}

impl NodeTerm {
    /// A term without any condition selects no node.
    pub fn is_void(&self) -> bool {
        self.expressions.is_empty() && !self.has_fields
    }

    pub fn requirements(&self) -> Requirements {
        let set = |term: &SelectorTerm| {
            super::requirement::Requirement::new(term.operator, term.values.iter().copied())
        };
        self.expressions.iter().map(|term| (term.key, set(term))).collect()
    }
}

/// `(weight, term)`: 1 to 100.
pub type Weighted<T> = (i32, T);

/// One term of pod affinity or anti-affinity.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct PodTerm {
    /// `None` selects nothing.
    pub selector: Option<Selector>,
    pub topology_key: Symbol,
    pub namespaces: Vec<Namespace>,
    /// `Some`: also namespaces whose labels it selects; an empty selector means all.
    pub namespace_selector: Option<Selector>,
    /// Pod label keys whose own values are added to the selector.
    pub match_label_keys: Vec<Symbol>,
    pub mismatch_label_keys: Vec<Symbol>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Spread {
    pub max_skew: u32,
    pub topology_key: Symbol,
    /// `DoNotSchedule`; otherwise `ScheduleAnyway`.
    pub is_required: bool,
    /// `None` selects nothing.
    pub selector: Option<Selector>,
    pub min_domains: Option<u32>,
    /// `nodeAffinityPolicy: Honor`, the default.
    pub honors_affinity: bool,
    /// `nodeTaintsPolicy: Honor`; the default is to ignore taints.
    pub honors_taints: bool,
    pub match_label_keys: Vec<Symbol>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct HostPort {
    /// Empty, `0.0.0.0` or `::` is every address.
    pub ip: Symbol,
    pub port: u16,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: Symbol,
}

impl HostPort {
    pub fn clashes_with(&self, other: &Self) -> bool {
        let is_any = |ip: Symbol| matches!(ip.as_str(), "" | "0.0.0.0" | "::");
        self.port == other.port
            && self.protocol == other.protocol
            && (self.ip == other.ip || is_any(self.ip) || is_any(other.ip))
    }
}

/// A volume that may tie a pod to a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum PodVolume {
    /// A PersistentVolumeClaim of the pod's namespace.
    Claim(Symbol),
    /// A generic ephemeral volume of this name, with the storage class of its template: its claim is `POD-NAME`.
    Ephemeral { volume: Symbol, storage_class: Option<Symbol> },
}

/// Everything about a pod that matters to where it may run and that equal pods share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct PodShape {
    pub namespace: Namespace,
    pub labels: Labels,
    /// Effective request by scheduling.md 2.7, with `pods` 1.
    pub requests: Resources,
    pub node_selector: Labels,
    /// ORed; empty: no required node affinity.
    pub node_required: Vec<NodeTerm>,
    pub node_preferred: Vec<Weighted<NodeTerm>>,
    pub affinity_required: Vec<PodTerm>,
    pub affinity_preferred: Vec<Weighted<PodTerm>>,
    pub anti_affinity_required: Vec<PodTerm>,
    pub anti_affinity_preferred: Vec<Weighted<PodTerm>>,
    pub spreads: Vec<Spread>,
    pub tolerations: Vec<Toleration>,
    pub host_ports: Vec<HostPort>,
    pub volumes: Vec<PodVolume>,
    /// Asks for devices through dynamic resource allocation.
    pub has_resource_claims: bool,
    pub priority: i32,
    pub scheduler_name: Symbol,
    pub termination_grace_seconds: u32,
    /// `karpenter.sh/do-not-disrupt` as written.
    pub do_not_disrupt: Option<Symbol>,
    /// `controller.kubernetes.io/pod-deletion-cost`, 0 if absent or no integer.
    pub deletion_cost: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct Owner {
    pub kind: Symbol,
    pub api_version: Symbol,
    pub name: Symbol,
    pub uid: Uid,
    pub is_controller: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub key: ObjectKey,
    pub uid: Uid,
    pub shape: Arc<PodShape>,
    pub owners: Vec<Owner>,
    pub created: Option<Timestamp>,
    pub deleted: Option<Timestamp>,
    pub started: Option<Timestamp>,
    pub node: Option<NodeName>,
    /// kube-scheduler is about to place it there by preemption.
    pub nominated_node: Option<NodeName>,
    pub phase: PodPhase,
    pub is_ready: bool,
    /// `PodScheduled` has reason `Unschedulable`: kube-scheduler looked and found no place.
    pub is_unschedulable: bool,
    /// Scheduling gates hold it back.
    pub is_gated: bool,
}

impl PodShape {
    /// Whether room is all that it asks of a node, and nothing of the pods beside it. What every pod tolerates, nodes that fail
    /// for a while, says nothing.
    pub fn fits_anywhere(&self) -> bool {
        self.node_selector.is_empty()
            && self.node_required.is_empty()
            && self.affinity_required.is_empty()
            && self.anti_affinity_required.is_empty()
            && !self.spreads.iter().any(|spread| spread.is_required)
            && self.tolerations.iter().all(|toleration| toleration.key.starts_with("node.kubernetes.io/"))
            && self.host_ports.is_empty()
            && self.volumes.is_empty()
            && !self.has_resource_claims
    }
}

impl Pod {
    /// The kind that owns virtual pods.
    pub const BUFFER_KIND: &'static str = "CapacityBuffer";

    /// One that was just made: nobody has looked for a place for it yet.
    pub fn new(key: ObjectKey, uid: Uid, shape: Arc<PodShape>, owners: Vec<Owner>) -> Self {
        Self {
            key,
            uid,
            shape,
            owners,
            created: None,
            deleted: None,
            started: None,
            node: None,
            nominated_node: None,
            phase: PodPhase::Pending,
            is_ready: false,
            is_unschedulable: false,
            is_gated: false,
        }
    }

    /// The buffer that it stands for, if it is a virtual pod: it exists in no cluster and only keeps room.
    pub fn buffer(&self) -> Option<ObjectKey> {
        let owner = self.owners.first().filter(|owner| &*owner.kind == Self::BUFFER_KIND)?;
        Some(ObjectKey { namespace: self.key.namespace, name: owner.name })
    }

    pub fn is_terminal(&self) -> bool {
        matches!(self.phase, PodPhase::Succeeded | PodPhase::Failed)
    }

    /// Neither finished nor on its way out.
    pub fn is_active(&self) -> bool {
        !self.is_terminal() && self.deleted.is_none()
    }

    /// Whether nothing but a place is missing for it to run, as far as anybody knows.
    pub fn needs_place(&self) -> bool {
        self.node.is_none() && self.nominated_node.is_none() && !self.is_gated && !self.is_terminal()
    }

    /// Whether it waits for room: kube-scheduler looked and found no place.
    pub fn waits(&self) -> bool {
        self.is_unschedulable && self.needs_place() && self.deleted.is_none()
    }

    /// Whether kube-scheduler has yet to look at it.
    pub fn is_unjudged(&self) -> bool {
        !self.is_unschedulable
            && self.needs_place()
            && self.phase == PodPhase::Pending
            && self.deleted.is_none()
    }

    pub fn is_owned_by(&self, kind: &str) -> bool {
        self.owners.iter().any(|owner| &*owner.kind == kind)
    }

    pub fn is_daemon(&self) -> bool {
        self.owners.iter().any(|owner| &*owner.kind == "DaemonSet" && owner.api_version.starts_with("apps/"))
    }

    /// A static pod that its kubelet mirrors to the API server.
    pub fn is_mirror(&self) -> bool {
        self.is_owned_by("Node")
    }

    pub fn controller(&self) -> Option<&Owner> {
        self.owners.iter().find(|owner| owner.is_controller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_clash_on_equal_or_unspecified_addresses() {
        let port = |ip: &str, protocol: &str| HostPort { ip: ip.into(), port: 80, protocol: protocol.into() };
        assert!(port("", "TCP").clashes_with(&port("10.0.0.1", "TCP")));
        assert!(!port("10.0.0.1", "TCP").clashes_with(&port("10.0.0.2", "TCP")));
        assert!(!port("", "TCP").clashes_with(&port("", "UDP")));
    }
}
