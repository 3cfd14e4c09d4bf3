//! Which nodes are given back because their pods fit elsewhere for less money.
//!
//! Candidates are offered one after the other, what saves most per disruption first. Each is taken if its pods, and those that earlier ones
//! had put on it, find places on what stays. Those that did not go are offered again, now with new nodes in their place, if all of that
//! together then costs less than before. One that cannot go stops nobody else, so the set that goes need be no run of the order, and several
//! nodes may be replaced by several. As long as budgets hold back nodes that might need nothing new, what is bought has to be worth it more.
//!
//! Of few candidates the best set is looked for in several ways, and the one that saves most is taken: by what saves most per
//! disruption or most of all first, and with new nodes from the beginning or only for who needs them. Where budgets let nodes go only a few
//! at a time, what is left in the end is looked for first (`ahead`).
//!
//! Pods are put where nobody will want to move them again soon: on nodes that stay for certain, then on those that are least worth
//! emptying. Nodes whose pods share new ones go together in one command, and all that need nothing new in another.

mod ahead;

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::alternatives::{self, Rival};
use super::balanced::{Move, Totals, approve};
use super::budgets::Allowance;
use super::candidates::{Candidate, Class, KeepReason};
use super::command::{Command, Destination, Method};
use super::cost;
use super::expiration;
use super::hysteresis::Averages;
use super::remembered::{Answer, Remembered};
use super::removal::{FITS, Refused, best, decide, needed_by_waiting_pods, no_cheaper, suited, wants};
use super::round::{Effort, Round};
use crate::capacity::scheduling::{Chain, Fit, Link, NewNode, Place, To, is_reschedulable};
use crate::model::action::LaunchOption;
use crate::model::hash::FastMap;
use crate::model::money::UsdPerHour;
use crate::model::name::{NodeName, ObjectKey, PoolName};
use crate::model::pod::Pod;
use crate::model::pool::DisruptionReason;

/// The most nodes of one command: a hundred, as in Karpenter.
const NODES_MAX: usize = 100;
/// So often candidates are offered, as long as others went meanwhile.
const TURNS_MAX: usize = 3;
/// Of more pods than this, times nodes that may go, the first way to offer them is the only one.
const TRIED_MAX: usize = 60_000;
/// So few nodes are gone soon, and go in any order.
const FEW: usize = 20;
/// Of more nodes than that none is judged by itself: it takes too long.
const MANY: usize = 250;
/// Of so many candidates every pair is looked at at once: 276 simulations.
const PAIRED_MAX: usize = 24;
/// Of so many every three are looked at too, whatever goes by itself: 286 simulations at most.
const TRIPLED_MAX: usize = 12;

/// How candidates are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// To go if nothing new is needed.
    Free,
    /// With new nodes in their place.
    Paid,
    /// The same, while budgets hold back others that may need none.
    Busy,
}

/// Which of the nodes that may go themselves are filled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Filling {
    /// Those that are offered last.
    LeastLikely,
    /// What costs most, and would be the hardest to do without.
    Dearest,
}

/// All commands that would start now, at most so many; they are started in `round`.
pub(super) fn plan(round: &mut Round, commands_max: usize) -> Vec<Command> {
    let mut candidates = wanting(round);
    if candidates.is_empty() || commands_max == 0 {
        return Vec::new();
    }
    sort(&mut candidates);
    let allowances = round.allowances(REASON);
    let question = Question { totals: Totals::of(round), averages: Averages::of(&candidates) };
    let (sweep, mut rivals) = best_sweep(round, &question, &candidates, &allowances);
    let mut worth = sweep.worth();
    let awaited = sweep.awaited;
    let mut sets = sweep.sets();
    let Sweep { destinations, refused, over_budget, turned_down, allowances, is_plain, .. } = sweep;
    let is_plain = is_plain && round.places_nobody_yet();
    round.moves.extend(turned_down.into_values());
    // Of very few every set is worth a look, whatever goes by itself.
    let are_tripled = candidates.len() <= TRIPLED_MAX;
    let hopeful = match are_tripled {
        true => candidates.iter().map(|one| (one.clone(), code_of(one, &refused))).collect(),
        false => hopeful(&refused),
    };
    for (candidate, why) in refused {
        note(round, &candidate, why.into());
    }
    for candidate in over_budget {
        let allowance = &allowances[&candidate.pool];
        note(round, &candidate, KeepReason::limited(allowance, candidate.pool, REASON));
        hold_if_it_would_go(round, &question.totals, &candidate, allowance);
    }
    if (sets.is_empty() || are_tripled)
        && let Effort::Thorough { look } = round.effort
    {
        round.looked_together |= sets.is_empty();
        let whole = together(round, &question, &hopeful, look, &allowances);
        if let Some(whole) = whole.filter(|whole| whole.worth > worth.max(awaited)) {
            (worth, rivals) = (whole.worth, whole.rivals);
            sets = vec![whole.set];
        }
    }
    let choice = Choice { question, destinations, is_plain, worth, rivals };
    let mut commands = Vec::new();
    for set in sets {
        if commands.len() < commands_max {
            start(round, &choice, &set, &mut commands);
        }
    }
    commands
}

