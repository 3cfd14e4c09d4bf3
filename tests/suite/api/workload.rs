//! What ReplicaSets tell of pods that are yet to come.

use provisor::api::Reader;
use provisor::model::name::ObjectKey;
use provisor::model::observation::Observation;
use serde_json::{Value, json};

fn set(replicas: u32, owner: &Value, conditions: &Value) -> Observation {
    let object = json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": { "namespace": "shop", "name": "web-5d4f", "uid": "s", "ownerReferences": owner },
        "spec": {
            "replicas": replicas,
            "selector": { "matchLabels": { "app": "web" } },
            "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "web" }] } },
        },
        "status": { "replicas": 0, "conditions": conditions },
    });
    let read = Reader::default().parse(&object).expect("it is well formed");
    read.into_observation().expect("it decides something")
}

#[test]
fn a_replica_set_whose_last_pod_was_refused_says_so() {
    let is_refused = |conditions: Value| match set(3, &json!([]), &conditions) {
        Observation::Scalable(set) => set.is_refused,
        other => panic!("{other:?}"),
    };
    assert!(!is_refused(json!([])));
    assert!(is_refused(json!([{ "type": "ReplicaFailure", "status": "True", "reason": "FailedCreate" }])));
    assert!(!is_refused(json!([{ "type": "ReplicaFailure", "status": "False" }])));
    assert!(!is_refused(json!([{ "type": "Another", "status": "True" }])));
}

/// They are kept for years, ten of each Deployment.
#[test]
fn a_replica_set_that_its_deployment_has_left_counts_as_gone() {
    let deployment = json!([{ "apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d", "controller": true }]);
    let key = ObjectKey::new("shop", "web-5d4f");
    let gone = set(0, &deployment, &json!([]));
    assert!(
        matches!(gone, Observation::ScalableGone { kind, key: of } if &*kind == "ReplicaSet" && of == key)
    );
    assert!(matches!(set(1, &deployment, &json!([])), Observation::Scalable(_)));
    assert!(
        matches!(set(0, &json!([]), &json!([])), Observation::Scalable(_)),
        "somebody's own may be named by a buffer"
    );
}
