//! What no seed may ever break: the product's promises, and a witness who watches them being kept.
//!
//! The witness looks at the world and at what is about to be done to it, never into the engine: machines, objects and money
//! as they are, not as somebody believes them to be. Where it has to know what the engine could know, it asks only whether news
//! was still on its way.

mod places;
mod purse;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use jiff::{SignedDuration, Timestamp};

use super::fleet::FleetPlan;
use super::world::World;
use crate::capacity::disruption::budgets;
use crate::capacity::disruption::has_to_move;
use crate::model::action::Action;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::count::{agreeing, counted};
use crate::model::label::annotation;
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName, ProviderId};
use crate::model::pod::Pod;
use crate::model::pool::DisruptionReason;
use crate::model::quantity::resource;
use crate::model::taint::{Taint, first_untolerated};
use places::Places;
use purse::Purse;

/// A machine without a claim is ended within this time, once the cloud answers again.
pub const FORGOTTEN_MAX: SignedDuration = SignedDuration::from_mins(10);
/// A pod that could have a place gets one within this time, once nothing is wrong any more: a machine that never boots is waited
/// for a quarter of an hour.
pub const WAIT_MAX: SignedDuration = SignedDuration::from_mins(40);
/// So long after the last thing that happened, everything is where it belongs; a drain with a deadline that is still under way then is one
/// of these things.
pub const CONVERGED_WITHIN: SignedDuration = SignedDuration::from_hours(2);
/// So long after it, nothing moves any more: windows in which nothing may be moved for savings last eight hours.
pub const REST_AFTER: SignedDuration = SignedDuration::from_hours(18);
/// How long the number of a pool's nodes is remembered, for decisions that were made on news that had not arrived yet.
const MEMORY: SignedDuration = SignedDuration::from_mins(15);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Promise {
    LeavesOthersAlone,
    KeepsDisruptionBudgets,
    KeepsLimits,
    MovesOnlyWhatHasAPlace,
    ProtectsPods,
    DrainsBeforeItEnds,
    ForgetsNoMachine,
    LetsNobodyWait,
    ComesToRest,
    LeaksNothing,
    CountsMoney,
    Converges,
}

impl Promise {
    pub const ALL: [Self; 12] = [
        Self::LeavesOthersAlone,
        Self::KeepsDisruptionBudgets,
        Self::KeepsLimits,
        Self::MovesOnlyWhatHasAPlace,
        Self::ProtectsPods,
        Self::DrainsBeforeItEnds,
        Self::ForgetsNoMachine,
        Self::LetsNobodyWait,
        Self::ComesToRest,
        Self::LeaksNothing,
        Self::CountsMoney,
        Self::Converges,
    ];

    /// A stable word for programs.
    pub fn word(self) -> &'static str {
        match self {
            Self::LeavesOthersAlone => "leaves-others-alone",
            Self::KeepsDisruptionBudgets => "keeps-disruption-budgets",
            Self::KeepsLimits => "keeps-limits",
            Self::MovesOnlyWhatHasAPlace => "moves-only-what-has-a-place",
            Self::ProtectsPods => "protects-pods",
            Self::DrainsBeforeItEnds => "drains-before-it-ends",
            Self::ForgetsNoMachine => "forgets-no-machine",
            Self::LetsNobodyWait => "lets-nobody-wait",
            Self::ComesToRest => "comes-to-rest",
            Self::LeaksNothing => "leaks-nothing",
            Self::CountsMoney => "counts-money",
            Self::Converges => "converges",
        }
    }

    /// The promise, for people.
    pub fn says(self) -> &'static str {
        match self {
            Self::LeavesOthersAlone => {
                "No node, machine or pod is touched that is not ours: launched for a claim of a pool of ours"
            }
            Self::KeepsDisruptionBudgets => {
                "No node goes for savings or drift beyond what the budgets of its pool allow at that moment"
            }
            Self::KeepsLimits => {
                "The machines of a pool never come to more than its limits, those on their way out aside"
            }
            Self::MovesOnlyWhatHasAPlace => {
                "No node is emptied for savings unless each of its pods could run elsewhere, or its replacement is ready"
            }
            Self::ProtectsPods => {
                "No pod is deleted past its disruption budgets or its do-not-disrupt before the deadline of its node"
            }
            Self::DrainsBeforeItEnds => {
                "No machine is ended while pods run on it, before the deadline of its node"
            }
            Self::ForgetsNoMachine => "No machine runs for more than ten minutes without a claim",
            Self::LetsNobodyWait => {
                "No pod waits for more than 40 minutes although a machine that it may run on can be bought"
            }
            Self::ComesToRest => "Where nothing changes, nothing moves",
            Self::LeaksNothing => {
                "In the end there is one machine for each claim and one node for each machine, and nothing is half done"
            }
            Self::CountsMoney => {
                "What was spent is the time of machines times their price, and never becomes less"
            }
            Self::Converges => {
                "Two hours after the last fault, or the last drain with a deadline, every pod that can have a place has one"
            }
        }
    }
}

