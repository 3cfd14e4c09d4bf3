//! Room that is already paid for: nodes that stay, and nodes under way.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use super::amounts::{self, Amounts, Columns};
use super::bin::Guest;
use super::daemons::Daemon;
use super::explain::Refused;
use super::pods::is_going;
use super::supply::Supply;
use super::topology::Topology;
use super::volumes::Attached;
use super::{Mode, Place, Request};
use crate::capacity::cluster::Cluster;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::label::{self, Labels};
use crate::model::name::{ObjectKey, PoolName};
use crate::model::node::Node;
use crate::model::pod::HostPort;
use crate::model::quantity::{Resources, resource};
use crate::model::requirement::{Conflict, Requirement, Requirements, Undefined};
use crate::model::symbol::Symbol;
use crate::model::taint::{Effect, Taint, first_untolerated};

/// One node as it will be: what it has now if it is initialized, else what it was bought for.
#[derive(Clone, Debug)]
pub(super) struct NodeFacts {
    pub place: Place,
    pub labels: Labels,
    pub taints: Vec<Taint>,
    pub capacity: Resources,
    pub allocatable: Resources,
    /// Initialized, or not ours and so nobody's to wait for.
    pub is_ready: bool,
    pub is_going: bool,
    pub pool: Option<PoolName>,
    /// Of a claim whose launch is not answered: what its machine may still be.
    pub open: Option<Requirements>,
}

/// Every node and every claim without a node, by the order in which pods are offered to them.
pub(super) fn node_facts(cluster: &Cluster, supply: &Supply) -> Vec<NodeFacts> {
    let of_nodes = cluster.nodes.values().map(|node| facts_of_node(cluster, node));
    let without_node = cluster.claims.values().filter(|claim| cluster.node_of(claim).is_none());
    let of_claims = without_node.filter_map(|claim| facts_of_claim(claim, supply));
    let mut all: Vec<NodeFacts> = of_nodes.chain(of_claims).collect();
    all.sort_by_key(|facts| (!facts.is_ready, facts.place.name(), facts.place));
    all
}

fn is_true(labels: &Labels, key: Symbol) -> bool {
    labels.get(&key).is_some_and(|value| &**value == "true")
}

fn facts_of_node(cluster: &Cluster, node: &Node) -> NodeFacts {
    let claim = cluster.claim_of(node);
    let is_ready = claim.is_none() || is_true(&node.labels, *label::INITIALIZED);
    let is_registered = claim.is_none() || is_ready || is_true(&node.labels, *label::REGISTERED);
    let starting = claim.filter(|_| !is_ready);
    let (labels, mut taints) = match claim.filter(|_| !is_registered) {
        Some(claim) => (labels_of_claim(claim), claim.spec.taints.clone()),
        None => (node.labels.clone(), node.taints.clone()),
    };
    let (mut capacity, mut allocatable) = (node.capacity.clone(), node.allocatable.clone());
    if let Some(claim) = starting {
        taints.retain(|taint| is_lasting(taint, claim));
        fill_zeroes(&mut capacity, &claim.capacity);
        fill_zeroes(&mut allocatable, &claim.allocatable);
    }
    let unschedulable = Taint::new("node.kubernetes.io/unschedulable", "", Effect::NoSchedule);
    if node.is_cordoned && !taints.iter().any(|taint| taint.is_same(&unschedulable)) {
        taints.push(unschedulable);
    }
    let pool = labels.get(&*label::NODEPOOL).map(|name| PoolName(*name));
    NodeFacts {
        place: Place::Node(node.name),
        labels: with_host_name(labels, node.name.0),
        taints,
        capacity,
        allocatable,
        is_ready,
        is_going: is_going(cluster, node),
        pool: pool.or_else(|| claim.and_then(|claim| claim.pool())),
        open: None,
    }
}

