//! What to buy: the new nodes of a solution as NodeClaims, and the ways to launch one.
//!
//! A claim names everything that its machine may be, so that the launch can fall back from one offering to the next
//! without asking the scheduler again. It never names more types than the provider takes in one request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::cluster::Cluster;
use super::scheduling::{
    Code, MinValuesPolicy, NewNode, OfferingKey, Refusal, Settings, Solution, Supply, usage_by_pool,
};
use crate::model::action::LaunchOption;
use crate::model::claim::{ClaimSpec, Conditions, NodeClaim};
use crate::model::class::NodeClass;
use crate::model::hash::{FastMap, FastSet};
use crate::model::label::{self, Labels, annotation};
use crate::model::name::{ClaimName, ObjectKey, PoolName, TypeName, Uid};
use crate::model::offering::{CapacityType, InstanceType};
use crate::model::pool::NodePool;
use crate::model::quantity::{ResourceName, Resources};
use crate::model::requirement::{Operator, Requirement, Requirements};
use crate::model::symbol::Symbol;

/// The most instance types that one claim names.
pub const TYPES_MAX: usize = 600;

/// What a solution comes to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Purchase {
    /// Each with the pods that it is for.
    pub claims: Vec<(Arc<NodeClaim>, Vec<ObjectKey>)>,
    /// Nodes that are not bought after all, by their place in the solution.
    pub dropped: Vec<(usize, Refusal)>,
}

/// Claims for the new nodes of `solution`, named by their content and `seed`.
///
/// A pool that is gone, or that already uses more than its limits, buys nothing: both may have changed since the
/// solution was found.
pub fn claims_for(
    cluster: &Cluster,
    supply: &Supply,
    solution: &Solution,
    settings: &Settings,
    now: Timestamp,
    seed: u64,
) -> Purchase {
    let has_limits = |node: &NewNode| cluster.pools.get(&node.pool).is_some_and(|pool| pool.limits.is_some());
    let used = if solution.new_nodes.iter().any(has_limits) {
        usage_by_pool(cluster, supply)
    } else {
        BTreeMap::new()
    };
    claims_within(cluster, supply, solution, settings, &used, now, seed)
}

/// The same where it is known what pools use.
pub(crate) fn claims_within(
    cluster: &Cluster,
    supply: &Supply,
    solution: &Solution,
    settings: &Settings,
    used: &BTreeMap<PoolName, Resources>,
    now: Timestamp,
    seed: u64,
) -> Purchase {
    let mut purchase = Purchase::default();
    let mut taken: FastSet<ClaimName> = FastSet::default();
    let mut ways: FastMap<usize, Ways> = FastMap::default();
    for (at, node) in solution.new_nodes.iter().enumerate() {
        let refuse = |code, message: String| (at, Refusal { pool: Some(node.pool), code, message });
        let Some(pool) = cluster.pools.get(&node.pool).filter(|pool| !pool.is_deleting) else {
            purchase.dropped.push(refuse(Code::PoolNotReady, "the pool is gone".into()));
            continue;
        };
        if let Some(resource) = used.get(&node.pool).and_then(|used| exceeded_limit(pool, used)) {
            let message = format!("the pool already uses more {resource} than its limit");
            purchase.dropped.push(refuse(Code::LimitReached, message));
            continue;
        }
        let types = supply.types(node.pool);
        // Nodes that can be bought in the same ways may still want different minimums of values.
        let ways = match has_min_values(node) {
            true => &Ways::of(node, &types),
            false => {
                ways.entry(Arc::as_ptr(&node.options) as usize).or_insert_with(|| Ways::of(node, &types))
            }
        };
        let short = (settings.min_values == MinValuesPolicy::Strict)
            .then(|| missing_values(node, &types, &ways.types))
            .flatten();
        if let Some(key) = short {
            let message = format!("no {} types have enough values of {key}", ways.types.len());
            purchase.dropped.push(refuse(Code::MinValuesNotMet, message));
            continue;
        }
        let name = name_of(node, seed, |name| taken.contains(name) || cluster.claims.contains_key(name));
        taken.insert(name);
        let class = cluster.classes.get(&pool.template.class.name).map(|class| &**class);
        let mut claim = claim(name, pool, class, node, ways, now);
        claim.spec.termination_grace = claim.spec.termination_grace.or(settings.termination_grace);
        let (is_repriced, is_enlarged) = supply.overlaid(node.pool, &ways.types);
        for (key, is_applied) in [
            (*annotation::PRICE_OVERLAY_APPLIED, is_repriced),
            (*annotation::CAPACITY_OVERLAY_APPLIED, is_enlarged),
        ] {
            if is_applied {
                claim.annotations.insert(key, "true".into());
            }
        }
        purchase.claims.push((Arc::new(claim), node.pods.clone()));
    }
    purchase
}

