//! What is written on a claim about its future: `Drifted`, it is not what its pool would make now; `Consolidatable`, its pods
//! have been quiet for long enough.

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::capacity::scheduling::Supply;
use crate::model::claim::{Condition, ConditionStatus, ConditionType, Conditions, NodeClaim};
use crate::model::class::NodeClass;
use crate::model::label::{self, Labels, annotation};
use crate::model::name::TypeName;
use crate::model::offering::{CapacityType, InstanceType};
use crate::model::pool::NodePool;
use crate::model::requirement::{Requirements, Undefined};
use crate::model::symbol::Symbol;

/// How old a claim must be before a type that is no longer sold counts as drift.
pub const TYPE_PATIENCE: SignedDuration = SignedDuration::from_hours(1);

/// The reasons of drift that are judged here; a condition with another one came from elsewhere and stays.
const OURS: [&str; 4] =
    ["NodePoolDrifted", "RequirementsDrifted", "InstanceTypeNotFound", "NodeClassDrifted"];

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Marks {
    /// `Some` if they differ from those that the claim has.
    pub conditions: Option<Conditions>,
    /// When the answer may change by itself.
    pub wake_at: Option<Timestamp>,
}

/// What should be written on `claim` at `now`. `heals`: a drift of our own kind whose cause is gone is taken back.
pub(crate) fn marked(
    cluster: &Cluster,
    supply: &Supply,
    claim: &NodeClaim,
    now: Timestamp,
    heals: bool,
) -> Marks {
    let Some(pool) = claim.pool().and_then(|name| cluster.pools.get(&name)) else { return Marks::default() };
    if claim.deleted.is_some() {
        return Marks::default();
    }
    let mut conditions = claim.conditions.clone();
    let mut wake_at = mark_drift(cluster, supply, claim, pool, now, heals, &mut conditions);
    let quiet_at = quiet_at(pool, claim);
    match quiet_at {
        Some(at) if at <= now => {
            let status = ConditionStatus::True;
            conditions.set(ConditionType::Consolidatable, status, "Consolidatable", "", now);
        }
        Some(at) => {
            conditions.clear(ConditionType::Consolidatable);
            wake_at = Some(wake_at.map_or(at, |known| known.min(at)));
        }
        None => conditions.clear(ConditionType::Consolidatable),
    }
    Marks { conditions: Some(conditions).filter(|conditions| *conditions != claim.conditions), wake_at }
}

/// When the pods of `claim` will have been quiet for long enough; `None`: never.
pub(crate) fn quiet_at(pool: &NodePool, claim: &NodeClaim) -> Option<Timestamp> {
    let wait = pool.disruption.consolidate_after.duration?;
    if pool.is_static() || !claim.conditions.is_true(ConditionType::Initialized) {
        return None;
    }
    quiet_since(claim).unwrap_or(Timestamp::MIN).checked_add(wait).ok()
}

/// Since when no pod has come to the node of `claim`, or left it.
pub(super) fn quiet_since(claim: &NodeClaim) -> Option<Timestamp> {
    let initialized = claim.conditions.true_since(ConditionType::Initialized);
    claim.last_pod_event.or(initialized).or(claim.created)
}

/// Whether the node of `claim` is too fresh to take pods of nodes that are to be saved.
pub(crate) fn is_settling(cluster: &Cluster, claim: &NodeClaim, now: Timestamp) -> bool {
    let pool = claim.pool().and_then(|name| cluster.pools.get(&name));
    let waits =
        |pool: &NodePool| pool.disruption.consolidate_after.duration.is_some_and(|wait| !wait.is_zero());
    pool.is_some_and(|pool| waits(pool) && quiet_at(pool, claim).is_some_and(|at| now < at))
}

fn mark_drift(
    cluster: &Cluster,
    supply: &Supply,
    claim: &NodeClaim,
    pool: &NodePool,
    now: Timestamp,
    heals: bool,
    conditions: &mut Conditions,
) -> Option<Timestamp> {
    if !claim.conditions.is_true(ConditionType::Launched) {
        conditions.clear(ConditionType::Drifted);
        return None;
    }
    let known =
        claim.conditions.get(ConditionType::Drifted).filter(|known| known.status == ConditionStatus::True);
    let class = cluster.classes.get(&claim.spec.class.name);
    let (found, wake_at) = drift(supply, claim, pool, class.map(|class| &**class), now);
    match (known, found) {
        (_, Some((reason, message))) => {
            conditions.set(ConditionType::Drifted, ConditionStatus::True, reason, &message, now);
        }
        (Some(known), None)
            if !heals || !OURS.contains(&known.reason.as_str()) || is_beyond_judging(known, claim, pool) => {}
        (_, None) => conditions.clear(ConditionType::Drifted),
    }
    wake_at
}

/// Whether nobody can tell if the drift that `known` speaks of is over: the hashes are of different versions.
fn is_beyond_judging(known: &Condition, claim: &NodeClaim, pool: &NodePool) -> bool {
    let version = claim.annotations.get(&*annotation::NODEPOOL_HASH_VERSION);
    &*known.reason == "NodePoolDrifted" && version.is_some() && version != pool.hash_version.as_ref()
}