/// Why all of this is done.
const REASON: DisruptionReason = DisruptionReason::Underutilized;

/// What was found to be worth most, and what it was found to be worth more than.
struct Choice {
    question: Question,
    /// Where pods go, as far as it is there already.
    destinations: BTreeMap<ObjectKey, Place>,
    /// Pods may be there whichever of the others are.
    is_plain: bool,
    worth: UsdPerHour,
    rivals: Vec<Rival>,
}

impl Choice {
    /// The removal of `set`, as it was found: all pods have places that are there, which they keep whatever else starts.
    fn deletion(&self, round: &Round, set: &[Candidate]) -> Option<Result<Command, Refused>> {
        let to = |pod: ObjectKey| match self.destinations.get(&pod) {
            Some(place) => Some((pod, Destination::Existing(*place))),
            None => {
                let known = round.cluster.pods.get(&pod)?;
                (!is_reschedulable(&round.cluster, known, round.now)).then_some((pod, Destination::Nowhere))
            }
        };
        let pods = set.iter().flat_map(|candidate| round.leaving_pods(candidate.node));
        let pods: Vec<(ObjectKey, Destination)> =
            pods.map(to).collect::<Option<_>>().filter(|_| self.is_plain)?;
        let savings = set.iter().map(|candidate| candidate.price).sum();
        let approved = approve(&self.question.totals.scores(set, savings));
        let method = match set {
            [_] => Method::SingleNodeConsolidation,
            _ => Method::MultiNodeConsolidation,
        };
        Some(approved.map(|()| Command::new(method, set, Vec::new(), savings, pods)))
    }
}

/// What is worth most of `candidates` within the budgets of the moment, and what else was found on the way.
fn best_sweep<'r, 'a>(
    round: &'r Round<'a>,
    question: &'r Question,
    candidates: &[Candidate],
    allowances: &BTreeMap<PoolName, Allowance>,
) -> (Sweep<'r, 'a>, Vec<Rival>) {
    let memory = Some(&round.remembered);
    let (now, rivals) = best_way(round, question, candidates, Field::of(candidates), allowances, memory);
    // Where nobody goes now, nobody of whom budgets let go has a place: looking ahead finds them none either.
    if now.groups.is_empty() {
        return (now, rivals);
    }
    ahead::towards_the_end(round, question, candidates, allowances)
        .or_else(|| ahead::towards_what_opens(round, question, candidates, allowances, &now))
        .unwrap_or((now, rivals))
}

/// Nodes that may go in the end.
#[derive(Clone, Copy)]
struct Field<'c> {
    all: &'c [Candidate],
    /// Those of them that take pods; `None`: all that are offered, as long as they are there.
    takers: Option<&'c [Candidate]>,
}

impl<'c> Field<'c> {
    fn of(all: &'c [Candidate]) -> Self {
        Self { all, takers: None }
    }
}

