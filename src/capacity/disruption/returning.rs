//! Nodes that were bought as what their pool likes less, because what it prefers was sold out, go back once that is to be had for
//! less again, each after a while of its own.
//!
//! Consolidation would do the same for the money where it may, and tries anew every few minutes while capacity comes and goes. A
//! pool that speaks of a return is left to this: until its while is over nothing of it is replaced by what it prefers, after that it
//! is, whatever `consolidationPolicy` and `consolidateAfter` say. A return that did not last doubles the wait. How many there were is
//! written on the claims; only of a machine that is gone it has to be remembered for the next one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::candidates::{Candidate, Class, KeepReason};
use super::command::{self, Command, Method, destinations};
use super::removal::{Refused, keep_types, shares, short_of_values, worst_price};
use super::round::Round;
use crate::capacity::cluster::Cluster;
use crate::capacity::scheduling::NewNode;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::label::{self, Labels, annotation};
use crate::model::money::UsdPerHour;
use crate::model::name::{ClaimName, NodeName, PoolName};
use crate::model::offering::CapacityType;
use crate::model::pool::{DisruptionReason, NodePool};
use crate::model::requirement::{Operator, Requirement};
use crate::model::symbol::Symbol;
use crate::model::time::render_duration;

/// The longest wait that doubling leads to, unless the pool asks for a longer one from the start.
const WAIT_MOST: SignedDuration = SignedDuration::from_hours(24);
/// A return has lasted if the machine lived so long.
const LASTING: SignedDuration = WAIT_MOST;
/// What is bought so soon after a returned machine was lost is bought in its place.
const RELAPSE: SignedDuration = SignedDuration::from_hours(1);

/// Why a node stays as it was bought, as far as this module said so.
const LATER: &str = "ReturnsLater";
const NOT_YET: &str = "NothingPreferred";

/// How `pool` wants its nodes to go back, if it does. `Err`: nobody can tell.
fn wanted(pool: &NodePool) -> Option<Result<SignedDuration, ()>> {
    if pool.is_static() {
        return None;
    }
    match &pool.terms.returns.as_ref()?.meaning {
        Ok(returns) => returns.after.map(Ok),
        Err(_) => Some(Err(())),
    }
}

/// The capacity types that `pool` prefers to that of `claim`, if it allows that, too.
fn preferred(pool: &NodePool, claim: &NodeClaim) -> Vec<CapacityType> {
    let allowed = pool.template.requirements.get(*label::CAPACITY_TYPE);
    let own = claim.labels.get(&*label::CAPACITY_TYPE).and_then(|word| CapacityType::parse(word));
    let (Some(allowed), Some(own)) = (allowed, own) else { return Vec::new() };
    let is_allowed = |kind: CapacityType| allowed.has(kind.symbol());
    let better = |kind: &CapacityType| *kind < own && is_allowed(*kind) && is_allowed(own);
    CapacityType::ALL.into_iter().filter(better).collect()
}

/// Whether the machine of `claim` is one that its pool likes less, and wants to give up some time.
pub(super) fn is_fallback(pool: &NodePool, claim: &NodeClaim) -> bool {
    wanted(pool).is_some() && claim.deleted.is_none() && !preferred(pool, claim).is_empty()
}

/// How often it was tried before, and when last.
fn tried(claim: &NodeClaim) -> (u32, Option<Timestamp>) {
    let text = claim.annotations.get(&*annotation::RETURNS).map_or("", |text| text.as_str());
    let (count, last) = text.split_once(' ').unwrap_or((text, ""));
    (count.parse().unwrap_or(0), last.parse().ok())
}

