//! The most that one machine carries in value when pods may be cut into pieces: a linear program with one row per resource and
//! bounds on every group, by the simplex method.
//!
//! What comes out is a proposal: a filling, and what the last unit of each resource is worth. Nothing relies on its being the best.

use super::market::{Group, Machine};

/// Smaller than this is nothing.
const TINY: f64 = 1e-9;

pub(in super::super) struct Filling {
    /// By group, pods and parts of pods.
    pub pods: Vec<f64>,
    /// What a unit of each resource is worth.
    pub resources: Vec<f64>,
    /// How much work it was.
    pub effort: u64,
}

/// Where a column stands.
#[derive(Clone, Copy, PartialEq)]
enum Stand {
    Empty,
    Full,
    Basic,
}

/// The most valuable filling of `machine`; `values`: of one pod of each group.
pub(in super::super) fn fullest(groups: &[Group], machine: &Machine, values: &[f64]) -> Filling {
    let width = machine.room.len();
    let is_of_use = |group: &usize| machine.most[*group] > 0 && values[*group] > 0.0;
    let offered: Vec<usize> = (0..groups.len()).filter(is_of_use).collect();
    // Each column is all that the machine could take of one group, from 0 to 1; then one for what is left of each resource.
    let count = offered.len() + width;
    let mut gain = vec![0.0; count];
    let mut rows = vec![vec![0.0; count]; width];
    for (column, group) in offered.iter().enumerate() {
        let most = machine.most[*group] as f64;
        gain[column] = values[*group] * most;
        for (resource, row) in rows.iter_mut().enumerate() {
            let room = machine.room[resource].max(1) as f64;
            row[column] = groups[*group].requests[resource] as f64 * most / room;
        }
    }
    for (resource, row) in rows.iter_mut().enumerate() {
        row[offered.len() + resource] = 1.0;
    }
    let mut stands = vec![Stand::Empty; offered.len()];
    stands.resize(count, Stand::Basic);
    let mut basis: Vec<usize> = (offered.len()..count).collect();
    let mut level: Vec<f64> = vec![1.0; width];
    let tiny = TINY * gain.iter().copied().fold(0.0, f64::max);
    let mut effort = 0;
    for _ in 0..(4 * count + 20) {
        effort += count as u64;
        let worth = |column: &usize| match stands[*column] {
            Stand::Empty => gain[*column],
            Stand::Full => -gain[*column],
            Stand::Basic => 0.0,
        };
        let best = (0..count).max_by(|one, other| worth(one).total_cmp(&worth(other)).then(other.cmp(one)));
        let Some(entering) = best.filter(|column| worth(column) > tiny) else { break };
        let direction = if stands[entering] == Stand::Empty { 1.0 } else { -1.0 };
        // How far it goes until it, or a basic column, comes to an end.
        let mut step = if entering < offered.len() { 1.0 } else { f64::INFINITY };
        let mut leaving: Option<(usize, Stand)> = None;
        for (at, row) in rows.iter().enumerate() {
            let slope = row[entering] * direction;
            let (until, stand) = if slope > TINY {
                (level[at].max(0.0) / slope, Stand::Empty)
            } else if slope < -TINY && basis[at] < offered.len() {
                ((1.0 - level[at]).max(0.0) / -slope, Stand::Full)
            } else {
                continue;
            };
            if until < step {
                (step, leaving) = (until, Some((at, stand)));
            }
        }
        if !step.is_finite() {
            break;
        }
        for (at, row) in rows.iter().enumerate() {
            level[at] -= row[entering] * direction * step;
        }
        match leaving {
            None => {
                stands[entering] = if direction > 0.0 { Stand::Full } else { Stand::Empty };
            }
            Some((at, stand)) => {
                effort += (count * (width + 1)) as u64;
                let start = if direction > 0.0 { 0.0 } else { 1.0 };
                stands[basis[at]] = stand;
                basis[at] = entering;
                stands[entering] = Stand::Basic;
                level[at] = start + direction * step;
                let pivot = rows[at][entering];
                rows[at].iter_mut().for_each(|cell| *cell /= pivot);
                let turned = rows[at].clone();
                for (other, row) in rows.iter_mut().enumerate() {
                    let factor = row[entering];
                    if other != at && factor != 0.0 {
                        row.iter_mut().zip(&turned).for_each(|(cell, by)| *cell -= factor * by);
                    }
                }
                let factor = gain[entering];
                gain.iter_mut().zip(&turned).for_each(|(cell, by)| *cell -= factor * by);
            }
        }
    }
    let mut pods = vec![0.0; groups.len()];
    for (column, group) in offered.iter().enumerate() {
        let share = match stands[column] {
            Stand::Empty => 0.0,
            Stand::Full => 1.0,
            Stand::Basic => {
                let row = basis.iter().position(|basic| *basic == column);
                row.map_or(0.0, |row| level[row].clamp(0.0, 1.0))
            }
        };
        pods[*group] = share * machine.most[*group] as f64;
    }
    let resources = (0..width).map(|resource| {
        let room = machine.room[resource].max(1) as f64;
        (-gain[offered.len() + resource]).max(0.0) / room
    });
    Filling { pods, resources: resources.collect(), effort }
}
