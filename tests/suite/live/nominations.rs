//! kube-scheduler keeps the room of a new node for the pods that it was bought for.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::bench::{Bench, text};

/// For every pod the claims that it was planned on, one after the other.
fn planned(log: &str) -> BTreeMap<String, Vec<String>> {
    let mut claims: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let documents = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    for document in documents.filter(|document| document["kind"] == "Nominated") {
        if let Some((_, claim)) = text(&document, "/message").rsplit_once("nodeclaim/") {
            claims.entry(text(&document, "/subject").to_owned()).or_default().push(claim.to_owned());
        }
    }
    claims
}

#[test]
fn small_pods_that_come_first_do_not_take_the_room_of_large_ones() {
    let bench = Bench::new();
    bench.deploy("early", 40, "200m", "256Mi");
    bench.deploy("late", 7, "3500m", "1Gi");
    let running = bench.start(&["--output", "json"]);
    bench.wait("all running", || bench.all_run(47));

    let plan = planned(&running.log());
    let first: BTreeSet<&String> = plan.values().filter_map(|claims| claims.first()).collect();
    let made = bench.claims_made();
    assert_eq!(
        made.iter().collect::<BTreeSet<_>>(),
        first,
        "nothing is bought but what was planned at first"
    );
    assert!(made.len() > 1, "one node alone shows nothing");

    let claims = bench.claims();
    let node_of: BTreeMap<&str, &str> =
        claims.iter().map(|claim| (text(claim, "/metadata/name"), text(claim, "/status/nodeName"))).collect();
    for pod in bench.pods().iter().filter(|pod| text(pod, "/metadata/labels/app") == "late") {
        let key = format!("{}/{}", bench.namespace, text(pod, "/metadata/name"));
        let claim = plan[&key].last().expect("it was planned");
        assert_eq!(text(pod, "/spec/nodeName"), node_of[claim.as_str()], "{key} is bound as planned");
    }
    let told = bench.requests_for("pods", "patch");
    assert!(told.iter().any(|request| request["objectRef"]["subresource"] == "status"), "they were told");
}
