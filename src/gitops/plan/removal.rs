//! Objects that left Git: which of them may go, and how.
//!
//! Taking a pool away takes its nodes with it, past all budgets, so this is the most dangerous thing a commit can ask for.
//! A pool with nodes is therefore *retired*: it launches nothing more and its template moves on, so that the engine
//! drifts its nodes away within the pool's own budgets; it is deleted when none is left.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::{ChangeAction, Drafting, PlannedChange, RenderProof, Skipped, Verdict, VerdictCode};
use crate::gitops::desired::{ObjectRef, class_of};
use crate::gitops::diff::{NodeImpact, diff_object};
use crate::gitops::live::{Inventory, InventoryEntry, LiveObject};
use crate::gitops::policy::PruneMode;
use crate::gitops::tracking::{
    ANNOTATION_PROTECT, ANNOTATION_PRUNE, ANNOTATION_RECONCILE, ANNOTATION_RETIRE, Ownership, ownership, wave,
};
use crate::gitops::window::ChangeClass;

impl Drafting<'_> {
    /// The removals of all tracked objects that the commit does not want, before limits on all of them together.
    pub(super) fn removals(&mut self) -> Vec<PlannedChange> {
        let mut removals = Vec::new();
        let live_state = self.input.live;
        for (object, live) in &live_state.objects {
            if self.input.desired.objects.contains_key(object) || !object.is_of_fleets() {
                continue;
            }
            let entry = live_state.inventory.as_ref().and_then(|inventory| inventory.entries.get(object));
            match ownership(&self.owner, object, live) {
                Ownership::Ours => {}
                Ownership::Other(_) => continue,
                Ownership::Copy => {
                    let reason = "carries the tracking id of another object: a copy, left alone".into();
                    self.skipped.push(Skipped { object: object.clone(), reason });
                    continue;
                }
                Ownership::Nobody => {
                    if entry.is_some_and(|entry| entry.uid == live.uid) {
                        let reason =
                            "left Git, but its tracking id was taken off: no longer ours to remove".into();
                        self.skipped.push(Skipped { object: object.clone(), reason });
                    } else if !object.is_of_teams() {
                        self.unmanaged.push(object.clone());
                    }
                    continue;
                }
            }
            if live.is_terminating() {
                let reason = "left Git, and is being deleted".into();
                self.skipped.push(Skipped { object: object.clone(), reason });
                continue;
            }
            if live.annotation(ANNOTATION_RECONCILE) == Some("disabled") {
                let reason = format!("left Git, and is annotated {ANNOTATION_RECONCILE}: disabled");
                self.skipped.push(Skipped { object: object.clone(), reason });
                continue;
            }
            removals.push(self.removal(object, live, entry));
        }
        self.hold_classes_in_use(&mut removals);
        removals
    }

    fn removal(
        &self,
        object: &ObjectRef,
        live: &LiveObject,
        entry: Option<&InventoryEntry>,
    ) -> PlannedChange {
        let diff = diff_object(object, Some(live), None, Some(&self.input.live.fleet));
        let has_nodes = !diff.affected.is_empty();
        let mut change = PlannedChange {
            object: object.clone(),
            action: ChangeAction::Delete,
            verdict: Verdict::Proceed,
            wave: entry.map_or_else(|| wave(&live.manifest), |entry| entry.wave),
            class: ChangeClass::Destructive,
            impact: diff.impact,
            affected: diff.affected,
            fields: vec![],
            reasons: vec!["no longer in the commit".into()],
            origin: None,
            renamed: None,
            manifest: None,
            uid: Some(live.uid.clone()).filter(|uid| !uid.is_empty()),
            take_over: vec![],
            wanted: "".into(),
        };
        if has_nodes && self.input.policy.prune != PruneMode::Now {
            change.action = ChangeAction::Retire;
            change.manifest = Some(retiring(object, live));
            let nodes = match change.affected.len() {
                1 => "the pods of its node".to_owned(),
                nodes => format!("the pods of its {nodes} nodes"),
            };
            change.reasons.push(format!("{nodes} are moved away within its budgets before it is deleted"));
        }
        change.verdict = self
            .guard(object, live, entry)
            .or_else(|| self.retiring_verdict(live, entry, &mut change))
            .or_else(|| self.ask_first(live, has_nodes))
            .unwrap_or(Verdict::Proceed);
        change
    }

    /// What forbids the removal whatever a person confirms.
    fn guard(
        &self,
        object: &ObjectRef,
        live: &LiveObject,
        entry: Option<&InventoryEntry>,
    ) -> Option<Verdict> {
        let policy = self.input.policy;
        let fleet = &self.input.live.fleet;
        let is_pool = &*object.kind == "NodePool";
        let is_overridden = self.input.consent.override_protection.is_some();
        let inventory: Option<&Inventory> = self.input.live.inventory.as_ref();
        let after_one_sync = "settle what is refused, if anything is, and sync once without removals; the record is rebuilt from tracking ids";
        if inventory.is_none() {
            let message = "the record of what was applied is lost, so nothing is removed";
            return Some(Verdict::refused(VerdictCode::InventoryLost, message, after_one_sync));
        }
        if inventory.is_some_and(|inventory| inventory.is_rebuilt) {
            let message = "the record of what was applied was rebuilt and no sync went through since";
            return Some(Verdict::refused(VerdictCode::InventoryRebuilt, message, after_one_sync));
        }
        match entry {
            None => {
                let message = "carries our tracking id, but this environment has no record of applying it";
                return Some(Verdict::refused(
                    VerdictCode::NotInInventory,
                    message,
                    "delete it by hand, or put it back into Git and remove it again",
                ));
            }
            Some(entry) if entry.uid != live.uid => {
                let message = "somebody deleted it and made it anew: it is not the object that was applied";
                return Some(Verdict::refused(
                    VerdictCode::Recreated,
                    message,
                    "delete it by hand if it should go",
                ));
            }
            Some(_) => {}
        }
        if self.input.proof == RenderProof::Once {
            let message = "the commit was rendered only once; removing takes two renders that agree";
            let help = "the next commit that is taken is rendered again; if one is held back, decide about that first";
            return Some(Verdict::refused(VerdictCode::UnprovenRender, message, help));
        }
        if self.input.desired.objects.is_empty() && !policy.allow_empty {
            let message = "the commit wants nothing at all; an empty render removes nothing";
            let help = "check the path; if everything shall go, delete the objects in the cluster";
            return Some(Verdict::refused(VerdictCode::EmptyRender, message, help));
        }
        // What a person once agreed to empty is finished even where pruning is off.
        if policy.prune == PruneMode::Off && !is_retiring(live, entry) {
            let help = "run with `--prune retire`, or set `spec.sync.prune` of the Environment";
            return Some(Verdict::refused(VerdictCode::PruneDisabled, "requires prune", help));
        }
        let is_marked =
            live.annotation(ANNOTATION_PRUNE).is_some_and(|mode| matches!(mode, "false" | "never"))
                || live.annotation(ANNOTATION_PROTECT) == Some("true");
        if is_pool && fleet.controller_pools.contains(&object.name) && !is_overridden {
            let message = "hosts the controller";
            let help = "move the controller first";
            return Some(Verdict::refused(VerdictCode::HostsController, message, help));
        }
        if (is_marked || (is_pool && policy.is_protected(&object.name))) && !is_overridden {
            let message =
                if is_marked { "is annotated as protected" } else { "is protected by `spec.sync.protected`" };
            let help = "take the protection off first";
            return Some(Verdict::refused(VerdictCode::Protected, message, help));
        }
        let busy = fleet.nodes_of(&object.name).iter().filter(|node| node.do_not_disrupt).count();
        if is_pool && busy > 0 && !is_overridden {
            let message = format!("{} ask not to be disrupted", count(busy, "node"));
            let help = "wait for those pods to finish, or move them";
            return Some(Verdict::refused(VerdictCode::DoNotDisrupt, message, help));
        }
        None
    }

    /// A pool that is already being emptied needs no further word until it takes too long.
    fn retiring_verdict(
        &self,
        live: &LiveObject,
        entry: Option<&InventoryEntry>,
        change: &mut PlannedChange,
    ) -> Option<Verdict> {
        if !is_retiring(live, entry) {
            return None;
        }
        let since = entry?.retiring_since?;
        if change.affected.is_empty() {
            change.reasons.push("its last node is gone".into());
            return Some(Verdict::Proceed);
        }
        let left = count(change.affected.len(), "node");
        let deadline = since.checked_add(self.input.policy.retire_timeout).unwrap_or(jiff::Timestamp::MAX);
        if self.input.now < deadline {
            let message = format!("{left} left to move away");
            return Some(Verdict::Waits { code: VerdictCode::Retiring, message, until: Some(deadline) });
        }
        change.action = ChangeAction::Delete;
        change.manifest = None;
        let message = format!("{left} still there since {since}; confirm to delete them with the pool");
        Some(Verdict::confirm(VerdictCode::RetireTimeout, message))
    }

    /// What a person has to confirm for this object alone.
    fn ask_first(&self, live: &LiveObject, has_nodes: bool) -> Option<Verdict> {
        if self.input.desired.objects.is_empty() {
            let message = "the commit wants nothing at all; confirm that everything shall go";
            return Some(Verdict::confirm(VerdictCode::EmptyRender, message));
        }
        let is_asked = live.annotation(ANNOTATION_PRUNE) == Some("confirm");
        if is_asked || (self.input.policy.confirm_prune && has_nodes) {
            let message = "removing it takes a person's word";
            return Some(Verdict::confirm(VerdictCode::PruneNeedsConfirmation, message));
        }
        None
    }

    /// A class outlives the last pool that launches from it, whether that pool stays or is being emptied.
    fn hold_classes_in_use(&self, removals: &mut [PlannedChange]) {
        let fates: BTreeMap<Arc<str>, Verdict> = removals
            .iter()
            .filter(|change| &*change.object.kind == "NodePool" && change.action == ChangeAction::Delete)
            .map(|change| (change.object.name.clone(), change.verdict.clone()))
            .collect();
        for change in removals.iter_mut().filter(|change| &*change.object.kind == "EC2NodeClass") {
            if !matches!(change.verdict, Verdict::Proceed | Verdict::NeedsConfirmation { .. }) {
                continue;
            }
            let (leaving, staying): (Vec<&str>, Vec<&str>) =
                self.users(&change.object.name).partition(|pool| {
                    let fate = fates.get(*pool);
                    fate.is_some_and(|fate| {
                        matches!(fate, Verdict::Proceed | Verdict::NeedsConfirmation { .. })
                    })
                });
            if !staying.is_empty() {
                let message = format!("still used by {}", staying.join(", "));
                change.verdict = Verdict::Waits { code: VerdictCode::ClassInUse, message, until: None };
                continue;
            }
            let asked = leaving.into_iter().find(|pool| fates.get(*pool) != Some(&Verdict::Proceed));
            if let (Some(pool), Verdict::Proceed) = (asked, &change.verdict) {
                let message = format!("goes together with NodePool {pool}");
                change.verdict = Verdict::confirm(VerdictCode::PruneNeedsConfirmation, message);
            }
        }
    }

    /// The live pools that launch from a class, or have nodes that were launched from it.
    fn users(&self, class: &str) -> impl Iterator<Item = &str> {
        let live = self.input.live;
        let pools = live.objects.iter().filter(|(object, _)| &*object.kind == "NodePool");
        pools
            .filter(move |(object, found)| {
                let wanted = self.input.desired.objects.get(*object).map(|wanted| &wanted.manifest);
                let uses_now = class_of(&found.manifest) == Some(class);
                let will_use = wanted.map_or(uses_now, |wanted| class_of(wanted) == Some(class));
                will_use || (uses_now && !live.fleet.nodes_of(&object.name).is_empty())
            })
            .map(|(object, _)| &*object.name)
    }
}

