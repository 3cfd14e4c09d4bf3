//! The node half as a value: it is told what is seen and says what to do. No clock, no waiting, no network.
//!
//! Whatever has to survive a restart is written on the objects: how far a claim has come, what replaces it, by when its node
//! must be gone. What is remembered here only spares work or repetition; a successor that sees the same objects goes on where
//! this one stopped. An action changes the engine's own picture at once, as it will change the cluster, so that nothing is
//! decided twice while the answer is on its way.

mod property;
mod arriving;
mod held;
mod keeping;
mod explained;
mod lasting;
mod memory;
mod nominating;
mod rounds;
mod reports;
mod regrets;
mod remarks;
mod touching;
mod warnings;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

pub use super::batching::BatchWindow;
pub use super::decision::{Decision, Plan, Planned, Reason, Stay};
pub use regrets::LEFT_ALONE;

use super::agenda::Agenda;
use super::arrivals::Arrivals;
use super::assume::assume;
use super::batching::Batch;
use super::buffers::Room;
use super::cluster::Cluster;
use super::consistency::Checks;
use super::decision::Steps;
use super::disruption::command;
use super::disruption::roll::Tries;
use super::disruption::{self, marking, returning};
use super::garbage;
use super::lifecycle::{self, Context, GiveUp, Held, Launches};
use super::nominations::Nominations;
use super::openings::Openings;
use super::plans::Plans;
use super::pool_status::Tally;
use super::registration::Registrations;
use super::repair;
use super::scheduling::{self, OfferingKey, Supply};
use super::shortages::Shortages;
use super::static_capacity;
use super::termination::{self, Endings};
use super::upkeep::{Classes, Names, Upkeep};
use crate::model::action::{Action, ClaimChange, Notice};
use crate::model::buffer::BufferSource;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName, ProviderId, Uid};
use crate::model::node::Node;
use crate::model::observation::{Advice, LaunchFailure, Observation, Shortage};
use crate::model::owner::Owner;
use crate::model::pod::Pod;
use crate::model::pool::NodePool;
use crate::model::provisioner::Provisioner;
use crate::model::taint::Taint;
use memory::{Prepared, Refusals, Told, Unconfirmed};
use regrets::Regrets;
use rounds::{Disrupting, Provisioning};
use warnings::Warnings;

/// Steps that lead to further steps at the same moment are followed this far.
const FOLLOW_MAX: usize = 20;
/// A claim's record of its last pod event is renewed at most so often.
const POD_EVENT_LEAST: SignedDuration = SignedDuration::from_secs(10);

/// How the engine behaves; the defaults are Karpenter's.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EngineSettings {
    pub scheduling: scheduling::Settings,
    pub disruption: disruption::Settings,
    pub batch: BatchWindow,
    /// Pods equal to one that kube-scheduler found no place for wait, too, before it has said so of each: a crowd is planned for
    /// as a whole. So do pods that their ReplicaSet is about to make ([`super::arrivals`]). Karpenter waits for every single word.
    pub foresees_pods: bool,
    /// The room of a new node is kept for the pods that it was bought for, by their `status.nominatedNodeName`.
    pub nominates: bool,
    /// Nodes that are sick for too long are replaced ([`super::repair`]); Karpenter's feature gate `NodeRepair`.
    pub repairs: bool,
    /// How long a claim may stay without a machine, and a machine without a node.
    pub patience: lifecycle::Patience,
    /// Who we are: whatever is not described by our repository, or made from what is, stays as it is. `None`: everything is ours.
    pub owner: Option<Owner>,
    /// Whoever leaves it to Karpenter knows the cluster and decides nothing. Former recordings do not say it.
    #[serde(default)]
    pub provisioner: Provisioner,
    /// What is kept beside machines; `None`: others keep it.
    pub upkeep: Option<Upkeep>,
    /// Mixed into the names of claims, so that two engines never choose the same.
    pub seed: u64,
}

