//! A claim's next step: launch, register, initialize, or be given up (lifecycle.md 3 to 6).
//!
//! Every step is found from the objects alone, so that a successor in the middle of anything goes on where the objects are.
//! What is remembered besides (which launch was asked for, what it answered) only avoids asking twice; the claim's name
//! is the token by which the cloud recognises a repeated launch.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::decision::Steps;
use super::disruption::expiration;
use super::provisioning::launch_options;
use super::scheduling::{OfferingKey, Supply, is_kept_from_daemons};
use crate::model::action::{Action, ClaimChange, LaunchedAs, NodeChange, Notice, Subject};
use crate::model::claim::{Condition, ConditionStatus, ConditionType, Conditions, NodeClaim};
use crate::model::count::counted;
use crate::model::label::{self, Labels};
use crate::model::name::ClaimName;
use crate::model::node::Node;
use crate::model::observation::Instance;
use crate::model::symbol::Symbol;
use crate::model::taint::{Taint, merge_taints};

/// How long a claim may stay without a machine, and a machine without a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Patience {
    /// A launch that stays unanswered or refused for so long is given up: five minutes, as in Karpenter.
    pub launch: SignedDuration,
    /// A machine that takes longer to join is not paid for any more: fifteen minutes, as in Karpenter.
    pub registration: SignedDuration,
}

impl Default for Patience {
    fn default() -> Self {
        Self { launch: SignedDuration::from_mins(5), registration: SignedDuration::from_mins(15) }
    }
}

/// How long a launch that was asked for is left to answer before it is asked for again. The cloud recognises the repetition.
const ANSWER_PATIENCE: SignedDuration = SignedDuration::from_secs(60);
/// First and longest wait between launches that failed for a passing reason.
const RETRY_LEAST: SignedDuration = SignedDuration::from_secs(1);
const RETRY_MOST: SignedDuration = SignedDuration::from_secs(60);
/// A node that is not ready so long after it joined opens all the same: something that it needs may not run on a closed one. One
/// that is ready waits no longer for pods that are yet to come, from then on. Where an API server has no processor left, kubelets that
/// started together take a minute and more.
const CLOSED_MOST: SignedDuration = SignedDuration::from_mins(2);
/// One that is ready waits no longer for its turn: 3,000 pods are told, fifty at a time, and mostly that takes two seconds and at the
/// most five.
const TURN_MOST: SignedDuration = SignedDuration::from_mins(5);
/// A claim says that its node, which is ready, has yet to open once that takes so long: mostly it opens before, and where many do they need
/// the API server for it.
const CLOSED_UNTOLD: SignedDuration = SignedDuration::from_secs(30);

/// A claim is ready when all of these are true.
pub(crate) const PARTS_OF_READY: [ConditionType; 3] =
    [ConditionType::Launched, ConditionType::Registered, ConditionType::Initialized];

/// What the engine remembers of launches under way.
#[derive(Clone, Debug, Default)]
pub(crate) struct Launches {
    asked: BTreeMap<ClaimName, Timestamp>,
    answered: BTreeMap<ClaimName, Instance>,
    failures: BTreeMap<ClaimName, Failures>,
}

/// Launches of a claim that failed for a reason that may pass.
#[derive(Clone, Debug)]
struct Failures {
    count: u32,
    retry_at: Timestamp,
    /// The word for why, if the cloud has one, and what it said.
    reason: Option<Symbol>,
    message: String,
}

/// The most characters that are shown of what a cloud says.
const MESSAGE_MAX: usize = 300;

impl Launches {
    pub fn succeeded(&mut self, claim: ClaimName, instance: Instance) {
        self.asked.remove(&claim);
        self.failures.remove(&claim);
        self.answered.insert(claim, instance);
    }

