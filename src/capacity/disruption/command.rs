//! A command: which nodes go, what comes in their place first, and where their pods go. And how far one that was started
//! has come, told from the objects alone.
//!
//! Starting taints the nodes, writes the reason and the names of the replacements onto their claims, and makes the
//! replacements. Once all of those are initialized the claims are deleted. A replacement that is lost, or takes too long,
//! takes everything back: the nodes serve on as if nothing had been.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::alternatives::Alternative;
use super::candidates::Candidate;
use super::cost::has_to_move;
use crate::capacity::cluster::Cluster;
use crate::capacity::decision::Steps;
use crate::capacity::scheduling::{NewNode, Place, Solution};
use crate::model::action::{Action, ClaimChange, NodeChange, Notice, Subject};
use crate::model::claim::{ConditionStatus, ConditionType, NodeClaim};
use crate::model::count::{agreeing, counted};
use crate::model::hash::{FastMap, FastSet};
use crate::model::label::{Labels, annotation};
use crate::model::money::UsdPerHour;
use crate::model::name::{ClaimName, NodeName, ObjectKey, PoolName};
use crate::model::pool::DisruptionReason;
use crate::model::quantity::{Resources, resource};
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;

/// How long replacements may take before a command is taken back: ten minutes, as in Karpenter; where thousands of nodes wait for
/// theirs the cloud and the API server take longer, so there are 80 milliseconds for each, up to an hour.
const REPLACEMENT_PATIENCE: (SignedDuration, SignedDuration) =
    (SignedDuration::from_mins(10), SignedDuration::from_hours(1));
const PATIENCE_FOR_EACH: SignedDuration = SignedDuration::from_millis(80);

/// The patience with replacements while so many nodes wait for theirs.
pub fn replacement_patience(waiting: usize) -> SignedDuration {
    let (least, most) = REPLACEMENT_PATIENCE;
    (PATIENCE_FOR_EACH * i32::try_from(waiting).unwrap_or(i32::MAX)).clamp(least, most)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    Expiration,
    StaticScaleDown,
    Emptiness,
    StaticDrift,
    Drift,
    Renewal,
    Return,
    MultiNodeConsolidation,
    SingleNodeConsolidation,
}

impl Method {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Expiration => "expiration",
            Self::StaticScaleDown => "static-scale-down",
            Self::Emptiness => "emptiness",
            Self::StaticDrift => "static-drift",
            Self::Drift => "drift",
            Self::Renewal => "renewal",
            Self::Return => "return",
            Self::MultiNodeConsolidation => "multi-node-consolidation",
            Self::SingleNodeConsolidation => "single-node-consolidation",
        }
    }

    pub fn reason(self) -> DisruptionReason {
        match self {
            Self::Expiration | Self::Renewal => DisruptionReason::Expired,
            Self::StaticScaleDown => DisruptionReason::ScaledDown,
            Self::Emptiness => DisruptionReason::Empty,
            Self::StaticDrift | Self::Drift => DisruptionReason::Drifted,
            Self::Return | Self::MultiNodeConsolidation | Self::SingleNodeConsolidation => {
                DisruptionReason::Underutilized
            }
        }
    }

    /// Whether the decision is looked at again after a while before it is carried out.
    pub(crate) fn is_validated(self) -> bool {
        self == Self::Emptiness || self.is_consolidation()
    }

    /// Whether it is done for savings, with pods that move.
    pub(crate) fn is_consolidation(self) -> bool {
        matches!(self, Self::MultiNodeConsolidation | Self::SingleNodeConsolidation)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Nothing comes in their place.
    Delete,
    Replace,
}

/// Where a pod of a node that goes will run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Destination {
    Existing(Place),
    /// One of the command's replacements, by its place in the list.
    Replacement(usize),
    /// It cannot be moved before the node goes, or has no place.
    Nowhere,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    pub method: Method,
    /// By name; a claim whose node never joined goes under the claim's name.
    pub nodes: Vec<NodeName>,
    /// Those of `nodes`, in the same order.
    pub claims: Vec<ClaimName>,
    pub pools: Vec<PoolName>,
    pub replacements: Vec<NewNode>,
    /// Price of the nodes less that of the replacements; negative if those cost more.
    pub savings: UsdPerHour,
    /// By name.
    pub pods: Vec<(ObjectKey, Destination)>,
    /// What moving the pods has to be worth, if that counts: a replacement that saves less is not made.
    pub least_savings: Option<UsdPerHour>,
    /// What it was preferred to: first what would save most.
    pub alternatives: Vec<Alternative>,
}

