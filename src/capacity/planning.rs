//! The whole question at once: given this cluster at this moment, what would be bought and what would go?

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::buffers::virtual_pods;
use super::cluster::Cluster;
use super::decision::Plan;
use super::disruption::expiration::all_due;
use super::disruption::round::{Round, launched};
use super::disruption::{self, Command, Destination, Method};
use super::engine::EngineSettings;
use super::provisioning::claims_for;
use super::scheduling::{
    self, Help, Mode, NewNode, Place, Request, Settings, Solution, Supply, moving_pods, provisionable_pods,
    solve, solve_bounded, usage_by_pool,
};
use super::static_capacity;
use crate::model::claim::NodeClaim;
use crate::model::money::UsdPerHour;
use crate::model::name::ObjectKey;
use crate::model::pod::Pod;
use crate::model::quantity::resource;

/// Where pods that wait, or whose node is on its way out, would go; and the room that is to be kept. Nodes that are too old take
/// no more pods.
pub fn place(cluster: &Cluster, supply: &Supply, now: Timestamp, scheduling: &Settings) -> Solution {
    let mut pods = provisionable_pods(cluster, scheduling).0;
    pods.extend(moving_pods(cluster, now));
    pods.extend(virtual_pods(cluster, scheduling));
    solve(&Request {
        cluster,
        supply,
        now,
        pods: &pods,
        departing: &[],
        without_nodes: &BTreeSet::new(),
        without_claims: &BTreeSet::new(),
        shut_claims: &all_due(cluster, now),
        planned: &BTreeMap::new(),
        used_at_least: &BTreeMap::new(),
        settings: scheduling,
        mode: Mode::Provisioning,
    })
}

/// The claim that `node` would get, launched as the cheapest that it may be; `None` if limits do not allow it any more.
pub fn buy(
    cluster: &Cluster,
    supply: &Supply,
    node: &NewNode,
    settings: &EngineSettings,
    now: Timestamp,
    seed: u64,
) -> Option<Arc<NodeClaim>> {
    let solution = Solution { new_nodes: vec![node.clone()], ..Solution::default() };
    let purchase = claims_for(cluster, supply, &solution, &settings.scheduling, now, seed);
    let (claim, _) = purchase.claims.first()?;
    Some(Arc::new(launched(claim, node, supply, now)))
}

/// Judges `cluster` as it is at `now`. What static pools lack is bought, nodes that are too old are replaced, waiting pods find
/// places on what is there then or on new nodes of their own; what else may go is judged as if all that were on its way.
pub fn plan(cluster: &Cluster, now: Timestamp, settings: &EngineSettings) -> Plan {
    plan_with(cluster, &Supply::of(cluster, &settings.scheduling), now, settings)
}

/// The same with a supply that is at hand.
pub fn plan_with(cluster: &Cluster, supply: &Supply, now: Timestamp, settings: &EngineSettings) -> Plan {
    judged(cluster, supply, now, settings, |request| (solve(request), ())).0
}

/// The same, with the least that its new nodes cost in any plan: what pods need, and what static pools lack.
pub fn bounded_plan(cluster: &Cluster, now: Timestamp, settings: &EngineSettings) -> (Plan, UsdPerHour) {
    let supply = Supply::of(cluster, &settings.scheduling);
    let (plan, bound) = judged(cluster, &supply, now, settings, solve_bounded);
    let fixed: UsdPerHour = plan.kept.iter().flat_map(|pool| &pool.new_nodes).map(NewNode::price).sum();
    (plan, bound + fixed)
}

