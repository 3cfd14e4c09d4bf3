//! The cloud takes a machine back, or says that it fails: it is drained before its time is up, and what it was bought as is
//! not bought again for a while.

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::capacity::decision::Steps;
use crate::capacity::shortages::Shortages;
use crate::capacity::termination;
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

/// Whether `claim` is on its way out, and as soon as `notice` has it.
pub(crate) fn is_agreed(claim: &NodeClaim, notice: InterruptionNotice) -> bool {
    let is_soon = match notice {
        InterruptionNotice::SpotReclaim { at } => sooner(claim, at).is_none(),
        // By when it was told of: the deadline is of that moment.
        InterruptionNotice::StatusCheckFailed => {
            claim.annotations.contains_key(&*annotation::TERMINATION_TIMESTAMP)
        }
        _ => true,
    };
    claim.deleted.is_some() && is_soon
}

/// By when the machine is of no use any more.
fn deadline_of(notice: InterruptionNotice, now: Timestamp) -> Option<Timestamp> {
    match notice {
        InterruptionNotice::SpotReclaim { at } => Some(at),
        InterruptionNotice::StatusCheckFailed => Some(now),
        _ => None,
    }
}

/// Whether the machine goes on running for a while, so that what takes its place can be there before its pods leave.
fn leaves_time(notice: InterruptionNotice) -> bool {
    use InterruptionNotice::{ReservationReclaim, ScheduledChange, SpotReclaim};
    matches!(notice, SpotReclaim { .. } | ReservationReclaim | ScheduledChange)
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
    now: Timestamp,
    steps: &mut Steps,
) {
    let (word, kind, message) = in_words(notice);
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
    if !is_advice {
        drain(cluster, claim, notice, (kind, &message), now, steps);
    }
}

/// The event that tells of `notice`, what kind of disruption it is for those who count, and a sentence.
fn in_words(notice: InterruptionNotice) -> (&'static str, &'static str, String) {
    match notice {
        InterruptionNotice::SpotReclaim { at } => {
            ("SpotInterrupted", "SpotInterrupted", format!("the cloud takes its machine back at {at}"))
        }
        InterruptionNotice::RebalanceRecommendation => {
            let word = "SpotRebalanceRecommendation";
            (word, word, "its spot machine is at elevated risk".into())
        }
        InterruptionNotice::StateChange => {
            ("InstanceStopping", "InstanceStopped", "its machine is stopping".into())
        }
        InterruptionNotice::Terminating => {
            ("InstanceTerminating", "InstanceTerminated", "its machine is being terminated".into())
        }
        InterruptionNotice::ScheduledChange => {
            let message = "the cloud has scheduled maintenance for its machine";
            ("InstanceUnhealthy", "ScheduledChange", message.into())
        }
        InterruptionNotice::ReservationReclaim => {
            let message = "the cloud takes back the capacity that was reserved for its machine";
            ("CapacityReservationInstanceInterrupted", "CapacityReservationInterrupted", message.into())
        }
        InterruptionNotice::StatusCheckFailed => {
            ("InstanceUnhealthy", "InstanceStatus", "its machine fails the cloud's own checks".into())
        }
    }
}

/// What a spot machine was bought as is short where one is taken back.
pub(crate) fn note_shortage(
    claim: &NodeClaim,
    notice: InterruptionNotice,
    shortages: &mut Shortages,
    now: Timestamp,
) {
    let of = |key| claim.labels.get(&key).copied();
    if let (InterruptionNotice::SpotReclaim { .. }, Some(kind), Some(zone)) =
        (notice, of(*label::INSTANCE_TYPE), of(*label::ZONE))
    {
        shortages.note((TypeName(kind), Zone(zone), CapacityType::Spot), now + SHORTAGE);
    }
}

/// Taints the node at once, so that nothing new lands there, and asks for the claim's end with a deadline; where there is time for it, its
/// pods wait for their new places.
fn drain(
    cluster: &Cluster,
    claim: &NodeClaim,
    notice: InterruptionNotice,
    (kind, message): (&'static str, &str),
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
    if leaves_time(notice) {
        termination::notice::begin(&mut conditions, now);
    }
    let mut annotations = Labels::new();
    if let Some(deadline) = deadline_of(notice, now).and_then(|deadline| sooner(claim, deadline)) {
        annotations.insert(*annotation::TERMINATION_TIMESTAMP, Symbol::new(&deadline.to_string()));
    }
    let change = ClaimChange { annotations, conditions: Some(conditions), ..ClaimChange::default() };
    steps.push(Action::UpdateClaim { claim: claim.name, change }, code, message);
    steps.push(Action::DeleteClaim { claim: claim.name }, kind, message);
}
