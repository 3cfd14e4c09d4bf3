//! A cluster in which placement is tried out round by round: solve, buy the cheapest, bind.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use provisor::capacity::cluster::Cluster;
use provisor::capacity::provisioning::{self, Purchase};
use provisor::capacity::scheduling::{
    self, Code, Mode, NewNode, Place, Request, Settings, Solution, Supply, moving_pods, provisionable_pods,
};
use provisor::model::claim::NodeClaim;
use provisor::model::label::{self, Labels};
use provisor::model::money::UsdPerHour;
use provisor::model::name::{NodeName, ObjectKey, PoolName, ProviderId, TypeName, Uid, Zone};
use provisor::model::node::Node;
use provisor::model::offering::{CapacityType, InstanceType, Offering};
use provisor::model::pod::{
    HostPort, NodeTerm, Owner, Pod, PodPhase, PodShape, PodTerm, PodVolume, Selector, SelectorTerm, Spread,
};
use provisor::model::pool::{
    Budget, BudgetNodes, ClassRef, ConsolidationPolicy, Disruption, NodePool, NodeTemplate,
};
use provisor::model::quantity::{Quantity, ResourceName, Resources};
use provisor::model::requirement::{Operator, Requirement, Requirements};
use provisor::model::symbol::Symbol;
use provisor::model::taint::{Effect, Taint, Toleration, TolerationOperator};
use provisor::model::time::Patience;
use provisor::model::workload::DaemonSet;

pub const ZONE: &str = "topology.kubernetes.io/zone";
pub const HOSTNAME: &str = "kubernetes.io/hostname";
pub const CAPACITY_TYPE: &str = "karpenter.sh/capacity-type";
pub const INSTANCE_TYPE: &str = "node.kubernetes.io/instance-type";
pub const ARCH: &str = "kubernetes.io/arch";
pub const OS: &str = "kubernetes.io/os";
pub const NODEPOOL: &str = "karpenter.sh/nodepool";
/// Labels that the provider of these types knows.
pub const SIZE: &str = "karpenter.k8s.aws/instance-size";
pub const SPECIAL: &str = "karpenter.k8s.aws/instance-accelerator-name";
pub const INTEGER: &str = "karpenter.k8s.aws/instance-cpu";
pub const Z1: &str = "test-zone-1";
pub const Z2: &str = "test-zone-2";
pub const Z3: &str = "test-zone-3";

pub fn amounts(text: &[(&str, &str)]) -> Resources {
    text.iter()
        .map(|(name, amount)| {
            let name = ResourceName::new(name);
            (name, name.amount(amount.parse::<Quantity>().expect("a quantity")))
        })
        .collect()
}

pub fn requirement(operator: Operator, values: &[&str]) -> Requirement {
    Requirement::new(operator, values.iter().map(|value| Symbol::new(value)))
}

pub fn now() -> Timestamp {
    "2026-03-04T10:30:00Z".parse().expect("a moment")
}

// ------------------------------------------------------------------------------------------------ instance types

/// One type with offerings in the given zones and capacity types.
pub fn machine(name: &str, capacity: &[(&str, &str)], offered: &[(&str, CapacityType, f64)]) -> InstanceType {
    let mut kind = InstanceType {
        name: TypeName::new(name),
        requirements: Default::default(),
        capacity: amounts(capacity),
        allocatable: amounts(capacity),
        volumes_max: Vec::new(),
        offerings: Vec::new(),
    };
    label(&mut kind, INSTANCE_TYPE, requirement(Operator::In, &[name]));
    label(&mut kind, ARCH, requirement(Operator::In, &["amd64"]));
    label(&mut kind, OS, requirement(Operator::In, &["linux", "windows", "darwin"]));
    offer(&mut kind, offered);
    kind
}

/// Has nodes of this type labelled so.
pub fn label(kind: &mut InstanceType, key: &str, values: Requirement) {
    Arc::make_mut(&mut kind.requirements).replace(key.into(), values);
}

