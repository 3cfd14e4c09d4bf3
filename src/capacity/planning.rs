//! The whole question at once: given this cluster at this moment, what would be bought and what would go?

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::buffers::virtual_pods;
use super::cluster::Cluster;
use super::decision::Plan;
use super::disruption;
use super::disruption::round::launched;
use super::engine::EngineSettings;
use super::provisioning::claims_for;
use super::scheduling::{
    Mode, NewNode, Request, Settings, Solution, Supply, moving_pods, provisionable_pods, solve, solve_bounded,
};
use super::static_capacity;
use crate::model::claim::NodeClaim;
use crate::model::money::UsdPerHour;

/// Where pods that wait, or whose node is on its way out, would go; and the room that is to be kept.
pub fn place(cluster: &Cluster, supply: &Supply, now: Timestamp, scheduling: &Settings) -> Solution {
    asked(cluster, supply, now, scheduling, solve)
}

fn asked<T>(
    cluster: &Cluster,
    supply: &Supply,
    now: Timestamp,
    scheduling: &Settings,
    solve: impl FnOnce(&Request) -> T,
) -> T {
    let mut pods = provisionable_pods(cluster, scheduling).0;
    pods.extend(moving_pods(cluster, now));
    pods.extend(virtual_pods(cluster, scheduling));
    solve(&Request {
        cluster,
        supply,
        now,
        pods: &pods,
        without_nodes: &BTreeSet::new(),
        without_claims: &BTreeSet::new(),
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

/// Judges `cluster` as it is at `now`. What static pools lack is bought, waiting pods find places on what is there now or on new
/// nodes of their own; what may go is judged as if all that were on its way.
pub fn plan(cluster: &Cluster, now: Timestamp, settings: &EngineSettings) -> Plan {
    plan_with(cluster, &Supply::of(cluster, &settings.scheduling), now, settings)
}

/// The same with a supply that is at hand.
pub fn plan_with(cluster: &Cluster, supply: &Supply, now: Timestamp, settings: &EngineSettings) -> Plan {
    judged(cluster, supply, place(cluster, supply, now, &settings.scheduling), now, settings)
}

/// The same, with the least that its new nodes cost in any plan: what pods need, and what static pools lack.
pub fn bounded_plan(cluster: &Cluster, now: Timestamp, settings: &EngineSettings) -> (Plan, UsdPerHour) {
    let supply = Supply::of(cluster, &settings.scheduling);
    let (provisioning, bound) = asked(cluster, &supply, now, &settings.scheduling, solve_bounded);
    let plan = judged(cluster, &supply, provisioning, now, settings);
    let fixed: UsdPerHour = plan.kept.iter().flat_map(|pool| &pool.new_nodes).map(NewNode::price).sum();
    (plan, bound + fixed)
}

fn judged(
    cluster: &Cluster,
    supply: &Supply,
    provisioning: Solution,
    now: Timestamp,
    settings: &EngineSettings,
) -> Plan {
    let rejected = provisionable_pods(cluster, &settings.scheduling).1;
    let kept = static_capacity::keep_all(cluster, supply, &settings.scheduling, now);
    let EngineSettings { scheduling, disruption: judging, .. } = settings;
    let disruption = disruption::plan(cluster, supply, &kept, &provisioning, scheduling, judging, now);
    Plan { kept, provisioning, rejected, disruption: Arc::new(disruption), ..Plan::default() }
}
