//! How a node goes: taint, drain in order, wait for volumes, end the machine, let the objects go (lifecycle.md 7 and 10).
//!
//! The state of a drain is the cluster itself: which pods are still there. What is remembered is only when an eviction was last
//! tried, so that a budget that refuses is not asked ten times a second.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::decision::Steps;
use super::scheduling::is_protected;
use crate::model::action::{Action, ClaimChange, NodeChange, Notice, Subject};
use crate::model::claim::{ConditionStatus, ConditionType, NodeClaim};
use crate::model::label::{Labels, annotation};
use crate::model::name::{NodeName, ObjectKey, ProviderId, Uid};
use crate::model::node::Node;
use crate::model::pod::{Pod, PodVolume};
use crate::model::symbol::Symbol;
use crate::model::taint::{Taint, first_untolerated};

/// A drain lasts at least so long: kube-scheduler may have bound a pod that we do not see yet.
const DRAIN_LEAST: SignedDuration = SignedDuration::from_secs(5);
/// How often a drain or a machine's end is looked at while nothing happens.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(1);
const INSTANCE_LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(5);
/// A pod that is still there so long after its deletion is stuck and no longer waited for.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// First and longest wait between evictions of one pod.
const RETRY_LEAST: SignedDuration = SignedDuration::from_millis(100);
const RETRY_MOST: SignedDuration = SignedDuration::from_secs(10);
/// Priority classes from here on are the system's own (`system-cluster-critical`).
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// What the engine remembers of drains.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drains {
    tried: BTreeMap<(ObjectKey, Uid), (u32, Timestamp)>,
    ending: BTreeMap<ProviderId, Timestamp>,
    ended: BTreeSet<ProviderId>,
}

impl Drains {
    pub fn instance_ended(&mut self, instance: ProviderId) {
        self.ending.remove(&instance);
        self.ended.insert(instance);
    }

    pub fn has_ended(&self, instance: ProviderId) -> bool {
        self.ended.contains(&instance)
    }

    pub fn pod_gone(&mut self, pod: ObjectKey) {
        self.tried.retain(|(key, _), _| *key != pod);
    }

    pub fn forget_instance(&mut self, instance: ProviderId) {
        self.ending.remove(&instance);
        self.ended.remove(&instance);
    }
}

/// The next steps of a claim whose deletion was asked for.
pub(crate) fn advance(cluster: &Cluster, drains: &mut Drains, claim: &NodeClaim, now: Timestamp) -> Steps {
    let mut steps = Steps::default();
    if !claim.has_finalizer {
        return steps;
    }
    note_deadline(claim, &mut steps);
    if let Some(node) = cluster.node_of(claim) {
        if claim.conditions.is_true(ConditionType::Registered) || node.has_finalizer {
            if node.deleted.is_none() {
                steps.push(
                    Action::DeleteNode { node: node.name },
                    "Terminating",
                    "its claim is being deleted",
                );
            } else {
                remove_node(cluster, drains, claim, node, now, &mut steps);
            }
            return steps;
        }
    }
    match claim.provider_id {
        Some(instance) if !end_instance(drains, claim, instance, now, &mut steps) => {}
        _ => steps.push(Action::FinalizeClaim { claim: claim.name }, "Terminated", "its machine is gone"),
    }
    steps
}

/// Writes the moment by which the drain must be over, once.
fn note_deadline(claim: &NodeClaim, steps: &mut Steps) {
    let (Some(grace), Some(deleted)) = (claim.spec.termination_grace, claim.deleted) else { return };
    if claim.annotations.contains_key(&*annotation::TERMINATION_TIMESTAMP) {
        return;
    }
    let deadline = Symbol::new(&(deleted + grace).to_string());
    let annotations = Labels::from([(*annotation::TERMINATION_TIMESTAMP, deadline)]);
    let change = ClaimChange { annotations, ..ClaimChange::default() };
    let message = format!("the drain ends by {deadline} at the latest");
    steps.push(Action::UpdateClaim { claim: claim.name, change }, "TerminationGracePeriodExpiring", message);
}

fn deadline_of(claim: &NodeClaim) -> Option<Timestamp> {
    claim.annotations.get(&*annotation::TERMINATION_TIMESTAMP)?.parse().ok()
}

