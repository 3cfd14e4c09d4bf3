//! The kubelets of simulated machines: they make Node objects, keep their leases, run pods by saying so, and let them go.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use jiff::SignedDuration;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::api;
use crate::io::clock;
use crate::io::kube::{Kind, Kube, KubeError, Resource};
use crate::model::label::{self, annotation};
use crate::model::name::{NodeName, ObjectKey, Uid};
use crate::model::observation::{Instance, Observation};
use crate::model::offering::InstanceType;
use crate::model::owner::Owner;
use crate::model::pod::{Pod, PodPhase};
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;
use crate::simulator::kubelet::{joining_node, ready_condition};

/// How often a lease is renewed; Kubernetes gives a node up after 50 seconds.
const RENEWAL: Duration = Duration::from_secs(15);
/// From the end of a machine until its Node object is removed, if nobody else did.
const REMOVAL: Duration = Duration::from_secs(10);
/// From the time a node joins until its network is up and it is ready: so long at least, and by its name up to so much longer.
const WARM_UP: Duration = Duration::from_millis(250);
const WARM_UP_SPAN_MS: u64 = 3000;
const PAUSE_LEAST: Duration = Duration::from_millis(250);
const PAUSE_MOST: Duration = Duration::from_secs(5);
/// Requests about pods under way at once.
const WORKERS: usize = 16;
const LEASES: &str = "kube-node-lease";
const CONTAINERS: &str = "/spec/containers";
const INIT_CONTAINERS: &str = "/spec/initContainers";

/// One machine and the task that plays it.
#[derive(Debug)]
pub(super) struct Machine {
    pub instance: Instance,
    node: Option<NodeName>,
    task: Option<AbortHandle>,
    is_joined: bool,
}

impl Machine {
    pub fn new(instance: Instance) -> Self {
        Self { instance, node: None, task: None, is_joined: false }
    }

