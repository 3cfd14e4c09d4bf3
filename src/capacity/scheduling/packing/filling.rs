//! One machine, filled with whole pods.
//!
//! The best filling with parts of pods is a start: all but a few of its pods are whole. What is left of the room is filled by
//! trying, most valuable pods first; what no order of trying could make better than what is known already is left out.

use super::super::bound::{Market, fullest};
use super::Worth;

/// Tries that one filling is worth.
const TRIES: u64 = 400;

/// Steps that every filling takes, whatever is tried.
const FILLING: u64 = 300;

/// Larger pods are placed first among those of equal worth: small ones fill gaps later.
const LARGER_FIRST: f64 = 0.01;

pub(super) struct Filler {
    /// Groups by worth of a pod, most valuable first.
    order: Vec<usize>,
    dearest: f64,
    /// How much work was done.
    pub steps: u64,
}

/// What is tried in one machine.
struct Attempt<'a> {
    market: &'a Market,
    values: &'a [f64],
    resources: &'a [f64],
    /// Those that may be added, most valuable first.
    offered: &'a [usize],
    tries: u64,
    best: f64,
    found: Vec<usize>,
    path: Vec<usize>,
}

impl Filler {
    pub fn new(market: &Market, worth: &Worth) -> Self {
        let mut order: Vec<usize> = (0..market.groups.len()).collect();
        order.sort_by(|one, other| worth.pods[*other].total_cmp(&worth.pods[*one]).then(one.cmp(other)));
        let dearest = order.first().map_or(1.0, |group| worth.pods[*group]);
        Self { order, dearest: dearest.max(f64::MIN_POSITIVE), steps: 0 }
    }

    /// Pods of those that are `left` for `machine`, and what they are worth.
    pub fn fill(
        &mut self,
        market: &Market,
        worth: &Worth,
        machine: usize,
        left: &[i64],
    ) -> (Vec<(usize, i64)>, f64) {
        let number = machine;
        let machine = &market.machines[number];
        let offered: Vec<usize> =
            self.order.iter().copied().filter(|group| left[*group] > 0 && machine.most[*group] > 0).collect();
        let mut pods = vec![0_i64; market.groups.len()];
        if offered.is_empty() {
            return (Vec::new(), 0.0);
        }
        let mut room = machine.room.clone();
        let mut limited = machine.clone();
        limited.most.iter_mut().zip(left).for_each(|(most, left)| *most = (*most).min(*left));
        let values: Vec<f64> =
            worth.pods.iter().map(|value| value * (1.0 + LARGER_FIRST * value / self.dearest)).collect();
        let start = fullest(&market.groups, &limited, &values);
        self.steps += start.effort;
        for group in &offered {
            let count = (start.pods[*group] + 1e-9).floor() as i64;
            let count = count.min(fitting(&market.groups[*group].requests, &room)).min(left[*group]);
            take(&mut room, &market.groups[*group].requests, count);
            pods[*group] += count;
        }
        let mut attempt = Attempt {
            market,
            values: &worth.pods,
            resources: &worth.resources[number],
            offered: &offered,
            tries: TRIES,
            best: 0.0,
            found: Vec::new(),
            path: Vec::new(),
        };
        let free: Vec<i64> = left.iter().zip(&pods).map(|(left, taken)| left - taken).collect();
        attempt.add(0, &mut room, &mut free.clone(), 0.0);
        self.steps += (TRIES - attempt.tries) * (market.width as u64 + 1) + (3 * left.len()) as u64 + FILLING;
        for group in attempt.found {
            pods[group] += 1;
        }
        let value = pods.iter().zip(&worth.pods).map(|(count, value)| *count as f64 * value).sum();
        (pods.into_iter().enumerate().filter(|(_, count)| *count > 0).collect(), value)
    }
}

impl Attempt<'_> {
    /// Adds pods from the `first` of those offered on.
    fn add(&mut self, first: usize, room: &mut [i64], left: &mut [i64], value: f64) {
        if value > self.best {
            self.best = value;
            self.found.clone_from(&self.path);
        }
        let reach: f64 =
            self.resources.iter().zip(&*room).map(|(price, amount)| price * *amount as f64).sum();
        for at in first..self.offered.len() {
            let group = self.offered[at];
            if self.tries == 0 || value + reach <= self.best * (1.0 + 1e-9) {
                return;
            }
            self.tries -= 1;
            let requests = &self.market.groups[group].requests;
            if left[group] == 0 || !requests.iter().zip(&*room).all(|(asked, there)| asked <= there) {
                continue;
            }
            take(room, requests, 1);
            left[group] -= 1;
            self.path.push(group);
            self.add(at, room, left, value + self.values[group]);
            self.path.pop();
            left[group] += 1;
            take(room, requests, -1);
        }
    }
}

fn fitting(requests: &[i64], room: &[i64]) -> i64 {
    let each = requests.iter().zip(room).filter(|(asked, _)| **asked > 0);
    each.map(|(asked, there)| there.max(&0) / asked).min().unwrap_or(i64::MAX)
}

fn take(room: &mut [i64], requests: &[i64], count: i64) {
    room.iter_mut().zip(requests).for_each(|(there, asked)| *there -= asked * count);
}