fn is_retiring(live: &LiveObject, entry: Option<&InventoryEntry>) -> bool {
    entry.is_some_and(|entry| entry.retiring_since.is_some()) && live.annotation(ANNOTATION_RETIRE).is_some()
}

/// The live pool, changed so that it launches nothing and every node of it drifts.
///
/// A limit of zero nodes stops launches; a new annotation in the template moves its hash, which is how any engine that
/// speaks Karpenter's API learns to replace nodes within budgets. A static pool is told to have no nodes instead.
fn retiring(object: &ObjectRef, live: &LiveObject) -> Value {
    let mut spec = live.manifest.get("spec").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    if spec.get("replicas").is_some() {
        spec["replicas"] = json!(0);
    } else {
        set(&mut spec, &["limits", "nodes"], json!("0"));
        set(&mut spec, &["template", "metadata", "annotations", ANNOTATION_RETIRE], json!("true"));
    }
    let own = |map: &str| -> Map<String, Value> {
        let found = live.manifest.get("metadata").and_then(|metadata| metadata.get(map)?.as_object());
        let ours = found.into_iter().flatten().filter(|(key, _)| key.starts_with("provisor.dev/"));
        ours.map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    let mut annotations = own("annotations");
    annotations.insert(ANNOTATION_RETIRE.into(), json!("true"));
    json!({
        "apiVersion": &*object.api_version,
        "kind": &*object.kind,
        "metadata": { "name": &*object.name, "labels": own("labels"), "annotations": annotations },
        "spec": spec,
    })
}

fn set(value: &mut Value, path: &[&str], to: Value) {
    let mut at = value;
    for key in path {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        at = &mut at[*key];
    }
    *at = to;
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// How many nodes a removal takes away, and their cores.
pub(super) fn removed_nodes(change: &PlannedChange) -> u32 {
    match change.impact {
        NodeImpact::Destructive { nodes } => nodes.unwrap_or(0),
        _ => 0,
    }
}
