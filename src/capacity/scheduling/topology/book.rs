//! All rules of a cluster, and what they count before anything is placed.
//!
//! A rule is counted once for a picture of the cluster. A solve takes a copy, and takes away the pods that it moves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::room::Room;
use super::super::template::Template;
use super::group::{Group, Kind, Rule};
use super::keys::{DomainId, KeyId, Keys};
use super::rules;
use crate::capacity::cluster::Cluster;
use crate::model::hash::FastMap;
use crate::model::label::{self, Labels};
use crate::model::name::{Namespace, NodeName};
use crate::model::node::Node;
use crate::model::pod::{PodShape, SelectorTerm};
use crate::model::requirement::{Operator, Requirement, Requirements, Undefined};
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;

pub(in super::super) type RuleId = usize;
/// Pods of one namespace with the same labels: what selectors tell apart.
pub(in super::super) type ClassId = usize;
pub(in super::super) type HostId = usize;

/// A node that exists, for domains and for counting.
struct Host {
    node: Arc<Node>,
    requirements: Option<Requirements>,
    /// It gives domains: it is not on its way out.
    stays: bool,
}

impl Host {
    fn requirements(&mut self) -> &Requirements {
        self.requirements.get_or_insert_with(|| {
            let mut requirements = Requirements::of_labels(&self.node.labels);
            if requirements.get(*label::HOSTNAME).is_none() {
                requirements.add(*label::HOSTNAME, Requirement::one(self.node.name.0));
            }
            requirements
        })
    }
}

struct Class {
    namespace: Namespace,
    labels: Labels,
    /// The node of each bound pod that counts.
    bound: Vec<HostId>,
    /// Rules that select it, and how many rules were looked at.
    selected_by: (Arc<Vec<RuleId>>, usize),
}

/// A rule as it is before anything is placed.
pub(super) struct Base {
    pub group: Arc<Group>,
    /// Bound pods that keep others away by it.
    pub keepers: u32,
    /// Nodes that give each domain.
    pub givers: Vec<u32>,
    /// Domains that pools offer.
    pub offered: BTreeSet<DomainId>,
}

/// What pods of a shape have to do with rules.
#[derive(Clone)]
pub(in super::super) struct Standing {
    pub class: ClassId,
    /// Rules by which they keep others away.
    pub shuns: Arc<Vec<RuleId>>,
}

#[derive(Default)]
pub(in super::super) struct RuleBook {
    pub keys: Keys,
    hosts: Vec<Host>,
    host_by_name: FastMap<NodeName, HostId>,
    /// Namespaces that there are.
    namespaces: BTreeSet<Namespace>,
    classes: Vec<Class>,
    class_by_labels: FastMap<(Namespace, Labels), ClassId>,
    standings: FastMap<usize, (Arc<PodShape>, Standing)>,
    rules: Vec<Base>,
    by_rule: FastMap<Arc<Rule>, RuleId>,
    /// Rules by a label value that they ask for, and those that ask for none.
    by_label: FastMap<(Symbol, Symbol), Vec<RuleId>>,
    by_nothing: Vec<RuleId>,
    classes_by_label: FastMap<(Symbol, Symbol), Vec<ClassId>>,
    /// Domains that pools offer, with the templates that offer each.
    offered: BTreeMap<Symbol, BTreeMap<Symbol, Vec<usize>>>,
    template_taints: Vec<Vec<Taint>>,
}

impl RuleBook {
    /// `stays`: of a node, whether it is not on its way out.
    pub fn new(cluster: &Cluster, templates: &[Template], stays: impl Fn(&Node) -> bool) -> Self {
        let mut book = Self {
            namespaces: cluster.namespaces.keys().copied().collect(),
            offered: offered_domains(templates),
            template_taints: templates.iter().map(|template| template.taints().to_vec()).collect(),
            ..Self::default()
        };
        for (at, node) in cluster.nodes.values().enumerate() {
            book.host_by_name.insert(node.name, at);
            book.hosts.push(Host { node: node.clone(), requirements: None, stays: stays(node) });
        }
        // A namespace with pods exists, even if nobody listed it.
        let mut last = None;
        for pod in cluster.pods.keys() {
            if last != Some(pod.namespace) {
                book.namespaces.insert(pod.namespace);
                last = Some(pod.namespace);
            }
        }
        book
    }

