//! Whether the drifted nodes of a pool may be replaced now, whatever its budgets allow.
//!
//! Everything but the back-off is read off the objects, so that a successor goes on where its predecessor stopped: what a person
//! says of the roll, how many tries failed for what the pool asks for now, and which nodes are as it asks already and have been
//! ready for how long. What cannot be read lets nothing go.

mod tries;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::candidates::KeepReason;
use super::command::{is_leaving, replacements_of};
use super::round::Round;
use crate::capacity::cluster::Cluster;
use crate::capacity::decision::Steps;
use crate::model::action::{Action, Notice, Subject};
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::condition::ConditionStatus;
use crate::model::count::{agreeing, counted};
use crate::model::label::annotation;
use crate::model::pool::{BudgetNodes, DisruptionReason, NodePool, PoolCondition, PoolConditions};
use crate::model::roll::Roll;
use crate::model::symbol::Symbol;
pub(crate) use tries::{Tries, remember};

/// How the roll of a pool stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Open(Room),
    /// Nothing that has drifted goes, until a moment if that is known.
    Held {
        reason: KeepReason,
        until: Option<Timestamp>,
    },
}

/// What may be started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// Nodes that may be replaced.
    pub nodes: u32,
    /// What may come for them.
    pub replacements: u32,
    /// The roll proves itself on a few nodes.
    pub is_canary: bool,
}

impl Standing {
    fn held(code: &'static str, message: impl Into<String>) -> Self {
        Self::Held { reason: KeepReason::new(code, message), until: None }
    }

    fn until(self, moment: Option<Timestamp>) -> Self {
        match self {
            Self::Held { reason, .. } => Self::Held { reason, until: moment },
            open => open,
        }
    }
}

/// How the roll of `pool` stands in `round`.
pub(super) fn standing(round: &Round, pool: &NodePool) -> Standing {
    if let Some(known) = round.standings.borrow().get(&pool.name) {
        return known.clone();
    }
    let found = judge(round, pool);
    round.standings.borrow_mut().insert(pool.name, found.clone());
    found
}

/// Whether consolidation may put other nodes into the place of drifted ones of `pool`, too; else why not.
pub(super) fn is_open_to_others(round: &Round, pool: &NodePool) -> Result<(), KeepReason> {
    match standing(round, pool) {
        Standing::Open(room) if !room.is_canary => Ok(()),
        Standing::Open(_) => {
            let message = format!("the roll of pool {} proves itself on a few nodes first", pool.name);
            Err(KeepReason::new("RollSoaking", message))
        }
        Standing::Held { reason, .. } => Err(reason),
    }
}

fn judge(round: &Round, pool: &NodePool) -> Standing {
    let name = pool.name;
    let roll = match &pool.roll {
        Ok(roll) => roll,
        Err(fault) => return Standing::held("RollUnreadable", unreadable(fault.key, fault.message)),
    };
    if roll.is_paused {
        return Standing::held("RollPaused", format!("the roll of pool {name} is paused (`roll.paused`)"));
    }
    if let Some(failed) = halting(&round.cluster, pool, roll) {
        return Standing::held(
            "RollHalted",
            format!("the roll of pool {name} is halted: {}", halted(pool, failed)),
        );
    }
    let back_off = round.tries.back_off(name, || goal(&round.cluster, pool));
    if let Some((until, level)) = back_off.filter(|(until, _)| round.now < *until) {
        let message = format!(
            "the roll of pool {name} waits until {}: {} in a row failed",
            shown(until),
            tries_of(level)
        );
        return Standing::held("RollBackingOff", message).until(Some(until));
    }
    let proven = canary(round, pool, roll);
    let Standing::Open(room) = proven else { return proven };
    let Some(surge) = roll.surge else { return proven };
    let (most, present) =
        (surge_of(round, pool, surge), round.tries.replacing(name) + under_way(&round.cluster, pool));
    match most.checked_sub(present).filter(|left| *left > 0) {
        Some(replacements) => Standing::Open(Room { replacements, ..room }),
        None => Standing::held(
            "SurgeReached",
            format!(
                "the surge of pool {name} is used up: {} may stand beside what they replace, {present} {}",
                counted(most, "replacement"),
                agreeing(present, "does", "do")
            ),
        ),
    }
}

/// Whether enough nodes that are as the pool asks have been ready for long enough; else how many more are to be tried.
fn canary(round: &Round, pool: &NodePool, roll: &Roll) -> Standing {
    let open = Room { nodes: u32::MAX, replacements: u32::MAX, is_canary: false };
    if roll.canary == 0 {
        return Standing::Open(open);
    }
    let claims = round.cluster.claims_of(pool.name);
    let fresh: Vec<_> = claims
        .filter(|claim| !is_leaving(claim) && !claim.conditions.is_true(ConditionType::Drifted))
        .collect();
    let wanted = roll.canary as usize;
    let ready: Vec<Option<Timestamp>> =
        fresh.iter().map(|claim| ready_since(&round.cluster, claim)).collect();
    let mut soaked: Vec<Timestamp> =
        ready.iter().flatten().filter_map(|since| since.checked_add(roll.soak).ok()).collect();
    soaked.sort_unstable();
    let name = pool.name;
    match soaked.get(wanted - 1) {
        Some(until) if *until <= round.now => Standing::Open(open),
        _ if fresh.len() < wanted => {
            let nodes = roll.canary - u32::try_from(fresh.len()).unwrap_or(0);
            Standing::Open(Room { nodes, is_canary: true, ..open })
        }
        Some(until) => {
            let message = format!(
                "the roll of pool {name} waits until {}: {} {} to be ready for so long first",
                shown(*until),
                counted(roll.canary, "new node"),
                agreeing(roll.canary, "has", "have")
            );
            Standing::held("RollSoaking", message).until(Some(*until))
        }
        None => {
            let waits = fresh.iter().zip(&ready).find(|(_, since)| since.is_none()).map(|(claim, _)| claim);
            let of = waits.map_or_else(String::new, |claim| match claim.node {
                Some(node) => format!(": node {node} is not ready"),
                None => format!(": claim {} has no node yet", claim.name),
            });
            let count = counted(roll.canary, "new node");
            let message = format!("the roll of pool {name} waits until {count} can be relied on{of}");
            Standing::held("RollSoaking", message)
        }
    }
}

