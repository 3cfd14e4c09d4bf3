//! How a node goes: taint, drain in order, wait for volumes, end the machine, let the objects go (lifecycle.md 7 and 10).
//!
//! Each call finds the next step from the objects. Only two things are remembered: which machines are known to be gone, and
//! when an eviction is worth another try.

pub(crate) mod notice;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::decision::Steps;
use super::plans::Plans;
use super::scheduling::is_protected;
use crate::model::action::{Action, ClaimChange, NodeChange, Notice, Subject};
use crate::model::claim::{ConditionStatus, ConditionType, Conditions, NodeClaim};
use crate::model::count::{agreeing, counted};
use crate::model::label::{Labels, annotation};
use crate::model::name::{NodeName, ObjectKey, ProviderId, Uid};
use crate::model::node::Node;
use crate::model::pod::{Pod, PodVolume};
use crate::model::symbol::Symbol;
use crate::model::taint::{Taint, first_untolerated};
use crate::model::time::parse_duration;

/// A drain lasts at least so long: kube-scheduler may have chosen the node just before it was tainted.
const DRAIN_LEAST: SignedDuration = SignedDuration::from_secs(5);
/// A pod that is still there so long after its deletion is not waited for.
const STUCK: SignedDuration = SignedDuration::from_secs(60);
/// First and longest wait between two tries to evict a pod.
const EVICTION_LEAST: SignedDuration = SignedDuration::from_millis(100);
const EVICTION_MOST: SignedDuration = SignedDuration::from_secs(10);
/// How long an eviction that was asked for is left to answer before it is asked for again: longer than a request may take, so that
/// no pod is asked twice.
const EVICTION_PATIENCE: SignedDuration = SignedDuration::from_secs(75);
/// How long a pod that was deleted is left to say so before it is deleted again, with what is left of the time by then.
const DELETION_PATIENCE: SignedDuration = SignedDuration::from_secs(5);
/// When a machine that was told to end is told again, if nothing was answered.
const TERMINATION_RETRY: SignedDuration = SignedDuration::from_secs(60);
/// When one that is stopping is looked at again, by telling it again.
const TERMINATION_POLL: SignedDuration = SignedDuration::from_secs(5);
/// Pods of the classes system-cluster-critical and system-node-critical have at least this priority.
const CRITICAL: i32 = 2_000_000_000;

/// What is remembered of nodes on their way out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Endings {
    retry_at: BTreeMap<ProviderId, Timestamp>,
    gone: BTreeSet<ProviderId>,
    evictions: Tries,
    /// Nodes whose pods stay until there is room for them elsewhere.
    waiting: BTreeSet<NodeName>,
    /// Of pods that are deleted past their budgets: an eviction that waits for its answer, or its turn, does not hold them up.
    deletions: Tries,
}

/// How often a pod was asked, and when it may be asked again.
type Tries = BTreeMap<(ObjectKey, Uid), (u32, Timestamp)>;

impl Endings {
    /// Nodes that may have waited for what is there now; those that go on waiting say so anew.
    pub fn take_waiting(&mut self) -> BTreeSet<NodeName> {
        std::mem::take(&mut self.waiting)
    }

    /// The cloud said that the machine is gone.
    pub fn ended(&mut self, instance: ProviderId) {
        self.retry_at.remove(&instance);
        self.gone.insert(instance);
    }

    /// The cloud could not be told, or the machine is not gone yet.
    pub fn is_under_way(&mut self, instance: ProviderId, now: Timestamp) {
        self.retry_at.insert(instance, now + TERMINATION_POLL);
    }

    /// The pod is on its way out: there is no need to ask again soon, even if that was not seen yet.
    pub fn granted(&mut self, pod: ObjectKey, now: Timestamp) {
        let entries = self.evictions.range_mut((pod, Uid::new(""))..);
        for (_, (_, next)) in entries.take_while(|((key, _), _)| *key == pod) {
            *next = (*next).max(now + EVICTION_MOST);
        }
    }

    /// The pod may not go now, or could not be asked: it is asked again after a pause, a longer one each time.
    pub fn refused(&mut self, pod: ObjectKey, now: Timestamp) {
        let entries = self.evictions.range_mut((pod, Uid::new(""))..);
        for (_, (tries, next)) in entries.take_while(|((key, _), _)| *key == pod) {
            *next = now + pause_after(*tries);
        }
    }

