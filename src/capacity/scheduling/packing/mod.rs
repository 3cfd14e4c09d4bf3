//! Which machines to buy for many pods at once, and who goes onto which: whole machines filled with whole pods, for little money.
//!
//! The prices that bound the bill from below say what each pod should cost at the best. A machine that carries pods worth as much as
//! it costs itself is therefore bought as well as can be. The mix behind those prices buys machines in parts: whole ones are bought, and for each
//! part one that carries as much, or its pods are left with the others, whichever costs less. Of those that are left the machine is taken that carries
//! the most for its price, as often as there are pods to fill it, then the next one ([`filling`]). The last machines are the worst filled,
//! because there is nothing left to choose from; so machines are emptied again, a few at a time, and their pods packed anew, as
//! long as that saves money ([`mending`]).
//!
//! Nothing here knows a rule: who may be on which machine is part of the market, and whether a filling is legal is asked when it is
//! carried out. Work is counted in steps, never timed, and chance is drawn from a seed, so one market has one answer.

mod filling;
mod mending;

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::bound::{Certificate, Filled, Machine, Market, Priced, prices};
use filling::{Filler, Left};

/// More groups of pods than this are priced by coarser ones.
const GROUPS_MAX: usize = 170;

/// A bill that is no further from what pods are worth is left as it is.
const GAIN_MIN: f64 = 0.01;

/// A machine that carries what is bought of another one in parts has to carry pods that are worth so much of its price.
const FILLED_MIN: f64 = 0.97;

/// A machine and the pods that are to be on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bundle {
    /// Its number in the market.
    pub machine: usize,
    /// By group, how many of it.
    pub pods: Vec<(usize, i64)>,
}

/// Machines for all pods of `market` that some machine carries; none if nothing is to be gained on a bill of `bill`, if there is one.
pub(super) fn pack(market: &Market, bill: Option<i64>) -> Vec<Bundle> {
    let worth = Worth::of(market);
    let least: f64 =
        worth.pods.iter().zip(&market.groups).map(|(price, group)| price * group.count as f64).sum();
    if bill.is_some_and(|bill| bill as f64 <= least * (1.0 + GAIN_MIN)) {
        return Vec::new();
    }
    let mut filler = Filler::new(&worth);
    let all = Choice::all(market);
    let ways: &[Parts] =
        if worth.mix.is_empty() { &[Parts::LeftOver] } else { &[Parts::LeftOver, Parts::Bought] };
    let answers = ways.iter().map(|parts| {
        let mut left = Left::new(market.groups.iter().map(|group| group.count).collect());
        let mut bundles = bought(market, &worth, *parts, &mut left);
        bundles.extend(build(market, &worth, &worth.pods, left, &all, &mut filler));
        bundles
    });
    let cost = |bundles: &Vec<Bundle>| -> i64 {
        bundles.iter().map(|bundle| market.machines[bundle.machine].price).sum()
    };
    let cheaper = answers.min_by_key(|bundles| (cost(bundles), bundles.len()));
    let cheaper = cheaper.expect("there is one way at least");
    mending::mended(market, &worth, cheaper, &mut filler)
}

/// What becomes of machines that are bought in parts.
#[derive(Clone, Copy, PartialEq)]
enum Parts {
    /// Their pods are packed with all that are left.
    LeftOver,
    /// For each part one machine is bought that carries it.
    Bought,
}

/// What is bought of the mix: machines that it buys whole, and of the others what `parts` says. Their pods are taken from `left`.
fn bought(market: &Market, worth: &Worth, parts: Parts, left: &mut Left) -> Vec<Bundle> {
    let mut bundles = Vec::new();
    let mut in_parts: Vec<(f64, &Filled)> = Vec::new();
    for filled in &worth.mix {
        let times = ((filled.times + 1e-6).floor() as i64).min(left.times(&filled.pods)).max(0);
        left.take(&filled.pods, times);
        let bundle = Bundle { machine: filled.machine, pods: filled.pods.clone() };
        bundles.extend(std::iter::repeat_n(bundle, times as usize));
        in_parts.push((filled.times - times as f64, filled));
    }
    if parts == Parts::LeftOver {
        return bundles;
    }
    let cost = |(part, filled): &(f64, &Filled)| part * market.machines[filled.machine].price as f64;
    in_parts.sort_by(|one, other| cost(other).total_cmp(&cost(one)));
    for (part, filled) in in_parts {
        let pods = filled.pods.iter().map(|(group, count)| {
            let count = (part * *count as f64 + 1e-6).floor() as i64;
            (*group, count.min(left.count(*group)))
        });
        let pods: Vec<(usize, i64)> = pods.filter(|(_, count)| *count > 0).collect();
        let Some(bundle) = carried_by_one(market, pods, market.machines.len()) else { continue };
        let value: f64 = bundle.pods.iter().map(|(group, count)| worth.pods[*group] * *count as f64).sum();
        if value >= market.machines[bundle.machine].price as f64 * FILLED_MIN {
            left.take(&bundle.pods, 1);
            bundles.push(bundle);
        }
    }
    bundles
}

/// What pods are worth, and resources on each machine, in micro-dollars an hour.
struct Worth {
    pods: Vec<f64>,
    resources: Vec<Vec<f64>>,
    /// Machines that carry all pods, bought in parts; none if pods were priced by coarser ones.
    mix: Vec<Filled>,
}

