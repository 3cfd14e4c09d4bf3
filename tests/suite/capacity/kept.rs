//! What the engine keeps of the cluster from round to round answers as if it had been worked out anew.
//!
//! A copy of an engine keeps nothing of the kind: it works everything out anew. So engine and copy are asked side by side, in
//! clusters to which anything may happen.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use provisor::capacity::engine::{Engine, EngineSettings};
use provisor::model::action::Action;
use provisor::model::label;
use provisor::model::name::{ClaimName, NodeName, ObjectKey, PoolName, ProviderId};
use provisor::model::observation::{Instance, LaunchFailure, Observation, Shortage};
use provisor::model::offering::CapacityType;
use provisor::model::pod::{
    HostPort, Pod, PodPhase, PodShape, PodTerm, PodVolume, Selector, SelectorTerm, Spread,
};
use provisor::model::quantity::{Quantity, ResourceName, Resources};
use provisor::model::requirement::Operator;
use provisor::model::symbol::Symbol;
use provisor::model::taint::{Effect, Taint, Toleration, TolerationOperator};
use provisor::model::workload::{CsiNode, DaemonSet, NamespaceFacts, PersistentVolumeClaim, StorageClass};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::town::*;

const CASES: u64 = 200;
const STEPS: usize = 30;
const ZONES: [&str; 2] = ["us-west-2a", "us-west-2b"];
const TYPES: [&str; 3] = ["m5.large", "m5.xlarge", "m5.2xlarge"];

/// A cluster to which things happen.
struct Fate {
    rng: ChaCha8Rng,
    now: Timestamp,
    engine: Engine,
    made: usize,
}

