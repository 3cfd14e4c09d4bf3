//! Where a pod's volumes allow it to be, and how many volumes a node can attach.
//!
//! Volumes never change the pod itself: they give alternatives, each a set of node requirements of which one must hold.
//! They bind the node and not the pod, so that topology spread goes on counting by what the pod itself asked for.

use std::collections::{BTreeMap, BTreeSet};

use crate::capacity::cluster::Cluster;
use crate::model::label;
use crate::model::name::{NodeName, ObjectKey};
use crate::model::pod::{Pod, PodVolume};
use crate::model::requirement::Requirements;
use crate::model::symbol::Symbol;
use crate::model::workload::{PersistentVolume, PersistentVolumeClaim, StorageClass, default_class};

/// What a pod's volumes ask of its node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct PodVolumes {
    /// ORed, tried in this order; none at all: anywhere.
    pub alternatives: Vec<Requirements>,
    /// What gets attached, by driver.
    pub attached: BTreeSet<(Symbol, ObjectKey)>,
}

/// Why a volume cannot be used now. Placing its pod would not make it run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum VolumeFault {
    #[error("volume claim {0} does not exist; create it, or wait for its controller")]
    ClaimMissing(ObjectKey),
    #[error("volume claim {0} is being deleted")]
    ClaimDeleting(ObjectKey),
    #[error("volume claim {0} has lost its volume")]
    ClaimLost(ObjectKey),
    #[error("volume claim {claim} names volume {volume}, which does not exist or is being deleted")]
    VolumeMissing { claim: ObjectKey, volume: Symbol },
    #[error(
        "volume claim {0} names a volume but is not bound to it (no annotation pv.kubernetes.io/bind-completed)"
    )]
    NotBound(ObjectKey),
    #[error("volume claim {0} is not bound and names no storage class")]
    NoClass(ObjectKey),
    #[error("volume claim {claim} names storage class {class}, which does not exist")]
    ClassMissing { claim: ObjectKey, class: Symbol },
    #[error(
        "volume claim {0} is not bound yet, and its storage class binds immediately, before a pod has a node"
    )]
    BindsImmediately(ObjectKey),
    #[error(
        "volume claim {claim} needs the storage driver {driver}, which the machines bought here do not run"
    )]
    UnsupportedDriver { claim: ObjectKey, driver: Symbol },
    #[error("volume claim {claim} may only be where {key} says, and the machines bought here do not say it")]
    UnsupportedTopology { claim: ObjectKey, key: Symbol },
}

/// What the machines that are bought here do not provide, although others in the cluster may.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct UnsupportedStorage {
    /// By the names of CSI drivers.
    pub drivers: BTreeSet<Symbol>,
    /// Label keys by which storage classes name the places of their volumes.
    pub topology_keys: BTreeSet<Symbol>,
}

/// The claim behind `volume`.
fn claim_key(pod: &Pod, volume: &PodVolume) -> ObjectKey {
    let name = match volume {
        PodVolume::Claim(name) => *name,
        PodVolume::Ephemeral { volume, .. } => Symbol::new(&format!("{}-{volume}", pod.key.name)),
    };
    ObjectKey { namespace: pod.key.namespace, name }
}

/// Judges every volume of `pod` and collects what they ask for.
pub(super) fn volumes_of(cluster: &Cluster, pod: &Pod) -> Result<PodVolumes, VolumeFault> {
    let mut found = PodVolumes::default();
    for volume in &pod.shape.volumes {
        let key = claim_key(pod, volume);
        let claim = cluster.volume_claims.get(&key).ok_or(VolumeFault::ClaimMissing(key))?;
        let alternatives = alternatives_of(cluster, claim)?;
        found.alternatives = combined(found.alternatives, alternatives);
    }
    found.attached = attachments(cluster, pod);
    Ok(found)
}

/// Judges every volume of `pod`, also by what machines bought here do not provide.
pub(super) fn check_volumes(
    cluster: &Cluster,
    pod: &Pod,
    unsupported: &UnsupportedStorage,
) -> Result<(), VolumeFault> {
    let found = volumes_of(cluster, pod)?;
    let foreign = found.attached.into_iter().find(|(driver, _)| unsupported.drivers.contains(driver));
    if let Some((driver, claim)) = foreign {
        return Err(VolumeFault::UnsupportedDriver { claim, driver });
    }
    if unsupported.topology_keys.is_empty() {
        return Ok(());
    }
    let claims = pod.shape.volumes.iter().map(|volume| claim_key(pod, volume));
    for claim in
        claims.filter_map(|key| cluster.volume_claims.get(&key)).filter(|claim| claim.volume.is_none())
    {
        let class = class_or_default(cluster, claim.storage_class);
        let mut keys = class.into_iter().flat_map(|class| &class.topologies).flat_map(|term| term.iter());
        if let Some((key, _)) = keys.find(|(key, _)| unsupported.topology_keys.contains(key)) {
            return Err(VolumeFault::UnsupportedTopology { claim: claim.key, key });
        }
    }
    Ok(())
}

