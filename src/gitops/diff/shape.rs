//! How values are compared: which lists are sets, which texts are quantities or durations, and what a missing field means.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::model::label::canonical;
use crate::model::quantity::Quantity;
use crate::model::symbol::Symbol;
use crate::model::time::parse_duration;

/// How two values at one path are judged to be alike.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// Literally, maps key by key and lists in order.
    Plain,
    /// A list of scalars whose order means nothing.
    Set,
    /// A list of maps, each named by the given identity; order means nothing.
    Keyed(fn(&Value) -> String),
    /// A list of maps without identity; order means nothing.
    Bag,
    /// `1000m` is `1`.
    Quantity,
    /// `60m` is `1h`.
    Duration,
    /// An empty text is none.
    Text,
}

/// The shape at a path of one of our kinds, written with `[]` for any list element.
pub(super) fn shape(kind: &str, pattern: &str) -> Shape {
    match kind {
        "NodePool" => node_pool(pattern),
        "EC2NodeClass" => node_class(pattern),
        "NodeOverlay" => match pattern {
            "spec.requirements" => Shape::Keyed(by_key),
            "spec.requirements[].values" => Shape::Set,
            _ if pattern.starts_with("spec.capacity.") => Shape::Quantity,
            _ => Shape::Plain,
        },
        "PodTemplate" => pod_template(pattern),
        _ => Shape::Plain,
    }
}

/// The field by which the API server names the elements of a list to those who own fields of them; `None` of lists that have one owner.
pub(super) fn list_key(kind: &str, pattern: &str) -> Option<&'static str> {
    (kind == "PodTemplate" && pattern == CONTAINERS).then_some("name")
}

const CONTAINERS: &str = "template.spec.containers";

fn pod_template(pattern: &str) -> Shape {
    let is_amount = ["[].resources.requests.", "[].resources.limits."]
        .into_iter()
        .any(|part| pattern.strip_prefix(CONTAINERS).is_some_and(|rest| rest.starts_with(part)));
    match pattern {
        CONTAINERS => Shape::Keyed(by_name),
        _ if is_amount || pattern.starts_with("template.spec.overhead.") => Shape::Quantity,
        _ => Shape::Plain,
    }
}

fn node_pool(pattern: &str) -> Shape {
    match pattern {
        "spec.template.spec.requirements" => Shape::Keyed(by_key),
        "spec.template.spec.requirements[].values" | "spec.disruption.budgets[].reasons" => Shape::Set,
        "spec.template.spec.taints" | "spec.template.spec.startupTaints" => Shape::Keyed(by_key_and_effect),
        "spec.template.spec.taints[].value" | "spec.template.spec.startupTaints[].value" => Shape::Text,
        "spec.template.spec.expireAfter"
        | "spec.template.spec.terminationGracePeriod"
        | "spec.disruption.consolidateAfter"
        | "spec.disruption.budgets[].duration" => Shape::Duration,
        "spec.disruption.budgets" => Shape::Bag,
        _ if pattern.starts_with("spec.limits.") => Shape::Quantity,
        _ => Shape::Plain,
    }
}

fn node_class(pattern: &str) -> Shape {
    const QUANTITIES: [&str; 6] = [
        "spec.kubelet.kubeReserved.",
        "spec.kubelet.systemReserved.",
        "spec.kubelet.evictionHard.",
        "spec.kubelet.evictionSoft.",
        "spec.kubelet.evictionMinimumReclaim.",
        "spec.blockDeviceMappings[].ebs.volumeSize",
    ];
    match pattern {
        "spec.blockDeviceMappings" => Shape::Keyed(by_device_name),
        "spec.networkInterfaces" => Shape::Keyed(by_card_and_device),
        "spec.userData" => Shape::Text,
        "spec.subnetSelectorTerms"
        | "spec.securityGroupSelectorTerms"
        | "spec.amiSelectorTerms"
        | "spec.capacityReservationSelectorTerms" => Shape::Bag,
        _ if QUANTITIES.iter().any(|prefix| pattern.starts_with(prefix)) => Shape::Quantity,
        _ if pattern.starts_with("spec.connectionTracking.")
            || pattern.starts_with("spec.kubelet.evictionSoftGracePeriod.") =>
        {
            Shape::Duration
        }
        _ => Shape::Plain,
    }
}

