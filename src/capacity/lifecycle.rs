//! A claim's next step: launch, register, initialize, or be given up (lifecycle.md 3 to 6).
//!
//! Every step is found from the objects alone, so that a successor in the middle of anything goes on where the objects are.
//! What is remembered besides (which launch was asked for, what it answered) only avoids asking twice; the claim's name
//! is the token by which the cloud recognises a repeated launch.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::decision::Steps;
use super::disruption::expiration;
use super::provisioning::launch_options;
use super::scheduling::{OfferingKey, Supply};
use crate::model::action::{Action, ClaimChange, LaunchedAs, NodeChange, Notice, Subject};
use crate::model::claim::{ConditionStatus, ConditionType, Conditions, NodeClaim};
use crate::model::label::{self, Labels};
use crate::model::name::ClaimName;
use crate::model::node::Node;
use crate::model::observation::Instance;
use crate::model::taint::{Taint, merge_taints};

/// How long a launch may stay unanswered or refused before the claim is given up: five minutes, as in Karpenter.
pub const LAUNCH_PATIENCE: SignedDuration = SignedDuration::from_mins(5);
/// How long a machine may take to join before we stop paying for it: fifteen minutes, as in Karpenter.
pub const REGISTRATION_PATIENCE: SignedDuration = SignedDuration::from_mins(15);
/// How long a launch that was asked for is left to answer before it is asked for again. The cloud recognises the repetition.
const ANSWER_PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// First and longest wait between launches that failed for a passing reason.
const RETRY_LEAST: SignedDuration = SignedDuration::from_secs(1);
const RETRY_MOST: SignedDuration = SignedDuration::from_secs(60);

/// A claim is ready when all of these are true.
pub(crate) const PARTS_OF_READY: [ConditionType; 3] =
    [ConditionType::Launched, ConditionType::Registered, ConditionType::Initialized];

/// What the engine remembers of launches under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launches {
    asked: BTreeMap<ClaimName, Timestamp>,
    answered: BTreeMap<ClaimName, Instance>,
    failures: BTreeMap<ClaimName, (u32, Timestamp, String)>,
}

impl Launches {
    pub fn succeeded(&mut self, claim: ClaimName, instance: Instance) {
        self.asked.remove(&claim);
        self.failures.remove(&claim);
        self.answered.insert(claim, instance);
    }

    /// A launch failed for a reason that may pass: the next one waits twice as long as the last.
    pub fn failed(&mut self, claim: ClaimName, now: Timestamp, message: &str) {
        self.asked.remove(&claim);
        let count = self.failures.get(&claim).map_or(0, |(count, ..)| *count);
        let wait = RETRY_LEAST * 2_i32.saturating_pow(count.min(10));
        self.failures.insert(claim, (count + 1, now + wait.min(RETRY_MOST), message.to_string()));
    }

    pub fn forget(&mut self, claim: ClaimName) {
        self.asked.remove(&claim);
        self.answered.remove(&claim);
        self.failures.remove(&claim);
    }
}

/// What a claim's next step depends on besides the cluster.
pub(crate) struct Context<'a> {
    pub cluster: &'a Cluster,
    pub supply: &'a Supply,
    pub sold_out: &'a BTreeSet<OfferingKey>,
    pub now: Timestamp,
}

/// The next steps of a claim that is not being deleted.
pub(crate) fn advance(context: &Context, launches: &mut Launches, claim: &NodeClaim) -> Steps {
    let mut steps = Steps::default();
    if expire(context, claim, &mut steps) {
        return steps;
    }
    if !claim.has_finalizer {
        let change = ClaimChange { add_finalizer: true, ..ClaimChange::default() };
        let message = "nothing is launched for a claim that could vanish";
        steps.push(Action::UpdateClaim { claim: claim.name, change }, "Finalizer", message);
        return steps;
    }
    if !claim.conditions.is_true(ConditionType::Launched) {
        launch(context, launches, claim, &mut steps);
    } else if !claim.conditions.is_true(ConditionType::Registered) {
        launches.forget(claim.name);
        register(context, claim, &mut steps);
    } else if !claim.conditions.is_true(ConditionType::Initialized) {
        initialize(context, claim, &mut steps);
    }
    steps
}

/// Deletes a claim that is older than its own `expireAfter`.
fn expire(context: &Context, claim: &NodeClaim, steps: &mut Steps) -> bool {
    let Some(due) = expiration::due(claim) else { return false };
    if context.now < due {
        steps.wake(due);
        return false;
    }
    let message = format!("older than its expireAfter of {}", claim.spec.expire_after);
    steps.push(Action::DeleteClaim { claim: claim.name }, "Expired", message);
    true
}

