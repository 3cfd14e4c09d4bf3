//! The work that looks at the whole cluster, and when it is worth doing: placing pods, judging nodes.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::explained::Explained;
use super::held::Held;
use super::lasting::Lasting;
use super::{Engine, EngineSettings};
use crate::capacity::buffers::{Hosting, virtual_pods};
use crate::capacity::cluster::{Cluster, Touched};
use crate::capacity::decision::{Plan, Steps};
use crate::capacity::disruption::command::{self, Command, Destination, is_waiting};
use crate::capacity::disruption::remembered::Remembered;
use crate::capacity::disruption::round::{Effort, Round};
use crate::capacity::disruption::weights::Weights;
use crate::capacity::disruption::{self, renewal, returning, validation};
use crate::capacity::lifecycle;
use crate::capacity::pool_status;
use crate::capacity::provisioning;
use crate::capacity::scheduling::{
    self, Ground, Mode, NewNode, Place, Protection, Refusal, Rejected, Request, Solution, Supply,
};
use crate::capacity::static_capacity;
use crate::model::action::{Action, ClaimChange, Notice, Subject};
use crate::model::claim::NodeClaim;
use crate::model::count::{agreeing, counted};
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName, Uid};
use crate::model::node::Node;
use crate::model::pod::Pod;
use crate::model::pool::PoolCondition;
use crate::model::quantity::Resources;

/// Pods that wait although nothing new came are looked at again after so long, if anything else changed.
const RETRY_AFTER: SignedDuration = SignedDuration::from_secs(10);
/// Room that buffers keep is looked at again after so long, if anything changed: half a minute, as in Karpenter.
const ROOM_AFTER: SignedDuration = SignedDuration::from_secs(30);
/// Between two passes over all nodes.
const PASS_EVERY: SignedDuration = SignedDuration::from_secs(10);
/// Nodes are judged anew after so long although nothing happened: time itself may have changed the answer.
const PASS_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// Nodes that can only go together are looked for again so long after a look in vain: there are as many pairs as it takes simulations.
const THOROUGH_AFTER: SignedDuration = SignedDuration::from_mins(5);
/// The same, if nothing happened since.
const THOROUGH_IF_STILL: SignedDuration = SignedDuration::from_hours(1);
/// The most commands that one pass starts; the next pass follows soon.
const COMMANDS_MAX: usize = 20;
/// What pools use is reported at most so often.
const REPORT_EVERY: SignedDuration = SignedDuration::from_secs(10);

#[derive(Clone, Debug, Default)]
pub(super) struct Provisioning {
    /// Pod events that are not written on their claims yet.
    pub pod_events: BTreeMap<ClaimName, Timestamp>,
    /// Nodes that pods are about to be bound to, and how long disruption leaves them alone for it.
    nominated: BTreeMap<NodeName, Timestamp>,
    /// The last round, and what it knew.
    last: Option<(Timestamp, u64)>,
    pub rounds: u64,
    reported_at: Option<Timestamp>,
    /// Pods that the last round found room for before kube-scheduler had found none.
    foreseen: BTreeSet<Uid>,
    /// Where the room is that buffers keep.
    pub hosting: Hosting,
}

impl Provisioning {
    /// When pods that wait, or room that is to be kept, are looked at again.
    pub fn wake_at(&self, cluster: &Cluster, keeps_room: bool, revision: u64) -> Option<Timestamp> {
        let (at, known) = self.last?;
        if known == revision {
            return None;
        }
        let waits = cluster.has_waiting_pods();
        waits.then(|| at + RETRY_AFTER).or_else(|| keeps_room.then(|| at + ROOM_AFTER))
    }

    /// Whether pools are reported on now, or when.
    pub fn is_reporting(&mut self, now: Timestamp) -> Result<(), Timestamp> {
        match self.reported_at.map(|at| at + REPORT_EVERY) {
            Some(at) if now < at => Err(at),
            _ => {
                self.reported_at = Some(now);
                Ok(())
            }
        }
    }

    /// Whether there will be room for a pod that kube-scheduler found none for only now.
    pub fn has_foreseen(&self, pod: Uid) -> bool {
        self.foreseen.contains(&pod)
    }

    /// There will be room for it before kube-scheduler has found none.
    pub fn foresee(&mut self, pod: Uid) {
        self.foreseen.insert(pod);
    }

