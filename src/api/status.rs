//! The status of an EC2NodeClass, as its own controller would write it (aws.md 1.3).

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::requirement;
use crate::model::class::ClassStatus;
use crate::model::condition::{Condition, ConditionStatus};
use crate::model::symbol::Symbol;

/// What a status of conditions is written onto: the object as it is, and the moment.
#[derive(Clone, Copy, Debug)]
pub struct Present<'a> {
    pub object: &'a Value,
    pub now: Timestamp,
}

impl Present<'_> {
    fn generation(&self) -> i64 {
        self.object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default()
    }

    fn former(&self) -> &[Value] {
        let conditions = self.object.pointer("/status/conditions").and_then(Value::as_array);
        conditions.map_or(&[], Vec::as_slice)
    }
}

/// The status of a class: what its selectors found, and the conditions, `Ready` included.
pub fn render_class_status(status: &ClassStatus, present: Present<'_>) -> Value {
    let image = |image: &crate::model::class::Image| {
        let mut entry = json!({
            "id": image.id.as_str(), "name": image.name.as_str(),
            "requirements": requirement::render(&image.requirements),
        });
        if image.is_deprecated {
            entry["deprecated"] = true.into();
        }
        entry
    };
    let subnet = |subnet: &crate::model::class::Subnet| json!({ "id": subnet.id.as_str(), "zone": subnet.zone.as_str(), "zoneID": subnet.zone_id.as_str() });
    let group = |group: &crate::model::class::SecurityGroup| json!({ "id": group.id.as_str(), "name": group.name.as_str() });
    let mut rendered = json!({
        "amis": status.images.iter().map(image).collect::<Vec<_>>(),
        "subnets": status.subnets.iter().map(subnet).collect::<Vec<_>>(),
        "securityGroups": status.security_groups.iter().map(group).collect::<Vec<_>>(),
        "conditions": render_conditions(&status.conditions, present),
    });
    if let Some(profile) = status.instance_profile {
        rendered["instanceProfile"] = profile.as_str().into();
    }
    rendered
}

/// `conditions` and the `Ready` that follows from them; types that somebody else wrote stay. A moment changes only with a status.
fn render_conditions(conditions: &BTreeMap<Symbol, Condition>, present: Present<'_>) -> Value {
    let worst = conditions.iter().max_by_key(|(_, condition)| match condition.status {
        ConditionStatus::True => 0,
        ConditionStatus::Unknown => 1,
        ConditionStatus::False => 2,
    });
    let ready = match worst {
        Some((kind, condition)) if condition.status != ConditionStatus::True => {
            let message = format!("{kind}={}: {}", text(condition.status), condition.message);
            Condition { reason: "NotReady".into(), message: Symbol::new(&message), ..condition.clone() }
        }
        _ => Condition {
            status: ConditionStatus::True,
            reason: "Ready".into(),
            message: "".into(),
            since: None,
        },
    };
    let root = Symbol::new("Ready");
    let mut all = conditions.clone();
    all.insert(root, ready);
    let others = present.former().iter().filter(|entry| {
        let kind = entry.get("type").and_then(Value::as_str).unwrap_or_default();
        !all.contains_key(&Symbol::new(kind))
    });
    let mut entries: Vec<Value> = others.cloned().collect();
    entries.extend(all.iter().map(|(kind, condition)| render(*kind, condition, present)));
    entries.into()
}

fn text(status: ConditionStatus) -> &'static str {
    match status {
        ConditionStatus::True => "True",
        ConditionStatus::False => "False",
        ConditionStatus::Unknown => "Unknown",
    }
}

fn render(kind: Symbol, condition: &Condition, present: Present<'_>) -> Value {
    let status = text(condition.status);
    let same = present.former().iter().find(|entry| entry["type"] == *kind && entry["status"] == *status);
    let since = same
        .and_then(|entry| entry.get("lastTransitionTime").cloned())
        .unwrap_or_else(|| condition.since.unwrap_or(present.now).to_string().into());
    let reason = if condition.reason.is_empty() { kind } else { condition.reason };
    json!({
        "type": kind.as_str(),
        "status": status,
        "reason": reason.as_str(),
        "message": condition.message.as_str(),
        "observedGeneration": present.generation(),
        "lastTransitionTime": since,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_follows_from_the_others_and_moments_stay() {
        let now: Timestamp = "2026-03-04T10:30:00Z".parse().unwrap();
        let condition = |status| Condition { status, reason: "".into(), message: "why".into(), since: None };
        let conditions = BTreeMap::from([
            (Symbol::new("AMIsReady"), condition(ConditionStatus::True)),
            (Symbol::new("SubnetsReady"), condition(ConditionStatus::False)),
        ]);
        let object = json!({ "metadata": { "generation": 3 }, "status": { "conditions": [
            { "type": "AMIsReady", "status": "True", "lastTransitionTime": "2026-03-01T00:00:00Z" },
            { "type": "Foreign", "status": "True" },
        ] } });
        let rendered = render_conditions(&conditions, Present { object: &object, now });
        let find =
            |kind: &str| rendered.as_array().unwrap().iter().find(|entry| entry["type"] == kind).unwrap();
        assert_eq!(find("Ready")["status"], "False");
        assert_eq!(find("Ready")["observedGeneration"], 3);
        assert_eq!(find("AMIsReady")["lastTransitionTime"], "2026-03-01T00:00:00Z");
        assert_eq!(find("SubnetsReady")["reason"], "SubnetsReady", "a reason is never empty");
        assert_eq!(find("Foreign")["status"], "True");
    }
}
