//! The node half as a value: observe, decide.
//!
//! Everything that takes time is state here: batches that ripen, launches that are awaited, drains, budgets, back-off. Time is an
//! argument, so a week can be lived in a second, and a recording of observations always leads to the same decisions.
//!
//! `observe` only notes what it concerns; `decide` looks at what was noted and at what is due, never at the whole cluster for one
//! event.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::decision::{Decision, Plan, Planned, Steps};
use super::disruption::{self, Disruptions};
use super::lifecycle::{self, Launches};
use super::provisioning::{claims_for, launch_options};
use super::scheduling::{
    Code, Mode, OfferingKey, Place, Refusal, Request, Settings, Solution, Supply, moving_pods,
    provisionable_pods, solve,
};
use super::termination::{self, Drains};
use crate::model::action::{Action, ClaimChange, Notice, Subject};
use crate::model::claim::{ClaimSpec, Conditions, NodeClaim};
use crate::model::label::{self, annotation};
use crate::model::name::{ClaimName, ObjectKey, PoolName, ProviderId, Uid};
use crate::model::observation::{InterruptionNotice, LaunchFailure, Observation};
use crate::model::offering::CapacityType;
use crate::model::pod::Pod;
use crate::model::pool::NodePool;
use crate::model::quantity::{Resources, resource};
use crate::model::requirement::Requirement;

/// How the engine behaves; the defaults are Karpenter's.
#[derive(Clone, Debug)]
pub struct EngineSettings {
    pub scheduling: Settings,
    pub disruption: disruption::Settings,
    /// A batch of waiting pods closes when none has come for so long.
    pub batch_idle: SignedDuration,
    /// A batch closes after so long, whatever still comes.
    pub batch_most: SignedDuration,
    /// Mixed into the names of claims, so that two engines never choose the same.
    pub seed: u64,
}

impl Default for EngineSettings {
    fn default() -> Self {
        Self {
            scheduling: Settings::default(),
            disruption: disruption::Settings::default(),
            batch_idle: SignedDuration::from_secs(1),
            batch_most: SignedDuration::from_secs(10),
            seed: 0,
        }
    }
}

/// How often pods that found no place are looked at again.
const WAITING_LOOK_AGAIN: SignedDuration = SignedDuration::from_secs(10);
/// How often a pod is told why it waits.
const TELL_AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// How long a node that pods are expected on is left alone: twice the longest batch.
const NOMINATION: SignedDuration = SignedDuration::from_secs(20);
/// Pod events closer together than this are one.
const POD_EVENT_LEAST: SignedDuration = SignedDuration::from_secs(10);
/// How long an offering that had no capacity is avoided.
const SHORTAGE_MEMORY: SignedDuration = SignedDuration::from_mins(3);

/// Waiting pods that are judged together.
#[derive(Clone, Debug)]
struct Batch {
    opened: Timestamp,
    touched: Timestamp,
}

#[derive(Debug)]
pub struct Engine {
    settings: EngineSettings,
    cluster: Cluster,
    is_synced: bool,
    /// What each pool can buy; made anew when pools, classes, overlays or the catalogue change.
    supply: Option<Arc<Supply>>,
    sold_out: BTreeMap<OfferingKey, Timestamp>,
    launches: Launches,
    drains: Drains,
    disruptions: Disruptions,
    batch: Option<Batch>,
    /// Pods that a batch was opened for; a pod counts once until it is gone or bound.
    seen_pods: BTreeSet<ObjectKey>,
    next_look: Option<Timestamp>,
    nominated: BTreeMap<Place, Timestamp>,
    /// Pods that were told why they wait, and when.
    told_pods: BTreeMap<ObjectKey, Timestamp>,
    /// Claims to look at now.
    attention: BTreeSet<ClaimName>,
    /// Claims to look at later.
    alarms: BTreeMap<Timestamp, BTreeSet<ClaimName>>,
    /// Pools to look at now: their status and their count of nodes may have changed.
    pools_touched: BTreeSet<PoolName>,
    pod_events: BTreeSet<ClaimName>,
    notices: Vec<Planned>,
    plan: Arc<Plan>,
    rounds: u64,
}

