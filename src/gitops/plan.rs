//! What one sync would do, in order, with the reason for each step and for each step not taken.
//!
//! A plan is a value. It leaves nothing to choose while it is carried out, it prints as a table and as JSON, and its hash
//! names it on every machine, so that a person can confirm exactly what they saw. Whether a step may be taken is
//! part of the plan, as a [`Verdict`]: a refused removal is as visible as a new pool.
//!
//! Order: writes by wave, then classes before overlays before pools, then name; after all of them removals, backwards.

pub(in crate::gitops) mod guard;
mod print;
mod removal;
mod room;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::desired::{DesiredObject, DesiredState, ObjectRef, Origin};
use super::diff::{DiffKind, FieldChange, MIGRATED_MANAGERS, NodeImpact, co_applier, diff_object, is_mark};
use super::live::{LiveObject, LiveState};
use super::policy::{AdoptMode, SyncPolicy};
use super::tracking::{
    ANNOTATION_ADOPT, ANNOTATION_RECONCILE, Owner, Ownership, annotation, ownership, wave, with_marks,
};
use super::window::ChangeClass;
use crate::model::count::counted;
pub use print::{PlanRow, PlanSummary};

/// How much a rendered set can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RenderProof {
    /// Rendered once. Enough to add and to change, not to remove.
    Once,
    /// Rendered a second time, independently, with this digest.
    Twice { digest: Arc<str> },
}

/// What a person agreed to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// The plan they saw. It covers what needs confirmation, and only while the plan stays the same.
    pub plan: Option<PlanHash>,
    /// Why protection may be overridden this once. An administrator's right; the caller checks that.
    pub override_protection: Option<Arc<str>>,
}

/// Everything that a plan depends on.
#[derive(Clone, Debug)]
pub struct PlanInput<'a> {
    pub desired: &'a DesiredState,
    pub proof: RenderProof,
    pub live: &'a LiveState,
    pub policy: &'a SyncPolicy,
    pub consent: &'a Consent,
    /// For windows and for how long pools have been retiring.
    pub now: Timestamp,
    /// A person asked for it.
    pub is_manual: bool,
    /// When the sync started that this plan goes on with.
    pub started: Option<Timestamp>,
}

/// Names a plan by its content: 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct PlanHash(Arc<str>);

impl PlanHash {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The first seven digits, for people.
    pub fn short(&self) -> &str {
        self.0.get(..7).unwrap_or(&self.0)
    }

    /// Whether `text` names this plan: at least seven of its first digits.
    pub fn is_named_by(&self, text: &str) -> bool {
        text.len() >= 7 && self.0.starts_with(&text.to_ascii_lowercase())
    }
}

impl fmt::Display for PlanHash {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ChangeAction {
    Create,
    Update,
    /// Take over an object that nobody tracks.
    Adopt,
    /// Empty a pool within its budgets; it is deleted when no node is left.
    Retire,
    Delete,
}

impl ChangeAction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Update => "update",
            Self::Adopt => "adopt",
            Self::Retire => "retire",
            Self::Delete => "delete",
        }
    }

    pub fn is_removal(self) -> bool {
        matches!(self, Self::Retire | Self::Delete)
    }
}

/// Whether a change may be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "status", rename_all = "camelCase")]
pub enum Verdict {
    Proceed,
    /// Not now; it needs nobody's word.
    Waits {
        code: VerdictCode,
        message: String,
        until: Option<Timestamp>,
    },
    /// Once a person confirms this very plan.
    NeedsConfirmation {
        code: VerdictCode,
        message: String,
    },
    Refused {
        code: VerdictCode,
        message: String,
        help: String,
    },
}

impl Verdict {
    fn refused(code: VerdictCode, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self::Refused { code, message: message.into(), help: help.into() }
    }

    fn confirm(code: VerdictCode, message: impl Into<String>) -> Self {
        Self::NeedsConfirmation { code, message: message.into() }
    }

    pub fn code(&self) -> Option<VerdictCode> {
        match self {
            Self::Proceed => None,
            Self::Waits { code, .. } | Self::NeedsConfirmation { code, .. } | Self::Refused { code, .. } => {
                Some(*code)
            }
        }
    }

