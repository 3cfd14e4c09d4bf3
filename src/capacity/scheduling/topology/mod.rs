//! Rules that speak of other pods: topology spread, pod affinity and anti-affinity.
//!
//! For one pod and one candidate node every rule says which domains of its key it permits. The sets are intersected,
//! and only then is a domain chosen, so two rules never fail over two choices when a common one exists.

mod group;
mod rules;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use super::explain::{Refused, TopologyRule};
use super::template::Template;
use crate::capacity::cluster::Cluster;
use crate::model::label;
use crate::model::name::NodeName;
use crate::model::pod::{Pod, PodShape};
use crate::model::requirement::{Requirement, Requirements, Undefined};
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;

use group::{Group, Kind, Permitted, Rule};

pub(super) type GroupId = usize;

/// A rule that a pod has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owned {
    group: GroupId,
    /// The rule selects the pod itself.
    counts_itself: bool,
}

/// A node of the solve, as rules see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    Room(usize),
    Bin(usize),
}

/// How one pod sees topology: its own rules, those of others that select it, and what it demands of nodes.
pub(super) struct View<'a> {
    pub owned: &'a [Owned],
    pub shunned: &'a [GroupId],
    pub strict: &'a Requirements,
}

impl View<'_> {
    pub fn is_free(&self) -> bool {
        self.owned.is_empty() && self.shunned.is_empty()
    }
}

/// A node that exists, for domains and for counting.
struct Host {
    requirements: Rc<Requirements>,
    taints: Vec<Taint>,
}

struct PlacedPod {
    shape: Arc<PodShape>,
    spot: Spot,
}

pub(super) struct Topology<'a> {
    cluster: &'a Cluster,
    /// Bound pods that count, with their node, by name.
    bound: Vec<(&'a Arc<Pod>, NodeName)>,
    hosts: BTreeMap<NodeName, Host>,
    /// Hosts that give domains: those that stay.
    staying: BTreeSet<NodeName>,
    /// Domains that pools offer, with the templates that offer each.
    offered: BTreeMap<Symbol, BTreeMap<Symbol, Vec<usize>>>,
    template_taints: Vec<Vec<Taint>>,
    groups: Vec<Group>,
    by_rule: BTreeMap<Rule, GroupId>,
    placed: Vec<PlacedPod>,
    rooms: Vec<(Rc<Requirements>, Vec<Taint>)>,
    bins: Vec<(Rc<Requirements>, Vec<Taint>)>,
}

impl<'a> Topology<'a> {
    /// `batch`: pods that are being placed, and so count nowhere yet. `rooms`: existing nodes that take pods.
    pub fn new(
        cluster: &'a Cluster,
        batch: &[Arc<Pod>],
        templates: &[Template],
        rooms: Vec<(Rc<Requirements>, Vec<Taint>)>,
        staying: BTreeSet<NodeName>,
    ) -> Self {
        let in_batch: BTreeSet<_> = batch.iter().map(|pod| pod.key).collect();
        let bound = cluster.pods.values().filter(|pod| !pod.is_terminal() && !in_batch.contains(&pod.key));
        let bound = bound.filter_map(|pod| Some((pod, pod.node?))).collect();
        let hosts = cluster.nodes.values().map(|node| {
            let mut requirements = Requirements::of_labels(&node.labels);
            if requirements.get(*label::HOSTNAME).is_none() {
                requirements.add(*label::HOSTNAME, Requirement::one(node.name.0));
            }
            (node.name, Host { requirements: Rc::new(requirements), taints: node.taints.clone() })
        });
        let mut topology = Self {
            cluster,
            bound,
            hosts: hosts.collect(),
            staying,
            offered: offered_domains(templates),
            template_taints: templates.iter().map(|template| template.taints().to_vec()).collect(),
            groups: Vec::new(),
            by_rule: BTreeMap::new(),
            placed: Vec::new(),
            rooms,
            bins: Vec::new(),
        };
        topology.shun_for_others(batch);
        topology
    }

    /// The groups that keep pods away from those with required anti-affinity, in the batch and in the cluster.
    fn shun_for_others(&mut self, batch: &[Arc<Pod>]) {
        let mut seen: BTreeSet<*const PodShape> = BTreeSet::new();
        for pod in batch {
            if !pod.shape.anti_affinity_required.is_empty() && seen.insert(Arc::as_ptr(&pod.shape)) {
                for rule in rules::shunning(&pod.shape, self.cluster) {
                    self.group_of(rule);
                }
            }
        }
        for at in 0..self.bound.len() {
            let (pod, node) = self.bound[at];
            for rule in rules::shunning(&pod.shape, self.cluster) {
                let group = self.group_of(rule);
                if let Some(host) = self.hosts.get(&node) {
                    let key = self.groups[group].rule.key;
                    self.groups[group].record_on_node(host.requirements.get(key));
                }
            }
        }
    }