impl fmt::Display for Promise {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.word())
    }
}

/// A promise that was not kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    pub promise: Promise,
    pub at: Timestamp,
    pub what: String,
}

/// What the witness knows of a moment beside the world.
pub(super) struct Moment {
    /// How late the engine believes it to be.
    pub believed: Timestamp,
    /// The engine knows all that has happened, or knew when it decided.
    pub is_current: bool,
    /// When the last fault is over.
    pub calm_since: Timestamp,
}

/// Watches one trial. The first broken promise stays.
pub(super) struct Witness {
    pub broken: Option<Broken>,
    pub most_machines: usize,
    /// When nothing more happens.
    quiet_at: Timestamp,
    /// By when a drain with a deadline ends that was under way where everything should have been where it belongs.
    drained_by: Timestamp,
    /// Nodes that are replaced because of their age move even where nothing else happens.
    has_expiry: bool,
    leaving: BTreeSet<ClaimName>,
    deleted: BTreeSet<ClaimName>,
    unclaimed: BTreeMap<ProviderId, Timestamp>,
    /// Pods that wait although they could have a place, and since when.
    needless: BTreeMap<ObjectKey, Timestamp>,
    /// How many nodes each pool had.
    sizes: BTreeMap<PoolName, Vec<(Timestamp, u32)>>,
    places: Places,
    purse: Purse,
    end: Timestamp,
}

impl Witness {
    pub fn new(fleet: &FleetPlan, world: &World, quiet_at: Timestamp, end: Timestamp) -> Self {
        Self {
            broken: None,
            most_machines: 0,
            quiet_at,
            drained_by: quiet_at,
            has_expiry: fleet.pools.iter().any(|pool| pool.expire_after.is_some()),
            leaving: BTreeSet::new(),
            deleted: BTreeSet::new(),
            unclaimed: BTreeMap::new(),
            needless: BTreeMap::new(),
            sizes: BTreeMap::new(),
            places: Places::default(),
            purse: Purse::new(world.now()),
            end,
        }
    }

    pub fn fail(&mut self, promise: Promise, at: Timestamp, what: String) {
        self.broken.get_or_insert(Broken { promise, at, what });
    }

    /// Before `action` is done to the world.
    pub fn before(&mut self, world: &World, moment: &Moment, action: &Action) {
        self.others_are_left_alone(world, action);
        self.pods_are_protected(world, action);
        self.machines_are_drained(world, moment, action);
        self.rest_is_kept(world, moment, action);
    }

    /// After things were done, or happened.
    pub fn step(&mut self, world: &World, moment: &Moment) {
        self.purse.pay(world);
        self.most_machines = self.most_machines.max(self.purse.running());
        let newly = self.newly_leaving(world);
        self.budgets_are_kept(world, moment, &newly);
        self.savings_have_a_place(world, moment);
        self.limits_are_kept(world);
        self.note_machines(world);
        self.note_waiting(world);
    }

