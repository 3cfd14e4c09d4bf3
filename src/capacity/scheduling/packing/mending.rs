//! Machines that are filled badly, emptied again and packed anew.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::filling::{Filler, Left};
use super::{Bundle, Choice, Market, Worth, build};

/// Steps that making a packing better is worth: for each pod, and at the most.
const STEPS_A_POD: u64 = 30_000;
const STEPS: u64 = 20_000_000;

/// Steps after which it is seen whether they were worth it, and the part of the bill that they have to have saved.
const STEPS_A_LOOK: u64 = 2_000_000;
const SAVED_MIN: f64 = 5e-4;

/// The most machines that are drawn for one try.
const MACHINES_MAX: usize = 24;

/// By how much prices differ from try to try at the most.
const NOISE: f64 = 0.3;

/// The most machines that are emptied at once.
const EMPTIED_MAX: usize = 6;

/// `bundles`, or ones that carry the same pods for less.
pub(super) fn mended(
    market: &Market,
    worth: &Worth,
    mut bundles: Vec<Bundle>,
    filler: &mut Filler,
) -> Vec<Bundle> {
    if bundles.len() < 2 {
        return bundles;
    }
    let mut chance = ChaCha8Rng::seed_from_u64(0);
    let price = |bundle: &Bundle| market.machines[bundle.machine].price;
    // What of its price is not made good by its pods.
    let loss = |bundle: &Bundle| {
        let value: f64 = bundle.pods.iter().map(|(group, count)| worth.pods[*group] * *count as f64).sum();
        (price(bundle) as f64 - value).max(0.0)
    };
    let mut losses: Vec<f64> = bundles.iter().map(loss).collect();
    let mut values: Vec<f64> = Vec::new();
    let bill = |bundles: &[Bundle]| -> i64 { bundles.iter().map(price).sum() };
    let (mut looked_at, mut bill_then) = (filler.steps, bill(&bundles));
    let until = filler.steps + STEPS.min(STEPS_A_POD.saturating_mul(market.pods() as u64));
    while filler.steps < until {
        let total: f64 = losses.iter().sum();
        let cost = bill(&bundles);
        if bundles.len() < 2 || total <= cost as f64 * 5e-4 {
            break;
        }
        if filler.steps >= looked_at + STEPS_A_LOOK {
            if ((bill_then - cost) as f64) < cost as f64 * SAVED_MIN {
                break;
            }
            (looked_at, bill_then) = (filler.steps, cost);
        }
        let count = (2 + (chance.next_u64() % (EMPTIED_MAX as u64 - 1)) as usize).min(bundles.len());
        let mut emptied: Vec<usize> = Vec::with_capacity(count);
        for at in 0..count {
            // Half of them because they are filled badly, the others by chance.
            let next = if at % 2 == 0 { drawn(&losses, total, &mut chance) } else { None };
            let next = next.unwrap_or_else(|| (chance.next_u64() % bundles.len() as u64) as usize);
            if !emptied.contains(&next) {
                emptied.push(next);
            }
        }
        emptied.sort_unstable();
        filler.steps += bundles.len() as u64;
        let mut left = vec![0; market.groups.len()];
        for at in &emptied {
            for (group, count) in &bundles[*at].pods {
                left[*group] += count;
            }
        }
        let before: i64 = emptied.iter().map(|at| price(&bundles[*at])).sum();
        // Other prices, other choices.
        let noise = NOISE * (chance.next_u64() % 3) as f64 / 2.0;
        let left = Left::new(left);
        values.clone_from(&worth.pods);
        for (group, _) in left.counted() {
            values[group] *= 1.0 + noise * (part(&mut chance) - 0.5);
        }
        let affordable = market.machines.partition_point(|machine| machine.price <= before);
        let choice = drawn_from(affordable, emptied.iter().map(|at| bundles[*at].machine), &mut chance);
        let anew = build(market, worth, &values, left, &choice, filler);
        let after = bill(&anew);
        let carried = |of: &[Bundle]| -> i64 {
            of.iter().flat_map(|bundle| &bundle.pods).map(|(_, count)| count).sum()
        };
        let were: Vec<Bundle> = emptied.iter().map(|at| bundles[*at].clone()).collect();
        if carried(&anew) == carried(&were) && (after, anew.len()) <= (before, emptied.len()) {
            for at in emptied.iter().rev() {
                bundles.swap_remove(*at);
                losses.swap_remove(*at);
            }
            losses.extend(anew.iter().map(loss));
            bundles.extend(anew);
        }
    }
    bundles
}

/// Some of the first so many machines, of all prices, and those that were `emptied`: few others may carry what was on them.
fn drawn_from(affordable: usize, emptied: impl Iterator<Item = usize>, chance: &mut ChaCha8Rng) -> Choice {
    if affordable <= MACHINES_MAX {
        return Choice::first(affordable);
    }
    let drawn = (0..MACHINES_MAX).map(|at| {
        let (first, end) = (at * affordable / MACHINES_MAX, (at + 1) * affordable / MACHINES_MAX);
        first + (chance.next_u64() % (end - first) as u64) as usize
    });
    let mut machines: Vec<usize> = drawn.chain(emptied).collect();
    machines.sort_unstable();
    machines.dedup();
    Choice { machines, affordable }
}

/// One of `losses`, a large one rather than a small one.
fn drawn(losses: &[f64], total: f64, chance: &mut ChaCha8Rng) -> Option<usize> {
    let mut at = total * part(chance);
    losses.iter().position(|loss| {
        at -= loss;
        at < 0.0
    })
}

/// From 0 to 1.
fn part(chance: &mut ChaCha8Rng) -> f64 {
    (chance.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}