impl Fate {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let has_limits = rng.next_u64() % 2 == 0;
        let mut town = Town::with(|pool| {
            if has_limits {
                let cpu = ResourceName::new("cpu");
                pool.limits = Some([(cpu, cpu.amount("40".parse().unwrap()))].into_iter().collect());
            }
        });
        let mut tainted = pool("tainted");
        Arc::make_mut(&mut tainted.template).taints.push(Taint::new("team", "blue", Effect::NoSchedule));
        tainted.weight = 5;
        town.cluster.pools.insert(tainted.name, Arc::new(tainted));
        for at in 0..rng.next_u64() % 7 {
            let kind = TYPES[(rng.next_u64() % 3) as usize];
            town.node(&format!("first-{at}"), kind);
        }
        let settings = EngineSettings {
            foresees_pods: seed.is_multiple_of(2),
            nominates: !seed.is_multiple_of(3),
            ..EngineSettings::default()
        };
        let engine = engine_of(&town.cluster, town.now, settings);
        Self { rng, now: town.now, engine, made: 0 }
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.rng.next_u64() % bound as u64) as usize
    }

    fn one_of<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        if all.is_empty() { None } else { Some(all[self.below(all.len())].clone()) }
    }

    fn see(&mut self, seen: Observation) {
        self.engine.observe(self.now, seen);
    }

    fn nodes(&self) -> Vec<NodeName> {
        self.engine.cluster().nodes.keys().copied().collect()
    }

    fn pods(&self, is_wanted: impl Fn(&Pod) -> bool) -> Vec<Arc<Pod>> {
        self.engine.cluster().pods.values().filter(|pod| is_wanted(pod)).cloned().collect()
    }

    fn selector(&mut self) -> Option<Selector> {
        let app = format!("app-{}", self.below(4));
        Some(Selector {
            terms: vec![SelectorTerm {
                key: "app".into(),
                operator: Operator::In,
                values: vec![Symbol::new(&app)],
            }],
        })
    }

    fn term(&mut self) -> PodTerm {
        let topology_key = ["kubernetes.io/hostname", ZONE][self.below(2)];
        let by_namespace = self.below(4) == 0;
        PodTerm {
            selector: self.selector(),
            topology_key: topology_key.into(),
            namespaces: Vec::new(),
            namespace_selector: by_namespace.then(|| Selector {
                terms: vec![SelectorTerm {
                    key: "kind".into(),
                    operator: Operator::In,
                    values: vec!["shop".into()],
                }],
            }),
            match_label_keys: Vec::new(),
            mismatch_label_keys: Vec::new(),
        }
    }

    fn shape(&mut self) -> PodShape {
        let cpu = ["100m", "500m", "900m", "1500m", "3"][self.below(5)];
        let mut shape = shape(&format!("app-{}", self.below(4)), cpu);
        shape.namespace = ["default", "shop", "other"][self.below(3)].into();
        match self.below(12) {
            0 | 1 => {
                let topology_key = ["kubernetes.io/hostname", ZONE][self.below(2)];
                shape.spreads.push(Spread {
                    max_skew: 1 + self.below(2) as u32,
                    topology_key: topology_key.into(),
                    is_required: self.below(3) > 0,
                    selector: self.selector(),
                    min_domains: None,
                    honors_affinity: true,
                    honors_taints: self.below(2) == 0,
                    match_label_keys: Vec::new(),
                });
            }
            2 | 3 => shape.anti_affinity_required.push(self.term()),
            4 => shape.affinity_required.push(self.term()),
            5 => {
                let term = self.term();
                shape.anti_affinity_preferred.push((10, term));
            }
            6 => shape.host_ports.push(HostPort { ip: "".into(), port: 8080, protocol: "TCP".into() }),
            7 => drop(shape.node_selector.insert(ZONE.into(), ZONES[self.below(2)].into())),
            8 => shape.tolerations.push(Toleration {
                key: "team".into(),
                operator: TolerationOperator::Exists,
                value: "".into(),
                effect: None,
            }),
            9 => shape.volumes.push(PodVolume::Claim(["disk-0", "disk-1", "disk-2"][self.below(3)].into())),
            10 if self.below(4) == 0 => shape.requests.add(&amount("example.com/chip", "1")),
            _ => {}
        }
        shape
    }

    fn pod_comes(&mut self) {
        let shape = self.shape();
        self.made += 1;
        for copy in 0..1 + self.below(3) {
            let mut pod = pod(&format!("pod-{}-{copy}", self.made), None, shape.clone());
            pod.key.namespace = pod.shape.namespace;
            pod.is_unschedulable = self.below(4) > 0;
            self.see(Observation::Pod(Arc::new(pod)));
        }
    }

    fn change_pod(&mut self, is_wanted: impl Fn(&Pod) -> bool, change: impl FnOnce(&mut Self, &mut Pod)) {
        let pods = self.pods(is_wanted);
        if let Some(pod) = self.one_of(&pods) {
            let mut changed = (*pod).clone();
            change(self, &mut changed);
            self.see(Observation::Pod(Arc::new(changed)));
        }
    }

    fn bind(&mut self) {
        self.change_pod(
            |pod| pod.node.is_none(),
            |fate, pod| {
                let nodes = fate.nodes();
                pod.node = fate.one_of(&nodes);
                pod.is_unschedulable = pod.node.is_none();
                pod.phase = if pod.node.is_some() { PodPhase::Running } else { PodPhase::Pending };
                pod.is_ready = pod.node.is_some();
            },
        );
    }

    fn change_node(&mut self, change: impl FnOnce(&mut Self, &mut provisor::model::node::Node)) {
        let nodes = self.nodes();
        if let Some(name) = self.one_of(&nodes) {
            let mut node = (*self.engine.cluster().nodes[&name]).clone();
            change(self, &mut node);
            self.see(Observation::Node(Arc::new(node)));
        }
    }

    /// The machine of a claim joins, as what it was launched as or as a stranger; or a launch is answered.
    fn claim_goes_on(&mut self) {
        let claims: Vec<_> = self.engine.cluster().claims.values().cloned().collect();
        let Some(claim) = self.one_of(&claims) else { return };
        let Some(id) = claim.provider_id else {
            let types = catalog().instance_types(None);
            let kind = &types[self.below(types.len())];
            let zone = kind.offerings[0].zone;
            if self.below(4) == 0 {
                let offerings = vec![(kind.name, zone, CapacityType::OnDemand)];
                let until = self.now + SignedDuration::from_secs(20);
                let failure =
                    LaunchFailure::InsufficientCapacity(Shortage { offerings, until, advice: None }.into());
                return self.see(Observation::LaunchFailed { claim: claim.name, failure });
            }
            let instance = Instance {
                provider_id: ProviderId::new(&format!("aws:///{zone}/i-{}", claim.name)),
                claim: Some(claim.name),
                pool: claim.pool(),
                instance_type: kind.name,
                zone,
                capacity_type: CapacityType::OnDemand,
                reservation: None,
                image: "ami-1".into(),
                launched: self.now,
                is_stopped: false,
                is_terminating: false,
                capacity: kind.capacity.clone(),
                allocatable: kind.allocatable.clone(),
            };
            return self.see(Observation::Launched { claim: claim.name, instance, shortage: None });
        };
        if self.engine.cluster().node_of(&claim).is_none() {
            self.made += 1;
            let mut node = self.stranger(&format!("joined-{}", self.made * 7919 % 1000));
            node.provider_id = Some(id);
            node.labels.extend(claim.labels.iter().map(|(key, value)| (*key, *value)));
            if self.below(2) == 0 {
                node.labels.insert(*label::REGISTERED, "true".into());
                node.labels.insert(*label::INITIALIZED, "true".into());
            } else {
                node.taints.push(Taint::unregistered());
            }
            self.see(Observation::Node(Arc::new(node)));
        }
    }

    fn stranger(&mut self, name: &str) -> provisor::model::node::Node {
        let mut town = Town::with(|_| ());
        town.node(name, TYPES[self.below(3)]);
        let mut node = (*town.cluster.nodes[&NodeName::new(name)]).clone();
        node.provider_id = None;
        node.labels.insert(ZONE.into(), ZONES[self.below(2)].into());
        node
    }

    fn storage_changes(&mut self) {
        let class = StorageClass {
            name: "fast".into(),
            provisioner: "disks".into(),
            binds_immediately: self.below(5) == 0,
            topologies: Vec::new(),
            is_default: false,
            created: None,
        };
        let claim = PersistentVolumeClaim {
            key: ObjectKey::new("default", ["disk-0", "disk-1", "disk-2"][self.below(3)]),
            volume: None,
            storage_class: Some("fast".into()),
            is_lost: self.below(6) == 0,
            is_deleting: false,
            is_bind_completed: false,
        };
        match self.below(4) {
            0 => self.see(Observation::StorageClass(Arc::new(class))),
            1 => self.see(Observation::VolumeClaim(Arc::new(claim))),
            2 => self.see(Observation::VolumeClaimGone(claim.key)),
            _ => {
                let nodes = self.nodes();
                if let Some(node) = self.one_of(&nodes) {
                    let limits = vec![("disks".into(), self.below(2) as u32)];
                    self.see(Observation::CsiNode(Arc::new(CsiNode { node, limits })));
                }
            }
        }
    }

    fn daemon_changes(&mut self) {
        let key = ObjectKey::new("default", "agent");
        match self.below(4) {
            0 => self.see(Observation::DaemonSetGone(key)),
            1 => {
                let cpu = ["50m", "100m"][self.below(2)];
                let shape = Arc::new(shape("agent", cpu));
                self.see(Observation::DaemonSet(Arc::new(DaemonSet { key, uid: "agent".into(), shape })));
            }
            _ => {
                let nodes = self.nodes();
                let Some(node) = self.one_of(&nodes) else { return };
                let mut one = pod(&format!("agent-{node}"), Some(node.as_str()), shape("agent", "70m"));
                one.owners[0].kind = "DaemonSet".into();
                one.owners[0].name = "agent".into();
                one.owners[0].uid = "agent".into();
                self.see(Observation::Pod(Arc::new(one)));
            }
        }
    }

    fn pool_changes(&mut self) {
        let name = PoolName::new(["default", "tainted"][self.below(2)]);
        let Some(known) = self.engine.cluster().pools.get(&name) else { return };
        let mut pool = (**known).clone();
        match self.below(4) {
            0 => pool.is_ready = !pool.is_ready,
            1 => pool.weight = self.below(10) as u32,
            2 => pool.used = None,
            _ => {
                let cpu = ResourceName::new("cpu");
                let most = ["8", "40", "400"][self.below(3)];
                pool.limits = Some([(cpu, cpu.amount(most.parse().unwrap()))].into_iter().collect());
            }
        }
        self.see(Observation::Pool(Arc::new(pool)));
    }

    fn something_happens(&mut self) {
        match self.below(40) {
            0..=11 => self.pod_comes(),
            12..=17 => self.bind(),
            18 | 19 => self.change_pod(|_| true, |fate, pod| pod.deleted = Some(fate.now)),
            20 => self.change_pod(|pod| pod.node.is_some(), |_, pod| pod.phase = PodPhase::Succeeded),
            21 | 22 => {
                let pods = self.pods(|_| true);
                if let Some(pod) = self.one_of(&pods) {
                    self.see(Observation::PodGone(pod.key));
                }
            }
            23 => {
                self.made += 1;
                // In no order of their own.
                let node = self.stranger(&format!("late-{}", self.made * 7919 % 1000));
                self.see(Observation::Node(Arc::new(node)));
            }
            24 => {
                let nodes = self.nodes();
                if let Some(node) = self.one_of(&nodes) {
                    self.see(Observation::NodeGone(node));
                }
            }
            25 => self.change_node(|fate, node| {
                node.labels.insert(ZONE.into(), ZONES[fate.below(2)].into());
            }),
            26 => self.change_node(|fate, node| {
                if node.taints.pop().is_none() && fate.below(2) == 0 {
                    node.taints.push(Taint::new("team", "blue", Effect::NoSchedule));
                }
            }),
            27 => self.change_node(|_, node| node.is_cordoned = !node.is_cordoned),
            28 => self.change_node(|_, node| {
                let key = *label::INITIALIZED;
                if node.labels.remove(&key).is_none() {
                    node.labels.insert(key, "true".into());
                }
            }),
            29 => self.change_node(|fate, node| match fate.below(3) {
                0 => node.allocatable.add(&amount("example.com/chip", "1")),
                1 => node.allocatable.remove(ResourceName::new("example.com/chip")),
                _ => node.allocatable.add(&amount("cpu", "1")),
            }),
            30..=33 => self.claim_goes_on(),
            34 => {
                let claims: Vec<_> = self.engine.cluster().claims.values().cloned().collect();
                let Some(claim) = self.one_of(&claims) else { return };
                if self.below(2) == 0 {
                    return self.see(Observation::ClaimGone(claim.name));
                }
                let mut claim = (*claim).clone();
                claim.deleted = Some(self.now);
                self.see(Observation::Claim(Arc::new(claim)));
            }
            35 => self.storage_changes(),
            36 => self.daemon_changes(),
            37 => self.pool_changes(),
            38 => {
                let kind = ["shop", "home"][self.below(2)];
                let name = ["default", "shop"][self.below(2)];
                let labels = [("kind".into(), kind.into())].into();
                self.see(Observation::Namespace(Arc::new(NamespaceFacts { name: name.into(), labels })));
            }
            _ => {
                let claims: Vec<ClaimName> = self.engine.cluster().claims.keys().copied().collect();
                if let Some(claim) = self.one_of(&claims) {
                    let subject = format!("NodeClaim {claim}").as_str().into();
                    self.see(Observation::ActionFailed { subject, message: "no".into() });
                }
            }
        }
    }
}

