//! How many pods of each disruption budget may be away, as the disruption controller of Kubernetes counts them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Workload;
use crate::model::name::{Namespace, ObjectKey, Uid};
use crate::model::pod::Pod;
use crate::model::workload::{CountOrPercent, PodDisruptionBudget};

/// Counted as pods come and go: thousands are evicted one by one.
#[derive(Clone, Debug, Default)]
pub(super) struct Protection {
    standings: BTreeMap<Namespace, BTreeMap<ObjectKey, Standing>>,
}

#[derive(Clone, Debug)]
struct Standing {
    budget: Arc<PodDisruptionBudget>,
    /// Those that it selects and that have not finished.
    pods: i64,
    /// Those of them that are ready and stay.
    healthy: i64,
    /// Those of them that each controller has.
    owners: BTreeMap<Uid, i64>,
}

impl Protection {
    pub fn take_in<'p>(
        &mut self,
        budget: &Arc<PodDisruptionBudget>,
        pods: impl Iterator<Item = &'p Arc<Pod>>,
    ) {
        let budget = budget.clone();
        let mut standing = Standing { budget, pods: 0, healthy: 0, owners: BTreeMap::new() };
        pods.for_each(|pod| standing.count(pod, 1));
        let key = standing.budget.key;
        self.standings.entry(key.namespace).or_default().insert(key, standing);
    }

    pub fn forget(&mut self, budget: ObjectKey) {
        self.standings.get_mut(&budget.namespace).and_then(|standings| standings.remove(&budget));
    }

    /// A pod was as `before`, and is as `after` now.
    pub fn see(&mut self, before: Option<&Pod>, after: Option<&Pod>) {
        let namespace = before.or(after).map(|pod| pod.key.namespace);
        let standings = namespace.and_then(|namespace| self.standings.get_mut(&namespace));
        for standing in standings.into_iter().flat_map(BTreeMap::values_mut) {
            before.into_iter().for_each(|pod| standing.count(pod, -1));
            after.into_iter().for_each(|pod| standing.count(pod, 1));
        }
    }

    /// The budget that keeps `pod` where it is.
    pub fn keeps(
        &self,
        pod: &Pod,
        workloads: &BTreeMap<ObjectKey, Workload>,
    ) -> Option<&PodDisruptionBudget> {
        let keeps = |standing: &&Standing| {
            standing.selects(pod)
                && (pod.is_ready || !standing.budget.always_allows_unhealthy)
                && standing.allowed(workloads) == 0
        };
        let mut standings = self.standings.get(&pod.key.namespace)?.values();
        standings.find(keeps).map(|standing| &*standing.budget)
    }
}

impl Standing {
    fn selects(&self, pod: &Pod) -> bool {
        let selector = self.budget.selector.as_ref();
        pod.key.namespace == self.budget.key.namespace
            && selector.is_some_and(|selector| selector.selects(&pod.shape.labels))
    }

    fn count(&mut self, pod: &Pod, times: i64) {
        if pod.is_terminal() || !self.selects(pod) {
            return;
        }
        self.pods += times;
        self.healthy += if pod.is_ready && pod.deleted.is_none() { times } else { 0 };
        if let Some(owner) = pod.controller() {
            let count = self.owners.entry(owner.uid).or_default();
            *count += times;
            if *count == 0 {
                self.owners.remove(&owner.uid);
            }
        }
    }

    /// How many may be away now.
    fn allowed(&self, workloads: &BTreeMap<ObjectKey, Workload>) -> i64 {
        let owners = workloads.values().filter(|workload| self.owners.contains_key(&workload.uid()));
        let wanted: i64 = owners.map(|workload| i64::from(workload.replicas)).sum();
        let expected = wanted.max(if wanted == 0 { self.pods } else { 0 });
        let count = |bound: CountOrPercent| match bound {
            CountOrPercent::Count(count) => count,
            CountOrPercent::Percent(percent) => (expected * i64::from(percent) + 99) / 100,
        };
        let must_stay = match (self.budget.min_available, self.budget.max_unavailable) {
            (Some(least), _) => count(least),
            (None, Some(most)) => expected - count(most),
            (None, None) => 0,
        };
        (self.healthy - must_stay).max(0)
    }
}