impl Engine {
    pub fn new(settings: EngineSettings) -> Self {
        Self {
            settings,
            cluster: Cluster::default(),
            is_synced: false,
            supply: None,
            sold_out: BTreeMap::new(),
            launches: Launches::default(),
            drains: Drains::default(),
            disruptions: Disruptions::default(),
            batch: None,
            seen_pods: BTreeSet::new(),
            next_look: None,
            nominated: BTreeMap::new(),
            told_pods: BTreeMap::new(),
            attention: BTreeSet::new(),
            alarms: BTreeMap::new(),
            pools_touched: BTreeSet::new(),
            pod_events: BTreeSet::new(),
            notices: Vec::new(),
            plan: Arc::default(),
            rounds: 0,
        }
    }

    /// The cluster as last seen.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// What was judged last.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Takes in one piece of news.
    pub fn observe(&mut self, at: Timestamp, seen: Observation) {
        let former_pod = match &seen {
            Observation::Pod(pod) => self.cluster.pods.get(&pod.key).cloned(),
            Observation::PodGone(key) => self.cluster.pods.get(key).cloned(),
            _ => None,
        };
        self.cluster.observe(at, &seen);
        match &seen {
            Observation::Pool(pool) => {
                self.supply = None;
                self.pools_touched.insert(pool.name);
                self.attention.extend(self.cluster.claims_of(pool.name).map(|claim| claim.name));
                self.judge_again(at);
            }
            Observation::PoolGone(_)
            | Observation::Class(_)
            | Observation::ClassGone(_)
            | Observation::Overlay(_)
            | Observation::OverlayGone(_)
            | Observation::Catalog(_) => {
                self.supply = None;
                self.judge_again(at);
            }
            Observation::Claim(claim) => self.touch_claim(at, claim),
            Observation::ClaimGone(name) => {
                self.launches.forget(*name);
                self.nominated.remove(&Place::Claim(*name));
                self.pools_touched.extend(self.cluster.pools.keys().copied());
                self.judge_again(at);
            }
            Observation::Node(node) => {
                if let Some(claim) = self.cluster.claim_of(node).map(|claim| claim.name) {
                    self.attention.insert(claim);
                }
                self.disruptions.touch();
            }
            Observation::NodeGone(name) => {
                self.nominated.remove(&Place::Node(*name));
                let claims = self.cluster.claims.values().filter(|claim| claim.node == Some(*name));
                self.attention.extend(claims.map(|claim| claim.name));
                self.judge_again(at);
            }
            Observation::Pod(pod) => self.see_pod(at, former_pod.as_deref(), Some(pod)),
            Observation::PodGone(key) => {
                self.drains.pod_gone(*key);
                self.seen_pods.remove(key);
                self.told_pods.remove(key);
                self.see_pod(at, former_pod.as_deref(), None);
            }
            Observation::Synced => {
                self.is_synced = true;
                self.attention.extend(self.cluster.claims.keys().copied());
                self.pools_touched.extend(self.cluster.pools.keys().copied());
                self.judge_again(at);
            }
            Observation::Launched { claim, instance } => {
                self.launches.succeeded(*claim, instance.clone());
                self.attention.insert(*claim);
            }
            Observation::LaunchFailed { claim, failure } => self.see_launch_failure(at, *claim, failure),
            Observation::Terminated { instance } => {
                self.drains.instance_ended(*instance);
                self.see_instance_gone(*instance);
            }
            Observation::TerminateFailed { .. }
            | Observation::ActionFailed { .. }
            | Observation::Evicted { .. } => {}
            Observation::EvictionBlocked { pod, message } => {
                let notice = termination::blocked_notice(*pod, message);
                self.notices.push(Planned::new(
                    Action::Publish(notice),
                    "FailedDraining",
                    message.to_string(),
                ));
            }
            Observation::Instances(instances) => self.collect_garbage(at, instances),
            Observation::Interruption { instance, notice } => self.see_interruption(at, *instance, notice),
            Observation::DaemonSet(_)
            | Observation::DaemonSetGone(_)
            | Observation::Budget(_)
            | Observation::BudgetGone(_)
            | Observation::VolumeClaim(_)
            | Observation::VolumeClaimGone(_)
            | Observation::Volume(_)
            | Observation::VolumeGone(_)
            | Observation::StorageClass(_)
            | Observation::StorageClassGone(_)
            | Observation::CsiNode(_)
            | Observation::CsiNodeGone(_)
            | Observation::VolumeAttachment(_)
            | Observation::VolumeAttachmentGone(_)
            | Observation::Namespace(_)
            | Observation::NamespaceGone(_) => self.disruptions.touch(),
        }
    }

