//! In which order a plan is carried out, what of it is left out, and what each stage waits for.
//!
//! Writes come first, wave by wave, then removals, wave by wave as well. A stage begins once all of the environment that belongs to
//! earlier ones is as the commit wants it and ready, whoever wrote it and whenever: so no process has to remember what it waited for.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::operation::{Initiator, Operation};
use super::{Sync, SyncDecision, reason};
use crate::gitops::desired::{ObjectRef, class_of};
use crate::gitops::live::{LiveObject, LiveState, Readiness};
use crate::gitops::plan::{PlannedChange, Settled, SyncPlan, Verdict, guard};
use crate::gitops::policy::SyncMode;

/// Whether it removes, and the wave: removals go from the highest to the lowest.
pub(super) type Stage = (bool, i32);

pub(super) fn stage_of(change: &PlannedChange) -> Stage {
    match change.action.is_removal() {
        true => (true, change.wave.saturating_neg()),
        false => (false, change.wave),
    }
}

/// Whether all that `plan` writes may be written.
pub(super) fn writes_all(plan: &SyncPlan) -> bool {
    plan.changes.iter().all(|change| change.action.is_removal() || change.verdict == Verdict::Proceed)
}

/// The first of what is `settled` in earlier stages than `next`, or was `done` before it, that is not ready and that nothing `ahead` mends, in
/// words. `is_news`: whether what is known of an object is of what was written.
pub(super) fn unready(
    live: &LiveState,
    next: Stage,
    settled: &[Settled],
    done: &[&PlannedChange],
    ahead: &[&PlannedChange],
    is_news: impl Fn(&ObjectRef, &LiveObject) -> bool,
) -> Option<String> {
    let settled =
        settled.iter().filter(|settled| (false, settled.wave) < next).map(|settled| &settled.object);
    let done = done.iter().filter(|change| !change.action.is_removal() && stage_of(change) < next);
    let mut objects = settled.chain(done.map(|change| &change.object));
    objects.find_map(|object| {
        let found = live.objects.get(object).filter(|found| is_news(object, found));
        let is_mended =
            || found.is_some_and(|found| ahead.iter().any(|change| mends(change, &found.manifest)));
        if !is_waited_for(object, found) || is_mended() {
            return None;
        }
        match found.map(|found| found.readiness()) {
            Some(Readiness::Ready) => None,
            Some(Readiness::NotReady(why)) => Some(format!("{object} is not ready ({why})")),
            Some(Readiness::Unobserved) | None => Some(format!("{object} is not ready yet")),
        }
    })
}

/// Nobody may judge overlays (a feature gate), and one that is in conflict with another may wait for its removal. Pools whose machines
/// others sell are judged by others, if by anybody.
fn is_waited_for(object: &ObjectRef, found: Option<&LiveObject>) -> bool {
    let class = || found?.manifest.pointer("/spec/template/spec/nodeClassRef/kind")?.as_str();
    match &*object.kind {
        "NodeOverlay" => false,
        "NodePool" => class().is_none_or(|kind| kind == "EC2NodeClass"),
        _ => true,
    }
}

/// Whether a pool, which may wait for its class, cannot be waited for before `change`.
fn mends(change: &PlannedChange, pool: &serde_json::Value) -> bool {
    let is_written = !change.action.is_removal() && &*change.object.kind == "EC2NodeClass";
    is_written && class_of(pool) == Some(&*change.object.name)
}

impl Sync {
    /// What an object's own controller said of it last, as far as it was told here; `None`: there is no such object.
    pub(crate) fn readiness_of(&self, object: &ObjectRef) -> Option<Readiness> {
        self.live.as_ref()?.objects.get(object).map(LiveObject::readiness)
    }

    /// The steps of `plan` that may be taken now, of all or of `only` some objects that are healed. What is refused or held is left
    /// out, and with it whatever comes in later stages, but for what is healed.
    pub(super) fn steps(&self, plan: &SyncPlan, only: &BTreeSet<ObjectRef>) -> Vec<usize> {
        let is_refused = |change: &PlannedChange| self.chain.refused.contains_key(&change.object);
        let is_held = |change: &PlannedChange| match change.verdict {
            Verdict::Proceed => is_refused(change),
            // Nothing comes after what stays.
            _ => !change.action.is_removal(),
        };
        let live = self.live.as_ref();
        let is_leftover = |change: &PlannedChange| {
            guard::is_leftover(change, live.and_then(|live| live.objects.get(&change.object)))
        };
        let changes = plan.changes.iter();
        let last =
            if only.is_empty() { changes.filter(|one| is_held(one)).map(stage_of).min() } else { None };
        let changes = plan.changes.iter().enumerate().filter(|(_, change)| {
            change.verdict == Verdict::Proceed
                && !is_refused(change)
                && (only.is_empty() || only.contains(&change.object))
                && (last.is_none_or(|last| stage_of(change) <= last) || is_leftover(change))
        });
        changes.map(|(index, _)| index).collect()
    }