/// The way to offer `candidates` that is worth most, the first of equals, and what the others come to. Where budgets do not let all go, who
/// saves most per disruption goes first.
fn best_way<'r, 'a>(
    round: &'r Round<'a>,
    question: &'r Question,
    candidates: &[Candidate],
    field: Field,
    allowances: &BTreeMap<PoolName, Allowance>,
    memory: Option<&'r [RefCell<Remembered>; 2]>,
) -> (Sweep<'r, 'a>, Vec<Rival>) {
    let sweep = |offered: &[Candidate], turn, filling, memory| {
        let takers = field.takers.unwrap_or(offered);
        let order = preferred(round, field.all, takers, filling);
        let sweep = Sweep::over(round, question, offered, turn, &order, allowances.clone(), memory);
        Sweep { is_step: sweep.is_step && (FEW + 1..=MANY).contains(&field.all.len()), ..sweep }
    };
    let [least_likely, dearest] = memory.map_or([None; 2], |memory| memory.each_ref().map(Some));
    let first = sweep(candidates, Turn::Free, Filling::LeastLikely, least_likely);
    let pods: usize = candidates.iter().map(|one| round.cluster.pods_of(one.node).count()).sum();
    if candidates.len() == 1 || pods * candidates.len() > TRIED_MAX {
        return (first, Vec::new());
    }
    // Where nobody goes, everybody that budgets let go was asked in the same picture, and no order of asking can change the answer.
    if first.groups.is_empty() && sweep(candidates, Turn::Paid, Filling::Dearest, dearest).groups.is_empty() {
        return (first, Vec::new());
    }
    let mut dearest_first = candidates.to_vec();
    dearest_first.sort_by_key(|candidate| Reverse(candidate.price));
    let orders = match first.over_budget.is_empty() {
        true => vec![candidates, &dearest_first],
        false => vec![candidates],
    };
    let ways = orders.into_iter().flat_map(|order| {
        let turns = [Turn::Free, Turn::Paid].into_iter();
        turns.flat_map(move |turn| {
            [Filling::LeastLikely, Filling::Dearest].map(|filling| (order, turn, filling))
        })
    });
    let mut rivals = Vec::new();
    let sweeps = ways.skip(1).map(|(order, turn, filling)| sweep(order, turn, filling, None));
    let best = sweeps.fold(first, |best, other| {
        let (best, lost) = if other.worth() > best.worth() { (other, best) } else { (best, other) };
        rivals.extend(lost.rivals());
        best
    });
    (best, rivals)
}

/// A node that stays when it is asked alone, and why.
type Staying = (Candidate, &'static str);

/// Those whose pods would have a place.
fn hopeful(refused: &[(Candidate, Refused)]) -> Vec<Staying> {
    let has_place = |(_, (code, _)): &&(Candidate, Refused)| *code != "CannotReschedule";
    refused.iter().filter(has_place).map(|(candidate, (code, _))| (candidate.clone(), *code)).collect()
}

/// Why `candidate` stays when it is asked alone; nothing, if it does not.
fn code_of(candidate: &Candidate, refused: &[(Candidate, Refused)]) -> &'static str {
    refused.iter().find(|(one, _)| one.node == candidate.node).map_or("", |(_, (code, _))| code)
}

/// A set that goes as a whole, and those that it saves more than.
struct Whole {
    set: Vec<Candidate>,
    worth: UsdPerHour,
    rivals: Vec<Rival>,
}

/// So many sets that would save less are remembered.
const RIVALS_MAX: usize = 3;