    fn touch_claim(&mut self, at: Timestamp, claim: &NodeClaim) {
        self.attention.insert(claim.name);
        if let Some(pool) = claim.pool() {
            self.pools_touched.insert(pool);
        }
        self.disruptions.touch();
        // Its pods need a place elsewhere: they are judged with those that wait.
        if claim.deleted.is_some() {
            self.open_batch(at);
        }
    }

    fn see_pod(&mut self, at: Timestamp, former: Option<&Pod>, pod: Option<&Arc<Pod>>) {
        self.disruptions.touch();
        let is_counted = |pod: &Pod| !pod.is_daemon() && pod.node.is_some() && pod.is_active();
        let (before, after) = (former.filter(|pod| is_counted(pod)), pod.filter(|pod| is_counted(pod)));
        let moved = before.map(|pod| pod.node) != after.map(|pod| pod.node);
        for node in
            [before.and_then(|pod| pod.node), pod.and_then(|pod| pod.node), former.and_then(|pod| pod.node)]
        {
            let Some(node) = node.and_then(|name| self.cluster.nodes.get(&name)) else { continue };
            let Some(claim) = self.cluster.claim_of(node) else { continue };
            if claim.deleted.is_some() {
                self.attention.insert(claim.name);
            } else if moved {
                self.pod_events.insert(claim.name);
            }
        }
        if let Some(pod) = pod {
            let waits = pod.node.is_none() && pod.is_unschedulable && pod.is_active() && !pod.is_gated;
            if !waits {
                self.seen_pods.remove(&pod.key);
            } else if self.seen_pods.insert(pod.key) {
                self.open_batch(at);
            }
        }
    }

    fn open_batch(&mut self, at: Timestamp) {
        match &mut self.batch {
            Some(batch) => batch.touched = batch.touched.max(at),
            None => self.batch = Some(Batch { opened: at, touched: at }),
        }
    }

    /// What may be bought, or what must be kept, has changed.
    fn judge_again(&mut self, at: Timestamp) {
        self.disruptions.touch();
        if !self.seen_pods.is_empty() {
            self.open_batch(at);
        }
    }

    fn see_launch_failure(&mut self, at: Timestamp, claim: ClaimName, failure: &LaunchFailure) {
        self.attention.insert(claim);
        let Some(object) = self.cluster.claims.get(&claim).cloned() else { return };
        match failure {
            LaunchFailure::InsufficientCapacity { offerings, until } => {
                for offering in offerings {
                    let end = self.sold_out.entry(*offering).or_insert(*until);
                    *end = (*end).max(*until);
                }
                self.launches.forget(claim);
                let mut steps = Steps::default();
                let why = format!("none of the {} ways to buy it has capacity", offerings.len());
                lifecycle::give_up_for_capacity(&object, &why, &mut steps);
                self.notices.extend(steps.actions);
            }
            LaunchFailure::ClassNotReady { message } => {
                let delete = Action::DeleteClaim { claim };
                self.notices.push(Planned::new(delete, "NodeClassNotReady", message.to_string()));
            }
            LaunchFailure::Transient { message } | LaunchFailure::Refused { message } => {
                self.launches.failed(claim, at, message);
            }
        }
    }

