//! The program itself, with the rights that `deploy/` gives it and no others, on a real control plane.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::shipped::rendered;
use crate::plane::{Plane, Size, bound, collection_of, path_of};

/// The machine that compiles is the machine that runs all this.
const PATIENCE: Duration = Duration::from_secs(120);

/// With default spreads, for which more has to be read: the plain manifests, which have none, are used by all other live tests.
fn chart() -> Vec<Value> {
    let constraint = json!({
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway",
    });
    let spread = json!({"podTopologySpread": {"defaultConstraints": [constraint]}});
    rendered(&["--set-json", &format!("schedulerConfig={spread}")])
}

/// The program as its Deployment runs it, but outside of the cluster, with everything that it writes in `folder`.
fn provisor(folder: &Path, kubeconfig: &Path, [monitoring, probes]: [SocketAddr; 2]) -> Running {
    let fleet = starter_fleet(folder);
    let objects = chart();
    let deployment = objects.iter().find(|object| object["kind"] == "Deployment").expect("a deployment");
    let arguments =
        deployment["spec"]["template"]["spec"]["containers"][0]["args"].as_array().expect("a list");
    let here = |argument: &str| match argument.split_once('=').unwrap_or((argument, "")).0 {
        "--repo" => format!("--repo={}", fleet.display()),
        "--metrics-address" => format!("--metrics-address={monitoring}"),
        "--health-address" => format!("--health-address={probes}"),
        _ => argument.to_owned(),
    };
    let mut command = bound::command(env!("CARGO_BIN_EXE_provisor"));
    command.args(arguments.iter().map(|argument| here(argument.as_str().expect("text"))));
    // What its pod would say.
    command.args(["--namespace", "provisor", "--kubeconfig"]).arg(kubeconfig);
    command.env("XDG_CACHE_HOME", folder).env("HOME", folder).stdin(Stdio::null());
    let file = std::fs::File::create(folder.join("log")).expect("a log");
    command.stdout(file.try_clone().expect("a log")).stderr(file);
    Running(bound::spawn(command).expect("it starts"))
}

/// Rows: OBS-018
#[test]
fn it_never_gets_ready_in_a_cluster_without_the_kinds() {
    let plane = Plane::start(Size::Objects);
    let folder = TempDir::new().expect("a temporary directory");
    plane
        .api
        .apply(
            "/api/v1/namespaces/provisor",
            &json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "provisor"},
            }),
        )
        .expect("a namespace");
    let addresses = [free_address(), free_address()];
    let mut running = provisor(folder.path(), plane.kubeconfig(), addresses);
    let start = Instant::now();
    let ended = loop {
        assert!(!ask(addresses[1], "/readyz").starts_with("HTTP/1.1 200"), "it is not ready");
        if let Some(ended) = running.0.try_wait().expect("it is ours") {
            break ended;
        }
        assert!(start.elapsed() < PATIENCE, "it waits for nothing");
        std::thread::sleep(Duration::from_millis(50));
    };
    let said = std::fs::read_to_string(folder.path().join("log")).expect("a log");
    assert_eq!(ended.code(), Some(2), "{said}");
    assert!(said.contains("the cluster has no NodePool"), "{said}");
}

/// Rows: OBS-018
#[test]
fn the_shipped_rights_are_enough_from_a_commit_to_running_pods() {
    let plane = Plane::start(Size::Everything);
    plane.install_kinds();
    let home = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "provisor"}});
    for object in [home].iter().chain(&chart()).filter(|object| object["kind"] != "Deployment") {
        plane.api.apply(&path_of(object), object).expect("it is accepted");
    }
    let account = plane.service_account("provisor", "provisor");
    let folder = TempDir::new().expect("a temporary directory");
    let addresses @ [monitoring, probes] = [free_address(), free_address()];
    let mut running = provisor(folder.path(), &account, addresses);
    let log = folder.path().join("log");
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
    // The process may hear of it a little later than we do.
    let started = "karpenter_pods_startup_duration_seconds_count 3";
    wait("their start is counted", &|| ask(monitoring, "/metrics").contains(started));
    let scraped = ask(monitoring, "/metrics");
    for line in [
        "karpenter_nodeclaims_created_total{reason=\"provisioned\"",
        "karpenter_cluster_state_synced 1",
        "karpenter_cluster_state_unsynced_time_seconds 0.0",
        "karpenter_cloudprovider_duration_seconds_count{controller=\"nodeclaim.lifecycle\",method=\"Create\",provider=\"simulated\"}",
        "karpenter_nodes_allocatable{",
    ] {
        assert!(scraped.contains(line), "no `{line}` in {scraped}");
    }

    for owned in [
        "/apis/coordination.k8s.io/v1/namespaces/provisor/leases/provisor.dev",
        "/api/v1/namespaces/provisor/configmaps/provisor.dev.inventory",
    ] {
        plane.api.get(owned).expect(owned);
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

pub fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|held| held.local_addr()).expect("a port on loopback")
}

pub fn ask(address: SocketAddr, path: &str) -> String {
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
