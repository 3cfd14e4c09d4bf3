//! The Git half as a value: `observe` what happened, `decide` what to do.
//!
//! No clock and no I/O: a driver tells it of commits, of the cluster and of results, asks what to do now, does that, and
//! comes back when something happens or at `wake_at`. One environment, one value; at most one operation at a time, and
//! within it one object at a time, so that a cancellation, a closing window or a lost lease stops before the next object.
//!
//! What a source or a render cannot say is never read as "nothing is wanted": the last good state stays wanted.

mod chain;
mod heal;
mod operation;
mod provisioner;
mod record;
mod stages;
mod status;
mod word;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::desired::{DesiredState, ObjectRef};
use super::live::{Fleet, Inventory, InventoryEntry, LiveObject, LiveState};
use super::plan::{
    ChangeAction, Consent, PlanHash, PlanInput, PlannedChange, RenderProof, SyncPlan, plan_sync,
};
use super::policy::{PruneMode, SyncMode, SyncPolicy};
use super::source::SourceNotice;
use super::tracking::Owner;
use crate::model::repository::Revision;
use chain::{Chain, Lack};
pub use chain::{RETRIES_MAX, RETRY_PAUSE, RETRY_PAUSE_MAX};
use heal::Healing;
pub use operation::{HistoryEntry, Initiator, ObjectReport, Phase};
use operation::{Operation, Step};
pub(super) use provisioner::may_change;
pub use status::{Condition, Health, Rollout, SyncState, SyncStatus};
use word::Word;

/// How long one write may take before the operation counts as interrupted.
pub const HEARTBEAT: SignedDuration = SignedDuration::from_secs(120);
/// Operations remembered.
pub const HISTORY_MAX: usize = 20;

/// Everything that the Git half can learn.
#[derive(Clone, Debug)]
pub enum GitEvent {
    /// A commit was fetched, verified and rendered without an error.
    Rendered {
        desired: Arc<DesiredState>,
        proof: RenderProof,
    },
    /// A commit was fetched, but cannot be used. What was wanted before stays wanted; nothing is written meanwhile.
    RenderFailed {
        revision: Revision,
        errors: Vec<String>,
    },
    /// The source did not answer. What was wanted before stays wanted and is kept up; nothing is removed meanwhile.
    FetchFailed {
        error: String,
    },
    /// The source answered, and what is read of it is as it was. `revision`: a newer commit, which touches nothing of it.
    Unchanged {
        revision: Option<Revision>,
    },
    /// The source has a head that may not be followed without a person's word. What was wanted before stays wanted and is
    /// kept up; nothing is removed meanwhile.
    Held {
        revision: Revision,
        notice: SourceNotice,
    },
    /// A head was followed, and something about it is to be told.
    Noticed(SourceNotice),
    /// A full picture of the cluster. Its own `inventory` is used only if none is known yet.
    Live(LiveState),
    /// One object as it is now; `None` when it is gone.
    ObjectChanged {
        object: ObjectRef,
        live: Option<LiveObject>,
    },
    FleetChanged(Fleet),
    /// There is such a kind now. What was refused for want of it is tried again.
    KindDefined {
        kind: Arc<str>,
    },
    /// A namespace is there, or is another than it was. What was refused in it is tried again.
    NamespaceChanged {
        namespace: Arc<str>,
    },
    /// What became of actions.
    Applied {
        plan: PlanHash,
        results: Vec<ObjectResult>,
    },
    /// A person wants a sync.
    Requested(SyncRequest),
    /// A person says yes to the plan that these digits name, and to no other.
    Confirmed {
        named: Arc<str>,
        actor: Arc<str>,
    },
    /// Stop the running operation before its next object.
    Cancelled,
    Suspended {
        reason: Arc<str>,
        actor: Arc<str>,
        until: Option<Timestamp>,
    },
    Resumed,
    PolicyChanged(SyncPolicy),
    /// Only time passed.
    Tick,
}

