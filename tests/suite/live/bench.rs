//! A control plane, a repository, and Provisor running between them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::deploy::manifests;
use crate::git::fixture::Fixture;
use crate::plane::{AUDITED, Plane, Size, bound, collection_of, path_of};

/// How long one stage of a story may take on a machine that does other things too: a round of consolidation alone
/// takes 25 s, and budgets make several of one stage.
pub const PATIENCE: Duration = Duration::from_secs(150);

/// For so long after its last renewal nobody takes a lease from whoever holds it.
pub const LEASE: SignedDuration = SignedDuration::from_secs(15);

pub const CLASSES: &str = "/apis/karpenter.k8s.aws/v1/ec2nodeclasses";
pub const POOLS: &str = "/apis/karpenter.sh/v1/nodepools";
pub const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";

/// A pod with this label does not hear that it shall end: its containers are killed when their time is over.
pub const DEAF: &str = "deaf";

/// The namespace in which the lease and the record are kept.
const HOME: &str = "provisor";

pub struct Bench {
    pub plane: Plane,
    pub fleet: Fixture,
    pub namespace: String,
    /// Users of Provisor's own, one for each replica, whose requests the API server records.
    kubeconfigs: [PathBuf; 2],
    /// How many processes were started.
    started: AtomicU32,
}

/// Whoever has waited long looks less often: looking takes a processor that the others need.
fn pause_after(waited: Duration) -> Duration {
    (waited / 20).clamp(Duration::from_millis(25), Duration::from_millis(200))
}

/// The environment `dev` with one pool whose nodes carry `generation` as a label.
pub fn environment(generation: &str) -> String {
    format!(
        r#"
        region = "us-east-1"
        [pools.general]
        strategy = "on-demand"
        limits = {{ cpu = "200" }}
        instance-cpu-max = 16
        consolidation-policy = "WhenEmpty"
        consolidate-after = "1s"
        labels = {{ generation = "{generation}" }}
        budgets = [{{ nodes = "40%", reasons = ["Drifted"] }}]
        "#
    )
}

impl Bench {
    pub fn new() -> Self {
        Self::of(&environment("one"))
    }

    /// With a repository whose environment `dev` says this, and a user who has the rights that `deploy/` gives and no others.
    pub fn of(environment: &str) -> Self {
        Self::with_rights(environment, manifests("deploy/manifests"))
    }

    /// The same with the rights that are among `shipped`.
    pub fn with_rights(environment: &str, shipped: Vec<Value>) -> Self {
        let group = "rbac.authorization.k8s.io";
        let plane = Plane::start(Size::Everything);
        plane.install_kinds();
        let home = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": HOME } });
        plane.api.apply(&path_of(&home), &home).expect("a namespace");
        for mut object in shipped {
            if object["apiVersion"] != format!("{group}/v1") {
                continue;
            }
            if let Some(subjects) = object.get_mut("subjects") {
                *subjects =
                    AUDITED.map(|name| json!({ "apiGroup": group, "kind": "User", "name": name })).into();
            }
            plane.api.apply(&path_of(&object), &object).expect("it is accepted");
        }
        let fleet =
            Fixture::with(&[("fleet.toml", "name = \"live\"\n"), ("environments/dev.toml", environment)]);
        let namespace = plane.namespace("work");
        let (kubeconfigs, started) = (AUDITED.map(|name| plane.user(name)), AtomicU32::new(0));
        Self { plane, fleet, namespace, kubeconfigs, started }
    }

    /// Starts Provisor with simulated machines; it ends with the test, or when the answer is killed or dropped.
    pub fn start(&self, more: &[&str]) -> Running {
        self.start_as(0, "1s", more)
    }