const ZONE: &str = "topology.kubernetes.io/zone";

fn amount(name: &str, amount: &str) -> Resources {
    let name = ResourceName::new(name);
    [(name, name.amount(amount.parse::<Quantity>().unwrap()))].into_iter().collect()
}

#[test]
fn what_is_kept_answers_as_what_is_made_anew() {
    let mut seen: BTreeSet<&'static str> = BTreeSet::new();
    for case in 0..CASES {
        let mut fate = Fate::new(case);
        for step in 0..STEPS {
            for _ in 0..1 + fate.below(3) {
                fate.something_happens();
            }
            let pause = fate.below(4) as i64;
            fate.now += SignedDuration::from_millis(pause * 1100);
            let mut anew = fate.engine.clone();
            let (kept, anew) = (fate.engine.decide(fate.now), anew.decide(fate.now));
            assert_eq!(kept.actions, anew.actions, "case {case}, step {step}");
            assert_eq!(kept.plan, anew.plan, "case {case}, step {step}");
            assert_eq!(kept.wake_at, anew.wake_at, "case {case}, step {step}");
            seen.extend(kept.plan.provisioning.existing.keys().map(|_| "existing"));
            seen.extend(kept.plan.provisioning.new_nodes.iter().map(|_| "new"));
            seen.extend(kept.plan.provisioning.unschedulable.iter().map(|_| "unschedulable"));
            seen.extend(kept.plan.disruption.commands.iter().map(|_| "disruption"));
            seen.extend(kept.actions.iter().filter_map(|planned| match planned.action {
                Action::DeleteClaim { .. } => Some("deletion"),
                _ => None,
            }));
        }
    }
    let all = ["deletion", "disruption", "existing", "new", "unschedulable"];
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), all, "the clusters were interesting");
}
