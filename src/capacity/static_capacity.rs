//! Pools that keep a number of nodes: made from the template alone, whatever pods ask for.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::disruption::candidates::Candidate;
use super::disruption::command::{Command, Method, destinations, is_waiting};
use super::disruption::expiration;
use super::disruption::round::Round;
use super::provisioning;
use super::scheduling::{self, Code, NewNode, Refusal, Solution, Supply, is_protected};
use crate::model::action::LaunchOption;
use crate::model::claim::NodeClaim;
use crate::model::count::counted;
use crate::model::label::{self, Labels};
use crate::model::money::UsdPerHour;
use crate::model::name::{ClaimName, NodeName, PoolName};
use crate::model::pool::NodePool;
use crate::model::quantity::{Resources, resource};
use crate::model::requirement::{Requirement, Requirements};

/// A static pool's claims: those that serve, those that go once their replacement is there, those that are going.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Census {
    pub active: u64,
    pub leaving: u64,
    pub deleting: u64,
}

pub(crate) fn census(cluster: &Cluster, pool: &NodePool) -> Census {
    let mut census = Census::default();
    for claim in cluster.claims_of(pool.name) {
        if is_waiting(claim) {
            census.leaving += 1;
        } else if claim.deleted.is_some() {
            census.deleting += 1;
        } else {
            census.active += 1;
        }
    }
    census
}

/// How many more claims `limits.nodes` of `pool` allows.
pub(crate) fn room(pool: &NodePool, census: &Census) -> u64 {
    let limit = pool.limits.as_ref().and_then(|limits| limits.listed(*resource::NODES));
    let used = census.active + census.leaving + census.deleting;
    limit.map_or(u64::MAX, |limit| u64::try_from(limit).unwrap_or(0).saturating_sub(used))
}

/// A node as `pool`'s template alone describes it; `None`: nothing that it allows is available.
pub(crate) fn new_node(cluster: &Cluster, supply: &Supply, pool: &NodePool) -> Option<NewNode> {
    let template = &pool.template;
    let mut requirements: Requirements = template.requirements.clone();
    let mut labels: Labels = template.labels.clone();
    labels.insert(*label::NODEPOOL, pool.name.0);
    labels.insert(template.class.label_key(), template.class.name.0);
    for (key, value) in &labels {
        requirements.add(*key, Requirement::one(*value));
    }
    let types = supply.types(pool.name);
    let mut options: Vec<LaunchOption> = Vec::new();
    for kind in types.iter().filter(|kind| kind.requirements.intersects(&template.requirements).is_ok()) {
        let open =
            kind.offerings.iter().filter(|offering| offering.is_available && offering.suits(&requirements));
        options.extend(open.map(|offering| LaunchOption {
            price: offering.price,
            instance_type: kind.name,
            zone: offering.zone,
            capacity_type: offering.capacity_type,
            reservation: offering.reservation.map(|reservation| reservation.id),
        }));
    }
    options.sort_by_key(|option| {
        (option.price, option.instance_type, option.capacity_type, option.zone, option.reservation)
    });
    let is_known = cluster.pools.contains_key(&pool.name);
    (is_known && !options.is_empty()).then(|| NewNode {
        pool: pool.name,
        requirements,
        labels,
        taints: template.taints.clone(),
        requests: Resources::new(),
        pods: Vec::new(),
        options: Arc::new(options),
        is_min_values_relaxed: false,
    })
}

/// The most nodes that one pool is given at once.
const AT_ONCE_MAX: u64 = 1000;

/// A static pool and what becomes of the nodes that it lacks.
#[derive(Clone, Debug, PartialEq)]
pub struct Keeping {
    pub pool: PoolName,
    pub replicas: u32,
    /// Nodes that it has, those under way and those that wait for their replacement included.
    pub nodes: u64,
    /// How many of them are too many; which go is a matter of disruption.
    pub excess: u64,
    /// What is launched at once, whatever pods ask for.
    pub new_nodes: Vec<NewNode>,
    /// Why that is less than what is missing.
    pub refusal: Option<Refusal>,
}

impl Keeping {
    /// Why `new_nodes` are launched.
    pub fn why(&self) -> String {
        format!("pool {} keeps {}", self.pool, counted(self.replicas, "node"))
    }
}

