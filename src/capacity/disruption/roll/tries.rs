//! What became of tries to replace drifted nodes: a pool whose try failed is left alone for a while, and pools take turns.
//!
//! A restart may forget this; how many tries failed in a row is written at the pool, because it must not.

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};
use sha2::{Digest, Sha256};

use super::{failures, goal, goes_for_drift, tries_of};
use crate::capacity::cluster::Cluster;
use crate::capacity::decision::Steps;
use crate::capacity::disruption::command::{Command, Method, is_waiting, replacements_of};
use crate::model::action::{Action, PoolChange};
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::name::{ClaimName, PoolName};
use crate::model::roll::RollFailures;
use crate::model::symbol::Symbol;

/// How long a pool is left alone after the first try that failed, and at the most: twice as long after each.
const BACK_OFF: (SignedDuration, SignedDuration) =
    (SignedDuration::from_mins(1), SignedDuration::from_mins(10));
/// Up to so many hundredths of that are left out, or pools that failed together would try again together.
const JITTER: i64 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BackOff {
    /// What the pool asked for.
    goal: Symbol,
    /// Tries that failed in a row.
    level: u32,
    failed_at: Timestamp,
    until: Timestamp,
    /// The last of them is among those that halt the roll.
    is_counted: bool,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Tries {
    back_offs: BTreeMap<PoolName, BackOff>,
    /// In which turn a node of the pool was replaced last.
    turns: BTreeMap<PoolName, u64>,
    turn: u64,
    /// How often nothing came of replacing these.
    failed: BTreeMap<ClaimName, u32>,
    /// Replacements that nobody had room for.
    short: BTreeSet<ClaimName>,
    /// Replacements of nodes of a pool that were started in this picture.
    started: BTreeMap<PoolName, u32>,
    /// Pools at which failures could not be written.
    unwritten: BTreeSet<PoolName>,
}

impl Tries {
    /// Until when the pool is left alone, and after how many tries.
    pub fn back_off(&self, pool: PoolName, goal: impl FnOnce() -> Symbol) -> Option<(Timestamp, u32)> {
        let known = self.back_offs.get(&pool).filter(|known| known.goal == goal())?;
        Some((known.until, known.level))
    }

    /// When the pool had its last turn; pools that had none come first.
    pub fn turn_of(&self, pool: PoolName) -> u64 {
        self.turns.get(&pool).copied().unwrap_or(0)
    }

    /// How often nothing came of replacing `claim`.
    pub fn failures_of(&self, claim: ClaimName) -> u32 {
        self.failed.get(&claim).copied().unwrap_or(0)
    }

    pub fn replacing(&self, pool: PoolName) -> u32 {
        self.started.get(&pool).copied().unwrap_or(0)
    }

    /// `command` is started in the picture that this belongs to.
    pub fn start(&mut self, command: &Command) {
        let (Method::Drift | Method::StaticDrift, Some(pool)) = (command.method, command.pools.first())
        else {
            return;
        };
        self.turn += 1;
        self.turns.insert(*pool, self.turn);
        *self.started.entry(*pool).or_default() +=
            u32::try_from(command.replacements.len()).unwrap_or(u32::MAX);
    }

    /// For a picture in which nothing was started yet.
    pub fn afresh(&self) -> Self {
        Self { started: BTreeMap::new(), ..self.clone() }
    }

    /// Goes on with the turns that `other`, made from this, has taken.
    pub fn follow(&mut self, other: Self) {
        (self.turns, self.turn) = (other.turns, other.turn);
    }

    /// What was to be remembered at `pool` may not be there.
    pub fn doubt(&mut self, pool: PoolName) {
        self.unwritten.insert(pool);
    }

    pub fn take_unwritten(&mut self) -> BTreeSet<PoolName> {
        std::mem::take(&mut self.unwritten)
    }

    pub fn forget_claim(&mut self, claim: ClaimName) {
        self.failed.remove(&claim);
        self.short.remove(&claim);
    }

    pub fn forget_pool(&mut self, pool: PoolName) {
        self.back_offs.remove(&pool);
        self.turns.remove(&pool);
    }

    /// Takes in what `steps` make of `claim`; what is to be remembered at its pool.
    pub fn judge(
        &mut self,
        cluster: &Cluster,
        claim: &NodeClaim,
        steps: &Steps,
        (seed, now): (u64, Timestamp),
    ) -> Steps {
        let ended = steps.actions.iter().find_map(|planned| match (&planned.action, planned.reason.code) {
            (Action::UpdateClaim { .. }, code @ "DisruptionFailed") => Some(code),
            (Action::DeleteClaim { .. }, code) => Some(code),
            _ => None,
        });
        let Some(code) = ended else { return Steps::default() };
        if code == "InsufficientCapacity" {
            self.short.insert(claim.name);
        }
        let pool = claim.pool().and_then(|pool| cluster.pools.get(&pool));
        let (Some(pool), true) = (pool, is_waiting(claim) && goes_for_drift(claim)) else {
            return Steps::default();
        };
        let goal = goal(cluster, pool);
        let known = failures(pool, goal).unwrap_or(0);
        let count = match code {
            "Drifted" => {
                self.back_offs.remove(&pool.name);
                0
            }
            "DisruptionFailed" => known + u32::from(self.fail(pool.name, claim, goal, (seed, now))),
            _ => return Steps::default(),
        };
        let mut told = Steps::default();
        if count != known || (count == 0 && pool.roll_failures.is_some()) {
            let message = match count {
                0 => "a node of it was replaced".to_owned(),
                _ => format!("{} in a row to replace its nodes failed", tries_of(count)),
            };
            told.push(remember(pool.name, RollFailures { count, goal }), "RollFailures", message);
        }
        told
    }

    /// A try to replace `claim` failed; whether that is one more of those that halt the roll. What was started before the last failure
    /// was known belongs to the same try; a shortage of capacity says nothing of what the pool asks for, and ends by itself.
    fn fail(
        &mut self,
        pool: PoolName,
        claim: &NodeClaim,
        goal: Symbol,
        (seed, now): (u64, Timestamp),
    ) -> bool {
        *self.failed.entry(claim.name).or_default() += 1;
        let begun = claim.conditions.true_since(ConditionType::DisruptionReason).unwrap_or(now);
        let is_short = replacements_of(claim).iter().any(|name| self.short.contains(name));
        let known = self.back_offs.get(&pool).copied().filter(|known| known.goal == goal);
        let back_off = match known {
            Some(known) if begun <= known.failed_at => {
                BackOff { is_counted: known.is_counted || !is_short, ..known }
            }
            known => {
                let level = known.map_or(0, |known| known.level) + 1;
                let until = now + patience(level, seed, pool);
                BackOff { goal, level, failed_at: now, until, is_counted: !is_short }
            }
        };
        self.back_offs.insert(pool, back_off);
        let was_counted = known.is_some_and(|known| known.level == back_off.level && known.is_counted);
        back_off.is_counted && !was_counted
    }
}

/// What writes `failures` at `pool`.
pub(crate) fn remember(pool: PoolName, failures: RollFailures) -> Action {
    let change = PoolChange { roll_failures: Some(failures), ..PoolChange::default() };
    Action::UpdatePool { pool, change }
}

/// How long a pool is left alone after so many tries.
fn patience(level: u32, seed: u64, pool: PoolName) -> SignedDuration {
    let (least, most) = BACK_OFF;
    let whole = (least * 2_i32.pow(level.saturating_sub(1).min(8))).min(most);
    let digest = Sha256::digest(format!("{seed} {pool} {level}"));
    let chance = i64::from(u16::from_be_bytes([digest[0], digest[1]]));
    whole - SignedDuration::from_millis(whole.as_secs() * 10 * JITTER * chance / i64::from(u16::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_doubles_up_to_ten_minutes_and_differs_from_pool_to_pool() {
        let of = |level, seed, pool: &str| patience(level, seed, PoolName::new(pool)).as_secs();
        for (level, whole) in [(1, 60), (2, 120), (3, 240), (4, 480), (5, 600), (50, 600)] {
            for pool in ["a", "b", "c"] {
                let found = of(level, 7, pool);
                assert!((whole * 4 / 5..=whole).contains(&found), "{level} {pool}: {found}");
                assert_eq!(found, of(level, 7, pool));
            }
        }
        let all = |seed| ["a", "b", "c", "d"].map(|pool| patience(5, seed, PoolName::new(pool)));
        assert!(BTreeSet::from(all(7)).len() == 4 && all(7) != all(8), "{:?}", all(7));
    }
}