    /// Lets it boot: after `delay` its node joins, and is ready for pods when its network is up.
    /// That it is of `owner` is on the node from the beginning: if the claim is gone before it is registered, somebody has to know.
    pub fn boot(
        &mut self,
        kubelet: &Kubelet,
        kind: &InstanceType,
        taints: &[Taint],
        delay: SignedDuration,
        owner: Option<Owner>,
    ) {
        let now = clock::now();
        let mut node = joining_node(&self.instance, kind, taints, now);
        node.taints.retain(|taint| !taint.key.starts_with("node.kubernetes.io/"));
        node.labels.insert(*label::CAPACITY_TYPE, self.instance.capacity_type.symbol());
        let name_of = |owner: Owner| Symbol::new(&owner.to_string());
        node.annotations.extend(owner.map(|owner| (*annotation::OWNER, name_of(owner))));
        if kubelet.plays {
            node.conditions = vec![ready_condition(false, now)];
        } else {
            node.conditions.clear();
        }
        self.node = Some(node.name);
        let mut object = api::render_node(&node);
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("uid");
            metadata.remove("creationTimestamp");
        }
        let delay = Duration::try_from(delay).unwrap_or_default();
        let kubelet = kubelet.clone();
        self.start(async move {
            tokio::time::sleep(delay).await;
            kubelet.join(&object).await;
            kubelet.keep_alive(node.name).await;
        });
    }

    /// Its node is there, made by us or by a former process.
    pub fn joined(&mut self, kubelet: &Kubelet, node: NodeName) {
        if std::mem::replace(&mut self.is_joined, true) || self.task.is_some() {
            return;
        }
        self.node = Some(node);
        let kubelet = kubelet.clone();
        self.start(async move { kubelet.keep_alive(node).await });
    }

    /// Another process plays it from now on.
    pub fn give_away(self, kubelet: &Kubelet) {
        if let Some(node) = self.node {
            kubelet.state().nodes.remove(&node);
        }
    }

    /// The machine stops: so do its pods, and after a while the node is nobody's.
    pub fn end(mut self, kubelet: &Kubelet) {
        if let Some(node) = self.node.take() {
            let kubelet = kubelet.clone();
            tokio::spawn(async move { kubelet.clean_up(node).await });
        }
    }

    fn start(&mut self, life: impl Future<Output = ()> + Send + 'static) {
        self.task = Some(tokio::spawn(life).abort_handle());
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// What all kubelets share.
#[derive(Clone, Debug)]
pub struct Kubelet {
    kube: Kube,
    /// Otherwise only Node objects are made.
    plays: bool,
    state: Arc<Mutex<State>>,
    work: mpsc::UnboundedSender<Work>,
}

#[derive(Debug, Default)]
struct State {
    nodes: BTreeSet<NodeName>,
    pods: BTreeMap<NodeName, BTreeMap<ObjectKey, Arc<Pod>>>,
    /// Where each pod is, for when it is gone.
    places: BTreeMap<ObjectKey, NodeName>,
    /// What was asked for already, so that the same news does not ask again.
    asked: BTreeSet<(Uid, bool)>,
}

#[derive(Debug)]
enum Work {
    Run(Arc<Pod>),
    Remove(ObjectKey, Uid),
}

impl Kubelet {
    pub fn new(kube: Kube, plays: bool) -> Self {
        let (work, orders) = mpsc::unbounded_channel();
        let orders = Arc::new(tokio::sync::Mutex::new(orders));
        for _ in 0..WORKERS {
            let (kube, orders) = (kube.clone(), orders.clone());
            tokio::spawn(async move {
                loop {
                    let next = orders.lock().await.recv().await;
                    let Some(next) = next else { return };
                    carry_out(&kube, next).await;
                }
            });
        }
        Self { kube, plays, state: Arc::default(), work }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the kubelets' state panics")
    }

    /// Takes in pods that were bound, or have to go.
    pub fn observe(&self, seen: &Observation) {
        if !self.plays {
            return;
        }
        match seen {
            Observation::Pod(pod) => {
                let Some(node) = pod.node else { return };
                let mut state = self.state();
                state.places.insert(pod.key, node);
                state.pods.entry(node).or_default().insert(pod.key, pod.clone());
                if state.nodes.contains(&node) {
                    self.attend(&mut state, pod);
                }
            }
            Observation::PodGone(key) => {
                let mut state = self.state();
                if let Some(node) = state.places.remove(key)
                    && let Some(pods) = state.pods.get_mut(&node)
                    && let Some(pod) = pods.remove(key)
                {
                    state.asked.remove(&(pod.uid, true));
                    state.asked.remove(&(pod.uid, false));
                }
            }
            _ => {}
        }
    }

    fn attend(&self, state: &mut State, pod: &Arc<Pod>) {
        let work = match (pod.deleted, pod.phase) {
            (Some(_), _) if state.asked.insert((pod.uid, true)) => Work::Remove(pod.key, pod.uid),
            (None, PodPhase::Pending) if state.asked.insert((pod.uid, false)) => Work::Run(pod.clone()),
            _ => return,
        };
        drop(self.work.send(work));
    }

    /// Makes the Node object, however often the API server has to be asked.
    async fn join(&self, node: &Value) {
        insist(|| async {
            match self.kube.create(Kind::Node.resource(), None, node).await {
                Err(error) if error.already_exists() => Ok(()),
                answer => answer.map(drop),
            }
        })
        .await;
    }

    /// Gets the node ready, renews its lease, and attends to its pods, until the task is stopped.
    async fn keep_alive(&self, node: NodeName) {
        if !self.plays {
            return;
        }
        {
            let mut state = self.state();
            state.nodes.insert(node);
            let pods: Vec<Arc<Pod>> =
                state.pods.get(&node).into_iter().flat_map(|pods| pods.values().cloned()).collect();
            pods.iter().for_each(|pod| self.attend(&mut state, pod));
        }
        tokio::join!(self.warm_up(node), self.renew(node));
    }

    /// A node is ready a while after it joined, each after its own; one that is ready already stays so.
    async fn warm_up(&self, node: NodeName) {
        let name = node.as_str();
        tokio::time::sleep(WARM_UP + Duration::from_millis(number_of(node.0) % WARM_UP_SPAN_MS)).await;
        let status = json!({ "status": { "conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady",
            "message": "the simulated kubelet is ready",
            "lastHeartbeatTime": clock::now_in_seconds().to_string(),
            "lastTransitionTime": clock::now_in_seconds().to_string(),
        }] } });
        insist(|| async {
            let Some(object) = self.kube.get(Kind::Node.resource(), None, name).await? else { return Ok(()) };
            let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
            let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
            if conditions.is_some_and(|conditions| conditions.iter().any(is_ready)) {
                return Ok(());
            }
            self.kube.merge(Kind::Node.resource(), None, name, Some("status"), &status).await.map(drop)
        })
        .await;
    }

    async fn renew(&self, node: NodeName) {
        let mut is_made = false;
        let mut uid = None;
        loop {
            if uid.is_none() {
                uid = self.uid_of(node).await;
            }
            let lease = lease(node, uid.as_deref());
            let answer = if is_made {
                let change = json!({ "spec": lease["spec"] });
                self.kube.merge(Resource::LEASE, Some(LEASES), node.as_str(), None, &change).await
            } else {
                self.kube.apply(Resource::LEASE, Some(LEASES), node.as_str(), None, &lease).await
            };
            match answer {
                Ok(_) => is_made = true,
                Err(error) => {
                    is_made &= !error.is_missing();
                    tracing::debug!("the lease of {node} was not renewed: {error}");
                }
            }
            tokio::time::sleep(RENEWAL).await;
        }
    }

    async fn uid_of(&self, node: NodeName) -> Option<String> {
        let object = self.kube.get(Kind::Node.resource(), None, node.as_str()).await.ok()??;
        object.pointer("/metadata/uid").and_then(Value::as_str).map(str::to_owned)
    }

    /// What a machine leaves behind: pods that nobody runs any more, and its node.
    async fn clean_up(&self, node: NodeName) {
        let pods = {
            let mut state = self.state();
            state.nodes.remove(&node);
            let pods = state.pods.remove(&node).unwrap_or_default();
            for pod in pods.values() {
                state.asked.remove(&(pod.uid, true));
                state.asked.remove(&(pod.uid, false));
            }
            pods
        };
        for pod in pods.into_values().filter(|pod| !pod.is_terminal()) {
            drop(self.work.send(Work::Remove(pod.key, pod.uid)));
        }
        tokio::time::sleep(REMOVAL).await;
        let name = node.as_str();
        let delete = async |resource, namespace| {
            self.kube.delete(resource, namespace, name, None, None).await.map(drop)
        };
        insist(|| delete(Kind::Node.resource(), None)).await;
        if self.plays {
            insist(|| delete(Resource::LEASE, Some(LEASES))).await;
        }
    }
}

