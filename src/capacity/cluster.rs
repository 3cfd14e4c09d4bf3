//! One picture of the cluster, kept by increments.
//!
//! Every object is there once, under its name: a copy of the whole picture for a simulation shares all of them, and copies a table
//! only when it changes it. The indexes (pods of a node, node of an instance, claims of a pool, pods that wait) are kept with each
//! observation, so that no event costs work in proportion to the cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::late_copy::LateCopy;
use super::pod_budgets::PodBudgets;
use crate::model::buffer::{CapacityBuffer, PodTemplate, Scalable};
use crate::model::catalog::Catalog;
use crate::model::claim::NodeClaim;
use crate::model::class::NodeClass;
use crate::model::hash::FastMap;
use crate::model::name::{ClaimName, ClassName, Namespace, NodeName, ObjectKey, PoolName, ProviderId};
use crate::model::node::Node;
use crate::model::observation::Observation;
use crate::model::pod::{Pod, PodShape};
use crate::model::pool::{NodeOverlay, NodePool};
use crate::model::quantity::ResourceName;
use crate::model::symbol::Symbol;
use crate::model::workload::{
    CsiNode, DaemonSet, NamespaceFacts, PersistentVolume, PersistentVolumeClaim, Service, StorageClass,
    VolumeAttachment,
};

/// The objects of one cluster as last seen.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    pub pools: BTreeMap<PoolName, Arc<NodePool>>,
    pub classes: BTreeMap<ClassName, Arc<NodeClass>>,
    pub overlays: BTreeMap<Symbol, Arc<NodeOverlay>>,
    pub claims: LateCopy<BTreeMap<ClaimName, Arc<NodeClaim>>>,
    pub nodes: LateCopy<BTreeMap<NodeName, Arc<Node>>>,
    pub pods: LateCopy<BTreeMap<ObjectKey, Arc<Pod>>>,
    pub daemon_sets: LateCopy<BTreeMap<ObjectKey, Arc<DaemonSet>>>,
    pub budgets: LateCopy<PodBudgets>,
    pub volume_claims: LateCopy<BTreeMap<ObjectKey, Arc<PersistentVolumeClaim>>>,
    pub volumes: LateCopy<BTreeMap<Symbol, Arc<PersistentVolume>>>,
    pub storage_classes: LateCopy<BTreeMap<Symbol, Arc<StorageClass>>>,
    pub csi_nodes: LateCopy<BTreeMap<NodeName, Arc<CsiNode>>>,
    pub attachments: LateCopy<BTreeMap<Symbol, Arc<VolumeAttachment>>>,
    pub namespaces: LateCopy<BTreeMap<Namespace, Arc<NamespaceFacts>>>,
    pub buffers: BTreeMap<ObjectKey, Arc<CapacityBuffer>>,
    pub pod_templates: BTreeMap<ObjectKey, Arc<PodTemplate>>,
    /// Empty, unless somebody asks for them.
    pub services: LateCopy<BTreeMap<ObjectKey, Arc<Service>>>,
    /// By kind and key.
    pub scalables: LateCopy<BTreeMap<(Symbol, ObjectKey), Arc<Scalable>>>,
    /// What the cloud sells; `None` until it was read.
    pub catalog: Option<Arc<Catalog>>,
    pub strangers: Strangers,

    // Indexes over the above.
    pods_by_node: LateCopy<BTreeMap<NodeName, BTreeMap<ObjectKey, Arc<Pod>>>>,
    /// Pods that wait and have room on a node that is kept for them, and which.
    guests: LateCopy<BTreeMap<NodeName, BTreeMap<ObjectKey, Arc<Pod>>>>,
    guest_at: LateCopy<BTreeMap<ObjectKey, NodeName>>,
    pods_by_namespace: LateCopy<BTreeMap<Namespace, usize>>,
    /// How many pods ask for each resource.
    requested: LateCopy<BTreeMap<ResourceName, usize>>,
    /// Pods of each DaemonSet that run or will, the newest last.
    daemons: LateCopy<BTreeMap<ObjectKey, ByAge>>,
    waiting_pods: LateCopy<BTreeSet<ObjectKey>>,
    /// How many pods have each shape that kube-scheduler has found no place for: those that wait, and those that room is kept for.
    waiting_shapes: LateCopy<BTreeMap<Arc<PodShape>, usize>>,
    /// Pods of which kube-scheduler has not said anything yet.
    unjudged_pods: LateCopy<BTreeMap<Arc<PodShape>, BTreeSet<ObjectKey>>>,
    claims_by_pool: LateCopy<BTreeMap<PoolName, BTreeSet<ClaimName>>>,
    claims_by_machine: LateCopy<ByMachine<ClaimName>>,
    nodes_by_machine: LateCopy<ByMachine<NodeName>>,
    touched: Touched,
    /// Nodes that keep room, of which something changed since it was last asked who waits there.
    hosts_touched: BTreeSet<NodeName>,
}