    pub fn forget_pod(&mut self, pod: ObjectKey) {
        for tries in [&mut self.evictions, &mut self.deletions] {
            let of_pod = tries.range((pod, Uid::new(""))..).map(|(key, _)| *key);
            let keys: Vec<_> = of_pod.take_while(|(key, _)| *key == pod).collect();
            for key in keys {
                tries.remove(&key);
            }
        }
    }

    /// Forgets a machine that no object speaks of any more.
    pub fn forget_machine(&mut self, instance: ProviderId) {
        self.retry_at.remove(&instance);
        self.gone.remove(&instance);
    }

    /// Whether a machine is gone; asks the cloud to end it if it is not.
    fn end(&mut self, instance: ProviderId, now: Timestamp, why: &str, steps: &mut Steps) -> bool {
        if self.gone.contains(&instance) {
            return true;
        }
        match self.retry_at.get(&instance) {
            Some(at) if now < *at => steps.wake(*at),
            _ => {
                steps.push(Action::Terminate { instance }, "Terminate", why);
                self.retry_at.insert(instance, now + TERMINATION_RETRY);
                steps.wake(now + TERMINATION_RETRY);
            }
        }
        false
    }
}

/// The next steps of a claim that is being deleted.
pub(crate) fn finalize_claim(
    cluster: &Cluster,
    endings: &mut Endings,
    claim: &NodeClaim,
    now: Timestamp,
) -> Steps {
    let mut steps = Steps::default();
    let (Some(deleted), true) = (claim.deleted, claim.has_finalizer) else { return steps };
    set_deadline(claim, deleted, &mut steps);
    if claim.conditions.is_true(ConditionType::Registered) {
        let nodes: Vec<&Arc<Node>> = cluster.nodes_of(claim).collect();
        for node in nodes.iter().filter(|node| node.deleted.is_none()) {
            let message = format!("its claim {} is being deleted", claim.name);
            steps.push(Action::DeleteNode { node: node.name }, "Terminating", message);
        }
        if !nodes.is_empty() {
            return steps;
        }
    }
    if let Some(instance) = claim.provider_id {
        let is_gone = endings.end(instance, now, "its claim is being deleted", &mut steps);
        note_terminating(claim, now, &mut steps);
        if !is_gone {
            return steps;
        }
    }
    let message = if claim.provider_id.is_some() { "its machine is gone" } else { "it never had a machine" };
    steps.push(Action::FinalizeClaim { claim: claim.name }, "Terminated", message);
    steps
}

/// The moment by which the node must be gone, written once.
fn set_deadline(claim: &NodeClaim, deleted: Timestamp, steps: &mut Steps) {
    let Some(grace) = claim.spec.termination_grace else { return };
    if claim.annotations.contains_key(&*annotation::TERMINATION_TIMESTAMP) {
        return;
    }
    let Ok(deadline) = deleted.checked_add(grace) else { return };
    let annotations =
        Labels::from([(*annotation::TERMINATION_TIMESTAMP, Symbol::new(&deadline.to_string()))]);
    let change = ClaimChange { annotations, ..ClaimChange::default() };
    let message = format!("it has to be gone by {deadline} (terminationGracePeriod)");
    steps.push(Action::UpdateClaim { claim: claim.name, change }, EXPIRING, message);
    tell_deadline(Subject::Claim(claim.name), deadline, steps);
}

const EXPIRING: &str = "TerminationGracePeriodExpiring";

/// Whoever looks at the object learns how long its pods may stay.
fn tell_deadline(subject: Subject, deadline: Timestamp, steps: &mut Steps) {
    let message = format!("all of its pods are gone by {deadline}, whatever protects them");
    let notice =
        Notice { subject, is_warning: true, reason: EXPIRING.into(), message: message.as_str().into() };
    steps.push(Action::Publish(notice), EXPIRING, message);
}

fn note_terminating(claim: &NodeClaim, now: Timestamp, steps: &mut Steps) {
    if !claim.conditions.is_true(ConditionType::InstanceTerminating) {
        let mut conditions = claim.conditions.clone();
        let status = ConditionStatus::True;
        conditions.set(ConditionType::InstanceTerminating, status, "InstanceTerminating", "", now);
        let change = ClaimChange { conditions: Some(conditions), ..ClaimChange::default() };
        let message = "its machine was told to end";
        steps.push(Action::UpdateClaim { claim: claim.name, change }, "InstanceTerminating", message);
    }
}