fn launch(context: &Context, launches: &mut Launches, claim: &NodeClaim, steps: &mut Steps) {
    let now = context.now;
    if let Some(instance) = launches.answered.get(&claim.name) {
        record_launch(context, claim, instance, steps);
        return;
    }
    let begun =
        claim.conditions.get(ConditionType::Launched).and_then(|condition| condition.since).or(claim.created);
    let deadline = begun.unwrap_or(now) + LAUNCH_PATIENCE;
    if now >= deadline {
        let message = "not launched within five minutes";
        steps.push(Action::DeleteClaim { claim: claim.name }, "LaunchTimeout", message);
        return;
    }
    steps.wake(deadline);
    if let Some(asked) = launches.asked.get(&claim.name).filter(|asked| now < **asked + ANSWER_PATIENCE) {
        steps.wake(*asked + ANSWER_PATIENCE);
        return;
    }
    if let Some((_, retry_at, message)) = launches.failures.get(&claim.name) {
        note_failure(claim, message, now, steps);
        if now < *retry_at {
            steps.wake(*retry_at);
            return;
        }
    }
    let types = claim.pool().map(|pool| context.supply.types(pool)).unwrap_or_default();
    let options = launch_options(claim, &types, context.sold_out);
    let Some(first) = options.first() else {
        give_up_for_capacity(claim, "nothing that it may be is available", steps);
        return;
    };
    let message = format!(
        "{} in {}, {}, at ${} an hour, or the next of {} ways",
        first.instance_type,
        first.zone,
        first.capacity_type,
        first.price,
        options.len()
    );
    launches.asked.insert(claim.name, now);
    steps.wake(now + ANSWER_PATIENCE);
    steps.push(Action::Launch { claim: claim.name, options }, "Launch", message);
}

/// Deletes a claim for which there is no capacity; its pods come round again and the shortage is known by then.
pub(crate) fn give_up_for_capacity(claim: &NodeClaim, why: &str, steps: &mut Steps) {
    let notice = Notice {
        subject: Subject::Claim(claim.name),
        is_warning: true,
        reason: "InsufficientCapacityError".into(),
        message: why.into(),
    };
    steps.push(Action::Publish(notice), "InsufficientCapacity", why);
    steps.push(Action::DeleteClaim { claim: claim.name }, "InsufficientCapacity", why);
}

/// `Launched` stays Unknown and says why the last attempt failed.
fn note_failure(claim: &NodeClaim, message: &str, now: Timestamp, steps: &mut Steps) {
    let shown: String = if message.chars().count() >= 300 {
        message.chars().take(300).chain("...".chars()).collect()
    } else {
        message.to_string()
    };
    let known = claim.conditions.get(ConditionType::Launched);
    if known.is_some_and(|condition| *condition.message == *shown) {
        return;
    }
    let mut conditions = claim.conditions.clone();
    conditions.set(ConditionType::Launched, ConditionStatus::Unknown, "LaunchFailed", &shown, now);
    if let (Some(known), Some(kept)) = (known, conditions.get(ConditionType::Launched).cloned()) {
        conditions
            .insert(ConditionType::Launched, crate::model::claim::Condition { since: known.since, ..kept });
    }
    let change = ClaimChange { conditions: Some(conditions), ..ClaimChange::default() };
    steps.push(Action::UpdateClaim { claim: claim.name, change }, "LaunchFailed", shown);
}

/// Writes what the launch settled onto the claim.
fn record_launch(context: &Context, claim: &NodeClaim, instance: &Instance, steps: &mut Steps) {
    let mut labels = Labels::new();
    let types = claim.pool().map(|pool| context.supply.types(pool)).unwrap_or_default();
    if let Some(kind) = types.iter().find(|kind| kind.name == instance.instance_type) {
        labels = kind.labels_for(&claim.spec.requirements);
    }
    labels.insert(*label::INSTANCE_TYPE, instance.instance_type.0);
    labels.insert(*label::ZONE, instance.zone.0);
    labels.insert(*label::CAPACITY_TYPE, instance.capacity_type.symbol());
    if let Some(reservation) = instance.reservation {
        labels.insert(*label::RESERVATION_ID, reservation);
    }
    // What the claim says of itself wins.
    labels.extend(claim.labels.iter().map(|(key, value)| (*key, *value)));
    let mut conditions = claim.conditions.clone();
    conditions.set(ConditionType::Launched, ConditionStatus::True, "Launched", "", context.now);
    let change = ClaimChange {
        labels,
        conditions: Some(conditions),
        launched: Some(LaunchedAs {
            provider_id: instance.provider_id,
            image: instance.image,
            capacity: instance.capacity.clone(),
            allocatable: instance.allocatable.clone(),
        }),
        ..ClaimChange::default()
    };
    let message = format!(
        "{} in {}, {} ({})",
        instance.instance_type,
        instance.zone,
        instance.capacity_type,
        instance.provider_id.instance()
    );
    steps.push(Action::UpdateClaim { claim: claim.name, change }, "Launched", message);
}