/// What would help the pods that `plan`, made of the same picture, leaves without a place once it is carried out.
pub fn help(
    cluster: &Cluster,
    now: Timestamp,
    settings: &EngineSettings,
    plan: &Plan,
) -> BTreeMap<ObjectKey, Help> {
    if plan.provisioning.unschedulable.is_empty() {
        return BTreeMap::new();
    }
    let supply = Supply::of(cluster, &settings.scheduling);
    let mut after = cluster.clone();
    let commands = &plan.disruption.commands;
    let moves = commands.iter().flat_map(|command| &command.pods).filter_map(|(pod, to)| match to {
        Destination::Existing(place) => Some((*place, *pod)),
        Destination::Replacement(_) | Destination::Nowhere => None,
    });
    let existing = plan.provisioning.existing.iter();
    let placed = existing.flat_map(|(place, pods)| pods.iter().map(|pod| (*place, *pod))).chain(moves);
    for (place, pod) in placed {
        if let (Place::Node(node), Some(pod)) = (place, cluster.pods.get(&pod)) {
            after.put_pod(Arc::new(Pod { node: Some(node), ..(**pod).clone() }));
        }
    }
    commands.iter().flat_map(|command| &command.claims).for_each(|claim| after.remove_claim(*claim));
    commands.iter().flat_map(|command| &command.nodes).for_each(|node| after.remove_node(*node));
    let mut used = usage_by_pool(&after, &supply);
    let replacements = commands.iter().flat_map(|command| &command.replacements);
    for node in plan.provisioning.new_nodes.iter().chain(replacements) {
        let types = supply.types(node.pool);
        let kind = types.iter().find(|kind| kind.name == node.launch().instance_type);
        let used = used.entry(node.pool).or_default();
        kind.iter().for_each(|kind| used.add(&kind.capacity));
        used.add(&[(*resource::NODES, 1)].into_iter().collect());
    }
    scheduling::help(&after, &supply, now, &settings.scheduling, &plan.provisioning, &used)
}

fn judged<T>(
    cluster: &Cluster,
    supply: &Supply,
    now: Timestamp,
    settings: &EngineSettings,
    solve: impl FnOnce(&Request) -> (Solution, T),
) -> (Plan, T) {
    let EngineSettings { scheduling, disruption: judging, .. } = settings;
    let kept = static_capacity::keep_all(cluster, supply, scheduling, now);
    let mut round = Round::new(cluster.clone(), supply, scheduling, judging, now);
    kept.iter().for_each(|pool| round.buy(&pool.new_nodes));
    let mut started = disruption::expire(&mut round, usize::MAX);
    started.extend(disruption::scale_down(&mut round));
    let (waiting, rejected) = provisionable_pods(cluster, scheduling);
    let (provisioning, found) = provisioned(&round, cluster, waiting, &started, solve);
    round.provision(&provisioning);
    let disruption = disruption::plan_after(&mut round, started, usize::MAX);
    (Plan { kept, provisioning, rejected, disruption: Arc::new(disruption), ..Plan::default() }, found)
}

/// Where pods that need a place would go after `started`. What comes for nodes that are too old is for their pods, and as long as
/// those nodes stand limits count them.
fn provisioned<T>(
    round: &Round,
    before: &Cluster,
    mut pods: Vec<Arc<Pod>>,
    started: &[Command],
    solve: impl FnOnce(&Request) -> (Solution, T),
) -> (Solution, T) {
    let left = started.iter().flat_map(|command| &command.pods);
    let left = left.filter(|(_, to)| *to == Destination::Nowhere).map(|(pod, _)| *pod);
    let left: BTreeSet<ObjectKey> = left.collect();
    let moving = moving_pods(&round.cluster, round.now).into_iter();
    let (departing, placed): (Vec<_>, Vec<_>) = moving.partition(|pod| left.contains(&pod.key));
    pods.extend(placed);
    pods.extend(virtual_pods(before, round.scheduling));
    let has_expired = started.iter().any(|command| command.method == Method::Expiration);
    let used_at_least = if has_expired { usage_by_pool(before, round.supply) } else { BTreeMap::new() };
    solve(&Request {
        cluster: &round.cluster,
        supply: round.supply,
        now: round.now,
        pods: &pods,
        departing: &departing,
        without_nodes: &BTreeSet::new(),
        without_claims: &BTreeSet::new(),
        shut_claims: &round.made,
        planned: &round.planned,
        used_at_least: &used_at_least,
        settings: round.scheduling,
        mode: Mode::Provisioning,
    })
}
