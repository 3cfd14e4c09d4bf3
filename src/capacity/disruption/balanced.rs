//! The policy `Balanced`: a move must save at least half of what its pool costs on average per unit of disruption.
//!
//! All comparisons are exact: `savings / cost >= disruption / total / 2`, multiplied out. Only what people are told is divided.

use std::collections::BTreeMap;

use super::candidates::Candidate;
use super::cost;
use super::removal::Refused;
use super::round::Round;
use super::weights::weigh;
use crate::model::money::UsdPerHour;
use crate::model::name::{NodeName, PoolName};
use crate::model::pool::ConsolidationPolicy;

/// A move's score is compared with one half: `k` is two, as in Karpenter.
pub const FACTOR: u8 = 2;

/// What each balanced pool costs, in money and in disruption if all of it moved.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals(BTreeMap<PoolName, (UsdPerHour, i64)>);

/// What a move is worth to one balanced pool: the part of the pool's price that it saves, by the part of its disruption that it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Score {
    pub pool: PoolName,
    /// Of the whole move; the pool has its share by what its nodes cost.
    pub savings: UsdPerHour,
    /// What those of the pool's nodes cost that go, and what all that go cost.
    pub prices: (UsdPerHour, UsdPerHour),
    /// What it costs to move the pods of the pool's nodes that go.
    pub moved: i64,
    /// What the pool costs, and what it would cost to move all its pods.
    pub total: (UsdPerHour, i64),
}

/// Nodes that might go together, as they were weighed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// By name.
    pub nodes: Vec<NodeName>,
    /// Those of the nodes, by name, each once.
    pub pools: Vec<PoolName>,
    /// Of each balanced pool among them, by name.
    pub scores: Vec<Score>,
}

impl Totals {
    pub fn of(round: &Round) -> Self {
        let pools = round.cluster.pools.values();
        let balanced = pools.filter(|pool| pool.disruption.policy == ConsolidationPolicy::Balanced);
        let mut totals: BTreeMap<PoolName, (UsdPerHour, i64)> =
            balanced.map(|pool| (pool.name, (UsdPerHour::ZERO, 0))).collect();
        for node in round.cluster.nodes.values() {
            let Some(pool) = round.cluster.claim_of(node).and_then(|claim| claim.pool()) else { continue };
            let Some((money, disruption)) = totals.get_mut(&pool) else { continue };
            let weighed = weigh(round, node, pool);
            *money += weighed.price;
            *disruption += weighed.disruption;
        }
        Self(totals)
    }

    /// Whether not even giving the node back for nothing would be worth it.
    pub fn precheck(&self, candidate: &Candidate) -> Result<(), Refused> {
        match self.0.get(&candidate.pool) {
            Some((money, _)) if money.0 > 0 => {
                approve(&self.scores(std::slice::from_ref(candidate), candidate.price))
            }
            _ => Ok(()),
        }
    }

    /// What every balanced pool of `candidates` gains if they go; savings are shared by what the pools' nodes cost.
    pub fn scores(&self, candidates: &[Candidate], savings: UsdPerHour) -> Vec<Score> {
        let all: UsdPerHour = candidates.iter().map(|candidate| candidate.price).sum();
        let mut of_pools: BTreeMap<PoolName, (UsdPerHour, i64)> = BTreeMap::new();
        for candidate in candidates.iter().filter(|candidate| self.0.contains_key(&candidate.pool)) {
            let (price, disruption) = of_pools.entry(candidate.pool).or_default();
            *price += candidate.price;
            *disruption += candidate.disruption;
        }
        let score = |(pool, (price, moved))| {
            let total = self.0[&pool];
            Score { pool, savings, prices: (price, all), moved, total }
        };
        of_pools.into_iter().map(score).collect()
    }