    fn nominate(&mut self, node: NodeName, until: Timestamp) {
        self.nominated.insert(node, until);
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Disrupting {
    /// Decisions that wait for their second look.
    proposals: Vec<(Timestamp, Command)>,
    /// The last pass, and what it knew.
    last: Option<(Timestamp, u64)>,
    /// When something changes that nobody tells of: a budget's window opens or closes, a node is kept for a pod no longer, or by
    /// one that asked for a time, has been what its pool likes less for long enough, or comes of age.
    window_at: Option<Timestamp>,
    /// The same, without what only ends: when something may go that nothing has happened to.
    opens_at: Option<Timestamp>,
    /// When consolidation looked for nodes that can only go together, and found nothing; and what was known then.
    in_vain: Option<(Timestamp, u64)>,
    /// How often it looked so.
    looks: usize,
    pub held: Held,
    pub explained: Explained,
    lasting: Lasting,
    remembered: [Remembered; 2],
    weights: Weights,
}

impl Disrupting {
    pub fn wake_at(&self, revision: u64) -> Option<Timestamp> {
        let ripe = self.proposals.iter().map(|(at, _)| *at).min();
        ripe.or_else(|| self.pass_at(revision))
    }

    /// When consolidation looks for nodes that can only go together; `None`: at the next pass.
    fn thorough_at(&self, revision: u64) -> Option<Timestamp> {
        let (at, known) = self.in_vain?;
        Some(at + if known == revision { THOROUGH_IF_STILL } else { THOROUGH_AFTER })
    }

    /// When the next pass is due.
    fn pass_at(&self, revision: u64) -> Option<Timestamp> {
        let (at, known) = self.last?;
        let stale = if known == revision { at + PASS_AFTER } else { at + PASS_EVERY };
        Some(self.window_at.map_or(stale, |window| stale.min(window.max(at + PASS_EVERY))))
    }
}

impl Engine {
    /// What names of claims made at `now` are drawn from.
    fn seed(&self, now: Timestamp) -> u64 {
        self.settings.seed.rotate_left(32) ^ now.as_millisecond().unsigned_abs()
    }

    /// The picture in which pods that kube-scheduler is about to find no place for wait already, and those for which others stand in.
    fn foreseen(&self) -> Cluster {
        let mut view = self.cluster.clone();
        if self.settings.foresees_pods {
            for pod in self.cluster.foreseen_pods() {
                view.put_pod(Arc::new(Pod { is_unschedulable: true, ..(**pod).clone() }));
            }
            self.arrivals.standing().for_each(|pod| view.put_pod(pod));
        }
        view
    }

    /// What the scheduler makes of the cluster as it is now: what was kept, if it is still of use. Nodes that wait for their
    /// replacements are on their way out: their pods need room. `more`: pods that are not in the cluster.
    fn ground(&mut self, supply: &Arc<Supply>, more: &[Arc<Pod>]) -> Box<Ground> {
        let waits = |name: &&ClaimName| {
            self.cluster.claims.get(*name).is_some_and(|claim| is_waiting(claim) && claim.deleted.is_none())
        };
        let leaving: BTreeSet<ClaimName> = self.waiting.iter().filter(waits).copied().collect();
        let touched = self.take_touched();
        if let Some(mut kept) = self.prepared.take(supply)
            && kept.follow(&self.cluster, supply, &touched, more, &leaving)
        {
            return kept;
        }
        Box::new(Ground::with_leaving(&self.cluster, supply, more, &leaving))
    }

    /// Pods that wait and can be planned for, and those that cannot; pods count of which kube-scheduler is about to say so, and
    /// `coming`.
    fn provisionable(&self, coming: &[Arc<Pod>]) -> (Vec<Arc<Pod>>, Vec<Rejected>) {
        let mut waiting: Vec<Arc<Pod>> = self.cluster.waiting_pods().cloned().collect();
        if self.settings.foresees_pods {
            let foreseen = self.cluster.foreseen_pods();
            waiting.extend(foreseen.map(|pod| Arc::new(Pod { is_unschedulable: true, ..(**pod).clone() })));
            waiting.extend(coming.iter().cloned());
            waiting.sort_by_key(|pod| pod.key);
        }
        let (pods, mut rejected) =
            scheduling::judged(&self.cluster, &self.settings.scheduling, waiting.iter());
        rejected.retain(|pod| !self.arrivals.stands_in(&pod.pod));
        (pods, rejected)
    }

    /// When there is another round although nobody new waits; none while a batch is open, which brings one anyway.
    pub(super) fn retry_at(&self) -> Option<Timestamp> {
        match self.batch.ripe_at(self.settings.batch) {
            Some(_) => None,
            None => self.provisioning.wake_at(&self.cluster, !self.rooms.is_empty(), self.revision),
        }
    }

    /// Whether a plan is about to be made, the first since this process began: which nodes pods wait for is not known.
    pub(super) fn is_yet_to_plan(&self) -> bool {
        let is_first = self.settings.nominates && self.provisioning.last.is_none();
        is_first && self.batch.ripe_at(self.settings.batch).is_some()
    }

    /// Places pods that wait, and those of nodes on their way out, if a batch is ripe.
    pub(super) fn provision(&mut self, now: Timestamp, out: &mut Steps) {
        let is_ripe = self.batch.take(self.settings.batch, now);
        let is_retry = self.retry_at().is_some_and(|at| at <= now);
        // Nothing is given back before it is known where the room is that has to be kept.
        let is_first = self.provisioning.last.is_none() && !self.rooms.is_empty();
        if !is_ripe && !is_retry && !is_first {
            return;
        }
        self.provisioning.rounds += 1;
        let coming = match self.settings.foresees_pods {
            true => self.arrivals.stand_ins(&self.cluster, now),
            false => Vec::new(),
        };
        let (mut pods, rejected) = self.provisionable(&coming);
        let exist = |pod: &&Arc<Pod>| !self.arrivals.stands_in(&pod.key);
        let waiting: BTreeSet<_> = pods.iter().filter(exist).map(|pod| pod.key).collect();
        let room = virtual_pods(&self.cluster, &self.settings.scheduling);
        let supply = self.open_supply();
        let mut ground = self.ground(&supply, &room);
        pods.extend(scheduling::moving_from(&self.cluster, ground.going(), now));
        pods.extend(room.iter().cloned());
        let settings = self.settings.scheduling.clone();
        let view = &self.cluster;
        let waits = |claim: &&Arc<NodeClaim>| is_waiting(claim) && claim.deleted.is_none();
        let waiting_claims = self.waiting.iter().filter_map(|name| view.claims.get(name)).filter(waits);
        let kept = command::kept_for(view, waiting_claims).into_iter();
        let used_at_least = kept.map(|(pool, more)| {
            let used = ground.used().get(&pool).cloned().unwrap_or_default();
            (pool, used.plus(&more))
        });
        let used_at_least: BTreeMap<PoolName, Resources> = used_at_least.collect();
        let request = Request {
            cluster: view,
            supply: &supply,
            now,
            pods: &pods,
            departing: &[],
            without_nodes: &BTreeSet::new(),
            without_claims: &BTreeSet::new(),
            shut_claims: &BTreeSet::new(),
            planned: self.plans.places(),
            used_at_least: &used_at_least,
            settings: &settings,
            mode: Mode::Provisioning,
        };
        let pending_zones = match waiting.is_empty() {
            true => BTreeMap::new(),
            false => scheduling::effective_zones_on(&mut ground, &request),
        };
        let mut solution = scheduling::solve_on(&mut ground, &request);
        let homeless: BTreeSet<ObjectKey> = solution.unschedulable.iter().map(|pod| pod.pod).collect();
        self.provisioning.foreseen = match self.settings.foresees_pods {
            true => {
                let planned = self.cluster.foreseen_pods().filter(|pod| !homeless.contains(&pod.key));
                planned.map(|pod| pod.uid).collect()
            }
            false => BTreeSet::new(),
        };
        self.plans.take_turn();
        let seed = self.seed(now);
        let used = ground.used();
        let purchase = provisioning::claims_within(view, &supply, &solution, &settings, used, now, seed);
        let mut steps = Steps::default();
        let bought_for = purchase.claims.iter().flat_map(|(_, pods)| pods);
        let made = purchase.claims.iter().map(|(claim, _)| claim.name);
        let coming: BTreeMap<ObjectKey, &Arc<Pod>> = coming.iter().map(|pod| (pod.key, pod)).collect();
        let bought_for = bought_for.filter_map(|key| view.pods.get(key).or_else(|| coming.get(key).copied()));
        self.nominations.note_crowd(made, bought_for);
        let by_node = purchase.claims.iter();
        let by_node = by_node.map(|(_, pods)| pods.iter().filter_map(|key| view.pods.get(key)));
        self.regrets.note_bought(by_node, view, now);
        let mut hosting = Hosting::of(&room, &solution);
        // Those that stand for nothing but themselves, or for one that is about to come.
        let counts = |pod: &ObjectKey| view.pods.contains_key(pod) || coming.contains_key(pod);
        for (claim, pods) in &purchase.claims {
            hosting.bought(pods, Place::Claim(claim.name));
            let message = bought(&solution.new_nodes, pods);
            steps.push(Action::CreateClaim(claim.clone()), "Provisioned", message);
            self.plans.plan(pods.iter().copied().filter(counts), Place::Claim(claim.name));
            nominate(pods, &Place::Claim(claim.name), view, &mut steps);
        }
        let mut joined = Vec::new();
        for (place, pods) in &solution.existing {
            let awaited = awaited_at(*place, view);
            let planned = pods.iter().copied().filter(counts);
            self.plans.plan(planned, awaited.map_or(*place, |(claim, _)| Place::Claim(claim)));
            joined.extend(awaited.map(|machine| (machine, pods)));
            nominate(pods, place, view, &mut steps);
        }
        solution.unschedulable.iter().for_each(|pod| self.plans.forget(&pod.pod));
        for pod in solution.unschedulable.iter().filter(|pod| waiting.contains(&pod.pod)) {
            let why = Refusal::tell(&pod.reasons);
            steps.push(failed_scheduling(pod.pod, &why), "FailedScheduling", why);
        }
        for (at, refusal) in &purchase.dropped {
            for pod in solution.new_nodes[*at].pods.iter().filter(|pod| waiting.contains(pod)) {
                let why = &refusal.message;
                steps.push(failed_scheduling(*pod, why), "FailedScheduling", why.clone());
            }
        }
        for pod in &rejected {
            let why = Refusal::tell(&pod.reasons);
            steps.push(failed_scheduling(pod.pod, &why), "FailedScheduling", why);
        }
        let until = now + (self.settings.batch.longest * 2).max(SignedDuration::from_secs(10));
        for (place, pods) in &solution.existing {
            let is_awaited = pods.iter().any(counts);
            if let (Place::Node(node), true) = (place, is_awaited) {
                self.provisioning.nominate(*node, until);
            }
        }
        for (machine, pods) in joined {
            self.join(machine, pods, now, &mut steps);
        }
        self.report_room(&Hosting::of(&room, &solution), now, &mut steps);
        // Nodes whose room is kept elsewhere now may go.
        self.revision += u64::from(!hosting.is_placed_as(&self.provisioning.hosting));
        self.provisioning.hosting = hosting;
        self.prepared.put(&supply, ground);
        self.take(steps, now, out);
        if self.provisioning.last.is_none() {
            self.touch_closed_nodes();
        }
        self.provisioning.last = Some((now, self.revision));
        self.touch_drains();
        let disruption = self.plan.disruption.clone();
        self.leave_out_stand_ins(&mut solution);
        self.plan =
            Arc::new(Plan { provisioning: solution, rejected, pending_zones, disruption, ..Plan::default() });
    }

    /// Nobody but us knows of them.
    fn leave_out_stand_ins(&self, solution: &mut Solution) {
        let exists = |pod: &ObjectKey| !self.arrivals.stands_in(pod);
        solution.new_nodes.iter_mut().for_each(|node| node.pods.retain(exists));
        solution.existing.iter_mut().for_each(|(_, pods)| pods.retain(exists));
        solution.unschedulable.retain(|pod| exists(&pod.pod));
    }

    /// Makes the nodes that static pools lack.
    pub(super) fn keep_replicas(&mut self, now: Timestamp, out: &mut Steps) {
        for name in std::mem::take(&mut self.replicas_changed) {
            let Some(pool) = self.cluster.pools.get(&name).filter(|pool| pool.is_static()).cloned() else {
                continue;
            };
            // Its class may not be ready any more, which the pool says only later.
            let conditions = pool_status::conditions(&self.cluster, &pool, now);
            if !conditions.is_true(PoolCondition::Ready) {
                continue;
            }
            let supply = self.open_supply();
            let settings = self.settings.scheduling.clone();
            let keeping = static_capacity::keep(&self.cluster, &supply, &settings, &pool, now);
            let Some(keeping) = keeping.filter(|keeping| !keeping.new_nodes.is_empty()) else {
                continue;
            };
            let why = keeping.why();
            let nodes = keeping.new_nodes;
            let claims =
                static_capacity::claims(&self.cluster, &supply, nodes, &settings, now, self.seed(now));
            let mut steps = Steps::default();
            for claim in claims {
                steps.push(Action::CreateClaim(claim), "Provisioned", why.clone());
            }
            self.take(steps, now, out);
        }
    }

    /// Judges which nodes may go, if that is due; looks again at what was decided before.
    pub(super) fn disrupt(&mut self, now: Timestamp, out: &mut Steps) {
        if self.disrupting.proposals.iter().any(|(at, _)| *at <= now) {
            self.carry_out_proposals(now, out);
        }
        let is_due = self.disrupting.last.is_none()
            || self.disrupting.pass_at(self.revision).is_some_and(|at| at <= now);
        if !self.disrupting.proposals.is_empty() || !is_due {
            return;
        }
        let supply = self.open_supply();
        let settings = self.settings.clone();
        let mut round = self.round(&supply, &settings, now);
        // A window that opened may let go what nothing that happened would have.
        let has_opened = self.disrupting.opens_at.is_some_and(|at| at <= now);
        let is_too_soon = self.disrupting.thorough_at(self.revision).is_some_and(|at| now < at);
        round.effort = match is_too_soon && !has_opened {
            true => Effort::Quick,
            false => Effort::Thorough { look: self.disrupting.looks },
        };
        round.remembered = std::mem::take(&mut self.disrupting.remembered).map(RefCell::new);
        let mut plan = disruption::plan_in(&mut round, COMMANDS_MAX);
        self.disrupting.remembered = std::mem::take(&mut round.remembered).map(RefCell::into_inner);
        let (effort, looked_together) = (round.effort, round.looked_together);
        let doubted: Vec<Timestamp> =
            round.doubted.values().chain(round.regretted.values()).copied().collect();
        self.tries.follow(std::mem::take(&mut round.tries));
        self.take_back(&supply, round);
        self.disrupting.explained.approve(&plan, &self.cluster);
        // Else some method was not asked.
        let is_whole = plan.commands.len() < COMMANDS_MAX;
        self.disrupting.lasting.date(&mut plan.kept, now, is_whole);
        if is_whole {
            self.disrupting.held.learn(&plan, now);
            self.disrupting.explained.learn(&plan, &self.cluster, now);
        }
        for command in &plan.commands {
            if command.method.is_validated() {
                self.disrupting.proposals.push((now + validation::PAUSE, command.clone()));
            } else {
                self.start(command, now, out);
            }
        }
        if plan.commands.iter().any(|command| command.method.is_consolidation()) {
            self.disrupting.in_vain = None;
        } else if looked_together {
            self.disrupting.in_vain = Some((now, self.revision));
            self.disrupting.looks += 1;
        }
        let thorough = self.disrupting.thorough_at(self.revision).filter(|_| effort == Effort::Quick);
        let windows =
            self.cluster.pools.values().filter_map(|pool| disruption::budgets::next_change(pool, now));
        let kept = self.provisioning.nominated.values().copied();
        let protected = plan.protections.values().filter_map(|protection| match protection {
            Protection::Until(end) => *end,
            _ => None,
        });
        let back = returning::next(&self.cluster, now).into_iter().chain(renewal::next(&self.cluster, now));
        // What there was no room for in this pass is judged in the next, whether or not anything changes.
        let cut = (plan.commands.len() >= COMMANDS_MAX).then_some(now);
        let opens = windows.chain(protected).chain(back).chain(plan.rolls_on_at).chain(doubted);
        self.disrupting.opens_at = opens.min();
        let moments = self.disrupting.opens_at.into_iter().chain(kept).chain(cut).chain(thorough);
        self.disrupting.window_at = moments.min();
        self.disrupting.last = Some((now, self.revision));
        let former = (*self.plan).clone();
        self.plan = Arc::new(Plan { disruption: Arc::new(plan), ..former });
    }

    fn round<'a>(
        &mut self,
        supply: &'a Arc<Supply>,
        settings: &'a EngineSettings,
        now: Timestamp,
    ) -> Round<'a> {
        self.provisioning.nominated.retain(|_, until| now < *until);
        let news = self.take_touched();
        let mut round = Round::new(self.foreseen(), supply, &settings.scheduling, &settings.disruption, now);
        if let Some(ground) = self.prepared.take(supply) {
            round.borrow(ground, news);
        }
        let mut weights = std::mem::take(&mut self.disrupting.weights);
        weights.follow(&self.cluster, supply);
        round.weights = RefCell::new(weights);
        let hosts = self.cluster.hosts().map(|node| (node, None));
        round.doubted = self.shortages.doubted(now);
        round.regretted = self.regrets.at(now);
        let nominated = self.provisioning.nominated.iter().map(|(node, until)| (*node, Some(*until)));
        round.nominated = nominated.chain(hosts).collect();
        round.awaited = self.awaited(now);
        round.planned = self.plans.places().clone();
        round.turn = self.plans.take_turn();
        round.tries = self.tries.afresh();
        round.host(self.provisioning.hosting.clone());
        round
    }

