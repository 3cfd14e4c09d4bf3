//! The record of what was applied: by whom an object came to be as it is wanted does not matter.

use super::Sync;
use crate::gitops::desired::ObjectRef;
use crate::gitops::live::{InventoryEntry, LiveState};
use crate::gitops::plan::SyncPlan;

impl Sync {
    /// Records objects that are as the commit wants them, however they came to be so.
    pub(super) fn remember_settled(&mut self, plan: &SyncPlan) {
        let Some(LiveState { inventory: Some(inventory), .. }) = &mut self.live else { return };
        for settled in &plan.settled {
            let entry = inventory.entries.get(&settled.object);
            if entry.is_some_and(|entry| entry.uid == settled.uid && entry.digest == settled.digest) {
                continue;
            }
            let entry = InventoryEntry {
                uid: settled.uid.clone(),
                digest: settled.digest.clone(),
                wave: settled.wave,
                revision: plan.commit.clone(),
                retiring_since: None,
            };
            inventory.entries.insert(settled.object.clone(), entry);
            self.inventory_changed = true;
        }
        let live = self.live.as_ref();
        let is_there = |object: &ObjectRef| {
            live.is_some_and(|live| live.objects.contains_key(object))
                || self.wanted.good.as_ref().is_some_and(|(desired, _)| desired.objects.contains_key(object))
        };
        let gone: Vec<ObjectRef> = self
            .inventory()
            .into_iter()
            .flat_map(|inventory| inventory.entries.keys())
            .filter(|object| !is_there(object))
            .cloned()
            .collect();
        if let Some(inventory) = self.live.as_mut().and_then(|live| live.inventory.as_mut())
            && !gone.is_empty()
        {
            inventory.entries.retain(|object, _| !gone.contains(object));
            self.inventory_changed = true;
        }
    }

    /// One sync went through: what the rebuilt record says is believed from now on. Whether it was not before.
    pub(super) fn trust_inventory(&mut self) -> bool {
        let inventory = self.live.as_mut().and_then(|live| live.inventory.as_mut());
        let Some(inventory) = inventory.filter(|inventory| inventory.is_rebuilt) else { return false };
        inventory.is_rebuilt = false;
        self.inventory_changed = true;
        self.is_plan_stale = true;
        true
    }
}
