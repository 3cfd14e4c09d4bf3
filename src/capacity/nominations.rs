//! The room of a new node is kept for the pods that it was bought for.
//!
//! A node opens to every pod that waits: kube-scheduler spreads small ones over it, those that it was bought for find it full,
//! and another is bought for them. A pod's `status.nominatedNodeName` makes kube-scheduler try that node first for the pod,
//! and keep its room from pods of the same or a lower priority (KEP-1923; KEP-5278 says that a provisioner may write it).
//! It stays a wish: kube-scheduler clears it when it tries the pod before it has seen that the node is ready. So a node that pods
//! wait for stays closed until it is ready, they are told then, and it opens when they have heard (`openings.rs`). Whoever forgets it
//! all the same is told again as long as its room is free; who loses it to another gets the room that the other one left; and a pod
//! that does not fit there after all is placed like any other, by kube-scheduler and by us.
//!
//! Each pod that is told is a request to the API server, and kube-scheduler judges every node with and without those that are
//! promised to it. So of a crowd the smallest pods, which fit where any other would, are not told, and of a huge one not all others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::decision::Steps;
use super::lifecycle::is_closed;
use super::plans::Plans;
use super::queue::Queue;
use super::scheduling::{Place, could_run};
use crate::model::action::Action;
use crate::model::claim::ConditionType;
use crate::model::name::{ClaimName, NodeName, ObjectKey, Uid};
use crate::model::node::Node;
use crate::model::pod::{Pod, PodShape};
use crate::model::quantity::{Resources, resource};

/// So long after a node is ready for pods kube-scheduler has surely tried it.
const PATIENCE: SignedDuration = SignedDuration::from_secs(20);
/// So long it may take kube-scheduler where it has too much to do: none waits longer in its queues. It counts as busy as long as it
/// binds a pod of its queue at least every `PATIENCE`; for pods that it has not tried about when the node opened, also as long as it
/// has bound none of those that were told since.
const PATIENCE_MOST: SignedDuration = SignedDuration::from_mins(5);
/// A nomination that was written so long before the node was ready, and stands, was not tried since.
const EVIDENCE: SignedDuration = SignedDuration::from_secs(5);
/// One that was cleared so soon after it was decided that the node opens may have been tried before kube-scheduler knew of it.
const OPENING: SignedDuration = SignedDuration::from_secs(10);
/// A pod that is bound so long after it was made had to queue, or waited for a node: most others take less than a second.
const QUEUED: SignedDuration = SignedDuration::from_secs(5);
/// After so long without another of those that were told being bound, who took whose room is clear.
const SETTLED: SignedDuration = SignedDuration::from_secs(3);
/// Nobody waits longer for that, but pods of a crowd: they wait for `PATIENCE_MOST`, because what is bought for each of them while
/// others find their places stands empty afterwards.
const SETTLED_MOST: SignedDuration = SignedDuration::from_mins(1);
/// Of more pods than this that are planned together, those that fit anywhere are not told.
const CROWD: usize = 1_000;
/// No more wait with a nomination at once.
const TOLD_MAX: usize = 3_000;
/// As long as no more wait with a nomination, those that lose it are told again together; and no more are told in one wave.
pub(super) const FEW: usize = 50;
/// kube-scheduler tries again all that it finds no room for when one of them loses its nomination, for that room is free now; whoever
/// is told meanwhile loses it again. So they are told when none has lost it for so long, and for twice as long each further time.
pub(super) const CALM: SignedDuration = SignedDuration::from_millis(100);
const CALM_MOST: SignedDuration = SignedDuration::from_millis(400);
/// A nomination that was not seen by then was lost, or cleared at once.
const UNHEARD: SignedDuration = SignedDuration::from_secs(3);

#[derive(Clone, Debug)]
pub(crate) struct Nominations {
    /// If not, nobody is told.
    is_wanted: bool,
    /// Waiting pods whose nomination is from us.
    told: BTreeMap<Uid, Told>,
    /// Those of them that do not have it, and when they are told again.
    unheard: BTreeMap<ObjectKey, Timestamp>,
    /// When waiting pods were last seen without a nomination: then kube-scheduler tried them, or they were made.
    tried: BTreeMap<Uid, Timestamp>,
    /// Those that it has yet to try.
    queue: Queue,
    /// When one of those that were told was last seen with it for the first time.
    heard: Option<Timestamp>,
    bound: LastBound,
    /// Claims that were made for a crowd, and what its smallest pods ask for, if all others ask for as much of everything: any
    /// room that was bought for a pod of it holds them.
    crowds: BTreeMap<ClaimName, Option<Arc<Resources>>>,
    /// Who waits at each node that keeps room, as of the last change there.
    stays: BTreeMap<NodeName, Stay>,
}