/// Pods from the oldest to the newest; those of unknown age first.
type ByAge = BTreeSet<(Option<Timestamp>, ObjectKey)>;

/// Which object speaks of which machine. There should be one; where there are several, all are known.
#[derive(Clone, Debug)]
struct ByMachine<N> {
    one: FastMap<ProviderId, N>,
    /// Where there are several: all of them, that of `one` included.
    several: BTreeMap<ProviderId, BTreeSet<N>>,
}

impl<N> Default for ByMachine<N> {
    fn default() -> Self {
        Self { one: FastMap::default(), several: BTreeMap::new() }
    }
}

impl<N: Copy + Ord> ByMachine<N> {
    /// The first by name.
    fn get(&self, machine: ProviderId) -> Option<N> {
        self.one.get(&machine).copied()
    }

    /// The one; `None` if there are several.
    fn only(&self, machine: ProviderId) -> Option<N> {
        self.get(machine).filter(|_| self.several.is_empty() || !self.several.contains_key(&machine))
    }

    fn all(&self, machine: ProviderId) -> Vec<N> {
        match self.several.get(&machine) {
            Some(several) => several.iter().copied().collect(),
            None => self.get(machine).into_iter().collect(),
        }
    }

    fn put(&mut self, machine: ProviderId, name: N) {
        match self.one.get_mut(&machine) {
            Some(known) if *known != name => {
                let several = self.several.entry(machine).or_default();
                several.extend([*known, name]);
                *known = (*known).min(name);
            }
            Some(_) => {}
            None => drop(self.one.insert(machine, name)),
        }
    }

    fn remove(&mut self, machine: ProviderId, name: N) {
        if let Some(several) = self.several.get_mut(&machine) {
            several.remove(&name);
            if let Some(first) = several.first() {
                self.one.insert(machine, *first);
            }
            if several.len() < 2 {
                self.several.remove(&machine);
            }
        } else if self.get(machine) == Some(name) {
            self.one.remove(&machine);
        }
    }
}

/// What has changed since the scheduler last looked: whose room, and whether what it knows of all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Touched {
    pub nodes: BTreeSet<NodeName>,
    pub claims: BTreeSet<ClaimName>,
    /// What may be attached where, or what a claim for a volume leads to.
    pub has_volumes: bool,
    pub has_namespaces: bool,
    /// Services and controllers, by which pods belong together.
    pub has_companions: bool,
}

/// What must be known to be left alone: what others have in this cluster, and what nobody can read.
#[derive(Clone, Debug, Default)]
pub struct Strangers {
    pub pools: BTreeSet<PoolName>,
    pub claims: BTreeMap<ClaimName, Arc<NodeClaim>>,
    /// Claims and nodes that cannot be read, and their machines.
    pub unreadable_claims: BTreeMap<ClaimName, Option<ProviderId>>,
    pub unreadable_nodes: BTreeMap<NodeName, Option<ProviderId>>,
}

