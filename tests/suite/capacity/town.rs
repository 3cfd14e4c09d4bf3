//! A small cluster made by hand, to judge or to live in.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::cluster::Cluster;
use provisor::capacity::decision::Decision;
use provisor::capacity::disruption::{Command, DisruptionPlan};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::capacity::planning;
use provisor::model::action::{Action, Notice};
use provisor::model::catalog::Catalog;
use provisor::model::claim::{ClaimSpec, Condition, ConditionStatus, ConditionType, Conditions, NodeClaim};
use provisor::model::class::{AmiFamily, InstanceStorePolicy, KubeletSettings, NodeClass};
use provisor::model::label::{self, Labels};
use provisor::model::name::{ClaimName, NodeName, ObjectKey, PoolName, ProviderId, TypeName, Uid, Zone};
use provisor::model::node::{Node, NodeCondition};
use provisor::model::observation::{Instance, Observation};
use provisor::model::offering::{CapacityType, InstanceType};
use provisor::model::pod::{Owner, Pod, PodPhase, PodShape, Selector, SelectorTerm};
use provisor::model::pool::{
    Budget, BudgetNodes, ClassRef, ConsolidationPolicy, Disruption, NodePool, NodeTemplate,
};
use provisor::model::quantity::{Quantity, ResourceName, Resources};
use provisor::model::requirement::{Operator, Requirement, Requirements};
use provisor::model::symbol::Symbol;
use provisor::model::time::Patience;
use provisor::model::workload::{CountOrPercent, PodDisruptionBudget};
use provisor::simulator::world::World;

const TYPES: &str = "\
instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types
m5.large,amd64,2,8192,1930m,6903Mi,29,,,0.096,0.035,us-west-2a us-west-2b,on-demand spot
m5.xlarge,amd64,4,16384,3920m,14162Mi,58,,,0.192,0.07,us-west-2a us-west-2b,on-demand spot
m5.2xlarge,amd64,8,32768,7910m,29317Mi,58,,,0.384,0.14,us-west-2a us-west-2b,on-demand spot
";

pub fn catalog() -> Arc<Catalog> {
    Arc::new(Catalog::parse_csv(TYPES, "types.csv").expect("the table is well formed"))
}

/// A catalog of `rows` in the columns of the usual one.
pub fn sold(rows: &str) -> Arc<Catalog> {
    let head = TYPES.lines().next().expect("it has a head");
    Arc::new(Catalog::parse_csv(&format!("{head}\n{rows}\n"), "types.csv").expect("the table is well formed"))
}

pub fn at(text: &str) -> Timestamp {
    text.parse().expect("a moment")
}

pub const NOW: &str = "2026-03-04T10:30:00Z";
const BORN: &str = "2026-03-01T08:00:00Z";

pub fn requests(cpu: &str) -> Resources {
    [("cpu", cpu), ("memory", "256Mi"), ("pods", "1")]
        .into_iter()
        .map(|(name, amount)| {
            let name = ResourceName::new(name);
            (name, name.amount(amount.parse::<Quantity>().expect("a quantity")))
        })
        .collect()
}

pub fn shape(app: &str, cpu: &str) -> PodShape {
    PodShape {
        namespace: "default".into(),
        labels: Labels::from([("app".into(), app.into())]),
        requests: requests(cpu),
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
    }
}

pub fn owned_by(kind: &str) -> Owner {
    let api_version = if kind == "Node" { "v1" } else { "apps/v1" };
    Owner {
        kind: kind.into(),
        api_version: api_version.into(),
        name: "owner".into(),
        uid: "owner-uid".into(),
        is_controller: true,
    }
}

/// A pod that runs on `node`, or waits if there is none.
pub fn pod(name: &str, node: Option<&str>, shape: PodShape) -> Pod {
    let started = Some(at(BORN)).filter(|_| node.is_some());
    Pod {
        key: ObjectKey::new("default", name),
        uid: Uid::new(&format!("{name}-uid")),
        shape: Arc::new(shape),
        owners: vec![owned_by("ReplicaSet")],
        created: Some(at(BORN)),
        deleted: None,
        started,
        node: node.map(NodeName::new),
        nominated_node: None,
        phase: if node.is_some() { PodPhase::Running } else { PodPhase::Pending },
        is_ready: node.is_some(),
        is_unschedulable: node.is_none(),
        is_gated: false,
    }
}

/// A budget for the pods of `app` that allows so many to be away.
pub fn pdb(name: &str, app: &str, allowed: i64) -> PodDisruptionBudget {
    let term = SelectorTerm { key: "app".into(), operator: Operator::In, values: vec![app.into()] };
    PodDisruptionBudget {
        key: ObjectKey::new("default", name),
        selector: Some(Selector { terms: vec![term] }),
        min_available: None,
        max_unavailable: Some(CountOrPercent::Count(allowed)),
        disruptions_allowed: Some(allowed),
        always_allows_unhealthy: false,
    }
}

