//! Which nodes may go, why, and what has to come first; and of every other node why it stays.
//!
//! The methods are asked in a fixed order: what is too old goes whatever anybody says, what is empty is given back, what has
//! drifted is replaced, what was bought for want of something better goes back to that, and what is left is put on fewer or cheaper nodes. Each command changes the picture that the next one
//! is found in, as it would change the cluster.

pub mod command;
pub mod candidates;
pub mod budgets;
pub(crate) mod windows;
pub(crate) mod weights;
pub mod cost;
pub(crate) mod round;
pub(crate) mod marking;
pub(crate) mod expiration;
pub(crate) mod renewal;
pub(crate) mod interruption;
mod emptiness;
mod drift;
pub(crate) mod roll;
pub(crate) mod returning;
pub mod stays;
pub mod alternatives;
mod consolidation;
pub(crate) mod remembered;
mod hysteresis;
mod removal;
pub mod balanced;
pub(crate) mod validation;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::scheduling::{self, NewNode, Protection, Supply, protection};
use super::static_capacity;
pub use alternatives::Alternative;
use balanced::Move;
use budgets::Allowance;
use candidates::Class;
pub use candidates::KeepReason;
pub use command::{Command, Destination, Kind, Method};
pub use cost::has_to_move;
pub(crate) use cost::{eviction_cost, price as price_of};
use round::Round;
use stays::{Since, Spans};

use crate::model::claim::{ConditionStatus, ConditionType, NodeClaim};
use crate::model::label;
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName, Uid};
use crate::model::node::{Node, NodeCondition};
use crate::model::pool::DisruptionReason;

#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Settings {
    /// Let a spot node be replaced by a cheaper spot node (gate SpotToSpotConsolidation).
    pub spot_to_spot: bool,
}

/// A node that stays, with the first reason that keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    pub node: NodeName,
    pub code: &'static str,
    pub message: String,
    /// Why it should go, if it should and nothing that is under way will let it.
    pub held_for: Option<DisruptionReason>,
    /// Since when it stays for this reason; `None`: the objects do not tell.
    pub since: Option<Since>,
    /// When time alone may let it go, for this reason or for its age; `None`: something else has to change.
    pub next_look: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct DisruptionPlan {
    /// All that would start at one moment, in order.
    pub commands: Vec<Command>,
    /// Every other node of ours, by name.
    pub kept: Vec<Kept>,
    /// Pools with nodes that would go for a reason, and whose budgets let none go for it now.
    pub blocked: BTreeSet<(PoolName, DisruptionReason)>,
    /// What consolidation would do, and what it would do if balanced pools gained enough by it.
    pub moves: Vec<Move>,
    /// Claims whose machine has not joined: nothing of theirs can be judged.
    pub unjoined: BTreeSet<ClaimName>,
    /// Pods of our nodes that ask not to be moved for a time, or ask it in vain.
    pub protections: BTreeMap<ObjectKey, Protection>,
    /// How things stood before any of this started.
    pub outlook: Outlook,
    /// When something that holds a roll back is over.
    pub rolls_on_at: Option<Timestamp>,
}

/// What might go and how many are let, before anything starts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outlook {
    /// Of each pool, for each reason that its budgets limit.
    pub allowances: BTreeMap<(PoolName, DisruptionReason), Allowance>,
    /// Nodes that would be looked at for a reason if budgets let them go.
    pub eligible: BTreeMap<DisruptionReason, usize>,
}

/// The reasons that budgets limit.
const LIMITED: [DisruptionReason; 3] =
    [DisruptionReason::Empty, DisruptionReason::Drifted, DisruptionReason::Underutilized];

/// Everything that would start in `round`, at most so many commands.
pub(crate) fn plan_in(round: &mut Round, commands_max: usize) -> DisruptionPlan {
    let expired = expire(round, commands_max);
    plan_after(round, expired, commands_max)
}