    /// The same as one of two replicas, with machines that take so long to join. It is recorded, and whatever it decides is
    /// decided again when the test ends.
    pub fn start_as(&self, replica: usize, boot: &str, more: &[&str]) -> Running {
        let recording = self.recording();
        let place = recording.to_str().expect("a path of letters");
        let said = ["--cloud", "simulated", "--simulated-boot", boot, "--record", place];
        self.run_as(replica, &[&said, more].concat(), &[])
    }

    /// Where all processes are recorded.
    pub fn recording(&self) -> PathBuf {
        self.fleet.dir.path().join("recording")
    }

    /// Decides again what was recorded, and says what came of it; every decision has to be the same.
    #[track_caller]
    pub fn replay(&self) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_provisor"))
            .args(["replay", "--output", "json"])
            .arg(self.recording())
            .output()
            .expect("it runs");
        let told = String::from_utf8_lossy(&output.stdout);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "what was recorded is not decided again: {told}\n{said}");
        let told: Value = serde_json::from_str(&told).expect("a document");
        eprintln!("decided again: {} decisions, {} actions", told["decisions"], told["actions"]);
        told
    }

    /// Starts Provisor as one of the replicas that the API server tells apart.
    pub fn run_as(&self, replica: usize, more: &[&str], environment: &[(&str, &str)]) -> Running {
        let mut command = bound::command(env!("CARGO_BIN_EXE_provisor"));
        command
            .args(["run", "--env", "dev", "--namespace", HOME, "--interval", "10s", "--kubeconfig"])
            .arg(&self.kubeconfigs[replica])
            .arg("--repo")
            .arg(self.fleet.work_tree())
            .args(more)
            .env("XDG_CACHE_HOME", self.fleet.cache())
            .env_remove("AWS_REGION")
            .envs(environment.iter().copied());
        self.begin(command)
    }

    /// Starts Provisor as somebody who may do everything, such as a person, who keeps lease and record in another namespace.
    pub fn start_elsewhere(&self, namespace: &str) -> Running {
        let mut command = bound::command(env!("CARGO_BIN_EXE_provisor"));
        command
            .args(["run", "--env", "dev", "--cloud", "simulated", "--namespace", namespace, "--kubeconfig"])
            .arg(self.plane.kubeconfig())
            .arg("--repo")
            .arg(self.fleet.work_tree())
            .env("XDG_CACHE_HOME", self.fleet.cache());
        self.begin(command)
    }

    /// Starts any program; what it says is among the [logs](Self::logs).
    pub fn begin(&self, command: Command) -> Running {
        Running::start(command, self.log(self.started.fetch_add(1, Ordering::Relaxed)))
    }

    fn log(&self, count: u32) -> PathBuf {
        self.fleet.dir.path().join(format!("process-{count}.log"))
    }

    /// What every process said that was started here, in their order.
    pub fn logs(&self) -> String {
        let started = self.started.load(Ordering::Relaxed);
        let logs = (0..started).filter_map(|count| std::fs::read_to_string(self.log(count)).ok());
        logs.collect::<Vec<_>>().join("\n")
    }

    pub fn list(&self, path: &str) -> Vec<Value> {
        let answer = self.plane.api.get(path).expect("a list");
        answer["items"].as_array().cloned().unwrap_or_default()
    }

    pub fn pods(&self) -> Vec<Value> {
        self.list(&format!("/api/v1/namespaces/{}/pods", self.namespace))
    }

    /// Claims of the pool that the repository describes.
    pub fn claims(&self) -> Vec<Value> {
        self.claims_of("general")
    }

    pub fn claims_of(&self, pool: &str) -> Vec<Value> {
        let mut claims = self.list(CLAIMS);
        claims.retain(|claim| text(claim, "/metadata/labels/karpenter.sh~1nodepool") == pool);
        claims
    }

    /// All nodes but the strangers'.
    pub fn nodes(&self) -> Vec<Value> {
        let mut nodes = self.list("/api/v1/nodes");
        nodes.retain(|node| !["theirs", "prod"].contains(&text(node, "/metadata/name")));
        nodes
    }

    /// What was asked of the API server by Provisor itself; simulated kubelets are not it.
    pub fn requests(&self) -> Vec<Value> {
        let mut requests = self.plane.audit();
        requests.retain(is_ours);
        requests
    }

    /// How often Provisor changed a claim, a node or a pod after so much of the API server's log was read.
    pub fn deeds_after(&self, read: &mut u64) -> usize {
        let is_deed = |request: &&Value| {
            let resource = text(request, "/objectRef/resource");
            is_ours(request) && is_write(request) && ["nodeclaims", "nodes", "pods"].contains(&resource)
        };
        self.plane.audit_after(read).iter().filter(is_deed).count()
    }

    /// Requests to evict a pod that were granted, in their order.
    pub fn evictions_granted(&self) -> Vec<Value> {
        let mut requests = self.requests();
        requests.retain(|request| {
            request["objectRef"]["subresource"] == "eviction" && request["responseStatus"]["code"] == 201
        });
        requests
    }

    /// How often each pod was evicted, by uid: each eviction says which pod it means.
    pub fn evictions(&self) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for request in self.evictions_granted() {
            let uid = text(&request, EVICTED_UID);
            assert!(!uid.is_empty(), "a successor of the same name is not safe from {request}");
            *counts.entry(uid.to_owned()).or_default() += 1;
        }
        counts
    }

    /// All of at least so many pods were evicted, none of them twice.
    pub fn expect_moved_once(&self, pods: usize) {
        let moved = self.moved_once();
        assert!(moved.len() >= pods, "every pod was moved: {moved:?}\n{}", self.logs());
    }

    /// The pods that were evicted, by uid; none of them was twice. Of an eviction whose asker was killed before the answer nobody
    /// can say whether it took place: its pod counts.
    pub fn moved_once(&self) -> BTreeSet<String> {
        let evictions = self.evictions();
        assert!(evictions.values().all(|times| *times == 1), "no pod is evicted twice: {evictions:?}");
        let requests = self.requests();
        let broken_off = requests.iter().filter(|request| {
            request["objectRef"]["subresource"] == "eviction" && request["responseStatus"]["code"] == 504
        });
        let broken_off = broken_off.map(|request| text(request, EVICTED_UID).to_owned());
        evictions.into_keys().chain(broken_off).collect()
    }

    /// Whatever was bought is known to a claim, and the other way round; nobody waits for a machine.
    pub fn expect_one_machine_for_each_claim(&self) {
        let (claims, nodes) = (self.claims(), self.nodes());
        let machines: BTreeSet<&str> = nodes.iter().map(|node| text(node, "/spec/providerID")).collect();
        let claimed: BTreeSet<&str> = claims.iter().map(|claim| text(claim, "/status/providerID")).collect();
        let logs = self.logs();
        assert_eq!(machines, claimed, "no machine without a claim, no claim without a machine\n{logs}");
        assert_eq!(claims.len(), claimed.len(), "no machine twice");
    }

    /// Who acted, one after the other: whatever was granted is by the replica that wrote the lease last. What a process had handed to
    /// its connection when it was frozen is sent when it is thawed, and refused: it names the object that it means.
    pub fn tenures(&self) -> Vec<Tenure> {
        let mut requests = self.requests();
        requests.retain(is_write);
        requests.sort_by_key(|request| text(request, "/requestReceivedTimestamp").to_owned());
        let mut tenures: Vec<Tenure> = Vec::new();
        for request in &requests {
            let (who, at) = (text(request, "/user/username"), text(request, "/requestReceivedTimestamp"));
            let at: Timestamp = at.parse().expect("a moment");
            let current = tenures.last_mut().filter(|tenure| tenure.who == who);
            match (request["objectRef"]["resource"] == "leases", current) {
                (true, Some(tenure)) => tenure.renewed = at,
                (true, None) => {
                    tenures.push(Tenure { who: who.to_owned(), begun: at, renewed: at, writes: 0 });
                }
                (false, Some(tenure)) => tenure.writes += 1,
                (false, None) => panic!("{who} does not hold the lease and wrote: {request}"),
            }
        }
        tenures
    }

    /// These replicas acted, one after the other, and no other way.
    #[track_caller]
    pub fn expect_tenures(&self, expected: &[&str]) -> Vec<Tenure> {
        let tenures = self.tenures();
        let who: Vec<&str> = tenures.iter().map(|tenure| tenure.who.as_str()).collect();
        assert_eq!(who, expected, "{tenures:?}\n{}", self.logs());
        assert!(tenures.iter().all(|tenure| tenure.writes > 0), "each did something: {tenures:?}");
        tenures
    }

    /// Granted requests of one kind about one kind of object.
    pub fn requests_for(&self, resource: &str, verb: &str) -> Vec<Value> {
        let mut requests = self.requests();
        requests.retain(|request| {
            request["verb"] == verb
                && request["objectRef"]["resource"] == resource
                && matches!(request["responseStatus"]["code"].as_u64(), Some(200..=299))
        });
        requests
    }

    pub fn pool_is_ready(&self) -> bool {
        is_true(&self.plane.api.get(&format!("{POOLS}/general")).body, "Ready")
    }

    /// The names of all claims that were ever made.
    pub fn claims_made(&self) -> Vec<String> {
        self.of_claims_made("/metadata/name")
    }

    /// What the API server says of all claims that were ever made, in their order. Of a claim whose maker was killed before the
    /// answer only later requests tell that it was made.
    pub fn of_claims_made(&self, pointer: &str) -> Vec<String> {
        let mut made = Vec::new();
        for request in self.requests() {
            let claim = &request["responseObject"];
            let value = text(claim, pointer);
            if text(claim, "/kind") == "NodeClaim" && !made.iter().any(|known| known == value) {
                made.push(value.to_owned());
            }
        }
        made
    }

    /// How many pods run elsewhere than they were first planned, as the log of `run --output json` tells; pods of one workload
    /// stand for each other. A pod that is in no plan, or whose first claim is gone, counts.
    pub fn pods_elsewhere(&self, log: &str) -> usize {
        let (plan, claims, pods) = (planned(log), self.claims(), self.pods());
        let node_of: BTreeMap<&str, &str> = claims
            .iter()
            .map(|claim| (text(claim, "/metadata/name"), text(claim, "/status/nodeName")))
            .collect();
        let workload = |pod: &Value| text(pod, "/metadata/labels/app").to_owned();
        // How many pods of each workload were planned on each node and are not found there yet.
        let mut open: BTreeMap<(&str, String), usize> = BTreeMap::new();
        for pod in &pods {
            let key = format!("{}/{}", self.namespace, text(pod, "/metadata/name"));
            let claim = plan.get(&key).and_then(|claims| claims.first());
            let node = claim.and_then(|claim| node_of.get(claim.as_str())).copied();
            *open.entry((node.unwrap_or("planned nowhere"), workload(pod))).or_default() += 1;
        }
        for pod in &pods {
            if let Some(count) = open.get_mut(&(text(pod, "/spec/nodeName"), workload(pod))) {
                *count = count.saturating_sub(1);
            }
        }
        open.values().sum()
    }

    /// Waits until `is_so`, and says of what it waited in vain.
    #[track_caller]
    pub fn wait(&self, what: &str, is_so: impl Fn() -> bool) -> Duration {
        let start = Instant::now();
        while !is_so() {
            assert!(
                start.elapsed() < PATIENCE,
                "not {what} after {PATIENCE:?}\nclaims: {:#}\nnodes: {:?}\npods: {:?}\nlog:\n{}",
                json!(self.claims().iter().map(|claim| claim["status"].clone()).collect::<Vec<_>>()),
                self.nodes().iter().map(|node| text(node, "/metadata/name").to_owned()).collect::<Vec<_>>(),
                self.pods()
                    .iter()
                    .map(|pod| (
                        text(pod, "/spec/nodeName").to_owned(),
                        text(pod, "/status/phase").to_owned()
                    ))
                    .collect::<BTreeSet<_>>(),
                self.logs()
            );
            std::thread::sleep(pause_after(start.elapsed()));
        }
        eprintln!("{what} after {:?}", start.elapsed());
        start.elapsed()
    }

    /// A Deployment of pods of one size.
    pub fn deploy(&self, name: &str, replicas: u32, cpu: &str, memory: &str) {
        self.deploy_on(name, replicas, cpu, memory, json!({}));
    }

    /// The same, of deaf pods that take so many seconds to end, where their kubelets are ours.
    pub fn deploy_lingering(&self, name: &str, replicas: u32, cpu: &str, memory: &str, seconds: u32) {
        let pod = json!({ "terminationGracePeriodSeconds": seconds });
        self.deploy_with(name, replicas, (cpu, memory), json!({ DEAF: "yes" }), pod);
    }

    /// The same, of pods that only go to nodes with these labels.
    pub fn deploy_on(&self, name: &str, replicas: u32, cpu: &str, memory: &str, selector: Value) {
        let more = json!({ "terminationGracePeriodSeconds": 1, "nodeSelector": selector });
        self.deploy_with(name, replicas, (cpu, memory), json!({}), more);
    }

    fn deploy_with(
        &self,
        name: &str,
        replicas: u32,
        (cpu, memory): (&str, &str),
        mut labels: Value,
        mut pod: Value,
    ) {
        pod["containers"] = json!([{
            "name": "main", "image": "pause",
            "resources": { "requests": { "cpu": cpu, "memory": memory } },
        }]);
        let selector = json!({ "matchLabels": { "app": name } });
        labels["app"] = json!(name);
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": { "name": name, "namespace": self.namespace },
            "spec": { "replicas": replicas, "selector": selector, "template": {
                "metadata": { "labels": labels }, "spec": pod,
            } },
        });
        self.plane.api.post(&collection_of(&deployment), &deployment).expect("a deployment");
    }

    /// A Lease that a Karpenter got just now; where it is.
    pub fn plant_lease_of_karpenter(&self) -> String {
        let renewed = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": { "name": "karpenter-leader-election", "namespace": "default" },
            "spec": { "holderIdentity": "karpenter-1", "leaseDurationSeconds": 60, "renewTime": renewed },
        });
        self.plane.api.post(&collection_of(&lease), &lease).expect("a lease");
        path_of(&lease)
    }

    pub fn scale(&self, name: &str, replicas: u32) {
        let path = format!("/apis/apps/v1/namespaces/{}/deployments/{name}", self.namespace);
        self.plane.api.patch(&path, &json!({ "spec": { "replicas": replicas } })).expect("scaled");
    }

    /// Whether so many pods are there and all of them run.
    pub fn all_run(&self, count: usize) -> bool {
        let pods = self.pods();
        pods.len() == count
            && pods.iter().all(|pod| {
                text(pod, "/status/phase") == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
            })
    }

    /// Pods that Kubernetes deleted for a taint of their node: they came while it was not open to them.
    pub fn deleted_for_taints(&self) -> Vec<String> {
        let events = self.list(&format!("/api/v1/namespaces/{}/events", self.namespace));
        let is_it = |event: &&Value| text(event, "/reason") == "TaintManagerEviction";
        events.iter().filter(is_it).map(|event| text(event, "/involvedObject/name").to_owned()).collect()
    }

    /// The object on which it is told how the environment stands; its path.
    pub fn plant_environment(&self) -> String {
        let object = json!({
            "apiVersion": "provisor.dev/v1alpha1", "kind": "Environment", "metadata": { "name": "dev" },
            "spec": { "source": { "url": "https://git.example.com/fleet", "branch": "main" } },
        });
        self.plane.api.post(&collection_of(&object), &object).expect("an environment");
        path_of(&object)
    }

    /// Things that are nobody's of ours, and how they looked when they were made.
    pub fn plant_strangers(&self) -> Strangers {
        let class = json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "theirs" });
        let requirements = json!([
            { "key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"] },
            { "key": "theirs", "operator": "In", "values": ["yes"] },
        ]);
        let pool = |name: &str, tracking: (&str, &str)| {
            json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
                "metadata": { "name": name, "annotations": { tracking.0: tracking.1 } },
                "spec": {
                    "limits": { "cpu": "0" },
                    "template": { "spec": {
                        "nodeClassRef": class, "expireAfter": "Never", "requirements": requirements,
                    } },
                },
            })
        };
        // What Karpenter would hold on to while it goes.
        let claim = |name: &str| {
            json!({
                "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
                "metadata": {
                    "name": name, "labels": { "karpenter.sh/nodepool": "theirs" },
                    "finalizers": ["karpenter.sh/termination"],
                },
                "spec": { "nodeClassRef": class, "expireAfter": "Never", "requirements": requirements },
            })
        };
        let objects = vec![
            json!({
                "apiVersion": "v1", "kind": "Node",
                "metadata": {
                    "name": "theirs", "finalizers": ["karpenter.sh/termination"],
                    "labels": { "kubernetes.io/hostname": "theirs", "karpenter.sh/nodepool": "theirs" },
                },
                "spec": {
                    "providerID": "aws:///us-east-1a/i-0123456789abcdef0", "unschedulable": true,
                    "taints": [{ "key": "theirs", "effect": "NoSchedule" }],
                },
            }),
            pool("theirs", ("argocd.argoproj.io/tracking-id", "theirs:karpenter.sh/NodePool:/theirs")),
            pool("copied", ("provisor.dev/tracking-id", "provisor:dev:karpenter.sh/NodePool:/general")),
            pool("prod", ("provisor.dev/tracking-id", "provisor:prod:karpenter.sh/NodePool:/prod")),
            claim("theirs"),
            claim("theirs-going"),
            json!({
                "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
                "metadata": { "name": "theirs" },
                "spec": {
                    "role": "theirs", "amiSelectorTerms": [{ "alias": "al2023@latest" }],
                    "subnetSelectorTerms": [{ "tags": { "theirs": "yes" } }],
                    "securityGroupSelectorTerms": [{ "tags": { "theirs": "yes" } }],
                },
            }),
            json!({
                "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay",
                "metadata": { "name": "theirs" },
                "spec": { "requirements": requirements, "priceAdjustment": "+1%" },
            }),
            json!({
                "apiVersion": "v1", "kind": "ConfigMap",
                "metadata": { "name": "theirs", "namespace": "default" }, "data": { "theirs": "yes" },
            }),
            json!({
                "apiVersion": "v1", "kind": "PodTemplate",
                "metadata": { "name": "theirs", "namespace": "default" },
                "template": { "spec": { "containers": [{ "name": "main", "image": "pause" }] } },
            }),
            // Nothing keeps it from being evicted but manners.
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": { "name": "theirs", "namespace": "default", "labels": { "app": "theirs" } },
                "spec": {
                    "nodeName": "theirs", "tolerations": [{ "operator": "Exists" }],
                    "containers": [{ "name": "main", "image": "pause" }],
                },
            }),
            json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget",
                "metadata": { "name": "theirs", "namespace": "default" },
                "spec": { "maxUnavailable": 1, "selector": { "matchLabels": { "app": "theirs" } } },
            }),
        ];
        let objects: Vec<Value> = objects.into_iter().chain(neighbours()).collect();
        for object in &objects {
            self.plane.api.post(&collection_of(object), object).expect("a stranger's object");
        }
        let status = json!({ "status": { "providerID": NEIGHBOURS_BOOTING } });
        self.plane.api.patch(&format!("{CLAIMS}/prod-booting/status"), &status).expect("a launched claim");
        for path in ["/api/v1/nodes/theirs".to_owned(), format!("{CLAIMS}/theirs-going")] {
            self.plane.api.delete(&path).expect("it is going");
        }
        let paths: Vec<String> = objects.iter().map(path_of).collect();
        let before = paths.iter().map(|path| self.written(path)).collect();
        Strangers { paths, before }
    }

    /// What somebody wrote into an object, and what the API server keeps of it. Nobody of others writes a status here but
    /// Kubernetes' own controllers, of nodes, their pods and budgets.
    fn written(&self, path: &str) -> Value {
        let mut object = self.plane.api.get(path).expect("it is still there");
        for part in ["resourceVersion", "managedFields"] {
            object["metadata"].as_object_mut().expect("metadata").remove(part);
        }
        if ["Node", "Pod", "PodDisruptionBudget"].contains(&text(&object, "/kind")) {
            object.as_object_mut().expect("an object").remove("status");
        }
        // The node controller's own view of a node without a kubelet.
        if let Some(taints) = object.pointer_mut("/spec/taints").and_then(Value::as_array_mut) {
            taints.retain(|taint| !text(taint, "/key").starts_with("node.kubernetes.io/"));
        }
        object
    }

    /// They are as they were planted, and we never asked to change any part of them.
    pub fn expect_untouched(&self, strangers: &Strangers) {
        let by_us = |request: &Value| is_ours(request) || is_by_kubelets(request);
        for request in self.plane.audit().iter().filter(|request| by_us(request) && asks_for_change(request))
        {
            let uri = text(request, "/requestURI").split('?').next().unwrap_or_default();
            let is_of = |path: &String| {
                uri.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            };
            let is_their_lease = ["/leases/theirs", "/leases/prod"].iter().any(|end| uri.ends_with(end));
            assert!(
                !is_their_lease && !strangers.paths.iter().any(is_of),
                "we asked to change what is somebody else's: {request}"
            );
        }
        for (path, before) in strangers.paths.iter().zip(&strangers.before) {
            assert_eq!(&self.written(path), before, "{path} was touched");
        }
        let joined = self.list("/api/v1/nodes");
        let is_theirs = |node: &&Value| text(node, "/spec/providerID") == NEIGHBOURS_BOOTING;
        assert_eq!(joined.iter().find(is_theirs), None, "it is another environment's to boot");
    }
}