    /// The reason, empty for what proceeds.
    pub fn message(&self) -> &str {
        match self {
            Self::Proceed => "",
            Self::Waits { message, .. }
            | Self::NeedsConfirmation { message, .. }
            | Self::Refused { message, .. } => message,
        }
    }
}

/// Why a change does not simply proceed. Names are stable: conditions and scripts use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum VerdictCode {
    WindowClosed,
    Retiring,
    ClassInUse,
    Terminating,
    PruneNeedsConfirmation,
    RollNeedsConfirmation,
    AdoptNeedsConfirmation,
    RetireTimeout,
    EmptyRender,
    NonDeterministicRender,
    UnprovenRender,
    PruneDisabled,
    InventoryLost,
    InventoryRebuilt,
    NotInInventory,
    Recreated,
    Protected,
    HostsController,
    DoNotDisrupt,
    Unowned,
    SharedResource,
    ImmutableField,
    ReadOnly,
}

impl VerdictCode {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WindowClosed => "WindowClosed",
            Self::Retiring => "Retiring",
            Self::ClassInUse => "ClassInUse",
            Self::Terminating => "Terminating",
            Self::PruneNeedsConfirmation => "PruneNeedsConfirmation",
            Self::RollNeedsConfirmation => "RollNeedsConfirmation",
            Self::AdoptNeedsConfirmation => "AdoptNeedsConfirmation",
            Self::RetireTimeout => "RetireTimeout",
            Self::EmptyRender => "EmptyRender",
            Self::NonDeterministicRender => "NonDeterministicRender",
            Self::UnprovenRender => "UnprovenRender",
            Self::PruneDisabled => "PruneDisabled",
            Self::InventoryLost => "InventoryLost",
            Self::InventoryRebuilt => "InventoryRebuilt",
            Self::NotInInventory => "NotInInventory",
            Self::Recreated => "Recreated",
            Self::Protected => "Protected",
            Self::HostsController => "HostsController",
            Self::DoNotDisrupt => "DoNotDisrupt",
            Self::Unowned => "Unowned",
            Self::SharedResource => "SharedResource",
            Self::ImmutableField => "ImmutableField",
            Self::ReadOnly => "ReadOnly",
        }
    }
}

/// One object that should become different.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlannedChange {
    pub object: ObjectRef,
    pub action: ChangeAction,
    pub verdict: Verdict,
    pub wave: i32,
    pub class: ChangeClass,
    #[serde(flatten)]
    pub impact: NodeImpact,
    /// The nodes of the impact, sorted by name.
    pub affected: Vec<Arc<str>>,
    pub fields: Vec<FieldChange>,
    /// Why, in sentences for a person; never empty.
    pub reasons: Vec<String>,
    /// Where the repository asks for it; `None` for what left it.
    pub origin: Option<Origin>,
    /// The pool that goes away in favour of this one, or the other way round.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renamed: Option<Arc<str>>,
    /// What is applied; `None` for a deletion.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest: Option<Value>,
    /// The object must still be this one when it is written or deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uid: Option<Arc<str>>,
    /// Managers of hand-made writes whose fields become ours first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub take_over: Vec<String>,
    /// SHA-256 of the object as the commit wants it: tells a new wish from drift. Empty for what left Git.
    #[serde(skip)]
    pub(crate) wanted: Arc<str>,
}

/// An object that is left alone although it is ours or in our way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    pub object: ObjectRef,
    pub reason: String,
}

/// A tracked object that is as the commit wants it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settled {
    pub object: ObjectRef,
    pub uid: Arc<str>,
    pub digest: Arc<str>,
    pub wave: i32,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncPlan {
    pub hash: PlanHash,
    pub environment: Arc<str>,
    pub commit: Arc<str>,
    /// Digest of what the commit wants.
    pub digest: Arc<str>,
    /// In the order in which they are made.
    pub changes: Vec<PlannedChange>,
    /// Objects that are as they should be.
    pub unchanged: u32,
    /// The same objects, for the record of what is applied.
    #[serde(skip)]
    pub(crate) settled: Vec<Settled>,
    pub skipped: Vec<Skipped>,
    /// NodePools, classes and overlays in the cluster that nobody tracks.
    pub unmanaged: Vec<ObjectRef>,
    /// Whether a person's confirmation covers this plan.
    pub is_confirmed: bool,
}