    /// `candidates` as they are weighed if their going saves `savings`.
    pub fn weigh(&self, candidates: &[Candidate], savings: UsdPerHour) -> Move {
        let mut nodes: Vec<NodeName> = candidates.iter().map(|candidate| candidate.node).collect();
        let mut pools: Vec<PoolName> = candidates.iter().map(|candidate| candidate.pool).collect();
        nodes.sort_unstable();
        pools.sort_unstable();
        pools.dedup();
        Move { nodes, pools, scores: self.scores(candidates, savings) }
    }
}

/// Every balanced pool that takes part must gain enough.
pub(super) fn approve(scores: &[Score]) -> Result<(), Refused> {
    let Some(Score { pool, .. }) = scores.iter().find(|score| !score.is_enough()) else { return Ok(()) };
    let message = format!(
        "moving its pods would disrupt pool {pool} more than it saves (policy Balanced, threshold 0.5)"
    );
    Err(("BalancedScore", message))
}

impl Move {
    pub fn is_approved(&self) -> bool {
        self.scores.iter().all(Score::is_enough)
    }
}

impl Score {
    pub fn is_enough(&self) -> bool {
        self.reaches(FACTOR)
    }

    /// Whether it is one part in `factor` or more.
    fn reaches(&self, factor: u8) -> bool {
        if self.is_nothing() {
            return false;
        }
        let (price, all) = self.prices;
        let (cost, total) = self.total;
        let micros = |money: UsdPerHour| i128::from(money.0);
        // In thousandths of a pod, so that nothing overflows.
        let weight = |disruption: i64| i128::from(disruption / (cost::ONE / 1024));
        i128::from(factor) * micros(self.savings) * micros(price) * weight(total)
            >= weight(self.moved) * micros(cost) * micros(all)
    }

    fn is_nothing(&self) -> bool {
        let (price, all) = self.prices;
        let (cost, total) = self.total;
        [self.savings, price, all, cost].iter().any(|money| money.0 <= 0) || total <= 0
    }

    /// For people and for monitoring; infinite if nothing is disrupted.
    pub fn value(&self) -> f64 {
        match (self.is_nothing(), self.moved) {
            (true, _) => 0.0,
            (false, 0) => f64::INFINITY,
            (false, _) => self.saved() / self.disrupted(),
        }
    }

    /// The part of what the pool costs that is saved for it.
    pub fn saved(&self) -> f64 {
        let (price, all) = self.prices;
        part(self.savings.0, self.total.0.0) * part(price.0, all.0)
    }

    /// The part of what it would cost to move all the pool's pods.
    pub fn disrupted(&self) -> f64 {
        part(self.moved, self.total.1)
    }
}

