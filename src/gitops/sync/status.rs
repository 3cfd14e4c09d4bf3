//! How an environment stands: sync, rollout and health are three questions with three answers.
//!
//! *Sync*: are the API objects what Git wants? *Rollout*: are the nodes what the API objects want? *Health*: do the objects
//! work? A commit is synced in seconds and rolled out in hours, and either can be true while the other is not.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use serde_json::Value;

use super::Sync;
use super::operation::{HistoryEntry, Phase, render_revision};
use crate::gitops::desired::{ObjectRef, Origin};
use crate::gitops::live::{Fleet, LiveState, Readiness};
use crate::gitops::plan::{PlanHash, PlanSummary, Verdict, VerdictCode};

/// Refused objects that a condition names.
const REFUSED_MAX: usize = 5;

/// Whether the API objects are what Git wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum SyncState {
    Synced,
    OutOfSync,
    PartiallySynced,
    Blocked,
    Unknown,
}

/// Whether the nodes are what the API objects want.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "state")]
pub enum Rollout {
    Complete,
    Rolling {
        done: u32,
        total: u32,
        /// When the rest is done if it goes on like this; `None` before the first node is.
        eta: Option<Timestamp>,
    },
    Stalled {
        reason: String,
    },
    Paused,
    NotApplicable,
}

impl fmt::Display for Rollout {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Complete => out.write_str("Complete"),
            Self::Rolling { done, total, .. } => write!(out, "Rolling {done}/{total}"),
            Self::Stalled { reason } => write!(out, "Stalled ({reason})"),
            Self::Paused => out.write_str("Paused"),
            Self::NotApplicable => out.write_str("NotApplicable"),
        }
    }
}

/// Worst child wins, in this order (Argo CD's).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Health {
    Healthy,
    Suspended,
    Progressing,
    Missing,
    Degraded,
    Unknown,
}

/// One fact about the environment, shaped as Kubernetes conditions are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    #[serde(rename = "type")]
    pub kind: &'static str,
    pub is_true: bool,
    pub reason: String,
    pub message: String,
    /// The line of the repository that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncStatus {
    pub environment: Arc<str>,
    pub as_of: Timestamp,
    pub sync: SyncState,
    pub rollout: Rollout,
    pub health: Health,
    pub conditions: Vec<Condition>,
    /// The newest commit that was looked at, `main@sha1:…`.
    pub observed_revision: Option<String>,
    /// The commit that was applied completely.
    pub last_applied_revision: Option<Arc<str>>,
    pub plan: Option<PlanHash>,
    pub summary: Option<PlanSummary>,
    /// Since when an operation runs.
    pub operation_since: Option<Timestamp>,
    /// Commits of the objects, by object.
    pub objects: Vec<ObjectStatus>,
    pub history: Vec<HistoryEntry>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectStatus {
    pub object: ObjectRef,
    pub health: Health,
    pub message: String,
    /// The commit that last changed it.
    pub revision: Option<Arc<str>>,
    pub origin: Option<Origin>,
}

impl Sync {
    /// The commit that was applied completely, and the first line of its message as far as that is known.
    pub fn applied(&self) -> Option<(Arc<str>, Arc<str>)> {
        let id = self.applied_revision.clone()?;
        let wanted = self.wanted.good.iter().map(|(desired, _)| &desired.revision);
        let mut wanted = wanted.filter(|revision| revision.commit.as_str() == &*id);
        let subject = wanted.next().map(|revision| revision.subject.clone()).unwrap_or_default();
        Some((id, subject))
    }
}

/// Counts a roll from its first drifted node to its last.
#[derive(Clone, Debug, Default)]
pub(super) struct RolloutWatch {
    since: Option<Timestamp>,
    total: u32,
    left: u32,
}

impl RolloutWatch {
    pub(super) fn observe(&mut self, at: Timestamp, fleet: &Fleet) {
        let drifted = fleet.nodes_by_pool.values().flatten().filter(|node| node.is_drifted).count();
        let left = u32::try_from(drifted).unwrap_or(u32::MAX);
        if left == 0 {
            *self = Self::default();
            return;
        }
        self.since.get_or_insert(at);
        self.total = if left > self.left { self.total.saturating_sub(self.left) + left } else { self.total };
        self.left = left;
    }

    fn state(&self, now: Timestamp, live: &LiveState) -> Rollout {
        let Some(since) = self.since else {
            return if live.fleet.node_count() == 0 { Rollout::NotApplicable } else { Rollout::Complete };
        };
        if let Some(reason) = closed_budget(live) {
            return Rollout::Stalled { reason };
        }
        let done = self.total.saturating_sub(self.left);
        let eta = (done > 0).then(|| {
            let per_node = now.duration_since(since).as_secs() / i64::from(done);
            let rest = SignedDuration::from_secs(per_node.saturating_mul(i64::from(self.left)));
            now.checked_add(rest).unwrap_or(Timestamp::MAX)
        });
        Rollout::Rolling { done, total: self.total, eta }
    }
}

