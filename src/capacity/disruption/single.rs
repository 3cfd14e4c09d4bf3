//! One node at a time: the first whose pods fit elsewhere, or on one node that costs less.

use std::collections::{BTreeMap, VecDeque};

use super::balanced::Totals;
use super::budgets::{Allowance, allowances};
use super::candidates::{Candidate, Class, KeepReason};
use super::command::{Command, Method};
use super::consolidation::{Refused, decide, sort, wants};
use super::round::Round;
use crate::model::name::PoolName;
use crate::model::pool::DisruptionReason;

/// The next node that can go. Those that were judged before in this plan and stayed are not judged again: since then there
/// is only less room.
pub(super) fn plan(round: &mut Round) -> Option<Command> {
    let mut candidates: Vec<Candidate> = Vec::new();
    for candidate in round.candidates(Class::Graceful) {
        match wants(round, &candidate) {
            Ok(()) => candidates.push(candidate),
            Err((code, message)) if code != "Empty" => note(round, &candidate, (code, message)),
            Err(_) => {}
        }
    }
    sort(&mut candidates);
    let allowances = allowances(&round.cluster, DisruptionReason::Underutilized, round.now);
    let totals = Totals::of(round);
    for candidate in interleaved(candidates) {
        let Some(allowance) = allowances.get(&candidate.pool) else { continue };
        if allowance.remaining() == 0 {
            let why = allowance.why(candidate.pool, DisruptionReason::Underutilized);
            note(round, &candidate, ("BudgetExhausted", why));
            hold_if_it_would_go(round, &totals, &candidate, allowance);
            continue;
        }
        if let Some(known) = round.hopeless.get(&candidate.node).cloned() {
            note(round, &candidate, (known.code, known.message));
            continue;
        }
        match alone(round, &totals, &candidate) {
            Ok(command) => return Some(command),
            Err((code, message)) => {
                round.hopeless.insert(candidate.node, KeepReason::new(code, message.clone()));
                note(round, &candidate, (code, message));
            }
        }
    }
    None
}

/// What would be done if `candidate` were the only node.
fn alone(round: &Round, totals: &Totals, candidate: &Candidate) -> Result<Command, Refused> {
    totals.precheck(round, candidate)?;
    let one = std::slice::from_ref(candidate);
    let command = decide(round, Method::SingleNodeConsolidation, one)?;
    totals.approve(round, one, command.savings)?;
    Ok(command)
}

/// Finds out whether `candidate` is kept by nothing but its pool's budgets: if they are closed, it is judged as if they were
/// open. Most nodes are used as they should be, and of those there is nothing to tell.
fn hold_if_it_would_go(round: &mut Round, totals: &Totals, candidate: &Candidate, allowance: &Allowance) {
    let is_judged = round.held.contains_key(&candidate.node) || round.hopeless.contains_key(&candidate.node);
    if is_judged || !allowance.is_closed() {
        return;
    }
    match alone(round, totals, candidate) {
        Ok(_) => round.hold(candidate, allowance, DisruptionReason::Underutilized),
        Err((code, message)) => {
            round.hopeless.insert(candidate.node, KeepReason::new(code, message));
        }
    }
}

/// A drift that could not be carried out says more than consolidation does.
fn note(round: &mut Round, candidate: &Candidate, (code, message): (&'static str, String)) {
    if round.claim(candidate).conditions.is_true(crate::model::claim::ConditionType::Drifted)
        && round.notes.contains_key(&candidate.node)
    {
        return;
    }
    round.note(candidate.node, code, message);
}

/// One of each pool in turn, so that a large pool does not hold up the others.
fn interleaved(candidates: Vec<Candidate>) -> Vec<Candidate> {
    let count = candidates.len();
    let mut by_pool: BTreeMap<PoolName, VecDeque<Candidate>> = BTreeMap::new();
    for candidate in candidates {
        by_pool.entry(candidate.pool).or_default().push_back(candidate);
    }
    let mut order = Vec::with_capacity(count);
    while order.len() < count {
        order.extend(by_pool.values_mut().filter_map(VecDeque::pop_front));
    }
    order
}