/// A pool of on-demand machines of all types, without limits or budgets, that consolidates at once.
pub fn pool(name: &str) -> NodePool {
    let mut requirements = Requirements::new();
    requirements.add(*label::CAPACITY_TYPE, Requirement::one("on-demand".into()));
    let budget = Budget { nodes: BudgetNodes::Percent(100), reasons: Vec::new(), window: None };
    NodePool {
        is_judged_earlier: false,
        name: PoolName::new(name),
        uid: Uid::new(name),
        created: Some(at(BORN)),
        is_deleting: false,
        template: Arc::new(NodeTemplate {
            labels: Labels::new(),
            annotations: Labels::new(),
            taints: Vec::new(),
            startup_taints: Vec::new(),
            requirements,
            class: ClassRef {
                group: "karpenter.k8s.aws".into(),
                kind: "EC2NodeClass".into(),
                name: "default".into(),
            },
            termination_grace: None,
            expire_after: Patience::never(),
        }),
        disruption: Disruption {
            consolidate_after: Patience::of(SignedDuration::ZERO),
            policy: ConsolidationPolicy::WhenEmptyOrUnderutilized,
            budgets: vec![budget],
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

/// A node class that is ready.
pub fn class(name: &str) -> NodeClass {
    NodeClass {
        name: name.into(),
        owner: None,
        is_ready: true,
        readiness: Some(Condition {
            status: ConditionStatus::True,
            reason: "Ready".into(),
            message: "".into(),
            since: Some(at(BORN)),
        }),
        is_deleting: false,
        held: None,
        ami_family: AmiFamily::Al2023,
        kubelet: KubeletSettings::default(),
        root_volume: None,
        instance_store: InstanceStorePolicy::None,
        zones: Vec::new(),
        hash: None,
        hash_version: None,
        spec: Arc::new(serde_json::json!({})),
    }
}

pub struct Town {
    pub cluster: Cluster,
    pub now: Timestamp,
    pub settings: EngineSettings,
    types: Arc<Vec<InstanceType>>,
}

impl Town {
    pub fn new(pools: Vec<NodePool>) -> Self {
        Self::selling(catalog(), pools)
    }

    /// The same, where `catalog` is for sale.
    pub fn selling(catalog: Arc<Catalog>, pools: Vec<NodePool>) -> Self {
        let types = catalog.instance_types(None);
        let mut cluster = Cluster::default();
        cluster.catalog = Some(catalog);
        cluster.classes.insert("default".into(), Arc::new(class("default")));
        cluster.pools = pools.into_iter().map(|pool| (pool.name, Arc::new(pool))).collect();
        Self { cluster, now: at(NOW), settings: EngineSettings::default(), types }
    }

    /// One pool called `default`, changed by `change`.
    pub fn with(change: impl FnOnce(&mut NodePool)) -> Self {
        let mut default = pool("default");
        change(&mut default);
        Self::new(vec![default])
    }

    pub fn change_pool(&mut self, name: &str, change: impl FnOnce(&mut NodePool)) {
        let known = self.cluster.pools.get_mut(&PoolName::new(name)).expect("the pool exists");
        change(Arc::make_mut(known));
    }

    /// An initialized on-demand node of the pool `default` in zone a, with its claim.
    pub fn node(&mut self, name: &str, kind: &str) {
        self.node_of("default", name, kind, "on-demand");
    }

    pub fn node_of(&mut self, pool: &str, name: &str, kind: &str, capacity_type: &str) {
        self.node_in("us-west-2a", pool, name, kind, capacity_type);
    }

    pub fn node_in(&mut self, zone: &str, pool: &str, name: &str, kind: &str, capacity_type: &str) {
        let found = self.types.iter().find(|one| &*one.name.0 == kind).expect("the type is on offer").clone();
        let id = ProviderId::new(&format!("aws:///{zone}/i-{name}"));
        let mut labels: Labels =
            found.requirements.iter().filter_map(|(key, values)| Some((key, values.single()?))).collect();
        labels.insert(*label::NODEPOOL, pool.into());
        labels.insert(*label::INSTANCE_TYPE, kind.into());
        labels.insert(*label::ZONE, zone.into());
        labels.insert(*label::CAPACITY_TYPE, capacity_type.into());
        labels.insert("karpenter.k8s.aws/ec2nodeclass".into(), "default".into());
        let mut conditions = Conditions::default();
        for kind in [ConditionType::Launched, ConditionType::Registered, ConditionType::Initialized] {
            conditions.set(kind, ConditionStatus::True, kind.as_str(), "", at(BORN));
        }
        let template = self.cluster.pools[&PoolName::new(pool)].template.clone();
        self.cluster.put_claim(Arc::new(NodeClaim {
            name: ClaimName::new(&format!("{name}-claim")),
            uid: Uid::new(&format!("{name}-claim-uid")),
            labels: labels.clone(),
            annotations: Labels::new(),
            created: Some(at(BORN)),
            deleted: None,
            has_finalizer: true,
            spec: ClaimSpec {
                requirements: template.requirements.clone(),
                requests: Resources::new(),
                taints: Vec::new(),
                startup_taints: Vec::new(),
                class: template.class,
                expire_after: template.expire_after.clone(),
                termination_grace: template.termination_grace,
            },
            node: Some(NodeName::new(name)),
            provider_id: Some(id),
            image: Some("ami-1".into()),
            capacity: found.capacity.clone(),
            allocatable: found.allocatable.clone(),
            conditions,
            last_pod_event: None,
        }));
        labels.insert(*label::HOSTNAME, name.into());
        labels.insert(*label::REGISTERED, "true".into());
        labels.insert(*label::INITIALIZED, "true".into());
        self.cluster.put_node(Arc::new(Node {
            name: NodeName::new(name),
            uid: Uid::new(&format!("{name}-uid")),
            labels,
            annotations: Labels::new(),
            created: Some(at(BORN)),
            deleted: None,
            has_finalizer: true,
            provider_id: Some(id),
            taints: Vec::new(),
            is_cordoned: false,
            capacity: found.capacity.clone(),
            allocatable: found.allocatable.clone(),
            conditions: vec![ready("True")],
        }));
    }

    /// The machine of `node`, as the cloud lists it.
    pub fn instance(&self, node: &str) -> Instance {
        let claim = &self.cluster.claims[&ClaimName::new(&format!("{node}-claim"))];
        let text = |key: Symbol| claim.labels[&key];
        Instance {
            provider_id: claim.provider_id.expect("it was launched"),
            claim: Some(claim.name),
            pool: claim.pool(),
            instance_type: TypeName(text(*label::INSTANCE_TYPE)),
            zone: Zone(text(*label::ZONE)),
            capacity_type: CapacityType::OnDemand,
            reservation: None,
            image: "ami-1".into(),
            launched: at("2026-01-01T00:00:00Z"),
            is_stopped: false,
            is_terminating: false,
            capacity: claim.capacity.clone(),
            allocatable: claim.allocatable.clone(),
        }
    }

    pub fn change_node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        let mut node = (*self.cluster.nodes[&NodeName::new(name)]).clone();
        change(&mut node);
        self.cluster.put_node(Arc::new(node));
    }

    pub fn change_claim(&mut self, node: &str, change: impl FnOnce(&mut NodeClaim)) {
        let mut claim = (*self.cluster.claims[&ClaimName::new(&format!("{node}-claim"))]).clone();
        change(&mut claim);
        self.cluster.put_claim(Arc::new(claim));
    }

    pub fn drift(&mut self, node: &str, since: &str) {
        self.change_claim(node, |claim| {
            claim.conditions.set(
                ConditionType::Drifted,
                ConditionStatus::True,
                "NodePoolDrifted",
                "",
                at(since),
            );
        });
    }

    pub fn run(&mut self, name: &str, node: &str, shape: PodShape) {
        self.cluster.put_pod(Arc::new(pod(name, Some(node), shape)));
    }

    pub fn add_budget(&mut self, budget: PodDisruptionBudget) {
        self.cluster.budgets.insert(budget.key, Arc::new(budget));
    }

    pub fn plan(&self) -> DisruptionPlan {
        Arc::unwrap_or_clone(planning::plan(&self.cluster, self.now, &self.settings).disruption)
    }

    /// The nodes that would go, by name.
    pub fn gone(&self) -> Vec<&'static str> {
        let plan = self.plan();
        let mut names: Vec<_> =
            plan.commands.iter().flat_map(|command| command.nodes.iter().map(|node| node.as_str())).collect();
        names.sort_unstable();
        names
    }

    pub fn command(&self) -> Command {
        let mut commands = self.plan().commands;
        assert_eq!(commands.len(), 1, "one command was expected: {commands:#?}");
        commands.remove(0)
    }

    /// The word for why `node` stays.
    pub fn kept(&self, node: &str) -> &'static str {
        let plan = self.plan();
        plan.kept.iter().find(|kept| kept.node == NodeName::new(node)).map_or("gone", |kept| kept.code)
    }

    /// An engine that has seen all of it.
    pub fn engine(&self) -> Engine {
        engine_of(&self.cluster, self.now, self.settings.clone())
    }
}

