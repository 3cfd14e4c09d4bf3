//! Who comes first where not everybody finds a place: the more important pod.
//!
//! Otherwise priority plays no part: as long as all have a place, the order is that of the cheaper plan. Who runs already is not
//! touched either; it is kube-scheduler that evicts the less important.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::ground::Ground;
use super::super::{Code, Request, Solution, Unschedulable};
use super::{By, Grievances, Search, Turn, answer};
use crate::model::hash::FastSet;
use crate::model::name::ObjectKey;
use crate::model::pod::{Pod, PodShape};
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

/// An answer to `request` that leaves over fewer pods than `first`, because what limits allow of pools goes first to equals of those that
/// `first` leaves over for them; and who those are.
pub(super) fn left_over_first(
    ground: &mut Ground,
    request: &Request,
    first: &Solution,
    turn: Turn,
) -> Option<(Solution, Grievances)> {
    let is_limited =
        |left: &&Unschedulable| left.reasons.iter().any(|reason| reason.code == Code::LimitReached);
    let left: FastSet<ObjectKey> =
        first.unschedulable.iter().filter(is_limited).map(|left| left.pod).collect();
    if left.is_empty() {
        return None;
    }
    let is_left = |pod: &&Arc<Pod>| left.contains(&pod.key);
    let shapes: FastSet<&Arc<PodShape>> = request.pods.iter().filter(is_left).map(|pod| &pod.shape).collect();
    let equals = request.pods.iter().filter(|pod| shapes.contains(&pod.shape));
    let grievances: Grievances = equals.map(|pod| (pod.key, i64::MAX)).collect();
    let turn = Turn { by: By::Grievance, ..turn };
    let mut search = Search { turn, grievances: grievances.clone(), ..Search::begin(request, ground) };
    search.run();
    let second = search.solution();
    (unserved(request, &second) < unserved(request, first)).then_some((second, grievances))
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
