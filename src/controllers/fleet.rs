//! The nodes behind the pools, from the node half's picture to the Git half's.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::capacity::cluster::Cluster;
use crate::gitops::live::{Fleet, NodeFacts};
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::label;
use crate::model::name::ClaimName;
use crate::model::node::Node;
use crate::model::quantity::resource;

/// The nodes behind the pools, as far as a plan has to know them.
pub(super) fn fleet_of(objects: &Cluster) -> Fleet {
    FleetReader::default().read(objects)
}

/// Reads the nodes again and again: of a thousand, one is another than before, and only that is described anew.
#[derive(Debug, Default)]
pub(super) struct FleetReader {
    known: BTreeMap<ClaimName, Known>,
}

#[derive(Debug)]
struct Known {
    claim: Arc<NodeClaim>,
    node: Option<Arc<Node>>,
    facts: NodeFacts,
}

impl FleetReader {
    pub fn read(&mut self, objects: &Cluster) -> Fleet {
        let mut fleet = Fleet::default();
        let mut before = std::mem::take(&mut self.known);
        // A machine that is on its way out still counts: its pods are not all gone. So do those of a pool that is not ours yet.
        for claim in objects.claims.values().chain(objects.strangers.claims.values()) {
            let Some(pool) = claim.pool() else { continue };
            let node = objects.node_of(claim);
            let facts = match before.remove(&claim.name) {
                Some(known) if known.is_of(claim, node) => known.facts,
                known => facts_of(claim, node, known.as_ref()),
            };
            // No name is made for a pool that has one.
            match fleet.nodes_by_pool.get_mut(pool.as_str()) {
                Some(nodes) => nodes.push(facts.clone()),
                None => drop(fleet.nodes_by_pool.insert(pool.as_str().into(), vec![facts.clone()])),
            }
            let known = Known { claim: claim.clone(), node: node.cloned(), facts };
            self.known.insert(claim.name, known);
        }
        fleet
    }
}

impl Known {
    /// Objects are never changed, only replaced.
    fn is_of(&self, claim: &Arc<NodeClaim>, node: Option<&Arc<Node>>) -> bool {
        let is_same_node = match (&self.node, node) {
            (Some(known), Some(node)) => Arc::ptr_eq(known, node),
            (None, None) => true,
            _ => false,
        };
        is_same_node && Arc::ptr_eq(&self.claim, claim)
    }
}

fn facts_of(claim: &NodeClaim, node: Option<&Arc<Node>>, known: Option<&Known>) -> NodeFacts {
    let labels = match known.filter(|known| known.claim.labels == claim.labels) {
        Some(known) => known.facts.labels.clone(),
        None => Arc::new(
            claim
                .labels
                .iter()
                .map(|(key, value)| (key.as_str().into(), value.as_str().into()))
                .collect::<BTreeMap<Arc<str>, Arc<str>>>(),
        ),
    };
    let is_protected = node.is_some_and(|node| {
        node.annotations.get(&*label::annotation::DO_NOT_DISRUPT).is_some_and(|value| &**value == "true")
    });
    NodeFacts {
        name: node.map_or(claim.name.as_str(), |node| node.name.as_str()).into(),
        labels,
        cpu_millis: u64::try_from(claim.capacity.get(*resource::CPU)).unwrap_or(0),
        do_not_disrupt: is_protected,
        is_drifted: claim.conditions.is_true(ConditionType::Drifted),
    }
}
