//! Room that is already paid for: nodes that stay, and nodes under way.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Place;
use super::amounts::{self, Amounts, Columns};
use super::daemons::Daemon;
use super::demand::{Demand, Level};
use super::pods::is_going;
use super::supply::Supply;
use super::volumes::Attached;
use crate::capacity::cluster::Cluster;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::label::{self, Labels};
use crate::model::name::{ClaimName, ObjectKey, PoolName, TypeName};
use crate::model::node::Node;
use crate::model::pod::{HostPort, Pod};
use crate::model::quantity::{Resources, resource};
use crate::model::requirement::{Requirement, Requirements, Undefined};
use crate::model::symbol::Symbol;
use crate::model::taint::{Effect, Taint, first_untolerated};

/// What a node is labelled with, its host name aside: the labels of the node itself are not copied.
#[derive(Clone, Debug)]
pub(super) enum Labelled {
    As(Arc<Node>),
    With(Labels),
}

impl Labelled {
    fn labels(&self) -> &Labels {
        match self {
            Self::As(node) => &node.labels,
            Self::With(labels) => labels,
        }
    }
}

/// One node as it will be: what it has now if it is initialized, else what it was bought for.
#[derive(Clone, Debug)]
pub(super) struct NodeFacts {
    pub place: Place,
    pub labels: Labelled,
    pub taints: Vec<Taint>,
    pub capacity: Resources,
    pub allocatable: Resources,
    /// Initialized, or not ours and so nobody's to wait for.
    pub is_ready: bool,
    pub is_going: bool,
    pub pool: Option<PoolName>,
    /// Of a claim whose launch is not answered: what its machine may still be.
    pub open: Option<Requirements>,
    /// By CSI driver, of a machine of ours: what holds until the node says it itself.
    pub volumes_max: Vec<(Symbol, u32)>,
}

/// The order in which pods are offered to nodes: those that are ready first, then by name.
pub(super) type Rank = (bool, Symbol, Place);

impl NodeFacts {
    fn rank(&self) -> Rank {
        (!self.is_ready, self.place.name(), self.place)
    }
}

/// Every node and every claim without a node, by the order in which pods are offered to them. `leaving`: claims that are on
/// their way out whatever they say of themselves.
pub(super) fn node_facts(
    cluster: &Cluster,
    supply: &Supply,
    leaving: &BTreeSet<ClaimName>,
) -> Vec<NodeFacts> {
    let of_nodes = cluster.nodes.values().map(|node| facts_of_node(cluster, supply, node, leaving));
    let without_node = cluster.claims.values().filter(|claim| cluster.node_of(claim).is_none());
    let of_claims = without_node.filter_map(|claim| facts_of_claim(claim, supply, leaving));
    let mut all: Vec<NodeFacts> = of_nodes.chain(of_claims).collect();
    all.sort_by_key(NodeFacts::rank);
    all
}

/// The same of one place; `None`: there is nothing.
pub(super) fn facts_at(
    cluster: &Cluster,
    supply: &Supply,
    leaving: &BTreeSet<ClaimName>,
    place: Place,
) -> Option<NodeFacts> {
    match place {
        Place::Node(name) => {
            cluster.nodes.get(&name).map(|node| facts_of_node(cluster, supply, node, leaving))
        }
        Place::Claim(name) => {
            let claim = cluster.claims.get(&name).filter(|claim| cluster.node_of(claim).is_none());
            claim.and_then(|claim| facts_of_claim(claim, supply, leaving))
        }
    }
}

fn is_true(labels: &Labels, key: Symbol) -> bool {
    labels.get(&key).is_some_and(|value| &**value == "true")
}

