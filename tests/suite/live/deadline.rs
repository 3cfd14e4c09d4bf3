//! What the API server is asked about a pod that may not go: by its uid, and at the end with the grace that is left.

use std::cell::RefCell;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::bench::{Bench, EVICTED_UID, environment, text};
use crate::plane::{collection_of, path_of};

/// The pod's own. So long before the end of its node's time it has to be told.
const GRACE: i64 = 20;

#[test]
fn a_pod_that_no_budget_lets_go_is_asked_and_then_told_before_the_deadline_of_its_node() {
    let environment = |generation| format!("{}termination-grace-period = \"30s\"\n", environment(generation));
    let bench = Bench::of(&environment("one"));
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": { "name": "held", "namespace": bench.namespace, "labels": { "app": "held" } },
        "spec": {
            "terminationGracePeriodSeconds": GRACE,
            "containers": [{ "name": "main", "image": "pause", "resources": { "requests": { "cpu": "1" } } }],
        },
    });
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "held", "namespace": bench.namespace },
        "spec": { "maxUnavailable": 0, "selector": { "matchLabels": { "app": "held" } } },
    });
    for object in [&budget, &pod] {
        bench.plane.api.post(&collection_of(object), object).expect("it is accepted");
    }
    let running = bench.start(&[]);
    bench.wait("running", || bench.all_run(1));
    let uid = text(&bench.pods()[0], "/metadata/uid").to_owned();
    let [old] = &bench.nodes()[..] else { panic!("one node for one pod") };
    let old = path_of(&json!({ "apiVersion": "v1", "kind": "Node", "metadata": old["metadata"] }));

    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two"))]);
    let deadline = RefCell::new(None::<Timestamp>);
    bench.wait("the old node is gone", || {
        for claim in bench.claims() {
            let at = text(&claim, "/metadata/annotations/karpenter.sh~1nodeclaim-termination-timestamp");
            deadline.replace_with(|known| known.or(at.parse().ok()));
        }
        !bench.plane.api.get(&old).is_success()
    });
    let deadline = deadline.into_inner().expect("the claim said until when");

    let about_it = |verb: &str| -> Vec<Value> {
        let mut requests = bench.requests();
        requests.retain(|request| {
            request["verb"] == verb
                && request["objectRef"]["resource"] == "pods"
                && text(request, "/objectRef/name") == "held"
        });
        requests
    };
    let asked = about_it("create");
    assert!(!asked.is_empty(), "it was asked first\n{}", running.log());
    for request in &asked {
        assert_eq!(request["objectRef"]["subresource"], "eviction");
        assert_eq!(request["responseStatus"]["code"], 429, "its budget does not let it go");
        assert_eq!(text(request, EVICTED_UID), uid);
    }
    let events = bench.list(&format!("/api/v1/namespaces/{}/events", bench.namespace));
    let is_told = |event: &Value| {
        text(event, "/reason") == "FailedDraining" && text(event, "/involvedObject/name") == "held"
    };
    assert!(events.iter().any(is_told), "the refusal came back while it mattered\n{}", running.log());
    let [told] = &about_it("delete")[..] else { panic!("it is told once: {:?}", about_it("delete")) };
    let options = &told["requestObject"];
    assert_eq!(text(options, "/preconditions/uid"), uid, "no pod of the same name is meant: {told}");
    let grace = options["gracePeriodSeconds"].as_i64().expect("it gets the time that is left");
    assert!((1..=GRACE).contains(&grace), "{told}");
    let at: Timestamp = text(told, "/requestReceivedTimestamp").parse().expect("a moment");
    assert!(
        at >= deadline - SignedDuration::from_secs(GRACE),
        "it was told at {at}, and had until {deadline}"
    );
}