fn part(one: i64, whole: i64) -> f64 {
    if whole == 0 { 0.0 } else { one as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(dollars: f64) -> UsdPerHour {
        UsdPerHour((dollars * 1e6).round() as i64)
    }

    fn score(savings: f64, disruption: i64, cost: f64, total: i64) -> Score {
        Score {
            pool: "default".into(),
            savings: micros(savings),
            prices: (micros(1.0), micros(1.0)),
            moved: disruption * cost::ONE,
            total: (micros(cost), total * cost::ONE),
        }
    }

    fn score_passes(savings: f64, disruption: i64, cost: f64, total: i64) -> bool {
        score(savings, disruption, cost, total).is_enough()
    }

    fn shown(score: &Score) -> String {
        format!("{:.2}", score.value())
    }

    fn candidate(node: &str, pool: &str, price: f64, disruption: i64) -> Candidate {
        Candidate {
            node: node.into(),
            claim: node.into(),
            pool: pool.into(),
            price: micros(price),
            disruption: disruption * cost::ONE,
            is_spot: false,
            is_of_known_type: true,
        }
    }

    fn totals(pools: &[(&str, f64, i64)]) -> Totals {
        let total = |(name, cost, total): &(&str, f64, i64)| {
            (PoolName::new(name), (micros(*cost), total * cost::ONE))
        };
        Totals(pools.iter().map(total).collect())
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
        let told = [(7.26, 4, 58.08, 90), (4.84, 5, 58.08, 90), (2.42, 9, 58.08, 90), (2.42, 9, 48.40, 90)];
        let told =
            told.map(|(savings, disruption, cost, total)| shown(&score(savings, disruption, cost, total)));
        assert_eq!(told, ["2.81", "1.50", "0.42", "0.50"]);
        assert_eq!(score(10.0, 0, 100.0, 100).value(), f64::INFINITY);
        for nothing in [score(0.0, 0, 100.0, 100), score(1.0, 1, 0.0, 10), score(-5.0, 10, 100.0, 100)] {
            assert_eq!(nothing.value(), 0.0, "{nothing:?}");
        }
    }

    #[test]
    fn dis_288_a_larger_factor_asks_for_less() {
        let reached = [1, 2, 3].map(|factor| score(2.42, 9, 58.08, 90).reaches(factor));
        assert_eq!(reached, [false, false, true]);
    }

    #[test]
    fn dis_289_the_same_part_of_two_pools_is_worth_the_same() {
        let (large, small) = (score(4.84, 4, 48.40, 90), score(1.45, 4, 14.50, 90));
        assert_eq!((shown(&large), shown(&small)), ("2.25".into(), "2.25".into()));
        assert!(large.is_enough() && small.is_enough());
    }

    #[test]
    fn dis_295_a_pool_that_costs_nothing_gains_nothing() {
        let scores =
            totals(&[("default", 0.0, 0)]).scores(&[candidate("a", "default", 4.84, 2)], micros(4.84));
        assert_eq!((scores.len(), scores[0].value(), scores[0].is_enough()), (1, 0.0, false));
        assert_eq!(approve(&scores).map_err(|(code, _)| code), Err("BalancedScore"));
    }

    /// Rows: DIS-296, DIS-299
    #[test]
    fn dis_296_one_of_equal_nodes_is_worth_one_whether_of_ten_or_alone() {
        for count in [1, 10] {
            let totals = totals(&[("default", 4.84 * count as f64, 2 * count)]);
            let scores = totals.scores(&[candidate("a", "default", 4.84, 2)], micros(4.84));
            assert_eq!(scores.iter().map(shown).collect::<Vec<_>>(), ["1.00"], "of {count}");
            assert!(approve(&scores).is_ok());
        }
    }

    #[test]
    fn dis_297_savings_are_shared_by_what_the_nodes_of_each_pool_cost() {
        let totals = totals(&[("balanced", 48.40, 20)]);
        let both = [candidate("a", "balanced", 4.84, 2), candidate("b", "other", 9.68, 7)];
        let scores = totals.scores(&both, micros(14.52));
        let told: Vec<_> = scores.iter().map(|score| (score.pool.as_str(), shown(score))).collect();
        assert_eq!(told, [("balanced", "1.00".into())], "a third of it is saved for the balanced pool");
        let moved = totals.weigh(&both, micros(14.52));
        assert_eq!((moved.pools, moved.scores), (vec!["balanced".into(), "other".into()], scores));
    }

    #[test]
    fn dis_298_one_pool_that_gains_too_little_stops_the_move() {
        let totals = totals(&[("fond", 48.40, 20), ("shy", 48.40, 20)]);
        let both = |disruption| [candidate("a", "fond", 4.84, 2), candidate("b", "shy", 4.84, disruption)];
        let scores = totals.scores(&both(5), micros(9.68));
        let told: Vec<_> =
            scores.iter().map(|score| (score.pool.as_str(), shown(score), score.is_enough())).collect();
        assert_eq!(told, [("fond", "1.00".into(), true), ("shy", "0.40".into(), false)]);
        assert!(!totals.weigh(&both(5), micros(9.68)).is_approved());
        let (_, message) = approve(&scores).expect_err("one is against it");
        assert!(message.contains("pool shy"), "{message}");
        assert!(approve(&totals.scores(&both(4), micros(9.68))).is_ok());
    }
}
