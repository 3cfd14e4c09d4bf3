//! The third construction: a pod goes onto the new node that it makes dearer by the least, or onto one of its own if that costs less.
//!
//! Filling the emptiest node first puts a pod that only few types suit on many nodes, each of which then has to be one of those types.
//! This looks at all new nodes for each pod, so it is for a few hundred pods; for more, [`by_price`](super::by_price) packs whole machines.

use super::super::bin::{Admission, Guest};
use super::super::ground::Ground;
use super::super::{Request, Solution};
use super::by_price::{cost, saves};
use super::{Fit, Search, Turn};
use crate::model::money::UsdPerHour;

/// More pods than this are not placed again.
const PODS_MAX: usize = 2_000;

/// Of pods that get new nodes and of those nodes: a greater product is too much work.
const PAIRS_MAX: usize = 20_000;

/// A plan that saves less than one part in so many is not worth another look.
const SAVING_MIN: i64 = 200;

/// A few large nodes are easier to keep to than many small ones, so each node more has to save as much as one in so many of them costs.
const NODE_WORTH: i64 = 10;

/// An answer to `request` that is cheaper than `first`, and in which no more pods have no place.
pub(super) fn cheaper(
    ground: &mut Ground,
    request: &Request,
    first: &Solution,
    turn: Turn,
) -> Option<Solution> {
    let pods: usize = first.new_nodes.iter().map(|node| node.pods.len()).sum();
    if pods < 2 || request.pods.len() > PODS_MAX || pods * first.new_nodes.len() > PAIRS_MAX {
        return None;
    }
    let mut search = Search { turn, fit: Fit::Cheapest, ..Search::begin(request, ground) };
    search.run();
    let second = search.solution();
    saves(request, &second, first, least_saving(first, &second)).then_some(second)
}

fn least_saving(first: &Solution, second: &Solution) -> UsdPerHour {
    let (few, many) = (first.new_nodes.len() as i64, second.new_nodes.len() as i64);
    let bill = cost(first).0;
    UsdPerHour(bill / SAVING_MIN + bill / (NODE_WORTH * few.max(1)) * (many - few).max(0))
}

impl Search<'_, '_> {
    /// Of the new nodes that take the pod, the one that it makes dearer by the least; none if one of its own is cheaper.
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
        if let Ok((bin, admission)) = self.new_bin(at, guest)
            && let Some(own) = bin.price_as(&admission, &guest.demand.requests, &mut self.surroundings())
            && own < more
        {
            return None;
        }
        let bin = self.layout.bins[index].clone();
        let admission = bin.admits(index, guest, &mut self.surroundings());
        admission.ok().map(|admission| (index, admission))
    }
}