#[derive(Clone, Debug)]
pub struct Engine {
    settings: EngineSettings,
    cluster: Cluster,
    is_synced: bool,
    /// What pools can buy, shortages not counted; `None` after anything about it changed.
    supply: Option<Arc<Supply>>,
    /// The same without what is sold out, as long as that is the same.
    open_supply: Option<(Arc<Supply>, BTreeSet<OfferingKey>, Arc<Supply>)>,
    prepared: Prepared,
    shortages: Shortages,
    losses: returning::Losses,
    launches: Launches,
    endings: Endings,
    claims_due: Agenda<ClaimName>,
    nodes_due: Agenda<NodeName>,
    /// Claims that wait for their replacements.
    waiting: BTreeSet<ClaimName>,
    /// Pools whose status may be wrong.
    pools_changed: BTreeSet<PoolName>,
    /// Pools whose number of nodes may be wrong.
    replicas_changed: BTreeSet<PoolName>,
    tally: Tally,
    registrations: Registrations,
    tries: Tries,
    checks: Checks,
    plans: Plans,
    nominations: Nominations,
    openings: Openings,
    arrivals: Arrivals,
    /// Pods that took over the place of a stand-in, which is to be told.
    arrived: BTreeSet<ObjectKey>,
    /// Pools whose use changed since it was written.
    uncounted: BTreeSet<PoolName>,
    /// Overlays may have other effects than was reported.
    overlays_changed: bool,
    /// Buffers that have to be looked up.
    buffers_changed: BTreeSet<ObjectKey>,
    /// What the buffers that can be acted upon came to.
    rooms: BTreeMap<ObjectKey, Room>,
    /// Machines that answered too late: nobody wants them any more.
    strays: BTreeSet<ProviderId>,
    classes: Classes,
    names: Names,
    warnings: Warnings,
    /// Claims to give up because the launch found no capacity, or their class is not ready.
    given_up: BTreeMap<ClaimName, GiveUp>,
    /// What is to be told of what was seen, each with the word for why.
    remarks: Vec<(Notice, &'static str)>,
    instances: Option<Arc<[crate::model::observation::Instance]>>,
    unconfirmed: Unconfirmed,
    refusals: Refusals,
    told: Told,
    batch: Batch,
    provisioning: Provisioning,
    disrupting: Disrupting,
    regrets: Regrets,
    plan: Arc<Plan>,
    /// Counts what may change the outcome of a round.
    revision: u64,
}

impl Engine {
    pub fn new(settings: EngineSettings) -> Self {
        let nominations = Nominations::new(settings.nominates);
        Self {
            settings,
            cluster: Cluster::default(),
            is_synced: false,
            supply: None,
            open_supply: None,
            prepared: Prepared::default(),
            shortages: Shortages::default(),
            losses: returning::Losses::default(),
            launches: Launches::default(),
            endings: Endings::default(),
            claims_due: Agenda::default(),
            nodes_due: Agenda::default(),
            waiting: BTreeSet::new(),
            pools_changed: BTreeSet::new(),
            replicas_changed: BTreeSet::new(),
            tally: Tally::default(),
            registrations: Registrations::default(),
            tries: Tries::default(),
            checks: Checks::default(),
            plans: Plans::default(),
            nominations,
            openings: Openings::default(),
            arrivals: Arrivals::default(),
            arrived: BTreeSet::new(),
            uncounted: BTreeSet::new(),
            overlays_changed: false,
            buffers_changed: BTreeSet::new(),
            rooms: BTreeMap::new(),
            strays: BTreeSet::new(),
            classes: Classes::default(),
            names: Names::default(),
            warnings: Warnings::default(),
            given_up: BTreeMap::new(),
            remarks: Vec::new(),
            instances: None,
            unconfirmed: Unconfirmed::default(),
            refusals: Refusals::default(),
            told: Told::default(),
            batch: Batch::default(),
            provisioning: Provisioning::default(),
            disrupting: Disrupting::default(),
            regrets: Regrets::default(),
            plan: Arc::default(),
            revision: 0,
        }
    }

    pub fn settings(&self) -> &EngineSettings {
        &self.settings
    }

    /// The cluster as it was last seen, with what was decided since.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// How many rounds of provisioning were held.
    pub fn rounds(&self) -> u64 {
        self.provisioning.rounds
    }

    /// What was judged last.
    pub fn plan(&self) -> &Arc<Plan> {
        &self.plan
    }

    /// Whether every news of the pod with this uid counts: it waits with a nomination from us, which is no part of the cluster
    /// that [`Engine::cluster`] shows.
    pub fn has_nominated(&self, pod: Uid) -> bool {
        self.nominations.has_told(pod)
    }

