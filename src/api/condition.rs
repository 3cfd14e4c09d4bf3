//! Status conditions on the wire.

use serde_json::{Value, json};

use super::field::Field;
use crate::model::condition::{Condition, ConditionKind, ConditionSet, ConditionStatus};
use crate::model::symbol::Symbol;

/// What the condition `Ready` says; `None` if there is no such condition, as in a manifest that was never applied.
pub(crate) fn is_ready(object: &Field<'_, '_>) -> Option<bool> {
    readiness(object).map(|ready| ready.status == ConditionStatus::True)
}

/// The condition `Ready`, whatever others the object has.
pub(crate) fn readiness(object: &Field<'_, '_>) -> Option<Condition> {
    let status = object.get("status");
    let conditions = status.get("conditions");
    let ready = conditions.items().find(|condition| condition.get("type").text() == Some("Ready"))?;
    Some(read_one(&ready))
}

/// Whether the condition `Ready` was judged on an earlier generation of the object than is there now.
pub(crate) fn is_judged_earlier(object: &Field<'_, '_>) -> bool {
    let (metadata, status) = (object.get("metadata"), object.get("status"));
    let conditions = status.get("conditions");
    let ready = conditions.items().find(|condition| condition.get("type").text() == Some("Ready"));
    let observed = ready.and_then(|ready| ready.get("observedGeneration").integer());
    observed
        .zip(metadata.get("generation").integer())
        .is_some_and(|(observed, generation)| observed < generation)
}

/// The conditions of an object; types that nobody here knows are left out.
pub(crate) fn read<K: ConditionKind>(list: &Field<'_, '_>) -> ConditionSet<K> {
    let mut conditions = ConditionSet::default();
    for item in list.items() {
        let Some(kind) = item.get("type").required_text().and_then(K::from_word) else { continue };
        conditions.insert(kind, read_one(&item));
    }
    conditions
}

fn read_one(item: &Field<'_, '_>) -> Condition {
    let status = match item.get("status").required().choice(&["True", "False", "Unknown"]) {
        Some("True") => ConditionStatus::True,
        Some("False") => ConditionStatus::False,
        _ => ConditionStatus::Unknown,
    };
    let text = |key: &str| Symbol::new(item.get(key).text().unwrap_or_default());
    let since = item.get("lastTransitionTime").timestamp();
    Condition { status, reason: text("reason"), message: text("message"), since }
}

pub(crate) fn render<K: ConditionKind>(conditions: &ConditionSet<K>) -> Value {
    let render = |(kind, condition): (K, &Condition)| {
        let mut entry = json!({
            "type": kind.word(),
            "status": condition.status.as_str(),
            "reason": condition.reason.as_str(),
            "message": condition.message.as_str(),
        });
        if let Some(since) = condition.since {
            entry["lastTransitionTime"] = since.to_string().into();
        }
        entry
    };
    conditions.iter().map(render).collect()
}
