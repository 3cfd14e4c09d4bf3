//! All that the node engine can learn. A closed list: what is not here cannot influence a decision.
//!
//! Two kinds of news arrive. Objects of the API server come whole, each replacing what was known under its name. Answers
//! of the cloud and of the API server to our own actions come as facts that happened once.

use std::sync::Arc;

use jiff::Timestamp;

use super::buffer::{CapacityBuffer, PodTemplate, Scalable};
use super::catalog::Catalog;
use super::claim::NodeClaim;
use super::class::NodeClass;
use super::name::{
    ClaimName, ClassName, Namespace, NodeName, ObjectKey, PoolName, ProviderId, TypeName, Zone,
};
use super::node::Node;
use super::offering::CapacityType;
use super::pod::Pod;
use super::pool::{NodeOverlay, NodePool};
use super::quantity::Resources;
use super::symbol::Symbol;
use super::workload::{
    CsiNode, DaemonSet, NamespaceFacts, PersistentVolume, PersistentVolumeClaim, PodDisruptionBudget,
    Service, StorageClass, VolumeAttachment,
};

#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub enum Observation {
    // Objects of the API server, as they are now.
    Pool(Arc<NodePool>),
    PoolGone(PoolName),
    Class(Arc<NodeClass>),
    ClassGone(ClassName),
    Overlay(Arc<NodeOverlay>),
    OverlayGone(Symbol),
    Claim(Arc<NodeClaim>),
    ClaimGone(ClaimName),
    Node(Arc<Node>),
    NodeGone(NodeName),
    /// Recordings write it with its shape aside.
    #[serde(skip)]
    Pod(Arc<Pod>),
    PodGone(ObjectKey),
    DaemonSet(Arc<DaemonSet>),
    DaemonSetGone(ObjectKey),
    Budget(Arc<PodDisruptionBudget>),
    BudgetGone(ObjectKey),
    VolumeClaim(Arc<PersistentVolumeClaim>),
    VolumeClaimGone(ObjectKey),
    Volume(Arc<PersistentVolume>),
    VolumeGone(Symbol),
    StorageClass(Arc<StorageClass>),
    StorageClassGone(Symbol),
    CsiNode(Arc<CsiNode>),
    CsiNodeGone(NodeName),
    VolumeAttachment(Arc<VolumeAttachment>),
    VolumeAttachmentGone(Symbol),
    Service(Arc<Service>),
    ServiceGone(ObjectKey),
    Namespace(Arc<NamespaceFacts>),
    NamespaceGone(Namespace),
    Buffer(Arc<CapacityBuffer>),
    BufferGone(ObjectKey),
    PodTemplate(Arc<PodTemplate>),
    PodTemplateGone(ObjectKey),
    Scalable(Arc<Scalable>),
    ScalableGone {
        kind: Symbol,
        key: ObjectKey,
    },
    /// It is there, and what it says cannot be understood.
    Unreadable(Unreadable),
    /// The first listing of every kind is complete: before it nothing is decided.
    Synced,

    // What the cloud sells and says.
    /// Recordings write what changed of it.
    #[serde(skip)]
    Catalog(Arc<Catalog>),
    Launched {
        claim: ClaimName,
        instance: Instance,
        /// What was sold out before it was bought.
        shortage: Option<Arc<Shortage>>,
    },
    LaunchFailed {
        claim: ClaimName,
        failure: LaunchFailure,
    },
    /// The instance was told to stop, and is not gone yet.
    Terminating {
        instance: ProviderId,
    },
    /// The instance is gone.
    Terminated {
        instance: ProviderId,
    },
    TerminateFailed {
        instance: ProviderId,
        message: Arc<str>,
    },
    /// Every instance that carries our tags, as of now: what garbage collection compares claims with.
    Instances(Arc<[Instance]>),
    Interruption {
        instance: ProviderId,
        notice: InterruptionNotice,
    },
    /// What a class selects is in its status; or the cloud or the API server did not answer, and the former status stays.
    ClassResolved {
        class: ClassName,
        is_known: bool,
    },
    /// What was made for a class is still there.
    ClearFailed {
        class: ClassName,
        message: Arc<str>,
    },
    MachineNamed {
        claim: ClaimName,
        naming: Naming,
    },

    // Answers of the API server to our own actions.
    Evicted {
        pod: ObjectKey,
    },
    /// It does not go now.
    EvictionBlocked {
        pod: ObjectKey,
        why: EvictionBlock,
        message: Arc<str>,
    },
    /// Nothing that was decided about these objects is on its way any more: what came of it is seen soon, or was lost.
    CarriedOut {
        claims: Vec<ClaimName>,
        nodes: Vec<NodeName>,
    },
    /// Any other action that did not succeed; it is repeated when the engine decides so again.
    ActionFailed {
        subject: Arc<str>,
        message: Arc<str>,
    },
}