/// The set that saves most of those that have to be looked at as a whole, because none of its nodes can go for less while the others stay:
/// the first few of `staying`, and every pair of some of the cheapest of them, of others in each `look`.
fn together(
    round: &Round,
    question: &Question,
    staying: &[Staying],
    look: usize,
    allowances: &BTreeMap<PoolName, Allowance>,
) -> Option<Whole> {
    let sizes = (2..=staying.len().min(NODES_MAX)).filter(|size| *size <= 8 || size.is_power_of_two());
    let firsts = sizes.map(|size| staying[..size].to_vec());
    // What costs little has something larger that could take the place of two.
    let mut cheapest_first: Vec<&Staying> = staying.iter().collect();
    cheapest_first.sort_by_key(|(candidate, _)| candidate.price);
    let begin = (look * PAIRED_MAX).checked_rem(staying.len()).filter(|_| staying.len() > PAIRED_MAX);
    cheapest_first.rotate_left(begin.unwrap_or(0));
    let paired = &cheapest_first[..staying.len().min(PAIRED_MAX)];
    let pairs = paired.iter().enumerate().flat_map(|(number, one)| {
        paired[number + 1..].iter().map(|other| vec![(*one).clone(), (*other).clone()])
    });
    let tripled = if staying.len() <= TRIPLED_MAX { staying } else { &[] };
    let triples = tripled.iter().enumerate().flat_map(|(number, one)| {
        let others = &tripled[number + 1..];
        let pairs = others.iter().enumerate();
        pairs.flat_map(move |(number, other)| {
            let third = others[number + 1..].iter();
            third.map(move |third| vec![one.clone(), other.clone(), third.clone()])
        })
    });
    // What may not be replaced by a spot node may not be with its like either.
    let may_go = |set: &Vec<Staying>| set.iter().any(|(_, code)| *code != "SpotToSpotDisabled");
    let sets = firsts.chain(pairs).chain(triples).filter(may_go);
    let sets = sets.map(|set| set.into_iter().map(|(candidate, _)| candidate).collect());
    let mut best: Option<(Rival, Vec<Candidate>)> = None;
    let mut rivals: Vec<Rival> = Vec::new();
    for set in sets.filter(|set: &Vec<Candidate>| is_within(set, allowances)) {
        let Ok(command) = decide(round, &question.totals, &set, &BTreeMap::new()) else { continue };
        let worth = command.savings - question.least_savings(&set);
        let found = Rival::of(&set, command.savings, worth).with(launches(&command.replacements));
        let lost = if worth > best.as_ref().map_or(UsdPerHour::ZERO, |(known, _)| known.worth) {
            best.replace((found, set)).map(|(former, _)| former)
        } else {
            Some(found)
        };
        let is_better = |lost: &Rival| rivals.len() < RIVALS_MAX || rivals[RIVALS_MAX - 1].worth < lost.worth;
        if let Some(lost) = lost.filter(is_better) {
            let at = rivals.partition_point(|known| known.worth >= lost.worth);
            rivals.insert(at, lost);
            rivals.truncate(RIVALS_MAX);
        }
    }
    best.map(|(found, set)| Whole { set, worth: found.worth, rivals })
}

/// The cheapest way to buy each of `nodes`.
fn launches(nodes: &[NewNode]) -> Vec<LaunchOption> {
    nodes.iter().map(|node| *node.launch()).collect()
}

/// Whether all of `set` may go at once.
fn is_within(set: &[Candidate], allowances: &BTreeMap<PoolName, Allowance>) -> bool {
    set.iter().all(|one| {
        let of_pool = set.iter().filter(|other| other.pool == one.pool).count();
        allowances.get(&one.pool).is_some_and(|allowance| of_pool <= allowance.remaining() as usize)
    })
}

/// What saves most per disruption first.
pub(super) fn sort(candidates: &mut [Candidate]) {
    candidates.sort_by(|a, b| {
        cost::by_savings((a.price, a.disruption), (b.price, b.disruption))
            .then_with(|| (a.pool, a.node).cmp(&(b.pool, b.node)))
    });
}

/// What might be given back next, what saves most per disruption first; nothing, if it is more than `most`.
pub(super) fn would_go(round: &mut Round, most: usize) -> Vec<NodeName> {
    let candidates = round.candidates(Class::Graceful).into_iter();
    let wanting = candidates.filter(|candidate| wants(round, candidate).is_ok());
    let mut wanting: Vec<Candidate> = wanting.take(most + 1).collect();
    if wanting.len() > most {
        return Vec::new();
    }
    sort(&mut wanting);
    wanting.into_iter().map(|candidate| candidate.node).collect()
}

/// Nodes that may be consolidated; of the others it is noted why not.
fn wanting(round: &mut Round) -> Vec<Candidate> {
    let mut wanting = Vec::new();
    for candidate in round.candidates(Class::Graceful) {
        match wants(round, &candidate) {
            Ok(()) => wanting.push(candidate),
            Err(why) if why.0 != "Empty" => note(round, &candidate, why.into()),
            Err(_) => {}
        }
    }
    wanting
}

/// Nodes that go together, because their pods share new ones; or one that needs none.
struct Group {
    candidates: Vec<Candidate>,
    /// By number in the chain.
    new_nodes: BTreeSet<usize>,
    /// The cheapest way to buy each of them.
    launches: Vec<LaunchOption>,
    savings: UsdPerHour,
}

/// Where pods go if one more candidate goes, the group in which it does, and the groups that it joins.
type Found = (Link, Group, BTreeSet<usize>);

/// What is looked at for every candidate.
struct Question {
    totals: Totals,
    averages: Averages,
}

impl Question {
    /// The least that a replacement must save to be worth moving the pods of `set`.
    fn least_savings(&self, set: &[Candidate]) -> UsdPerHour {
        set.iter().map(|one| self.averages.least_saving(one)).sum()
    }
}