    /// Nodes that are to take pods of others, which are on their way out and have not let them go yet: a budget, a volume or another
    /// pod may hold them up for hours. Who gave such a node back as empty would buy it again at once.
    fn awaited(&self, now: Timestamp) -> BTreeSet<NodeName> {
        let cluster = &self.cluster;
        let is_leaving = |node: &Node| {
            scheduling::is_going(cluster, node)
                || cluster.claim_of(node).is_some_and(|claim| is_waiting(claim))
        };
        let is_coming = |pod: &Pod| {
            let from = pod.node.and_then(|node| cluster.nodes.get(&node));
            from.is_some_and(|node| is_leaving(node)) && scheduling::is_reschedulable(cluster, pod, now)
        };
        let places = self.plans.places().iter();
        let places = places.filter(|(key, _)| cluster.pods.get(key).is_some_and(|pod| is_coming(pod)));
        let nodes = places.filter_map(|(_, planned)| match planned.place {
            Place::Node(node) => Some(node),
            Place::Claim(claim) => Some(cluster.node_of(cluster.claims.get(&claim)?)?.name),
        });
        nodes.collect()
    }

    /// What has changed since this was last asked.
    fn take_touched(&mut self) -> Touched {
        let touched = self.cluster.take_touched();
        self.disrupting.weights.forget(&touched.nodes);
        touched
    }