/// An object on which machines hang, and as much of it as was legible. Until all of it is, nothing is decided about it or them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Unreadable {
    Pool(PoolName),
    Claim { name: ClaimName, machine: Option<ProviderId> },
    Node { name: NodeName, machine: Option<ProviderId> },
}

/// What came of naming a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Naming {
    /// It has its name, or said enough before.
    Done,
    /// There is no such machine, or it is not ours.
    NotThere,
    /// The cloud refused, or did not answer.
    Failed,
}

/// Why a pod that is to be evicted does not go now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum EvictionBlock {
    /// A disruption budget does not allow it.
    Budget,
    /// The API server cannot weigh it: several budgets select the pod, for instance.
    Fault,
}

/// A machine of the cloud.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Instance {
    pub provider_id: ProviderId,
    /// The claim that it was launched for, from its tags.
    pub claim: Option<ClaimName>,
    pub pool: Option<PoolName>,
    pub instance_type: TypeName,
    pub zone: Zone,
    pub capacity_type: CapacityType,
    pub reservation: Option<Symbol>,
    pub image: Symbol,
    pub launched: Timestamp,
    /// It stops, or has stopped: no node any more, and there until it is terminated.
    #[serde(default)]
    pub is_stopped: bool,
    /// It is on its way out.
    pub is_terminating: bool,
    /// What the type offers under the claim's class.
    pub capacity: Resources,
    pub allocatable: Resources,
}

/// What the cloud had none of when it was asked for.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Shortage {
    pub offerings: Vec<(TypeName, Zone, CapacityType)>,
    /// They should not be asked for again before.
    pub until: Timestamp,
    /// What somebody has to do about it, where waiting does not help.
    pub advice: Option<Advice>,
}

/// What a person has to do.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Advice {
    /// A stable word, such as `SpotSLRCreationFailed`.
    pub reason: Symbol,
    pub message: Arc<str>,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum LaunchFailure {
    /// None of the offerings asked for has room.
    InsufficientCapacity(Arc<Shortage>),
    /// The node class cannot be used as it is.
    ClassNotReady { message: Arc<str> },
    /// Throttled, timed out, unreachable: the same call may succeed later.
    Transient { message: Arc<str> },
    /// The request itself is refused (quota, permissions, parameters). `reason`: the word by which people know why, if there is one.
    Refused { reason: Option<Symbol>, message: Arc<str> },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub enum InterruptionNotice {
    /// A spot instance is taken back at the given moment, two minutes after the warning.
    SpotReclaim { at: Timestamp },
    /// A spot instance is at elevated risk; advice only.
    RebalanceRecommendation,
    /// The instance is stopping, or has stopped.
    StateChange,
    /// The instance is shutting down, or gone.
    Terminating,
    /// Maintenance or retirement.
    ScheduledChange,
    /// The capacity that was reserved for it is taken back.
    ReservationReclaim,
    /// EC2's own status check fails.
    StatusCheckFailed,
}