/// Replaces the offerings.
pub fn offer(kind: &mut InstanceType, offered: &[(&str, CapacityType, f64)]) {
    let offering = |(zone, capacity_type, price): &(&str, CapacityType, f64)| Offering {
        zone: Zone::new(zone),
        capacity_type: *capacity_type,
        price: UsdPerHour((price * 1e6).round() as i64),
        is_available: true,
        reservation: None,
    };
    kind.offerings = offered.iter().map(offering).collect();
    let set = |values: BTreeSet<Symbol>| Requirement::new(Operator::In, values);
    let zones = set(kind.offerings.iter().map(|one| one.zone.0).collect());
    label(kind, ZONE, zones);
    let ways = set(kind.offerings.iter().map(|one| one.capacity_type.symbol()).collect());
    label(kind, CAPACITY_TYPE, ways);
}

/// Spot in two zones and on-demand in three, all for one price.
pub fn everywhere(price: f64) -> Vec<(&'static str, CapacityType, f64)> {
    let spot = [Z1, Z2].map(|zone| (zone, CapacityType::Spot, price));
    let on_demand = [Z1, Z2, Z3].map(|zone| (zone, CapacityType::OnDemand, price));
    spot.into_iter().chain(on_demand).collect()
}

fn sized(mut kind: InstanceType) -> InstanceType {
    let (cpu, memory) = (kind.capacity.cpu().0, kind.capacity.memory().0);
    let is_large = cpu > 4000 && memory > 8 << 30;
    label(&mut kind, SIZE, requirement(Operator::In, &[if is_large { "large" } else { "small" }]));
    let special = if is_large { requirement(Operator::In, &["optional"]) } else { Requirement::nothing() };
    label(&mut kind, SPECIAL, special);
    label(&mut kind, INTEGER, requirement(Operator::In, &[&(cpu / 1000).to_string()]));
    kind.allocatable.subtract(&amounts(&[("cpu", "100m"), ("memory", "10Mi")]));
    kind
}

fn price(cpu: i64, gib: i64) -> f64 {
    0.1 * cpu as f64 + 0.1 * (gib << 30) as f64 / 1e9
}

/// Six types: most of 4 CPU, 4 Gi and 5 pods.
pub fn assorted() -> Vec<InstanceType> {
    let small = |name: &str, extra: &[(&str, &str)], surcharge: f64| {
        let mut capacity = vec![("cpu", "4"), ("memory", "4Gi"), ("pods", "5")];
        capacity.extend(extra);
        sized(machine(name, &capacity, &everywhere(price(4, 4) + surcharge)))
    };
    let mut arm = machine(
        "arm-instance-type",
        &[("cpu", "16"), ("memory", "128Gi"), ("pods", "5")],
        &everywhere(price(16, 128)),
    );
    label(&mut arm, ARCH, requirement(Operator::In, &["arm64"]));
    label(&mut arm, OS, requirement(Operator::In, &["ios", "linux", "windows", "darwin"]));
    vec![
        small("default-instance-type", &[], 0.0),
        sized(machine(
            "small-instance-type",
            &[("cpu", "2"), ("memory", "2Gi"), ("pods", "5")],
            &everywhere(price(2, 2)),
        )),
        small("gpu-vendor-instance-type", &[("fake.com/vendor-a", "2")], 1.0),
        small("gpu-vendor-b-instance-type", &[("fake.com/vendor-b", "2")], 1.0),
        sized(arm),
        small("single-pod-instance-type", &[("pods", "1")], 0.0),
    ]
}

/// `count` types: each one CPU, 2 Gi and 10 pods larger than the one before.
pub fn ladder(count: i64) -> Vec<InstanceType> {
    (0..count)
        .map(|step| {
            let (cpu, memory, pods) =
                ((step + 1).to_string(), format!("{}Gi", 2 * (step + 1)), (10 * (step + 1)).to_string());
            let capacity = [("cpu", &*cpu), ("memory", &*memory), ("pods", &*pods)];
            sized(machine(
                &format!("fake-it-{step}"),
                &capacity,
                &everywhere(price(step + 1, 2 * (step + 1))),
            ))
        })
        .collect()
}

// ---------------------------------------------------------------------------------------------------------- pods

