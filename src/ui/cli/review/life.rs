//! A demand brought to life: the simulated cluster of `provisor simulate`, on which the base comes to rest and the proposal then
//! arrives.
//!
//! A plan says where pods go; a scheduler that knows nothing of plans puts them there or elsewhere, while machines boot one after
//! the other. So what runs when a proposal arrives, and what is left when it is carried out, is played with all of that.
//! Nothing is ever taken back and nothing fails. What is left to chance is how fast machines boot and which pod the scheduler
//! takes first; one life would take that for the proposal's doing, so several are lived.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::capacity::disruption::budgets::next_change_for;
use crate::capacity::engine::{EngineSettings, LEFT_ALONE};
use crate::controllers::reconciler::Reconciler;
use crate::gitops::desired::DesiredState;
use crate::gitops::plan::RenderProof;
use crate::gitops::sync::GitEvent;
use crate::io::cloud::simulated::SimulatedCluster;
use crate::model::catalog::Catalog;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::label::{CAPACITY_TYPE, INSTANCE_TYPE};
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName, Uid};
use crate::model::node::Node;
use crate::model::observation::Observation;
use crate::model::pod::Pod;
use crate::model::pool::DisruptionReason;
use crate::model::symbol::Symbol;
use crate::review::impact::{Course, Life, Lived};
use crate::simulator::cloud::CloudHabits;
use crate::simulator::stage::Stage;
use crate::simulator::story::Happening;
use crate::simulator::workload::Workload;
use crate::simulator::world::Habits;
use crate::ui::play::scripted_policy;

/// Between two looks at whether anything still happens.
const LOOK: SignedDuration = SignedDuration::from_mins(5);
/// What pods and machines need to start and to end, several times over.
const GRACE: SignedDuration = SignedDuration::from_mins(15);
/// Lives of a cluster, each with other chances. Where they end alike there is little chance in it.
const LIVES_ALIKE: u64 = 3;
/// Lives where they do not, unless there are so many pods that each life takes its time.
const LIVES_MAX: u64 = 9;
const MANY_PODS: u32 = 1_000;
/// Patience of pools that counts; beyond it they are taken to be at rest.
const PATIENCE_MAX: SignedDuration = SignedDuration::from_hours(24);
/// No roll is followed for longer, and nobody waits longer for a window of a budget.
const LIFE_MAX: SignedDuration = SignedDuration::from_hours(14 * 24);
/// Nodes that come and go for so long, and for so many times the patience of pools, while no more of those go that were there at first, never
/// stop.
const CHURN_MAX: SignedDuration = SignedDuration::from_hours(6);
const CHURN_PATIENCE: i32 = 4;
/// What rests goes on resting for so long at least, if nothing expires.
const BRIEF: SignedDuration = SignedDuration::from_hours(3);
/// Windows that are waited for.
const WINDOWS_MAX: usize = 40;

/// What there is before anything is wanted.
#[derive(Clone, Debug)]
pub struct Beginning {
    pub environment: String,
    pub catalog: Arc<Catalog>,
    pub start: Timestamp,
    pub seed: u64,
    pub workloads: Vec<Workload>,
    pub objects: Vec<Observation>,
}

impl Beginning {
    /// The demand alone: every pod waits, and there is no node.
    pub fn stage(&self) -> Stage {
        let mut stage = Stage::empty(self.catalog.clone(), self.start, self.seed);
        self.workloads.iter().for_each(|workload| stage.add_workload(workload.clone()));
        self.objects.iter().for_each(|object| stage.add(object));
        stage
    }

    /// Lets `before` come to rest, and then `after`, in each of several lives: a few, and more of few pods if they do not end alike.
    pub fn live(&self, before: &DesiredState, after: &DesiredState) -> Lived {
        let mut lives = self.live_each(0..LIVES_ALIKE, before, after);
        let ends: BTreeSet<_> = lives
            .iter()
            .map(|life| [&life.start, &life.with].map(|stage| End::of(stage.cluster())))
            .collect();
        let pods: u32 = self.workloads.iter().map(|workload| workload.replicas).sum();
        if ends.len() > 1 && pods <= MANY_PODS {
            lives.extend(self.live_each(LIVES_ALIKE..LIVES_MAX, before, after));
        }
        Lived { nothing: self.stage(), lives }
    }

