//! Asking a pod to go: the eviction API weighs disruption budgets, and the uid keeps a successor of the same name safe.

use serde_json::json;

use super::{Kind, Kube, KubeError};
use crate::model::name::{ObjectKey, Uid};
use crate::model::observation::EvictionBlock;

/// What the API server says to an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// The pod is on its way out.
    Granted,
    /// It was gone already, or another pod has its name by now.
    Gone,
    /// A disruption budget, or something else that may pass, does not allow it now.
    Blocked(EvictionBlock, String),
}

/// Asks that `pod` be evicted. It gets the grace that it asks for itself: who has less time is deleted, not evicted.
pub async fn evict(kube: &Kube, pod: ObjectKey, uid: Uid) -> Result<Eviction, KubeError> {
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": { "name": pod.name.as_str(), "namespace": pod.namespace.as_str() },
        "deleteOptions": { "preconditions": { "uid": uid.as_str() } },
    });
    let resource = Kind::Pod.resource();
    let below = (pod.name.as_str(), "eviction");
    match kube.create_below(resource, Some(pod.namespace.as_str()), below, &eviction).await {
        Ok(_) => Ok(Eviction::Granted),
        Err(error) => judge(error),
    }
}

/// What an error of the API server means for the pod.
fn judge(error: KubeError) -> Result<Eviction, KubeError> {
    match error {
        // Gone, or another pod of this name by now: the one that was meant does not run any more.
        error if error.is_missing() || error.is_conflict() => Ok(Eviction::Gone),
        error if error.is_throttled() => Ok(Eviction::Blocked(EvictionBlock::Budget, error.to_string())),
        // Two budgets select the pod; the API server does not weigh them against each other.
        KubeError::Refused { code: 500, message, .. } => Ok(Eviction::Blocked(EvictionBlock::Fault, message)),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16, reason: &str, message: &str) -> KubeError {
        let what = "evicting Pod default/web".to_owned();
        KubeError::Refused { what, code, reason: reason.into(), message: message.into() }
    }

    /// Rows: TER-031, TER-033, TER-034
    #[test]
    fn ter_031_an_eviction_that_is_not_granted_says_why() {
        let judged = |code, reason, message| judge(refused(code, reason, message)).ok();
        assert_eq!(judged(404, "NotFound", "pods \"web\" not found"), Some(Eviction::Gone));
        assert_eq!(judged(409, "Conflict", "the UID in the precondition differs"), Some(Eviction::Gone));
        let budget = "Cannot evict pod as it would violate the pod's disruption budget.";
        let blocked = judged(429, "TooManyRequests", budget);
        let told = format!("evicting Pod default/web: {budget}");
        assert_eq!(blocked, Some(Eviction::Blocked(EvictionBlock::Budget, told)));
        let several = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
        let blocked = judged(500, "InternalError", several);
        assert_eq!(blocked, Some(Eviction::Blocked(EvictionBlock::Fault, several.to_owned())));
        assert_eq!(judged(403, "Forbidden", "no"), None, "anything else is an error, and tried again");
    }
}
