//! Where a plan ends: it is carried out in memory, one decision after the other, until nothing is left to do.
//!
//! Nothing fails here and nothing takes time but what the decisions themselves wait for: every launch succeeds as the cheapest
//! offering, every pod starts where the plan put it. So the end is what the decisions lead to, not what luck makes of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::capacity::disruption::budgets::next_change;
use crate::capacity::disruption::marking::marked;
use crate::capacity::disruption::{
    Command, Destination, Method, Step, has_to_move, join, next_step, price_of, quiet_at,
};
use crate::capacity::engine::EngineSettings;
use crate::capacity::planning;
use crate::capacity::scheduling::{NewNode, Place, Supply, is_going, is_reschedulable};
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::label;
use crate::model::money::UsdPerHour;
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName, TypeName, Zone};
use crate::model::offering::CapacityType;
use crate::model::pod::{Pod, PodPhase};

/// A plan that goes on for longer is taken for one that never ends.
pub const STEPS_MAX: u64 = 1000;
/// How far the clock moves after each step: enough for pods to start.
const STRIDE: SignedDuration = SignedDuration::from_mins(1);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettledNode {
    pub name: NodeName,
    /// `None`: nobody's of ours.
    pub pool: Option<PoolName>,
    pub instance_type: Option<TypeName>,
    pub zone: Option<Zone>,
    pub capacity_type: Option<CapacityType>,
    /// Zero for nobody's of ours.
    pub price: UsdPerHour,
    /// Without those of daemons.
    pub pods: usize,
}

/// The cluster at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// By name.
    pub nodes: Vec<SettledNode>,
    pub steps: u64,
    /// Nothing was left to do.
    pub quiescent: bool,
    /// How late it is by then.
    pub until: Timestamp,
    /// What the nodes of ours cost before the first step.
    pub before: UsdPerHour,
    /// One entry for each thing that was carried out.
    pub history: Vec<Done>,
    /// Pods that wait at the end.
    pub pending: usize,
}

/// Something that was carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    pub at: Timestamp,
    pub what: What,
    /// Nodes that went, nodes that came.
    pub removed: usize,
    pub started: usize,
    /// Pods that had to leave a node.
    pub evictions: usize,
    /// Pods that waited and got a place.
    pub bound: usize,
    /// What the nodes of ours cost afterwards.
    pub bill: UsdPerHour,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Machines under way joined; pods that needed a place got one; what a static pool lacks was bought.
    Provisioning,
    /// Nodes that were on their way out went.
    Termination,
    Disruption(Method),
}

impl What {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provisioning => "provisioning",
            Self::Termination => "termination",
            Self::Disruption(method) => method.as_str(),
        }
    }
}

/// A cluster in which nothing is left to do, or that never gets there.
#[derive(Clone, Debug)]
pub struct Rest {
    pub cluster: Cluster,
    /// How late it is by then.
    pub now: Timestamp,
    pub steps: u64,
    /// Nothing was left to do.
    pub quiescent: bool,
    pub history: Vec<Done>,
}

/// Carries out all that is to be done from `now` on, and tells what is there then.
pub fn settle(cluster: &Cluster, now: Timestamp, settings: &EngineSettings) -> Settled {
    let supply = Supply::of(cluster, &settings.scheduling);
    let rest = come_to_rest(cluster, now, settings, &Patience::default());
    Settled {
        nodes: nodes_of(&rest.cluster, &supply),
        steps: rest.steps,
        quiescent: rest.quiescent,
        until: rest.now,
        before: bill(cluster, &supply),
        history: rest.history,
        pending: rest.cluster.waiting_pods().count(),
    }
}

/// How long to wait once nothing is left to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patience {
    /// Drifted nodes that a budget keeps go when its window opens or closes, up to this moment.
    pub windows_until: Option<Timestamp>,
    /// What becomes due by this moment counts as well.
    pub at_least_until: Option<Timestamp>,
}

