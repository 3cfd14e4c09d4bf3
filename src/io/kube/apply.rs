//! Writing objects: claims, nodes and pools as the engine wants them, manifests as a repository has them.
//!
//! A change of ours never takes back what others wrote. Fields are merged; lists that can only be written as a whole are written
//! on the version that they were read at, and read again if somebody was faster. Each answer is the object as it is now, and
//! counts as news.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::intake::{Intake, gone};
use super::record::{Change, Record, Records};
use super::{Kind, Kube, KubeError, Resource, status};
use crate::api;
use crate::model::action::{ClaimChange, LaunchedAs, NodeChange, PoolChange};
use crate::model::buffer::BufferStatus;
use crate::model::claim::NodeClaim;
use crate::model::class::{self, ClassStatus, Holding};
use crate::model::label::{Labels, annotation};
use crate::model::name::{ClaimName, ClassName, Namespace, NodeName, ObjectKey, PoolName, Uid};
use crate::model::pool::OverlayConditions;
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;

/// What holds claims and nodes until their machine is gone; Karpenter's own name for it.
const FINALIZER: &str = "karpenter.sh/termination";
/// How often a write is repeated when somebody else was faster.
const CONFLICTS_MAX: usize = 8;

/// What came of a write: the object as it is now, or nothing if it is gone.
pub type Written = Result<Option<Change>, KubeError>;

/// Writes objects, with what has to be known of them.
#[derive(Clone, Debug)]
pub struct Writer {
    kube: Kube,
    records: Arc<Records>,
    intake: Arc<Intake>,
}

impl Writer {
    pub fn new(kube: Kube) -> Self {
        Self { kube, records: Arc::default(), intake: Arc::default() }
    }

    pub fn kube(&self) -> &Kube {
        &self.kube
    }

    /// Takes in news of the watches, so that the next write is on the newest version.
    pub fn note(&self, change: &Change) {
        if change.kind.is_custom() || change.kind == Kind::Node {
            self.records.note(change);
        }
    }

    pub fn uid_of(&self, kind: Kind, key: ObjectKey) -> Option<Uid> {
        self.records.get(kind, key)?.uid
    }

    pub fn generation_of(&self, kind: Kind, name: Symbol) -> i64 {
        self.records.get(kind, cluster_key(name)).map_or(0, |record| record.generation)
    }

    // Claims.