/// Since when the node of `claim` has been initialized and ready.
fn ready_since(cluster: &Cluster, claim: &NodeClaim) -> Option<Timestamp> {
    let initialized = claim.conditions.true_since(ConditionType::Initialized)?;
    let node = cluster.node_of(claim).filter(|node| node.is_ready() && node.deleted.is_none())?;
    let ready = node.conditions.iter().find(|condition| &*condition.kind == "Ready")?.since;
    Some(ready.map_or(initialized, |ready| ready.max(initialized)))
}

/// How many replacements `surge` comes to.
fn surge_of(round: &Round, pool: &NodePool, surge: BudgetNodes) -> u32 {
    let counts = |claim: &&std::sync::Arc<NodeClaim>| claim.conditions.is_true(ConditionType::Initialized);
    match surge {
        BudgetNodes::Count(count) => count,
        BudgetNodes::Percent(share) => {
            let nodes = round.cluster.claims_of(pool.name).filter(counts).count() as u64;
            u32::try_from((nodes * u64::from(share)).div_ceil(100)).unwrap_or(u32::MAX).max(1)
        }
    }
}

/// Replacements that stand beside drifted nodes of `pool` which are not gone yet.
fn under_way(cluster: &Cluster, pool: &NodePool) -> u32 {
    let mut names = std::collections::BTreeSet::new();
    for claim in cluster.claims_of(pool.name).filter(|claim| is_leaving(claim) && goes_for_drift(claim)) {
        names.extend(replacements_of(claim).into_iter().filter(|name| cluster.claims.contains_key(name)));
    }
    u32::try_from(names.len()).unwrap_or(u32::MAX)
}

/// Whether `claim` is disrupted because it has drifted.
fn goes_for_drift(claim: &NodeClaim) -> bool {
    let reason = claim.conditions.get(ConditionType::DisruptionReason);
    reason.is_some_and(|reason| &*reason.reason == DisruptionReason::Drifted.as_str())
}

/// A short name for all that `pool` asks of its nodes: its template with the requirements, and its class.
fn goal(cluster: &Cluster, pool: &NodePool) -> Symbol {
    let class = cluster.classes.get(&pool.template.class.name);
    let text = |part: Option<Symbol>| part.map_or("", Symbol::as_str);
    let parts = format!(
        "{}\n{}\n{}\n{:?}",
        text(pool.hash),
        pool.template.class.name,
        text(class.and_then(|class| class.hash)),
        pool.template.requirements
    );
    let digest = Sha256::digest(parts);
    Symbol::new(&digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>())
}

/// Tries that failed for what the pool asks for now.
fn failures(pool: &NodePool, goal: Symbol) -> Option<u32> {
    pool.roll_failures.filter(|failures| failures.goal == goal).map(|failures| failures.count)
}

/// As many failed tries as halt the roll.
fn halting(cluster: &Cluster, pool: &NodePool, roll: &Roll) -> Option<u32> {
    pool.roll_failures.filter(|failures| failures.count >= roll.halt_after)?;
    failures(pool, goal(cluster, pool))
}

fn tries_of(count: u32) -> String {
    if count == 1 { "1 try".to_owned() } else { format!("{count} tries") }
}

fn unreadable(key: Symbol, message: Symbol) -> String {
    format!("annotation {key} of its pool cannot be read, so nothing that has drifted is replaced: {message}")
}

fn halted(pool: &NodePool, failed: u32) -> String {
    format!(
        "{} in a row to replace nodes failed. It goes on once the pool or its class asks for something else, or after `kubectl \
         annotate nodepool {} {}-`",
        tries_of(failed),
        pool.name,
        *annotation::ROLL_FAILURES
    )
}

/// A moment to the second.
fn shown(moment: Timestamp) -> String {
    Timestamp::from_second(moment.as_second()).unwrap_or(moment).to_string()
}

/// Says at `pool` whether its drifted nodes can be replaced at all; nothing, as long as they always could.
pub(crate) fn report(
    cluster: &Cluster,
    pool: &NodePool,
    conditions: &mut PoolConditions,
    now: Timestamp,
    steps: &mut Steps,
) {
    let kind = PoolCondition::RollHealthy;
    let why = match &pool.roll {
        Err(fault) => Some(("RollUnreadable", unreadable(fault.key, fault.message))),
        Ok(roll) => halting(cluster, pool, roll).map(|failed| ("RollHalted", halted(pool, failed))),
    };
    let Some((reason, message)) = why else {
        if conditions.get(kind).is_some() {
            conditions.set(kind, ConditionStatus::True, "RollHealthy", "", now);
        }
        return;
    };
    let is_known = conditions.get(kind).is_some_and(|known| {
        known.status == ConditionStatus::False && &*known.reason == reason && *known.message == *message
    });
    conditions.set(kind, ConditionStatus::False, reason, &message, now);
    if !is_known {
        let notice = Notice {
            subject: Subject::Pool(pool.name),
            is_warning: true,
            reason: reason.into(),
            message: message.as_str().into(),
        };
        steps.push(Action::Publish(notice), reason, message);
    }
}