/// What is to be done for `pool`, as far as limits allow; `None`: it is not static.
pub fn keep(
    cluster: &Cluster,
    supply: &Supply,
    settings: &scheduling::Settings,
    pool: &NodePool,
    now: Timestamp,
) -> Option<Keeping> {
    let (name, replicas) = (pool.name, pool.replicas.filter(|_| pool.template.class.is_ours())?);
    let census = census(cluster, pool);
    let nodes = census.active + census.leaving;
    let missing = u64::from(replicas).saturating_sub(nodes);
    let excess = census.active.saturating_sub(u64::from(replicas));
    let mut keeping = Keeping { pool: name, replicas, nodes, excess, new_nodes: Vec::new(), refusal: None };
    let mut refuse = |code, message: String| {
        keeping.refusal = Some(Refusal { pool: Some(name), code, message });
    };
    let count = missing.min(room(pool, &census)).min(AT_ONCE_MAX);
    if missing == 0 {
        return Some(keeping);
    }
    if pool.is_deleting {
        refuse(Code::PoolNotReady, format!("pool {name} is on its way out"));
        return Some(keeping);
    }
    if !pool.is_ready {
        refuse(Code::PoolNotReady, format!("pool {name} is not ready"));
        return Some(keeping);
    }
    if count < missing.min(AT_ONCE_MAX) {
        refuse(
            Code::LimitReached,
            format!("limits.nodes of pool {name} leaves room for {count} of {missing}"),
        );
    }
    if count == 0 {
        return Some(keeping);
    }
    let Some(node) = new_node(cluster, supply, pool) else {
        refuse(Code::NoOfferingAvailable, format!("nothing that pool {name} asks for is available"));
        return Some(keeping);
    };
    let one = Solution { new_nodes: vec![node.clone()], ..Solution::default() };
    let purchase = provisioning::claims_for(cluster, supply, &one, settings, now, 0);
    match purchase.dropped.into_iter().next() {
        Some((_, refusal)) => keeping.refusal = Some(refusal),
        None => keeping.new_nodes = vec![node; count as usize],
    }
    Some(keeping)
}

/// The same of every static pool, by name.
pub fn keep_all(
    cluster: &Cluster,
    supply: &Supply,
    settings: &scheduling::Settings,
    now: Timestamp,
) -> Vec<Keeping> {
    cluster.pools.values().filter_map(|pool| keep(cluster, supply, settings, pool, now)).collect()
}

/// Claims for `nodes`, whose names differ by their number.
pub(crate) fn claims(
    cluster: &Cluster,
    supply: &Supply,
    nodes: Vec<NewNode>,
    settings: &scheduling::Settings,
    now: Timestamp,
    seed: u64,
) -> Vec<Arc<NodeClaim>> {
    let solution = Solution { new_nodes: nodes, ..Solution::default() };
    let purchase = provisioning::claims_for(cluster, supply, &solution, settings, now, seed);
    purchase.claims.into_iter().map(|(claim, _)| claim).collect()
}

/// Claims of static pools beyond their replicas, once those of `gone` are gone.
pub(crate) fn surplus(round: &Round, gone: &BTreeSet<ClaimName>) -> BTreeSet<ClaimName> {
    let pools: Vec<Arc<NodePool>> =
        round.cluster.pools.values().filter(|pool| pool.is_static()).cloned().collect();
    if pools.is_empty() || gone.is_empty() {
        return BTreeSet::new();
    }
    let mut after = round.cluster.clone();
    for claim in gone.iter().filter_map(|name| round.cluster.claims.get(name)) {
        after.put_claim(Arc::new(NodeClaim { deleted: Some(round.now), ..(**claim).clone() }));
    }
    let after = Round::new(after, round.supply, round.scheduling, round.settings, round.now);
    pools.iter().filter_map(|pool| scale_down_pool(&after, pool)).flat_map(|command| command.claims).collect()
}

/// Nodes of static pools beyond their replicas: unlaunched claims first, then idle ones, then what costs least to move.
pub(crate) fn scale_down(round: &mut Round) -> Vec<Command> {
    let pools: Vec<Arc<NodePool>> =
        round.cluster.pools.values().filter(|pool| pool.is_static()).cloned().collect();
    pools.iter().filter_map(|pool| scale_down_pool(round, pool)).collect()
}

