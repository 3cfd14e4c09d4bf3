//! What it costs to move a node's pods, in numbers that are compared and never rounded.
//!
//! Weights are counted in 2^-27 of one ordinary pod, so that a pod's deletion cost and priority enter exactly.

use crate::capacity::cluster::Cluster;
use crate::model::label;
use crate::model::money::UsdPerHour;
use crate::model::name::{NodeName, TypeName, Zone};
use crate::model::node::Node;
use crate::model::offering::{CapacityType, InstanceType};
use crate::model::pod::Pod;

/// One ordinary pod.
pub const ONE: i64 = 1 << 27;

/// What evicting `pod` costs: 1, more for a high priority or deletion cost, between -10 and 10.
pub fn eviction_cost(pod: &Pod) -> i64 {
    let cost = ONE + i64::from(pod.shape.deletion_cost) + 4 * i64::from(pod.shape.priority);
    cost.clamp(-10 * ONE, 10 * ONE)
}

/// Whether `pod` has to run elsewhere once its node is gone, as far as its kind goes: daemons and static pods do not, a
/// StatefulSet's pod does even while it ends.
pub fn has_to_move(pod: &Pod) -> bool {
    let comes_back =
        pod.is_active() || (!pod.is_terminal() && pod.deleted.is_some() && pod.is_owned_by("StatefulSet"));
    comes_back && !pod.is_daemon() && !pod.is_mirror()
}

/// One for the node itself, and what its pods cost. A pod that nobody misses does not make up for one that somebody does.
pub fn disruption_cost(cluster: &Cluster, node: NodeName) -> i64 {
    let of_pods = cluster.pods_of(node).filter(|pod| has_to_move(pod)).map(|pod| eviction_cost(pod).max(0));
    ONE + of_pods.sum::<i64>()
}

/// What `node` costs an hour, by the list price of its own offering whether or not that is to be had now.
pub fn price(node: &Node, types: &[InstanceType]) -> UsdPerHour {
    let of = |key| node.labels.get(key).copied();
    let (Some(name), Some(zone), Some(kind)) =
        (of(&*label::INSTANCE_TYPE), of(&*label::ZONE), of(&*label::CAPACITY_TYPE))
    else {
        return UsdPerHour::ZERO;
    };
    let Some(capacity_type) = CapacityType::parse(&kind) else { return UsdPerHour::ZERO };
    let found = types.iter().find(|kind| kind.name == TypeName(name));
    let offering = found.and_then(|found| {
        found
            .offerings
            .iter()
            .find(|offering| offering.zone == Zone(zone) && offering.capacity_type == capacity_type)
    });
    offering.map_or(UsdPerHour::ZERO, |offering| offering.price)
}

/// Compares what is saved per disruption: `a` before `b` if it saves more.
pub fn by_savings(a: (UsdPerHour, i64), b: (UsdPerHour, i64)) -> std::cmp::Ordering {
    let left = i128::from(a.0.0) * i128::from(b.1);
    let right = i128::from(b.0.0) * i128::from(a.1);
    right.cmp(&left)
}
