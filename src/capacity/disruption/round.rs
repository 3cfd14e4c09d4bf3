//! The picture that a round of disruption judges, and that its commands change: what the next round sees is what the cluster
//! would be had they been started.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use jiff::Timestamp;

use super::balanced::Move;
use super::budgets::{Allowance, allowances};
use super::candidates::{Candidate, Class, KeepReason, admit, count_disruptions};
use super::command::{Command, is_waiting, kept_for};
use super::drift::batch::Alone;
use super::remembered::Remembered;
use super::removal::{Refused, needed_by_waiting_pods, needs_replacement, no_place};
use super::roll::{Standing, Tries};
use super::weights::Weights;
use super::{Settings, marking};
use crate::capacity::buffers::{Hosting, virtual_pods};
use crate::capacity::cluster::{Cluster, Touched};
use crate::capacity::provisioning;
use crate::capacity::scheduling::{
    self, Beginning, Chain, Differences, Fit, Footing, Ground, Link, Mode, NewNode, OfferingKey, Place,
    Planned, Refusal, Relied, Request, Solution, Supply, To, arrange, begin, go_on, moving_from, moving_pods,
    provisionable_pods, usage_by_pool,
};
use crate::model::claim::{ConditionStatus, ConditionType, NodeClaim};
use crate::model::hash::FastSet;
use crate::model::label;
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName, ProviderId, Uid};
use crate::model::pod::Pod;
use crate::model::pool::DisruptionReason;
use crate::model::quantity::Resources;
use crate::model::workload::PodDisruptionBudget;

pub(crate) struct Round<'a> {
    pub cluster: Cluster,
    pub supply: &'a Supply,
    pub scheduling: &'a scheduling::Settings,
    pub settings: &'a Settings,
    pub now: Timestamp,
    /// Nodes that pods are about to be bound to, and until when they are left alone for it, if that is known.
    pub nominated: BTreeMap<NodeName, Option<Timestamp>>,
    /// Nodes that are to take pods of others, which are on their way out and have not let them go yet.
    pub awaited: BTreeSet<NodeName>,
    /// Offerings that were sold out lately, and until when no saving relies on them.
    pub doubted: BTreeMap<OfferingKey, Timestamp>,
    /// Controllers whose pods were moved in vain lately, and until when no saving moves them.
    pub regretted: BTreeMap<Uid, Timestamp>,
    /// Claims that this plan would make.
    pub made: BTreeSet<ClaimName>,
    /// Where pods that need a place have been given one.
    pub planned: BTreeMap<ObjectKey, Planned>,
    /// In which turn they are given one now.
    pub turn: usize,
    /// How hard consolidation looks for nodes to give back.
    pub effort: Effort,
    /// What it knows of single nodes from before, by the order in which their pods are offered to others.
    pub remembered: [RefCell<Remembered>; 2],
    /// Whether it looked for nodes that can only go together.
    pub looked_together: bool,
    /// What is remembered of tries to replace drifted nodes.
    pub tries: Tries,
    /// When something that holds a roll back is over.
    pub rolls_on_at: Option<Timestamp>,
    /// What pools with nodes that wait for their replacements use at least: such a node stays if its replacement fails.
    used_at_least: BTreeMap<PoolName, Resources>,
    /// Why a node stays, as far as some method said so.
    pub notes: BTreeMap<NodeName, KeepReason>,
    /// Nodes that would go, and that nothing but the budgets of their pools keeps.
    pub held: BTreeMap<NodeName, DisruptionReason>,
    /// Pools with such nodes, and for which reasons they let none go.
    pub blocked: BTreeSet<(PoolName, DisruptionReason)>,
    /// What consolidation weighed in this picture, and carries out or turns down by what balanced pools gain.
    pub moves: Vec<Move>,
    /// Nodes that take no moved pods yet, because their own are too fresh.
    settling: BTreeSet<NodeName>,
    waiting: Vec<Arc<Pod>>,
    /// Waiting pods without a place have none.
    is_provisioned: bool,
    /// Pods that stand for room, and where they have it.
    room: Vec<Arc<Pod>>,
    hosting: Hosting,
    /// The nodes that have such room.
    pub hosts: BTreeSet<NodeName>,
    /// How many pods may be away of budgets that do not say so themselves.
    disruptions_counted: OnceCell<BTreeMap<ObjectKey, i64>>,
    /// What nodes cost, and what their pods say.
    pub weights: RefCell<Weights>,
    /// What every method asks of this picture, once one of them has.
    admitted: [Option<Rc<Admitted>>; 2],
    allowances: RefCell<BTreeMap<DisruptionReason, BTreeMap<PoolName, Allowance>>>,
    /// What would come for drifted nodes one by one.
    pub(super) alone: RefCell<Alone>,
    /// How rolls stand in this picture, as far as somebody asked.
    pub(super) standings: RefCell<BTreeMap<PoolName, Standing>>,
    /// What every simulation in this picture starts from.
    start: RefCell<Start>,
    /// What this round has changed.
    touched: Touched,
}

