//! A cluster and its cloud in memory: a virtual clock, one seed, and a queue of things that will happen.
//!
//! The world takes `Action`s and gives `Observation`s, like the real one, and never looks into the engine. It moves only when told
//! to, from one event to the next, so a week takes a second and the same seed always tells the same story.

mod protection;
mod staffing;
mod weather;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use crate::capacity::cluster::Cluster;
use crate::capacity::ledger::Statement;
use crate::model::action::Action;
use crate::model::buffer::CapacityBuffer;
use crate::model::catalog::Catalog;
use crate::model::class::NodeClass;
use crate::model::condition::{Condition, ConditionStatus};
use crate::model::name::{ClaimName, ClassName, NodeName, ObjectKey, PoolName, ProviderId, Zone};
use crate::model::node::Node;
use crate::model::observation::{EvictionBlock, LaunchFailure, Observation, Shortage};
use crate::model::offering::{CapacityType, InstanceType};
use crate::model::pod::{Pod, PodPhase, PodShape};
use crate::model::pool::{NodeOverlay, NodePool};
use crate::model::taint::{Effect, Toleration, first_untolerated};

use super::chance;
use super::cloud::{Cloud, CloudHabits, LaunchAnswer, OfferingKey, SHORTAGE_MEMORY};
use super::kubelet;
use super::story::{Happening, Story};
use super::workload::{Workload, WorkloadKind, new_pod};
use protection::Protection;
use staffing::Staffing;
use weather::{Aftermath, Boot, Weather};

/// How a world behaves, apart from its seed.
#[derive(Clone, Debug, Default)]
pub struct Habits {
    pub cloud: CloudHabits,
    /// How many pods the controllers of workloads make in a second, of all workloads together; `None`: all at once.
    pub pods_a_second: Option<u32>,
    /// How long each machine takes to join, and as long again to be ready; `None`: as its image does.
    pub boot: Option<SignedDuration>,
}

/// Something that will happen.
#[derive(Clone, Debug)]
enum Event {
    /// The answer to a call arrives.
    Answer(Observation),
    Joins(ProviderId),
    BecomesReady(ProviderId),
    /// Whoever watches a startup taint takes it off.
    StartupDone(ProviderId),
    PodStarts(ObjectKey),
    PodEnds(ObjectKey),
    JobDone(ObjectKey),
    SpotWarning(ProviderId),
    InstanceGone(ProviderId),
    /// kube-scheduler looks at the pods that wait.
    Schedule,
    /// Controllers go on with the pods that are missing.
    Control,
    /// Somebody changes what is wanted.
    Scale {
        workload: ObjectKey,
        replicas: u32,
    },
    Shortage {
        offerings: Vec<OfferingKey>,
        lasts: SignedDuration,
    },
    /// The cloud takes one running spot machine back, chosen by chance.
    Reclaim,
    ZoneLost(Zone),
    Aftermath(Aftermath),
}

#[derive(Debug)]
pub struct World {
    now: Timestamp,
    rng: ChaCha8Rng,
    queue: BTreeMap<(Timestamp, u64), Event>,
    sequence: u64,
    objects: Cluster,
    catalog: Arc<Catalog>,
    /// Shapes by class, as the class was when they were made.
    types: BTreeMap<ClassName, Arc<Vec<InstanceType>>>,
    cloud: Cloud,
    habits: Habits,
    workloads: BTreeMap<ObjectKey, Workload>,
    /// The pods of each workload that count.
    staff: BTreeMap<ObjectKey, BTreeSet<ObjectKey>>,
    staffing: Staffing,
    protection: Protection,
    /// What was not fetched yet.
    news: Vec<(Timestamp, Observation)>,
    is_scheduling_due: bool,
    story: Story,
    weather: Weather,
}

impl World {
    /// An empty cluster at `start`.
    pub fn new(seed: u64, start: Timestamp, catalog: Arc<Catalog>, habits: Habits) -> Self {
        let mut world = Self {
            now: start,
            rng: ChaCha8Rng::seed_from_u64(seed),
            queue: BTreeMap::new(),
            sequence: 0,
            objects: Cluster::default(),
            catalog: catalog.clone(),
            types: BTreeMap::new(),
            cloud: Cloud::default(),
            habits,
            workloads: BTreeMap::new(),
            staff: BTreeMap::new(),
            staffing: Staffing::default(),
            protection: Protection::default(),
            news: Vec::new(),
            is_scheduling_due: false,
            story: Story::default(),
            weather: Weather::default(),
        };
        world.publish(Observation::Catalog(catalog));
        world.publish(Observation::Synced);
        world
    }

    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// The objects of the simulated API server.
    pub fn objects(&self) -> &Cluster {
        &self.objects
    }

