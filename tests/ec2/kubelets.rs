//! The machines of the emulated EC2 as nodes: whatever runs there reads its user data, and joins the cluster that this names.
//!
//! They do what kubelets and a cloud's node controller do: a Node with a provider id, a lease, pods that run and let go, and no
//! Node any more once the machine is gone. They know nothing of Provisor but what they were told on their first boot.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use provisor::model::catalog::Catalog;
use provisor::model::label;
use provisor::model::offering::InstanceType;
use provisor::model::quantity::Resources;
use provisor::model::requirement::Requirement;
use serde_json::{Value, json};

use super::emulator::REGION;
use super::userdata::{self, Told};
use crate::bench::{has_ended, text};
use crate::plane::{Answer, Api};

const TURN: Duration = Duration::from_millis(200);
const RENEWAL: Duration = Duration::from_secs(10);

/// They end with the value.
pub struct Kubelets {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Kubelets {
    /// Machines of the emulator at `url` join the API server that `kubeconfig` names, if that is what they are told.
    pub fn start(url: &str, kubeconfig: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut floor = Floor::new(url, kubeconfig);
        let ended = stop.clone();
        let thread = std::thread::spawn(move || {
            while !ended.load(Ordering::Relaxed) {
                floor.turn();
                std::thread::sleep(TURN);
            }
        });
        Self { stop, thread: Some(thread) }
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("it ran").expect("no kubelet panics");
        }
    }
}

/// Where the machines stand.
struct Floor {
    api: Api,
    http: reqwest::blocking::Client,
    url: String,
    cluster: Value,
    types: Vec<InstanceType>,
    nodes: BTreeMap<String, Running>,
}

struct Running {
    node: String,
    renewed: Instant,
}

/// Where a cluster is, as a kubeconfig says it.
fn cluster_of(kubeconfig: &Path) -> Value {
    let file = std::fs::read_to_string(kubeconfig).expect("a kubeconfig");
    let file: Value = serde_saphyr::from_str(&file).expect("YAML");
    file["clusters"][0]["cluster"].clone()
}

/// The address of the API server.
pub fn endpoint_of(kubeconfig: &Path) -> String {
    text(&cluster_of(kubeconfig), "/server").to_owned()
}

impl Floor {
    fn new(url: &str, kubeconfig: &Path) -> Self {
        Self {
            api: Api::of(kubeconfig),
            http: reqwest::blocking::Client::new(),
            url: format!("{url}/_emulator/instances"),
            cluster: cluster_of(kubeconfig),
            types: Catalog::builtin(REGION).expect("a region").instance_types(None).to_vec(),
            nodes: BTreeMap::new(),
        }
    }

    fn turn(&mut self) {
        let Some(machines) = self.machines() else { return };
        for machine in &machines {
            let id = text(machine, "/id");
            let is_up = text(machine, "/state") == "running";
            if is_up && !self.nodes.contains_key(id) {
                let told = userdata::read(text(machine, "/user_data")).filter(|told| self.may_join(told));
                if let Some(told) = told {
                    self.join(machine, &told);
                }
            } else if !is_up && let Some(gone) = self.nodes.remove(id) {
                self.leave(&gone.node);
            }
        }
        self.attend();
        for running in self.nodes.values_mut().filter(|running| running.renewed.elapsed() > RENEWAL) {
            running.renewed = Instant::now();
            renew(&self.api, &running.node);
        }
    }

    /// `None` if nobody answers: the test is over.
    fn machines(&self) -> Option<Vec<Value>> {
        let answer = self.http.get(&self.url).send().ok()?.text().ok()?;
        serde_json::from_str(&answer).ok()
    }

    /// A machine that was told of another address, or does not trust the API server, waits for ever.
    fn may_join(&self, told: &Told) -> bool {
        use base64::Engine as _;
        let pem = base64::engine::general_purpose::STANDARD.decode(&told.authority).unwrap_or_default();
        let ours =
            std::fs::read_to_string(text(&self.cluster, "/certificate-authority")).expect("a certificate");
        let bare = |pem: &str| pem.split_whitespace().collect::<String>();
        told.endpoint == text(&self.cluster, "/server") && bare(&String::from_utf8_lossy(&pem)) == bare(&ours)
    }