    fn live_each(&self, lives: Range<u64>, before: &DesiredState, after: &DesiredState) -> Vec<Life> {
        let seeds = lives.map(|life| self.seed.wrapping_add(life));
        std::thread::scope(|scope| {
            let live = |seed| {
                let beginning = Self { seed, ..self.clone() };
                scope.spawn(move || beginning.live_once(before.clone(), after.clone()))
            };
            let threads: Vec<_> = seeds.map(live).collect();
            let lived = threads.into_iter().map(|thread| thread.join());
            lived.map(|life| life.unwrap_or_else(|panic| resume_unwind(panic))).collect()
        })
    }

    fn live_once(&self, before: DesiredState, after: DesiredState) -> Life {
        let mut life = self.begin();
        commit(&mut life, before.clone());
        let is_settled = come_to_rest(&mut life);
        let cluster = life.cluster().world().objects().clone();
        let start = Stage::resting(cluster, life.now(), self.settings(), is_settled);
        let told = life.cluster().world().story().len();
        commit(&mut life, after);
        let is_settled = come_to_rest(&mut life);
        let course = course_since(&life, told);
        let cluster = with_old_names(life.cluster().world().objects(), start.cluster());
        let with = Stage::resting(cluster, life.now(), self.settings(), is_settled);
        let (without, anyway) = match may_change_by(start.cluster(), start.now(), with.now()) {
            true => self.live_on(before, &start, with.now()),
            false => (start.clone(), Course::default()),
        };
        Life { seed: self.seed, start, without, with, course: course.without(anyway) }
    }

    /// `start`, which is `before` at rest, at a later moment: the same life again, and no proposal in it.
    fn live_on(&self, before: DesiredState, start: &Stage, until: Timestamp) -> (Stage, Course) {
        let mut life = self.begin();
        commit(&mut life, before);
        life.run_until(start.now(), |_, _| ());
        let told = life.cluster().world().story().len();
        life.run_until(until, |_, _| ());
        let cluster = with_old_names(life.cluster().world().objects(), start.cluster());
        (Stage::resting(cluster, until, self.settings(), true), course_since(&life, told))
    }

    fn settings(&self) -> EngineSettings {
        EngineSettings { seed: self.seed, nominates: true, ..EngineSettings::default() }
    }

    fn begin(&self) -> Reconciler {
        let cloud = CloudHabits { spot_life: None, ..CloudHabits::default() };
        let habits = Habits { cloud, ..Habits::default() };
        let mut cluster = SimulatedCluster::new(self.seed, self.start, self.catalog.clone(), habits);
        let world = cluster.world_mut();
        for workload in &self.workloads {
            world.add_workload(workload.clone());
        }
        for object in &self.objects {
            match object {
                Observation::Pod(pod) => world.add_pod((**pod).clone()),
                other => world.apply(other.clone()),
            }
        }
        Reconciler::new(cluster, &self.environment, scripted_policy(), self.settings())
    }
}

fn commit(life: &mut Reconciler, state: DesiredState) {
    let proof = RenderProof::Twice { digest: state.digest.clone() };
    life.observe(GitEvent::Rendered { desired: Arc::new(state), proof });
}

/// What was done since so much had been told.
fn course_since(life: &Reconciler, told: usize) -> Course {
    let story = life.cluster().world().story().since(told);
    let count =
        |is_it: fn(&Happening) -> bool| story.iter().filter(|(_, happening)| is_it(happening)).count();
    Course {
        evictions: count(|happening| matches!(happening, Happening::Evicted { .. })),
        machines_bought: count(|happening| matches!(happening, Happening::Launched { .. })),
    }
}

/// How a life ends, as far as anybody pays or waits for it.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct End {
    /// Instance types and capacity types.
    nodes: Vec<[Option<Symbol>; 2]>,
    waiting: usize,
}

impl End {
    fn of(cluster: &Cluster) -> Self {
        let machine = |node: &Arc<Node>| [*INSTANCE_TYPE, *CAPACITY_TYPE].map(|label| node.label(label));
        let mut nodes: Vec<_> = cluster.nodes.values().map(machine).collect();
        nodes.sort();
        let waits = |pod: &&Arc<Pod>| pod.node.is_none() && pod.is_active();
        Self { nodes, waiting: cluster.pods.values().filter(waits).count() }
    }
}

/// What would have to stay the same for the cluster to be at rest.
#[derive(PartialEq)]
struct Picture {
    claims: BTreeMap<ClaimName, bool>,
    nodes: BTreeSet<NodeName>,
    pods: BTreeMap<ObjectKey, Option<NodeName>>,
}