/// When kube-scheduler was last seen to bind a pod.
#[derive(Clone, Copy, Default, Debug)]
struct LastBound {
    /// One that had queued.
    queued: Option<Timestamp>,
    /// One of those that were told.
    told: Option<Timestamp>,
}

/// Pods for which a node keeps room, and until when.
#[derive(Clone, PartialEq, Debug)]
struct Stay {
    pods: Vec<(ObjectKey, End)>,
    /// The earliest end of each kind.
    firsts: Vec<End>,
    /// Once the node is open.
    room: Option<KeptRoom>,
}

/// When room is kept for a pod no longer; never, unless its node is open or gone.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum End {
    At(Timestamp),
    /// When kube-scheduler has bound nobody of its queue for a while.
    Idle,
    /// The same, once it has bound one of those that were told; if the room is taken, as soon as it is clear by whom.
    Settled,
}

impl End {
    fn at(self, room: Option<&KeptRoom>, bound: LastBound) -> Option<Timestamp> {
        match self {
            Self::At(at) => Some(at),
            Self::Idle => room.map(|room| room.idle(bound)),
            Self::Settled => room.map(|room| room.settled(bound)),
        }
    }
}

/// Room on an open node.
#[derive(Clone, PartialEq, Debug)]
struct KeptRoom {
    /// When the node opened.
    since: Timestamp,
    /// Who is bound there has taken it.
    is_taken: bool,
    most: Timestamp,
    settled_most: Timestamp,
}

impl KeptRoom {
    fn settled(&self, bound: LastBound) -> Timestamp {
        match bound.told.filter(|told| *told >= self.since) {
            // Some of them find another place, as soon as it is clear who took it.
            told if self.is_taken => (told.unwrap_or(self.since) + SETTLED).min(self.settled_most),
            None => self.most,
            Some(_) => self.idle(bound),
        }
    }

    fn idle(&self, bound: LastBound) -> Timestamp {
        (bound.queued.map_or(self.since, |queued| queued.max(self.since)) + PATIENCE).min(self.most)
    }
}

impl Stay {
    fn at(name: NodeName, nominations: &Nominations, cluster: &Cluster) -> Self {
        let pods = cluster.expected_at(name);
        let node = cluster.nodes.get(&name).filter(|node| node.deleted.is_none());
        let claim = node.and_then(|node| Some((node, cluster.claim_of(node)?)));
        let Some((node, claim)) = claim.filter(|(_, claim)| claim.deleted.is_none()) else {
            let over = End::At(Timestamp::MIN);
            return Self::of(pods.map(|pod| (pod.key, over)).collect(), None);
        };
        let Some(since) = claim.conditions.true_since(ConditionType::Initialized) else {
            return Self::of(pods.map(|pod| (pod.key, End::Settled)).collect(), None);
        };
        let most = since + PATIENCE_MOST;
        let is_taken = !has_room(node, cluster);
        let until = |pod: &Pod| match nominations.refused(pod, since) {
            _ if nominations.is_untried(pod, node) => End::At(most),
            _ if is_taken => End::Settled,
            // It was tried there, and something but room stands against it.
            Some(refused) if refused >= since + OPENING => End::At(since + PATIENCE),
            Some(_) => End::Idle,
            None => End::Settled,
        };
        let pods: Vec<(ObjectKey, End)> = pods.map(|pod| (pod.key, until(pod))).collect();
        let settled_most = match nominations.is_of_crowd(claim.name) {
            true => most,
            false => since + SETTLED_MOST,
        };
        Self::of(pods, Some(KeptRoom { since, is_taken, most, settled_most }))
    }

    fn of(pods: Vec<(ObjectKey, End)>, room: Option<KeptRoom>) -> Self {
        let ends = || pods.iter().map(|(_, end)| *end);
        let own = ends().filter(|end| matches!(end, End::At(_))).min();
        let shared = [End::Idle, End::Settled].into_iter().filter(|kind| ends().any(|end| end == *kind));
        let firsts = own.into_iter().chain(shared).collect();
        Self { pods, firsts, room }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    node: NodeName,
    /// What was written before, as long as nothing else was seen.
    former: Option<NodeName>,
    /// It was written, whether it arrived or not.
    is_sent: bool,
    /// When it was written last; before that, when it got its room.
    at: Timestamp,
    /// Its node opened only after it was written.
    is_before_opening: bool,
    /// The pod was seen with it.
    is_heard: bool,
    /// When kube-scheduler was last seen to have cleared it, and how often it was.
    cleared: Option<Timestamp>,
    losses: u32,
}

impl Told {
    fn is_untold(&self) -> bool {
        !self.is_heard && !self.is_before_opening
    }