    pub fn cloud(&self) -> &Cloud {
        &self.cloud
    }

    pub fn story(&self) -> &Story {
        &self.story
    }

    /// What the cloud charges until now.
    pub fn bill(&self) -> Statement {
        self.cloud.bill(self.now)
    }

    /// When the next thing happens by itself.
    pub fn next_event(&self) -> Option<Timestamp> {
        self.queue.first_key_value().map(|((at, _), _)| *at)
    }

    /// Everything seen since the last call, in order.
    pub fn take_news(&mut self) -> Vec<(Timestamp, Observation)> {
        std::mem::take(&mut self.news)
    }

    /// Lets time pass until `until`, and everything happen that is due by then. Stops early, at the moment of the first
    /// event that somebody outside could see.
    pub fn advance(&mut self, until: Timestamp) {
        while self.news.is_empty() {
            let Some((&(at, _), _)) = self.queue.first_key_value().filter(|((at, _), _)| *at <= until) else {
                self.now = self.now.max(until);
                return;
            };
            self.now = self.now.max(at);
            while let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let event = entry.remove();
                self.happen(event);
            }
        }
    }

    // What people and files put into the world.

    /// Creates or replaces an object that is no pod, as `kubectl apply` would.
    pub fn apply(&mut self, object: Observation) {
        if let Observation::Class(class) = &object {
            self.types.remove(&class.name);
        }
        let object = self.with_status(object);
        self.publish(object);
        self.touch_scheduler();
    }

    /// What is applied says nothing about status: that stays as it was, and of a new class the world knows that it is ready.
    fn with_status(&self, object: Observation) -> Observation {
        match object {
            Observation::Pool(pool) => match self.objects.pools.get(&pool.name) {
                Some(known) if !known.conditions.is_empty() => {
                    let (conditions, used) = (known.conditions.clone(), known.used.clone());
                    let is_ready = known.is_ready;
                    Observation::Pool(Arc::new(NodePool { conditions, used, is_ready, ..(*pool).clone() }))
                }
                _ => Observation::Pool(pool),
            },
            Observation::Overlay(overlay) => match self.objects.overlays.get(&overlay.name) {
                Some(known) => {
                    let conditions = known.conditions.clone();
                    Observation::Overlay(Arc::new(NodeOverlay { conditions, ..(*overlay).clone() }))
                }
                None => Observation::Overlay(overlay),
            },
            Observation::Buffer(buffer) => match self.objects.buffers.get(&buffer.key) {
                Some(known) => {
                    let status = known.status.clone();
                    Observation::Buffer(Arc::new(CapacityBuffer { status, ..(*buffer).clone() }))
                }
                None => Observation::Buffer(buffer),
            },
            Observation::Class(class) if class.readiness.is_none() && class.is_ready => {
                let readiness = Some(Condition {
                    status: ConditionStatus::True,
                    reason: "Simulated".into(),
                    message: "".into(),
                    since: Some(self.now),
                });
                Observation::Class(Arc::new(NodeClass { readiness, ..(*class).clone() }))
            }
            other => other,
        }
    }

    /// Deletes a pool: its claims go with it, as the API server's garbage collector sees to.
    pub fn delete_pool(&mut self, pool: PoolName) {
        let claims: Vec<ClaimName> = self.objects.claims_of(pool).map(|claim| claim.name).collect();
        for claim in claims {
            self.perform(&Action::DeleteClaim { claim });
        }
        self.publish(Observation::PoolGone(pool));
    }

    pub fn delete_class(&mut self, class: ClassName) {
        self.types.remove(&class);
        self.publish(Observation::ClassGone(class));
    }

    pub fn add_workload(&mut self, workload: Workload) {
        let key = workload.key;
        let staff = self.objects.pods.values().filter(|pod| workload.counts(pod)).map(|pod| pod.key);
        self.staff.insert(key, staff.collect());
        self.workloads.insert(key, workload);
        self.publish_scalable(key);
        self.control_workloads();
    }

    /// Puts a pod there as it is, bound or not.
    pub fn add_pod(&mut self, pod: Pod) {
        self.publish(Observation::Pod(Arc::new(pod)));
        self.touch_scheduler();
    }

    pub fn scale_at(&mut self, at: Timestamp, workload: ObjectKey, replicas: u32) {
        self.plan(at, Event::Scale { workload, replicas });
    }

    pub fn reclaim_at(&mut self, at: Timestamp) {
        self.plan(at, Event::Reclaim);
    }

    pub fn shortage_at(&mut self, at: Timestamp, offerings: Vec<OfferingKey>, lasts: SignedDuration) {
        self.plan(at, Event::Shortage { offerings, lasts });
    }

    /// Every machine of `zone` ends at once.
    pub fn lose_zone_at(&mut self, at: Timestamp, zone: Zone) {
        self.plan(at, Event::ZoneLost(zone));
    }

    // Actions.

    /// Carries out one action. What comes of it is among the news, now or later.
    pub fn perform(&mut self, action: &Action) {
        match action {
            Action::CreateClaim(claim) => {
                if !self.objects.claims.contains_key(&claim.name) {
                    let mut claim = (**claim).clone();
                    claim.created = Some(self.now);
                    self.tell(Happening::ClaimCreated { claim: claim.name, pool: claim.pool() });
                    self.publish(Observation::Claim(Arc::new(claim)));
                }
            }
            Action::DeleteClaim { claim } => self.delete_claim(*claim),
            Action::UpdateClaim { claim, change } => self.change_claim(*claim, change),
            Action::FinalizeClaim { claim } => {
                if let Some(mut object) = self.objects.claims.get(claim).map(|claim| (**claim).clone()) {
                    object.has_finalizer = false;
                    if object.deleted.is_some() {
                        self.publish(Observation::ClaimGone(*claim));
                    } else {
                        self.publish(Observation::Claim(Arc::new(object)));
                    }
                }
            }
            Action::Launch { claim, options } => self.launch(*claim, options),
            Action::Terminate { instance } => self.terminate(*instance),
            Action::UpdateNode { node, change } => self.change_node(*node, change),
            Action::DeleteNode { node } => self.delete_node(*node),
            Action::FinalizeNode { node } => {
                if let Some(mut object) = self.objects.nodes.get(node).map(|node| (**node).clone()) {
                    object.has_finalizer = false;
                    if object.deleted.is_some() {
                        self.remove_node(*node);
                    } else {
                        self.publish(Observation::Node(Arc::new(object)));
                    }
                }
            }
            Action::NominatePod { pod, uid, node, .. } => {
                let known = self.objects.pods.get(pod).filter(|known| known.uid == *uid);
                if let Some(waiting) = known.filter(|known| known.node.is_none()) {
                    let nominated = Pod { nominated_node: Some(*node), ..(**waiting).clone() };
                    self.publish(Observation::Pod(Arc::new(nominated)));
                }
            }
            Action::Evict { pod, uid } => self.evict(*pod, *uid),
            Action::DeletePod { pod, uid, grace } => {
                if self.objects.pods.get(pod).is_some_and(|known| known.uid == *uid) {
                    self.end_pod(*pod, Some(*grace));
                }
            }
            Action::UpdatePool { pool, change } => {
                if let Some(mut object) = self.objects.pools.get(pool).map(|pool| (**pool).clone()) {
                    change.apply_to(&mut object);
                    self.publish(Observation::Pool(Arc::new(object)));
                }
            }
            Action::UpdateOverlay { overlay, conditions } => {
                if let Some(object) = self.objects.overlays.get(overlay) {
                    let conditions = conditions.clone();
                    let changed = NodeOverlay { conditions, is_judged_earlier: false, ..(**object).clone() };
                    self.publish(Observation::Overlay(Arc::new(changed)));
                }
            }
            Action::UpdateBuffer { buffer, status } => {
                if let Some(object) = self.objects.buffers.get(buffer) {
                    let changed = CapacityBuffer { status: status.clone(), ..(**object).clone() };
                    self.publish(Observation::Buffer(Arc::new(changed)));
                }
            }
            // Its classes have nothing to be asked or cleared away, and nobody looks at its machines.
            Action::NameMachine { .. }
            | Action::HoldClass { .. }
            | Action::ResolveClass { .. }
            | Action::ClearClass { .. } => {}
            Action::Publish(notice) => self.tell(Happening::Notice(notice.clone())),
        }
    }

    fn delete_claim(&mut self, name: ClaimName) {
        let Some(claim) = self.objects.claims.get(&name) else { return };
        if !claim.has_finalizer {
            self.publish(Observation::ClaimGone(name));
        } else if claim.deleted.is_none() {
            let mut claim = (**claim).clone();
            claim.deleted = Some(self.now);
            self.publish(Observation::Claim(Arc::new(claim)));
        }
    }

    fn change_claim(&mut self, name: ClaimName, change: &crate::model::action::ClaimChange) {
        let Some(mut claim) = self.objects.claims.get(&name).map(|claim| (**claim).clone()) else { return };
        claim.labels.extend(change.labels.iter().map(|(key, value)| (*key, *value)));
        claim.annotations.extend(change.annotations.iter().map(|(key, value)| (*key, *value)));
        if let Some(conditions) = &change.conditions {
            claim.conditions = conditions.clone();
        }
        if let Some(launched) = &change.launched {
            claim.provider_id = Some(launched.provider_id);
            claim.image = Some(launched.image);
            claim.capacity = launched.capacity.clone();
            claim.allocatable = launched.allocatable.clone();
        }
        claim.node = change.node.or(claim.node);
        claim.last_pod_event = change.last_pod_event.or(claim.last_pod_event);
        claim.has_finalizer = true;
        self.publish(Observation::Claim(Arc::new(claim)));
    }

    fn launch(&mut self, name: ClaimName, options: &[crate::model::action::LaunchOption]) {
        let Some(claim) = self.objects.claims.get(&name).cloned() else { return };
        let at = self.now + self.habits.cloud.launch_time(&mut self.rng);
        if self.is_throttled() {
            let failure =
                LaunchFailure::Transient { message: "RequestLimitExceeded: simulated throttling".into() };
            self.plan(at, Event::Answer(Observation::LaunchFailed { claim: name, failure }));
            return;
        }
        let types = self.types_of(claim.spec.class.name);
        let answer = match self.cloud.launch(self.now, name, claim.pool(), options, &types) {
            LaunchAnswer::Known(instance) => {
                Observation::Launched { claim: name, instance: *instance, shortage: None }
            }
            LaunchAnswer::Machine(instance) => {
                let id = instance.provider_id;
                let family = self
                    .objects
                    .classes
                    .get(&claim.spec.class.name)
                    .map_or(crate::model::class::AmiFamily::Al2023, |class| class.ami_family);
                let usual = kubelet::boot_time(family, &mut self.rng);
                let boot = self.habits.boot.unwrap_or(usual);
                if let Boot::After(boot) = self.boot(boot, id) {
                    self.plan(at + boot, Event::Joins(id));
                }
                if instance.capacity_type == CapacityType::Spot
                    && let Some(life) = self.habits.cloud.spot_life
                {
                    let wait = chance::wait(&mut self.rng, life);
                    self.plan(at + wait, Event::SpotWarning(id));
                }
                self.tell(Happening::Launched {
                    claim: name,
                    instance: id,
                    instance_type: instance.instance_type,
                    zone: instance.zone,
                    capacity_type: instance.capacity_type,
                    price: self.cloud.machine(id).map(|machine| machine.price).unwrap_or_default(),
                });
                let shortage = self.cloud.shortage(self.now, options).map(Arc::new);
                Observation::Launched { claim: name, instance: *instance, shortage }
            }
            LaunchAnswer::NoCapacity(offerings) => {
                self.tell(Happening::NoCapacity { claim: name, offerings: offerings.len() });
                let until = self.now + SHORTAGE_MEMORY;
                let failure =
                    LaunchFailure::InsufficientCapacity(Shortage { offerings, until, advice: None }.into());
                Observation::LaunchFailed { claim: name, failure }
            }
            LaunchAnswer::UnknownType(kind) => {
                let message =
                    format!("InvalidParameterValue: type {kind} is not sold under this class").into();
                Observation::LaunchFailed {
                    claim: name,
                    failure: LaunchFailure::Refused { reason: None, message },
                }
            }
        };
        if !self.loses_answer() {
            self.plan(at, Event::Answer(answer));
        }
    }

    fn types_of(&mut self, class: ClassName) -> Arc<Vec<InstanceType>> {
        let known = self.objects.classes.get(&class).cloned();
        let catalog = &self.catalog;
        self.types.entry(class).or_insert_with(|| catalog.instance_types(known.as_deref())).clone()
    }

    fn terminate(&mut self, id: ProviderId) {
        if self.refuses_ending() {
            let message = "RequestLimitExceeded: simulated throttling".into();
            self.plan(self.now, Event::Answer(Observation::TerminateFailed { instance: id, message }));
            return;
        }
        let delay = self.habits.cloud.shutdown_time(&mut self.rng);
        if self.cloud.end(self.now, id) {
            self.tell(Happening::Terminating { instance: id });
            self.plan(self.now + delay, Event::InstanceGone(id));
        } else if self.cloud.machine(id).is_none() || self.queue.values().all(|event| !event.ends(id)) {
            self.plan(self.now, Event::Answer(Observation::Terminated { instance: id }));
        }
    }

    fn change_node(&mut self, name: NodeName, change: &crate::model::action::NodeChange) {
        let Some(mut node) = self.objects.nodes.get(&name).map(|node| (**node).clone()) else { return };
        node.labels.extend(change.labels.iter().map(|(key, value)| (*key, *value)));
        node.annotations.extend(change.annotations.iter().map(|(key, value)| (*key, *value)));
        node.taints.retain(|taint| !change.remove_taints.iter().any(|removed| removed.is_same(taint)));
        node.taints.retain(|taint| !change.add_taints.iter().any(|added| added.is_same(taint)));
        node.taints.extend(change.add_taints.iter().copied());
        node.has_finalizer |= change.add_finalizer;
        // Whoever takes startup taints off sees that there are some.
        if let Some(id) = node.provider_id.filter(|_| node.is_ready() && !change.add_taints.is_empty()) {
            self.plan(self.now + SignedDuration::from_secs(5), Event::StartupDone(id));
        }
        self.publish(Observation::Node(Arc::new(node)));
        self.start_daemons(name);
        self.touch_scheduler();
    }

    fn delete_node(&mut self, name: NodeName) {
        let Some(node) = self.objects.nodes.get(&name) else { return };
        if !node.has_finalizer {
            self.remove_node(name);
        } else if node.deleted.is_none() {
            let mut node = (**node).clone();
            node.deleted = Some(self.now);
            self.publish(Observation::Node(Arc::new(node)));
        }
    }

    /// The Node object goes, and what was bound to it with it.
    fn remove_node(&mut self, name: NodeName) {
        let pods: Vec<ObjectKey> = self.objects.pods_of(name).map(|pod| pod.key).collect();
        self.publish(Observation::NodeGone(name));
        self.tell(Happening::NodeGone { node: name });
        pods.into_iter().for_each(|pod| self.remove_pod(pod));
        self.control_workloads();
    }

    // Pods.

    fn evict(&mut self, key: ObjectKey, uid: crate::model::name::Uid) {
        let Some(pod) = self.objects.pods.get(&key).filter(|pod| pod.uid == uid).cloned() else { return };
        if let Some(budget) = self.protection.keeps(&pod, &self.workloads) {
            let message = format!("disruption budget {} allows none now", budget.key).into();
            self.publish(Observation::EvictionBlocked { pod: key, why: EvictionBlock::Budget, message });
            return;
        }
        self.publish(Observation::Evicted { pod: key });
        self.tell(Happening::Evicted { pod: key, node: pod.node });
        self.end_pod(key, None);
    }

    fn end_pod(&mut self, key: ObjectKey, grace: Option<SignedDuration>) {
        self.begin_end_of_pod(key, grace);
        self.control_workloads();
    }

    fn begin_end_of_pod(&mut self, key: ObjectKey, grace: Option<SignedDuration>) {
        let Some(pod) = self.objects.pods.get(&key).filter(|pod| pod.deleted.is_none()) else { return };
        let mut pod = (**pod).clone();
        pod.deleted = Some(self.now);
        pod.is_ready = false;
        let ignores = self.workload_of(&pod).is_some_and(|workload| workload.ignores_sigterm);
        let takes = kubelet::stop_time(&pod.shape, ignores, &mut self.rng);
        let takes = grace.map_or(takes, |grace| takes.min(grace));
        let is_bound = pod.node.is_some();
        self.publish(Observation::Pod(Arc::new(pod)));
        if is_bound {
            self.plan(self.now + takes, Event::PodEnds(key));
        } else {
            self.remove_pod(key);
        }
    }

    fn remove_pod(&mut self, key: ObjectKey) {
        if self.objects.pods.contains_key(&key) {
            self.publish(Observation::PodGone(key));
            self.touch_scheduler();
        }
    }

    /// The DaemonSet controller puts its pods on a node that suits them and has none yet.
    fn start_daemons(&mut self, name: NodeName) {
        let Some(node) = self.objects.nodes.get(&name).cloned() else { return };
        let sets: Vec<_> = self.objects.daemon_sets.values().cloned().collect();
        for set in sets {
            let key = ObjectKey::new(set.key.namespace.as_str(), &format!("{}-{name}", set.key.name));
            if self.objects.pods.contains_key(&key) || !is_wanted_daemon(&set.shape, &node) {
                continue;
            }
            let owner = crate::model::pod::Owner {
                kind: "DaemonSet".into(),
                api_version: "apps/v1".into(),
                name: set.key.name,
                uid: set.uid,
                is_controller: true,
            };
            let mut pod = new_pod(key, set.shape.clone(), owner, self.now);
            pod.node = Some(name);
            self.publish(Observation::Pod(Arc::new(pod)));
            let takes = kubelet::start_time(&mut self.rng);
            self.plan(self.now + takes, Event::PodStarts(key));
        }
    }

    // Events.

    fn happen(&mut self, event: Event) {
        match event {
            Event::Answer(observation) => self.publish(observation),
            Event::Joins(id) => self.join(id),
            Event::BecomesReady(id) => self.become_ready(id),
            Event::StartupDone(id) => self.finish_startup(id),
            Event::PodStarts(key) => self.start_pod(key),
            // Nobody is there any more to say that it ended.
            Event::PodEnds(key) if self.runs_on_the_dead(key) => {}
            Event::PodEnds(key) => {
                self.remove_pod(key);
                self.control_workloads();
            }
            Event::JobDone(key) => self.succeed(key),
            Event::SpotWarning(id) => self.warn_spot(id),
            Event::InstanceGone(id) => self.lose_instance(id),
            Event::Schedule => self.schedule(),
            Event::Control => self.control_workloads(),
            Event::Scale { workload, replicas } => {
                if let Some(known) = self.workloads.get_mut(&workload) {
                    let from = std::mem::replace(&mut known.replicas, replicas);
                    self.tell(Happening::Scaled { workload, from, to: replicas });
                    self.publish_scalable(workload);
                    self.control_workloads();
                }
            }
            Event::Aftermath(aftermath) => self.follow(aftermath),
            Event::Shortage { offerings, lasts } => {
                let until = self.now + lasts;
                offerings.iter().for_each(|offering| self.cloud.run_dry(*offering, until));
                self.tell(Happening::Shortage { offerings: offerings.len(), until });
            }
            Event::Reclaim => {
                let running: Vec<ProviderId> =
                    self.cloud.running_spot().map(|machine| machine.instance.provider_id).collect();
                if !running.is_empty() {
                    let chosen = running[chance::below(&mut self.rng, running.len() as u64) as usize];
                    self.warn_spot(chosen);
                }
            }
            Event::ZoneLost(zone) => {
                self.tell(Happening::ZoneLost { zone });
                let lost: Vec<ProviderId> = self
                    .cloud
                    .machines()
                    .filter(|machine| machine.ended.is_none() && machine.instance.zone == zone)
                    .map(|machine| machine.instance.provider_id)
                    .collect();
                lost.into_iter().for_each(|id| {
                    self.cloud.end(self.now, id);
                    self.lose_instance(id);
                });
            }
        }
    }

    fn join(&mut self, id: ProviderId) {
        let Some(machine) = self.cloud.machine(id).filter(|machine| machine.ended.is_none()).cloned() else {
            return;
        };
        let claim = machine.instance.claim.and_then(|name| self.objects.claims.get(&name)).cloned();
        let (class, startup) = match &claim {
            Some(claim) => (claim.spec.class.name, claim.spec.startup_taints.clone()),
            None => return,
        };
        let types = self.types_of(class);
        let Some(kind) = types.iter().find(|kind| kind.name == machine.instance.instance_type) else {
            return;
        };
        let node = kubelet::joining_node(&machine.instance, kind, &startup, self.now);
        let node = self.as_booted(id, node);
        let name = node.name;
        self.publish(Observation::Node(Arc::new(node)));
        self.tell(Happening::NodeJoined { node: name, instance: id });
        let usual = kubelet::ready_time(&mut self.rng);
        let takes = self.habits.boot.unwrap_or(usual);
        self.plan(self.now + takes, Event::BecomesReady(id));
    }

    fn node_of(&self, id: ProviderId) -> Option<Arc<Node>> {
        self.objects.nodes.values().find(|node| node.provider_id == Some(id)).cloned()
    }

    fn become_ready(&mut self, id: ProviderId) {
        let Some(node) = self.node_of(id).filter(|_| !self.is_dead(id)) else { return };
        let mut node = (*node).clone();
        node.conditions = vec![kubelet::ready_condition(true, self.now)];
        node.taints.retain(|taint| &*taint.key != "node.kubernetes.io/not-ready");
        let name = node.name;
        self.tell(Happening::NodeReady { node: name });
        self.publish(Observation::Node(Arc::new(node)));
        self.start_daemons(name);
        self.touch_scheduler();
        let takes = SignedDuration::from_secs(5);
        self.plan(self.now + takes, Event::StartupDone(id));
    }

    fn finish_startup(&mut self, id: ProviderId) {
        let Some(node) = self.node_of(id) else { return };
        let claim = self.cloud.machine(id).and_then(|machine| machine.instance.claim);
        let Some(claim) = claim.and_then(|name| self.objects.claims.get(&name)) else { return };
        let startup = &claim.spec.startup_taints;
        if node.taints.iter().any(|taint| startup.iter().any(|other| other.is_same(taint))) {
            let mut node = (*node).clone();
            node.taints.retain(|taint| !startup.iter().any(|other| other.is_same(taint)));
            self.publish(Observation::Node(Arc::new(node)));
            self.touch_scheduler();
        }
    }

    fn start_pod(&mut self, key: ObjectKey) {
        if self.runs_on_the_dead(key) {
            return;
        }
        let Some(pod) = self.objects.pods.get(&key).filter(|pod| pod.is_active()) else { return };
        let mut pod = (**pod).clone();
        pod.phase = PodPhase::Running;
        pod.is_ready = true;
        pod.started = Some(self.now);
        let owner = pod.controller().map(|owner| owner.uid);
        self.publish(Observation::Pod(Arc::new(pod)));
        let job = self
            .workloads
            .values()
            .find(|workload| Some(workload.uid()) == owner)
            .map(|workload| workload.kind);
        if let Some(WorkloadKind::Job { runs_for, .. }) = job {
            self.plan(self.now + runs_for, Event::JobDone(key));
        }
    }

    /// A pod of a Job is done, if it still runs.
    fn succeed(&mut self, key: ObjectKey) {
        if self.runs_on_the_dead(key) {
            return;
        }
        let Some(pod) = self.objects.pods.get(&key).filter(|pod| pod.is_active()) else { return };
        let mut pod = (**pod).clone();
        pod.phase = PodPhase::Succeeded;
        pod.is_ready = false;
        let job = self.workload_of(&pod).map(|workload| workload.key);
        if let Some(workload) = job.and_then(|key| self.workloads.get_mut(&key)) {
            workload.succeeded += 1;
        }
        self.publish(Observation::Pod(Arc::new(pod)));
        self.touch_scheduler();
        self.control_workloads();
    }

    /// The machine is off: its kubelet is silent, and the cloud's node controller takes the Node away.
    fn lose_instance(&mut self, id: ProviderId) {
        self.cloud.end(self.now, id);
        self.publish(Observation::Terminated { instance: id });
        let Some(node) = self.node_of(id) else { return };
        let pods: Vec<ObjectKey> = self.objects.pods_of(node.name).map(|pod| pod.key).collect();
        pods.into_iter().for_each(|pod| self.remove_pod(pod));
        let mut silent = (*node).clone();
        silent.conditions = vec![kubelet::ready_condition(false, self.now)];
        self.publish(Observation::Node(Arc::new(silent)));
        self.delete_node(node.name);
        self.control_workloads();
    }

    fn touch_scheduler(&mut self) {
        if !self.is_scheduling_due {
            self.is_scheduling_due = true;
            self.plan(self.now + SignedDuration::from_millis(500), Event::Schedule);
        }
    }

    fn schedule(&mut self) {
        self.is_scheduling_due = false;
        let waiting: Vec<Arc<Pod>> = self
            .objects
            .pods
            .values()
            .filter(|pod| pod.node.is_none() && pod.is_active() && !pod.is_gated)
            .cloned()
            .collect();
        if waiting.is_empty() {
            return;
        }
        let bound = super::scheduler::bind(&self.objects, &waiting, &mut self.rng);
        // Where others were bound, there may be room now for one that has to be spread beside them.
        if !bound.is_empty() && bound.len() < waiting.len() {
            self.touch_scheduler();
        }
        for pod in waiting {
            let node = bound.get(&pod.key).copied();
            match node {
                Some(node) => {
                    let takes = kubelet::start_time(&mut self.rng);
                    self.plan(self.now + takes, Event::PodStarts(pod.key));
                    self.tell(Happening::Bound { pod: pod.key, node });
                }
                // What was tried in vain is promised nothing any more, and others may have the room.
                None if pod.nominated_node.is_some() => self.touch_scheduler(),
                None if pod.is_unschedulable => continue,
                None => {}
            }
            let tried =
                Pod { node, nominated_node: None, is_unschedulable: node.is_none(), ..(*pod).clone() };
            self.publish(Observation::Pod(Arc::new(tried)));
        }
    }

    // Bookkeeping.

    fn plan(&mut self, at: Timestamp, event: Event) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), event);
    }

    /// The workload that a pod is of, if it is of one.
    fn workload_of(&self, pod: &Pod) -> Option<&Workload> {
        let owner = pod.controller()?;
        self.workloads.get(&ObjectKey { namespace: pod.key.namespace, name: owner.name })
    }

    /// Keeps the count of a workload's pods.
    fn count(&mut self, pod: &Pod, is_gone: bool) {
        let Some(workload) = self.workload_of(pod) else { return };
        let (key, counts) = (workload.key, !is_gone && workload.counts(pod));
        let staff = self.staff.entry(key).or_default();
        if counts {
            staff.insert(pod.key);
        } else {
            staff.remove(&pod.key);
        }
    }

    fn publish(&mut self, observation: Observation) {
        match &observation {
            Observation::Pod(pod) => {
                self.count(pod, false);
                self.protection.see(self.objects.pods.get(&pod.key).map(Arc::as_ref), Some(pod));
            }
            Observation::PodGone(key) => {
                if let Some(pod) = self.objects.pods.get(key).cloned() {
                    self.count(&pod, true);
                    self.protection.see(Some(&pod), None);
                }
            }
            Observation::Budget(budget) => self.protection.take_in(budget, self.objects.pods.values()),
            Observation::BudgetGone(key) => self.protection.forget(*key),
            _ => {}
        }
        self.objects.observe(self.now, &observation);
        self.news.push((self.now, observation));
    }

    fn tell(&mut self, happening: Happening) {
        self.story.add(self.now, happening);
    }
}

impl Event {
    fn ends(&self, id: ProviderId) -> bool {
        matches!(self, Self::InstanceGone(other) if *other == id)
    }
}

/// Whether the DaemonSet controller wants its pod on `node`.
fn is_wanted_daemon(shape: &PodShape, node: &Node) -> bool {
    use crate::model::requirement::{Requirements, Undefined};
    let mut tolerations = shape.tolerations.clone();
    tolerations.extend(Toleration::of_daemons());
    let hard: Vec<_> =
        node.taints.iter().filter(|taint| taint.effect != Effect::PreferNoSchedule).copied().collect();
    let labels = Requirements::of_labels(&node.labels);
    let matches = |wanted: &Requirements| labels.compatible(wanted, Undefined::Nothing).is_ok();
    first_untolerated(&hard, &tolerations).is_none()
        && matches(&Requirements::of_labels(&shape.node_selector))
        && (shape.node_required.is_empty()
            || shape.node_required.iter().any(|term| !term.is_void() && matches(&term.requirements())))
}
