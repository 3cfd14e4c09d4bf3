//! Random nodes and pods: small clusters in which every rule of kube-scheduler has something to say.

use provisor::simulator::chance::{below, happens};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::{Map, Value, json};

pub const NAMESPACES: [&str; 2] = ["one", "two"];
/// Pods of this label value belong to a Service of their namespace.
pub const SERVED: &str = "c";
/// The ReplicaSet of each namespace that selects pods of this label value.
pub const REPLICAS_OF: (&str, &str) = ("replicas", "a");
/// A PriorityClass of pods that come first, and take nobody's place.
pub const URGENT: &str = "urgent";

const ZONE: &str = "topology.kubernetes.io/zone";
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Marks the last node of a set.
pub const LAST: &str = "tests/last";

/// What is made for one comparison.
pub struct Set {
    pub nodes: Vec<Value>,
    /// Pods that run already.
    pub settled: Vec<Value>,
    /// Those of them, by place, that are being deleted.
    pub leaving: Vec<usize>,
    /// Pods that wait, one after the other.
    pub waiting: Vec<Value>,
}

pub fn set(seed: u64) -> Set {
    let mut draw = Draw(ChaCha8Rng::seed_from_u64(seed));
    let count = draw.between(2, 24);
    let nodes: Vec<Value> = (0..count).map(|number| draw.node(seed, number, count)).collect();
    let mut settled = Vec::new();
    let mut leaving = Vec::new();
    for number in 0..draw.between(0, 2 * count) {
        let mut pod = draw.pod(&format!("s{seed}-{number}"), 350);
        // The last one is for the pod that says when kube-scheduler knows all nodes.
        let node = draw.below(count.max(2) - 1);
        pod["spec"]["nodeName"] = nodes[node as usize]["metadata"]["name"].clone();
        if draw.happens(60) {
            leaving.push(settled.len());
        }
        settled.push(pod);
    }
    let waiting =
        (0..draw.between(4, 10)).map(|number| draw.pod(&format!("w{seed}-{number}"), 600)).collect();
    Set { nodes, settled, leaving, waiting }
}

fn names_team(selector: &Value) -> bool {
    selector.to_string().contains("\"team\"")
}

struct Draw(ChaCha8Rng);

impl Draw {
    fn below(&mut self, bound: u64) -> u64 {
        below(&mut self.0, bound)
    }