/// A pool with drifted nodes whose budget never lets one go.
fn closed_budget(live: &LiveState) -> Option<String> {
    let mut closed = Vec::new();
    let drifting =
        live.fleet.nodes_by_pool.iter().filter(|(_, nodes)| nodes.iter().any(|node| node.is_drifted));
    for (pool, _) in drifting {
        let found =
            live.objects.iter().find(|(object, _)| &*object.kind == "NodePool" && object.name == *pool);
        let budgets =
            found.and_then(|(_, live)| live.manifest.pointer("/spec/disruption/budgets")?.as_array());
        let is_closed = budgets.into_iter().flatten().any(|budget| {
            let is_zero = matches!(budget.get("nodes").and_then(Value::as_str), Some("0" | "0%"));
            let reasons = budget.get("reasons").and_then(Value::as_array);
            let is_for_drift = reasons
                .is_none_or(|reasons| reasons.is_empty() || reasons.iter().any(|reason| reason == "Drifted"));
            is_zero && is_for_drift && budget.get("schedule").is_none()
        });
        if !is_closed {
            return None;
        }
        closed.push(&**pool);
    }
    (!closed.is_empty()).then(|| format!("the budget of {} lets no drifted node go", closed.join(", ")))
}

pub(super) fn status(sync: &Sync, now: Timestamp) -> SyncStatus {
    let conditions = conditions(sync, now);
    let objects = objects(sync);
    let rollout = match &sync.live {
        None => Rollout::NotApplicable,
        Some(live) => sync.rollout.state(now, live),
    };
    SyncStatus {
        environment: sync.environment.clone(),
        as_of: now,
        sync: sync_state(sync),
        health: health(sync, now, &objects, &rollout),
        rollout,
        conditions,
        observed_revision: sync.wanted.newest.as_ref().map(render_revision),
        last_applied_revision: sync.applied_revision.clone(),
        plan: sync.plan.as_ref().map(|plan| plan.hash.clone()),
        summary: sync.plan.as_ref().map(|plan| plan.summary()),
        operation_since: sync.operation.as_ref().map(|operation| operation.started()),
        objects,
        history: sync.history.clone(),
    }
}

fn sync_state(sync: &Sync) -> SyncState {
    if !sync.wanted.render_errors.is_empty() || sync.wanted.held.is_some() {
        return SyncState::Blocked;
    }
    let (Some(plan), Some(_)) = (&sync.plan, &sync.wanted.good) else { return SyncState::Unknown };
    let is_blocked = plan.changes.iter().any(|change| {
        matches!(
            change.verdict.code(),
            Some(VerdictCode::EmptyRender | VerdictCode::NonDeterministicRender | VerdictCode::WindowClosed)
        )
    });
    let was_partial = sync
        .history
        .last()
        .is_some_and(|last| last.digest == plan.digest && last.phase == Phase::PartiallySynced);
    if is_blocked {
        SyncState::Blocked
    } else if !sync.chain.refused.is_empty() || (was_partial && !plan.is_in_sync()) {
        SyncState::PartiallySynced
    } else if plan.is_in_sync() && sync.healing.is_at_peace() {
        SyncState::Synced
    } else {
        SyncState::OutOfSync
    }
}

fn objects(sync: &Sync) -> Vec<ObjectStatus> {
    let Some((desired, _)) = &sync.wanted.good else { return vec![] };
    let live = sync.live.as_ref();
    desired
        .objects
        .iter()
        .map(|(object, wanted)| {
            let found = live.and_then(|live| live.objects.get(object));
            let (health, message) = match found.map(|found| found.readiness()) {
                None => (Health::Missing, "not in the cluster".into()),
                Some(Readiness::Ready) => (Health::Healthy, String::new()),
                Some(Readiness::NotReady(why)) => (Health::Degraded, why.to_string()),
                Some(Readiness::Unobserved) if !sync.policy.wait_ready => (Health::Healthy, String::new()),
                Some(Readiness::Unobserved) => {
                    (Health::Progressing, "its controller has not seen this generation yet".into())
                }
            };
            let inventory = live.and_then(|live| live.inventory.as_ref());
            let entry = inventory.and_then(|inventory| inventory.entries.get(object));
            ObjectStatus {
                object: object.clone(),
                health,
                message,
                revision: entry.map(|entry| entry.revision.clone()).filter(|revision| !revision.is_empty()),
                origin: wanted.origin("").cloned(),
            }
        })
        .collect()
}