/// The next steps of a node of ours that is being deleted.
pub(crate) fn terminate_node(
    cluster: &Cluster,
    plans: &Plans,
    endings: &mut Endings,
    node: &Node,
    now: Timestamp,
) -> Steps {
    let mut steps = Steps::default();
    let claim = cluster.claim_of(node).cloned();
    if node.deleted.is_none() || !node.has_finalizer {
        return steps;
    }
    if let Some(claim) = claim.as_ref().filter(|claim| claim.deleted.is_none()) {
        let message = format!("its node {} is being deleted", node.name);
        steps.push(Action::DeleteClaim { claim: claim.name }, "Terminating", message);
        return steps;
    }
    if !node.is_ready() && node.provider_id.is_some_and(|id| endings.gone.contains(&id)) {
        steps.push(
            Action::FinalizeNode { node: node.name },
            "Terminated",
            "its machine is gone and it is not ready",
        );
        return steps;
    }
    let deadline = match claim.as_ref().map(|claim| deadline_of(claim)) {
        Some(Err(message)) => {
            let subject = Subject::Node(node.name);
            let notice = Notice {
                subject,
                is_warning: true,
                reason: "FailedDraining".into(),
                message: message.as_str().into(),
            };
            steps.push(Action::Publish(notice), "InvalidDeadline", message);
            return steps;
        }
        Some(Ok(deadline)) => deadline,
        None => None,
    };
    if let Some(deadline) = deadline {
        tell_deadline(Subject::Node(node.name), deadline, &mut steps);
    }
    shield(node, &mut steps);
    let mut conditions = claim.as_ref().map(|claim| claim.conditions.clone()).unwrap_or_default();
    let is_drained =
        drain(cluster, plans, endings, node, claim.is_some(), deadline, now, &mut conditions, &mut steps);
    let is_detached = is_drained && detach(cluster, node, deadline, now, &mut conditions, &mut steps);
    let instance = node.provider_id.filter(|_| claim.is_some());
    let is_gone = is_detached
        && match instance {
            None => true,
            Some(instance) => {
                let status = ConditionStatus::True;
                conditions.set(ConditionType::InstanceTerminating, status, "InstanceTerminating", "", now);
                endings.end(instance, now, "its node is drained", &mut steps)
            }
        };
    if let Some(claim) = claim.as_ref().filter(|claim| claim.conditions != conditions) {
        let change = ClaimChange { conditions: Some(conditions), ..ClaimChange::default() };
        let message = if is_drained { "its node is drained" } else { "its node is being drained" };
        steps.push(Action::UpdateClaim { claim: claim.name, change }, "Draining", message);
    }
    if is_gone {
        steps.push(Action::FinalizeNode { node: node.name }, "Terminated", "its machine is gone");
    }
    steps
}

fn deadline_of(claim: &NodeClaim) -> Result<Option<Timestamp>, String> {
    let Some(text) = claim.annotations.get(&*annotation::TERMINATION_TIMESTAMP) else { return Ok(None) };
    let parsed = text.parse().map_err(|_| {
        format!(
            "annotation {} of claim {} is `{text}`, which is no moment such as 2026-03-04T10:30:00Z; correct or remove it",
            *annotation::TERMINATION_TIMESTAMP,
            claim.name
        )
    });
    parsed.map(Some)
}

/// Nothing new lands on the node, and load balancers leave it.
fn shield(node: &Node, steps: &mut Steps) {
    let taint = Taint::disrupted();
    let mut change = NodeChange::default();
    if !node.taints.iter().any(|other| other.is_same(&taint)) {
        change.remove_taints = node.taints.iter().filter(|other| other.key == taint.key).copied().collect();
        change.add_taints.push(taint);
    }
    let excluded = Symbol::new("node.kubernetes.io/exclude-from-external-load-balancers");
    if !node.labels.contains_key(&excluded) {
        change.labels.insert(excluded, "karpenter".into());
    }
    if change != NodeChange::default() {
        steps.push(Action::UpdateNode { node: node.name, change }, "Draining", "nothing new may land on it");
    }
}