/// A pod in the making.
#[derive(Clone)]
pub struct A {
    pub name: String,
    pub shape: PodShape,
    pub owner: Option<(&'static str, String)>,
    pub node: Option<String>,
    pub phase: PodPhase,
    pub is_terminating: bool,
}

pub fn pod(name: &str) -> A {
    let shape = PodShape {
        namespace: "default".into(),
        labels: Labels::new(),
        requests: amounts(&[("pods", "1")]),
        node_selector: Labels::new(),
        node_required: Vec::new(),
        node_preferred: Vec::new(),
        affinity_required: Vec::new(),
        affinity_preferred: Vec::new(),
        anti_affinity_required: Vec::new(),
        anti_affinity_preferred: Vec::new(),
        spreads: Vec::new(),
        tolerations: Vec::new(),
        host_ports: Vec::new(),
        volumes: Vec::new(),
        has_resource_claims: false,
        priority: 0,
        scheduler_name: "default-scheduler".into(),
        termination_grace_seconds: 30,
        do_not_disrupt: None,
        deletion_cost: 0,
    };
    A {
        name: name.into(),
        shape,
        owner: Some(("ReplicaSet", "set".into())),
        node: None,
        phase: PodPhase::Pending,
        is_terminating: false,
    }
}

/// `count` pods `NAME-1`, `NAME-2`, … like `one`.
pub fn many(count: usize, one: &A) -> Vec<A> {
    (1..=count).map(|at| A { name: format!("{}-{at:03}", one.name), ..one.clone() }).collect()
}

pub fn expression(key: &str, operator: Operator, values: &[&str]) -> SelectorTerm {
    SelectorTerm {
        key: key.into(),
        operator,
        values: values.iter().map(|value| Symbol::new(value)).collect(),
    }
}

pub fn term(expressions: &[(&str, Operator, &[&str])]) -> NodeTerm {
    let expressions = expressions.iter().map(|(key, operator, values)| expression(key, *operator, values));
    NodeTerm { expressions: expressions.collect(), has_fields: false }
}

/// Selects pods with label `key=value`.
pub fn with_label(key: &str, value: &str) -> Option<Selector> {
    Some(Selector { terms: vec![expression(key, Operator::In, &[value])] })
}

pub fn near(topology_key: &str, selector: Option<Selector>) -> PodTerm {
    PodTerm {
        selector,
        topology_key: topology_key.into(),
        namespaces: Vec::new(),
        namespace_selector: None,
        match_label_keys: Vec::new(),
        mismatch_label_keys: Vec::new(),
    }
}

pub fn spread(topology_key: &str, max_skew: u32, selector: Option<Selector>) -> Spread {
    Spread {
        max_skew,
        topology_key: topology_key.into(),
        is_required: true,
        selector,
        min_domains: None,
        honors_affinity: true,
        honors_taints: false,
        match_label_keys: Vec::new(),
    }
}

impl A {
    pub fn request(mut self, name: &str, amount: &str) -> Self {
        self.shape.requests.add(&amounts(&[(name, amount)]));
        self
    }

    pub fn cpu(self, amount: &str) -> Self {
        self.request("cpu", amount)
    }

    pub fn memory(self, amount: &str) -> Self {
        self.request("memory", amount)
    }

    pub fn label(mut self, key: &str, value: &str) -> Self {
        self.shape.labels.insert(key.into(), value.into());
        self
    }

    pub fn select(mut self, key: &str, value: &str) -> Self {
        self.shape.node_selector.insert(key.into(), value.into());
        self
    }

    /// One more required term, ORed with the others.
    pub fn or(mut self, expressions: &[(&str, Operator, &[&str])]) -> Self {
        self.shape.node_required.push(term(expressions));
        self
    }

    pub fn prefer(mut self, weight: i32, key: &str, operator: Operator, values: &[&str]) -> Self {
        self.shape.node_preferred.push((weight, term(&[(key, operator, values)])));
        self
    }

    pub fn tolerate(mut self, key: &str, value: Option<&str>, effect: Option<Effect>) -> Self {
        let operator = if value.is_some() { TolerationOperator::Equal } else { TolerationOperator::Exists };
        let toleration = Toleration { key: key.into(), operator, value: value.unwrap_or("").into(), effect };
        self.shape.tolerations.push(toleration);
        self
    }

    pub fn spread(mut self, spread: Spread) -> Self {
        self.shape.spreads.push(spread);
        self
    }

    pub fn near(mut self, term: PodTerm) -> Self {
        self.shape.affinity_required.push(term);
        self
    }

    pub fn far(mut self, term: PodTerm) -> Self {
        self.shape.anti_affinity_required.push(term);
        self
    }