fn remove_node(
    cluster: &Cluster,
    drains: &mut Drains,
    claim: &NodeClaim,
    node: &Node,
    now: Timestamp,
    steps: &mut Steps,
) {
    if !node.has_finalizer {
        return;
    }
    let deadline = deadline_of(claim);
    let is_dead = claim.provider_id.is_some_and(|instance| drains.has_ended(instance));
    if !is_dead {
        let disrupted = Taint::disrupted();
        if !node.taints.iter().any(|taint| taint.key == disrupted.key && taint.effect == disrupted.effect) {
            let label = Symbol::new("node.kubernetes.io/exclude-from-external-load-balancers");
            let change = NodeChange {
                labels: Labels::from([(label, "karpenter".into())]),
                add_taints: vec![disrupted],
                ..NodeChange::default()
            };
            steps.push(
                Action::UpdateNode { node: node.name, change },
                "Draining",
                "nothing new may land on it",
            );
        }
        if !drain(cluster, drains, claim, node, deadline, now, steps)
            || !await_volumes(cluster, claim, node, deadline, now, steps)
        {
            return;
        }
        if let Some(instance) = claim.provider_id
            && !end_instance(drains, claim, instance, now, steps)
        {
            return;
        }
    }
    steps.push(Action::FinalizeNode { node: node.name }, "Terminated", "drained, and its machine is gone");
}

/// Pods that a drain has to move: not finished, not stuck, not tolerating the disruption, not the kubelet's own.
fn is_waited_for(pod: &Pod, now: Timestamp) -> bool {
    let tolerates = first_untolerated(&[Taint::disrupted()], &pod.shape.tolerations).is_none();
    let is_stuck = pod.deleted.is_some_and(|deleted| now > deleted + STUCK_AFTER);
    !pod.is_terminal() && !tolerates && !is_stuck && !pod.is_mirror()
}

/// Evicts what is left, tier by tier. Whether the node is drained.
fn drain(
    cluster: &Cluster,
    drains: &mut Drains,
    claim: &NodeClaim,
    node: &Node,
    deadline: Option<Timestamp>,
    now: Timestamp,
    steps: &mut Steps,
) -> bool {
    let waiting: Vec<&Pod> =
        cluster.pods_of(node.name).map(|pod| &**pod).filter(|pod| is_waited_for(pod, now)).collect();
    let drained = claim.conditions.get(ConditionType::Drained);
    if waiting.is_empty() {
        if claim.conditions.is_true(ConditionType::Drained) {
            return true;
        }
        let begun = drained.and_then(|condition| condition.since).or(claim.deleted).unwrap_or(now);
        if now < begun + DRAIN_LEAST {
            steps.wake(begun + DRAIN_LEAST);
            set_condition(claim, ConditionType::Drained, ConditionStatus::Unknown, "Draining", now, steps);
            return false;
        }
        set_condition(claim, ConditionType::Drained, ConditionStatus::True, "Drained", now, steps);
        return true;
    }
    set_condition(claim, ConditionType::Drained, ConditionStatus::Unknown, "Draining", now, steps);
    steps.wake(now + LOOK_AGAIN);
    let (forced, polite): (Vec<&Pod>, Vec<&Pod>) =
        waiting.into_iter().partition(|pod| is_out_of_time(pod, deadline, now));
    for pod in forced {
        let left = deadline.map_or(SignedDuration::ZERO, |deadline| deadline.duration_since(now));
        let grace = SignedDuration::from_secs(left.as_secs().max(1));
        if drains.may_try(pod, now) {
            let message = format!("the deadline of {} leaves it {} s", node.name, grace.as_secs());
            steps.push(Action::DeletePod { pod: pod.key, uid: pod.uid, grace }, "ForceDeleted", message);
        }
    }
    let Some(tier) = polite.iter().map(|pod| tier_of(pod)).min() else { return false };
    for pod in polite.into_iter().filter(|pod| tier_of(pod) == tier && pod.is_active()) {
        if is_protected(pod, now) {
            continue;
        }
        if drains.may_try(pod, now) {
            let message = format!("{} is drained", node.name);
            steps.push(Action::Evict { pod: pod.key, uid: pod.uid }, "Evicted", message);
        }
    }
    false
}

impl Drains {
    /// Whether a pod may be tried now; if so, the next try is later.
    fn may_try(&mut self, pod: &Pod, now: Timestamp) -> bool {
        let (count, next) = self.tried.get(&(pod.key, pod.uid)).copied().unwrap_or((0, now));
        if now < next {
            return false;
        }
        let wait = (RETRY_LEAST * 2_i32.saturating_pow(count.min(10))).min(RETRY_MOST);
        self.tried.insert((pod.key, pod.uid), (count + 1, now + wait));
        true
    }
}

/// Workloads before daemons, ordinary before critical.
fn tier_of(pod: &Pod) -> (bool, bool) {
    (pod.shape.priority >= CRITICAL_PRIORITY, pod.is_daemon())
}

