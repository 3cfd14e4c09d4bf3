//! Nodes that are older than their claim allows: they go whatever budgets say, as soon as the windows of
//! their pool let them (or, if it wants them to go in an orderly way, once that has failed for too long: [`renewal`]), and room for their pods is planned as they go.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::candidates::{Candidate, KeepReason};
use super::command::{Command, Method, destinations};
use super::round::Round;
use super::{renewal, windows};
use crate::capacity::cluster::Cluster;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::label;
use crate::model::money::UsdPerHour;
use crate::model::name::{ClaimName, NodeName, PoolName};
use crate::model::pool::{DisruptionReason, NodePool};

/// Nothing goes at this time of the week.
const OUTSIDE: &str = "OutsideWindow";

/// When `claim` is too old; `None`: never, or not before its machine has joined. The next one would take as long.
pub(crate) fn due(claim: &NodeClaim) -> Option<Timestamp> {
    if !claim.conditions.is_true(ConditionType::Registered) {
        return None;
    }
    claim.created?.checked_add(claim.spec.expire_after.duration?).ok()
}

/// Whether `claim` is older than it may become.
pub(super) fn is_past(claim: &NodeClaim, now: Timestamp) -> bool {
    due(claim).is_some_and(|due| due <= now)
}

/// Whether `claim` would be gone for its age if nothing kept it.
pub(super) fn should_be_gone(round: &Round, claim: &NodeClaim) -> bool {
    is_past(claim, round.now) || renewal::is_due(&round.cluster, claim, round.now)
}

/// When `claim` goes for its age by force, or is to be looked at again: once it is too old, and as soon as the windows of its pool let
/// it go; in a pool that lets nodes go for their age in an orderly way, at its deadline. `None`: never, or not before somebody changes
/// something.
pub(crate) fn goes_at(cluster: &Cluster, claim: &NodeClaim, now: Timestamp) -> Option<Timestamp> {
    let due = due(claim)?;
    let pool = claim.pool().and_then(|name| cluster.pools.get(&name));
    if let Some(word) = pool.and_then(|pool| pool.terms.expiration.as_ref()) {
        return due.checked_add(word.meaning.as_ref().ok()?.deadline?).ok();
    }
    match pool.filter(|_| due <= now).and_then(|pool| windows::opens(pool, DisruptionReason::Expired, now)) {
        Some(opens) => opens,
        None => Some(due),
    }
}

/// Says of nodes that are too old why they stay all the same.
pub(super) fn note_held(round: &mut Round) {
    let held = |claim: &&Arc<NodeClaim>| {
        claim.deleted.is_none()
            && is_past(claim, round.now)
            && goes_at(&round.cluster, claim, round.now).is_none_or(|at| round.now < at)
    };
    let claims: Vec<Arc<NodeClaim>> = round.cluster.claims.values().filter(held).cloned().collect();
    for claim in claims {
        let pool = claim.pool().and_then(|name| round.cluster.pools.get(&name));
        let why = pool.and_then(|pool| held_by(pool, round.now));
        if let (Some((code, why)), Some(node)) = (why, round.cluster.node_of(&claim).map(|node| node.name)) {
            let limited = (code == OUTSIDE).then_some(DisruptionReason::Expired);
            let message = format!("expired, but {why}");
            round.notes.insert(node, KeepReason { limited, ..KeepReason::new(code, message) });
            round.held.insert(node, DisruptionReason::Expired);
        }
    }
}

/// Why nodes of `pool` that are too old are not sent off by force.
fn held_by(pool: &NodePool, now: Timestamp) -> Option<(&'static str, String)> {
    match &pool.terms.expiration {
        Some(word) if word.meaning.is_ok() => None,
        Some(_) => {
            let why = format!("it stays: provisor.dev/expiration of pool {} cannot be read", pool.name);
            Some(("ExpirationUnreadable", why))
        }
        None => Some((OUTSIDE, windows::shut(pool, DisruptionReason::Expired, now)?)),
    }
}

/// Claims that are too old at `now`: they go before anything else is decided.
pub(crate) fn all_due(cluster: &Cluster, now: Timestamp) -> BTreeSet<ClaimName> {
    let is_due = |claim: &&Arc<NodeClaim>| {
        let goes = || goes_at(cluster, claim, now).is_some_and(|at| at <= now);
        claim.deleted.is_none() && claim.pool().is_some() && goes()
    };
    cluster.claims.values().filter(is_due).map(|claim| claim.name).collect()
}

/// The next claim that is too old, the oldest first; those with pods that follow others come after those others have a place.
/// `surplus` goes as well, so nothing is put there.
pub(super) fn plan(round: &mut Round, surplus: &BTreeSet<ClaimName>) -> Option<Command> {
    let all = all_due(&round.cluster, round.now);
    let claims = all.iter().filter_map(|name| round.cluster.claims.get(name));
    let claim = claims
        .filter(|claim| !round.made.contains(&claim.name))
        .min_by_key(|claim| (has_followers(&round.cluster, claim), claim.created, claim.name))?
        .clone();
    let node = round.cluster.node_of(&claim).cloned();
    let pool = claim.pool().unwrap_or_else(|| PoolName::new(""));
    let candidate = Candidate {
        node: node.as_ref().map_or(NodeName(claim.name.0), |node| node.name),
        claim: claim.name,
        pool,
        price: node
            .as_ref()
            .map_or(UsdPerHour::ZERO, |node| super::cost::price(node, &round.supply.sold(pool))),
        disruption: 0,
        is_spot: node.is_some_and(|node| {
            node.labels.get(&*label::CAPACITY_TYPE).is_some_and(|kind| &**kind == "spot")
        }),
        is_of_known_type: true,
    };
    let pods = round.leaving_pods(candidate.node);
    let gone: BTreeSet<ClaimName> = all.union(surplus).copied().collect();
    let mut solution = round.simulate_alone(&[candidate.node], &gone);
    // What has no place for other reasons is not this command's business.
    solution.new_nodes.retain(|new| new.pods.iter().any(|pod| pods.contains(pod)));
    let replacements = round.replacements(&solution, &pods);
    let spent: UsdPerHour = replacements.iter().map(|node| node.price()).sum();
    let to = destinations(&pods, &solution, true);
    let savings = candidate.price - spent;
    Some(Command::new(Method::Expiration, &[candidate], replacements, savings, to))
}

/// Whether pods of `claim` demand to be where other pods are.
fn has_followers(cluster: &Cluster, claim: &NodeClaim) -> bool {
    cluster
        .node_of(claim)
        .is_some_and(|node| cluster.pods_of(node.name).any(|pod| !pod.shape.affinity_required.is_empty()))
}
