//! Which pod goes where: on a node that is there, on one that is under way, or on one that has to be bought.
//!
//! Three questions are kept apart. Which placements are legal: [`room`], [`bin`], [`topology`] and [`volumes`] answer for
//! one pod and one node, and only ever narrow. Which legal placement is tried first: [`search`], with the wishes that
//! [`relax`] gives up; [`packing`] proposes machines for many pods at once. And why a pod has none: [`explain`].
//!
//! What a picture of the cluster says before anything is placed is its [`ground`], on which many questions are asked, and which is
//! kept as the picture changes. What one question has placed so far is its [`layout`], from which another may go on.

mod pods;
mod overlay;
mod supply;
mod template;
mod room;
mod defaults;
mod demand;
mod outlook;
mod bin;
mod topology;
mod volumes;
mod reservations;
mod daemons;
mod relax;
mod search;
mod layout;
mod sellers;
mod bound;
mod packing;
mod effective;
mod explain;
mod advice;
mod ground;
mod places;
mod marks;
mod amounts;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::model::action::LaunchOption;
use crate::model::hash::FastSet;
use crate::model::label::Labels;
use crate::model::money::UsdPerHour;
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName, TypeName, Zone};
use crate::model::offering::CapacityType;
use crate::model::pod::{Pod, Spread};
use crate::model::quantity::Resources;
use crate::model::requirement::Requirements;
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;

pub use advice::{Advice, Edit, Help, help};
pub(crate) use daemons::is_kept_from_daemons;
pub use defaults::companions;
pub(crate) use effective::effective_zones_on;
pub use effective::{EffectiveZone, effective_zones};
pub use explain::{Code, Refusal};
pub(crate) use ground::Ground;
pub use pods::{
    Protection, Rejected, blocking_budgets, is_going, is_protected, is_reschedulable, moving_pods,
    protection, provisionable_pods,
};
pub(crate) use pods::{could_run, judged, moving_from};
pub use room::usage_by_pool;
pub(crate) use search::{
    Beginning, Chain, Differences, Fit, Footing, Link, Relied, To, arrange, begin, go_on, solve_on,
};
pub use search::{solve, solve_bounded};
pub use supply::{OfferingKey, Supply};
pub use volumes::{UnsupportedStorage, VolumeFault};

/// What becomes of wishes: preferred affinity, `ScheduleAnyway`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum PreferencePolicy {
    /// Demands until nothing meets them, then given up one by one.
    #[default]
    Respect,
    Ignore,
}

/// What happens when the types of a new node offer fewer distinct values than a pool wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, serde::Serialize, serde::Deserialize)]
pub enum MinValuesPolicy {
    /// The node is not bought.
    #[default]
    Strict,
    /// It is, and the minimum is lowered to what is there.
    BestEffort,
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    pub preferences: PreferencePolicy,
    pub min_values: MinValuesPolicy,
    /// Keep reserved capacity for the nodes that could use it.
    pub reserved_capacity: bool,
    /// Let NodeOverlays correct prices and capacity.
    pub node_overlay: bool,
    /// Keep the room that CapacityBuffers ask for.
    pub capacity_buffer: bool,
    /// Constraints of pods that have none of their own and belong to a Service or a controller; without a selector, which is
    /// found for each pod.
    pub default_spreads: Vec<Spread>,
    /// What volumes may not need, because the machines bought here do not provide it.
    pub unsupported_storage: UnsupportedStorage,
    /// How long the node of a pool that does not say so may take to drain; `None`: as long as it takes.
    pub termination_grace: Option<SignedDuration>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            preferences: PreferencePolicy::Respect,
            min_values: MinValuesPolicy::Strict,
            reserved_capacity: true,
            node_overlay: true,
            capacity_buffer: true,
            default_spreads: Vec::new(),
            unsupported_storage: UnsupportedStorage::default(),
            termination_grace: None,
        }
    }
}

/// What the answer is for.
#[derive(Clone, Copy, Debug)]
pub enum Mode<'a> {
    /// Nodes will be bought: reserved capacity that others may still take is waited for.
    Provisioning,
    /// A question. Nodes in `settling` take only pods that run nowhere or whose node is going away.
    Simulation { settling: &'a BTreeSet<NodeName> },
}

