//! What exists now: objects as the API server shows them, the nodes behind them, and our record of what we applied.
//!
//! All of it is a value, handed over by whoever watches a cluster, real or simulated. Nothing here asks.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::desired::{DesiredState, ObjectRef, class_of};
use super::tracking::{FIELD_MANAGER, Owner, Ownership, foreign_tool, ownership, wave, with_marks};

/// One picture of a cluster, complete for the kinds that we manage.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LiveState {
    pub objects: BTreeMap<ObjectRef, LiveObject>,
    pub fleet: Fleet,
    /// What this environment applied so far. `None` when the record was lost or never existed; then nothing is pruned.
    pub inventory: Option<Inventory>,
}

impl LiveState {
    /// Takes manifests as they are listed; the fleet's index of which pool uses which class is made from them.
    pub fn from_manifests(manifests: impl IntoIterator<Item = Value>, mut fleet: Fleet) -> Self {
        let objects: BTreeMap<ObjectRef, LiveObject> = manifests
            .into_iter()
            .filter_map(|manifest| Some((ObjectRef::of(&manifest)?, LiveObject::new(manifest))))
            .collect();
        fleet.index_classes(&objects);
        Self { objects, fleet, inventory: None }
    }

    /// Takes in what is known of an object. What was sent last is remembered where a store does not tell it.
    pub(crate) fn put(&mut self, object: ObjectRef, mut live: LiveObject) {
        if let Some(known) = self.objects.get_mut(&object).filter(|known| known.uid == live.uid) {
            live.last_applied = live.last_applied.or(known.last_applied.take());
        }
        self.objects.insert(object, live);
    }

    /// An object without finalizers is gone when its deletion is accepted; the others say so themselves later.
    pub(crate) fn deletion_was_accepted(&mut self, object: &ObjectRef, at: Timestamp) {
        let Some(live) = self.objects.get_mut(object) else { return };
        let finalizers = live.manifest.pointer("/metadata/finalizers").and_then(Value::as_array);
        if finalizers.is_some_and(|finalizers| !finalizers.is_empty()) {
            if let Some(metadata) = live.manifest.get_mut("metadata").and_then(Value::as_object_mut) {
                metadata.insert("deletionTimestamp".into(), Value::String(at.to_string()));
            }
        } else {
            self.objects.remove(object);
        }
    }

    /// The cluster in which exactly this commit was applied: what a plan of another commit is compared with when no
    /// cluster is at hand.
    pub fn of_commit(state: &DesiredState, installation: &str, mut fleet: Fleet) -> Self {
        let owner = Owner { installation: installation.into(), environment: state.environment.clone() };
        let objects: BTreeMap<ObjectRef, LiveObject> = state
            .objects
            .iter()
            .map(|(object, wanted)| {
                let manifest = with_marks(&owner, object, &wanted.manifest);
                (
                    object.clone(),
                    LiveObject { last_applied: Some(manifest.clone()), ..LiveObject::new(manifest) },
                )
            })
            .collect();
        fleet.index_classes(&objects);
        let inventory = Inventory { is_rebuilt: false, ..Inventory::rebuilt(&owner, &objects) };
        Self { objects, fleet, inventory: Some(inventory) }
    }
}

/// One object as the API server shows it, `status` and `managedFields` included if it has them.
#[derive(Clone, Debug, PartialEq)]
pub struct LiveObject {
    pub manifest: Value,
    /// Tells an object from another of the same name that was made after it was deleted. Empty if the store has none.
    pub uid: Arc<str>,
    /// What we sent last, for stores that keep no `managedFields`: tells a field that left Git from one that others set.
    pub last_applied: Option<Value>,
}

impl LiveObject {
    pub fn new(manifest: Value) -> Self {
        let uid = manifest.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or("").into();
        Self { manifest, uid, last_applied: None }
    }

    pub fn label(&self, key: &str) -> Option<&str> {
        self.manifest.get("metadata")?.get("labels")?.get(key)?.as_str()
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.manifest.get("metadata")?.get("annotations")?.get(key)?.as_str()
    }

    /// Deleted, and waiting for its finalizers.
    pub fn is_terminating(&self) -> bool {
        self.manifest.pointer("/metadata/deletionTimestamp").is_some_and(|stamp| !stamp.is_null())
    }

    /// Who wrote the object, newest last, as `managedFields` tells; empty for stores that keep none.
    pub fn managers(&self) -> Vec<&str> {
        let entries = self.manifest.pointer("/metadata/managedFields").and_then(Value::as_array);
        entries.into_iter().flatten().filter_map(|entry| entry.get("manager")?.as_str()).collect()
    }

    /// Whether `self` is what became of `other`, as far as the store says in which order it stored them.
    pub(crate) fn is_later_than(&self, other: &Self) -> bool {
        let stored = |live: &Self| -> Option<u64> {
            live.manifest.pointer("/metadata/resourceVersion")?.as_str()?.parse().ok()
        };
        self.uid == other.uid && stored(self).zip(stored(other)).is_some_and(|(one, other)| one > other)
    }

    /// How often what is wanted of it changed; 0 where nobody counts.
    pub fn generation(&self) -> i64 {
        self.manifest.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or(0)
    }

