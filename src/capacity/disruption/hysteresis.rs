//! What a replacement has to save, so that pods are not moved back and forth for small change.
//!
//! Moving fifty pods to save what one of them costs is not worth it, and the next change of a spot price undoes it. What a pod costs is
//! what its pool pays on average; a fortieth of that for each pod that moves is little beside any saving that people would
//! notice, and more than what prices drift by.

use std::collections::BTreeMap;

use super::candidates::Candidate;
use super::cost;
use crate::model::money::UsdPerHour;
use crate::model::name::PoolName;

/// A replacement saves at least one part in so many of what the pool pays for as many pods as it moves.
const PART: i64 = 40;

/// What pools pay for what their candidates run: price and weight.
pub(super) struct Averages(BTreeMap<PoolName, (i128, i128)>);

impl Averages {
    pub fn of(candidates: &[Candidate]) -> Self {
        let mut sums: BTreeMap<PoolName, (i128, i128)> = BTreeMap::new();
        for candidate in candidates {
            let (price, disruption) = sums.entry(candidate.pool).or_default();
            *price += i128::from(candidate.price.0);
            *disruption += weight(candidate);
        }
        Self(sums)
    }

    /// What the pool of `candidate` pays on average for as many pods.
    pub fn share(&self, candidate: &Candidate) -> UsdPerHour {
        let (price, disruption) = self.0.get(&candidate.pool).copied().unwrap_or_default();
        let share = price * weight(candidate) / disruption.max(1);
        UsdPerHour(i64::try_from(share).unwrap_or(i64::MAX))
    }

    /// The least that a replacement must save to be worth moving the pods of `candidate`.
    pub fn least_saving(&self, candidate: &Candidate) -> UsdPerHour {
        UsdPerHour(self.share(candidate).0 / PART)
    }
}

/// What moving it costs, in parts of a pod that are small enough and do not overflow.
fn weight(candidate: &Candidate) -> i128 {
    i128::from(candidate.disruption / (cost::ONE / 1024))
}