fn facts_of_node(
    cluster: &Cluster,
    supply: &Supply,
    node: &Arc<Node>,
    leaving: &BTreeSet<ClaimName>,
) -> NodeFacts {
    let claim = cluster.claim_of(node);
    let is_ready = claim.is_none() || is_true(&node.labels, *label::INITIALIZED);
    let is_registered = claim.is_none() || is_ready || is_true(&node.labels, *label::REGISTERED);
    let starting = claim.filter(|_| !is_ready);
    let (labels, mut taints) = match claim.filter(|_| !is_registered) {
        Some(claim) => (Labelled::With(labels_of_claim(claim)), claim.spec.taints.clone()),
        None => (Labelled::As(node.clone()), node.taints.clone()),
    };
    let (mut capacity, mut allocatable) = (node.capacity.clone(), node.allocatable.clone());
    if let Some(claim) = starting {
        taints.retain(|taint| is_lasting(taint, claim));
        fill_zeroes(&mut capacity, &claim.capacity);
        fill_zeroes(&mut allocatable, &claim.allocatable);
    }
    if node.is_cordoned {
        let unschedulable = Taint::new("node.kubernetes.io/unschedulable", "", Effect::NoSchedule);
        if !taints.iter().any(|taint| taint.is_same(&unschedulable)) {
            taints.push(unschedulable);
        }
    }
    let pool = labels.labels().get(&*label::NODEPOOL).map(|name| PoolName(*name));
    let pool = pool.or_else(|| claim.and_then(|claim| claim.pool()));
    let says_nothing = !is_ready || !cluster.csi_nodes.contains_key(&node.name);
    let volumes_max = if says_nothing { volumes_max_of(supply, pool, labels.labels()) } else { Vec::new() };
    NodeFacts {
        place: Place::Node(node.name),
        labels,
        taints,
        capacity,
        allocatable,
        is_ready,
        is_going: is_going(cluster, node) || claim.is_some_and(|claim| leaving.contains(&claim.name)),
        pool,
        open: None,
        volumes_max,
    }
}

/// What a machine labelled like this can attach.
fn volumes_max_of(supply: &Supply, pool: Option<PoolName>, labels: &Labels) -> Vec<(Symbol, u32)> {
    let Some((pool, name)) = pool.zip(labels.get(&*label::INSTANCE_TYPE)) else { return Vec::new() };
    supply.kind(pool, TypeName(*name)).map(|kind| kind.volumes_max.clone()).unwrap_or_default()
}

/// A launched claim is a node that has not joined. One whose launch is not answered is planned with as the least of the
/// machines that it may become, so that a slow launch does not stop the planning for everybody else.
fn facts_of_claim(
    claim: &Arc<NodeClaim>,
    supply: &Supply,
    leaving: &BTreeSet<ClaimName>,
) -> Option<NodeFacts> {
    let is_going = claim.deleted.is_some()
        || claim.conditions.is_true(ConditionType::InstanceTerminating)
        || leaving.contains(&claim.name);
    let mut taints = claim.spec.taints.clone();
    taints.retain(|taint| is_lasting(taint, claim));
    let is_launched = !claim.allocatable.is_empty();
    let mut labels = labels_of_claim(claim);
    let (mut capacity, mut allocatable) = (claim.capacity.clone(), claim.allocatable.clone());
    let mut open = None;
    let mut volumes_max = volumes_max_of(supply, claim.pool(), &labels);
    if !is_launched {
        let types = supply.types(claim.pool()?);
        let mut candidates = types.iter().filter(|kind| {
            kind.requirements.intersects(&claim.spec.requirements).is_ok()
                && kind.offerings.iter().any(|offering| offering.suits(&claim.spec.requirements))
        });
        let first = candidates.next()?;
        (capacity, allocatable) = (first.capacity.clone(), first.allocatable.clone());
        volumes_max.clone_from(&first.volumes_max);
        for kind in candidates {
            for (driver, most) in &kind.volumes_max {
                match volumes_max.iter_mut().find(|(of, _)| of == driver) {
                    Some((_, least)) => *least = (*least).min(*most),
                    None => volumes_max.push((*driver, *most)),
                }
            }
            capacity.raise(&kind.capacity);
            allocatable = allocatable
                .iter()
                .map(|(name, amount)| (name, amount.min(kind.allocatable.get(name))))
                .collect();
        }
        let mut requirements = claim.spec.requirements.clone();
        requirements.add_all(&Requirements::of_labels(&labels));
        for (key, requirement) in requirements.iter() {
            if let Some(value) = requirement.single() {
                labels.insert(key, value);
            }
        }
        open = Some(requirements);
    }
    Some(NodeFacts {
        place: Place::Claim(claim.name),
        labels: Labelled::With(labels),
        taints,
        capacity,
        allocatable,
        is_ready: false,
        is_going,
        pool: claim.pool(),
        open,
        volumes_max,
    })
}

