//! What cannot be read is no reason to end a machine.

use serde_json::{Value, json};

use super::bench::{Bench, CLAIMS, POOLS, environment, text};

const ZONE: &str = "topology.kubernetes.io/zone";

/// The one node, or claim, of zone a.
fn in_zone_a(objects: &[Value]) -> Option<&Value> {
    objects
        .iter()
        .find(|object| text(object, "/metadata/labels/topology.kubernetes.io~1zone") == "us-east-1a")
}

#[test]
fn the_machine_of_a_claim_that_cannot_be_read_is_left_alone_until_it_can() {
    let bench = Bench::new();
    bench.deploy_on("spoilt", 1, "900m", "1Gi", json!({ ZONE: "us-east-1a" }));
    bench.deploy_on("other", 1, "900m", "1Gi", json!({ ZONE: "us-east-1b" }));
    let running = bench.start(&[]);
    bench.wait("running", || bench.all_run(2) && bench.nodes().len() == 2);

    // The definition lets it pass, and nobody can count with it.
    let claim = in_zone_a(&bench.claims()).expect("a claim in zone a").clone();
    let path = format!("{CLAIMS}/{}/status", text(&claim, "/metadata/name"));
    let write = |cpu: &Value| {
        let status = json!({ "status": { "capacity": { "cpu": cpu } } });
        bench.plane.api.patch(&path, &status).expect("a status");
    };
    write(&json!("1e999"));
    let told = format!("NodeClaim {} cannot be read", text(&claim, "/metadata/name"));
    bench.wait("told", || running.log().contains(&told));

    // Both are empty; only one can be judged. A new process knows no more.
    bench.scale("spoilt", 0);
    bench.scale("other", 0);
    bench.wait("the other is gone", || bench.nodes().len() == 1);
    running.kill();
    let running = bench.start(&["--no-lease"]);
    bench.scale("other", 1);
    bench.wait("a second one", || bench.nodes().len() == 2 && bench.all_run(1));
    bench.scale("other", 0);
    bench.wait("it is gone, too", || bench.nodes().len() == 1);
    assert!(running.log().contains(&told), "{}", running.log());
    let nodes = bench.nodes();
    let node = in_zone_a(&nodes).expect("the node in zone a stays");
    assert!(node["metadata"]["deletionTimestamp"].is_null(), "{node:#}");
    assert!(node["spec"]["taints"].is_null(), "{node:#}");

    write(&claim["status"]["capacity"]["cpu"]);
    bench.wait("legible, and gone", || bench.nodes().is_empty() && bench.claims().is_empty());
}

/// Such a commit leaves a process that runs alone; so it does the one that comes after it.
#[test]
fn who_starts_at_a_commit_that_it_cannot_go_by_goes_on_with_what_was() {
    let bench = Bench::new();
    let running = bench.start(&[]);
    bench.deploy("web", 1, "900m", "1Gi");
    bench.wait("running", || bench.all_run(1));
    let theirs = format!("engine = \"karpenter\"\n{}", environment("one"));
    bench.fleet.commit("theirs", &[("environments/dev.toml", &theirs)]);
    bench.wait("told", || running.log().contains("this commit cannot be used"));
    running.kill();
    let running = bench.start(&[]);
    bench.wait("told", || running.log().contains("no commit can be used yet"));
    assert!(running.log().contains("--cloud simulated says that nothing is bought"), "{}", running.log());
    bench.deploy("more", 1, "9", "1Gi");
    bench.wait("running", || bench.all_run(2));
    bench.fleet.commit("ours", &[("environments/dev.toml", &environment("two"))]);
    let label = "/spec/template/metadata/labels/generation";
    bench.wait("applied", || text(&bench.plane.api.get(&format!("{POOLS}/general")).body, label) == "two");
}
