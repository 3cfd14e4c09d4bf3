//! The most that one machine carries in value when pods may be cut into pieces: a linear program with one row per resource and
//! bounds on every group, by the simplex method.
//!
//! What comes out is a proposal: a filling, and what the last unit of each resource is worth. Nothing relies on its being the best.

/// Smaller than this is nothing.
const TINY: f64 = 1e-9;

/// Equal pods that a machine could carry.
pub(in super::super) struct Offered<'a> {
    pub requests: &'a [i64],
    /// How many of them it could carry at the most; more than none.
    pub most: i64,
    /// Of one pod.
    pub value: f64,
}

pub(in super::super) struct Filling {
    /// Of each that was offered, pods and parts of pods.
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

/// The most valuable filling of a machine with that much `room`.
pub(in super::super) fn fullest(offered: &[Offered], room: &[i64]) -> Filling {
    let width = room.len();
    // Each column is all that the machine could take of one offer, from 0 to 1; then one for what is left of each resource.
    let count = offered.len() + width;
    let mut gain = vec![0.0; count];
    let mut rows = vec![vec![0.0; count]; width];
    for (column, Offered { requests, most, value }) in offered.iter().enumerate() {
        let most = *most as f64;
        gain[column] = value * most;
        for (row, (asked, room)) in rows.iter_mut().zip(requests.iter().zip(room)) {
            row[column] = *asked as f64 * most / (*room).max(1) as f64;
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
        let worth = |column: usize| match stands[column] {
            Stand::Empty => gain[column],
            Stand::Full => -gain[column],
            Stand::Basic => 0.0,
        };
        let (mut entering, mut most) = (count, tiny);
        for column in 0..count {
            let worth = worth(column);
            if worth > most {
                (entering, most) = (column, worth);
            }
        }
        if entering == count {
            break;
        }
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
    let share = |column: usize| match stands[column] {
        Stand::Empty => 0.0,
        Stand::Full => 1.0,
        Stand::Basic => {
            let row = basis.iter().position(|basic| *basic == column);
            row.map_or(0.0, |row| level[row].clamp(0.0, 1.0))
        }
    };
    let pods = offered.iter().enumerate().map(|(column, offered)| share(column) * offered.most as f64);
    let resources = room
        .iter()
        .enumerate()
        .map(|(resource, room)| (-gain[offered.len() + resource]).max(0.0) / (*room).max(1) as f64);
    Filling { pods: pods.collect(), resources: resources.collect(), effort }
}
