//! Which pods take part: those that wait for a node, and those whose node is going away.
//!
//! Pods that wait are judged first. One that could never be placed as it is written is left out with every reason, so
//! that it does not hold up the others.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::explain::{Code, Refusal};
use super::{Settings, volumes};
use crate::capacity::cluster::Cluster;
use crate::model::claim::ConditionType;
use crate::model::hash::FastSet;
use crate::model::label;
use crate::model::name::{NodeName, ObjectKey, PoolName};
use crate::model::node::Node;
use crate::model::offering::CapacityType;
use crate::model::pod::{NodeTerm, Pod, PodShape, SelectorTerm};
use crate::model::requirement::{Operator, Requirement, Requirements, Undefined};
use crate::model::symbol::Symbol;
use crate::model::taint::{Effect, Taint, first_untolerated};
use crate::model::time::parse_duration;
use crate::model::workload::{CountOrPercent, PodDisruptionBudget};

/// A pod that waits but cannot be planned for as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    pub pod: ObjectKey,
    pub reasons: Vec<Refusal>,
}

/// Pods that wait for a node, by name; and those among them that are left out.
pub fn provisionable_pods(cluster: &Cluster, settings: &Settings) -> (Vec<Arc<Pod>>, Vec<Rejected>) {
    judged(cluster, settings, cluster.waiting_pods())
}

/// The same of `waiting`.
pub(crate) fn judged<'a>(
    cluster: &Cluster,
    settings: &Settings,
    waiting: impl Iterator<Item = &'a Arc<Pod>>,
) -> (Vec<Arc<Pod>>, Vec<Rejected>) {
    let (mut accepted, mut rejected) = (Vec::new(), Vec::new());
    // Volumes are a pod's own; all else equal pods share.
    let mut faultless: FastSet<usize> = FastSet::default();
    for pod in waiting.filter(|pod| !pod.is_daemon() && !pod.is_mirror()) {
        let address = Arc::as_ptr(&pod.shape) as usize;
        if pod.shape.volumes.is_empty() && faultless.contains(&address) {
            accepted.push(pod.clone());
            continue;
        }
        let reasons = faults(cluster, settings, pod);
        if reasons.is_empty() {
            faultless.insert(address);
            accepted.push(pod.clone());
        } else {
            rejected.push(Rejected { pod: pod.key, reasons });
        }
    }
    (accepted, rejected)
}

/// Everything that forbids planning for `pod`.
fn faults(cluster: &Cluster, settings: &Settings, pod: &Pod) -> Vec<Refusal> {
    let shape = &*pod.shape;
    let mut faults = Vec::new();
    let mut refuse = |code, message: String| faults.push(Refusal { pool: None, code, message });
    if shape.has_resource_claims {
        refuse(
            Code::NeedsDevices,
            "asks for devices through resource claims, which are not planned for".into(),
        );
    }
    let alternatives = required_alternatives(shape);
    let pool_asked = alternatives.first().and_then(|asked| asked.get(*label::NODEPOOL));
    if pool_asked.is_some_and(Requirement::is_empty) {
        refuse(Code::AvoidsManagedNodes, "asks for nodes without karpenter.sh/nodepool".into());
    }
    for (key, value) in &shape.node_selector {
        check_key(*key, &mut refuse);
        if !label::is_label_value(value) {
            refuse(
                Code::InvalidRequirement,
                format!("node selector {key}: `{value}` cannot be a label's value"),
            );
        }
    }
    for term in &shape.node_required {
        if term.is_void() {
            refuse(
                Code::InvalidRequirement,
                "required node affinity has a term without conditions, which selects no node".into(),
            );
        }
        if term.has_fields {
            refuse(
                Code::FieldSelector,
                "required node affinity selects by field (matchFields), which names one existing node".into(),
            );
        }
        for expression in &term.expressions {
            check_key(expression.key, &mut refuse);
            check_values(expression, &mut refuse);
        }
    }
    if let Err(fault) = volumes::check_volumes(cluster, pod, &settings.unsupported_storage) {
        refuse(Code::VolumeNotUsable, fault.to_string());
    }
    faults
}