pub fn ready(status: &str) -> NodeCondition {
    NodeCondition { kind: Symbol::new("Ready"), status: Symbol::new(status), since: Some(at(BORN)) }
}

/// A new engine that sees the objects of `cluster` for the first time.
pub fn engine_of(cluster: &Cluster, now: Timestamp, settings: EngineSettings) -> Engine {
    let mut engine = Engine::new(settings);
    objects(cluster).into_iter().for_each(|seen| engine.observe(now, seen));
    engine.observe(now, Observation::Synced);
    engine
}

/// Every object of `cluster`, as it is seen for the first time.
pub fn objects(cluster: &Cluster) -> Vec<Observation> {
    let mut seen = Vec::new();
    let mut see = |one| seen.push(one);
    cluster.catalog.iter().for_each(|catalog| see(Observation::Catalog(catalog.clone())));
    cluster.classes.values().for_each(|one| see(Observation::Class(one.clone())));
    cluster.pools.values().for_each(|one| see(Observation::Pool(one.clone())));
    cluster.claims.values().for_each(|one| see(Observation::Claim(one.clone())));
    cluster.nodes.values().for_each(|one| see(Observation::Node(one.clone())));
    cluster.pods.values().for_each(|one| see(Observation::Pod(one.clone())));
    cluster.overlays.values().for_each(|one| see(Observation::Overlay(one.clone())));
    cluster.pod_templates.values().for_each(|one| see(Observation::PodTemplate(one.clone())));
    cluster.scalables.values().for_each(|one| see(Observation::Scalable(one.clone())));
    cluster.buffers.values().for_each(|one| see(Observation::Buffer(one.clone())));
    cluster.budgets.values().for_each(|one| see(Observation::Budget(one.clone())));
    cluster.attachments.values().for_each(|one| see(Observation::VolumeAttachment(one.clone())));
    seen
}

