//! Of a node that stays: since when its reason holds, when time alone may end it, and what it waits for.
//!
//! What is said here is read off the objects, and nothing where those do not tell: an engine that goes on knows more, because it has
//! looked before.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::budgets;
use super::candidates::KeepReason;
use super::command::{is_waiting, replacement_patience};
use super::roll::{self, Standing};
use super::round::Round;
use super::{expiration, marking, removal, renewal, returning};
use crate::capacity::scheduling::{Protection, is_protected, protection};
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::condition::ConditionStatus;
use crate::model::name::PoolName;
use crate::model::node::Node;
use crate::model::pod::Pod;
use crate::model::pool::{DisruptionReason, NodePool, PoolCondition};

/// Since when a node stays for the same reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    pub at: Timestamp,
    /// Nobody looked before: it may have been so for longer.
    pub or_earlier: bool,
}

impl Since {
    pub fn exactly(at: Timestamp) -> Self {
        Self { at, or_earlier: false }
    }
}

/// From when to when a reason holds, as far as that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Span {
    pub since: Option<Timestamp>,
    pub until: Option<Timestamp>,
}

impl Span {
    fn new(since: Option<Timestamp>, until: Option<Timestamp>) -> Self {
        Self { since, until }
    }
}

/// What many nodes of one picture ask for in common.
pub(super) struct Spans<'r, 'a> {
    round: &'r Round<'a>,
    closings: BTreeMap<(PoolName, DisruptionReason), Span>,
    patience: SignedDuration,
}

impl<'r, 'a> Spans<'r, 'a> {
    pub fn new(round: &'r Round<'a>) -> Self {
        let waiting = round.cluster.claims.values().filter(|claim| is_waiting(claim)).count();
        Self { round, closings: BTreeMap::new(), patience: replacement_patience(waiting) }
    }

    /// From when to when `node` stays for `reason`, or until it goes for its age.
    pub fn of(&mut self, node: &Node, claim: Option<&NodeClaim>, reason: &KeepReason) -> Span {
        let Some(claim) = claim else { return Span::default() };
        let now = self.round.now;
        let mut span = self.of_reason(node, claim, reason);
        span.since = span.since.filter(|since| *since <= now);
        if claim.deleted.is_none() && !is_waiting(claim) {
            let cluster = &self.round.cluster;
            let pool = claim.pool().and_then(|name| cluster.pools.get(&name));
            let too_old = expiration::goes_at(cluster, claim, now);
            let of_age = pool.and_then(|pool| renewal::due(pool, claim));
            span.until = span.until.into_iter().chain(too_old).chain(of_age).filter(|at| now < *at).min();
        }
        span
    }

    fn of_reason(&mut self, node: &Node, claim: &NodeClaim, reason: &KeepReason) -> Span {
        let round = self.round;
        let true_since = |kind| claim.conditions.true_since(kind);
        let Some(pool) = claim.pool().and_then(|name| round.cluster.pools.get(&name)) else {
            return Span::default();
        };
        if let Some(limited) = reason.limited {
            return self.limited(claim, pool, limited);
        }
        match reason.code {
            "Deleting" => {
                let ending = true_since(ConditionType::InstanceTerminating);
                Span::new([claim.deleted, node.deleted, ending].into_iter().flatten().min(), None)
            }
            "BeingDisrupted" => {
                let begun = true_since(ConditionType::DisruptionReason);
                Span::new(begun, begun.and_then(|begun| begun.checked_add(self.patience).ok()))
            }
            "NotInitialized" => Span::new(claim.created, None),
            "Nominated" => Span::new(None, round.nominated.get(&node.name).copied().flatten()),
            "PodDoNotDisrupt" => {
                let mut pods = round.cluster.pods_of(node.name);
                pods.find(|pod| is_protected(pod, round.now))
                    .map_or_else(Span::default, |pod| protected(pod, round.now))
            }
            "NotConsolidatable" => Span::new(marking::quiet_since(claim), marking::quiet_at(pool, claim)),
            "ReturnsLater" => returning::waits(pool, claim)
                .map_or_else(Span::default, |(begun, due)| Span::new(Some(begun), Some(due))),
            // The shortage that ends first may be the one.
            "SoldOutLately" => Span::new(None, round.doubted.values().min().copied()),
            "MovedInVain" => Span::new(None, removal::regretted(round, node.name).map(|(_, until)| until)),
            "RollHalted" | "RollUnreadable" => {
                let unhealthy = pool.conditions.get(PoolCondition::RollHealthy);
                let unhealthy = unhealthy.filter(|known| known.status == ConditionStatus::False);
                Span::new(unhealthy.and_then(|known| known.since), None)
            }
            "RollBackingOff" | "RollSoaking" => match roll::standing(round, pool) {
                Standing::Held { until, .. } => Span::new(None, until),
                Standing::Open(_) => Span::default(),
            },
            _ => Span::default(),
        }
    }