impl SyncPlan {
    /// Whether carrying it out would write nothing.
    pub fn is_noop(&self) -> bool {
        self.proceeding().next().is_none()
    }

    /// Whether nothing separates the cluster from Git, held back or not.
    pub fn is_in_sync(&self) -> bool {
        self.changes.is_empty()
    }

    /// The changes that would be made now, in order.
    pub fn proceeding(&self) -> impl Iterator<Item = &PlannedChange> {
        self.changes.iter().filter(|change| change.verdict == Verdict::Proceed)
    }

    /// When to plan again because a window turns, if any change waits for one.
    pub fn wake_at(&self) -> Option<Timestamp> {
        self.changes
            .iter()
            .filter_map(|change| match &change.verdict {
                Verdict::Waits { until, .. } => *until,
                _ => None,
            })
            .min()
    }
}

/// Compares what a commit wants with what is live and says what to do about it.
///
/// Pure: the same input always gives the same plan. Every wanted and every tracked object is in `changes`, in `skipped`,
/// or counted in `unchanged`.
pub fn plan_sync(input: &PlanInput<'_>) -> SyncPlan {
    let owner = Owner {
        installation: input.policy.installation.clone(),
        environment: input.desired.environment.clone(),
    };
    let mut plan =
        Drafting { input, owner, writes: vec![], skipped: vec![], unmanaged: vec![], settled: vec![] };
    for (object, desired) in &input.desired.objects {
        plan.want(object, desired);
    }
    plan.hold_rooms();
    let mut removals = plan.removals();
    pair_renames(input, &mut plan.writes, &mut removals);
    guard::limit_rolls(input.policy, &mut plan.writes);
    guard::limit_removals(input, &plan.owner, &mut removals);
    plan.writes.sort_by(|a, b| (a.wave, &a.object).cmp(&(b.wave, &b.object)));
    removals.sort_by(|a, b| {
        let order = |change: &PlannedChange| {
            (std::cmp::Reverse(change.wave), std::cmp::Reverse(change.object.rank()))
        };
        (order(a), &a.object).cmp(&(order(b), &b.object))
    });
    let mut changes = plan.writes;
    changes.extend(removals);
    guard::refuse_unstable_render(input, &mut changes);
    let hash = plan_hash(&plan.owner, &changes);
    let is_confirmed = input.consent.plan.as_ref() == Some(&hash);
    guard::settle(input, is_confirmed, &mut changes);
    SyncPlan {
        hash,
        environment: input.desired.environment.clone(),
        commit: input.desired.revision.commit.as_str().into(),
        digest: input.desired.digest.clone(),
        changes,
        unchanged: u32::try_from(plan.settled.len()).unwrap_or(u32::MAX),
        settled: plan.settled,
        skipped: plan.skipped,
        unmanaged: plan.unmanaged,
        is_confirmed,
    }
}

/// A plan under construction.
struct Drafting<'a> {
    input: &'a PlanInput<'a>,
    owner: Owner,
    writes: Vec<PlannedChange>,
    skipped: Vec<Skipped>,
    unmanaged: Vec<ObjectRef>,
    settled: Vec<Settled>,
}