    /// Takes in one piece of news.
    pub fn observe(&mut self, at: Timestamp, seen: Observation) {
        if let Some(seen) = self.sort(at, seen) {
            self.take_in(at, seen);
        }
    }

    fn take_in(&mut self, at: Timestamp, seen: Observation) {
        let seen = match seen {
            Observation::Pod(pod) => Observation::Pod(self.nominations.as_counted(pod, at)),
            seen => seen,
        };
        self.see_kept(at, &seen);
        match &seen {
            Observation::Pod(pod) => self.see_pod(at, pod),
            Observation::PodGone(key) => {
                if let Some(former) = self.cluster.pods.get(key).cloned() {
                    self.arrivals.see_gone(&former);
                    self.endings.forget_pod(*key);
                    self.forget_plan(&former, at);
                    self.cluster.expect_no_more(*key);
                    self.note_pod_event(at, &former);
                }
            }
            Observation::Claim(claim) => {
                self.unconfirmed.confirm_claim(claim.name);
                self.refusals.forget(claim.name);
                self.revision +=
                    u64::from(self.cluster.claims.get(&claim.name).is_none_or(|known| **known != **claim));
            }
            Observation::ClaimGone(name) => {
                self.unconfirmed.confirm_claim(*name);
                self.see_claim_gone(*name);
                self.revision += 1;
            }
            Observation::Node(node) => {
                let is_confirmed = self.unconfirmed.confirm_node(node.name);
                let known = self.cluster.nodes.get(&node.name);
                self.revision += u64::from(known.is_none_or(|known| **known != **node));
                if is_confirmed || known.is_some_and(|known| known.is_ready() != node.is_ready()) {
                    self.touch_waiting();
                }
            }
            Observation::NodeGone(name) => {
                self.unconfirmed.confirm_node(*name);
                self.touch_node(*name);
                self.revision += 1;
            }
            Observation::Pool(pool) => match self.cluster.pools.get(&pool.name) {
                Some(known) if known.is_same_but_for_status(pool) => {
                    let is_news =
                        known.is_ready != pool.is_ready || known.roll_failures != pool.roll_failures;
                    self.revision += u64::from(is_news);
                    if known.is_ready != pool.is_ready {
                        self.replicas_changed.insert(pool.name);
                    }
                    self.pools_changed.insert(pool.name);
                }
                known => {
                    if known.is_some() {
                        self.registrations.begin_anew(pool.name);
                    }
                    self.see_pool(pool.name);
                }
            },
            Observation::PoolGone(name) => {
                self.registrations.forget(*name);
                self.tries.forget_pool(*name);
                self.see_pool(*name);
            }
            Observation::Overlay(overlay) => {
                self.overlays_changed = true;
                let known = self.cluster.overlays.get(&overlay.name);
                if known.is_none_or(|known| !known.is_same_but_for_status(overlay)) {
                    self.see_supply_change();
                }
            }
            Observation::Class(class) => {
                if self.cluster.classes.get(&class.name).is_some_and(|known| known.spec != class.spec) {
                    let of_class = |pool: &&Arc<NodePool>| pool.template.class.name == class.name;
                    let pools = self.cluster.pools.values().filter(of_class);
                    pools.for_each(|pool| self.registrations.begin_anew(pool.name));
                }
                self.see_supply_change();
            }
            Observation::ClassGone(_) | Observation::OverlayGone(_) | Observation::Catalog(_) => {
                self.see_supply_change()
            }
            Observation::Buffer(buffer) => {
                self.buffers_changed.insert(buffer.key);
            }
            Observation::BufferGone(key) => {
                self.buffers_changed.insert(*key);
            }
            Observation::PodTemplate(template) => {
                self.touch_buffers(template.key, |source| matches!(source, BufferSource::Template(_)));
            }
            Observation::PodTemplateGone(key) => {
                self.touch_buffers(*key, |source| matches!(source, BufferSource::Template(_)));
            }
            Observation::Scalable(scalable) => {
                self.touch_scalable(scalable.kind, scalable.key);
                self.see_companions_change();
            }
            Observation::ScalableGone { kind, key } => {
                self.touch_scalable(*kind, *key);
                self.see_companions_change();
            }
            Observation::Service(_) | Observation::ServiceGone(_) => self.see_companions_change(),
            Observation::Synced => {
                self.is_synced = true;
                for pod in self.nominations.take_over(&self.cluster, at) {
                    self.take_in(at, Observation::Pod(pod));
                }
            }
            Observation::Launched { claim, instance, shortage } => {
                shortage.iter().for_each(|shortage| self.see_shortage(*claim, shortage));
                let bought = (instance.instance_type, instance.zone, instance.capacity_type);
                self.shortages.was_bought(&bought);
                if self.cluster.claims.get(claim).is_some_and(|claim| claim.deleted.is_none()) {
                    self.launches.succeeded(*claim, instance.clone());
                    self.claims_due.touch(*claim);
                } else if !self.cluster.strangers.has_claim(*claim) {
                    self.strays.insert(instance.provider_id);
                }
            }
            Observation::LaunchFailed { claim, failure } => self.see_launch_failure(at, *claim, failure),
            Observation::Terminating { instance } => {
                self.endings.is_under_way(*instance, at);
                self.touch_instance(*instance);
            }
            Observation::Terminated { instance } => {
                self.endings.ended(*instance);
                self.strays.remove(instance);
                self.touch_instance(*instance);
            }
            Observation::TerminateFailed { instance, .. } => {
                self.endings.is_under_way(*instance, at);
                self.touch_instance(*instance);
            }
            Observation::Instances(list) => {
                for machine in garbage::lost_under_way(&self.cluster, list, at) {
                    self.endings.ended(machine);
                    self.touch_instance(machine);
                }
                self.instances = Some(list.clone());
            }
            Observation::Interruption { instance, notice } => {
                self.warnings.hear(at, *instance, *notice);
            }
            Observation::CarriedOut { claims, nodes } => self.unconfirmed.carried_out(claims, nodes, at),
            Observation::ActionFailed { subject, .. } if !keeping::is_class(subject) => {
                if let Some(pod) = subject.strip_prefix("Pod ").and_then(|name| name.split_once('/')) {
                    let pod = ObjectKey::new(pod.0, pod.1);
                    self.endings.refused(pod, at);
                    self.touch_node_of(pod);
                }
                let known = self.unconfirmed.len();
                let names = self.unconfirmed.take_back(subject, &mut self.cluster);
                if self.unconfirmed.len() < known {
                    // Nothing is bought for a claim that could not be written.
                    names.iter().for_each(|name| self.launches.not_asked(*name));
                    let there = names.iter().filter(|name| self.cluster.claims.contains_key(name));
                    there.for_each(|name| self.refusals.refused(*name, at));
                    self.look_again(names);
                }
                self.report_again(subject);
            }
            Observation::DaemonSet(_) | Observation::DaemonSetGone(_) => {
                self.revision += 1;
                self.touch_closed_nodes();
            }
            Observation::Budget(_)
            | Observation::BudgetGone(_)
            | Observation::Volume(_)
            | Observation::VolumeClaim(_) => self.revision += 1,
            Observation::EvictionBlocked { pod, why, message } => {
                self.note_blocked_eviction(*pod, *why, message);
                self.endings.refused(*pod, at);
                self.touch_node_of(*pod);
            }
            Observation::Evicted { pod } => {
                self.note_eviction(*pod);
                self.endings.granted(*pod, at);
                self.revision += 1;
            }
            Observation::VolumeAttachment(attached) => self.touch_node(attached.node),
            Observation::VolumeAttachmentGone(name) => {
                if let Some(node) = self.cluster.attachments.get(name).map(|attached| attached.node) {
                    self.touch_node(node);
                }
            }
            _ => {}
        }
        self.cluster.observe(at, &seen);
        match &seen {
            Observation::Claim(claim) => self.touch_claim(claim.name),
            Observation::Node(node) => {
                self.touch_node(node.name);
                self.openings.see(node);
                if node.taints.iter().any(|taint| taint.is_same(&Taint::disrupted())) {
                    self.batch.trigger(node.uid, at);
                }
            }
            _ => {}
        }
    }

