//! The Git half on a real cluster: what a commit wants is applied, one object after the other, as `gitops` decides.
//!
//! What was applied is remembered in a ConfigMap, so that a successor knows what it may remove.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::fleet::fleet_of;
use super::standing::Standing;
use crate::capacity::cluster::Cluster;
use crate::gitops::desired::ObjectRef;
use crate::gitops::live::{Inventory, LiveObject, LiveState};
use crate::gitops::plan::PlanHash;
use crate::gitops::policy::SyncPolicy;
use crate::gitops::sync::{GitEvent, ObjectResult, Outcome, Sync, SyncAction, SyncDecision};
use crate::io::kube::apply::Writer;
use crate::io::kube::lease::Permit;
use crate::io::kube::{Change, Kind, Kube, KubeError, Resource};
use crate::model::owner::Owner;
use crate::model::provisioner::Provisioner;

/// Where the record of what was applied is kept.
#[derive(Clone, Debug)]
pub struct Ledger {
    namespace: String,
    name: String,
    provisioner: Provisioner,
}

const FIELD: &str = "inventory.json";
/// Who provisions, so that it is known where no commit can be read.
const ENGINE: &str = "engine";

impl Ledger {
    /// That of `owner`. Neither part of the name has a dot, so that no two owners share one.
    pub fn of(owner: &Owner, namespace: &str, provisioner: Provisioner) -> Self {
        let name = format!("{}.{}.inventory", owner.installation, owner.environment);
        Self { namespace: namespace.into(), name, provisioner }
    }

    /// Who provisioned when something was applied last; `None` if nothing was kept.
    pub async fn provisioner(&self, kube: &Kube) -> Result<Option<Provisioner>, KubeError> {
        let map = kube.get(Resource::CONFIG_MAP, Some(&self.namespace), &self.name).await?;
        Ok(map.map(|map| provisioner_in(&map)))
    }

    /// What a former process applied; `None` if nothing was kept, or not readably. Another provisioner is written down at once.
    pub async fn open(&self, kube: &Kube) -> Result<Option<Inventory>, KubeError> {
        let inventory = self.read(kube).await?;
        if let Some(inventory) = &inventory
            && self.provisioner(kube).await? != Some(self.provisioner)
        {
            self.write(kube, inventory).await?;
        }
        Ok(inventory)
    }

    /// The same, and nothing is written.
    pub async fn read(&self, kube: &Kube) -> Result<Option<Inventory>, KubeError> {
        let Some(map) = kube.get(Resource::CONFIG_MAP, Some(&self.namespace), &self.name).await? else {
            return Ok(None);
        };
        let text = map.get("data").and_then(|data| data.get(FIELD)).and_then(Value::as_str);
        let inventory = text.and_then(|text| serde_json::from_str(text).ok());
        if inventory.is_none() {
            tracing::warn!("ConfigMap {}/{} is no inventory; it is made anew", self.namespace, self.name);
        }
        Ok(inventory)
    }

    async fn write(&self, kube: &Kube, inventory: &Inventory) -> Result<(), KubeError> {
        let text = serde_json::to_string(inventory).unwrap_or_default();
        let map = json!({
            "apiVersion": Resource::CONFIG_MAP.api_version,
            "kind": Resource::CONFIG_MAP.kind,
            "metadata": {
                "name": self.name, "namespace": self.namespace,
                "labels": { "app.kubernetes.io/managed-by": "provisor" },
            },
            "data": { FIELD: text, ENGINE: self.provisioner.as_str() },
        });
        kube.apply(Resource::CONFIG_MAP, Some(&self.namespace), &self.name, None, &map).await.map(drop)
    }
}

/// Former records do not say it.
fn provisioner_in(map: &Value) -> Provisioner {
    let word = map.get("data").and_then(|data| data.get(ENGINE)).and_then(Value::as_str);
    word.map_or_else(Provisioner::default, Provisioner::of)
}

/// What came of writing one object.
#[derive(Debug)]
pub(super) struct Synced {
    plan: Option<PlanHash>,
    result: ObjectResult,
}

pub(super) struct GitHalf {
    sync: Sync,
    writer: Writer,
    permit: Permit,
    /// Until everything is listed; then the Git half has its own picture.
    first: Option<BTreeMap<ObjectRef, LiveObject>>,
    results: mpsc::UnboundedSender<Synced>,
    inventories: mpsc::UnboundedSender<Inventory>,
}

impl GitHalf {
    pub fn new(
        environment: &str,
        policy: SyncPolicy,
        inventory: Option<Inventory>,
        ledger: Ledger,
        writer: Writer,
        permit: Permit,
        results: mpsc::UnboundedSender<Synced>,
    ) -> Self {
        let (inventories, waiting) = mpsc::unbounded_channel();
        tokio::spawn(keep(waiting, ledger, writer.kube().clone(), permit.clone()));
        Self {
            sync: Sync::new(environment, policy, inventory),
            writer,
            permit,
            first: Some(BTreeMap::new()),
            results,
            inventories,
        }
    }

