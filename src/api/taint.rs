//! Taints and tolerations on the wire.

use serde_json::{Value, json};

use super::field::Field;
use super::requirement::is_key_pattern;
use crate::model::label;
use crate::model::symbol::Symbol;
use crate::model::taint::{Effect, Taint, Toleration, TolerationOperator};

pub(crate) const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// The taints of a pool or claim.
pub(crate) fn read_checked(list: &Field<'_, '_>) -> Vec<Taint> {
    let mut taints = Vec::new();
    for item in list.items() {
        if !item.only(&["key", "value", "effect", "timeAdded"]) {
            continue;
        }
        let key = item.get("key");
        if let Some(text) = key.required_text() {
            if !is_key_pattern(text) {
                key.error(format!("`{text}` is not a taint key"));
            } else if !label::is_qualified_name(text) {
                key.runtime_error(format!("`{text}` is too long for a taint key"));
            }
        }
        let value = item.get("value");
        if let Some(text) = value.text() {
            if text.is_empty() {
                value.error_with_help("must not be empty".into(), "leave `value` out");
            } else if !is_key_pattern(text) {
                value.error(format!("`{text}` is not a taint value"));
            } else if !label::is_qualified_name(text) {
                value.runtime_error(format!("`{text}` is too long for a taint value"));
            }
        }
        let effect = item.get("effect").required().choice(&EFFECTS).and_then(Effect::parse);
        item.get("timeAdded").timestamp();
        if let (Some(key), Some(effect)) = (key.symbol(), effect) {
            taints.push(Taint { key, value: value.symbol().unwrap_or(Symbol::new("")), effect });
        }
    }
    taints
}

/// A key and effect may stand only once among the taints and start-up taints of one template.
pub(crate) fn check_duplicates(spec: &Field<'_, '_>, taints: &[Taint], startup_taints: &[Taint]) {
    let all: Vec<&Taint> = taints.iter().chain(startup_taints).collect();
    for (index, taint) in all.iter().enumerate() {
        if all[..index].iter().any(|earlier| earlier.is_same(taint)) {
            let list = if index < taints.len() { "taints" } else { "startupTaints" };
            let effect = taint.effect.as_str();
            spec.get(list).runtime_error(format!("`{}:{effect}` is there twice", taint.key));
        }
    }
}

/// The taints of a Node, which an API server has checked.
pub(crate) fn read_stored(list: &Field<'_, '_>) -> Vec<Taint> {
    let read = |item: Field<'_, '_>| {
        let effect = item.get("effect").required().choice(&EFFECTS).and_then(Effect::parse)?;
        let value = item.get("value").text().unwrap_or_default();
        Some(Taint { key: item.get("key").required_text()?.into(), value: value.into(), effect })
    };
    list.items().filter_map(read).collect()
}

pub(crate) fn read_tolerations(list: &Field<'_, '_>) -> Vec<Toleration> {
    let read = |item: Field<'_, '_>| {
        let operator = match item.get("operator").text() {
            None | Some("" | "Equal") => TolerationOperator::Equal,
            Some("Exists") => TolerationOperator::Exists,
            Some("Gt") => TolerationOperator::Gt,
            Some("Lt") => TolerationOperator::Lt,
            Some(other) => {
                item.get("operator").error(format!("`{other}` is none of Equal, Exists, Gt, Lt"));
                return None;
            }
        };
        let effect = match item.get("effect").text() {
            None | Some("") => None,
            Some(_) => Some(Effect::parse(item.get("effect").choice(&EFFECTS)?)?),
        };
        let text = |key: &str| Symbol::new(item.get(key).text().unwrap_or_default());
        Some(Toleration { key: text("key"), operator, value: text("value"), effect })
    };
    list.items().filter_map(read).collect()
}

pub(crate) fn render(taints: &[Taint]) -> Value {
    let render = |taint: &Taint| {
        let mut entry = json!({ "key": taint.key.as_str() });
        if !taint.value.is_empty() {
            entry["value"] = taint.value.as_str().into();
        }
        entry["effect"] = taint.effect.as_str().into();
        entry
    };
    taints.iter().map(render).collect()
}
