//! Nodes that are not what their pool would make now: replaced one by one, the oldest drift first, whatever the price.

use std::collections::BTreeSet;

use super::budgets::allowances;
use super::candidates::{Candidate, Class};
use super::command::{Command, Destination, Method, destinations};
use super::round::Round;
use crate::capacity::static_capacity;
use crate::model::claim::ConditionType;
use crate::model::money::UsdPerHour;
use crate::model::pool::DisruptionReason;

/// The next drifted node that can go, with everything that has to come first.
pub(super) fn plan(round: &mut Round) -> Option<Command> {
    let mut candidates = drifted(round, false);
    if candidates.is_empty() {
        return None;
    }
    candidates.sort_by_key(|candidate| {
        let has_pods = round.cluster.pods_of(candidate.node).any(|pod| super::cost::has_to_move(pod));
        (has_pods, round.claim(candidate).conditions.true_since(ConditionType::Drifted), candidate.node)
    });
    let allowances = allowances(&round.cluster, DisruptionReason::Drifted, round.now);
    for candidate in candidates {
        let Some(allowance) = allowances.get(&candidate.pool) else { continue };
        if allowance.remaining() == 0 {
            let why = allowance.why(candidate.pool, DisruptionReason::Drifted);
            round.note(candidate.node, allowance.code(), format!("drifted, but {why}"));
            round.hold(&candidate, allowance, DisruptionReason::Drifted);
            continue;
        }
        let pods = round.leaving_pods(candidate.node);
        let simulated = round.simulate(&[&candidate], false);
        if let Some((pod, why)) = simulated.homeless.first() {
            let message = format!("drifted, but pod {pod} would have no place: {why}");
            round.note(candidate.node, "CannotReschedule", message);
            continue;
        }
        let mut solution = simulated.solution;
        // What waits for other reasons is not this command's business.
        solution.new_nodes.retain(|new| new.pods.iter().any(|pod| pods.contains(pod)));
        let replacements = round.replacements(&solution, &pods);
        let spent: UsdPerHour = replacements.iter().map(|node| node.price()).sum();
        let savings = candidate.price - spent;
        let to = destinations(&pods, &solution, true);
        return Some(Command::new(Method::Drift, &[candidate], replacements, savings, to));
    }
    None
}

/// Drifted nodes of static pools: each is replaced by one of the same template, as far as limits leave room for both.
pub(super) fn plan_static(round: &mut Round) -> Vec<Command> {
    let candidates = drifted(round, true);
    let allowances = allowances(&round.cluster, DisruptionReason::Drifted, round.now);
    let pools: BTreeSet<_> = candidates.iter().map(|candidate| candidate.pool).collect();
    let mut commands = Vec::new();
    for name in pools {
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
        let room = static_capacity::room(&pool, &census);
        if room < left {
            left = room;
            why = ("LimitReached", format!("limits.nodes of pool {name} leaves no room for a replacement"));
        }
        for candidate in candidates.iter().filter(|candidate| candidate.pool == name) {
            if left == 0 {
                round.note(candidate.node, why.0, format!("drifted, but {}", why.1));
                if why.0 == allowance.code() {
                    round.hold(candidate, allowance, DisruptionReason::Drifted);
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
