//! The program itself, with the rights that `deploy/` gives it and no others, on a real control plane.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::manifests;
use crate::plane::{Plane, Size, bound, collection_of, path_of};

/// The machine that compiles is the machine that runs all this.
const PATIENCE: Duration = Duration::from_secs(120);

#[test]
fn the_shipped_rights_are_enough_from_a_commit_to_running_pods() {
    let plane = Plane::start(Size::Everything);
    plane.install_kinds();
    for object in manifests("deploy/manifests").iter().filter(|object| object["kind"] != "Deployment") {
        plane.api.apply(&path_of(object), object).expect("it is accepted");
    }
    let account = plane.service_account("provisor", "provisor");
    let folder = TempDir::new().expect("a temporary directory");
    let fleet = starter_fleet(folder.path());
    let (monitoring, probes) = (free_address(), free_address());
    let mut command = bound::command(env!("CARGO_BIN_EXE_provisor"));
    command.args([
        "run",
        "--env",
        "dev",
        "--cloud",
        "simulated",
        "--namespace",
        "provisor",
        "--output",
        "json",
        "--log-format",
        "json",
    ]);
    command.arg("--repo").arg(&fleet).arg("--kubeconfig").arg(&account);
    command.args(["--metrics-address", &monitoring.to_string(), "--health-address", &probes.to_string()]);
    command.env("XDG_CACHE_HOME", folder.path()).env("HOME", folder.path()).stdin(Stdio::null());
    let log = folder.path().join("log");
    let file = std::fs::File::create(&log).expect("a log");
    command.stdout(file.try_clone().expect("a log")).stderr(file);
    let mut running = Running(bound::spawn(command).expect("it starts"));
    let said = || std::fs::read_to_string(&log).unwrap_or_default();

    let mut wait = |what: &str, is_so: &dyn Fn() -> bool| {
        let start = Instant::now();
        while !is_so() {
            let ended = running.0.try_wait().expect("it is ours");
            let is_over = ended.is_some() || start.elapsed() > PATIENCE;
            assert!(!is_over, "{what}, after {:?}: {ended:?}\n{}", start.elapsed(), said());
            std::thread::sleep(Duration::from_millis(200));
        }
    };
    wait("it gets ready", &|| ask(probes, "/readyz").starts_with("HTTP/1.1 200"));
    assert!(ask(probes, "/healthz").starts_with("HTTP/1.1 200"));
    let pools = "/apis/karpenter.sh/v1/nodepools";
    wait("pools are applied", &|| has_items(&plane.api.get(pools).body, |_| true));

    let namespace = plane.namespace("shop");
    let labels = json!({"app": "web"});
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web", "namespace": namespace},
        "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": {
            "metadata": {"labels": labels},
            "spec": {"containers": [
                {"name": "web", "image": "web", "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}}},
            ]},
        }},
    });
    plane.api.post(&collection_of(&deployment), &deployment).expect("a deployment");
    let pods = format!("/api/v1/namespaces/{namespace}/pods");
    let runs = |pod: &Value| pod["status"]["phase"] == "Running";
    wait("its pods run", &|| {
        let found = plane.api.get(&pods).body;
        has_items(&found, runs) && found["items"].as_array().is_some_and(|pods| pods.len() == 3)
    });
    let scraped = ask(monitoring, "/metrics");
    for line in
        ["karpenter_nodeclaims_created_total{reason=\"provisioned\"", "karpenter_cluster_state_synced 1"]
    {
        assert!(scraped.contains(line), "no `{line}` in {scraped}");
    }

    plane.api.patch(&path_of(&deployment), &json!({"spec": {"replicas": 0}})).expect("nothing is wanted");
    wait("what nobody needs is given back", &|| {
        let claims = plane.api.get("/apis/karpenter.sh/v1/nodeclaims").body;
        claims["items"].as_array().is_some_and(Vec::is_empty)
    });
    let said = said();
    assert!(!said.to_lowercase().contains("forbidden"), "it lacks a right:\n{said}");
    for line in said.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok_and(|line| line.is_object()), "no JSON: {line}");
    }
}

/// Whether there are objects and all of them are so.
fn has_items(list: &Value, is_so: impl Fn(&Value) -> bool) -> bool {
    list["items"].as_array().is_some_and(|items| !items.is_empty() && items.iter().all(is_so))
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.kill().and_then(|()| self.0.wait()).ok();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("a port on loopback")
}

fn ask(address: SocketAddr, path: &str) -> String {
    let mut answer = String::new();
    if let Ok(mut stream) = TcpStream::connect(address) {
        let request = format!("GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).and_then(|()| stream.read_to_string(&mut answer)).ok();
    }
    answer
}

/// What `provisor init` makes: a repository of one commit.
fn starter_fleet(folder: &Path) -> std::path::PathBuf {
    let fleet = folder.join("fleet");
    let made = assert_cmd::Command::cargo_bin("provisor")
        .expect("the program is built")
        .args(["init", "fleet", "--name", "shop"])
        .current_dir(folder)
        .output()
        .expect("it runs");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    fleet
}
