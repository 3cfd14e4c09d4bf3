//! One attempt to carry out a plan: one object after another, wave after wave.
//!
//! Inside a wave objects are independent: all are tried. The next wave, and after all waves the removals, start once
//! everything before was accepted and became ready. What fails skips what comes later, never what stands beside it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use super::stages::{Stage, stage_of, unready};
use super::{HEARTBEAT, HISTORY_MAX, ObjectResult, Outcome, SyncAction, SyncReason, spec};
use crate::gitops::desired::ObjectRef;
use crate::gitops::live::LiveState;
use crate::gitops::plan::{ChangeAction, PlanHash, PlannedChange, SyncPlan, guard};
use crate::gitops::policy::SyncPolicy;
use crate::gitops::window::{Answer, Question};
use crate::model::repository::Revision;

/// Who started an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Initiator {
    Automation,
    SelfHeal,
    Person { actor: Arc<str> },
}

impl fmt::Display for Initiator {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Automation => out.write_str("automatic sync"),
            Self::SelfHeal => out.write_str("self-heal"),
            Self::Person { actor } => write!(out, "asked for by {actor}"),
        }
    }
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Phase {
    Succeeded,
    /// Some objects were written, later waves were not.
    PartiallySynced,
    Failed,
    /// No answer to a write in time, or the process died.
    Interrupted,
    Cancelled,
    /// Another commit took its place.
    Superseded,
    /// A window closed, the environment was suspended, or the newest commit turned out to be broken.
    Stopped,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::PartiallySynced => "PartiallySynced",
            Self::Failed => "Failed",
            Self::Interrupted => "Interrupted",
            Self::Cancelled => "Cancelled",
            Self::Superseded => "Superseded",
            Self::Stopped => "Stopped",
        }
    }
}

/// What became of one object in an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReport {
    pub object: ObjectRef,
    pub action: ChangeAction,
    /// `done`, `failed`, `rejected` or `notStarted`.
    pub result: &'static str,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// One operation of the past, or several equal ones in a row.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct HistoryEntry {
    pub id: u64,
    /// `main@sha1:…`, as Flux writes it.
    pub revision: String,
    pub author: Arc<str>,
    pub subject: Arc<str>,
    pub digest: Arc<str>,
    pub plan: PlanHash,
    pub initiator: Initiator,
    pub started: Timestamp,
    pub ended: Timestamp,
    pub phase: Phase,
    pub summary: String,
    pub objects: Vec<ObjectReport>,
    /// How many times in a row the same was done with the same outcome.
    pub count: u32,
}

/// What an operation does next.
pub(super) enum Step {
    Perform(SyncAction),
    Wait { until: Timestamp, why: String },
    Finished(Phase),
}

#[derive(Clone, Debug)]
pub(super) struct Operation {
    id: u64,
    plan: Arc<SyncPlan>,
    initiator: Initiator,
    started: Timestamp,
    /// Positions in the plan's changes.
    steps: Vec<usize>,
    next: usize,
    in_flight: Option<(ObjectRef, Timestamp)>,
    results: BTreeMap<ObjectRef, Outcome>,
    /// When the last result came, and when all that it belongs to was ready.
    settled_at: Timestamp,
    ready_at: Option<Timestamp>,
    is_cancelled: bool,
    /// The rules by which it was planned hold no more.
    pub(super) is_overruled: bool,
    /// What is wanted of some object may be different since it was planned.
    pub(super) is_disturbed: bool,
    /// What somebody changed since it was written or found as it should be, although later stages wait for it.
    pub(super) undone: Option<ObjectRef>,
    /// Why it ended before its end.
    ended_by: Option<String>,
    /// Something did not get ready in time.
    waited_in_vain: bool,
}

impl Operation {
    pub(super) fn new(
        id: u64,
        plan: Arc<SyncPlan>,
        initiator: Initiator,
        steps: Vec<usize>,
        now: Timestamp,
    ) -> Self {
        Self {
            id,
            plan,
            initiator,
            started: now,
            steps,
            next: 0,
            in_flight: None,
            results: BTreeMap::new(),
            settled_at: now,
            ready_at: None,
            is_cancelled: false,
            is_overruled: false,
            is_disturbed: false,
            undone: None,
            ended_by: None,
            waited_in_vain: false,
        }
    }

