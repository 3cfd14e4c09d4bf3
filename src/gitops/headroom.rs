//! `headroom` of a pool: a CapacityBuffer, and the PodTemplate that stands for the pods to come.
//!
//! The pods would run on nodes of that pool only, so they select it and tolerate its taints, whatever its template makes of it.

use serde_json::{Map, Value, json};

use crate::gitops::rendered::{Draft, Origins};
use crate::gitops::tree::{Entry, Node, Tree};
use crate::model::buffer::ACTIVE_CAPACITY;

/// What the pods to come are labelled with, and the pool whose headroom they are.
pub(crate) const LABEL: &str = "provisor.dev/headroom";
/// Never pulled: the pods exist nowhere.
const IMAGE: &str = "registry.k8s.io/pause:3.10";

/// The objects that keep the room which `entry` asks for on nodes of the pool `name`, as `drafts` made it.
pub(crate) fn drafts(name: &str, entry: &Entry, drafts: &[Draft]) -> Vec<Draft> {
    let headroom = &entry.node;
    let pool = drafts.iter().find(|draft| draft.manifest["kind"] == "NodePool");
    let pool_name = pool.and_then(|pool| pool.manifest["metadata"]["name"].as_str()).unwrap_or(name);
    let taints = pool.map(|pool| &pool.manifest["spec"]["template"]["spec"]["taints"]);
    let taints = taints.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let object = format!("headroom-{name}");
    let namespace = headroom.get("namespace").and_then(Node::as_text).map_or("default", |text| &**text);
    let metadata = json!({ "name": object, "namespace": namespace });
    let template = json!({
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": metadata,
        "template": {
            "metadata": { "labels": { LABEL: name } },
            "spec": {
                "nodeSelector": { "karpenter.sh/nodepool": pool_name },
                "tolerations": taints.iter().map(toleration).collect::<Value>(),
                "containers": [{ "name": "room", "image": IMAGE, "resources": { "requests": requests(headroom) } }],
            },
        },
    });
    let pods = headroom.get("pods");
    let buffer = json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": metadata,
        "spec": {
            "provisioningStrategy": ACTIVE_CAPACITY,
            "podTemplateRef": { "name": object },
            "replicas": pods.map_or_else(|| json!(1), Node::to_json),
        },
    });
    let mut of_template = Origins::new();
    of_template.insert("".into(), entry.key.clone());
    let request = "template.spec.containers[0].resources.requests";
    let others = headroom.get("resources").and_then(Node::as_map);
    let others = others.into_iter().flat_map(|map| map.iter()).map(|(key, entry)| (&**key, &entry.node));
    let own = ["cpu", "memory"].into_iter().filter_map(|key| Some((key, headroom.get(key)?)));
    for (key, node) in own.chain(others) {
        of_template.insert(format!("{request}.{key}").into(), node.place.clone());
    }
    let mut of_buffer = Origins::new();
    of_buffer.insert("".into(), entry.key.clone());
    if let Some(pods) = pods {
        of_buffer.insert("spec.replicas".into(), pods.place.clone());
    }
    let draft = |manifest, origins| Draft { manifest, origins, keys: Origins::new() };
    vec![draft(template, of_template), draft(buffer, of_buffer)]
}

/// What each pod would ask for.
fn requests(headroom: &Node) -> Value {
    let mut requests = Map::new();
    let own = ["cpu", "memory"].into_iter().filter_map(|key| Some((key, headroom.get(key)?)));
    let others = headroom.get("resources").and_then(Node::as_map);
    let others = others.into_iter().flat_map(|map| map.iter()).map(|(key, entry)| (&**key, &entry.node));
    for (key, node) in own.chain(others) {
        let amount = match &node.value {
            Tree::Int(number) => json!(number.to_string()),
            Tree::Float(text) => json!(text),
            _ => node.to_json(),
        };
        requests.insert(key.to_owned(), amount);
    }
    requests.into()
}

fn toleration(taint: &Value) -> Value {
    let mut toleration = json!({ "key": taint["key"], "effect": taint["effect"] });
    match taint["value"].as_str().filter(|value| !value.is_empty()) {
        Some(value) => {
            toleration["operator"] = json!("Equal");
            toleration["value"] = json!(value);
        }
        None => toleration["operator"] = json!("Exists"),
    }
    toleration
}
