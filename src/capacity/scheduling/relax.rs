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

/// After all was given up: the next of the earlier terms of `original` without its wishes. They were dropped before the wishes
/// were, and may have been refused for those alone. `None` if there is none, or nothing was given up but terms.
pub(super) fn with_earlier_term(original: &PodShape, last: &PodShape) -> Option<PodShape> {
    let [term] = &last.node_required[..] else { return None };
    let terms = &original.node_required;
    let has_given_up = PodShape { node_required: terms.clone(), ..last.clone() } != *original;
    let at = terms.iter().position(|known| known == term)?;
    let next = if at + 1 == terms.len() { 0 } else { at + 1 };
    let is_earlier = has_given_up && next + 1 < terms.len();
    is_earlier.then(|| PodShape { node_required: vec![terms[next].clone()], ..last.clone() })
}

/// Drops the first of the heaviest.
fn drop_heaviest<T>(wishes: &mut Vec<Weighted<T>>) -> bool {
    let heaviest = wishes.iter().enumerate().rev().max_by_key(|(_, (weight, _))| *weight).map(|(at, _)| at);
    heaviest.map(|at| wishes.remove(at)).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::label::Labels;
    use crate::model::pod::{NodeTerm, Spread};
    use crate::model::quantity::Resources;

    /// With a wish for a node and a soft spread.
    fn wishing() -> Arc<PodShape> {
        let spread = Spread {
            max_skew: 1,
            topology_key: "topology.kubernetes.io/zone".into(),
            is_required: false,
            selector: None,
            min_domains: None,
            honors_affinity: true,
            honors_taints: false,
            match_label_keys: Vec::new(),
        };
        Arc::new(PodShape {
            namespace: "default".into(),
            labels: Labels::new(),
            requests: Resources::new(),
            node_selector: Labels::new(),
            node_required: Vec::new(),
            node_preferred: vec![(1, NodeTerm { expressions: Vec::new(), has_fields: false })],
            affinity_required: Vec::new(),
            affinity_preferred: Vec::new(),
            anti_affinity_required: Vec::new(),
            anti_affinity_preferred: Vec::new(),
            spreads: vec![spread],
            tolerations: Vec::new(),
            host_ports: Vec::new(),
            volumes: Vec::new(),
            has_resource_claims: false,
            priority: 0,
            scheduler_name: "default-scheduler".into(),
            termination_grace_seconds: 30,
            do_not_disrupt: None,
            deletion_cost: 0,
        })
    }

    /// Rows: WEA-016
    #[test]
    fn what_is_ignored_is_not_given_up_one_by_one() {
        let tries = |policy| {
            let first = first_try(&wishing(), policy);
            std::iter::successors(Some((*first).clone()), |shape| relaxed(shape, false)).count()
        };
        assert_eq!((tries(PreferencePolicy::Respect), tries(PreferencePolicy::Ignore)), (3, 1));
    }
}