    /// Nothing is done or happens until `next`.
    pub fn wait(&mut self, world: &World, moment: &Moment, next: Timestamp) {
        let counts_from = |since: Timestamp| since.max(moment.calm_since);
        let forgotten = self.unclaimed.iter().find(|(_, since)| next > counts_from(**since) + FORGOTTEN_MAX);
        if let Some((id, since)) = forgotten.map(|(id, since)| (*id, *since)) {
            let at = counts_from(since) + FORGOTTEN_MAX;
            let what = format!("machine {} has no claim since {since}", id.instance());
            self.fail(Promise::ForgetsNoMachine, at, what);
        }
        let waits = self.needless.iter().find(|(_, since)| next > counts_from(**since) + WAIT_MAX);
        if let Some((pod, since)) = waits.map(|(pod, since)| (*pod, *since)) {
            let at = counts_from(since) + WAIT_MAX;
            let what = format!("pod {pod} waits since {since}, and a machine for it could be bought");
            self.fail(Promise::LetsNobodyWait, at, what);
        }
        let converged_by = self.converged_by(moment);
        if world.now() <= converged_by && next > converged_by {
            match drained_by(world).filter(|until| *until > converged_by) {
                Some(until) => self.drained_by = until,
                None => self.has_converged(world, converged_by),
            }
        }
    }

    fn converged_by(&self, moment: &Moment) -> Timestamp {
        self.quiet_at.max(moment.calm_since).max(self.drained_by) + CONVERGED_WITHIN
    }

    /// When the trial is over.
    pub fn end(&mut self, world: &World, moment: &Moment) {
        self.step(world, moment);
        if self.end > self.converged_by(moment) {
            self.nothing_leaks(world);
        }
        if let Err(what) = self.purse.agrees_with(&world.bill()) {
            self.fail(Promise::CountsMoney, world.now(), what);
        }
    }

    /// Whether nothing is under way and nobody waits.
    pub fn is_at_ease(&self, world: &World) -> bool {
        let objects = world.objects();
        let is_steady =
            |claim: &NodeClaim| !leaves(claim) && claim.conditions.is_true(ConditionType::Initialized);
        self.unclaimed.is_empty()
            && objects.claims.values().all(|claim| is_steady(claim))
            && objects.pods.values().all(|pod| pod.node.is_some() || !pod.is_active())
    }

    // The promises, one by one.

    /// [`Promise::LeavesOthersAlone`].
    fn others_are_left_alone(&mut self, world: &World, action: &Action) {
        let objects = world.objects();
        let is_foreign_node = |name: NodeName| {
            let node = objects.nodes.get(&name);
            node.is_some_and(|node| node.provider_id.is_none_or(|id| world.cloud().machine(id).is_none()))
        };
        let is_foreign_pod =
            |key: &ObjectKey| objects.pods.get(key).and_then(|pod| pod.node).is_some_and(is_foreign_node);
        let touched = match action {
            Action::UpdateNode { node, .. } | Action::DeleteNode { node } | Action::FinalizeNode { node } => {
                is_foreign_node(*node).then(|| format!("node {node}"))
            }
            Action::Terminate { instance } => {
                world.cloud().machine(*instance).is_none().then(|| format!("machine {instance}"))
            }
            Action::Evict { pod, .. } | Action::DeletePod { pod, .. } => {
                is_foreign_pod(pod).then(|| format!("pod {pod}"))
            }
            _ => None,
        };
        if let Some(touched) = touched {
            let what = format!("{touched} belongs to somebody else");
            self.fail(Promise::LeavesOthersAlone, world.now(), what);
        }
    }

    /// [`Promise::ProtectsPods`]: evictions meet the budgets at the API server, deletions go past them.
    fn pods_are_protected(&mut self, world: &World, action: &Action) {
        let (key, is_forced) = match action {
            Action::Evict { pod, .. } => (*pod, false),
            Action::DeletePod { pod, .. } => (*pod, true),
            _ => return,
        };
        let Some(pod) = world.objects().pods.get(&key) else { return };
        let is_held = pod.shape.do_not_disrupt.is_some_and(|value| &*value == "true") && pod.is_active();
        if !is_forced && !is_held {
            return;
        }
        let grace = SignedDuration::from_secs(i64::from(pod.shape.termination_grace_seconds));
        let deadline = pod.node.and_then(|node| deadline_of(world, node));
        // The clock of the process may be ahead by as much as clocks of a cluster may differ.
        let may = deadline.is_some_and(|deadline| world.now() + grace + CLOCKS_DIFFER >= deadline);
        if !may {
            let how = if is_forced { "deleted past its budgets" } else { "evicted although it must not be" };
            let until = deadline.map_or("has none".into(), |deadline| format!("is {deadline}"));
            let what = format!("pod {key} was {how}; the deadline of its node {until}");
            self.fail(Promise::ProtectsPods, world.now(), what);
        }
    }