    /// When kube-scheduler is taken to be through with those that it tries because of its last loss.
    fn calm(&self) -> Option<Timestamp> {
        let doubled = CALM * (1 << self.losses.saturating_sub(1).min(10));
        self.cleared.map(|cleared| cleared + doubled.min(CALM_MOST))
    }
}

impl Nominations {
    pub fn new(is_wanted: bool) -> Self {
        Self {
            is_wanted,
            told: BTreeMap::new(),
            unheard: BTreeMap::new(),
            tried: BTreeMap::new(),
            queue: Queue::default(),
            heard: None,
            bound: LastBound::default(),
            crowds: BTreeMap::new(),
            stays: BTreeMap::new(),
        }
    }

    /// `claims` are made together for `pods`.
    pub fn note_crowd<'p>(
        &mut self,
        claims: impl Iterator<Item = ClaimName>,
        pods: impl Iterator<Item = &'p Arc<Pod>> + Clone,
    ) {
        if self.is_wanted && pods.clone().nth(CROWD).is_some() {
            let smallest = smallest_of(pods.map(|pod| &pod.shape.requests)).map(Arc::new);
            self.crowds.extend(claims.map(|claim| (claim, smallest.clone())));
        }
    }

    /// Whether `claim` was made for a crowd.
    pub fn is_of_crowd(&self, claim: ClaimName) -> bool {
        self.crowds.contains_key(&claim)
    }

    /// Nothing comes of it any more.
    pub fn forget_claim(&mut self, claim: ClaimName) {
        self.crowds.remove(&claim);
    }

    /// Whether pods wait for the machine of `claim`, and are to be told its node.
    pub fn is_promised(&self, plans: &Plans, claim: ClaimName, cluster: &Cluster) -> bool {
        self.those_to_tell(plans, claim, cluster).next().is_some()
    }