/// The nodes that may go, and why the others may not; both by name.
#[derive(Default)]
struct Admitted {
    candidates: Vec<Candidate>,
    refused: Vec<(NodeName, KeepReason)>,
}

/// How hard consolidation looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Also at nodes that can only go together, of which each look takes up the pairs where the one before left off.
    Thorough { look: usize },
    /// At single nodes: the others were looked at in vain a short while ago.
    Quick,
}

/// What simulations have in common.
#[derive(Default)]
struct Start {
    /// As the picture is now, once anybody asks.
    ground: Option<Box<Ground>>,
    /// By whether nodes that settle take pods that have a place.
    begun: [Option<Begun>; 2],
}

/// Pods that need a place whatever goes: those that wait, and those of nodes that are on their way out, which come before.
struct Begun {
    beginning: Beginning,
    /// Those that run now and have no place.
    homeless: Vec<(ObjectKey, String)>,
}

/// Where pods of some candidates would go if those went.
#[derive(Clone, Debug)]
pub(crate) struct Simulated {
    pub solution: Solution,
    /// Pods that run now and would have no place.
    pub homeless: Vec<(ObjectKey, String)>,
}

impl<'a> Round<'a> {
    pub fn new(
        cluster: Cluster,
        supply: &'a Supply,
        scheduling: &'a scheduling::Settings,
        settings: &'a Settings,
        now: Timestamp,
    ) -> Self {
        let mut waiting = provisionable_pods(&cluster, scheduling).0;
        arrange(&mut waiting);
        let mut round = Self {
            supply,
            scheduling,
            settings,
            now,
            nominated: BTreeMap::new(),
            awaited: BTreeSet::new(),
            doubted: BTreeMap::new(),
            regretted: BTreeMap::new(),
            made: BTreeSet::new(),
            planned: BTreeMap::new(),
            turn: 0,
            effort: Effort::Thorough { look: 0 },
            remembered: Default::default(),
            looked_together: false,
            tries: Tries::default(),
            rolls_on_at: None,
            used_at_least: BTreeMap::new(),
            notes: BTreeMap::new(),
            held: BTreeMap::new(),
            blocked: BTreeSet::new(),
            moves: Vec::new(),
            settling: BTreeSet::new(),
            waiting,
            is_provisioned: false,
            room: virtual_pods(&cluster, scheduling),
            hosting: Hosting::default(),
            hosts: BTreeSet::new(),
            disruptions_counted: OnceCell::new(),
            weights: RefCell::default(),
            admitted: [None, None],
            allowances: RefCell::default(),
            alone: RefCell::default(),
            standings: RefCell::default(),
            start: RefCell::default(),
            touched: Touched::default(),
            cluster,
        };
        round.keep_limits();
        round.touched = round.cluster.take_touched();
        round
    }

    /// Takes a ground that was kept; it knows nothing of `news`, nor of what makes this picture another one.
    pub fn borrow(&mut self, mut ground: Box<Ground>, mut news: Touched) {
        news.add(self.touched.clone());
        if ground.follow(&self.cluster, self.supply, &news, &self.room, &BTreeSet::new()) {
            self.start.get_mut().ground = Some(ground);
        }
    }