    /// [`Promise::DrainsBeforeItEnds`].
    fn machines_are_drained(&mut self, world: &World, moment: &Moment, action: &Action) {
        let Action::Terminate { instance } = action else { return };
        let objects = world.objects();
        let is_running = world.cloud().machine(*instance).is_some_and(|machine| machine.ended.is_none());
        let claim = objects.claim_by_instance(*instance);
        let node = objects.node_by_instance(*instance).filter(|node| node.is_ready());
        let (Some(claim), Some(node), true) = (claim, node, is_running) else { return };
        if !claim.conditions.is_true(ConditionType::Registered) {
            return;
        }
        let running = objects.pods_of(node.name).filter(|pod| pod.is_active() && must_leave(pod));
        let running = running.filter(|pod| moment.is_current && pod.started.is_some());
        let deadline = deadline_of(world, node.name);
        let is_due = deadline.is_some_and(|deadline| world.now() + CLOCKS_DIFFER >= deadline);
        if let Some(pod) = running.map(|pod| pod.key).next().filter(|_| !is_due) {
            let what = format!("the machine of {} was ended while {pod} runs there", node.name);
            self.fail(Promise::DrainsBeforeItEnds, world.now(), what);
        }
    }

    /// [`Promise::ComesToRest`].
    fn rest_is_kept(&mut self, world: &World, moment: &Moment, action: &Action) {
        let is_rest = world.now() > self.quiet_at.max(moment.calm_since) + REST_AFTER;
        if !is_rest || self.has_expiry {
            return;
        }
        let moves = match action {
            Action::CreateClaim(claim) => Some(format!("claim {} was made", claim.name)),
            Action::DeleteClaim { claim } => Some(format!("claim {claim} was deleted")),
            Action::UpdateNode { node, change } => {
                let is_closed = change.add_taints.iter().any(|taint| taint.is_same(&Taint::disrupted()));
                is_closed.then(|| format!("node {node} was closed"))
            }
            _ => None,
        };
        if let Some(moves) = moves {
            let since = self.quiet_at.max(moment.calm_since);
            self.fail(Promise::ComesToRest, world.now(), format!("{moves}; nothing happened since {since}"));
        }
    }

    /// Claims that have begun to leave, by what the objects say.
    fn newly_leaving(&mut self, world: &World) -> Vec<ClaimName> {
        let claims = &world.objects().claims;
        let leaving: BTreeSet<ClaimName> =
            claims.values().filter(|claim| leaves(claim)).map(|claim| claim.name).collect();
        let newly = leaving.difference(&self.leaving).copied().collect();
        self.leaving = leaving;
        newly
    }

