//! What several kinds have in common, from the model back to JSON.

use serde_json::{Map, Value, json};

use super::taint;
use crate::model::label::Labels;
use crate::model::pool::ClassRef;
use crate::model::quantity::Resources;
use crate::model::taint::Taint;

pub(crate) fn constraints(spec: &mut Map<String, Value>, taints: &[Taint], startup_taints: &[Taint]) {
    for (name, list) in [("taints", taints), ("startupTaints", startup_taints)] {
        if !list.is_empty() {
            spec.insert(name.into(), taint::render(list));
        }
    }
}

pub(crate) fn class_ref(class: &ClassRef) -> Value {
    json!({ "group": class.group.as_str(), "kind": class.kind.as_str(), "name": class.name.as_str() })
}

pub(crate) fn labels(labels: &Labels) -> Value {
    labels.iter().map(|(key, value)| (key.as_str().to_owned(), Value::from(value.as_str()))).collect()
}

pub(crate) fn resources(resources: &Resources) -> Value {
    let entries = resources.iter();
    entries.map(|(name, amount)| (name.0.as_str().to_owned(), Value::from(name.render(amount)))).collect()
}