/// Claims are labelled at their launch; until then their single-valued requirements say the same.
fn labels_of_claim(claim: &NodeClaim) -> Labels {
    let mut labels = claim.labels.clone();
    for (key, requirement) in claim.spec.requirements.iter() {
        if let Some(value) = requirement.single() {
            labels.entry(key).or_insert(value);
        }
    }
    labels
}

/// Kubernetes' own taints of a starting node go, and so do the startup taints of its claim.
fn is_lasting(taint: &Taint, claim: &NodeClaim) -> bool {
    !taint.is_ephemeral() && !claim.spec.startup_taints.iter().any(|startup| startup.is_same(taint))
}

/// A device that is not reported yet is taken from what was promised.
fn fill_zeroes(amounts: &mut Resources, promised: &Resources) {
    for (name, amount) in promised.iter() {
        if amounts.get(name) == 0 {
            amounts.set(name, amount);
        }
    }
}

/// Capacity in use by pool, `nodes` included, of nodes that stay.
fn used_by_pool(facts: &[NodeFacts]) -> BTreeMap<PoolName, Resources> {
    let mut used: BTreeMap<PoolName, Resources> = BTreeMap::new();
    for facts in facts.iter().filter(|facts| !facts.is_going) {
        if let Some(pool) = facts.pool {
            let sum = used.entry(pool).or_default();
            sum.add(&facts.capacity);
            sum.add(&[(*resource::NODES, 1)].into_iter().collect());
        }
    }
    used
}

/// Capacity in use by pool, `nodes` included: what limits are compared with.
pub fn usage_by_pool(cluster: &Cluster, supply: &Supply) -> BTreeMap<PoolName, Resources> {
    used_by_pool(&node_facts(cluster, supply, &BTreeSet::new()))
}

/// What runs on one node.
pub(super) struct Load<'a> {
    pub requests: Amounts,
    pub of_daemons: Amounts,
    pub ports: Vec<HostPort>,
    pub daemons: Vec<&'a Arc<Pod>>,
}

/// One node that takes pods, as it was found.
pub(super) struct Room {
    pub place: Place,
    pub taints: Vec<Taint>,
    pub left: Amounts,
    pub ports: Vec<HostPort>,
    /// Once anybody with volumes wants to know.
    pub attached: OnceCell<Attached>,
    /// There is nothing there any more.
    pub is_vacant: bool,
    is_ready: bool,
    labels: Labelled,
    /// Of a claim whose launch is not answered.
    open: Option<Requirements>,
    /// What holds until the node says it itself.
    volumes_max: Vec<(Symbol, u32)>,
    requirements: OnceCell<Requirements>,
}

impl Room {
    pub fn new(facts: NodeFacts, load: Load, daemons: &[Daemon], columns: &Columns) -> Self {
        let mut room = Self {
            place: facts.place,
            taints: facts.taints,
            // Volumes are counted apart, those that hang there now included.
            left: columns.room(&facts.allocatable, &[]),
            ports: Vec::new(),
            attached: OnceCell::new(),
            is_vacant: false,
            is_ready: facts.is_ready,
            labels: facts.labels,
            open: facts.open,
            volumes_max: facts.volumes_max,
            requirements: OnceCell::new(),
        };
        amounts::subtract(&mut room.left, &load.requests);
        if !daemons.is_empty() {
            room.expect(daemons, &load, columns);
        }
        // Those that are held come before those that are expected.
        let expected = std::mem::replace(&mut room.ports, load.ports);
        room.ports.extend(expected);
        room
    }

    pub fn rank(&self) -> Rank {
        (!self.is_ready, self.place.name(), self.place)
    }

    /// Whether both are, or may be, the same by every key.
    pub fn is_labelled_as(&self, other: &Self) -> bool {
        self.open == other.open && self.labels.labels() == other.labels.labels()
    }