    /// [`Promise::KeepsDisruptionBudgets`].
    fn budgets_are_kept(&mut self, world: &World, moment: &Moment, newly: &[ClaimName]) {
        let objects = world.objects();
        let mut sizes: BTreeMap<PoolName, (u32, u32, u32)> = BTreeMap::new();
        for claim in objects.claims.values() {
            // That a machine was told to end is true even where writing it down failed.
            let is_ended = claim.conditions.is_true(ConditionType::InstanceTerminating)
                || claim.deleted.is_some() && !has_machine(world, claim);
            let counts = claim.conditions.is_true(ConditionType::Initialized) && !is_ended;
            let (Some(pool), Some(node), true) = (claim.pool(), objects.node_of(claim), counts) else {
                continue;
            };
            let (nodes, away, by_choice) = sizes.entry(pool).or_default();
            *nodes += 1;
            *away += u32::from(leaves(claim) || node.deleted.is_some() || !node.is_ready());
            *by_choice += u32::from(leaves(claim) && chosen_reason(claim).is_some());
        }
        let now = world.now();
        for (pool, (nodes, ..)) in &sizes {
            let known = self.sizes.entry(*pool).or_default();
            known.retain(|(at, _)| now.duration_since(*at) < MEMORY);
            if known.last().is_none_or(|(_, last)| last != nodes) || known.is_empty() {
                known.push((now, *nodes));
            }
        }
        for claim in newly.iter().filter_map(|name| objects.claims.get(name)) {
            let (Some(reason), Some(name)) = (chosen_reason(claim), claim.pool()) else { continue };
            let (Some(pool), Some((nodes, away, by_choice))) =
                (objects.pools.get(&name), sizes.get(&name).copied())
            else {
                continue;
            };
            // Whoever has not heard everything can only count what it does itself, of as many nodes as it last knew.
            let (counted_nodes, away) = if moment.is_current {
                (nodes, away)
            } else {
                let most = self.sizes.get(&name).into_iter().flatten().map(|(_, nodes)| *nodes).max();
                (most.unwrap_or(nodes).max(nodes), by_choice)
            };
            let allowed = budgets::allowed(&pool.disruption.budgets, reason, counted_nodes, moment.believed);
            let allowed = allowed.unwrap_or(0);
            if away > allowed {
                let what = format!(
                    "{} of pool {name} may be away for reason {}, and with {} there {} {away}",
                    counted(allowed as usize, "node"),
                    reason.as_str(),
                    claim.name,
                    agreeing(away as usize, "is", "are"),
                );
                return self.fail(Promise::KeepsDisruptionBudgets, now, what);
            }
        }
    }

    /// [`Promise::KeepsLimits`]: what goes makes room for what comes in its place.
    fn limits_are_kept(&mut self, world: &World) {
        let objects = world.objects();
        for pool in objects.pools.values() {
            let Some(limits) = &pool.limits else { continue };
            let mut used = crate::model::quantity::Resources::new();
            let staying = objects.claims_of(pool.name).filter(|claim| !leaves(claim));
            for claim in staying.filter(|claim| claim.provider_id.is_some()) {
                used.add(&claim.capacity);
                used.set(*resource::NODES, used.get(*resource::NODES) + 1);
            }
            let over = limits.iter().find(|(name, most)| used.get(*name) > *most);
            if let Some((name, most)) = over {
                let (used, most) = (name.render(used.get(name)), name.render(most));
                let what = format!("pool {} has {used} of {name}, and its limit is {most}", pool.name);
                return self.fail(Promise::KeepsLimits, world.now(), what);
            }
        }
    }

    /// [`Promise::MovesOnlyWhatHasAPlace`], when claims are given up for savings.
    fn savings_have_a_place(&mut self, world: &World, moment: &Moment) {
        let objects = world.objects();
        let deleted: BTreeSet<ClaimName> =
            objects.claims.values().filter(|claim| claim.deleted.is_some()).map(|claim| claim.name).collect();
        let newly: Vec<ClaimName> = deleted.difference(&self.deleted).copied().collect();
        self.deleted = deleted;
        if !moment.is_current {
            return;
        }
        let mut emptied = BTreeSet::new();
        for claim in newly.iter().filter_map(|name| objects.claims.get(name)) {
            let is_saving = matches!(
                chosen_reason(claim),
                Some(DisruptionReason::Empty | DisruptionReason::Underutilized)
            );
            // Where the machine is gone already nothing is emptied any more.
            if !is_saving || !has_machine(world, claim) {
                continue;
            }
            let Some(node) = objects.node_of(claim) else { continue };
            let replacements = replacements_of(claim);
            if replacements.is_empty() {
                emptied.insert(node.name);
                continue;
            }
            let missing = replacements.iter().find(|name| {
                let claim = objects.claims.get(*name).filter(|claim| !leaves(claim));
                !claim.is_some_and(|claim| claim.conditions.is_true(ConditionType::Initialized))
            });
            if let Some(missing) = missing {
                let what = format!("node {} goes, and its replacement {missing} is not ready", node.name);
                return self.fail(Promise::MovesOnlyWhatHasAPlace, world.now(), what);
            }
        }
        if let Some(homeless) = places::homeless_without(world, &emptied) {
            let nodes: Vec<&str> = emptied.iter().map(|node| node.as_str()).collect();
            let what = format!(
                "{} {} and {homeless} has no other place",
                nodes.join(" and "),
                agreeing(nodes.len(), "goes", "go")
            );
            self.fail(Promise::MovesOnlyWhatHasAPlace, world.now(), what);
        }
    }