    pub fn host_port(mut self, port: u16) -> Self {
        self.shape.host_ports.push(HostPort { ip: "".into(), port, protocol: "TCP".into() });
        self
    }

    pub fn claim(mut self, name: &str) -> Self {
        self.shape.volumes.push(PodVolume::Claim(name.into()));
        self
    }

    pub fn namespace(mut self, name: &str) -> Self {
        self.shape.namespace = name.into();
        self
    }

    pub fn on(mut self, node: &str) -> Self {
        self.node = Some(node.into());
        self.phase = PodPhase::Running;
        self
    }

    pub fn owned_by(mut self, kind: &'static str, name: &str) -> Self {
        self.owner = Some((kind, name.into()));
        self
    }

    pub fn build(&self) -> Arc<Pod> {
        let owner = self.owner.as_ref().map(|(kind, name)| Owner {
            kind: (*kind).into(),
            api_version: match *kind {
                "ReplicationController" => "v1".into(),
                "Job" => "batch/v1".into(),
                _ => "apps/v1".into(),
            },
            name: Symbol::new(name),
            uid: Uid::new(name),
            is_controller: true,
        });
        Arc::new(Pod {
            key: ObjectKey { namespace: self.shape.namespace, name: Symbol::new(&self.name) },
            uid: Uid::new(&self.name),
            shape: Arc::new(self.shape.clone()),
            owners: owner.into_iter().collect(),
            created: Some(now()),
            deleted: self.is_terminating.then(now),
            started: None,
            node: self.node.as_deref().map(NodeName::new),
            nominated_node: None,
            phase: self.phase,
            is_ready: self.phase == PodPhase::Running,
            is_unschedulable: self.node.is_none(),
            is_gated: false,
        })
    }
}

// --------------------------------------------------------------------------------------------------------- pools

pub fn pool(name: &str) -> NodePool {
    NodePool {
        is_judged_earlier: false,
        name: PoolName::new(name),
        uid: Uid::new(name),
        created: None,
        is_deleting: false,
        template: Arc::new(NodeTemplate {
            labels: Labels::new(),
            annotations: Labels::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            requirements: Requirements::new(),
            class: ClassRef {
                group: "karpenter.test.sh".into(),
                kind: "TestNodeClass".into(),
                name: "test".into(),
            },
            termination_grace: None,
            expire_after: Patience::never(),
        }),
        disruption: Disruption {
            consolidate_after: Patience::never(),
            policy: ConsolidationPolicy::WhenEmpty,
            budgets: vec![Budget { nodes: BudgetNodes::Percent(10), reasons: Vec::new(), window: None }],
        },
        terms: Default::default(),
        limits: None,
        weight: 0,
        replicas: None,
        is_ready: true,
        hash: Some("17".into()),
        hash_version: Some("v3".into()),
        roll: Ok(Default::default()),
        roll_failures: None,
        new_stamp: None,
        owner: None,
        fault: None,
        conditions: Default::default(),
        used: None,
    }
}

pub trait PoolExt {
    fn template(&mut self) -> &mut NodeTemplate;
    fn require(self, key: &str, operator: Operator, values: &[&str]) -> Self;
    fn require_at_least(self, key: &str, operator: Operator, values: &[&str], min_values: u32) -> Self;
    fn label(self, key: &str, value: &str) -> Self;
    fn taint(self, key: &str, value: &str, effect: Effect) -> Self;
    fn limit(self, name: &str, amount: &str) -> Self;
    fn weight(self, weight: u32) -> Self;
}

impl PoolExt for NodePool {
    fn template(&mut self) -> &mut NodeTemplate {
        Arc::make_mut(&mut self.template)
    }

    fn require(mut self, key: &str, operator: Operator, values: &[&str]) -> Self {
        self.template().requirements.add(key.into(), requirement(operator, values));
        self
    }

    fn require_at_least(mut self, key: &str, operator: Operator, values: &[&str], min_values: u32) -> Self {
        let asked = requirement(operator, values).with_min_values(Some(min_values));
        self.template().requirements.add(key.into(), asked);
        self
    }

    fn label(mut self, key: &str, value: &str) -> Self {
        self.template().labels.insert(key.into(), value.into());
        self
    }

