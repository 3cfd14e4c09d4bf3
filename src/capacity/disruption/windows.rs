//! Times of the week in which nodes of a pool may go, by the clock of a place.
//!
//! They close a pool for a reason as a budget of no nodes would. What has begun when a window closes is finished; what was only
//! decided is not begun.

use jiff::Timestamp;

use crate::model::pool::{DisruptionReason, NodePool};

/// Why nothing of `pool` may go for `reason` at `now`, if that is so. Windows that nobody can read are closed.
pub(crate) fn shut(pool: &NodePool, reason: DisruptionReason, now: Timestamp) -> Option<String> {
    match &pool.terms.windows.as_ref()?.meaning {
        Ok(windows) => windows.closed(reason, now).map(|closed| format!("pool {} is {closed}", pool.name)),
        Err(_) => Some(format!(
            "the windows of pool {} cannot be read (provisor.dev/windows), so nothing of it may go",
            pool.name
        )),
    }
}

/// When nodes of `pool` may go for `reason` at the earliest, if they may not at `now`; `None` in it: nobody knows.
pub(crate) fn opens(pool: &NodePool, reason: DisruptionReason, now: Timestamp) -> Option<Option<Timestamp>> {
    match &pool.terms.windows.as_ref()?.meaning {
        Ok(windows) => windows.closed(reason, now).map(|closed| closed.until),
        Err(_) => Some(None),
    }
}

/// Since when nodes of `pool` may not go for `reason`, if they may not at `now`; `None`: nobody knows.
pub(crate) fn shut_since(pool: &NodePool, reason: DisruptionReason, now: Timestamp) -> Option<Timestamp> {
    pool.terms.windows.as_ref()?.meaning.as_ref().ok()?.closed_since(reason, now)
}

/// The next moment at which some window of `pool` opens or closes.
pub(crate) fn next_change(pool: &NodePool, now: Timestamp) -> Option<Timestamp> {
    pool.terms.windows.as_ref()?.meaning.as_ref().ok()?.next_change(now)
}
