//! What the pods on new nodes cost at the very least, however they are put onto nodes.
//!
//! A plan is found by trying, so it may be dearer than need be; this says by how much at most. Every pod gets a price such that
//! no machine that is sold carries pods worth more than it costs. Then no set of machines that carries all of them costs less
//! than all pods are worth together. Good prices come from a linear program over fillings of machines ([`pricing`], in floating point);
//! that they keep to what was said is proven for each machine ([`proof`]), in whole numbers or by trying all that could be worth more
//! ([`stowing`]), so an inexact price makes the bound worse and never wrong.
//!
//! Kept of the rules are resources, daemons, pods per node, and which pods may be on which machines at all. Left out are rules about other
//! pods, volumes, ports, limits and weights of pools, minimums of distinct values, and wishes: without them machines can only be cheaper.

mod filling;
mod market;
mod pricing;
mod proof;
mod stowing;

use super::Request;
use super::Solution;
use super::ground::Ground;
use crate::model::money::UsdPerHour;

pub(super) use filling::{Offered, fullest};
pub(super) use market::{Machine, Market, Ways};
pub(super) use pricing::{Filled, Priced, prices};
pub(super) use proof::Certificate;

/// More groups of pods than this are priced by coarser ones.
const GROUPS_MAX: usize = 100;

/// The least that any new nodes cost which carry the pods that `solution` puts on new nodes.
pub(super) fn lower_bound(ground: &Ground, request: &Request, solution: &Solution) -> UsdPerHour {
    UsdPerHour(least(&Market::of(ground, request, solution)))
}

fn least(market: &Market) -> i64 {
    if let Some(cheapest) = market.cheapest().filter(|price| *price < 0) {
        // Where machines are paid for being bought, one for each pod is the most that a plan has.
        return cheapest.saturating_mul(market.pods());
    }
    let mut best = proof::single(market);
    if !market.reserved.is_empty() {
        best = best.max(least_of(&market.with_endless_reservations()));
    }
    best.max(least_of(market))
}

fn least_of(market: &Market) -> i64 {
    let coarse = market.coarse(GROUPS_MAX).map(|(coarse, _)| coarse);
    // What pods of the coarse market need is no more than what those of the true one do.
    let of_pods = coarse.as_ref().unwrap_or(market);
    let found = pricing::prices(of_pods).certificate;
    let mut best = proof::proven(of_pods, &found);
    if coarse.is_some() {
        best = best.max(proof::proven(market, &Certificate::of_simple_parts(market)));
        best = best.max(proof::proven(market, &Certificate::of_resources(market, found.resources)));
    }
    best
}

#[cfg(test)]
mod tests;