    fn see_pod(&mut self, at: Timestamp, pod: &Arc<Pod>) {
        let former = self.cluster.pods.get(&pod.key).cloned();
        if let Some(former) = former.as_ref().filter(|former| former.uid != pod.uid) {
            self.forget_plan(former, at);
            self.endings.forget_pod(pod.key);
            self.cluster.expect_no_more(pod.key);
        }
        let is_bound_anew =
            pod.node.is_some() && former.as_ref().is_none_or(|former| former.node != pod.node);
        if let Some(node) = pod.node.filter(|_| is_bound_anew) {
            let waiting = self.nominations.exchange(&mut self.plans, pod, node, &mut self.cluster, at);
            waiting.into_iter().for_each(|other| self.batch.trigger(other, at));
        }
        let ended = |pod: &Pod| pod.is_terminal() || pod.deleted.is_some();
        let ends = pod.node.is_some() && ended(pod) && former.as_ref().is_none_or(|former| !ended(former));
        if is_bound_anew || ends {
            self.forget_plan(pod, at);
            self.note_pod_event(at, pod);
        }
        let is_awaited = self.see_arrival(at, former.as_ref(), pod);
        let waits = pod.waits();
        let is_foreseen = self.settings.foresees_pods && self.cluster.foresees(pod);
        let is_planned = waits && self.provisioning.has_foreseen(pod.uid);
        let has_room = is_awaited || is_planned || self.cluster.is_expected(pod.key);
        if (waits || is_foreseen) && !has_room && !pod.is_daemon() && !pod.is_mirror() {
            match self.arrivals.announced(pod, &self.cluster) {
                true => self.batch.join(pod.uid, at),
                false => self.batch.trigger(pod.uid, at),
            }
        }
        if let Some(node) = pod.node {
            self.touch_going(node);
        }
        if former.as_ref().is_none_or(|former| **former != **pod) {
            self.revision += 1;
        }
    }

