//! Who an object belongs to: our own marks on it, and those of other tools.
//!
//! Marks live in the object's own metadata, never in `spec.template`: what is written there replaces nodes.

use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use super::desired::ObjectRef;
use super::live::LiveObject;

/// The field manager under which everything is applied.
pub const FIELD_MANAGER: &str = "provisor";

pub const LABEL_ENVIRONMENT: &str = "provisor.dev/environment";
pub const LABEL_INSTALLATION: &str = "provisor.dev/installation";
pub const ANNOTATION_TRACKING: &str = "provisor.dev/tracking-id";
/// Order of application, a whole number; lower goes first.
pub const ANNOTATION_WAVE: &str = "provisor.dev/wave";
/// `false` keeps an object that left Git; `confirm` asks a person.
pub const ANNOTATION_PRUNE: &str = "provisor.dev/prune";
/// On the Environment object: the digits of the plan that a person says yes to.
pub const ANNOTATION_CONFIRM: &str = "provisor.dev/confirm";
/// `disabled` leaves an object wholly alone.
pub const ANNOTATION_RECONCILE: &str = "provisor.dev/reconcile";
/// `true` forbids removing the object and moving its nodes away.
pub const ANNOTATION_PROTECT: &str = "provisor.dev/protect";
/// Names the environment that may take over an object that nobody tracks.
pub const ANNOTATION_ADOPT: &str = "provisor.dev/adopt";
/// On a NodePool that is being emptied before it is deleted.
pub const ANNOTATION_RETIRE: &str = "provisor.dev/retire";

/// An environment of one installation: the owner that a tracking id names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Owner {
    pub installation: Arc<str>,
    pub environment: Arc<str>,
}

impl fmt::Display for Owner {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "environment {} of installation {}", self.environment, self.installation)
    }
}

/// `installation:environment:group/kind:namespace/name`: names the owner and the object itself.
pub fn tracking_id(owner: &Owner, object: &ObjectRef) -> String {
    let group = object.api_version.split_once('/').map_or("", |(group, _)| group);
    format!(
        "{}:{}:{group}/{}:{}/{}",
        owner.installation, owner.environment, object.kind, object.namespace, object.name
    )
}

/// Whose an object is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ownership {
    /// Our tracking id, and it describes this very object.
    Ours,
    /// Carries a tracking id that describes another object: somebody copied it.
    Copy,
    /// Another environment, installation or tool, in words for a person.
    Other(String),
    Nobody,
}

/// Reads the marks of `object` from the point of view of `owner`.
pub fn ownership(owner: &Owner, object: &ObjectRef, live: &LiveObject) -> Ownership {
    if let Some(id) = live.annotation(ANNOTATION_TRACKING) {
        if id == tracking_id(owner, object) {
            return Ownership::Ours;
        }
        let parts: Vec<&str> = id.splitn(3, ':').collect();
        if let [installation, environment, target] = parts[..] {
            let named = Owner { installation: installation.into(), environment: environment.into() };
            return if tracking_id(&named, object).ends_with(&format!(":{target}")) {
                Ownership::Other(named.to_string())
            } else {
                Ownership::Copy
            };
        }
        return Ownership::Copy;
    }
    match foreign_tool(live) {
        Some(tool) => Ownership::Other(tool),
        None => Ownership::Nobody,
    }
}

/// Argo CD, Flux or Helm, with the name under which they know the object.
pub(crate) fn foreign_tool(live: &LiveObject) -> Option<String> {
    if let Some(id) = live.annotation("argocd.argoproj.io/tracking-id") {
        return Some(format!("Argo CD application {}", id.split(':').next().unwrap_or(id)));
    }
    for (kind, prefix) in
        [("Kustomization", "kustomize.toolkit.fluxcd.io"), ("HelmRelease", "helm.toolkit.fluxcd.io")]
    {
        if let Some(name) = live.label(&format!("{prefix}/name")) {
            let namespace = live.label(&format!("{prefix}/namespace")).unwrap_or("default");
            return Some(format!("Flux {kind} {namespace}/{name}"));
        }
    }
    if let Some(name) = live.annotation("meta.helm.sh/release-name") {
        let namespace = live.annotation("meta.helm.sh/release-namespace").unwrap_or("default");
        return Some(format!("Helm release {namespace}/{name}"));
    }
    None
}

/// The wanted object with our marks on it: what is really applied.
pub fn with_marks(owner: &Owner, object: &ObjectRef, manifest: &Value) -> Value {
    let mut marked = manifest.clone();
    let id = tracking_id(owner, object);
    set_metadata(&mut marked, "labels", LABEL_ENVIRONMENT, &owner.environment);
    set_metadata(&mut marked, "labels", LABEL_INSTALLATION, &owner.installation);
    set_metadata(&mut marked, "annotations", ANNOTATION_TRACKING, &id);
    marked
}

/// Sets one label or annotation, making the maps on the way; does nothing to what is not an object.
pub(crate) fn set_metadata(manifest: &mut Value, map: &str, key: &str, value: &str) {
    let Some(root) = manifest.as_object_mut() else { return };
    let metadata = root.entry("metadata").or_insert_with(|| Value::Object(Map::new()));
    let Some(metadata) = metadata.as_object_mut() else { return };
    let map = metadata.entry(map).or_insert_with(|| Value::Object(Map::new()));
    if !map.is_object() {
        *map = Value::Object(Map::new());
    }
    if let Some(map) = map.as_object_mut() {
        map.insert(key.into(), Value::String(value.into()));
    }
}

/// A metadata annotation of a manifest.
pub(crate) fn annotation<'a>(manifest: &'a Value, key: &str) -> Option<&'a str> {
    manifest.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// The wave of an object; what is no whole number counts as 0.
pub(crate) fn wave(manifest: &Value) -> i32 {
    annotation(manifest, ANNOTATION_WAVE).and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}
