//! Kubelets that only say how they are: how long a machine takes to join, to be ready, to start and stop a pod.

use jiff::{SignedDuration, Timestamp};
use rand_chacha::ChaCha8Rng;

use crate::model::class::AmiFamily;
use crate::model::label::{self, Labels};
use crate::model::name::{NodeName, Uid};
use crate::model::node::{Node, NodeCondition};
use crate::model::observation::Instance;
use crate::model::offering::InstanceType;
use crate::model::pod::PodShape;
use crate::model::requirement::Requirement;
use crate::model::symbol::Symbol;
use crate::model::taint::{Effect, Taint};

use super::chance;

/// From launch until the kubelet registers its node. Bottlerocket has less to start.
pub fn boot_time(family: AmiFamily, rng: &mut ChaCha8Rng) -> SignedDuration {
    let (least, most) = match family {
        AmiFamily::Bottlerocket => (18, 30),
        AmiFamily::Al2023 | AmiFamily::Al2 | AmiFamily::Custom => (25, 45),
        AmiFamily::Windows2019 | AmiFamily::Windows2022 | AmiFamily::Windows2025 => (150, 240),
    };
    chance::between(rng, SignedDuration::from_secs(least), SignedDuration::from_secs(most))
}

/// From joining until the network plugin is up and the node is ready.
pub(super) fn ready_time(rng: &mut ChaCha8Rng) -> SignedDuration {
    chance::between(rng, SignedDuration::from_secs(5), SignedDuration::from_secs(12))
}

/// From binding until all containers run.
pub(super) fn start_time(rng: &mut ChaCha8Rng) -> SignedDuration {
    chance::between(rng, SignedDuration::from_secs(2), SignedDuration::from_secs(6))
}

/// From deletion until the pod is gone: most programs stop soon, some only when they are killed, none outlives its grace period.
pub(super) fn stop_time(shape: &PodShape, ignores_sigterm: bool, rng: &mut ChaCha8Rng) -> SignedDuration {
    let grace = SignedDuration::from_secs(i64::from(shape.termination_grace_seconds));
    let usual = chance::between(rng, SignedDuration::from_secs(1), SignedDuration::from_secs(8));
    if ignores_sigterm { grace } else { usual.min(grace) }
}

/// The Node object that a booting machine creates: tainted as unregistered and not ready, with a kubelet's own labels.
pub fn joining_node(instance: &Instance, kind: &InstanceType, startup: &[Taint], now: Timestamp) -> Node {
    let name =
        format!("node-{}", instance.provider_id.instance().trim_start_matches("i-").trim_start_matches('0'));
    let mut labels = Labels::new();
    for key in [*label::ARCH, *label::OS, *label::REGION] {
        if let Some(value) = kind.requirements.get(key).and_then(Requirement::single) {
            labels.insert(key, value);
        }
    }
    labels.insert(*label::HOSTNAME, Symbol::new(&name));
    labels.insert(*label::INSTANCE_TYPE, instance.instance_type.0);
    labels.insert(*label::ZONE, instance.zone.0);
    let mut taints =
        vec![Taint::unregistered(), Taint::new("node.kubernetes.io/not-ready", "", Effect::NoSchedule)];
    taints.extend(startup.iter().filter(|taint| !taint.is_ephemeral()).copied());
    Node {
        name: NodeName::new(&name),
        uid: Uid::new(&format!("{name}-uid")),
        labels,
        annotations: Labels::new(),
        created: Some(now),
        deleted: None,
        has_finalizer: false,
        provider_id: Some(instance.provider_id),
        taints,
        is_cordoned: false,
        capacity: instance.capacity.clone(),
        allocatable: instance.allocatable.clone(),
        conditions: vec![ready_condition(false, now)],
    }
}

pub fn ready_condition(is_ready: bool, now: Timestamp) -> NodeCondition {
    let status = if is_ready { "True" } else { "False" };
    NodeCondition { kind: Symbol::new("Ready"), status: Symbol::new(status), since: Some(now) }
}