/// Carries out all that is to be done from `now` on.
pub fn come_to_rest(
    cluster: &Cluster,
    now: Timestamp,
    settings: &EngineSettings,
    patience: &Patience,
) -> Rest {
    let mut settling = Settling {
        cluster: cluster.clone(),
        supply: Supply::of(cluster, &settings.scheduling),
        now,
        settings,
        made: last_made(cluster),
        bill: UsdPerHour::ZERO,
        doing: Doing::default(),
        history: Vec::new(),
        rolls_on_at: None,
    };
    settling.bill = bill(cluster, &settling.supply);
    let (mut steps, mut quiescent) = (0, false);
    while steps < STEPS_MAX {
        if settling.step() {
            steps += 1;
            settling.now += STRIDE;
        } else if let Some(next) = settling.next_chance().or_else(|| settling.next_window(patience)) {
            settling.now = next;
        } else if let Some(until) = patience.at_least_until.filter(|until| *until > settling.now) {
            settling.now = until;
        } else {
            quiescent = true;
            break;
        }
    }
    let Settling { cluster, now, history, .. } = settling;
    Rest { cluster, now, steps, quiescent, history }
}

/// How new nodes are called.
const MADE: &str = "new-";

/// The number of the last node that was made here before, so that none is made twice under one name.
fn last_made(cluster: &Cluster) -> u64 {
    let numbers = cluster.nodes.keys().filter_map(|name| name.as_str().strip_prefix(MADE)?.parse().ok());
    numbers.max().unwrap_or(0)
}

struct Settling<'a> {
    cluster: Cluster,
    supply: Supply,
    now: Timestamp,
    settings: &'a EngineSettings,
    made: u64,
    bill: UsdPerHour,
    doing: Doing,
    history: Vec<Done>,
    /// When something that holds a roll back is over, as it was last found.
    rolls_on_at: Option<Timestamp>,
}

/// What the thing that is being carried out has come to so far.
#[derive(Default)]
struct Doing {
    removed: usize,
    started: usize,
    evictions: usize,
    bound: usize,
}