    /// The ground, if there is one, and all in which this picture is another than the one that it was made of: it has to be looked at
    /// before the ground is of use for that.
    pub fn give_back(mut self) -> (Option<Box<Ground>>, Touched) {
        self.touched.add(self.cluster.take_touched());
        (self.start.into_inner().ground, self.touched)
    }

    /// The picture is another one.
    fn change(&mut self) {
        self.standings.get_mut().clear();
        self.allowances.get_mut().clear();
        self.admitted = [None, None];
        let touched = self.cluster.take_touched();
        let start = self.start.get_mut();
        start.begun = [None, None];
        if let Some(ground) = &mut start.ground
            && !ground.follow(&self.cluster, self.supply, &touched, &self.room, &BTreeSet::new())
        {
            start.ground = None;
        }
        self.touched.add(touched);
    }

    /// Marks, and leaves in the limits what nodes need that may stay after all.
    fn keep_limits(&mut self) {
        let waits = |claim: &&Arc<NodeClaim>| is_waiting(claim) && claim.deleted.is_none();
        let kept = kept_for(&self.cluster, self.cluster.claims.values().filter(waits));
        self.mark();
        if !kept.is_empty() {
            let used = usage_by_pool(&self.cluster, self.supply);
            let used_at_least = kept.into_iter().map(|(pool, more)| {
                let used = used.get(&pool).cloned().unwrap_or_default();
                (pool, used.plus(&more))
            });
            self.used_at_least = used_at_least.collect();
        }
    }

    /// Counts nodes that wait for their replacements as on their way out, and works out anew which claims are consolidatable, and which have drifted besides those that are known to.
    fn mark(&mut self) {
        let claims: Vec<Arc<NodeClaim>> = self.cluster.claims.values().cloned().collect();
        for claim in claims {
            if is_waiting(&claim) && claim.deleted.is_none() {
                self.cluster.put_claim(Arc::new(NodeClaim { deleted: Some(self.now), ..(*claim).clone() }));
                continue;
            }
            if let Some(conditions) =
                marking::marked(&self.cluster, self.supply, &claim, self.now, false).conditions
            {
                self.cluster.put_claim(Arc::new(NodeClaim { conditions, ..(*claim).clone() }));
            }
        }
        let settles = |node: &&Arc<crate::model::node::Node>| {
            self.cluster
                .claim_of(node)
                .is_some_and(|claim| marking::is_settling(&self.cluster, claim, self.now))
        };
        self.settling = self.cluster.nodes.values().filter(settles).map(|node| node.name).collect();
    }

    /// How many pods of `budget`, which does not say so itself, may be away now: no pod moves in a round.
    pub fn disruptions_counted(&self, budget: &PodDisruptionBudget) -> i64 {
        let counted = self.disruptions_counted.get_or_init(|| count_disruptions(self));
        counted.get(&budget.key).copied().unwrap_or(0)
    }

    /// Every node that may go, by name; the reasons of the others are noted.
    pub fn candidates(&mut self, class: Class) -> Vec<Candidate> {
        let known = usize::from(class == Class::Graceful);
        let admitted = match &self.admitted[known] {
            Some(admitted) => admitted.clone(),
            None => {
                let mut admitted = Admitted::default();
                for node in self.cluster.nodes.values() {
                    match admit(self, node, class) {
                        Ok(candidate) => admitted.candidates.push(candidate),
                        Err(reason) => admitted.refused.push((node.name, reason)),
                    }
                }
                self.admitted[known].insert(Rc::new(admitted)).clone()
            }
        };
        if class == Class::Graceful {
            self.notes.extend(admitted.refused.iter().cloned());
        }
        admitted.candidates.clone()
    }

    /// What the budgets of every pool allow for `reason` in this picture.
    pub fn allowances(&self, reason: DisruptionReason) -> BTreeMap<PoolName, Allowance> {
        let mut known = self.allowances.borrow_mut();
        known.entry(reason).or_insert_with(|| allowances(&self.cluster, reason, self.now)).clone()
    }

    pub fn note(&mut self, node: NodeName, code: &'static str, message: impl Into<String>) {
        self.notes.insert(node, KeepReason::new(code, message));
    }