/// Starts what makes room for the pods of nodes that are too old.
pub(crate) fn expire(round: &mut Round, commands_max: usize) -> Vec<Command> {
    let mut commands: Vec<Command> = Vec::new();
    let surplus = static_capacity::surplus(round, &expiration::all_due(&round.cluster, round.now));
    while commands.len() < commands_max
        && let Some(command) = expiration::plan(round, &surplus)
    {
        round.start(&command);
        commands.push(command);
    }
    expiration::note_held(round);
    commands
}

/// Starts what static pools have too much.
pub(crate) fn scale_down(round: &mut Round) -> Vec<Command> {
    let commands = static_capacity::scale_down(round);
    commands.iter().for_each(|command| round.start(command));
    commands
}

/// Everything that would start within the budgets of the moment, after `commands`, which have been.
pub(crate) fn plan_after(
    round: &mut Round,
    mut commands: Vec<Command>,
    commands_max: usize,
) -> DisruptionPlan {
    let outlook = outlook(round);
    while commands.len() < commands_max {
        let next = next_commands(round);
        if next.is_empty() {
            break;
        }
        for command in next {
            round.start(&command);
            commands.push(command);
        }
    }
    let left = commands_max.saturating_sub(commands.len());
    commands.extend(consolidation::plan(round, left));
    commands.iter_mut().for_each(|command| alternatives::complete(round, command));
    let kept = kept(round, &commands);
    let has_joined = |claim: &NodeClaim| round.cluster.node_of(claim).is_some();
    let claims = round.cluster.claims.values().filter(|claim| claim.deleted.is_none() && !has_joined(claim));
    let unjoined = claims.map(|claim| claim.name).filter(|name| !round.made.contains(name)).collect();
    let protections = protections(round);
    DisruptionPlan {
        commands,
        kept,
        blocked: std::mem::take(&mut round.blocked),
        moves: std::mem::take(&mut round.moves),
        unjoined,
        protections,
        outlook,
        rolls_on_at: round.rolls_on_at,
    }
}

fn outlook(round: &mut Round) -> Outlook {
    let mut outlook = Outlook::default();
    for reason in LIMITED {
        let of_pools = round.allowances(reason).into_iter();
        outlook.allowances.extend(of_pools.map(|(pool, allowance)| ((pool, reason), allowance)));
    }
    let graceful = round.candidates(Class::Graceful);
    let empty = graceful.iter().filter(|one| emptiness::wants(round, one)).count();
    let underutilized = graceful.iter().filter(|one| removal::wants(round, one).is_ok()).count();
    let drifted = drift::drifted(round, false).len() + drift::drifted(round, true).len();
    outlook.eligible = LIMITED.into_iter().zip([empty, drifted, underutilized]).collect();
    outlook
}

/// What annotations of pods on our nodes come to, but for those that hold for ever.
fn protections(round: &Round) -> BTreeMap<ObjectKey, Protection> {
    let asks = |node: &&Arc<Node>| {
        let pool = round.cluster.claim_of(node).map(|claim| claim.pool());
        pool.is_some_and(|pool| pool.is_none_or(|pool| weights::weigh(round, node, pool).has_requests))
    };
    let nodes = round.cluster.nodes.values().filter(asks);
    let pods = nodes.flat_map(|node| round.cluster.pods_of(node.name));
    let said = pods.filter_map(|pod| Some((pod.key, protection(pod, round.now)?)));
    said.filter(|(_, protection)| *protection != Protection::Forever).collect()
}

/// What the first method wants to start that finds anything; consolidation comes after all of them.
fn next_commands(round: &mut Round) -> Vec<Command> {
    let scaled = static_capacity::scale_down(round);
    if !scaled.is_empty() {
        return scaled;
    }
    if let Some(command) = emptiness::plan(round) {
        return vec![command];
    }
    let commands = drift::plan_static(round);
    if !commands.is_empty() {
        return commands;
    }
    let command = drift::plan(round).or_else(|| renewal::plan(round)).or_else(|| returning::plan(round));
    command.into_iter().collect()
}