impl Settling<'_> {
    /// Does what is to be done now; tells whether there was anything.
    fn step(&mut self) -> bool {
        let arrived = self.join_launched();
        let placed = self.place_pods();
        if arrived || placed {
            self.note(What::Provisioning);
        }
        let left = self.remove_going();
        if left {
            self.note(What::Termination);
        }
        if arrived || placed || left {
            return true;
        }
        let Step { commands, new_nodes, rolls_on_at } = next_step(
            &self.cluster,
            &self.supply,
            &self.settings.scheduling,
            &self.settings.disruption,
            self.now,
        );
        self.rolls_on_at = rolls_on_at;
        let has_commands = !commands.is_empty() || !new_nodes.is_empty();
        for node in &new_nodes {
            self.add(node);
        }
        if !new_nodes.is_empty() {
            self.note(What::Provisioning);
        }
        for command in commands {
            self.carry_out(&command);
            self.note(What::Disruption(command.method));
        }
        has_commands
    }

    /// Writes down what was done.
    fn note(&mut self, what: What) {
        let Doing { removed, started, evictions, bound } = std::mem::take(&mut self.doing);
        self.history.push(Done { at: self.now, what, removed, started, evictions, bound, bill: self.bill });
    }

    /// Machines that are on their way arrive.
    fn join_launched(&mut self) -> bool {
        let waiting: Vec<Arc<NodeClaim>> = self
            .cluster
            .claims
            .values()
            .filter(|claim| {
                claim.deleted.is_none() && claim.provider_id.is_some() && !claim.allocatable.is_empty()
            })
            .filter(|claim| self.cluster.node_of(claim).is_none())
            .cloned()
            .collect();
        for claim in &waiting {
            let name = NodeName(claim.name.0);
            join(&mut self.cluster, claim, name, self.now);
            self.bill += price_at(&self.cluster, &self.supply, name);
        }
        !waiting.is_empty()
    }

    /// Finds a place for pods that wait, or whose node is on its way out.
    fn place_pods(&mut self) -> bool {
        let solution = planning::place(&self.cluster, &self.supply, self.now, &self.settings.scheduling);
        let mut moves: Vec<(ObjectKey, NodeName)> = Vec::new();
        for (place, pods) in &solution.existing {
            if let Place::Node(node) = place {
                let real = pods.iter().filter(|pod| self.cluster.pods.contains_key(pod));
                moves.extend(real.map(|pod| (*pod, *node)));
            }
        }
        for node in &solution.new_nodes {
            if let Some(name) = self.add(node) {
                moves.extend(node.pods.iter().map(|pod| (*pod, name)));
            }
        }
        let any = !moves.is_empty() || !solution.new_nodes.is_empty();
        self.bind_all(moves);
        any
    }

    /// Nodes whose pods have left, or are to leave by a deadline, go.
    fn remove_going(&mut self) -> bool {
        let stays = |pod: &Arc<Pod>| has_to_move(pod) && !is_reschedulable(&self.cluster, pod, self.now);
        let is_free = |node: NodeName, claim: Option<&Arc<NodeClaim>>| {
            claim.is_some_and(|claim| claim.spec.termination_grace.is_some())
                || !self.cluster.pods_of(node).any(&stays)
        };
        let going: Vec<(NodeName, Option<ClaimName>)> = self
            .cluster
            .nodes
            .values()
            .filter(|node| is_going(&self.cluster, node) && is_free(node.name, self.cluster.claim_of(node)))
            .map(|node| (node.name, self.cluster.claim_of(node).map(|claim| claim.name)))
            .collect();
        for (node, claim) in &going {
            self.remove(*node, *claim);
        }
        let lost: Vec<ClaimName> = self
            .cluster
            .claims
            .values()
            .filter(|claim| claim.deleted.is_some() && self.cluster.node_of(claim).is_none())
            .map(|claim| claim.name)
            .collect();
        lost.iter().for_each(|claim| self.cluster.remove_claim(*claim));
        !going.is_empty() || !lost.is_empty()
    }

    fn carry_out(&mut self, command: &Command) {
        let names: Vec<Option<NodeName>> = command.replacements.iter().map(|node| self.add(node)).collect();
        let place_of = |to: &Destination| match to {
            Destination::Existing(Place::Node(name)) => Some(*name),
            Destination::Replacement(at) => names.get(*at).copied().flatten(),
            Destination::Existing(Place::Claim(_)) | Destination::Nowhere => None,
        };
        let moves = command.pods.iter().filter_map(|(pod, to)| Some((*pod, place_of(to)?))).collect();
        self.bind_all(moves);
        for (node, claim) in command.nodes.iter().zip(&command.claims) {
            self.remove(*node, Some(*claim));
        }
    }

    /// Buys `node` and lets it join.
    fn add(&mut self, node: &NewNode) -> Option<NodeName> {
        self.made += 1;
        let name = NodeName::new(&format!("{MADE}{}", self.made));
        let claim = planning::buy(&self.cluster, &self.supply, node, self.settings, self.now, self.made)?;
        join(&mut self.cluster, &claim, name, self.now);
        self.doing.started += 1;
        self.bill += node.price();
        Some(name)
    }

    fn bind_all(&mut self, moves: Vec<(ObjectKey, NodeName)>) {
        let mut touched: BTreeMap<ClaimName, ()> = BTreeMap::new();
        for (key, name) in moves {
            let Some(pod) = self.cluster.pods.get(&key).cloned() else { continue };
            let bound = Pod {
                node: Some(name),
                nominated_node: None,
                phase: PodPhase::Running,
                deleted: None,
                started: Some(self.now),
                is_ready: true,
                is_unschedulable: false,
                ..(*pod).clone()
            };
            match pod.node {
                Some(_) => self.doing.evictions += 1,
                None => self.doing.bound += 1,
            }
            self.cluster.put_pod(Arc::new(bound));
            let claim = self.cluster.nodes.get(&name).and_then(|node| self.cluster.claim_of(node));
            touched.extend(claim.map(|claim| (claim.name, ())));
        }
        for name in touched.into_keys() {
            if let Some(claim) = self.cluster.claims.get(&name).cloned() {
                let last_pod_event = Some(self.now);
                self.cluster.put_claim(Arc::new(NodeClaim { last_pod_event, ..(*claim).clone() }));
            }
        }
    }

    /// The node goes; what it ran and has to run on waits for another place.
    fn remove(&mut self, node: NodeName, claim: Option<ClaimName>) {
        self.bill = self.bill - price_at(&self.cluster, &self.supply, node);
        self.doing.removed += 1;
        let pods: Vec<Arc<Pod>> = self.cluster.pods_of(node).cloned().collect();
        for pod in pods {
            if has_to_move(&pod) {
                self.doing.evictions += 1;
                let waiting = Pod {
                    node: None,
                    phase: PodPhase::Pending,
                    deleted: None,
                    started: None,
                    is_ready: false,
                    is_unschedulable: true,
                    ..(*pod).clone()
                };
                self.cluster.put_pod(Arc::new(waiting));
            } else {
                self.cluster.remove_pod(pod.key);
            }
        }
        self.cluster.remove_node(node);
        if let Some(claim) = claim {
            self.cluster.remove_claim(claim);
        }
    }

    /// When the pods of some node will next have been quiet for long enough, or a roll goes on.
    fn next_chance(&self) -> Option<Timestamp> {
        let claims = self.cluster.claims.values();
        let quiet = claims.filter_map(|claim| quiet_at(&self.cluster, claim));
        quiet.chain(self.rolls_on_at).filter(|at| *at > self.now).min()
    }

    /// When a budget of a pool with drifted nodes next allows more, or less.
    fn next_window(&self, patience: &Patience) -> Option<Timestamp> {
        let until = patience.windows_until?;
        let drifted = self.cluster.claims.values().filter(|claim| {
            let marks = marked(&self.cluster, &self.supply, claim, self.now, false);
            let conditions = marks.conditions.as_ref().unwrap_or(&claim.conditions);
            claim.deleted.is_none() && conditions.is_true(ConditionType::Drifted)
        });
        let pools: BTreeSet<PoolName> = drifted.filter_map(|claim| claim.pool()).collect();
        let pools = pools.iter().filter_map(|pool| self.cluster.pools.get(pool));
        pools.filter_map(|pool| next_change(pool, self.now)).filter(|at| *at <= until).min()
    }
}

