//! Which nodes may be considered at all: the first thing that stands against a node is the reason it stays.

use std::collections::BTreeMap;
use std::fmt;

use super::budgets::Allowance;
use super::command::is_waiting;
use super::cost;
use super::removal::Refused;
use super::round::Round;
use super::weights::{refusal, weigh};
use crate::capacity::scheduling::is_protected;
use crate::model::claim::ConditionType;
use crate::model::label::{self, annotation};
use crate::model::money::UsdPerHour;
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName};
use crate::model::node::Node;
use crate::model::pod::Pod;
use crate::model::pool::DisruptionReason;
use crate::model::taint::{Taint, first_untolerated};
use crate::model::workload::{CountOrPercent, PodDisruptionBudget};

/// How much a method may ask of pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Pods that do not want to go are left alone.
    Graceful,
    /// They are too, unless the node has a deadline by which its pods go anyway.
    Eventual,
}

/// A node that may go, if a method wants it to.
#[derive(Clone, Debug)]
pub(crate) struct Candidate {
    pub node: NodeName,
    pub claim: ClaimName,
    pub pool: PoolName,
    /// Zero if its type, zone or capacity type is not known.
    pub price: UsdPerHour,
    /// In `cost::ONE`; `cost::ONE` alone is an empty node.
    pub disruption: i64,
    pub is_spot: bool,
    /// Whether its type is one that its pool sells.
    pub is_of_known_type: bool,
}

impl Candidate {
    /// No pod that anybody would miss.
    pub fn is_empty(&self) -> bool {
        self.disruption <= cost::ONE
    }
}

/// Why a node stays: a word for programs, a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeepReason {
    pub code: &'static str,
    pub message: String,
    /// It would go for this reason, but for the budgets or the windows of its pool.
    pub limited: Option<DisruptionReason>,
}

impl KeepReason {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), limited: None }
    }

    /// There is no room in `allowance`, which is that of `pool` for `reason`.
    pub fn limited(allowance: &Allowance, pool: PoolName, reason: DisruptionReason) -> Self {
        let why = allowance.why(pool, reason);
        let message = match reason {
            DisruptionReason::Drifted => format!("drifted, but {why}"),
            DisruptionReason::Expired => format!("expired, but {why}"),
            _ => why,
        };
        Self { code: allowance.code(), message, limited: Some(reason) }
    }
}

impl From<Refused> for KeepReason {
    fn from((code, message): Refused) -> Self {
        Self::new(code, message)
    }
}