/// What a person asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SyncRequest {
    pub actor: Arc<str>,
    /// Remove what left Git, whatever the automatic mode says, up to the ceiling.
    pub prune: Option<PruneMode>,
    /// What they confirm. A plan's hash that is not the current one makes the request fail.
    pub consent: Consent,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ObjectResult {
    pub object: ObjectRef,
    pub outcome: Outcome,
}

/// What became of one write.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The object as the API server answered.
    Applied(LiveObject),
    /// The deletion was accepted; the object may still wait for its finalizers.
    Deleted,
    /// A conflict, throttling, a server's error, a time-out: worth another attempt.
    Transient(String),
    /// We may not: tried again from time to time, as nobody tells when we may.
    Forbidden(String),
    /// Refused for what it is: trying again changes nothing.
    Permanent(String),
}

/// Everything that the Git half may do.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "action", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum SyncAction {
    /// Server-side apply as manager `provisor`, forced.
    Apply {
        object: ObjectRef,
        manifest: Value,
        /// Fails if the object is another one by now.
        uid: Option<Arc<str>>,
        /// Managers of hand-made writes whose fields become ours first.
        take_over: Vec<String>,
    },
    Delete {
        object: ObjectRef,
        uid: Option<Arc<str>>,
    },
}

impl SyncAction {
    pub fn object(&self) -> &ObjectRef {
        match self {
            Self::Apply { object, .. } | Self::Delete { object, .. } => object,
        }
    }
}

/// What to do now, why, and when to ask again.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncDecision {
    /// The plan that the actions belong to.
    pub plan: Option<PlanHash>,
    /// In order. Report what became of them with [`GitEvent::Applied`], then decide again.
    pub actions: Vec<SyncAction>,
    pub reasons: Vec<SyncReason>,
    /// The reasons that the decision before did not have: worth a line to a person.
    pub news: Vec<SyncReason>,
    /// The plan of which something waits for a person's word.
    pub awaits: Option<PlanHash>,
    /// The same where the decision before did not wait for it: worth telling a person how to say yes.
    pub asks: Option<PlanHash>,
    /// Decide again by then, even if nothing happens. `None`: only when something happens.
    pub wake_at: Option<Timestamp>,
    /// The record of what was applied changed and has to be stored.
    pub inventory_changed: bool,
}

/// Why something is done or not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SyncReason {
    /// A stable word, as in conditions.
    pub reason: &'static str,
    pub message: String,
}

fn reason(reason: &'static str, message: impl Into<String>) -> SyncReason {
    SyncReason { reason, message: message.into() }
}

/// What is wanted, and whether the source still says so.
#[derive(Clone, Debug, Default)]
struct Wanted {
    good: Option<(Arc<DesiredState>, RenderProof)>,
    /// Newest commit seen, usable or not.
    newest: Option<Revision>,
    fetch_error: Option<String>,
    render_errors: Vec<String>,
    /// Why the newest head is not followed.
    held: Option<SourceNotice>,
    /// What is to be told about the head that is followed.
    notice: Option<SourceNotice>,
    /// When the source last said anything but an error; before that, when it first failed.
    answered_at: Option<Timestamp>,
}

impl Wanted {
    /// The source said something at `at`.
    fn answered(&mut self, at: Timestamp) {
        self.fetch_error = None;
        self.held = None;
        self.answered_at = Some(at);
    }
}

#[derive(Clone, Debug)]
struct Suspension {
    reason: Arc<str>,
    actor: Arc<str>,
    until: Option<Timestamp>,
}

