//! Who comes first where not everybody finds a place: the more important pod.
//!
//! Otherwise priority plays no part: as long as all have a place, the order is that of the cheaper plan. Who runs already is not
//! touched either; it is kube-scheduler that evicts the less important.

use std::collections::BTreeMap;

use super::super::ground::Ground;
use super::super::{Request, Solution};
use super::{Turn, answer};
use crate::model::hash::FastSet;
use crate::model::name::ObjectKey;
use crate::model::quantity::{Bytes, Millicores};

/// How many pods of one priority have no place.
type Unserved = (i32, usize);

/// An answer to `request` that leaves over fewer of the more important pods than `first`.
pub(super) fn fairer(ground: &mut Ground, request: &Request, first: &Solution) -> Option<Solution> {
    let left = unserved(request, first);
    let (highest, _) = *left.first()?;
    let mut others = request.pods.iter().filter(|pod| pod.buffer().is_none());
    if others.all(|pod| pod.shape.priority >= highest) {
        return None;
    }
    let second = answer(ground, request, Turn::BY_PRIORITY);
    (unserved(request, &second) < left).then_some(second)
}

/// Pods without a place, the most important first: the smaller of two such lists is the better one.
pub(super) fn unserved(request: &Request, solution: &Solution) -> Vec<Unserved> {
    if solution.unschedulable.is_empty() {
        return Vec::new();
    }
    let left: FastSet<ObjectKey> = solution.unschedulable.iter().map(|left| left.pod).collect();
    let mut counts: BTreeMap<i32, usize> = BTreeMap::new();
    for pod in request.pods.iter().filter(|pod| left.contains(&pod.key)) {
        *counts.entry(pod.shape.priority).or_default() += 1;
    }
    counts.into_iter().rev().collect()
}

/// CPU and memory that pods without a place ask for.
pub(super) fn unserved_requests(request: &Request, solution: &Solution) -> (Millicores, Bytes) {
    let mut sums = (Millicores(0), Bytes(0));
    if solution.unschedulable.is_empty() {
        return sums;
    }
    let left: FastSet<ObjectKey> = solution.unschedulable.iter().map(|left| left.pod).collect();
    for pod in request.pods.iter().filter(|pod| left.contains(&pod.key)) {
        sums.0.0 = sums.0.0.saturating_add(pod.shape.requests.cpu().0);
        sums.1.0 = sums.1.0.saturating_add(pod.shape.requests.memory().0);
    }
    sums
}
