//! Which of the nodes that would do kube-scheduler likes best.
//!
//! Each score is what its plugin of Kubernetes 1.36 says, 0 to 100, rounded where that rounds: among scores so near to each other
//! a rounding decides. Binary fractions are used where it uses them.

use std::collections::{BTreeMap, BTreeSet};

use super::{Fleet, Seat, has_all, includes, spread_selector, staying};
use crate::capacity::scheduling::companions;
use crate::model::label;
use crate::model::pod::{Pod, PodShape, PodTerm, Selector, Spread};
use crate::model::quantity::{ResourceName, Resources, resource};
use crate::model::symbol::Symbol;
use crate::model::taint::Effect;

const MOST: i64 = 100;

/// What a pod that asks for no CPU or memory is taken to use when free nodes are preferred: 100 m and 200 MiB.
const CPU_TAKEN: i64 = 100;
const MEMORY_TAKEN: i64 = 200 << 20;

/// How much a pod is drawn to those that require its company: `hardPodAffinityWeight`.
const REQUIRED_WEIGHT: i64 = 1;

/// Pods in each domain of each key, times what they are worth.
type Worth = BTreeMap<Symbol, BTreeMap<Symbol, i64>>;

impl Fleet<'_> {
    /// The score of each of `feasible` for `pod`.
    pub(super) fn scores(&self, feasible: &[&Seat], pod: &Pod) -> Vec<i64> {
        let shape = &*pod.shape;
        let mut total = vec![0_i64; feasible.len()];
        let mut weigh = |weight: i64, scores: Vec<i64>| {
            total.iter_mut().zip(scores).for_each(|(sum, score)| *sum += weight * score);
        };
        let each =
            |score: &dyn Fn(&Seat) -> i64| feasible.iter().map(|seat| score(seat)).collect::<Vec<i64>>();
        weigh(1, each(&|seat| free_share(seat, shape)));
        let asks = [*resource::CPU, *resource::MEMORY].into_iter().any(|name| shape.requests.get(name) > 0);
        if asks {
            weigh(1, each(&|seat| balance(seat, shape)));
        }
        weigh(3, inverted(each(&|seat| soft_taints(seat, shape))));
        weigh(2, of_largest(each(&|seat| preference(seat, shape))));
        weigh(2, self.spreading(feasible, pod));
        weigh(2, self.company(feasible, shape));
        total
    }

    // Spreading.

    fn spreading(&self, feasible: &[&Seat], pod: &Pod) -> Vec<i64> {
        let shape = &*pod.shape;
        let has_own = !shape.spreads.is_empty();
        let soft: Vec<Spread> = if has_own {
            shape.spreads.iter().filter(|spread| !spread.is_required).cloned().collect()
        } else {
            self.default_spreads(pod)
        };
        if soft.is_empty() {
            return vec![0; feasible.len()];
        }
        // A pod that says how it is spread says it of nodes that have all of the labels.
        let takes_part = |seat: &Seat| !has_own || has_all(seat, &soft);
        let parts: Vec<bool> = feasible.iter().map(|seat| takes_part(seat)).collect();
        let hosts = parts.iter().filter(|takes_part| **takes_part).count();
        let rules: Vec<Rule> = soft
            .iter()
            .map(|spread| {
                let selector = spread_selector(shape, spread);
                if spread.topology_key == *label::HOSTNAME {
                    return Rule { spread, selector, counts: None, weight: weight_of(hosts) };
                }
                // A node without the label counts as one more domain.
                let domains: BTreeSet<Option<Symbol>> = feasible
                    .iter()
                    .zip(&parts)
                    .filter(|(_, takes_part)| **takes_part)
                    .map(|(seat, _)| seat.domain(spread.topology_key))
                    .collect();
                let counts = self.count_domains(
                    spread.topology_key,
                    |seat| takes_part(seat) && includes(spread, seat, shape),
                    |seat| staying(seat, shape, selector.as_ref()),
                );
                Rule { spread, selector, counts: Some(counts), weight: weight_of(domains.len()) }
            })
            .collect();
        let raw: Vec<Option<i64>> = feasible
            .iter()
            .zip(&parts)
            .map(|(seat, takes_part)| takes_part.then(|| rules_score(&rules, seat, shape)))
            .collect();
        let most = raw.iter().flatten().copied().max().unwrap_or(0);
        let least = raw.iter().flatten().copied().min().unwrap_or(0);
        raw.into_iter()
            .map(|score| match score {
                None => 0,
                Some(_) if most == 0 => MOST,
                Some(score) => MOST * (most + least - score) / most,
            })
            .collect()
    }

    /// How a pod is spread that says nothing, among what its Services and its controller select: three more on one node than on
    /// another, five more in one zone, as kube-scheduler has it built in.
    fn default_spreads(&self, pod: &Pod) -> Vec<Spread> {
        let Some(selector) = companions(self.cluster, &pod.shape, pod.controller()) else {
            return Vec::new();
        };
        let spread = |topology_key: Symbol, max_skew| Spread {
            max_skew,
            topology_key,
            is_required: false,
            selector: Some(selector.clone()),
            min_domains: None,
            honors_affinity: true,
            honors_taints: false,
            match_label_keys: Vec::new(),
        };
        vec![spread(*label::HOSTNAME, 3), spread(*label::ZONE, 5)]
    }

    // Company.

    /// Whom a pod would be near to or far from, and who would be near to it or far from it.
    fn company(&self, feasible: &[&Seat], shape: &PodShape) -> Vec<i64> {
        let mut worth = Worth::new();
        let mut add = |seat: &Seat, term: &PodTerm, points: i64| {
            if let Some(domain) = seat.domain(term.topology_key) {
                *worth.entry(term.topology_key).or_default().entry(domain).or_default() += points;
            }
        };
        let wishes = || {
            let near = shape.affinity_preferred.iter().map(|(weight, term)| (i64::from(*weight), term));
            let far = shape.anti_affinity_preferred.iter().map(|(weight, term)| (-i64::from(*weight), term));
            near.chain(far)
        };
        if wishes().next().is_some() {
            for seat in self.seats.values() {
                for group in &seat.groups {
                    for (weight, term) in wishes() {
                        if self.term_selects(shape, term, &group.shape) {
                            add(seat, term, weight * i64::from(group.pods));
                        }
                    }
                }
            }
        }
        for (node, other) in &self.hosts {
            let seat = &self.seats[node];
            let pods = seat.pods_of(other);
            let required = other.affinity_required.iter().map(|term| (REQUIRED_WEIGHT, term));
            let near = other.affinity_preferred.iter().map(|(weight, term)| (i64::from(*weight), term));
            let far = other.anti_affinity_preferred.iter().map(|(weight, term)| (-i64::from(*weight), term));
            for (weight, term) in required.chain(near).chain(far) {
                if self.term_selects(other, term, shape) {
                    add(seat, term, weight * i64::from(pods));
                }
            }
        }
        let points = |seat: &&Seat| {
            let of_key = |(key, domains): (&Symbol, &BTreeMap<Symbol, i64>)| {
                seat.domain(*key).and_then(|domain| domains.get(&domain).copied()).unwrap_or(0)
            };
            worth.iter().map(of_key).sum()
        };
        stretched(feasible.iter().map(points).collect())
    }
}