impl Strangers {
    pub(crate) fn is_empty(&self) -> bool {
        self.pools.is_empty()
            && self.claims.is_empty()
            && self.unreadable_claims.is_empty()
            && self.unreadable_nodes.is_empty()
    }

    /// Whether a claim of somebody else, or something that cannot be read, speaks of this machine.
    pub fn has_machine(&self, id: ProviderId) -> bool {
        let mut unreadable = self.unreadable_claims.values().chain(self.unreadable_nodes.values());
        self.claims.values().any(|claim| claim.provider_id == Some(id))
            || unreadable.any(|machine| *machine == Some(id))
    }

    /// Whether a claim of this name is somebody else's, or cannot be read.
    pub fn has_claim(&self, name: ClaimName) -> bool {
        self.claims.contains_key(&name) || self.unreadable_claims.contains_key(&name)
    }

    /// Whether the node of a claim cannot be read.
    pub(crate) fn hides_node_of(&self, claim: &NodeClaim) -> bool {
        self.unreadable_nodes.iter().any(|(name, machine)| {
            claim.node == Some(*name) || (machine.is_some() && *machine == claim.provider_id)
        })
    }
}

impl Touched {
    pub fn add(&mut self, other: Touched) {
        self.nodes.extend(other.nodes);
        self.claims.extend(other.claims);
        self.has_volumes |= other.has_volumes;
        self.has_namespaces |= other.has_namespaces;
        self.has_companions |= other.has_companions;
    }
}

impl Cluster {
    /// Takes in one object. Observations that are no objects change nothing here and are the engine's business.
    pub fn observe(&mut self, _at: Timestamp, seen: &Observation) {
        match seen {
            Observation::Pool(pool) => drop(self.pools.insert(pool.name, pool.clone())),
            Observation::PoolGone(name) => drop(self.pools.remove(name)),
            Observation::Class(class) => drop(self.classes.insert(class.name, class.clone())),
            Observation::ClassGone(name) => drop(self.classes.remove(name)),
            Observation::Overlay(overlay) => drop(self.overlays.insert(overlay.name, overlay.clone())),
            Observation::OverlayGone(name) => drop(self.overlays.remove(name)),
            Observation::Claim(claim) => self.put_claim(claim.clone()),
            Observation::ClaimGone(name) => self.remove_claim(*name),
            Observation::Node(node) => self.put_node(node.clone()),
            Observation::NodeGone(name) => self.remove_node(*name),
            Observation::Pod(pod) => self.put_pod(pod.clone()),
            Observation::PodGone(key) => self.remove_pod(*key),
            Observation::DaemonSet(set) => drop(self.daemon_sets.insert(set.key, set.clone())),
            Observation::DaemonSetGone(key) => drop(self.daemon_sets.remove(key)),
            Observation::Budget(budget) => self.budgets.insert(budget.key, budget.clone()),
            Observation::BudgetGone(key) => self.budgets.remove(key),
            Observation::VolumeClaim(_)
            | Observation::VolumeClaimGone(_)
            | Observation::Volume(_)
            | Observation::VolumeGone(_)
            | Observation::StorageClass(_)
            | Observation::StorageClassGone(_)
            | Observation::CsiNode(_)
            | Observation::CsiNodeGone(_)
            | Observation::VolumeAttachment(_)
            | Observation::VolumeAttachmentGone(_) => self.observe_storage(seen),
            Observation::Service(service) => {
                self.services.insert(service.key, service.clone());
                self.touched.has_companions = true;
            }
            Observation::ServiceGone(key) => {
                self.services.remove(key);
                self.touched.has_companions = true;
            }
            Observation::Namespace(namespace) => {
                let former = self.namespaces.insert(namespace.name, namespace.clone());
                self.touched.has_namespaces |= former.as_ref() != Some(namespace);
            }
            Observation::NamespaceGone(name) => {
                self.touched.has_namespaces |= self.namespaces.remove(name).is_some();
            }
            Observation::Buffer(buffer) => drop(self.buffers.insert(buffer.key, buffer.clone())),
            Observation::BufferGone(key) => drop(self.buffers.remove(key)),
            Observation::PodTemplate(template) => {
                drop(self.pod_templates.insert(template.key, template.clone()))
            }
            Observation::PodTemplateGone(key) => drop(self.pod_templates.remove(key)),
            Observation::Scalable(scalable) => {
                let former = self.scalables.insert((scalable.kind, scalable.key), scalable.clone());
                self.touched.has_companions |=
                    former.is_none_or(|former| former.selector != scalable.selector);
            }
            Observation::ScalableGone { kind, key } => {
                self.touched.has_companions |= self.scalables.remove(&(*kind, *key)).is_some();
            }
            Observation::Catalog(catalog) => self.catalog = Some(catalog.clone()),
            Observation::Unreadable(_)
            | Observation::Synced
            | Observation::Launched { .. }
            | Observation::LaunchFailed { .. }
            | Observation::Terminating { .. }
            | Observation::Terminated { .. }
            | Observation::TerminateFailed { .. }
            | Observation::Instances(_)
            | Observation::Interruption { .. }
            | Observation::ClassResolved { .. }
            | Observation::ClearFailed { .. }
            | Observation::MachineNamed { .. }
            | Observation::Evicted { .. }
            | Observation::EvictionBlocked { .. }
            | Observation::CarriedOut { .. }
            | Observation::ActionFailed { .. } => {}
        }
    }

