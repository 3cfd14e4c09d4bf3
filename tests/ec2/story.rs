//! The whole story once, on a real control plane and the wire of EC2, with what is nobody's of ours beside it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::region::{Region, environment, is_true};
use crate::bench::{POOLS, text};
use crate::plane::collection_of;

const CLASSES: &str = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses";

#[test]
fn a_commit_becomes_machines_for_pods_and_nothing_is_left_running() {
    let region = Region::new();
    let bench = &region.bench;
    let (strangers, others) = (bench.plant_strangers(), region.plant_others());
    let running = region.start(&[]);

    bench.wait("pool and class ready", || {
        is_true(&bench.plane.api.get(&format!("{POOLS}/general")).body, "Ready")
            && bench.list(CLASSES).iter().any(|class| is_true(class, "Ready"))
    });
    let log = running.log();
    assert!(
        log.lines().next().is_some_and(|line| line.contains("bought from EC2")),
        "the first line says so: {log}"
    );

    // Fifty pods of two sizes wait, get machines, and run on them.
    bench.deploy("small", 30, "250m", "512Mi");
    bench.deploy("large", 20, "1500m", "3Gi");
    bench.wait("all running", || bench.all_run(50));
    bench.wait("all initialized", || {
        bench.claims().iter().all(|claim| is_true(claim, "Initialized")) && region.are_one_to_one()
    });
    let nodes = bench.nodes();
    assert!(nodes.len() > 1, "a rollout of one node shows nothing");
    let names: BTreeSet<&str> = nodes.iter().map(|node| text(node, "/metadata/name")).collect();
    for pod in bench.pods() {
        assert!(names.contains(text(&pod, "/spec/nodeName")), "every pod is on a node of ours");
    }
    for node in &nodes {
        let label = |key: &str| node["metadata"]["labels"][key].as_str().unwrap_or_default();
        assert_eq!((label("karpenter.sh/nodepool"), label("generation")), ("general", "one"));
        assert_eq!(label("karpenter.sh/capacity-type"), "spot");
        assert!(
            node.pointer("/spec/taints").is_none_or(|taints| taints.as_array().is_none_or(Vec::is_empty))
        );
    }

    // A second commit rolls the pool within its budget.
    bench.fleet.commit("second", &[("environments/dev.toml", &environment("two"))]);
    let excess = std::cell::Cell::new(None);
    bench.wait("rolled", || {
        let (nodes, claims) = (bench.nodes(), bench.claims());
        let is_going = |claim: &&Value| !claim["metadata"]["deletionTimestamp"].is_null();
        // Rounded up, as Karpenter does; replacements count as nodes.
        let (going, allowed) = (claims.iter().filter(is_going).count(), (claims.len() * 2).div_ceil(5));
        if going > allowed {
            excess.set(Some((going, claims.len())));
        }
        nodes.iter().all(|node| text(node, "/metadata/labels/generation") == "two")
            && bench.all_run(50)
            && region.are_one_to_one()
    });
    assert_eq!(excess.get(), None, "so many of so many nodes went at once");

    a_spot_machine_is_taken_back(&region);

    // Without pods there are no nodes, claims or machines.
    bench.scale("small", 0);
    bench.scale("large", 0);
    bench.wait("empty", || region.is_empty());
    region.expect_one_machine_a_claim();
    bench.expect_untouched(&strangers);
    region.expect_others(&others);
    region.expect_permitted();
    assert_eq!(running.stop(), 130, "asked to end, it ends");
}

/// EventBridge warns of a machine: its pods have a new one before the last of them must leave.
fn a_spot_machine_is_taken_back(region: &Region) {
    let bench = &region.bench;
    let budget = json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
        "metadata": { "name": "large", "namespace": bench.namespace },
        "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "large" } } },
    });
    bench.plane.api.post(&collection_of(&budget), &budget).expect("a budget");
    bench.wait("budget counted", || {
        let path = format!("{}/large", collection_of(&budget));
        bench.plane.api.get(&path).body["status"]["disruptionsAllowed"] == 1
    });
    let crowded = bench.nodes().into_iter().max_by_key(|node| {
        let name = text(node, "/metadata/name");
        bench.pods().iter().filter(|pod| text(pod, "/spec/nodeName") == name).count()
    });
    let crowded = crowded.expect("there are nodes");
    let instance = text(&crowded, "/spec/providerID").rsplit('/').next().expect("an id").to_owned();
    let state = || {
        let machines = region.machines();
        let found = machines.iter().find(|machine| text(machine, "/id") == instance).expect("it was bought");
        text(found, "/state").to_owned()
    };
    let before: BTreeSet<String> =
        region.living().iter().map(|machine| text(machine, "/id").to_owned()).collect();
    region.warn_of_spot(&instance);
    let replaced = std::cell::Cell::new(false);
    bench.wait("taken back", || {
        let state = state();
        let is_new = |node: &&Value| {
            let id = text(node, "/spec/providerID").rsplit('/').next().unwrap_or_default();
            !before.contains(id) && node["metadata"]["labels"]["karpenter.sh/registered"] == "true"
        };
        if state == "running" && bench.nodes().iter().any(|node| is_new(&node)) {
            replaced.set(true);
        }
        state != "running" && state != "pending"
    });
    assert!(replaced.get(), "the new machine was ready before the old one was ended\n{}", bench.logs());
    bench.wait("all running after the warning", || bench.all_run(50) && region.are_one_to_one());
    assert!(
        region.calls("TerminateInstances").iter().any(|call| call.to_string().contains(&instance)),
        "it was ended by us"
    );
}
