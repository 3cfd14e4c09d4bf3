//! Status conditions on the wire.

use serde_json::{Value, json};

use super::field::Field;
use crate::model::claim::{Condition, ConditionStatus, ConditionType, Conditions};
use crate::model::symbol::Symbol;

/// What the condition `Ready` says; `None` if there is no such condition, as in a manifest that was never applied.
pub(crate) fn is_ready(object: &Field<'_, '_>) -> Option<bool> {
    let status = object.get("status");
    let conditions = status.get("conditions");
    let ready = conditions.items().find(|condition| condition.get("type").text() == Some("Ready"))?;
    Some(ready.get("status").text() == Some("True"))
}

/// The conditions of a claim; types that nobody here knows are left out.
pub(crate) fn read(list: &Field<'_, '_>) -> Conditions {
    let mut conditions = Conditions::default();
    for item in list.items() {
        let Some(kind) = item.get("type").required_text().and_then(ConditionType::parse) else { continue };
        let status = match item.get("status").required().choice(&["True", "False", "Unknown"]) {
            Some("True") => ConditionStatus::True,
            Some("False") => ConditionStatus::False,
            _ => ConditionStatus::Unknown,
        };
        let text = |key: &str| Symbol::new(item.get(key).text().unwrap_or_default());
        let since = item.get("lastTransitionTime").timestamp();
        conditions
            .insert(kind, Condition { status, reason: text("reason"), message: text("message"), since });
    }
    conditions
}

pub(crate) fn render(conditions: &Conditions) -> Value {
    let render = |(kind, condition): (ConditionType, &Condition)| {
        let status = match condition.status {
            ConditionStatus::True => "True",
            ConditionStatus::False => "False",
            ConditionStatus::Unknown => "Unknown",
        };
        let mut entry = json!({
            "type": kind.as_str(),
            "status": status,
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