fn is_out_of_time(pod: &Pod, deadline: Option<Timestamp>, now: Timestamp) -> bool {
    let Some(deadline) = deadline else { return false };
    let grace = SignedDuration::from_secs(i64::from(pod.shape.termination_grace_seconds));
    match pod.deleted {
        None => now > deadline - grace,
        Some(deleted) => deleted + grace > deadline && now >= deadline - grace,
    }
}

/// Whether no volume that matters is attached any more, or the deadline has come.
fn await_volumes(
    cluster: &Cluster,
    claim: &NodeClaim,
    node: &Node,
    deadline: Option<Timestamp>,
    now: Timestamp,
    steps: &mut Steps,
) -> bool {
    let kept = volumes_of_staying_pods(cluster, node.name, now);
    let is_awaited = |volume: &Symbol| !kept.contains(volume);
    let attached = cluster.attachments.values().filter(|attached| attached.node == node.name);
    let awaited = attached.filter_map(|attached| attached.volume).filter(is_awaited).count();
    if awaited == 0 {
        set_condition(
            claim,
            ConditionType::VolumesDetached,
            ConditionStatus::True,
            "VolumesDetached",
            now,
            steps,
        );
        return true;
    }
    if deadline.is_some_and(|deadline| now >= deadline) {
        let reason = "TerminationGracePeriodElapsed";
        set_condition(claim, ConditionType::VolumesDetached, ConditionStatus::False, reason, now, steps);
        return true;
    }
    let reason = "AwaitingVolumeDetachment";
    set_condition(claim, ConditionType::VolumesDetached, ConditionStatus::Unknown, reason, now, steps);
    steps.wake(now + LOOK_AGAIN);
    false
}

/// Volumes of pods that stay on the node to its end: they are not waited for.
fn volumes_of_staying_pods(cluster: &Cluster, node: NodeName, now: Timestamp) -> BTreeSet<Symbol> {
    let staying = cluster.pods_of(node).filter(|pod| !pod.is_terminal() && !is_waited_for(pod, now));
    let claims = staying.flat_map(|pod| {
        pod.shape.volumes.iter().map(|volume| match volume {
            PodVolume::Claim(name) => ObjectKey { namespace: pod.key.namespace, name: *name },
            PodVolume::Ephemeral { volume, .. } => ObjectKey {
                namespace: pod.key.namespace,
                name: Symbol::new(&format!("{}-{volume}", pod.key.name)),
            },
        })
    });
    claims.filter_map(|key| cluster.volume_claims.get(&key)?.volume).collect()
}

/// Asks for the machine's end until it is gone. Whether it is.
fn end_instance(
    drains: &mut Drains,
    claim: &NodeClaim,
    instance: ProviderId,
    now: Timestamp,
    steps: &mut Steps,
) -> bool {
    if drains.has_ended(instance) {
        return true;
    }
    let next = drains.ending.get(&instance).copied().unwrap_or(now);
    if now >= next {
        drains.ending.insert(instance, now + INSTANCE_LOOK_AGAIN);
        steps.push(
            Action::Terminate { instance },
            "Terminating",
            format!("{} is given back", instance.instance()),
        );
    }
    steps.wake(drains.ending.get(&instance).copied().unwrap_or(now + INSTANCE_LOOK_AGAIN));
    set_condition(
        claim,
        ConditionType::InstanceTerminating,
        ConditionStatus::True,
        "InstanceTerminating",
        now,
        steps,
    );
    false
}

/// Sets a condition unless it says the same already. Conditions set in one pass add up.
fn set_condition(
    claim: &NodeClaim,
    kind: ConditionType,
    status: ConditionStatus,
    reason: &'static str,
    now: Timestamp,
    steps: &mut Steps,
) {
    let known = claim.conditions.get(kind);
    if known.is_some_and(|known| known.status == status && &*known.reason == reason) {
        return;
    }
    let pending = steps.actions.iter_mut().rev().find_map(|planned| match &mut planned.action {
        Action::UpdateClaim { claim: name, change } if *name == claim.name => change.conditions.as_mut(),
        _ => None,
    });
    if let Some(conditions) = pending {
        conditions.set(kind, status, reason, "", now);
        return;
    }
    let mut conditions = claim.conditions.clone();
    conditions.set(kind, status, reason, "", now);
    let change = ClaimChange { conditions: Some(conditions), ..ClaimChange::default() };
    steps.push(
        Action::UpdateClaim { claim: claim.name, change },
        reason,
        format!("{} is {reason}", kind.as_str()),
    );
}

/// A warning at the node for a pod that cannot be evicted.
pub(crate) fn blocked_notice(pod: ObjectKey, message: &str) -> Notice {
    Notice {
        subject: Subject::Pod(pod),
        is_warning: true,
        reason: "FailedDraining".into(),
        message: message.into(),
    }
}
