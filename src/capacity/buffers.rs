//! Room that is kept free: how much each CapacityBuffer asks for, and the virtual pods that stand for it.
//!
//! Virtual pods take part in every solve after all real pods, so they get what those leave. They exist nowhere else: a real pod
//! simply takes the room, and the next round looks for other room for the virtual one (scheduling.md 4.19).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::scheduling::{Place, Refusal, Settings, Solution};
use crate::model::buffer::{ACTIVE_CAPACITY, BufferCondition, BufferSource, BufferStatus, CapacityBuffer};
use crate::model::condition::ConditionStatus;
use crate::model::count::{agreeing, counted};
use crate::model::name::{NodeName, ObjectKey, Uid};
use crate::model::pod::{Owner, Pod, PodShape};
use crate::model::quantity::Resources;
use crate::model::symbol::Symbol;

/// The most pods that one buffer keeps room for; a limit divided by a tiny request would be any number.
pub const PODS_MAX: u32 = 10_000;

/// What a buffer comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    pub replicas: u32,
    /// Of each pod, as it was written.
    pub shape: Arc<PodShape>,
    /// The PodTemplate it was taken from, and its generation.
    pub template: Option<(Symbol, i64)>,
}

/// Why a buffer cannot be acted upon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unresolved {
    pub reason: &'static str,
    pub message: String,
}

/// Finds what `buffer` refers to, and how much room that makes.
pub fn resolve(cluster: &Cluster, buffer: &CapacityBuffer) -> Result<Room, Unresolved> {
    let namespace = buffer.key.namespace;
    let no = |reason, message: String| Err(Unresolved { reason, message });
    match buffer.source {
        None => no("ResolutionFailed", "it names neither a PodTemplate nor a scalable object".into()),
        Some(BufferSource::Template(name)) => {
            let Some(template) = cluster.pod_templates.get(&ObjectKey { namespace, name }) else {
                return no(
                    "PodTemplateNotFound",
                    format!("there is no PodTemplate {name} in namespace {namespace}"),
                );
            };
            Ok(Room {
                replicas: size(buffer, None, &template.shape.requests),
                shape: template.shape.clone(),
                template: Some((name, template.generation)),
            })
        }
        Some(BufferSource::Scalable { group, kind, name }) => {
            if !matches!((&*group, &*kind), ("apps", "Deployment" | "StatefulSet" | "ReplicaSet")) {
                let message = format!(
                    "scalableRef {kind} of group \"{group}\" is not supported: it can be a Deployment, StatefulSet or \
                     ReplicaSet of apps"
                );
                return no("ResolutionFailed", message);
            }
            let Some(scalable) = cluster.scalables.get(&(kind, ObjectKey { namespace, name })) else {
                return no(
                    "ScalableRefNotFound",
                    format!("there is no {kind} {name} in namespace {namespace}"),
                );
            };
            Ok(Room {
                replicas: size(buffer, Some(scalable.replicas), &scalable.shape.requests),
                shape: scalable.shape.clone(),
                template: None,
            })
        }
    }
}

/// The greater of count and share, as far as limits allow; with limits alone, as many as those allow.
pub fn size(buffer: &CapacityBuffer, scalable: Option<u32>, requests: &Resources) -> u32 {
    let within_limits = buffer.limits.as_ref().and_then(|limits| {
        let fitting = limits.iter().filter_map(|(name, limit)| {
            let request = requests.get(name);
            (request > 0).then(|| u32::try_from(limit.max(0) / request).unwrap_or(u32::MAX))
        });
        fitting.min()
    });
    let share = buffer.percentage.zip(scalable).map(|(percent, replicas)| {
        let exact = (u64::from(percent) * u64::from(replicas)).div_ceil(100);
        u32::try_from(exact).unwrap_or(u32::MAX)
    });
    let asked = match (buffer.replicas, share) {
        (None, None) => within_limits.unwrap_or(0),
        (count, share) => count.max(share).unwrap_or(0).min(within_limits.unwrap_or(u32::MAX)),
    };
    asked.min(PODS_MAX)
}

