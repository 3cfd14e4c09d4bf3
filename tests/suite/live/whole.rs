//! The whole story once, with what is nobody's of ours beside it.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use serde_json::{Value, json};

use super::bench::{Bench, CLASSES, POOLS, environment, is_true, planned, text};
use super::mixed;
use super::story::{GROUPS, Story};

/// So long a commit takes at the most, in the middle of several.
const SOON: Duration = Duration::from_secs(1);

/// Rows: SCH-037
#[test]
fn a_commit_becomes_nodes_for_pods_and_everything_is_given_back() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let path = bench.plant_environment();
    let running = bench.start(&["--output", "json"]);

    // A commit becomes objects, and what they refer to is ready.
    bench.wait("pool and class ready", || {
        bench.pool_is_ready() && bench.list(CLASSES).iter().any(|class| is_true(class, "Ready"))
    });

    bench.wait("told by its Environment", || {
        let environment = bench.plane.api.get(&path).body;
        let applied = environment["status"]["inventory"].as_array().map_or(0, Vec::len);
        is_true(&environment, "Ready") && text(&environment, "/status/sync") == "Synced" && applied == 2
    });

    expect_commits_to_be_applied_soon(&bench);

    // Fifty pods of three kinds wait, get nodes, and run where the plan wanted them.
    Story::deploy(&bench);
    bench.wait("all running", || bench.all_run(50));
    bench.wait("all initialized", || {
        bench.claims().iter().all(|claim| is_true(claim, "Initialized") && is_true(claim, "Ready"))
    });
    let (nodes, claims) = (bench.nodes(), bench.claims());
    let pool = bench.plane.api.get(&format!("{POOLS}/general")).body;
    let node_of: BTreeMap<&str, &str> =
        claims.iter().map(|claim| (text(claim, "/metadata/name"), text(claim, "/status/nodeName"))).collect();
    assert_eq!(node_of.len(), GROUPS.len(), "one node is bought for each group: {node_of:?}");
    assert_eq!(nodes.len(), claims.len(), "one claim, one node");
    let plan = planned(&running.log());
    for pod in bench.pods() {
        let key = format!("{}/{}", bench.namespace, text(&pod, "/metadata/name"));
        let claims = plan.get(&key).unwrap_or_else(|| panic!("{key} is in no plan: {plan:#?}"));
        let [claim] = &claims[..] else { panic!("{key} was planned more than once: {claims:?}") };
        assert_eq!(text(&pod, "/spec/nodeName"), node_of[claim.as_str()], "{key} is bound as planned");
    }
    for claim in &claims {
        let owner = &claim["metadata"]["ownerReferences"][0];
        assert_eq!((text(owner, "/apiVersion"), text(owner, "/kind")), ("karpenter.sh/v1", "NodePool"));
        assert_eq!((text(owner, "/name"), text(owner, "/uid")), ("general", text(&pool, "/metadata/uid")));
        assert_eq!(text(claim, "/metadata/annotations/provisor.dev~1owner"), "provisor:dev");
    }
    for node in &nodes {
        assert_eq!(text(node, "/metadata/labels/karpenter.sh~1nodepool"), "general");
        assert_eq!(text(node, "/metadata/labels/generation"), "one");
        assert_eq!(text(node, "/metadata/labels/karpenter.sh~1initialized"), "true");
        assert!(
            node.pointer("/spec/taints").is_none_or(|taints| taints.as_array().is_none_or(Vec::is_empty))
        );
    }

    let was: Vec<String> = bench.pods().iter().map(|pod| text(pod, "/metadata/uid").to_owned()).collect();
    // A second commit rolls the pool, no more than two of three nodes at a time, and pods move along.
    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two"))]);
    let going_most = Mutex::new(0);
    bench.wait("rolled", || {
        let nodes = bench.nodes();
        let is_going = |node: &&Value| !node["metadata"]["deletionTimestamp"].is_null();
        let going = nodes.iter().filter(is_going).count();
        let mut most = going_most.lock().expect("nobody panics in between");
        *most = going.max(*most);
        !nodes.is_empty() && nodes.iter().all(|node| text(node, "/metadata/labels/generation") == "two")
    });
    let going_most = going_most.into_inner().expect("nobody panicked");
    assert!(going_most <= 2, "the budget is 40 % of three nodes: {going_most} went at a time");
    bench.wait("all running again", || bench.all_run(50));

    // Nothing is left of what was said while it went on.
    bench.wait("rolled out in the eyes of its Environment", || {
        bench.plane.api.get(&path).body.pointer("/status/rollout") == Some(&json!({ "state": "Complete" }))
    });

    // Without pods there are no nodes, claims or machines.
    for (name, ..) in GROUPS {
        bench.scale(name, 0);
    }
    bench.wait("empty", || bench.pods().is_empty() && bench.nodes().is_empty() && bench.claims().is_empty());
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    bench.wait("without leases of nodes", || bench.list(leases).is_empty());
    bench.expect_untouched(&strangers);
    let evictions = bench.evictions();
    assert!(was.iter().all(|pod| evictions.contains_key(pod)), "all that ran were moved: {evictions:?}");
    assert!(evictions.len() >= 50, "every pod was asked to move: {}", evictions.len());
    assert!(evictions.values().all(|times| *times == 1), "each once: {evictions:?}");
    assert_eq!(running.stop(), 130, "asked to end, it ends");
}

/// From when a commit is there to when the API server has what follows from it; `benches/commit-to-applied` measures more of them.
fn expect_commits_to_be_applied_soon(bench: &Bench) {
    let commits = ["201", "202", "203", "204", "205"];
    let mut times = commits.map(|cpu| {
        let limited = environment("one").replace(r#"cpu = "200""#, &format!(r#"cpu = "{cpu}""#));
        bench.fleet.commit("another limit", &[("environments/dev.toml", &limited)]);
        bench.wait("commit applied", || {
            let pool = bench.plane.api.get(&format!("{POOLS}/general")).body;
            text(&pool, "/spec/limits/cpu") == cpu
        })
    });
    times.sort();
    eprintln!("commit to applied: {times:?}");
    assert!(times[times.len() / 2] < SOON, "{times:?}\n{}", bench.logs());
}

#[test]
fn fifty_mixed_pods_run_on_what_was_planned_for_them() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let running = bench.start(&["--output", "json"]);
    bench.wait("pool ready", || bench.pool_is_ready());
    mixed::expect_where_planned(&bench, &running);
    bench.expect_untouched(&strangers);
}