impl Drafting<'_> {
    fn want(&mut self, object: &ObjectRef, desired: &DesiredObject) {
        let live = self.input.live.objects.get(object);
        let is_paused = annotation(&desired.manifest, ANNOTATION_RECONCILE) == Some("disabled")
            || live.is_some_and(|live| live.annotation(ANNOTATION_RECONCILE) == Some("disabled"));
        if is_paused {
            let reason = format!("annotated {ANNOTATION_RECONCILE}: disabled");
            self.skipped.push(Skipped { object: object.clone(), reason });
            return;
        }
        let Some(live) = live else { return self.create(object, desired) };
        if live.is_terminating() {
            let mut change = self.draft(object, desired, None, ChangeAction::Create);
            change.reasons.push("wanted by the commit; the old object of its name is being deleted".into());
            let message = "the old object is still being deleted".into();
            change.verdict = Verdict::Waits { code: VerdictCode::Terminating, message, until: None };
            return self.writes.push(change);
        }
        match self.claim(object, live) {
            Ownership::Ours => self.update(object, desired, live),
            Ownership::Other(owner) => {
                let mut change = self.draft(object, desired, Some(live), ChangeAction::Adopt);
                change.reasons.push(format!("the commit wants an object that belongs to {owner}"));
                change.verdict = Verdict::refused(
                    VerdictCode::SharedResource,
                    format!("belongs to {owner}"),
                    "have its owner release it, or choose another name",
                );
                self.writes.push(change);
            }
            Ownership::Nobody | Ownership::Copy => self.adopt(object, desired, live),
        }
    }

    /// Our tracking id counts, and so does our own record of having applied this very object.
    fn claim(&self, object: &ObjectRef, live: &LiveObject) -> Ownership {
        let found = ownership(&self.owner, object, live);
        let entry = self.input.live.inventory.as_ref().and_then(|inventory| inventory.entries.get(object));
        match (found, entry) {
            (Ownership::Nobody, Some(entry)) if entry.uid == live.uid => Ownership::Ours,
            (found, _) => found,
        }
    }

    fn create(&mut self, object: &ObjectRef, desired: &DesiredObject) {
        let mut change = self.draft(object, desired, None, ChangeAction::Create);
        let was_there = self
            .input
            .live
            .inventory
            .as_ref()
            .is_some_and(|inventory| inventory.entries.contains_key(object));
        change.reasons.push(if was_there {
            "applied before and deleted since by somebody else".into()
        } else {
            "wanted by the commit and not in the cluster".into()
        });
        self.writes.push(change);
    }

    fn update(&mut self, object: &ObjectRef, desired: &DesiredObject, live: &LiveObject) {
        let mut change = self.draft(object, desired, Some(live), ChangeAction::Update);
        if change.fields.is_empty() {
            self.settled.push(Settled {
                object: object.clone(),
                uid: live.uid.clone(),
                digest: change.wanted,
                wave: change.wave,
            });
            return;
        }
        change.reasons.push(match &change.fields[..] {
            [field] => format!("{} differs from the commit", field.short_path()),
            fields => format!("{} fields differ from the commit", fields.len()),
        });
        if let Some(refusal) = immutable(&change.fields, object) {
            change.verdict = refusal;
        }
        self.writes.push(change);
    }

    fn adopt(&mut self, object: &ObjectRef, desired: &DesiredObject, live: &LiveObject) {
        let mut change = self.draft(object, desired, Some(live), ChangeAction::Adopt);
        change.reasons.push("in the cluster under a wanted name, and tracked by nobody".into());
        let differences = change.fields.iter().filter(|field| !is_mark(&field.path)).count();
        let help = format!(
            "with `spec.sync.adopt: match` of the Environment it is taken over if nothing differs, with `take` once you say \
             yes or annotate it with {ANNOTATION_ADOPT}: {}",
            self.owner.environment
        );
        let is_released = live.annotation(ANNOTATION_ADOPT) == Some(&*self.owner.environment);
        change.verdict = match self.input.policy.adopt {
            AdoptMode::Fail => {
                let message = match differences {
                    0 => "exists, is tracked by nobody, and equals what is wanted".into(),
                    count => {
                        format!("exists, is tracked by nobody, and differs in {}", counted(count, "field"))
                    }
                };
                Verdict::refused(VerdictCode::Unowned, message, help)
            }
            AdoptMode::Match if differences > 0 => {
                let message = format!("is taken over only if nothing differs; fields that do: {differences}");
                Verdict::refused(VerdictCode::Unowned, message, help)
            }
            AdoptMode::Take if !is_released => Verdict::confirm(
                VerdictCode::AdoptNeedsConfirmation,
                "takes over an object that nobody tracks",
            ),
            AdoptMode::Match | AdoptMode::Take => Verdict::Proceed,
        };
        if change.verdict == Verdict::Proceed
            && let Some(refusal) = immutable(&change.fields, object)
        {
            change.verdict = refusal;
        }
        self.writes.push(change);
    }

    /// The change that would make `object` as the commit wants it, with everything but its reasons.
    fn draft(
        &self,
        object: &ObjectRef,
        desired: &DesiredObject,
        live: Option<&LiveObject>,
        action: ChangeAction,
    ) -> PlannedChange {
        let mut wanted = desired.clone();
        wanted.manifest = with_marks(&self.owner, object, &desired.manifest);
        let digest = digest(&wanted.manifest);
        let mut diff = diff_object(object, live, Some(&wanted), Some(&self.input.live.fleet));
        if let Some(live) = live {
            let policy = self.input.policy;
            let is_ignored = |field: &FieldChange| policy.is_ignored(&object.kind, &object.name, &field.path);
            // A list is written as a whole, so one element of it is ignored only if nothing else of it changes.
            let changed_lists: BTreeSet<&str> = diff
                .fields
                .iter()
                .filter(|field| !is_ignored(field))
                .map(|field| field.whole_list())
                .collect();
            let ignored: Vec<&FieldChange> = diff
                .fields
                .iter()
                .filter(|field| is_ignored(field) && !changed_lists.contains(field.whole_list()))
                .collect();
            if !ignored.is_empty() {
                for field in ignored {
                    let is_theirs = co_applier(live, field.whole_list()).is_some();
                    keep_live_value(&mut wanted.manifest, &live.manifest, field.whole_list(), is_theirs);
                }
                diff = diff_object(object, Some(live), Some(&wanted), Some(&self.input.live.fleet));
                diff.fields.retain(|field| !is_ignored(field));
            }
        }
        let class = match (action, diff.impact) {
            (ChangeAction::Create, _) => ChangeClass::Additive,
            (_, NodeImpact::Destructive { .. }) => ChangeClass::Destructive,
            (_, impact) if impact.nodes() != Some(0) => ChangeClass::Rolling,
            _ => ChangeClass::Behavioural,
        };
        debug_assert!(diff.kind != DiffKind::Removed, "a wanted object is never removed");
        PlannedChange {
            object: object.clone(),
            action,
            verdict: Verdict::Proceed,
            wave: wave(&desired.manifest),
            class,
            impact: diff.impact,
            affected: diff.affected,
            fields: diff.fields,
            reasons: vec![],
            origin: diff.origin,
            renamed: None,
            manifest: Some(wanted.manifest),
            uid: live.map(|live| live.uid.clone()).filter(|uid| !uid.is_empty()),
            take_over: live.map(take_over).unwrap_or_default(),
            wanted: digest.into(),
        }
    }
}

