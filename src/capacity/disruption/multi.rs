//! Several nodes at once: the longest run of the best candidates that can go together for one cheaper node or none.

use super::balanced::Totals;
use super::budgets::allowances;
use super::candidates::{Candidate, Class};
use super::command::{Command, Method};
use super::consolidation::{decide, sort, wants, without_same_types};
use super::round::Round;
use crate::model::pool::DisruptionReason;

/// The most nodes of one command.
const NODES_MAX: usize = 100;

pub(super) fn plan(round: &mut Round) -> Option<Command> {
    let mut candidates: Vec<Candidate> =
        round.candidates(Class::Graceful).into_iter().filter(|one| wants(round, one).is_ok()).collect();
    sort(&mut candidates);
    let mut allowances = allowances(&round.cluster, DisruptionReason::Underutilized, round.now);
    candidates.retain(|candidate| {
        let Some(allowance) = allowances.get_mut(&candidate.pool) else { return false };
        let is_allowed = allowance.remaining() > 0;
        if is_allowed {
            allowance.take();
        }
        is_allowed
    });
    if candidates.len() < 2 {
        return None;
    }
    let totals = Totals::of(round);
    // Feasibility is taken to fall with length, as in Karpenter; what is found is feasible in any case.
    let (mut low, mut high) = (2, candidates.len().min(NODES_MAX));
    let mut best = None;
    while low <= high {
        let length = low.midpoint(high);
        match attempt(round, &candidates[..length], &totals) {
            Some(command) => {
                best = Some(command);
                low = length + 1;
            }
            None => high = length - 1,
        }
    }
    best
}

pub(super) fn attempt(round: &Round, candidates: &[Candidate], totals: &Totals) -> Option<Command> {
    let mut command = decide(round, Method::MultiNodeConsolidation, candidates).ok()?;
    if let Some(node) = command.replacements.pop() {
        let before = node.price();
        let node = without_same_types(round, candidates, node).ok()?;
        command.savings = command.savings + before - node.price();
        command.replacements.push(node);
    }
    totals.approve(round, candidates, command.savings).is_ok().then_some(command)
}