    /// `pod` runs somewhere, or is gone.
    fn forget_plan(&mut self, pod: &Pod, at: Timestamp) {
        self.plans.forget(&pod.key);
        self.nominations.forget(pod, at);
    }

    /// Pods that are spread by default may belong to others than they did.
    fn see_companions_change(&mut self) {
        self.revision += u64::from(!self.settings.scheduling.default_spreads.is_empty());
    }

    /// Remembers when a pod came to, or left, a node of ours.
    fn note_pod_event(&mut self, at: Timestamp, pod: &Pod) {
        self.revision += 1;
        let Some(name) = pod.node else { return };
        self.touch_going(name);
        if pod.is_daemon() {
            return;
        }
        let claim = self.cluster.nodes.get(&name).and_then(|node| self.cluster.claim_of(node));
        if let Some(claim) = claim {
            let is_fresh = claim.last_pod_event.is_some_and(|last| at.duration_since(last) < POD_EVENT_LEAST);
            if !is_fresh {
                self.provisioning.pod_events.insert(claim.name, at);
            }
        }
    }

    fn see_claim_gone(&mut self, name: ClaimName) {
        if let Some(former) = self.cluster.claims.get(&name).cloned() {
            self.losses.note(&former);
            self.change_pools(former.pool());
            if let Some(instance) = former.provider_id {
                self.endings.forget_machine(instance);
            }
        }
        self.tally.touch(name);
        self.launches.forget(name);
        self.refusals.forget(name);
        self.plans.forget_claim(name);
        self.nominations.forget_claim(name);
        self.claims_due.forget(name);
        self.checks.forget(name);
        self.tries.forget_claim(name);
        self.given_up.remove(&name);
        self.waiting.remove(&name);
        self.touch_waiting();
    }

    fn see_pool(&mut self, name: PoolName) {
        self.supply = None;
        self.overlays_changed = true;
        self.revision += 1;
        self.change_pools([name]);
        let claims: Vec<ClaimName> = self.cluster.claims_of(name).map(|claim| claim.name).collect();
        claims.into_iter().for_each(|claim| self.claims_due.touch(claim));
    }

    fn see_supply_change(&mut self) {
        self.supply = None;
        self.overlays_changed = true;
        self.revision += 1;
        let pools: Vec<PoolName> = self.cluster.pools.keys().copied().collect();
        self.change_pools(pools);
        let claims: Vec<ClaimName> = self.cluster.claims.keys().copied().collect();
        claims.into_iter().for_each(|claim| self.claims_due.touch(claim));
    }

    fn change_pools(&mut self, pools: impl IntoIterator<Item = PoolName>) {
        for pool in pools {
            self.pools_changed.insert(pool);
            self.replicas_changed.insert(pool);
        }
    }

