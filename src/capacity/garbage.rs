//! What one side forgot: machines without a claim, claims without a machine.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::decision::Steps;
use crate::model::action::Action;
use crate::model::claim::ConditionType;
use crate::model::name::ProviderId;
use crate::model::observation::Instance;

/// How old a machine must be before the lack of a claim counts: its claim may be about to learn of it.
const GRACE: SignedDuration = SignedDuration::from_secs(30);

/// Machines of nodes on their way out that are gone by `instances`, where the node does not say otherwise itself: there is nothing
/// left to drain. A machine that is too young may not be listed yet.
pub(crate) fn lost_under_way(cluster: &Cluster, instances: &[Instance], now: Timestamp) -> Vec<ProviderId> {
    let listed: BTreeSet<ProviderId> = instances.iter().map(|one| one.provider_id).collect();
    let going = cluster.nodes.values().filter(|node| {
        let is_young = node.created.is_none_or(|created| now.duration_since(created) < GRACE);
        node.deleted.is_some() && !node.is_ready() && !is_young
    });
    let claimed = going.filter(|node| cluster.claim_of(node).is_some());
    claimed.filter_map(|node| node.provider_id).filter(|id| !listed.contains(id)).collect()
}

/// Compares the list of all our machines with the claims.
pub(crate) fn collect(cluster: &Cluster, instances: &[Instance], now: Timestamp) -> Steps {
    let mut steps = Steps::default();
    let alive: BTreeSet<ProviderId> = instances
        .iter()
        .filter(|one| !one.is_terminating && !one.is_stopped)
        .map(|one| one.provider_id)
        .collect();
    for claim in cluster.claims.values().filter(|claim| claim.deleted.is_none()) {
        let is_lost = claim.conditions.is_true(ConditionType::Registered)
            && claim.provider_id.is_some_and(|id| !alive.contains(&id));
        let is_alive = cluster.node_of(claim).is_some_and(|node| node.is_ready());
        if is_lost && !is_alive {
            let message = "its machine is gone and its node is not ready";
            steps.push(Action::DeleteClaim { claim: claim.name }, "GarbageCollected", message);
        }
    }
    for instance in instances.iter().filter(|one| !one.is_terminating) {
        let is_strange = cluster.strangers.has_machine(instance.provider_id)
            || instance.claim.is_some_and(|name| cluster.strangers.has_claim(name))
            || instance.pool.is_some_and(|pool| cluster.strangers.pools.contains(&pool));
        let is_known = cluster.claim_by_instance(instance.provider_id).is_some()
            || instance.claim.is_some_and(|name| {
                cluster.claims.get(&name).is_some_and(|claim| claim.provider_id.is_none())
            });
        if is_strange || is_known || now.duration_since(instance.launched) < GRACE {
            continue;
        }
        let message = "no claim belongs to this machine";
        steps.push(Action::Terminate { instance: instance.provider_id }, "GarbageCollected", message);
        if let Some(node) = cluster.node_by_instance(instance.provider_id) {
            steps.push(Action::DeleteNode { node: node.name }, "GarbageCollected", message);
        }
    }
    steps
}
