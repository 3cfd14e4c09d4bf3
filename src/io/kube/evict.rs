//! Asking a pod to go: the eviction API weighs disruption budgets, and the uid keeps a successor of the same name safe.

use k8s_openapi::api::policy::v1::Eviction as Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{DeleteOptions, ObjectMeta, Preconditions};

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

/// Asks that `pod` be evicted, with `grace` seconds to end: as many as it asks for itself, for who has less time is deleted, not
/// evicted.
pub async fn evict(kube: &Kube, pod: ObjectKey, uid: Uid, grace: Option<u32>) -> Result<Eviction, KubeError> {
    let eviction = serde_json::to_value(request(pod, uid, grace)).expect("it has only texts and numbers");
    let resource = Kind::Pod.resource();
    let below = (pod.name.as_str(), "eviction");
    match kube.create_below(resource, Some(pod.namespace.as_str()), below, &eviction).await {
        Ok(_) => Ok(Eviction::Granted),
        Err(error) => judge(error),
    }
}

fn request(pod: ObjectKey, uid: Uid, grace: Option<u32>) -> Request {
    let preconditions = Preconditions { uid: Some(uid.as_str().into()), resource_version: None };
    let options = DeleteOptions {
        // Zero would be no eviction but an end without a word; who asks for that gets it by asking for nothing here.
        grace_period_seconds: grace.filter(|seconds| *seconds > 0).map(i64::from),
        preconditions: Some(preconditions),
        ..DeleteOptions::default()
    };
    let metadata = ObjectMeta {
        name: Some(pod.name.as_str().into()),
        namespace: Some(pod.namespace.as_str().into()),
        ..ObjectMeta::default()
    };
    Request { delete_options: Some(options), metadata }
}

/// What an error of the API server means for the pod.
fn judge(error: KubeError) -> Result<Eviction, KubeError> {
    match error {
        // Gone, or another pod of this name by now: the one that was meant does not run any more.
        error if error.is_missing() || error.is_conflict() => Ok(Eviction::Gone),
        // The API server says it in the same way when it has too much to do.
        error if error.is_throttled() && error.to_string().contains("disruption budget") => {
            Ok(Eviction::Blocked(EvictionBlock::Budget, error.to_string()))
        }
        // Two budgets select the pod; the API server does not weigh them against each other.
        KubeError::Refused { code: 500, message, .. } => Ok(Eviction::Blocked(EvictionBlock::Fault, message)),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_eviction_is_of_one_pod_alone_and_gives_it_its_own_time() {
        let body = |grace| {
            let request = request(ObjectKey::new("default", "web"), Uid::new("web-uid"), grace);
            serde_json::to_value(request).unwrap()
        };
        let wanted = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": { "name": "web", "namespace": "default" },
            "deleteOptions": { "gracePeriodSeconds": 90, "preconditions": { "uid": "web-uid" } },
        });
        assert_eq!(body(Some(90)), wanted);
        assert_eq!(body(Some(0))["deleteOptions"].get("gracePeriodSeconds"), None);
    }

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
        let busy = "too many requests, please try again later";
        assert_eq!(judged(429, "TooManyRequests", busy), None, "it says nothing about the pod");
        assert_eq!(judged(403, "Forbidden", "no"), None, "anything else is an error, and tried again");
    }
}
