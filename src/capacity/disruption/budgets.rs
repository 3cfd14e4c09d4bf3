//! How many nodes of a pool may be away at once.
//!
//! A budget limits how many are away, not how many leave in a time: nodes that are on their way out or not ready use it up
//! whatever the cause. Schedules are read in UTC. One budget that cannot be read closes all of them: a freeze must not end
//! because of a typing error.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::command::is_leaving;
use super::{renewal, windows};
use crate::capacity::cluster::Cluster;
use crate::model::claim::ConditionType;
use crate::model::count::{agreeing, counted};
use crate::model::name::PoolName;
use crate::model::pool::{Budget, BudgetNodes, DisruptionReason, NodePool};

/// No budget applies.
pub const UNLIMITED: u32 = i32::MAX as u32;

/// What a pool's budgets allow at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Nodes that count.
    pub nodes: u32,
    /// Of these, on their way out or not ready.
    pub away: u32,
    /// Of these, on their way out.
    pub leaving: u32,
    pub allowed: u32,
    /// What cannot be read about the pool's budgets.
    pub fault: Option<String>,
    /// Why the pool's windows let nothing go, whatever its budgets say.
    pub shut: Option<String>,
}

impl Allowance {
    pub fn remaining(&self) -> u32 {
        self.allowed.saturating_sub(self.away)
    }

    /// One more is on its way out.
    pub(super) fn take(&mut self) {
        self.away += 1;
        self.leaving += 1;
    }

    /// Whether there is no room, and none will come of what is under way.
    pub(super) fn is_closed(&self) -> bool {
        self.remaining() == 0 && (self.allowed == 0 || self.leaving == 0)
    }

    /// Why nothing more may go, in one word.
    pub(super) fn code(&self) -> &'static str {
        if self.shut.is_some() { "OutsideWindow" } else { "BudgetExhausted" }
    }

    /// Why nothing more may go, for people.
    pub fn why(&self, pool: PoolName, reason: DisruptionReason) -> String {
        if let Some(why) = &self.shut {
            return why.clone();
        }
        if let Some(fault) = &self.fault {
            return format!("a budget of pool {pool} cannot be read, so nothing of it may go: {fault}");
        }
        let (allowed, away) = (self.allowed, self.away);
        if allowed == 0 {
            return format!(
                "the budgets of pool {pool} allow no disruption for reason {} now",
                reason.as_str()
            );
        }
        format!(
            "the budget of pool {pool} is used up: {allowed} of {} may be away for reason {}, {away} {}",
            counted(self.nodes, "node"),
            reason.as_str(),
            agreeing(away, "is", "are")
        )
    }
}

/// The allowance of every pool for `reason` at `now`.
pub fn allowances(
    cluster: &Cluster,
    reason: DisruptionReason,
    now: Timestamp,
) -> BTreeMap<PoolName, Allowance> {
    let mut counted: BTreeMap<PoolName, (u32, u32, u32)> = BTreeMap::new();
    for node in cluster.nodes.values() {
        let Some(claim) = cluster.claim_of(node) else { continue };
        let Some(pool) = claim.pool() else { continue };
        let counts = claim.conditions.is_true(ConditionType::Initialized)
            && !claim.conditions.is_true(ConditionType::InstanceTerminating);
        if counts {
            let (nodes, away, leaving) = counted.entry(pool).or_default();
            *nodes += 1;
            let leaves = node.deleted.is_some() || is_leaving(claim);
            *away += u32::from(leaves || !node.is_ready());
            *leaving += u32::from(leaves);
        }
    }
    let of_pool = |pool: &NodePool| {
        let (nodes, away, leaving) = counted.get(&pool.name).copied().unwrap_or_default();
        let (allowed, fault) = match allowed_of(pool, reason, nodes, now) {
            Ok(allowed) => (allowed, None),
            Err(fault) => (0, Some(fault)),
        };
        let shut = windows::shut(pool, reason, now);
        let allowed = if shut.is_some() { 0 } else { allowed };
        (pool.name, Allowance { nodes, away, leaving, allowed, fault, shut })
    };
    cluster.pools.values().map(|pool| of_pool(pool)).collect()
}

/// The least that a budget of `pool` allows of its `nodes`, windows aside.
fn allowed_of(pool: &NodePool, reason: DisruptionReason, nodes: u32, now: Timestamp) -> Result<u32, String> {
    Ok(allowed(&pool.disruption.budgets, reason, nodes, now)?.min(share_for_renewal(pool, reason, nodes)))
}

/// What the pool's own term for renewing lets go of its `nodes`.
fn share_for_renewal(pool: &NodePool, reason: DisruptionReason, nodes: u32) -> u32 {
    let own = renewal::asked(pool).and_then(|asked| asked.nodes);
    own.filter(|_| reason == DisruptionReason::Expired).map_or(UNLIMITED, |own| share(own, nodes))
}

