//! All rules of a cluster, and what they count before anything is placed.
//!
//! A rule is counted once, when it is first met; after that every node and every bound pod that comes or goes is one more or one
//! less. A solve shares the counts, and takes away the pods that it moves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::room::Room;
use super::super::template::Template;
use super::group::{Group, Kind, NodeFilter, Rule};
use super::keys::{DomainId, KeyId, Keys, RoomDomain};
use super::rules;
use crate::capacity::cluster::Cluster;
use crate::model::hash::FastMap;
use crate::model::label::{self, Labels};
use crate::model::name::{Namespace, NodeName};
use crate::model::node::Node;
use crate::model::offering::InstanceType;
use crate::model::pod::{Pod, PodShape, SelectorTerm};
use crate::model::requirement::{Operator, Requirement, Requirements, Undefined};
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;

pub(in super::super) type RuleId = usize;
/// Pods of one namespace with the same labels: what selectors tell apart.
pub(in super::super) type ClassId = usize;
pub(in super::super) type HostId = usize;
/// A number in [`RuleBook::standings`].
pub(in super::super) type StandingId = u32;

/// A node that exists, for domains and for counting; or the place of one that did.
struct Host {
    node: Option<Arc<Node>>,
    requirements: Option<Requirements>,
    /// By number of the filter, as far as it was asked: whether that looks at it.
    seen: Vec<Option<bool>>,
    /// It gives domains: it is not on its way out.
    stays: bool,
    bound: Vec<Bound>,
}

/// A number in [`RuleBook::filters`].
type FilterId = usize;

/// What a bound pod is counted as.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Bound {
    standing: StandingId,
    /// It counts for those that want to be near it or away from it: it is not being deleted.
    counts: bool,
}

impl Host {
    fn new(node: Option<Arc<Node>>, stays: bool) -> Self {
        Self { node, requirements: None, seen: Vec::new(), stays, bound: Vec::new() }
    }

    fn is_seen_by(&mut self, filter: &NodeFilter, number: FilterId) -> bool {
        let Some(node) = &self.node else { return false };
        if filter.is_open() {
            return true;
        }
        if let Some(Some(is_seen)) = self.seen.get(number) {
            return *is_seen;
        }
        let requirements = self.requirements.get_or_insert_with(|| {
            let mut requirements = Requirements::of_labels(&node.labels);
            if requirements.get(*label::HOSTNAME).is_none() {
                requirements.add(*label::HOSTNAME, Requirement::one(node.name.0));
            }
            requirements
        });
        let is_seen = filter.accepts(requirements, &node.taints, Undefined::Nothing);
        if number >= self.seen.len() {
            self.seen.resize(number + 1, None);
        }
        self.seen[number] = Some(is_seen);
        is_seen
    }

    fn named(&self) -> Option<(&Labels, Symbol)> {
        self.node.as_ref().map(|node| (&node.labels, node.name.0))
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
    filter: FilterId,
    /// Bound pods that keep others away by it.
    pub keepers: u32,
    /// Nodes that give each domain.
    pub givers: Vec<u32>,
    /// Domains that pools offer, and templates of nodes that would be seen there: all if the rule has several terms.
    pub offered: BTreeMap<DomainId, Vec<usize>>,
}

impl Base {
    fn shift(&mut self, domain: DomainId, by: i64, keys: &Keys) {
        let table = keys.get(self.group.key);
        Arc::make_mut(&mut self.group).shift(domain, by, table);
        if by < 0 {
            self.judge(domain);
        }
    }

