//! Whether a set of nodes can be given back: their pods fit elsewhere, or on nodes that certainly cost less.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::alternatives;
use super::balanced::{Totals, approve};
use super::candidates::Candidate;
use super::command::{Command, Method, destinations};
use super::returning::dwells;
use super::roll;
use super::round::Round;
use crate::capacity::provisioning::missing_values;
use crate::capacity::scheduling::{Fit, NewNode, Place};
use crate::model::action::LaunchOption;
use crate::model::claim::ConditionType;
use crate::model::hash::{FastMap, FastSet};
use crate::model::label;
use crate::model::money::UsdPerHour;
use crate::model::name::{NodeName, ObjectKey, TypeName};
use crate::model::offering::CapacityType;
use crate::model::pool::ConsolidationPolicy;
use crate::model::requirement::Requirement;

/// How many cheaper types a single spot node must have before it is replaced by another: fifteen, as in Karpenter, so
/// that the new one is not itself replaced at once.
const SPOT_TYPES_LEAST: usize = 15;

/// Why nothing comes of a set.
pub(super) type Refused = (&'static str, String);

/// Whether `candidate` may be consolidated at all.
pub(super) fn wants(round: &Round, candidate: &Candidate) -> Result<(), Refused> {
    let no = |code, message: String| Err((code, message));
    let Some(pool) = round.cluster.pools.get(&candidate.pool) else {
        return no("PoolNotFound", format!("nodepool not found (NodePool={})", candidate.pool));
    };
    if pool.is_static() {
        return no(
            "StaticPool",
            format!("NodePool \"{}\" is static, its nodes are not consolidated", pool.name),
        );
    }
    let Some(node) = round.cluster.nodes.get(&candidate.node) else {
        return no("NotManaged", "the node is gone".into());
    };
    if !candidate.is_of_known_type {
        let shown = node.labels.get(&*label::INSTANCE_TYPE).map_or("", |name| name.as_str());
        return no("InstanceTypeNotFound", format!("Instance Type \"{shown}\" not found"));
    }
    for key in [*label::CAPACITY_TYPE, *label::ZONE] {
        if !node.labels.contains_key(&key) {
            return no("LabelMissing", format!("Node does not have label \"{key}\""));
        }
    }
    if pool.disruption.consolidate_after.duration.is_none() {
        return no("ConsolidationDisabled", format!("NodePool \"{}\" has consolidation disabled", pool.name));
    }
    if !round.claim(candidate).conditions.is_true(ConditionType::Consolidatable) {
        let after = &pool.disruption.consolidate_after;
        return no(
            "NotConsolidatable",
            format!("its pods have not been quiet for {after} (consolidateAfter)"),
        );
    }
    if candidate.is_empty() {
        return no("Empty", "the node is empty, which is not consolidation's business".into());
    }
    if pool.disruption.policy == ConsolidationPolicy::WhenEmpty {
        let message =
            format!("NodePool \"{}\" has consolidation policy WhenEmpty, but node is not empty", pool.name);
        return no("PolicyWhenEmpty", message);
    }
    // What comes for them would be what their roll holds back.
    if round.claim(candidate).conditions.is_true(ConditionType::Drifted) {
        roll::is_open_to_others(round, pool).map_err(|reason| (reason.code, reason.message))?;
    }
    if let Some((pod, until)) = regretted(round, candidate.node) {
        let message =
            format!("pods like {pod} were moved lately, and needed a new node: not before {until:.0}");
        return no("MovedInVain", message);
    }
    Ok(())
}

/// The pod that keeps `node` because its like was moved in vain, and until when.
pub(super) fn regretted(round: &Round, node: NodeName) -> Option<(ObjectKey, Timestamp)> {
    if round.regretted.is_empty() {
        return None;
    }
    let pods = round.cluster.pods_of(node).filter(|pod| pod.is_active());
    let kept = pods.filter_map(|pod| Some((pod.key, *round.regretted.get(&pod.controller()?.uid)?)));
    kept.max_by_key(|(pod, until)| (*until, std::cmp::Reverse(*pod)))
}

/// How new nodes are filled: what is bought as one large node may be cheaper as several, and one node may be all that is allowed.
pub(super) const FITS: [Fit; 2] = [Fit::Cheapest, Fit::First];

/// Judges the removal of all of `candidates` together. Pods go where `destinations` says, if they still can.
pub(super) fn decide(
    round: &Round,
    totals: &Totals,
    candidates: &[Candidate],
    destinations: &BTreeMap<ObjectKey, Place>,
) -> Result<Command, Refused> {
    let [thrifty, plain] = FITS;
    let first = decide_with(round, totals, candidates, destinations, thrifty);
    if first.as_ref().is_ok_and(|command| command.replacements.is_empty()) {
        return first;
    }
    let second = decide_with(round, totals, candidates, destinations, plain);
    match (first, second) {
        (Ok(first), Ok(second)) if second.savings <= first.savings => Ok(preferred(first, &second)),
        (Ok(first), Ok(second)) => Ok(preferred(second, &first)),
        (first, second) => best([first, second], |command| command.savings),
    }
}

/// `command`, which is no worse than `other`.
fn preferred(mut command: Command, other: &Command) -> Command {
    alternatives::note_other_fit(&mut command, other);
    command
}

/// What saves more, the first of equals; why the second does not, if neither does.
pub(super) fn best<T>(
    [one, other]: [Result<T, Refused>; 2],
    savings: impl Fn(&T) -> UsdPerHour,
) -> Result<T, Refused> {
    match (&one, &other) {
        (Ok(known), Ok(new)) if savings(new) <= savings(known) => one,
        (_, Ok(_)) => other,
        (Ok(_), Err(_)) => one,
        (Err(_), Err(_)) => other,
    }
}

fn decide_with(
    round: &Round,
    totals: &Totals,
    candidates: &[Candidate],
    destinations: &BTreeMap<ObjectKey, Place>,
    fit: Fit,
) -> Result<Command, Refused> {
    let chosen: Vec<&Candidate> = candidates.iter().collect();
    let simulated = round.simulate_towards(&chosen, true, destinations, fit);
    if let Some((pod, why)) = simulated.homeless.first() {
        return Err(no_place(pod, why));
    }
    let pods: Vec<_> = candidates.iter().flat_map(|candidate| round.leaving_pods(candidate.node)).collect();
    let leaving: FastSet<ObjectKey> = pods.iter().copied().collect();
    let found = round.replacements(&simulated.solution, &pods);
    let is_for_others = |node: &NewNode| !node.pods.iter().any(|pod| leaving.contains(pod));
    if found.len() <= candidates.len() && found.iter().any(is_for_others) {
        return Err(needed_by_waiting_pods());
    }
    let found = suited(round, candidates, found)?;
    let to = self::destinations(&pods, &simulated.solution, true);
    let savings = price_of(candidates) - found.iter().map(NewNode::price).sum();
    approve(&totals.scores(candidates, savings))?;
    let method = match candidates {
        [_] => Method::SingleNodeConsolidation,
        _ => Method::MultiNodeConsolidation,
    };
    Ok(Command::new(method, candidates, found, savings, to))
}

pub(super) fn no_place(pod: &ObjectKey, why: &str) -> Refused {
    ("CannotReschedule", format!("pod {pod} would have no place: {why}"))
}

pub(super) fn needed_by_waiting_pods() -> Refused {
    let message = "a new node would be needed for pods that wait, which have room while it stays";
    ("NeededByWaitingPods", message.into())
}

pub(super) fn needs_replacement() -> Refused {
    ("NeedsReplacement", "its pods need a new node".into())
}

pub(super) fn no_cheaper() -> Refused {
    ("NoCheaperReplacement", "Can't replace with a cheaper node".into())
}

fn price_of(candidates: &[Candidate]) -> UsdPerHour {
    candidates.iter().map(|candidate| candidate.price).sum()
}

/// `wanted`, which would come for `candidates`, with only the types that certainly cost less; each may cost its share.
pub(super) fn suited(
    round: &Round,
    candidates: &[Candidate],
    wanted: Vec<NewNode>,
) -> Result<Vec<NewNode>, Refused> {
    if let Some(why) = candidates.iter().find_map(|candidate| dwells(round, candidate, &wanted)) {
        return Err(why);
    }
    if wanted.len() > candidates.len() {
        let message = format!("Can't remove without creating {} candidates", wanted.len());
        return Err(("NeedsSeveralReplacements", message));
    }
    let shares = shares(price_of(candidates), &wanted);
    let suited = wanted.into_iter().zip(shares).map(|(node, share)| {
        let node = cheaper(round, candidates, node, share)?;
        if candidates.len() > 1 { without_same_types(round, candidates, node) } else { Ok(node) }
    });
    suited.collect()
}

/// What each of `nodes` may cost if all of them may cost `ceiling`.
pub(super) fn shares(ceiling: UsdPerHour, nodes: &[NewNode]) -> Vec<UsdPerHour> {
    let cost: UsdPerHour = nodes.iter().map(NewNode::price).sum();
    let share = |node: &NewNode| match nodes.len() {
        1 => ceiling,
        _ => ceiling.share(node.price(), cost),
    };
    nodes.iter().map(share).collect()
}

/// `node` with only the types that certainly cost less than `ceiling`.
fn cheaper(
    round: &Round,
    candidates: &[Candidate],
    mut node: NewNode,
    ceiling: UsdPerHour,
) -> Result<NewNode, Refused> {
    let has_spot = |node: &NewNode| node.options.iter().any(|one| one.capacity_type == CapacityType::Spot);
    let is_spot_to_spot = candidates.iter().all(|candidate| candidate.is_spot) && has_spot(&node);
    if is_spot_to_spot && !round.settings.spot_to_spot {
        let message = "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node";
        return Err(("SpotToSpotDisabled", message.into()));
    }
    // The cheapest is the first.
    if node.price() >= ceiling {
        return Err(no_cheaper());
    }
    if is_spot_to_spot {
        only_spot(&mut node);
    }
    keep_types(&mut node, |options| worst_price(options).is_some_and(|price| price < ceiling));
    if node.options.is_empty() {
        return Err(no_cheaper());
    }
    drop_doubted(round, &mut node)?;
    if let Some(key) = short_of_values(round, &node) {
        return Err((
            "MinValuesNotMet",
            format!("Filtering by price: minValues requirement of {key} is not met"),
        ));
    }
    if is_spot_to_spot && candidates.len() == 1 {
        let types = node.instance_types();
        if types.len() < SPOT_TYPES_LEAST {
            let message = format!(
                "SpotToSpotConsolidation requires {SPOT_TYPES_LEAST} cheaper instance type options than the current \
                 candidate to consolidate, got {}",
                types.len()
            );
            return Err(("SpotToSpotFlexibility", message));
        }
        cut_to_fifteen(round, &mut node, &types);
    }
    if has_spot(&node) {
        // Or a shortage of spot would end in a node that costs more.
        only_spot(&mut node);
    }
    Ok(node)
}

/// Takes from `node` what was sold out lately: whoever only saves money asks for that less and less often.
fn drop_doubted(round: &Round, node: &mut NewNode) -> Result<(), Refused> {
    let doubted_until = |option: &LaunchOption| {
        round.doubted.get(&(option.instance_type, option.zone, option.capacity_type)).copied()
    };
    if round.doubted.is_empty() {
        return Ok(());
    }
    let first = node.options.iter().filter_map(doubted_until).min();
    if let Some(until) = first.filter(|_| node.options.iter().all(|option| doubted_until(option).is_some())) {
        let message =
            format!("what is cheaper was sold out when it was last asked for; not before {until} again");
        return Err(("SoldOutLately", message));
    }
    if first.is_some() {
        Arc::make_mut(&mut node.options).retain(|option| doubted_until(option).is_none());
    }
    Ok(())
}

/// The cheapest fifteen, or as many more as minimum values ask for.
fn cut_to_fifteen(round: &Round, node: &mut NewNode, types: &[TypeName]) {
    for count in SPOT_TYPES_LEAST..=types.len() {
        let kept: BTreeSet<TypeName> = types[..count].iter().copied().collect();
        let mut cut = node.clone();
        Arc::make_mut(&mut cut.options).retain(|option| kept.contains(&option.instance_type));
        if short_of_values(round, &cut).is_none() || count == types.len() {
            *node = cut;
            return;
        }
    }
}

fn only_spot(node: &mut NewNode) {
    Arc::make_mut(&mut node.options).retain(|option| option.capacity_type == CapacityType::Spot);
    node.requirements.replace(*label::CAPACITY_TYPE, Requirement::one(CapacityType::Spot.symbol()));
}

/// Keeps the types of `node` whose ways to be bought satisfy `keeps`.
pub(super) fn keep_types(node: &mut NewNode, keeps: impl Fn(&[LaunchOption]) -> bool) {
    let mut by_type: FastMap<TypeName, Vec<LaunchOption>> = FastMap::default();
    for option in node.options.iter() {
        by_type.entry(option.instance_type).or_default().push(*option);
    }
    if by_type.values().any(|ways| !keeps(ways)) {
        let is_kept =
            |option: &LaunchOption| by_type.get(&option.instance_type).is_some_and(|ways| keeps(ways));
        Arc::make_mut(&mut node.options).retain(is_kept);
    }
}

/// What a type may cost at worst, bought as the first capacity type that it is sold as.
pub(super) fn worst_price(options: &[LaunchOption]) -> Option<UsdPerHour> {
    [CapacityType::Reserved, CapacityType::Spot, CapacityType::OnDemand].into_iter().find_map(|kind| {
        options.iter().filter(|option| option.capacity_type == kind).map(|option| option.price).max()
    })
}

pub(super) fn short_of_values(round: &Round, node: &NewNode) -> Option<crate::model::symbol::Symbol> {
    let types = node.instance_types().into_iter().collect();
    missing_values(node, &round.supply.types(node.pool), &types)
}

/// Takes from `node` what costs as much as a type of `candidates` that is among its own: removing the others and keeping
/// that node would be better.
fn without_same_types(
    round: &Round,
    candidates: &[Candidate],
    mut node: NewNode,
) -> Result<NewNode, Refused> {
    let offered: BTreeSet<TypeName> = node.instance_types().into_iter().collect();
    let lowest = candidates
        .iter()
        .filter(|candidate| {
            let known = round.cluster.nodes.get(&candidate.node);
            let name = known.and_then(|node| node.labels.get(&*label::INSTANCE_TYPE));
            name.is_some_and(|name| offered.contains(&TypeName(*name)))
        })
        .map(|candidate| candidate.price)
        .min();
    if let Some(lowest) = lowest {
        keep_types(&mut node, |options| worst_price(options).is_some_and(|price| price < lowest));
    }
    if node.options.is_empty() || short_of_values(round, &node).is_some() {
        return Err(("SameType", "the replacement would be of a type that is removed".into()));
    }
    Ok(node)
}
