//! Pods and pod templates. What they share goes into a [`PodShape`] that equal pods hold in common.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use super::field::Field;
use super::{metadata, request, selector, taint};
use crate::model::label::{Labels, annotation};
use crate::model::name::{Namespace, NodeName, ObjectKey};
use crate::model::pod::{HostPort, NodeTerm, Pod, PodPhase, PodShape, PodVolume};
use crate::model::symbol::Symbol;

const GRACE_SECONDS_DEFAULT: u32 = 30;
const SCHEDULER_DEFAULT: &str = "default-scheduler";

/// The shapes seen so far, so that equal pods share one.
#[derive(Debug, Default)]
pub struct PodShapes(HashSet<Arc<PodShape>>);

impl PodShapes {
    pub fn share(&mut self, shape: PodShape) -> Arc<PodShape> {
        if let Some(known) = self.0.get(&shape) {
            return known.clone();
        }
        let shared = Arc::new(shape);
        self.0.insert(shared.clone());
        shared
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// What PriorityClasses say, for pods whose `spec.priority` an admission plugin has not filled yet.
#[derive(Clone, Debug, Default)]
pub struct Priorities {
    pub by_class: BTreeMap<Symbol, i32>,
    /// Of the class with `globalDefault`.
    pub default: i32,
}

impl Priorities {
    fn of(&self, spec: &Field<'_, '_>) -> i32 {
        if let Some(priority) = spec.get("priority").integer() {
            return i32::try_from(priority).unwrap_or(i32::MAX);
        }
        match spec.get("priorityClassName").text() {
            // These two exist in every cluster.
            Some("system-cluster-critical") => 2_000_000_000,
            Some("system-node-critical") => 2_000_001_000,
            Some(name) if !name.is_empty() => {
                self.by_class.get(&Symbol::new(name)).copied().unwrap_or(self.default)
            }
            _ => self.default,
        }
    }
}

/// A pod on the API server, or in a manifest that was never applied.
///
/// A pod without any `status` comes from such a manifest; if it has no node either, it counts as one that kube-scheduler
/// found no place for, because that is what somebody who plans with it wants to know about. The API server always fills
/// `status.phase`, so a pod that kube-scheduler just has not looked at yet is not mistaken for one.
pub(crate) fn read(object: &Field<'_, '_>, shapes: &mut PodShapes, priorities: &Priorities) -> Pod {
    let metadata = metadata::read(object);
    let spec = object.get("spec").required();
    let status = object.get("status");
    let was_applied = status.len() > 0;
    let shape = read_shape(object, Namespace(metadata.namespace), &spec, Some(&status), priorities);
    let node = spec.get("nodeName").symbol().filter(|name| !name.is_empty()).map(NodeName);
    let scheduled = condition(&status, "PodScheduled");
    let reason = scheduled.as_ref().map(|(_, reason)| *reason).unwrap_or_default();
    let is_gated = spec.get("schedulingGates").len() > 0 || reason == "SchedulingGated";
    let phase = match status.get("phase").text() {
        Some("Running") => PodPhase::Running,
        Some("Succeeded") => PodPhase::Succeeded,
        Some("Failed") => PodPhase::Failed,
        Some("Unknown") => PodPhase::Unknown,
        None if node.is_some() => PodPhase::Running,
        _ => PodPhase::Pending,
    };
    let nominated = status.get("nominatedNodeName").symbol();
    Pod {
        key: ObjectKey { namespace: Namespace(metadata.namespace), name: metadata.name },
        uid: metadata.uid,
        shape: shapes.share(shape),
        owners: metadata.owners,
        created: metadata.created,
        deleted: metadata.deleted,
        started: status.get("startTime").timestamp(),
        nominated_node: nominated.filter(|name| !name.is_empty()).map(NodeName),
        is_ready: condition(&status, "Ready").is_some_and(|(status, _)| status == "True"),
        is_unschedulable: match was_applied {
            true => reason == "Unschedulable",
            false => node.is_none() && !is_gated,
        },
        is_gated,
        node,
        phase,
    }
}

/// Status and reason of a condition.
fn condition<'v>(status: &Field<'_, 'v>, kind: &str) -> Option<(&'v str, &'v str)> {
    let conditions = status.get("conditions");
    let found = conditions.items().find(|condition| condition.get("type").text() == Some(kind))?;
    Some((found.get("status").text().unwrap_or_default(), found.get("reason").text().unwrap_or_default()))
}

/// The shape of a pod, or of the pods of a template: both have `metadata` and `spec`.
pub(crate) fn read_shape(
    object: &Field<'_, '_>,
    namespace: Namespace,
    spec: &Field<'_, '_>,
    status: Option<&Field<'_, '_>>,
    priorities: &Priorities,
) -> PodShape {
    let metadata = object.get("metadata");
    let annotations = metadata.get("annotations");
    let annotated = |key: Symbol| annotations.get(key.as_str()).text();
    let affinity = spec.get("affinity");
    let node_affinity = affinity.get("nodeAffinity");
    let required = node_affinity.get("requiredDuringSchedulingIgnoredDuringExecution");
    let node_preferred = node_affinity.get("preferredDuringSchedulingIgnoredDuringExecution");
    let (together, apart) = (affinity.get("podAffinity"), affinity.get("podAntiAffinity"));
    let grace = spec.get("terminationGracePeriodSeconds").integer();
    PodShape {
        namespace,
        labels: metadata::read_labels(&metadata.get("labels")),
        requests: request::of_pod(spec, status),
        node_selector: read_node_selector(spec),
        node_required: read_node_terms(&required),
        node_preferred: node_preferred
            .items()
            .map(|item| (selector::read_weight(&item), selector::read_node_term(&item.get("preference"))))
            .collect(),
        affinity_required: selector::read_required_pod_terms(&together),
        affinity_preferred: selector::read_preferred_pod_terms(&together),
        anti_affinity_required: selector::read_required_pod_terms(&apart),
        anti_affinity_preferred: selector::read_preferred_pod_terms(&apart),
        spreads: spec
            .get("topologySpreadConstraints")
            .items()
            .map(|constraint| selector::read_spread(&constraint))
            .collect(),
        tolerations: taint::read_tolerations(&spec.get("tolerations")),
        host_ports: read_host_ports(spec),
        volumes: spec.get("volumes").items().filter_map(|volume| read_volume(&volume)).collect(),
        has_resource_claims: asks_for_devices(spec),
        priority: priorities.of(spec),
        scheduler_name: spec.get("schedulerName").symbol().unwrap_or(Symbol::new(SCHEDULER_DEFAULT)),
        // Less than nothing counts as a second, as an API server has it.
        termination_grace_seconds: grace.map_or(GRACE_SECONDS_DEFAULT, |seconds| match seconds {
            ..0 => 1,
            seconds => u32::try_from(seconds).unwrap_or(u32::MAX),
        }),
        do_not_disrupt: annotated(*annotation::DO_NOT_DISRUPT).map(Symbol::new),
        deletion_cost: annotated(*annotation::POD_DELETION_COST)
            .and_then(|text| text.parse().ok())
            .unwrap_or(0),
    }
}

/// One of them has to hold. A void one never does, so it is kept only where there is no other.
fn read_node_terms(required: &Field) -> Vec<NodeTerm> {
    let listed = required.get("nodeSelectorTerms");
    let terms = listed.items().map(|term| selector::read_node_term(&term));
    let (void, mut terms): (Vec<NodeTerm>, Vec<NodeTerm>) = terms.partition(NodeTerm::is_void);
    if terms.is_empty() {
        terms.extend(void.into_iter().next());
    }
    terms
}

fn read_node_selector(spec: &Field<'_, '_>) -> Labels {
    metadata::read_labels(&spec.get("nodeSelector"))
}

/// Through claims of the pod as a whole or of any of its containers.
fn asks_for_devices(spec: &Field<'_, '_>) -> bool {
    let of_some_container = |list: &str| {
        let containers = spec.get(list);
        containers.items().any(|container| container.get("resources").get("claims").len() > 0)
    };
    spec.get("resourceClaims").len() > 0
        || ["containers", "initContainers"].into_iter().any(of_some_container)
}

/// Of regular containers only; with the host's network every container port is one.
fn read_host_ports(spec: &Field<'_, '_>) -> Vec<HostPort> {
    let on_host_network = spec.get("hostNetwork").boolean() == Some(true);
    let mut ports = Vec::new();
    for container in spec.get("containers").items() {
        for port in container.get("ports").items() {
            let host_port = port.get("hostPort").integer().filter(|port| *port > 0);
            let container_port = port.get("containerPort").integer().filter(|_| on_host_network);
            let Some(number) = host_port.or(container_port).and_then(|port| u16::try_from(port).ok()) else {
                continue;
            };
            let text = |key: &str, default: &'static str| {
                Symbol::new(port.get(key).text().filter(|text| !text.is_empty()).unwrap_or(default))
            };
            ports.push(HostPort {
                ip: text("hostIP", "0.0.0.0"),
                port: number,
                protocol: text("protocol", "TCP"),
            });
        }
    }
    ports
}

fn read_volume(volume: &Field<'_, '_>) -> Option<PodVolume> {
    let claim = volume.get("persistentVolumeClaim");
    if claim.is_present() {
        return Some(PodVolume::Claim(claim.get("claimName").required_text()?.into()));
    }
    let ephemeral = volume.get("ephemeral");
    if !ephemeral.is_present() {
        return None;
    }
    let template = ephemeral.get("volumeClaimTemplate");
    let claim = template.get("spec");
    let storage_class = claim.get("storageClassName").symbol();
    Some(PodVolume::Ephemeral { volume: volume.get("name").required_text()?.into(), storage_class })
}