/// Repeats a request until it is answered, or refused for what it is. An API server that has just started knows nobody's rights
/// yet: a node whose kubelet believed that would never be ready.
async fn insist<F: Future<Output = Result<(), KubeError>>>(request: impl Fn() -> F) {
    let mut pause = PAUSE_LEAST;
    let mut is_told = false;
    loop {
        match request().await {
            Ok(()) => return,
            Err(error) if error.is_transient() => {}
            Err(error) if error.is_forbidden() => {
                if !std::mem::replace(&mut is_told, true) {
                    tracing::warn!("simulated kubelet: {error}; trying again");
                }
            }
            Err(error) => return tracing::warn!("simulated kubelet: {error}"),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(PAUSE_MOST);
    }
}

async fn carry_out(kube: &Kube, work: Work) {
    let resource = Kind::Pod.resource();
    match work {
        Work::Run(pod) => {
            let (namespace, name) = (pod.key.namespace.as_str(), pod.key.name);
            insist(|| async {
                // What is observed of pods leaves out what their containers are called.
                let Some(object) = kube.get(resource, Some(namespace), &name).await? else { return Ok(()) };
                let status = json!({ "status": running(pod.uid, &object) });
                match kube.merge(resource, Some(namespace), &name, Some("status"), &status).await {
                    Err(error) if error.is_missing() => Ok(()),
                    answer => answer.map(drop),
                }
            })
            .await;
        }
        Work::Remove(key, uid) => {
            let namespace = Some(key.namespace.as_str());
            insist(|| async {
                match kube.delete(resource, namespace, &key.name, Some(uid.as_str()), Some(0)).await {
                    Err(error) if error.is_conflict() => Ok(()),
                    answer => answer.map(drop),
                }
            })
            .await;
        }
    }
}

/// The status of a pod all of whose containers run; `object` is the pod as the API server has it.
fn running(uid: Uid, object: &Value) -> Value {
    let now = clock::now_in_seconds().to_string();
    let condition = |kind: &str| json!({ "type": kind, "status": "True", "lastTransitionTime": now });
    let kinds = ["PodScheduled", "Initialized", "ContainersReady", "Ready"];
    let ran = json!({ "terminated": { "exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now } });
    let runs = json!({ "running": { "startedAt": now } });
    let containers = |field: &str| -> Vec<Value> {
        let list = object.pointer(field).and_then(Value::as_array);
        let status = |container: &Value| {
            let runs_on = field == CONTAINERS || container["restartPolicy"] == "Always";
            json!({
                "name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0,
                "ready": true, "started": runs_on, "state": if runs_on { &runs } else { &ran },
            })
        };
        list.into_iter().flatten().map(status).collect()
    };
    json!({
        "phase": "Running",
        "startTime": now,
        "podIP": address(uid.0),
        "podIPs": [{ "ip": address(uid.0) }],
        "conditions": kinds.map(condition),
        "containerStatuses": containers(CONTAINERS),
        "initContainerStatuses": containers(INIT_CONTAINERS),
    })
}

/// Some address, so that endpoints are made.
fn address(uid: Symbol) -> String {
    let [.., a, b, c] = number_of(uid).to_be_bytes();
    format!("10.{}.{b}.{}", a % 250, c.clamp(1, 254))
}

/// A number of the name's own, the same in every process.
fn number_of(name: Symbol) -> u64 {
    name.bytes().fold(7, |sum: u64, byte| sum.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// As a kubelet makes it: it goes with its node, whoever deletes that.
fn lease(node: NodeName, uid: Option<&str>) -> Value {
    let now = format!("{:.6}", clock::now());
    let mut lease = json!({
        "apiVersion": Resource::LEASE.api_version,
        "kind": Resource::LEASE.kind,
        "metadata": { "name": node.as_str(), "namespace": LEASES },
        "spec": { "holderIdentity": node.as_str(), "leaseDurationSeconds": 40, "renewTime": now },
    });
    if let Some(uid) = uid {
        lease["metadata"]["ownerReferences"] =
            json!([{ "apiVersion": "v1", "kind": "Node", "name": node.as_str(), "uid": uid }]);
    }
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the API server wants them: what runs, what ran before it, and what runs beside.
    #[test]
    fn every_container_of_a_pod_has_its_status() {
        let object = json!({
            "spec": {
                "containers": [{ "name": "main", "image": "shop:1" }, { "name": "log", "image": "log:2" }],
                "initContainers": [
                    { "name": "migrate", "image": "shop:1" },
                    { "name": "proxy", "image": "proxy:3", "restartPolicy": "Always" },
                ],
            },
        });
        let status = running(Uid::new("1"), &object);
        let told = |field: &str| {
            let list = status[field].as_array().expect("a list");
            let word = |one: &Value| {
                let state = one["state"].as_object().and_then(|state| state.keys().next().cloned());
                let [name, image] = ["name", "image"].map(|key| one[key].as_str().unwrap_or_default());
                format!("{name} {image} {} {}", state.unwrap_or_default(), one["ready"])
            };
            list.iter().map(word).collect::<Vec<_>>()
        };
        assert_eq!(told("containerStatuses"), ["main shop:1 running true", "log log:2 running true"]);
        assert_eq!(
            told("initContainerStatuses"),
            ["migrate shop:1 terminated true", "proxy proxy:3 running true"]
        );
    }
}
