//! Nodes that are sick for too long are replaced, whatever budgets and pods say: they do not serve anybody. Where many are sick
//! at once the cause is elsewhere, in the network, an image or an agent, and replacing them would only take away what still runs.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::decision::Steps;
use crate::model::action::{Action, ClaimChange, Notice, Subject};
use crate::model::label::{self, Labels, annotation};
use crate::model::node::Node;
use crate::model::symbol::Symbol;

/// A condition that makes a node sick, and how long that is borne.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    pub condition: &'static str,
    pub status: &'static str,
    pub patience: SignedDuration,
}

impl Policy {
    const fn of(condition: &'static str, status: &'static str, minutes: i64) -> Self {
        Self { condition, status, patience: SignedDuration::from_mins(minutes) }
    }
}

/// As in Karpenter's AWS provider: what kubelets say, and what the node monitoring agent of EKS does.
pub const POLICIES: [Policy; 7] = [
    Policy::of("Ready", "False", 30),
    Policy::of("Ready", "Unknown", 30),
    Policy::of("AcceleratedHardwareReady", "False", 10),
    Policy::of("StorageReady", "False", 30),
    Policy::of("NetworkingReady", "False", 30),
    Policy::of("KernelReady", "False", 30),
    Policy::of("ContainerRuntimeReady", "False", 30),
];

/// Of a pool, or of the whole cluster for machines without one, so many may be sick; more have another cause.
const SICK_PERCENT_MAX: usize = 20;
/// When nodes that are too many are looked at again.
const BLOCKED_FOR: SignedDuration = SignedDuration::from_mins(5);

/// The sickness of `node` that will first have lasted too long, and when.
pub fn first_due(node: &Node) -> Option<(Timestamp, Policy)> {
    let due = node.conditions.iter().filter_map(|condition| {
        let policy = POLICIES
            .iter()
            .find(|policy| *condition.kind == *policy.condition && *condition.status == *policy.status)?;
        Some((condition.since?.checked_add(policy.patience).ok()?, *policy))
    });
    due.min_by_key(|(at, _)| *at)
}

/// Replaces `node` if it is sick for too long.
pub(crate) fn advance(cluster: &Cluster, node: &Node, now: Timestamp, steps: &mut Steps) {
    let Some(claim) = cluster.claim_of(node) else { return };
    let Some((due, policy)) = first_due(node) else { return };
    if now < due {
        return steps.wake(due);
    }
    let agreed: Option<Timestamp> =
        claim.annotations.get(&*annotation::TERMINATION_TIMESTAMP).and_then(|text| text.parse().ok());
    let is_hurried = agreed.is_some_and(|agreed| agreed <= now);
    if is_hurried && claim.deleted.is_some() {
        return;
    }
    let pool = claim.labels.get(&*label::NODEPOOL).copied();
    let is_beside =
        |other: &&Arc<Node>| pool.is_none() || other.labels.get(&*label::NODEPOOL) == pool.as_ref();
    let all = cluster.nodes.values().filter(is_beside);
    let (count, sick) =
        all.fold((0, 0), |(count, sick), other| (count + 1, sick + usize::from(first_due(other).is_some())));
    if sick > (count * SICK_PERCENT_MAX).div_ceil(100) {
        let whose = pool.map_or("the cluster".into(), |pool| format!("pool {pool}"));
        let message = format!(
            "{sick} of {count} nodes of {whose} are sick, more than {SICK_PERCENT_MAX}%, so none is repaired; \
             look for what they have in common"
        );
        let pool = claim.pool().map(Subject::Pool);
        for subject in [Some(Subject::Node(node.name)), Some(Subject::Claim(claim.name)), pool] {
            let Some(subject) = subject else { continue };
            let notice = Notice {
                subject,
                is_warning: true,
                reason: "NodeRepairBlocked".into(),
                message: message.as_str().into(),
            };
            steps.push(Action::Publish(notice), "NodeRepairBlocked", message.clone());
        }
        return steps.wake(now + BLOCKED_FOR);
    }
    let minutes = policy.patience.as_mins();
    let message = format!("its condition {} is {} for {minutes} minutes", policy.condition, policy.status);
    if !is_hurried {
        let annotations = Labels::from([(*annotation::TERMINATION_TIMESTAMP, Symbol::new(&now.to_string()))]);
        let change = ClaimChange { annotations, ..ClaimChange::default() };
        steps.push(Action::UpdateClaim { claim: claim.name, change }, "Unhealthy", message.clone());
    }
    if claim.deleted.is_none() {
        steps.push(Action::DeleteClaim { claim: claim.name }, "Unhealthy", message);
    }
}