    /// What is sold out is not counted on, and not waited for if somebody has to do something first.
    fn see_shortage(&mut self, claim: ClaimName, shortage: &Shortage) {
        shortage.offerings.iter().for_each(|offering| self.shortages.note(*offering, shortage.until));
        self.revision += 1;
        if let Some(Advice { reason, message }) = shortage.advice.clone() {
            self.advise(claim, reason, message);
        }
    }

    fn see_launch_failure(&mut self, at: Timestamp, name: ClaimName, failure: &LaunchFailure) {
        self.claims_due.touch(name);
        match failure {
            LaunchFailure::InsufficientCapacity(shortage) => {
                self.see_shortage(name, shortage);
                let message = format!("none of {} offerings has capacity", shortage.offerings.len());
                self.given_up.insert(name, GiveUp::NoCapacity(message));
            }
            LaunchFailure::ClassNotReady { message } => {
                let message = format!("its node class is not ready: {message}");
                self.given_up.insert(name, GiveUp::ClassNotReady(message));
            }
            LaunchFailure::Transient { message } => self.launches.failed(name, at, None, message),
            LaunchFailure::Refused { reason, message } => self.launches.failed(name, at, *reason, message),
        }
    }

    /// Everything that is to be done now.
    pub fn decide(&mut self, now: Timestamp) -> Decision {
        let mut out = Steps::default();
        if self.settings.provisioner == Provisioner::Karpenter {
            self.remarks.clear();
            return Decision::default();
        }
        if !self.is_synced {
            return Decision { plan: self.plan.clone(), ..Decision::default() };
        }
        self.keep_classes(now, &mut out);
        if self.cluster.catalog.is_none() {
            self.tell_remarks(&mut out);
            let Steps { mut actions, wake_at, .. } = out;
            self.told.keep_news(&mut actions, now);
            return Decision { actions, wake_at, plan: self.plan.clone(), ..Decision::default() };
        }
        if self.shortages.expire(now) {
            self.revision += 1;
            let pools: Vec<PoolName> = static_capacity::pools(&self.cluster).collect();
            self.change_pools(pools);
        }
        if self.unconfirmed.next().is_some_and(|at| at <= now) {
            let names = self.unconfirmed.expire(now, &mut self.cluster);
            self.look_again(names);
        }
        self.stamp_pools(now, &mut out);
        self.judge_pools(now, &mut out);
        self.tend_buffers(now, &mut out);
        self.tell_remarks(&mut out);
        self.answer_warnings(now, &mut out);
        self.end_strays(now, &mut out);
        // First: nothing is planned on a node whose machine is gone.
        self.collect_garbage(now, &mut out);
        self.record_pod_events(now, &mut out);
        self.tend_arrivals(now, &mut out);
        self.tend_openings(now, &mut out);
        self.tend(now, &mut out);
        self.keep_replicas(now, &mut out);
        self.tend_nominations(now, &mut out);
        self.provision(now, &mut out);
        self.disrupt(now, &mut out);
        self.report_overlays(now, &mut out);
        self.report_pools(now, &mut out);
        self.keep_names(now, &mut out);
        self.tend_openings(now, &mut out);
        self.tend(now, &mut out);
        self.openings.next(now).into_iter().for_each(|at| out.wake(at));
        self.decision(now, out)
    }

    fn decision(&mut self, now: Timestamp, out: Steps) -> Decision {
        let is_static = |name: &PoolName| self.cluster.pools.get(name).is_some_and(|pool| pool.is_static());
        let wakes = [
            self.replicas_changed.iter().any(is_static).then_some(now),
            out.wake_at,
            self.claims_due.next(),
            self.nodes_due.next(),
            self.batch.ripe_at(self.settings.batch),
            self.retry_at(),
            self.disrupting.wake_at(self.revision),
            self.unconfirmed.next(),
            self.arrivals.next(),
            self.shortages.next_end().filter(|_| self.cluster.has_waiting_pods()),
        ];
        let wake_at = wakes.into_iter().flatten().min().map(|at| at.max(now));
        let mut actions = out.actions;
        self.told.keep_news(&mut actions, now);
        let (stays, notices) = self.disrupting.held.take_news();
        actions.extend(notices);
        actions.extend(self.disrupting.explained.take_notices());
        let Steps { started, withdrawn, .. } = out;
        Decision { actions, stays, started, withdrawn, plan: self.plan.clone(), wake_at }
    }

