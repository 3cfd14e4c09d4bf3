//! The pods that a node was bought for are told of it.
//!
//! kube-scheduler clears a nomination when it tries the pod before the node is ready: then the pod is told again. What becomes of
//! the room is tested against the simulated scheduler (`capacity::nominations`).

use std::collections::BTreeMap;

use serde_json::Value;

use super::bench::{Bench, text};

/// What was said of `kind`: of whom, and what.
fn said(log: &str, kind: &str) -> Vec<(String, String)> {
    let documents = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let of_kind = documents.filter(|document| document["kind"] == kind);
    of_kind.map(|told| (text(&told, "/subject").to_owned(), text(&told, "/message").to_owned())).collect()
}

#[test]
fn the_pods_that_a_node_was_bought_for_are_told_of_it() {
    let bench = Bench::new();
    bench.deploy("early", 40, "200m", "256Mi");
    bench.deploy("late", 7, "3500m", "1Gi");
    let running = bench.start(&["--output", "json"]);
    bench.wait("all running", || bench.all_run(47));

    let log = running.log();
    let mut plan: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (pod, place) in said(&log, "Nominated") {
        plan.entry(pod)
            .or_default()
            .extend(place.rsplit_once("nodeclaim/").map(|(_, claim)| claim.to_owned()));
    }
    let joined = said(&log, "Registered").into_iter();
    let claim_of: BTreeMap<String, String> =
        joined.map(|(claim, node)| (node.trim_start_matches("joined as ").to_owned(), claim)).collect();
    assert!(claim_of.len() > 1, "one node alone shows nothing");

    let told = bench.requests_for("pods", "patch");
    let told: Vec<(&str, &str)> = told
        .iter()
        .map(|request| (request, text(request, "/requestObject/status/nominatedNodeName")))
        .filter(|(_, node)| !node.is_empty())
        .map(|(request, node)| (text(request, "/objectRef/name"), node))
        .collect();
    assert!(!told.is_empty(), "they were told\n{}", bench.logs());
    // A pod whose room others took is planned and told again; another plan within a minute is not told in the log.
    let mut first: BTreeMap<&str, &str> = BTreeMap::new();
    for (pod, node) in told {
        first.entry(pod).or_insert(node);
    }
    for (pod, node) in first {
        let claims = &plan[&format!("{}/{pod}", bench.namespace)];
        let claim = &claim_of[node];
        assert!(claims.contains(claim), "{pod} was planned on {claims:?}, not on {claim}\n{log}");
    }
}
