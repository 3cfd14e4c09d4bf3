//! What is reported at a pool: whether it can be used, what its nodes come to, and the hash that its nodes are compared by.
//!
//! Counting follows the claims that changed, never the cluster: each counted claim is remembered with what it was counted as,
//! so that a change is one subtraction and one addition. Pools that refer to another provisioner's class are left alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::decision::Steps;
use super::disruption::command::is_leaving;
use super::disruption::roll;
use super::registration::Registrations;
use crate::model::action::{Action, ClaimChange, PoolChange};
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::condition::ConditionStatus;
use crate::model::label::{self, Labels, annotation};
use crate::model::name::{ClaimName, PoolName};
use crate::model::pool::{NodePool, PoolCondition, PoolConditions, PoolUse};
use crate::model::quantity::{ResourceName, Resources};

/// The resources that are reported even where there is none of them.
const ALWAYS: [&str; 5] = ["cpu", "memory", "pods", "ephemeral-storage", "nodes"];

/// What the nodes of every pool come to, kept by increments.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    changed: BTreeSet<ClaimName>,
    counted: BTreeMap<ClaimName, (PoolName, Resources)>,
    totals: BTreeMap<PoolName, PoolUse>,
}

impl Tally {
    /// The claim, or its node, may not be what it was.
    pub fn touch(&mut self, claim: ClaimName) {
        self.changed.insert(claim);
    }

    /// Counts every claim that changed anew; tells whose pools that concerns.
    pub fn catch_up(&mut self, cluster: &Cluster) -> BTreeSet<PoolName> {
        let mut pools = BTreeSet::new();
        for name in std::mem::take(&mut self.changed) {
            let found = cluster.claims.get(&name).and_then(|claim| counts_as(cluster, claim));
            let former = self.counted.remove(&name);
            if found == former {
                self.counted.extend(found.map(|found| (name, found)));
                continue;
            }
            if let Some((pool, amounts)) = former {
                let total = self.totals.entry(pool).or_default();
                total.resources.subtract(&amounts);
                total.nodes = total.nodes.saturating_sub(1);
                pools.insert(pool);
            }
            if let Some((pool, amounts)) = found {
                let total = self.totals.entry(pool).or_default();
                total.resources.add(&amounts);
                total.nodes += 1;
                pools.insert(pool);
                self.counted.insert(name, (pool, amounts));
            }
        }
        self.totals.retain(|_, total| total.nodes > 0);
        pools
    }

    /// What is to be reported at `pool`.
    pub fn of(&self, pool: PoolName) -> PoolUse {
        let total = self.totals.get(&pool);
        let nodes = total.map_or(0, |total| total.nodes);
        let amounts = total.iter().flat_map(|total| total.resources.iter());
        let mut resources: Resources = amounts.filter(|(_, amount)| *amount != 0).collect();
        for name in ALWAYS.map(ResourceName::new) {
            resources.set(name, resources.get(name));
        }
        resources.set(ResourceName::new("nodes"), i64::from(nodes));
        PoolUse { resources, nodes }
    }
}

/// The pool that `claim` counts for, and with what: the node's own word once it is initialized, before that the provider's
/// estimate. Claims without a machine and those on their way out count for nothing.
fn counts_as(cluster: &Cluster, claim: &NodeClaim) -> Option<(PoolName, Resources)> {
    claim.provider_id?;
    let node = cluster.node_of(claim);
    if is_leaving(claim) || node.is_some_and(|node| node.deleted.is_some()) {
        return None;
    }
    let is_initialized = |node: &Arc<crate::model::node::Node>| {
        node.labels.get(&*label::INITIALIZED).is_some_and(|value| &**value == "true")
    };
    let amounts = node.filter(|node| is_initialized(node)).map_or(&claim.capacity, |node| &node.capacity);
    Some((claim.pool()?, amounts.clone()))
}