    /// A domain is there as long as a pool offers it, a node gives it or a pod is counted in it.
    fn judge(&mut self, domain: DomainId) {
        let is_given = self.givers.get(domain as usize).is_some_and(|givers| *givers > 0);
        let is_there = is_given || self.offered.contains_key(&domain) || self.group.count(domain) != 0;
        if !self.group.is_by_host && self.group.known.contains(domain as usize) != is_there {
            Arc::make_mut(&mut self.group).known.set(domain as usize, is_there);
        }
    }
}

/// Domains of one key, with the templates whose nodes may be there.
type Offered = BTreeMap<Symbol, Vec<usize>>;

/// What the nodes of a template may be.
struct Sold {
    requirements: Requirements,
    taints: Vec<Taint>,
    types: Arc<Vec<InstanceType>>,
}

impl Sold {
    fn of(template: &Template) -> Self {
        Self {
            requirements: template.requirements.clone(),
            taints: template.taints().to_vec(),
            types: template.types.clone(),
        }
    }
}

/// What pods have to do with rules: some of one shape, or of several that are alike in this.
#[derive(Clone)]
pub(in super::super) struct Standing {
    pub id: StandingId,
    pub class: ClassId,
    /// Rules by which they keep others away.
    pub shuns: Arc<Vec<RuleId>>,
}

#[derive(Default)]
pub(in super::super) struct RuleBook {
    pub keys: Keys,
    hosts: Vec<Host>,
    /// Places among them that are free.
    vacant: Vec<HostId>,
    host_by_name: FastMap<NodeName, HostId>,
    /// Namespaces that there are, and whether any rule was made by looking at them.
    namespaces: BTreeSet<Namespace>,
    asks_namespaces: bool,
    classes: Vec<Class>,
    class_by_labels: FastMap<Namespace, FastMap<Labels, ClassId>>,
    standings: Vec<Standing>,
    /// The other way round.
    numbered: FastMap<(ClassId, Arc<Vec<RuleId>>), StandingId>,
    /// By address.
    by_shape: FastMap<usize, (Arc<PodShape>, StandingId)>,
    shuns_nobody: Arc<Vec<RuleId>>,
    rules: Vec<Base>,
    /// Some of them count pods that did not ask for it.
    counts_others: bool,
    by_rule: FastMap<Arc<Rule>, RuleId>,
    /// Which nodes rules look at.
    filters: FastMap<NodeFilter, FilterId>,
    /// Rules that see the same domains on the same nodes.
    by_view: BTreeMap<(KeyId, FilterId), Vec<RuleId>>,
    /// Rules by a label value that they ask for, and those that ask for none.
    by_label: FastMap<(Symbol, Symbol), Vec<RuleId>>,
    by_nothing: Vec<RuleId>,
    classes_by_label: FastMap<(Symbol, Symbol), Vec<ClassId>>,
    /// By template.
    sold: Vec<Sold>,
    /// Domains that pools offer, with the templates that offer each, by key: as far as rules asked.
    offered: FastMap<Symbol, Offered>,
}

impl RuleBook {
    /// No node is known yet.
    pub fn new(cluster: &Cluster, templates: &[Template]) -> Self {
        Self {
            namespaces: cluster.known_namespaces().collect(),
            sold: templates.iter().map(Sold::of).collect(),
            ..Self::default()
        }
    }

    /// Takes in what there is of namespaces now; `false`: rules were made of what there was before.
    pub fn put_namespaces(&mut self, cluster: &Cluster) -> bool {
        self.namespaces = cluster.known_namespaces().collect();
        !self.asks_namespaces
    }

    /// How much is remembered, in things that are never forgotten.
    pub fn size(&self) -> usize {
        self.by_shape.len() + self.rules.len() + self.keys.domains()
    }

    pub fn host(&self, node: NodeName) -> Option<HostId> {
        self.host_by_name.get(&node).copied()
    }

    /// `name` is this node now, and whether it stays; or there is none.
    pub fn put_node(&mut self, name: NodeName, node: Option<(&Arc<Node>, bool)>) {
        let known = self.host(name);
        let (Some((node, stays)), Some(host)) = (node, known) else {
            match (node, known) {
                (Some((node, stays)), None) => self.add_host(node, stays),
                (None, Some(host)) => {
                    self.put_bound(host, Vec::new());
                    self.give(host, false);
                    self.hosts[host] = Host::new(None, false);
                    self.put_in_tables(host);
                    self.host_by_name.remove(&name);
                    self.vacant.push(host);
                }
                _ => {}
            }
            return;
        };
        let former = &mut self.hosts[host];
        let is_same = former.stays == stays
            && former
                .node
                .as_ref()
                .is_some_and(|former| former.labels == node.labels && former.taints == node.taints);
        if is_same {
            former.node = Some(node.clone());
            return;
        }
        let bound = former.bound.clone();
        self.put_bound(host, Vec::new());
        self.give(host, false);
        self.hosts[host] = Host::new(Some(node.clone()), stays);
        self.put_in_tables(host);
        self.give(host, true);
        self.put_bound(host, bound);
    }

