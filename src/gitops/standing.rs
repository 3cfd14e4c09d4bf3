//! How an environment stands, as the status of its Environment object says it.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::live::Inventory;
use super::sync::{Condition, Health, HistoryEntry, Rollout, SyncState, SyncStatus};

/// The status of the Environment `object`, in which moments change only with what they are about.
pub fn render_standing(status: &SyncStatus, inventory: Option<&Inventory>, object: &Value) -> Value {
    let mut rendered = json!({
        "sync": status.sync,
        "rollout": rollout(&status.rollout),
        "health": status.health,
        "inventory": inventory.map(|inventory| list(status, inventory)).unwrap_or_default(),
        "history": status.history.iter().map(operation).collect::<Vec<_>>(),
        "conditions": conditions(status, object),
        "observedRevision": status.observed_revision,
        "lastAppliedRevision": status.last_applied_revision,
        "plan": status.plan.as_ref().map(ToString::to_string),
        "observedGeneration": object.pointer("/metadata/generation"),
    });
    drop_nulls(&mut rendered);
    rendered
}

fn drop_nulls(value: &mut Value) {
    if let Some(map) = value.as_object_mut() {
        map.retain(|_, value| !value.is_null());
    }
}

/// Without the moment at which it may be done, which is another one each time.
fn rollout(rollout: &Rollout) -> Value {
    match rollout {
        Rollout::Complete => json!({ "state": "Complete" }),
        Rollout::Rolling { done, total, .. } => json!({ "state": "Rolling", "done": done, "total": total }),
        Rollout::Stalled { reason } => json!({ "state": "Stalled", "reason": reason }),
        Rollout::Paused => json!({ "state": "Paused" }),
        Rollout::NotApplicable => json!({ "state": "NotApplicable" }),
    }
}

fn list(status: &SyncStatus, inventory: &Inventory) -> Vec<Value> {
    let entries = inventory.entries.iter().map(|(object, entry)| {
        let known = status.objects.iter().find(|known| known.object == *object);
        let text = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let mut item = json!({
            "apiVersion": &*object.api_version,
            "kind": &*object.kind,
            "name": &*object.name,
            "namespace": text(&object.namespace),
            "uid": text(&entry.uid),
            "digest": text(&entry.digest),
            "wave": entry.wave,
            "revision": text(&entry.revision),
            "retiringSince": entry.retiring_since.map(|since| since.to_string()),
            "health": known.map(|known| known.health),
            "message": known.and_then(|known| text(&known.message)),
            "origin": known.and_then(|known| known.origin.as_ref()).map(ToString::to_string),
        });
        drop_nulls(&mut item);
        item
    });
    entries.collect()
}

fn operation(entry: &HistoryEntry) -> Value {
    json!({
        "id": entry.id,
        "revision": entry.revision,
        "author": &*entry.author,
        "subject": &*entry.subject,
        "plan": entry.plan.to_string(),
        "initiator": entry.initiator.to_string(),
        "started": entry.started.to_string(),
        "ended": entry.ended.to_string(),
        "phase": entry.phase,
        "summary": entry.summary,
        "count": entry.count,
    })
}

/// The facts and the `Ready` that follows from them; one of each type, the first.
fn conditions(status: &SyncStatus, object: &Value) -> Vec<Value> {
    let (is_ready, reason) = match (status.sync, status.health) {
        (SyncState::Synced, Health::Healthy | Health::Progressing) => (true, "Synced".to_owned()),
        (SyncState::Synced, health) => (false, format!("{health:?}")),
        (sync, _) => (false, format!("{sync:?}")),
    };
    let message = if is_ready { "the cluster is as the commit wants it".into() } else { String::new() };
    let ready = Condition { kind: "Ready", is_true: is_ready, reason, message, origin: None };
    let mut rendered: Vec<Value> = Vec::new();
    for condition in std::iter::once(&ready).chain(&status.conditions) {
        if !rendered.iter().any(|known| known["type"] == condition.kind) {
            rendered.push(render_condition(condition, object, status.as_of));
        }
    }
    rendered
}

fn render_condition(condition: &Condition, object: &Value, now: Timestamp) -> Value {
    let word = if condition.is_true { "True" } else { "False" };
    let former = object.pointer("/status/conditions").and_then(Value::as_array);
    let same = former
        .into_iter()
        .flatten()
        .find(|known| known["type"] == condition.kind && known["status"] == word)
        .and_then(|known| known.get("lastTransitionTime").cloned());
    let origin = condition.origin.as_ref().map(|origin| format!(" ({origin})")).unwrap_or_default();
    let message: String = format!("{}{origin}", condition.message).chars().take(8000).collect();
    let mut entry = Map::new();
    entry.insert("type".into(), condition.kind.into());
    entry.insert("status".into(), word.into());
    entry.insert("reason".into(), condition.reason.as_str().into());
    entry.insert("message".into(), message.into());
    entry.insert("lastTransitionTime".into(), same.unwrap_or_else(|| now.to_string().into()));
    if let Some(generation) = object.pointer("/metadata/generation") {
        entry.insert("observedGeneration".into(), generation.clone());
    }
    entry.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gitops::policy::SyncPolicy;
    use crate::gitops::sync::Sync;

    #[test]
    fn what_is_not_known_yet_is_not_ready_and_moments_stay() {
        let now: Timestamp = "2026-03-04T10:30:00Z".parse().unwrap();
        let sync = Sync::new("dev", SyncPolicy::new("provisor"), None);
        let mut object = json!({ "metadata": { "generation": 2 } });
        let first = render_standing(&sync.status(now), None, &object);
        assert_eq!((&first["sync"], &first["health"]), (&json!("Unknown"), &json!("Unknown")));
        assert_eq!(first["rollout"], json!({ "state": "NotApplicable" }));
        assert_eq!(first["conditions"][0]["type"], "Ready");
        assert_eq!(first["conditions"][0]["status"], "False");
        assert_eq!(first["conditions"][0]["observedGeneration"], 2);
        object["status"] = first.clone();
        let later = now + jiff::SignedDuration::from_mins(5);
        assert_eq!(render_standing(&sync.status(later), None, &object), first, "nothing changed");
    }
}