/// The sync of one environment.
#[derive(Clone, Debug)]
pub struct Sync {
    environment: Arc<str>,
    policy: SyncPolicy,
    wanted: Wanted,
    live: Option<LiveState>,
    /// From before a restart, until the first picture of the cluster is there to hold it.
    stored_inventory: Option<Inventory>,
    /// The commit that was applied completely.
    applied_revision: Option<Arc<str>>,
    operation: Option<Operation>,
    operations_seen: u64,
    chain: Chain,
    healing: Healing,
    suspension: Option<Suspension>,
    request: Option<SyncRequest>,
    /// A person's yes that was not compared with the plan yet.
    word: Option<Word>,
    request_failure: Option<String>,
    history: Vec<HistoryEntry>,
    plan: Option<Arc<SyncPlan>>,
    is_plan_stale: bool,
    inventory_changed: bool,
    rollout: status::RolloutWatch,
    /// The reasons of the last decision.
    said: Vec<SyncReason>,
    /// The plan that waited for a person then.
    awaited: Option<PlanHash>,
}

impl Sync {
    /// `inventory` is what was stored before a restart; `None` rebuilds it from the objects' tracking ids.
    pub fn new(environment: &str, policy: SyncPolicy, inventory: Option<Inventory>) -> Self {
        Self {
            environment: environment.into(),
            policy,
            wanted: Wanted::default(),
            live: None,
            stored_inventory: inventory,
            applied_revision: None,
            operation: None,
            operations_seen: 0,
            chain: Chain::default(),
            healing: Healing::default(),
            suspension: None,
            request: None,
            word: None,
            request_failure: None,
            history: Vec::new(),
            plan: None,
            is_plan_stale: true,
            inventory_changed: false,
            rollout: status::RolloutWatch::default(),
            said: Vec::new(),
            awaited: None,
        }
    }

    pub fn environment(&self) -> &str {
        &self.environment
    }

    /// The record of what was applied, to be stored whenever a decision says that it changed.
    pub fn inventory(&self) -> Option<&Inventory> {
        self.live.as_ref().and_then(|live| live.inventory.as_ref())
    }

    /// The plan of the last decision.
    pub fn plan(&self) -> Option<&Arc<SyncPlan>> {
        self.plan.as_ref()
    }

    /// Operations, oldest first; equal ones in a row are one entry with a count.
    pub fn history(&self) -> &[HistoryEntry] {
        &self.history
    }