fn scale_down_pool(round: &Round, pool: &NodePool) -> Option<Command> {
    let census = census(&round.cluster, pool);
    let excess = census.active.saturating_sub(u64::from(pool.replicas?)) as usize;
    if excess == 0 {
        return None;
    }
    let mut serving: Vec<&Arc<NodeClaim>> = round
        .cluster
        .claims_of(pool.name)
        .filter(|claim| claim.deleted.is_none() && !is_waiting(claim))
        .collect();
    serving.sort_by_cached_key(|claim| (weight(round, claim), claim.name));
    let types = round.supply.types(pool.name);
    let chosen: Vec<Candidate> = serving
        .into_iter()
        .take(excess)
        .map(|claim| {
            let node = round.cluster.node_of(claim);
            Candidate {
                node: node.map_or(NodeName(claim.name.0), |node| node.name),
                claim: claim.name,
                pool: pool.name,
                price: node.map_or(UsdPerHour::ZERO, |node| super::disruption::price_of(node, &types)),
                disruption: 0,
                is_spot: false,
                is_of_known_type: true,
            }
        })
        .collect();
    let savings = chosen.iter().map(|candidate| candidate.price).sum();
    let pods: Vec<_> = chosen.iter().flat_map(|candidate| round.leaving_pods(candidate.node)).collect();
    // What does not fit elsewhere waits for provisioning once it is evicted.
    let to = match pods.is_empty() {
        true => Vec::new(),
        false => {
            let nodes: Vec<NodeName> = chosen.iter().map(|candidate| candidate.node).collect();
            let gone = chosen.iter().map(|candidate| candidate.claim).collect();
            destinations(&pods, &round.simulate_alone(&nodes, &gone), false)
        }
    };
    Some(Command::new(Method::StaticScaleDown, &chosen, Vec::new(), savings, to))
}

/// What goes first has the least weight.
fn weight(round: &Round, claim: &NodeClaim) -> (bool, bool, bool, i128) {
    let Some(node) = round.cluster.node_of(claim) else {
        return (claim.provider_id.is_some(), false, false, 0);
    };
    let pods: Vec<_> = round.cluster.pods_of(node.name).filter(|pod| !pod.is_terminal()).collect();
    let is_protected = pods.iter().any(|pod| is_protected(pod, round.now));
    let is_busy = pods.iter().any(|pod| !pod.is_daemon());
    let cost: i128 = pods.iter().map(|pod| i128::from(super::disruption::eviction_cost(pod))).sum();
    let left = remaining_millis(claim, round.now);
    (true, is_busy || is_protected, is_protected, cost * left)
}

/// What is left of a claim's life, in thousandths.
fn remaining_millis(claim: &NodeClaim, now: Timestamp) -> i128 {
    let (Some(due), Some(life)) = (expiration::due(claim), claim.spec.expire_after.duration) else {
        return 1000;
    };
    let left = due.duration_since(now).as_millis().max(0);
    (left * 1000 / life.as_millis().max(1)).clamp(0, 1000)
}