    fn observe_storage(&mut self, seen: &Observation) {
        self.touched.has_volumes = true;
        match seen {
            Observation::VolumeClaim(claim) => drop(self.volume_claims.insert(claim.key, claim.clone())),
            Observation::VolumeClaimGone(key) => drop(self.volume_claims.remove(key)),
            Observation::Volume(volume) => drop(self.volumes.insert(volume.name, volume.clone())),
            Observation::VolumeGone(name) => drop(self.volumes.remove(name)),
            Observation::StorageClass(class) => drop(self.storage_classes.insert(class.name, class.clone())),
            Observation::StorageClassGone(name) => drop(self.storage_classes.remove(name)),
            Observation::CsiNode(node) => drop(self.csi_nodes.insert(node.node, node.clone())),
            Observation::CsiNodeGone(name) => drop(self.csi_nodes.remove(name)),
            Observation::VolumeAttachment(attached) => {
                drop(self.attachments.insert(attached.name, attached.clone()))
            }
            Observation::VolumeAttachmentGone(name) => drop(self.attachments.remove(name)),
            _ => {}
        }
    }

    /// What has changed since this was last asked.
    pub(crate) fn take_touched(&mut self) -> Touched {
        std::mem::take(&mut self.touched)
    }

    /// All of `touched` is to be looked at again.
    pub(crate) fn touch(&mut self, touched: Touched) {
        self.touched.add(touched);
    }

