//! All that the node engine may do. A closed list: a driver carries these out and decides nothing.
//!
//! Every action is safe to repeat: a driver that dies in the middle is followed by one that sees the objects and is
//! told again. What a driver learns from carrying one out comes back as an `Observation`.

use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::buffer::BufferStatus;
use super::claim::{Conditions, NodeClaim};
use super::class::Holding;
use super::label::Labels;
use super::money::UsdPerHour;
use super::name::{ClaimName, ClassName, NodeName, ObjectKey, PoolName, ProviderId, TypeName, Uid, Zone};
use super::offering::CapacityType;
use super::pool::{HashStamp, NodePool, OverlayConditions, PoolCondition, PoolConditions, PoolUse};
use super::quantity::Resources;
use super::roll::RollFailures;
use super::symbol::Symbol;
use super::taint::Taint;

#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub enum Action {
    /// The claim's name is chosen by the engine, so a repeated creation meets itself.
    CreateClaim(Arc<NodeClaim>),
    /// Asks for deletion; the finalizer keeps the object until its machine is gone.
    DeleteClaim {
        claim: ClaimName,
    },
    /// Writes the status, labels and annotations that changed.
    UpdateClaim {
        claim: ClaimName,
        change: ClaimChange,
    },
    /// Lets the object go: its instance is gone.
    FinalizeClaim {
        claim: ClaimName,
    },

    /// Buys one machine, by the first option that has room. The claim's uid is the idempotency token.
    Launch {
        claim: ClaimName,
        options: Vec<LaunchOption>,
    },
    Terminate {
        instance: ProviderId,
    },
    /// Has people see in the cloud which node and claim a machine is.
    NameMachine {
        claim: ClaimName,
        machine: ProviderId,
        node: NodeName,
    },

    /// Has a class stay until [`Self::ClearClass`].
    HoldClass {
        class: ClassName,
        what: Holding,
    },
    /// Asks the cloud what a class selects, and writes the answer in its status.
    ResolveClass {
        class: ClassName,
    },
    /// Deletes what was made for machines of a class, of which there are none any more, and lets the object go.
    ClearClass {
        class: ClassName,
        holding: Holding,
    },

    UpdateNode {
        node: NodeName,
        change: NodeChange,
    },
    DeleteNode {
        node: NodeName,
    },
    FinalizeNode {
        node: NodeName,
    },

    /// Has kube-scheduler try this node first for the pod, and keep its room from others.
    NominatePod {
        pod: ObjectKey,
        uid: Uid,
        node: NodeName,
        /// The node is closed, and opens when the pod was seen with it, or when that takes too long.
        before_opening: bool,
    },
    /// Through the eviction API, so that disruption budgets of pods hold.
    Evict {
        pod: ObjectKey,
        uid: Uid,
    },
    /// Past its budgets, because the node's deadline has come.
    DeletePod {
        pod: ObjectKey,
        uid: Uid,
        grace: SignedDuration,
    },

    /// Writes what changed of a pool's status, and our annotations on it.
    UpdatePool {
        pool: PoolName,
        change: PoolChange,
    },
    /// Writes an overlay's status.
    UpdateOverlay {
        overlay: Symbol,
        conditions: OverlayConditions,
    },
    /// Writes a buffer's status.
    UpdateBuffer {
        buffer: ObjectKey,
        status: BufferStatus,
    },
    /// Something a person may want to read at the object.
    Publish(Notice),
}

/// One way to buy the machine, cheapest first in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct LaunchOption {
    pub price: UsdPerHour,
    pub instance_type: TypeName,
    pub zone: Zone,
    pub capacity_type: CapacityType,
    pub reservation: Option<Symbol>,
}

/// What changes on a claim; `None` and empty leave things as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct ClaimChange {
    /// Our finalizer, which holds the object until its machine is gone.
    pub add_finalizer: bool,
    pub labels: Labels,
    pub annotations: Labels,
    /// The whole list, replacing the former.
    pub conditions: Option<Conditions>,
    pub launched: Option<LaunchedAs>,
    pub node: Option<NodeName>,
    pub last_pod_event: Option<Timestamp>,
}

impl ClaimChange {
    /// Whether it only says how the machine is.
    pub fn is_report(&self) -> bool {
        let is_step = self.add_finalizer || self.launched.is_some() || self.node.is_some();
        !is_step && self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// What a launch settled.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LaunchedAs {
    pub provider_id: ProviderId,
    pub image: Symbol,
    pub capacity: Resources,
    pub allocatable: Resources,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct NodeChange {
    pub labels: Labels,
    pub annotations: Labels,
    /// Added, or put in the place of one with the same key.
    pub add_taints: Vec<Taint>,
    /// Removed by key and effect.
    pub remove_taints: Vec<Taint>,
    pub add_finalizer: bool,
    /// The claim that owns the node from now on.
    pub owner: Option<ClaimName>,
}

/// What changes on a pool; `None` leaves things as they are.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct PoolChange {
    /// The whole list, replacing the former.
    pub conditions: Option<PoolConditions>,
    pub used: Option<PoolUse>,
    /// The annotations that carry its hash.
    pub stamp: Option<HashStamp>,
    /// The annotation that remembers tries which failed; none of them takes it away.
    pub roll_failures: Option<RollFailures>,
}

impl NodeChange {
    /// Whether pods may come from then on that could not before.
    pub fn opens(&self) -> bool {
        self.remove_taints.iter().any(Taint::keeps_closed) && !self.add_taints.iter().any(Taint::keeps_closed)
    }
}

impl PoolChange {
    /// What an API server makes of it.
    pub fn apply_to(&self, pool: &mut NodePool) {
        if let Some(conditions) = &self.conditions {
            pool.is_ready = conditions.is_true(PoolCondition::Ready);
            pool.conditions = conditions.clone();
            pool.is_judged_earlier = false;
        }
        if let Some(used) = &self.used {
            pool.used = Some(used.clone());
        }
        if let Some(stamp) = self.stamp {
            (pool.hash, pool.hash_version) = (Some(stamp.hash), Some(stamp.version));
            pool.new_stamp = None;
        }
        if let Some(failures) = self.roll_failures {
            pool.roll_failures = Some(failures).filter(|failures| failures.count > 0);
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum Subject {
    Pool(PoolName),
    Class(ClassName),
    Claim(ClaimName),
    Node(NodeName),
    Pod(ObjectKey),
}

impl fmt::Display for Subject {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(name) => name.fmt(out),
            Self::Class(name) => name.fmt(out),
            Self::Claim(name) => name.fmt(out),
            Self::Node(name) => name.fmt(out),
            Self::Pod(key) => key.fmt(out),
        }
    }
}

/// An event for people.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Notice {
    pub subject: Subject,
    pub is_warning: bool,
    /// A stable word, such as `FailedScheduling`.
    pub reason: Symbol,
    pub message: Arc<str>,
}
