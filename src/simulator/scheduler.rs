//! A model of kube-scheduler: which node each waiting pod is bound to.
//!
//! Filters say where a pod may run; scores say where it would rather. Weights are those of the default profile
//! (Kubernetes 1.36): taints 3; node affinity, spreading and pod affinity 2; free and balanced resources 1.
//! Preemption and image locality are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rand_chacha::ChaCha8Rng;

use crate::capacity::cluster::Cluster;
use crate::model::label;
use crate::model::name::{Namespace, NodeName, ObjectKey};
use crate::model::node::Node;
use crate::model::pod::{HostPort, Pod, PodShape, PodTerm, PodVolume, Selector, SelectorTerm, Spread};
use crate::model::quantity::{Resources, resource};
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
    /// By shape, the nodes whose taints and labels suit it, which do not change in a pass.
    suited: BTreeMap<ShapeId, Vec<NodeName>>,
}

struct Seat<'a> {
    node: &'a Node,
    labels: Requirements,
    hard_taints: Vec<Taint>,
    used: Resources,
    groups: Vec<Group>,
    /// What is kept for pods that wait and are nominated for this node.
    promised: BTreeMap<ObjectKey, Arc<PodShape>>,
}

/// Equal pods of a node.
struct Group {
    shape: Arc<PodShape>,
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
        let mut fleet = Self { cluster, seats: BTreeMap::new(), guards: Vec::new(), suited: BTreeMap::new() };
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
        seat.used.add(&pod.shape.requests);
        let staying = u32::from(pod.deleted.is_none());
        match seat.groups.iter_mut().find(|group| Arc::ptr_eq(&group.shape, &pod.shape)) {
            Some(group) => group.staying += staying,
            None => {
                seat.groups.push(Group { shape: pod.shape.clone(), staying });
                if !pod.shape.anti_affinity_required.is_empty() {
                    self.guards.push((node, pod.shape.clone()));
                }
            }
        }
    }

    fn choose(&mut self, pod: &Pod, rng: &mut ChaCha8Rng) -> Option<NodeName> {
        let shape = &pod.shape;
        let id = shape_id(shape);
        if !self.suited.contains_key(&id) {
            let suited = self.seats.values().filter(|seat| seat.suits(shape)).map(|seat| seat.node.name);
            let suited = suited.collect();
            self.suited.insert(id, suited);
        }
        let crowds = self.crowds(shape);
        let suited = self.suited[&id].iter().map(|name| &self.seats[name]);
        let feasible: Vec<&Seat> = suited.filter(|seat| self.admits(seat, pod, &crowds)).collect();
        if let Some(node) = pod.nominated_node
            && feasible.iter().any(|seat| seat.node.name == node)
        {
            return Some(node);
        }
        let scores = self.scores(&feasible, &pod.shape);
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
        let of_terms = |terms: &[PodTerm]| {
            let terms = terms.iter();
            terms.map(|term| self.crowd_of(shape, term)).collect()
        };
        let required = shape.spreads.iter().filter(|spread| spread.is_required);
        Crowds {
            spreads: required.map(|spread| self.spread_counts(shape, spread)).collect(),
            near: of_terms(&shape.affinity_required),
            apart: of_terms(&shape.anti_affinity_required),
        }
    }

    /// Pods per domain that a term of a pod shaped `shape` is about.
    fn crowd_of(&self, shape: &PodShape, term: &PodTerm) -> BTreeMap<Symbol, u32> {
        self.count_domains(term.topology_key, |_| true, |other| self.term_selects(shape, term, other))
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

    /// Pods per domain of `key` that `counts` accepts, over the nodes that `takes_part` accepts.
    fn count_domains(
        &self,
        key: Symbol,
        takes_part: impl Fn(&Seat) -> bool,
        counts: impl Fn(&PodShape) -> bool,
    ) -> BTreeMap<Symbol, u32> {
        let mut domains = BTreeMap::new();
        for seat in self.seats.values().filter(|seat| takes_part(seat)) {
            if let Some(domain) = seat.domain(key) {
                let counted = seat.groups.iter().filter(|group| group.staying > 0 && counts(&group.shape));
                let here: u32 = counted.map(|group| group.staying).sum();
                *domains.entry(domain).or_default() += here;
            }
        }
        domains
    }

    fn spread_counts(&self, shape: &PodShape, spread: &Spread) -> BTreeMap<Symbol, u32> {
        let selector = spread_selector(shape, spread);
        let keys: Vec<Symbol> = shape.spreads.iter().map(|each| each.topology_key).collect();
        self.count_domains(
            spread.topology_key,
            |seat| {
                keys.iter().all(|key| seat.domain(*key).is_some())
                    && (!spread.honors_affinity || suits_affinity(&seat.labels, shape))
                    && (!spread.honors_taints
                        || first_untolerated(&seat.node.taints, &shape.tolerations).is_none())
            },
            |other| {
                other.namespace == shape.namespace
                    && selector.as_ref().is_some_and(|selector| selector.selects(&other.labels))
            },
        )
    }

    fn pod_affinity_allows(&self, seat: &Seat, shape: &PodShape, crowds: &Crowds) -> bool {
        let wanted = shape.affinity_required.iter().zip(&crowds.near).all(|(term, counts)| {
            let Some(domain) = seat.domain(term.topology_key) else { return false };
            // The first pod of a group that wants its own company may start it anywhere.
            let starts_group =
                counts.values().all(|count| *count == 0) && self.term_selects(shape, term, shape);
            counts.get(&domain).is_some_and(|count| *count > 0) || starts_group
        });
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

    // Scores.

    fn scores(&self, feasible: &[&Seat], shape: &PodShape) -> Vec<i64> {
        let mut total = vec![0_i64; feasible.len()];
        let mut weigh = |weight: i64, scores: Vec<i64>| {
            total.iter_mut().zip(scores).for_each(|(sum, score)| *sum += weight * score);
        };
        let each =
            |score: &dyn Fn(&Seat) -> i64| feasible.iter().map(|seat| score(seat)).collect::<Vec<i64>>();
        weigh(1, each(&|seat| free_share(seat, shape)));
        weigh(1, each(&|seat| balance(seat, shape)));
        weigh(3, inverted(each(&|seat| soft_taints(seat, shape))));
        weigh(2, normalized(each(&|seat| preference(seat, shape))));
        let soft: Vec<&Spread> = shape.spreads.iter().filter(|spread| !spread.is_required).collect();
        if !soft.is_empty() {
            let counts: Vec<_> =
                soft.iter().map(|spread| (spread.topology_key, self.spread_counts(shape, spread))).collect();
            weigh(
                2,
                inverted(each(&|seat| {
                    let crowd = |(key, counts): &(Symbol, BTreeMap<Symbol, u32>)| {
                        seat.domain(*key)
                            .and_then(|domain| counts.get(&domain))
                            .map_or(0, |count| i64::from(*count))
                    };
                    counts.iter().map(crowd).sum()
                })),
            );
        }
        if !shape.affinity_preferred.is_empty() || !shape.anti_affinity_preferred.is_empty() {
            let liked = shape.affinity_preferred.iter().map(|(weight, term)| (i64::from(*weight), term));
            let disliked =
                shape.anti_affinity_preferred.iter().map(|(weight, term)| (-i64::from(*weight), term));
            let wishes: Vec<_> = liked
                .chain(disliked)
                .map(|(weight, term)| (weight, term.topology_key, self.crowd_of(shape, term)))
                .collect();
            let wish = |seat: &Seat| {
                let worth = |(weight, key, counts): &(i64, Symbol, BTreeMap<Symbol, u32>)| {
                    let here = seat.domain(*key).and_then(|domain| counts.get(&domain).copied());
                    weight * i64::from(here.unwrap_or(0))
                };
                wishes.iter().map(worth).sum()
            };
            weigh(2, normalized(each(&wish)));
        }
        total
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
}

fn keeps_skew(seat: &Seat, shape: &PodShape, spread: &Spread, counts: &BTreeMap<Symbol, u32>) -> bool {
    let Some(domain) = seat.domain(spread.topology_key) else { return false };
    let Some(here) = counts.get(&domain) else { return false };
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

/// Share of CPU and memory that stays free with the pod there, 0 to 100.
fn free_share(seat: &Seat, shape: &PodShape) -> i64 {
    let share = |name| {
        let (total, used) = (seat.node.allocatable.get(name), seat.used.get(name) + shape.requests.get(name));
        if total == 0 { 0 } else { (total - used).max(0).saturating_mul(100) / total }
    };
    (share(*resource::CPU) + share(*resource::MEMORY)) / 2
}

/// How alike the used shares of CPU and memory are, 0 to 100.
fn balance(seat: &Seat, shape: &PodShape) -> i64 {
    let used = |name| {
        let (total, used) = (seat.node.allocatable.get(name), seat.used.get(name) + shape.requests.get(name));
        if total == 0 { 100 } else { (used.saturating_mul(100) / total).min(100) }
    };
    // Half the difference is the standard deviation of two shares.
    100 - (used(*resource::CPU) - used(*resource::MEMORY)).abs() / 2
}

fn soft_taints(seat: &Seat, shape: &PodShape) -> i64 {
    let soft = seat.node.taints.iter().filter(|taint| taint.effect == Effect::PreferNoSchedule);
    soft.filter(|taint| !shape.tolerations.iter().any(|toleration| toleration.tolerates(taint))).count()
        as i64
}

fn preference(seat: &Seat, shape: &PodShape) -> i64 {
    let liked = shape
        .node_preferred
        .iter()
        .filter(|(_, term)| seat.labels.compatible(&term.requirements(), Undefined::Nothing).is_ok());
    liked.map(|(weight, _)| i64::from(*weight)).sum()
}

/// Raw scores stretched to 0 to 100, the largest best.
fn normalized(raw: Vec<i64>) -> Vec<i64> {
    let (least, most) = (raw.iter().copied().min().unwrap_or(0), raw.iter().copied().max().unwrap_or(0));
    raw.into_iter()
        .map(|score| if most == least { 0 } else { (score - least) * 100 / (most - least) })
        .collect()
}

/// Raw scores stretched to 0 to 100, the smallest best.
fn inverted(raw: Vec<i64>) -> Vec<i64> {
    let most = raw.iter().copied().max().unwrap_or(0);
    raw.into_iter().map(|score| if most == 0 { 100 } else { 100 - score * 100 / most }).collect()
}