    /// Takes in what happened at `at`.
    pub fn observe(&mut self, at: Timestamp, event: GitEvent) {
        // Nodes come and go all the time; where nothing is to be changed, they change nothing about that.
        let is_settled = self.plan.as_ref().is_some_and(|plan| plan.is_in_sync());
        self.is_plan_stale |= match &event {
            GitEvent::FleetChanged(_) => !is_settled,
            GitEvent::Tick | GitEvent::Cancelled | GitEvent::Noticed(_) => false,
            // A poll that finds nothing new changes a plan only if it ends an outage.
            GitEvent::Unchanged { .. } => self.wanted.fetch_error.is_some() || self.wanted.held.is_some(),
            _ => true,
        };
        match event {
            GitEvent::Rendered { desired, proof } => {
                self.wanted.answered(at);
                self.wanted.newest = Some(desired.revision.clone());
                self.wanted.notice = None;
                self.wanted.render_errors.clear();
                if self.chain.digest.as_ref() != Some(&desired.digest) {
                    self.chain.turn_to(desired.digest.clone());
                }
                self.wanted.good = Some((desired, proof));
            }
            GitEvent::RenderFailed { revision, errors } => {
                self.wanted.answered(at);
                self.wanted.newest = Some(revision);
                self.wanted.notice = None;
                self.wanted.render_errors = errors;
            }
            GitEvent::FetchFailed { error } => {
                self.wanted.answered_at.get_or_insert(at);
                self.wanted.fetch_error = Some(error);
            }
            GitEvent::Unchanged { revision } => {
                self.wanted.answered(at);
                self.wanted.newest = revision.or(self.wanted.newest.take());
            }
            GitEvent::Held { revision, notice } => {
                self.wanted.answered(at);
                self.wanted.newest = Some(revision);
                self.wanted.held = Some(notice);
            }
            GitEvent::Noticed(notice) => self.wanted.notice = Some(notice),
            GitEvent::Live(live) => self.take_picture(live),
            GitEvent::ObjectChanged { object, live } => {
                let before = self.live.as_ref().and_then(|state| state.objects.get(&object));
                let is_different = spec(before) != spec(live.as_ref());
                self.chain.cluster_moved(is_different);
                if let Some(operation) = &mut self.operation {
                    operation.is_disturbed |= is_different;
                }
                if let Some(state) = &mut self.live {
                    match live {
                        Some(live) => state.put(object, live),
                        None => drop(state.objects.remove(&object)),
                    }
                    state.fleet.index_classes(&state.objects);
                }
            }
            GitEvent::FleetChanged(fleet) => {
                if let Some(state) = &mut self.live {
                    state.fleet = fleet;
                    state.fleet.index_classes(&state.objects);
                }
            }
            GitEvent::KindDefined { kind } => {
                self.chain.no_longer_lacks(Lack::Kind(kind), self.operation.is_some())
            }
            GitEvent::NamespaceChanged { namespace } => {
                self.chain.no_longer_lacks(Lack::Namespace(namespace), self.operation.is_some())
            }
            GitEvent::Applied { plan, results } => self.take_results(at, &plan, results),
            GitEvent::Requested(request) => {
                self.chain.try_again();
                self.request = Some(request);
            }
            GitEvent::Confirmed { named, actor } => self.word = Some(Word { named, actor }),
            GitEvent::Cancelled => {
                if let Some(operation) = &mut self.operation {
                    operation.cancel();
                }
            }
            GitEvent::Suspended { reason, actor, until } => {
                self.suspension = Some(Suspension { reason, actor, until });
            }
            GitEvent::Resumed => self.suspension = None,
            GitEvent::PolicyChanged(policy) => {
                // Windows are asked before each step, and change nothing about what failed.
                if !policy.is_same_but_for_windows(&self.policy) {
                    if let Some(operation) = &mut self.operation {
                        operation.is_overruled = true;
                    }
                    self.chain.try_again();
                }
                self.policy = policy;
            }
            GitEvent::Tick => {}
        }
        if let Some(live) = &self.live {
            self.rollout.observe(at, &live.fleet);
        }
    }

    /// What to do now. The same state and moment always give the same answer.
    pub fn decide(&mut self, now: Timestamp) -> SyncDecision {
        let mut decision = SyncDecision {
            plan: None,
            actions: vec![],
            reasons: vec![],
            news: vec![],
            awaits: None,
            asks: None,
            wake_at: None,
            inventory_changed: std::mem::take(&mut self.inventory_changed),
        };
        if self
            .suspension
            .as_ref()
            .is_some_and(|suspension| suspension.until.is_some_and(|until| until <= now))
        {
            self.suspension = None;
        }
        self.go_on(now, &mut decision);
        if self.operation.is_none() {
            self.begin(now, &mut decision);
            self.go_on(now, &mut decision);
        }
        decision.inventory_changed |= std::mem::take(&mut self.inventory_changed);
        decision.wake_at = decision.wake_at.map(|wake_at| wake_at.max(now));
        let is_new = |reason: &&SyncReason| !self.said.contains(reason);
        decision.news = decision.reasons.iter().filter(is_new).cloned().collect();
        self.said.clone_from(&decision.reasons);
        decision.asks = decision.awaits.clone().filter(|plan| self.awaited.as_ref() != Some(plan));
        self.awaited.clone_from(&decision.awaits);
        decision
    }

    /// The plan as of `now`, without acting on it.
    pub fn preview(&mut self, now: Timestamp) -> Option<Arc<SyncPlan>> {
        self.refresh_plan(now)
    }

    /// The status as of `now`, for conditions, dashboards and `get`.
    pub fn status(&self, now: Timestamp) -> SyncStatus {
        status::status(self, now)
    }