    fn join(&mut self, machine: &Value, told: &Told) {
        let (id, zone) = (text(machine, "/id"), text(machine, "/zone"));
        let name = format!("ip-{}.ec2.internal", &id[2..]);
        let kind = self.types.iter().find(|kind| kind.name.as_str() == text(machine, "/type"));
        let kind = kind.unwrap_or_else(|| panic!("{machine} is of no type that is known"));
        let amounts = |amounts: &Resources| {
            let mut rendered: serde_json::Map<String, Value> =
                amounts.iter().map(|(name, amount)| (name.to_string(), name.render(amount).into())).collect();
            if let Some(pods) = told.max_pods {
                rendered.insert("pods".into(), pods.to_string().into());
            }
            rendered
        };
        let arch = kind.requirements.get(*label::ARCH).and_then(Requirement::single);
        let mut labels = json!({
            "kubernetes.io/hostname": name,
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": arch.map(|arch| arch.to_string()),
            "node.kubernetes.io/instance-type": kind.name.as_str(),
            "topology.kubernetes.io/region": REGION,
            "topology.kubernetes.io/zone": zone,
        });
        for (key, value) in &told.labels {
            labels[key] = value.clone().into();
        }
        let node = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": labels },
            "spec": { "providerID": format!("aws:///{zone}/{id}"), "taints": told.taints },
            "status": {
                "capacity": amounts(&kind.capacity), "allocatable": amounts(&kind.allocatable),
                "conditions": [ready()],
            },
        });
        let answer = self.send("POST", "/api/v1/nodes", &node);
        assert!(answer.is_success() || answer.code == 409, "{} {}", answer.code, answer.body);
        renew(&self.api, &name);
        self.nodes.insert(id.to_owned(), Running { node: name, renewed: Instant::now() });
    }

    /// The machine is gone, and with it what ran there; then the cloud's node controller notices.
    fn leave(&self, node: &str) {
        for pod in self.pods().iter().filter(|pod| text(pod, "/spec/nodeName") == node) {
            self.remove(pod);
        }
        self.send("DELETE", &format!("/api/v1/nodes/{node}"), &Value::Null);
        let lease = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}");
        self.send("DELETE", &lease, &Value::Null);
    }

    fn pods(&self) -> Vec<Value> {
        let answer = self.send("GET", "/api/v1/pods?fieldSelector=spec.nodeName!=", &Value::Null);
        answer.body["items"].as_array().cloned().unwrap_or_default()
    }

    /// Starts and stops pods on machines that run.
    fn attend(&self) {
        for pod in self.pods() {
            let node = text(&pod, "/spec/nodeName");
            if !self.nodes.values().any(|running| running.node == node) {
                continue;
            }
            if has_ended(&pod) {
                self.remove(&pod);
            } else if pod["metadata"]["deletionTimestamp"].is_null()
                && text(&pod, "/status/phase") == "Pending"
            {
                let conditions = ["PodScheduled", "Initialized", "ContainersReady", "Ready"]
                    .map(|kind| json!({ "type": kind, "status": "True" }));
                let status = json!({ "status": { "phase": "Running", "conditions": conditions } });
                self.api.patch(&format!("{}/status", path_of(&pod)), &status);
            }
        }
    }

    fn remove(&self, pod: &Value) {
        let options = json!({ "gracePeriodSeconds": 0, "preconditions": { "uid": pod["metadata"]["uid"] } });
        self.send("DELETE", &path_of(pod), &options);
    }

    fn send(&self, method: &str, path: &str, body: &Value) -> Answer {
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let gone = Answer { code: 503, body: Value::Null };
        self.api.try_send(method, path, "application/json", bytes).unwrap_or(gone)
    }
}

fn path_of(pod: &Value) -> String {
    format!("/api/v1/namespaces/{}/pods/{}", text(pod, "/metadata/namespace"), text(pod, "/metadata/name"))
}

/// The kubelet is there, and says so in both ways: whoever took it for lost on a busy machine learns better.
fn renew(api: &Api, node: &str) {
    let now = format!("{:.6}", jiff::Timestamp::now());
    let lease = json!({
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": { "name": node },
        "spec": { "holderIdentity": node, "leaseDurationSeconds": 40, "renewTime": now },
    });
    api.apply(&format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{node}"), &lease);
    let status = json!({ "status": { "conditions": [ready()] } });
    api.patch(&format!("/api/v1/nodes/{node}/status"), &status);
}

fn ready() -> Value {
    json!({ "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "" })
}