    /// The rules that a pod of `shape` has; groups that are new start with all pods counted.
    pub fn adopt(&mut self, shape: &PodShape) -> Vec<Owned> {
        let rules = rules::owned(shape, self.cluster);
        rules
            .into_iter()
            .map(|rule| {
                let counts_itself = rule.selects(shape.namespace, &shape.labels);
                Owned { group: self.group_of(rule), counts_itself }
            })
            .collect()
    }

    /// Groups that keep a pod of `shape` away from others.
    pub fn shunning(&self, shape: &PodShape) -> Vec<GroupId> {
        let shuns = |group: &Group| {
            group.rule.kind == Kind::Shunned && group.rule.selects(shape.namespace, &shape.labels)
        };
        (0..self.groups.len()).filter(|id| shuns(&self.groups[*id])).collect()
    }

    fn group_of(&mut self, rule: Rule) -> GroupId {
        if let Some(known) = self.by_rule.get(&rule) {
            return *known;
        }
        let mut group = Group::new(rule.clone(), self.domains(&rule));
        if rule.kind != Kind::Shunned {
            self.count_existing(&mut group);
        }
        let id = self.groups.len();
        self.groups.push(group);
        self.by_rule.insert(rule, id);
        id
    }

    /// Every value of the key that a pool could give a node or that a node has.
    fn domains(&self, rule: &Rule) -> BTreeSet<Symbol> {
        if rule.key == *label::HOSTNAME {
            return BTreeSet::new();
        }
        let mut domains = BTreeSet::new();
        for (domain, templates) in self.offered.get(&rule.key).into_iter().flatten() {
            if templates.iter().any(|template| rule.filter.tolerates(&self.template_taints[*template])) {
                domains.insert(*domain);
            }
        }
        for (name, host) in &self.hosts {
            let value = host.requirements.get(rule.key).and_then(Requirement::single);
            if let Some(value) = value.filter(|_| self.staying.contains(name))
                && rule.filter.accepts(&host.requirements, &host.taints, Undefined::Nothing)
            {
                domains.insert(value);
            }
        }
        domains
    }

    fn count_existing(&self, group: &mut Group) {
        for (pod, node) in &self.bound {
            if pod.deleted.is_some() || !group.rule.selects(pod.shape.namespace, &pod.shape.labels) {
                continue;
            }
            let Some(host) = self.hosts.get(node) else { continue };
            if group.rule.filter.accepts(&host.requirements, &host.taints, Undefined::Nothing) {
                group.record_on_node(host.requirements.get(group.rule.key));
            }
        }
        for placed in &self.placed {
            if group.rule.selects(placed.shape.namespace, &placed.shape.labels) {
                self.record_in(group, placed.spot);
            }
        }
    }

    fn record_in(&self, group: &mut Group, spot: Spot) {
        match spot {
            Spot::Room(at) => {
                let (requirements, taints) = &self.rooms[at];
                if group.rule.filter.accepts(requirements, taints, Undefined::Nothing) {
                    group.record_on_node(requirements.get(group.rule.key));
                }
            }
            Spot::Bin(at) => {
                let (requirements, taints) = &self.bins[at];
                if group.rule.filter.accepts(requirements, taints, Undefined::WellKnown) {
                    group.record_on_bin(at, requirements.get(group.rule.key));
                }
            }
        }
    }

    /// Takes note of a new node, or of what it has been narrowed to.
    pub fn see_bin(&mut self, at: usize, requirements: &Rc<Requirements>, taints: &[Taint]) {
        if at == self.bins.len() {
            self.bins.push((requirements.clone(), taints.to_vec()));
            return;
        }
        let before = std::mem::replace(&mut self.bins[at].0, requirements.clone());
        for group in &mut self.groups {
            let (from, to) = (before.get(group.rule.key), requirements.get(group.rule.key));
            if from != to {
                group.narrowed(at, from, to);
            }
        }
    }

    /// Counts a pod of `shape` at `spot`.
    pub fn record(&mut self, shape: &Arc<PodShape>, spot: Spot) {
        let shunning = rules::shunning(shape, self.cluster);
        let mut groups = std::mem::take(&mut self.groups);
        for group in &mut groups {
            let counts = match group.rule.kind {
                Kind::Shunned => shunning.contains(&group.rule),
                _ => group.rule.selects(shape.namespace, &shape.labels),
            };
            if counts {
                self.record_in(group, spot);
            }
        }
        self.groups = groups;
        self.placed.push(PlacedPod { shape: shape.clone(), spot });
    }