    /// Takes over `steps`: they change the picture as they will change the cluster.
    fn take(&mut self, mut steps: Steps, now: Timestamp, out: &mut Steps) {
        for planned in &mut steps.actions {
            if let Action::UpdateClaim { change: ClaimChange { conditions: Some(conditions), .. }, .. } =
                &mut planned.action
            {
                conditions.conclude(ConditionType::Ready, &lifecycle::PARTS_OF_READY, now);
            }
        }
        for planned in &steps.actions {
            self.unconfirmed.note(&planned.action, &self.cluster, now);
            if let Action::FinalizeNode { node } | Action::DeleteNode { node } = &planned.action {
                // Its claim goes on once the node is gone, and is not found from it any more then.
                self.touch_node(*node);
            }
            assume(&mut self.cluster, &planned.action, now);
            match &planned.action {
                Action::CreateClaim(claim) => self.touch_claim(claim.name),
                Action::DeleteClaim { claim } | Action::UpdateClaim { claim, .. } => self.touch_claim(*claim),
                Action::FinalizeClaim { claim } => self.see_claim_gone(*claim),
                Action::UpdateNode { node, change } => {
                    self.touch_node(*node);
                    let is_disrupted =
                        change.add_taints.iter().any(|taint| taint.is_same(&Taint::disrupted()));
                    if let Some(node) = self.cluster.nodes.get(node).filter(|_| is_disrupted) {
                        self.batch.trigger(node.uid, now);
                    }
                }
                Action::DeleteNode { node } | Action::FinalizeNode { node } => self.touch_node(*node),
                Action::UpdatePool { pool, change } if change.roll_failures.is_some() => {
                    // It may be halted now, or not any more.
                    self.pools_changed.insert(*pool);
                }
                Action::UpdatePool { pool, change } if change.conditions.is_some() => {
                    // It may have become ready.
                    self.replicas_changed.insert(*pool);
                    continue;
                }
                _ => continue,
            }
            self.revision += 1;
        }
        out.append(Steps { wake_at: None, ..steps });
    }

    fn supply(&mut self) -> Arc<Supply> {
        let (cluster, settings) = (&self.cluster, &self.settings.scheduling);
        self.supply.get_or_insert_with(|| Arc::new(Supply::of(cluster, settings))).clone()
    }

    /// What can be bought now.
    fn open_supply(&mut self) -> Arc<Supply> {
        let all = self.supply();
        if self.shortages.is_empty() {
            return all;
        }
        let sold_out = self.shortages.offerings();
        if let Some((of, without, open)) = &self.open_supply
            && Arc::ptr_eq(of, &all)
            && *without == sold_out
        {
            return open.clone();
        }
        let open = Arc::new((*all).clone().without(&sold_out));
        self.open_supply = Some((all, sold_out, open.clone()));
        open
    }

    fn end_strays(&mut self, now: Timestamp, out: &mut Steps) {
        let mut steps = Steps::default();
        for instance in std::mem::take(&mut self.strays) {
            let message = "it was launched for a claim that is no longer wanted";
            steps.push(Action::Terminate { instance }, "Stray", message);
        }
        self.take(steps, now, out);
    }

    fn record_pod_events(&mut self, now: Timestamp, out: &mut Steps) {
        let mut steps = Steps::default();
        for (claim, at) in std::mem::take(&mut self.provisioning.pod_events) {
            if self.cluster.claims.get(&claim).is_some_and(|claim| claim.deleted.is_none()) {
                let change = ClaimChange { last_pod_event: Some(at), ..ClaimChange::default() };
                let message = "a pod came to its node, or left it";
                steps.push(Action::UpdateClaim { claim, change }, "PodEvent", message);
            }
        }
        self.take(steps, now, out);
    }

    /// Every claim and node whose turn it is, until none has a further step at this moment.
    fn tend(&mut self, now: Timestamp, out: &mut Steps) {
        for _ in 0..FOLLOW_MAX {
            let (claims, nodes) = (self.claims_due.take(now), self.nodes_due.take(now));
            if claims.is_empty() && nodes.is_empty() {
                return;
            }
            claims.into_iter().for_each(|name| self.tend_claim(name, now, out));
            for name in nodes {
                if let Some(node) = self.cluster.nodes.get(&name).cloned() {
                    let steps = self.tend_node(&node, now);
                    self.nodes_due.schedule(name, steps.wake_at);
                    self.take(steps, now, out);
                }
            }
        }
    }

