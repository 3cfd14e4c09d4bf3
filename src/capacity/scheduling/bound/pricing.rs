//! What each pod is worth, by a linear program over fillings of machines: the cheapest mix of fillings that carries all pods, and what
//! the last pod of each group adds to its cost.
//!
//! Fillings are not listed but found when they are missed (column generation): at the present prices, is there a machine that
//! carries more than it costs? Rows are scaled so that a group is carried when its row comes to one. Work is counted, not timed, so that the
//! same market has the same prices everywhere.

use super::filling::{Offered, fullest};
use super::market::{Machine, Market};
use super::proof::Certificate;
use super::stowing::stowed;

/// A machine may carry so much more than it costs before its filling is added.
const SLACK: f64 = 1e-4;

/// Fillings of one machine that are added before all machines are looked at again.
const ATTEMPTS: usize = 3;

/// Work that a market is worth: for each pod, and at the most.
const EFFORT_A_POD: u64 = 100_000;
const EFFORT: u64 = 60_000_000;

/// Smaller than this is nothing.
const TINY: f64 = 1e-9;

/// A bound that is so near to what machines cost that are bought in parts is good enough.
const GAP: f64 = 5e-4;

/// How much prices are drawn to those of the best bound so far: without it they swing to and fro.
const TRUST: f64 = 0.85;

/// Fillings of one machine with whole pods that are tried before it is filled with parts of pods: at first, and at the most.
const TRIES_FIRST: u64 = 250;
const TRIES: u64 = 4_000;

/// Fillings that are remembered.
const POOL_MAX: usize = 400;

/// When so many fillings are missed, the machines that were not looked at yet are left for later.
const MISSED_A_ROUND: usize = 40;

/// How often one filling takes the place of another before machines are looked at again.
const PIVOTS_A_ROUND: usize = 60;

/// A machine with whole pods on it, and how often it is bought where machines may be bought in parts.
#[derive(Clone)]
pub(in super::super) struct Filled {
    pub machine: usize,
    /// By group.
    pub pods: Vec<(usize, i64)>,
    pub times: f64,
}

/// What a market comes to.
pub(in super::super) struct Priced {
    pub certificate: Certificate,
    /// Machines that carry all pods at those prices, those that are filled with parts of pods left out.
    pub mix: Vec<Filled>,
}

/// A machine that is filled.
struct Column {
    /// Of all pods of each group.
    shares: Vec<f64>,
    price: f64,
    /// If pods are whole.
    filling: Option<Filled>,
}

/// The cheapest mix of fillings that are known: one for each group.
#[derive(Clone)]
struct Mix {
    /// Inverse of the matrix of the fillings in it.
    inverse: Vec<Vec<f64>>,
    /// How often each is bought.
    level: Vec<f64>,
    /// What carrying all of a group is worth.
    worth: Vec<f64>,
    /// Which machines they are, if they carry whole pods; as often as `times` if they are bought once.
    fillings: Vec<Option<Filled>>,
}

impl Mix {
    /// Machines with one group alone: `prices` of carrying all of each.
    fn new(prices: Vec<f64>, fillings: Vec<Option<Filled>>) -> Self {
        let count = prices.len();
        let unit = |at: usize| (0..count).map(|other| if at == other { 1.0 } else { 0.0 }).collect();
        Self { inverse: (0..count).map(unit).collect(), level: vec![1.0; count], worth: prices, fillings }
    }

    /// Takes in a filling that carries `shares` of all pods of each group for `price`, for the one that it replaces.
    fn take_in(&mut self, shares: &[f64], price: f64, filling: Option<Filled>) -> bool {
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
        self.fillings[leaving] = filling;
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
            if !self.take_in(&less, 0.0, None) {
                break;
            }
        }
        effort
    }

    /// Takes in fillings of `pool` for as long as that makes the mix cheaper.
    fn improve(&mut self, pool: &[Column]) -> (bool, u64) {
        let (mut has_changed, mut work) = (false, 0);
        let count = self.worth.len() as u64;
        for _ in 0..PIVOTS_A_ROUND {
            work += count * pool.len() as u64;
            let gain = |column: &Column| (dot(&self.worth, &column.shares) - column.price) / column.price;
            let gains = pool.iter().map(gain).enumerate();
            let best = gains.max_by(|one, other| one.1.total_cmp(&other.1).then(other.0.cmp(&one.0)));
            let Some((at, _)) = best.filter(|(_, gain)| *gain > SLACK / 10.0) else { break };
            work += 2 * count * count;
            let Column { shares, price, filling } = &pool[at];
            if !self.take_in(shares, *price, filling.clone()) {
                break;
            }
            has_changed = true;
        }
        (has_changed, work)
    }

    /// What all of it costs.
    fn cost(&self) -> f64 {
        self.worth.iter().map(|worth| worth.max(0.0)).sum()
    }

    /// What is bought, and how often.
    fn bought(self) -> Vec<Filled> {
        let levels = self.fillings.into_iter().zip(self.level);
        let bought =
            levels.filter_map(|(filling, level)| filling.map(|of| Filled { times: of.times * level, ..of }));
        bought.filter(|filled| filled.times > TINY).collect()
    }
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}