    pub(super) fn plan(&self) -> &Arc<SyncPlan> {
        &self.plan
    }

    pub(super) fn initiator(&self) -> &Initiator {
        &self.initiator
    }

    pub(super) fn started(&self) -> Timestamp {
        self.started
    }

    pub(super) fn cancel(&mut self) {
        self.is_cancelled = true;
    }

    pub(super) fn waited_in_vain(&self) -> bool {
        self.waited_in_vain
    }

    pub(super) fn has_transient(&self) -> bool {
        self.results.values().any(|outcome| matches!(outcome, Outcome::Transient(_)))
    }

    fn has_failed(&self) -> bool {
        self.results.values().any(|outcome| {
            matches!(outcome, Outcome::Transient(_) | Outcome::Forbidden(_) | Outcome::Permanent(_))
        })
    }

    fn change(&self, step: usize) -> Option<&PlannedChange> {
        self.steps.get(step).and_then(|index| self.plan.changes.get(*index))
    }

    fn stage(&self, step: usize) -> Option<Stage> {
        self.change(step).map(stage_of)
    }

    pub(super) fn step(
        &mut self,
        now: Timestamp,
        policy: &SyncPolicy,
        live: Option<&LiveState>,
        stop: Option<(Phase, &str)>,
    ) -> Step {
        if let Some((object, since)) = &self.in_flight {
            let until = since.checked_add(HEARTBEAT).unwrap_or(Timestamp::MAX);
            if now < until {
                return Step::Wait { until, why: format!("waits for an answer about {object}") };
            }
            self.ended_by = Some(format!("no answer about {object} within {} s", HEARTBEAT.as_secs()));
            return Step::Finished(Phase::Interrupted);
        }
        if self.is_cancelled {
            return Step::Finished(Phase::Cancelled);
        }
        if self.next >= self.steps.len() {
            return Step::Finished(self.outcome());
        }
        if let Some((phase, why)) = stop {
            self.ended_by = Some(why.into());
            return Step::Finished(phase);
        }
        let unready = self.unready(live);
        let is_stage_over = match self.next.checked_sub(1) {
            Some(last) => self.stage(self.next) != self.stage(last),
            // What is not ready from before holds up later stages, and nothing that may mend it.
            None => self.ready_at.is_some() || unready.is_some(),
        };
        if is_stage_over && let Some(step) = self.barrier(now, policy, unready) {
            return step;
        }
        let Some(change) = self.change(self.next) else { return Step::Finished(self.outcome()) };
        let question = Question {
            environment: &self.plan.environment,
            pool: (&*change.object.kind == "NodePool").then_some(&*change.object.name),
            class: change.class,
            is_manual: matches!(self.initiator, Initiator::Person { .. }),
            started: Some(self.started),
        };
        let found = live.and_then(|live| live.objects.get(&change.object));
        if !guard::is_leftover(change, found)
            && let Answer::Closed { why, .. } = policy.ask_windows(&question, now)
        {
            self.ended_by = Some(why);
            return Step::Finished(Phase::Stopped);
        }
        let action = match &change.manifest {
            Some(manifest) => SyncAction::Apply {
                object: change.object.clone(),
                manifest: manifest.clone(),
                uid: change.uid.clone(),
                take_over: change.take_over.clone(),
            },
            None => SyncAction::Delete { object: change.object.clone(), uid: change.uid.clone() },
        };
        self.in_flight = Some((change.object.clone(), now));
        self.next += 1;
        self.ready_at = None;
        Step::Perform(action)
    }

