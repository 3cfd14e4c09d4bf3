//! One machine, filled with whole pods.
//!
//! The best filling with parts of pods is a start: all but a few of its pods are whole. What is left of the room is filled by
//! trying, most valuable pods first; what no order of trying could make better than what is known already is left out.

use super::super::bound::{Market, Offered, fullest};
use super::Worth;

/// Tries that one filling is worth.
const TRIES: u64 = 400;

/// Steps that every filling takes, whatever is tried.
const FILLING: u64 = 300;

/// Larger pods are placed first among those of equal worth: small ones fill gaps later.
const LARGER_FIRST: f64 = 0.01;

pub(super) struct Filler {
    /// Of each group, how many are worth more.
    rank: Vec<usize>,
    dearest: f64,
    /// How much work was done.
    pub steps: u64,
}

/// Pods that have no machine yet.
pub(super) struct Left {
    /// By group.
    counts: Vec<i64>,
    /// Groups of which there are some, by number.
    open: Vec<usize>,
}

/// What is tried in one machine.
struct Attempt<'a> {
    /// Those that may be added, most valuable first.
    groups: Vec<Addable<'a>>,
    resources: &'a [f64],
    tries: u64,
    best: f64,
    found: Vec<usize>,
    path: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Addable<'a> {
    requests: &'a [i64],
    value: f64,
    left: i64,
}

impl Left {
    pub fn new(counts: Vec<i64>) -> Self {
        let open = (0..counts.len()).filter(|group| counts[*group] > 0).collect();
        Self { counts, open }
    }

    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The number of groups, whether there are any of them or not.
    pub fn groups(&self) -> usize {
        self.counts.len()
    }

    pub fn count(&self, group: usize) -> i64 {
        self.counts[group]
    }

    /// Groups of which there are some, and how many.
    pub fn counted(&self) -> impl Iterator<Item = (usize, i64)> + '_ {
        self.open.iter().map(|group| (*group, self.counts[*group]))
    }

    /// How often there are all of `pods`.
    pub fn times(&self, pods: &[(usize, i64)]) -> i64 {
        pods.iter().map(|(group, count)| self.counts[*group] / count).min().unwrap_or(0)
    }

    /// Takes all of `pods` so many times.
    pub fn take(&mut self, pods: &[(usize, i64)], times: i64) {
        pods.iter().for_each(|(group, count)| self.counts[*group] -= times * count);
        let counts = &self.counts;
        self.open.retain(|group| counts[*group] > 0);
    }
}

impl Filler {
    pub fn new(worth: &Worth) -> Self {
        let mut order: Vec<usize> = (0..worth.pods.len()).collect();
        order.sort_by(|one, other| worth.pods[*other].total_cmp(&worth.pods[*one]).then(one.cmp(other)));
        let dearest = order.first().map_or(1.0, |group| worth.pods[*group]);
        let mut rank = vec![0; order.len()];
        order.into_iter().enumerate().for_each(|(at, group)| rank[group] = at);
        Self { rank, dearest: dearest.max(f64::MIN_POSITIVE), steps: 0 }
    }

    /// Pods of those that are `left` for `machine`, and what they are worth by `values`.
    pub fn fill(
        &mut self,
        market: &Market,
        worth: &Worth,
        values: &[f64],
        machine: usize,
        left: &Left,
    ) -> (Vec<(usize, i64)>, f64) {
        let number = machine;
        let machine = &market.machines[number];
        let offered: Vec<(usize, i64)> =
            left.counted().filter(|(group, _)| machine.most[*group] > 0).collect();
        if offered.is_empty() {
            return (Vec::new(), 0.0);
        }
        let valued = offered.iter().map(|(group, left)| Offered {
            requests: &market.groups[*group].requests,
            most: machine.most[*group].min(*left),
            value: values[*group] * (1.0 + LARGER_FIRST * values[*group] / self.dearest),
        });
        let start = fullest(&valued.collect::<Vec<_>>(), &machine.room);
        self.steps += start.effort;
        let mut by_worth: Vec<usize> = (0..offered.len()).collect();
        by_worth.sort_unstable_by_key(|at| self.rank[offered[*at].0]);
        let mut room = machine.room.clone();
        let mut counts = vec![0_i64; offered.len()];
        let addable = by_worth.iter().map(|at| {
            let (group, left) = offered[*at];
            let requests = &market.groups[group].requests;
            let count = (start.pods[*at] + 1e-9).floor() as i64;
            let count = count.min(fitting(requests, &room)).min(left);
            take(&mut room, requests, count);
            counts[*at] = count;
            Addable { requests, value: values[group], left: left - count }
        });
        let groups = addable.collect();
        let resources = &worth.resources[number];
        let mut attempt =
            Attempt { groups, resources, tries: TRIES, best: 0.0, found: Vec::new(), path: Vec::new() };
        attempt.add(0, &mut room, 0.0);
        self.steps +=
            (TRIES - attempt.tries) * (market.width as u64 + 1) + (3 * left.groups()) as u64 + FILLING;
        for at in attempt.found {
            counts[by_worth[at]] += 1;
        }
        let pods = offered.into_iter().zip(counts).map(|((group, _), count)| (group, count));
        let pods: Vec<(usize, i64)> = pods.filter(|(_, count)| *count > 0).collect();
        let value = pods.iter().map(|(group, count)| *count as f64 * values[*group]).sum();
        (pods, value)
    }
}

impl Attempt<'_> {
    /// Adds pods from the `first` of the groups on.
    fn add(&mut self, first: usize, room: &mut [i64], value: f64) {
        if value > self.best {
            self.best = value;
            self.found.clone_from(&self.path);
        }
        let reach: f64 =
            self.resources.iter().zip(&*room).map(|(price, amount)| price * *amount as f64).sum();
        for at in first..self.groups.len() {
            if self.tries == 0 || value + reach <= self.best * (1.0 + 1e-9) {
                return;
            }
            self.tries -= 1;
            let Addable { requests, value: each, left } = self.groups[at];
            if left == 0 || !requests.iter().zip(&*room).all(|(asked, there)| asked <= there) {
                continue;
            }
            take(room, requests, 1);
            self.groups[at].left -= 1;
            self.path.push(at);
            self.add(at, room, value + each);
            self.path.pop();
            self.groups[at].left += 1;
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
