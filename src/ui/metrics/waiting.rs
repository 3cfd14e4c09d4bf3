//! How long pods wait for a first decision: from when they are first seen without a node to when a plan first speaks of them.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use crate::capacity::decision::Plan;
use crate::model::name::{ObjectKey, Uid};
use crate::model::pod::Pod;

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
    /// What was counted last: most decisions judge nothing anew.
    judged: Option<Arc<Plan>>,
}

#[derive(Debug)]
struct Waiting {
    uid: Uid,
    since: Timestamp,
    is_decided: bool,
}

impl WaitingPods {
    pub fn see(&mut self, at: Timestamp, pod: &Pod) {
        if pod.node.is_some() || !pod.is_active() || pod.is_daemon() || pod.is_mirror() {
            self.pods.remove(&pod.key);
            return;
        }
        let new = || Waiting { uid: pod.uid, since: at, is_decided: false };
        let waiting = self.pods.entry(pod.key).or_insert_with(new);
        // Another pod of the same name is another pod.
        if waiting.uid != pod.uid {
            *waiting = new();
        }
    }

    /// Whether it is a pod that waits.
    pub fn knows(&self, pod: &ObjectKey) -> bool {
        self.pods.contains_key(pod)
    }

    pub fn forget(&mut self, pod: &ObjectKey) {
        self.pods.remove(pod);
    }

    /// The seconds that pods waited of which `plan` is the first to speak, placed or not.
    pub fn decided(&mut self, at: Timestamp, plan: &Arc<Plan>) -> Vec<f64> {
        if self.judged.as_ref().is_some_and(|judged| Arc::ptr_eq(judged, plan)) {
            return Vec::new();
        }
        let solution = &plan.provisioning;
        let new = solution.new_nodes.iter().flat_map(|node| &node.pods);
        let existing = solution.existing.values().flatten();
        let unplaced = solution.unschedulable.iter().filter(|one| !one.is_deferred).map(|one| &one.pod);
        let rejected = plan.rejected.iter().map(|one| &one.pod);
        let mut waited = Vec::new();
        for pod in new.chain(existing).chain(unplaced).chain(rejected) {
            if let Some(waiting) = self.pods.get_mut(pod).filter(|waiting| !waiting.is_decided) {
                waiting.is_decided = true;
                waited.push(at.duration_since(waiting.since).as_secs_f64().max(0.0));
            }
        }
        self.judged = Some(plan.clone());
        waited
    }
}