    fn take_picture(&mut self, mut live: LiveState) {
        let before = self.live.take();
        let is_different = before.as_ref().is_none_or(|before| {
            before.objects.len() != live.objects.len()
                || before
                    .objects
                    .iter()
                    .any(|(object, old)| spec(Some(old)) != spec(live.objects.get(object)))
        });
        self.chain.cluster_moved(is_different);
        if let Some(operation) = &mut self.operation {
            operation.is_disturbed |= is_different;
        }
        let known = before.and_then(|state| state.inventory).or_else(|| self.stored_inventory.take());
        live.inventory = known.or(live.inventory);
        if live.inventory.is_none() {
            let owner = Owner {
                installation: self.policy.installation.clone(),
                environment: self.environment.clone(),
            };
            live.inventory = Some(Inventory::rebuilt(&owner, &live.objects));
            self.inventory_changed = true;
        }
        live.fleet.index_classes(&live.objects);
        self.live = Some(live);
    }

    /// Plans again if anything changed since, or if a window turned.
    fn refresh_plan(&mut self, now: Timestamp) -> Option<Arc<SyncPlan>> {
        let turned = self.plan.as_ref().and_then(|plan| plan.wake_at()).is_some_and(|wake_at| wake_at <= now);
        if self.plan.is_some() && !self.is_plan_stale && !turned {
            return self.plan.clone();
        }
        let plan = Arc::new(self.compute_plan(now, None)?);
        self.is_plan_stale = false;
        self.plan = Some(plan.clone());
        Some(plan)
    }

    fn compute_plan(&self, now: Timestamp, request: Option<&SyncRequest>) -> Option<SyncPlan> {
        let (desired, proof) = self.wanted.good.as_ref()?;
        let live = self.live.as_ref()?;
        let mut policy = self.policy.clone();
        policy.ignore.extend(self.healing.paused_fields(now));
        if let Some(prune) = request.and_then(|request| request.prune) {
            policy.prune = policy.prune.max(prune.min(policy.prune_ceiling));
        }
        // A source that does not answer may have been emptied, moved or mended meanwhile: remove nothing on old news.
        let is_old_news = self.wanted.fetch_error.is_some() || self.wanted.held.is_some();
        let proof = if is_old_news { RenderProof::Once } else { proof.clone() };
        let none = Consent::default();
        Some(plan_sync(&PlanInput {
            desired,
            proof,
            live,
            policy: &policy,
            consent: request.map_or(&none, |request| &request.consent),
            now,
            is_manual: request.is_some(),
            started: None,
        }))
    }