    /// Keeps what `round` leaves that is of use for the next.
    fn take_back(&mut self, supply: &Arc<Supply>, mut round: Round) {
        self.disrupting.weights = std::mem::take(&mut round.weights).into_inner();
        let (ground, touched) = round.give_back();
        self.cluster.touch(touched);
        if let Some(ground) = ground {
            self.prepared.put(supply, ground);
        }
    }

    /// The second look at decisions, each in the picture that the earlier ones leave.
    fn carry_out_proposals(&mut self, now: Timestamp, out: &mut Steps) {
        let supply = self.open_supply();
        let settings = self.settings.clone();
        let (ripe, later) =
            std::mem::take(&mut self.disrupting.proposals).into_iter().partition(|(at, _)| *at <= now);
        self.disrupting.proposals = later;
        let ripe: Vec<(Timestamp, Command)> = ripe;
        let mut round = self.round(&supply, &settings, now);
        let mut standing = Vec::new();
        let mut steps = Steps::default();
        for (_, command) in ripe {
            match validation::validate(&mut round, &command) {
                Ok(standing_part) => {
                    let lost = command.nodes.len() - standing_part.nodes.len();
                    if lost > 0 {
                        steps.withdrawn.push((command.method, lost));
                    }
                    round.start(&standing_part);
                    standing.push(standing_part);
                }
                Err((change, why)) => {
                    steps.withdrawn.push((command.method, command.nodes.len()));
                    let message: Arc<str> = format!("{}: {why}", change.as_str()).into();
                    let nodes = command.nodes.iter().map(|node| Subject::Node(*node));
                    for subject in nodes.chain(command.claims.iter().map(|claim| Subject::Claim(*claim))) {
                        let reason = "ConsolidationRejected".into();
                        let notice = Notice { subject, is_warning: false, reason, message: message.clone() };
                        steps.push(Action::Publish(notice), "ConsolidationRejected", &*message);
                    }
                }
            }
        }
        self.take_back(&supply, round);
        self.take(steps, now, out);
        for command in standing {
            self.start(&command, now, out);
        }
    }