/// Whatever a test was about: what its processes decided follows from what they were told.
impl Drop for Bench {
    fn drop(&mut self) {
        if !std::thread::panicking() && self.recording().exists() {
            assert_eq!(self.replay()["same"], true);
        }
    }
}

/// Where a request to evict says which pod it means.
pub const EVICTED_UID: &str = "/requestObject/deleteOptions/preconditions/uid";

/// A machine of another environment's simulated cloud that is to join.
const NEIGHBOURS_BOOTING: &str = "aws:///us-east-1a/i-51a70000000000002";

/// Of another environment of this installation, whose process is not there: a simulated machine with a pod that is to run on it,
/// and one that is to join.
fn neighbours() -> Vec<Value> {
    let labels = json!({
        "karpenter.sh/nodepool": "prod", "node.kubernetes.io/instance-type": "m7i.large",
        "topology.kubernetes.io/zone": "us-east-1a", "karpenter.sh/capacity-type": "spot",
    });
    let annotations = json!({ "provisor.dev/owner": "provisor:prod" });
    let class = json!({ "group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "prod" });
    vec![
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": "prod", "labels": labels, "annotations": annotations },
            "spec": {
                "providerID": "aws:///us-east-1a/i-51a70000000000001", "unschedulable": true,
                "taints": [{ "key": "theirs", "effect": "NoSchedule" }],
            },
        }),
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": { "name": "prod", "namespace": "default" },
            "spec": {
                "nodeName": "prod", "tolerations": [{ "operator": "Exists" }],
                "containers": [{ "name": "main", "image": "pause" }],
            },
        }),
        json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": { "name": "prod-booting", "labels": labels, "annotations": annotations },
            "spec": {
                "nodeClassRef": class, "expireAfter": "Never",
                "requirements": [{ "key": "karpenter.sh/nodepool", "operator": "In", "values": ["prod"] }],
            },
        }),
    ]
}