/// Since when the source is silent, if that is longer than the policy bears.
fn stale_since(sync: &Sync, now: Timestamp) -> Option<Timestamp> {
    sync.wanted.fetch_error.as_ref()?;
    sync.wanted.answered_at.filter(|answered| now.duration_since(*answered) >= sync.policy.stale_after)
}

fn health(sync: &Sync, now: Timestamp, objects: &[ObjectStatus], rollout: &Rollout) -> Health {
    if sync.live.is_none() || sync.wanted.good.is_none() {
        return Health::Unknown;
    }
    let suspended = if sync.suspension.is_some() { Health::Suspended } else { Health::Healthy };
    let rolling =
        if matches!(rollout, Rollout::Rolling { .. }) { Health::Progressing } else { Health::Healthy };
    let stale = if stale_since(sync, now).is_some() { Health::Degraded } else { Health::Healthy };
    objects
        .iter()
        .map(|object| object.health)
        .chain([suspended, rolling, stale])
        .max()
        .unwrap_or(Health::Healthy)
}

fn conditions(sync: &Sync, now: Timestamp) -> Vec<Condition> {
    let condition = |kind: &'static str, is_true: bool, reason: &str, message: String| Condition {
        kind,
        is_true,
        reason: reason.into(),
        message,
        origin: None,
    };
    let mut conditions = Vec::new();
    conditions.push(match (&sync.wanted.fetch_error, sync.wanted.render_errors.first()) {
        (Some(error), _) => match stale_since(sync, now) {
            Some(since) => {
                let message = format!("source stale: no answer since {since}: {error}");
                condition("SourceReady", false, "SourceStale", message)
            }
            None => condition("SourceReady", false, "FetchFailed", error.clone()),
        },
        (None, Some(error)) => {
            let count = sync.wanted.render_errors.len();
            let more = if count > 1 { format!(" (and {} more)", count - 1) } else { String::new() };
            condition("SourceReady", false, "RenderFailed", format!("{error}{more}"))
        }
        (None, None) => condition("SourceReady", sync.wanted.good.is_some(), "Rendered", String::new()),
    });
    for notice in sync.wanted.held.iter().chain(&sync.wanted.notice) {
        conditions.push(condition(notice.reason, true, notice.reason, notice.message.clone()));
    }
    if let Some(suspension) = &sync.suspension {
        let until = suspension.until.map_or_else(String::new, |until| format!(" until {until}"));
        let message = format!("by {}{until}: {}", suspension.actor, suspension.reason);
        conditions.push(condition("Suspended", true, "Suspended", message));
    }
    if let Some(why) = &sync.chain.given_up {
        conditions.push(condition("OperationFailed", true, "GivenUp", why.clone()));
    } else if let Some(retry_at) = sync.chain.retry_at.filter(|_| sync.chain.retries > 0) {
        let message = format!("attempt {} at {retry_at}", sync.chain.retries);
        conditions.push(condition("OperationFailed", true, "Retrying", message));
    }
    if !sync.chain.refused.is_empty() {
        let told = sync.chain.refused.iter().take(REFUSED_MAX);
        let mut told: Vec<String> = told.map(|(object, why)| format!("{object}: {why}")).collect();
        let more = sync.chain.refused.len() - told.len();
        told.extend((more > 0).then(|| format!("{more} more")));
        conditions.push(condition("Rejected", true, "Refused", told.join("; ")));
    }
    if let Some(why) = &sync.request_failure {
        conditions.push(condition("RequestFailed", true, "StaleConfirmation", why.clone()));
    }
    let inventory = sync.live.as_ref().and_then(|live| live.inventory.as_ref());
    if inventory.is_some_and(|inventory| inventory.is_rebuilt) {
        let message = "rebuilt from tracking ids; nothing is removed before one sync went through".into();
        conditions.push(condition("InventoryRebuilt", true, "InventoryRebuilt", message));
    }
    for found in sync.healing.conditions(now) {
        conditions.push(condition(found.reason, true, found.reason, found.message));
    }
    // One condition per reason that holds changes back, with the line of the first.
    let mut held: BTreeMap<VerdictCode, (Vec<String>, Option<Origin>)> = BTreeMap::new();
    for change in sync.plan.iter().flat_map(|plan| &plan.changes) {
        if let (Some(code), false) = (change.verdict.code(), change.verdict == Verdict::Proceed) {
            let (messages, origin) = held.entry(code).or_default();
            messages.push(format!("{}: {}", change.object, change.verdict.message()));
            *origin = origin.take().or_else(|| change.origin.clone());
        }
    }
    for (code, (messages, origin)) in held {
        let mut found = condition("ChangesHeld", true, code.as_str(), messages.join("; "));
        found.origin = origin;
        conditions.push(found);
    }
    conditions
}