/// Whether all pods that are waited for are gone; asks the next of them to go.
#[expect(clippy::too_many_arguments, reason = "one step of one pass over one node")]
fn drain(
    cluster: &Cluster,
    plans: &Plans,
    endings: &mut Endings,
    node: &Node,
    has_claim: bool,
    deadline: Option<Timestamp>,
    now: Timestamp,
    conditions: &mut Conditions,
    steps: &mut Steps,
) -> bool {
    if conditions.is_true(ConditionType::Drained) {
        return true;
    }
    if conditions.get(ConditionType::Drained).is_none() {
        conditions.set(ConditionType::Drained, ConditionStatus::Unknown, "Draining", "", now);
    }
    let waiting: Vec<&Arc<Pod>> =
        cluster.pods_of(node.name).filter(|pod| !pod.is_terminal() && is_drainable(pod, now)).collect();
    if waiting.is_empty() {
        let begun = conditions.get(ConditionType::Drained).and_then(|condition| condition.since);
        let least = begun.filter(|_| has_claim).map(|begun| begun + DRAIN_LEAST);
        if let Some(least) = least.filter(|least| now < *least) {
            steps.wake(least);
            return false;
        }
        conditions.set(ConditionType::Drained, ConditionStatus::True, "Drained", "", now);
        return true;
    }
    for pod in waiting.iter().filter_map(|pod| pod.deleted) {
        steps.wake(pod + STUCK + SignedDuration::from_millis(1));
    }
    let (forced, others): (Vec<&Arc<Pod>>, Vec<&Arc<Pod>>) =
        waiting.iter().copied().partition(|pod| deadline.is_some_and(|deadline| must_go(pod, deadline, now)));
    if let Some(deadline) = deadline {
        for pod in forced {
            force(endings, pod, deadline, now, steps);
        }
        for pod in others.iter().filter(|pod| pod.deleted.is_none()) {
            steps.wake(forced_at(pod, deadline));
        }
    }
    let period = notice::Period::of(cluster, plans, conditions, deadline);
    let stays_until = |pod: &Pod| period.as_ref().and_then(|period| period.stays_until(pod, now));
    let staying: Vec<Timestamp> = others.iter().filter_map(|pod| stays_until(pod)).collect();
    let first = others.iter().map(|pod| tier(pod)).min();
    for pod in others.iter().filter(|pod| Some(tier(pod)) == first && stays_until(pod).is_none()) {
        evict(endings, pod, now, steps);
    }
    if let Some(latest) = staying.iter().min() {
        endings.waiting.insert(node.name);
        steps.wake(*latest);
        tell_staying(node, staying.len(), steps);
        return false;
    }
    conditions.set(ConditionType::Drained, ConditionStatus::Unknown, "Draining", "", now);
    let message = format!(
        "{} {} waiting to be evicted",
        counted(waiting.len(), "pod"),
        agreeing(waiting.len(), "is", "are")
    );
    let subject = Subject::Node(node.name);
    let notice = Notice {
        subject,
        is_warning: true,
        reason: "FailedDraining".into(),
        message: message.as_str().into(),
    };
    steps.push(Action::Publish(notice), "Draining", message);
    false
}

fn tell_staying(node: &Node, pods: usize, steps: &mut Steps) {
    let message = format!(
        "{} {} as long as the cloud lets the machine run and there is no room elsewhere that is ready",
        counted(pods, "pod"),
        agreeing(pods, "stays", "stay")
    );
    let notice = Notice {
        subject: Subject::Node(node.name),
        is_warning: false,
        reason: notice::AWAITING.into(),
        message: message.as_str().into(),
    };
    steps.push(Action::Publish(notice), notice::AWAITING, message);
}

/// Neither tolerates being on a disrupted node, nor is static, nor hangs.
fn is_drainable(pod: &Pod, now: Timestamp) -> bool {
    let tolerates = first_untolerated(&[Taint::disrupted()], &pod.shape.tolerations).is_none();
    let is_stuck = pod.deleted.is_some_and(|deleted| now.duration_since(deleted) > STUCK);
    !tolerates && !is_stuck && !pod.is_mirror()
}

/// Those that others need go last.
fn tier(pod: &Pod) -> u8 {
    u8::from(pod.is_daemon()) + 2 * u8::from(pod.shape.priority >= CRITICAL)
}

fn forced_at(pod: &Pod, deadline: Timestamp) -> Timestamp {
    let grace = SignedDuration::from_secs(i64::from(pod.shape.termination_grace_seconds));
    deadline.checked_sub(grace).unwrap_or(Timestamp::MIN)
}

/// Whether `pod` would not be gone by `deadline` if it were left to itself.
fn must_go(pod: &Pod, deadline: Timestamp, now: Timestamp) -> bool {
    match pod.deleted {
        None => now >= forced_at(pod, deadline),
        Some(ends) => ends > deadline,
    }
}