    /// `candidate` would go for `reason`, but there is no room in `allowance`: that keeps it.
    pub fn limit(&mut self, candidate: &Candidate, allowance: &Allowance, reason: DisruptionReason) {
        self.notes.insert(candidate.node, KeepReason::limited(allowance, candidate.pool, reason));
        self.hold(candidate, allowance, reason);
    }

    /// `candidate` would go for `reason`, but for `allowance`, in which there is no room. That one goes after the other is the
    /// purpose of a budget; that none goes is something to know.
    pub fn hold(&mut self, candidate: &Candidate, allowance: &Allowance, reason: DisruptionReason) {
        if allowance.is_closed() {
            self.held.insert(candidate.node, reason);
        }
        // Windows close every day: that is no news.
        if allowance.allowed == 0 && allowance.shut.is_none() {
            self.blocked.insert((candidate.pool, reason));
        }
    }

    pub fn claim(&self, candidate: &Candidate) -> &Arc<NodeClaim> {
        self.cluster
            .claims
            .get(&candidate.claim)
            .expect("a candidate's claim is in the picture it was found in")
    }

    /// Pods of `node` that have to run elsewhere once it goes, by name; those that cannot be moved before included.
    pub fn leaving_pods(&self, node: NodeName) -> Vec<ObjectKey> {
        self.cluster.pods_of(node).filter(|pod| super::cost::has_to_move(pod)).map(|pod| pod.key).collect()
    }

    /// Where everything would go without `candidates`; pods go where `destinations` says, if they can.
    pub fn simulate_towards(
        &self,
        candidates: &[&Candidate],
        is_consolidation: bool,
        destinations: &BTreeMap<ObjectKey, Place>,
        fit: Fit,
    ) -> Simulated {
        let mut start = self.start.borrow_mut();
        let (ground, begun) = self.begun(&mut start, is_consolidation);
        self.simulate_after(ground, begun, candidates, destinations, fit)
    }

    /// Where everything would go without `candidate`, with nothing that has a place put on the nodes of `shut`.
    pub fn simulate_beside(&self, candidate: &Candidate, shut: &BTreeSet<NodeName>) -> Simulated {
        let mut start = self.start.borrow_mut();
        let ground =
            start.ground.get_or_insert_with(|| Box::new(Ground::new(&self.cluster, self.supply, &self.room)));
        let request = Request { mode: Mode::Simulation { settling: shut }, ..self.question() };
        let mut begun = self.begin_with(ground, &request);
        self.simulate_after(ground, &mut begun, &[candidate], &BTreeMap::new(), Fit::First)
    }

    fn simulate_after(
        &self,
        ground: &mut Ground,
        begun: &mut Begun,
        candidates: &[&Candidate],
        destinations: &BTreeMap<ObjectKey, Place>,
        fit: Fit,
    ) -> Simulated {
        let nodes: BTreeSet<NodeName> = candidates.iter().map(|candidate| candidate.node).collect();
        let claims: BTreeSet<ClaimName> = candidates.iter().map(|candidate| candidate.claim).collect();
        let own = moving_from(&self.cluster, nodes.iter().copied(), self.now);
        let pods: Vec<Arc<Pod>> = own.iter().chain(&self.room).cloned().collect();
        let mut planned = self.planned.clone();
        for pod in &own {
            if let Some(place) = destinations.get(&pod.key) {
                planned.insert(pod.key, Planned { turn: self.turn, place: *place });
            }
        }
        let request = Request {
            pods: &pods,
            without_nodes: &nodes,
            without_claims: &claims,
            planned: &planned,
            ..self.question()
        };
        let solution = go_on(ground, &mut begun.beginning, &request, fit);
        let mut homeless = self.homeless(&solution, &own);
        homeless.extend(begun.homeless.iter().cloned());
        homeless.sort();
        Simulated { solution, homeless }
    }