/// One question to the solver.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub cluster: &'a Cluster,
    pub supply: &'a Supply,
    pub now: Timestamp,
    /// Pods to place: judged to be provisionable, or moving.
    pub pods: &'a [Arc<Pod>],
    /// Pods that run on nodes on their way out and are not asked about: nobody has to reckon with them there.
    pub departing: &'a [Arc<Pod>],
    /// Nodes and claims that take no pods although they are there: candidates for removal. Nodes that are on their way
    /// out never take any.
    pub without_nodes: &'a BTreeSet<NodeName>,
    pub without_claims: &'a BTreeSet<ClaimName>,
    /// Claims that keep the pods they have been given and take no others.
    pub shut_claims: &'a BTreeSet<ClaimName>,
    /// Where pods were planned before. A place that still takes them is theirs, whoever else would like it.
    pub planned: &'a BTreeMap<ObjectKey, Planned>,
    /// What limits count of each pool, if more than is there.
    pub used_at_least: &'a BTreeMap<PoolName, Resources>,
    pub settings: &'a Settings,
    pub mode: Mode<'a>,
}

impl Request<'_> {
    /// Where the claim `name` is: its node, once that has joined.
    fn place_of(&self, name: ClaimName) -> Place {
        let claim = self.cluster.claims.get(&name);
        let node = claim.and_then(|claim| self.cluster.node_of(claim));
        node.map_or(Place::Claim(name), |node| Place::Node(node.name))
    }

    /// What is taken away.
    fn gone(&self) -> BTreeSet<Place> {
        let nodes = self.without_nodes.iter().map(|name| Place::Node(*name));
        nodes.chain(self.without_claims.iter().map(|name| self.place_of(*name))).collect()
    }
}

/// A node that is there, or a claim whose node has not joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    Node(NodeName),
    Claim(ClaimName),
}

/// Where a pod was planned, and in which turn: it did not reckon with what came in later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    pub turn: usize,
    pub place: Place,
}

impl Place {
    pub fn name(&self) -> Symbol {
        match self {
            Self::Node(name) => name.0,
            Self::Claim(name) => name.0,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.name().fmt(out)
    }
}

/// Every pod of the request once: on a new node, on an existing one, or with the reasons why it has no place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Solution {
    /// In the order in which they were opened.
    pub new_nodes: Vec<NewNode>,
    pub existing: BTreeMap<Place, Vec<ObjectKey>>,
    /// By name.
    pub unschedulable: Vec<Unschedulable>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unschedulable {
    pub pod: ObjectKey,
    /// One per pool, heaviest first; or one without a pool.
    pub reasons: Vec<Refusal>,
    /// Not refused: it waits a round for reserved capacity to settle.
    pub is_deferred: bool,
}

/// A node that has to be bought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewNode {
    pub pool: PoolName,
    /// What it must be, instance types not included: those are in `options`.
    pub requirements: Requirements,
    /// That it will certainly have, the provider's aside.
    pub labels: Labels,
    pub taints: Vec<Taint>,
    /// Of its pods, and of the daemons that run on every type.
    pub requests: Resources,
    pub pods: Vec<ObjectKey>,
    /// Every way to buy it, cheapest first; never empty. Nodes that can be bought in the same ways share the list.
    pub options: Arc<Vec<LaunchOption>>,
    pub is_min_values_relaxed: bool,
}

impl NewNode {
    /// The way that is bought if all of them are available.
    pub fn launch(&self) -> &LaunchOption {
        self.options.first().expect("a node without a way to buy it is never opened")
    }

    pub fn price(&self) -> UsdPerHour {
        self.launch().price
    }

    /// Cheapest first.
    pub fn instance_types(&self) -> Vec<TypeName> {
        let mut seen = FastSet::default();
        self.options.iter().map(|option| option.instance_type).filter(|name| seen.insert(*name)).collect()
    }

    /// By name.
    pub fn zones(&self) -> BTreeSet<Zone> {
        self.options.iter().map(|option| option.zone).collect()
    }

    pub fn capacity_types(&self) -> BTreeSet<CapacityType> {
        self.options.iter().map(|option| option.capacity_type).collect()
    }
}