/// What `node` costs; nothing if it is nobody's of ours.
fn price_at(cluster: &Cluster, supply: &Supply, node: NodeName) -> UsdPerHour {
    let known = cluster.nodes.get(&node);
    let pool = known.and_then(|node| node.labels.get(&*label::NODEPOOL));
    match (known, pool) {
        (Some(node), Some(pool)) => price_of(node, &supply.sold(PoolName(*pool))),
        _ => UsdPerHour::ZERO,
    }
}

fn bill(cluster: &Cluster, supply: &Supply) -> UsdPerHour {
    cluster.nodes.keys().map(|name| price_at(cluster, supply, *name)).sum()
}

fn nodes_of(cluster: &Cluster, supply: &Supply) -> Vec<SettledNode> {
    let of = |node: &Arc<crate::model::node::Node>| {
        let label = |key| node.labels.get(&key).copied();
        SettledNode {
            name: node.name,
            pool: label(*label::NODEPOOL).map(PoolName),
            instance_type: label(*label::INSTANCE_TYPE).map(TypeName),
            zone: label(*label::ZONE).map(Zone),
            capacity_type: label(*label::CAPACITY_TYPE).and_then(|kind| CapacityType::parse(&kind)),
            price: price_at(cluster, supply, node.name),
            pods: cluster.pods_of(node.name).filter(|pod| has_to_move(pod)).count(),
        }
    };
    cluster.nodes.values().map(of).collect()
}
