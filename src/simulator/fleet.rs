//! Fleets made up from a seed: pools, workloads, budgets, and nodes of others beside them.
//!
//! A plan is a few words for each thing, which a person can read and cut down. What is made of it are ordinary objects.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use super::chance;
use super::faults::Span;
use super::workload::{Workload, WorkloadKind};
use super::world::World;
use crate::model::catalog::Catalog;
use crate::model::class::{AmiFamily, InstanceStorePolicy, KubeletSettings, NodeClass};
use crate::model::label::{self, Labels};
use crate::model::name::{NodeName, ObjectKey, PoolName, ProviderId, Uid};
use crate::model::node::Node;
use crate::model::observation::Observation;
use crate::model::offering::CapacityType;
use crate::model::pod::{Pod, PodPhase, PodShape, PodTerm, Selector, SelectorTerm, Spread};
use crate::model::pool::{
    Budget, BudgetNodes, BudgetWindow, ClassRef, ConsolidationPolicy, Disruption, NodePool, NodeTemplate,
};
use crate::model::quantity::{Quantity, ResourceName, Resources, resource};
use crate::model::requirement::{Operator, Requirement, Requirements};
use crate::model::roll::Roll;
use crate::model::symbol::Symbol;
use crate::model::taint::{Effect, Taint, Toleration, TolerationOperator};
use crate::model::time::Patience;
use crate::model::workload::{CountOrPercent, DaemonSet, PodDisruptionBudget};

pub(super) const ZONES: [&str; 3] = ["us-west-2a", "us-west-2b", "us-west-2c"];

