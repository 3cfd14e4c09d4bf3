//! How long pods wait: from when they are first seen without a node to when a plan first speaks of them, and from when one first
//! has a place for them to when they are bound.
//!
//! Only places of pools whose machines come to be nodes count: whoever waits for others waits for a person.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::state::seconds;
use crate::capacity::decision::Plan;
use crate::capacity::scheduling::Place;
use crate::model::name::{ObjectKey, PoolName, Uid};
use crate::model::pod::{Pod, PodPhase};

/// Upper ends in seconds, as Karpenter has them for what takes between no time and minutes.
pub(super) const SECONDS: [f64; 45] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25,
    1.5, 1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0,
    50.0, 60.0, 120.0, 150.0, 300.0, 450.0, 600.0,
];

/// Pods without a node that are known, and whether a plan spoke of them yet.
#[derive(Debug, Default)]
pub(super) struct WaitingPods {
    pods: BTreeMap<ObjectKey, Waiting>,
    /// Pods that were bound and do not run yet, and since when there was a place for them.
    starting: BTreeMap<ObjectKey, (Uid, Timestamp)>,
    /// What was counted last: most decisions judge nothing anew.
    judged: Option<Arc<Plan>>,
}

#[derive(Debug)]
struct Waiting {
    uid: Uid,
    since: Timestamp,
    is_decided: bool,
    /// Since when there is a place for it.
    placed: Option<Timestamp>,
}

/// What was seen of a pod for which there had been a place, and after how many seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Reached {
    pub bound: Option<f64>,
    pub running: Option<f64>,
}

/// Waiting pods of which monitoring tells one by one, each with its seconds.
#[derive(Debug, Default)]
pub(super) struct Delays {
    /// No plan spoke of them.
    pub undecided: Vec<(ObjectKey, f64)>,
    /// There is a place for them, and they are not bound.
    pub unbound: Vec<(ObjectKey, f64)>,
    /// There is a place for them, and they do not run.
    pub unstarted: Vec<(ObjectKey, f64)>,
}

impl WaitingPods {
    /// What of the way from a place to running `pod` has behind it, if that is what is seen.
    pub fn see(&mut self, at: Timestamp, pod: &Pod) -> Reached {
        let mut reached = Reached::default();
        if pod.node.is_some() || !pod.is_active() || pod.is_daemon() || pod.is_mirror() {
            let waited = self.pods.remove(&pod.key).filter(|waited| waited.uid == pod.uid);
            if let Some(placed) = waited.and_then(|waited| waited.placed).filter(|_| pod.node.is_some()) {
                reached.bound = Some(seconds(placed, at));
                self.starting.insert(pod.key, (pod.uid, placed));
            }
            if pod.phase != PodPhase::Pending || !pod.is_active() {
                let started = self.starting.remove(&pod.key).filter(|(uid, _)| *uid == pod.uid);
                let started = started.filter(|_| pod.phase == PodPhase::Running);
                reached.running = started.map(|(_, placed)| seconds(placed, at));
            }
            return reached;
        }
        let new = || Waiting { uid: pod.uid, since: at, is_decided: false, placed: None };
        let waiting = self.pods.entry(pod.key).or_insert_with(new);
        // Another pod of the same name is another pod.
        if waiting.uid != pod.uid {
            *waiting = new();
        }
        reached
    }

    /// How long each of them has waited by now.
    pub fn delays(&self, now: Timestamp) -> Delays {
        let mut delays = Delays::default();
        for (key, waiting) in &self.pods {
            if !waiting.is_decided {
                delays.undecided.push((*key, seconds(waiting.since, now)));
            }
            if let Some(placed) = waiting.placed {
                delays.unbound.push((*key, seconds(placed, now)));
                delays.unstarted.push((*key, seconds(placed, now)));
            }
        }
        let starting = self.starting.iter().map(|(key, (_, placed))| (*key, seconds(*placed, now)));
        delays.unstarted.extend(starting);
        delays.unstarted.sort_by_key(|(key, _)| *key);
        delays
    }

    /// Whether it is a pod that waits.
    pub fn knows(&self, pod: &ObjectKey) -> bool {
        self.pods.contains_key(pod)
    }

    pub fn forget(&mut self, pod: &ObjectKey) {
        self.pods.remove(pod);
        self.starting.remove(pod);
    }

    /// The seconds that pods waited of which `plan` is the first to speak, placed or not. `is_healthy` tells of a pool whether its
    /// machines join, `pool_of` whose node a place is.
    pub fn decided(
        &mut self,
        at: Timestamp,
        plan: &Arc<Plan>,
        is_healthy: impl Fn(PoolName) -> bool,
        pool_of: impl Fn(&Place) -> Option<PoolName>,
    ) -> Vec<f64> {
        if self.judged.as_ref().is_some_and(|judged| Arc::ptr_eq(judged, plan)) {
            return Vec::new();
        }
        let solution = &plan.provisioning;
        let on_new = solution.new_nodes.iter().map(|node| (Some(node.pool), &node.pods));
        let on_existing = solution.existing.iter().map(|(place, pods)| (pool_of(place), pods));
        for (pool, pods) in on_new.chain(on_existing) {
            let counts = pool.is_some_and(&is_healthy);
            for pod in pods {
                if let Some(waiting) =
                    self.pods.get_mut(pod).filter(|waiting| counts && waiting.placed.is_none())
                {
                    waiting.placed = Some(at);
                }
            }
        }
        let new = solution.new_nodes.iter().flat_map(|node| &node.pods);
        let existing = solution.existing.values().flatten();
        let unplaced = solution.unschedulable.iter().filter(|one| !one.is_deferred).map(|one| &one.pod);
        let rejected = plan.rejected.iter().map(|one| &one.pod);
        // A place that is lost again was none.
        for pod in unplaced.clone().chain(rejected.clone()) {
            if let Some(waiting) = self.pods.get_mut(pod) {
                waiting.placed = None;
            }
        }
        let mut waited = Vec::new();
        for pod in new.chain(existing).chain(unplaced).chain(rejected) {
            if let Some(waiting) = self.pods.get_mut(pod).filter(|waiting| !waiting.is_decided) {
                waiting.is_decided = true;
                waited.push(seconds(waiting.since, at));
            }
        }
        self.judged = Some(plan.clone());
        waited
    }
}
