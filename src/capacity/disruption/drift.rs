//! Nodes that are not what their pool would make now: replaced whatever the price, in each pool the oldest drift first. Pools take
//! turns, so that none waits for another; how far each may go is its roll's matter.

pub(crate) mod batch;

use std::collections::{BTreeMap, BTreeSet};

use super::budgets::Allowance;
use super::candidates::{Candidate, Class};
use super::command::{Command, Destination, Method, destinations};
use super::consolidation;
use super::roll::{self, Room, Standing};
use super::round::Round;
use crate::capacity::scheduling::Fit;
use crate::capacity::static_capacity;
use crate::model::claim::ConditionType;
use crate::model::count::counted;
use crate::model::money::UsdPerHour;
use crate::model::name::{NodeName, PoolName};
use crate::model::pool::DisruptionReason;

/// Of more nodes that consolidation may give back none is avoided: it takes a simulation for each half of them.
const AVOIDED_MAX: usize = 100;

/// The next drifted node that can go, with everything that has to come first.
pub(super) fn plan(round: &mut Round) -> Option<Command> {
    let mut candidates = drifted(round, false);
    if candidates.is_empty() {
        return None;
    }
    // A node that nothing came of makes room for others of its pool: it may be the only one with that trouble.
    candidates.sort_by_key(|candidate| {
        let has_pods = round.cluster.pods_of(candidate.node).any(|pod| super::cost::has_to_move(pod));
        let since = round.claim(candidate).conditions.true_since(ConditionType::Drifted);
        let failures = round.tries.failures_of(candidate.claim);
        (round.tries.turn_of(candidate.pool), has_pods, failures, since, candidate.node)
    });
    let allowances = round.allowances(DisruptionReason::Drifted);
    let rooms = rooms(round, &candidates);
    for (at, candidate) in candidates.iter().enumerate() {
        let Some(allowance) = allowances.get(&candidate.pool) else { continue };
        let Some(room) = rooms.get(&candidate.pool) else { continue };
        if !has_budget(round, candidate, allowance) {
            continue;
        }
        match replace(round, std::slice::from_ref(candidate), room, Fit::First) {
            Ok(command) => {
                let command = beside_what_goes_next(round, candidate, command);
                let most = allowance.remaining().min(room.nodes) as usize;
                return Some(batch::together(round, (candidate, command), &candidates[at + 1..], most, room));
            }
            Err((code, message)) => round.note(candidate.node, code, message),
        }
    }
    None
}

/// The `command` with which `candidate` goes; if it needs nothing new, with as few pods as may be on what consolidation would give back
/// first: they would only move again, and what they move to stays meanwhile.
fn beside_what_goes_next(round: &mut Round, candidate: &Candidate, command: Command) -> Command {
    if !command.replacements.is_empty() || command.pods.is_empty() {
        return command;
    }
    let mut next = consolidation::would_go(round, AVOIDED_MAX);
    next.retain(|other| *other != candidate.node);
    let mut count = next.len();
    while count > 0 {
        let shut: BTreeSet<NodeName> = next[..count].iter().copied().collect();
        let simulated = round.simulate_beside(candidate, &shut);
        let pods = round.leaving_pods(candidate.node);
        if simulated.homeless.is_empty() && round.replacements(&simulated.solution, &pods).is_empty() {
            let to = destinations(&pods, &simulated.solution, true);
            return Command { pods: to, ..command };
        }
        count /= 2;
    }
    command
}

/// What the rolls of the pools of `candidates` leave open; nodes of the others are noted to stay.
fn rooms(round: &mut Round, candidates: &[Candidate]) -> BTreeMap<PoolName, Room> {
    let names: BTreeSet<PoolName> = candidates.iter().map(|candidate| candidate.pool).collect();
    let mut rooms = BTreeMap::new();
    for name in names {
        let Some(pool) = round.cluster.pools.get(&name).cloned() else { continue };
        match roll::standing(round, &pool) {
            Standing::Open(room) => drop(rooms.insert(name, room)),
            Standing::Held { reason, until } => {
                round.rolls_on_at = round.rolls_on_at.into_iter().chain(until).min();
                for candidate in candidates.iter().filter(|candidate| candidate.pool == name) {
                    round.note(candidate.node, reason.code, format!("drifted, but {reason}"));
                }
            }
        }
    }
    rooms
}

/// Whether the budgets of its pool let `candidate` go; else it is noted to stay.
fn has_budget(round: &mut Round, candidate: &Candidate, allowance: &Allowance) -> bool {
    if allowance.remaining() > 0 {
        return true;
    }
    round.limit(candidate, allowance, DisruptionReason::Drifted);
    false
}