    pub fn observe(&mut self, now: Timestamp, event: GitEvent) {
        self.sync.observe(now, event);
    }

    /// There was no such kind, and there is now.
    pub fn defined(&mut self, now: Timestamp, kind: Kind) {
        self.sync.observe(now, GitEvent::KindDefined { kind: kind.resource().kind.into() });
    }

    /// Takes in an object of a kind that a repository describes, and a namespace for them.
    pub fn see(&mut self, now: Timestamp, change: &Change) {
        if change.kind == Kind::Namespace {
            let namespace = change.key.name.as_str().into();
            return self.sync.observe(now, GitEvent::NamespaceChanged { namespace });
        }
        if !change.kind.is_synced() {
            return;
        }
        let resource = change.kind.resource();
        let object = ObjectRef {
            api_version: resource.api_version.into(),
            kind: resource.kind.into(),
            namespace: change.key.namespace.as_str().into(),
            name: change.key.name.as_str().into(),
        };
        let live = change.manifest.clone().map(LiveObject::new);
        match (&mut self.first, live) {
            (Some(objects), Some(live)) => drop(objects.insert(object, live)),
            (Some(objects), None) => drop(objects.remove(&object)),
            (None, live) => self.sync.observe(now, GitEvent::ObjectChanged { object, live }),
        }
    }

    /// Everything was listed: the first picture is complete.
    pub fn synced(&mut self, now: Timestamp, cluster: &Cluster) {
        if let Some(objects) = self.first.take() {
            let live = LiveState { objects, fleet: fleet_of(cluster), inventory: None };
            self.sync.observe(now, GitEvent::Live(live));
        }
    }

    /// How the environment stands, and what was applied.
    pub fn standing(&self, now: Timestamp) -> Standing {
        (self.sync.status(now), self.sync.inventory().cloned())
    }

    /// The commit that was applied completely, and the first line of its message.
    pub fn applied(&self) -> Option<(Arc<str>, Arc<str>)> {
        self.sync.applied()
    }

    /// Who provisions, as a commit says that may be applied now.
    pub fn provisioner(&self, now: Timestamp) -> Option<Provisioner> {
        self.sync.provisioner(now)
    }

    pub fn is_ready(&self) -> bool {
        self.first.is_none()
    }

    pub fn finished(&mut self, now: Timestamp, synced: Synced) {
        if let Some(plan) = synced.plan {
            self.sync.observe(now, GitEvent::Applied { plan, results: vec![synced.result] });
        }
    }

    /// Decides and starts what is to be done.
    pub fn decide(&mut self, now: Timestamp) -> SyncDecision {
        let decision = self.sync.decide(now);
        if decision.inventory_changed
            && let Some(inventory) = self.sync.inventory()
        {
            drop(self.inventories.send(inventory.clone()));
        }
        for action in &decision.actions {
            let (writer, permit, results) = (self.writer.clone(), self.permit.clone(), self.results.clone());
            let (plan, action) = (decision.plan.clone(), action.clone());
            tokio::spawn(async move {
                let outcome = if permit.is_valid() {
                    carry_out(&writer, &action).await
                } else {
                    Outcome::Transient("another replica acts now".into())
                };
                let result = ObjectResult { object: action.object().clone(), outcome };
                drop(results.send(Synced { plan, result }));
            });
        }
        decision
    }
}

async fn carry_out(writer: &Writer, action: &SyncAction) -> Outcome {
    let answer = match action {
        SyncAction::Apply { manifest, uid, take_over, .. } => {
            writer.apply_manifest(manifest, uid.as_deref(), take_over).await.map(|stored| {
                // A kind of ours always says what it is.
                debug_assert!(ObjectRef::of(&stored).is_some());
                Outcome::Applied(LiveObject::new(stored))
            })
        }
        SyncAction::Delete { object, uid } => {
            let ObjectRef { api_version, kind, namespace, name } = object;
            let deleted = writer.delete_manifest(api_version, kind, namespace, name, uid.as_deref());
            deleted.await.map(|()| Outcome::Deleted)
        }
    };
    match answer {
        Ok(outcome) => outcome,
        Err(error) if error.is_transient() => Outcome::Transient(error.to_string()),
        Err(error) if error.lacks_right() => Outcome::Forbidden(error.to_string()),
        Err(error) => Outcome::Permanent(error.to_string()),
    }
}

/// Writes the newest record, as often as it takes; older ones are skipped.
async fn keep(mut waiting: mpsc::UnboundedReceiver<Inventory>, ledger: Ledger, kube: Kube, permit: Permit) {
    while let Some(mut inventory) = waiting.recv().await {
        loop {
            while let Ok(newer) = waiting.try_recv() {
                inventory = newer;
            }
            if !permit.is_valid() {
                break;
            }
            match ledger.write(&kube, &inventory).await {
                Ok(()) => break,
                Err(error) => tracing::warn!("what was applied is not recorded: {error}"),
            }
            tokio::time::sleep(std::time::Duration::from_secs(5)).await;
        }
    }
}