    fn add_host(&mut self, node: &Arc<Node>, stays: bool) {
        let new = Host::new(Some(node.clone()), stays);
        let host = match self.vacant.pop() {
            Some(host) => {
                self.hosts[host] = new;
                host
            }
            None => {
                self.hosts.push(new);
                self.hosts.len() - 1
            }
        };
        self.host_by_name.insert(node.name, host);
        self.put_in_tables(host);
        self.give(host, true);
    }

    fn put_in_tables(&mut self, host: HostId) {
        for key in 0..self.keys.len() {
            self.keys.get_mut(key).put_host(host, self.hosts[host].named());
        }
    }

    /// The domains of a node that stays are there, or are not there any more on its account.
    fn give(&mut self, host: HostId, is_there: bool) {
        if !self.hosts[host].stays {
            return;
        }
        for rule in 0..self.rules.len() {
            if self.rules[rule].group.is_by_host {
                continue;
            }
            if let Some(domain) = self.seen_on(rule, host) {
                let givers = &mut self.rules[rule].givers;
                let at = domain as usize;
                if at >= givers.len() {
                    givers.resize(at + 1, 0);
                }
                if is_there {
                    givers[at] += 1;
                } else {
                    givers[at] -= 1;
                }
                self.rules[rule].judge(domain);
            }
        }
    }

    /// Those of `pods` that run count as what they are on `host`, and no others.
    pub fn bind<'a>(
        &mut self,
        cluster: &Cluster,
        rooms: &[Room],
        host: HostId,
        pods: impl Iterator<Item = &'a Arc<Pod>>,
    ) {
        let running = pods.filter(|pod| !pod.is_terminal());
        let bound = running.map(|pod| Bound {
            standing: self.standing_of(cluster, rooms, &pod.shape),
            counts: pod.deleted.is_none(),
        });
        let bound = bound.collect();
        self.put_bound(host, bound);
    }

    /// Counts what differs at neither end: mostly one pod came or went.
    fn put_bound(&mut self, host: HostId, bound: Vec<Bound>) {
        let former = std::mem::take(&mut self.hosts[host].bound);
        let start = former.iter().zip(&bound).take_while(|(one, other)| one == other).count();
        let (gone, come) = (&former[start..], &bound[start..]);
        let end = gone.iter().rev().zip(come.iter().rev()).take_while(|(one, other)| one == other).count();
        for pod in &gone[..gone.len() - end] {
            self.count(host, *pod, -1);
        }
        for pod in &come[..come.len() - end] {
            self.count(host, *pod, 1);
        }
        self.hosts[host].bound = bound;
    }

    fn count(&mut self, host: HostId, pod: Bound, by: i64) {
        let Standing { class, shuns, .. } = self.standing(pod.standing).clone();
        if pod.counts {
            let bound = &mut self.classes[class].bound;
            if by > 0 {
                bound.push(host);
            } else if let Some(at) = bound.iter().rposition(|other| *other == host) {
                bound.swap_remove(at);
            }
            if self.counts_others {
                for rule in self.selecting(class).iter().copied() {
                    if self.rules[rule].group.rule.kind != Kind::Shunned
                        && let Some(domain) = self.seen_on(rule, host)
                    {
                        self.rules[rule].shift(domain, by, &self.keys);
                    }
                }
            }
        }
        for rule in shuns.iter() {
            let base = &mut self.rules[*rule];
            base.keepers = base.keepers.saturating_add_signed(if by > 0 { 1 } else { -1 });
            if let Some(domain) = self.keys.get(base.group.key).hosts[host] {
                base.shift(domain, by, &self.keys);
            }
        }
    }

    /// The room at `at` is this one now, or none.
    pub fn put_room(&mut self, at: usize, room: Option<&Room>) {
        for key in 0..self.keys.len() {
            self.keys.get_mut(key).put_room(at, room);
        }
        for base in self.rules.iter_mut().filter(|base| base.group.is_by_host) {
            let domain = match self.keys.get(base.group.key).rooms[at] {
                RoomDomain::In(domain) => Some(domain),
                RoomDomain::Nowhere | RoomDomain::Open => None,
            };
            if base.group.differs_at(at, domain) {
                Arc::make_mut(&mut base.group).see_room(at, domain);
            }
        }
    }