    /// Makes a claim; one of the same name that is there already is the one that was meant.
    pub async fn create_claim(&self, claim: &NodeClaim) -> Written {
        let mut object = api::render_node_claim(claim);
        let owner = claim.pool().and_then(|pool| self.uid_of(Kind::NodePool, cluster_key(pool.0)));
        if let Some(map) = object.as_object_mut() {
            map.remove("status");
        }
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            for field in ["uid", "creationTimestamp", "deletionTimestamp"] {
                metadata.remove(field);
            }
            match (owner, metadata.get_mut("ownerReferences").and_then(|owners| owners.get_mut(0))) {
                (Some(uid), Some(reference)) => reference["uid"] = uid.as_str().into(),
                // A reference without the owner's uid would have the claim collected at once.
                _ => drop(metadata.remove("ownerReferences")),
            }
        }
        let make = || self.kube.create(Kind::NodeClaim.resource(), None, &object);
        let mut made = make().await;
        if made.as_ref().is_err_and(KubeError::is_unanswered) {
            // It may be there all the same, and must not be taken for lost: its pods would have another one made.
            made = make().await;
        }
        match made {
            Ok(created) => self.read(Kind::NodeClaim, created),
            Err(error) if error.already_exists() => self.fetch(Kind::NodeClaim, claim.name.0).await,
            Err(error) => Err(error),
        }
    }

    pub async fn delete_claim(&self, claim: ClaimName) -> Written {
        self.delete(Kind::NodeClaim, claim.0).await
    }

    /// Writes what changes on a claim. Labels go first: a successor must not find a status without them.
    pub async fn change_claim(&self, claim: ClaimName, change: &ClaimChange) -> Written {
        let mut metadata = Map::new();
        put_labels(&mut metadata, "labels", &change.labels);
        put_labels(&mut metadata, "annotations", &change.annotations);
        let mut written = None;
        if change.add_finalizer {
            let body = |record: &Record| {
                let mut metadata = metadata.clone();
                put_finalizers(&mut metadata, record, FINALIZER, true);
                metadata.insert("resourceVersion".into(), record.version.0.to_string().into());
                json!({ "metadata": metadata })
            };
            written = self.write_on_version(Kind::NodeClaim, claim.0, body).await?;
        } else if !metadata.is_empty() {
            let change = json!({ "metadata": metadata });
            written = self.merge(Kind::NodeClaim, claim.0, None, &change).await?;
        }
        let status = status_of(change, self.generation_of(Kind::NodeClaim, claim.0));
        if !status.is_empty() {
            written =
                self.merge(Kind::NodeClaim, claim.0, Some("status"), &json!({ "status": status })).await?;
        }
        Ok(written)
    }

    pub async fn finalize_claim(&self, claim: ClaimName) -> Written {
        self.drop_finalizer(Kind::NodeClaim, claim.0).await
    }

    // Nodes.

    pub async fn change_node(&self, node: NodeName, change: &NodeChange) -> Written {
        let owner = change.owner.and_then(|claim| {
            let uid = self.uid_of(Kind::NodeClaim, cluster_key(claim.0))?;
            let resource = Kind::NodeClaim.resource();
            Some(json!({
                "apiVersion": resource.api_version, "kind": resource.kind, "name": claim.as_str(),
                "uid": uid.as_str(), "blockOwnerDeletion": true,
            }))
        });
        let writes_lists = change.add_finalizer
            || owner.is_some()
            || !change.add_taints.is_empty()
            || !change.remove_taints.is_empty();
        let mut plain = Map::new();
        put_labels(&mut plain, "labels", &change.labels);
        put_labels(&mut plain, "annotations", &change.annotations);
        if !writes_lists {
            return self.merge(Kind::Node, node.0, None, &json!({ "metadata": plain })).await;
        }
        let body = |record: &Record| {
            let mut metadata = plain.clone();
            if change.add_finalizer {
                put_finalizers(&mut metadata, record, FINALIZER, true);
            }
            if let Some(owners) = owner.as_ref().and_then(|owner| owners_with(&record.owners, owner)) {
                metadata.insert("ownerReferences".into(), owners.into());
            }
            metadata.insert("resourceVersion".into(), record.version.0.to_string().into());
            let mut body = json!({ "metadata": metadata });
            if let Some(taints) = changed_taints(&record.taints, change) {
                body["spec"] = json!({ "taints": taints });
            }
            body
        };
        self.write_on_version(Kind::Node, node.0, body).await
    }

    pub async fn delete_node(&self, node: NodeName) -> Written {
        self.delete(Kind::Node, node.0).await
    }

    pub async fn finalize_node(&self, node: NodeName) -> Written {
        self.drop_finalizer(Kind::Node, node.0).await
    }

    // Pods.

    /// Writes the node that kube-scheduler is to try first; another pod of the same name stays as it is.
    pub async fn nominate_pod(&self, pod: ObjectKey, uid: Uid, node: NodeName) -> Result<(), KubeError> {
        let change =
            json!({ "metadata": { "uid": uid.as_str() }, "status": { "nominatedNodeName": node.0 } });
        let (resource, namespace) = (Kind::Pod.resource(), Some(pod.namespace.as_str()));
        match self.kube.merge(resource, namespace, &pod.name, Some("status"), &change).await {
            Err(error) if error.is_missing() || error.is_conflict() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Deletes a pod past its budgets; another one of the same name stays.
    pub async fn delete_pod(&self, pod: ObjectKey, uid: Uid, grace_seconds: u32) -> Result<(), KubeError> {
        let (resource, namespace) = (Kind::Pod.resource(), Some(pod.namespace.as_str()));
        let answer =
            self.kube.delete(resource, namespace, &pod.name, Some(uid.as_str()), Some(grace_seconds));
        match answer.await {
            Err(error) if error.is_conflict() => Ok(()),
            answer => answer.map(drop),
        }
    }

    // Classes.

    /// Has a class stay until [`Self::finalize_class`], and says on it that this is by us, and what for: others use the same finalizer.
    pub async fn hold_class(&self, class: ClassName, what: Holding) -> Written {
        let body = |record: &Record| {
            let mut metadata = Map::new();
            put_finalizers(&mut metadata, record, class::FINALIZER, true);
            metadata.insert("annotations".into(), json!({ annotation::HELD.as_str(): what.as_str() }));
            metadata.insert("resourceVersion".into(), record.version.0.to_string().into());
            json!({ "metadata": metadata })
        };
        self.write_on_version(Kind::NodeClass, class.0, body).await
    }

    pub async fn finalize_class(&self, class: ClassName) -> Written {
        self.drop_finalizer(Kind::NodeClass, class.0).await
    }

    /// Writes what the selectors of a class find, if its status does not say so yet. `generation` of it was asked about: it may be another
    /// by now, of which this says nothing.
    pub async fn report_class(
        &self,
        class: ClassName,
        generation: i64,
        found: &ClassStatus,
        now: Timestamp,
    ) -> Written {
        let resource = Kind::NodeClass.resource();
        let Some(mut object) = self.kube.get(resource, None, &class.0).await? else { return Ok(None) };
        object["metadata"]["generation"] = generation.into();
        match status::of_class(&object, found, now) {
            Some(missing) => self.write_status(Kind::NodeClass, class.0, &missing).await,
            None => Ok(None),
        }
    }

    // Status of pools and classes.

    pub async fn change_pool(&self, pool: PoolName, change: &PoolChange) -> Written {
        let mut written = None;
        let mut annotations = Map::new();
        if let Some(stamp) = change.stamp {
            annotations.insert(annotation::NODEPOOL_HASH.to_string(), stamp.hash.as_str().into());
            annotations.insert(annotation::NODEPOOL_HASH_VERSION.to_string(), stamp.version.as_str().into());
        }
        if let Some(failures) = &change.roll_failures {
            // Without a text the annotation goes.
            annotations
                .insert(annotation::ROLL_FAILURES.to_string(), api::render_roll_failures(failures).into());
        }
        if !annotations.is_empty() {
            let change = json!({ "metadata": { "annotations": annotations } });
            written = self.merge(Kind::NodePool, pool.0, None, &change).await?;
        }
        let mut status = Map::new();
        if let Some(used) = &change.used {
            status.insert("resources".into(), api::render_resources(&used.resources));
            status.insert("nodes".into(), used.nodes.into());
        }
        if let Some(conditions) = &change.conditions {
            let generation = self.generation_of(Kind::NodePool, pool.0);
            status.insert("conditions".into(), observed(api::render_conditions(conditions), generation));
        }
        if !status.is_empty() {
            written =
                self.merge(Kind::NodePool, pool.0, Some("status"), &json!({ "status": status })).await?;
        }
        Ok(written)
    }

    pub async fn change_overlay(&self, overlay: Symbol, conditions: &OverlayConditions) -> Written {
        let generation = self.generation_of(Kind::NodeOverlay, overlay);
        let status = json!({ "conditions": observed(api::render_conditions(conditions), generation) });
        self.write_status(Kind::NodeOverlay, overlay, &status).await
    }

    pub async fn change_buffer(&self, buffer: ObjectKey, status: &BufferStatus) -> Result<(), KubeError> {
        let change = json!({ "status": api::render_buffer_status(status) });
        let (resource, namespace) = (Kind::Buffer.resource(), Some(buffer.namespace.as_str()));
        match self.kube.merge(resource, namespace, &buffer.name, Some("status"), &change).await {
            Err(error) if error.is_missing() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Puts `status` in the place of what the status of an object says under the same fields.
    pub async fn write_status(&self, kind: Kind, name: Symbol, status: &Value) -> Written {
        self.merge(kind, name, Some("status"), &json!({ "status": status })).await
    }

    // Manifests of a repository.

    /// Server-side apply of a manifest. With `uid` it fails if the object is another one by now. Fields that managers of
    /// `take_over` set by hand become ours first, so that what is missing from the manifest goes.
    pub async fn apply_manifest(
        &self,
        manifest: &Value,
        uid: Option<&str>,
        take_over: &[String],
    ) -> Result<Value, KubeError> {
        let (resource, namespace, name) = target(manifest)?;
        if !take_over.is_empty() {
            self.take_over(resource, namespace, name, take_over).await?;
        }
        let mut object = manifest.clone();
        if let (Some(uid), Some(metadata)) = (uid, object.get_mut("metadata").and_then(Value::as_object_mut))
        {
            metadata.insert("uid".into(), uid.into());
        }
        self.kube.apply(resource, namespace, name, None, &object).await
    }

    pub async fn delete_manifest(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Result<(), KubeError> {
        let resource = resource_of(api_version, kind)?;
        self.kube.delete(resource, Some(namespace), name, uid, None).await.map(drop)
    }

    async fn take_over(
        &self,
        resource: Resource,
        namespace: Option<&str>,
        name: &str,
        managers: &[String],
    ) -> Result<(), KubeError> {
        for _ in 0..CONFLICTS_MAX {
            let Some(mut object) = self.kube.get(resource, namespace, name).await? else { return Ok(()) };
            if !merge_managers(&mut object, managers) {
                return Ok(());
            }
            match self.kube.replace(resource, namespace, name, &object).await {
                Err(error) if error.is_conflict() => {}
                answer => return answer.map(drop),
            }
        }
        Ok(())
    }

    // The ways to write.

    fn read(&self, kind: Kind, object: Value) -> Written {
        // Whoever watches says what cannot be read of it.
        let (change, _) = self.intake.read(kind, object);
        self.note(&change);
        Ok(Some(change))
    }

    async fn fetch(&self, kind: Kind, name: Symbol) -> Written {
        match self.kube.get(kind.resource(), None, &name).await? {
            Some(object) => self.read(kind, object),
            None => Ok(None),
        }
    }

    /// Merges `change` into an object; nothing if it is gone.
    async fn merge(&self, kind: Kind, name: Symbol, part: Option<&str>, change: &Value) -> Written {
        match self.kube.merge(kind.resource(), None, &name, part, change).await {
            Ok(object) => self.read(kind, object),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn delete(&self, kind: Kind, name: Symbol) -> Written {
        let uid = self.uid_of(kind, cluster_key(name));
        match self.kube.delete(kind.resource(), None, &name, uid.map(|uid| uid.as_str()), None).await {
            Ok(Some(object)) => self.read(kind, object),
            Ok(None) => Ok(None),
            // Another object of this name by now: the one that was meant is gone.
            Err(error) if error.is_conflict() => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn drop_finalizer(&self, kind: Kind, name: Symbol) -> Written {
        let ours = if kind == Kind::NodeClass { class::FINALIZER } else { FINALIZER };
        let written = self.write_on_version(kind, name, |record| without_finalizer(record, ours)).await?;
        // Nothing holds it any more, so this was its end.
        let is_held = |record: &Record| !record.finalizers.is_empty() || !record.is_deleting;
        Ok(written.map(|change| match change.record.as_ref().is_some_and(is_held) {
            true => change,
            false => gone(kind, change.key, change.version),
        }))
    }

    /// Writes what `body` makes of the newest record, until nobody else was faster.
    async fn write_on_version(&self, kind: Kind, name: Symbol, body: impl Fn(&Record) -> Value) -> Written {
        let key = cluster_key(name);
        for _ in 0..CONFLICTS_MAX {
            let record = match self.records.get(kind, key) {
                Some(record) => record,
                None => {
                    self.fetch(kind, name).await?;
                    let Some(record) = self.records.get(kind, key) else { return Ok(None) };
                    record
                }
            };
            match self.merge(kind, name, None, &body(&record)).await {
                Err(error) if error.is_conflict() => drop(self.fetch(kind, name).await?),
                answer => return answer,
            }
        }
        let what = format!("changing {} {name}", kind.resource().kind);
        Err(KubeError::Unreachable { what, message: "others change it all the time".into() })
    }
}

fn cluster_key(name: Symbol) -> ObjectKey {
    ObjectKey { namespace: Namespace::new(""), name }
}

fn put_labels(metadata: &mut Map<String, Value>, field: &str, labels: &Labels) {
    if !labels.is_empty() {
        let map: Map<String, Value> =
            labels.iter().map(|(key, value)| (key.to_string(), value.as_str().into())).collect();
        metadata.insert(field.into(), map.into());
    }
}

fn put_finalizers(metadata: &mut Map<String, Value>, record: &Record, ours: &str, is_held: bool) {
    let others = record.finalizers.iter().map(String::as_str).filter(|name| *name != ours);
    let finalizers: Vec<&str> = others.chain(is_held.then_some(ours)).collect();
    metadata.insert("finalizers".into(), json!(finalizers));
}

/// What takes a finalizer of ours from an object, and nothing else.
fn without_finalizer(record: &Record, ours: &str) -> Value {
    let mut metadata = Map::new();
    put_finalizers(&mut metadata, record, ours, false);
    metadata.insert("resourceVersion".into(), record.version.0.to_string().into());
    json!({ "metadata": metadata })
}

/// `owners` and `owner`; `None` if it is one of them already.
fn owners_with(owners: &[Value], owner: &Value) -> Option<Vec<Value>> {
    let is_known = owners.iter().any(|known| known["uid"] == owner["uid"]);
    (!is_known).then(|| owners.iter().chain([owner]).cloned().collect())
}

/// `conditions` of an object whose `generation` is known: all of them were judged on it.
fn observed(mut conditions: Value, generation: i64) -> Value {
    for condition in conditions.as_array_mut().into_iter().flatten().filter(|_| generation > 0) {
        condition["observedGeneration"] = generation.into();
    }
    conditions
}

fn status_of(change: &ClaimChange, generation: i64) -> Map<String, Value> {
    let mut status = Map::new();
    if let Some(LaunchedAs { provider_id, image, capacity, allocatable }) = &change.launched {
        status.insert("providerID".into(), provider_id.as_str().into());
        status.insert("imageID".into(), image.as_str().into());
        status.insert("capacity".into(), api::render_resources(capacity));
        status.insert("allocatable".into(), api::render_resources(allocatable));
    }
    if let Some(node) = change.node {
        status.insert("nodeName".into(), node.as_str().into());
    }
    if let Some(conditions) = &change.conditions {
        status.insert("conditions".into(), observed(api::render_conditions(conditions), generation));
    }
    if let Some(at) = change.last_pod_event {
        status.insert("lastPodEventTime".into(), at.to_string().into());
    }
    status
}

/// The taints of a node after `change`; `None` if it changes nothing about them.
fn changed_taints(taints: &[Value], change: &NodeChange) -> Option<Vec<Value>> {
    let text =
        |taint: &Value, key: &str| taint.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let is = |raw: &Value, taint: &Taint| {
        text(raw, "key") == *taint.key && text(raw, "effect") == taint.effect.as_str()
    };
    let is_kept = |raw: &&Value| {
        let touched = change.remove_taints.iter().chain(&change.add_taints);
        !touched.into_iter().any(|taint| is(raw, taint))
    };
    let mut wanted: Vec<Value> = taints.iter().filter(is_kept).cloned().collect();
    for taint in &change.add_taints {
        let mut raw = json!({ "key": taint.key.as_str(), "effect": taint.effect.as_str() });
        if !taint.value.is_empty() {
            raw["value"] = taint.value.as_str().into();
        }
        // One that is there already stays as it is, with the moment at which it came.
        let known = taints.iter().find(|known| is(known, taint) && text(known, "value") == *taint.value);
        wanted.push(known.cloned().unwrap_or(raw));
    }
    let is_same = wanted.len() == taints.len() && wanted.iter().all(|taint| taints.contains(taint));
    (!is_same).then_some(wanted)
}

fn resource_of(api_version: &str, kind: &str) -> Result<Resource, KubeError> {
    Resource::of_manifest(api_version, kind).ok_or_else(|| KubeError::Refused {
        what: format!("{kind} of {api_version}"),
        code: 400,
        reason: "Unknown".into(),
        message: "this kind is not written by Provisor".into(),
    })
}

fn target(manifest: &Value) -> Result<(Resource, Option<&str>, &str), KubeError> {
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str);
    let resource = resource_of(text("/apiVersion").unwrap_or_default(), text("/kind").unwrap_or_default())?;
    Ok((resource, text("/metadata/namespace"), text("/metadata/name").unwrap_or_default()))
}

/// Gives the fields of `managers` to our own entry of `managedFields`; `false` if there are none.
fn merge_managers(object: &mut Value, managers: &[String]) -> bool {
    let version = object["apiVersion"].clone();
    let Some(entries) = object.pointer_mut("/metadata/managedFields").and_then(Value::as_array_mut) else {
        return false;
    };
    let is_taken = |entry: &Value| {
        let manager = entry.get("manager").and_then(Value::as_str).unwrap_or_default();
        entry.get("subresource").is_none() && managers.iter().any(|name| name == manager)
    };
    let taken: Vec<Value> = entries.iter().filter(|entry| is_taken(entry)).cloned().collect();
    if taken.is_empty() {
        return false;
    }
    entries.retain(|entry| !is_taken(entry));
    let is_ours = |entry: &Value| {
        entry["manager"] == super::client::FIELD_MANAGER
            && entry["operation"] == "Apply"
            && entry.get("subresource").is_none()
    };
    if !entries.iter().any(is_ours) {
        entries.push(json!({
            "manager": super::client::FIELD_MANAGER, "operation": "Apply", "apiVersion": version,
            "fieldsType": "FieldsV1", "fieldsV1": {},
        }));
    }
    if let Some(ours) = entries.iter_mut().find(|entry| is_ours(entry)) {
        for entry in taken {
            unite(&mut ours["fieldsV1"], &entry["fieldsV1"]);
        }
    }
    true
}

/// Adds the fields of `more` to a set of fields.
fn unite(fields: &mut Value, more: &Value) {
    let (Some(fields), Some(more)) = (fields.as_object_mut(), more.as_object()) else { return };
    for (key, below) in more {
        unite(fields.entry(key.clone()).or_insert_with(|| json!({})), below);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::taint::Effect;

    #[test]
    fn taints_of_others_stay_as_they_are() {
        let there = vec![
            json!({ "key": "node.kubernetes.io/not-ready", "effect": "NoExecute", "timeAdded": "2026-03-04T10:30:00Z" }),
            json!({ "key": "karpenter.sh/unregistered", "effect": "NoExecute" }),
        ];
        let change = NodeChange {
            remove_taints: vec![Taint::unregistered()],
            add_taints: vec![Taint::new("gpu", "yes", Effect::NoSchedule)],
            ..NodeChange::default()
        };
        let wanted = changed_taints(&there, &change).unwrap();
        assert_eq!(
            wanted,
            [there[0].clone(), json!({ "key": "gpu", "value": "yes", "effect": "NoSchedule" })]
        );
        assert_eq!(changed_taints(&wanted, &change), None, "written once");
    }

    /// Rows: LIF-054
    #[test]
    fn lif_054_every_condition_is_of_the_generation_that_is_known() {
        use crate::model::claim::{ConditionStatus, ConditionType, Conditions};
        let at: jiff::Timestamp = "2026-03-04T10:30:00Z".parse().unwrap();
        let mut conditions = Conditions::default();
        for kind in [ConditionType::Launched, ConditionType::Ready] {
            conditions.set(kind, ConditionStatus::True, kind.as_str(), "", at);
        }
        let change = ClaimChange { conditions: Some(conditions), ..ClaimChange::default() };
        for generation in [1, 2] {
            let status = status_of(&change, generation);
            let written = status["conditions"].as_array().unwrap();
            assert_eq!(written.len(), 2);
            for condition in written {
                assert_eq!(condition["observedGeneration"], generation);
                assert_eq!(
                    (&condition["status"], &condition["lastTransitionTime"]),
                    (&json!("True"), &json!(at.to_string()))
                );
            }
        }
        let unknown = status_of(&change, 0);
        assert!(
            unknown["conditions"][0].get("observedGeneration").is_none(),
            "nobody has seen the object yet"
        );
    }

    /// Rows: LIF-012
    #[test]
    fn lif_012_an_owner_is_named_once() {
        let owner = json!({ "kind": "NodeClaim", "name": "a", "uid": "u" });
        let other = json!({ "kind": "Thing", "name": "b", "uid": "v" });
        assert_eq!(owners_with(&[], &owner), Some(vec![owner.clone()]));
        let others = [other.clone()];
        assert_eq!(owners_with(&others, &owner), Some(vec![other.clone(), owner.clone()]));
        assert_eq!(owners_with(&[other, owner.clone()], &owner), None, "it is there");
    }

    /// The API server refuses any change of a claim's spec, even of how a quantity is written.
    ///
    /// Rows: LIF-063
    #[test]
    fn lif_063_letting_a_claim_go_writes_its_finalizers_alone() {
        let object = json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {
                "name": "a", "uid": "u", "resourceVersion": "7", "generation": 2,
                "deletionTimestamp": "2026-03-04T10:30:00Z",
                "finalizers": ["other.dev/wait", FINALIZER],
            },
            "spec": { "resources": { "requests": { "memory": "1048576Ki", "cpu": "0.5" } } },
        });
        let body = without_finalizer(&Record::of(&object), FINALIZER);
        let expected = json!({ "metadata": { "finalizers": ["other.dev/wait"], "resourceVersion": "7" } });
        assert_eq!(body, expected, "what others hold stays held");
    }

    #[test]
    fn what_was_written_by_hand_becomes_ours_field_by_field() {
        let mut object = json!({ "apiVersion": "karpenter.sh/v1", "metadata": { "managedFields": [
            { "manager": "kubectl-edit", "operation": "Update", "fieldsV1": { "f:spec": { "f:weight": {} } } },
            { "manager": "kubectl-edit", "operation": "Update", "subresource": "status", "fieldsV1": {} },
            { "manager": "provisor", "operation": "Apply", "fieldsV1": { "f:spec": { "f:limits": {} } } },
        ] } });
        assert!(merge_managers(&mut object, &["kubectl-edit".to_string()]));
        let entries = object["metadata"]["managedFields"].as_array().unwrap();
        assert_eq!(entries.len(), 2);
        assert_eq!(entries[1]["fieldsV1"], json!({ "f:spec": { "f:limits": {}, "f:weight": {} } }));
        assert!(!merge_managers(&mut object, &["kubectl-edit".to_string()]), "nothing is left to take over");
    }
}