/// So many openings and closings of budgets and windows are looked ahead, and back.
const EDGES_MAX: usize = 64;

/// When more nodes of `pool` may go for `reason` than `allowance` has away already, if nothing but the time changes.
pub(super) fn opens(
    pool: &NodePool,
    reason: DisruptionReason,
    allowance: &Allowance,
    now: Timestamp,
) -> Option<Timestamp> {
    if is_used_up_at_any_time(pool, reason, allowance) {
        return None;
    }
    let is_open = |at: &Timestamp| {
        windows::shut(pool, reason, *at).is_none()
            && allowed_of(pool, reason, allowance.nodes, *at).is_ok_and(|allowed| allowed > allowance.away)
    };
    let edges = std::iter::successors(next_change(pool, now), |edge| next_change(pool, *edge));
    edges.take(EDGES_MAX).find(is_open)
}

/// Whether what does not depend on the time lets no more go: the calendar need not be asked.
fn is_used_up_at_any_time(pool: &NodePool, reason: DisruptionReason, allowance: &Allowance) -> bool {
    let always = pool.disruption.budgets.iter().filter(|budget| budget.window.is_none());
    let shares = always
        .filter(|budget| budget.applies_to(reason))
        .map(|budget| share(budget.nodes, allowance.nodes))
        .chain([share_for_renewal(pool, reason, allowance.nodes)]);
    allowance.fault.is_some() || shares.min().is_some_and(|least| least <= allowance.away)
}

/// Since when the time of the day lets no node of `pool` go for `reason`; `None`: it does, or did so for longer than one can say.
pub(super) fn closed_since(pool: &NodePool, reason: DisruptionReason, now: Timestamp) -> Option<Timestamp> {
    if windows::shut(pool, reason, now).is_some() {
        return windows::shut_since(pool, reason, now);
    }
    let closes = |budget: &&Budget| {
        budget.applies_to(reason) && matches!(budget.nodes, BudgetNodes::Count(0) | BudgetNodes::Percent(0))
    };
    let closing = pool.disruption.budgets.iter().filter(closes);
    let active = closing.filter(|budget| is_active(budget, now).unwrap_or(true));
    let since: Option<Vec<Timestamp>> = active.map(|budget| active_since(budget, now)).collect();
    since?.into_iter().min()
}

/// Since when the window of `budget` is open at `now` without a pause; `None`: always, or nobody can tell.
fn active_since(budget: &Budget, now: Timestamp) -> Option<Timestamp> {
    let window = budget.window.as_ref()?;
    let earliest = |at: Timestamp| at.checked_sub(window.duration).ok();
    let mut since = window.schedule.next_after(earliest(now)?).ok()?.filter(|begun| *begun <= now)?;
    for _ in 0..EDGES_MAX {
        let before = earliest(since).and_then(|from| window.schedule.next_from(from).ok()?);
        match before.filter(|earlier| *earlier < since) {
            Some(earlier) => since = earlier,
            None => return Some(since),
        }
    }
    None
}

/// The least that an applicable budget allows of `nodes`.
pub fn allowed(
    budgets: &[Budget],
    reason: DisruptionReason,
    nodes: u32,
    now: Timestamp,
) -> Result<u32, String> {
    let mut allowed = UNLIMITED;
    for budget in budgets {
        // Read first: one that nobody can read closes all.
        if is_active(budget, now)? && budget.applies_to(reason) {
            allowed = allowed.min(share(budget.nodes, nodes));
        }
    }
    Ok(allowed)
}

/// How many of `nodes` that is.
fn share(of: BudgetNodes, nodes: u32) -> u32 {
    match of {
        BudgetNodes::Count(count) => count,
        BudgetNodes::Percent(percent) => (u64::from(nodes) * u64::from(percent)).div_ceil(100) as u32,
    }
}

/// A window is open at `now` if it last began less than its duration ago.
fn is_active(budget: &Budget, now: Timestamp) -> Result<bool, String> {
    let Some(window) = &budget.window else { return Ok(true) };
    let Ok(since) = now.checked_sub(window.duration) else { return Ok(true) };
    Ok(window.schedule.next_after(since)?.is_some_and(|begins| begins <= now))
}

/// The next moment at which a budget of `pool`, or a window, opens or closes.
pub fn next_change(pool: &NodePool, now: Timestamp) -> Option<Timestamp> {
    let edges = pool.disruption.budgets.iter().filter_map(|budget| next_edge(budget, now));
    edges.chain(windows::next_change(pool, now)).min()
}

/// The same, without budgets that have nothing to say about `reason`.
pub fn next_change_for(pool: &NodePool, reason: DisruptionReason, now: Timestamp) -> Option<Timestamp> {
    let budgets = pool.disruption.budgets.iter().filter(|budget| budget.applies_to(reason));
    let edges = budgets.filter_map(|budget| next_edge(budget, now));
    edges.chain(windows::next_change(pool, now)).min()
}