impl Command {
    pub(crate) fn new(
        method: Method,
        candidates: &[Candidate],
        replacements: Vec<NewNode>,
        savings: UsdPerHour,
        mut pods: Vec<(ObjectKey, Destination)>,
    ) -> Self {
        let mut named: Vec<&Candidate> = candidates.iter().collect();
        named.sort_by_key(|candidate| candidate.node);
        pods.sort_by_key(|(pod, _)| *pod);
        Self {
            method,
            nodes: named.iter().map(|candidate| candidate.node).collect(),
            claims: named.iter().map(|candidate| candidate.claim).collect(),
            pools: named.iter().map(|candidate| candidate.pool).collect(),
            replacements,
            savings,
            pods,
            least_savings: None,
            alternatives: Vec::new(),
        }
    }

    pub fn kind(&self) -> Kind {
        if self.replacements.is_empty() { Kind::Delete } else { Kind::Replace }
    }

    pub fn reason(&self) -> DisruptionReason {
        self.method.reason()
    }

    /// Why, and what comes of it: `its pods fit on other nodes; saves $0.07 an hour`.
    pub fn why(&self) -> String {
        let is_one = self.nodes.len() == 1;
        let others = match self.nodes.len() - 1 {
            0 => String::new(),
            1 => " (with one other)".into(),
            count => format!(" (with {count} others)"),
        };
        let cause = match self.method {
            Method::Expiration => "its lifetime is over".to_string(),
            Method::StaticScaleDown => "its pool wants fewer nodes".to_string(),
            Method::Emptiness => "it runs nothing that has to stay".to_string(),
            Method::StaticDrift | Method::Drift if is_one => {
                "it is not what its pool asks for any more".to_string()
            }
            Method::StaticDrift | Method::Drift => {
                "they are not what their pool asks for any more".to_string()
            }
            Method::Renewal => "it is as old as its pool lets it become".to_string(),
            Method::Return => "what its pool prefers is to be had again".to_string(),
            Method::MultiNodeConsolidation | Method::SingleNodeConsolidation => {
                match (self.replacements.len(), is_one) {
                    (0, true) => "its pods fit on other nodes".to_string(),
                    (0, false) => "their pods fit on other nodes".to_string(),
                    (_, true) => "a cheaper node will do".to_string(),
                    (1, false) => "one cheaper node will do for all of them".to_string(),
                    (_, false) => "cheaper nodes will do for all of them".to_string(),
                }
            }
        };
        let first = match self.replacements.len() {
            0 => String::new(),
            1 => "; a replacement comes first".into(),
            count => format!("; {count} replacements come first"),
        };
        let money = match self.savings.cmp(&UsdPerHour::ZERO) {
            Ordering::Equal => String::new(),
            Ordering::Greater => format!("; saves ${} an hour", self.savings),
            Ordering::Less => format!("; costs ${} an hour more", -self.savings),
        };
        format!("{cause}{others}{first}{money}")
    }

    /// In one line: `underutilized/single-node-consolidation: replace: [node-1] -> [1 replacement]; pool web; 3 pods move; saves
    /// $0.10 an hour`.
    pub fn describe(&self) -> String {
        let nodes: Vec<&str> = self.nodes.iter().map(|node| node.as_str()).collect();
        let arrow = match self.replacements.len() {
            0 => String::new(),
            1 => " -> [1 replacement]".into(),
            count => format!(" -> [{count} replacements]"),
        };
        let verb = match (nodes.len(), self.replacements.len()) {
            (0, _) => "no-op",
            (_, 0) => "delete",
            _ => "replace",
        };
        let mut pools: Vec<&str> = self.pools.iter().map(|pool| pool.as_str()).collect();
        pools.sort_unstable();
        pools.dedup();
        let pools = match pools.as_slice() {
            [] => String::new(),
            [one] => format!("; pool {one}"),
            several => format!("; pools {}", several.join(", ")),
        };
        let pods = match self.pods.len() {
            0 => String::new(),
            count => format!("; {} {}", counted(count, "pod"), agreeing(count, "moves", "move")),
        };
        let cents = self.savings.0.unsigned_abs().saturating_add(5_000) / 10_000;
        let (word, more) = if self.savings < UsdPerHour::ZERO { ("costs", " more") } else { ("saves", "") };
        format!(
            "{}/{}: {verb}: [{}]{arrow}{pools}{pods}; {word} ${}.{:02} an hour{more}",
            self.reason().as_str().to_lowercase(),
            self.method.as_str(),
            nodes.join(", "),
            cents / 100,
            cents % 100
        )
    }
}