/// What is to be said of `pool` at `now`; conditions that are nobody's here stay.
pub(crate) fn conditions(cluster: &Cluster, pool: &NodePool, now: Timestamp) -> PoolConditions {
    use ConditionStatus::{False, True, Unknown};
    let mut conditions = pool.conditions.clone();
    match pool.fault {
        Some(fault) => {
            let reason = "NodePoolValidationFailed";
            conditions.set(PoolCondition::ValidationSucceeded, False, reason, &fault, now);
        }
        None => {
            conditions.set(PoolCondition::ValidationSucceeded, True, "ValidationSucceeded", "", now);
        }
    }
    let of_class = PoolCondition::NodeClassReady;
    let name = pool.template.class.name;
    match cluster.classes.get(&name) {
        None => {
            let message = format!("there is no node class {name}");
            conditions.set(of_class, False, "NodeClassNotFound", &message, now);
        }
        Some(class) if class.is_deleting => {
            let message = format!("node class {name} is being deleted");
            conditions.set(of_class, False, "NodeClassTerminating", &message, now);
        }
        Some(class) => match &class.readiness {
            None => {
                let message = format!("node class {name} does not say whether it is ready");
                conditions.set(of_class, Unknown, "NodeClassReadinessUnknown", &message, now);
            }
            Some(ready) if ready.status == True => {
                conditions.set(of_class, True, "NodeClassReady", "", now);
            }
            Some(ready) => conditions.set(of_class, ready.status, &ready.reason, &ready.message, now),
        },
    }
    let faults = pool.terms.faults();
    match faults.is_empty() {
        true => conditions.clear(PoolCondition::TermsUnderstood),
        false => {
            let message = format!("{}; what it is about is not done until it can be read", faults.join("; "));
            conditions.set(PoolCondition::TermsUnderstood, False, "AnnotationUnreadable", &message, now);
        }
    }
    conditions.conclude(PoolCondition::Ready, &[PoolCondition::ValidationSucceeded, of_class], now);
    conditions
}

/// Writes the conditions of `pool` if they are not what they should be.
pub(crate) fn report_conditions(
    cluster: &Cluster,
    pool: &NodePool,
    registrations: &mut Registrations,
    now: Timestamp,
    steps: &mut Steps,
) {
    let mut found = conditions(cluster, pool, now);
    registrations.report(pool, &mut found, now);
    roll::report(cluster, pool, &mut found, now, steps);
    if found == pool.conditions && !pool.is_judged_earlier {
        return;
    }
    let message = match found.get(PoolCondition::Ready) {
        Some(ready) if ready.status != ConditionStatus::True => format!("not ready: {}", ready.message),
        _ => "ready".to_owned(),
    };
    let change = PoolChange { conditions: Some(found), ..PoolChange::default() };
    steps.push(Action::UpdatePool { pool: pool.name, change }, "PoolCondition", message);
}

/// Writes a hash of our own version on a pool that carries another. If the version is new, its claims come first, so that
/// whoever goes on after a crash sees that they are not done; a claim that has drifted keeps its hash, and so its drift.
pub(crate) fn stamp(cluster: &Cluster, pool: &NodePool, steps: &mut Steps) {
    let Some(stamp) = pool.new_stamp else { return };
    if stamp.is_new_version {
        for claim in cluster.claims_of(pool.name) {
            if claim.annotations.get(&*annotation::NODEPOOL_HASH_VERSION) == Some(&stamp.version) {
                continue;
            }
            let mut annotations = Labels::from([(*annotation::NODEPOOL_HASH_VERSION, stamp.version)]);
            if !claim.conditions.is_true(ConditionType::Drifted) {
                annotations.insert(*annotation::NODEPOOL_HASH, stamp.hash);
            }
            let change = ClaimChange { annotations, ..ClaimChange::default() };
            let message =
                format!("hashes of pool {} are of version {} from now on", pool.name, stamp.version);
            steps.push(Action::UpdateClaim { claim: claim.name, change }, "HashVersion", message);
        }
    }
    let change = PoolChange { stamp: Some(stamp), ..PoolChange::default() };
    let message = format!("its hash is {} by version {}", stamp.hash, stamp.version);
    steps.push(Action::UpdatePool { pool: pool.name, change }, "PoolHash", message);
}