    /// A launch failed for a reason that may pass: the next one waits twice as long as the last.
    pub fn failed(&mut self, claim: ClaimName, now: Timestamp, reason: Option<Symbol>, message: &str) {
        self.asked.remove(&claim);
        let count = self.failures.get(&claim).map_or(0, |former| former.count);
        let wait = RETRY_LEAST * 2_i32.saturating_pow(count.min(10));
        let retry_at = now + wait.min(RETRY_MOST);
        self.failures.insert(claim, Failures { count: count + 1, retry_at, reason, message: message.into() });
    }

    /// The order did not reach the cloud.
    pub fn not_asked(&mut self, claim: ClaimName) {
        self.asked.remove(&claim);
    }

    pub fn forget(&mut self, claim: ClaimName) {
        self.asked.remove(&claim);
        self.answered.remove(&claim);
        self.failures.remove(&claim);
    }
}

/// What a node that is ready waits for before it opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    /// Pods that are yet to be made, or a plan.
    ForPods,
    /// Its pods are to know of it, and those of others.
    ForTurn,
}

/// What a claim's next step depends on besides the cluster.
pub(crate) struct Context<'a> {
    pub cluster: &'a Cluster,
    pub supply: &'a Supply,
    pub sold_out: &'a BTreeSet<OfferingKey>,
    pub patience: Patience,
    /// Pods wait for the machine of this claim, and are to be told its node.
    pub is_promised: bool,
    /// Why its node, which could open otherwise, does not.
    pub held: Option<Held>,
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
    if label_class(context.cluster, claim, &mut steps) {
        return steps;
    }
    // A claim that says so without naming its machine was written in part.
    if !claim.conditions.is_true(ConditionType::Launched) || claim.provider_id.is_none() {
        launch(context, launches, claim, &mut steps);
    } else if !claim.conditions.is_true(ConditionType::Registered) {
        register(context, claim, &mut steps);
    } else if !claim.conditions.is_true(ConditionType::Initialized) {
        initialize(context, claim, &mut steps);
    } else {
        // Until here the answer may be of use again: what it led to is assumed, and writing it may fail.
        launches.forget(claim.name);
        // Whoever initialized it may know of no taint that stands there while it opens.
        if let Some(node) = context.cluster.node_of(claim).filter(|node| is_closed(node)) {
            open(node, &mut steps);
        }
    }
    steps
}

/// Deletes a claim that is older than its own `expireAfter`.
fn expire(context: &Context, claim: &NodeClaim, steps: &mut Steps) -> bool {
    let Some(at) = expiration::goes_at(context.cluster, claim, context.now) else { return false };
    if context.now < at {
        steps.wake(at);
        return false;
    }
    let message = format!("older than its expireAfter of {}", claim.spec.expire_after);
    steps.push(Action::DeleteClaim { claim: claim.name }, "Expired", message);
    true
}

/// Claims and nodes of old versions do not name their class: whoever selects nodes by it would miss them.
fn label_class(cluster: &Cluster, claim: &NodeClaim, steps: &mut Steps) -> bool {
    let key = claim.spec.class.label_key();
    let label = || Labels::from([(key, claim.spec.class.name.0)]);
    let message = "it names its class from now on";
    if !claim.labels.contains_key(&key) {
        let change = ClaimChange { labels: label(), ..ClaimChange::default() };
        steps.push(Action::UpdateClaim { claim: claim.name, change }, "Labelled", message);
    }
    // One that has yet to register gets all its labels then.
    let is_registered = claim.conditions.is_true(ConditionType::Registered);
    if let Some(node) = cluster.node_of(claim).filter(|_| is_registered)
        && !node.labels.contains_key(&key)
    {
        let change = NodeChange { labels: label(), ..NodeChange::default() };
        steps.push(Action::UpdateNode { node: node.name, change }, "Labelled", message);
    }
    !steps.actions.is_empty()
}

