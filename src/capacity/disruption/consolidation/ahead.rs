//! What is left in the end, where budgets let nodes go only a few at a time.
//!
//! Whoever looks no further than the budgets of the moment puts pods on nodes that go next, and moves them again. So first it is found
//! out what would go if all could go at once. What of that needs nothing new goes first, as far as budgets let it, and its pods are put only
//! on what stays then. If that takes many steps, what saves little for the pods that it moves waits for what saves much.

use std::collections::{BTreeMap, BTreeSet};

use jiff::SignedDuration;

use super::{FEW, Field, Question, Sweep, best_way, is_within};
use crate::capacity::disruption::alternatives::Rival;
use crate::capacity::disruption::budgets::{Allowance, UNLIMITED};
use crate::capacity::disruption::candidates::Candidate;
use crate::capacity::disruption::removal::Refused;
use crate::capacity::disruption::round::Round;
use crate::model::name::PoolName;

/// Of more pods than this, times nodes that may go, nobody looks ahead: it takes ten times as long as what may go now.
const LOOKED_MAX: usize = 1_000_000;
/// What leaves for longer than that may never be gone: nobody waits for it.
const LEAVING_MAX: SignedDuration = SignedDuration::from_mins(15);
/// Nobody waits for the nodes of a pool that need more steps than that.
const STEPS_MAX: usize = 10;
/// What saves less than two fifths as much per disruption as others that are still to go waits for them.
const PATIENCE: (i128, i128) = (2, 5);

/// What goes now of all that is to go in the end and needs nothing new; `None`: budgets let all of it go at once, or nothing of it can go
/// by itself.
pub(super) fn towards_the_end<'r, 'a>(
    round: &'r Round<'a>,
    question: &'r Question,
    candidates: &[Candidate],
    allowances: &BTreeMap<PoolName, Allowance>,
) -> Option<(Sweep<'r, 'a>, Vec<Rival>)> {
    let open = opened(round, allowances);
    let pods: usize = candidates.iter().map(|one| round.cluster.pods_of(one.node).count()).sum();
    if !binds(candidates, allowances, &open) || pods * candidates.len() > LOOKED_MAX {
        return None;
    }
    let (end, _) = best_way(round, question, candidates, Field::of(candidates), &open, None);
    let goes =
        |one: &Candidate| end.group_of.get(&one.node).is_some_and(|at| end.groups[*at].new_nodes.is_empty());
    let (going, staying): (Vec<Candidate>, Vec<Candidate>) = candidates.iter().cloned().partition(goes);
    if going.is_empty() {
        return None;
    }
    let (offered, patient) = in_turn(going, allowances);
    let field = Field { all: candidates, takers: Some(&staying) };
    let (mut now, rivals) = best_way(round, question, &offered, field, allowances, None);
    if now.groups.is_empty() && !now.refused.is_empty() {
        return None;
    }
    now.refused.extend(patient);
    Some((with_what_stays(now, end, &staying), rivals))
}

/// What goes now of all that is to go once those are gone that are on their way out, if that is worth more than all of what could go
/// `now`; `None`: it is not, or budgets are the same then.
pub(super) fn towards_what_opens<'r, 'a>(
    round: &'r Round<'a>,
    question: &'r Question,
    candidates: &[Candidate],
    allowances: &BTreeMap<PoolName, Allowance>,
    now: &Sweep,
) -> Option<(Sweep<'r, 'a>, Vec<Rival>)> {
    if candidates.len() > FEW {
        return None;
    }
    let busy = busy(round);
    let of_pool = |(pool, allowance): (&PoolName, &Allowance)| {
        let gone = if busy.contains(pool) { allowance.leaving } else { 0 };
        let (away, leaving) = (allowance.away.saturating_sub(gone), allowance.leaving - gone);
        (*pool, Allowance { away, leaving, ..allowance.clone() })
    };
    let open: BTreeMap<PoolName, Allowance> = allowances.iter().map(of_pool).collect();
    if !binds(candidates, allowances, &open) {
        return None;
    }
    let (soon, _) = best_way(round, question, candidates, Field::of(candidates), &open, None);
    if soon.worth() <= now.worth() {
        return None;
    }
    let (going, staying): (Vec<Candidate>, Vec<Candidate>) =
        candidates.iter().cloned().partition(|one| soon.group_of.contains_key(&one.node));
    let may_go = |one: &Candidate| is_within(&soon.groups[soon.group_of[&one.node]].candidates, allowances);
    let (offered, waiting): (Vec<Candidate>, Vec<Candidate>) = going.into_iter().partition(may_go);
    let field = Field { all: candidates, takers: Some(&staying) };
    let (mut now, rivals) = best_way(round, question, &offered, field, allowances, None);
    now.awaited = soon.worth();
    for one in waiting {
        match allowances.get(&one.pool).is_some_and(|allowance| allowance.remaining() > 0) {
            true => {
                let why = "it goes together with others, which wait for a budget".to_owned();
                now.refused.push((one, ("OthersFirst", why)));
            }
            false => now.over_budget.push(one),
        }
    }
    Some((with_what_stays(now, soon, &staying), rivals))
}

