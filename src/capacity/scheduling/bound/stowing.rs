//! The most that one machine carries in value when pods stay whole: tried from the most valuable for their size on, as long as what is
//! left of the room could still make it better.

use super::market::{Group, Machine};

/// Room of resources that cost nothing is worth so much of the machine's price, so that sizes can be told apart.
const LEAST_WORTH: f64 = 1e-3;

pub(in super::super) struct Stowed {
    /// The best filling that was found, by group; empty if none is worth more than was asked.
    pub pods: Vec<(usize, i64)>,
    /// What it is worth, or what was asked.
    pub value: f64,
    /// No filling is worth more.
    pub is_best: bool,
    /// How much work it was.
    pub effort: u64,
}

/// A group that is offered.
struct Offered {
    group: usize,
    most: i64,
    value: f64,
    /// Value for size.
    density: f64,
}

struct Trial {
    offered: Vec<Offered>,
    /// What each that is offered asks for, one after the other: whole numbers that floating point keeps exactly.
    requests: Vec<f64>,
    /// What a unit of each resource is worth in sizes.
    resources: Vec<f64>,
    tries: u64,
    best: f64,
    found: Vec<(usize, i64)>,
    path: Vec<(usize, i64)>,
}

/// The filling of `machine` that is worth the most, if that is more than `floor`, in at most so many `tries`. `most`: of each group, the
/// most that there are for it. `resources`: what a unit of each is worth about.
pub(in super::super) fn stowed(
    groups: &[Group],
    machine: &Machine,
    most: &[i64],
    values: &[f64],
    resources: &[f64],
    floor: f64,
    tries: u64,
) -> Stowed {
    let share = LEAST_WORTH * (machine.price.max(1) as f64) / machine.room.len().max(1) as f64;
    let resources: Vec<f64> = resources
        .iter()
        .zip(&machine.room)
        .map(|(price, room)| price + share / (*room).max(1) as f64)
        .collect();
    let is_offered = |group: &usize| most[*group] > 0 && values[*group] > 0.0;
    let offered = (0..groups.len()).filter(is_offered).map(|group| {
        let requests = groups[group].requests.iter().zip(&resources);
        let size: f64 = requests.map(|(amount, price)| *amount as f64 * price).sum();
        let density = values[group] / size.max(f64::MIN_POSITIVE);
        Offered { group, most: most[group], value: values[group], density }
    });
    let mut offered: Vec<Offered> = offered.collect();
    offered.sort_by(|one, other| {
        let by = other.density.total_cmp(&one.density).then(other.value.total_cmp(&one.value));
        by.then(one.group.cmp(&other.group))
    });
    let requests =
        offered.iter().flat_map(|of| groups[of.group].requests.iter().map(|amount| *amount as f64));
    let requests = requests.collect();
    let mut trial =
        Trial { offered, requests, resources, tries, best: floor, found: Vec::new(), path: Vec::new() };
    let mut room: Vec<f64> = machine.room.iter().map(|amount| *amount as f64).collect();
    let is_best = trial.add(0, &mut room, 0.0);
    Stowed {
        effort: (tries - trial.tries) * machine.room.len() as u64 + trial.offered.len() as u64,
        pods: trial.found,
        value: trial.best,
        is_best,
    }
}

impl Trial {
    /// Adds pods of the groups from the `first` on; `false` if not all was tried that could be better.
    fn add(&mut self, first: usize, room: &mut [f64], value: f64) -> bool {
        if value > self.best {
            self.best = value;
            self.found.clone_from(&self.path);
        }
        let reach: f64 = self.resources.iter().zip(&*room).map(|(price, amount)| price * amount).sum();
        for at in first..self.offered.len() {
            let Offered { group, density, most, value: each, .. } = self.offered[at];
            // Nobody from here on is worth more for its size.
            if value + reach * density <= self.best * (1.0 + 1e-12) {
                return true;
            }
            if self.tries == 0 {
                return false;
            }
            self.tries -= 1;
            let mut fitting = most as f64;
            for (asked, there) in self.requests_of(at).iter().zip(&*room) {
                if *asked > 0.0 {
                    fitting = fitting.min(there / asked);
                }
            }
            let fitting = fitting as i64;
            for count in (1..=fitting).rev() {
                self.shift(at, room, -(count as f64));
                self.path.push((group, count));
                let is_done = self.add(at + 1, room, value + each * count as f64);
                self.path.pop();
                self.shift(at, room, count as f64);
                if !is_done {
                    return false;
                }
            }
        }
        true
    }

    fn requests_of(&self, at: usize) -> &[f64] {
        let width = self.resources.len();
        &self.requests[at * width..][..width]
    }

    fn shift(&self, at: usize, room: &mut [f64], count: f64) {
        room.iter_mut().zip(self.requests_of(at)).for_each(|(there, asked)| *there += asked * count);
    }
}
