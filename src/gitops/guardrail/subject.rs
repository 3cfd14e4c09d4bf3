//! What rules see: of a pool all that decides what its nodes are and how they come and go; of the environment and of a review what has a name.

use std::collections::BTreeMap;

use serde_json::{Value as Json, json};

use crate::api::terms::annotation_of;
use crate::gitops::check::{buys_gpus, requirement_on};
use crate::gitops::rendered::Draft;
use crate::model::symbol::Symbol;

/// What rules see of a review: the difference that a proposal makes to one environment.
pub(super) const REVIEW_FIELDS: [&str; 12] = [
    "costAfter",
    "costBefore",
    "costIncrease",
    "largestShare",
    "nodesAfter",
    "nodesBefore",
    "nodesReplaced",
    "offeringsAfter",
    "offeringsBefore",
    "podsMoved",
    "podsOnFallback",
    "podsWithoutPlace",
];
/// What rules see of the environment.
pub(super) const ENV_FIELDS: [&str; 8] =
    ["cloud", "cluster", "engine", "fleet", "name", "pools", "region", "variables"];
/// What rules see of a pool; the same once more below `after`.
pub(super) const POOL_FIELDS: [&str; 23] = [
    "after",
    "annotations",
    "architectures",
    "budgets",
    "buysGpus",
    "capacityTypes",
    "class",
    "consolidateAfter",
    "consolidationPolicy",
    "expiration",
    "expireAfter",
    "labels",
    "limits",
    "name",
    "replicas",
    "requirements",
    "returns",
    "roll",
    "spec",
    "taints",
    "terminationGracePeriod",
    "weight",
    "windows",
];
/// A pool in the words of rules. Every field is always there, so that a rule need not ask.
pub(super) fn pool_value(draft: &Draft, drafts: &[Draft]) -> Json {
    let spec = &draft.manifest["spec"];
    let template = &spec["template"];
    let (metadata, node) = (&template["metadata"], &template["spec"]);
    let or = |value: &Json, default: Json| if value.is_null() { default } else { value.clone() };
    let words = |label: &str, all: &[&str]| -> Vec<String> {
        let wanted = requirement_on(draft, label);
        let fits = |word: &&&str| wanted.as_ref().is_none_or(|wanted| wanted.has(Symbol::new(word)));
        all.iter().filter(fits).map(|word| (*word).to_owned()).collect()
    };
    let class = drafts.iter().find(|other| {
        let reference = &node["nodeClassRef"];
        other.manifest["kind"] == reference["kind"] && other.manifest["metadata"]["name"] == reference["name"]
    });
    // What a NodePool has no field for: as the strategy says it.
    let word = |name: &str, nothing: Json| -> Json {
        let text = draft.manifest["metadata"]["annotations"][annotation_of(name)].as_str();
        let text = text.unwrap_or_default();
        let said = serde_json::from_str::<Json>(text).unwrap_or_default();
        if said.is_array() == nothing.is_array() && said.is_object() == nothing.is_object() {
            said
        } else {
            nothing
        }
    };
    let mut pool = json!({
        "annotations": or(&metadata["annotations"], json!({})),
        "architectures": words("kubernetes.io/arch", &["amd64", "arm64"]),
        "budgets": or(&spec["disruption"]["budgets"], json!([])),
        "buysGpus": buys_gpus(draft),
        "capacityTypes": words("karpenter.sh/capacity-type", &["on-demand", "reserved", "spot"]),
        "class": class.map_or_else(|| json!({}), |class| or(&class.manifest["spec"], json!({}))),
        "consolidateAfter": or(&spec["disruption"]["consolidateAfter"], json!("")),
        "consolidationPolicy": or(&spec["disruption"]["consolidationPolicy"], json!("")),
        "expiration": word("expiration", json!({})),
        "expireAfter": or(&node["expireAfter"], json!("")),
        "labels": or(&metadata["labels"], json!({})),
        "limits": or(&spec["limits"], json!({})),
        "name": draft.manifest["metadata"]["name"],
        "replicas": or(&spec["replicas"], json!(0)),
        "requirements": or(&node["requirements"], json!([])),
        "returns": word("return", json!({})),
        "roll": word("roll", json!({})),
        "spec": or(spec, json!({})),
        "taints": or(&node["taints"], json!([])),
        "terminationGracePeriod": or(&node["terminationGracePeriod"], json!("")),
        "weight": or(&spec["weight"], json!(0)),
        "windows": word("windows", json!([])),
    });
    pool["after"] = pool.clone();
    pool
}

/// A pool to try rules on before there is any.
pub(super) fn sample_pool() -> Json {
    let manifest = json!({
        "kind": "NodePool",
        "metadata": { "name": "sample" },
        "spec": { "template": { "spec": {
            "taints": [{ "key": "sample", "value": "sample", "effect": "NoSchedule" }],
            "requirements": [{ "key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"] }],
        } } },
    });
    pool_value(&Draft { manifest, origins: BTreeMap::new(), keys: BTreeMap::new() }, &[])
}

pub(super) fn sample_env() -> Json {
    json!({
        "cloud": "aws", "cluster": "sample", "engine": "provisor", "fleet": "sample", "name": "sample", "pools": ["sample"],
        "region": "us-east-1", "variables": {},
    })
}

pub(super) fn sample_review() -> Json {
    json!({
        "costAfter": 1.5, "costBefore": 0.5, "costIncrease": 1.0, "largestShare": 0.5, "nodesAfter": 2,
        "nodesBefore": 1, "nodesReplaced": 1, "offeringsAfter": 4, "offeringsBefore": 2, "podsMoved": 1,
        "podsOnFallback": 0, "podsWithoutPlace": 0,
    })
}