    pub fn standing_of(&mut self, cluster: &Cluster, rooms: &[Room], shape: &Arc<PodShape>) -> StandingId {
        let address = Arc::as_ptr(shape) as usize;
        if let Some((_, known)) = self.by_shape.get(&address) {
            return *known;
        }
        let class = self.class(shape);
        self.asks_namespaces |= rules::asks_namespaces(shape);
        let shuns = match rules::shunning(shape, cluster, &self.namespaces) {
            none if none.is_empty() => self.shuns_nobody.clone(),
            rules => Arc::new(rules.into_iter().map(|rule| self.number(rule, rooms)).collect()),
        };
        let id = *self.numbered.entry((class, shuns)).or_insert_with_key(|(class, shuns)| {
            let id = self.standings.len() as StandingId;
            self.standings.push(Standing { id, class: *class, shuns: shuns.clone() });
            id
        });
        self.by_shape.insert(address, (shape.clone(), id));
        id
    }

    pub fn standing(&self, id: StandingId) -> &Standing {
        &self.standings[id as usize]
    }

    /// How often the rule counts a pod: once if it selects it, or for each time that the pod keeps others away by it.
    pub fn times_counted(&self, rule: RuleId, standing: StandingId) -> usize {
        let Standing { class, shuns, .. } = self.standing(standing);
        match self.rules[rule].group.rule.kind {
            Kind::Shunned => shuns.iter().filter(|shuns| **shuns == rule).count(),
            _ => usize::from(self.selects(rule, *class)),
        }
    }

