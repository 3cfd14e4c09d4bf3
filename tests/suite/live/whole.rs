//! The whole story once, with what is nobody's of ours beside it.

use std::collections::BTreeSet;

use super::bench::{Bench, CLAIMS, CLASSES, POOLS, environment, is_true, text};

#[test]
fn a_commit_becomes_nodes_for_pods_and_everything_is_given_back() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let running = bench.start(&[]);

    // A commit becomes objects, and what they refer to is ready.
    bench.wait("pool and class ready", &running, || {
        let ready = |path: &str| bench.plane.api.get(path).body;
        is_true(&ready(&format!("{POOLS}/general")), "Ready")
            && bench.list(CLASSES).iter().any(|class| is_true(class, "Ready"))
    });
    let log = running.log();
    assert!(log.lines().next().is_some_and(|line| line.contains("simulated")), "the first line says so: {log}");

    // Fifty pods of two sizes wait, get nodes, and run on them.
    bench.deploy("small", 30, "250m", "512Mi");
    bench.deploy("large", 20, "1500m", "3Gi");
    bench.wait("all running", &running, || bench.all_run(50));
    bench.wait("all initialized", &running, || {
        bench.list(CLAIMS).iter().all(|claim| is_true(claim, "Initialized"))
    });
    let nodes = bench.nodes();
    let names: BTreeSet<&str> = nodes.iter().map(|node| text(node, "/metadata/name")).collect();
    for pod in bench.pods() {
        assert!(names.contains(text(&pod, "/spec/nodeName")), "every pod is on a node of ours");
    }
    let claims = bench.list(CLAIMS);
    assert_eq!(claims.len(), nodes.len(), "one claim, one node");
    for claim in &claims {
        assert!(names.contains(text(claim, "/status/nodeName")));
        assert_eq!(text(claim, "/metadata/ownerReferences/0/name"), "general");
    }
    for node in &nodes {
        assert_eq!(text(node, "/metadata/labels/karpenter.sh~1nodepool"), "general");
        assert_eq!(text(node, "/metadata/labels/generation"), "one");
        assert_eq!(text(node, "/metadata/labels/karpenter.sh~1initialized"), "true");
        assert!(node.pointer("/spec/taints").is_none_or(|taints| taints.as_array().is_none_or(Vec::is_empty)));
    }

    // A second commit rolls the pool; pods move along.
    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two"))]);
    bench.wait("rolled", &running, || {
        let nodes = bench.nodes();
        !nodes.is_empty() && nodes.iter().all(|node| text(node, "/metadata/labels/generation") == "two")
    });
    bench.wait("all running again", &running, || bench.all_run(50));

    // Without pods there are no nodes, claims or machines.
    bench.scale("small", 0);
    bench.scale("large", 0);
    bench.wait("empty", &running, || {
        bench.pods().is_empty() && bench.nodes().is_empty() && bench.list(CLAIMS).is_empty()
    });
    bench.expect_untouched(&strangers);
    assert_eq!(running.stop(), 130, "asked to end, it ends");
}