fn take_over(live: &LiveObject) -> Vec<String> {
    let managers: BTreeSet<&str> = live.managers().into_iter().collect();
    MIGRATED_MANAGERS.into_iter().filter(|name| managers.contains(name)).map(Into::into).collect()
}

/// Makes what is applied say nothing new about a field: the live value, or nothing where somebody else applies it.
fn keep_live_value(manifest: &mut Value, live: &Value, path: &str, is_theirs: bool) {
    if path.starts_with("metadata.") {
        return;
    }
    let keys = split_path(live, manifest, path);
    match keys.iter().try_fold(live, |at, key| at.get(key)).cloned() {
        Some(value) if !is_theirs => put(manifest, &keys, value),
        _ => take_out(manifest, &keys),
    }
}

fn put(manifest: &mut Value, keys: &[String], value: Value) {
    let Some((last, parents)) = keys.split_last() else { return };
    let mut at = manifest;
    for key in parents {
        let Some(map) = at.as_object_mut() else { return };
        at = map.entry(key.clone()).or_insert_with(|| Value::Object(Map::new()));
    }
    if let Some(map) = at.as_object_mut() {
        map.insert(last.clone(), value);
    }
}

/// Takes a value out, and with it the maps that are empty then.
fn take_out(at: &mut Value, keys: &[String]) {
    let (Some((first, rest)), Some(map)) = (keys.split_first(), at.as_object_mut()) else { return };
    if let Some(inner) = map.get_mut(first).filter(|_| !rest.is_empty()) {
        take_out(inner, rest);
        if !inner.as_object().is_some_and(Map::is_empty) {
            return;
        }
    }
    map.shift_remove(first);
}

/// Splits a dotted path at the keys that one of two manifests really has: keys may hold dots themselves.
fn split_path(a: &Value, b: &Value, path: &str) -> Vec<String> {
    let mut rest = path;
    let mut at = (Some(a), Some(b));
    let mut keys = Vec::new();
    while !rest.is_empty() {
        let known = [at.0, at.1]
            .into_iter()
            .flatten()
            .filter_map(Value::as_object)
            .flat_map(|map| map.keys())
            .filter(|key| {
                rest.strip_prefix(key.as_str()).is_some_and(|tail| tail.is_empty() || tail.starts_with('.'))
            })
            .max_by_key(|key| key.len())
            .cloned();
        let key = known.unwrap_or_else(|| rest.split('.').next().unwrap_or(rest).to_owned());
        rest = rest[key.len()..].trim_start_matches('.');
        at = (at.0.and_then(|value| value.get(&key)), at.1.and_then(|value| value.get(&key)));
        keys.push(key);
    }
    keys
}

