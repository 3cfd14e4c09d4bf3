//! Judges a finished placement by what Kubernetes says of pods and nodes: [assigning pods to nodes], [taints] and
//! [spread constraints]. It knows objects and an answer, nothing of how the answer was found.
//!
//! A node that is yet to be bought may still be any of its options; a rule has to hold whichever is bought.
//!
//! [assigning pods to nodes]: https://kubernetes.io/docs/concepts/scheduling-eviction/assign-pod-node/
//! [taints]: https://kubernetes.io/docs/concepts/scheduling-eviction/taint-and-toleration/
//! [spread constraints]: https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use provisor::capacity::scheduling::{NewNode, Solution};
use provisor::model::label::Labels;
use provisor::model::name::ObjectKey;
use provisor::model::pod::{NodeTerm, Pod, PodShape, PodTerm, Selector, SelectorTerm};
use provisor::model::quantity::Resources;
use provisor::model::requirement::Operator;
use provisor::model::symbol::Symbol;
use provisor::model::taint::{Effect, Taint, Toleration, TolerationOperator};

use super::super::world::*;

/// A node with what runs there in the end.
struct Seat<'a> {
    name: String,
    /// Labels and room of everything that it may turn out to be.
    faces: Vec<(Labels, Resources)>,
    taints: &'a [Taint],
    residents: Vec<&'a Arc<Pod>>,
    arrivals: Vec<&'a Arc<Pod>>,
}

impl<'a> Seat<'a> {
    fn all(&self) -> impl Iterator<Item = &'a Arc<Pod>> + '_ {
        self.residents.iter().chain(&self.arrivals).copied()
    }

    /// Values that the label may turn out to have.
    fn domains(&self, key: Symbol) -> BTreeSet<Option<Symbol>> {
        self.faces.iter().map(|(labels, _)| labels.get(&key).copied()).collect()
    }

    /// The value of the label, if it is certain.
    fn domain(&self, key: Symbol) -> Option<Symbol> {
        let domains = self.domains(key);
        if domains.len() == 1 { domains.into_iter().next().flatten() } else { None }
    }
}

/// Everything that is wrong with `solution` for `world`, in words.
pub fn faults(world: &World, solution: &Solution) -> Vec<String> {
    let seats = seats(world, solution);
    let mut faults = Vec::new();
    every_pod_once(world, solution, &mut faults);
    for seat in &seats {
        for pod in &seat.arrivals {
            alone(pod, seat, &mut faults);
            between(pod, seat, &seats, &mut faults);
            spread(pod, seat, &seats, &mut faults);
        }
        room(world, seat, &mut faults);
        ports(seat, &mut faults);
    }
    limits(world, solution, &mut faults);
    faults
}

fn seats<'a>(world: &'a World, solution: &'a Solution) -> Vec<Seat<'a>> {
    let pods = |keys: &[ObjectKey]| keys.iter().map(|key| &world.cluster.pods[key]).collect::<Vec<_>>();
    let there = world.cluster.nodes.values().map(|node| Seat {
        name: node.name.to_string(),
        faces: vec![(node.labels.clone(), node.allocatable.clone())],
        taints: &node.taints,
        residents: world.cluster.pods.values().filter(|pod| pod.node == Some(node.name)).collect(),
        arrivals: solution
            .existing
            .iter()
            .filter(|(place, _)| place.name() == node.name.0)
            .flat_map(|(_, keys)| pods(keys))
            .collect(),
    });
    let new = solution.new_nodes.iter().enumerate().map(|(at, node)| Seat {
        name: format!("new-{at}"),
        faces: faces(world, node, at),
        taints: &node.taints,
        residents: Vec::new(),
        arrivals: pods(&node.pods),
    });
    there.chain(new).collect()
}

fn faces(world: &World, node: &NewNode, at: usize) -> Vec<(Labels, Resources)> {
    let face = |option: &provisor::model::action::LaunchOption| {
        let kind = world.types.iter().find(|kind| kind.name == option.instance_type).expect("it is sold");
        let mut labels = node.labels.clone();
        for (key, values) in kind.requirements.iter() {
            if let Some(value) = values.single() {
                labels.insert(key, value);
            }
        }
        labels.insert(OS.into(), "linux".into());
        labels.insert(ZONE.into(), option.zone.0);
        labels.insert(CAPACITY_TYPE.into(), option.capacity_type.symbol());
        labels.insert(HOSTNAME.into(), Symbol::new(&format!("new-{at}")));
        (labels, kind.allocatable.clone())
    };
    node.options.iter().map(face).collect()
}