/// All of `candidates`, which are of one pool, go, and what their pods need comes first.
fn replace(
    round: &Round,
    candidates: &[Candidate],
    room: &Room,
    fit: Fit,
) -> Result<Command, (&'static str, String)> {
    let pods: Vec<_> = candidates.iter().flat_map(|candidate| round.leaving_pods(candidate.node)).collect();
    let chosen: Vec<&Candidate> = candidates.iter().collect();
    let simulated = round.simulate_towards(&chosen, false, &BTreeMap::new(), fit);
    if let Some((pod, why)) = simulated.homeless.first() {
        return Err(("CannotReschedule", format!("drifted, but pod {pod} would have no place: {why}")));
    }
    let mut solution = simulated.solution;
    // What waits for other reasons is not this command's business.
    let own: BTreeSet<_> = pods.iter().collect();
    solution.new_nodes.retain(|new| new.pods.iter().any(|pod| own.contains(pod)));
    let replacements = round.replacements(&solution, &pods);
    if replacements.len() > room.replacements as usize {
        let message = format!(
            "drifted, but it needs {} at once, and its pool's surge leaves room for {}",
            counted(replacements.len(), "replacement"),
            room.replacements
        );
        return Err(("SurgeReached", message));
    }
    let spent: UsdPerHour = replacements.iter().map(|node| node.price()).sum();
    let saved: UsdPerHour = candidates.iter().map(|candidate| candidate.price).sum();
    let to = destinations(&pods, &solution, true);
    Ok(Command::new(Method::Drift, candidates, replacements, saved - spent, to))
}

/// Drifted nodes of static pools: each is replaced by one of the same template, as far as limits leave room for both.
pub(super) fn plan_static(round: &mut Round) -> Vec<Command> {
    let candidates = drifted(round, true);
    let allowances = round.allowances(DisruptionReason::Drifted);
    let rooms = rooms(round, &candidates);
    let mut commands = Vec::new();
    for (name, room) in rooms {
        let (Some(pool), Some(allowance)) = (round.cluster.pools.get(&name).cloned(), allowances.get(&name))
        else {
            continue;
        };
        let census = static_capacity::census(&round.cluster, &pool);
        let wanted = u64::from(pool.replicas.unwrap_or(0));
        let mut left = u64::from(allowance.remaining());
        let mut why = (allowance.code(), allowance.why(name, DisruptionReason::Drifted));
        if census.active + census.leaving > wanted {
            left = 0;
            why = ("ScalingDown", format!("pool {name} scales down first"));
        }
        for (open, code, message) in [
            (
                u64::from(room.nodes),
                "RollSoaking",
                format!("the roll of pool {name} proves itself on a few nodes first"),
            ),
            (u64::from(room.replacements), "SurgeReached", format!("the surge of pool {name} is used up")),
        ] {
            if open < left {
                left = open;
                why = (code, message);
            }
        }
        let room = static_capacity::room(&pool, &census);
        if room < left {
            left = room;
            why = ("LimitReached", format!("limits.nodes of pool {name} leaves no room for a replacement"));
        }
        let mut own: Vec<&Candidate> = candidates.iter().filter(|candidate| candidate.pool == name).collect();
        own.sort_by_key(|candidate| {
            let since = round.claim(candidate).conditions.true_since(ConditionType::Drifted);
            (round.tries.failures_of(candidate.claim), since, candidate.node)
        });
        for candidate in own {
            if left == 0 {
                match why.0 == allowance.code() {
                    true => round.limit(candidate, allowance, DisruptionReason::Drifted),
                    false => round.note(candidate.node, why.0, format!("drifted, but {}", why.1)),
                }
                continue;
            }
            let Some(node) = static_capacity::new_node(&round.cluster, round.supply, &pool) else {
                let message = format!("drifted, but nothing that pool {name} asks for is available");
                round.note(candidate.node, "NoOfferingAvailable", message);
                continue;
            };
            left -= 1;
            let pods = round.leaving_pods(candidate.node);
            let savings = candidate.price - node.price();
            let mut node = crate::capacity::scheduling::NewNode { pods: pods.clone(), ..node };
            for pod in pods.iter().filter_map(|pod| round.cluster.pods.get(pod)) {
                node.requests.add(&pod.shape.requests);
            }
            let to = pods.into_iter().map(|pod| (pod, Destination::Replacement(0))).collect::<Vec<_>>();
            commands.push(Command::new(
                Method::StaticDrift,
                std::slice::from_ref(candidate),
                vec![node],
                savings,
                to,
            ));
        }
    }
    commands
}

/// Drifted nodes of pools of one kind.
pub(super) fn drifted(round: &mut Round, is_static: bool) -> Vec<Candidate> {
    let all = round.candidates(Class::Eventual);
    let wants = |candidate: &Candidate| {
        round.cluster.pools.get(&candidate.pool).is_some_and(|pool| pool.is_static() == is_static)
            && round.claim(candidate).conditions.is_true(ConditionType::Drifted)
    };
    all.into_iter().filter(wants).collect()
}