/// What looks for machines that carry more than they cost.
struct Pricer<'a> {
    market: &'a Market,
    /// Groups that some machine carries: the rows of the program.
    carried: Vec<usize>,
    /// Prices of resources by machine.
    of_machines: Vec<Vec<f64>>,
    /// Those of other machines, which may do as well.
    known: Vec<Vec<f64>>,
    tries: u64,
    effort: u64,
}

/// A machine that carries more than it costs, or could for all that is known.
struct Missed {
    /// What it carries at the most, for its price.
    ratio: f64,
    /// By group, whole pods that are worth more than it costs.
    whole: Option<Vec<(usize, i64)>>,
    /// The same with parts of pods.
    parts: Vec<(usize, f64)>,
}

impl Pricer<'_> {
    fn ratio(&mut self, machine: &Machine, values: &[f64], resources: &[f64]) -> f64 {
        self.effort += (self.carried.len() * self.market.width) as u64;
        let mut worth = dot_whole(resources, &machine.room);
        for group in self.carried.iter().filter(|group| machine.most[**group] > 0) {
            let beyond = values[*group] - dot_whole(resources, &self.market.groups[*group].requests);
            worth += beyond.max(0.0) * machine.most[*group] as f64;
        }
        worth / machine.price.max(1) as f64
    }

    /// `None`: nothing that the machine carries is worth more than it costs.
    fn missed(&mut self, at: usize, values: &[f64]) -> Option<Missed> {
        let market = self.market;
        let machine = &market.machines[at];
        let price = machine.price.max(1) as f64;
        let mut resources = std::mem::take(&mut self.of_machines[at]);
        let mut ratio = self.ratio(machine, values, &resources);
        let mut known = std::mem::take(&mut self.known);
        // Machines of one family have one market.
        for prices in known.iter().rev() {
            if ratio <= 1.0 + SLACK {
                break;
            }
            let other = self.ratio(machine, values, prices);
            if other < ratio {
                ratio = other;
                resources.clone_from(prices);
            }
        }
        let mut missed = None;
        if ratio > 1.0 + SLACK {
            let carried = self.carried.iter().copied();
            let carried: Vec<usize> =
                carried.filter(|group| machine.most[*group] > 0 && values[*group] > 0.0).collect();
            let offered = carried.iter().map(|group| Offered {
                requests: &market.groups[*group].requests,
                most: machine.most[*group],
                value: values[*group],
            });
            let filling = fullest(&offered.collect::<Vec<_>>(), &machine.room);
            self.effort += filling.effort;
            let other = self.ratio(machine, values, &filling.resources);
            if other < ratio {
                ratio = other;
                resources.clone_from(&filling.resources);
            }
            if known.len() == 8 {
                known.remove(0);
            }
            known.push(filling.resources);
            if ratio > 1.0 + SLACK {
                let whole =
                    stowed(&market.groups, machine, &machine.most, values, &resources, price, self.tries);
                self.effort += whole.effort;
                if whole.is_best {
                    ratio = whole.value / price;
                }
                let is_worth_it = whole.value > price * (1.0 + SLACK);
                missed = (ratio > 1.0 + SLACK).then(|| Missed {
                    ratio,
                    whole: is_worth_it.then_some(whole.pods),
                    parts: carried.into_iter().zip(filling.pods).filter(|(_, parts)| *parts > 0.0).collect(),
                });
            }
        }
        self.known = known;
        self.of_machines[at] = resources;
        missed
    }

    fn shares(&self, pods: impl Iterator<Item = (usize, f64)>) -> Vec<f64> {
        let mut shares = vec![0.0; self.carried.len()];
        for (group, count) in pods {
            if let Ok(row) = self.carried.binary_search(&group) {
                shares[row] = count / self.market.groups[group].count as f64;
            }
        }
        shares
    }

    /// The filling that is missed; with parts of pods only if `are_parts_allowed`.
    fn column(&self, at: usize, missed: &Missed, are_parts_allowed: bool) -> Option<Column> {
        let price = self.market.machines[at].price.max(1) as f64;
        if let Some(pods) = &missed.whole {
            let shares = self.shares(pods.iter().map(|(group, count)| (*group, *count as f64)));
            return Some(Column {
                shares,
                price,
                filling: Some(Filled { machine: at, pods: pods.clone(), times: 1.0 }),
            });
        }
        let shares = || self.shares(missed.parts.iter().copied());
        are_parts_allowed.then(|| Column { shares: shares(), price, filling: None })
    }
}