    /// Whether the object's own controller has seen its current generation and found it good.
    pub fn readiness(&self) -> Readiness {
        // Nobody judges these, or not by this condition: nothing waits for them.
        let kind = self.manifest.get("kind").and_then(Value::as_str);
        if matches!(kind, Some("PodTemplate" | "CapacityBuffer")) {
            return Readiness::Ready;
        }
        let conditions = self.manifest.pointer("/status/conditions").and_then(Value::as_array);
        let ready = conditions
            .into_iter()
            .flatten()
            .find(|condition| condition.get("type").and_then(Value::as_str) == Some("Ready"));
        let Some(ready) = ready else { return Readiness::Unobserved };
        let observed = ready.get("observedGeneration").and_then(Value::as_i64);
        if observed.is_some_and(|observed| observed < self.generation()) {
            return Readiness::Unobserved;
        }
        match ready.get("status").and_then(Value::as_str) {
            Some("True") => Readiness::Ready,
            Some("False") => Readiness::NotReady(
                ready
                    .get("message")
                    .or_else(|| ready.get("reason"))
                    .and_then(Value::as_str)
                    .unwrap_or("no reason given")
                    .into(),
            ),
            _ => Readiness::Unobserved,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    Ready,
    /// No verdict for the current generation yet.
    Unobserved,
    NotReady(Arc<str>),
}

/// The running nodes, as far as a plan has to know them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fleet {
    pub nodes_by_pool: BTreeMap<Arc<str>, Vec<NodeFacts>>,
    /// Names of the NodePools that refer to a node class, by the class's name.
    pub pools_by_class: BTreeMap<Arc<str>, BTreeSet<Arc<str>>>,
    /// Nodes that no pool owns: they count when a share of the cluster is computed.
    pub other_nodes: u32,
    /// Pools that host Provisor itself; such a pool is never removed.
    pub controller_pools: BTreeSet<Arc<str>>,
}

impl Fleet {
    pub fn nodes_of(&self, pool: &str) -> &[NodeFacts] {
        self.nodes_by_pool.get(pool).map_or(&[], Vec::as_slice)
    }

    pub fn node_count(&self) -> u32 {
        let owned: usize = self.nodes_by_pool.values().map(Vec::len).sum();
        u32::try_from(owned).unwrap_or(u32::MAX).saturating_add(self.other_nodes)
    }

    /// Nodes of all pools that use the class, in order of pool and list.
    pub fn nodes_of_class<'a>(&'a self, class: &str) -> impl Iterator<Item = &'a NodeFacts> + use<'a> {
        self.pools_by_class.get(class).into_iter().flatten().flat_map(|pool| self.nodes_of(pool))
    }

    /// Fills `pools_by_class` from the live NodePools.
    pub fn index_classes(&mut self, objects: &BTreeMap<ObjectRef, LiveObject>) {
        self.pools_by_class.clear();
        for (object, live) in objects.iter().filter(|(object, _)| &*object.kind == "NodePool") {
            if let Some(class) = class_of(&live.manifest) {
                self.pools_by_class.entry(class.into()).or_default().insert(object.name.clone());
            }
        }
    }
}

/// What a plan has to know of one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFacts {
    pub name: Arc<str>,
    /// The claim's labels: requirements are compared with them. Shared, because fleets are compared and kept as wholes.
    pub labels: Arc<BTreeMap<Arc<str>, Arc<str>>>,
    /// Capacity in thousandths of a core.
    pub cpu_millis: u64,
    /// Runs a pod that asks not to be disrupted, or is itself marked so.
    pub do_not_disrupt: bool,
    /// Its claim has drifted: it is still to be replaced.
    pub is_drifted: bool,
}

/// What this environment applied, per object. Kept by the driver across restarts, as JSON if it likes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Inventory {
    #[serde(with = "as_list")]
    pub entries: BTreeMap<ObjectRef, InventoryEntry>,
    /// Rebuilt from tracking ids after a loss. Nothing is pruned until one sync went through.
    pub is_rebuilt: bool,
}

impl Inventory {
    /// The record that tracking ids allow to make again. A cluster without any has lost nothing.
    pub fn rebuilt(owner: &Owner, objects: &BTreeMap<ObjectRef, LiveObject>) -> Self {
        let entries: BTreeMap<ObjectRef, InventoryEntry> = objects
            .iter()
            .filter(|(object, live)| ownership(owner, object, live) == Ownership::Ours && was_applied(live))
            .map(|(object, live)| (object.clone(), InventoryEntry::new(&live.uid, wave(&live.manifest))))
            .collect();
        Self { is_rebuilt: !entries.is_empty(), entries }
    }
}

/// Whether what tells who wrote an object speaks of us: anybody can write a tracking id.
fn was_applied(live: &LiveObject) -> bool {
    let managers = live.managers();
    (managers.is_empty() || managers.contains(&FIELD_MANAGER)) && foreign_tool(live).is_none()
}

/// JSON has no maps by object: a list of pairs instead.
mod as_list {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serializer};

    use super::{InventoryEntry, ObjectRef};

    pub fn serialize<S: Serializer>(
        entries: &BTreeMap<ObjectRef, InventoryEntry>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(entries)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<ObjectRef, InventoryEntry>, D::Error> {
        Ok(Vec::<(ObjectRef, InventoryEntry)>::deserialize(deserializer)?.into_iter().collect())
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InventoryEntry {
    pub uid: Arc<str>,
    /// SHA-256 of what was applied.
    pub digest: Arc<str>,
    pub wave: i32,
    /// The commit that last changed it.
    pub revision: Arc<str>,
    /// Since when the pool is being emptied, if it is.
    pub retiring_since: Option<Timestamp>,
}

impl InventoryEntry {
    fn new(uid: &str, wave: i32) -> Self {
        Self { uid: uid.into(), digest: "".into(), wave, revision: "".into(), retiring_since: None }
    }
}
