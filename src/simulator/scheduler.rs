//! A model of kube-scheduler: which node each waiting pod is bound to.
//!
//! Filters say where a pod may run; scores say where it would rather. Weights are those of the default profile
//! (Kubernetes 1.36): taints 3; node affinity, spreading and pod affinity 2; free and balanced resources 1.
//! Preemption and image locality are left out. The real one is asked the same in `tests/suite/kube_scheduler`.

mod scores;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;

use crate::capacity::cluster::Cluster;
use crate::model::label;
use crate::model::name::{Namespace, NodeName, ObjectKey};
use crate::model::node::Node;
use crate::model::pod::{
    HostPort, NodeTerm, Pod, PodShape, PodTerm, PodVolume, Selector, SelectorTerm, Spread,
};
use crate::model::quantity::Resources;
use crate::model::requirement::{Operator, Requirement, Requirements, Undefined};
use crate::model::symbol::Symbol;
use crate::model::taint::{Effect, Taint, first_untolerated};

use super::chance;

/// Where each pod of `waiting` goes; a pod that is not in the answer found no node.
///
/// Higher priority first, then older, then by name. Among equally good nodes chance decides, as in kube-scheduler.
pub(super) fn bind(
    cluster: &Cluster,
    waiting: &[Arc<Pod>],
    rng: &mut ChaCha8Rng,
) -> BTreeMap<ObjectKey, NodeName> {
    let mut order: Vec<&Arc<Pod>> = waiting.iter().collect();
    order.sort_by_key(|pod| (std::cmp::Reverse(pod.shape.priority), pod.created, pod.key));
    let mut fleet = Fleet::new(cluster);
    for pod in &order {
        fleet.promise(pod);
    }
    let mut bound = BTreeMap::new();
    // While a pass goes on nodes only fill up: what found no place will find none, unless other pods could open one.
    let mut hopeless: BTreeSet<ShapeId> = BTreeSet::new();
    for pod in order {
        if hopeless.contains(&shape_id(&pod.shape)) {
            continue;
        }
        match fleet.choose(pod, rng) {
            Some(node) => {
                fleet.put(pod, node);
                bound.insert(pod.key, node);
            }
            None if depends_on_itself_only(&pod.shape) => {
                hopeless.insert(shape_id(&pod.shape));
            }
            None => {}
        }
    }
    bound
}

/// Every node that would do for `pod` now, with its score: kube-scheduler chooses one of those with the highest.
pub fn rank(cluster: &Cluster, pod: &Arc<Pod>) -> BTreeMap<NodeName, i64> {
    let mut fleet = Fleet::new(cluster);
    fleet.promise(pod);
    fleet.look_over(&pod.shape);
    let feasible = fleet.feasible(pod);
    let scores = fleet.scores(&feasible, pod);
    feasible.iter().map(|seat| seat.node.name).zip(scores).collect()
}

/// Whether no pod that is bound meanwhile can open a node to pods of this shape, and none of them has a volume of its own.
fn depends_on_itself_only(shape: &PodShape) -> bool {
    shape.affinity_required.is_empty() && shape.spreads.is_empty() && shape.volumes.is_empty()
}

/// Equal pods share their shape, so its address names it. Only for looking up: addresses have no order worth keeping.
type ShapeId = usize;

fn shape_id(shape: &Arc<PodShape>) -> ShapeId {
    Arc::as_ptr(shape) as usize
}

/// Nodes with what is left on them, and every pod that counts, while one pass goes on.
struct Fleet<'a> {
    cluster: &'a Cluster,
    seats: BTreeMap<NodeName, Seat<'a>>,
    /// Pods that keep others away, one of a shape for each node.
    guards: Vec<(NodeName, Arc<PodShape>)>,
    /// Pods that would have company, or rather not, in the same way.
    hosts: Vec<(NodeName, Arc<PodShape>)>,
    /// By shape, the nodes whose taints and labels suit it, which do not change in a pass.
    suited: BTreeMap<ShapeId, Vec<NodeName>>,
}