    pub fn host(&self, node: NodeName) -> Option<HostId> {
        self.host_by_name.get(&node).copied()
    }

    /// Counts a bound pod, before any rule is asked for. `is_leaving`: it is being deleted.
    pub fn bind(
        &mut self,
        cluster: &Cluster,
        rooms: &[Room],
        shape: &Arc<PodShape>,
        host: HostId,
        is_leaving: bool,
    ) {
        let standing = self.standing(cluster, rooms, shape);
        if !is_leaving {
            self.classes[standing.class].bound.push(host);
        }
        for rule in standing.shuns.iter() {
            let Base { group, keepers, .. } = &mut self.rules[*rule];
            *keepers += 1;
            let table = self.keys.get(group.key);
            if let Some(domain) = table.hosts[host] {
                Arc::make_mut(group).shift(domain, 1, table);
            }
        }
    }

    pub fn standing(&mut self, cluster: &Cluster, rooms: &[Room], shape: &Arc<PodShape>) -> Standing {
        let address = Arc::as_ptr(shape) as usize;
        if let Some((_, known)) = self.standings.get(&address) {
            return known.clone();
        }
        let class = self.class(shape);
        let shuns: Vec<RuleId> = rules::shunning(shape, cluster, &self.namespaces)
            .into_iter()
            .map(|rule| self.number(rule, rooms))
            .collect();
        let standing = Standing { class, shuns: Arc::new(shuns) };
        self.standings.insert(address, (shape.clone(), standing.clone()));
        standing
    }

    fn class(&mut self, shape: &PodShape) -> ClassId {
        let key = (shape.namespace, shape.labels.clone());
        if let Some(known) = self.class_by_labels.get(&key) {
            return *known;
        }
        let id = self.classes.len();
        for (key, value) in &shape.labels {
            self.classes_by_label.entry((*key, *value)).or_default().push(id);
        }
        self.classes.push(Class {
            namespace: shape.namespace,
            labels: shape.labels.clone(),
            bound: Vec::new(),
            selected_by: (Arc::default(), 0),
        });
        self.class_by_labels.insert(key, id);
        id
    }

    /// The rules that a pod of `shape` has, and whether each selects the pod itself.
    pub fn owned(&mut self, cluster: &Cluster, rooms: &[Room], shape: &PodShape) -> Vec<(RuleId, bool)> {
        let rules = rules::owned(shape, cluster, &self.namespaces);
        rules
            .into_iter()
            .map(|rule| {
                let counts_itself = rule.selects(shape.namespace, &shape.labels);
                (self.number(rule, rooms), counts_itself)
            })
            .collect()
    }

    /// Every rule that selects pods of `class`, those that keep away included.
    pub fn selecting(&mut self, class: ClassId) -> Arc<Vec<RuleId>> {
        let (known, seen) = &self.classes[class].selected_by;
        if *seen == self.rules.len() {
            return known.clone();
        }
        let mut selecting = (**known).clone();
        let of = &self.classes[class];
        let selects = |rule: &RuleId| self.rules[*rule].group.rule.selects(of.namespace, &of.labels);
        if self.rules.len() - seen < 32 {
            selecting.extend((*seen..self.rules.len()).filter(selects));
        } else {
            let by_label = of.labels.iter().filter_map(|(key, value)| self.by_label.get(&(*key, *value)));
            let candidates = by_label.flatten().chain(&self.by_nothing).filter(|rule| *rule >= seen);
            let mut candidates: Vec<RuleId> = candidates.copied().collect();
            candidates.sort_unstable();
            candidates.dedup();
            selecting.extend(candidates.into_iter().filter(selects));
        }
        let selecting = Arc::new(selecting);
        self.classes[class].selected_by = (selecting.clone(), self.rules.len());
        selecting
    }

    pub fn selects(&self, rule: RuleId, class: ClassId) -> bool {
        let of = &self.classes[class];
        self.rules[rule].group.rule.selects(of.namespace, &of.labels)
    }

    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub(super) fn base(&self, rule: RuleId) -> &Base {
        &self.rules[rule]
    }