    fn taint(mut self, key: &str, value: &str, effect: Effect) -> Self {
        self.template().taints.push(Taint::new(key, value, effect));
        self
    }

    fn limit(mut self, name: &str, amount: &str) -> Self {
        self.limits.get_or_insert_default().add(&amounts(&[(name, amount)]));
        self
    }

    fn weight(mut self, weight: u32) -> Self {
        self.weight = weight;
        self
    }
}

// --------------------------------------------------------------------------------------------------------- world

pub struct World {
    pub cluster: Cluster,
    pub types: Vec<InstanceType>,
    pub settings: Settings,
    launched: usize,
}

/// What one round did.
pub struct Round {
    pub solution: Solution,
    pub purchase: Purchase,
    /// Pods left out before the solve, with their first code.
    pub rejected: BTreeMap<String, Code>,
}

impl World {
    pub fn new(pools: Vec<NodePool>, types: Vec<InstanceType>) -> Self {
        let mut world =
            Self { cluster: Cluster::default(), types, settings: Settings::default(), launched: 0 };
        for pool in pools {
            world.put_pool(pool);
        }
        world
    }

    /// One pool without requirements, and the assorted types.
    pub fn plain() -> Self {
        Self::new(vec![pool("default")], assorted())
    }

    pub fn of(pool: NodePool) -> Self {
        Self::new(vec![pool], assorted())
    }

    pub fn put_pool(&mut self, pool: NodePool) {
        self.cluster.pools.insert(pool.name, Arc::new(pool));
    }

    pub fn put_daemon(&mut self, name: &str, pod: &A) {
        let key = ObjectKey::new("default", name);
        let set = DaemonSet { key, uid: Uid::new(name), shape: Arc::new(pod.shape.clone()) };
        self.cluster.daemon_sets.insert(key, Arc::new(set));
    }

    pub fn put_pods(&mut self, pods: &[A]) {
        for pod in pods {
            self.cluster.put_pod(pod.build());
        }
    }

    /// A node that nobody manages.
    pub fn put_node(&mut self, name: &str, labels: &[(&str, &str)], allocatable: &[(&str, &str)]) {
        self.cluster.put_node(Arc::new(node(name, labels, allocatable)));
    }

    pub fn supply(&self) -> Supply {
        let types = Arc::new(self.types.clone());
        Supply::new(self.cluster.pools.keys().map(|pool| (*pool, types.clone())).collect())
    }

    /// Plans for everything that waits or moves, without carrying it out.
    pub fn plan(&self) -> Round {
        let (mut pods, rejected) = provisionable_pods(&self.cluster, &self.settings);
        pods.extend(moving_pods(&self.cluster, now()));
        let supply = self.supply();
        let solution = scheduling::solve(&Request {
            cluster: &self.cluster,
            supply: &supply,
            now: now(),
            pods: &pods,
            departing: &[],
            without_nodes: &BTreeSet::new(),
            without_claims: &BTreeSet::new(),
            shut_claims: &BTreeSet::new(),
            planned: &BTreeMap::new(),
            used_at_least: &BTreeMap::new(),
            settings: &self.settings,
            mode: Mode::Provisioning,
        });
        let seed = self.launched as u64;
        let purchase =
            provisioning::claims_for(&self.cluster, &supply, &solution, &self.settings, now(), seed);
        let rejected =
            rejected.into_iter().map(|left| (left.pod.name.to_string(), left.reasons[0].code)).collect();
        Round { solution, purchase, rejected }
    }

    /// The answer to a question about everything that waits.
    pub fn asking<T>(&self, ask: impl FnOnce(&Request) -> T) -> T {
        let (pods, _) = provisionable_pods(&self.cluster, &self.settings);
        let supply = self.supply();
        ask(&Request {
            cluster: &self.cluster,
            supply: &supply,
            now: now(),
            pods: &pods,
            departing: &[],
            without_nodes: &BTreeSet::new(),
            without_claims: &BTreeSet::new(),
            shut_claims: &BTreeSet::new(),
            planned: &BTreeMap::new(),
            used_at_least: &BTreeMap::new(),
            settings: &self.settings,
            mode: Mode::Provisioning,
        })
    }

