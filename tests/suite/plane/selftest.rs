//! The fixture itself: what a test may rely on.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::json;

use crate::plane::{Plane, Server, Size, bound, made_by, path_of};

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

/// A folder with what archives of envtest hold: programs that note that they were started, and are those that were built.
fn folder_of_programs(programs: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::TempDir::new().expect("a temporary directory");
    let built = made_by("control-plane/ensure", &[]).expect("a control plane");
    for program in programs {
        let script = format!(
            "#!/bin/sh\necho {program} >> '{}/started'\nexec '{}/{program}' \"$@\"\n",
            folder.path().display(),
            built.display()
        );
        let path = folder.path().join(program);
        std::fs::write(&path, script).expect("a script");
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("it may run");
    }
    folder
}

#[test]
fn programs_of_a_folder_that_is_named_are_used_instead_of_those_that_are_built() {
    let folder = folder_of_programs(&["etcd", "kube-apiserver", "kubectl"]);
    let own = std::env::current_exe().expect("this test");
    let output = Command::new(own)
        .args(["--exact", "plane_itself::an_api_server_that_crashes_comes_back_with_its_objects"])
        .env("KUBEBUILDER_ASSETS", folder.path())
        .output()
        .expect("a test process");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
    let started = std::fs::read_to_string(folder.path().join("started")).expect("something was started");
    let mut started: Vec<&str> = started.lines().collect();
    started.sort();
    assert_eq!(started, ["etcd", "kube-apiserver", "kube-apiserver", "kubectl"], "one of them crashed once");
}

#[test]
fn a_folder_that_is_named_and_lacks_a_program_is_an_error_that_says_so() {
    let folder = folder_of_programs(&["etcd", "kube-apiserver"]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/control-plane/ensure");
    let output = Command::new(script).env("KUBEBUILDER_ASSETS", folder.path()).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty(), "no folder is named");
    let said = String::from_utf8_lossy(&output.stderr);
    let named = format!("KUBEBUILDER_ASSETS={} holds no kubectl; unset it", folder.path().display());
    assert!(said.contains(&named), "{said}");
}