struct Seat<'a> {
    node: &'a Node,
    labels: Requirements,
    hard_taints: Vec<Taint>,
    used: Resources,
    /// What its pods are taken to use of CPU and memory, those too that ask for none.
    taken: Resources,
    groups: Vec<Group>,
    /// What is kept for pods that wait and are nominated for this node.
    promised: BTreeMap<ObjectKey, Arc<PodShape>>,
}

/// Equal pods of a node.
struct Group {
    shape: Arc<PodShape>,
    pods: u32,
    /// Those that are not being deleted.
    staying: u32,
}

/// How many pods of each kind that a pod speaks of are in each domain: the same for every node it may go to.
#[derive(Default)]
struct Crowds {
    spreads: Vec<BTreeMap<Symbol, u32>>,
    near: Vec<BTreeMap<Symbol, u32>>,
    apart: Vec<BTreeMap<Symbol, u32>>,
}

impl<'a> Fleet<'a> {
    fn new(cluster: &'a Cluster) -> Self {
        let mut fleet = Self {
            cluster,
            seats: BTreeMap::new(),
            guards: Vec::new(),
            hosts: Vec::new(),
            suited: BTreeMap::new(),
        };
        for node in cluster.nodes.values() {
            let mut labels = Requirements::of_labels(&node.labels);
            if labels.get(*label::HOSTNAME).is_none() {
                labels.add(*label::HOSTNAME, Requirement::one(node.name.0));
            }
            let hard = node.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
            let hard_taints = hard.copied().collect();
            let seat = Seat {
                node,
                labels,
                hard_taints,
                used: Resources::new(),
                taken: Resources::new(),
                groups: Vec::new(),
                promised: BTreeMap::new(),
            };
            fleet.seats.insert(node.name, seat);
            for pod in cluster.pods_of(node.name).filter(|pod| !pod.is_terminal()) {
                fleet.put(pod, node.name);
            }
        }
        fleet
    }

    fn promise(&mut self, pod: &Arc<Pod>) {
        if let Some(seat) = pod.nominated_node.and_then(|node| self.seats.get_mut(&node)) {
            seat.promised.insert(pod.key, pod.shape.clone());
        }
    }

    fn put(&mut self, pod: &Arc<Pod>, node: NodeName) {
        if let Some(seat) = pod.nominated_node.and_then(|nominated| self.seats.get_mut(&nominated)) {
            seat.promised.remove(&pod.key);
        }
        let seat = self.seats.get_mut(&node).expect("the node was chosen among the seats");
        let shape = &pod.shape;
        seat.used.add(&shape.requests);
        seat.taken.add(&scores::taken(shape));
        let staying = u32::from(pod.deleted.is_none());
        match seat.groups.iter_mut().find(|group| Arc::ptr_eq(&group.shape, shape)) {
            Some(group) => {
                group.pods += 1;
                group.staying += staying;
            }
            None => {
                seat.groups.push(Group { shape: shape.clone(), pods: 1, staying });
                if !shape.anti_affinity_required.is_empty() {
                    self.guards.push((node, shape.clone()));
                }
                let has_wishes = !shape.affinity_required.is_empty()
                    || !shape.affinity_preferred.is_empty()
                    || !shape.anti_affinity_preferred.is_empty();
                if has_wishes {
                    self.hosts.push((node, shape.clone()));
                }
            }
        }
    }

    /// Finds the nodes that suit a shape, unless they are known.
    fn look_over(&mut self, shape: &Arc<PodShape>) {
        let seats = &self.seats;
        self.suited.entry(shape_id(shape)).or_insert_with(|| {
            seats.values().filter(|seat| seat.suits(shape)).map(|seat| seat.node.name).collect()
        });
    }

