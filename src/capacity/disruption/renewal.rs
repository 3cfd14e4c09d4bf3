//! Nodes of pools that ask for it go for their age as if they had drifted: each a little sooner than it has to, by a share of its own,
//! within budgets and windows, what comes in their place first. Those that could not go in time go by force ([`expiration`]).

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::candidates::{Candidate, Class};
use super::command::{Command, Destination, Method, destinations};
use super::expiration;
use super::round::Round;
use crate::capacity::cluster::Cluster;
use crate::capacity::scheduling::{Fit, NewNode};
use crate::capacity::static_capacity;
use crate::model::claim::NodeClaim;
use crate::model::pool::{DisruptionReason, NodePool};
use crate::model::terms::Expiration;

/// How `pool` wants its nodes to go for their age, if it says so and can be read.
pub(super) fn asked(pool: &NodePool) -> Option<&Expiration> {
    pool.terms.expiration.as_ref()?.meaning.as_ref().ok()
}

/// From when on `claim` may go for its age; `None`: never, or not like this.
pub(super) fn due(pool: &NodePool, claim: &NodeClaim) -> Option<Timestamp> {
    let asked = asked(pool)?;
    let end = expiration::due(claim)?;
    let life = claim.spec.expire_after.duration?;
    let most = i128::from(life.as_secs()) * i128::from(asked.jitter) / 100;
    let sooner = i64::try_from(most * share(claim) / i128::from(SHARES)).ok()?;
    end.checked_sub(SignedDuration::from_secs(sooner)).ok()
}

/// Into how many shares the time is parted in which nodes may go sooner.
const SHARES: u32 = 1 << 16;

/// The share of `claim`, from 0 up to [`SHARES`]: whoever looks at it finds the same.
fn share(claim: &NodeClaim) -> i128 {
    let digest = Sha256::digest(claim.uid.as_str());
    i128::from(u16::from_be_bytes([digest[0], digest[1]]))
}

/// When the next node of any pool may go for its age, after `now`.
pub(crate) fn next(cluster: &Cluster, now: Timestamp) -> Option<Timestamp> {
    let claims = cluster.claims.values().filter(|claim| claim.deleted.is_none());
    let dues = claims.filter_map(|claim| due(cluster.pools.get(&claim.pool()?)?, claim));
    dues.filter(|due| *due > now).min()
}

/// Whether `claim` should have gone for its age already.
pub(super) fn is_due(cluster: &Cluster, claim: &NodeClaim, now: Timestamp) -> bool {
    let pool = claim.pool().and_then(|name| cluster.pools.get(&name));
    pool.is_some_and(|pool| due(pool, claim).is_some_and(|due| due <= now))
}

/// The next node that can go for its age, with everything that has to come first; empty ones, then those that wait longest.
pub(super) fn plan(round: &mut Round) -> Option<Command> {
    if !round.cluster.pools.values().any(|pool| asked(pool).is_some()) {
        return None;
    }
    let all = round.candidates(Class::Eventual);
    let mut candidates: Vec<Candidate> =
        all.into_iter().filter(|one| is_due(&round.cluster, round.claim(one), round.now)).collect();
    candidates.sort_by_key(|candidate| {
        let has_pods = round.cluster.pods_of(candidate.node).any(|pod| super::cost::has_to_move(pod));
        let due = round.cluster.pools.get(&candidate.pool).and_then(|pool| due(pool, round.claim(candidate)));
        (has_pods, due, candidate.node)
    });
    let allowances = round.allowances(DisruptionReason::Expired);
    for candidate in candidates {
        let Some(allowance) = allowances.get(&candidate.pool) else { continue };
        if allowance.remaining() == 0 {
            round.limit(&candidate, allowance, DisruptionReason::Expired);
            continue;
        }
        match renewed(round, &candidate) {
            Ok(command) => return Some(command),
            Err((code, why)) => round.note(candidate.node, code, format!("expired, but {why}")),
        }
    }
    None
}

fn renewed(round: &Round, candidate: &Candidate) -> Result<Command, (&'static str, String)> {
    let pool = round.cluster.pools.get(&candidate.pool).ok_or(("PoolNotFound", "its pool is gone".into()))?;
    let replaces_first = asked(pool).is_none_or(|asked| asked.replaces_first);
    if replaces_first && pool.is_static() {
        return renewed_in_static(round, candidate, pool);
    }
    let pods = round.leaving_pods(candidate.node);
    let simulated = round.simulate_towards(&[candidate], false, &BTreeMap::new(), Fit::First);
    if let Some((pod, why)) = simulated.homeless.first().filter(|_| replaces_first) {
        return Err(("CannotReschedule", format!("pod {pod} would have no place: {why}")));
    }
    let mut solution = simulated.solution;
    // What waits for other reasons is not this command's business.
    solution.new_nodes.retain(|new| new.pods.iter().any(|pod| pods.contains(pod)));
    let replacements = match replaces_first {
        true => round.replacements(&solution, &pods),
        false => Vec::new(),
    };
    let savings = candidate.price - replacements.iter().map(NewNode::price).sum();
    let to = destinations(&pods, &solution, replaces_first);
    Ok(Command::new(Method::Renewal, std::slice::from_ref(candidate), replacements, savings, to))
}

/// A static pool gets a node like the one that goes, as far as its limit leaves room for both.
fn renewed_in_static(
    round: &Round,
    candidate: &Candidate,
    pool: &NodePool,
) -> Result<Command, (&'static str, String)> {
    let census = static_capacity::census(&round.cluster, pool);
    if census.active + census.leaving > u64::from(pool.replicas.unwrap_or(0)) {
        return Err(("ScalingDown", format!("pool {} scales down first", pool.name)));
    }
    if static_capacity::room(pool, &census) == 0 {
        let why = format!("limits.nodes of pool {} leaves no room for a replacement", pool.name);
        return Err(("LimitReached", why));
    }
    let Some(node) = static_capacity::new_node(&round.cluster, round.supply, pool) else {
        return Err((
            "NoOfferingAvailable",
            format!("nothing that pool {} asks for is available", pool.name),
        ));
    };
    let pods = round.leaving_pods(candidate.node);
    let mut node = NewNode { pods: pods.clone(), ..node };
    for pod in pods.iter().filter_map(|pod| round.cluster.pods.get(pod)) {
        node.requests.add(&pod.shape.requests);
    }
    let savings = candidate.price - node.price();
    let to = pods.into_iter().map(|pod| (pod, Destination::Replacement(0))).collect();
    Ok(Command::new(Method::Renewal, std::slice::from_ref(candidate), vec![node], savings, to))
}