/// A wish of how a pod is spread, with what is known of it before a node is looked at.
struct Rule<'s> {
    spread: &'s Spread,
    selector: Option<Selector>,
    /// Pods in each domain; `None`: each node is one.
    counts: Option<BTreeMap<Symbol, u32>>,
    weight: f64,
}

/// More domains are each worth more, so that nodes do not drown zones, nor the other way round.
fn weight_of(domains: usize) -> f64 {
    ((domains + 2) as f64).ln()
}

/// How crowded a node is in the eyes of all rules together.
fn rules_score(rules: &[Rule<'_>], seat: &Seat, shape: &PodShape) -> i64 {
    let mut score = 0.0;
    for rule in rules {
        let Some(domain) = seat.domain(rule.spread.topology_key) else { continue };
        let count = match &rule.counts {
            None => staying(seat, shape, rule.selector.as_ref()),
            Some(counts) => counts.get(&domain).copied().unwrap_or(0),
        };
        score += f64::from(count) * rule.weight + f64::from(rule.spread.max_skew.saturating_sub(1));
    }
    score.round() as i64
}

/// What of the amounts of CPU and memory that it has the node gives for these, as a mean; what it has nothing of does not count.
fn mean_share(seat: &Seat, share: impl Fn(ResourceName, i64) -> i64) -> i64 {
    let had: Vec<i64> = [*resource::CPU, *resource::MEMORY]
        .into_iter()
        .map(|name| (name, seat.node.allocatable.get(name)))
        .filter(|(_, total)| *total > 0)
        .map(|(name, total)| share(name, total))
        .collect();
    if had.is_empty() { 0 } else { had.iter().sum::<i64>() / had.len() as i64 }
}

/// What a pod takes of CPU and memory where free nodes are preferred. What containers that ask for nothing are taken to use is
/// counted once for a pod: how many of them it has is not known.
pub(super) fn taken(shape: &PodShape) -> Resources {
    let mut taken = Resources::new();
    for (name, least) in [(*resource::CPU, CPU_TAKEN), (*resource::MEMORY, MEMORY_TAKEN)] {
        taken.set(name, Some(shape.requests.get(name)).filter(|asked| *asked > 0).unwrap_or(least));
    }
    taken
}

/// Share of CPU and memory that stays free with the pod there (`NodeResourcesFit`, least allocated).
fn free_share(seat: &Seat, shape: &PodShape) -> i64 {
    let more = taken(shape);
    mean_share(seat, |name, total| {
        let used = seat.taken.get(name).saturating_add(more.get(name));
        if used > total { 0 } else { (total - used).saturating_mul(MOST) / total }
    })
}

/// Whether the pod makes the used shares of CPU and memory more alike, from 50 to 100 (`NodeResourcesBalancedAllocation`).
fn balance(seat: &Seat, shape: &PodShape) -> i64 {
    let evenness = |more: i64, asked: &Resources| {
        let shares: Vec<f64> = [*resource::CPU, *resource::MEMORY]
            .into_iter()
            .map(|name| (name, seat.node.allocatable.get(name)))
            .filter(|(_, total)| *total > 0)
            .map(|(name, total)| {
                let used = seat.used.get(name).saturating_add(asked.get(name).saturating_mul(more));
                (used as f64 / total as f64).min(1.0)
            })
            .collect();
        // Of two shares half the difference is the standard deviation.
        let deviation = if let [cpu, memory] = shares[..] { ((cpu - memory) / 2.0).abs() } else { 0.0 };
        ((1.0 - deviation) * MOST as f64) as i64
    };
    let (with, without) = (evenness(1, &shape.requests), evenness(0, &shape.requests));
    MOST / 2 + (MOST / 2 + with - without) / 2
}

fn soft_taints(seat: &Seat, shape: &PodShape) -> i64 {
    let soft = seat.node.taints.iter().filter(|taint| taint.effect == Effect::PreferNoSchedule);
    soft.filter(|taint| !shape.tolerations.iter().any(|toleration| toleration.tolerates(taint))).count()
        as i64
}

/// The weights of the preferred node affinity that a node meets; a term that says nothing is met by none.
fn preference(seat: &Seat, shape: &PodShape) -> i64 {
    let liked = shape.node_preferred.iter().filter(|(_, term)| !term.is_void() && seat.meets(term));
    liked.map(|(weight, _)| i64::from(*weight)).sum()
}

/// Raw scores, which are not negative, as shares of the largest.
fn of_largest(raw: Vec<i64>) -> Vec<i64> {
    let most = raw.iter().copied().max().unwrap_or(0);
    raw.into_iter().map(|score| if most == 0 { 0 } else { MOST * score / most }).collect()
}

/// The same, the smallest best.
fn inverted(raw: Vec<i64>) -> Vec<i64> {
    let most = raw.iter().copied().max().unwrap_or(0);
    raw.into_iter().map(|score| if most == 0 { MOST } else { MOST - MOST * score / most }).collect()
}

/// Raw scores stretched from the least to the largest.
fn stretched(raw: Vec<i64>) -> Vec<i64> {
    let (least, most) = (raw.iter().copied().min().unwrap_or(0), raw.iter().copied().max().unwrap_or(0));
    let place = |score: i64| (MOST as f64 * ((score - least) as f64 / (most - least) as f64)) as i64;
    raw.into_iter().map(|score| if most == least { 0 } else { place(score) }).collect()
}