    /// For [`Promise::ForgetsNoMachine`].
    fn note_machines(&mut self, world: &World) {
        let objects = world.objects();
        let running = world.cloud().machines().filter(|machine| machine.ended.is_none());
        let unclaimed = running.filter(|machine| {
            let is_named = machine.instance.claim.is_some_and(|claim| {
                objects.claims.get(&claim).is_some_and(|claim| claim.provider_id.is_none())
            });
            !is_named && objects.claim_by_instance(machine.instance.provider_id).is_none()
        });
        let now = world.now();
        let unclaimed = unclaimed.map(|machine| machine.instance.provider_id);
        let known = std::mem::take(&mut self.unclaimed);
        self.unclaimed = unclaimed.map(|id| (id, known.get(&id).copied().unwrap_or(now))).collect();
    }

    /// For [`Promise::LetsNobodyWait`].
    fn note_waiting(&mut self, world: &World) {
        let objects = world.objects();
        let now = world.now();
        let known = std::mem::take(&mut self.needless);
        let waiting: Vec<&Pod> = objects
            .pods
            .values()
            .map(|pod| &**pod)
            .filter(|pod| pod.node.is_none() && pod.is_active())
            .collect();
        if waiting.is_empty() {
            return;
        }
        self.places.look_at(world);
        for pod in waiting {
            if self.places.has_place(world, pod) {
                let since = known.get(&pod.key).copied().unwrap_or(now);
                self.needless.insert(pod.key, since);
            }
        }
    }

    /// [`Promise::Converges`].
    fn has_converged(&mut self, world: &World, at: Timestamp) {
        if let Some((pod, since)) = self.needless.first_key_value() {
            let what = format!("pod {pod} still waits, since {since}, and a machine for it could be bought");
            return self.fail(Promise::Converges, at, what);
        }
        // Clusters whose nodes age are always on their way somewhere.
        if !self.has_expiry
            && let Some(what) = half_done(world)
        {
            self.fail(Promise::Converges, at, what);
        }
    }

    /// [`Promise::LeaksNothing`].
    fn nothing_leaks(&mut self, world: &World) {
        let objects = world.objects();
        let mut machines: BTreeMap<ClaimName, usize> = BTreeMap::new();
        for machine in world.cloud().machines().filter(|machine| machine.ended.is_none()) {
            machine.instance.claim.iter().for_each(|claim| *machines.entry(*claim).or_default() += 1);
            let id = machine.instance.provider_id;
            // Where nodes age, one may have been bought a moment ago: its claim has not heard of it yet.
            let is_new = self.has_expiry
                && machine.instance.claim.is_some_and(|claim| objects.claims.contains_key(&claim))
                && world.now().duration_since(machine.instance.launched) < FORGOTTEN_MAX;
            if objects.claim_by_instance(id).is_none() && !is_new {
                let what = format!("machine {} is left without a claim", id.instance());
                return self.fail(Promise::LeaksNothing, world.now(), what);
            }
        }
        if let Some((claim, count)) = machines.iter().find(|(_, count)| **count > 1) {
            let what = format!("claim {claim} has {count} machines");
            return self.fail(Promise::LeaksNothing, world.now(), what);
        }
        if !self.has_expiry
            && let Some(what) = half_done(world)
        {
            self.fail(Promise::LeaksNothing, world.now(), what);
        }
    }
}

/// As much as the clocks of a process and of the API server may differ.
const CLOCKS_DIFFER: SignedDuration = SignedDuration::from_secs(91);

