//! Nodes that pods wait for open in waves, each as soon as all pods of its nodes were seen to know where they belong.
//!
//! kube-scheduler tries whoever is next: where a node opens while others have not heard of theirs, they take its room; and whom it
//! tries before its node is open forgets what it was told. So first all pods are told for which there is a node, and then the
//! nodes open. Those that get ready meanwhile join the wave, within limits, or make the next one; the nodes of few pods wait for
//! each other, and open in turns if pods of one could take the room of unlike ones on another. A node that comes alone is a wave of its own, and waits for two requests. A
//! node that one of its pods has forgotten when its wave opens waits for another one, if it is a wave of many. Nodes of a crowd where nobody is told anything open when the others have: larger pods
//! that are tried meanwhile would take their room. And a node of a pod that kube-scheduler is about to try for the first time joins no
//! wave until it has, or for a while (`queue.rs`).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::lifecycle;
use super::nominations::{CALM, FEW, Nominations};
use super::plans::Plans;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::name::NodeName;
use crate::model::node::Node;
use crate::model::taint::Taint;

/// No more pods are told in one wave, but those of its first node: the longer it takes, the more kube-scheduler tries in vain meanwhile.
/// With 1,000 in a wave one or four of 2,500 lost their place for good on a busy control plane, with 50 none (performance.md).
const WAVE_MOST: usize = FEW;
/// A wave that began so long ago takes no other node and waits for none, nor for pods that have heard and forgotten; a tainted node
/// gives it more time.
const GATHERING_MOST: SignedDuration = SignedDuration::from_secs(3);
/// A node that is ready may stay tainted until the node controller sees that: it looks 5 s after it has looked last
/// (`--node-monitor-period` of kube-controller-manager). Kubelets say in whole seconds since when they are ready.
const TAINTED_MOST: SignedDuration = SignedDuration::from_secs(7);
/// While many others are about to be ready, a wave waits so long for the next of them: kubelets of machines that were bought together
/// start together.
const LULL: SignedDuration = SignedDuration::from_millis(250);
/// So long the nodes of few pods wait for machines that were bought with them and have not joined.
const BOOTS_DIFFER: SignedDuration = SignedDuration::from_secs(1);
/// Claims that were made so soon after one another were bought together: pods are planned for together for as long.
const TOGETHER: SignedDuration = SignedDuration::from_secs(10);
/// A kubelet that has joined is usually ready within so long: it starts its network first.
const BOOT_USUAL: SignedDuration = SignedDuration::from_secs(30);
/// A wave opens without the pods that were not seen to hear of it, when none was for so long. An API server with next to no processor
/// left takes a second.
const QUIET: SignedDuration = SignedDuration::from_secs(2);
/// So much longer a wave of few pods waits for those that have just forgotten: they are told again within it.
const LAST_BREATH: SignedDuration = SignedDuration::from_millis(500);
/// So long a node waits in all because kube-scheduler is about to try some of its pods: of many pods one always comes next.
const ASIDE_MOST: SignedDuration = SignedDuration::from_secs(5);
/// No more nodes of few pods open one after the other.
const TURNS_MOST: usize = 5;
/// The last of them open together when the first was to open so long ago: a pod may never be bound, and more nodes may come.
const TURNS_TAKE_MOST: SignedDuration = SignedDuration::from_secs(4);
/// One in so many nodes of a wave opens with the next one: those whose larger pods kube-scheduler tries while the others open.
const HELD_BACK: usize = 10;
/// Nodes where nobody is told anything open when no wave was under way for so long.
const LAST: SignedDuration = SignedDuration::from_secs(3);
/// So long the next wave waits for nodes of the last that could not open.
const OPENING_MOST: SignedDuration = SignedDuration::from_secs(5);

/// Nodes that join no wave, and until when at the latest.
type Aside = BTreeMap<NodeName, Timestamp>;