/// What is to be done next in a cluster where everything that was decided before is done.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// What static pools lack.
    pub new_nodes: Vec<NewNode>,
    pub commands: Vec<Command>,
    /// When something that holds a roll back is over.
    pub rolls_on_at: Option<Timestamp>,
}

/// What would start at `now`.
pub fn next_step(
    cluster: &Cluster,
    supply: &Supply,
    scheduling: &scheduling::Settings,
    settings: &Settings,
    now: Timestamp,
) -> Step {
    let kept = static_capacity::keep_all(cluster, supply, scheduling, now);
    let new_nodes: Vec<NewNode> = kept.into_iter().flat_map(|pool| pool.new_nodes).collect();
    if !new_nodes.is_empty() {
        return Step { new_nodes, ..Step::default() };
    }
    let mut round = Round::new(cluster.clone(), supply, scheduling, settings, now);
    round.find_room();
    let DisruptionPlan { commands, rolls_on_at, .. } = plan_in(&mut round, usize::MAX);
    Step { new_nodes, commands, rolls_on_at }
}

/// When the pods of `claim` will have been quiet for long enough to be moved; `None`: never.
pub fn quiet_at(cluster: &Cluster, claim: &NodeClaim) -> Option<Timestamp> {
    let pool = cluster.pools.get(&claim.pool()?)?;
    marking::quiet_at(pool, claim)
}

/// Puts `claim` and its node into `cluster`, ready for pods.
pub fn join(cluster: &mut Cluster, claim: &NodeClaim, name: NodeName, now: Timestamp) {
    let mut claim = claim.clone();
    for kind in [ConditionType::Launched, ConditionType::Registered, ConditionType::Initialized] {
        claim.conditions.set(kind, ConditionStatus::True, kind.as_str(), "", now);
    }
    claim.node = Some(name);
    let mut labels = claim.labels.clone();
    labels.insert(*label::HOSTNAME, name.0);
    labels.insert(*label::REGISTERED, "true".into());
    labels.insert(*label::INITIALIZED, "true".into());
    cluster.put_node(Arc::new(Node {
        name,
        uid: Uid(name.0),
        labels,
        annotations: claim.annotations.clone(),
        created: Some(now),
        deleted: None,
        has_finalizer: true,
        provider_id: claim.provider_id,
        taints: claim.spec.taints.clone(),
        is_cordoned: false,
        capacity: claim.capacity.clone(),
        allocatable: claim.allocatable.clone(),
        conditions: vec![NodeCondition { kind: "Ready".into(), status: "True".into(), since: Some(now) }],
    }));
    cluster.put_claim(Arc::new(claim));
}

fn kept(round: &Round, commands: &[Command]) -> Vec<Kept> {
    let gone: BTreeSet<NodeName> =
        commands.iter().flat_map(|command| command.nodes.iter().copied()).collect();
    // What admission says last counts before what a method said earlier.
    let stays = |round: &Round, node: NodeName| {
        let reason = round.notes.get(&node).cloned();
        reason.unwrap_or_else(|| KeepReason::new("NoCommand", "no reason to disrupt it was found"))
    };
    let mut spans = Spans::new(round);
    let ours = round.cluster.nodes.values().filter(|node| {
        !gone.contains(&node.name)
            && (round.cluster.claim_of(node).is_some() || node.labels.contains_key(&*label::NODEPOOL))
    });
    ours.map(|node| {
        let reason = stays(round, node.name);
        let claim = round.cluster.claim_of(node);
        let span = spans.of(node, claim.map(|claim| &**claim), &reason);
        let KeepReason { code, message, .. } = reason;
        let is_outdated = claim.is_some_and(|claim| claim.conditions.is_true(ConditionType::Drifted));
        let held_for = match code {
            "BudgetExhausted" | "OutsideWindow" | "ExpirationUnreadable" => {
                round.held.get(&node.name).copied()
            }
            "BeingDisrupted" | "SurgeReached" => None,
            _ => is_outdated.then_some(DisruptionReason::Drifted),
        };
        let since = span.since.map(Since::exactly);
        Kept { node: node.name, code, message, held_for, since, next_look: span.until }
    })
    .collect()
}