fn every_pod_once(world: &World, solution: &Solution, faults: &mut Vec<String>) {
    let mut times: BTreeMap<ObjectKey, usize> = BTreeMap::new();
    let new = solution.new_nodes.iter().flat_map(|node| &node.pods);
    let existing = solution.existing.values().flatten();
    for pod in new.chain(existing).chain(solution.unschedulable.iter().map(|left| &left.pod)) {
        *times.entry(*pod).or_default() += 1;
    }
    for pod in world.cluster.pods.values().filter(|pod| pod.node.is_none()) {
        match times.remove(&pod.key) {
            Some(1) => {}
            other => faults.push(format!("{} is named {other:?} times", pod.key)),
        }
    }
    faults.extend(times.keys().map(|pod| format!("{pod} does not wait")));
    let silent = solution.unschedulable.iter().filter(|left| left.reasons.is_empty());
    faults.extend(silent.map(|left| format!("{} has no place and no reason", left.pod)));
}

// ------------------------------------------------------------------------------------------------ a pod and its node

fn alone(pod: &Pod, seat: &Seat, faults: &mut Vec<String>) {
    let shape = &pod.shape;
    for taint in seat.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule) {
        if !shape.tolerations.iter().any(|toleration| tolerates(toleration, taint)) {
            faults.push(format!("{} does not tolerate {taint} of {}", pod.key, seat.name));
        }
    }
    for (labels, _) in &seat.faces {
        if !wants(shape, labels) {
            faults.push(format!("{} may not be on {} as {labels:?}", pod.key, seat.name));
        }
    }
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let is_key = toleration.key.is_empty() || toleration.key == taint.key;
    let is_effect = toleration.effect.is_none_or(|effect| effect == taint.effect);
    let is_value = match toleration.operator {
        TolerationOperator::Exists => true,
        _ => toleration.value == taint.value,
    };
    is_key && is_effect && is_value
}

/// Node selector and required node affinity: terms are ORed, their expressions ANDed.
pub fn wants(shape: &PodShape, labels: &Labels) -> bool {
    let is_selected = shape.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value));
    let meets = |term: &NodeTerm| {
        !term.expressions.is_empty() && term.expressions.iter().all(|one| matches(one, labels.get(&one.key)))
    };
    is_selected && (shape.node_required.is_empty() || shape.node_required.iter().any(meets))
}

fn matches(asked: &SelectorTerm, value: Option<&Symbol>) -> bool {
    let number = |text: Option<&Symbol>| text.and_then(|text| text.parse::<i64>().ok());
    let compared = |holds: fn(i64, i64) -> bool| {
        number(value).zip(number(asked.values.first())).is_some_and(|(value, bound)| holds(value, bound))
    };
    match asked.operator {
        Operator::In => value.is_some_and(|value| asked.values.contains(value)),
        Operator::NotIn => value.is_none_or(|value| !asked.values.contains(value)),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compared(|value, bound| value > bound),
        Operator::Lt => compared(|value, bound| value < bound),
        Operator::Gte => compared(|value, bound| value >= bound),
        Operator::Lte => compared(|value, bound| value <= bound),
    }
}

// -------------------------------------------------------------------------------------------------- all pods of a node

fn room(world: &World, seat: &Seat, faults: &mut Vec<String>) {
    if seat.arrivals.is_empty() {
        return;
    }
    for (labels, allocatable) in &seat.faces {
        let mut needed = Resources::new();
        seat.all().for_each(|pod| needed.add(&pod.shape.requests));
        for set in world.cluster.daemon_sets.values() {
            let is_there = seat.residents.iter().any(|pod| {
                pod.owners.iter().any(|owner| &*owner.kind == "DaemonSet" && owner.name == set.key.name)
            });
            let hard = seat.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule);
            let is_kept_away = hard
                .into_iter()
                .any(|taint| !set.shape.tolerations.iter().any(|toleration| tolerates(toleration, taint)));
            if !is_there && !is_kept_away && wants(&set.shape, labels) {
                needed.add(&set.shape.requests);
            }
        }
        for (name, amount) in needed.iter() {
            if amount > allocatable.get(name) {
                let has = name.render(allocatable.get(name));
                faults.push(format!("{} needs {name} {} and has {has}", seat.name, name.render(amount)));
            }
        }
    }
}