    /// Starts an operation if there is something to do and nothing against it.
    fn begin(&mut self, now: Timestamp, decision: &mut SyncDecision) {
        let wake = |decision: &mut SyncDecision, at: Option<Timestamp>| {
            decision.wake_at = [decision.wake_at, at].into_iter().flatten().min();
        };
        if self.healing.expire(now) {
            self.is_plan_stale = true;
        }
        if self.wanted.good.is_none() {
            let why = match (&self.wanted.fetch_error, &self.wanted.render_errors[..]) {
                (Some(error), _) => reason("FetchFailed", format!("no commit was read yet: {error}")),
                (None, [error, ..]) => reason("RenderFailed", format!("no commit can be used yet: {error}")),
                (None, []) => reason("NoCommit", "no commit was read yet"),
            };
            return decision.reasons.push(why);
        }
        let Some(mut plan) = self.refresh_plan(now) else {
            return decision.reasons.push(reason("NoPicture", "the cluster was not read yet"));
        };
        self.chain.look_again(now);
        for wake_at in [plan.wake_at(), self.healing.next_expiry(), self.chain.look_again_at] {
            wake(decision, wake_at);
        }
        if let Some(error) = &self.wanted.fetch_error {
            decision.reasons.push(reason("FetchFailed", format!("kept the last good commit: {error}")));
        }
        if let Some(notice) = &self.wanted.held {
            let why = format!("kept the last good commit: {}", notice.message);
            decision.reasons.push(reason(notice.reason, why));
        }
        if let Some(error) = self.wanted.render_errors.first() {
            let why = format!("the newest commit cannot be used, so nothing is written: {error}");
            return decision.reasons.push(reason("RenderFailed", why));
        }
        if let Some(suspension) = &self.suspension {
            wake(decision, suspension.until);
            let why = format!("suspended by {}: {}", suspension.actor, suspension.reason);
            return decision.reasons.push(reason("Suspended", why));
        }
        match self.word.take().map(|word| word.about(&plan)) {
            Some(Ok(request)) => {
                self.chain.try_again();
                self.request = Some(request);
            }
            Some(Err(why)) => {
                self.request_failure = Some(why.clone());
                decision.reasons.push(reason("StaleConfirmation", why));
            }
            None => {}
        }
        if let Some(request) = self.request.take() {
            let Some(asked) = self.compute_plan(now, Some(&request)) else { return };
            if let Some(confirmed) = &request.consent.plan
                && *confirmed != asked.hash
            {
                let why = format!(
                    "the plan is {} by now, not {}: look at it again",
                    asked.hash.short(),
                    confirmed.short()
                );
                self.request_failure = Some(why.clone());
                return decision.reasons.push(reason("StaleConfirmation", why));
            }
            self.request_failure = None;
            plan = Arc::new(asked);
            self.plan = Some(plan.clone());
            if plan.is_noop() {
                return self.settle(&plan, decision);
            }
            return self.start(
                now,
                plan,
                Initiator::Person { actor: request.actor },
                BTreeSet::new(),
                decision,
            );
        }
        // All that is wanted is there: with nothing to write that is as good as a sync that went through.
        if plan.changes.iter().all(|change| change.action.is_removal()) && self.trust_inventory() {
            return wake(decision, Some(now));
        }
        if plan.is_noop() {
            return self.settle(&plan, decision);
        }
        if self.policy.mode == SyncMode::Manual {
            decision.awaits = Some(plan.hash.clone());
        }
        let (drifted, fresh): (Vec<&PlannedChange>, Vec<&PlannedChange>) =
            plan.proceeding().partition(|change| self.is_drift(change));
        let is_fresh = |step: &usize| !self.is_drift(&plan.changes[*step]);
        let steps: Vec<usize> = self.steps(&plan, &BTreeSet::new()).into_iter().filter(is_fresh).collect();
        if !fresh.is_empty() && steps.is_empty() {
            self.tell_held(&plan, decision);
        } else if !fresh.is_empty() {
            if self.chain.waits_in_vain() && self.is_ready_for(now, &plan, steps) {
                self.chain.got_ready();
            }
            let again = self.may_repeat_at(&plan).filter(|again| *again > now);
            wake(decision, again);
            let Some(why) = self.why_not_now(now, &plan, again) else {
                return self.start(now, plan.clone(), Initiator::Automation, BTreeSet::new(), decision);
            };
            wake(decision, self.chain.retry_at.filter(|retry_at| *retry_at > now));
            decision.reasons.push(why);
        }
        if drifted.is_empty() {
            return;
        }
        let live = self.live.as_ref().expect("a plan is made from a picture of the cluster");
        decision.reasons.extend(drifted.iter().flat_map(|change| heal::describe(change, live)));
        if self.policy.mode != SyncMode::AutoHeal {
            return decision.reasons.push(reason("SelfHealOff", "drift is reported and left as it is"));
        }
        if self.healing.give_up_fights(now, &drifted, live) {
            // Plan again without the fields that somebody else insists on.
            self.is_plan_stale = true;
            return wake(decision, Some(now));
        }
        if let Some(later) = self.healing.hold_until(now) {
            return wake(decision, Some(later));
        }
        let objects: BTreeSet<ObjectRef> = drifted.iter().map(|change| change.object.clone()).collect();
        self.healing.healed(now, &drifted);
        self.start(now, plan.clone(), Initiator::SelfHeal, objects, decision);
    }

    /// Whether a change undoes what somebody did to an object that was already as the commit wants it.
    fn is_drift(&self, change: &PlannedChange) -> bool {
        let entry = self.inventory().and_then(|inventory| inventory.entries.get(&change.object));
        !change.action.is_removal() && entry.is_some_and(|entry| entry.digest == change.wanted)
    }