#[derive(Clone, Debug, Default)]
pub(crate) struct Openings {
    wave: Option<Wave>,
    /// Nodes that could open otherwise, in the order of their turns.
    waiting: VecDeque<NodeName>,
    /// Those that were held back.
    held: BTreeSet<NodeName>,
    /// Those that wait for the pods of others to be bound.
    later: BTreeSet<NodeName>,
    /// Those others, and when the first of them was to open.
    earlier: BTreeSet<NodeName>,
    turns_since: Option<Timestamp>,
    /// Those that were put back because their pods had forgotten them.
    returned: BTreeSet<NodeName>,
    /// Those that open when the others have, and since when they could.
    last: BTreeMap<NodeName, Timestamp>,
    /// Those of them whose turn has come.
    admitted: BTreeSet<NodeName>,
    /// Since when those of them were put aside of whose pods kube-scheduler was about to try some.
    aside: BTreeMap<NodeName, Timestamp>,
    /// When to look again, if all that wait are put aside.
    look_again: Option<Timestamp>,
    /// When a wave was last under way.
    busy: Option<Timestamp>,
}

#[derive(Clone, Debug)]
struct Wave {
    /// Those that were not seen to be open.
    nodes: BTreeSet<NodeName>,
    /// Those of which not all pods are known to have heard.
    deaf: BTreeSet<NodeName>,
    is_open: bool,
    /// When it began, and when the last of its nodes joined it.
    since: Timestamp,
    joined: Timestamp,
    /// When no other joins it any more.
    full: Timestamp,
    /// When it is calm, if no pod of it forgets its node until then.
    calm: Timestamp,
    /// How many pods it has to tell.
    pods: usize,
    /// When nothing of it is waited for any more.
    until: Timestamp,
}

/// What is to be done now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    Nothing,
    /// They join the wave: their pods are to be told.
    Tell(Vec<NodeName>),
    /// They have heard.
    Open(Vec<NodeName>),
}

impl Openings {
    /// What was decided is not done before it is seen.
    pub fn see(&mut self, node: &Node) {
        if let Some(wave) = self.wave.as_mut().filter(|_| !lifecycle::is_closed(node)) {
            wave.nodes.remove(&node.name);
        }
    }

    /// Whether it opens with those that open next, or could.
    pub fn has_turn(&self, node: NodeName) -> bool {
        self.wave.as_ref().is_some_and(|wave| wave.nodes.contains(&node))
    }

    /// `node` keeps room for others from now on: whether they are to be told at once, because it is in a wave that is told.
    pub fn grows(&mut self, node: NodeName, now: Timestamp) -> bool {
        let wave = self.wave.as_mut().filter(|wave| !wave.is_open && wave.nodes.contains(&node));
        wave.is_some_and(|wave| {
            wave.deaf.insert(node);
            wave.until = now + QUIET;
            true
        })
    }

    /// `node` could open, and keeps room for pods: whether it does.
    pub fn admits(&mut self, node: NodeName) -> bool {
        if let Some(wave) = self.wave.as_ref().filter(|wave| wave.nodes.contains(&node)) {
            return wave.is_open;
        }
        self.last.remove(&node);
        self.admitted.remove(&node);
        if !self.waiting.contains(&node) {
            self.waiting.push_back(node);
            self.look_again = None;
        }
        false
    }

    /// `node`, of a crowd, could open, and nobody is told anything who has room there: whether it does.
    pub fn admits_last(&mut self, node: NodeName, now: Timestamp) -> bool {
        if let Some(wave) = self.wave.as_ref().filter(|wave| wave.nodes.contains(&node)) {
            // Those that were told found another place.
            return wave.is_open;
        }
        let admits = self.admitted.remove(&node);
        if !admits {
            self.last.entry(node).or_insert(now);
        }
        admits
    }

