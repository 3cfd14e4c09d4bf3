//! Wishes, and the order in which they are given up.
//!
//! A wish is first treated as a demand. When no place meets it, one wish is dropped and everything is tried again; the
//! pod that is queued for a later try has all its wishes back, because a pod placed meanwhile may fulfil them.

use std::sync::Arc;

use super::PreferencePolicy;
use crate::model::pod::{PodShape, Weighted};
use crate::model::taint::{Effect, Toleration};

/// The shape that the first try goes by.
pub(super) fn first_try(shape: &Arc<PodShape>, policy: PreferencePolicy) -> Arc<PodShape> {
    let mut first = shape.clone();
    if policy == PreferencePolicy::Ignore {
        let first = Arc::make_mut(&mut first);
        first.node_preferred.clear();
        first.affinity_preferred.clear();
        first.anti_affinity_preferred.clear();
        first.spreads.retain(|spread| spread.is_required);
    }
    first
}

/// The same with one wish less; `None` if nothing is left to give up. `soft_taints`: some pool has a soft taint, so
/// tolerating it is worth a try.
pub(super) fn relaxed(shape: &PodShape, soft_taints: bool) -> Option<PodShape> {
    let mut next = shape.clone();
    let tolerates_soft = Toleration::all_of(Effect::PreferNoSchedule);
    if next.node_required.len() > 1 {
        next.node_required.remove(0);
    } else if !drop_heaviest(&mut next.affinity_preferred)
        && !drop_heaviest(&mut next.anti_affinity_preferred)
        && !drop_heaviest(&mut next.node_preferred)
    {
        if let Some(at) = next.spreads.iter().position(|spread| !spread.is_required) {
            next.spreads.remove(at);
        } else if soft_taints && !next.tolerations.contains(&tolerates_soft) {
            next.tolerations.push(tolerates_soft);
        } else {
            return None;
        }
    }
    Some(next)
}

/// Drops the first of the heaviest.
fn drop_heaviest<T>(wishes: &mut Vec<Weighted<T>>) -> bool {
    let heaviest = wishes.iter().enumerate().rev().max_by_key(|(_, (weight, _))| *weight).map(|(at, _)| at);
    heaviest.map(|at| wishes.remove(at)).is_some()
}