/// What `pod` attaches, also when its volumes are not in order: an existing pod holds them anyway.
pub(super) fn attachments(cluster: &Cluster, pod: &Pod) -> BTreeSet<(Symbol, ObjectKey)> {
    let driver = |volume: &PodVolume| {
        let key = claim_key(pod, volume);
        let claim = cluster.volume_claims.get(&key);
        let bound = claim.and_then(|claim| claim.volume).and_then(|name| cluster.volumes.get(&name));
        let asked = match (claim, volume) {
            (Some(claim), _) => claim.storage_class,
            (None, PodVolume::Ephemeral { storage_class, .. }) => *storage_class,
            (None, PodVolume::Claim(_)) => return None,
        };
        let driver = match bound {
            Some(bound) => bound.driver,
            None => class_or_default(cluster, asked).map(|class| class.provisioner),
        };
        driver.map(|driver| (driver, key))
    };
    pod.shape.volumes.iter().filter_map(driver).collect()
}

fn class_or_default(cluster: &Cluster, asked: Option<Symbol>) -> Option<&StorageClass> {
    match asked {
        Some(name) => cluster.storage_classes.get(&name).map(|class| &**class),
        None => default_class(cluster.storage_classes.values().map(|class| &**class)),
    }
}

fn alternatives_of(
    cluster: &Cluster,
    claim: &PersistentVolumeClaim,
) -> Result<Vec<Requirements>, VolumeFault> {
    let key = claim.key;
    if claim.is_deleting {
        return Err(VolumeFault::ClaimDeleting(key));
    }
    if claim.is_lost {
        return Err(VolumeFault::ClaimLost(key));
    }
    if let Some(volume) = claim.volume {
        let bound = cluster.volumes.get(&volume).filter(|bound| !bound.is_deleting);
        let bound = bound.ok_or(VolumeFault::VolumeMissing { claim: key, volume })?;
        if !claim.is_bind_completed {
            return Err(VolumeFault::NotBound(key));
        }
        return Ok(places_of(bound));
    }
    // One that names no class at all gets the default one, also later than at its making.
    let class = match claim.storage_class {
        Some(name) if name.is_empty() => None,
        Some(class) => {
            let missing = VolumeFault::ClassMissing { claim: key, class };
            Some(cluster.storage_classes.get(&class).map(|class| &**class).ok_or(missing)?)
        }
        None => class_or_default(cluster, None),
    };
    let class = class.ok_or(VolumeFault::NoClass(key))?;
    if class.binds_immediately {
        return Err(VolumeFault::BindsImmediately(key));
    }
    Ok(class.topologies.clone())
}

/// A disk of one host names that host, which will not be the new node: the volume is lost with it, or is made anew.
fn places_of(volume: &PersistentVolume) -> Vec<Requirements> {
    let place = |term: &crate::model::pod::NodeTerm| {
        let mut requirements = term.requirements();
        if volume.is_local {
            requirements.remove(*label::HOSTNAME);
        }
        requirements
    };
    volume.terms.iter().map(place).collect()
}

/// Every pair of one and the other that does not contradict itself; if all do, all of them, so that the pod fails where
/// its refusal can be explained.
fn combined(present: Vec<Requirements>, more: Vec<Requirements>) -> Vec<Requirements> {
    if present.is_empty() || more.is_empty() {
        return if present.is_empty() { more } else { present };
    }
    let (mut possible, mut all) = (Vec::new(), Vec::new());
    for one in &present {
        for other in &more {
            let mut both = one.clone();
            both.add_all(other);
            if one.intersects(other).is_ok() {
                possible.push(both.clone());
            }
            all.push(both);
        }
    }
    if possible.is_empty() { all } else { possible }
}

/// What is attached to a node, against what it can attach.
#[derive(Clone, Debug, Default)]
pub(super) struct Attached {
    limits: BTreeMap<Symbol, usize>,
    used: BTreeSet<(Symbol, ObjectKey)>,
}

impl Attached {
    /// `otherwise`: how much of what the node says nothing about.
    pub fn to(cluster: &Cluster, node: NodeName, otherwise: &[(Symbol, u32)]) -> Self {
        let mut limits = Self::within(otherwise).limits;
        if let Some(csi) = cluster.csi_nodes.get(&node) {
            limits.extend(csi.limits.iter().map(|(driver, limit)| (*driver, *limit as usize)));
        }
        if limits.is_empty() {
            return Self::default();
        }
        let pods = cluster.guests_of(node).filter(|pod| !pod.is_terminal());
        Self { limits, used: pods.flat_map(|pod| attachments(cluster, pod)).collect() }
    }

    /// Nothing yet.
    pub fn within(limits: &[(Symbol, u32)]) -> Self {
        let limits = limits.iter().map(|(driver, limit)| (*driver, *limit as usize)).collect();
        Self { limits, used: BTreeSet::new() }
    }

    /// The driver whose limit `more` would pass. A volume that is attached already counts once.
    pub fn exceeded_by(&self, more: &BTreeSet<(Symbol, ObjectKey)>) -> Option<Symbol> {
        if more.is_empty() || self.limits.is_empty() {
            return None;
        }
        let count = |driver: Symbol| self.used.union(more).filter(|(of, _)| *of == driver).count();
        self.limits
            .iter()
            .filter(|(driver, _)| more.iter().any(|(of, _)| of == *driver))
            .find(|(driver, limit)| count(**driver) > **limit)
            .map(|(driver, _)| *driver)
    }

    pub fn attach(&mut self, more: &BTreeSet<(Symbol, ObjectKey)>) {
        if !self.limits.is_empty() {
            self.used.extend(more);
        }
    }
}
