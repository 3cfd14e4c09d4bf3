//! That pod prices bound the cost from below.
//!
//! However a machine is filled, what it carries is worth no more than its room at the resources' prices, and what each pod is worth
//! beyond the resources that it takes. That holds for any prices at all; where it comes to more than the machine costs, all
//! pods are made cheaper in proportion.

use super::market::{Machine, Market};
use super::stowing::stowed;

/// Prices that make a bound.
pub(in super::super) struct Certificate {
    /// Of one pod of each group, in micro-dollars an hour.
    pub pods: Vec<f64>,
    /// By machine, of one unit of each resource.
    pub resources: Vec<Vec<f64>>,
}

impl Certificate {
    /// The best of those by which machines are worth what they cost for their amounts of one resource, or of two in equal, or other simple, parts.
    pub fn of_simple_parts(market: &Market) -> Self {
        let mut tried: Vec<Vec<f64>> = Vec::new();
        for one in 0..market.width {
            for other in 0..=one {
                for part in if other == one { &[1.0][..] } else { &[0.25, 0.5, 0.75][..] } {
                    let of = |at| {
                        if at == one {
                            *part
                        } else if at == other {
                            1.0 - part
                        } else {
                            0.0
                        }
                    };
                    tried.push((0..market.width).map(of).collect());
                }
            }
        }
        let total = |certificate: &Self| -> f64 {
            certificate.pods.iter().zip(&market.groups).map(|(price, group)| price * group.count as f64).sum()
        };
        let of = |parts: Vec<f64>| {
            let share = |machine: &Machine| {
                parts.iter().zip(&machine.room).map(|(part, room)| part / (*room).max(1) as f64).collect()
            };
            Self::of_resources(market, market.machines.iter().map(share).collect())
        };
        let tried = tried.into_iter().map(of);
        let none = Self {
            pods: vec![0.0; market.groups.len()],
            resources: vec![vec![0.0; market.width]; market.machines.len()],
        };
        tried.fold(none, |best, next| if total(&next) > total(&best) { next } else { best })
    }

    /// Each machine's resources are worth together what it costs, in the given proportion; a pod is worth the least that its resources are
    /// worth anywhere.
    pub fn of_resources(market: &Market, mut resources: Vec<Vec<f64>>) -> Self {
        for (prices, machine) in resources.iter_mut().zip(&market.machines) {
            let total: f64 = prices.iter().zip(&machine.room).map(|(price, room)| price * *room as f64).sum();
            let factor = if total > 0.0 { machine.price as f64 / total } else { 0.0 };
            prices.iter_mut().for_each(|price| *price *= factor);
        }
        let worth = |group: usize| {
            let asked = &market.groups[group].requests;
            let machines =
                market.machines.iter().zip(&resources).filter(|(machine, _)| machine.most[group] > 0);
            let on = machines.map(|(_, prices)| {
                prices.iter().zip(asked).map(|(price, amount)| price * *amount as f64).sum::<f64>()
            });
            on.min_by(f64::total_cmp).unwrap_or(0.0)
        };
        Self { pods: (0..market.groups.len()).map(worth).collect(), resources }
    }
}

/// Whole parts of a micro-dollar that prices are counted in here.
const PARTS: i128 = 1 << 40;

/// Fillings with whole pods that are tried for one machine.
const TRIES: u64 = 20_000;

/// The dearest pod alone: some machine must carry it.
pub(super) fn single(market: &Market) -> i64 {
    let cheapest = |group: usize| {
        let reserved = market.reserved.iter().flat_map(|reserved| &reserved.machines);
        let machines = market.machines.iter().chain(reserved).filter(move |machine| machine.most[group] > 0);
        machines.map(|machine| machine.price).min()
    };
    (0..market.groups.len()).filter_map(cheapest).max().unwrap_or(0).max(0)
}