    /// The picture as it is now, prepared, with what needs a place whatever goes.
    fn begun<'s>(&self, start: &'s mut Start, is_consolidation: bool) -> (&'s mut Ground, &'s mut Begun) {
        let Start { ground, begun } = start;
        let ground =
            ground.get_or_insert_with(|| Box::new(Ground::new(&self.cluster, self.supply, &self.room)));
        let settling = if is_consolidation { &self.settling } else { nobody() };
        let request = Request { mode: Mode::Simulation { settling }, ..self.question() };
        let begun =
            begun[usize::from(is_consolidation)].get_or_insert_with(|| self.begin_with(ground, &request));
        (ground, begun)
    }

    /// Everything that takes pods, by name.
    pub fn places(&self) -> Vec<Place> {
        let nodes = self.cluster.nodes.keys().map(|name| Place::Node(*name));
        let claims = self.cluster.claims.values().filter(|claim| self.cluster.node_of(claim).is_none());
        nodes.chain(claims.map(|claim| Place::Claim(claim.name))).collect()
    }

    /// Begins to empty one node after the other; their pods are offered to what is at `order`.
    pub fn chain(&self, order: &[Place]) -> Chain {
        let mut start = self.start.borrow_mut();
        let (ground, begun) = self.begun(&mut start, true);
        let mut chain = Chain::after(&begun.beginning, ground, order);
        if !self.room.is_empty() {
            let room = chain.ask(ground, &Request { pods: &self.room, ..self.question() }, Fit::First);
            chain.take_up(room);
        }
        chain
    }

    /// Where its pods go, and those that were put there, if `candidate` goes as well; or which of them have no place.
    pub fn ask(&self, chain: &mut Chain, candidate: &Candidate, fit: Fit) -> Result<Link, Refused> {
        let mut start = self.start.borrow_mut();
        let (ground, begun) = self.begun(&mut start, true);
        if let Some((pod, why)) = begun.homeless.first() {
            return Err(no_place(pod, why));
        }
        if !begun.beginning.solution.new_nodes.is_empty() {
            return Err(needed_by_waiting_pods());
        }
        let pods = moving_from(&self.cluster, [candidate.node].into_iter(), self.now);
        let (nodes, claims) = (BTreeSet::from([candidate.node]), BTreeSet::from([candidate.claim]));
        let request =
            Request { pods: &pods, without_nodes: &nodes, without_claims: &claims, ..self.question() };
        let link = chain.ask(ground, &request, fit);
        if link.needs_new {
            return Err(needs_replacement());
        }
        let has_place = |pod: &ObjectKey| {
            let runs = self.cluster.pods.get(pod).is_some_and(|pod| pod.node.is_some());
            runs || self.hosting.has_place(pod)
        };
        if let Some(left) = link.left.iter().find(|left| has_place(&left.pod)) {
            return Err(no_place(&left.pod, &Refusal::tell(&left.reasons)));
        }
        let is_going = |pod: &Pod| pod.node.is_none_or(|node| ground.is_going(node));
        for (pod, to) in &link.moved {
            if let To::Existing(place) = to
                && !is_going(pod)
                && !self.is_reliable(place)
            {
                return Err(no_place(&pod.key, &self.not_ready(place)));
            }
        }
        Ok(link)
    }

    /// Whether no pod needs a place in this picture whatever goes, and no room is kept.
    pub fn places_nobody_yet(&self) -> bool {
        let mut start = self.start.borrow_mut();
        let Solution { existing, new_nodes, unschedulable } =
            &self.begun(&mut start, true).1.beginning.solution;
        self.room.is_empty() && existing.is_empty() && new_nodes.is_empty() && unschedulable.is_empty()
    }

    /// Whether answers of other pictures can be compared with those of this one: of pods that stand for room, of defaults that depend on
    /// other objects and of what nobody can read they rely on more.
    pub fn is_followable(&self) -> bool {
        self.room.is_empty()
            && self.scheduling.default_spreads.is_empty()
            && self.cluster.strangers.is_empty()
    }

    /// What answers rely on as long as nothing was taken up in `chain`. `None`: more than can be compared.
    pub fn footing(&self, chain: &Chain) -> Option<Footing> {
        let mut start = self.start.borrow_mut();
        let (ground, begun) = self.begun(&mut start, true);
        chain.footing(ground).filter(|_| begun.homeless.is_empty())
    }

    /// Whether an answer that relied on this, in a picture that has these `differences` from this one, is the same here.
    pub fn still_answers(&self, chain: &Chain, differences: &mut Differences, relied: &Relied) -> bool {
        let mut start = self.start.borrow_mut();
        let (ground, _) = self.begun(&mut start, true);
        chain.still_answers(relied, differences, ground)
    }

    /// New nodes of `link`, by their numbers.
    pub fn new_nodes_of(&self, link: &Link, numbers: &BTreeSet<usize>) -> Vec<NewNode> {
        let mut start = self.start.borrow_mut();
        let (ground, _) = self.begun(&mut start, true);
        numbers.iter().map(|at| link.new_node(ground, self.scheduling, *at)).collect()
    }

    /// Where the pods of `nodes` would go without `gone`, whose other pods will have left, too. Of all that have to leave only those
    /// count that have been given a place, and what was made for them is theirs.
    pub fn simulate_alone(&self, nodes: &[NodeName], gone: &BTreeSet<ClaimName>) -> Solution {
        let mut start = self.start.borrow_mut();
        let ground =
            start.ground.get_or_insert_with(|| Box::new(Ground::new(&self.cluster, self.supply, &self.room)));
        let own: BTreeSet<NodeName> = nodes.iter().copied().collect();
        let gone_nodes = gone.iter().filter_map(|name| self.cluster.node_of(self.cluster.claims.get(name)?));
        let leaving: BTreeSet<NodeName> = gone_nodes.map(|node| node.name).chain(ground.going()).collect();
        let others = moving_from(&self.cluster, leaving.difference(&own).copied(), self.now);
        let is_placed = |pod: &Arc<Pod>| self.planned.contains_key(&pod.key);
        let (mut pods, departing): (Vec<Arc<Pod>>, Vec<Arc<Pod>>) = others.into_iter().partition(is_placed);
        pods.extend(self.waiting.iter().filter(|pod| is_placed(pod)).cloned());
        pods.extend(moving_from(&self.cluster, own.into_iter(), self.now));
        let request = Request {
            pods: &pods,
            departing: &departing,
            without_claims: gone,
            shut_claims: &self.made,
            ..self.question()
        };
        scheduling::solve_on(ground, &request)
    }

    /// What is asked in this picture, about nobody.
    fn question(&self) -> Request<'_> {
        Request {
            cluster: &self.cluster,
            supply: self.supply,
            now: self.now,
            pods: &[],
            departing: &[],
            without_nodes: nobody(),
            without_claims: nobody(),
            shut_claims: nobody(),
            planned: &self.planned,
            used_at_least: &self.used_at_least,
            settings: self.scheduling,
            mode: Mode::Simulation { settling: nobody() },
        }
    }

    /// Places the pods that need a place in any case.
    fn begin_with(&self, ground: &mut Ground, request: &Request) -> Begun {
        let going = moving_from(&self.cluster, ground.going(), self.now);
        let waiting =
            self.waiting.iter().filter(|pod| !self.is_provisioned || self.planned.contains_key(&pod.key));
        let pods: Vec<Arc<Pod>> = waiting.chain(&going).cloned().collect();
        let beginning = begin(ground, &Request { pods: &pods, ..*request });
        let going: FastSet<ObjectKey> = going.iter().map(|pod| pod.key).collect();
        let left = beginning.solution.unschedulable.iter().filter(|pod| going.contains(&pod.pod));
        let homeless = left.map(|pod| (pod.pod, Refusal::tell(&pod.reasons))).collect();
        Begun { beginning, homeless }
    }

    /// Running pods (and kept room) without a place, or with one on a node that nobody can rely on yet.
    fn homeless(&self, solution: &Solution, own: &[Arc<Pod>]) -> Vec<(ObjectKey, String)> {
        let own: FastSet<ObjectKey> = own.iter().map(|pod| pod.key).collect();
        let mut homeless = Vec::new();
        for pod in &solution.unschedulable {
            // Of the others, those that run lose the place that they were about to get.
            let runs = || self.cluster.pods.get(&pod.pod).is_some_and(|pod| pod.node.is_some());
            if own.contains(&pod.pod) || self.hosting.has_place(&pod.pod) || runs() {
                homeless.push((pod.pod, Refusal::tell(&pod.reasons)));
            }
        }
        for (place, pods) in &solution.existing {
            if !pods.iter().any(|pod| own.contains(pod)) || self.is_reliable(place) {
                continue;
            }
            let placed = pods.iter().filter(|pod| own.contains(*pod));
            homeless.extend(placed.map(|pod| (*pod, self.not_ready(place))));
        }
        homeless
    }

    /// Why nobody can rely on `place` yet.
    fn not_ready(&self, place: &Place) -> String {
        match place {
            // What it will be called is not known yet.
            Place::Claim(name) if self.made.contains(name) => {
                "would schedule against a node that is only about to be bought".to_owned()
            }
            Place::Claim(name) => format!("would schedule against uninitialized nodeclaim/{name}"),
            Place::Node(name) => format!("would schedule against uninitialized node/{name}"),
        }
    }

    /// A node that is initialized, or not ours.
    pub fn is_reliable(&self, place: &Place) -> bool {
        match place {
            Place::Claim(_) => false,
            Place::Node(name) => self.cluster.nodes.get(name).is_none_or(|node| {
                self.cluster.claim_of(node).is_none() || super::candidates::is_true(node, *label::INITIALIZED)
            }),
        }
    }

    /// The new nodes of a simulation as replacements for those with `pods`: other pods on them are not the command's business,
    /// but the room that they keep is theirs.
    pub fn replacements(&self, solution: &Solution, pods: &[ObjectKey]) -> Vec<NewNode> {
        let mut kept: FastSet<ObjectKey> = pods.iter().copied().collect();
        kept.extend(self.room.iter().map(|pod| pod.key));
        let own = |node: &NewNode| {
            let pods = node.pods.iter().filter(|pod| kept.contains(*pod)).copied().collect();
            NewNode { pods, ..node.clone() }
        };
        solution.new_nodes.iter().map(own).collect()
    }

    /// Carries out in this picture what `solution` says of waiting pods: nodes are nominated, new ones are on their way.
    pub fn provision(&mut self, solution: &Solution) {
        self.is_provisioned = true;
        self.turn += 1;
        for (place, pods) in &solution.existing {
            self.give(pods, *place);
            if let Place::Node(name) = place
                && pods.iter().any(|pod| self.cluster.pods.contains_key(pod))
            {
                self.nominated.entry(*name).or_default();
            }
        }
        self.host(Hosting::of(&self.room, solution));
        self.buy(&solution.new_nodes);
        self.change();
    }

    /// Finds out where the room is that is to be kept.
    pub fn find_room(&mut self) {
        if self.room.is_empty() {
            return;
        }
        let mut pods = self.waiting.clone();
        pods.extend(moving_pods(&self.cluster, self.now));
        pods.extend(self.room.iter().cloned());
        let solution = scheduling::solve(&Request { pods: &pods, ..self.question() });
        self.host(Hosting::of(&self.room, &solution));
    }

    /// Takes over where the room is that is to be kept.
    pub fn host(&mut self, hosting: Hosting) {
        self.hosts = hosting.nodes(&self.cluster);
        self.hosting = hosting;
    }

    /// Starts `command` in this picture: its nodes are on their way out, its replacements on their way in.
    pub fn start(&mut self, command: &Command) {
        self.turn += 1;
        self.tries.start(command);
        // What waits for replacements, or to be looked at again, takes its part of the limits meanwhile.
        let is_limited =
            |pool: &PoolName| self.cluster.pools.get(pool).is_none_or(|pool| pool.limits.is_some());
        let limited: BTreeSet<PoolName> = command.pools.iter().copied().filter(is_limited).collect();
        if !limited.is_empty() && (!command.replacements.is_empty() || command.method.is_validated()) {
            let used = match &self.start.get_mut().ground {
                Some(ground) => ground.used().clone(),
                None => usage_by_pool(&self.cluster, self.supply),
            };
            for (pool, used) in used.iter().filter(|(pool, _)| limited.contains(pool)) {
                self.used_at_least.entry(*pool).or_default().raise(used);
            }
        }
        for claim in &command.claims {
            if let Some(known) = self.cluster.claims.get(claim) {
                let deleted = Some(known.deleted.unwrap_or(self.now));
                self.cluster.put_claim(Arc::new(NodeClaim { deleted, ..(**known).clone() }));
            }
        }
        for (pod, to) in &command.pods {
            if let super::Destination::Existing(place) = to {
                self.give(&[*pod], *place);
            }
            if let super::Destination::Existing(Place::Node(name)) = to {
                self.nominated.entry(*name).or_default();
            }
        }
        self.buy(&command.replacements);
        self.change();
        for node in &command.nodes {
            self.notes.remove(node);
        }
    }

    /// `pods` have been given `place`, now if not before.
    fn give(&mut self, pods: &[ObjectKey], place: Place) {
        for pod in pods {
            if self.planned.get(pod).is_none_or(|known| known.place != place) {
                self.planned.insert(*pod, Planned { turn: self.turn, place });
            }
        }
    }

    /// Claims for `nodes`, launched as the cheapest that each may be, not joined.
    pub fn buy(&mut self, nodes: &[NewNode]) {
        if nodes.is_empty() {
            return;
        }
        let solution = Solution { new_nodes: nodes.to_vec(), ..Solution::default() };
        let seed = self.made.len() as u64;
        let settings = self.scheduling;
        let purchase =
            provisioning::claims_for(&self.cluster, self.supply, &solution, settings, self.now, seed);
        let dropped: BTreeSet<usize> = purchase.dropped.iter().map(|(at, _)| *at).collect();
        let bought = nodes.iter().enumerate().filter(|(at, _)| !dropped.contains(at)).map(|(_, node)| node);
        for ((claim, pods), node) in purchase.claims.into_iter().zip(bought) {
            self.made.insert(claim.name);
            self.give(&pods, Place::Claim(claim.name));
            let launched = launched(&claim, node, self.supply, self.now);
            self.cluster.put_claim(Arc::new(launched));
        }
    }
}