    /// One round with these new pods, carried out: machines run, pods are bound.
    pub fn run(&mut self, pods: &[A]) -> Round {
        self.put_pods(pods);
        let round = self.plan();
        for (claim, pods) in &round.purchase.claims {
            let node = self.launch(claim);
            for pod in pods {
                self.bind(*pod, node);
            }
        }
        for (place, pods) in &round.solution.existing {
            let node = match place {
                Place::Node(name) => *name,
                Place::Claim(name) => NodeName(name.0),
            };
            for pod in pods {
                self.bind(*pod, node);
            }
        }
        round
    }

    /// The cheapest machine for `claim`, as a node that has registered but is not initialized.
    fn launch(&mut self, claim: &Arc<NodeClaim>) -> NodeName {
        let options = provisioning::launch_options(claim, &self.types, &BTreeSet::new());
        let bought =
            *options.iter().min_by_key(|option| (option.reservation.is_none(), **option)).expect("an option");
        let kind = self.types.iter().find(|kind| kind.name == bought.instance_type).expect("known").clone();
        self.launched += 1;
        let mut labels = claim.labels.clone();
        for (key, requirement) in kind.requirements.iter() {
            if let Some(value) = requirement.single() {
                labels.insert(key, value);
            }
        }
        labels.insert(*label::ZONE, bought.zone.0);
        labels.insert(*label::CAPACITY_TYPE, bought.capacity_type.symbol());
        let os = claim.spec.requirements.get(*label::OS).and_then(Requirement::single);
        labels.insert(*label::OS, os.unwrap_or("linux".into()));
        labels.insert(*label::REGISTERED, "true".into());
        let name = NodeName::new(&format!("node-{:03}", self.launched));
        let instance = ProviderId::new(&format!("fake:///{}/{name}", bought.zone));
        let mut launched = (**claim).clone();
        launched.provider_id = Some(instance);
        launched.capacity = kind.capacity.clone();
        launched.allocatable = kind.allocatable.clone();
        launched.labels = labels.clone();
        launched.node = Some(name);
        self.cluster.put_claim(Arc::new(launched));
        labels.insert(*label::HOSTNAME, name.0);
        let mut taints = claim.spec.taints.clone();
        taints.extend(&claim.spec.startup_taints);
        taints.push(Taint::new("node.kubernetes.io/not-ready", "", Effect::NoSchedule));
        let bare = node(name.as_str(), &[], &[]);
        let node = Node {
            labels,
            taints,
            provider_id: Some(instance),
            capacity: kind.capacity,
            allocatable: kind.allocatable,
            ..bare
        };
        self.cluster.put_node(Arc::new(node));
        if let Some(id) = bought.reservation {
            self.use_reservation(id);
        }
        name
    }

    fn use_reservation(&mut self, id: Symbol) {
        for offering in self.types.iter_mut().flat_map(|kind| &mut kind.offerings) {
            if let Some(reservation) =
                offering.reservation.as_mut().filter(|reservation| reservation.id == id)
            {
                reservation.remaining -= 1;
                offering.is_available = reservation.remaining > 0;
            }
        }
    }

    pub fn bind(&mut self, pod: ObjectKey, node: NodeName) {
        let mut bound = (*self.cluster.pods[&pod]).clone();
        bound.node = Some(node);
        bound.phase = PodPhase::Running;
        bound.is_ready = true;
        bound.is_unschedulable = false;
        self.cluster.put_pod(Arc::new(bound));
    }

    pub fn edit_node(&mut self, name: &str, edit: impl FnOnce(&mut Node)) {
        let mut node = (*self.cluster.nodes[&NodeName::new(name)]).clone();
        edit(&mut node);
        self.cluster.put_node(Arc::new(node));
    }

    pub fn edit_claim_of(&mut self, node: &str, edit: impl FnOnce(&mut NodeClaim)) {
        let claim =
            self.cluster.claim_of(&self.cluster.nodes[&NodeName::new(node)]).expect("a claim").clone();
        let mut claim = (*claim).clone();
        edit(&mut claim);
        self.cluster.put_claim(Arc::new(claim));
    }

    /// The node has everything it needs and its startup taints are gone.
    pub fn initialize(&mut self, name: &str) {
        self.edit_node(name, |node| {
            node.labels.insert(*label::INITIALIZED, "true".into());
            node.taints.clear();
        });
    }