/// What the candidates that were offered so far come to.
struct Sweep<'r, 'a> {
    round: &'r Round<'a>,
    question: &'r Question,
    chain: Chain,
    /// What is known of nodes that go alone, before any did.
    memory: Option<&'r RefCell<Remembered>>,
    allowances: BTreeMap<PoolName, Allowance>,
    /// In the order in which they were formed; those that were joined to later ones are empty.
    groups: Vec<Group>,
    group_of: FastMap<NodeName, usize>,
    group_with: FastMap<usize, usize>,
    /// Where pods go, as far as it is there already.
    destinations: BTreeMap<ObjectKey, Place>,
    refused: Vec<(Candidate, Refused)>,
    over_budget: Vec<Candidate>,
    /// The moves with which candidates would have disrupted a balanced pool too much.
    turned_down: BTreeMap<NodeName, Move>,
    /// Nothing but room matters to any pod that moves, and no others move but those of what goes.
    is_plain: bool,
    /// It is one of several steps of many nodes, because budgets do not let all go at once.
    is_step: bool,
    /// What goes in a moment is worth so much that nothing of less worth may go instead now.
    awaited: UsdPerHour,
}

impl<'r, 'a> Sweep<'r, 'a> {
    /// `candidates`: in the order in which they are offered, first in `turn`. `order`: that in which pods are offered to what is there.
    fn over(
        round: &'r Round<'a>,
        question: &'r Question,
        candidates: &[Candidate],
        mut turn: Turn,
        order: &[Place],
        allowances: BTreeMap<PoolName, Allowance>,
        memory: Option<&'r RefCell<Remembered>>,
    ) -> Self {
        let chain = round.chain(order);
        if let Some(memory) = memory {
            memory.borrow_mut().follow(round, &chain);
        }
        let mut sweep = Self {
            round,
            question,
            chain,
            memory,
            allowances,
            groups: Vec::new(),
            group_of: FastMap::default(),
            group_with: FastMap::default(),
            destinations: BTreeMap::new(),
            refused: Vec::new(),
            over_budget: Vec::new(),
            turned_down: BTreeMap::new(),
            is_plain: true,
            is_step: false,
            awaited: UsdPerHour::ZERO,
        };
        let mut offered: Vec<Candidate> = candidates.to_vec();
        let open = |(_, allowance): &(&PoolName, &Allowance)| allowance.remaining() > 0;
        let open: BTreeSet<PoolName> = sweep.allowances.iter().filter(open).map(|(pool, _)| *pool).collect();
        for _ in 0..TURNS_MAX {
            let before = sweep.group_of.len();
            for candidate in &offered {
                sweep.offer(candidate, turn);
            }
            if sweep.refused.is_empty() || (turn != Turn::Free && sweep.group_of.len() == before) {
                break;
            }
            let is_busy = sweep.is_limited(&open);
            turn = if is_busy { Turn::Busy } else { Turn::Paid };
            offered =
                std::mem::take(&mut sweep.refused).into_iter().map(|(candidate, _)| candidate).collect();
        }
        sweep.is_step = sweep.is_limited(&open);
        sweep
    }

    /// Whether budgets hold back nodes of the pools `open`.
    fn is_limited(&self, open: &BTreeSet<PoolName>) -> bool {
        self.over_budget.iter().any(|candidate| open.contains(&candidate.pool))
    }

    /// What is saved, less what moving pods has to be worth.
    fn worth(&self) -> UsdPerHour {
        let worth = |group: &Group| group.savings - self.question.least_savings(&group.candidates);
        self.groups.iter().filter(|group| !group.candidates.is_empty()).map(worth).sum()
    }

    /// The sets of nodes that go at once: those that need nothing new as many together as may be, then the others.
    fn sets(&self) -> Vec<Vec<Candidate>> {
        let (with, without) = parted(&self.groups);
        self.alone(without)
            .into_iter()
            .chain(with.into_iter().map(|group| group.candidates.clone()))
            .collect()
    }

    /// Nodes that need nothing new, as many together as may be. Of a step each goes by itself, what saves most per disruption first: the
    /// others wait for these to be gone.
    fn alone(&self, groups: Vec<&Group>) -> Vec<Vec<Candidate>> {
        let mut all: Vec<Candidate> = groups.into_iter().flat_map(|group| group.candidates.clone()).collect();
        if self.is_step {
            sort(&mut all);
        }
        all.chunks(if self.is_step { 1 } else { NODES_MAX }).map(<[Candidate]>::to_vec).collect()
    }