fn nobody<T>() -> &'static BTreeSet<T> {
    const { &BTreeSet::new() }
}

/// `claim` as its launch would leave it.
pub(crate) fn launched(claim: &NodeClaim, node: &NewNode, supply: &Supply, now: Timestamp) -> NodeClaim {
    let option = node.launch();
    let mut claim = claim.clone();
    let types = supply.types(node.pool);
    if let Some(kind) = types.iter().find(|kind| kind.name == option.instance_type) {
        for (key, value) in kind.labels_for(&claim.spec.requirements) {
            claim.labels.entry(key).or_insert(value);
        }
        claim.capacity = kind.capacity.clone();
        claim.allocatable = kind.allocatable.clone();
    }
    claim.labels.insert(*label::INSTANCE_TYPE, option.instance_type.0);
    claim.labels.insert(*label::ZONE, option.zone.0);
    claim.labels.insert(*label::CAPACITY_TYPE, option.capacity_type.symbol());
    claim.provider_id = Some(ProviderId::new(&format!("planned:///{}/{}", option.zone, claim.name)));
    claim.conditions.set(ConditionType::Launched, ConditionStatus::True, "Launched", "", now);
    claim
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_ground_has_followed_it_need_not_follow_again() {
        let (cluster, now) = (Cluster::default(), Timestamp::UNIX_EPOCH);
        let (scheduling, settings) = (scheduling::Settings::default(), Settings::default());
        let supply = Supply::of(&cluster, &scheduling);
        let kept = Box::new(Ground::new(&cluster, &supply, &[]));
        let mut round = Round::new(cluster, &supply, &scheduling, &settings, now);
        let news = Touched { nodes: [NodeName::new("changed")].into(), ..Touched::default() };
        round.borrow(kept, news);
        let (ground, touched) = round.give_back();
        assert!(ground.is_some(), "it is of use again");
        assert!(touched.nodes.is_empty(), "{touched:?}");
    }
}
