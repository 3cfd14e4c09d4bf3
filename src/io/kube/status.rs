//! The status of a class: what would be written, and whether it is there already.

use jiff::Timestamp;
use serde_json::Value;

use crate::api::status::{Present, render_class_status};
use crate::model::class::ClassStatus;

/// The status that EC2NodeClass `object` has to get; `None` if it has it.
pub fn of_class(object: &Value, status: &ClassStatus, now: Timestamp) -> Option<Value> {
    missing(object, render_class_status(status, Present { object, now }))
}

fn missing(object: &Value, status: Value) -> Option<Value> {
    let is_there = status.as_object().is_some_and(|fields| {
        fields.iter().all(|(field, value)| is_same(object.pointer(&format!("/status/{field}")), value))
    });
    (!is_there).then_some(status)
}

/// Equal, the order of lists apart; an absent list is an empty one.
fn is_same(present: Option<&Value>, wanted: &Value) -> bool {
    match (present, wanted) {
        (None, Value::Array(list)) => list.is_empty(),
        (Some(Value::Array(present)), Value::Array(wanted)) => {
            present.len() == wanted.len() && wanted.iter().all(|entry| present.contains(entry))
        }
        (present, wanted) => present == Some(wanted),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::model::condition::{Condition, ConditionStatus};
    use crate::model::symbol::Symbol;

    #[test]
    fn a_status_that_is_there_is_not_written_again() {
        let now: Timestamp = "2026-03-04T10:30:00Z".parse().unwrap();
        let mut object = json!({ "metadata": { "generation": 1 } });
        let condition =
            Condition { status: ConditionStatus::True, reason: "".into(), message: "".into(), since: None };
        let conditions = BTreeMap::from([(Symbol::new("AMIsReady"), condition)]);
        let status = ClassStatus { conditions, ..ClassStatus::default() };
        object["status"] = of_class(&object, &status, now).unwrap();
        assert_eq!(of_class(&object, &status, now + jiff::SignedDuration::from_hours(1)), None);
    }
}