    /// A machine that ended without our word: its claim has nothing left to stand for.
    fn see_instance_gone(&mut self, instance: ProviderId) {
        let Some(claim) = self.cluster.claim_by_instance(instance) else {
            self.drains.forget_instance(instance);
            return;
        };
        self.attention.insert(claim.name);
        if claim.deleted.is_none() {
            let delete = Action::DeleteClaim { claim: claim.name };
            self.notices.push(Planned::new(delete, "InstanceGone", "its machine is gone"));
        }
    }

    fn see_interruption(&mut self, at: Timestamp, instance: ProviderId, notice: &InterruptionNotice) {
        let Some(claim) = self.cluster.claim_by_instance(instance).cloned() else { return };
        let label = |key| claim.labels.get(&key).map(|value| value.as_str());
        if let (InterruptionNotice::SpotReclaim { .. }, Some(kind), Some(zone)) =
            (notice, label(*label::INSTANCE_TYPE), label(*label::ZONE))
        {
            self.sold_out.insert((kind.into(), zone.into(), CapacityType::Spot), at + SHORTAGE_MEMORY);
        }
        let (code, message, is_final) = match notice {
            InterruptionNotice::SpotReclaim { at } => {
                ("SpotInterrupted", format!("EC2 takes its machine back at {at}"), true)
            }
            InterruptionNotice::RebalanceRecommendation => {
                ("SpotRebalanceRecommendation", "its machine is at elevated risk".to_string(), false)
            }
            InterruptionNotice::StateChange => {
                ("InstanceStopping", "its machine is stopping".to_string(), true)
            }
            InterruptionNotice::ScheduledChange => {
                ("InstanceScheduledChange", "its machine is scheduled for maintenance".to_string(), true)
            }
            InterruptionNotice::StatusCheckFailed => {
                ("InstanceStatusCheckFailed", "its machine fails EC2's status check".to_string(), true)
            }
        };
        let told = Notice {
            subject: Subject::Claim(claim.name),
            is_warning: true,
            reason: code.into(),
            message: message.as_str().into(),
        };
        self.notices.push(Planned::new(Action::Publish(told), code, message.clone()));
        if is_final && claim.deleted.is_none() {
            self.notices.push(Planned::new(Action::DeleteClaim { claim: claim.name }, code, message));
        }
    }

    /// Ends machines that no claim stands for, and claims whose machine is not there.
    fn collect_garbage(&mut self, at: Timestamp, instances: &[crate::model::observation::Instance]) {
        const GRACE: SignedDuration = SignedDuration::from_secs(30);
        let running: BTreeSet<ProviderId> =
            instances.iter().filter(|each| !each.is_terminating).map(|each| each.provider_id).collect();
        for instance in instances.iter().filter(|each| !each.is_terminating && at > each.launched + GRACE) {
            let is_known = self.cluster.claim_by_instance(instance.provider_id).is_some()
                || instance.claim.is_some_and(|claim| self.cluster.claims.contains_key(&claim));
            if !is_known {
                let terminate = Action::Terminate { instance: instance.provider_id };
                self.notices.push(Planned::new(terminate, "GarbageCollected", "no claim stands for it"));
            }
        }
        for claim in self.cluster.claims.values().filter(|claim| claim.deleted.is_none()) {
            let Some(id) = claim.provider_id else { continue };
            let is_registered = claim.conditions.is_true(crate::model::claim::ConditionType::Registered);
            let is_alive = self.cluster.node_of(claim).is_some_and(|node| node.is_ready());
            if is_registered && !running.contains(&id) && !is_alive {
                let delete = Action::DeleteClaim { claim: claim.name };
                self.notices.push(Planned::new(delete, "GarbageCollected", "its machine is not there"));
            }
        }
    }

