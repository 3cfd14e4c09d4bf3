//! The simulator's kube-scheduler beside the real one: random nodes and pods, one pod after the other, and for each the same answer.
//!
//! Both see the same objects: the pods that are there are where the real one put them. Among nodes of the highest score it chooses
//! by chance, so its node has to be one of those that the model scores highest; and where the model finds none, it must find none.
//! docs/reference/reliability.md says what the comparison came to and how to repeat it.

mod draw;

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use provisor::api::Reader;
use provisor::capacity::cluster::Cluster;
use provisor::model::name::NodeName;
use provisor::model::observation::Observation;
use provisor::model::pod::Pod;
use provisor::simulator::scheduler::rank;
use serde_json::{Value, json};

use crate::plane::{Plane, Size, collection_of, path_of};

/// The sets of every run of the tests.
const SEEDS: RangeInclusive<u64> = 1..=100;
/// Other ones, such as `1-1000`, or `17` to repeat one.
const CHOSEN: &str = "PROVISOR_SCHEDULER_SETS";
const PATIENCE: Duration = Duration::from_secs(60);

fn seeds() -> RangeInclusive<u64> {
    let Ok(chosen) = std::env::var(CHOSEN) else { return SEEDS };
    let (first, last) = chosen.split_once('-').unwrap_or((&chosen, &chosen));
    let number = |text: &str| text.parse().unwrap_or_else(|_| panic!("{CHOSEN}={chosen} is no range"));
    number(first)..=number(last)
}

/// What one pod was answered.
#[derive(Debug)]
struct Verdict {
    /// Where the real one put it.
    real: Option<NodeName>,
    /// Every node that would do in the model's eyes, with its score.
    model: BTreeMap<NodeName, i64>,
}

impl Verdict {
    fn is_same(&self) -> bool {
        let best = self.model.values().max();
        match &self.real {
            None => best.is_none(),
            Some(node) => self.model.get(node).is_some_and(|score| Some(score) == best),
        }
    }
}

/// A control plane in which nobody but kube-scheduler acts.
struct Arena {
    plane: Plane,
    /// What every set sees: namespaces, Services, ReplicaSets.
    furniture: Vec<Value>,
}

impl Arena {
    fn new() -> Self {
        let plane = Plane::start(Size::Scheduled);
        let mut objects = vec![json!({
            "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": { "name": draw::URGENT },
            "value": 1000, "preemptionPolicy": "Never",
        })];
        for (namespace, stage) in draw::NAMESPACES.into_iter().zip(["prod", "dev"]) {
            let (name, app) = draw::REPLICAS_OF;
            let labels = json!({ "app": app });
            objects.extend([
                json!({
                    "apiVersion": "v1", "kind": "Namespace",
                    "metadata": { "name": namespace, "labels": { "stage": stage } },
                }),
                json!({
                    "apiVersion": "v1", "kind": "Service", "metadata": { "name": "served", "namespace": namespace },
                    "spec": { "selector": { "app": draw::SERVED }, "ports": [{ "port": 80 }] },
                }),
                json!({
                    "apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": { "name": name, "namespace": namespace },
                    "spec": { "replicas": 0, "selector": { "matchLabels": labels }, "template": {
                        "metadata": { "labels": labels },
                        "spec": { "containers": [{ "name": "main", "image": "pause" }] },
                    } },
                }),
            ]);
        }
        let make = |object: &Value| plane.api.post(&collection_of(object), object).expect("it is made");
        let furniture = objects.iter().map(make).collect();
        Self { plane, furniture }
    }

    fn make(&self, object: &Value) -> Value {
        self.plane.api.post(&collection_of(object), object).expect("it is made")
    }