fn check_key(key: Symbol, refuse: &mut impl FnMut(Code, String)) {
    let meant = label::canonical(key);
    if !label::is_qualified_name(&key) {
        refuse(Code::InvalidRequirement, format!("`{key}` cannot be the key of a label"));
    } else if label::is_restricted(meant) {
        refuse(
            Code::RestrictedLabel,
            format!("label {key} is restricted: it is set on a node after the choice is made"),
        );
    }
}

fn check_values(expression: &SelectorTerm, refuse: &mut impl FnMut(Code, String)) {
    let SelectorTerm { key, operator, values } = expression;
    let mut invalid = |why: &str| {
        refuse(Code::InvalidRequirement, format!("node affinity {key} {}: {why}", operator.as_str()))
    };
    if operator.is_comparison() {
        let is_count = |value: &Symbol| value.parse::<u64>().is_ok();
        if values.len() != 1 || !values.iter().all(is_count) {
            invalid("takes exactly one integer that is not negative");
        }
    } else if *operator == Operator::In && values.is_empty() {
        invalid("takes at least one value");
    }
    if let Some(value) = values.iter().find(|value| !label::is_label_value(value)) {
        invalid(&format!("`{value}` cannot be a label's value"));
    }
    let is_known = |value: &Symbol| CapacityType::parse(value).is_some();
    if label::canonical(*key) == *label::CAPACITY_TYPE
        && *operator == Operator::In
        && !values.iter().any(is_known)
    {
        invalid("names no capacity type; there are reserved, spot and on-demand");
    }
}

/// Node selector with each required affinity term: one of them must hold.
pub(super) fn required_alternatives(shape: &PodShape) -> Vec<Requirements> {
    let selector = Requirements::of_labels(&shape.node_selector);
    let with = |term: &NodeTerm| {
        let mut both = selector.clone();
        both.add_all(&term.requirements());
        both
    };
    if shape.node_required.is_empty() {
        vec![selector]
    } else {
        shape.node_required.iter().map(with).collect()
    }
}

/// Whether a pod like this may be on a node with these taints. Soft ones never stop it.
pub(super) fn tolerates<'t>(shape: &PodShape, taints: impl IntoIterator<Item = &'t Taint>) -> bool {
    taints.into_iter().all(|taint| {
        taint.effect == Effect::PreferNoSchedule
            || shape.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    })
}

/// Whether the labels of `node` are what it wants.
pub(super) fn is_selected(node: &Node, shape: &PodShape) -> bool {
    let here = Requirements::of_labels(&node.labels);
    let alternatives = required_alternatives(shape);
    alternatives.iter().any(|wanted| here.compatible(wanted, Undefined::Nothing).is_ok())
}

/// Whether labels and lasting taints of `node` let a pod like this run there.
pub(crate) fn could_run(shape: &PodShape, node: &Node) -> bool {
    let lasting = node.taints.iter().filter(|taint| !taint.keeps_closed() && !taint.is_ephemeral());
    tolerates(shape, lasting) && is_selected(node, shape)
}

/// What node selection goes by, and what topology counts by: the latter never heeds a preference.
pub(super) fn full_and_strict(shape: &PodShape) -> (Requirements, Requirements) {
    let mut strict = Requirements::of_labels(&shape.node_selector);
    if let Some(term) = shape.node_required.first() {
        strict.add_all(&term.requirements());
    }
    let mut full = strict.clone();
    // The first of the heaviest.
    if let Some((_, term)) = shape.node_preferred.iter().rev().max_by_key(|(weight, _)| *weight) {
        full.add_all(&term.requirements());
    }
    (full, strict)
}

/// Whether `node` is on its way out: its claim is being deleted or its instance stops, or, without a claim, it is being
/// deleted itself.
pub fn is_going(cluster: &Cluster, node: &Node) -> bool {
    match cluster.claim_of(node) {
        Some(claim) => {
            claim.deleted.is_some() || claim.conditions.is_true(ConditionType::InstanceTerminating)
        }
        None => node.deleted.is_some(),
    }
}

/// Pods of nodes that are going away and that need another place, by node and name.
pub fn moving_pods(cluster: &Cluster, now: Timestamp) -> Vec<Arc<Pod>> {
    let going = cluster.nodes.values().filter(|node| is_going(cluster, node));
    moving_from(cluster, going.map(|node| node.name), now)
}