    fn class(&mut self, shape: &PodShape) -> ClassId {
        let of_namespace = self.class_by_labels.entry(shape.namespace).or_default();
        if let Some(known) = of_namespace.get(&shape.labels) {
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
        of_namespace.insert(shape.labels.clone(), id);
        id
    }

    /// The rules that a pod of `shape` has, and whether each selects the pod itself. `alternatives`: what it wants of nodes
    /// before any of them is given up.
    pub fn owned(
        &mut self,
        cluster: &Cluster,
        rooms: &[Room],
        shape: &PodShape,
        alternatives: &[Requirements],
    ) -> Vec<(RuleId, bool)> {
        self.asks_namespaces |= rules::asks_namespaces(shape);
        let rules = rules::owned(shape, alternatives, cluster, &self.namespaces);
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

    /// Whether pods have to be near others by it, or wish to be.
    pub fn is_of_nearness(&self, rule: RuleId) -> bool {
        self.rules[rule].group.rule.kind == Kind::Affinity
    }

    pub fn len(&self) -> usize {
        self.rules.len()
    }

    pub(super) fn base(&self, rule: RuleId) -> &Base {
        &self.rules[rule]
    }

    /// Whether the rule looks at the node, and where the node is.
    pub(super) fn seen_on(&mut self, rule: RuleId, host: HostId) -> Option<DomainId> {
        let Base { group, filter, .. } = &self.rules[rule];
        let domain = self.keys.get(group.key).hosts[host]?;
        self.hosts[host].is_seen_by(&group.rule.filter, *filter).then_some(domain)
    }

    /// Whether the domain that the host is in could be no more without so many hosts.
    pub(super) fn may_vanish(&self, rule: RuleId, host: HostId, removed: usize) -> bool {
        let base = &self.rules[rule];
        self.keys.get(base.group.key).hosts[host].is_some_and(|domain| {
            let givers = base.givers.get(domain as usize).copied().unwrap_or(0);
            givers as usize <= removed && !base.offered.contains_key(&domain)
        })
    }

    /// Rules for which a domain could be no more if the host goes, as the last of `removed` ones.
    pub(super) fn losing(&self, host: HostId, removed: usize) -> Vec<RuleId> {
        let views = self.by_view.values().filter(|rules| {
            let first = rules[0];
            !self.rules[first].group.is_by_host && self.may_vanish(first, host, removed)
        });
        if self.stays(host) { views.flatten().copied().collect() } else { Vec::new() }
    }

    pub fn stays(&self, host: HostId) -> bool {
        self.hosts[host].stays
    }

    pub(super) fn number(&mut self, rule: Rule, rooms: &[Room]) -> RuleId {
        if let Some(known) = self.by_rule.get(&rule) {
            return *known;
        }
        let hosts = self.hosts.iter().map(Host::named);
        let key = self.keys.number(rule.key, hosts, rooms);
        let rule = Arc::new(rule);
        let id = self.rules.len();
        let base = self.counted(rule.clone(), key);
        self.by_view.entry((key, base.filter)).or_default().push(id);
        self.rules.push(base);
        match asked_labels(&rule) {
            Some(SelectorTerm { key, values, .. }) => {
                for value in values {
                    self.by_label.entry((*key, *value)).or_default().push(id);
                }
            }
            None => self.by_nothing.push(id),
        }
        self.counts_others |= rule.kind != Kind::Shunned;
        self.by_rule.insert(rule, id);
        self.count_bound(id);
        id
    }

    /// The group of a rule with every domain that a pool could give a node or that a node has; nothing is counted yet.
    fn counted(&mut self, rule: Arc<Rule>, key: KeyId) -> Base {
        let next = self.filters.len();
        let filter = *self.filters.entry(rule.filter.clone()).or_insert(next);
        let table = self.keys.get_mut(key);
        let mut group = Group::new(rule.clone(), key, table.is_by_host);
        let mut offered: BTreeMap<DomainId, Vec<usize>> = BTreeMap::new();
        let mut givers = Vec::new();
        if !table.is_by_host {
            let sold = &self.sold;
            let offers = self.offered.entry(rule.key).or_insert_with(|| offered_domains(sold, rule.key));
            for (domain, templates) in offers.iter() {
                // A node there that the pod's own demands keep it from is none that the rule looks at.
                let is_seen = |template: &usize| {
                    let Sold { requirements, taints, .. } = &sold[*template];
                    let mut there = requirements.clone();
                    there.add(rule.key, Requirement::one(*domain));
                    rule.filter.accepts(&there, taints, Undefined::WellKnown)
                };
                // Which of them matters only to rules with several terms.
                let most = if rule.filter.alternatives.len() < 2 { 1 } else { templates.len() };
                let seen: Vec<usize> = templates.iter().copied().filter(is_seen).take(most).collect();
                if !seen.is_empty() {
                    offered.insert(table.number(*domain), seen);
                }
            }
            givers = vec![0; table.len()];
            for (at, host) in self.hosts.iter_mut().enumerate().filter(|(_, host)| host.stays) {
                let Some(domain) = table.hosts[at] else { continue };
                if host.is_seen_by(&rule.filter, filter) {
                    givers[domain as usize] += 1;
                }
            }
            for domain in offered.keys() {
                group.known.insert(*domain as usize);
            }
            for at in (0..givers.len()).filter(|at| givers[*at] > 0) {
                group.known.insert(at);
            }
        }
        Base { group: Arc::new(group), filter, keepers: 0, givers, offered }
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

/// Values of a key that the pools could give a node: what the types they may use leave of their requirements.
fn offered_domains(sold: &[Sold], key: Symbol) -> Offered {
    let mut offered = Offered::new();
    for (at, Sold { requirements, types, .. }) in sold.iter().enumerate() {
        let mut offer = |requirement: &Requirement| {
            for value in requirement.listed().into_iter().flatten() {
                let templates = offered.entry(*value).or_default();
                if templates.last() != Some(&at) {
                    templates.push(at);
                }
            }
        };
        let of_pool = requirements.get(key);
        if let Some(requirement) = of_pool {
            offer(requirement);
        }
        // Most types say the same of a key: whether one may be used is asked of the first that says it.
        let mut seen: BTreeSet<&Requirement> = BTreeSet::new();
        for kind in types.iter() {
            let Some(requirement) = kind.requirements.get(key).filter(|said| !seen.contains(said)) else {
                continue;
            };
            if kind.requirements.intersects(requirements).is_ok() {
                seen.insert(requirement);
                match of_pool {
                    Some(pool) => offer(&pool.intersection(requirement)),
                    None => offer(requirement),
                }
            }
        }
    }
    offered
}