/// The resource of which more is used than the pool's limits allow. Using all of a limit is allowed.
pub fn exceeded_limit(pool: &NodePool, used: &Resources) -> Option<ResourceName> {
    let limits = pool.limits.as_ref()?;
    limits.iter().find(|(name, limit)| used.get(*name) > *limit).map(|(name, _)| name)
}

/// The ways to launch `claim`, cheapest first: `types` are those of its pool, `sold_out` what has no room now.
pub fn launch_options(
    claim: &NodeClaim,
    types: &[InstanceType],
    sold_out: &BTreeSet<OfferingKey>,
) -> Vec<LaunchOption> {
    let wanted = &claim.spec.requirements;
    let mut options = Vec::new();
    for kind in types {
        if kind.requirements.intersects(wanted).is_err() || !claim.spec.requests.fits(&kind.allocatable) {
            continue;
        }
        for offering in
            kind.offerings.iter().filter(|offering| offering.is_available && offering.suits(wanted))
        {
            if !sold_out.contains(&(kind.name, offering.zone, offering.capacity_type)) {
                options.push(LaunchOption {
                    price: offering.price,
                    instance_type: kind.name,
                    zone: offering.zone,
                    capacity_type: offering.capacity_type,
                    reservation: offering.reservation.map(|reservation| reservation.id),
                });
            }
        }
    }
    options.sort_by_key(|option| {
        (option.price, option.instance_type, option.capacity_type, option.zone, option.reservation)
    });
    options
}

/// What nodes that can be bought in the same ways have in common: the types that are named, and what they are sold as.
struct Ways {
    types: BTreeSet<TypeName>,
    named: Requirement,
    sold_as: Requirement,
}

impl Ways {
    fn of(node: &NewNode, all: &[InstanceType]) -> Self {
        let types = named_types(node, all, TYPES_MAX);
        let kept = node.options.iter().filter(|option| types.contains(&option.instance_type));
        let sold_as: BTreeSet<CapacityType> = kept.map(|option| option.capacity_type).collect();
        Self {
            named: Requirement::new(Operator::In, types.iter().map(|name| name.0)),
            sold_as: Requirement::new(Operator::In, sold_as.into_iter().map(CapacityType::symbol)),
            types,
        }
    }
}

fn has_min_values(node: &NewNode) -> bool {
    node.requirements.iter().any(|(_, requirement)| requirement.min_values.is_some())
}

/// At most `most` types of `node`: first, for every minimum of distinct values, the cheapest that have a value which is still
/// missing; then the cheapest of the others.
fn named_types(node: &NewNode, all: &[InstanceType], most: usize) -> BTreeSet<TypeName> {
    let by_price = node.instance_types();
    if by_price.len() <= most || !has_min_values(node) {
        return by_price.into_iter().take(most).collect();
    }
    let values = ValuesOfTypes::of(node, all);
    let mut named: BTreeSet<TypeName> = BTreeSet::new();
    for (key, requirement) in node.requirements.iter() {
        let Some(wanted) = requirement.min_values else { continue };
        let mut there = values.of_all(key, requirement, &named);
        for name in &by_price {
            if there.len() >= wanted as usize || named.len() == most {
                break;
            }
            let more = values.of_one(key, requirement, *name);
            if !more.is_subset(&there) {
                there.extend(more);
                named.insert(*name);
            }
        }
    }
    let others = by_price.into_iter().filter(|name| !named.contains(name)).take(most - named.len());
    let others: Vec<TypeName> = others.collect();
    named.extend(others);
    named
}

/// What types of a node could be labelled with: by zone and capacity type as the node can be bought, else as they are.
struct ValuesOfTypes<'a> {
    kinds: FastMap<TypeName, &'a InstanceType>,
    sold: FastMap<TypeName, Vec<&'a LaunchOption>>,
}

impl<'a> ValuesOfTypes<'a> {
    fn of(node: &'a NewNode, all: &'a [InstanceType]) -> Self {
        let mut sold: FastMap<TypeName, Vec<&LaunchOption>> = FastMap::default();
        for option in node.options.iter() {
            sold.entry(option.instance_type).or_default().push(option);
        }
        let kinds = all.iter().map(|kind| (kind.name, kind)).filter(|(name, _)| sold.contains_key(name));
        Self { kinds: kinds.collect(), sold }
    }