    /// What keeps a new wish from being carried out now.
    fn why_not_now(&self, now: Timestamp, plan: &SyncPlan, again: Option<Timestamp>) -> Option<SyncReason> {
        if let Some(why) = self.chain.stopped_by() {
            return Some(reason("GivenUp", why.clone()));
        }
        if let Some(retry_at) = self.chain.retry_at.filter(|retry_at| *retry_at > now) {
            let why = format!("retry {} of {RETRIES_MAX} at {retry_at}", self.chain.retries);
            return Some(reason("Retrying", why));
        }
        if let Some(again) = again {
            let why = format!("the same plan was carried out and did not last; again at {again}");
            return Some(reason("Repeating", why));
        }
        (self.policy.mode == SyncMode::Manual).then(|| {
            let digits = plan.hash.short();
            reason(
                "ManualSync",
                format!("{}; a person starts each sync: this is plan {digits}", plan.summary()),
            )
        })
    }

    /// When a plan that was carried out before may be tried again: something undoes it, so ever more slowly.
    fn may_repeat_at(&self, plan: &SyncPlan) -> Option<Timestamp> {
        let last = self.history.last()?;
        if last.plan != plan.hash || last.phase != Phase::Succeeded || last.initiator != Initiator::Automation
        {
            return None;
        }
        last.ended.checked_add(heal::pause(last.count)).ok()
    }

    /// Nothing to write: says why, and remembers what is as it should be.
    fn settle(&mut self, plan: &SyncPlan, decision: &mut SyncDecision) {
        self.healing.calm();
        self.remember_settled(plan);
        self.tell_held(plan, decision);
        if self.chain.waits_in_vain() && self.is_all_ready(plan) {
            self.chain.got_ready();
        }
        if stages::writes_all(plan) {
            self.applied_revision = Some(plan.commit.clone());
        }
        if plan.is_in_sync() {
            decision.reasons.push(reason("Synced", "the cluster is as the commit wants it"));
            self.trust_inventory();
        }
    }

    fn start(
        &mut self,
        now: Timestamp,
        plan: Arc<SyncPlan>,
        initiator: Initiator,
        only: BTreeSet<ObjectRef>,
        decision: &mut SyncDecision,
    ) {
        // What a process that died wrote, and did not live to record.
        self.remember_settled(&plan);
        let steps = self.steps(&plan, &only);
        if steps.is_empty() {
            return self.tell_held(&plan, decision);
        }
        self.operations_seen += 1;
        let why = format!("{} ({})", plan.summary(), initiator);
        decision.reasons.push(reason("Started", why));
        self.operation = Some(Operation::new(self.operations_seen, plan, initiator, steps, now));
    }

    /// Takes the next step of the running operation.
    fn go_on(&mut self, now: Timestamp, decision: &mut SyncDecision) {
        let Some(operation) = &mut self.operation else { return };
        let newest = self.wanted.good.as_ref().map(|(desired, _)| &desired.digest);
        let stop = if self.suspension.is_some() {
            Some((Phase::Stopped, "suspended"))
        } else if !self.wanted.render_errors.is_empty() {
            Some((Phase::Stopped, "the newest commit cannot be used"))
        } else if newest != Some(&operation.plan().digest) {
            Some((Phase::Superseded, "another commit is wanted by now"))
        } else if operation.is_overruled {
            Some((Phase::Superseded, "other rules hold by now"))
        } else {
            None
        };
        if stop.is_none() && self.is_undone(now) {
            return self.finish(now, Phase::Superseded, decision);
        }
        let Some(operation) = &mut self.operation else { return };
        match operation.step(now, &self.policy, self.live.as_ref(), stop) {
            Step::Perform(action) => {
                decision.plan = Some(operation.plan().hash.clone());
                decision.wake_at = Some(now.saturating_add(HEARTBEAT).unwrap_or(Timestamp::MAX));
                decision.reasons.push(operation.reason_of(action.object()));
                decision.actions.push(action);
            }
            Step::Wait { until, why } => {
                decision.plan = Some(operation.plan().hash.clone());
                let anew = self.chain.begins_anew_at().filter(|at| operation.undone.is_some() && *at > now);
                decision.wake_at = Some(anew.map_or(until, |anew| until.min(anew)));
                decision.reasons.push(reason("Waiting", why));
            }
            Step::Finished(phase) => self.finish(now, phase, decision),
        }
    }