impl Picture {
    fn of(cluster: &Cluster) -> Self {
        let claims = cluster.claims.values().map(|claim| (claim.name, claim.deleted.is_some()));
        Self {
            claims: claims.collect(),
            nodes: cluster.nodes.keys().copied().collect(),
            pods: cluster.pods.values().map(|pod| (pod.key, pod.node)).collect(),
        }
    }
}

/// Lives on until nothing has happened for as long as any pool waits before it acts; `false`: that moment never comes.
fn come_to_rest(life: &mut Reconciler) -> bool {
    let began = life.now();
    let mut windows = 0;
    let first: BTreeSet<ClaimName> = life.cluster().world().objects().claims.keys().copied().collect();
    let (mut left, mut progressed) = (first.len(), began);
    let (mut seen, mut since) = (Picture::of(life.cluster().world().objects()), began);
    while life.now().duration_since(began) < LIFE_MAX {
        let next = life.now() + LOOK;
        life.run_until(next, |_, _| ());
        let now = life.now();
        let cluster = life.cluster().world().objects();
        let picture = Picture::of(cluster);
        if picture != seen {
            let still = first.iter().filter(|name| cluster.claims.contains_key(name)).count();
            if still < left {
                (left, progressed) = (still, now);
            }
            if now.duration_since(progressed) > CHURN_MAX.max(patience(cluster) * CHURN_PATIENCE) {
                return false;
            }
            (seen, since) = (picture, now);
            continue;
        }
        if now.duration_since(since) < patience(cluster) {
            continue;
        }
        let window = next_window(cluster, now).filter(|_| windows < WINDOWS_MAX);
        let Some(window) = window.filter(|at| at.duration_since(began) < LIFE_MAX) else { return true };
        windows += 1;
        life.run_until(window, |_, _| ());
        (since, progressed) = (life.now(), life.now());
    }
    false
}

/// Whether a cluster that rests at `now` may be another one at `then`, with nobody proposing anything: nodes grow old, and windows open.
fn may_change_by(cluster: &Cluster, now: Timestamp, then: Timestamp) -> bool {
    let expires = |claim: &Arc<NodeClaim>| {
        let age = claim.created.map_or(SignedDuration::ZERO, |created| then.duration_since(created));
        claim.spec.expire_after.duration.is_some_and(|life| age > life / 2)
    };
    then.duration_since(now) > BRIEF || cluster.claims.values().any(expires)
}

/// The longest that any pool waits for its pods to be quiet, or that the engine leaves nodes alone whose pods moved in vain.
fn patience(cluster: &Cluster) -> SignedDuration {
    let waits = cluster.pools.values().filter_map(|pool| pool.disruption.consolidate_after.duration);
    waits.max().unwrap_or(SignedDuration::ZERO).min(PATIENCE_MAX).max(LEFT_ALONE) + GRACE
}

/// When a budget of a pool next allows more, or less, that still has drifted nodes which are not on their way out.
fn next_window(cluster: &Cluster, now: Timestamp) -> Option<Timestamp> {
    let drifted = cluster
        .claims
        .values()
        .filter(|claim| claim.deleted.is_none() && claim.conditions.is_true(ConditionType::Drifted));
    let pools: BTreeSet<PoolName> = drifted.filter_map(|claim| claim.pool()).collect();
    let pools = pools.iter().filter_map(|pool| cluster.pools.get(pool));
    pools.filter_map(|pool| next_change_for(pool, DisruptionReason::Drifted, now)).min()
}

/// The cluster with its pods under the names that they had: a pod that moves is made anew, and nobody would know it again.
fn with_old_names(cluster: &Cluster, former: &Cluster) -> Cluster {
    let owner = |pod: &Pod| pod.controller().map(|owner| owner.uid);
    let mut lost: BTreeMap<Uid, Vec<&Arc<Pod>>> = BTreeMap::new();
    for pod in former.pods.values().rev().filter(|pod| !cluster.pods.contains_key(&pod.key)) {
        if let Some(owner) = owner(pod) {
            lost.entry(owner).or_default().push(pod);
        }
    }
    let mut renamed = cluster.clone();
    for pod in cluster.pods.values().filter(|pod| !former.pods.contains_key(&pod.key)) {
        if let Some(old) = owner(pod).and_then(|owner| lost.get_mut(&owner)).and_then(Vec::pop) {
            renamed.remove_pod(pod.key);
            renamed.put_pod(Arc::new(Pod { key: old.key, uid: old.uid, ..(**pod).clone() }));
        }
    }
    renamed
}
