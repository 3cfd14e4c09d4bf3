//! A cluster on which a question is played: what would it come to, had somebody wanted something else?
//!
//! A stage is a value. Wanting other pools, emptying it, letting it come to rest: each gives another stage and leaves the
//! first as it was, so that two answers to one question begin with the very same cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::roll::{Timetable, timetable};
use super::settle::{Patience, come_to_rest};
use super::workload::Workload;
use crate::capacity::cluster::Cluster;
use crate::capacity::disruption::budgets::allowances;
use crate::capacity::disruption::expiration;
use crate::capacity::disruption::has_to_move;
use crate::capacity::disruption::marking::marked;
use crate::capacity::engine::EngineSettings;
use crate::capacity::planning;
use crate::capacity::scheduling::{Code, Refusal, Supply, provisionable_pods, usage_by_pool};
use crate::model::catalog::Catalog;
use crate::model::claim::{ConditionStatus, ConditionType, NodeClaim};
use crate::model::class::NodeClass;
use crate::model::label::{self, Labels};
use crate::model::money::UsdPerHour;
use crate::model::name::{NodeName, ObjectKey, PoolName, TypeName, Zone};
use crate::model::node::Node;
use crate::model::observation::Observation;
use crate::model::offering::CapacityType;
use crate::model::pod::{NodeTerm, Pod, PodPhase};
use crate::model::pool::{DisruptionReason, NodePool};
use crate::model::quantity::{ResourceName, Resources, resource};
use crate::model::symbol::Symbol;

/// A cluster at one moment, and how it decides.
#[derive(Clone, Debug)]
pub struct Stage {
    cluster: Cluster,
    now: Timestamp,
    settings: EngineSettings,
    /// Pools that nobody wants any more, and that are there until their nodes have gone.
    retiring: BTreeSet<PoolName>,
    is_settled: bool,
}

/// What there is on a stage, in the words of a report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Scene {
    /// Nodes of pools.
    pub nodes: BTreeMap<NodeName, SceneNode>,
    /// Where the pods are that somebody would miss.
    pub places: BTreeMap<ObjectKey, NodeName>,
    /// Pods on an on-demand machine that did not ask for one, and whose pool would rather have bought spot.
    pub on_fallback: BTreeSet<ObjectKey>,
    /// Pods without a place, and why each pool refuses them.
    pub waiting: BTreeMap<ObjectKey, Vec<Reason>>,
    /// Why each node stays.
    pub kept: BTreeMap<NodeName, Reason>,
    /// Capacity in use and limits of pools that have limits.
    pub limits: BTreeMap<PoolName, (Resources, Resources)>,
    /// Nothing is left to do.
    pub is_settled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SceneNode {
    pub pool: PoolName,
    pub instance_type: Option<TypeName>,
    pub zone: Option<Zone>,
    pub capacity_type: Option<CapacityType>,
    /// `None`: the catalogue does not know it.
    pub price: Option<UsdPerHour>,
    pub labels: Labels,
    pub is_static: bool,
    /// It is to be replaced, because its pool or class is not as it was when it was made.
    pub is_drifted: bool,
    /// Its pool would take a spot machine too, had one fitted.
    pub may_be_spot: bool,
    /// When it is too old.
    pub expires: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub pool: Option<PoolName>,
    pub code: &'static str,
    pub message: String,
    /// The pool would take the pod, had it room below its limits.
    pub is_limit: bool,
}

impl Reason {
    /// Whether a pool refuses what the pod asks for, room below its limits aside.
    pub fn is_refusal(&self) -> bool {
        !self.is_limit && self.code != NOT_REACHED
    }
}

/// The objects that a repository may add to a stage and take from it, by name.
#[derive(Clone, Debug, Default)]
pub struct Managed {
    pools: BTreeSet<PoolName>,
    overlays: BTreeSet<Symbol>,
    buffers: BTreeSet<ObjectKey>,
}