    /// What to do now. The same state and moment always give the same answer.
    pub fn decide(&mut self, now: Timestamp) -> Decision {
        let mut steps = Steps { actions: std::mem::take(&mut self.notices), wake_at: None };
        if !self.is_synced || self.cluster.catalog.is_none() {
            return Decision { actions: steps.actions, plan: self.plan.clone(), wake_at: None };
        }
        self.sold_out.retain(|_, until| now < *until);
        self.nominated.retain(|_, until| now < *until);
        let supply = self.supply();
        self.step_claims(&supply, now, &mut steps);
        self.note_pod_events(now, &mut steps);
        self.provision(&supply, now, &mut steps);
        self.step_pools(&supply, now, &mut steps);
        self.disrupt(&supply, now, &mut steps);
        if let Some((due, _)) = self.alarms.first_key_value() {
            steps.wake(*due);
        }
        Decision { actions: steps.actions, plan: self.plan.clone(), wake_at: steps.wake_at }
    }

    fn supply(&mut self) -> Arc<Supply> {
        let cluster = &self.cluster;
        let supply = self.supply.get_or_insert_with(|| Arc::new(supply_of(cluster)));
        if self.sold_out.is_empty() {
            return supply.clone();
        }
        let sold_out: BTreeSet<OfferingKey> = self.sold_out.keys().copied().collect();
        Arc::new((**supply).clone().without(&sold_out))
    }

    fn step_claims(&mut self, supply: &Supply, now: Timestamp, steps: &mut Steps) {
        while let Some(entry) = self.alarms.first_entry().filter(|entry| *entry.key() <= now) {
            self.attention.extend(entry.remove());
        }
        let sold_out: BTreeSet<OfferingKey> = self.sold_out.keys().copied().collect();
        for name in std::mem::take(&mut self.attention) {
            let Some(claim) = self.cluster.claims.get(&name) else { continue };
            let next = if claim.deleted.is_some() {
                termination::advance(&self.cluster, &mut self.drains, claim, now)
            } else {
                let context = lifecycle::Context { cluster: &self.cluster, supply, sold_out: &sold_out, now };
                lifecycle::advance(&context, &mut self.launches, claim)
            };
            steps.actions.extend(next.actions);
            if let Some(at) = next.wake_at {
                self.alarms.entry(at).or_default().insert(name);
            }
        }
    }

    /// Notes at claims that pods came or went, at most every ten seconds.
    fn note_pod_events(&mut self, now: Timestamp, steps: &mut Steps) {
        for name in std::mem::take(&mut self.pod_events) {
            let Some(claim) = self.cluster.claims.get(&name) else { continue };
            if claim.last_pod_event.is_some_and(|last| now < last + POD_EVENT_LEAST) {
                continue;
            }
            let change = ClaimChange { last_pod_event: Some(now), ..ClaimChange::default() };
            steps.push(Action::UpdateClaim { claim: name, change }, "PodEvent", "a pod came or went");
        }
    }