/// How `claim` differs from what `pool` would make now; and when time alone may change the answer.
fn drift(
    supply: &Supply,
    claim: &NodeClaim,
    pool: &NodePool,
    class: Option<&NodeClass>,
    now: Timestamp,
) -> (Option<(&'static str, String)>, Option<Timestamp>) {
    let of_claim = |key: Symbol| claim.annotations.get(&key).copied();
    let pool_hash = (pool.hash, pool.hash_version);
    let claim_hash = (of_claim(*annotation::NODEPOOL_HASH), of_claim(*annotation::NODEPOOL_HASH_VERSION));
    if hashes_differ(pool_hash, claim_hash) {
        let message = "the pool's template changed since this node was made";
        return (Some(("NodePoolDrifted", message.into())), None);
    }
    let labels = Requirements::of_labels(&claim.labels);
    if let Err(conflict) = labels.compatible(&pool.template.requirements, Undefined::Nothing) {
        return (Some(("RequirementsDrifted", format!("the pool's requirements changed: {conflict}"))), None);
    }
    let due = claim.created.and_then(|created| created.checked_add(TYPE_PATIENCE).ok());
    let (is_due, wake_at) = match due {
        Some(due) if now < due => (false, Some(due)),
        _ => (true, None),
    };
    let types = supply.sold(pool.name);
    if is_due && !types.is_empty() && !is_sold(&claim.labels, &types) {
        return (
            Some(("InstanceTypeNotFound", "its instance type is no longer offered to the pool".into())),
            None,
        );
    }
    if let Some(class) = class {
        let made_from = (of_claim(*annotation::CLASS_HASH), of_claim(*annotation::CLASS_HASH_VERSION));
        if hashes_differ((class.hash, class.hash_version), made_from) {
            let message = format!("node class {} changed since this node was made", class.name);
            return (Some(("NodeClassDrifted", message)), wake_at);
        }
    }
    (None, wake_at)
}

type Hash = (Option<Symbol>, Option<Symbol>);

/// Only hashes of one version can be compared, and only if both are there.
fn hashes_differ(ours: Hash, theirs: Hash) -> bool {
    matches!((ours, theirs), ((Some(a), Some(x)), (Some(b), Some(y))) if x == y && a != b)
}

/// Whether the type that a claim with `labels` has, as it was bought, is on offer, available or not. What was reserved may
/// become on-demand.
fn is_sold(labels: &Labels, types: &[InstanceType]) -> bool {
    let label_of = |key: Symbol| labels.get(&key).copied();
    let Some(name) = label_of(*label::INSTANCE_TYPE) else { return false };
    let Some(kind) = types.iter().find(|kind| kind.name == TypeName(name)) else { return false };
    let capacity_type = label_of(*label::CAPACITY_TYPE);
    kind.offerings.iter().any(|offering| {
        let is_kind = capacity_type.is_none_or(|wanted| {
            offering.capacity_type.symbol() == wanted
                || (&*wanted == "reserved" && offering.capacity_type == CapacityType::OnDemand)
        });
        is_kind && label_of(*label::ZONE).is_none_or(|zone| zone == offering.zone.0)
    })
}

/// What changed in a claim's marks, for people.
pub(crate) fn in_words(claim: &NodeClaim, conditions: &Conditions) -> String {
    let mut words = Vec::new();
    for kind in [ConditionType::Drifted, ConditionType::Consolidatable] {
        match (claim.conditions.is_true(kind), conditions.is_true(kind)) {
            (false, true) => {
                let why = conditions.get(kind).map_or("", |condition| condition.message.as_str());
                words.push(if why.is_empty() {
                    kind.as_str().to_string()
                } else {
                    format!("{}: {why}", kind.as_str())
                });
            }
            (true, false) => words.push(format!("no longer {}", kind.as_str())),
            _ => {}
        }
    }
    if words.is_empty() { "its drift has another reason".into() } else { words.join("; ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::money::UsdPerHour;
    use crate::model::name::Zone;
    use crate::model::offering::Offering;
    use CapacityType::{OnDemand, Reserved, Spot};

    fn sold(name: &str, ways: &[(&str, CapacityType)]) -> InstanceType {
        let offerings = ways.iter().map(|(zone, capacity_type)| Offering {
            zone: Zone::new(zone),
            capacity_type: *capacity_type,
            price: UsdPerHour(1),
            is_available: false,
            reservation: None,
        });
        InstanceType {
            name: TypeName::new(name),
            requirements: Default::default(),
            capacity: Default::default(),
            allocatable: Default::default(),
            volumes_max: Vec::new(),
            offerings: offerings.collect(),
        }
    }

    /// Rows: DIS-004, DIS-025, DIS-026
    #[test]
    fn dis_026_what_was_reserved_may_become_on_demand_and_nothing_else() {
        type Ways = &'static [(&'static str, CapacityType)];
        let cases: [(&str, Ways, bool); 9] = [
            ("reserved", &[("a", Reserved), ("a", OnDemand)], true),
            ("reserved", &[("a", Reserved)], true),
            ("reserved", &[("a", OnDemand)], true),
            ("reserved", &[("a", Spot)], false),
            ("reserved", &[("b", OnDemand), ("b", Reserved)], false),
            ("reserved", &[], false),
            ("on-demand", &[], false),
            ("on-demand", &[("a", Reserved), ("a", Spot)], false),
            ("spot", &[("a", Spot)], true),
        ];
        for (capacity_type, ways, expected) in cases {
            let mut labels = Labels::new();
            labels.insert(*label::INSTANCE_TYPE, "m5.large".into());
            labels.insert(*label::ZONE, "a".into());
            labels.insert(*label::CAPACITY_TYPE, capacity_type.into());
            labels.insert(*label::RESERVATION_ID, "cr-lapsed".into());
            let types =
                [sold("m5.xlarge", &[("a", Reserved), ("a", OnDemand), ("a", Spot)]), sold("m5.large", ways)];
            assert_eq!(is_sold(&labels, &types), expected, "{capacity_type} of {ways:?}");
        }
    }
}
