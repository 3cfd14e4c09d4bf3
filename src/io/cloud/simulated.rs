//! A simulated cluster that stands where a real one would: objects are applied and listed, actions carried out, news fetched.
//!
//! It keeps the manifests of what was applied, as an API server does, beside the world that acts on them.

mod kubelet;
mod provider;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use kubelet::Kubelet;
pub use provider::{SimulatedProvider, SimulatedSettings, is_simulated};

use crate::api::{self, FieldError, Object};
use crate::model::action::Action;
use crate::model::catalog::Catalog;
use crate::model::label::annotation;
use crate::model::name::{ClassName, ObjectKey, PoolName};
use crate::model::observation::Observation;
use crate::model::symbol::Symbol;
use crate::simulator::workload::{Workload, WorkloadKind};
use crate::simulator::world::{Habits, World};

/// An object by kind and name; all kinds that are applied are cluster-scoped.
type ManifestKey = (String, String);

#[derive(Debug)]
pub struct SimulatedCluster {
    world: World,
    manifests: BTreeMap<ManifestKey, Value>,
    uids: u64,
}

/// An object that the simulated API server refuses.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{object} is refused: {}", .errors.iter().map(|error| format!("{}: {}", error.path, error.message)).collect::<Vec<_>>().join("; "))]
pub struct Refused {
    pub object: String,
    pub errors: Vec<FieldError>,
}

impl SimulatedCluster {
    pub fn new(seed: u64, start: Timestamp, catalog: Arc<Catalog>, habits: Habits) -> Self {
        Self { world: World::new(seed, start, catalog, habits), manifests: BTreeMap::new(), uids: 0 }
    }

    pub fn world(&self) -> &World {
        &self.world
    }

    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// What was applied and still exists, by kind and name.
    pub fn manifests(&self) -> impl Iterator<Item = &Value> {
        self.manifests.values()
    }

    pub fn manifest(&self, kind: &str, name: &str) -> Option<&Value> {
        self.manifests.get(&(kind.to_string(), name.to_string()))
    }

    /// Creates or replaces an object; the answer is the object as it is stored, with uid, generation and readiness.
    pub fn apply(&mut self, manifest: &Value) -> Result<Value, Refused> {
        let key = key_of(manifest);
        let refused = |errors| Refused { object: format!("{}/{}", key.0, key.1), errors };
        let stored = self.stored(&key, manifest);
        let parsed = api::parse(&stored).map_err(refused)?;
        let is_played = matches!(
            parsed,
            Object::NodePool(_)
                | Object::NodeClass(_)
                | Object::NodeOverlay(_)
                | Object::CapacityBuffer(_)
                | Object::PodTemplate(_)
        );
        // The rest is kept for whoever lists it; nothing in the world acts on it.
        if let Some(observation) = parsed.into_observation().filter(|_| is_played) {
            self.world.apply(observation);
        }
        self.manifests.insert(key, stored.clone());
        Ok(stored)
    }

    /// Takes a class for being there that nobody applies here, with images that anybody may have.
    pub fn suppose_class(&mut self, name: &str) {
        if self.world.objects().classes.contains_key(&ClassName::new(name)) {
            return;
        }
        let class = json!({
            "apiVersion": "karpenter.k8s.aws/v1",
            "kind": "EC2NodeClass",
            "metadata": { "name": name },
            "spec": {
                "role": "supposed",
                "amiSelectorTerms": [{ "alias": "al2023@latest" }],
                "subnetSelectorTerms": [{ "id": "subnet-00000000" }],
                "securityGroupSelectorTerms": [{ "id": "sg-00000000" }],
            },
        });
        if let Some(class) = api::parse(&class).ok().and_then(Object::into_observation) {
            self.world.apply(class);
        }
    }

    /// The manifest as an API server would store it.
    fn stored(&mut self, key: &ManifestKey, manifest: &Value) -> Value {
        let former = self.manifests.get(key);
        let former_at = |pointer: &str| former.and_then(|former| former.pointer(pointer)).cloned();
        let is_changed = former.is_none_or(|former| former.get("spec") != manifest.get("spec"));
        let generation = former_at("/metadata/generation").and_then(|value| value.as_i64()).unwrap_or(0)
            + i64::from(is_changed);
        let uid = former_at("/metadata/uid").unwrap_or_else(|| {
            self.uids += 1;
            json!(format!("00000000-0000-4000-8000-{:012x}", self.uids))
        });
        let now = self.world.now().to_string();
        let created = former_at("/metadata/creationTimestamp").unwrap_or_else(|| json!(now));
        let mut stored = manifest.clone();
        if let Some(failures) = former_at(ROLL_FAILURES).and_then(|text| text.as_str().map(str::to_owned)) {
            put_roll_failures(&mut stored, Some(failures));
        }
        stored["metadata"]["uid"] = uid;
        stored["metadata"]["generation"] = json!(generation);
        stored["metadata"]["creationTimestamp"] = created;
        // Status belongs to the controllers. That of a class is nobody's here: images, subnets and roles are taken to be there.
        if key.0 != "EC2NodeClass"
            && let Some(status) = former_at("/status")
        {
            stored["status"] = status;
            return stored;
        }
        // Until a controller says otherwise, a new object is ready.
        stored["status"] = json!({ "conditions": [{
            "type": "Ready", "status": "True", "reason": "Simulated", "message": "", "observedGeneration": generation,
            "lastTransitionTime": former_at("/status/conditions/0/lastTransitionTime").unwrap_or_else(|| json!(now)),
        }] });
        stored
    }