impl Managed {
    /// What any of these lists has.
    pub fn of<'a>(lists: impl IntoIterator<Item = &'a [Observation]>) -> Self {
        let mut managed = Self::default();
        for object in lists.into_iter().flatten() {
            match object {
                Observation::Pool(pool) => drop(managed.pools.insert(pool.name)),
                Observation::Overlay(overlay) => drop(managed.overlays.insert(overlay.name)),
                Observation::Buffer(buffer) => drop(managed.buffers.insert(buffer.key)),
                _ => {}
            }
        }
        managed
    }
}

/// Why the nodes of a pool that is to go are not what it wants.
const RETIRED: &str = "PoolRetired";

/// Why a pod waits that some pool would take.
const NOT_REACHED: &str = "NotReached";

/// Nobody waits longer for a window of a budget.
const WINDOW_MAX: SignedDuration = SignedDuration::from_hours(14 * 24);

/// How a roll would start: nodes that may be replaced at once, by pool.
pub type Wave = BTreeMap<PoolName, usize>;

impl Stage {
    pub fn new(cluster: Cluster, now: Timestamp, settings: EngineSettings) -> Self {
        Self { cluster, now, settings, retiring: BTreeSet::new(), is_settled: false }
    }

    /// A cluster in which nothing is left to do, or that never gets there.
    pub fn resting(cluster: Cluster, now: Timestamp, settings: EngineSettings, is_settled: bool) -> Self {
        Self { cluster, now, settings, retiring: BTreeSet::new(), is_settled }
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// A cluster without anything in it.
    pub fn empty(catalog: Arc<Catalog>, now: Timestamp, seed: u64) -> Self {
        let mut cluster = Cluster::default();
        cluster.observe(now, &Observation::Catalog(catalog));
        Self::new(cluster, now, EngineSettings { seed, ..EngineSettings::default() })
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Puts an object there as it is.
    pub fn add(&mut self, object: &Observation) {
        self.cluster.observe(self.now, object);
    }

    /// Makes the pods of a controller; all of them wait.
    pub fn add_workload(&mut self, mut workload: Workload) {
        for _ in 0..workload.replicas {
            let pod = Pod { is_unschedulable: true, ..workload.next_pod(self.now) };
            self.cluster.put_pod(Arc::new(pod));
        }
    }

    /// The same cluster, wanting these objects. Of what is `managed`, everything else goes; a pool with nodes is retired, as a sync
    /// does it. What others made stays.
    #[must_use]
    pub fn wanting(&self, objects: &[Observation], managed: &Managed) -> Self {
        let mut stage = self.clone();
        let cluster = &mut stage.cluster;
        let former_pools = cluster.pools.clone();
        let former_classes = cluster.classes.clone();
        cluster.pools.retain(|name, _| !managed.pools.contains(name));
        cluster.overlays.retain(|name, _| !managed.overlays.contains(name));
        cluster.buffers.retain(|key, _| !managed.buffers.contains(key));
        for object in objects {
            // An update keeps the identity of an object and what others found out about it.
            let object = match object {
                Observation::Pool(pool) => match former_pools.get(&pool.name) {
                    Some(former) => Observation::Pool(Arc::new(NodePool {
                        uid: former.uid,
                        created: former.created,
                        ..(**pool).clone()
                    })),
                    None => object.clone(),
                },
                Observation::Class(class) => match former_classes.get(&class.name) {
                    Some(former) if class.zones.is_empty() => Observation::Class(Arc::new(NodeClass {
                        zones: former.zones.clone(),
                        ..(**class).clone()
                    })),
                    _ => object.clone(),
                },
                other => other.clone(),
            };
            cluster.observe(stage.now, &object);
        }
        let leaving = former_pools.values().filter(|pool| !cluster.pools.contains_key(&pool.name));
        let leaving: Vec<_> = leaving.cloned().collect();
        stage.welcome_back();
        leaving.iter().for_each(|pool| stage.retire(pool));
        let cluster = &mut stage.cluster;
        let orphans: Vec<_> = cluster
            .claims
            .values()
            .filter(|claim| claim.deleted.is_none())
            .filter(|claim| {
                claim
                    .pool()
                    .is_some_and(|pool| managed.pools.contains(&pool) && !cluster.pools.contains_key(&pool))
            })
            .cloned()
            .collect();
        for claim in orphans {
            let deleted = Some(stage.now);
            cluster.put_claim(Arc::new(NodeClaim { deleted, ..(*claim).clone() }));
        }
        stage.is_settled = false;
        stage
    }

    /// Keeps a pool that has nodes until they are gone: it launches nothing, and they are replaced within its budgets
    /// (docs/decisions/0004).
    fn retire(&mut self, former: &NodePool) {
        let claims: Vec<_> = self.cluster.claims_of(former.name).cloned().collect();
        if claims.is_empty() {
            return;
        }
        let mut pool = former.clone();
        if pool.is_static() {
            pool.replicas = Some(0);
        } else {
            pool.limits.get_or_insert_default().set(*resource::NODES, 0);
            for claim in claims {
                let mut conditions = claim.conditions.clone();
                let message = "its pool is to go";
                conditions.set(ConditionType::Drifted, ConditionStatus::True, RETIRED, message, self.now);
                self.cluster.put_claim(Arc::new(NodeClaim { conditions, ..(*claim).clone() }));
            }
        }
        self.cluster.observe(self.now, &Observation::Pool(Arc::new(pool)));
        self.retiring.insert(former.name);
    }

    /// Nodes of pools that were to go, and are wanted again, stay what they were.
    fn welcome_back(&mut self) {
        for name in std::mem::take(&mut self.retiring) {
            let claims: Vec<_> = self.cluster.claims_of(name).cloned().collect();
            for claim in claims {
                if claim.conditions.get(ConditionType::Drifted).is_some_and(|drift| &*drift.reason == RETIRED)
                {
                    let mut conditions = claim.conditions.clone();
                    conditions.clear(ConditionType::Drifted);
                    self.cluster.put_claim(Arc::new(NodeClaim { conditions, ..(*claim).clone() }));
                }
            }
        }
    }

    /// The same demand without any node of ours: every pod that ran on one waits.
    #[must_use]
    pub fn emptied(&self) -> Self {
        let mut stage = self.clone();
        let ours: Vec<NodeName> =
            self.cluster.nodes.values().filter(|node| is_ours(node)).map(|node| node.name).collect();
        for name in ours {
            let pods: Vec<Arc<Pod>> = stage.cluster.pods_of(name).cloned().collect();
            for pod in pods {
                stage.cluster.remove_pod(pod.key);
                if has_to_move(&pod) {
                    let pod = Pod {
                        node: None,
                        nominated_node: None,
                        phase: PodPhase::Pending,
                        deleted: None,
                        started: None,
                        is_ready: false,
                        is_unschedulable: true,
                        ..(*pod).clone()
                    };
                    stage.cluster.put_pod(Arc::new(pod));
                }
            }
            stage.cluster.remove_node(name);
        }
        let claims: Vec<_> = self.cluster.claims.keys().copied().collect();
        claims.into_iter().for_each(|claim| stage.cluster.remove_claim(claim));
        stage.drop_empty_pools();
        stage.is_settled = false;
        stage
    }

    /// What it comes to if everything is done that has to be done, and nothing fails. For windows of budgets it waits.
    #[must_use]
    pub fn at_rest(&self) -> Self {
        self.at_rest_by(self.now)
    }

    /// The same at `until` or later: what becomes due by then is done too.
    #[must_use]
    pub fn at_rest_by(&self, until: Timestamp) -> Self {
        let patience =
            Patience { windows_until: self.now.checked_add(WINDOW_MAX).ok(), at_least_until: Some(until) };
        let rest = come_to_rest(&self.cluster, self.now, &self.settings, &patience);
        let mut stage = Self {
            cluster: rest.cluster,
            now: rest.now,
            is_settled: rest.quiescent,
            retiring: self.retiring.clone(),
            settings: self.settings.clone(),
        };
        stage.drop_empty_pools();
        stage
    }

    /// Pools go once their last node has.
    fn drop_empty_pools(&mut self) {
        let cluster = &mut self.cluster;
        self.retiring.retain(|name| {
            let has_nodes = cluster.claims_of(*name).next().is_some();
            if !has_nodes {
                cluster.pools.remove(name);
            }
            has_nodes
        });
    }

    /// Nodes that drift lets go at this moment, within the budgets of this moment.
    pub fn first_wave(&self) -> Wave {
        let plan = planning::plan(&self.cluster, self.now, &self.settings);
        let mut wave = Wave::new();
        for command in
            plan.disruption.commands.iter().filter(|command| command.reason() == DisruptionReason::Drifted)
        {
            for node in &command.nodes {
                if let Some(pool) = self.cluster.nodes.get(node).and_then(|node| pool_of(node)) {
                    *wave.entry(pool).or_default() += 1;
                }
            }
        }
        wave
    }

    /// When `nodes` of `pool` would be replaced from this moment on, with at most `most` in one wave.
    pub fn timetable(&self, pool: PoolName, nodes: u32, most: u32) -> Timetable {
        let Some(known) = self.cluster.pools.get(&pool) else { return Timetable::default() };
        let allowances = allowances(&self.cluster, DisruptionReason::Drifted, self.now);
        let (total, away) = allowances.get(&pool).map_or((0, 0), |now| (now.nodes, now.away));
        timetable(known, total, away, nodes, most, self.now)
    }

    /// Nodes of each pool that its budgets would let go at this moment.
    pub fn allowed_now(&self, pool: PoolName) -> u32 {
        let allowances = allowances(&self.cluster, DisruptionReason::Drifted, self.now);
        allowances.get(&pool).map_or(0, |allowance| allowance.remaining())
    }

    /// What is there.
    pub fn scene(&self) -> Scene {
        let cluster = &self.cluster;
        let supply = Supply::of(cluster, &self.settings.scheduling);
        let plan = planning::plan_with(cluster, &supply, self.now, &self.settings);
        let mut scene = Scene { is_settled: self.is_settled, ..Scene::default() };
        for node in cluster.nodes.values() {
            if let Some(pool) = pool_of(node).filter(|_| is_ours(node)) {
                scene.nodes.insert(node.name, self.scene_node(node, pool, &supply));
            }
        }
        for pod in cluster.pods.values().filter(|pod| has_to_move(pod)) {
            if let Some(node) = pod.node {
                scene.places.insert(pod.key, node);
                let fell_back = scene.nodes.get(&node).is_some_and(|node| {
                    node.may_be_spot && node.capacity_type == Some(CapacityType::OnDemand)
                });
                if fell_back && !wants_on_demand(pod) {
                    scene.on_fallback.insert(pod.key);
                }
            }
        }
        let refused = plan.provisioning.unschedulable.iter().map(|pod| (pod.pod, &pod.reasons));
        let rejected = plan.rejected.iter().map(|pod| (pod.pod, &pod.reasons));
        let placed: Vec<ObjectKey> =
            provisionable_pods(cluster, &self.settings.scheduling).0.iter().map(|pod| pod.key).collect();
        for (pod, reasons) in refused.chain(rejected) {
            if cluster.pods.get(&pod).is_some_and(|pod| pod.node.is_none()) {
                scene.waiting.insert(pod, reasons.iter().map(reason).collect());
            }
        }
        for pod in placed {
            // It has a place on paper that nothing ever led to: a limit, or a step that was not taken.
            let is_bound = cluster.pods.get(&pod).is_some_and(|pod| pod.node.is_some());
            if self.is_settled && !is_bound {
                scene.waiting.entry(pod).or_insert_with(|| vec![not_reached()]);
            }
        }
        for kept in &plan.disruption.kept {
            let pool = cluster.nodes.get(&kept.node).and_then(|node| pool_of(node));
            let message = kept.message.trim_start_matches("drifted, but ").to_owned();
            scene.kept.insert(kept.node, Reason { pool, code: kept.code, message, is_limit: false });
        }
        let used = usage_by_pool(cluster, &supply);
        for pool in cluster.pools.values() {
            if let Some(limits) = &pool.limits {
                let used = used.get(&pool.name).cloned().unwrap_or_default();
                scene.limits.insert(pool.name, (used, limits.clone()));
            }
        }
        scene
    }

    fn scene_node(&self, node: &Node, pool: PoolName, supply: &Supply) -> SceneNode {
        let text = |key| node.labels.get(key).copied();
        let instance_type = text(&*label::INSTANCE_TYPE).map(TypeName);
        let zone = text(&*label::ZONE).map(Zone);
        let capacity_type = text(&*label::CAPACITY_TYPE).and_then(|kind| CapacityType::parse(&kind));
        // By the list: an overlay says which machines are to be taken for cheap, and whoever writes it does not write the bill.
        let price = || {
            let catalog = self.cluster.catalog.as_ref()?;
            catalog.list_price(instance_type?, zone?, capacity_type?)
        };
        let known = self.cluster.pools.get(&pool);
        let claim = self.cluster.claim_of(node);
        SceneNode {
            pool,
            instance_type,
            zone,
            capacity_type,
            price: price(),
            labels: node.labels.clone(),
            is_static: known.is_some_and(|pool| pool.is_static()),
            is_drifted: claim.is_some_and(|claim| {
                let marks = marked(&self.cluster, supply, claim, self.now, false);
                marks.conditions.as_ref().unwrap_or(&claim.conditions).is_true(ConditionType::Drifted)
            }),
            may_be_spot: known.is_some_and(|pool| {
                let kinds = pool.template.requirements.get(*label::CAPACITY_TYPE);
                kinds.is_some_and(|kinds| kinds.has(Symbol::new("spot")))
            }),
            expires: claim.and_then(|claim| expiration::due(claim)),
        }
    }

    /// The instance types and offerings that each pool may buy: how wide its choice is.
    pub fn choices(&self) -> BTreeMap<PoolName, usize> {
        let supply = Supply::of(&self.cluster, &self.settings.scheduling);
        let count = |pool: PoolName| supply.types(pool).iter().map(|kind| kind.offerings.len()).sum();
        self.cluster.pools.keys().map(|pool| (*pool, count(*pool))).collect()
    }
}

impl Scene {
    /// What all nodes cost together; those without a price are left out.
    pub fn price(&self) -> UsdPerHour {
        self.nodes.values().filter_map(|node| node.price).sum()
    }

    /// Every resource of which `pool` uses more than its limit: how much, and the limit.
    pub fn excesses(&self, pool: PoolName) -> BTreeMap<ResourceName, (i64, i64)> {
        let (used, limits) = self.limits.get(&pool).cloned().unwrap_or_default();
        let amounts = limits.iter().map(|(name, limit)| (name, (used.get(name), limit)));
        amounts.filter(|(_, (used, limit))| used > limit).collect()
    }
}

/// Whether a pod itself says what kind of machine it runs on.
fn wants_on_demand(pod: &Pod) -> bool {
    let key = &*label::CAPACITY_TYPE;
    let names = |term: &NodeTerm| term.requirements().get(*key).is_some();
    pod.shape.node_selector.contains_key(key) || pod.shape.node_required.iter().any(names)
}

/// A pool would take it, and yet nothing that was done gave it a place.
fn not_reached() -> Reason {
    let message = "there is room for it on paper, and it did not get there";
    Reason { pool: None, code: NOT_REACHED, message: message.into(), is_limit: false }
}

fn reason(refusal: &Refusal) -> Reason {
    Reason {
        pool: refusal.pool,
        code: refusal.code.as_str(),
        message: refusal.message.clone(),
        is_limit: refusal.code == Code::LimitReached,
    }
}

fn pool_of(node: &Node) -> Option<PoolName> {
    node.labels.get(&*label::NODEPOOL).map(|name| PoolName(*name))
}

/// Whether a pool made the node.
fn is_ours(node: &Node) -> bool {
    node.labels.contains_key(&*label::NODEPOOL)
}
