//! What each pod is worth, by a linear program over fillings of machines: the cheapest mix of fillings that carries all pods, and what
//! the last pod of each group adds to its cost.
//!
//! Fillings are not listed but found when they are missed (column generation): at the present prices, is there a machine that
//! carries more than it costs? Rows are scaled so that a group is carried when its row comes to one. Work is counted, not timed, so that the
//! same market has the same prices everywhere.

use super::filling::fullest;
use super::market::Market;
use super::proof::Certificate;

/// A machine may carry so much more than it costs before its filling is added.
const SLACK: f64 = 1e-4;

/// Fillings that are added before all machines are looked at again.
const FILLINGS_A_ROUND: usize = 24;

/// Work that a market is worth, and what each machine and group adds to it.
const EFFORT: u64 = 4_000_000;

/// Smaller than this is nothing.
const TINY: f64 = 1e-9;

/// The cheapest mix of fillings that are known: one for each group.
struct Mix {
    /// Inverse of the matrix of the fillings in it.
    inverse: Vec<Vec<f64>>,
    /// How often each is bought.
    level: Vec<f64>,
    /// What carrying all of a group is worth.
    worth: Vec<f64>,
}

impl Mix {
    /// Machines with one group alone: `prices` of carrying all of each.
    fn new(prices: Vec<f64>) -> Self {
        let count = prices.len();
        let unit = |at: usize| (0..count).map(|other| if at == other { 1.0 } else { 0.0 }).collect();
        Self { inverse: (0..count).map(unit).collect(), level: vec![1.0; count], worth: prices }
    }

    /// Takes in a filling that carries `shares` of all pods of each group for `price`, for the one that it replaces.
    fn take_in(&mut self, shares: &[f64], price: f64) -> bool {
        let reduced = price - dot(&self.worth, shares);
        if reduced >= 0.0 {
            return false;
        }
        let column: Vec<f64> = self.inverse.iter().map(|row| dot(row, shares)).collect();
        let ratio = |at: usize| self.level[at].max(0.0) / column[at];
        let leaving = (0..column.len())
            .filter(|at| column[*at] > TINY)
            .min_by(|one, other| ratio(*one).total_cmp(&ratio(*other)).then(one.cmp(other)));
        let Some(leaving) = leaving else { return false };
        let pivot = column[leaving];
        let step = ratio(leaving);
        let mut turned = std::mem::take(&mut self.inverse[leaving]);
        turned.iter_mut().for_each(|cell| *cell /= pivot);
        for (at, row) in self.inverse.iter_mut().enumerate().filter(|(at, _)| *at != leaving) {
            if column[at] != 0.0 {
                row.iter_mut().zip(&turned).for_each(|(cell, by)| *cell -= column[at] * by);
                self.level[at] -= column[at] * step;
            }
        }
        self.level[leaving] = step;
        self.worth.iter_mut().zip(&turned).for_each(|(worth, by)| *worth += reduced * by);
        self.inverse[leaving] = turned;
        true
    }

    /// Nobody pays for being rid of a pod: carrying more than there are is no use.
    fn without_negatives(&mut self) -> u64 {
        let mut effort = 0;
        for _ in 0..4 * self.worth.len() {
            let lowest =
                (0..self.worth.len()).min_by(|one, other| self.worth[*one].total_cmp(&self.worth[*other]));
            let Some(group) = lowest.filter(|group| self.worth[*group] < -TINY) else { break };
            let mut less = vec![0.0; self.worth.len()];
            less[group] = -1.0;
            effort += (self.worth.len() * self.worth.len()) as u64;
            // A column of price 0 that carries less than nothing of the group.
            if !self.take_in(&less, 0.0) {
                break;
            }
        }
        effort
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

/// Prices of pods, and of resources by machine, that bound the cost of `market` well.
pub(in super::super) fn prices(market: &Market) -> Certificate {
    let carried: Vec<usize> = (0..market.groups.len())
        .filter(|group| market.machines.iter().any(|machine| machine.most[*group] > 0))
        .collect();
    let alone = |group: &usize| {
        let count = market.groups[*group].count as f64;
        let machines = market.machines.iter().filter(|machine| machine.most[*group] > 0);
        let prices = machines.map(|machine| machine.price as f64 * count / machine.most[*group] as f64);
        prices.min_by(f64::total_cmp).unwrap_or(0.0)
    };
    let mut mix = Mix::new(carried.iter().map(alone).collect());
    let mut of_machines = vec![vec![0.0; market.width]; market.machines.len()];
    let mut best = (0.0, vec![0.0; market.groups.len()], of_machines.clone());
    let mut known: Vec<Vec<f64>> = Vec::new();
    let mut effort: u64 = 0;
    while effort < EFFORT {
        effort += mix.without_negatives();
        let mut values = vec![0.0; market.groups.len()];
        for (row, group) in carried.iter().enumerate() {
            values[*group] = mix.worth[row].max(0.0) / market.groups[*group].count as f64;
        }
        let mut missed: Vec<(f64, usize, Vec<f64>)> = Vec::new();
        let mut dearest: f64 = 1.0;
        for (at, machine) in market.machines.iter().enumerate() {
            let price = machine.price.max(1) as f64;
            let most = |resources: &[f64]| {
                let mut worth = dot_whole(resources, &machine.room);
                for group in carried.iter().filter(|group| machine.most[**group] > 0) {
                    let beyond = values[*group] - dot_whole(resources, &market.groups[*group].requests);
                    worth += beyond.max(0.0) * machine.most[*group] as f64;
                }
                worth / price
            };
            effort += (carried.len() * market.width) as u64;
            let mut ratio = most(&of_machines[at]);
            if ratio > 1.0 + SLACK {
                // Machines of one family have one market.
                for prices in known.iter().rev() {
                    effort += (carried.len() * market.width) as u64;
                    let other = most(prices);
                    if other < ratio {
                        ratio = other;
                        of_machines[at].clone_from(prices);
                    }
                    if ratio <= 1.0 + SLACK {
                        break;
                    }
                }
            }
            if ratio > 1.0 + SLACK {
                let filling = fullest(&market.groups, machine, &values);
                effort += filling.effort;
                let other = most(&filling.resources);
                if other < ratio {
                    ratio = other;
                    of_machines[at].clone_from(&filling.resources);
                }
                if known.len() == 8 {
                    known.remove(0);
                }
                known.push(filling.resources);
                if filling.value > price * (1.0 + SLACK) {
                    missed.push((filling.value / price, at, filling.pods));
                }
            }
            dearest = dearest.max(ratio);
        }
        let bound = mix.worth.iter().map(|worth| worth.max(0.0)).sum::<f64>() / dearest;
        if bound > best.0 {
            best = (bound, values, of_machines.clone());
        }
        missed.sort_by(|one, other| other.0.total_cmp(&one.0).then(one.1.cmp(&other.1)));
        missed.truncate(FILLINGS_A_ROUND);
        let mut has_changed = false;
        for (_, at, pods) in missed {
            let shares = carried.iter().map(|group| pods[*group] / market.groups[*group].count as f64);
            let shares: Vec<f64> = shares.collect();
            effort += 2 * (carried.len() * carried.len()) as u64;
            has_changed |= mix.take_in(&shares, market.machines[at].price.max(1) as f64);
        }
        if !has_changed {
            break;
        }
    }
    Certificate { pods: best.1, resources: best.2 }
}

fn dot_whole(prices: &[f64], amounts: &[i64]) -> f64 {
    prices.iter().zip(amounts).map(|(price, amount)| price * *amount as f64).sum()
}