    fn start(&mut self, command: &Command, now: Timestamp, out: &mut Steps) {
        let supply = self.open_supply();
        let settings = self.settings.scheduling.clone();
        let solution = Solution { new_nodes: command.replacements.clone(), ..Solution::default() };
        let seed = self.seed(now);
        let purchase = provisioning::claims_for(&self.cluster, &supply, &solution, &settings, now, seed);
        if let Some((_, refusal)) = purchase.dropped.first() {
            let mut steps = Steps::default();
            for node in &command.nodes {
                let notice = Notice {
                    subject: Subject::Node(*node),
                    is_warning: true,
                    reason: "DisruptionBlocked".into(),
                    message: refusal.message.as_str().into(),
                };
                steps.push(Action::Publish(notice), "DisruptionBlocked", refusal.message.clone());
            }
            return self.take(steps, now, out);
        }
        self.plans.take_turn();
        for (claim, pods) in &purchase.claims {
            self.plans.plan(real(pods, &self.cluster), Place::Claim(claim.name));
        }
        let mut replacements: Vec<Arc<NodeClaim>> =
            purchase.claims.into_iter().map(|(claim, _)| claim).collect();
        let mut steps = Steps::default();
        for (claim, annotations) in returning::count(&self.cluster, command, &mut replacements, now) {
            let change = ClaimChange { annotations, ..ClaimChange::default() };
            steps.push(Action::UpdateClaim { claim, change }, "Returns", "it goes back once more");
        }
        if command.method.is_consolidation() {
            let nodes = command.nodes.len() as i64 - replacements.len() as i64;
            self.regrets.note_moved(command.pods.iter().map(|(pod, _)| *pod), nodes, &self.cluster, now);
        }
        command::start(&self.cluster, command, &replacements, now, &mut steps);
        let until = now + (self.settings.batch.longest * 2).max(SignedDuration::from_secs(10));
        for (pod, to) in &command.pods {
            if let Destination::Existing(place) = to {
                self.plans.plan([*pod], *place);
            }
            if let Destination::Existing(Place::Node(node)) = to {
                self.provisioning.nominate(*node, until);
            }
        }
        self.take(steps, now, out);
    }
}

