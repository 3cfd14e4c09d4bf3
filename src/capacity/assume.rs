//! What an API server makes of an action: the engine goes on from there without waiting to see it, and a plan is carried
//! out in memory the same way.

use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Cluster;
use crate::model::action::{Action, ClaimChange, NodeChange};
use crate::model::claim::NodeClaim;
use crate::model::node::Node;

/// Changes the objects of `cluster` as `action` would. Actions that concern no object of ours change nothing here.
pub(crate) fn assume(cluster: &mut Cluster, action: &Action, now: Timestamp) {
    match action {
        Action::CreateClaim(claim) => {
            if !cluster.claims.contains_key(&claim.name) {
                cluster.put_claim(claim.clone());
            }
        }
        Action::DeleteClaim { claim } => {
            let Some(known) = cluster.claims.get(claim) else { return };
            if !known.has_finalizer {
                cluster.remove_claim(*claim);
            } else if known.deleted.is_none() {
                let mut changed = (**known).clone();
                changed.deleted = Some(now);
                cluster.put_claim(Arc::new(changed));
            }
        }
        Action::UpdateClaim { claim, change } => {
            if let Some(known) = cluster.claims.get(claim) {
                let mut changed = (**known).clone();
                change_claim(&mut changed, change);
                cluster.put_claim(Arc::new(changed));
            }
        }
        Action::FinalizeClaim { claim } => {
            if cluster.claims.get(claim).is_some_and(|claim| claim.deleted.is_some()) {
                cluster.remove_claim(*claim);
            }
        }
        Action::UpdateNode { node, change } => {
            if let Some(known) = cluster.nodes.get(node) {
                let mut changed = (**known).clone();
                change_node(&mut changed, change);
                cluster.put_node(Arc::new(changed));
            }
        }
        Action::DeleteNode { node } => {
            let Some(known) = cluster.nodes.get(node) else { return };
            if !known.has_finalizer {
                cluster.remove_node(*node);
            } else if known.deleted.is_none() {
                let mut changed = (**known).clone();
                changed.deleted = Some(now);
                cluster.put_node(Arc::new(changed));
            }
        }
        Action::FinalizeNode { node } => {
            if cluster.nodes.get(node).is_some_and(|node| node.deleted.is_some()) {
                cluster.remove_node(*node);
            }
        }
        Action::UpdatePool { pool, change } => {
            if let Some(known) = cluster.pools.get_mut(pool) {
                change.apply_to(Arc::make_mut(known));
            }
        }
        Action::UpdateOverlay { overlay, conditions } => {
            if let Some(known) = cluster.overlays.get_mut(overlay) {
                let known = Arc::make_mut(known);
                known.conditions = conditions.clone();
                known.is_judged_earlier = false;
            }
        }
        Action::UpdateBuffer { buffer, status } => {
            if let Some(known) = cluster.buffers.get_mut(buffer) {
                Arc::make_mut(known).status = status.clone();
            }
        }
        Action::Launch { .. }
        | Action::Terminate { .. }
        | Action::NameMachine { .. }
        | Action::HoldClass { .. }
        | Action::ResolveClass { .. }
        | Action::ClearClass { .. }
        | Action::NominatePod { .. }
        | Action::Evict { .. }
        | Action::DeletePod { .. }
        | Action::Publish(_) => {}
    }
}

fn change_claim(claim: &mut NodeClaim, change: &ClaimChange) {
    claim.has_finalizer |= change.add_finalizer;
    claim.labels.extend(change.labels.iter().map(|(key, value)| (*key, *value)));
    claim.annotations.extend(change.annotations.iter().map(|(key, value)| (*key, *value)));
    if let Some(conditions) = &change.conditions {
        claim.conditions = conditions.clone();
    }
    if let Some(launched) = &change.launched {
        claim.provider_id = Some(launched.provider_id);
        claim.image = Some(launched.image);
        claim.capacity = launched.capacity.clone();
        claim.allocatable = launched.allocatable.clone();
    }
    claim.node = change.node.or(claim.node);
    claim.last_pod_event = change.last_pod_event.or(claim.last_pod_event);
}

fn change_node(node: &mut Node, change: &NodeChange) {
    node.labels.extend(change.labels.iter().map(|(key, value)| (*key, *value)));
    node.annotations.extend(change.annotations.iter().map(|(key, value)| (*key, *value)));
    node.taints.retain(|taint| !change.remove_taints.iter().any(|removed| removed.is_same(taint)));
    node.taints.retain(|taint| !change.add_taints.iter().any(|added| added.is_same(taint)));
    node.taints.extend(change.add_taints.iter().copied());
    node.has_finalizer |= change.add_finalizer;
}