/// Where each of `pods` goes by `solution`. `has_replacements`: its new nodes are the command's replacements.
pub(crate) fn destinations(
    pods: &[ObjectKey],
    solution: &Solution,
    has_replacements: bool,
) -> Vec<(ObjectKey, Destination)> {
    let asked: FastSet<ObjectKey> = pods.iter().copied().collect();
    let mut places: FastMap<ObjectKey, Destination> = FastMap::default();
    for (place, guests) in &solution.existing {
        let own = guests.iter().filter(|pod| asked.contains(*pod));
        places.extend(own.map(|pod| (*pod, Destination::Existing(*place))));
    }
    if has_replacements {
        for (at, node) in solution.new_nodes.iter().enumerate() {
            places.extend(node.pods.iter().map(|pod| (*pod, Destination::Replacement(at))));
        }
    }
    pods.iter().map(|pod| (*pod, places.get(pod).copied().unwrap_or(Destination::Nowhere))).collect()
}

// How far a command has come.

/// Whether the node of `claim` is on its way out: being deleted, or waiting for its replacements.
pub(crate) fn is_leaving(claim: &NodeClaim) -> bool {
    claim.deleted.is_some() || is_waiting(claim)
}

/// Whether `claim` goes as soon as its replacements are there.
pub(crate) fn is_waiting(claim: &NodeClaim) -> bool {
    claim.conditions.is_true(ConditionType::DisruptionReason) && !replacements_of(claim).is_empty()
}

/// The replacements that were made for `claim`.
pub(crate) fn replacements_of(claim: &NodeClaim) -> Vec<ClaimName> {
    replacements_in(&claim.annotations)
}

/// What `waiting` claims take of the limits of their pools beyond what their replacements take: whatever those fail for, they stay.
pub(crate) fn kept_for<'c>(
    cluster: &Cluster,
    waiting: impl Iterator<Item = &'c Arc<NodeClaim>>,
) -> BTreeMap<PoolName, Resources> {
    let size = |claim: &NodeClaim| {
        let capacity = cluster.node_of(claim).map_or(&claim.capacity, |node| &node.capacity);
        capacity.plus(&[(*resource::NODES, 1)].into_iter().collect())
    };
    let mut by_replacements: BTreeMap<Vec<ClaimName>, BTreeMap<PoolName, Resources>> = BTreeMap::new();
    for claim in waiting {
        if let Some(pool) = claim.pool() {
            let of_command = by_replacements.entry(replacements_of(claim)).or_default();
            of_command.entry(pool).or_default().add(&size(claim));
        }
    }
    let mut kept: BTreeMap<PoolName, Resources> = BTreeMap::new();
    for (replacements, pools) in by_replacements {
        let coming = replacements.iter().filter_map(|name| cluster.claims.get(name));
        let coming: Vec<_> = coming.filter(|claim| claim.deleted.is_none()).collect();
        for (pool, mut more) in pools {
            let of_pool = coming.iter().filter(|claim| claim.pool() == Some(pool));
            of_pool.for_each(|claim| more.subtract(&size(claim)));
            let more = more.iter().map(|(name, amount)| (name, amount.max(0))).collect();
            kept.entry(pool).or_default().add(&more);
        }
    }
    kept
}

/// The replacements that `annotations` of a claim name.
pub(crate) fn replacements_in(annotations: &Labels) -> Vec<ClaimName> {
    let names = annotations.get(&*annotation::REPLACED_BY).map_or("", |names| names.as_str());
    names.split(',').filter(|name| !name.is_empty()).map(ClaimName::new).collect()
}

