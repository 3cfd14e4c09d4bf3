//! The fixture itself: what a test may rely on.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::plane::{Plane, Server, Size, bound, path_of};

#[test]
fn pods_are_made_and_bound_and_strangers_may_nothing() {
    let plane = Plane::shared();
    let namespace = plane.namespace("bind");
    let labels = json!({"app": "web"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "namespace": namespace},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {
                "nodeSelector": {"test": namespace},
                "containers": [{"name": "web", "image": "web", "resources": {"requests": {"cpu": "100m"}}}],
            },
        }},
    });
    plane.api.post(&crate::plane::collection_of(&deployment), &deployment).expect("a deployment");
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": namespace, "labels": {"test": namespace}},
    });
    plane.api.post("/api/v1/nodes", &node).expect("a node");
    let status = json!({"status": {
        "capacity": {"cpu": "2", "memory": "4Gi", "pods": "10"},
        "allocatable": {"cpu": "2", "memory": "4Gi", "pods": "10"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}],
    }});
    plane.api.patch(&format!("{}/status", path_of(&node)), &status).expect("a ready node");
    // A new node is tainted until the controllers have seen it ready.
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    plane.api.wait(&pods, Duration::from_secs(60), |answer| {
        let bound = |pod: &serde_json::Value| pod["spec"]["nodeName"] == namespace.as_str();
        answer.body["items"].as_array().is_some_and(|pods| pods.len() == 2 && pods.iter().all(bound))
    });

    let stranger = crate::plane::Api::of(&plane.user("stranger"));
    assert_eq!(stranger.get(&pods).code, 403);
    let account = crate::plane::Api::of(&plane.service_account(&namespace, "default"));
    let refused = account.get(&pods);
    assert_eq!(refused.code, 403);
    let name = format!("system:serviceaccount:{namespace}:default");
    assert!(refused.message().contains(&name), "{}", refused.message());
}

#[test]
fn an_api_server_that_crashes_comes_back_with_its_objects() {
    let plane = Plane::start(Size::Objects);
    let namespace = plane.namespace("crash");
    plane.kill(Server::Api);
    assert!(plane.api.try_send("GET", "/readyz", "application/json", Vec::new()).is_none());
    plane.revive(Server::Api);
    plane.api.get(&format!("/api/v1/namespaces/{namespace}")).expect("it was kept");
    let version = plane.kubectl(&["version", "--output", "json"]);
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    assert_eq!(version.matches("\"v1.36.3\"").count(), 2, "client and server: {version}");
}

/// Holds a process until it is killed; only the test below runs it.
#[test]
#[ignore = "run by nothing_survives_a_killed_test in a process of its own"]
fn holds_a_process() {
    let mut command = bound::command("sleep");
    command.arg("600");
    let mut child = bound::spawn(command).expect("it starts");
    println!("held {}", child.id());
    child.wait().expect("it is ours");
}

#[test]
fn nothing_survives_a_killed_test() {
    let own = std::env::current_exe().expect("this test");
    let mut held = Command::new(own)
        .args(["--ignored", "--exact", "--nocapture", "plane_itself::holds_a_process"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("a test process");
    let lines = BufReader::new(held.stdout.take().expect("it is piped")).lines();
    let line =
        lines.map_while(Result::ok).find(|line| line.contains("held ")).expect("it says what it holds");
    let child = line.rsplit(' ').next().expect("a process id").to_owned();
    let is_alive = || {
        let status = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        !status.is_empty() && !status.contains(") Z ")
    };
    assert!(is_alive(), "{child} runs while its test does");
    held.kill().and_then(|()| held.wait()).expect("it was ours");
    let start = Instant::now();
    while is_alive() {
        assert!(start.elapsed() < Duration::from_secs(10), "{child} outlived its test");
        std::thread::sleep(Duration::from_millis(10));
    }
}