/// Deletes `pod` past its budgets with what is left of the time.
fn force(endings: &mut Endings, pod: &Pod, deadline: Timestamp, now: Timestamp, steps: &mut Steps) {
    if !is_turn(&mut endings.deletions, pod, now, steps) {
        return;
    }
    if let Some((_, next)) = endings.deletions.get_mut(&(pod.key, pod.uid)) {
        *next = now + DELETION_PATIENCE;
        steps.wake(*next);
    }
    let grace = SignedDuration::from_secs(deadline.duration_since(now).as_secs().max(1));
    let message = format!("its node has to be gone by {deadline}");
    let notice = Notice {
        subject: Subject::Pod(pod.key),
        is_warning: true,
        reason: "Disrupted".into(),
        message: message.as_str().into(),
    };
    steps.push(Action::DeletePod { pod: pod.key, uid: pod.uid, grace }, "DeadlineReached", message.clone());
    steps.push(Action::Publish(notice), "DeadlineReached", message);
}

fn evict(endings: &mut Endings, pod: &Pod, now: Timestamp, steps: &mut Steps) {
    if pod.deleted.is_some() {
        return;
    }
    if is_protected(pod, now) {
        let lasts = pod.shape.do_not_disrupt.and_then(|value| parse_duration(&value).ok());
        if let Some(ends) =
            pod.started.zip(lasts).and_then(|(started, lasts)| started.checked_add(lasts).ok())
        {
            steps.wake(ends);
        }
        return;
    }
    if is_turn(&mut endings.evictions, pod, now, steps) {
        // Nothing else happens to it until the answer is there.
        if let Some((_, next)) = endings.evictions.get_mut(&(pod.key, pod.uid)) {
            *next = now + EVICTION_PATIENCE;
            steps.wake(*next);
        }
        let message = "its node is being drained";
        steps.push(Action::Evict { pod: pod.key, uid: pod.uid }, "Evict", message);
    }
}

/// How long after so many tries the next one is.
fn pause_after(tries: u32) -> SignedDuration {
    (EVICTION_LEAST * 2_i32.pow(tries.saturating_sub(1).min(7))).min(EVICTION_MOST)
}

/// Whether `pod` may be asked to go now; the next time comes later each time.
fn is_turn(known: &mut Tries, pod: &Pod, now: Timestamp, steps: &mut Steps) -> bool {
    let (tries, next) = known.get(&(pod.key, pod.uid)).copied().unwrap_or((0, now));
    if now < next {
        steps.wake(next);
        return false;
    }
    let next = now + pause_after(tries + 1);
    known.insert((pod.key, pod.uid), (tries + 1, next));
    steps.wake(next);
    true
}

/// Whether no volume is attached any more that could be.
fn detach(
    cluster: &Cluster,
    node: &Node,
    deadline: Option<Timestamp>,
    now: Timestamp,
    conditions: &mut Conditions,
    steps: &mut Steps,
) -> bool {
    let staying = volumes_that_stay(cluster, node.name, now);
    let left = cluster
        .attachments
        .values()
        .filter(|attached| attached.node == node.name)
        .filter(|attached| attached.volume.is_some_and(|volume| !staying.contains(&volume)))
        .count();
    let kind = ConditionType::VolumesDetached;
    if left == 0 {
        conditions.set(kind, ConditionStatus::True, "VolumesDetached", "", now);
        return true;
    }
    match deadline {
        Some(deadline) if now >= deadline => {
            conditions.set(kind, ConditionStatus::False, "TerminationGracePeriodElapsed", "", now);
            return true;
        }
        Some(deadline) => steps.wake(deadline),
        None => {}
    }
    conditions.set(kind, ConditionStatus::Unknown, "AwaitingVolumeDetachment", "", now);
    let message = format!("{} {} still attached", counted(left, "volume"), agreeing(left, "is", "are"));
    let subject = Subject::Node(node.name);
    let notice = Notice {
        subject,
        is_warning: false,
        reason: "AwaitingVolumeDetachment".into(),
        message: message.as_str().into(),
    };
    steps.push(Action::Publish(notice), "AwaitingVolumeDetachment", message);
    false
}

/// Volumes of pods that stay until the machine ends.
fn volumes_that_stay(cluster: &Cluster, node: NodeName, now: Timestamp) -> BTreeSet<Symbol> {
    let staying = cluster.pods_of(node).filter(|pod| !pod.is_terminal() && !is_drainable(pod, now));
    staying
        .flat_map(|pod| {
            pod.shape.volumes.iter().map(|volume| match volume {
                PodVolume::Claim(name) => ObjectKey { namespace: pod.key.namespace, name: *name },
                PodVolume::Ephemeral { volume, .. } => {
                    ObjectKey::new(pod.key.namespace.as_str(), &format!("{}-{volume}", pod.key.name))
                }
            })
        })
        .filter_map(|key| cluster.volume_claims.get(&key)?.volume)
        .collect()
}
