//! The third construction: a pod goes onto the new node that it makes dearer by the least, or onto one of its own if that costs less.
//! It is tried with and without the latter, and in several orders: what is best for one pod need not be for those that come after it.
//!
//! Filling the emptiest node first puts a pod that only few types suit on many nodes, each of which then has to be one of those types.
//! This looks at all new nodes for each pod, so it is for a few hundred pods; for more, [`by_price`](super::by_price) packs whole machines.

use super::super::amounts::Amounts;
use super::super::bin::{Admission, Guest};
use super::super::demand::DemandId;
use super::super::ground::Ground;
use super::super::{Request, Solution};
use super::by_price::{cost, saves};
use super::by_priority::unserved;
use super::keeping::Start;
use super::{By, Fit, Grievances, Search, Turn};
use crate::model::hash::FastSet;
use crate::model::money::UsdPerHour;

/// In what orders. Those who fared worst in the best answer so far come first in three of them, as in squeaky wheel optimisation (Joslin
/// and Clements, 1999).
const ORDERS: [By; 8] =
    [By::Cpu, By::Turns, By::Memory, By::Company, By::Grievance, By::Grievance, By::Grievance, By::Choice];

/// Few pods are placed in so many more orders that chance has a say in.
const CHANCES: u8 = 8;
const CHANCE_PODS_MAX: usize = 300;

/// More pods than this are not placed again.
const PODS_MAX: usize = 2_000;

/// Each try looks at so many pairs of pods that get new nodes and of those nodes; all tries together at no more than this.
const PAIRS_MAX: usize = 400_000;

/// A plan that saves less than one part in so many is not worth another look.
const SAVING_MIN: i64 = 200;

/// A few large nodes are easier to keep to than many small ones, so each node more has to save as much as one in so many of them costs.
const NODE_WORTH: i64 = 10;

/// An answer to `request` in which fewer pods have no place than in `first`, or that is cheaper and leaves over none that ask for more.
pub(super) fn better(
    ground: &mut Ground,
    request: &Request,
    first: &Solution,
    turn: Turn,
) -> Option<Solution> {
    let pods: usize = first.new_nodes.iter().map(|node| node.pods.len()).sum();
    if pods == 0 || request.pods.len() < 2 || request.pods.len() > PODS_MAX {
        return None;
    }
    let fits = [Fit::First, Fit::Cheapest, Fit::CheapestOpen];
    let chances = (0..CHANCES).filter(|_| request.pods.len() <= CHANCE_PODS_MAX).map(By::Chance);
    let tries = ORDERS.into_iter().chain(chances).flat_map(|by| fits.map(|fit| (by, fit)));
    let mut tried: FastSet<(Vec<DemandId>, Fit)> = FastSet::default();
    let start = Start::of(ground, request, first);
    let mut best: Option<Solution> = None;
    for (by, fit) in tries.skip(1).take(PAIRS_MAX / (pods * first.new_nodes.len())) {
        let than = best.as_ref().unwrap_or(first);
        let grievances = if by == By::Grievance { grievances(than) } else { Grievances::default() };
        let turn = Turn { by, ..turn };
        let search = match &start {
            Some(start) => start.search(request, ground),
            None => Search::begin(request, ground),
        };
        let mut search = Search { turn, fit, grievances, ..search };
        let order = search.ordered();
        if !tried.insert((order.into_iter().map(|pod| search.demands[pod]).collect(), fit)) {
            continue;
        }
        search.run();
        let answer = search.solution();
        if unserved(request, &answer) < unserved(request, than)
            || saves(request, &answer, than, least_saving(than, &answer))
        {
            best = Some(answer);
        }
    }
    sparing(ground, request, best.as_ref().unwrap_or(first), turn).or(best)
}

/// An answer in which fewer pods have no place than in `than`, because what limits leave of pools is kept for those that need it: a heavier
/// pool may have been spent on pods that a lighter one could have had.
fn sparing(ground: &mut Ground, request: &Request, than: &Solution, turn: Turn) -> Option<Solution> {
    let has_limits = ground.templates.iter().any(|template| template.pool.limits.is_some());
    if than.unschedulable.is_empty() || !has_limits {
        return None;
    }
    let answers = [Fit::First, Fit::Cheapest].map(|fit| {
        let mut search = Search { turn, fit, spares_limits: true, ..Search::begin(request, ground) };
        search.run();
        search.solution()
    });
    let fewer = answers.into_iter().filter(|answer| unserved(request, answer) < unserved(request, than));
    fewer.min_by_key(|answer| unserved(request, answer))
}

/// How badly each pod fares: one without a place worst, others by their part of what their new node costs.
fn grievances(solution: &Solution) -> Grievances {
    let left = solution.unschedulable.iter().map(|left| (left.pod, i64::MAX));
    let placed = solution.new_nodes.iter().flat_map(|node| {
        let part = node.price().0 / (node.pods.len() as i64).max(1);
        node.pods.iter().map(move |pod| (*pod, part))
    });
    left.chain(placed).collect()
}

fn least_saving(first: &Solution, second: &Solution) -> UsdPerHour {
    let (few, many) = (first.new_nodes.len() as i64, second.new_nodes.len() as i64);
    let bill = cost(first).0;
    UsdPerHour(bill / SAVING_MIN + bill / (NODE_WORTH * few.max(1)) * (many - few).max(0))
}

impl Search<'_, '_> {
    /// Of the new nodes that take the pod, the one that it makes dearer by the least; none if one of its own is cheaper and may be
    /// opened beside them.
    pub(super) fn cheapest_bin(&mut self, at: usize, guest: &Guest) -> Option<(usize, Admission)> {
        let mut best: Option<(UsdPerHour, usize)> = None;
        let free = self.find_bin(at, guest, |taker, around| {
            let (before, after) =
                (taker.bin.price(around), taker.bin.price_as(&taker.becomes, taker.requests, around));
            let (Some(before), Some(after)) = (before, after) else { return false };
            let more = UsdPerHour(after.0 - before.0);
            if best.is_none_or(|(least, _)| more < least) {
                best = Some((more, taker.index));
            }
            more.0 <= 0
        });
        if free.is_some() {
            return free;
        }
        let (more, index) = best?;
        if self.fit == Fit::Cheapest
            && let Ok((bin, admission)) = self.new_bin(at, guest)
            && let Some(own) = bin.price_as(&admission, &guest.demand.requests, &mut self.surroundings())
            && own < more
        {
            return None;
        }
        let bin = self.layout.bins[index].clone();
        let mut requests = Amounts::new();
        bin.sum_with(guest, &self.ground.columns, &mut requests);
        let admission = bin.admits(index, guest, &requests, &mut self.surroundings());
        admission.ok().map(|admission| (index, admission))
    }
}
