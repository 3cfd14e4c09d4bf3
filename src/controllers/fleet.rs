//! The nodes behind the pools, from the node half's picture to the Git half's.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capacity::cluster::Cluster;
use crate::gitops::live::{Fleet, NodeFacts};
use crate::model::claim::ConditionType;
use crate::model::label;
use crate::model::quantity::resource;

/// The nodes behind the pools, as far as a plan has to know them.
pub(super) fn fleet_of(objects: &Cluster) -> Fleet {
    let mut fleet = Fleet::default();
    // A machine that is on its way out still counts: its pods are not all gone. So do those of a pool that is not ours yet.
    for claim in objects.claims.values().chain(objects.strangers.claims.values()) {
        let Some(pool) = claim.pool() else { continue };
        let labels: BTreeMap<Arc<str>, Arc<str>> =
            claim.labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().into())).collect();
        let node = objects.node_of(claim);
        let is_protected = node.is_some_and(|node| {
            node.annotations.get(&*label::annotation::DO_NOT_DISRUPT).is_some_and(|value| &**value == "true")
        });
        fleet.nodes_by_pool.entry(pool.as_str().into()).or_default().push(NodeFacts {
            name: node.map_or(claim.name.as_str(), |node| node.name.as_str()).into(),
            labels,
            cpu_millis: u64::try_from(claim.capacity.get(*resource::CPU)).unwrap_or(0),
            do_not_disrupt: is_protected,
            is_drifted: claim.conditions.is_true(ConditionType::Drifted),
        });
    }
    fleet
}