/// When the machine of `claim` may go back at the earliest; `None`: not before its pool can be read.
fn due(pool: &NodePool, claim: &NodeClaim) -> Option<Timestamp> {
    let after = wanted(pool)?.ok()?;
    let (count, last) = tried(claim);
    let doubled = i32::try_from(2_i64.saturating_pow(count.min(30))).unwrap_or(i32::MAX);
    let wait = after.checked_mul(doubled).unwrap_or(WAIT_MOST).min(WAIT_MOST.max(after));
    begun(claim, last)?.checked_add(wait).ok()
}

/// When the while began that the machine of `claim` stays what it is for, which was `last` tried to go back then.
fn begun(claim: &NodeClaim, last: Option<Timestamp>) -> Option<Timestamp> {
    claim.conditions.true_since(ConditionType::Initialized).or(claim.created).max(last)
}

/// From when to when the machine of `claim` stays what its pool likes less, if that is known.
pub(super) fn waits(pool: &NodePool, claim: &NodeClaim) -> Option<(Timestamp, Timestamp)> {
    begun(claim, tried(claim).1).zip(due(pool, claim))
}

/// When the next machine of any pool may go back, after `now`.
pub(crate) fn next(cluster: &Cluster, now: Timestamp) -> Option<Timestamp> {
    let fallbacks = cluster.claims.values().filter_map(|claim| {
        let pool = cluster.pools.get(&claim.pool()?)?;
        if is_fallback(pool, claim) { due(pool, claim) } else { None }
    });
    fallbacks.filter(|due| *due > now).min()
}

/// Why none of `wanted` may come for `candidate` yet: it stays as it was bought for a while.
pub(super) fn dwells(round: &Round, candidate: &Candidate, wanted: &[NewNode]) -> Option<Refused> {
    let pool = round.cluster.pools.get(&candidate.pool)?;
    let claim = round.claim(candidate);
    let better = preferred(pool, claim);
    let is_return = wanted.iter().any(|node| better.iter().any(|kind| node.capacity_types().contains(kind)));
    if !is_return || !is_fallback(pool, claim) || due(pool, claim).is_some_and(|due| due <= round.now) {
        return None;
    }
    Some((LATER, later(pool, claim)))
}

fn later(pool: &NodePool, claim: &NodeClaim) -> String {
    let own = claim.labels.get(&*label::CAPACITY_TYPE).map_or("", |word| word.as_str());
    match due(pool, claim) {
        Some(due) => {
            let (count, _) = tried(claim);
            let again = if count > 0 { ", longer after each return that did not last" } else { "" };
            format!(
                "it was bought as {own}, which pool {} likes less, and goes back from {due} on{again}",
                pool.name
            )
        }
        None => format!(
            "it was bought as {own}, which pool {} likes less, and stays: provisor.dev/return of the pool cannot be read",
            pool.name
        ),
    }
}

/// Whether `why` was said here, of a node that its pool would rather have as something else.
pub(super) fn is_said_of_fallback(why: &KeepReason) -> bool {
    why.code == LATER || why.code == NOT_YET
}

/// The next machine that can go back, with everything that has to come first; those that wait for it longest come first.
pub(super) fn plan(round: &mut Round) -> Option<Command> {
    if !round.cluster.pools.values().any(|pool| wanted(pool).is_some()) {
        return None;
    }
    let mut waiting = Vec::new();
    for candidate in round.candidates(Class::Graceful) {
        // What was found in this pass holds until its end: the next command of it leaves less room, not more.
        let is_judged = round.notes.get(&candidate.node).is_some_and(is_said_of_fallback);
        let Some(pool) = round.cluster.pools.get(&candidate.pool) else { continue };
        let claim = round.claim(&candidate);
        let has_drifted = claim.conditions.is_true(ConditionType::Drifted);
        if is_judged || candidate.is_empty() || has_drifted || !is_fallback(pool, claim) {
            continue;
        }
        match due(pool, claim) {
            Some(due) if due <= round.now => waiting.push((due, candidate)),
            _ => {
                let message = later(pool, claim);
                round.note(candidate.node, LATER, message);
            }
        }
    }
    waiting.sort_by_key(|(due, candidate)| (*due, candidate.pool, candidate.node));
    let allowances = round.allowances(DisruptionReason::Underutilized);
    let shut = fallback_nodes(&round.cluster);
    for (_, candidate) in waiting {
        match try_one(round, &candidate, &shut) {
            Ok(command) => {
                let Some(allowance) = allowances.get(&candidate.pool) else { continue };
                if allowance.remaining() > 0 {
                    return Some(command);
                }
                let why = allowance.why(candidate.pool, DisruptionReason::Underutilized);
                round.note(
                    candidate.node,
                    NOT_YET,
                    format!("it would go back to what its pool prefers, but {why}"),
                );
                round.hold(&candidate, allowance, DisruptionReason::Underutilized);
            }
            Err(why) => round.note(candidate.node, NOT_YET, why),
        }
    }
    None
}