    /// Pods that wait for the machine of `claim`, but for those of a crowd that fit anywhere.
    fn those_to_tell<'a>(
        &'a self,
        plans: &'a Plans,
        claim: ClaimName,
        cluster: &'a Cluster,
    ) -> impl Iterator<Item = &'a Arc<Pod>> {
        let smallest = self.crowds.get(&claim).and_then(Option::as_deref);
        let fits_anywhere =
            move |pod: &Pod| smallest == Some(&pod.shape.requests) && pod.shape.fits_anywhere();
        let planned = plans.pods_of(claim).filter(|_| self.is_wanted);
        let planned = planned.filter_map(|key| cluster.pods.get(&key).filter(|pod| has_no_node(pod)));
        planned.filter(move |pod| !fits_anywhere(pod))
    }

    /// The machine of `claim` has become `node`: the pods that are planned there have their room from now on.
    pub fn promise(
        &mut self,
        plans: &Plans,
        claim: ClaimName,
        node: NodeName,
        cluster: &mut Cluster,
        now: Timestamp,
    ) {
        for pod in self.yet_to_promise(plans, claim, node, cluster) {
            self.keep_room(&pod, node, cluster, now);
        }
    }

    /// `pods` are planned at `node`, the machine of `claim`, after it joined and before it is open: they have their room, too.
    pub fn promise_more(
        &mut self,
        plans: &Plans,
        (claim, node): (ClaimName, NodeName),
        pods: &[ObjectKey],
        cluster: &mut Cluster,
        now: Timestamp,
    ) {
        let others = self.yet_to_promise(plans, claim, node, cluster).into_iter();
        for pod in others.filter(|pod| pods.contains(&pod.key)) {
            self.keep_room(&pod, node, cluster, now);
        }
    }

    /// The largest first: where there is no time for all, small ones find another place more easily.
    fn yet_to_promise(
        &self,
        plans: &Plans,
        claim: ClaimName,
        node: NodeName,
        cluster: &Cluster,
    ) -> Vec<Arc<Pod>> {
        let pods = self.those_to_tell(plans, claim, cluster);
        let mut pods: Vec<Arc<Pod>> =
            pods.filter(|pod| cluster.expected_on(pod.key) != Some(node)).cloned().collect();
        pods.sort_by_key(|pod| Reverse((pod.shape.requests.cpu(), pod.shape.requests.memory())));
        pods.truncate(TOLD_MAX.saturating_sub(cluster.expected()));
        pods
    }

    fn keep_room(&mut self, pod: &Pod, node: NodeName, cluster: &mut Cluster, now: Timestamp) {
        let former = self.told.get(&pod.uid).and_then(|told| match told.is_sent {
            true => Some(told.node),
            false => told.former,
        });
        let told = Told {
            node,
            former,
            is_sent: false,
            at: now,
            is_before_opening: false,
            is_heard: false,
            cleared: None,
            losses: 0,
        };
        self.told.insert(pod.uid, told);
        cluster.expect(pod.key, node);
    }

    /// `pod` is bound to `node` and was planned elsewhere: those whose room it took there get the room that it left. Whoever
    /// kube-scheduler tries first takes the room of an equal as well as its own, and only who runs where has changed. Tells who waits
    /// again, for a machine that is no node yet.
    pub fn exchange(
        &mut self,
        plans: &mut Plans,
        pod: &Pod,
        node: NodeName,
        cluster: &mut Cluster,
        now: Timestamp,
    ) -> Vec<Uid> {
        let mut waiting = Vec::new();
        let Some(Place::Claim(home)) = plans.places().get(&pod.key).map(|planned| planned.place) else {
            return waiting;
        };
        let Some(host) = cluster.nodes.get(&node).cloned() else { return waiting };
        let is_home = cluster.claim_of(&host).is_none_or(|claim| claim.name == home);
        if is_home || cluster.claims.get(&home).is_none_or(|claim| claim.deleted.is_some()) {
            return waiting;
        }
        let room = cluster.expected_on(pod.key).or_else(|| only_node_of(home, cluster));
        let mut used = used_at(node, cluster).plus(&pod.shape.requests);
        // Several small ones have the room of a large one.
        let mut left = pod.shape.requests.clone();
        left.set(*resource::PODS, host.allocatable.pods());
        while !used.fits(&host.allocatable) {
            let Some(other) = self.who_moves(pod, &left, node, cluster) else { return waiting };
            left.subtract(&other.shape.requests);
            used.subtract(&other.shape.requests);
            plans.plan([other.key], Place::Claim(home));
            cluster.expect_no_more(other.key);
            // As long as the machine of its new claim is no node, it waits for it as the others do.
            let Some(room) = room else {
                waiting.push(other.uid);
                continue;
            };
            self.keep_room(&other, room, cluster, now);
            // As long as it is not told, it keeps others from the room that it had.
            self.unheard.insert(other.key, now);
        }
        waiting
    }

    /// Who of those that are expected at `node` may as well go where `pod` was to run, and fits into what is `left` there: best an
    /// equal that kube-scheduler has refused already.
    fn who_moves(&self, pod: &Pod, left: &Resources, node: NodeName, cluster: &Cluster) -> Option<Arc<Pod>> {
        let moves = cluster
            .expected_at(node)
            .filter(|other| may_swap(&pod.shape, &other.shape) && other.shape.requests.fits(left));
        let moves = moves.max_by_key(|other| {
            let is_heard = self.told.get(&other.uid).is_some_and(|told| told.is_heard);
            let requests = &other.shape.requests;
            (other.shape == pod.shape, requests.cpu(), requests.memory(), !is_heard, Reverse(other.key))
        });
        moves.cloned()
    }

    /// Whether `node` keeps room for pods that are to be told.
    pub fn keeps_room(&self, node: NodeName, cluster: &Cluster) -> bool {
        self.told_at(node, cluster).next().is_some()
    }

    /// Whether each of them has what it was told, as far as is known.
    pub fn is_known_to_all(&self, node: NodeName, cluster: &Cluster) -> bool {
        self.told_at(node, cluster).all(|told| told.is_heard)
    }

    /// Whether each of them was seen with what it was told, or has lost it again.
    pub fn is_heard_by_all(&self, node: NodeName, cluster: &Cluster) -> bool {
        self.told_at(node, cluster).all(|told| told.is_heard || told.cleared.is_some())
    }

    /// Whether one of them has lost it and not heard again.
    pub fn is_forgotten_by_some(&self, node: NodeName, cluster: &Cluster) -> bool {
        self.told_at(node, cluster).any(|told| !told.is_heard && told.cleared.is_some())
    }

    /// Whether `node` has room for a pod that was told another one of `nodes`.
    pub fn has_room_for_others(&self, node: NodeName, nodes: &BTreeSet<NodeName>, cluster: &Cluster) -> bool {
        let Some(host) = cluster.nodes.get(&node) else { return false };
        let spare = self.spare_room(host, cluster);
        let others = nodes.iter().filter(|other| **other != node);
        let mut pods = others.flat_map(|other| waiting_at(*other, cluster));
        pods.any(|pod| pod.shape.requests.fits(&spare) && could_run(&pod.shape, host))
    }

    /// Whether one waits for whom one of `nodes` keeps its room, and it is open: kube-scheduler has yet to come to it, or to come back.
    pub fn are_some_late(&self, nodes: &BTreeSet<NodeName>, cluster: &Cluster) -> bool {
        let mut open =
            nodes.iter().filter_map(|node| cluster.nodes.get(node)).filter(|node| !is_closed(node));
        open.any(|node| self.keeps_room(node.name, cluster) && has_room(node, cluster))
    }

    /// Those of `nodes` whose pods could take the room of others than their like on another one of them, or lose theirs so. Of those
    /// that are alike only who runs where changes by it.
    pub fn those_that_mix(&self, nodes: &BTreeSet<NodeName>, cluster: &Cluster) -> BTreeSet<NodeName> {
        let takes = |pod: &Pod, host: &Node| {
            let is_unlike = |other: &Arc<Pod>| {
                pod.shape.requests != other.shape.requests || !may_swap(&pod.shape, &other.shape)
            };
            waiting_at(host.name, cluster).any(is_unlike)
                && pod.shape.requests.fits(&host.allocatable)
                && could_run(&pod.shape, host)
        };
        let hosts: Vec<&Arc<Node>> = nodes.iter().filter_map(|node| cluster.nodes.get(node)).collect();
        let mut mixed = BTreeSet::new();
        for (home, host) in hosts.iter().flat_map(|home| hosts.iter().map(move |host| (home, host))) {
            if home.name != host.name && waiting_at(home.name, cluster).any(|pod| takes(pod, host)) {
                mixed.extend([home.name, host.name]);
            }
        }
        mixed
    }

    /// What is free on `node` for others than those that know that it is theirs, once there is what it was bought for at the least: the
    /// pods of DaemonSets are part of that, and may come later.
    fn spare_room(&self, node: &Node, cluster: &Cluster) -> Resources {
        let mut used = used_at(node.name, cluster);
        used.raise(&cluster.claim_of(node).map(|claim| claim.spec.requests.clone()).unwrap_or_default());
        let mut spare = node.allocatable.minus(&used);
        let is_unaware = |pod: &&Arc<Pod>| self.told.get(&pod.uid).is_some_and(|told| !told.is_heard);
        let unaware = cluster.expected_at(node.name).filter(is_unaware);
        unaware.for_each(|pod| spare.add(&pod.shape.requests));
        spare
    }

    /// When one of them was last seen to have lost it.
    pub fn last_cleared(&self, node: NodeName, cluster: &Cluster) -> Option<Timestamp> {
        self.told_at(node, cluster).filter_map(|told| told.cleared).max()
    }

    pub fn last_heard(&self) -> Option<Timestamp> {
        self.heard
    }

    /// What those were told for whom `node` keeps room.
    pub fn told_at<'a>(&'a self, node: NodeName, cluster: &'a Cluster) -> impl Iterator<Item = &'a Told> {
        waiting_at(node, cluster).filter_map(|pod| self.told.get(&pod.uid))
    }

    /// Whose pods are to be told next. Whom kube-scheduler tries for the first time between being told and the opening forgets: so
    /// first those whose pods it has tried, and then those to which it comes last.
    pub fn put_in_order(&self, nodes: &mut VecDeque<NodeName>, cluster: &Cluster) {
        let first = |node: &NodeName| {
            waiting_at(*node, cluster).filter_map(|pod| self.queue.position_of(pod)).min().map(Reverse)
        };
        nodes.make_contiguous().sort_by_cached_key(first);
    }

    /// Nodes of pods that kube-scheduler is about to try for the first time, and until when it counts as about to, if it tries nobody.
    pub fn tried_next(&self, cluster: &Cluster, now: Timestamp) -> BTreeMap<NodeName, Timestamp> {
        let next = self.queue.next(now);
        next.filter_map(|(pod, until)| Some((cluster.expected_on(pod)?, until))).collect()
    }

    /// `nodes` open together, which takes the API server a while: last those with larger pods that kube-scheduler tries meanwhile. Whom
    /// it tries before its node is open forgets it, and others take the room if it opens then; a small pod finds another place.
    /// And how many have larger pods.
    pub fn in_order_of_opening(
        &self,
        nodes: &BTreeSet<NodeName>,
        cluster: &Cluster,
    ) -> (Vec<NodeName>, usize) {
        let pods = |node: &NodeName| waiting_at(*node, cluster);
        let claims = nodes.iter().filter_map(|node| cluster.claim_of(cluster.nodes.get(node)?));
        let untold = claims.filter_map(|claim| self.crowds.get(&claim.name)?.as_deref());
        let requests = nodes.iter().flat_map(pods).map(|pod| &pod.shape.requests).chain(untold);
        let smallest = requests.min_by_key(|requests| (requests.cpu(), requests.memory()));
        let is_larger = |pod: &&Arc<Pod>| smallest.is_some_and(|least| !pod.shape.requests.fits(least));
        let first_tried =
            |node: &NodeName| pods(node).filter(is_larger).filter_map(|pod| self.tried.get(&pod.uid)).min();
        let mut nodes: Vec<(Option<Reverse<Timestamp>>, NodeName)> =
            nodes.iter().map(|node| (first_tried(node).copied().map(Reverse), *node)).collect();
        nodes.sort();
        let with_larger = nodes.iter().filter(|(tried, _)| tried.is_some()).count();
        (nodes.into_iter().map(|(_, node)| node).collect(), with_larger)
    }

    /// `nodes` are about to open to all: those that have room there are told before. kube-scheduler tries next whom it has not tried for
    /// the longest time: they are told last, so that the fewest are tried in between.
    pub fn tell(&mut self, nodes: &[NodeName], cluster: &Cluster, now: Timestamp) -> Steps {
        let mut steps = Steps::default();
        let claims = nodes.iter().filter_map(|name| {
            let claim = cluster.nodes.get(name).and_then(|node| cluster.claim_of(node))?;
            Some((*name, claim.name))
        });
        let mut pods: Vec<(&Arc<Pod>, NodeName, ClaimName)> = claims
            .flat_map(|(node, claim)| cluster.expected_at(node).map(move |pod| (pod, node, claim)))
            .filter(|(pod, ..)| has_no_node(pod))
            .collect();
        pods.sort_by_key(|(pod, ..)| Reverse(self.tried.get(&pod.uid)));
        for (pod, node, claim) in pods {
            let Some(told) = self.told.get_mut(&pod.uid).filter(|told| told.is_untold()) else { continue };
            (told.at, told.is_sent, told.is_before_opening) = (now, true, true);
            let message = format!("{claim} was bought for it");
            self.unheard.insert(pod.key, now + UNHEARD);
            let (key, uid) = (pod.key, pod.uid);
            steps.push(
                Action::NominatePod { pod: key, uid, node, before_opening: true },
                "Nominated",
                message,
            );
        }
        steps
    }

    /// Those whose nomination was cleared or lost are told once more, while their node is on its way, and later as long as
    /// nobody else has taken their room.
    pub fn tell_again(&mut self, cluster: &Cluster, now: Timestamp) -> Steps {
        let mut steps = Steps::default();
        let due: Vec<ObjectKey> =
            self.unheard.iter().filter(|(_, at)| **at <= now).map(|(key, _)| *key).collect();
        let are_few = cluster.expected() <= FEW;
        let told = || cluster.hosts().flat_map(|host| self.told_at(host, cluster));
        let calm = are_few.then(|| told().filter_map(Told::calm).max()).flatten();
        for key in due {
            let pod = cluster.pods.get(&key).filter(|pod| has_no_node(pod) && cluster.is_expected(key));
            let told = pod.and_then(|pod| Some((pod.uid, self.told.get(&pod.uid)?.node)));
            let room = told.and_then(|(_, node)| room_at(node, cluster));
            let Some(((uid, node), room)) = told.zip(room) else {
                self.unheard.remove(&key);
                continue;
            };
            let is_coming = matches!(room, Room::Coming);
            let is_closed = cluster.nodes.get(&node).is_some_and(|node| is_closed(node));
            if let Some(calm) = calm.filter(|calm| is_closed && now < *calm) {
                self.unheard.insert(key, calm);
                continue;
            }
            self.unheard.insert(key, now + UNHEARD);
            let told = self.told.get_mut(&uid).filter(|told| {
                // What was written first may be on its way.
                !(is_coming && told.is_before_opening && told.cleared.is_none())
            });
            let Some(told) = told else { continue };
            (told.at, told.is_sent) = (now, true);
            told.is_before_opening &= is_coming;
            let message = match room {
                Room::Coming => "its node has yet to open",
                Room::Free => "kube-scheduler did not bind it yet, and its room is free",
            };
            steps.push(
                Action::NominatePod { pod: key, uid, node, before_opening: false },
                "NominatedAgain",
                message.to_owned(),
            );
        }
        self.unheard.values().min().into_iter().for_each(|at| steps.wake(*at));
        steps
    }

    /// Lets those wait again whose node is no more, or has been open to them for long enough; when the next ones are due. Costs what
    /// has changed at nodes that keep room, and next to nothing for each of the others.
    pub fn give_up(&mut self, cluster: &mut Cluster, now: Timestamp) -> (Vec<ObjectKey>, Option<Timestamp>) {
        for node in cluster.take_touched_hosts() {
            let stay = Stay::at(node, self, cluster);
            match stay.pods.is_empty() {
                true => drop(self.stays.remove(&node)),
                false => drop(self.stays.insert(node, stay)),
            }
        }
        debug_assert!(
            cluster.hosts().map(|name| (name, Stay::at(name, self, cluster))).eq(self.stays.clone()),
            "who waits at a node is as of the last change there"
        );
        let (mut void, mut next) = (Vec::new(), None::<Timestamp>);
        for stay in self.stays.values() {
            let at = |end: &End| end.at(stay.room.as_ref(), self.bound);
            let first = stay.firsts.iter().filter_map(at).min();
            if first.is_none_or(|first| now < first) {
                next = next.into_iter().chain(first).min();
                continue;
            }
            for (pod, end) in &stay.pods {
                let Some(end) = at(end) else { continue };
                match now < end {
                    true => next = Some(next.map_or(end, |next| next.min(end))),
                    false => void.push(*pod),
                }
            }
        }
        void.iter().for_each(|pod| cluster.expect_no_more(*pod));
        (void, next)
    }

    /// When kube-scheduler was last seen to have cleared what the pod was told, if its node was open or about to open.
    fn refused(&self, pod: &Pod, since: Timestamp) -> Option<Timestamp> {
        self.told.get(&pod.uid)?.cleared.filter(|cleared| *cleared >= since)
    }

    /// Whether kube-scheduler has surely not tried the pod since `node` is ready: it has never said so of it, or it would have
    /// bound it or cleared what was written before. One that was told while its open node got ready may have been tried just before,
    /// and is not tried again soon.
    fn is_untried(&self, pod: &Pod, node: &Node) -> bool {
        let came_first = |told: &Told| {
            told.is_before_opening || node.ready_since().is_some_and(|ready| told.at + EVIDENCE <= ready)
        };
        pod.is_unjudged() || self.told.get(&pod.uid).is_some_and(|told| told.is_heard && came_first(told))
    }

    /// `pod` as it counts: one that we nominated waits like any other until it is bound. One that kube-scheduler nominated
    /// puts others out and needs nothing.
    pub fn as_counted(&mut self, pod: Arc<Pod>, now: Timestamp) -> Arc<Pod> {
        if self.is_wanted && has_no_node(&pod) {
            self.tried.insert(pod.uid, now);
        }
        let pod = self.without_ours(pod, now);
        if self.is_wanted {
            self.queue.see(&pod, now);
        }
        pod
    }

    /// `pod`, as if we had nominated nothing.
    fn without_ours(&mut self, pod: Arc<Pod>, now: Timestamp) -> Arc<Pod> {
        let Some(told) = self.told.get_mut(&pod.uid) else { return pod };
        match pod.nominated_node {
            Some(node) if node == told.node => {
                let is_first = !told.is_heard && told.cleared.is_none();
                self.heard = Some(now).filter(|_| is_first).or(self.heard);
                (told.is_heard, told.former) = (true, None);
                self.unheard.remove(&pod.key);
                Arc::new(Pod { nominated_node: None, ..(*pod).clone() })
            }
            Some(node) if told.former == Some(node) => {
                Arc::new(Pod { nominated_node: None, ..(*pod).clone() })
            }
            None if told.is_heard => {
                told.is_heard = false;
                told.cleared = Some(now);
                told.losses += 1;
                self.unheard.insert(pod.key, now);
                pod
            }
            _ => pod,
        }
    }

    /// Takes over what a former process nominated; pods that count otherwise from now on, as they are. Who nominated is not written
    /// anywhere, but those whom kube-scheduler puts out are still leaving that node.
    pub fn take_over(&mut self, cluster: &Cluster, now: Timestamp) -> Vec<Arc<Pod>> {
        if !self.is_wanted {
            return Vec::new();
        }
        let nominated = cluster.pods.values().filter(|pod| pod.node.is_none() && pod.deleted.is_none());
        let ours = nominated.filter_map(|pod| {
            let node = pod.nominated_node?;
            let is_left = cluster.pods_of(node).any(|other| other.deleted.is_some());
            (!is_left).then_some((pod.clone(), node))
        });
        let ours: Vec<(Arc<Pod>, NodeName)> = ours.collect();
        self.told.extend(ours.iter().map(|(pod, node)| {
            let told = Told {
                node: *node,
                former: None,
                is_sent: true,
                at: now,
                is_before_opening: false,
                is_heard: true,
                cleared: None,
                losses: 0,
            };
            (pod.uid, told)
        }));
        ours.into_iter().map(|(pod, _)| pod).collect()
    }

    /// Whether the pod of this uid waits with a nomination from us, or has lost it.
    pub fn has_told(&self, pod: Uid) -> bool {
        self.told.contains_key(&pod)
    }

    /// `pod` runs somewhere, or is gone.
    pub fn forget(&mut self, pod: &Pod, now: Timestamp) {
        let was_told = self.told.remove(&pod.uid).is_some();
        let has_waited = self.tried.remove(&pod.uid).is_some();
        self.unheard.remove(&pod.key);
        self.queue.forget(pod, now);
        if pod.node.is_none() {
            return;
        }
        let has_queued =
            has_waited && !pod.is_daemon() && pod.created.is_some_and(|made| made + QUEUED <= now);
        if was_told || has_queued {
            self.bound.queued = Some(now);
        }
        if was_told {
            self.bound.told = Some(now);
        }
    }
}