    fn tend_claim(&mut self, name: ClaimName, now: Timestamp, out: &mut Steps) {
        if let Some(until) = self.refusals.until(name, now) {
            return self.claims_due.schedule(name, Some(until));
        }
        let Some(claim) = self.cluster.claims.get(&name).cloned() else { return };
        let steps = self.advance_claim(&claim, now);
        self.claims_due.schedule(name, steps.wake_at);
        let told = self.registrations.judge(&self.cluster, &claim, &steps, now);
        let chance = (self.settings.seed, now);
        let tried = self.tries.judge(&self.cluster, &claim, &steps, chance);
        self.nominate(&steps, now, out);
        self.take(steps, now, out);
        self.take(told, now, out);
        self.take(tried, now, out);
    }

    fn advance_claim(&mut self, claim: &NodeClaim, now: Timestamp) -> Steps {
        if claim.deleted.is_some() {
            return termination::finalize_claim(&self.cluster, &mut self.endings, claim, now);
        }
        if let Some(why) = self.given_up.remove(&claim.name) {
            let mut steps = Steps::default();
            lifecycle::give_up(claim, &why, &mut steps);
            return steps;
        }
        if let Some(steps) = self.sign(claim) {
            return steps;
        }
        let is_yet_to_plan = self.is_yet_to_plan();
        let held = self.holds_closed(claim, now).or(is_yet_to_plan.then_some(Held::ForPods));
        let supply = self.supply();
        let sold_out = self.shortages.offerings();
        let patience = self.settings.patience;
        let is_promised = is_yet_to_plan
            || self.nominations.is_of_crowd(claim.name)
            || self.awaits_arrivals(claim.name)
            || self.nominations.is_promised(&self.plans, claim.name, &self.cluster);
        let context = Context {
            cluster: &self.cluster,
            supply: &supply,
            sold_out: &sold_out,
            patience,
            is_promised,
            held,
            now,
        };
        let mut steps = lifecycle::advance(&context, &mut self.launches, claim);
        if !steps.actions.is_empty() {
            return steps;
        }
        let is_seen = |claim: &NodeClaim| self.unconfirmed.has_seen_initialized(claim);
        command::advance(&self.cluster, claim, self.waiting.len(), is_seen, now, &mut steps);
        if !steps.is_idle() {
            return steps;
        }
        command::clean_up(&self.cluster, claim, &mut steps);
        if steps.is_idle() {
            self.checks.check(&self.cluster, claim, now, &mut steps);
        }
        if steps.is_idle()
            && let Some(annotations) = self.losses.inherited(&self.cluster, claim)
        {
            let message = returning::told(&self.cluster, claim, &annotations);
            let change = ClaimChange { annotations, ..ClaimChange::default() };
            steps.push(Action::UpdateClaim { claim: claim.name, change }, "Returns", message);
        }
        let marks = marking::marked(&self.cluster, &supply, claim, now, true);
        if let Some(at) = marks.wake_at {
            steps.wake(at);
        }
        if let Some(conditions) = marks.conditions.filter(|_| steps.is_idle()) {
            let message = marking::in_words(claim, &conditions);
            let change = ClaimChange { conditions: Some(conditions), ..ClaimChange::default() };
            steps.push(Action::UpdateClaim { claim: claim.name, change }, "Marked", message);
        }
        steps
    }

    fn tend_node(&mut self, node: &Node, now: Timestamp) -> Steps {
        let mut steps = Steps::default();
        if self.settings.repairs {
            repair::advance(&self.cluster, node, now, &mut steps);
        }
        if node.deleted.is_some() && steps.is_idle() && self.owns_node(node) {
            steps.append(termination::terminate_node(
                &self.cluster,
                &self.plans,
                &mut self.endings,
                node,
                now,
            ));
        }
        steps
    }

    fn collect_garbage(&mut self, now: Timestamp, out: &mut Steps) {
        if let Some(list) = self.instances.take() {
            let steps = garbage::collect(&self.cluster, &list, now);
            self.take(steps, now, out);
        }
    }
}