    /// The nodes that can take `pod` now, by name; its shape was looked over.
    fn feasible(&self, pod: &Pod) -> Vec<&Seat<'a>> {
        let crowds = self.crowds(&pod.shape);
        let suited = self.suited[&shape_id(&pod.shape)].iter().map(|name| &self.seats[name]);
        suited.filter(|seat| self.admits(seat, pod, &crowds)).collect()
    }

    fn choose(&mut self, pod: &Pod, rng: &mut ChaCha8Rng) -> Option<NodeName> {
        self.look_over(&pod.shape);
        let feasible = self.feasible(pod);
        if let Some(node) = pod.nominated_node
            && feasible.iter().any(|seat| seat.node.name == node)
        {
            return Some(node);
        }
        let scores = self.scores(&feasible, pod);
        let best = *scores.iter().max()?;
        let ties: Vec<NodeName> = feasible
            .iter()
            .zip(&scores)
            .filter(|(_, score)| **score == best)
            .map(|(seat, _)| seat.node.name)
            .collect();
        Some(ties[chance::below(rng, ties.len() as u64) as usize])
    }

    fn crowds(&self, shape: &PodShape) -> Crowds {
        let required: Vec<&Spread> = shape.spreads.iter().filter(|spread| spread.is_required).collect();
        // Company is a pod that all terms are about.
        let is_company = |other: &PodShape| {
            shape.affinity_required.iter().all(|term| self.term_selects(shape, term, other))
        };
        let near = shape.affinity_required.iter();
        let apart = shape.anti_affinity_required.iter();
        Crowds {
            spreads: required.iter().map(|spread| self.spread_counts(shape, spread, &required)).collect(),
            near: near.map(|term| self.crowd(term.topology_key, is_company)).collect(),
            apart: apart
                .map(|term| self.crowd(term.topology_key, |other| self.term_selects(shape, term, other)))
                .collect(),
        }
    }

    /// Pods per domain of `key` that `counts` accepts; one that is on its way out is there until it is gone.
    fn crowd(&self, key: Symbol, counts: impl Fn(&PodShape) -> bool) -> BTreeMap<Symbol, u32> {
        self.count_domains(
            key,
            |_| true,
            |seat| {
                let counted = seat.groups.iter().filter(|group| counts(&group.shape));
                counted.map(|group| group.pods).sum()
            },
        )
    }

    // Filters.

    /// Whether a node that suits the shape of `pod` can take it now.
    fn admits(&self, seat: &Seat, pod: &Pod, crowds: &Crowds) -> bool {
        let shape = &*pod.shape;
        let required = shape.spreads.iter().filter(|spread| spread.is_required);
        fits(seat, pod)
            && ports_are_free(seat, &shape.host_ports)
            && self.volumes_allow(seat, pod)
            && required.zip(&crowds.spreads).all(|(spread, counts)| keeps_skew(seat, shape, spread, counts))
            && self.pod_affinity_allows(seat, shape, crowds)
    }

    fn volumes_allow(&self, seat: &Seat, pod: &Pod) -> bool {
        pod.shape.volumes.iter().all(|volume| {
            let (claim, class) = match volume {
                PodVolume::Claim(claim) => (*claim, None),
                PodVolume::Ephemeral { volume, storage_class } => {
                    (Symbol::new(&format!("{}-{volume}", pod.key.name)), *storage_class)
                }
            };
            let key = ObjectKey { namespace: pod.key.namespace, name: claim };
            let known = self.cluster.volume_claims.get(&key);
            let bound = known.and_then(|claim| claim.volume).and_then(|name| self.cluster.volumes.get(&name));
            if let Some(volume) = bound {
                return volume.terms.is_empty()
                    || volume.terms.iter().any(|term| {
                        seat.labels.compatible(&term.requirements(), Undefined::Nothing).is_ok()
                    });
            }
            let class = known.map_or(class, |claim| claim.storage_class);
            let class = class.and_then(|name| self.cluster.storage_classes.get(&name));
            class.is_some_and(|class| {
                class.topologies.is_empty()
                    || class
                        .topologies
                        .iter()
                        .any(|terms| seat.labels.compatible(terms, Undefined::Nothing).is_ok())
            })
        })
    }

    /// What is counted on each node that `takes_part` accepts, per domain of `key`.
    fn count_domains(
        &self,
        key: Symbol,
        takes_part: impl Fn(&Seat) -> bool,
        count: impl Fn(&Seat) -> u32,
    ) -> BTreeMap<Symbol, u32> {
        let mut domains = BTreeMap::new();
        for seat in self.seats.values().filter(|seat| takes_part(seat)) {
            if let Some(domain) = seat.domain(key) {
                *domains.entry(domain).or_default() += count(seat);
            }
        }
        domains
    }

    /// Pods that a rule counts, over the nodes that have the labels of all such rules.
    fn spread_counts(&self, shape: &PodShape, spread: &Spread, rules: &[&Spread]) -> BTreeMap<Symbol, u32> {
        let selector = spread_selector(shape, spread);
        self.count_domains(
            spread.topology_key,
            |seat| has_all(seat, rules.iter().copied()) && includes(spread, seat, shape),
            |seat| staying(seat, shape, selector.as_ref()),
        )
    }

    fn pod_affinity_allows(&self, seat: &Seat, shape: &PodShape, crowds: &Crowds) -> bool {
        // The first pod of a group that wants its own company may start it anywhere.
        let is_alone_anywhere = || crowds.near.iter().flat_map(BTreeMap::values).all(|count| *count == 0);
        let is_own_company =
            || shape.affinity_required.iter().all(|term| self.term_selects(shape, term, shape));
        let domains = || shape.affinity_required.iter().map(|term| seat.domain(term.topology_key));
        let has_company = || {
            let mut near = domains().zip(&crowds.near);
            near.all(|(domain, counts)| {
                domain.and_then(|domain| counts.get(&domain)).is_some_and(|count| *count > 0)
            })
        };
        let wanted = domains().all(|domain| domain.is_some())
            && (has_company() || is_alone_anywhere() && is_own_company());
        let is_alone = || {
            shape.anti_affinity_required.iter().zip(&crowds.apart).all(|(term, counts)| {
                seat.domain(term.topology_key)
                    .is_none_or(|domain| counts.get(&domain).is_none_or(|count| *count == 0))
            })
        };
        let is_welcome = || {
            self.guards.iter().all(|(node, guard)| {
                let other = &self.seats[node];
                guard.anti_affinity_required.iter().all(|term| {
                    let same = seat.domain(term.topology_key).is_some()
                        && seat.domain(term.topology_key) == other.domain(term.topology_key);
                    !same || !self.term_selects(guard, term, shape)
                })
            })
        };
        wanted && is_alone() && is_welcome()
    }

    /// Whether `term` of a pod shaped `owner` is about a pod shaped `other`.
    fn term_selects(&self, owner: &PodShape, term: &PodTerm, other: &PodShape) -> bool {
        let Some(selector) = &term.selector else { return false };
        let by_selector = |namespace: Namespace| {
            term.namespace_selector.as_ref().is_some_and(|selector| {
                let facts = self.cluster.namespaces.get(&namespace);
                selector.terms.is_empty() || facts.is_some_and(|facts| selector.selects(&facts.labels))
            })
        };
        let is_own = term.namespaces.is_empty()
            && term.namespace_selector.is_none()
            && other.namespace == owner.namespace;
        let in_namespace =
            is_own || term.namespaces.contains(&other.namespace) || by_selector(other.namespace);
        let matches = |keys: &[Symbol], equal: bool| {
            keys.iter()
                .filter_map(|key| Some((key, owner.labels.get(key)?)))
                .all(|(key, value)| (other.labels.get(key) == Some(value)) == equal)
        };
        in_namespace
            && selector.selects(&other.labels)
            && matches(&term.match_label_keys, true)
            && matches(&term.mismatch_label_keys, false)
    }
}