/// Pools of `cluster` that keep a number of nodes.
pub(crate) fn pools(cluster: &Cluster) -> impl Iterator<Item = PoolName> + '_ {
    cluster.pools.values().filter(|pool| pool.is_static()).map(|pool| pool.name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::claim::{ClaimSpec, ConditionStatus, ConditionType, Conditions};
    use crate::model::label::annotation;
    use crate::model::name::{ProviderId, Uid};
    use crate::model::pool::{ClassRef, ConsolidationPolicy, Disruption, NodeTemplate};
    use crate::model::time::Patience;

    fn class() -> ClassRef {
        ClassRef { group: "karpenter.k8s.aws".into(), kind: "EC2NodeClass".into(), name: "default".into() }
    }

    fn pool(name: &str) -> NodePool {
        NodePool {
            is_judged_earlier: false,
            name: PoolName::new(name),
            uid: Uid::new(name),
            created: None,
            is_deleting: false,
            template: Arc::new(NodeTemplate {
                labels: Labels::new(),
                annotations: Labels::new(),
                taints: Vec::new(),
                startup_taints: Vec::new(),
                requirements: Requirements::new(),
                class: class(),
                termination_grace: None,
                expire_after: Patience::never(),
            }),
            disruption: Disruption {
                consolidate_after: Patience::never(),
                policy: ConsolidationPolicy::WhenEmpty,
                budgets: Vec::new(),
            },
            terms: Default::default(),
            limits: None,
            weight: 0,
            replicas: Some(3),
            is_ready: true,
            hash: None,
            hash_version: None,
            roll: Ok(Default::default()),
            roll_failures: None,
            new_stamp: None,
            owner: None,
            fault: None,
            conditions: Default::default(),
            used: None,
        }
    }

    fn claim(pool: Option<&str>, id: Option<&str>) -> NodeClaim {
        NodeClaim {
            name: ClaimName::new("c"),
            uid: Uid::new("c"),
            labels: pool.map(|pool| (*label::NODEPOOL, pool.into())).into_iter().collect(),
            annotations: Labels::new(),
            created: None,
            deleted: None,
            has_finalizer: true,
            spec: ClaimSpec {
                requirements: Requirements::new(),
                requests: Resources::new(),
                taints: Vec::new(),
                startup_taints: Vec::new(),
                class: class(),
                expire_after: Patience::never(),
                termination_grace: None,
            },
            node: None,
            provider_id: id.map(ProviderId::new),
            image: None,
            capacity: Resources::new(),
            allocatable: Resources::new(),
            conditions: Conditions::default(),
            last_pod_event: None,
        }
    }

    /// Active, leaving and deleting claims of the pool `a` and of `b`.
    fn counts(cluster: &Cluster) -> [[u64; 3]; 2] {
        ["a", "b"].map(|name| {
            let Census { active, leaving, deleting } = census(cluster, &pool(name));
            [active, leaving, deleting]
        })
    }

    #[test]
    fn sch_486_each_claim_is_counted_once_as_what_it_is_now() {
        let at: Timestamp = "2026-03-04T10:30:00Z".parse().unwrap();
        let mut cluster = Cluster::default();
        let mut after = |claim: NodeClaim| {
            cluster.put_claim(Arc::new(claim));
            counts(&cluster)
        };
        let launched = claim(Some("a"), Some("i-1"));
        let mut replaced = launched.clone();
        replaced.annotations.insert(*annotation::REPLACED_BY, "d".into());
        replaced.conditions.set(ConditionType::DisruptionReason, ConditionStatus::True, "Drifted", "", at);
        let going = NodeClaim { deleted: Some(at), ..launched.clone() };
        assert_eq!(after(claim(Some("a"), None)), [[1, 0, 0], [0, 0, 0]]);
        assert_eq!(after(launched.clone()), [[1, 0, 0], [0, 0, 0]], "launched");
        assert_eq!(after(launched.clone()), [[1, 0, 0], [0, 0, 0]], "seen twice");
        assert_eq!(after(claim(Some("a"), Some("i-2"))), [[1, 0, 0], [0, 0, 0]], "on another machine");
        assert_eq!(after(replaced), [[0, 1, 0], [0, 0, 0]], "its replacement is on the way");
        assert_eq!(after(going.clone()), [[0, 0, 1], [0, 0, 0]], "being deleted");
        assert_eq!(after(launched), [[1, 0, 0], [0, 0, 0]], "not any more");
        assert_eq!(after(claim(Some("b"), Some("i-2"))), [[0, 0, 0], [1, 0, 0]], "of another pool");
        assert_eq!(after(claim(None, Some("i-2"))), [[0, 0, 0], [0, 0, 0]], "of no pool");
        cluster.put_claim(Arc::new(going));
        cluster.remove_claim(ClaimName::new("c"));
        assert_eq!(counts(&cluster), [[0, 0, 0], [0, 0, 0]]);
    }

    #[test]
    fn dis_090_what_is_left_of_a_life_is_a_part_of_it() {
        let at = |text: &str| -> Timestamp { text.parse().unwrap() };
        let born = at("2026-03-04T10:00:00Z");
        let mut claim = NodeClaim { created: Some(born), ..claim(Some("a"), Some("i-1")) };
        claim.conditions.set(ConditionType::Registered, ConditionStatus::True, "", "", born);
        let left = |claim: &NodeClaim, now: &str| remaining_millis(claim, at(now));
        assert_eq!(left(&claim, "2027-03-04T10:00:00Z"), 1000, "it never ends");
        claim.spec.expire_after = Patience::of(jiff::SignedDuration::from_hours(10));
        for (now, expected) in [
            ("2026-03-04T10:00:00Z", 1000),
            ("2026-03-04T15:00:00Z", 500),
            ("2026-03-04T19:00:00Z", 100),
            ("2026-03-04T20:00:00Z", 0),
            ("2026-03-09T20:00:00Z", 0),
        ] {
            assert_eq!(left(&claim, now), expected, "{now}");
        }
    }
}
