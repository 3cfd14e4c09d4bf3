//! Asking a pod to go: the eviction API weighs disruption budgets, and the uid keeps a successor of the same name safe.

use serde_json::json;

use super::{Kind, Kube, KubeError};
use crate::model::name::{ObjectKey, Uid};

/// What the API server says to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The pod is on its way out, or was gone already.
    Granted,
    /// A disruption budget, or something else that may pass, does not allow it now.
    Blocked(String),
}

/// Asks that `pod` be evicted; `grace_seconds` replaces the pod's own.
pub async fn evict(
    kube: &Kube,
    pod: ObjectKey,
    uid: Uid,
    grace_seconds: Option<u32>,
) -> Result<Eviction, KubeError> {
    let mut options = json!({ "preconditions": { "uid": uid.as_str() } });
    if let Some(seconds) = grace_seconds {
        options["gracePeriodSeconds"] = seconds.into();
    }
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name.as_str(), "namespace": pod.namespace.as_str() },
        "deleteOptions": options,
    });
    let resource = Kind::Pod.resource();
    let below = (pod.name.as_str(), "eviction");
    match kube.create_below(resource, Some(pod.namespace.as_str()), below, &eviction).await {
        Ok(_) => Ok(Eviction::Granted),
        // Gone, or another pod of this name by now: the one that was meant does not run any more.
        Err(error) if error.is_missing() || error.is_conflict() => Ok(Eviction::Granted),
        Err(error) if error.is_throttled() => Ok(Eviction::Blocked(error.to_string())),
        // Two budgets select the pod; the API server does not weigh them against each other.
        Err(KubeError::Refused { code: 500, message, .. }) => Ok(Eviction::Blocked(message)),
        Err(error) => Err(error),
    }
}