    /// Both included.
    fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }

    fn happens(&mut self, permille: u32) -> bool {
        happens(&mut self.0, permille)
    }

    fn one<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[self.below(choices.len() as u64) as usize]
    }

    fn node(&mut self, seed: u64, number: u64, count: u64) -> Value {
        let name = format!("n{seed}-{number}");
        let mut labels = Map::new();
        labels.insert(HOSTNAME.into(), json!(name));
        if !self.happens(80) {
            labels.insert(ZONE.into(), json!(self.one(&["a", "b", "c"])));
        }
        if self.happens(700) {
            labels.insert("disk".into(), json!(self.one(&["ssd", "hdd", "nvme"])));
        }
        if self.happens(700) {
            labels.insert("tier".into(), json!(self.between(1, 6).to_string()));
        }
        if self.happens(300) {
            labels.insert("rack".into(), json!(self.one(&["r1", "r2"])));
        }
        let is_last = number + 1 == count;
        if is_last {
            labels.insert(LAST.into(), json!(format!("s{seed}")));
        }
        let mut taints = Vec::new();
        for (permille, key, effect) in [
            (150, "dedicated", "NoSchedule"),
            (80, "leaving", "NoExecute"),
            (250, "flaky", "PreferNoSchedule"),
            (150, "slow", "PreferNoSchedule"),
        ] {
            if self.happens(permille) {
                taints.push(json!({ "key": key, "value": self.one(&["x", "y"]), "effect": effect }));
            }
        }
        let cpu = *self.one(&[1930, 2000, 3920, 4000, 7910, 8000, 16_000]);
        let memory = *self.one(&[1_700, 3_400, 4_096, 7_133, 8_192, 15_011, 32_768]);
        let pods = if is_last { 110 } else { *self.one(&[2, 4, 8, 29, 110]) };
        let room =
            json!({ "cpu": format!("{cpu}m"), "memory": format!("{memory}Mi"), "pods": pods.to_string() });
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": name, "labels": labels },
            "spec": { "taints": taints, "unschedulable": self.happens(70) },
            "status": {
                "capacity": room, "allocatable": room,
                "conditions": [{ "type": "Ready", "status": "True" }],
            },
        })
    }

    /// A pod whose rules each have something to say with a probability of so many in a thousand, taken by and large.
    fn pod(&mut self, name: &str, talkative: u32) -> Value {
        let app = *self.one(&["a", "b", SERVED]);
        let mut labels = json!({ "app": app });
        if self.happens(500) {
            labels["team"] = json!(self.one(&["red", "blue"]));
        }
        let mut spec = json!({ "terminationGracePeriodSeconds": 600 });
        let mut container = json!({ "name": "main", "image": "pause" });
        let mut requests = Map::new();
        if self.happens(850) {
            requests
                .insert("cpu".into(), json!(format!("{}m", self.one(&[50, 100, 250, 333, 500, 900, 1700]))));
        }
        if self.happens(850) {
            let memory = self.one(&[64, 128, 300, 512, 777, 1024, 2900]);
            requests.insert("memory".into(), json!(format!("{memory}Mi")));
        }
        container["resources"] = json!({ "requests": requests });
        if self.happens(talkative / 6) {
            let port = self.one(&[8080, 9090]);
            let protocol = self.one(&["TCP", "UDP"]);
            let mut ports = json!({ "containerPort": port, "hostPort": port, "protocol": protocol });
            if self.happens(300) {
                ports["hostIP"] = json!(self.one(&["10.0.0.1", "10.0.0.2"]));
            }
            container["ports"] = json!([ports]);
        }
        spec["containers"] = json!([container]);
        if self.happens(150) {
            spec["priorityClassName"] = json!(URGENT);
        }
        if self.happens(talkative / 4) {
            spec["nodeSelector"] = match self.below(2) {
                0 => json!({ "disk": self.one(&["ssd", "hdd"]) }),
                _ => json!({ ZONE: self.one(&["a", "b", "c"]) }),
            };
        }
        let tolerations = self.tolerations(talkative);
        if !tolerations.is_empty() {
            spec["tolerations"] = json!(tolerations);
        }
        let mut affinity = Map::new();
        self.node_affinity(talkative, &mut affinity);
        for kind in ["podAffinity", "podAntiAffinity"] {
            self.pod_affinity(kind, talkative, &mut affinity);
        }
        if !affinity.is_empty() {
            spec["affinity"] = Value::Object(affinity);
        }
        let spreads = self.spreads(talkative, app);
        if !spreads.is_empty() {
            spec["topologySpreadConstraints"] = json!(spreads);
        }
        let namespace = *self.one(&["one", "one", "two"]);
        let mut metadata = json!({ "name": name, "namespace": namespace, "labels": labels });
        if app == REPLICAS_OF.1 && self.happens(500) {
            metadata["ownerReferences"] = json!([{
                "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": REPLICAS_OF.0, "uid": "0", "controller": true,
            }]);
        }
        json!({ "apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec })
    }

    fn tolerations(&mut self, talkative: u32) -> Vec<Value> {
        let mut tolerations = Vec::new();
        for key in ["dedicated", "leaving", "flaky", "slow", "node.kubernetes.io/unschedulable"] {
            if !self.happens(talkative / 3) {
                continue;
            }
            tolerations.push(match self.below(3) {
                0 => json!({ "key": key, "operator": "Exists" }),
                1 => json!({ "key": key, "operator": "Equal", "value": self.one(&["x", "y"]) }),
                _ => {
                    let effect = self.one(&["NoSchedule", "PreferNoSchedule"]);
                    json!({ "key": key, "operator": "Exists", "effect": effect })
                }
            });
        }
        tolerations
    }

    fn node_expression(&mut self) -> Value {
        match self.below(6) {
            0 => json!({ "key": "disk", "operator": "In", "values": ["ssd", "nvme"] }),
            1 => json!({ "key": "disk", "operator": "NotIn", "values": [self.one(&["ssd", "hdd"])] }),
            2 => json!({ "key": "tier", "operator": "Gt", "values": [self.between(1, 3).to_string()] }),
            3 => json!({ "key": "tier", "operator": "Lt", "values": [self.between(3, 6).to_string()] }),
            4 => json!({ "key": "rack", "operator": self.one(&["Exists", "DoesNotExist"]) }),
            _ => json!({ "key": ZONE, "operator": "In", "values": [self.one(&["a", "b"]), "c"] }),
        }
    }

    fn node_affinity(&mut self, talkative: u32, affinity: &mut Map<String, Value>) {
        let term = |draw: &mut Self| {
            let expressions: Vec<Value> = (0..draw.between(1, 2)).map(|_| draw.node_expression()).collect();
            json!({ "matchExpressions": expressions })
        };
        let mut rules = Map::new();
        if self.happens(talkative / 4) {
            let terms: Vec<Value> = (0..self.between(1, 2)).map(|_| term(self)).collect();
            rules.insert(
                "requiredDuringSchedulingIgnoredDuringExecution".into(),
                json!({ "nodeSelectorTerms": terms }),
            );
        }
        if self.happens(talkative / 2) {
            let wishes: Vec<Value> = (0..self.between(1, 3))
                .map(|_| {
                    let weight = self.between(1, 100);
                    let preference = if self.happens(50) { json!({}) } else { term(self) };
                    json!({ "weight": weight, "preference": preference })
                })
                .collect();
            rules.insert("preferredDuringSchedulingIgnoredDuringExecution".into(), json!(wishes));
        }
        if !rules.is_empty() {
            affinity.insert("nodeAffinity".into(), Value::Object(rules));
        }
    }

    fn selector(&mut self) -> Value {
        match self.below(6) {
            0 | 1 => json!({ "matchLabels": { "app": self.one(&["a", "b", "c"]) } }),
            2 => json!({ "matchLabels": { "team": self.one(&["red", "blue"]) } }),
            3 => json!({ "matchExpressions": [{ "key": "app", "operator": "In", "values": ["a", "c"] }] }),
            4 => json!({ "matchExpressions": [
                { "key": "team", "operator": self.one(&["Exists", "DoesNotExist"]) },
                { "key": "app", "operator": "NotIn", "values": [self.one(&["a", "b"])] },
            ] }),
            _ => json!({}),
        }
    }

    fn pod_term(&mut self) -> Value {
        let key = *self.one(&[ZONE, ZONE, HOSTNAME, HOSTNAME, "rack"]);
        let mut term = json!({ "topologyKey": key });
        if !self.happens(30) {
            term["labelSelector"] = self.selector();
            if names_team(&term["labelSelector"]) {
                // It may not be named twice.
            } else if self.happens(100) {
                term["matchLabelKeys"] = json!(["team"]);
            } else if self.happens(100) {
                term["mismatchLabelKeys"] = json!(["team"]);
            }
        }
        match self.below(8) {
            0 => term["namespaces"] = json!([self.one(&NAMESPACES)]),
            1 => {
                term["namespaceSelector"] = json!({ "matchLabels": { "stage": self.one(&["prod", "dev"]) } })
            }
            2 => term["namespaceSelector"] = json!({}),
            _ => {}
        }
        term
    }

    fn pod_affinity(&mut self, kind: &str, talkative: u32, affinity: &mut Map<String, Value>) {
        let mut rules = Map::new();
        if self.happens(talkative / 6) {
            let terms: Vec<Value> = (0..self.between(1, 2)).map(|_| self.pod_term()).collect();
            rules.insert("requiredDuringSchedulingIgnoredDuringExecution".into(), json!(terms));
        }
        if self.happens(talkative / 4) {
            let wishes: Vec<Value> = (0..self.between(1, 2))
                .map(|_| json!({ "weight": self.between(1, 100), "podAffinityTerm": self.pod_term() }))
                .collect();
            rules.insert("preferredDuringSchedulingIgnoredDuringExecution".into(), json!(wishes));
        }
        if !rules.is_empty() {
            affinity.insert(kind.into(), Value::Object(rules));
        }
    }

    fn spreads(&mut self, talkative: u32, app: &str) -> Vec<Value> {
        let mut spreads = Vec::new();
        for key in [ZONE, HOSTNAME, "rack"] {
            for action in ["DoNotSchedule", "ScheduleAnyway"] {
                // The same rule may not be there twice.
                if !self.happens(talkative / 6) {
                    continue;
                }
                let selector = match self.below(3) {
                    0 => self.selector(),
                    _ => json!({ "matchLabels": { "app": app } }),
                };
                let mut spread = json!({
                    "topologyKey": key, "whenUnsatisfiable": action, "maxSkew": self.between(1, 3),
                    "labelSelector": selector,
                });
                if action == "DoNotSchedule" && self.happens(200) {
                    spread["minDomains"] = json!(self.between(1, 4));
                }
                if self.happens(250) {
                    spread["nodeAffinityPolicy"] = json!("Ignore");
                }
                if self.happens(250) {
                    spread["nodeTaintsPolicy"] = json!("Honor");
                }
                if !names_team(&spread["labelSelector"]) && self.happens(150) {
                    spread["matchLabelKeys"] = json!(["team"]);
                }
                spreads.push(spread);
            }
        }
        spreads
    }
}