    /// A node whose pool lets none go for `reason`: since both were so.
    fn limited(&mut self, claim: &NodeClaim, pool: &NodePool, reason: DisruptionReason) -> Span {
        let round = self.round;
        let closing = *self.closings.entry((pool.name, reason)).or_insert_with(|| {
            round.allowances(reason).get(&pool.name).map_or_else(Span::default, |allowance| {
                let since = budgets::closed_since(pool, reason, round.now);
                Span::new(since, budgets::opens(pool, reason, allowance, round.now))
            })
        });
        let wished = match reason {
            // What is marked in this picture may have been so before.
            DisruptionReason::Drifted => {
                claim.conditions.true_since(ConditionType::Drifted).filter(|since| *since < round.now)
            }
            DisruptionReason::Expired => renewal::due(pool, claim).or_else(|| expiration::due(claim)),
            _ => marking::quiet_at(pool, claim),
        };
        Span::new(closing.since.zip(wished).map(|(closed, wished)| closed.max(wished)), closing.until)
    }
}

/// A time that a pod asks for begins with the pod.
fn protected(pod: &Pod, now: Timestamp) -> Span {
    match protection(pod, now) {
        Some(Protection::Until(Some(end))) => Span::new(pod.started, Some(end)),
        _ => Span::default(),
    }
}

/// What has to happen before a node that stays for the reason `code` may go, for people; time aside.
pub fn awaited(code: &str) -> &'static str {
    match code {
        "NotManaged" => "a NodeClaim belongs to it",
        "BeingDisrupted" => "its replacement is ready, or is given up",
        "Deleting" => "its pods have left and its machine is gone",
        "NotInitialized" => "it is initialized",
        "Nominated" | "PodsExpected" => "the pods that it is kept for run, or are planned elsewhere",
        "DoNotDisrupt" => "its annotation karpenter.sh/do-not-disrupt is taken off",
        "NoPoolLabel" => "it has the label karpenter.sh/nodepool",
        "PoolNotFound" => "its NodePool is there and has something to buy",
        "PodDoNotDisrupt" => "the pod ends or protects itself no longer",
        "PodDisruptionBudget" => "the PodDisruptionBudget allows an eviction",
        "PodDisruptionBudgets" => "the pod has one PodDisruptionBudget only",
        "BudgetExhausted" => "other nodes are back or gone, or a budget allows more",
        "OutsideWindow" => "a window opens",
        "ExpirationUnreadable" => "the annotation provisor.dev/expiration of its pool can be read",
        "StaticPool" => "its pool wants fewer nodes, or other ones",
        "InstanceTypeNotFound" => "its pool offers its instance type again",
        "LabelMissing" => "it has the label",
        "ConsolidationDisabled" => "its pool sets another consolidateAfter",
        "PolicyWhenEmpty" => "its pods are gone, or its pool sets another consolidationPolicy",
        "NotConsolidatable" => "its pods have been quiet for long enough",
        "BufferPods" => "the room is kept elsewhere, or no longer wanted",
        "RollPaused" => "the pool's roll goes on",
        "RollHalted" => "the pool or its class asks for something else, or the halt is lifted",
        "RollUnreadable" => "the annotation of its pool can be read",
        "RollBackingOff" => "the pool's pause after a try that failed is over",
        "RollSoaking" => "the new nodes have proved themselves",
        "SurgeReached" => "nodes that were replaced are gone",
        "ScalingDown" => "its pool has as few nodes as it wants",
        "LimitReached" => "the pool's limits leave room for what comes first",
        "NoOfferingAvailable" => "something that its pool asks for is available",
        "ReturnsLater" => "it has been what it is for long enough",
        "NothingPreferred" => "what its pool prefers is to be had for less",
        "MovedInVain" => "it is long enough ago",
        "SoldOutLately" => "what was sold out may be asked for again",
        "SpotToSpotDisabled" => "the gate SpotToSpotConsolidation is opened",
        "OthersFirst" => "the nodes that go first are gone",
        _ => "pods, nodes, pools or prices change",
    }
}