    /// Forgets pods that wait.
    pub fn drop_waiting(&mut self) {
        let waiting: Vec<ObjectKey> = self.cluster.waiting_pods().map(|pod| pod.key).collect();
        for pod in waiting {
            self.cluster.remove_pod(pod);
        }
    }

    pub fn remove_pods(&mut self, leave: impl Fn(&Pod) -> bool) {
        let gone: Vec<ObjectKey> =
            self.cluster.pods.values().filter(|pod| !leave(pod)).map(|pod| pod.key).collect();
        for pod in gone {
            self.cluster.remove_pod(pod);
        }
    }

    /// The node that a pod of namespace `default` is bound to.
    pub fn node_of(&self, pod: &str) -> Option<&Node> {
        let pod = self.cluster.pods.values().find(|found| &*found.key.name == pod)?;
        self.cluster.nodes.get(&pod.node?).map(|node| &**node)
    }

    pub fn host_of(&self, pod: &str) -> Option<&'static str> {
        self.node_of(pod).map(|node| node.name.as_str())
    }

    /// A label of the node that a pod is bound to.
    pub fn value_of(&self, pod: &str, key: &str) -> Option<&'static str> {
        self.node_of(pod)?.labels.get(&Symbol::new(key)).map(|value| value.as_str())
    }

    pub fn is_bound(&self, pod: &str) -> bool {
        self.node_of(pod).is_some()
    }

    pub fn waiting(&self) -> usize {
        self.cluster.waiting_pods().count()
    }

    /// Bound pods with label `key=value`, per value of a node label, fewest first.
    pub fn skew(&self, topology_key: &str, key: &str, value: &str) -> Vec<usize> {
        let mut counts: BTreeMap<Symbol, usize> = BTreeMap::new();
        for pod in self
            .cluster
            .pods
            .values()
            .filter(|pod| pod.shape.labels.get(&key.into()).is_some_and(|v| &**v == value))
        {
            let node = pod.node.and_then(|node| self.cluster.nodes.get(&node));
            if let Some(domain) = node.and_then(|node| node.labels.get(&Symbol::new(topology_key))) {
                *counts.entry(*domain).or_default() += 1;
            }
        }
        let mut counts: Vec<usize> = counts.into_values().collect();
        counts.sort();
        counts
    }
}

impl Round {
    pub fn new_nodes(&self) -> &[NewNode] {
        &self.solution.new_nodes
    }

    /// The codes given for a pod.
    pub fn codes(&self, pod: &str) -> Vec<Code> {
        let left = self.solution.unschedulable.iter().find(|left| &*left.pod.name == pod);
        left.map_or_else(Vec::new, |left| left.reasons.iter().map(|reason| reason.code).collect())
    }

    pub fn message(&self, pod: &str) -> String {
        let left = self.solution.unschedulable.iter().find(|left| &*left.pod.name == pod);
        left.map_or_else(String::new, |left| {
            let messages: Vec<&str> = left.reasons.iter().map(|reason| reason.message.as_str()).collect();
            messages.join("; ")
        })
    }

    pub fn claim(&self) -> &NodeClaim {
        &self.purchase.claims.first().expect("a claim").0
    }
}

pub fn node(name: &str, labels: &[(&str, &str)], allocatable: &[(&str, &str)]) -> Node {
    let mut all: Labels = labels.iter().map(|(key, value)| (Symbol::new(key), Symbol::new(value))).collect();
    all.entry(HOSTNAME.into()).or_insert(name.into());
    Node {
        name: NodeName::new(name),
        uid: Uid::new(name),
        labels: all,
        annotations: Labels::new(),
        created: Some(now()),
        deleted: None,
        has_finalizer: false,
        provider_id: None,
        taints: Vec::new(),
        is_cordoned: false,
        capacity: amounts(allocatable),
        allocatable: amounts(allocatable),
        conditions: Vec::new(),
    }
}

/// The names of a claim's instance types.
pub fn types_of(claim: &NodeClaim) -> Vec<&'static str> {
    values_of(claim, INSTANCE_TYPE)
}

pub fn values_of(claim: &NodeClaim, key: &str) -> Vec<&'static str> {
    let requirement = claim.spec.requirements.get(key.into());
    requirement
        .and_then(Requirement::listed)
        .map_or_else(Vec::new, |values| values.iter().map(|value| value.as_str()).collect())
}