/// What starts `command`, whose replacements are `claims`.
pub(crate) fn start(
    cluster: &Cluster,
    command: &Command,
    replacements: &[Arc<NodeClaim>],
    now: Timestamp,
    steps: &mut Steps,
) {
    steps.started.push(command.clone());
    let code = command.reason().as_str();
    let message = command.why();
    let names: Vec<&str> = replacements.iter().map(|claim| claim.name.as_str()).collect();
    for (node, claim) in command.nodes.iter().zip(&command.claims) {
        let Some(known) = cluster.claims.get(claim) else { continue };
        if cluster.nodes.contains_key(node) {
            let change = NodeChange { add_taints: vec![Taint::disrupted()], ..NodeChange::default() };
            steps.push(Action::UpdateNode { node: *node, change }, code, message.clone());
        }
        let mut conditions = known.conditions.clone();
        conditions.set(ConditionType::DisruptionReason, ConditionStatus::True, code, code, now);
        let mut annotations = Labels::new();
        if !names.is_empty() || known.annotations.contains_key(&*annotation::REPLACED_BY) {
            annotations.insert(*annotation::REPLACED_BY, Symbol::new(&names.join(",")));
        }
        let change = ClaimChange { annotations, conditions: Some(conditions), ..ClaimChange::default() };
        steps.push(Action::UpdateClaim { claim: *claim, change }, code, message.clone());
    }
    for claim in replacements {
        let nodes: Vec<&str> = command.nodes.iter().map(|node| node.as_str()).collect();
        let message = format!("it replaces {}", nodes.join(", "));
        steps.push(Action::CreateClaim(claim.clone()), code, message.clone());
        tell(Subject::Claim(claim.name), "DisruptionLaunching", &format!("{code}: {message}"), steps);
    }
    if replacements.is_empty() {
        let count = command.claims.len();
        for claim in command.claims.iter().filter_map(|name| cluster.claims.get(name)) {
            tell_ending(cluster, claim, code, count, steps);
            steps.push(Action::DeleteClaim { claim: claim.name }, code, message.clone());
        }
    }
}

fn tell(subject: Subject, reason: &'static str, message: &str, steps: &mut Steps) {
    let notice = Notice { subject, is_warning: false, reason: reason.into(), message: message.into() };
    steps.push(Action::Publish(notice), reason, message);
}

/// Tells that a node, one of `count` that go together, is on its way out.
fn tell_ending(cluster: &Cluster, claim: &NodeClaim, code: &str, count: usize, steps: &mut Steps) {
    let is_consolidated = code == DisruptionReason::Underutilized.as_str();
    let part = match count {
        2.. if is_consolidated => format!(", part of {count}-node consolidation"),
        _ => String::new(),
    };
    let message = format!("{code}{part}");
    let node = cluster.node_of(claim).map(|node| Subject::Node(node.name));
    for subject in [Some(Subject::Claim(claim.name)), node].into_iter().flatten() {
        tell(subject, "DisruptionTerminating", &message, steps);
    }
}

/// Why the node of `claim` goes, as far as somebody decided it.
pub(crate) fn reason_of(claim: &NodeClaim) -> &str {
    let condition = claim.conditions.get(ConditionType::DisruptionReason);
    let known = condition.filter(|condition| condition.status == ConditionStatus::True);
    known.map_or("Forceful Termination", |condition| condition.reason.as_str())
}

/// The next step of a claim that was disrupted, while `waiting` claims wait for their replacements. `is_seen`: of a claim that is
/// initialized, whether it was seen so: writing that may have failed.
pub(crate) fn advance(
    cluster: &Cluster,
    claim: &NodeClaim,
    waiting: usize,
    is_seen: impl Fn(&NodeClaim) -> bool,
    now: Timestamp,
    steps: &mut Steps,
) {
    if claim.deleted.is_some() || !is_waiting(claim) {
        return;
    }
    let condition = claim.conditions.get(ConditionType::DisruptionReason);
    let reason = condition
        .and_then(|condition| DisruptionReason::parse(&condition.reason))
        .map_or("Disrupted", DisruptionReason::as_str);
    let mut pending = Vec::new();
    for name in replacements_of(claim) {
        match cluster.claims.get(&name) {
            None => {
                give_back(cluster, claim, "another one of its command is gone", steps);
                return take_back(cluster, claim, &format!("its replacement {name} is gone"), steps);
            }
            Some(replacement) if replacement.deleted.is_some() => {
                give_back(cluster, claim, "another one of its command is going away", steps);
                return take_back(cluster, claim, &format!("its replacement {name} is going away"), steps);
            }
            Some(replacement) if is_ready(cluster, replacement) && is_seen(replacement) => {}
            Some(_) => pending.push(name),
        }
    }
    if pending.is_empty() {
        let names = claim.annotations.get(&*annotation::REPLACED_BY);
        let goes_with = |other: &&Arc<NodeClaim>| other.annotations.get(&*annotation::REPLACED_BY) == names;
        tell_ending(cluster, claim, reason, cluster.claims.values().filter(goes_with).count(), steps);
        steps.push(Action::DeleteClaim { claim: claim.name }, reason, "its replacement is ready");
        return;
    }
    let begun = condition.and_then(|condition| condition.since).unwrap_or(now);
    let patience = replacement_patience(waiting);
    let deadline = begun + patience;
    if now >= deadline {
        let minutes = patience.as_mins();
        let message = format!("its replacement {} was not ready within {minutes} minutes", pending[0]);
        give_back(cluster, claim, &format!("{} was not ready within {minutes} minutes", pending[0]), steps);
        take_back(cluster, claim, &message, steps);
    } else {
        for name in pending {
            let message = format!(
                "{reason}: node {} waits until it is ready",
                claim.node.unwrap_or(NodeName(claim.name.0))
            );
            tell(Subject::Claim(name), "DisruptionWaitingReadiness", &message, steps);
        }
        steps.wake(deadline);
    }
}