/// A launched claim is a node that has not joined. One whose launch is not answered is planned with as the least of the
/// machines that it may become, so that a slow launch does not stop the planning for everybody else.
fn facts_of_claim(claim: &Arc<NodeClaim>, supply: &Supply) -> Option<NodeFacts> {
    let is_going = claim.deleted.is_some() || claim.conditions.is_true(ConditionType::InstanceTerminating);
    let mut taints = claim.spec.taints.clone();
    taints.retain(|taint| is_lasting(taint, claim));
    let is_launched = !claim.allocatable.is_empty();
    let mut labels = labels_of_claim(claim);
    let (mut capacity, mut allocatable) = (claim.capacity.clone(), claim.allocatable.clone());
    let mut open = None;
    if !is_launched {
        let types = supply.types(claim.pool()?);
        let mut candidates = types.iter().filter(|kind| {
            kind.requirements.intersects(&claim.spec.requirements).is_ok()
                && kind.offerings.iter().any(|offering| offering.suits(&claim.spec.requirements))
        });
        let first = candidates.next()?;
        (capacity, allocatable) = (first.capacity.clone(), first.allocatable.clone());
        for kind in candidates {
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
        labels: with_host_name(labels, claim.name.0),
        taints,
        capacity,
        allocatable,
        is_ready: false,
        is_going,
        pool: claim.pool(),
        open,
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

fn with_host_name(mut labels: Labels, name: Symbol) -> Labels {
    labels.entry(*label::HOSTNAME).or_insert(name);
    labels
}

/// Capacity in use by pool, `nodes` included, of nodes that stay.
pub(super) fn used_by_pool(facts: &[NodeFacts]) -> BTreeMap<PoolName, Resources> {
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
    used_by_pool(&node_facts(cluster, supply))
}

/// What is left of one node.
pub(super) struct Room {
    pub place: Place,
    pub requirements: Rc<Requirements>,
    pub taints: Vec<Taint>,
    left: Amounts,
    ports: Vec<HostPort>,
    attached: Attached,
    /// Takes only pods that have no place at all.
    is_settling: bool,
}

impl Room {
    pub fn new(facts: &NodeFacts, request: &Request, daemons: &[Daemon], columns: &Columns) -> Self {
        let cluster = request.cluster;
        let mut requirements = facts.open.clone().unwrap_or_default();
        for (key, value) in &facts.labels {
            requirements.replace(*key, Requirement::one(*value));
        }
        let mut left = columns.row(&facts.allocatable);
        let mut ports = Vec::new();
        let mut bound_daemons = columns.row(&Resources::new());
        let mut present: BTreeSet<ObjectKey> = BTreeSet::new();
        let node = match facts.place {
            Place::Node(name) => Some(name),
            Place::Claim(_) => None,
        };
        let bound = node.into_iter().flat_map(|name| cluster.pods_of(name)).filter(|pod| !pod.is_terminal());
        for pod in bound {
            let requests = columns.row(&pod.shape.requests);
            amounts::subtract(&mut left, &requests);
            ports.extend(pod.shape.host_ports.iter().copied());
            if pod.is_daemon() {
                amounts::add(&mut bound_daemons, &requests);
                present.extend(daemons.iter().filter(|daemon| daemon.owns(pod)).map(|daemon| daemon.set));
            }
        }
        let mut expected = columns.row(&Resources::new());
        for daemon in daemons.iter().filter(|d| d.runs_on(&facts.taints, &requirements, Undefined::Nothing)) {
            amounts::add(&mut expected, &columns.row(&daemon.shape.requests));
            if !present.contains(&daemon.set) {
                ports.extend(daemon.shape.host_ports.iter().copied());
            }
        }
        // Daemons that nobody expected do not make room.
        for ((left, expected), bound) in left.iter_mut().zip(expected).zip(bound_daemons) {
            *left = left.saturating_sub(expected.saturating_sub(bound).max(0));
        }
        let is_settling = match (request.mode, node) {
            (Mode::Simulation { settling }, Some(name)) => settling.contains(&name),
            _ => false,
        };
        Self {
            place: facts.place,
            requirements: Rc::new(requirements),
            taints: facts.taints.clone(),
            left,
            ports,
            attached: node.map_or_else(Attached::default, |name| Attached::to(cluster, name)),
            is_settling,
        }
    }

    /// Whether a pod may come here; `is_homeless`: it runs nowhere, or its node is going away.
    pub fn admits(&self, guest: &Guest, is_homeless: bool, topology: &Topology) -> Result<(), Refused> {
        let Guest { shape, full, requests, volumes, view } = guest;
        if self.is_settling && !is_homeless {
            return Err(Refused::Settling);
        }
        if !amounts::fits(requests, &self.left) {
            return Err(Refused::NodeFull);
        }
        if let Some(taint) = first_untolerated(&self.taints, &shape.tolerations) {
            return Err(Refused::Taint(*taint));
        }
        if let Some(driver) = self.attached.exceeded_by(&volumes.attached) {
            return Err(Refused::AttachLimit(driver));
        }
        let taken = |port: &&HostPort| self.ports.iter().any(|present| present.clashes_with(port));
        if let Some(port) = shape.host_ports.iter().find(taken) {
            return Err(Refused::HostPort(port.port));
        }
        self.certainly_meets(full).map_err(Refused::Requirements)?;
        let mut reached = volumes.alternatives.iter().map(|wanted| self.certainly_meets(wanted));
        if !volumes.alternatives.is_empty()
            && !reached.clone().any(|met| met.is_ok())
            && let Some(Err(conflict)) = reached.next()
        {
            return Err(Refused::Volume(conflict));
        }
        if view.is_free() { Ok(()) } else { topology.admits_room(view, &self.requirements) }
    }

    /// A node that may still become one of several things has to suit as each of them.
    fn certainly_meets(&self, wanted: &Requirements) -> Result<(), Conflict> {
        self.requirements.compatible(wanted, Undefined::Nothing)?;
        for (key, asked) in wanted.iter() {
            let Some(here) = self.requirements.get(key) else { continue };
            let suits = match here.listed() {
                Some(values) => values.iter().all(|value| asked.has(*value)),
                None => here == asked,
            };
            if !suits {
                return Err(Conflict::Disjoint {
                    key,
                    ours: Box::new(here.clone()),
                    theirs: Box::new(asked.clone()),
                });
            }
        }
        Ok(())
    }

    pub fn take(&mut self, guest: &Guest) {
        amounts::subtract(&mut self.left, guest.requests);
        self.ports.extend(guest.shape.host_ports.iter().copied());
        self.attached.attach(&guest.volumes.attached);
    }
}