    /// The pod when kube-scheduler has judged it.
    fn judged(&self, pod: &Value) -> Value {
        let (path, start) = (path_of(pod), Instant::now());
        loop {
            let pod = self.plane.api.get(&path).expect("it is there");
            let is_refused = pod["status"]["conditions"].as_array().into_iter().flatten().any(|condition| {
                condition["type"] == "PodScheduled" && condition["reason"] == "Unschedulable"
            });
            if is_refused || pod["spec"]["nodeName"].is_string() {
                return pod;
            }
            assert!(start.elapsed() < PATIENCE, "nobody judged {pod}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Makes a set, lets both answer for each of its pods, and removes it.
    fn play(&self, seed: u64) -> Vec<Verdict> {
        let set = draw::set(seed);
        let mut objects: Vec<Value> = self.furniture.clone();
        objects.extend(set.nodes.iter().map(|node| self.make(node)));
        // Before anybody is there who would keep it away.
        objects.push(self.herald(seed));
        for (at, pod) in set.settled.iter().enumerate() {
            let made = self.make(pod);
            // Without a kubelet it never goes.
            objects.push(if set.leaving.contains(&at) {
                self.plane.api.delete(&path_of(&made)).expect("it is going");
                self.plane.api.get(&path_of(&made)).expect("it is still there")
            } else {
                made
            });
        }
        let mut verdicts = Vec::new();
        for pod in &set.waiting {
            let made = self.make(pod);
            let model = rank(&cluster_of(&objects), &pod_of(&made));
            let judged = self.judged(&made);
            let real = judged["spec"]["nodeName"].as_str().map(|name| NodeName(name.into()));
            match real {
                Some(_) => objects.push(judged),
                // It would be tried again when others have come.
                None => drop(self.plane.api.delete(&path_of(pod)).expect("deleted")),
            }
            verdicts.push(Verdict { real, model });
        }
        for namespace in draw::NAMESPACES {
            let path = format!("/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0");
            self.plane.api.delete(&path).expect("deleted");
        }
        self.plane.api.delete("/api/v1/nodes").expect("deleted");
        verdicts
    }

    /// A pod for the last node of a set: once it is bound, kube-scheduler knows all nodes of the set and no others.
    fn herald(&self, seed: u64) -> Value {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": format!("herald-{seed}"), "namespace": draw::NAMESPACES[0] },
            "spec": {
                "nodeSelector": { (draw::LAST): format!("s{seed}") },
                "tolerations": [{ "operator": "Exists" }],
                "containers": [{ "name": "main", "image": "pause" }],
            },
        });
        let (pod, start) = (self.make(&pod), Instant::now());
        loop {
            let judged = self.judged(&pod);
            if judged["spec"]["nodeName"].is_string() {
                return judged;
            }
            assert!(start.elapsed() < PATIENCE, "the nodes of set {seed} are not seen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn observation_of(object: &Value) -> Option<Observation> {
    Reader::default().parse(object).unwrap_or_else(|errors| panic!("{errors:?}: {object}")).into_observation()
}

fn cluster_of(objects: &[Value]) -> Cluster {
    let mut cluster = Cluster::default();
    for seen in objects.iter().filter_map(observation_of) {
        cluster.observe(Timestamp::UNIX_EPOCH, &seen);
    }
    cluster
}

fn pod_of(object: &Value) -> Arc<Pod> {
    match observation_of(object) {
        Some(Observation::Pod(pod)) => pod,
        other => panic!("a pod is read as {other:?}"),
    }
}

#[test]
fn the_model_chooses_what_the_real_one_chooses() {
    let arena = Arena::new();
    let (seeds, start) = (seeds(), Instant::now());
    let (mut sets, mut same_sets, mut pods, mut same_pods, mut homeless) = (0, 0, 0, 0, 0);
    let mut differences = Vec::new();
    for seed in seeds {
        let verdicts = arena.play(seed);
        let different: Vec<_> =
            verdicts.iter().enumerate().filter(|(_, verdict)| !verdict.is_same()).collect();
        sets += 1;
        same_sets += usize::from(different.is_empty());
        pods += verdicts.len();
        same_pods += verdicts.len() - different.len();
        homeless += verdicts.iter().filter(|verdict| verdict.real.is_none()).count();
        for (at, verdict) in different {
            let waiting = &draw::set(seed).waiting[at];
            differences.push(format!("set {seed}, pod {at}: {verdict:?}\n  {waiting}"));
        }
    }
    eprintln!(
        "{same_sets} of {sets} sets and {same_pods} of {pods} pods alike, {homeless} without a node, in {:?}",
        start.elapsed()
    );
    let list = differences.join("\n");
    eprintln!("{list}");
    assert!(same_sets * 100 >= sets * 99, "{same_sets} of {sets} sets are alike\n{list}");
    assert!(homeless * 20 > pods, "some pods must find no place, or filters are not compared: {homeless}");
    assert!(homeless * 2 < pods, "most pods must find one, or scores are not compared: {homeless}");
}