fn bought(nodes: &[NewNode], pods: &[ObjectKey]) -> String {
    let node = nodes.iter().find(|node| node.pods == pods);
    let cheapest = node.map_or_else(String::new, |node| {
        let launch = node.launch();
        let (kind, zone) = (launch.instance_type, launch.zone);
        format!("; cheapest is {kind} in {zone}, {}, at ${} an hour", launch.capacity_type, launch.price)
    });
    let need = agreeing(pods.len(), "needs", "need");
    format!("{} {need} a node{cheapest}", counted(pods.len(), "pod"))
}

/// Those of `pods` that stand for nothing but themselves.
fn real(pods: &[ObjectKey], cluster: &Cluster) -> impl Iterator<Item = ObjectKey> {
    pods.iter().copied().filter(|pod| cluster.pods.contains_key(pod))
}

/// The claim and the node of `place` if it is a node that is not open yet.
fn awaited_at(place: Place, cluster: &Cluster) -> Option<(ClaimName, NodeName)> {
    let Place::Node(name) = place else { return None };
    let node =
        cluster.nodes.get(&name).filter(|node| node.deleted.is_none() && lifecycle::is_closed(node))?;
    let claim = cluster.claim_of(node).filter(|claim| claim.deleted.is_none())?;
    Some((claim.name, name))
}

/// Tells real pods where they are expected to run. kube-scheduler decides.
pub(super) fn nominate(pods: &[ObjectKey], place: &Place, cluster: &Cluster, steps: &mut Steps) {
    let place = match place {
        Place::Node(node) => format!("node/{node}"),
        Place::Claim(claim) => format!("nodeclaim/{claim}"),
    };
    let message: Arc<str> = format!("should schedule on {place}").into();
    for pod in real(pods, cluster) {
        let notice = Notice {
            subject: Subject::Pod(pod),
            is_warning: false,
            reason: "Nominated".into(),
            message: message.clone(),
        };
        steps.push(Action::Publish(notice), "Nominated", &*message);
    }
}

fn failed_scheduling(pod: ObjectKey, why: &str) -> Action {
    Action::Publish(Notice {
        subject: Subject::Pod(pod),
        is_warning: true,
        reason: "FailedScheduling".into(),
        message: why.into(),
    })
}