/// The bound that `certificate` proves; 0 if it proves none.
pub(super) fn proven(market: &Market, certificate: &Certificate) -> i64 {
    let mut pods: Vec<i128> = certificate.pods.iter().map(|price| whole(*price)).collect();
    for (group, price) in pods.iter_mut().enumerate() {
        if market.machines.iter().all(|machine| machine.most[group] == 0) {
            *price = 0;
        }
    }
    // The machine that carries the most for its price decides how much cheaper pods have to be.
    let mut share = PARTS;
    for (machine, resources) in market.machines.iter().zip(&certificate.resources) {
        let resources: Vec<i128> = resources.iter().map(|price| whole(*price)).collect();
        let price = i128::from(machine.price.max(0)).saturating_mul(PARTS);
        let Some(mut worth) = worth_at_most(market, machine, &pods, &resources) else { return 0 };
        if worth > price {
            worth = worth.min(worth_of_whole(market, machine, &pods, &resources).max(price));
        }
        if worth > price {
            let Some(product) = price.checked_mul(PARTS) else { return 0 };
            share = share.min(product / worth);
        }
    }
    if share < PARTS {
        for price in &mut pods {
            let Some(product) = price.checked_mul(share) else { return 0 };
            *price = product / PARTS;
        }
    }
    let mut total: i128 = 0;
    for (price, group) in pods.iter().zip(&market.groups) {
        total = total.saturating_add(price.saturating_mul(i128::from(group.count)));
    }
    for reserved in &market.reserved {
        // Prices of resources of some machine that is bought do as well as any.
        let saved = reserved.machines.iter().map(|machine| {
            let tried = certificate.resources.iter().filter_map(|resources| {
                let resources: Vec<i128> = resources.iter().map(|price| whole(*price)).collect();
                worth_at_most(market, machine, &pods, &resources)
            });
            let price = i128::from(machine.price).saturating_mul(PARTS);
            tried.min().map_or(i128::MAX, |worth| worth.saturating_sub(price).max(0))
        });
        let most = saved.max().unwrap_or(0);
        total = total.saturating_sub(most.saturating_mul(i128::from(reserved.count)));
    }
    let micros = total.max(0).saturating_add(PARTS - 1) / PARTS;
    // What is as large as the numbers that were left out on the way proves nothing.
    i64::try_from(micros).unwrap_or(0)
}

/// The same for whole pods, if so much can be tried. Floating point is off by less than what is added.
fn worth_of_whole(market: &Market, machine: &Machine, pods: &[i128], resources: &[i128]) -> i128 {
    let back = |price: &i128| *price as f64 / PARTS as f64;
    let values: Vec<f64> = pods.iter().map(back).collect();
    let resources: Vec<f64> = resources.iter().map(back).collect();
    let price = machine.price.max(0) as f64;
    let found = stowed(&market.groups, machine, &machine.most, &values, &resources, price, TRIES);
    if found.is_best { whole(found.value * (1.0 + 1e-9)) + 1 } else { i128::MAX }
}

fn whole(price: f64) -> i128 {
    // Beyond that no sum could be trusted; what is not a number becomes 0.
    (price.clamp(0.0, 1e12) * PARTS as f64) as i128
}

/// A bound on what `machine` can carry, in parts; `None` where numbers get too large.
fn worth_at_most(market: &Market, machine: &Machine, pods: &[i128], resources: &[i128]) -> Option<i128> {
    let mut worth: i128 = 0;
    for (price, room) in resources.iter().zip(&machine.room) {
        worth = worth.checked_add(price.checked_mul(i128::from(*room))?)?;
    }
    for (group, price) in pods.iter().enumerate().filter(|(group, _)| machine.most[*group] > 0) {
        let mut beyond = *price;
        for (of, asked) in resources.iter().zip(&market.groups[group].requests) {
            beyond = beyond.checked_sub(of.checked_mul(i128::from(*asked))?)?;
        }
        if beyond > 0 {
            worth = worth.checked_add(beyond.checked_mul(i128::from(machine.most[group]))?)?;
        }
    }
    Some(worth)
}
