//! The policy `Balanced`: a move must save at least half of what its pool costs on average per unit of disruption.
//!
//! All comparisons are exact: `savings / cost >= disruption / total / 2`, multiplied out.

use std::collections::BTreeMap;

use super::candidates::{Candidate, worth};
use super::cost;
use super::removal::Refused;
use super::round::Round;
use crate::model::money::UsdPerHour;
use crate::model::name::PoolName;
use crate::model::pool::ConsolidationPolicy;

/// What each balanced pool costs, in money and in disruption if all of it moved.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals(BTreeMap<PoolName, (UsdPerHour, i64)>);

/// A move's score is compared with one half.
const THRESHOLD_INVERSE: i128 = 2;

impl Totals {
    pub fn of(round: &Round) -> Self {
        let mut totals: BTreeMap<PoolName, (UsdPerHour, i64)> = BTreeMap::new();
        let is_balanced = |pool: &PoolName| {
            round
                .cluster
                .pools
                .get(pool)
                .is_some_and(|pool| pool.disruption.policy == ConsolidationPolicy::Balanced)
        };
        for node in round.cluster.nodes.values() {
            let pool = round.cluster.claim_of(node).and_then(|claim| claim.pool());
            let Some(pool) = pool.filter(is_balanced) else { continue };
            let (money, disruption) = totals.entry(pool).or_default();
            let (price, weight) = worth(round, node, pool);
            *money += price;
            *disruption += weight;
        }
        Self(totals)
    }

    /// Whether not even giving the node back for nothing would be worth it.
    pub fn precheck(&self, round: &Round, candidate: &Candidate) -> Result<(), Refused> {
        match self.0.get(&candidate.pool) {
            Some((money, _)) if money.0 > 0 => {
                self.approve(round, std::slice::from_ref(candidate), candidate.price)
            }
            _ => Ok(()),
        }
    }

    /// Every balanced pool that takes part must gain enough; savings are shared by what the pools' nodes cost.
    pub fn approve(
        &self,
        round: &Round,
        candidates: &[Candidate],
        savings: UsdPerHour,
    ) -> Result<(), Refused> {
        let all: i128 = candidates.iter().map(|candidate| i128::from(candidate.price.0)).sum();
        let mut moved: BTreeMap<PoolName, (i128, i128)> = BTreeMap::new();
        for candidate in candidates {
            let pool = round.cluster.pools.get(&candidate.pool);
            if pool.is_some_and(|pool| pool.disruption.policy == ConsolidationPolicy::Balanced) {
                let (price, disruption) = moved.entry(candidate.pool).or_default();
                *price += i128::from(candidate.price.0);
                *disruption += i128::from(candidate.disruption);
            }
        }
        for (pool, (price, disruption)) in moved {
            let total = self.0.get(&pool).copied().unwrap_or_default();
            if !is_worth(i128::from(savings.0) * price, all, disruption, total) {
                let message = format!(
                    "moving its pods would disrupt pool {pool} more than it saves (policy Balanced, threshold 0.5)"
                );
                return Err(("BalancedScore", message));
            }
        }
        Ok(())
    }
}

/// Whether `(savings / share) / cost` is at least half of `disruption / total disruption`.
fn is_worth(savings: i128, share: i128, disruption: i128, (cost, total): (UsdPerHour, i64)) -> bool {
    let (cost, total) = (i128::from(cost.0), i128::from(total));
    if savings <= 0 || share <= 0 || cost <= 0 || total <= 0 {
        return false;
    }
    // In thousandths of a pod, so that nothing overflows.
    let scale = i128::from(cost::ONE) / 1024;
    THRESHOLD_INVERSE * savings * (total / scale) >= (disruption / scale) * cost * share
}

#[cfg(test)]
mod tests {
    use super::*;

    fn score_passes(savings: f64, disruption: i64, cost: f64, total: i64) -> bool {
        let micros = |dollars: f64| (dollars * 1e6).round() as i64;
        is_worth(
            i128::from(micros(savings)),
            1,
            i128::from(disruption * cost::ONE),
            (UsdPerHour(micros(cost)), total * cost::ONE),
        )
    }

    /// Rows: DIS-281, DIS-282, DIS-283, DIS-284, DIS-285, DIS-286, DIS-287
    #[test]
    fn dis_281_the_worked_example() {
        assert!(score_passes(7.26, 4, 58.08, 90));
        assert!(score_passes(4.84, 5, 58.08, 90));
        assert!(!score_passes(2.42, 9, 58.08, 90) && !score_passes(0.0, 11, 58.08, 90));
        assert!(score_passes(2.42, 9, 48.40, 90), "exactly one half is enough");
        assert!(score_passes(4.84, 5, 58.08, 117) && !score_passes(4.84, 32, 58.08, 117));
        assert!(score_passes(7.26, 4, 580.80, 900));
        assert!(score_passes(10.0, 0, 100.0, 100) && !score_passes(0.0, 0, 100.0, 100));
        assert!(!score_passes(1.0, 1, 0.0, 10) && !score_passes(-5.0, 10, 100.0, 100));
        assert!(!score_passes(5.0, 50, 100.0, 100) && score_passes(10.0, 10, 100.0, 100));
    }
}