impl Seat<'_> {
    /// What of a node neither time nor other pods change: is it open to this shape, and has it the labels?
    fn suits(&self, shape: &PodShape) -> bool {
        let cordon = [Taint::new("node.kubernetes.io/unschedulable", "", Effect::NoSchedule)];
        let is_cordoned = self.node.is_cordoned && first_untolerated(&cordon, &shape.tolerations).is_some();
        !is_cordoned
            && first_untolerated(&self.hard_taints, &shape.tolerations).is_none()
            && suits_affinity(&self.labels, shape)
    }

    fn domain(&self, key: Symbol) -> Option<Symbol> {
        self.labels.get(key).and_then(Requirement::single)
    }

    fn meets(&self, term: &NodeTerm) -> bool {
        self.labels.compatible(&term.requirements(), Undefined::Nothing).is_ok()
    }

    fn pods_of(&self, shape: &Arc<PodShape>) -> u32 {
        self.groups.iter().find(|group| Arc::ptr_eq(&group.shape, shape)).map_or(0, |group| group.pods)
    }
}

fn keeps_skew(seat: &Seat, shape: &PodShape, spread: &Spread, counts: &BTreeMap<Symbol, u32>) -> bool {
    let Some(domain) = seat.domain(spread.topology_key) else { return false };
    let here = counts.get(&domain).copied().unwrap_or(0);
    let is_short = spread.min_domains.is_some_and(|wanted| counts.len() < wanted as usize);
    let fewest = if is_short { 0 } else { counts.values().min().copied().unwrap_or(0) };
    let own =
        u32::from(spread_selector(shape, spread).is_some_and(|selector| selector.selects(&shape.labels)));
    here + own - fewest.min(here + own) <= spread.max_skew
}