/// Nodes that go back themselves some time: nothing that moves for a return is put there.
fn fallback_nodes(cluster: &Cluster) -> BTreeSet<NodeName> {
    let is_one = |claim: &NodeClaim| {
        claim.pool().and_then(|name| cluster.pools.get(&name)).is_some_and(|pool| is_fallback(pool, claim))
    };
    let nodes = cluster.nodes.values();
    nodes
        .filter(|node| cluster.claim_of(node).is_some_and(|claim| is_one(claim)))
        .map(|node| node.name)
        .collect()
}

fn try_one(round: &Round, candidate: &Candidate, shut: &BTreeSet<NodeName>) -> Result<Command, String> {
    let pods = round.leaving_pods(candidate.node);
    let simulated = round.simulate_beside(candidate, shut);
    if let Some((pod, why)) = simulated.homeless.first() {
        return Err(format!(
            "it would go back to what its pool prefers, but pod {pod} would have no place: {why}"
        ));
    }
    let mut solution = simulated.solution;
    // What waits for other reasons is not this command's business.
    solution.new_nodes.retain(|new| new.pods.iter().any(|pod| pods.contains(pod)));
    let replacements = suited(round, candidate, round.replacements(&solution, &pods))?;
    let savings = candidate.price - replacements.iter().map(NewNode::price).sum();
    let to = destinations(&pods, &solution, true);
    Ok(Command::new(Method::Return, std::slice::from_ref(candidate), replacements, savings, to))
}

/// `wanted` with only the ways to buy them that the pool prefers, and that certainly cost less; each may cost its share.
fn suited(round: &Round, candidate: &Candidate, wanted: Vec<NewNode>) -> Result<Vec<NewNode>, String> {
    let pool = round.cluster.pools.get(&candidate.pool).ok_or("its pool is gone")?;
    let kinds = preferred(pool, round.claim(candidate));
    let words = kinds.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(" or ");
    let only_preferred = |mut node: NewNode| {
        let options = Arc::make_mut(&mut node.options);
        options.retain(|option| kinds.contains(&option.capacity_type));
        if options.is_empty() {
            return Err(format!(
                "its pods need a new node, and none that they can use is to be had as {words}"
            ));
        }
        let symbols = kinds.iter().map(|kind| kind.symbol());
        node.requirements.replace(*label::CAPACITY_TYPE, Requirement::new(Operator::In, symbols));
        Ok(node)
    };
    let nodes = wanted.into_iter().map(only_preferred).collect::<Result<Vec<_>, _>>()?;
    let shares = shares(candidate.price, &nodes);
    let cheaper = |(mut node, share): (NewNode, UsdPerHour)| {
        keep_types(&mut node, |options| worst_price(options).is_some_and(|price| price < share));
        match short_of_values(round, &node) {
            _ if node.options.is_empty() => Err(format!("{words} would cost no less than it does")),
            Some(key) => Err(format!("what costs less as {words} has too few values of {key} (minValues)")),
            None => Ok(node),
        }
    };
    nodes.into_iter().zip(shares).map(cheaper).collect()
}