fn launch(context: &Context, launches: &mut Launches, claim: &NodeClaim, steps: &mut Steps) {
    let now = context.now;
    if let Some(instance) = launches.answered.get(&claim.name) {
        record_launch(context, claim, instance, steps);
        return;
    }
    let deadline = begun(claim, ConditionType::Launched, now) + context.patience.launch;
    if now >= deadline {
        let mut message = format!("not launched within {}", in_words(context.patience.launch));
        if let Some(failures) = launches.failures.get(&claim.name) {
            message.push_str(&format!("; the last answer: {}", shortened(&failures.message)));
        }
        steps.push(Action::DeleteClaim { claim: claim.name }, "LaunchTimeout", message);
        return;
    }
    steps.wake(deadline);
    if let Some(asked) = launches.asked.get(&claim.name).filter(|asked| now < **asked + ANSWER_PATIENCE) {
        steps.wake(*asked + ANSWER_PATIENCE);
        return;
    }
    if let Some(failures) = launches.failures.get(&claim.name) {
        note_failure(claim, failures, now, steps);
        if now < failures.retry_at {
            steps.wake(failures.retry_at);
            return;
        }
    }
    let types = claim.pool().map(|pool| context.supply.types(pool)).unwrap_or_default();
    let options = launch_options(claim, &types, context.sold_out);
    let Some(first) = options.first() else {
        give_up(claim, &GiveUp::NoCapacity("nothing that it may be is available".into()), steps);
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

/// Since when `kind` is what it is: a condition that was never touched is as old as its claim.
fn begun(claim: &NodeClaim, kind: ConditionType, now: Timestamp) -> Timestamp {
    claim.conditions.get(kind).and_then(|condition| condition.since).or(claim.created).unwrap_or(now)
}

/// Since when a machine is waited for: where nothing was said of its node yet, since it was launched.
fn waited_since(claim: &NodeClaim, now: Timestamp) -> Timestamp {
    let launched = claim.conditions.true_since(ConditionType::Launched);
    match claim.conditions.get(ConditionType::Registered).and_then(|condition| condition.since) {
        Some(since) => since,
        None => launched.or(claim.created).unwrap_or(now),
    }
}

fn in_words(patience: SignedDuration) -> String {
    match (patience.as_mins(), patience.as_secs() % 60) {
        (minutes, 0) if minutes > 0 => counted(minutes.unsigned_abs(), "minute"),
        _ => counted(patience.as_secs().unsigned_abs(), "second"),
    }
}

/// Why a claim is not worth another launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GiveUp {
    NoCapacity(String),
    ClassNotReady(String),
}

/// Deletes a claim whose launch would fail again. Its pods come round again, and what was in the way is known by then.
pub(crate) fn give_up(claim: &NodeClaim, why: &GiveUp, steps: &mut Steps) {
    match why {
        GiveUp::NoCapacity(why) => {
            let notice = Notice {
                subject: Subject::Claim(claim.name),
                is_warning: true,
                reason: "InsufficientCapacityError".into(),
                message: why.as_str().into(),
            };
            steps.push(Action::Publish(notice), "InsufficientCapacity", why);
            steps.push(Action::DeleteClaim { claim: claim.name }, "InsufficientCapacity", why);
        }
        GiveUp::ClassNotReady(why) => {
            steps.push(Action::DeleteClaim { claim: claim.name }, "NodeclassNotReady", why);
        }
    }
}

/// At most so much of what the cloud answers.
fn shortened(message: &str) -> String {
    if message.chars().count() >= MESSAGE_MAX {
        message.chars().take(MESSAGE_MAX).chain("...".chars()).collect()
    } else {
        message.to_owned()
    }
}

/// `Launched` stays Unknown and says why the last attempt failed; so does an event, which outlives the claim.
fn note_failure(claim: &NodeClaim, failures: &Failures, now: Timestamp, steps: &mut Steps) {
    let shown = shortened(&failures.message);
    let reason = failures.reason.as_ref().map_or("LaunchFailed", |reason| reason.as_str());
    let known = claim.conditions.get(ConditionType::Launched);
    if known.is_some_and(|condition| *condition.message == *shown && *condition.reason == *reason) {
        return;
    }
    let notice = Notice {
        subject: Subject::Claim(claim.name),
        is_warning: true,
        reason: reason.into(),
        message: shown.as_str().into(),
    };
    steps.push(Action::Publish(notice), "LaunchFailed", &shown);
    let mut conditions = claim.conditions.clone();
    let since = Some(begun(claim, ConditionType::Launched, now));
    let (status, reason, message) = (ConditionStatus::Unknown, reason.into(), shown.as_str().into());
    conditions.insert(ConditionType::Launched, Condition { status, reason, message, since });
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
    if conditions.get(ConditionType::Registered).is_none() {
        let status = ConditionStatus::Unknown;
        conditions.set(ConditionType::Registered, status, NODE_NOT_FOUND, "", context.now);
    }
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

/// A machine that was launched, and of which no node tells yet.
const NODE_NOT_FOUND: &str = "NodeNotFound";
/// Two nodes that say they run on one machine: neither can be trusted.
const MULTIPLE_NODES: &str = "MultipleNodesFound";

fn register(context: &Context, claim: &NodeClaim, steps: &mut Steps) {
    let now = context.now;
    let nodes: Vec<&Arc<Node>> = context.cluster.nodes_of(claim).collect();
    match nodes.as_slice() {
        [node] => {
            let closed = closed_until(context, claim, node);
            closed.into_iter().for_each(|until| steps.wake(until));
            sync_node(claim, node, now, steps);
        }
        found => {
            let deadline = waited_since(claim, now) + context.patience.registration;
            if now >= deadline {
                let patience = in_words(context.patience.registration);
                let message = format!("its machine did not join within {patience}");
                steps.push(Action::DeleteClaim { claim: claim.name }, "RegistrationTimeout", message);
                return;
            }
            steps.wake(deadline);
            note_missing_node(claim, found, now, steps);
        }
    }
}

/// `Registered` says that there is no node yet, or one too many.
fn note_missing_node(claim: &NodeClaim, found: &[&Arc<Node>], now: Timestamp, steps: &mut Steps) {
    let names: Vec<&str> = found.iter().map(|node| node.name.as_str()).collect();
    let (status, reason, message) = match names.as_slice() {
        [] => (ConditionStatus::Unknown, NODE_NOT_FOUND, String::new()),
        names => {
            let message = format!("{} say that they are one machine", names.join(" and "));
            (ConditionStatus::False, MULTIPLE_NODES, message)
        }
    };
    let known = claim.conditions.get(ConditionType::Registered);
    if known
        .is_some_and(|known| known.status == status && *known.reason == *reason && *known.message == *message)
    {
        return;
    }
    let mut conditions = claim.conditions.clone();
    if known.is_none() {
        let since = Some(waited_since(claim, now));
        let unknown = ConditionStatus::Unknown;
        let (reason, message) = (NODE_NOT_FOUND.into(), "".into());
        conditions.insert(ConditionType::Registered, Condition { status: unknown, reason, message, since });
    }
    conditions.set(ConditionType::Registered, status, reason, &message, now);
    let change = ClaimChange { conditions: Some(conditions), ..ClaimChange::default() };
    let shown = if message.is_empty() { "no node tells of its machine yet".into() } else { message };
    steps.push(Action::UpdateClaim { claim: claim.name, change }, reason, shown);
}

/// Until when a node that has joined stays closed, although its claim knows it.
///
/// kube-scheduler forgets which node a pod was told of when it tries the pod before that node is ready (`nominations.rs`), and
/// then others take the room. So what it was bought for is told when it is ready, and it opens when its turn comes (`openings.rs`).
fn closed_until(context: &Context, claim: &NodeClaim, node: &Node) -> Option<Timestamp> {
    let most = match (could_take_pods(node), context.held) {
        (true, Some(Held::ForTurn)) => TURN_MOST,
        (true, Some(Held::ForPods)) => CLOSED_MOST,
        (false, _) if context.is_promised && !is_kept_from_daemons(context.cluster, node) => CLOSED_MOST,
        _ => return None,
    };
    Some(closed_since(context, claim, node) + most).filter(|until| context.now < *until)
}

/// Since when it is only we who keep it closed, or since when it is there; by the clock of its kubelet, which may be wrong.
fn closed_since(context: &Context, claim: &NodeClaim, node: &Node) -> Timestamp {
    let joined = claim.conditions.true_since(ConditionType::Registered).unwrap_or(context.now);
    let ready = node.ready_since().filter(|ready| could_take_pods(node) && *ready <= context.now);
    ready.map_or(joined, |ready| ready.max(joined))
}

/// Whether pods would come as soon as the node opens.
pub(crate) fn could_take_pods(node: &Node) -> bool {
    node.is_ready() && !node.taints.iter().any(|taint| taint.is_ephemeral() && !taint.keeps_closed())
}

pub(crate) fn is_closed(node: &Node) -> bool {
    node.taints.iter().any(Taint::keeps_closed)
}

fn open(node: &Node, steps: &mut Steps) {
    let remove_taints = node.taints.iter().filter(|taint| taint.keeps_closed()).copied().collect();
    let change = NodeChange { remove_taints, ..NodeChange::default() };
    steps.push(Action::UpdateNode { node: node.name, change }, "Opened", "pods may come");
}

/// The node of a claim gets all that the claim says of it, and what lives there may stay; it opens with the next write.
fn sync_node(claim: &NodeClaim, node: &Node, now: Timestamp, steps: &mut Steps) {
    let is_marked = is_closed(node);
    if !is_marked && !node.labels.contains_key(&*label::REGISTERED) {
        let message = format!(
            "it joined without the taint {}, so pods may have come before it was ready; let its kubelet register with the taint",
            Taint::unregistered()
        );
        let notice = Notice {
            subject: Subject::Node(node.name),
            is_warning: true,
            reason: "UnregisteredTaintMissing".into(),
            message: message.as_str().into(),
        };
        steps.push(Action::Publish(notice), "UnregisteredTaintMissing", message);
    }
    let is_synced =
        |labels: &Labels| labels.get(&*label::DO_NOT_SYNC_TAINTS).is_some_and(|value| &**value == "true");
    let keeps_taints = is_synced(&node.labels) || is_synced(&claim.labels);
    let mut labels = claim.labels.clone();
    labels.insert(*label::REGISTERED, "true".into());
    labels.insert(claim.spec.class.label_key(), claim.spec.class.name.0);
    let wanted = claim.spec.taints.iter().chain(&claim.spec.startup_taints);
    let is_missing = |taint: &&Taint| !node.taints.iter().any(|other| other.is_same(taint));
    let mut missing = Vec::new();
    if !keeps_taints {
        merge_taints(&mut missing, wanted.filter(is_missing).copied());
    }
    if is_marked {
        missing.push(Taint::unopened());
    }
    let change = NodeChange {
        labels,
        annotations: claim.annotations.clone(),
        add_taints: missing,
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
    let nodes: Vec<&Arc<Node>> = context.cluster.nodes_of(claim).collect();
    let node = match nodes.as_slice() {
        [node] => Some(*node),
        _ => None,
    };
    if let Some(node) = node.filter(|node| is_closed(node)) {
        let closed = closed_until(context, claim, node);
        if !node.labels.contains_key(&*label::REGISTERED) {
            // The claim was written and the node was not, before a crash: it is done again.
            return sync_node(claim, node, context.now, steps);
        }
        let Some(until) = closed else { return open(node, steps) };
        steps.wake(until);
        let ready = node.ready_since().filter(|ready| *ready <= context.now);
        let told = ready.map(|ready| ready + CLOSED_UNTOLD);
        if let Some(told) = told.filter(|told| context.now < *told) {
            return steps.wake(told);
        }
    }
    let (status, reason, message) = match node.map(|node| missing_for_initialization(claim, node)) {
        None => {
            let message = format!("there is not one node for its machine but {}", nodes.len());
            (ConditionStatus::Unknown, NODE_NOT_FOUND, message)
        }
        Some(Some((reason, message))) => (ConditionStatus::Unknown, reason, message),
        Some(None) => (ConditionStatus::True, "Initialized", String::new()),
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