    /// What stands between two stages: failures end the operation, the rest waits for readiness and the wave's delay.
    fn barrier(&mut self, now: Timestamp, policy: &SyncPolicy, unready: Option<String>) -> Option<Step> {
        if self.has_failed() {
            return Some(Step::Finished(Phase::PartiallySynced));
        }
        let later =
            |since: Timestamp, wait: SignedDuration| since.checked_add(wait).unwrap_or(Timestamp::MAX);
        if policy.wait_ready
            && self.ready_at.is_none()
            && let Some(waiting) = unready
        {
            let until = later(self.settled_at, policy.health_timeout);
            if now >= until {
                self.ended_by =
                    Some(format!("waited {} s in vain: {waiting}", policy.health_timeout.as_secs()));
                self.waited_in_vain = true;
                return Some(Step::Finished(Phase::PartiallySynced));
            }
            return Some(Step::Wait { until, why: waiting });
        }
        let ready_at = *self.ready_at.get_or_insert(now);
        let until = later(ready_at, policy.wave_delay);
        (now < until).then(|| Step::Wait { until, why: "pauses before the next wave".into() })
    }

    /// What of earlier stages the next step waits for, in words.
    pub(super) fn unready(&self, live: Option<&LiveState>) -> Option<String> {
        if let Some(object) = &self.undone {
            return Some(format!("{object} is not as the commit wants it any more"));
        }
        let (done, ahead) = self.steps.split_at(self.next);
        let changes =
            |steps: &[usize]| steps.iter().filter_map(|step| self.plan.changes.get(*step)).collect();
        let (done, ahead): (Vec<_>, Vec<_>) = (changes(done), changes(ahead));
        // Who heals waits for nothing but what it wrote itself.
        let settled = if self.initiator == Initiator::SelfHeal { &[] } else { &self.plan.settled[..] };
        let next = stage_of(ahead.first()?);
        unready(live?, next, settled, &done, &ahead, |object, found| match self.results.get(object) {
            Some(Outcome::Applied(written)) => {
                found.uid != written.uid || found.generation() >= written.generation()
            }
            _ => true,
        })
    }

    /// Whether `change`, of a newer plan, is about something that the next step relies on.
    pub(super) fn is_undone_by(&self, change: &PlannedChange, live: &LiveState) -> bool {
        let is_earlier = self.stage(self.next).is_some_and(|next| stage_of(change) < next);
        let found = live.objects.get(&change.object);
        !change.action.is_removal()
            && is_earlier
            && match self.results.get(&change.object) {
                // What the API server makes of it at once is no news.
                Some(Outcome::Applied(written)) => spec(found) != spec(Some(written)),
                Some(_) => false,
                // What was held then is no other now.
                None => self.plan.settled.iter().any(|settled| settled.object == change.object),
            }
    }

    /// Whether the next step begins a stage, or may wait before it.
    pub(super) fn is_before_a_stage(&self) -> bool {
        let is_next = match self.next.checked_sub(1) {
            Some(last) => self.stage(self.next) != self.stage(last),
            None => true,
        };
        self.in_flight.is_none() && !self.is_cancelled && self.next < self.steps.len() && is_next
    }

    /// Ends before its end; why.
    pub(super) fn end(&mut self, why: &str) {
        self.ended_by = Some(why.into());
    }

    fn outcome(&self) -> Phase {
        match (self.has_failed(), self.results.values().any(is_done)) {
            (false, _) => Phase::Succeeded,
            (true, true) => Phase::PartiallySynced,
            (true, false) => Phase::Failed,
        }
    }

    /// Takes the result of the write under way; anything else is old news.
    pub(super) fn record(&mut self, at: Timestamp, result: &ObjectResult) -> Option<PlannedChange> {
        let (object, _) = self.in_flight.as_ref()?;
        if *object != result.object {
            return None;
        }
        self.in_flight = None;
        self.settled_at = at;
        self.results.insert(result.object.clone(), result.outcome.clone());
        self.plan.changes.iter().find(|change| change.object == result.object).cloned()
    }

    pub(super) fn reason_of(&self, object: &ObjectRef) -> SyncReason {
        let change = self.plan.changes.iter().find(|change| change.object == *object);
        let message = change.map_or_else(String::new, |change| {
            let what = format!("{} {object}: {}", change.action.as_str(), change.reasons.join("; "));
            match &change.origin {
                Some(origin) => format!("{what} ({origin})"),
                None => what,
            }
        });
        SyncReason { reason: "Applying", message }
    }