// What is written, and what has to be remembered.

/// Writes on the machine that goes back, and on what comes for it, that it was tried once more.
pub(crate) fn count(
    cluster: &Cluster,
    command: &Command,
    replacements: &mut [Arc<NodeClaim>],
    now: Timestamp,
) -> Vec<(ClaimName, Labels)> {
    if command.method != Method::Return {
        return Vec::new();
    }
    let known = command.claims.iter().filter_map(|name| cluster.claims.get(name));
    let count = known.map(|claim| tried(claim).0).max().unwrap_or(0).saturating_add(1);
    let written = |text: &str| Labels::from([(*annotation::RETURNS, Symbol::new(text))]);
    for claim in replacements {
        Arc::make_mut(claim).annotations.extend(written(&count.to_string()));
    }
    let own = written(&format!("{count} {now}"));
    command.claims.iter().map(|name| (*name, own.clone())).collect()
}

/// Machines that had gone back and were lost before they had lasted: of each pool the latest, and the how-manieth return it was.
#[derive(Clone, Debug, Default)]
pub(crate) struct Losses(BTreeMap<PoolName, (Timestamp, u32)>);

impl Losses {
    /// `claim` is gone.
    pub fn note(&mut self, claim: &NodeClaim) {
        if let (Some(pool), Some(loss)) = (claim.pool(), loss_of(claim)) {
            let known = self.0.entry(pool).or_insert(loss);
            *known = (*known).max(loss);
        }
    }

    /// What has to be written on `claim`, if it came in the place of a machine that had gone back and was lost.
    pub fn inherited(&self, cluster: &Cluster, claim: &NodeClaim) -> Option<Labels> {
        let pool = cluster.pools.get(&claim.pool()?)?;
        if claim.annotations.contains_key(&*annotation::RETURNS) || !is_fallback(pool, claim) {
            return None;
        }
        let created = claim.created?;
        let gone = self.0.get(&pool.name).copied();
        let going = cluster.claims_of(pool.name).filter_map(|claim| loss_of(claim));
        let is_cause =
            |(lost, _): &(Timestamp, u32)| *lost <= created && created.duration_since(*lost) <= RELAPSE;
        let (_, count) = going.chain(gone).filter(is_cause).max_by_key(|(_, count)| *count)?;
        Some(Labels::from([(*annotation::RETURNS, Symbol::new(&count.to_string()))]))
    }
}

/// When a machine that had gone back was lost before it had lasted, and how often it had been tried by then.
fn loss_of(claim: &NodeClaim) -> Option<(Timestamp, u32)> {
    let (count, last) = tried(claim);
    // One that was itself replaced says when.
    if count == 0 || last.is_some() {
        return None;
    }
    let lost = claim.deleted?;
    // What we gave back ourselves was not lost.
    let chosen = ["Empty", "Underutilized", "Drifted", "Expired", "ScaledDown"];
    let is_lost = !chosen.contains(&command::reason_of(claim));
    let lived = claim.created.map(|created| lost.duration_since(created));
    (is_lost && lived.is_none_or(|lived| lived < LASTING)).then_some((lost, count))
}

/// For people: `a returned machine was lost; the next return waits 1h`.
pub(crate) fn told(cluster: &Cluster, claim: &NodeClaim, count: &Labels) -> String {
    let counted = NodeClaim { annotations: count.clone(), ..claim.clone() };
    let due = claim.pool().and_then(|name| due(cluster.pools.get(&name)?, &counted));
    let begun = claim.conditions.true_since(ConditionType::Initialized).or(claim.created);
    match due.zip(begun) {
        Some((due, begun)) => {
            let wait = render_duration(due.duration_since(begun));
            format!("it came for a machine that had gone back and was lost, so it stays {wait}")
        }
        None => "it came for a machine that had gone back and was lost".into(),
    }
}
