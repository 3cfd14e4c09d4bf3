//! Whether machines of a pool come to be nodes: the last four that were tried tell.
//!
//! Two of four that never joined are no accident any more, and the pool says so; it goes on being used. Once the pool or its
//! class changes, what was wrong may have been put right, so that nothing is known until the next machine.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;

use super::cluster::Cluster;
use super::decision::Steps;
use crate::model::action::{Action, PoolChange};
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::condition::ConditionStatus;
use crate::model::count::counted;
use crate::model::name::PoolName;
use crate::model::pool::{NodePool, PoolCondition, PoolConditions};

/// Machines of a pool that are remembered.
const REMEMBERED: usize = 4;
/// So many of them that did not join are too many.
const FAILURES: usize = 2;

const HEALTH: PoolCondition = PoolCondition::NodeRegistrationHealthy;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Joined,
    Failed,
}

/// What became of the last machines of every pool.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registrations {
    outcomes: BTreeMap<PoolName, VecDeque<Outcome>>,
    /// Pools of which nothing is known any more, and that still say otherwise.
    outdated: BTreeSet<PoolName>,
}

impl Registrations {
    /// The pool, or its class, is not what the machines were made from.
    pub fn begin_anew(&mut self, pool: PoolName) {
        self.outcomes.insert(pool, VecDeque::new());
        self.outdated.insert(pool);
    }

    pub fn forget(&mut self, pool: PoolName) {
        self.outcomes.remove(&pool);
        self.outdated.remove(&pool);
    }

    /// Takes in what `steps` make of the machine of `claim`; what the pool has to say of it.
    pub fn judge(&mut self, cluster: &Cluster, claim: &NodeClaim, steps: &Steps, now: Timestamp) -> Steps {
        let mut told = Steps::default();
        let pool = claim.pool().and_then(|pool| cluster.pools.get(&pool));
        // One that was made for a former pool of this name says nothing of this one.
        let is_older = |pool: &NodePool| claim.created.zip(pool.created).is_some_and(|(own, its)| own < its);
        let is_its = |pool: &&Arc<NodePool>| pool.template.class.is_ours() && !is_older(pool);
        let Some(pool) = pool.filter(is_its) else { return told };
        let was_registered = claim.conditions.is_true(ConditionType::Registered);
        let outcome = steps.actions.iter().find_map(|planned| match (&planned.action, planned.reason.code) {
            (Action::UpdateClaim { .. }, "Registered") if !was_registered => Some(Outcome::Joined),
            (Action::DeleteClaim { .. }, "RegistrationTimeout" | "LaunchTimeout") => Some(Outcome::Failed),
            _ => None,
        });
        let Some(outcome) = outcome else { return told };
        let known = self.outcomes.entry(pool.name).or_insert_with(|| as_written(pool));
        known.push_back(outcome);
        if known.len() > REMEMBERED {
            known.pop_front();
        }
        let failures = known.iter().filter(|outcome| **outcome == Outcome::Failed).count();
        let mut conditions = pool.conditions.clone();
        let status = conditions.get(HEALTH).map(|known| known.status);
        match outcome {
            Outcome::Joined if failures < FAILURES => {
                conditions.set(HEALTH, ConditionStatus::True, "NodeRegistrationHealthy", "", now);
            }
            Outcome::Failed if failures >= FAILURES && status != Some(ConditionStatus::False) => {
                let (reason, message) = why(claim);
                conditions.set(HEALTH, ConditionStatus::False, &reason, &message, now);
            }
            _ => {}
        }
        if conditions != pool.conditions {
            self.outdated.remove(&pool.name);
            let message = format!("{failures} of the last {} did not join", counted(known.len(), "machine"));
            let change = PoolChange { conditions: Some(conditions), ..PoolChange::default() };
            told.push(Action::UpdatePool { pool: pool.name, change }, "RegistrationHealth", message);
        }
        told
    }

    /// Says of `pool` that nothing is known, where that is so.
    pub fn report(&mut self, pool: &NodePool, conditions: &mut PoolConditions, now: Timestamp) {
        if self.outdated.remove(&pool.name) || conditions.get(HEALTH).is_none() {
            let message = "no machine was tried since the pool or its class changed";
            conditions.set(HEALTH, ConditionStatus::Unknown, "AwaitingReconciliation", message, now);
        }
    }
}

/// What a former process had seen, as far as it is written: enough for the next machine to be judged as it would have.
fn as_written(pool: &NodePool) -> VecDeque<Outcome> {
    match pool.conditions.get(HEALTH).map(|known| known.status) {
        Some(ConditionStatus::True) => VecDeque::from([Outcome::Joined]),
        Some(ConditionStatus::False) => VecDeque::from([Outcome::Failed; FAILURES]),
        _ => VecDeque::new(),
    }
}

/// Reason and message for a machine that did not join.
fn why(claim: &NodeClaim) -> (String, String) {
    match claim.conditions.get(ConditionType::Launched) {
        Some(launched) if launched.status != ConditionStatus::True && !launched.reason.is_empty() => {
            (launched.reason.to_string(), launched.message.to_string())
        }
        _ => ("RegistrationFailed".to_owned(), "Failed to register node".to_owned()),
    }
}
