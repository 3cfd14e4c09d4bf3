//! Kubelets that are no part of Provisor: they outlive its processes, as those of real machines do, and some misbehave.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::bench::{Bench, has_ended, text};
use crate::plane::Api;

/// With this nobody else plays them.
pub const LEFT_TO_US: &str = "--no-simulated-kubelets";
/// A node with this label never becomes ready.
pub const BROKEN: &str = "broken";

const TURN: Duration = Duration::from_millis(200);
const RENEWAL: Duration = Duration::from_secs(10);

/// They end with the value.
pub struct Kubelets {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelets {
    pub fn start(bench: &Bench) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let (ended, kubeconfig) = (is_over.clone(), bench.plane.kubeconfig().to_owned());
        let thread = std::thread::spawn(move || {
            let (api, mut renewed) = (Api::of(&kubeconfig), BTreeMap::new());
            while !ended.load(Ordering::Relaxed) {
                tend_nodes(&api, &mut renewed);
                tend_pods(&api);
                std::thread::sleep(TURN);
            }
        });
        Self { is_over, thread: Some(thread) }
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// Whatever cannot be read now is read the next time.
fn list(api: &Api, path: &str) -> Vec<Value> {
    let answer = api.try_send("GET", path, "application/json", Vec::new());
    answer.and_then(|answer| answer.body["items"].as_array().cloned()).unwrap_or_default()
}

fn tend_nodes(api: &Api, renewed: &mut BTreeMap<String, Instant>) {
    for node in list(api, "/api/v1/nodes") {
        let name = text(&node, "/metadata/name");
        // What its pool says of it is on the node once that is registered.
        let is_known = text(&node, "/metadata/labels/karpenter.sh~1registered") == "true";
        if !is_known || !text(&node, &format!("/metadata/labels/{BROKEN}")).is_empty() {
            continue;
        }
        if renewed.get(name).is_none_or(|at| at.elapsed() > RENEWAL) {
            let lease = json!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": { "name": name, "namespace": "kube-node-lease" },
                "spec": {
                    "holderIdentity": name, "leaseDurationSeconds": 40,
                    "renewTime": format!("{:.6}", Timestamp::now()),
                },
            });
            let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
            if api.apply(&path, &lease).is_success() {
                renewed.insert(name.to_owned(), Instant::now());
            }
        }
        if !super::bench::is_true(&node, "Ready") {
            let now = now();
            let ready = json!({ "status": { "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }] } });
            // It may be gone meanwhile.
            api.patch(&format!("/api/v1/nodes/{name}/status"), &ready);
        }
    }
}

fn tend_pods(api: &Api) {
    for pod in list(api, "/api/v1/pods") {
        if text(&pod, "/spec/nodeName").is_empty() {
            continue;
        }
        let (namespace, name) = (text(&pod, "/metadata/namespace"), text(&pod, "/metadata/name"));
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}");
        if has_ended(&pod) {
            api.delete(&format!("{path}?gracePeriodSeconds=0"));
        } else if pod["metadata"]["deletionTimestamp"].is_null() && text(&pod, "/status/phase") == "Pending" {
            let now = now();
            let kinds = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
            let conditions =
                kinds.map(|kind| json!({ "type": kind, "status": "True", "lastTransitionTime": now }));
            let status = json!({ "phase": "Running", "startTime": now, "conditions": conditions });
            api.patch(&format!("{path}/status"), &json!({ "status": status }));
        }
    }
}

/// As kubelets write it, to the second.
fn now() -> String {
    let now = Timestamp::now();
    Timestamp::from_second(now.as_second()).unwrap_or(now).to_string()
}