    /// The sets that it would let go.
    fn rivals(&self) -> Vec<Rival> {
        let worth = self.worth();
        let (with, without) = parted(&self.groups);
        let deleted = self.alone(without).into_iter().map(|set| {
            let price = set.iter().map(|candidate| candidate.price).sum();
            Rival::of(&set, price, worth)
        });
        let replaced = with
            .into_iter()
            .map(|group| Rival::of(&group.candidates, group.savings, worth).with(group.launches.clone()));
        deleted.chain(replaced).collect()
    }

    fn offer(&mut self, candidate: &Candidate, turn: Turn) {
        let Some(allowance) = self.allowances.get(&candidate.pool) else { return };
        if allowance.remaining() == 0 {
            self.over_budget.push(candidate.clone());
            return;
        }
        match self.judge(candidate, turn) {
            Ok((link, group, joined)) => self.take(candidate, link, group, joined),
            Err(why) => self.refused.push((candidate.clone(), why)),
        }
    }

    /// What it comes to if `candidate` goes as well.
    fn judge(&mut self, candidate: &Candidate, turn: Turn) -> Result<Found, Refused> {
        self.question.totals.precheck(candidate)?;
        let [thrifty, plain] = FITS;
        if turn == Turn::Free {
            return self.judge_with(candidate, Fit::Nothing, turn);
        }
        let first = self.judge_with(candidate, thrifty, turn);
        if first.as_ref().is_ok_and(|(_, group, _)| group.new_nodes.is_empty()) {
            return first;
        }
        let second = self.judge_with(candidate, plain, turn);
        let gained = |(_, group, joined): &Found| {
            group.savings - joined.iter().map(|at| self.groups[*at].savings).sum()
        };
        best([first, second], gained)
    }

    fn judge_with(&mut self, candidate: &Candidate, fit: Fit, turn: Turn) -> Result<Found, Refused> {
        if let Some(known) = self.known(candidate, fit) {
            self.settle_alone(candidate, turn, &known)?;
        }
        let asked = self.round.ask(&mut self.chain, candidate, fit);
        let met = asked.and_then(|link| Ok((self.meets(candidate, &link)?, link)));
        let ((joined, new_nodes), link) =
            met.inspect_err(|why| self.keep(candidate, fit, Answer::Nowhere(why.clone())))?;
        let parts = joined.iter().map(|at| &self.groups[*at]);
        let mut candidates: Vec<Candidate> =
            parts.clone().flat_map(|group| group.candidates.clone()).collect();
        candidates.push(candidate.clone());
        if candidates.len() > NODES_MAX {
            let message = format!("it would be one of more than {NODES_MAX} nodes that go together");
            return Err(("TooManyTogether", message));
        }
        let before: UsdPerHour = parts.map(|group| group.savings).sum();
        let price: UsdPerHour = candidates.iter().map(|candidate| candidate.price).sum();
        let wanted = self.round.new_nodes_of(&link, &new_nodes);
        let wanted = suited(self.round, &candidates, wanted);
        let savings = match &wanted {
            Ok(wanted) => Ok(price - wanted.iter().map(|node| node.price()).sum()),
            Err(why) => Err(why.clone()),
        };
        let buys = !new_nodes.is_empty();
        let answer = if buys { Answer::New(savings.clone()) } else { Answer::There };
        self.keep(candidate, fit, answer);
        let (wanted, savings) = (wanted?, savings?);
        self.settle(candidate, &candidates, (before, savings), buys.then_some(turn))?;
        let launches = launches(&wanted);
        Ok((link, Group { candidates, new_nodes, launches, savings }, joined))
    }

    /// What is known of `candidate` from before; of use as long as nobody went.
    fn known(&self, candidate: &Candidate, fit: Fit) -> Option<Answer> {
        let memory = self.memory.filter(|_| self.groups.is_empty())?;
        memory.borrow().answer(candidate, fit).cloned()
    }

    fn keep(&self, candidate: &Candidate, fit: Fit, answer: Answer) {
        if let Some(memory) = self.memory.filter(|_| self.groups.is_empty()) {
            let relied = self.chain.relied.as_ref();
            memory.borrow_mut().keep(self.round, candidate, fit, relied, answer);
        }
    }

