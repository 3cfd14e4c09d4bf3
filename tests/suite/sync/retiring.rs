//! A pool leaves Git and the simulated cluster empties it: both halves of the program, as a user runs them.

use std::path::Path;

use serde_json::Value;

/// Twelve nodes of one pod each, and a commit after three minutes that drops their pool. Another pool can take the pods.
const SCRIPT: &str = r#"
environment = "lab"
duration = "11m"
workloads = ["work.yaml"]

[[events]]
at = "3m"
commit = { message = "drop old", files = { "environments/lab.toml" = "next/lab.toml" } }
"#;

const WORK: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: { name: work }
spec:
  replicas: 12
  selector: { matchLabels: { app: work } }
  template:
    metadata: { labels: { app: work } }
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - { name: work, image: pause, resources: { requests: { cpu: "1" } } }
"#;

fn pool(name: &str, weight: u32) -> String {
    format!(
        r#"
[pools.{name}]
strategy = "on-demand"
weight = {weight}
requirements = {{ "node.kubernetes.io/instance-type" = ["c6a.large"] }}
overrides = {{ spec.disruption.consolidateAfter = "Never", spec.disruption.budgets = [{{ nodes = "25%" }}] }}
"#
    )
}

#[test]
fn syn_023_a_pool_that_left_git_gives_back_its_nodes_within_its_budget() {
    let dir = tempfile::tempdir().expect("a directory");
    let write = |path: &str, content: &str| {
        let path: &Path = &dir.path().join(path);
        std::fs::create_dir_all(path.parent().expect("below the directory")).expect("made");
        std::fs::write(path, content).expect("written");
    };
    write("fleet.toml", "name = \"lab\"\n");
    write("environments/lab.toml", &format!("region = \"us-east-1\"\n{}{}", pool("old", 50), pool("new", 1)));
    write("next/lab.toml", &format!("region = \"us-east-1\"\n{}", pool("new", 1)));
    write("simulation.toml", SCRIPT);
    write("work.yaml", WORK);
    let run = assert_cmd::Command::cargo_bin("provisor")
        .expect("the program is built")
        .args(["simulate", "--seed", "3", "--output", "json", "--repo"])
        .arg(dir.path())
        .output()
        .expect("runs");
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let story: Value = serde_json::from_slice(&run.stdout).expect("one document");
    let nodes: Vec<&str> =
        story["nodes"].as_array().expect("a list").iter().filter_map(|node| node["pool"].as_str()).collect();
    assert_eq!(nodes, ["new"; 12], "the pods moved to the other pool, and all of old is gone");

    // A node counts as disrupted from its replacement's launch until its machine is told to end.
    let (mut launched, mut ended) = (0, 0);
    for event in story["events"].as_array().expect("a list") {
        match event["kind"].as_str() {
            Some("Launched") => launched += 1,
            Some("Terminating") => ended += 1,
            _ => {}
        }
        assert!(launched - 12 - ended <= 3, "a quarter of twelve at most, at {}", event["at"]);
    }
    assert_eq!((launched, ended), (24, 12), "each node was replaced before it went");
}