/// What is kept for pods of the same or a higher priority is as good as used.
fn fits(seat: &Seat, pod: &Pod) -> bool {
    let is_kept = |(key, shape): &(&ObjectKey, &Arc<PodShape>)| {
        **key != pod.key && shape.priority >= pod.shape.priority
    };
    let kept: Vec<&Resources> =
        seat.promised.iter().filter(is_kept).map(|(_, shape)| &shape.requests).collect();
    pod.shape.requests.iter().all(|(name, amount)| {
        let kept: i64 = kept.iter().map(|requests| requests.get(name)).sum();
        let used = seat.used.get(name).saturating_add(kept);
        amount == 0 || used.saturating_add(amount) <= seat.node.allocatable.get(name)
    })
}

/// Node selector and required node affinity.
fn suits_affinity(labels: &Requirements, shape: &PodShape) -> bool {
    let selector = Requirements::of_labels(&shape.node_selector);
    let matches = |wanted: &Requirements| labels.compatible(wanted, Undefined::Nothing).is_ok();
    matches(&selector)
        && (shape.node_required.is_empty()
            || shape.node_required.iter().any(|term| !term.is_void() && matches(&term.requirements())))
}

fn ports_are_free(seat: &Seat, wanted: &[HostPort]) -> bool {
    let taken = || seat.groups.iter().flat_map(|group| &group.shape.host_ports);
    wanted.iter().all(|port| !taken().any(|other| port.clashes_with(other)))
}

fn spread_selector(shape: &PodShape, spread: &Spread) -> Option<Selector> {
    let mut selector = spread.selector.clone()?;
    for key in &spread.match_label_keys {
        if let Some(value) = shape.labels.get(key) {
            selector.terms.push(SelectorTerm { key: *key, operator: Operator::In, values: vec![*value] });
        }
    }
    Some(selector)
}

fn has_all<'s>(seat: &Seat, spreads: impl IntoIterator<Item = &'s Spread>) -> bool {
    spreads.into_iter().all(|spread| seat.domain(spread.topology_key).is_some())
}

/// Whether a rule looks at the pods of this node.
fn includes(spread: &Spread, seat: &Seat, shape: &PodShape) -> bool {
    (!spread.honors_affinity || suits_affinity(&seat.labels, shape))
        && (!spread.honors_taints || first_untolerated(&seat.hard_taints, &shape.tolerations).is_none())
}

/// Pods of the node that a rule is about, without those on their way out. Quite by its own will kube-scheduler counts none for a
/// rule about all pods.
fn staying(seat: &Seat, shape: &PodShape, selector: Option<&Selector>) -> u32 {
    let Some(selector) = selector.filter(|selector| !selector.terms.is_empty()) else { return 0 };
    let is_meant =
        |group: &&Group| group.shape.namespace == shape.namespace && selector.selects(&group.shape.labels);
    seat.groups.iter().filter(is_meant).map(|group| group.staying).sum()
}