    /// Deletes an object; `false` if there was none. The claims of a pool go with it.
    pub fn delete(&mut self, kind: &str, name: &str) -> bool {
        let Some(manifest) = self.manifests.remove(&(kind.to_string(), name.to_string())) else {
            return false;
        };
        let namespace = manifest.pointer("/metadata/namespace").and_then(Value::as_str).unwrap_or("default");
        match kind {
            "NodePool" => self.world.delete_pool(PoolName::new(name)),
            "EC2NodeClass" => self.world.delete_class(ClassName::new(name)),
            "NodeOverlay" => self.world.apply(Observation::OverlayGone(Symbol::new(name))),
            "CapacityBuffer" => {
                self.world.apply(Observation::BufferGone(ObjectKey::new(namespace, name)));
            }
            "PodTemplate" => {
                self.world.apply(Observation::PodTemplateGone(ObjectKey::new(namespace, name)));
            }
            _ => {}
        }
        true
    }

    /// Puts a workload there, as parsed from a manifest. Kinds that the world does not play are ignored.
    pub fn add(&mut self, object: Object) {
        match object {
            Object::Workload(workload) => {
                // Jobs of a simulation run for five minutes: how long real ones take is not in their manifest.
                let kind = match workload.kind.as_str() {
                    "Job" => WorkloadKind::Job {
                        runs_for: jiff::SignedDuration::from_mins(5),
                        completions: workload.completions,
                    },
                    _ => WorkloadKind::Deployment,
                };
                self.world.add_workload(Workload::new(workload.key, kind, workload.shape, workload.pods));
            }
            Object::Pod(pod) => self.world.add_pod(pod),
            Object::DaemonSet(_)
            | Object::PodDisruptionBudget(_)
            | Object::PersistentVolume(_)
            | Object::PersistentVolumeClaim(_)
            | Object::StorageClass(_)
            | Object::Namespace(_)
            | Object::Node(_) => {
                object.into_observation().into_iter().for_each(|observation| self.world.apply(observation));
            }
            _ => {}
        }
    }

    pub fn perform(&mut self, action: &Action) {
        self.world.perform(action);
        let objects = self.world.objects();
        let (kind, name, status) = match action {
            Action::UpdatePool { pool, change } => {
                if let Some(failures) = &change.roll_failures
                    && let Some(stored) = self.manifests.get_mut(&("NodePool".into(), pool.to_string()))
                {
                    put_roll_failures(stored, api::render_roll_failures(failures));
                }
                let status = objects.pools.get(pool).map(|pool| api::render_node_pool_status(pool));
                ("NodePool", pool.to_string(), status)
            }
            Action::UpdateOverlay { overlay, .. } => {
                let status = objects.overlays.get(overlay).map(|overlay| api::render_overlay_status(overlay));
                ("NodeOverlay", overlay.to_string(), status)
            }
            Action::UpdateBuffer { buffer, status } => {
                ("CapacityBuffer", buffer.name.to_string(), Some(api::render_buffer_status(status)))
            }
            _ => return,
        };
        let stored = self.manifests.get_mut(&(kind.to_string(), name));
        if let (Some(stored), Some(status)) = (stored, status) {
            stored["status"] = status;
        }
    }

    pub fn now(&self) -> Timestamp {
        self.world.now()
    }

    pub fn take_news(&mut self) -> Vec<(Timestamp, Observation)> {
        self.world.take_news()
    }
}

/// What the engine remembers at a pool; whoever applies the pool does not know of it.
const ROLL_FAILURES: &str = "/metadata/annotations/provisor.dev~1roll-failures";

fn put_roll_failures(stored: &mut Value, text: Option<String>) {
    let key = annotation::ROLL_FAILURES.as_str();
    match text {
        Some(text) => stored["metadata"]["annotations"][key] = text.into(),
        None => {
            let annotations = stored.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut);
            annotations.and_then(|annotations| annotations.shift_remove(key));
        }
    }
}

fn key_of(manifest: &Value) -> ManifestKey {
    let text = |pointer: &str| manifest.pointer(pointer).and_then(Value::as_str).unwrap_or("").to_string();
    (text("/kind"), text("/metadata/name"))
}