impl Worth {
    fn of(market: &Market) -> Self {
        let (Certificate { pods, resources }, mix) = match market.coarse(GROUPS_MAX) {
            None => {
                let Priced { certificate, mix } = prices(market);
                (certificate, mix)
            }
            Some((coarse, part_of)) => {
                let found = prices(&coarse).certificate;
                let size = |requests: &[i64]| -> f64 {
                    let on = |of: &Vec<f64>| -> f64 {
                        requests.iter().zip(of).map(|(amount, price)| *amount as f64 * price).sum()
                    };
                    found.resources.iter().map(on).sum()
                };
                // A pod is worth more than its coarse likeness by as much as it is larger.
                let pods = market.groups.iter().zip(&part_of).map(|(group, part)| {
                    let coarse = &coarse.groups[*part];
                    let likeness = size(&coarse.requests);
                    let factor = if likeness > 0.0 { size(&group.requests) / likeness } else { 1.0 };
                    found.pods[*part] * factor
                });
                let pods = pods.collect();
                (Certificate { pods, resources: found.resources }, Vec::new())
            }
        };
        // What costs nothing beside others has to be carried, too.
        let alone = |group: usize| {
            let carriers = market.machines.iter().filter(|machine| machine.most[group] > 0);
            let prices = carriers.map(|machine| machine.price as f64 / machine.most[group] as f64);
            prices.min_by(f64::total_cmp).unwrap_or(0.0)
        };
        let pods = pods.iter().enumerate().map(|(group, price)| price.max(alone(group) * 1e-3));
        Self { pods: pods.collect(), resources, mix }
    }
}

/// A machine that was filled, by how much that is worth for its price.
struct Offer {
    ratio: f64,
    machine: usize,
    pods: Vec<(usize, i64)>,
}

impl Ord for Offer {
    fn cmp(&self, other: &Self) -> Ordering {
        // Of machines that are as good the larger one: fewer nodes.
        self.ratio.total_cmp(&other.ratio).then(self.machine.cmp(&other.machine))
    }
}

impl PartialOrd for Offer {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Offer {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Offer {}

/// Machines that may be bought.
struct Choice {
    /// By number: filled again and again.
    machines: Vec<usize>,
    /// The first so many of all: one for all pods that are left.
    affordable: usize,
}

impl Choice {
    fn all(market: &Market) -> Self {
        Self::first(market.machines.len())
    }

    fn first(affordable: usize) -> Self {
        Self { machines: (0..affordable).collect(), affordable }
    }
}

/// Buys the machine that carries the most for its price, again and again, until nobody is `left` whom a machine carries; but one
/// machine for all that are left where that is cheaper in the end. `values`: what a pod of each group is worth here.
fn build(
    market: &Market,
    worth: &Worth,
    values: &[f64],
    mut left: Left,
    Choice { machines, affordable }: &Choice,
    filler: &mut Filler,
) -> Vec<Bundle> {
    let mut bundles: Vec<Bundle> = Vec::new();
    let offer = |machine: usize, left: &Left, filler: &mut Filler| {
        let (pods, value) = filler.fill(market, worth, values, machine, left);
        let price = market.machines[machine].price.max(1) as f64;
        (!pods.is_empty()).then(|| Offer { ratio: value / price, machine, pods })
    };
    let all = machines.iter().filter_map(|machine| offer(*machine, &left, filler));
    let mut offers: BinaryHeap<Offer> = all.collect();
    let mut cost = 0;
    // What everything costs if the rest is closed in one machine: after so many others.
    let mut closed: Option<(i64, usize, Bundle)> = None;
    while let Some(best) = offers.pop() {
        // It is worth what it was as long as there are pods for it; what the others are worth has only become less.
        let carried = left.times(&best.pods);
        if carried > 0 {
            filler.steps += (left.groups() + affordable) as u64;
            if let Some(last) = last_one(market, &left, *affordable) {
                let total = cost + market.machines[last.machine].price;
                if closed.as_ref().is_none_or(|(known, ..)| total < *known) {
                    closed = Some((total, bundles.len(), last));
                }
            }
        }
        for _ in 0..carried {
            bundles.push(Bundle { machine: best.machine, pods: best.pods.clone() });
            cost += market.machines[best.machine].price;
        }
        left.take(&best.pods, carried);
        if left.is_empty() {
            break;
        }
        offers.extend(offer(best.machine, &left, filler));
    }
    if let Some((_, after, last)) = closed.filter(|(total, ..)| !left.is_empty() || *total < cost) {
        bundles.truncate(after);
        bundles.push(last);
    }
    bundles
}

/// The cheapest machine that carries all that are left, of the first so many.
fn last_one(market: &Market, left: &Left, affordable: usize) -> Option<Bundle> {
    carried_by_one(market, left.counted().collect(), affordable)
}

/// The cheapest machine that carries all of `pods`, by group, of the first so many; none for nobody.
fn carried_by_one(market: &Market, pods: Vec<(usize, i64)>, affordable: usize) -> Option<Bundle> {
    if pods.is_empty() {
        return None;
    }
    let mut total = vec![0_i64; market.width];
    for (group, count) in &pods {
        let requests = &market.groups[*group].requests;
        total.iter_mut().zip(requests).for_each(|(sum, asked)| *sum = sum.saturating_add(asked * count));
    }
    let carries = |machine: &Machine| {
        total.iter().zip(&machine.room).all(|(asked, there)| asked <= there)
            && pods.iter().all(|(group, count)| machine.most[*group] >= *count)
    };
    let machine = market.machines[..affordable].iter().position(carries)?;
    Some(Bundle { machine, pods })
}