/// Fields that Kubernetes never lets change on an existing object.
fn immutable(fields: &[FieldChange], object: &ObjectRef) -> Option<Verdict> {
    if &*object.kind != "NodePool" {
        return None;
    }
    let is_fixed = |field: &&FieldChange| match &*field.path {
        "spec.template.spec.nodeClassRef.group" | "spec.template.spec.nodeClassRef.kind" => true,
        "spec.replicas" => field.from.is_none() != field.to.is_none(),
        _ => false,
    };
    let field = fields.iter().find(is_fixed)?;
    let message = if field.path == "spec.replicas" {
        "a pool cannot become static or dynamic after it was made".into()
    } else {
        format!("{} cannot change on an existing pool", field.short_path())
    };
    let help = format!("give the pool a new name: it is created first, then {} is retired", object.name);
    Some(Verdict::refused(VerdictCode::ImmutableField, message, help))
}

/// A pool that leaves while another with the same content arrives was renamed.
fn pair_renames(input: &PlanInput<'_>, writes: &mut [PlannedChange], removals: &mut [PlannedChange]) {
    for gone in removals.iter_mut().filter(|change| &*change.object.kind == "NodePool") {
        let Some(live) = input.live.objects.get(&gone.object) else { continue };
        let twin = writes.iter_mut().find(|new| {
            let Some(wanted) = input.desired.objects.get(&new.object) else { return false };
            new.action == ChangeAction::Create
                && new.renamed.is_none()
                && new.object.kind == gone.object.kind
                && diff_object(&new.object, Some(live), Some(wanted), None)
                    .fields
                    .iter()
                    .all(|field| field.path.starts_with("metadata.") || is_retire_mark(field))
        });
        if let Some(new) = twin {
            let nodes = gone.impact.nodes().unwrap_or(0);
            new.reasons
                .push(format!("NodePool {} was renamed to it; its nodes come first", gone.object.name));
            gone.reasons.push(match nodes {
                1 => format!("renamed to {}; its node follows", new.object.name),
                nodes => format!("renamed to {}; its {nodes} nodes follow", new.object.name),
            });
            new.renamed = Some(gone.object.name.clone());
            gone.renamed = Some(new.object.name.clone());
        }
    }
}

/// Whether a difference only comes from the pool already being emptied.
fn is_retire_mark(field: &FieldChange) -> bool {
    field.path.ends_with("annotations.provisor.dev/retire") || field.path == "spec.limits.nodes"
}

/// Hashes what would be done, not when: windows and confirmations do not rename a plan. Of node counts only those of
/// removals count, so a confirmation is void when more nodes would go than the person saw.
fn plan_hash(owner: &Owner, changes: &[PlannedChange]) -> PlanHash {
    let changes: Vec<Value> = changes
        .iter()
        .map(|change| {
            let removed = match change.impact {
                NodeImpact::Destructive { nodes } => json!(nodes),
                _ => Value::Null,
            };
            json!({
                "object": change.object,
                "action": change.action,
                "wave": change.wave,
                "class": change.class,
                "removed": removed,
                "fields": change.fields.iter().map(|field| json!([field.path, field.from, field.to])).collect::<Vec<_>>(),
                "verdict": change.verdict.code(),
                "manifest": change.manifest,
                "uid": change.uid,
            })
        })
        .collect();
    let content = json!({
        "installation": owner.installation,
        "environment": owner.environment,
        "changes": changes,
    });
    PlanHash(digest(&content).into())
}

/// SHA-256 of a value in canonical form, in hexadecimal: the order of keys does not matter.
pub(crate) fn digest(value: &Value) -> String {
    let mut hasher = Sha256::new();
    hasher.update(canonical(value).to_string());
    hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<&String, &Value> = map.iter().collect();
            Value::Object(sorted.into_iter().map(|(key, inner)| (key.clone(), canonical(inner))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(canonical).collect()),
        other => other.clone(),
    }
}