/// Pods of `nodes` that need another place. Whoever drains a node of its own looks after the pods there: those of somebody
/// else's node are placed once they are evicted and wait.
pub(crate) fn moving_from(
    cluster: &Cluster,
    nodes: impl Iterator<Item = NodeName>,
    now: Timestamp,
) -> Vec<Arc<Pod>> {
    nodes
        .filter(|node| !is_strange(cluster, *node))
        .flat_map(|node| cluster.pods_of(node))
        .filter(|pod| is_reschedulable(cluster, pod, now))
        .cloned()
        .collect()
}

/// Whether a node belongs to a pool or a claim of somebody else's.
fn is_strange(cluster: &Cluster, node: NodeName) -> bool {
    let Some(node) = cluster.nodes.get(&node) else { return false };
    let pool = node.labels.get(&*label::NODEPOOL).map(|name| PoolName(*name));
    pool.is_some_and(|pool| cluster.strangers.pools.contains(&pool))
        || node.provider_id.is_some_and(|id| cluster.strangers.has_machine(id))
}

/// Whether `pod` would come back elsewhere if its node were drained now.
pub fn is_reschedulable(cluster: &Cluster, pod: &Pod, now: Timestamp) -> bool {
    let comes_back =
        pod.is_active() || (!pod.is_terminal() && pod.deleted.is_some() && pod.is_owned_by("StatefulSet"));
    comes_back
        && !pod.is_daemon()
        && !pod.is_mirror()
        && !is_protected(pod, now)
        && blocking_budgets(cluster, pod).is_empty()
}

/// What `karpenter.sh/do-not-disrupt` of a pod comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    Forever,
    /// `None`: it begins with the pod, which has not started.
    Until(Option<Timestamp>),
    Over,
    /// Neither `true` nor a time.
    Unreadable,
}

/// What the annotation of `pod` comes to at `now`: it holds for ever, or for a time since the pod started.
pub fn protection(pod: &Pod, now: Timestamp) -> Option<Protection> {
    let value = pod.shape.do_not_disrupt.filter(|_| pod.is_active())?;
    if &*value == "true" {
        return Some(Protection::Forever);
    }
    let Some(duration) = parse_duration(&value).ok().filter(SignedDuration::is_positive) else {
        return Some(Protection::Unreadable);
    };
    Some(match pod.started.map(|started| started.checked_add(duration)) {
        None => Protection::Until(None),
        Some(Ok(ends)) if ends <= now => Protection::Over,
        Some(Ok(ends)) => Protection::Until(Some(ends)),
        Some(Err(_)) => Protection::Forever,
    })
}

/// Whether `karpenter.sh/do-not-disrupt` holds for `pod` at `now`.
pub fn is_protected(pod: &Pod, now: Timestamp) -> bool {
    matches!(protection(pod, now), Some(Protection::Forever | Protection::Until(_)))
}

/// Budgets under which `pod` can never be evicted: they allow no disruption at all, or there are two of them, which the
/// eviction API refuses.
pub fn blocking_budgets<'a>(cluster: &'a Cluster, pod: &Pod) -> Vec<&'a Arc<PodDisruptionBudget>> {
    if cluster.budgets.is_empty() {
        return Vec::new();
    }
    let tolerates_disruption = first_untolerated(&[Taint::disrupted()], &pod.shape.tolerations).is_none();
    if tolerates_disruption || pod.is_mirror() {
        return Vec::new();
    }
    let matching = cluster.budgets.of(pod.key.namespace, &pod.shape.labels);
    if matching.len() > 1 {
        return matching;
    }
    matching
        .into_iter()
        .filter(|budget| blocks(budget) && (pod.is_ready || !budget.always_allows_unhealthy))
        .collect()
}

fn blocks(budget: &PodDisruptionBudget) -> bool {
    matches!(budget.max_unavailable, Some(CountOrPercent::Count(0) | CountOrPercent::Percent(0)))
        || matches!(budget.min_available, Some(CountOrPercent::Percent(100)))
}