    /// Why nothing comes of `candidate`, if that follows from what is `known`.
    fn settle_alone(&mut self, candidate: &Candidate, turn: Turn, known: &Answer) -> Result<(), Refused> {
        let alone = std::slice::from_ref(candidate);
        match known {
            Answer::Nowhere(why) => Err(why.clone()),
            Answer::There => self.settle(candidate, alone, (UsdPerHour::ZERO, candidate.price), None),
            Answer::New(Err(why)) => Err(why.clone()),
            Answer::New(Ok(savings)) => {
                self.settle(candidate, alone, (UsdPerHour::ZERO, *savings), Some(turn))
            }
        }
    }

    /// Whether what `candidates` save together is worth it, with `candidate` as the last of them. `turn`: something is bought in it.
    fn settle(
        &mut self,
        candidate: &Candidate,
        candidates: &[Candidate],
        (before, savings): (UsdPerHour, UsdPerHour),
        turn: Option<Turn>,
    ) -> Result<(), Refused> {
        if turn.is_some() && savings <= before {
            return Err(no_cheaper());
        }
        let gained = savings - before;
        let averages = &self.question.averages;
        let least = averages.least_saving(candidate);
        if turn.is_some() && gained < least {
            let message = format!(
                "a cheaper node would save ${gained} an hour, which is less than the ${least} that moving its pods should save"
            );
            return Err(("TooLittleSaved", message));
        }
        if turn == Some(Turn::Busy) && gained < averages.share(candidate) {
            let message = format!(
                "a cheaper node would save ${gained} an hour; nodes whose pods need no new one go first, within their budgets"
            );
            return Err(("OthersFirst", message));
        }
        let weighed = self.question.totals.weigh(candidates, savings);
        let approved = approve(&weighed.scores);
        if approved.is_err() {
            self.turned_down.insert(candidate.node, weighed);
        }
        approved
    }

    /// The groups that `candidate` shares new nodes with, and those nodes.
    fn meets(
        &self,
        candidate: &Candidate,
        link: &Link,
    ) -> Result<(BTreeSet<usize>, BTreeSet<usize>), Refused> {
        let is_of_others = |pod: &Pod| {
            pod.node.is_none_or(|node| node != candidate.node && !self.group_of.contains_key(&node))
        };
        let on_new = link.moved.iter().filter_map(|(pod, to)| match to {
            To::New(at) => Some((pod, *at)),
            To::Existing(_) => None,
        });
        let (mut joined, mut new_nodes) = (BTreeSet::<usize>::new(), BTreeSet::<usize>::new());
        let mut opened: BTreeSet<usize> = (self.chain.new_nodes()..link.new_nodes()).collect();
        for (pod, at) in on_new {
            if pod.buffer().is_some() {
                continue;
            }
            if is_of_others(pod) {
                return Err(needed_by_waiting_pods());
            }
            new_nodes.insert(at);
            opened.remove(&at);
            joined.extend(self.group_with.get(&at));
            joined.extend(pod.node.and_then(|node| self.group_of.get(&node)));
        }
        if !opened.is_empty() {
            return Err(needed_by_waiting_pods());
        }
        new_nodes.extend(joined.iter().flat_map(|group| self.groups[*group].new_nodes.iter().copied()));
        Ok((joined, new_nodes))
    }

    fn take(&mut self, candidate: &Candidate, link: Link, group: Group, joined: BTreeSet<usize>) {
        if let Some(allowance) = self.allowances.get_mut(&candidate.pool) {
            allowance.take();
        }
        for (pod, to) in &link.moved {
            match to {
                To::Existing(place) => drop(self.destinations.insert(pod.key, *place)),
                To::New(_) => drop(self.destinations.remove(&pod.key)),
            }
        }
        self.turned_down.remove(&candidate.node);
        let is_of_these = |pod: &Pod| {
            pod.node.is_some_and(|node| node == candidate.node || self.group_of.contains_key(&node))
        };
        self.is_plain &= link.is_plain && link.moved.iter().all(|(pod, _)| is_of_these(pod));
        self.chain.take_up(link);
        for at in joined {
            self.groups[at].candidates.clear();
        }
        let at = self.groups.len();
        self.group_of.extend(group.candidates.iter().map(|candidate| (candidate.node, at)));
        self.group_with.extend(group.new_nodes.iter().map(|node| (*node, at)));
        self.groups.push(group);
    }
}

