//! A machine that the cloud takes back with notice: each of its pods stays until there is room for it elsewhere that is ready, or
//! until what is left of the notice is needed for the pod to end.
//!
//! That a node waits so is on its claim for everybody to see, as the reason of the condition `Drained`: a successor goes on waiting.

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::capacity::lifecycle::{could_take_pods, is_closed};
use crate::capacity::plans::Plans;
use crate::capacity::scheduling::Place;
use crate::model::claim::{ConditionStatus, ConditionType, Conditions};
use crate::model::node::Node;
use crate::model::pod::Pod;
use crate::model::taint::Taint;

/// Why nothing is evicted yet.
pub(crate) const AWAITING: &str = "AwaitingReplacement";

/// EC2 takes spot machines, and those of interruptible reservations, back after two minutes. Nobody waits longer where more time is left.
const NOTICE: SignedDuration = SignedDuration::from_mins(2);
/// So long before it would be deleted past its budgets a pod is asked to go.
const HEADROOM: SignedDuration = SignedDuration::from_secs(15);

/// The drain of a machine with these conditions waits for the places of its pods.
pub(crate) fn begin(conditions: &mut Conditions, now: Timestamp) {
    conditions.set(ConditionType::Drained, ConditionStatus::Unknown, AWAITING, "", now);
}

/// How long the pods of one node stay.
pub(super) struct Period<'a> {
    cluster: &'a Cluster,
    plans: &'a Plans,
    /// By when they have to be gone.
    ends: Timestamp,
}

impl<'a> Period<'a> {
    /// Of a claim with `conditions` whose node has to be gone by `deadline`; `None` if its drain does not wait.
    pub fn of(
        cluster: &'a Cluster,
        plans: &'a Plans,
        conditions: &Conditions,
        deadline: Option<Timestamp>,
    ) -> Option<Self> {
        let drained =
            conditions.get(ConditionType::Drained).filter(|drained| drained.reason.as_str() == AWAITING)?;
        let ends = drained.since? + NOTICE;
        Some(Self { cluster, plans, ends: deadline.map_or(ends, |deadline| deadline.min(ends)) })
    }

    /// Until when `pod` stays; `None` if it may go now.
    pub fn stays_until(&self, pod: &Pod, now: Timestamp) -> Option<Timestamp> {
        let grace = SignedDuration::from_secs(i64::from(pod.shape.termination_grace_seconds));
        let latest = self.ends.checked_sub(grace + HEADROOM).unwrap_or(Timestamp::MIN);
        (now < latest && pod.deleted.is_none() && !self.has_room_elsewhere(pod)).then_some(latest)
    }

    fn has_room_elsewhere(&self, pod: &Pod) -> bool {
        let Some(planned) = self.plans.places().get(&pod.key) else { return false };
        let takes_pods = |node: &Node| {
            let is_leaving =
                node.deleted.is_some() || node.taints.iter().any(|taint| taint.is_same(&Taint::disrupted()));
            !is_leaving && !is_closed(node) && could_take_pods(node)
        };
        match planned.place {
            Place::Node(node) => self.cluster.nodes.get(&node).is_some_and(|node| takes_pods(node)),
            Place::Claim(claim) => self.cluster.claims.get(&claim).is_some_and(|claim| {
                let is_initialized = claim.conditions.is_true(ConditionType::Initialized);
                is_initialized && self.cluster.node_of(claim).is_some_and(|node| takes_pods(node))
            }),
        }
    }
}