/// Prices of pods, and of resources by machine, that bound the cost of `market` well.
pub(in super::super) fn prices(market: &Market) -> Priced {
    let carried: Vec<usize> = (0..market.groups.len())
        .filter(|group| market.machines.iter().any(|machine| machine.most[*group] > 0))
        .collect();
    let alone = |group: &usize| {
        let count = market.groups[*group].count as f64;
        let machines = market.machines.iter().enumerate().filter(|(_, machine)| machine.most[*group] > 0);
        let prices = machines.map(|(at, machine)| {
            let most = machine.most[*group];
            let times = count / most as f64;
            (machine.price as f64 * times, Filled { machine: at, pods: vec![(*group, most)], times })
        });
        prices.min_by(|one, other| one.0.total_cmp(&other.0)).expect("some machine carries it")
    };
    let (prices, fillings) = carried.iter().map(alone).map(|(price, filled)| (price, Some(filled))).unzip();
    let mut mix = Mix::new(prices, fillings);
    let total = |values: &[f64]| -> f64 {
        values.iter().zip(&market.groups).map(|(value, group)| value * group.count as f64).sum()
    };
    let Certificate { pods, resources } = Certificate::of_simple_parts(market);
    let mut best = (total(&pods), pods, resources.clone());
    let mut pricer =
        Pricer { market, carried, of_machines: resources, known: Vec::new(), tries: TRIES_FIRST, effort: 0 };
    let mut pool: Vec<Column> = Vec::new();
    let mut trust = TRUST;
    let mut of_whole: Option<Vec<Filled>> = None;
    let mut first = 0;
    let effort_max = EFFORT.min(EFFORT_A_POD.saturating_mul(market.pods().max(50) as u64));
    while pricer.effort < effort_max {
        pricer.effort += mix.without_negatives();
        let mut values = vec![0.0; market.groups.len()];
        for (row, group) in pricer.carried.iter().enumerate() {
            let now = mix.worth[row].max(0.0) / market.groups[*group].count as f64;
            values[*group] = trust * best.1[*group] + (1.0 - trust) * now;
        }
        let mut dearest: f64 = 1.0;
        let count = market.machines.len();
        let (mut looked_at, mut added) = (0, 0);
        for at in (first..count).chain(0..first) {
            if added >= MISSED_A_ROUND {
                break;
            }
            looked_at += 1;
            for attempt in 1..=ATTEMPTS {
                let Some(missed) = pricer.missed(at, &values) else { break };
                if let Some(column) = pricer.column(at, &missed, of_whole.is_some()) {
                    pool.push(column);
                    added += 1;
                }
                if attempt == ATTEMPTS {
                    dearest = dearest.max(missed.ratio);
                }
                // What it carries is made cheaper by as much as it is worth too much: what other machines carry is only worth less.
                match &missed.whole {
                    Some(pods) => pods.iter().for_each(|(group, _)| values[*group] /= missed.ratio),
                    None => missed.parts.iter().for_each(|(group, _)| values[*group] /= missed.ratio),
                }
            }
        }
        let has_seen_all = looked_at == count;
        first = (first + if has_seen_all { count / 3 + 1 } else { looked_at }) % count.max(1);
        let bound = if has_seen_all { total(&values) / dearest } else { 0.0 };
        if bound > best.0 {
            values.iter_mut().for_each(|value| *value /= dearest);
            best = (bound, values, pricer.of_machines.clone());
        }
        let (has_changed, work) = mix.improve(&pool);
        pricer.effort += work;
        if pool.len() > POOL_MAX {
            pool.drain(..pool.len() - POOL_MAX);
        }
        if mix.cost() <= best.0 * (1.0 + GAP) {
            break;
        }
        if has_changed {
            trust = TRUST;
        } else if trust > 0.0 {
            trust = 0.0;
        } else if pricer.tries < TRIES {
            pricer.tries *= 4;
        } else if of_whole.is_none() {
            // No machine is known to carry more whole pods than it costs, but nobody can tell.
            of_whole = Some(mix.clone().bought());
        } else {
            break;
        }
    }
    let mix = of_whole.unwrap_or_else(|| mix.bought());
    Priced { certificate: Certificate { pods: best.1, resources: best.2 }, mix }
}

fn dot_whole(prices: &[f64], amounts: &[i64]) -> f64 {
    prices.iter().zip(amounts).map(|(price, amount)| price * *amount as f64).sum()
}