    /// Whether the rules permit an existing node with `node` labels: in whatever domain it may still turn out to be.
    pub fn admits_room(&self, view: &View, node: &Requirements) -> Result<(), Refused> {
        for (key, permitted) in self.permitted(view, node, true)? {
            let Some(values) = node.get(key).and_then(Requirement::listed) else { continue };
            if !values.iter().all(|value| permitted.domains.contains_key(value)) {
                return Err(Refused::Topology { rule: TopologyRule::Together, key, domains: Vec::new() });
            }
        }
        Ok(())
    }

    /// What a new node may be narrowed to so that every rule is kept: alternatives, best first.
    pub fn narrowings(&self, view: &View, node: &Requirements) -> Result<Vec<Requirements>, Refused> {
        const TRIED: usize = 256;
        let mut alternatives = vec![Requirements::new()];
        for (key, permitted) in self.permitted(view, node, false)? {
            let choices: Vec<Requirement> = if permitted.must_choose {
                let mut ranked: Vec<(i64, Symbol)> =
                    permitted.domains.iter().map(|(domain, rank)| (*rank, *domain)).collect();
                ranked.sort();
                ranked.into_iter().map(|(_, domain)| Requirement::one(domain)).collect()
            } else {
                let operator = crate::model::requirement::Operator::In;
                vec![Requirement::new(operator, permitted.domains.into_keys())]
            };
            let mut next = Vec::new();
            for present in &alternatives {
                for choice in &choices {
                    let mut narrowed = present.clone();
                    narrowed.add(key, choice.clone());
                    next.push(narrowed);
                }
            }
            next.truncate(TRIED);
            alternatives = next;
        }
        Ok(alternatives)
    }

    /// Domains that every rule permits, by key. A node without the key is nobody's neighbour, so anti-affinity has
    /// nothing to say about it.
    fn permitted(
        &self,
        view: &View,
        node: &Requirements,
        exists: bool,
    ) -> Result<BTreeMap<Symbol, Permitted>, Refused> {
        let mut by_key: BTreeMap<Symbol, Permitted> = BTreeMap::new();
        let owned = view.owned.iter().map(|owned| (owned.group, owned.counts_itself));
        for (id, counts_itself) in owned.chain(view.shunned.iter().map(|id| (*id, false))) {
            let group = &self.groups[id];
            let key = group.rule.key;
            let here = node.get(key);
            if exists && here.is_none() && matches!(group.rule.kind, Kind::AntiAffinity | Kind::Shunned) {
                continue;
            }
            let nowhere = Requirement::nothing();
            let here = if exists { here.or(Some(&nowhere)) } else { here };
            let permitted = group.permitted(counts_itself, view.strict.get(key), here);
            let refuse = |rule| Refused::Topology { rule, key, domains: group.counts() };
            if permitted.domains.is_empty() {
                return Err(refuse(group.refusal()));
            }
            let met = match by_key.remove(&key) {
                Some(present) => present.meet(permitted),
                None => permitted,
            };
            if met.domains.is_empty() {
                return Err(refuse(TopologyRule::Together));
            }
            by_key.insert(key, met);
        }
        Ok(by_key)
    }
}

/// Values of every key that the pools could give a node: what the types they may use leave of their requirements.
fn offered_domains(templates: &[Template]) -> BTreeMap<Symbol, BTreeMap<Symbol, Vec<usize>>> {
    let mut offered: BTreeMap<Symbol, BTreeMap<Symbol, Vec<usize>>> = BTreeMap::new();
    for (at, template) in templates.iter().enumerate() {
        let mut offer = |key: Symbol, requirement: &Requirement| {
            for value in requirement.listed().into_iter().flatten() {
                let templates = offered.entry(key).or_default().entry(*value).or_default();
                if templates.last() != Some(&at) {
                    templates.push(at);
                }
            }
        };
        let mut seen: BTreeSet<(Symbol, &Requirement)> = BTreeSet::new();
        for (key, requirement) in template.requirements.iter() {
            offer(key, requirement);
        }
        for kind in
            template.types.iter().filter(|kind| kind.requirements.intersects(&template.requirements).is_ok())
        {
            for (key, requirement) in kind.requirements.iter() {
                if seen.insert((key, requirement)) {
                    match template.requirements.get(key) {
                        Some(pool) => offer(key, &pool.intersection(requirement)),
                        None => offer(key, requirement),
                    }
                }
            }
        }
    }
    offered
}