/// Whether a request is by the kubelets of simulated machines.
fn is_by_kubelets(request: &Value) -> bool {
    text(request, "/userAgent").starts_with("simulated-kubelets")
}

/// Whether a request is by Provisor.
fn is_ours(request: &Value) -> bool {
    text(request, "/userAgent").starts_with("provisor/")
}

fn asks_for_change(request: &Value) -> bool {
    ["create", "update", "patch", "delete", "deletecollection"].contains(&text(request, "/verb"))
}

/// Whether a request changed something.
fn is_write(request: &Value) -> bool {
    asks_for_change(request) && matches!(request["responseStatus"]["code"].as_u64(), Some(200..=299))
}

/// The time in which one replica held the lease.
#[derive(Debug)]
pub struct Tenure {
    pub who: String,
    pub begun: Timestamp,
    /// When it last wrote the lease.
    pub renewed: Timestamp,
    /// What else it wrote.
    pub writes: usize,
}

pub struct Strangers {
    paths: Vec<String>,
    before: Vec<Value>,
}

/// One process of Provisor.
pub struct Running {
    child: Child,
    log: PathBuf,
}

impl Running {
    /// What the command says goes to `log`.
    pub fn start(mut command: Command, log: PathBuf) -> Self {
        let file = File::options().create(true).append(true).open(&log).expect("a log");
        command.stdin(Stdio::null()).stderr(file.try_clone().expect("a log")).stdout(file);
        Self { child: bound::spawn(command).expect("provisor starts"), log }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Ends it as a power failure would.
    pub fn kill(mut self) -> String {
        self.child.kill().and_then(|()| self.child.wait()).expect("it was running");
        self.log()
    }

    /// Waits until it ends by itself: its exit code, and what it said.
    pub fn end(mut self) -> (i32, String) {
        let code = self.child.wait().expect("it was running").code().unwrap_or(-1);
        (code, self.log())
    }

    /// It neither hears nor does anything until it is thawed.
    pub fn freeze(&self) {
        self.signal("-STOP");
    }

    pub fn thaw(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        Command::new("kill").args([signal, &pid]).status().expect("kill runs");
    }

    /// Asks it to end, as a cluster asks its pods.
    pub fn stop(mut self) -> i32 {
        self.signal("-TERM");
        self.child.wait().expect("it ends").code().unwrap_or(-1)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// For every pod the claims that the plan made for it, in their order, as the log of `run --output json` tells.
pub fn planned(log: &str) -> BTreeMap<String, Vec<String>> {
    let documents = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let mut plan: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for told in documents.filter(|document| document["kind"] == "Nominated") {
        if let Some((_, claim)) = text(&told, "/message").rsplit_once("nodeclaim/") {
            plan.entry(text(&told, "/subject").to_owned()).or_default().push(claim.to_owned());
        }
    }
    plan
}

pub fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a kubelet lets the pod go: it was told to end, and did.
pub fn has_ended(pod: &Value) -> bool {
    let ends: Option<Timestamp> = text(pod, "/metadata/deletionTimestamp").parse().ok();
    let is_deaf = !text(pod, &format!("/metadata/labels/{DEAF}")).is_empty();
    ends.is_some_and(|ends| !is_deaf || ends <= Timestamp::now())
}

/// Whether a condition of the object is true.
pub fn is_true(object: &Value, kind: &str) -> bool {
    crate::plane::has_condition(object, kind)
}
