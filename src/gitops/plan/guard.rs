//! Rules about a plan as a whole: how much at once, when, and whether the render can be believed.

use super::removal::removed_nodes;
use super::{ChangeAction, PlanInput, PlannedChange, RenderProof, Verdict, VerdictCode};
use crate::gitops::diff::NodeImpact;
use crate::gitops::live::LiveObject;
use crate::gitops::policy::{Blast, SyncPolicy, blast_excess};
use crate::gitops::tracking::{ANNOTATION_RETIRE, Owner, Ownership, ownership};
use crate::gitops::window::{Answer, Question};
use crate::model::count::counted;

/// Asks a person when more nodes would be replaced than the policy lets one plan replace.
pub(super) fn limit_rolls(policy: &SyncPolicy, writes: &mut [PlannedChange]) {
    let Some(limit) = policy.limits.roll_nodes_max else { return };
    let rolls = |change: &PlannedChange| match change.impact {
        NodeImpact::Rolls { nodes } | NodeImpact::MayRoll { nodes } => nodes.unwrap_or(0),
        _ => 0,
    };
    let total: u32 = writes.iter().filter(|change| change.verdict == Verdict::Proceed).map(rolls).sum();
    if total <= limit {
        return;
    }
    for change in writes.iter_mut().filter(|change| change.verdict == Verdict::Proceed && rolls(change) > 0) {
        let message = format!("the plan rolls {}; the limit is {limit}", counted(total, "node"));
        change.verdict = Verdict::confirm(VerdictCode::RollNeedsConfirmation, message);
    }
}

/// Asks a person when all removals together are too many. A pool whose emptying was agreed to before is not counted again.
pub(super) fn limit_removals(input: &PlanInput<'_>, owner: &Owner, removals: &mut [PlannedChange]) {
    let is_new = |change: &PlannedChange| {
        let is_retiring = input
            .live
            .objects
            .get(&change.object)
            .is_some_and(|live| live.annotation(ANNOTATION_RETIRE).is_some());
        !is_retiring && matches!(change.verdict, Verdict::Proceed | Verdict::NeedsConfirmation { .. })
    };
    let mut blast = Blast::default();
    for change in removals.iter().filter(|change| is_new(change)) {
        blast.pools += u32::from(&*change.object.kind == "NodePool");
        blast.nodes += removed_nodes(change);
        if &*change.object.kind == "NodePool" {
            let nodes = input.live.fleet.nodes_of(&change.object.name);
            blast.cpu_millis += nodes.iter().map(|node| node.cpu_millis).sum::<u64>();
        }
    }
    let pools_total = input
        .live
        .objects
        .iter()
        .filter(|(object, live)| {
            &*object.kind == "NodePool" && ownership(owner, object, live) == Ownership::Ours
        })
        .count();
    let pools_total = u32::try_from(pools_total).unwrap_or(u32::MAX);
    let Some(excess) = blast_excess(&blast, pools_total, &input.live.fleet, &input.policy.limits) else {
        return;
    };
    for change in removals.iter_mut().filter(|change| is_new(change)) {
        if change.verdict == Verdict::Proceed {
            let message = format!("the plan {excess}");
            change.verdict = Verdict::confirm(VerdictCode::PruneNeedsConfirmation, message);
        }
    }
}

/// Two renders of one commit that differ mean that neither can be believed: nothing is written.
pub(super) fn refuse_unstable_render(input: &PlanInput<'_>, changes: &mut [PlannedChange]) {
    let RenderProof::Twice { digest } = &input.proof else { return };
    if *digest == input.desired.digest {
        return;
    }
    for change in changes {
        change.verdict = Verdict::refused(
            VerdictCode::NonDeterministicRender,
            "two renders of the same commit differ",
            "make the templates depend on the commit alone",
        );
    }
}

/// Turns what was confirmed into steps, and holds back what a window or read-only mode forbids now.
pub(super) fn settle(input: &PlanInput<'_>, is_confirmed: bool, changes: &mut [PlannedChange]) {
    for change in changes {
        if is_confirmed && matches!(change.verdict, Verdict::NeedsConfirmation { .. }) {
            change.reasons.push(format!("confirmed: {}", change.verdict.message()));
            change.verdict = Verdict::Proceed;
        }
        if change.verdict != Verdict::Proceed {
            continue;
        }
        if input.policy.read_only {
            let help = "take `spec.sync.readOnly` off the Environment to apply it";
            change.verdict = Verdict::refused(VerdictCode::ReadOnly, "this installation only reads", help);
            continue;
        }
        if is_leftover(change, input.live.objects.get(&change.object)) {
            continue;
        }
        let question = Question {
            environment: &input.desired.environment,
            pool: (&*change.object.kind == "NodePool").then_some(&*change.object.name),
            class: change.class,
            is_manual: input.is_manual,
            started: input.started,
        };
        if let Answer::Closed { why, until } = input.policy.ask_windows(&question, input.now) {
            change.verdict = Verdict::Waits { code: VerdictCode::WindowClosed, message: why, until };
        }
    }
}

/// Deleting a pool that was emptied takes nothing away any more: no window keeps it.
pub(in crate::gitops) fn is_leftover(change: &PlannedChange, live: Option<&LiveObject>) -> bool {
    let is_retired = live.is_some_and(|live| live.annotation(ANNOTATION_RETIRE).is_some());
    change.action == ChangeAction::Delete && change.affected.is_empty() && is_retired
}