    /// Whether the rule looks at the node, and where the node is.
    pub(super) fn seen_on(&mut self, rule: RuleId, host: HostId) -> Option<DomainId> {
        let group = &self.rules[rule].group;
        let domain = self.keys.get(group.key).hosts[host]?;
        let filter = &group.rule.filter;
        let host = &mut self.hosts[host];
        let node = host.node.clone();
        let is_seen =
            filter.is_open() || filter.accepts(host.requirements(), &node.taints, Undefined::Nothing);
        is_seen.then_some(domain)
    }

    pub fn stays(&self, host: HostId) -> bool {
        self.hosts[host].stays
    }

    pub(super) fn number(&mut self, rule: Rule, rooms: &[Room]) -> RuleId {
        if let Some(known) = self.by_rule.get(&rule) {
            return *known;
        }
        let hosts = self.hosts.iter().map(|host| (&host.node.labels, host.node.name.0));
        let key = self.keys.number(rule.key, hosts, rooms);
        let rule = Arc::new(rule);
        let id = self.rules.len();
        let base = self.counted(rule.clone(), key);
        self.rules.push(base);
        match asked_labels(&rule) {
            Some(SelectorTerm { key, values, .. }) => {
                for value in values {
                    self.by_label.entry((*key, *value)).or_default().push(id);
                }
            }
            None => self.by_nothing.push(id),
        }
        self.by_rule.insert(rule, id);
        self.count_bound(id);
        id
    }

    /// The group of a rule with every domain that a pool could give a node or that a node has; nothing is counted yet.
    fn counted(&mut self, rule: Arc<Rule>, key: KeyId) -> Base {
        let table = self.keys.get_mut(key);
        let mut group = Group::new(rule.clone(), key, table.is_by_host);
        let mut offered = BTreeSet::new();
        let mut givers = Vec::new();
        if !table.is_by_host {
            for (domain, templates) in self.offered.get(&rule.key).into_iter().flatten() {
                if templates.iter().any(|template| rule.filter.tolerates(&self.template_taints[*template])) {
                    offered.insert(table.number(*domain));
                }
            }
            givers = vec![0; table.len()];
            for (at, host) in self.hosts.iter_mut().enumerate().filter(|(_, host)| host.stays) {
                let Some(domain) = table.hosts[at] else { continue };
                let node = host.node.clone();
                if rule.filter.is_open()
                    || rule.filter.accepts(host.requirements(), &node.taints, Undefined::Nothing)
                {
                    givers[domain as usize] += 1;
                }
            }
            for domain in &offered {
                group.known.insert(*domain as usize);
            }
            for at in (0..givers.len()).filter(|at| givers[*at] > 0) {
                group.known.insert(at);
            }
        }
        Base { group: Arc::new(group), keepers: 0, givers, offered }
    }

    fn count_bound(&mut self, id: RuleId) {
        let rule = self.rules[id].group.rule.clone();
        if rule.kind == Kind::Shunned {
            return;
        }
        let mut classes: Vec<ClassId> = match asked_labels(&rule) {
            Some(SelectorTerm { key, values, .. }) => {
                let of = |value: &Symbol| self.classes_by_label.get(&(*key, *value));
                values.iter().filter_map(of).flatten().copied().collect()
            }
            None => (0..self.classes.len()).collect(),
        };
        classes.sort_unstable();
        classes.dedup();
        for class in classes {
            if !self.classes[class].bound.is_empty() && self.selects(id, class) {
                let bound = std::mem::take(&mut self.classes[class].bound);
                for host in &bound {
                    if let Some(domain) = self.seen_on(id, *host) {
                        let group = Arc::make_mut(&mut self.rules[id].group);
                        group.shift(domain, 1, self.keys.get(group.key));
                    }
                }
                self.classes[class].bound = bound;
            }
        }
    }
}

/// A term that only pods with one of some values of a label satisfy.
fn asked_labels(rule: &Rule) -> Option<&SelectorTerm> {
    rule.selector.as_ref()?.terms.iter().find(|term| term.operator == Operator::In)
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
