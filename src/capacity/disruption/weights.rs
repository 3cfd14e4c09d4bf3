//! What nodes cost, what it costs to move their pods, and what those say to it: worked out by a walk over all pods, and kept from pass to
//! pass of the nodes that nothing happens to.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::candidates::{KeepReason, refusal_of};
use super::cost;
use super::round::Round;
use crate::capacity::cluster::Cluster;
use crate::capacity::late_copy::LateCopy;
use crate::capacity::pod_budgets::PodBudgets;
use crate::capacity::scheduling::Supply;
use crate::model::hash::FastMap;
use crate::model::label;
use crate::model::money::UsdPerHour;
use crate::model::name::{NodeName, PoolName};
use crate::model::node::Node;

/// In one picture no pod moves and no price changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weighed {
    /// Zero if its type, zone or capacity type is not known.
    pub price: UsdPerHour,
    pub disruption: i64,
    pub is_of_known_type: bool,
    /// Whether some pod asks not to be moved, for ever or for a time.
    pub has_requests: bool,
}

/// What is known of nodes. A copy of an engine finds it out anew.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// What prices were those of.
    supply: Option<Arc<Supply>>,
    /// Whose answers the refusals are.
    budgets: LateCopy<PodBudgets>,
    /// Each as a node of the pool that was asked about.
    weighed: FastMap<NodeName, (PoolName, Weighed)>,
    /// Why pods keep their node, if they do.
    refusals: FastMap<NodeName, Option<KeepReason>>,
}

impl Clone for Weights {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Weights {
    /// Something has happened to `nodes`, or to their pods.
    pub fn forget(&mut self, nodes: &BTreeSet<NodeName>) {
        for node in nodes {
            self.weighed.remove(node);
            self.refusals.remove(node);
        }
    }

    /// Forgets what does not hold in `cluster` with `supply`.
    pub fn follow(&mut self, cluster: &Cluster, supply: &Arc<Supply>) {
        if !self.supply.as_ref().is_some_and(|known| Arc::ptr_eq(known, supply)) {
            self.weighed.clear();
            self.supply = Some(supply.clone());
        }
        let (known, now) = (&self.budgets, &cluster.budgets);
        let is_same =
            known.len() == now.len() && known.values().zip(now.values()).all(|(a, b)| Arc::ptr_eq(a, b));
        // What is counted from pods changes with all of them.
        let is_told = now.values().all(|budget| budget.disruptions_allowed.is_some());
        if !is_same {
            self.budgets = now.clone();
        }
        let is_timeless =
            |node: &NodeName| self.weighed.get(node).is_some_and(|(_, known)| !known.has_requests);
        self.refusals.retain(|node, _| is_same && is_told && is_timeless(node));
    }
}

/// What `node` costs, and what it costs to move its pods.
pub(super) fn weigh(round: &Round, node: &Node, pool: PoolName) -> Weighed {
    let mut weights = round.weights.borrow_mut();
    if let Some((as_of, known)) = weights.weighed.get(&node.name)
        && *as_of == pool
    {
        return *known;
    }
    let types = round.supply.sold(pool);
    let type_name = node.labels.get(&*label::INSTANCE_TYPE);
    let kind = types.iter().find(|kind| type_name == Some(&kind.name.0));
    let mut pods = round.cluster.pods_of(node.name);
    let weighed = Weighed {
        price: kind.map_or(UsdPerHour::ZERO, |kind| cost::price(node, std::slice::from_ref(kind))),
        disruption: cost::disruption_cost(&round.cluster, node.name),
        is_of_known_type: kind.is_some(),
        has_requests: pods.any(|pod| pod.shape.do_not_disrupt.is_some()),
    };
    weights.weighed.insert(node.name, (pool, weighed));
    weighed
}

/// Why pods of `node`, which is `weighed`, keep it.
pub(super) fn refusal(round: &Round, node: NodeName, weighed: &Weighed) -> Option<KeepReason> {
    if !weighed.has_requests && round.cluster.budgets.is_empty() {
        return None;
    }
    let mut weights = round.weights.borrow_mut();
    let first = || round.cluster.pods_of(node).find_map(|pod| refusal_of(round, pod));
    weights.refusals.entry(node).or_insert_with(first).clone()
}