    /// Of `key`, those that `requirement` allows.
    fn of_one(&self, key: Symbol, requirement: &Requirement, name: TypeName) -> BTreeSet<Symbol> {
        let sold = || self.sold.get(&name).into_iter().flatten();
        let values: BTreeSet<Symbol> = if key == *label::ZONE {
            sold().map(|option| option.zone.0).collect()
        } else if key == *label::CAPACITY_TYPE {
            sold().map(|option| option.capacity_type.symbol()).collect()
        } else {
            let kind = self.kinds.get(&name);
            let listed = kind.and_then(|kind| kind.requirements.get(key)).and_then(Requirement::listed);
            listed.into_iter().flatten().copied().collect()
        };
        values.into_iter().filter(|value| requirement.has(*value)).collect()
    }

    fn of_all(&self, key: Symbol, requirement: &Requirement, names: &BTreeSet<TypeName>) -> BTreeSet<Symbol> {
        names.iter().flat_map(|name| self.of_one(key, requirement, *name)).collect()
    }
}

/// A label of which `types` have fewer distinct values than the node must be able to choose from.
pub(crate) fn missing_values(
    node: &NewNode,
    all: &[InstanceType],
    types: &BTreeSet<TypeName>,
) -> Option<Symbol> {
    if !has_min_values(node) {
        return None;
    }
    let values = ValuesOfTypes::of(node, all);
    node.requirements.iter().find_map(|(key, requirement)| {
        let wanted = requirement.min_values? as usize;
        (values.of_all(key, requirement, types).len() < wanted).then_some(key)
    })
}

fn claim(
    name: ClaimName,
    pool: &NodePool,
    class: Option<&NodeClass>,
    node: &NewNode,
    ways: &Ways,
    now: Timestamp,
) -> NodeClaim {
    let template = &pool.template;
    NodeClaim {
        name,
        uid: Uid(name.0),
        labels: node.labels.clone(),
        annotations: annotations(pool, node, class),
        created: Some(now),
        deleted: None,
        // Made with it: nothing may be launched for an object that could vanish.
        has_finalizer: true,
        spec: ClaimSpec {
            requirements: requirements(node, ways),
            requests: node.requests.clone(),
            taints: template.taints.clone(),
            startup_taints: template.startup_taints.clone(),
            class: template.class,
            expire_after: template.expire_after.clone(),
            termination_grace: template.termination_grace,
        },
        node: None,
        provider_id: None,
        image: None,
        capacity: Resources::new(),
        allocatable: Resources::new(),
        conditions: Conditions::default(),
        last_pod_event: None,
    }
}

fn annotations(pool: &NodePool, node: &NewNode, class: Option<&NodeClass>) -> Labels {
    let mut annotations = pool.template.annotations.clone();
    if let Some((hash, version)) = pool.hash.zip(pool.hash_version) {
        annotations.insert(*annotation::NODEPOOL_HASH, hash);
        annotations.insert(*annotation::NODEPOOL_HASH_VERSION, version);
    }
    if let Some((hash, version)) = class.and_then(|class| class.hash.zip(class.hash_version)) {
        annotations.insert(*annotation::CLASS_HASH, hash);
        annotations.insert(*annotation::CLASS_HASH_VERSION, version);
    }
    if let Some(owner) = pool.owner {
        annotations.insert(*annotation::OWNER, Symbol::new(&owner.to_string()));
    }
    let relaxed = if node.is_min_values_relaxed { "true" } else { "false" };
    annotations.insert(*annotation::MIN_VALUES_RELAXED, relaxed.into());
    annotations
}

/// Everything that the node must be, with the types and capacity types that are left.
fn requirements(node: &NewNode, ways: &Ways) -> Requirements {
    let mut requirements = node.requirements.clone();
    for (key, left) in [(*label::INSTANCE_TYPE, &ways.named), (*label::CAPACITY_TYPE, &ways.sold_as)] {
        let min_values = node.requirements.get(key).and_then(|requirement| requirement.min_values);
        requirements.replace(key, left.clone().with_min_values(min_values));
    }
    requirements
}

/// `POOL-xxxxx`. The same node of the same round has the same name, so that buying it twice is buying it once.
fn name_of(node: &NewNode, seed: u64, is_taken: impl Fn(&ClaimName) -> bool) -> ClaimName {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut attempt: u64 = 0;
    loop {
        let mut hash = Sha256::new();
        hash.update(seed.to_be_bytes());
        hash.update(attempt.to_be_bytes());
        for pod in &node.pods {
            hash.update(pod.to_string());
            hash.update([0]);
        }
        let digest = hash.finalize();
        let suffix: String = digest
            .iter()
            .take(5)
            .map(|byte| char::from(LETTERS[usize::from(*byte) % LETTERS.len()]))
            .collect();
        let name = ClaimName::new(&format!("{}-{suffix}", node.pool));
        if !is_taken(&name) {
            return name;
        }
        attempt += 1;
    }
}