fn ports(seat: &Seat, faults: &mut Vec<String>) {
    // Those that run there already may disagree; that is nobody's doing here.
    let of = |pod: &Arc<Pod>| {
        pod.shape.host_ports.iter().map(|port| (port.port, port.protocol)).collect::<Vec<_>>()
    };
    let mut taken: BTreeSet<_> = seat.residents.iter().flat_map(|pod| of(pod)).collect();
    for pod in &seat.arrivals {
        for port in of(pod) {
            if !taken.insert(port) {
                faults.push(format!("port {} of {} is taken on {}", port.0, pod.key, seat.name));
            }
        }
    }
}

fn limits(world: &World, solution: &Solution, faults: &mut Vec<String>) {
    for pool in world.cluster.pools.values() {
        let Some(limits) = &pool.limits else { continue };
        let mut used = Resources::new();
        for claim in world.cluster.claims.values().filter(|claim| claim.pool() == Some(pool.name)) {
            used.add(&claim.capacity);
        }
        for node in solution.new_nodes.iter().filter(|node| node.pool == pool.name) {
            let kind = world.types.iter().find(|kind| kind.name == node.launch().instance_type);
            used.add(&kind.expect("it is sold").capacity);
        }
        for (name, limit) in limits.iter() {
            if used.get(name) > limit && solution.new_nodes.iter().any(|node| node.pool == pool.name) {
                faults.push(format!("{} exceeds its limit of {name}", pool.name));
            }
        }
    }
}

// ---------------------------------------------------------------------------------------------------- pods among pods

fn selects(selector: Option<&Selector>, pod: &Pod) -> bool {
    selector
        .is_some_and(|selector| selector.terms.iter().all(|one| matches(one, pod.shape.labels.get(&one.key))))
}

/// Whether `term` of `of` is about `other`. The generator makes terms of the pod's own namespace only.
fn is_about(term: &PodTerm, of: &Pod, other: &Pod) -> bool {
    of.key.namespace == other.key.namespace && selects(term.selector.as_ref(), other)
}

fn between(pod: &Arc<Pod>, seat: &Seat, seats: &[Seat], faults: &mut Vec<String>) {
    let everyone = || seats.iter().flat_map(|there| there.all().map(move |other| (other, there)));
    for (other, there) in everyone().filter(|(other, _)| other.key != pod.key) {
        let shun = |one: &Pod, two: &Pod| {
            let terms = one.shape.anti_affinity_required.iter().filter(|term| is_about(term, one, two));
            terms.map(|term| term.topology_key).collect::<Vec<_>>()
        };
        for key in shun(pod, other).into_iter().chain(shun(other, pod)) {
            let (here, there_too) = (seat.domains(key), there.domains(key));
            if here.intersection(&there_too).any(Option::is_some) {
                faults.push(format!(
                    "{} on {} and {} on {} shun each other by {key}",
                    pod.key, seat.name, other.key, there.name
                ));
            }
        }
    }
    for term in &pod.shape.affinity_required {
        let company = || everyone().filter(|(other, _)| other.key != pod.key && is_about(term, pod, other));
        if company().next().is_none() && is_about(term, pod, pod) {
            continue;
        }
        let key = term.topology_key;
        let is_here = company().any(|(_, there)| std::ptr::eq(there, seat));
        let is_near = |domain: &Option<Symbol>| {
            domain.is_some() && company().any(|(_, there)| there.domain(key) == *domain)
        };
        if !is_here && !seat.domains(key).iter().all(is_near) {
            faults.push(format!("{} on {} is near nobody by {key}", pod.key, seat.name));
        }
    }
}

/// Among nodes that the pod could be on; those it could not are not counted (`nodeAffinityPolicy: Honor`).
fn spread(pod: &Arc<Pod>, seat: &Seat, seats: &[Seat], faults: &mut Vec<String>) {
    for constraint in pod.shape.spreads.iter().filter(|constraint| constraint.is_required) {
        let key = constraint.topology_key;
        let Some(domain) = seat.domain(key) else {
            faults.push(format!("{} on {}: nobody knows in which {key}", pod.key, seat.name));
            continue;
        };
        let mut counts: BTreeMap<Symbol, u32> = BTreeMap::new();
        for there in seats {
            let is_eligible = there.faces.iter().all(|(labels, _)| wants(&pod.shape, labels));
            let Some(domain) = there.domain(key).filter(|_| is_eligible) else { continue };
            let count = there.all().filter(|other| {
                other.key.namespace == pod.key.namespace && selects(constraint.selector.as_ref(), other)
            });
            *counts.entry(domain).or_default() += count.count() as u32;
        }
        let least = counts.values().min().copied().unwrap_or(0);
        if counts.get(&domain).copied().unwrap_or(0) > least + constraint.max_skew {
            faults.push(format!("{} on {} is one too many in {domain}: {counts:?}", pod.key, seat.name));
        }
    }
}