    fn take_results(&mut self, at: Timestamp, plan: &PlanHash, results: Vec<ObjectResult>) {
        let Some(operation) = self.operation.as_mut().filter(|operation| operation.plan().hash == *plan)
        else {
            return;
        };
        for result in results {
            let Some(change) = operation.record(at, &result) else { continue };
            let Some(state) = &mut self.live else { continue };
            let inventory = state.inventory.get_or_insert_default();
            match result.outcome {
                Outcome::Applied(live) => {
                    let is_retiring = change.action == ChangeAction::Retire;
                    let since = inventory.entries.get(&result.object).and_then(|entry| entry.retiring_since);
                    let entry = InventoryEntry {
                        uid: live.uid.clone(),
                        digest: change.wanted.clone(),
                        wave: change.wave,
                        revision: operation.plan().commit.clone(),
                        retiring_since: if is_retiring { since.or(Some(at)) } else { None },
                    };
                    inventory.entries.insert(result.object.clone(), entry);
                    self.healing.answered(&change, &live);
                    // What became of it may have been heard before the answer was.
                    let heard = state.objects.get(&result.object);
                    if heard.is_none_or(|heard| !heard.is_later_than(&live)) {
                        state.put(result.object, live);
                    }
                    state.fleet.index_classes(&state.objects);
                }
                Outcome::Deleted => {
                    inventory.entries.remove(&result.object);
                    state.deletion_was_accepted(&result.object, at);
                }
                Outcome::Transient(_) => {}
                Outcome::Forbidden(why) => self.chain.forbidden(at, result.object, why),
                Outcome::Permanent(why) => drop(self.chain.refused.insert(result.object, why)),
            }
            self.inventory_changed = true;
        }
    }

    fn finish(&mut self, now: Timestamp, phase: Phase, decision: &mut SyncDecision) {
        let Some(operation) = self.operation.take() else { return };
        self.is_plan_stale = true;
        let plan = operation.plan().clone();
        let why = operation.summary(&phase);
        let has_transient = operation.has_transient() || phase == Phase::Interrupted;
        let is_heal = operation.initiator() == &Initiator::SelfHeal;
        match &phase {
            Phase::Succeeded if is_heal => {}
            Phase::Succeeded => {
                self.chain.succeeded();
                if self.chain.refused.is_empty() && stages::writes_all(&plan) {
                    self.trust_inventory();
                    self.applied_revision = Some(plan.commit.clone());
                }
            }
            // Healing has a back-off of its own.
            Phase::PartiallySynced | Phase::Failed | Phase::Interrupted if is_heal => {}
            Phase::PartiallySynced | Phase::Failed | Phase::Interrupted if has_transient => {
                self.chain.failed_for_now(now, &why);
            }
            Phase::PartiallySynced | Phase::Failed | Phase::Interrupted => {
                self.chain.failed(why.clone(), operation.waited_in_vain());
            }
            Phase::Cancelled => self.chain.cancelled(),
            Phase::Superseded | Phase::Stopped => {}
        }
        self.chain.operation_ended();
        decision.reasons.push(reason(phase.as_str(), why));
        let Some((desired, _)) = &self.wanted.good else { return };
        let revision = if desired.digest == plan.digest { Some(&desired.revision) } else { None };
        operation::remember(&mut self.history, operation.into_entry(now, phase, revision));
    }
}

fn spec(live: Option<&LiveObject>) -> Option<&Value> {
    live.and_then(|live| live.manifest.get("spec"))
}