    /// Places what waits once its batch is ripe, and asks for the nodes that are missing.
    fn provision(&mut self, supply: &Supply, now: Timestamp, steps: &mut Steps) {
        if self.batch.is_none() && self.next_look.is_some_and(|next| next <= now) {
            self.next_look = None;
            if !self.seen_pods.is_empty() {
                self.batch = Some(Batch { opened: now - self.settings.batch_most, touched: now });
            }
        }
        let Some(batch) = &self.batch else {
            if let Some(next) = self.next_look {
                steps.wake(next);
            }
            return;
        };
        let ripe = (batch.touched + self.settings.batch_idle).min(batch.opened + self.settings.batch_most);
        if now < ripe {
            steps.wake(ripe);
            return;
        }
        self.batch = None;
        let (mut pods, rejected) = provisionable_pods(&self.cluster);
        pods.extend(moving_pods(&self.cluster, now));
        for rejected in &rejected {
            // Whoever asks for nodes that are not ours has not failed.
            if rejected.reasons.iter().all(|refusal| refusal.code != Code::AvoidsManagedNodes) {
                self.tell_pod(rejected.pod, &rejected.reasons, now, steps);
            }
        }
        let request = Request {
            cluster: &self.cluster,
            supply,
            now,
            pods: &pods,
            without_nodes: &BTreeSet::new(),
            without_claims: &BTreeSet::new(),
            settings: &self.settings.scheduling,
            mode: Mode::Provisioning,
        };
        let solution = if pods.is_empty() { Solution::default() } else { solve(&request) };
        self.rounds += 1;
        let seed = self.settings.seed.wrapping_add(now.as_millisecond().unsigned_abs());
        let purchase = claims_for(&self.cluster, supply, &solution, &self.settings.scheduling, now, seed);
        for (claim, pods) in purchase.claims {
            let mut claim = (*claim).clone();
            claim.has_finalizer = true;
            self.nominated.insert(Place::Claim(claim.name), now + NOMINATION);
            let message = format!("for {} waiting pods", pods.len());
            steps.push(Action::CreateClaim(Arc::new(claim)), "Provisioned", message);
        }
        for (place, pods) in &solution.existing {
            let real = pods.iter().any(|pod| self.cluster.pods.contains_key(pod));
            if real {
                self.nominated.insert(*place, now + NOMINATION);
            }
        }
        for unschedulable in solution.unschedulable.iter().filter(|each| !each.is_deferred) {
            self.tell_pod(unschedulable.pod, &unschedulable.reasons, now, steps);
        }
        if !self.seen_pods.is_empty() {
            let next = now + WAITING_LOOK_AGAIN;
            self.next_look = Some(next);
            steps.wake(next);
        }
        self.plan = Arc::new(Plan { provisioning: solution, disruption: self.plan.disruption.clone() });
        self.disruptions.touch();
    }

    /// Says at a pod why it has no place, at most every five minutes.
    fn tell_pod(&mut self, pod: ObjectKey, refusals: &[Refusal], now: Timestamp, steps: &mut Steps) {
        if self.told_pods.get(&pod).is_some_and(|last| now < *last + TELL_AGAIN) {
            return;
        }
        self.told_pods.insert(pod, now);
        let of = |refusal: &Refusal| match refusal.pool {
            Some(pool) => format!("pool {pool}: {}", refusal.message),
            None => refusal.message.clone(),
        };
        let message = refusals.iter().map(of).collect::<Vec<_>>().join("; ");
        let notice = Notice {
            subject: Subject::Pod(pod),
            is_warning: true,
            reason: "FailedScheduling".into(),
            message: message.as_str().into(),
        };
        steps.push(Action::Publish(notice), "FailedScheduling", message);
    }

    /// Static pools keep their number of nodes, and every pool says what it uses.
    fn step_pools(&mut self, supply: &Supply, now: Timestamp, steps: &mut Steps) {
        for name in std::mem::take(&mut self.pools_touched) {
            let Some(pool) = self.cluster.pools.get(&name).cloned() else { continue };
            let active: Vec<&Arc<NodeClaim>> =
                self.cluster.claims_of(name).filter(|claim| claim.deleted.is_none()).collect();
            let mut used = Resources::new();
            active.iter().for_each(|claim| used.add(&claim.capacity));
            let count = u32::try_from(active.len()).unwrap_or(u32::MAX);
            used.set(*resource::NODES, i64::from(count));
            let status = Action::UpdatePool { pool: name, used, nodes: count };
            steps.push(status, "PoolStatus", format!("{count} nodes"));
            if let Some(replicas) = pool.replicas.filter(|_| pool.is_ready && !pool.is_deleting) {
                self.keep_replicas(&pool, replicas, count, supply, now, steps);
            }
        }
    }

