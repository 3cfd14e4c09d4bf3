//! How a pool replaces its nodes over time: in waves as large as its budgets allow, with pauses while a window is closed.
//!
//! Only budgets and their schedules are asked; that a pod may not move, or has no other place, is not a matter of time.

use jiff::{SignedDuration, Timestamp};

use crate::capacity::disruption::budgets::{allowed, next_change_for};
use crate::model::pool::{DisruptionReason, NodePool};

/// What one wave takes: a machine boots, its node becomes ready, and the old one is drained.
pub const WAVE: SignedDuration = SignedDuration::from_mins(5);
/// Nobody plans further ahead.
const HORIZON: SignedDuration = SignedDuration::from_hours(14 * 24);

/// A roll as it would go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timetable {
    /// When each wave starts, and how many nodes go with it.
    pub waves: Vec<(Timestamp, u32)>,
    /// From when until when nothing may go.
    pub pauses: Vec<(Timestamp, Timestamp)>,
    /// Nodes that are left in the end, because no window lets them go.
    pub left: u32,
}

impl Timetable {
    /// When the last wave is through; `None` if some nodes never go.
    pub fn end(&self) -> Option<Timestamp> {
        let (last, _) = self.waves.last().filter(|_| self.left == 0)?;
        last.checked_add(WAVE).ok()
    }
}

/// Replaces `nodes` of the `total` that `pool` has, `away` of them being away all the time, with at most `most` in one wave.
pub fn timetable(
    pool: &NodePool,
    total: u32,
    away: u32,
    nodes: u32,
    most: u32,
    start: Timestamp,
) -> Timetable {
    let mut table = Timetable { left: nodes, ..Timetable::default() };
    let mut now = start;
    while table.left > 0 && now.duration_since(start) <= HORIZON {
        // A budget that cannot be read closes all of them.
        let allowed = allowed(&pool.disruption.budgets, DisruptionReason::Drifted, total, now).unwrap_or(0);
        let wave = allowed.saturating_sub(away).min(most).min(table.left);
        if wave > 0 {
            table.waves.push((now, wave));
            table.left -= wave;
            now += WAVE;
            continue;
        }
        let Some(change) = next_change_for(pool, DisruptionReason::Drifted, now) else { break };
        match table.pauses.last_mut() {
            Some((_, until)) if *until == now => *until = change,
            _ => table.pauses.push((now, change)),
        }
        now = change;
    }
    if table.left > 0 {
        // What never ends is no pause.
        table.pauses.clear();
    }
    table
}