/// Name, processors, MiB, what of both is left for pods, pods, dollars on demand and as spot.
type Sold = (&'static str, u32, u32, u32, u32, u32, &'static str, &'static str);

/// What is sold.
pub(super) const TYPES: [Sold; 6] = [
    ("c5.large", 2, 4096, 1930, 3190, 29, "0.085", "0.033"),
    ("c5.xlarge", 4, 8192, 3920, 6894, 58, "0.17", "0.066"),
    ("m5.2xlarge", 8, 32768, 7910, 29317, 58, "0.384", "0.14"),
    ("m5.large", 2, 8192, 1930, 6903, 29, "0.096", "0.035"),
    ("m5.xlarge", 4, 16384, 3920, 14162, 58, "0.192", "0.07"),
    ("r5.large", 2, 16384, 1930, 14344, 29, "0.126", "0.046"),
];

const NAMESPACE: &str = "default";

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct FleetPlan {
    /// Nodes that somebody else runs, with a pod on each.
    #[serde(default)]
    pub strangers: u32,
    /// Processors, in thousandths, that a DaemonSet takes on every node.
    #[serde(default)]
    pub daemon_cpu: u32,
    #[serde(default)]
    pub pools: Vec<PoolPlan>,
    #[serde(default)]
    pub workloads: Vec<WorkloadPlan>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct PoolPlan {
    pub name: String,
    pub capacity_types: Vec<CapacityType>,
    /// Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// Empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub types: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_nodes: Option<u32>,
    /// Whole processors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_cpu: Option<u32>,
    /// Nodes that may be away at once: `2` or `30%`.
    pub budget: String,
    /// Nothing goes for savings or drift for eight hours from this hour of the day on, UTC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frozen_from: Option<u32>,
    pub consolidate_after: Span,
    /// `WhenEmpty`, `WhenEmptyOrUnderutilized` or `Balanced`.
    pub policy: String,
    #[serde(default)]
    pub weight: u32,
    /// A static pool of so many nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expire_after: Option<Span>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub termination_grace: Option<Span>,
    /// Only pods that say so run there.
    #[serde(default)]
    pub is_tainted: bool,
    #[serde(default)]
    pub has_startup_taint: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct WorkloadPlan {
    pub name: String,
    pub replicas: u32,
    /// Thousandths of a processor.
    pub cpu: u32,
    /// MiB.
    pub memory: u32,
    /// At most so many pods may be away by eviction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capacity_type: Option<CapacityType>,
    /// Spread over zones, `DoNotSchedule`.
    #[serde(default)]
    pub is_spread: bool,
    /// No two on one node.
    #[serde(default)]
    pub is_apart: bool,
    #[serde(default)]
    pub do_not_disrupt: bool,
    /// Runs on tainted pools only.
    #[serde(default)]
    pub tolerates: bool,
    pub grace: Span,
    /// Ends only when it is killed.
    #[serde(default)]
    pub ignores_sigterm: bool,
}

impl FleetPlan {
    /// A fleet of 3 to 60 nodes; most are small.
    pub fn draw(rng: &mut ChaCha8Rng) -> Self {
        // So many processors, about, that its pods ask for.
        let size = match chance::below(rng, 20) {
            0..14 => 3 + chance::below(rng, 10),
            14..19 => 12 + chance::below(rng, 20),
            _ => 40 + chance::below(rng, 60),
        };
        let pools = 1 + chance::below(rng, 3);
        let pools: Vec<PoolPlan> = (0..pools).map(|at| PoolPlan::draw(at, size, rng)).collect();
        let workloads = 1 + chance::below(rng, 5);
        let share = size * 1000 / workloads;
        let has_taint = pools.iter().any(|pool| pool.is_tainted);
        let workloads = (0..workloads).map(|at| WorkloadPlan::draw(at, share, has_taint, rng)).collect();
        let daemon_cpu = if chance::happens(rng, 500) { 100 } else { 0 };
        Self { strangers: chance::below(rng, 3) as u32, daemon_cpu, pools, workloads }
    }

    /// Puts all of it into `world`.
    pub fn furnish(&self, world: &mut World) {
        let now = world.now();
        world.apply(Observation::Class(Arc::new(class())));
        if self.daemon_cpu > 0 {
            world.apply(Observation::DaemonSet(Arc::new(daemon_set(self.daemon_cpu))));
        }
        (0..self.strangers).for_each(|at| add_stranger(world, at, now));
        for pool in &self.pools {
            world.apply(Observation::Pool(Arc::new(pool.object(0, now))));
        }
        for workload in &self.workloads {
            if let Some(most) = workload.budget {
                world.apply(Observation::Budget(Arc::new(workload.pod_budget(most))));
            }
            world.add_workload(workload.object());
        }
    }

    pub fn pool(&self, name: &str) -> Option<&PoolPlan> {
        self.pools.iter().find(|pool| pool.name == name)
    }

    pub fn workload(&self, name: &str) -> Option<&WorkloadPlan> {
        self.workloads.iter().find(|workload| workload.name == name)
    }
}

/// What is sold to these fleets.
pub fn catalog() -> Arc<Catalog> {
    let mut text = String::from(
        "instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types\n",
    );
    let zones = ZONES.join(" ");
    for (name, cpu, memory, left_cpu, left_memory, pods, on_demand, spot) in TYPES {
        text.push_str(&format!(
            "{name},amd64,{cpu},{memory},{left_cpu}m,{left_memory}Mi,{pods},,,{on_demand},{spot},{zones},on-demand spot\n"
        ));
    }
    Arc::new(Catalog::parse_csv(&text, "types.csv").expect("the table above is well formed"))
}

impl PoolPlan {
    fn draw(at: u64, size: u64, rng: &mut ChaCha8Rng) -> Self {
        let both = vec![CapacityType::Spot, CapacityType::OnDemand];
        let capacity_types = match chance::below(rng, 4) {
            0 => vec![CapacityType::OnDemand],
            1 => vec![CapacityType::Spot],
            _ => both,
        };
        let zones = match chance::below(rng, 4) {
            0 => vec![ZONES[0].to_owned(), ZONES[1].to_owned()],
            _ => Vec::new(),
        };
        let types = match chance::below(rng, 4) {
            0 => vec!["m5.large".to_owned(), "m5.xlarge".to_owned(), "m5.2xlarge".to_owned()],
            _ => Vec::new(),
        };
        // The first pool takes everybody; others may be special.
        let is_first = at == 0;
        let replicas = (!is_first && chance::happens(rng, 200)).then(|| 1 + chance::below(rng, 3) as u32);
        let is_tainted = !is_first && chance::happens(rng, 250);
        let limit = chance::below(rng, 4);
        let budget = ["1", "2", "10%", "30%", "100%"][chance::below(rng, 5) as usize].to_owned();
        let policy = match chance::below(rng, 8) {
            0 => ConsolidationPolicy::WhenEmpty,
            1 => ConsolidationPolicy::Balanced,
            _ => ConsolidationPolicy::WhenEmptyOrUnderutilized,
        };
        let after = [0, 30, 60, 600][chance::below(rng, 4) as usize];
        let mut pool = Self {
            name: format!("pool-{at}"),
            capacity_types,
            zones,
            types,
            limit_nodes: (limit == 0).then(|| 2 + chance::below(rng, size / 2 + 2) as u32),
            limit_cpu: (limit == 1).then(|| 8 + chance::below(rng, size * 2) as u32),
            budget,
            frozen_from: chance::happens(rng, 150).then(|| chance::below(rng, 24) as u32),
            consolidate_after: Span::secs(after),
            policy: policy.as_str().to_owned(),
            weight: chance::below(rng, 3) as u32 * 10,
            replicas,
            expire_after: chance::happens(rng, 150)
                .then(|| Span(SignedDuration::from_hours(12 + chance::below(rng, 90) as i64))),
            termination_grace: chance::happens(rng, 600)
                .then(|| Span(SignedDuration::from_mins(2 + chance::below(rng, 30) as i64))),
            is_tainted,
            has_startup_taint: chance::happens(rng, 200),
        };
        // A static pool may have no weight, and only its nodes may be limited (API-033).
        if pool.replicas.is_some() {
            (pool.limit_cpu, pool.weight) = (None, 0);
        }
        pool
    }

    /// How many of its words can be left out.
    pub(super) const TRAITS: usize = 8;

    /// Leaves out one of the words that a pool need not have.
    pub(super) fn drop_trait(&mut self, at: usize) {
        match at {
            0 => (self.limit_nodes, self.limit_cpu) = (None, None),
            1 => self.frozen_from = None,
            2 => self.expire_after = None,
            3 => self.has_startup_taint = false,
            4 => self.zones.clear(),
            5 => self.types.clear(),
            6 => self.termination_grace = None,
            _ => self.weight = 0,
        }
    }

    /// The pool, whose template was changed so often.
    pub fn object(&self, generation: u32, now: Timestamp) -> NodePool {
        let mut requirements = Requirements::new();
        let words = |words: Vec<Symbol>| Requirement::new(Operator::In, words);
        let capacity_types = self.capacity_types.iter().map(|kind| kind.symbol()).collect();
        requirements.add(*label::CAPACITY_TYPE, words(capacity_types));
        let symbols = |list: &[String]| list.iter().map(|text| Symbol::new(text)).collect::<Vec<_>>();
        if !self.zones.is_empty() {
            requirements.add(*label::ZONE, words(symbols(&self.zones)));
        }
        if !self.types.is_empty() {
            requirements.add(*label::INSTANCE_TYPE, words(symbols(&self.types)));
        }
        let mut budgets = vec![Budget { nodes: nodes_of(&self.budget), reasons: Vec::new(), window: None }];
        if let Some(hour) = self.frozen_from {
            budgets.push(Budget {
                nodes: BudgetNodes::Count(0),
                reasons: Vec::new(),
                window: Some(BudgetWindow {
                    schedule: format!("0 {} * * *", hour % 24).into(),
                    duration: SignedDuration::from_hours(8),
                }),
            });
        }
        let mut limits = Resources::new();
        if let Some(nodes) = self.limit_nodes {
            limits.set(*resource::NODES, i64::from(nodes));
        }
        if let Some(cpu) = self.limit_cpu {
            limits.set(*resource::CPU, i64::from(cpu) * 1000);
        }
        let policy = match self.policy.as_str() {
            "WhenEmpty" => ConsolidationPolicy::WhenEmpty,
            "Balanced" => ConsolidationPolicy::Balanced,
            _ => ConsolidationPolicy::WhenEmptyOrUnderutilized,
        };
        let startup = Taint::new("example.com/starting", "", Effect::NoSchedule);
        NodePool {
            name: PoolName::new(&self.name),
            uid: Uid::new(&self.name),
            created: Some(now),
            owner: None,
            is_deleting: false,
            template: Arc::new(NodeTemplate {
                labels: Labels::from([("generation".into(), Symbol::new(&generation.to_string()))]),
                annotations: Labels::new(),
                taints: if self.is_tainted { vec![special()] } else { Vec::new() },
                startup_taints: if self.has_startup_taint { vec![startup] } else { Vec::new() },
                requirements,
                class: ClassRef {
                    group: "karpenter.k8s.aws".into(),
                    kind: "EC2NodeClass".into(),
                    name: "default".into(),
                },
                termination_grace: self.termination_grace.map(|span| span.0),
                expire_after: self.expire_after.map_or(Patience::never(), |span| Patience::of(span.0)),
            }),
            disruption: Disruption {
                consolidate_after: Patience::of(self.consolidate_after.0),
                policy,
                budgets,
            },
            terms: Default::default(),
            roll: Ok(Roll::default()),
            roll_failures: None,
            limits: Some(limits).filter(|limits| !limits.is_empty()),
            weight: self.weight,
            replicas: self.replicas,
            is_ready: true,
            hash: Some(Symbol::new(&format!("{}", 17 + generation))),
            hash_version: Some("v3".into()),
            new_stamp: None,
            fault: None,
            conditions: Default::default(),
            is_judged_earlier: false,
            used: None,
        }
    }
}

/// `30%` or a number; anything else is none.
fn nodes_of(text: &str) -> BudgetNodes {
    match text.strip_suffix('%') {
        Some(percent) => BudgetNodes::Percent(percent.parse::<u8>().unwrap_or(0).min(100)),
        None => BudgetNodes::Count(text.parse().unwrap_or(0)),
    }
}

fn special() -> Taint {
    Taint::new("example.com/special", "", Effect::NoSchedule)
}

impl WorkloadPlan {
    fn draw(at: u64, share: u64, has_taint: bool, rng: &mut ChaCha8Rng) -> Self {
        let cpu = [150, 400, 900, 1700, 3500][chance::below(rng, 5) as usize];
        let replicas = (share / u64::from(cpu)).clamp(1, 60) as u32;
        let one_in = |rng: &mut ChaCha8Rng, count: u64| chance::below(rng, count) == 0;
        let zone = one_in(rng, 6).then(|| ZONES[chance::below(rng, 2) as usize].to_owned());
        let tolerates = has_taint && one_in(rng, 2);
        Self {
            name: format!("app-{at}"),
            replicas,
            cpu,
            memory: [128, 512, 2048][chance::below(rng, 3) as usize].min(cpu * 4),
            budget: one_in(rng, 3).then(|| 1 + chance::below(rng, 2) as u32),
            is_spread: zone.is_none() && one_in(rng, 6),
            zone,
            capacity_type: None,
            is_apart: replicas < 10 && one_in(rng, 6),
            do_not_disrupt: one_in(rng, 12),
            tolerates,
            grace: Span::secs([5, 30, 90][chance::below(rng, 3) as usize]),
            ignores_sigterm: one_in(rng, 8),
        }
    }

    /// The same pods without anything that is special about them.
    pub(super) fn plain(&self) -> Self {
        let Self { name, replicas, cpu, memory, tolerates, .. } = self.clone();
        Self {
            name,
            replicas,
            cpu,
            memory,
            budget: None,
            zone: None,
            capacity_type: None,
            is_spread: false,
            is_apart: false,
            do_not_disrupt: false,
            tolerates,
            grace: Span::secs(30),
            ignores_sigterm: false,
        }
    }

    pub fn key(&self) -> ObjectKey {
        ObjectKey::new(NAMESPACE, &self.name)
    }

    pub fn object(&self) -> Workload {
        let mut shape = shape(&self.name, self.cpu, self.memory);
        let own = || Some(selector(&self.name));
        if let Some(zone) = &self.zone {
            shape.node_selector.insert(*label::ZONE, Symbol::new(zone));
        }
        if let Some(kind) = self.capacity_type {
            shape.node_selector.insert(*label::CAPACITY_TYPE, kind.symbol());
        }
        if self.is_spread {
            shape.spreads.push(Spread {
                max_skew: 1,
                topology_key: *label::ZONE,
                is_required: true,
                selector: own(),
                min_domains: None,
                honors_affinity: true,
                honors_taints: false,
                match_label_keys: Vec::new(),
            });
        }
        if self.is_apart {
            shape.anti_affinity_required.push(PodTerm {
                selector: own(),
                topology_key: *label::HOSTNAME,
                namespaces: vec![NAMESPACE.into()],
                namespace_selector: None,
                match_label_keys: Vec::new(),
                mismatch_label_keys: Vec::new(),
            });
        }
        if self.tolerates {
            shape.tolerations.push(Toleration {
                key: special().key,
                operator: TolerationOperator::Exists,
                value: "".into(),
                effect: None,
            });
        }
        shape.do_not_disrupt = self.do_not_disrupt.then(|| "true".into());
        shape.termination_grace_seconds = u32::try_from(self.grace.0.as_secs()).unwrap_or(0);
        let workload = Workload::new(self.key(), WorkloadKind::Deployment, Arc::new(shape), self.replicas);
        Workload { ignores_sigterm: self.ignores_sigterm, ..workload }
    }

    fn pod_budget(&self, most: u32) -> PodDisruptionBudget {
        PodDisruptionBudget {
            key: self.key(),
            selector: Some(selector(&self.name)),
            min_available: None,
            max_unavailable: Some(CountOrPercent::Count(i64::from(most))),
            disruptions_allowed: None,
            always_allows_unhealthy: false,
        }
    }
}

/// What a CronJob starts at one time.
pub(super) fn job(name: &str, number: usize, pods: u32, cpu: u32, lasts: SignedDuration) -> Workload {
    let key = ObjectKey::new(NAMESPACE, &format!("{name}-{number}"));
    let kind = WorkloadKind::Job { runs_for: lasts, completions: Some(pods) };
    Workload::new(key, kind, Arc::new(shape(name, cpu, 128)), pods)
}

fn selector(app: &str) -> Selector {
    let term = SelectorTerm { key: "app".into(), operator: Operator::In, values: vec![Symbol::new(app)] };
    Selector { terms: vec![term] }
}

fn shape(app: &str, cpu: u32, memory: u32) -> PodShape {
    let amounts = [("cpu", format!("{cpu}m")), ("memory", format!("{memory}Mi")), ("pods", "1".to_owned())];
    let amount = |(name, text): (&str, String)| {
        let name = ResourceName::new(name);
        (name, name.amount(text.parse::<Quantity>().expect("digits and a unit are a quantity")))
    };
    PodShape {
        namespace: NAMESPACE.into(),
        labels: Labels::from([("app".into(), Symbol::new(app))]),
        requests: amounts.into_iter().map(amount).collect(),
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

fn daemon_set(cpu: u32) -> DaemonSet {
    let mut shape = shape("agent", cpu, 64);
    shape.tolerations.push(Toleration {
        key: "".into(),
        operator: TolerationOperator::Exists,
        value: "".into(),
        effect: None,
    });
    DaemonSet { key: ObjectKey::new(NAMESPACE, "agent"), uid: Uid::new("agent-uid"), shape: Arc::new(shape) }
}

fn class() -> NodeClass {
    NodeClass {
        name: "default".into(),
        owner: None,
        is_ready: true,
        readiness: None,
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

/// A node of somebody else, full enough that nothing of ours fits there, with a pod that is not ours to move.
fn add_stranger(world: &mut World, at: u32, now: Timestamp) {
    let name = NodeName::new(&format!("stranger-{at}"));
    let mut labels = Labels::new();
    labels.insert(*label::HOSTNAME, name.0);
    labels.insert(*label::ZONE, ZONES[0].into());
    let amounts = shape("stranger", 1900, 6000).requests;
    let conditions = vec![super::kubelet::ready_condition(true, now)];
    world.apply(Observation::Node(Arc::new(Node {
        name,
        uid: Uid::new(&format!("{name}-uid")),
        labels,
        annotations: Labels::new(),
        created: Some(now),
        deleted: None,
        has_finalizer: false,
        provider_id: Some(ProviderId::new(&format!("aws:///{}/i-{name}", ZONES[0]))),
        taints: Vec::new(),
        is_cordoned: false,
        capacity: amounts.clone(),
        allocatable: amounts,
        conditions,
    })));
    let key = ObjectKey::new("kube-system", &format!("{name}-pod"));
    let mut shape = shape("stranger", 1800, 5000);
    shape.namespace = "kube-system".into();
    let pod = Pod::new(key, Uid::new(&format!("{key}-uid")), Arc::new(shape), Vec::new());
    world.add_pod(Pod {
        node: Some(name),
        phase: PodPhase::Running,
        is_ready: true,
        created: Some(now),
        started: Some(now),
        ..pod
    });
}