/// Whether `buffer` is of the kind that is acted upon.
pub fn is_active(buffer: &CapacityBuffer) -> bool {
    !buffer.is_deleting && &*buffer.strategy == ACTIVE_CAPACITY
}

/// The virtual pods of every buffer that can be acted upon, by buffer and number.
pub fn virtual_pods(cluster: &Cluster, settings: &Settings) -> Vec<Arc<Pod>> {
    let buffers = cluster.buffers.values().filter(|buffer| settings.capacity_buffer && is_active(buffer));
    let mut pods = Vec::new();
    for buffer in buffers {
        if let Ok(room) = resolve(cluster, buffer) {
            pods.extend(pods_of(buffer, &room));
        }
    }
    pods
}

/// The virtual pods of one buffer. Made anew they are the same.
pub fn pods_of(buffer: &CapacityBuffer, room: &Room) -> Vec<Arc<Pod>> {
    let owner = Owner {
        kind: Symbol::new(Pod::BUFFER_KIND),
        api_version: "autoscaling.x-k8s.io/v1beta1".into(),
        name: buffer.key.name,
        uid: buffer.uid,
        is_controller: true,
    };
    let shape = Arc::new(PodShape {
        namespace: buffer.key.namespace,
        priority: i32::MIN,
        // Nobody makes their claims, so they tie them to no place.
        volumes: Vec::new(),
        ..(*room.shape).clone()
    });
    let pod = |number: u32| {
        let name = Symbol::new(&format!("capacity-buffer-{}-{number}", buffer.key.name));
        let key = ObjectKey { namespace: buffer.key.namespace, name };
        let uid = Uid::new(&format!("{}-{number}", buffer.uid));
        Pod { is_unschedulable: true, ..Pod::new(key, uid, shape.clone(), vec![owner]) }
    };
    (1..=room.replicas).map(|number| Arc::new(pod(number))).collect()
}

/// Where virtual pods have their place.
#[derive(Clone, Debug, Default)]
pub struct Hosting {
    /// By pod: its buffer and its place. One without a place is not listed. `None`: on a node that is not bought yet.
    homes: BTreeMap<ObjectKey, (ObjectKey, Option<Place>)>,
    /// By buffer: why its first pod without a place has none.
    refused: BTreeMap<ObjectKey, String>,
}

impl Hosting {
    /// Where `solution` puts `pods`.
    pub fn of(pods: &[Arc<Pod>], solution: &Solution) -> Self {
        let buffers: BTreeMap<ObjectKey, ObjectKey> =
            pods.iter().filter_map(|pod| Some((pod.key, pod.buffer()?))).collect();
        let mut hosting = Self::default();
        for (place, guests) in &solution.existing {
            for pod in guests {
                if let Some(buffer) = buffers.get(pod) {
                    hosting.homes.insert(*pod, (*buffer, Some(*place)));
                }
            }
        }
        for pod in solution.new_nodes.iter().flat_map(|node| &node.pods) {
            if let Some(buffer) = buffers.get(pod) {
                hosting.homes.insert(*pod, (*buffer, None));
            }
        }
        for left in &solution.unschedulable {
            if let Some(buffer) = buffers.get(&left.pod) {
                hosting.refused.entry(*buffer).or_insert_with(|| Refusal::tell(&left.reasons));
            }
        }
        hosting
    }

    /// The node of `pods` was bought, as `place`.
    pub fn bought(&mut self, pods: &[ObjectKey], place: Place) {
        for pod in pods {
            if let Some((_, known)) = self.homes.get_mut(pod) {
                *known = Some(place);
            }
        }
    }

    pub fn forget(&mut self, buffer: ObjectKey) {
        self.homes.retain(|_, (known, _)| *known != buffer);
        self.refused.remove(&buffer);
    }

    /// Whether both have every pod at the same place.
    pub fn is_placed_as(&self, other: &Self) -> bool {
        self.homes == other.homes
    }

    pub fn has_place(&self, pod: &ObjectKey) -> bool {
        self.homes.contains_key(pod)
    }

    /// How many virtual pods each place hosts.
    pub fn counts(&self) -> BTreeMap<Place, usize> {
        let mut counts = BTreeMap::new();
        for place in self.homes.values().filter_map(|(_, place)| *place) {
            *counts.entry(place).or_default() += 1;
        }
        counts
    }