    pub(super) fn summary(&self, phase: &Phase) -> String {
        let count =
            |wanted: fn(&Outcome) -> bool| self.results.values().filter(|outcome| wanted(outcome)).count();
        let done = count(is_done);
        let failed = count(|outcome| !is_done(outcome));
        let mut text = format!("{done} of {} written", self.steps.len());
        if failed > 0 {
            text.push_str(&format!(", {failed} failed"));
        }
        if let Some(message) = self.results.values().find_map(|outcome| match outcome {
            Outcome::Transient(message) | Outcome::Forbidden(message) | Outcome::Permanent(message) => {
                Some(message)
            }
            Outcome::Applied(_) | Outcome::Deleted => None,
        }) {
            text.push_str(&format!(": {message}"));
        }
        if let Some(why) = &self.ended_by {
            text.push_str(&format!("; {why}"));
        }
        if *phase == Phase::Cancelled {
            text.push_str("; cancelled");
        }
        text
    }

    pub(super) fn into_entry(
        self,
        now: Timestamp,
        phase: Phase,
        revision: Option<&Revision>,
    ) -> HistoryEntry {
        let summary = self.summary(&phase);
        let objects = (0..self.steps.len())
            .filter_map(|step| self.change(step))
            .map(|change| {
                let (result, message) = match self.results.get(&change.object) {
                    Some(Outcome::Applied(_) | Outcome::Deleted) => ("done", String::new()),
                    Some(Outcome::Transient(message)) => ("failed", message.clone()),
                    Some(Outcome::Forbidden(message) | Outcome::Permanent(message)) => {
                        ("rejected", message.clone())
                    }
                    None if self.in_flight.as_ref().is_some_and(|(object, _)| *object == change.object) => {
                        ("failed", "no answer".into())
                    }
                    None => ("notStarted", String::new()),
                };
                ObjectReport { object: change.object.clone(), action: change.action, result, message }
            })
            .collect();
        HistoryEntry {
            id: self.id,
            revision: revision.map_or_else(|| format!("sha1:{}", self.plan.commit), render_revision),
            author: revision.map_or_else(|| "".into(), |revision| revision.author.clone()),
            subject: revision.map_or_else(|| "".into(), |revision| revision.subject.clone()),
            digest: self.plan.digest.clone(),
            plan: self.plan.hash.clone(),
            initiator: self.initiator,
            started: self.started,
            ended: now,
            phase,
            summary,
            objects,
            count: 1,
        }
    }
}

fn is_done(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::Applied(_) | Outcome::Deleted)
}

/// `main@sha1:…`; without the reference if a bare commit was asked for.
pub(super) fn render_revision(revision: &Revision) -> String {
    let algorithm = if revision.commit.as_str().len() == 64 { "sha256" } else { "sha1" };
    match &revision.reference {
        Some(reference) => {
            let short =
                ["refs/heads/", "refs/tags/"].iter().find_map(|prefix| reference.strip_prefix(prefix));
            format!("{}@{algorithm}:{}", short.unwrap_or(reference), revision.commit)
        }
        None => format!("{algorithm}:{}", revision.commit),
    }
}

/// Appends an operation; one that repeats the last with the same outcome only counts up.
pub(super) fn remember(history: &mut Vec<HistoryEntry>, entry: HistoryEntry) {
    if let Some(last) = history.last_mut()
        && (&last.digest, &last.plan, last.phase) == (&entry.digest, &entry.plan, entry.phase)
        && last.initiator == entry.initiator
    {
        last.count += 1;
        last.ended = entry.ended;
        last.objects = entry.objects;
        last.summary = entry.summary;
        return;
    }
    history.push(entry);
    if history.len() > HISTORY_MAX {
        history.remove(0);
    }
}

/// `first`, then `factor` times as long each time, never longer than `longest`.
pub(super) fn back_off(
    first: SignedDuration,
    factor: i32,
    times: u32,
    longest: SignedDuration,
) -> SignedDuration {
    let mut pause = first;
    for _ in 0..times {
        pause = pause.checked_mul(factor).unwrap_or(longest);
        if pause >= longest {
            return longest;
        }
    }
    pause
}