/// Gives back what came for `claim`, whose command failed, as far as its pool has no room for both: what was on its way out had made
/// that room, and stays now. Of several that were to go together one does it for all.
fn give_back(cluster: &Cluster, claim: &NodeClaim, cause: &str, steps: &mut Steps) {
    let names = claim.annotations.get(&*annotation::REPLACED_BY);
    let goes_with = |other: &&Arc<NodeClaim>| {
        other.annotations.get(&*annotation::REPLACED_BY) == names && other.deleted.is_none()
    };
    if cluster.claims.values().find(goes_with).is_some_and(|first| first.name != claim.name) {
        return;
    }
    let is_free = |claim: &NodeClaim| {
        let mut pods = cluster.nodes_of(claim).flat_map(|node| cluster.pods_of(node.name));
        !pods.any(|pod| has_to_move(pod))
    };
    let coming = replacements_of(claim).into_iter().filter_map(|name| cluster.claims.get(&name));
    for spare in coming.filter(|spare| spare.deleted.is_none() && is_free(spare)) {
        if exceeds_limits(cluster, spare) {
            let why = format!("{cause}, and its pool has no room for both it and what it was to replace");
            steps.push(Action::DeleteClaim { claim: spare.name }, "ReplacementFailed", why);
        }
    }
}

/// Whether the pool of `claim` has more than its limits allow, with all that is on its way out and could still stay.
fn exceeds_limits(cluster: &Cluster, claim: &NodeClaim) -> bool {
    let pool = claim.pool().and_then(|name| cluster.pools.get(&name));
    let Some((pool, limits)) = pool.and_then(|pool| Some((pool, pool.limits.as_ref()?))) else {
        return false;
    };
    let mut used = Resources::new();
    for claim in cluster.claims_of(pool.name).filter(|claim| claim.deleted.is_none()) {
        used.add(&claim.capacity);
        used.set(*resource::NODES, used.get(*resource::NODES) + 1);
    }
    limits.iter().any(|(name, most)| used.get(name) > most)
}

/// Whether `replacement` can take pods now: one that was initialized may have fallen ill while others were waited for.
fn is_ready(cluster: &Cluster, replacement: &NodeClaim) -> bool {
    let node = cluster.node_of(replacement);
    replacement.conditions.is_true(ConditionType::Initialized) && node.is_none_or(|node| node.is_ready())
}

/// The node serves on.
fn take_back(cluster: &Cluster, claim: &NodeClaim, why: &str, steps: &mut Steps) {
    let mut conditions = claim.conditions.clone();
    conditions.clear(ConditionType::DisruptionReason);
    let annotations = Labels::from([(*annotation::REPLACED_BY, Symbol::new(""))]);
    let change = ClaimChange { annotations, conditions: Some(conditions), ..ClaimChange::default() };
    steps.push(Action::UpdateClaim { claim: claim.name, change }, "DisruptionFailed", why);
    clean_node(cluster, claim, why, steps);
}

fn clean_node(cluster: &Cluster, claim: &NodeClaim, why: &str, steps: &mut Steps) {
    if let Some(node) = cluster.node_of(claim)
        && node.deleted.is_none()
        && node.taints.iter().any(|taint| taint.is_same(&Taint::disrupted()))
    {
        let change = NodeChange { remove_taints: vec![Taint::disrupted()], ..NodeChange::default() };
        steps.push(Action::UpdateNode { node: node.name, change }, "DisruptionFailed", why);
    }
}

/// Removes what a command that nobody knows any more left behind: taint and reason without replacements or deletion.
pub(crate) fn clean_up(cluster: &Cluster, claim: &NodeClaim, steps: &mut Steps) {
    if is_leaving(claim) {
        return;
    }
    let why = "no command disrupts it any more";
    if claim.conditions.get(ConditionType::DisruptionReason).is_some() {
        take_back(cluster, claim, why, steps);
    } else {
        clean_node(cluster, claim, why, steps);
    }
}