/// What the API server fills in where a field is left out (Karpenter v1 NodePool, EC2NodeClass v1, NodeOverlay v1alpha1; PodTemplate of
/// Kubernetes 1.36).
pub(super) fn default_value(kind: &str, pattern: &str) -> Option<Value> {
    Some(match (kind, pattern) {
        ("NodePool", "spec.disruption.consolidateAfter") => json!("0s"),
        ("NodePool", "spec.disruption.consolidationPolicy") => json!("WhenEmptyOrUnderutilized"),
        ("NodePool", "spec.disruption.budgets") => json!([{ "nodes": "10%" }]),
        ("NodePool", "spec.disruption.budgets[].nodes") => json!("10%"),
        ("NodePool", "spec.template.spec.expireAfter") => json!("720h"),
        ("NodePool" | "NodeOverlay", "spec.weight") => json!(0),
        ("EC2NodeClass", "spec.metadataOptions.httpEndpoint") => json!("enabled"),
        ("EC2NodeClass", "spec.metadataOptions.httpProtocolIPv6") => json!("disabled"),
        ("EC2NodeClass", "spec.metadataOptions.httpPutResponseHopLimit") => json!(1),
        ("EC2NodeClass", "spec.metadataOptions.httpTokens") => json!("required"),
        ("PodTemplate", pattern) => return pod_default(pattern.strip_prefix("template.spec.")?),
        _ => return None,
    })
}

fn pod_default(pattern: &str) -> Option<Value> {
    Some(match pattern {
        "restartPolicy" => json!("Always"),
        "dnsPolicy" => json!("ClusterFirst"),
        "schedulerName" => json!("default-scheduler"),
        "terminationGracePeriodSeconds" => json!(30),
        "containers[].imagePullPolicy" => json!("IfNotPresent"),
        "containers[].terminationMessagePath" => json!("/dev/termination-log"),
        "containers[].terminationMessagePolicy" => json!("File"),
        "containers[].ports[].protocol" => json!("TCP"),
        "containers[].env[].valueFrom.fieldRef.apiVersion" => json!("v1"),
        _ => return None,
    })
}

/// The value, unless it says no more than a missing one: null, an empty map or list, an empty text where that is none.
pub(super) fn present(value: Option<&Value>, shape: Shape) -> Option<&Value> {
    value.filter(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(map) => !map.is_empty(),
        Value::String(text) => !(text.is_empty() && matches!(shape, Shape::Text)),
        _ => true,
    })
}

/// Whether two values at one path mean the same.
pub(super) fn equal(kind: &str, pattern: &str, shape: Shape, a: &Value, b: &Value) -> bool {
    if a == b {
        return true;
    }
    match (shape, a, b) {
        (Shape::Quantity, ..) => as_quantity(a).is_some_and(|left| as_quantity(b) == Some(left)),
        (Shape::Duration, ..) => as_seconds(a).is_some_and(|left| as_seconds(b) == Some(left)),
        (Shape::Set, Value::Array(a), Value::Array(b)) => as_set(a) == as_set(b),
        (Shape::Keyed(_) | Shape::Bag, Value::Array(a), Value::Array(b)) => {
            equal_bags(kind, &format!("{pattern}[]"), a, b)
        }
        (_, Value::Object(a), Value::Object(b)) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            keys.into_iter().all(|key| {
                let pattern = format!("{pattern}.{key}");
                let shape = self::shape(kind, &pattern);
                let default = default_value(kind, &pattern);
                let left = present(a.get(key), shape).or(default.as_ref());
                let right = present(b.get(key), shape).or(default.as_ref());
                match (left, right) {
                    (Some(left), Some(right)) => equal(kind, &pattern, shape, left, right),
                    (left, right) => left.is_none() && right.is_none(),
                }
            })
        }
        (_, Value::Array(a), Value::Array(b)) => {
            let pattern = format!("{pattern}[]");
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(kind, &pattern, Shape::Plain, a, b))
        }
        _ => false,
    }
}

/// Whether two lists hold equal elements in any order; `pattern` is that of an element.
pub(super) fn equal_bags(kind: &str, pattern: &str, a: &[Value], b: &[Value]) -> bool {
    let mut spare: Vec<&Value> = b.iter().collect();
    a.len() == b.len()
        && a.iter().all(|item| {
            let twin = spare.iter().position(|other| equal(kind, pattern, Shape::Plain, item, other));
            twin.map(|twin| spare.swap_remove(twin)).is_some()
        })
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn as_quantity(value: &Value) -> Option<Quantity> {
    scalar_text(value)?.parse().ok()
}

fn as_seconds(value: &Value) -> Option<i64> {
    parse_duration(value.as_str()?).ok().map(|duration| duration.as_secs())
}

fn as_set(items: &[Value]) -> BTreeSet<String> {
    items.iter().map(|item| scalar_text(item).unwrap_or_else(|| item.to_string())).collect()
}

fn text<'a>(item: &'a Value, key: &str) -> &'a str {
    item.get(key).and_then(Value::as_str).unwrap_or("")
}

fn by_key(item: &Value) -> String {
    canonical(Symbol::new(text(item, "key"))).as_str().into()
}

fn by_key_and_effect(item: &Value) -> String {
    format!("{}:{}", text(item, "key"), text(item, "effect"))
}

fn by_name(item: &Value) -> String {
    text(item, "name").into()
}

fn by_device_name(item: &Value) -> String {
    text(item, "deviceName").into()
}

fn by_card_and_device(item: &Value) -> String {
    let number = |key: &str| item.get(key).and_then(Value::as_i64).unwrap_or(0);
    format!("{}:{}", number("networkCardIndex"), number("deviceIndex"))
}