    fn keep_replicas(
        &self,
        pool: &NodePool,
        replicas: u32,
        active: u32,
        supply: &Supply,
        now: Timestamp,
        steps: &mut Steps,
    ) {
        let all = u32::try_from(self.cluster.claims_of(pool.name).count()).unwrap_or(u32::MAX);
        let limit = pool.limits.as_ref().and_then(|limits| limits.listed(*resource::NODES));
        let room = limit.map_or(u32::MAX, |limit| u32::try_from(limit).unwrap_or(0).saturating_sub(all));
        for number in 0..replicas.saturating_sub(active).min(room) {
            let claim = static_claim(pool, all + number, now);
            if launch_options(&claim, &supply.types(pool.name), &BTreeSet::new()).is_empty() {
                return;
            }
            let message = format!("pool {} keeps {replicas} nodes, {active} are there", pool.name);
            steps.push(Action::CreateClaim(Arc::new(claim)), "Provisioned", message);
        }
        let mut spare: Vec<&Arc<NodeClaim>> =
            self.cluster.claims_of(pool.name).filter(|claim| claim.deleted.is_none()).collect();
        let pods_on = |claim: &NodeClaim| {
            let node = self.cluster.node_of(claim);
            node.map_or(0, |node| self.cluster.pods_of(node.name).filter(|pod| !pod.is_daemon()).count())
        };
        spare.sort_by_key(|claim| (claim.provider_id.is_some(), pods_on(claim), claim.created, claim.name));
        for claim in spare.into_iter().take(active.saturating_sub(replicas) as usize) {
            let message = format!("pool {} keeps {replicas} nodes, {active} are there", pool.name);
            steps.push(Action::DeleteClaim { claim: claim.name }, "ScaledDown", message);
        }
    }

    fn disrupt(&mut self, supply: &Supply, now: Timestamp, steps: &mut Steps) {
        let view = disruption::View {
            cluster: &self.cluster,
            supply,
            now,
            scheduling: &self.settings.scheduling,
            settings: &self.settings.disruption,
            nominated: &self.nominated,
            seed: self.settings.seed,
        };
        if let Some(plan) = self.disruptions.step(&view, self.batch.is_some(), steps) {
            self.plan = Arc::new(Plan { provisioning: self.plan.provisioning.clone(), disruption: plan });
        }
    }
}

/// Instance types by pool, as their classes boot them.
pub fn supply_of(cluster: &Cluster) -> Supply {
    let Some(catalog) = &cluster.catalog else { return Supply::default() };
    let mut by_class = BTreeMap::new();
    let by_pool = cluster.pools.values().map(|pool| {
        let class = pool.template.class.name;
        let types = by_class
            .entry(class)
            .or_insert_with(|| catalog.instance_types(cluster.classes.get(&class).map(|class| &**class)))
            .clone();
        (pool.name, types)
    });
    Supply::new(by_pool.collect())
}

/// A claim of a static pool: made from the template alone.
fn static_claim(pool: &NodePool, number: u32, now: Timestamp) -> NodeClaim {
    let template = &pool.template;
    let mut labels = template.labels.clone();
    labels.insert(*label::NODEPOOL, pool.name.0);
    labels.insert(template.class.label_key(), template.class.name.0);
    let mut annotations = template.annotations.clone();
    if let Some(hash) = pool.hash {
        annotations.insert(*annotation::NODEPOOL_HASH, hash);
        annotations.insert(*annotation::NODEPOOL_HASH_VERSION, pool.hash_version.unwrap_or("v3".into()));
    }
    let mut requirements = template.requirements.clone();
    requirements.add(*label::NODEPOOL, Requirement::one(pool.name.0));
    let name = format!("{}-{:x}-{number}", pool.name, now.as_second());
    NodeClaim {
        name: ClaimName::new(&name),
        uid: Uid::new(&name),
        labels,
        annotations,
        created: Some(now),
        deleted: None,
        has_finalizer: true,
        spec: ClaimSpec {
            requirements,
            requests: Resources::new(),
            taints: template.taints.clone(),
            startup_taints: template.startup_taints.clone(),
            class: template.class,
            expire_after: template.expire_after.clone(),
            termination_grace: template.termination_grace,
        },
        node: None,
        provider_id: None,
        image: None,
        capacity: Resources::new(),
        allocatable: Resources::new(),
        conditions: Conditions::default(),
        last_pod_event: None,
    }
}
