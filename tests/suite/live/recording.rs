//! What a real cluster is recorded as: decided again the same, asked why, without a secret, and whole across lives that end hard.

use std::path::Path;

use serde_json::{Value, json};

use super::bench::{Bench, environment, is_true, text};
use crate::plane::collection_of;
use crate::recording::lines_in;
use crate::recording::why::{expect_every_action_answered, why_in};

/// What nobody may find in a recording.
const SECRET: &str = "hunter2-4711-correct-horse";

/// A Deployment whose pods hold secrets in every place where people put them.
fn deploy_with_secrets(bench: &Bench, name: &str, replicas: u32) {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": { "name": "database", "namespace": bench.namespace },
        "stringData": { "password": format!("{SECRET}-stored") },
    });
    bench.plane.api.post(&collection_of(&secret), &secret).expect("a secret");
    let labels = json!({ "app": name });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": { "name": name, "namespace": bench.namespace },
        "spec": { "replicas": replicas, "selector": { "matchLabels": labels }, "template": {
            "metadata": { "labels": labels, "annotations": { "config": format!("{SECRET}-annotated") } },
            "spec": { "terminationGracePeriodSeconds": 1, "containers": [{
                "name": "main", "image": "pause",
                "command": ["serve", format!("--token={SECRET}-argument")],
                "env": [
                    { "name": "PASSWORD", "value": format!("{SECRET}-plain") },
                    { "name": "STORED", "valueFrom": { "secretKeyRef": { "name": "database", "key": "password" } } },
                ],
                "resources": { "requests": { "cpu": "900m", "memory": "1Gi" } },
            }] },
        } },
    });
    bench.plane.api.post(&collection_of(&deployment), &deployment).expect("a deployment");
}

fn are_initialized(bench: &Bench) -> bool {
    let (claims, nodes) = (bench.claims(), bench.nodes());
    claims.len() == nodes.len() && claims.iter().all(|claim| is_true(claim, "Initialized"))
}

fn has_rolled(bench: &Bench) -> bool {
    let is_new = |node: &Value| text(node, "/metadata/labels/generation") == "two";
    bench.nodes().iter().all(is_new) && are_initialized(bench)
}

/// The number of files that a recording has.
fn files(recording: &Path) -> usize {
    recording.read_dir().map_or(0, Iterator::count)
}

#[test]
fn a_real_cluster_is_decided_again_the_same_and_every_action_has_its_why() {
    let bench = Bench::new();
    let strangers = bench.plant_strangers();
    let running = bench.start(&[]);
    deploy_with_secrets(&bench, "web", 6);
    bench.deploy("large", 2, "9", "1Gi");
    bench.wait("all running", || bench.all_run(8) && are_initialized(&bench));
    let pod = text(&bench.pods()[0], "/metadata/name").to_owned();
    let node = text(&bench.pods()[0], "/spec/nodeName").to_owned();
    bench.fleet.commit("second generation", &[("environments/dev.toml", &environment("two"))]);
    bench.wait("rolled", || has_rolled(&bench) && bench.all_run(8));
    ["web", "large"].into_iter().for_each(|name| bench.scale(name, 0));
    bench.wait("empty", || bench.pods().is_empty() && bench.nodes().is_empty() && bench.claims().is_empty());
    bench.expect_untouched(&strangers);
    assert_eq!(running.stop(), 130);

    let told = bench.replay();
    assert!(told["same"] == true && told["runs"] == 1, "{told:#}");
    assert_eq!(told["notices"], json!([]), "it was ended in order");
    assert!(told["actions"].as_u64() > Some(100), "{told:#}");

    let (recording, lines) = (bench.recording(), lines_in(&bench.recording()));
    let answered = expect_every_action_answered(&recording, &lines);
    assert!(answered > 60, "{answered} actions were answered");
    // The pod that ran first, its node and its claim: bought, moved by the second commit, gone.
    let told = why_in(&recording, "pod", &format!("{}/{pod}", bench.namespace), None);
    assert_eq!(told["gone"], true, "{told:#}");
    let told = why_in(&recording, "node", &node, None);
    assert!(told["bought"]["why"].as_str().is_some_and(|why| why.contains("need")), "{told:#}");
    assert_eq!(told["disrupted"][0]["method"], "drift", "{told:#}");
    assert_eq!(told["commit"]["subject"], "second generation", "{told:#}");
    let claim = told["claim"].as_str().expect("its claim").to_owned();
    assert_eq!(why_in(&recording, "claim", &claim, None)["node"], node.as_str());

    assert!(lines.iter().any(|line| line.contains(&pod)), "the pods are in it");
    let leak = lines.iter().find(|line| line.contains(SECRET));
    assert!(leak.is_none(), "{leak:?}");
}

#[test]
fn lives_that_end_hard_are_recorded_one_after_the_other_and_decided_again_the_same() {
    let bench = Bench::new();
    let start = || bench.start_as(0, "2s", &["--no-lease"]);
    let first = start();
    bench.deploy("large", 3, "9", "1Gi");
    bench.wait("bought", || bench.claims().len() == 3);
    // What is older than a second is on the disk.
    std::thread::sleep(std::time::Duration::from_millis(1_500));
    first.kill();
    assert_eq!(files(&bench.recording()), 1);

    let second = start();
    bench.wait("all running", || bench.all_run(3) && are_initialized(&bench));
    bench.fleet.commit("second generation", &[("environments/dev.toml", &environment("two"))]);
    bench.wait("rolling", || !bench.evictions_granted().is_empty());
    second.kill();

    let third = start();
    bench.wait("rolled", || has_rolled(&bench) && bench.all_run(3));
    bench.scale("large", 0);
    bench.wait("empty", || bench.pods().is_empty() && bench.nodes().is_empty() && bench.claims().is_empty());
    assert_eq!(third.stop(), 130);

    assert_eq!(files(&bench.recording()), 3, "each life has a file of its own");
    let told = bench.replay();
    assert!(told["same"] == true && told["runs"] == 3, "{told:#}");
    let notices: Vec<&str> =
        told["notices"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    assert!(notices.len() == 2 && notices.iter().all(|said| said.contains("is torn")), "{notices:?}");
    let lines = lines_in(&bench.recording());
    let answered = expect_every_action_answered(&bench.recording(), &lines);
    assert!(answered > 30, "{answered} actions were answered");
    // Bought in the first life, replaced in the second or third.
    let made = bench.claims_made();
    let told = why_in(&bench.recording(), "claim", &made[0], None);
    assert!(told["bought"]["why"].is_string() && told["gone"] == true, "{told:#}");
}