/// Something that was begun and not ended. A drain that pods hold up is not, until its deadline: without one it may take for ever.
fn half_done(world: &World) -> Option<String> {
    let objects = world.objects();
    let is_held = |node: NodeName| {
        deadline_of(world, node).is_none_or(|deadline| world.now() < deadline)
            && objects.pods_of(node).any(|pod| pod.is_active() && must_leave(pod))
    };
    for claim in objects.claims.values() {
        let node = objects.node_of(claim);
        if claim.deleted.is_some() && !node.is_some_and(|node| is_held(node.name)) {
            return Some(format!("claim {} is deleted and still there", claim.name));
        }
        if claim.deleted.is_none() && !claim.conditions.is_true(ConditionType::Initialized) {
            return Some(format!("claim {} is not ready", claim.name));
        }
        if claim.deleted.is_none() && !has_machine(world, claim) {
            return Some(format!("claim {} has no machine", claim.name));
        }
    }
    for node in objects.nodes.values() {
        let claim = objects.claim_of(node);
        let is_ours = node.provider_id.is_some_and(|id| world.cloud().machine(id).is_some());
        if is_ours && claim.is_none() {
            return Some(format!("node {} has no claim", node.name));
        }
        let is_closed = node.taints.iter().any(|taint| taint.is_same(&Taint::disrupted()));
        if is_closed && claim.is_some_and(|claim| !leaves(claim)) {
            return Some(format!("node {} is closed, and nothing takes it away", node.name));
        }
    }
    None
}

/// By when the last drain ends that has a deadline.
fn drained_by(world: &World) -> Option<Timestamp> {
    let objects = world.objects();
    let leaving = objects.claims.values().filter(|claim| claim.deleted.is_some());
    leaving.filter_map(|claim| deadline_of(world, objects.node_of(claim)?.name)).max()
}

/// Whether the machine of a claim runs.
fn has_machine(world: &World, claim: &NodeClaim) -> bool {
    let machine = claim.provider_id.and_then(|id| world.cloud().machine(id));
    machine.is_some_and(|machine| machine.ended.is_none())
}

/// Whether a claim is on its way out by what its object says: deleted, or waiting for its replacements.
fn leaves(claim: &NodeClaim) -> bool {
    let is_waiting =
        claim.conditions.is_true(ConditionType::DisruptionReason) && !replacements_of(claim).is_empty();
    claim.deleted.is_some() || is_waiting
}

fn replacements_of(claim: &NodeClaim) -> Vec<ClaimName> {
    let names = claim.annotations.get(&*annotation::REPLACED_BY).map_or("", |names| names.as_str());
    names.split(',').filter(|name| !name.is_empty()).map(ClaimName::new).collect()
}

/// Why a claim was chosen to go, where nothing forced anybody.
fn chosen_reason(claim: &NodeClaim) -> Option<DisruptionReason> {
    let condition = claim.conditions.get(ConditionType::DisruptionReason)?;
    let reason = DisruptionReason::parse(condition.reason.as_str())?;
    let chosen = [DisruptionReason::Empty, DisruptionReason::Underutilized, DisruptionReason::Drifted];
    (claim.conditions.is_true(ConditionType::DisruptionReason) && chosen.contains(&reason)).then_some(reason)
}

/// By when the node has to be gone: as is written, or because EC2 takes its machine back then.
fn deadline_of(world: &World, node: NodeName) -> Option<Timestamp> {
    let objects = world.objects();
    let node = objects.nodes.get(&node)?;
    let written = objects.claim_of(node).and_then(|claim| {
        claim.annotations.get(&*annotation::TERMINATION_TIMESTAMP)?.parse::<Timestamp>().ok()
    });
    let taken_back = node.provider_id.and_then(|id| world.cloud().machine(id)?.taken_back);
    [written, taken_back].into_iter().flatten().min()
}

/// Whether a drain waits for this pod.
fn must_leave(pod: &Pod) -> bool {
    has_to_move(pod) && first_untolerated(&[Taint::disrupted()], &pod.shape.tolerations).is_some()
}