/// What goes `now`, with what `later` says of those that stay then.
fn with_what_stays<'r, 'a>(mut now: Sweep<'r, 'a>, later: Sweep, staying: &[Candidate]) -> Sweep<'r, 'a> {
    let stays: BTreeSet<_> = staying.iter().map(|candidate| candidate.node).collect();
    now.refused.extend(later.refused.into_iter().filter(|(candidate, _)| stays.contains(&candidate.node)));
    now.over_budget.extend(later.over_budget);
    now.turned_down.extend(later.turned_down.into_iter().filter(|(node, _)| stays.contains(node)));
    now
}

/// Those of `going` that are offered now, and those that wait for others.
fn in_turn(
    going: Vec<Candidate>,
    allowances: &BTreeMap<PoolName, Allowance>,
) -> (Vec<Candidate>, Vec<(Candidate, Refused)>) {
    let Some(first) = first_held(&going, allowances).filter(|_| going.len() > FEW).cloned() else {
        return (going, Vec::new());
    };
    let worth = |price: &Candidate, disruption: &Candidate| {
        i128::from(price.price.0) * i128::from(disruption.disruption)
    };
    let (part, whole) = PATIENCE;
    let (offered, patient): (Vec<Candidate>, Vec<Candidate>) =
        going.into_iter().partition(|one| whole * worth(one, &first) >= part * worth(&first, one));
    let message = format!(
        "nodes that save more for each pod go first, such as {}, which waits for a budget of pool {}",
        first.node, first.pool
    );
    let patient = patient.into_iter().map(|one| (one, ("OthersFirst", message.clone()))).collect();
    (offered, patient)
}

/// What saves most per disruption of `going` that budgets hold back now, and that is gone in a few steps.
fn first_held<'c>(
    going: &'c [Candidate],
    allowances: &BTreeMap<PoolName, Allowance>,
) -> Option<&'c Candidate> {
    let mut counts: BTreeMap<PoolName, usize> = BTreeMap::new();
    let held = going.iter().filter(|candidate| {
        let before = counts.entry(candidate.pool).or_default();
        *before += 1;
        allowances.get(&candidate.pool).is_some_and(|allowance| *before > allowance.remaining() as usize)
    });
    let held: Vec<&Candidate> = held.collect();
    let is_soon_gone = |candidate: &&&Candidate| {
        let steps = allowances.get(&candidate.pool).map_or(0, |allowance| allowance.allowed as usize);
        counts[&candidate.pool] <= steps.saturating_mul(STEPS_MAX)
    };
    held.iter().find(is_soon_gone).copied()
}

/// Whether fewer of `candidates` may go now than may in the end.
fn binds(
    candidates: &[Candidate],
    now: &BTreeMap<PoolName, Allowance>,
    open: &BTreeMap<PoolName, Allowance>,
) -> bool {
    let mut counts: BTreeMap<PoolName, u32> = BTreeMap::new();
    for candidate in candidates {
        *counts.entry(candidate.pool).or_default() += 1;
    }
    let remaining =
        |of: &BTreeMap<PoolName, Allowance>, pool: &PoolName| of.get(pool).map_or(0, Allowance::remaining);
    counts.iter().any(|(pool, count)| remaining(now, pool) < remaining(open, pool).min(*count))
}

/// `allowances` as if all could go of every pool of which some may: now, or once those have gone that are on their way out.
fn opened(round: &Round, allowances: &BTreeMap<PoolName, Allowance>) -> BTreeMap<PoolName, Allowance> {
    let busy = busy(round);
    let of_pool = |(pool, allowance): (&PoolName, &Allowance)| {
        let opens = allowance.remaining() > 0 || (allowance.allowed > 0 && busy.contains(pool));
        let allowed = if opens { UNLIMITED } else { allowance.allowed };
        (*pool, Allowance { allowed, ..allowance.clone() })
    };
    allowances.iter().map(of_pool).collect()
}

/// Pools that nodes are leaving which will be gone soon.
fn busy(round: &Round) -> BTreeSet<PoolName> {
    let recently = |since| round.now.duration_since(since) < LEAVING_MAX;
    let leaving = round.cluster.claims.values().filter(|claim| claim.deleted.is_some_and(recently));
    leaving.filter_map(|claim| claim.pool()).collect()
}
