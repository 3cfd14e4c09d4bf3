//! The cloud takes a machine back, or says that it fails: it is drained before its time is up, and what it was bought as is
//! not bought again for a while.

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::capacity::decision::Steps;
use crate::capacity::shortages::Shortages;
use crate::model::action::{Action, ClaimChange, NodeChange, Notice, Subject};
use crate::model::claim::{ConditionStatus, ConditionType, NodeClaim};
use crate::model::label::{self, Labels, annotation};
use crate::model::name::{TypeName, Zone};
use crate::model::observation::InterruptionNotice;
use crate::model::offering::CapacityType;
use crate::model::pool::DisruptionReason;
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;

/// How long an offering that lost a machine is not bought again: three minutes, as in Karpenter.
pub const SHORTAGE: SignedDuration = SignedDuration::from_mins(3);

/// A machine whose drain is under way already is taken back: what protects its pods ends in time all the same.
pub(crate) fn hurry(claim: &NodeClaim, notice: InterruptionNotice, now: Timestamp, steps: &mut Steps) {
    let Some(deadline) = deadline_of(notice, now).and_then(|deadline| sooner(claim, deadline)) else {
        return;
    };
    let annotations =
        Labels::from([(*annotation::TERMINATION_TIMESTAMP, Symbol::new(&deadline.to_string()))]);
    let change = ClaimChange { annotations, ..ClaimChange::default() };
    let message = format!("the cloud takes its machine back, so it has to be gone by {deadline}");
    let code = DisruptionReason::Interrupted.as_str();
    steps.push(Action::UpdateClaim { claim: claim.name, change }, code, message);
}

/// By when the machine is of no use any more.
fn deadline_of(notice: InterruptionNotice, now: Timestamp) -> Option<Timestamp> {
    match notice {
        InterruptionNotice::SpotReclaim { at } => Some(at),
        InterruptionNotice::StatusCheckFailed => Some(now),
        _ => None,
    }
}

/// `deadline`, if `claim` has none that comes before it: a deadline is never put off.
fn sooner(claim: &NodeClaim, deadline: Timestamp) -> Option<Timestamp> {
    let agreed = claim.annotations.get(&*annotation::TERMINATION_TIMESTAMP);
    let agreed: Option<Timestamp> = agreed.and_then(|text| text.parse().ok());
    agreed.is_none_or(|agreed| deadline < agreed).then_some(deadline)
}

/// What is done about `notice` for the machine of `claim`.
pub(crate) fn respond(
    cluster: &Cluster,
    claim: &NodeClaim,
    notice: InterruptionNotice,
    shortages: &mut Shortages,
    now: Timestamp,
    steps: &mut Steps,
) {
    let (word, message) = match notice {
        InterruptionNotice::SpotReclaim { at } => {
            ("SpotInterrupted", format!("the cloud takes its machine back at {at}"))
        }
        InterruptionNotice::RebalanceRecommendation => {
            ("SpotRebalanceRecommendation", "its spot machine is at elevated risk".into())
        }
        InterruptionNotice::StateChange => ("InstanceStopping", "its machine is stopping".into()),
        InterruptionNotice::ScheduledChange => {
            ("InstanceUnhealthy", "the cloud has scheduled maintenance for its machine".into())
        }
        InterruptionNotice::StatusCheckFailed => {
            ("InstanceUnhealthy", "its machine fails the cloud's own checks".into())
        }
    };
    let is_advice = notice == InterruptionNotice::RebalanceRecommendation;
    let subjects =
        [Some(Subject::Claim(claim.name)), cluster.node_of(claim).map(|node| Subject::Node(node.name))];
    for subject in subjects.into_iter().flatten() {
        let notice = Notice {
            subject,
            is_warning: !is_advice,
            reason: Symbol::new(word),
            message: message.as_str().into(),
        };
        steps.push(Action::Publish(notice), word, message.clone());
    }
    if is_advice {
        return;
    }
    if matches!(notice, InterruptionNotice::SpotReclaim { .. }) {
        let of = |key| claim.labels.get(&key).copied();
        if let (Some(kind), Some(zone)) = (of(*label::INSTANCE_TYPE), of(*label::ZONE)) {
            shortages.note((TypeName(kind), Zone(zone), CapacityType::Spot), now + SHORTAGE);
        }
    }
    drain(cluster, claim, deadline_of(notice, now), &message, now, steps);
}

/// Taints the node at once, so that nothing new lands there, and asks for the claim's end with a deadline.
fn drain(
    cluster: &Cluster,
    claim: &NodeClaim,
    deadline: Option<Timestamp>,
    message: &str,
    now: Timestamp,
    steps: &mut Steps,
) {
    let code = DisruptionReason::Interrupted.as_str();
    if let Some(node) = cluster.node_of(claim).filter(|node| node.deleted.is_none()) {
        let change = NodeChange { add_taints: vec![Taint::disrupted()], ..NodeChange::default() };
        steps.push(Action::UpdateNode { node: node.name, change }, code, message);
    }
    let mut conditions = claim.conditions.clone();
    conditions.set(ConditionType::DisruptionReason, ConditionStatus::True, code, code, now);
    let mut annotations = Labels::new();
    if let Some(deadline) = deadline.and_then(|deadline| sooner(claim, deadline)) {
        annotations.insert(*annotation::TERMINATION_TIMESTAMP, Symbol::new(&deadline.to_string()));
    }
    let change = ClaimChange { annotations, conditions: Some(conditions), ..ClaimChange::default() };
    steps.push(Action::UpdateClaim { claim: claim.name, change }, code, message);
    steps.push(Action::DeleteClaim { claim: claim.name }, code, message);
}