    /// Says what of `plan` cannot be done, why, and which of it waits for a person.
    pub(super) fn tell_held(&self, plan: &SyncPlan, decision: &mut SyncDecision) {
        let is_in_it = |object: &ObjectRef| plan.changes.iter().any(|change| change.object == *object);
        for (object, why) in self.chain.refused.iter().filter(|(object, _)| is_in_it(object)) {
            decision.reasons.push(reason("Rejected", format!("{object}: {why}")));
        }
        for change in &plan.changes {
            let Some(code) = change.verdict.code() else { continue };
            // What is held back must not read as if it were done.
            let held = match &change.verdict {
                Verdict::Refused { .. } => "refused to",
                Verdict::NeedsConfirmation { .. } => "asks before it may",
                Verdict::Waits { .. } | Verdict::Proceed => "waits to",
            };
            let (action, why) = (change.action.as_str(), change.verdict.message());
            let mut what = format!("{held} {action} {}: {why}", change.object);
            match &change.verdict {
                // What is confirmed is this plan and no other.
                Verdict::NeedsConfirmation { .. } => {
                    what.push_str(&format!("; this is plan {}", plan.hash.short()));
                    decision.awaits = Some(plan.hash.clone());
                }
                Verdict::Refused { help, .. } => what.push_str(&format!("; {help}")),
                Verdict::Waits { .. } | Verdict::Proceed => {}
            }
            decision.reasons.push(reason(code.as_str(), what));
        }
        let may_go = self.steps(plan, &BTreeSet::new());
        let waits = |index: &usize, change: &PlannedChange| {
            change.verdict == Verdict::Proceed
                && !may_go.contains(index)
                && !self.chain.refused.contains_key(&change.object)
        };
        let waiting = plan.changes.iter().enumerate().filter(|(index, change)| waits(index, change));
        for (_, change) in waiting {
            let what = format!(
                "waits to {} {}: what comes before it is held",
                change.action.as_str(),
                change.object
            );
            decision.reasons.push(reason("HeldUp", what));
        }
    }

    /// Whether nothing that the first of the `fresh` steps of `plan` comes after is to be written again, or not ready.
    pub(super) fn is_ready_for(&self, now: Timestamp, plan: &Arc<SyncPlan>, fresh: Vec<usize>) -> bool {
        let first = |steps: &[usize]| steps.first().map(|step| stage_of(&plan.changes[*step]));
        if first(&self.steps(plan, &BTreeSet::new())) != first(&fresh) {
            return false;
        }
        let operation = Operation::new(0, plan.clone(), Initiator::Automation, fresh, now);
        operation.unready(self.live.as_ref()).is_none()
    }

    /// Whether all that is as `plan` wants it is ready.
    pub(super) fn is_all_ready(&self, plan: &SyncPlan) -> bool {
        let last = (true, i32::MAX);
        self.live
            .as_ref()
            .is_some_and(|live| unready(live, last, &plan.settled, &[], &[], |_, _| true).is_none())
    }

    /// Looks whether somebody undid what the running operation wrote or found as it should be, before that counts. Whether it is to be
    /// planned anew, with what has to be written again: ever more slowly, and not for ever.
    pub(super) fn is_undone(&mut self, now: Timestamp) -> bool {
        let Some(operation) = self.operation.as_ref().filter(|operation| operation.is_before_a_stage())
        else {
            return false;
        };
        // Healing has a pause of its own, and waits for nobody.
        if *operation.initiator() == Initiator::SelfHeal {
            return false;
        }
        let is_disturbed = operation.is_disturbed;
        if is_disturbed && let Some(plan) = self.refresh_plan(now) {
            let (Some(operation), Some(live)) = (&mut self.operation, &self.live) else { return false };
            operation.is_disturbed = false;
            let mut undone = plan.changes.iter().filter(|change| operation.is_undone_by(change, live));
            operation.undone = undone.next().map(|change| change.object.clone());
        }
        let Some(operation) = self.operation.as_mut().filter(|operation| operation.undone.is_some()) else {
            return false;
        };
        let ends = match (operation.initiator(), self.policy.mode) {
            (Initiator::Automation, SyncMode::AutoHeal) => self.chain.may_begin_anew(now),
            (Initiator::Automation | Initiator::SelfHeal, _) => false,
            // What they said yes to is no more.
            (Initiator::Person { .. }, _) => true,
        };
        if ends {
            operation.end("what it waits for has to be written again");
        }
        ends
    }
}