impl fmt::Display for KeepReason {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

/// Judges `node` as a candidate for a method of `class`.
pub(crate) fn admit(round: &Round, node: &Node, class: Class) -> Result<Candidate, KeepReason> {
    let no = |code, message: String| Err(KeepReason::new(code, message));
    let cluster = &round.cluster;
    let Some(claim) = cluster.claim_of(node) else {
        return no("NotManaged", "node isn't managed: no NodeClaim belongs to it".into());
    };
    // A round takes the claims of nodes that wait for deleted ones; their nodes are deleted only once they really go.
    if is_waiting(claim) && node.deleted.is_none() {
        return no("BeingDisrupted", "node is already being disrupted: it waits for its replacement".into());
    }
    if claim.deleted.is_some()
        || node.deleted.is_some()
        || claim.conditions.is_true(ConditionType::InstanceTerminating)
    {
        return no("Deleting", leaving(round, node));
    }
    if !claim.conditions.is_true(ConditionType::Initialized) || !is_true(node, *label::INITIALIZED) {
        return no("NotInitialized", "node isn't initialized".into());
    }
    if round.nominated.contains_key(&node.name) {
        return no("Nominated", "node is nominated for a pending pod".into());
    }
    if node.annotations.get(&*annotation::DO_NOT_DISRUPT).is_some_and(|value| &**value == "true") {
        let message = "disruption is blocked through the \"karpenter.sh/do-not-disrupt\" annotation";
        return no("DoNotDisrupt", message.into());
    }
    let Some(pool) = node.labels.get(&*label::NODEPOOL).map(|name| PoolName(*name)) else {
        return no("NoPoolLabel", "node doesn't have required label (label=karpenter.sh/nodepool)".into());
    };
    let types = round.supply.sold(pool);
    let is_listed = cluster.pools.contains_key(&pool) && !round.supply.unlisted().contains_key(&pool);
    if !is_listed || types.is_empty() {
        return no("PoolNotFound", format!("nodepool not found (NodePool={pool})"));
    }
    let weighed = weigh(round, node, pool);
    if (class == Class::Graceful || claim.spec.termination_grace.is_none())
        && let Some(reason) = refusal(round, node.name, &weighed)
    {
        return Err(reason);
    }
    let capacity_type = node.labels.get(&*label::CAPACITY_TYPE);
    Ok(Candidate {
        node: node.name,
        claim: claim.name,
        pool,
        price: weighed.price,
        disruption: weighed.disruption,
        is_spot: capacity_type.is_some_and(|value| &**value == "spot"),
        is_of_known_type: weighed.is_of_known_type,
    })
}

pub(crate) fn is_true(node: &Node, key: crate::model::symbol::Symbol) -> bool {
    node.labels.get(&key).is_some_and(|value| &**value == "true")
}

/// Why `node`, which goes, is still there.
fn leaving(round: &Round, node: &Node) -> String {
    let mut refusals = round.cluster.pods_of(node.name).filter_map(|pod| refusal_of_budgets(round, pod));
    match refusals.next() {
        Some(refusal) => format!("node is being drained, and {refusal}"),
        None => "node is deleting or marked for deletion".into(),
    }
}

/// Why `pod` does not let its node go.
pub(super) fn refusal_of(round: &Round, pod: &Pod) -> Option<KeepReason> {
    if is_protected(pod, round.now) {
        let message = format!("pod has \"karpenter.sh/do-not-disrupt\" annotation (Pod={})", pod.key);
        return Some(KeepReason::new("PodDoNotDisrupt", message));
    }
    refusal_of_budgets(round, pod)
}

/// Why it may not be evicted now.
fn refusal_of_budgets(round: &Round, pod: &Pod) -> Option<KeepReason> {
    if round.cluster.budgets.is_empty() {
        return None;
    }
    let tolerates = first_untolerated(&[Taint::disrupted()], &pod.shape.tolerations).is_none();
    if !pod.is_active() || pod.is_mirror() || tolerates {
        return None;
    }
    let matching = round.cluster.budgets.of(pod.key.namespace, &pod.shape.labels);
    let names = || matching.iter().map(|budget| budget.key.to_string()).collect::<Vec<_>>().join(" ");
    match matching.as_slice() {
        [] => None,
        [one] if one.always_allows_unhealthy && !pod.is_ready => None,
        [one] if one.disruptions_allowed.unwrap_or_else(|| round.disruptions_counted(one)) > 0 => None,
        [_] => {
            let message = format!("pdb prevents pod evictions (PodDisruptionBudget=[{}])", names());
            Some(KeepReason::new("PodDisruptionBudget", message))
        }
        _ => {
            let message =
                format!("eviction does not support multiple PDBs (PodDisruptionBudget(s)=[{}])", names());
            Some(KeepReason::new("PodDisruptionBudgets", message))
        }
    }
}

/// How many pods may be away now of each budget into whose status nobody wrote it, counted in one walk over all pods.
pub(super) fn count_disruptions(round: &Round) -> BTreeMap<ObjectKey, i64> {
    let budgets = &round.cluster.budgets;
    let is_uncounted = |budget: &PodDisruptionBudget| budget.disruptions_allowed.is_none();
    // Of those that select anything: how many pods should be there, and how many are well.
    let mut counts: BTreeMap<ObjectKey, (i64, i64)> = BTreeMap::new();
    for pod in round.cluster.pods.values().filter(|pod| !pod.is_terminal()) {
        for budget in
            budgets.of(pod.key.namespace, &pod.shape.labels).into_iter().filter(|budget| is_uncounted(budget))
        {
            let (expected, healthy) = counts.entry(budget.key).or_default();
            *expected += 1;
            *healthy += i64::from(pod.is_ready && pod.deleted.is_none());
        }
    }
    let allowed = counts.into_iter().filter_map(|(key, (expected, healthy))| {
        let budget = budgets.get(&key)?;
        Some((key, (healthy - must_stay(budget, expected)).max(0)))
    });
    allowed.collect()
}

/// How many of so many pods `budget` wants to be well.
fn must_stay(budget: &PodDisruptionBudget, expected: i64) -> i64 {
    let count = |bound: CountOrPercent| match bound {
        CountOrPercent::Count(count) => count,
        CountOrPercent::Percent(percent) => (expected * i64::from(percent) + 99) / 100,
    };
    match (budget.min_available, budget.max_unavailable) {
        (Some(least), _) => count(least),
        (None, Some(most)) => expected - count(most),
        (None, None) => expected - 1,
    }
}