    /// Whether both refuse the same for what they are.
    pub fn suits_as(&self, other: &Self) -> bool {
        self.is_labelled_as(other) && self.taints == other.taints && self.ports == other.ports
    }

    /// Takes over what `former`, which is labelled the same, found out about itself.
    pub fn keep_requirements_of(&mut self, former: &mut Self) {
        self.requirements = std::mem::take(&mut former.requirements);
    }

    /// What is attached to it.
    pub fn attached(&self, cluster: &Cluster) -> &Attached {
        self.attached.get_or_init(|| match self.place {
            Place::Node(name) => Attached::to(cluster, name, &self.volumes_max),
            Place::Claim(_) => Attached::within(&self.volumes_max),
        })
    }

    /// Keeps room for daemons that are not there yet. Those that nobody expected do not make room.
    fn expect(&mut self, daemons: &[Daemon], load: &Load, columns: &Columns) {
        let owners = |pod: &Arc<Pod>| -> Vec<ObjectKey> {
            daemons.iter().filter(|daemon| daemon.owns(pod)).map(|daemon| daemon.set).collect()
        };
        let present: BTreeSet<ObjectKey> = load.daemons.iter().flat_map(|pod| owners(pod)).collect();
        let mut expected = columns.row(&Resources::new());
        let mut ports = Vec::new();
        let here = self.requirements();
        for daemon in daemons.iter().filter(|d| d.runs_on(&self.taints, here, Undefined::Nothing)) {
            amounts::add(&mut expected, &columns.row(&daemon.shape.requests));
            if !present.contains(&daemon.set) {
                ports.extend(daemon.shape.host_ports.iter().copied());
            }
        }
        self.ports.extend(ports);
        for (at, (left, expected)) in self.left.iter_mut().zip(expected).enumerate() {
            *left = left.saturating_sub(expected.saturating_sub(load.of_daemons[at]).max(0));
        }
    }

    fn name(&self) -> Symbol {
        self.place.name()
    }

    pub fn requirements(&self) -> &Requirements {
        self.requirements.get_or_init(|| {
            let mut requirements = self.open.clone().unwrap_or_default();
            for (key, value) in self.labels.labels() {
                requirements.replace(*key, Requirement::one(*value));
            }
            if !self.labels.labels().contains_key(&*label::HOSTNAME) {
                requirements.replace(*label::HOSTNAME, Requirement::one(self.name()));
            }
            requirements
        })
    }

    /// What the node is or may be by `key`; `None`: it has nothing of the kind.
    pub fn may_be(&self, key: Symbol) -> Option<Requirement> {
        if self.open.is_some() {
            return self.requirements().get(key).cloned();
        }
        let labels = self.labels.labels();
        let value = label::spellings(key).iter().find_map(|spelling| labels.get(spelling).copied());
        let value = value.or_else(|| (key == *label::HOSTNAME).then(|| self.name()));
        value.map(Requirement::one)
    }

    /// Whether it refuses a demand for what it is, whatever may be on it.
    pub fn suits(&self, demand: &Demand, level: &Level) -> bool {
        if first_untolerated(&self.taints, &level.shape.tolerations).is_some() {
            return false;
        }
        let taken = |port: &HostPort| self.ports.iter().any(|present| present.clashes_with(port));
        if level.shape.host_ports.iter().any(taken) || !self.certainly_meets(&level.full) {
            return false;
        }
        let Ok(volumes) = &demand.volumes else { return false };
        volumes.alternatives.is_empty()
            || volumes.alternatives.iter().any(|wanted| self.certainly_meets(wanted))
    }

    /// A node that may still become one of several things has to suit as each of them.
    fn certainly_meets(&self, wanted: &Requirements) -> bool {
        if wanted.is_empty() {
            return true;
        }
        let here = self.requirements();
        here.compatible(wanted, Undefined::Nothing).is_ok()
            && wanted.iter().all(|(key, asked)| match here.get(key) {
                None => true,
                Some(here) => match here.listed() {
                    Some(values) => values.iter().all(|value| asked.has(*value)),
                    None => here == asked,
                },
            })
    }
}