fn register(context: &Context, claim: &NodeClaim, steps: &mut Steps) {
    let now = context.now;
    let Some(node) = context.cluster.node_of(claim) else {
        let begun = claim.conditions.true_since(ConditionType::Launched).or(claim.created).unwrap_or(now);
        let deadline = begun + REGISTRATION_PATIENCE;
        if now >= deadline {
            let message = "its machine did not join within fifteen minutes";
            steps.push(Action::DeleteClaim { claim: claim.name }, "RegistrationTimeout", message);
        } else {
            steps.wake(deadline);
        }
        return;
    };
    let is_synced =
        |labels: &Labels| labels.get(&*label::DO_NOT_SYNC_TAINTS).is_some_and(|value| &**value == "true");
    let keeps_taints = is_synced(&node.labels) || is_synced(&claim.labels);
    let mut labels = claim.labels.clone();
    labels.insert(*label::REGISTERED, "true".into());
    labels.insert(claim.spec.class.label_key(), claim.spec.class.name.0);
    let wanted = claim.spec.taints.iter().chain(&claim.spec.startup_taints);
    let is_missing = |taint: &&Taint| !node.taints.iter().any(|other| other.is_same(taint));
    let mut missing = Vec::new();
    merge_taints(&mut missing, wanted.filter(is_missing).copied());
    let change = NodeChange {
        labels,
        annotations: claim.annotations.clone(),
        add_taints: if keeps_taints { Vec::new() } else { missing },
        remove_taints: vec![Taint::unregistered()],
        add_finalizer: true,
        owner: Some(claim.name),
    };
    steps.push(Action::UpdateNode { node: node.name, change }, "Registered", "its machine joined");
    let mut conditions = claim.conditions.clone();
    conditions.set(ConditionType::Registered, ConditionStatus::True, "Registered", "", now);
    let change =
        ClaimChange { conditions: Some(conditions), node: Some(node.name), ..ClaimChange::default() };
    let message = format!("joined as {}", node.name);
    steps.push(Action::UpdateClaim { claim: claim.name, change }, "Registered", message);
}

fn initialize(context: &Context, claim: &NodeClaim, steps: &mut Steps) {
    let node = context.cluster.node_of(claim);
    if node.is_some_and(|node| node.taints.iter().any(|taint| taint.is_same(&Taint::unregistered()))) {
        // The claim was written and the node was not, before a crash: it is done again.
        return register(context, claim, steps);
    }
    let (status, reason, message) = match node.map(|node| (node, missing_for_initialization(claim, node))) {
        None => (ConditionStatus::Unknown, "NodeNotFound", String::new()),
        Some((_, Some((reason, message)))) => (ConditionStatus::Unknown, reason, message),
        Some((_, None)) => (ConditionStatus::True, "Initialized", String::new()),
    };
    let known = claim.conditions.get(ConditionType::Initialized);
    let is_known = known.is_some_and(|known| {
        known.status == status && *known.reason == *reason && *known.message == *message
    });
    if is_known {
        return;
    }
    if let Some(node) = node.filter(|_| status == ConditionStatus::True) {
        let labels = Labels::from([(*label::INITIALIZED, "true".into())]);
        let change = NodeChange { labels, ..NodeChange::default() };
        steps.push(Action::UpdateNode { node: node.name, change }, "Initialized", "ready for pods");
    }
    let mut conditions: Conditions = claim.conditions.clone();
    conditions.set(ConditionType::Initialized, status, reason, &message, context.now);
    let change = ClaimChange { conditions: Some(conditions), ..ClaimChange::default() };
    let shown = if message.is_empty() { "ready for pods".to_string() } else { message };
    steps.push(Action::UpdateClaim { claim: claim.name, change }, reason, shown);
}

/// The first thing that a node lacks before pods can rely on it.
fn missing_for_initialization(claim: &NodeClaim, node: &Node) -> Option<(&'static str, String)> {
    if !node.is_ready() {
        return Some(("NodeNotReady", "the node is not ready".to_string()));
    }
    let startup = &claim.spec.startup_taints;
    if let Some(taint) = node.taints.iter().find(|taint| startup.iter().any(|other| other.is_same(taint))) {
        return Some(("StartupTaintsExist", format!("startup taint {taint} is still there")));
    }
    if let Some(taint) = node.taints.iter().find(|taint| taint.is_ephemeral()) {
        return Some(("KnownEphemeralTaintsExist", format!("taint {taint} is still there")));
    }
    let missing =
        claim.spec.requests.iter().find(|(name, amount)| *amount > 0 && node.allocatable.get(*name) == 0);
    missing.map(|(name, _)| ("ResourceNotRegistered", format!("the node does not offer {name} yet")))
}