/// Lets the engine see everything that it decided as done.
pub fn echo(engine: &mut Engine, now: Timestamp) {
    let claims: Vec<_> = engine.cluster().claims.values().cloned().collect();
    let nodes: Vec<_> = engine.cluster().nodes.values().cloned().collect();
    claims.into_iter().for_each(|claim| engine.observe(now, Observation::Claim(claim)));
    nodes.into_iter().for_each(|node| engine.observe(now, Observation::Node(node)));
}

/// Every decision until `until`, made when the engine wants to be asked.
pub fn decisions(engine: &mut Engine, from: Timestamp, until: Timestamp) -> Vec<(Timestamp, Decision)> {
    let (mut all, mut now) = (Vec::new(), from);
    while now < until {
        let decision = engine.decide(now);
        let wake = decision.wake_at.unwrap_or(until);
        all.push((now, decision));
        echo(engine, now);
        now = wake.max(now + SignedDuration::from_secs(1));
    }
    all
}

/// What is published at objects: at which, by which word, and what is said.
pub fn events(decision: &Decision) -> Vec<(String, String, String)> {
    let published = decision.actions.iter().filter_map(|planned| match &planned.action {
        Action::Publish(notice) => Some(notice),
        _ => None,
    });
    let told =
        |notice: &Notice| (notice.subject.to_string(), notice.reason.to_string(), notice.message.to_string());
    published.map(told).collect()
}

/// Lets `world` live under `engine` until `until`. `watch` sees each decision.
pub fn live(
    world: &mut World,
    engine: &mut Engine,
    until: Timestamp,
    mut watch: impl FnMut(Timestamp, &Decision),
) {
    loop {
        let mut wake = until;
        for _ in 0..100 {
            let news = world.take_news();
            let has_news = !news.is_empty();
            news.into_iter().for_each(|(at, seen)| engine.observe(at, seen));
            let decision = engine.decide(world.now());
            decision.actions.iter().for_each(|planned| world.perform(&planned.action));
            watch(world.now(), &decision);
            wake = decision.wake_at.unwrap_or(until);
            if decision.actions.is_empty() && !has_news {
                break;
            }
        }
        if world.now() >= until {
            return;
        }
        world.advance(wake.max(world.now() + SignedDuration::from_millis(100)).min(until));
    }
}

/// The actions of one kind, by the words of their reasons.
pub fn reasons(decision: &Decision) -> BTreeMap<&'static str, usize> {
    let mut counts = BTreeMap::new();
    for planned in decision.actions.iter().filter(|one| !matches!(one.action, Action::Publish(_))) {
        *counts.entry(planned.reason.code).or_default() += 1;
    }
    counts
}