    /// The nodes that host virtual pods; of claims, those that they have become.
    pub fn nodes(&self, cluster: &Cluster) -> BTreeSet<NodeName> {
        let node_of = |place| match place {
            Place::Node(name) => Some(name),
            Place::Claim(name) => Some(cluster.node_of(cluster.claims.get(&name)?)?.name),
        };
        self.counts().into_keys().filter_map(node_of).collect()
    }

    /// Of the pods of `buffer`: how many are on what is there already, and how many on nodes that are to be bought.
    pub fn split(&self, buffer: ObjectKey) -> (u32, u32) {
        let own = || self.homes.values().filter(|(known, _)| *known == buffer);
        let existing = own().filter(|(_, place)| place.is_some()).count();
        let all = own().count();
        (u32::try_from(existing).unwrap_or(u32::MAX), u32::try_from(all - existing).unwrap_or(u32::MAX))
    }
}

/// The status of `buffer` after it was looked up at `now`.
pub fn resolved_status(
    buffer: &CapacityBuffer,
    resolved: &Result<Room, Unresolved>,
    now: Timestamp,
) -> BufferStatus {
    let mut status = BufferStatus { strategy: Some(buffer.strategy), ..buffer.status.clone() };
    if !is_active(buffer) {
        return status;
    }
    let ready = BufferCondition::ReadyForProvisioning;
    match resolved {
        Ok(room) => {
            status.template = room.template;
            status.replicas = Some(room.replicas);
            status.conditions.set(ready, ConditionStatus::True, "Resolved", "", now);
            if room.replicas == 0 {
                let message = "it asks for no pods";
                status.conditions.set(
                    BufferCondition::Provisioning,
                    ConditionStatus::False,
                    "BufferEmpty",
                    message,
                    now,
                );
            }
        }
        Err(why) => {
            (status.template, status.replicas) = (None, None);
            status.conditions.set(ready, ConditionStatus::False, why.reason, &why.message, now);
            let (kind, message) = (BufferCondition::Provisioning, "what it refers to cannot be used");
            status.conditions.set(kind, ConditionStatus::False, "NotReadyForProvisioning", message, now);
        }
    }
    status
}

/// The status of `buffer`, which is ready and has `room`, after its pods were placed as in `hosting`.
pub fn placed_status(
    buffer: &CapacityBuffer,
    room: &Room,
    hosting: &Hosting,
    now: Timestamp,
) -> BufferStatus {
    let mut status = buffer.status.clone();
    let (existing, new) = hosting.split(buffer.key);
    let kind = BufferCondition::Provisioning;
    if room.replicas == 0 {
        return status;
    }
    if existing >= room.replicas {
        let reason = "FitsExistingCapacity";
        status.conditions.set(kind, ConditionStatus::True, reason, "there is room for all of its pods", now);
    } else {
        let without = room.replicas - existing - new;
        let (pods, have) = (counted(room.replicas, "pod"), |count| agreeing(count, "has", "have"));
        let need = agreeing(new, "needs a new node", "need new nodes");
        let mut message = format!("{existing} of its {pods} {} room, {new} {need}", have(existing));
        if without > 0 {
            message.push_str(&format!(", {without} {} no place", have(without)));
            if let Some(why) = hosting.refused.get(&buffer.key) {
                message.push_str(&format!(": {why}"));
            }
        }
        status.conditions.set(kind, ConditionStatus::False, "RequiresNewCapacity", &message, now);
    }
    status
}

/// The whole status of `buffer` in a cluster where pods are placed as in `hosting`.
pub fn judged(cluster: &Cluster, buffer: &CapacityBuffer, hosting: &Hosting, now: Timestamp) -> BufferStatus {
    let resolved = resolve(cluster, buffer);
    let status = resolved_status(buffer, &resolved, now);
    match resolved {
        Ok(room) if is_active(buffer) => {
            placed_status(&CapacityBuffer { status, ..buffer.clone() }, &room, hosting, now)
        }
        _ => status,
    }
}