/// Whether one may run wherever the other may, as far as its room goes.
fn may_swap(one: &PodShape, other: &PodShape) -> bool {
    let is_as_important = || (one.priority, one.scheduler_name) == (other.priority, other.scheduler_name);
    one == other || (one.fits_anywhere() && other.fits_anywhere() && is_as_important())
}

/// Who has room at `node` and does not run yet.
fn waiting_at(node: NodeName, cluster: &Cluster) -> impl Iterator<Item = &Arc<Pod>> {
    cluster.expected_at(node).filter(|pod| has_no_node(pod))
}

fn has_no_node(pod: &Pod) -> bool {
    pod.node.is_none() && pod.deleted.is_none() && pod.nominated_node.is_none()
}

/// The least of `requests`, if all others ask for at least as much of everything.
fn smallest_of<'r>(requests: impl Iterator<Item = &'r Resources> + Clone) -> Option<Resources> {
    let least = requests.clone().min_by_key(|request| (request.cpu(), request.memory()))?;
    requests.clone().all(|request| least.fits(request)).then(|| least.clone())
}

/// What there is to keep for those that were told a node.
enum Room {
    /// Its node is not open yet.
    Coming,
    /// Its node is open, and nobody else has taken it.
    Free,
}

fn only_node_of(claim: ClaimName, cluster: &Cluster) -> Option<NodeName> {
    let claim = cluster.claims.get(&claim)?;
    let mut nodes = cluster.nodes_of(claim).map(|node| node.name);
    nodes.next().filter(|_| nodes.next().is_none())
}

fn room_at(node: NodeName, cluster: &Cluster) -> Option<Room> {
    let node = cluster.nodes.get(&node).filter(|node| node.deleted.is_none())?;
    let claim = cluster.claim_of(node).filter(|claim| claim.deleted.is_none())?;
    match claim.conditions.is_true(ConditionType::Initialized) {
        false => Some(Room::Coming),
        true => has_room(node, cluster).then_some(Room::Free),
    }
}

/// Whether all that are bound to `node` or expected there fit: then kube-scheduler binds those whose turn comes.
fn has_room(node: &Node, cluster: &Cluster) -> bool {
    used_at(node.name, cluster).fits(&node.allocatable)
}

fn used_at(node: NodeName, cluster: &Cluster) -> Resources {
    let mut used = Resources::new();
    for pod in cluster.guests_of(node).filter(|pod| !pod.is_terminal()) {
        used.add(&pod.shape.requests);
    }
    used
}
