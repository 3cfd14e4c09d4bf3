//! Nodes that nobody would miss: given back all at once, within their budgets.

use std::collections::BTreeMap;

use super::candidates::{Candidate, Class};
use super::command::{Command, Destination, Method};
use super::cost;
use super::round::Round;
use crate::capacity::scheduling::Fit;
use crate::model::claim::ConditionType;
use crate::model::money::UsdPerHour;
use crate::model::pool::DisruptionReason;

/// One command with every empty node that may go now.
pub(super) fn plan(round: &mut Round) -> Option<Command> {
    let mut candidates = Vec::new();
    for candidate in round.candidates(Class::Graceful) {
        if wants(round, &candidate) {
            candidates.push(candidate);
        } else if candidate.is_empty() && round.hosts.contains(&candidate.node) {
            let why = "it is empty, but it has room that a CapacityBuffer keeps";
            round.note(candidate.node, "BufferPods", why);
        } else if candidate.is_empty() && round.awaited.contains(&candidate.node) {
            let why = "it is empty, but pods of a node that goes are expected there";
            round.note(candidate.node, "PodsExpected", why);
        }
    }
    if candidates.is_empty() {
        return None;
    }
    candidates.sort_by(|a, b| {
        cost::by_savings((a.price, a.disruption), (b.price, b.disruption))
            .then_with(|| (a.pool, a.node).cmp(&(b.pool, b.node)))
    });
    let mut allowances = round.allowances(DisruptionReason::Empty);
    let mut chosen = Vec::new();
    for candidate in candidates {
        let Some(allowance) = allowances.get_mut(&candidate.pool) else { continue };
        if allowance.remaining() == 0 {
            round.limit(&candidate, allowance, DisruptionReason::Empty);
            continue;
        }
        allowance.take();
        chosen.push(candidate);
    }
    if chosen.is_empty() {
        return None;
    }
    Some(command(round, &chosen))
}

pub(super) fn command(round: &Round, chosen: &[Candidate]) -> Command {
    let savings: UsdPerHour = chosen.iter().map(|candidate| candidate.price).sum();
    Command::new(Method::Emptiness, chosen, Vec::new(), savings, destinations(round, chosen))
}

/// An empty node of a pool that consolidates, if no buffer keeps room on it, and no pods that take their time are to come.
pub(super) fn wants(round: &Round, candidate: &Candidate) -> bool {
    let Some(pool) = round.cluster.pools.get(&candidate.pool) else { return false };
    !pool.is_static()
        && pool.disruption.consolidate_after.duration.is_some()
        && candidate.is_empty()
        && round.claim(candidate).conditions.is_true(ConditionType::Consolidatable)
        && !round.hosts.contains(&candidate.node)
        && !round.awaited.contains(&candidate.node)
}

/// An empty node may still run pods of no weight: they are told where they can go, but do not keep it.
fn destinations(round: &Round, chosen: &[Candidate]) -> Vec<(crate::model::name::ObjectKey, Destination)> {
    let leaving: Vec<_> = chosen.iter().flat_map(|candidate| round.leaving_pods(candidate.node)).collect();
    if leaving.is_empty() {
        return Vec::new();
    }
    let chosen: Vec<&Candidate> = chosen.iter().collect();
    let simulated = round.simulate_towards(&chosen, true, &BTreeMap::new(), Fit::First);
    super::command::destinations(&leaving, &simulated.solution, false)
}