fn next_edge(budget: &Budget, now: Timestamp) -> Option<Timestamp> {
    let window = budget.window.as_ref()?;
    let next = |after: Timestamp| window.schedule.next_after(after).ok()?;
    let begun = now.checked_sub(window.duration).ok().and_then(next);
    let closes = begun.and_then(|begun| begun.checked_add(window.duration).ok());
    [next(now), closes].into_iter().flatten().filter(|edge| *edge > now).min()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::pool::BudgetWindow;
    use crate::model::time::parse_duration;
    use DisruptionReason::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn budget(nodes: BudgetNodes, reasons: &[DisruptionReason]) -> Budget {
        Budget { nodes, reasons: reasons.to_vec(), window: None }
    }

    fn in_window(schedule: &str, duration: &str) -> Budget {
        let window = BudgetWindow { schedule: schedule.into(), duration: parse_duration(duration).unwrap() };
        Budget { nodes: BudgetNodes::Count(0), reasons: Vec::new(), window: Some(window) }
    }

    const JUNE: &str = "2026-06-15T12:00:00Z";

    fn allows(budgets: &[Budget], reason: DisruptionReason, nodes: u32, when: &str) -> u32 {
        allowed(budgets, reason, nodes, at(when)).unwrap()
    }

    /// Rows: DIS-092, DIS-093, DIS-096, DIS-097
    #[test]
    fn dis_092_the_least_applicable_budget_counts() {
        let mut budgets = vec![
            budget(BudgetNodes::Count(10), &[]),
            budget(BudgetNodes::Count(100), &[]),
            budget(BudgetNodes::Percent(100), &[]),
            budget(BudgetNodes::Count(15), &[Drifted, Underutilized]),
            budget(BudgetNodes::Count(5), &[Drifted]),
            in_window("@weekly", "1h"),
        ];
        let all = |budgets: &[Budget]| {
            [Empty, Underutilized, Drifted].map(|reason| allows(budgets, reason, 100, JUNE))
        };
        assert_eq!(all(&budgets), [10, 10, 5]);
        budgets.push(budget(BudgetNodes::Count(4), &[Empty]));
        assert_eq!(all(&budgets), [4, 10, 5]);
    }

    /// Rows: DIS-094, DIS-095, DIS-098, DIS-099, DIS-100
    #[test]
    fn dis_094_closed_unlimited_and_unreadable() {
        assert_eq!(allows(&[in_window("@daily", "24h")], Empty, 9, JUNE), 0);
        assert_eq!(allows(&[], Empty, 9, JUNE), UNLIMITED);
        assert_eq!(allows(&[budget(BudgetNodes::Count(3), &[])], Empty, 9, JUNE), 3);
        for schedule in ["@wrongly", "0 0 * * tue-mon", "* * * *", "60 * * * *"] {
            let budgets = [budget(BudgetNodes::Count(9), &[Drifted]), in_window(schedule, "1h")];
            assert!(allowed(&budgets, Empty, 9, at(JUNE)).is_err(), "{schedule}");
        }
    }

    /// Rows: DIS-101, DIS-102, DIS-103, DIS-104, DIS-105
    #[test]
    fn dis_101_windows_are_open_for_their_duration_in_utc() {
        for (schedule, duration, when, is_open) in [
            ("* * * * *", "1h", JUNE, true),
            ("@yearly", "1h", JUNE, false),
            ("@yearly", "24h", "2026-01-01T12:00:00Z", true),
            ("@daily", "48h", JUNE, true),
            ("30 6 * * SUN", "6h", "2026-06-14T00:00:00Z", false),
            ("30 6 * * SUN", "6h", "2026-06-14T06:30:00Z", true),
            ("30 6 * * SUN", "6h", "2026-06-14T12:30:00Z", false),
            ("@daily", "30m", "2026-06-15T00:00:00+01:00", false),
            ("0 9 * * mon-fri", "8h", "2026-03-04T10:30:00Z", true),
            ("0 9 * * mon-fri", "8h", "2026-03-07T10:30:00Z", false),
        ] {
            let allowed = allows(&[in_window(schedule, duration)], Empty, 9, when);
            assert_eq!(allowed == 0, is_open, "{schedule} for {duration} at {when}");
        }
    }

    #[test]
    fn dis_106_percentages_round_up() {
        for (percent, nodes, expected) in
            [(50, 3, 2), (5, 10, 1), (20, 5, 1), (0, 10, 0), (100, 10, 10), (20, 7, 2)]
        {
            assert_eq!(allows(&[budget(BudgetNodes::Percent(percent), &[])], Empty, nodes, JUNE), expected);
        }
    }
}
