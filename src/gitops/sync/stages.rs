//! In which order a plan is carried out, what of it is left out, and what each stage waits for.
//!
//! Writes come first, wave by wave, then removals, wave by wave as well. A stage begins once all of the environment that belongs to
//! earlier ones is as the commit wants it and ready, whoever wrote it and whenever: so no process has to remember what it waited for.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::operation::{Initiator, Operation};
use super::{Sync, SyncReason, reason};
use crate::gitops::desired::ObjectRef;
use crate::gitops::live::{LiveObject, LiveState, Readiness, class_of};
use crate::gitops::plan::{PlannedChange, Settled, SyncPlan, Verdict};

/// Whether it removes, and the wave.
pub(super) type Stage = (bool, i32);

pub(super) fn stage_of(change: &PlannedChange) -> Stage {
    (change.action.is_removal(), change.wave)
}

/// Whether all that `plan` writes may be written.
pub(super) fn writes_all(plan: &SyncPlan) -> bool {
    plan.changes.iter().all(|change| change.action.is_removal() || change.verdict == Verdict::Proceed)
}

/// The first of what is `settled` in earlier stages than the first of `ahead`, or was `done` before it, that is not ready, in
/// words. `generation`: how new the news of an object has to be.
pub(super) fn unready(
    live: &LiveState,
    settled: &[Settled],
    done: &[&PlannedChange],
    ahead: &[&PlannedChange],
    generation: impl Fn(&ObjectRef) -> i64,
) -> Option<String> {
    let next = stage_of(ahead.first()?);
    let settled =
        settled.iter().filter(|settled| (false, settled.wave) < next).map(|settled| &settled.object);
    let done = done.iter().filter(|change| !change.action.is_removal() && stage_of(change) < next);
    let mut objects = settled.chain(done.map(|change| &change.object));
    objects.find_map(|object| {
        let found = live.objects.get(object).filter(|found| found.generation() >= generation(object));
        let is_mended =
            || found.is_some_and(|found| ahead.iter().any(|change| mends(change, &found.manifest)));
        // Nobody may judge overlays (a feature gate), and one that is in conflict with another may wait for its removal.
        if &*object.kind == "NodeOverlay" || is_mended() {
            return None;
        }
        match found.map(|found| found.readiness()) {
            Some(Readiness::Ready) => None,
            Some(Readiness::NotReady(why)) => Some(format!("{object} is not ready ({why})")),
            Some(Readiness::Unobserved) | None => Some(format!("{object} is not ready yet")),
        }
    })
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
        let changes = plan.changes.iter();
        let last =
            if only.is_empty() { changes.filter(|one| is_held(one)).map(stage_of).min() } else { None };
        let changes = plan.changes.iter().enumerate().filter(|(_, change)| {
            change.verdict == Verdict::Proceed
                && !is_refused(change)
                && (only.is_empty() || only.contains(&change.object))
                && last.is_none_or(|last| stage_of(change) <= last)
        });
        changes.map(|(index, _)| index).collect()
    }

    /// Why nothing of `plan` can be done.
    pub(super) fn held_up(&self, plan: &SyncPlan) -> Vec<SyncReason> {
        let refused = self.chain.refused.iter();
        let refused = refused.map(|(object, why)| reason("Rejected", format!("{object}: {why}")));
        let held = plan.changes.iter().filter(|change| !change.action.is_removal());
        let held = held.filter_map(|change| {
            let code = change.verdict.code()?;
            Some(reason(code.as_str(), format!("{}: {}", change.object, change.verdict.message())))
        });
        refused.chain(held).collect()
    }

    /// Whether what `steps` of `plan` have to wait for is ready.
    pub(super) fn is_ready_for(&self, now: Timestamp, plan: &Arc<SyncPlan>, steps: Vec<usize>) -> bool {
        let operation = Operation::new(0, plan.clone(), Initiator::Automation, steps, now);
        operation.unready(self.live.as_ref()).is_none()
    }

    /// Whether somebody undid what the running operation waits for: it is written again by another, and waited for then.
    pub(super) fn is_undone(&mut self, now: Timestamp) -> bool {
        let Some(operation) = &mut self.operation else { return false };
        let may_look = operation.is_answered() && *operation.initiator() == Initiator::Automation;
        if !may_look || !std::mem::take(&mut operation.is_disturbed) {
            return false;
        }
        let Some(plan) = self.refresh_plan(now) else { return false };
        let (Some(operation), Some(live)) = (&mut self.operation, &self.live) else { return false };
        let is_undone = plan.proceeding().any(|change| operation.waits_for_again(change, live));
        if is_undone {
            operation.end("what it waits for has to be written again");
        }
        is_undone
    }
}
