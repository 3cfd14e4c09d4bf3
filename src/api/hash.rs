//! Hashes that tell whether a node was made from what its pool and class say now (api.md 9, aws.md 1.5).
//!
//! They need only be stable among ourselves: our version string keeps hashes that somebody else wrote from being compared
//! with ours. Lists count as sets and what is unset counts as absent, so neither order nor a new field drifts a node.

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{render, taint};
use crate::model::class::AmiFamily;
use crate::model::pool::{HashStamp, NodeTemplate};
use crate::model::symbol::Symbol;

/// Version of the algorithm for pools. Raise it when what goes in changes.
pub const NODEPOOL_VERSION: &str = "provisor-v1";
/// Version of the algorithm for EC2 node classes.
pub const NODECLASS_VERSION: &str = "provisor-v1";

/// Fields of an EC2NodeClass that drift nodes by comparison with the instance, or not at all.
const DYNAMIC_FIELDS: [&str; 6] = [
    "subnetSelectorTerms",
    "securityGroupSelectorTerms",
    "capacityReservationSelectorTerms",
    "amiSelectorTerms",
    "amiFamily",
    "ipPrefixCount",
];

/// The hash and version that an object carries, if another wrote them; else what we compute. Our own are computed anew,
/// because an edit of the object leaves its annotations behind.
pub(crate) fn stored_or(
    hash: Option<Symbol>,
    version: Option<Symbol>,
    ours: &str,
    compute: impl FnOnce() -> Symbol,
) -> (Symbol, Symbol) {
    match (hash, version) {
        (Some(hash), Some(version)) if &*version != ours => (hash, version),
        _ => (compute(), Symbol::new(ours)),
    }
}

/// What a pool should be annotated with instead of `annotated`; `None` if that is it.
pub(crate) fn new_stamp(
    annotated: (Option<Symbol>, Option<Symbol>),
    template: &NodeTemplate,
) -> Option<HashStamp> {
    let (hash, version) = (of_template(template), Symbol::new(NODEPOOL_VERSION));
    let is_new_version = annotated.1 != Some(version);
    (annotated != (Some(hash), Some(version))).then_some(HashStamp { hash, version, is_new_version })
}

/// Of the template without its requirements, which drift by comparison with the node's labels.
pub fn of_template(template: &NodeTemplate) -> Symbol {
    let input = json!({
        "labels": render::labels(&template.labels),
        "annotations": render::labels(&template.annotations),
        "taints": taint::render(&template.taints),
        "startupTaints": taint::render(&template.startup_taints),
        "class": render::class_ref(&template.class),
        "terminationGraceSeconds": template.termination_grace.map(|grace| grace.as_secs()),
        "expireAfterSeconds": template.expire_after.duration.map(|duration| duration.as_secs()),
    });
    digest(&input)
}

/// Of the class: its static fields, the family its images turned out to be of, and the cluster's CA bundle.
pub fn of_class(spec: &Value, family: AmiFamily, ca_bundle: Option<&str>) -> Symbol {
    let mut kept = Map::new();
    for (key, value) in spec.as_object().into_iter().flatten() {
        if !DYNAMIC_FIELDS.contains(&key.as_str()) && key != "kubelet" {
            kept.insert(key.clone(), value.clone());
        }
    }
    let mut input = json!({ "spec": kept, "family": format!("{family:?}"), "caBundle": ca_bundle });
    // The kubelet map is somebody else's schema, in which order and emptiness may mean something: it counts as it stands.
    if let Some(kubelet) =
        spec.get("kubelet").filter(|kubelet| kubelet.as_object().is_some_and(|map| !map.is_empty()))
    {
        input["kubelet"] = sorted(kubelet).to_string().into();
    }
    digest(&input)
}

fn digest(input: &Value) -> Symbol {
    let canonical = canonical(input).map(|value| value.to_string()).unwrap_or_default();
    let hash = Sha256::digest(canonical.as_bytes());
    // Written as a decimal, as Karpenter does, so that whoever reads the annotation as a number still can.
    let mut first = [0; 8];
    first.copy_from_slice(&hash[..8]);
    Symbol::new(&u64::from_be_bytes(first).to_string())
}

/// Keys sorted, lists sorted, empty values gone.
fn canonical(value: &Value) -> Option<Value> {
    match value {
        Value::Null => None,
        Value::Bool(false) => None,
        Value::String(text) if text.is_empty() => None,
        Value::Array(list) => {
            let mut list: Vec<String> =
                list.iter().filter_map(canonical).map(|item| item.to_string()).collect();
            list.sort();
            list.dedup();
            (!list.is_empty()).then(|| list.into())
        }
        Value::Object(map) => {
            let mut entries: Vec<(String, Value)> =
                map.iter().filter_map(|(key, value)| Some((key.clone(), canonical(value)?))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            (!entries.is_empty()).then(|| entries.into_iter().collect::<Map<_, _>>().into())
        }
        other => Some(other.clone()),
    }
}

/// Keys sorted at every depth, all else untouched.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Array(list) => list.iter().map(sorted).collect(),
        Value::Object(map) => {
            let mut entries: Vec<(String, Value)> =
                map.iter().map(|(key, value)| (key.clone(), sorted(value))).collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries.into_iter().collect::<Map<_, _>>().into()
        }
        other => other.clone(),
    }
}