/// The order in which pods are offered to what is there: to what stays in any case, to `takers` by `filling`, to what is not ready; and to
/// none else of `all` that may go.
fn preferred(round: &Round, all: &[Candidate], takers: &[Candidate], filling: Filling) -> Vec<Place> {
    let movable: BTreeSet<Place> = all.iter().map(|candidate| Place::Node(candidate.node)).collect();
    let (ready, starting): (Vec<Place>, Vec<Place>) = round
        .places()
        .into_iter()
        .filter(|place| !movable.contains(place))
        .partition(|place| round.is_reliable(place));
    let mut movable: Vec<&Candidate> = takers.iter().rev().collect();
    if filling == Filling::Dearest {
        movable.sort_by_key(|candidate| Reverse(candidate.price));
    }
    let movable = movable.into_iter().map(|candidate| Place::Node(candidate.node));
    ready.into_iter().chain(movable).chain(starting).collect()
}

/// The groups that still stand: those that need new nodes, and the others.
fn parted(groups: &[Group]) -> (Vec<&Group>, Vec<&Group>) {
    let standing = groups.iter().filter(|group| !group.candidates.is_empty());
    standing.partition(|group| !group.new_nodes.is_empty())
}

/// Starts the removal of `set`, or of as much of it as holds in the picture that earlier commands have left.
fn start(round: &mut Round, choice: &Choice, set: &[Candidate], commands: &mut Vec<Command>) {
    let Choice { question, destinations, worth, rivals, .. } = choice;
    let deletion = choice.deletion(round, set);
    debug_assert!(
        deletion.as_ref().is_none_or(|found| *found == decide(round, &question.totals, set, destinations)),
        "it is what would be found now"
    );
    match deletion.unwrap_or_else(|| decide(round, &question.totals, set, destinations)) {
        Ok(mut command) => {
            round.moves.push(question.totals.weigh(set, command.savings));
            command.least_savings = Some(question.least_savings(set));
            let shares = |rival: &&Rival| rival.nodes.iter().any(|node| command.nodes.contains(node));
            let of_these: Vec<&Rival> = rivals.iter().filter(shares).collect();
            alternatives::note(round, &mut command, *worth, of_these.into_iter());
            round.start(&command);
            commands.push(command);
        }
        Err(why) if set.len() == 1 => note(round, &set[0], why.into()),
        Err(_) => {
            for one in set.chunks(1) {
                start(round, choice, one, commands);
            }
        }
    }
}

/// Finds out whether `candidate` is kept by nothing but its pool's budgets: if they are closed, it is judged as if they were
/// open. Most nodes are used as they should be, and of those there is nothing to tell.
fn hold_if_it_would_go(round: &mut Round, totals: &Totals, candidate: &Candidate, allowance: &Allowance) {
    if round.held.contains_key(&candidate.node) || !allowance.is_closed() {
        return;
    }
    let would_go = totals.precheck(candidate).is_ok()
        && decide(round, totals, std::slice::from_ref(candidate), &BTreeMap::new()).is_ok();
    if would_go {
        round.hold(candidate, allowance, REASON);
    }
}

/// Where the pods of `command` go, as far as it is there already.
pub(super) fn destinations_of(command: &Command) -> BTreeMap<ObjectKey, Place> {
    let existing = command.pods.iter().filter_map(|(pod, to)| match to {
        Destination::Existing(place) => Some((*pod, *place)),
        Destination::Replacement(_) | Destination::Nowhere => None,
    });
    existing.collect()
}

/// A drift that could not be carried out says more than consolidation does; so does what keeps a node from what its
/// pool prefers, or one that is too old.
fn note(round: &mut Round, candidate: &Candidate, why: KeepReason) {
    let is_told = round.notes.contains_key(&candidate.node)
        && expiration::should_be_gone(round, round.claim(candidate));
    if is_told || round.notes.get(&candidate.node).is_some_and(super::returning::is_said_of_fallback) {
        return;
    }
    if round.claim(candidate).conditions.is_true(crate::model::claim::ConditionType::Drifted)
        && round.notes.contains_key(&candidate.node)
    {
        return;
    }
    round.notes.insert(candidate.node, why);
}