    pub fn due(
        &mut self,
        nominations: &Nominations,
        plans: &Plans,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Due {
        let was_busy = self.is_busy();
        let wave = self.wave.take().and_then(|wave| wave.remaining(cluster, now));
        let mut wave = wave.unwrap_or_else(|| {
            nominations.put_in_order(&mut self.waiting, cluster);
            Wave::begin(now)
        });
        let aside = self.put_aside(nominations, cluster, now);
        let due = self.step(&mut wave, &aside, nominations, plans, cluster, now);
        self.wave = Some(wave).filter(|wave| !wave.nodes.is_empty());
        if was_busy || self.is_busy() {
            self.busy = Some(now);
        }
        let are_all_aside = self.waiting.iter().all(|node| aside.contains_key(node));
        self.look_again = aside.into_values().min().filter(|_| are_all_aside);
        if !self.is_busy() && due == Due::Nothing && !self.last.is_empty() {
            return self.due_last(cluster, now);
        }
        due
    }

    /// No wave is under way.
    fn due_last(&mut self, cluster: &Cluster, now: Timestamp) -> Due {
        self.last.retain(|node, _| could_open(*node, cluster));
        let are_others_open = !cluster.hosts().any(|host| is_closed(host, cluster));
        let due = self.last.iter().filter(|(_, since)| are_others_open || self.lull_after(**since) <= now);
        self.admitted = due.map(|(node, _)| *node).collect();
        self.last.retain(|node, _| !self.admitted.contains(node));
        match self.admitted.is_empty() {
            true => Due::Nothing,
            false => Due::Open(self.admitted.iter().copied().collect()),
        }
    }

    fn is_busy(&self) -> bool {
        self.wave.is_some() || !self.waiting.is_empty()
    }

    fn lull_after(&self, since: Timestamp) -> Timestamp {
        self.busy.map_or(since, |busy| busy.max(since)) + LAST
    }

    /// Those that wait and of whose pods kube-scheduler is about to try some, and until when they do if it tries nobody.
    fn put_aside(&mut self, nominations: &Nominations, cluster: &Cluster, now: Timestamp) -> Aside {
        self.aside.retain(|node, _| is_closed(*node, cluster));
        let mut aside = nominations.tried_next(cluster, now);
        aside.retain(|node, until| {
            if !self.waiting.contains(node) || !is_closed(*node, cluster) {
                return false;
            }
            let since = *self.aside.entry(*node).or_insert(now);
            *until = (*until).min(since + ASIDE_MOST);
            now < *until
        });
        aside
    }

    fn step(
        &mut self,
        wave: &mut Wave,
        aside: &Aside,
        nominations: &Nominations,
        plans: &Plans,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Due {
        if wave.is_open {
            return Due::Nothing;
        }
        let are_few = wave.is_all(cluster);
        if are_few {
            wave.wait_for_tainted(cluster);
        }
        let more = wave.gather(&mut self.waiting, aside, nominations, cluster, now);
        if !more.is_empty() {
            (wave.joined, wave.until) = (now, now + QUIET);
            return Due::Tell(more);
        }
        wave.until = nominations.last_heard().map_or(wave.until, |last| wave.until.max(last + QUIET));
        let is_told = wave.has_heard(nominations, cluster, now) || now >= wave.until;
        self.later.retain(|node| wave.nodes.contains(node));
        if self.later.is_empty() {
            (self.earlier, self.turns_since) = (BTreeSet::new(), None);
        }
        let is_late = self.turns_since.is_some_and(|since| now >= since + TURNS_TAKE_MOST);
        let do_others_wait = self.waiting.iter().any(|node| !aside.contains_key(node));
        let is_full = do_others_wait || !self.later.is_empty();
        if !is_told || (!is_full && wave.gains_others(are_few, cluster, now)) {
            return Due::Nothing;
        }
        if are_few && !is_full && wave.gains_one_that_joins(plans, cluster, now) {
            return Due::Nothing;
        }
        if are_few && !is_late && !wave.is_calm(&self.earlier, nominations, cluster, now) {
            return Due::Nothing;
        }
        (wave.is_open, wave.until) = (true, now + OPENING_MOST);
        let (mut nodes, with_larger) = nominations.in_order_of_opening(&wave.nodes, cluster);
        self.hold_back(wave, &mut nodes, with_larger);
        match are_few {
            true if is_late => {}
            true => self.take_turns(wave, &mut nodes, nominations, cluster, now),
            false if wave.nodes.len() == 1 && !do_others_wait => {}
            false => self.put_back(wave, &mut nodes, nominations, cluster),
        }
        match nodes.is_empty() {
            true => Due::Nothing,
            false => Due::Open(nodes),
        }
    }

    /// The last of `nodes` open with the next wave, each of them once; the last `with_larger` have larger pods than others.
    fn hold_back(&mut self, wave: &mut Wave, nodes: &mut Vec<NodeName>, with_larger: usize) {
        let most = nodes.len() / HELD_BACK;
        self.held.retain(|node| wave.nodes.contains(node));
        let held: Vec<NodeName> = nodes
            .iter()
            .rev()
            .take(with_larger)
            .filter(|node| !self.held.contains(node))
            .take(most)
            .copied()
            .collect();
        nodes.retain(|node| !held.contains(node));
        for node in held {
            wave.nodes.remove(&node);
            self.held.insert(node);
            self.waiting.push_front(node);
        }
    }

    /// Few nodes whose pods could run on each other, and differ, open one after the other, each when the pods of the last are bound:
    /// whoever is tried while its own node is closed finds no room on the full ones, which come first. Those that have room for others
    /// come last, and together: there whom kube-scheduler tries in between is chance.
    fn take_turns(
        &mut self,
        wave: &mut Wave,
        nodes: &mut Vec<NodeName>,
        nominations: &Nominations,
        cluster: &Cluster,
        now: Timestamp,
    ) {
        if nodes.len() > TURNS_MOST {
            return;
        }
        let mixed = nominations.those_that_mix(&wave.nodes, cluster);
        let is_full = |node: &&NodeName| !nominations.has_room_for_others(**node, &mixed, cluster);
        let full =
            mixed.iter().filter(is_full).max_by_key(|node| nominations.told_at(**node, cluster).count());
        let Some(first) = full.copied() else { return };
        let (turn, later) = nodes.iter().partition(|node| **node == first || !mixed.contains(node));
        *nodes = turn;
        wave.nodes.retain(|node| nodes.contains(node));
        self.earlier.insert(first);
        let since = *self.turns_since.get_or_insert(now);
        wave.until = wave.until.min(since + TURNS_TAKE_MOST);
        self.later.extend(&later);
        self.waiting.extend::<Vec<NodeName>>(later);
    }

    /// Those of `nodes` that one of their pods has forgotten open with a later wave, each of them once: if others open with them,
    /// whoever is tried for those takes its room.
    fn put_back(
        &mut self,
        wave: &mut Wave,
        nodes: &mut Vec<NodeName>,
        nominations: &Nominations,
        cluster: &Cluster,
    ) {
        self.returned.retain(|node| is_closed(*node, cluster));
        let goes_back = |node: &&NodeName| {
            !self.returned.contains(*node) && nominations.is_forgotten_by_some(**node, cluster)
        };
        let back: BTreeSet<NodeName> = nodes.iter().filter(goes_back).copied().collect();
        nodes.retain(|node| !back.contains(node));
        wave.nodes.retain(|node| !back.contains(node));
        self.waiting.extend(&back);
        self.returned.extend(back);
    }

    /// When to look again, whatever happens.
    pub fn next(&self, now: Timestamp) -> Option<Timestamp> {
        let Some(wave) = &self.wave else {
            let lulls = self.last.values().map(|since| self.lull_after(*since)).filter(|at| now < *at);
            let waits = (!self.waiting.is_empty()).then(|| self.look_again.unwrap_or(now));
            return lulls.chain(waits).min();
        };
        if wave.is_open {
            return Some(wave.until);
        }
        let late = self.turns_since.map(|since| since + TURNS_TAKE_MOST);
        let turns = [
            wave.joined + LULL,
            wave.joined + BOOTS_DIFFER,
            wave.full,
            wave.full + LAST_BREATH,
            wave.calm,
            wave.until,
        ];
        turns.into_iter().chain(late).chain(self.look_again).filter(|at| now < *at).min()
    }

    /// Whether no node waits for anything here.
    pub fn is_empty(&self) -> bool {
        !self.is_busy() && self.last.is_empty()
    }
}

impl Wave {
    fn begin(now: Timestamp) -> Self {
        let (nodes, deaf, full) = (BTreeSet::new(), BTreeSet::new(), now + GATHERING_MOST);
        Self { nodes, deaf, is_open: false, since: now, joined: now, full, calm: now, pods: 0, until: now }
    }

    /// What is left of it; none when the next may begin.
    fn remaining(mut self, cluster: &Cluster, now: Timestamp) -> Option<Self> {
        let is_open = self.is_open;
        self.nodes.retain(|node| if is_open { is_there(*node, cluster) } else { is_closed(*node, cluster) });
        let is_over = self.nodes.is_empty() || (self.is_open && now >= self.until);
        (!is_over).then_some(self)
    }

    /// Nodes that join it.
    fn gather(
        &mut self,
        waiting: &mut VecDeque<NodeName>,
        aside: &Aside,
        nominations: &Nominations,
        cluster: &Cluster,
        now: Timestamp,
    ) -> Vec<NodeName> {
        let (mut more, mut passed) = (Vec::new(), VecDeque::new());
        while let Some(next) = waiting.front().copied()
            && now < self.full
        {
            if aside.contains_key(&next) {
                passed.extend(waiting.pop_front());
                continue;
            }
            let told = self.pods + nominations.told_at(next, cluster).count();
            if told > WAVE_MOST && !self.nodes.is_empty() {
                break;
            }
            waiting.pop_front();
            if is_closed(next, cluster) {
                self.pods = told;
                self.nodes.insert(next);
                self.deaf.insert(next);
                more.push(next);
            }
        }
        passed.append(waiting);
        *waiting = passed;
        more
    }

    /// Whether those that keep room and are not open make one wave, all of them.
    fn is_all(&self, cluster: &Cluster) -> bool {
        let mut pods = self.pods;
        let is_more = |other| {
            pods += cluster.expected_at(other).count();
            pods > WAVE_MOST
        };
        self.pods <= WAVE_MOST && !self.others(cluster).any(is_more)
    }

    /// Whether others that keep room are about to be ready, and may still join. Where all of them would be one wave they are waited for
    /// longer: whom kube-scheduler tries for the first to open takes what is free there, and not the place that was planned.
    fn gains_others(&self, are_few: bool, cluster: &Cluster, now: Timestamp) -> bool {
        if now >= self.full {
            return false;
        }
        let mut others = self.others(cluster);
        if now < self.joined + LULL {
            return others.next().is_some();
        }
        let is_soon_ready = |other: NodeName| {
            is_young(other, cluster, now)
                || cluster.nodes.get(&other).is_some_and(|node| waits_for_controller(node))
        };
        are_few && others.any(is_soon_ready)
    }

    /// Whether a machine that was launched for some of few pods may join any moment: those that were bought together boot together.
    fn gains_one_that_joins(&self, plans: &Plans, cluster: &Cluster, now: Timestamp) -> bool {
        if now >= self.full.min(self.joined + BOOTS_DIFFER) || plans.places().len() > WAVE_MOST {
            return false;
        }
        let own = self.nodes.iter().filter_map(|node| cluster.claim_of(cluster.nodes.get(node)?)?.created);
        let made: Vec<Timestamp> = own.collect();
        let is_with_them = |claim: &NodeClaim| {
            claim.created.is_some_and(|at| made.iter().any(|own| at.duration_since(*own).abs() <= TOGETHER))
        };
        let joins = |claim: &Arc<NodeClaim>| {
            claim.deleted.is_none()
                && claim.conditions.is_true(ConditionType::Launched)
                && cluster.nodes_of(claim).next().is_none()
                && is_with_them(claim)
        };
        plans.claims().filter_map(|claim| cluster.claims.get(&claim)).any(joins)
    }

    /// Others that keep room and are not open.
    fn others<'c>(&'c self, cluster: &'c Cluster) -> impl Iterator<Item = NodeName> + 'c {
        cluster.hosts().filter(|host| !self.nodes.contains(host) && is_closed(*host, cluster))
    }

    /// Others may join for longer while one is tainted that was ready in time.
    fn wait_for_tainted(&mut self, cluster: &Cluster) {
        let is_tainted =
            |node: &&Arc<Node>| node.taints.iter().any(Taint::is_not_ready) && waits_for_controller(node);
        let tainted = self.others(cluster).filter_map(|other| cluster.nodes.get(&other)).filter(is_tainted);
        let ready = tainted.filter_map(|node| node.ready_since());
        let last = ready.filter(|ready| *ready < self.since + GATHERING_MOST).max();
        self.full = last.map_or(self.full, |last| self.full.max(last + TAINTED_MOST));
    }

    /// Whether kube-scheduler is through with its pods, or has been at them for too long: one that it tries while the nodes open one
    /// after the other may have to go elsewhere.
    fn is_calm(
        &mut self,
        earlier: &BTreeSet<NodeName>,
        nominations: &Nominations,
        cluster: &Cluster,
        now: Timestamp,
    ) -> bool {
        let cleared = self.nodes.iter().filter_map(|node| nominations.last_cleared(*node, cluster)).max();
        self.calm = cleared.map_or(self.calm, |cleared| cleared + CALM);
        let is_forgotten = |node: &NodeName| nominations.is_forgotten_by_some(*node, cluster);
        let is_disturbed = || now < self.calm || self.nodes.iter().any(is_forgotten);
        let (is_later, is_early) = (!earlier.is_empty(), nominations.are_some_late(earlier, cluster));
        now >= self.full + LAST_BREATH
            || !(is_early || ((is_later || self.nodes.len() > 1) && is_disturbed()))
    }

    /// Whether all have heard. Of many some have always just lost what they were told: in the end it is enough that they did hear.
    fn has_heard(&mut self, nominations: &Nominations, cluster: &Cluster, now: Timestamp) -> bool {
        let is_heard = |node| match now < self.full {
            true => nominations.is_known_to_all(node, cluster),
            false => nominations.is_heard_by_all(node, cluster),
        };
        while let Some(node) = self.deaf.first().copied()
            && (is_heard(node) || !self.nodes.contains(&node))
        {
            self.deaf.remove(&node);
        }
        self.deaf.is_empty()
    }
}

fn is_closed(node: NodeName, cluster: &Cluster) -> bool {
    is_there(node, cluster) && cluster.nodes.get(&node).is_some_and(|node| lifecycle::is_closed(node))
}

/// Whether it joined so lately that it is still expected to get ready soon.
fn is_young(node: NodeName, cluster: &Cluster, now: Timestamp) -> bool {
    let joined = cluster.nodes.get(&node).and_then(|node| node.created);
    joined.is_some_and(|joined| now.duration_since(joined) < BOOT_USUAL)
}

/// Whether it could open as soon as the node controller has seen that it is ready, or could by now.
fn waits_for_controller(node: &Node) -> bool {
    let is_other = |taint: &&Taint| !taint.keeps_closed() && !taint.is_not_ready();
    node.is_ready() && !node.taints.iter().filter(is_other).any(Taint::is_ephemeral)
}

fn could_open(node: NodeName, cluster: &Cluster) -> bool {
    is_closed(node, cluster) && cluster.nodes.get(&node).is_some_and(|node| lifecycle::could_take_pods(node))
}

/// Whether it is there to stay.
fn is_there(node: NodeName, cluster: &Cluster) -> bool {
    let node = cluster.nodes.get(&node).filter(|node| node.deleted.is_none());
    node.and_then(|node| cluster.claim_of(node)).is_some_and(|claim| claim.deleted.is_none())
}