    /// Pods bound to `node`, by name.
    pub fn pods_of(&self, node: NodeName) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods_by_node.get(&node).into_iter().flat_map(BTreeMap::values)
    }

    /// Pods that take room on `node`: bound to it, or expected there.
    pub fn guests_of(&self, node: NodeName) -> impl Iterator<Item = &Arc<Pod>> {
        self.pods_of(node).chain(self.expected_at(node))
    }

    /// How many pods have room kept for them.
    pub(crate) fn expected(&self) -> usize {
        self.guest_at.len()
    }

    pub(crate) fn is_expected(&self, pod: ObjectKey) -> bool {
        self.guest_at.contains_key(&pod)
    }

    /// The node that keeps room for it.
    pub(crate) fn expected_on(&self, pod: ObjectKey) -> Option<NodeName> {
        self.guest_at.get(&pod).copied()
    }

    /// Nodes that keep room for pods that are not bound yet.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = NodeName> {
        self.guests.keys().copied()
    }

    /// Pods that are not bound yet and for which `node` keeps room.
    pub(crate) fn expected_at(&self, node: NodeName) -> impl Iterator<Item = &Arc<Pod>> {
        self.guests.get(&node).into_iter().flat_map(BTreeMap::values)
    }

    /// Nodes that keep room or did, of which something has changed since this was last asked: themselves, their claims, or pods there.
    pub(crate) fn take_touched_hosts(&mut self) -> BTreeSet<NodeName> {
        std::mem::take(&mut self.hosts_touched)
    }

    /// A pod that waits has room on `node` from now on, and waits for no other.
    pub(crate) fn expect(&mut self, key: ObjectKey, node: NodeName) {
        if let Some(pod) = self.pods.get(&key).filter(|pod| pod.node.is_none()).cloned() {
            self.remove_pod(key);
            self.guest_at.insert(key, node);
            self.put_pod(pod);
        }
    }

    /// It waits like any other again.
    pub(crate) fn expect_no_more(&mut self, key: ObjectKey) {
        if self.guest_at.contains_key(&key) {
            let known = self.pods.get(&key).cloned();
            self.remove_pod(key);
            self.guest_at.remove(&key);
            known.into_iter().for_each(|pod| self.put_pod(pod));
        }
    }

    /// Namespaces that there are: one with pods exists, even if nobody listed it.
    pub(crate) fn known_namespaces(&self) -> impl Iterator<Item = Namespace> + '_ {
        self.namespaces.keys().chain(self.pods_by_namespace.keys()).copied()
    }

    /// Every resource that some pod asks for.
    pub(crate) fn requested(&self) -> impl Iterator<Item = ResourceName> + '_ {
        self.requested.keys().copied()
    }

    /// The newest pod of a DaemonSet.
    pub(crate) fn newest_daemon(&self, set: ObjectKey) -> Option<&Arc<Pod>> {
        self.pods.get(&self.daemons.get(&set)?.last()?.1)
    }

    /// Pods that kube-scheduler could not place and that nothing nominated, by name: candidates for new capacity. Owners
    /// and validity are not judged here.
    pub fn waiting_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        // Where many wait, walking through all pods beside them is quicker than looking each up.
        let walks = self.waiting_pods.len() * 8 > self.pods.len();
        let mut all = self.pods.values();
        self.waiting_pods
            .iter()
            .filter_map(move |key| if walks { all.find(|pod| pod.key == *key) } else { self.pods.get(key) })
    }

    pub fn has_waiting_pods(&self) -> bool {
        !self.waiting_pods.is_empty()
    }

    /// Pods of which kube-scheduler has said nothing yet, but that it found no place for their equals: it will say the same of
    /// them. By shape and name.
    pub fn foreseen_pods(&self) -> impl Iterator<Item = &Arc<Pod>> {
        let equals = self.waiting_shapes.keys().filter_map(|shape| self.unjudged_pods.get(shape));
        equals.flatten().filter_map(|key| self.pods.get(key))
    }

    /// Whether `pod` is one of them, or would be.
    pub fn foresees(&self, pod: &Pod) -> bool {
        pod.is_unjudged() && self.waiting_shapes.contains_key(&pod.shape)
    }

    /// Whether pods of this shape wait, of which kube-scheduler has said so.
    pub(crate) fn wait_as(&self, shape: &PodShape) -> bool {
        self.waiting_shapes.contains_key(shape)
    }

    /// Services of `namespace`, by name.
    pub fn services_of(&self, namespace: Namespace) -> impl Iterator<Item = &Arc<Service>> {
        let from = ObjectKey { namespace, name: Symbol::new("") };
        let services = self.services.range(from..).map(|(_, service)| service);
        services.take_while(move |service| service.key.namespace == namespace)
    }

    /// Claims of `pool`, by name.
    pub fn claims_of(&self, pool: PoolName) -> impl Iterator<Item = &Arc<NodeClaim>> {
        self.claims_by_pool.get(&pool).into_iter().flatten().filter_map(|name| self.claims.get(name))
    }

    /// The claim that `node` was launched for; `None` also if several say so.
    pub fn claim_of(&self, node: &Node) -> Option<&Arc<NodeClaim>> {
        self.claims.get(&self.claims_by_machine.only(node.provider_id?)?)
    }

    /// The node that `claim` became.
    pub fn node_of(&self, claim: &NodeClaim) -> Option<&Arc<Node>> {
        self.nodes.get(&self.nodes_by_machine.get(claim.provider_id?)?)
    }

    /// Every node that says of itself that it runs on the machine of `claim`, by name: more than one is a fault.
    pub fn nodes_of(&self, claim: &NodeClaim) -> impl Iterator<Item = &Arc<Node>> {
        let names = claim.provider_id.map(|machine| self.nodes_by_machine.all(machine));
        names.into_iter().flatten().filter_map(|name| self.nodes.get(&name))
    }

    pub fn node_by_instance(&self, instance: ProviderId) -> Option<&Arc<Node>> {
        self.nodes.get(&self.nodes_by_machine.get(instance)?)
    }

    pub fn claim_by_instance(&self, instance: ProviderId) -> Option<&Arc<NodeClaim>> {
        self.claims.get(&self.claims_by_machine.get(instance)?)
    }

    /// Every claim that says it was launched as this machine: more than one is a fault.
    pub fn claims_by_instance(&self, instance: ProviderId) -> impl Iterator<Item = &Arc<NodeClaim>> {
        let names = self.claims_by_machine.all(instance);
        names.into_iter().filter_map(|name| self.claims.get(&name))
    }

    pub fn put_claim(&mut self, claim: Arc<NodeClaim>) {
        self.remove_claim(claim.name);
        if let Some(pool) = claim.pool() {
            self.claims_by_pool.entry(pool).or_default().insert(claim.name);
        }
        if let Some(machine) = claim.provider_id {
            self.claims_by_machine.put(machine, claim.name);
        }
        self.touch_claim(&claim);
        self.claims.insert(claim.name, claim);
    }

    /// Room that is told of by `claim` may be another.
    fn touch_claim(&mut self, claim: &NodeClaim) {
        self.touched.claims.insert(claim.name);
        let nodes = claim.provider_id.map(|machine| self.nodes_by_machine.all(machine));
        nodes.into_iter().flatten().for_each(|node| self.touch_room(node));
    }

    /// Room at `node` may be another.
    fn touch_room(&mut self, node: NodeName) {
        self.touched.nodes.insert(node);
        if self.guests.contains_key(&node) {
            self.hosts_touched.insert(node);
        }
    }

    fn touch_node(&mut self, node: &Node) {
        self.touch_room(node.name);
        let claim = node.provider_id.and_then(|machine| self.claims_by_machine.get(machine));
        self.touched.claims.extend(claim);
    }

    pub fn remove_claim(&mut self, name: ClaimName) {
        let Some(former) = self.claims.remove(&name) else { return };
        self.touch_claim(&former);
        if let Some(pool) = former.pool() {
            drop_from(&mut self.claims_by_pool, &pool, &name);
        }
        if let Some(machine) = former.provider_id {
            self.claims_by_machine.remove(machine, name);
        }
    }

    pub fn put_node(&mut self, node: Arc<Node>) {
        self.remove_node(node.name);
        if let Some(machine) = node.provider_id {
            self.nodes_by_machine.put(machine, node.name);
        }
        self.touch_node(&node);
        self.nodes.insert(node.name, node);
    }

    pub fn remove_node(&mut self, name: NodeName) {
        let Some(former) = self.nodes.remove(&name) else { return };
        self.touch_node(&former);
        if let Some(machine) = former.provider_id {
            self.nodes_by_machine.remove(machine, name);
        }
    }

    pub fn put_pod(&mut self, pod: Arc<Pod>) {
        self.remove_pod(pod.key);
        match (pod.node, self.guest_at.get(&pod.key).copied()) {
            (Some(node), _) => {
                self.guest_at.remove(&pod.key);
                self.touch_room(node);
                self.pods_by_node.entry(node).or_default().insert(pod.key, pod.clone());
            }
            (None, Some(node)) => {
                self.guests.entry(node).or_default().insert(pod.key, pod.clone());
                self.touch_room(node);
            }
            _ if pod.waits() => drop(self.waiting_pods.insert(pod.key)),
            _ if pod.is_unjudged() => {
                self.unjudged_pods.entry(pod.shape.clone()).or_default().insert(pod.key);
            }
            _ => {}
        }
        if pod.waits() {
            *self.waiting_shapes.entry(pod.shape.clone()).or_default() += 1;
        }
        let in_namespace = self.pods_by_namespace.entry(pod.key.namespace).or_default();
        *in_namespace += 1;
        self.touched.has_namespaces |= *in_namespace == 1;
        for (name, _) in pod.shape.requests.iter() {
            *self.requested.entry(name).or_default() += 1;
        }
        if !pod.is_terminal() {
            for set in sets_of(&pod) {
                self.daemons.entry(set).or_default().insert((pod.created, pod.key));
            }
        }
        self.pods.insert(pod.key, pod);
    }

    pub fn remove_pod(&mut self, key: ObjectKey) {
        let Some(former) = self.pods.remove(&key) else { return };
        self.waiting_pods.remove(&key);
        if former.waits() {
            take_one(&mut self.waiting_shapes, &former.shape);
        }
        let (bound, kept) = (former.node, self.guest_at.get(&key).copied());
        match (bound, kept) {
            (Some(node), _) | (None, Some(node)) => {
                self.touch_room(node);
                let hosts = if bound.is_some() { &mut self.pods_by_node } else { &mut self.guests };
                if let Some(pods) = hosts.get_mut(&node) {
                    pods.remove(&key);
                    if pods.is_empty() {
                        hosts.remove(&node);
                    }
                }
            }
            (None, None) => drop_from(&mut self.unjudged_pods, &former.shape, &key),
        }
        self.touched.has_namespaces |= take_one(&mut self.pods_by_namespace, &key.namespace);
        for (name, _) in former.shape.requests.iter() {
            take_one(&mut self.requested, &name);
        }
        for set in sets_of(&former) {
            drop_from(&mut self.daemons, &set, &(former.created, key));
        }
    }
}

/// The DaemonSets that `pod` is of.
fn sets_of(pod: &Pod) -> impl Iterator<Item = ObjectKey> + '_ {
    let owners = pod.owners.iter().filter(|owner| pod.is_daemon() && &*owner.kind == "DaemonSet");
    owners.map(|owner| ObjectKey { namespace: pod.key.namespace, name: owner.name })
}

/// One less under `key`; whether it was the last.
fn take_one<K: Ord>(counts: &mut BTreeMap<K, usize>, key: &K) -> bool {
    let Some(count) = counts.get_mut(key) else { return false };
    *count -= 1;
    let is_last = *count == 0;
    if is_last {
        counts.remove(key);
    }
    is_last
}

/// Takes `member` out of the set under `key`, and the set out of the index once it is empty.
fn drop_from<K: Ord, V: Ord>(index: &mut BTreeMap<K, BTreeSet<V>>, key: &K, member: &V) {
    if let Some(members) = index.get_mut(key) {
        members.remove(member);
        if members.is_empty() {
            index.remove(key);
        }
    }
}
