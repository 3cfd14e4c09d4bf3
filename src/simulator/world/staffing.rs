//! The controllers of workloads: they show what is wanted, and make and end pods.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::{Event, World};
use crate::model::buffer::Scalable;
use crate::model::name::ObjectKey;
use crate::model::observation::Observation;
use crate::simulator::workload::WorkloadKind;

/// So often controllers that are slow make some pods.
const TICK: SignedDuration = SignedDuration::from_millis(100);
const TICKS: u32 = 10;

impl World {
    /// Shows a workload to those who want to know how many pods it wants.
    pub(super) fn publish_scalable(&mut self, key: ObjectKey) {
        let Some(workload) = self.workloads.get(&key) else { return };
        if workload.kind != WorkloadKind::Deployment {
            return;
        }
        // Its one ReplicaSet has its name.
        for kind in ["Deployment", "ReplicaSet"] {
            let workload = &self.workloads[&key];
            self.publish(Observation::Scalable(Arc::new(Scalable {
                kind: kind.into(),
                key,
                replicas: workload.replicas,
                selector: None,
                shape: workload.shape.clone(),
                is_refused: false,
            })));
        }
    }

    /// Makes the pods that are missing, of each workload in turn and as many as the controllers get done now, and ends those that
    /// are too many.
    pub(super) fn control_workloads(&mut self) {
        let (mut short, mut surplus) = (Vec::new(), Vec::new());
        for (key, workload) in &self.workloads {
            let (missing, spare) = workload.correction(&self.staff[key], &self.objects);
            surplus.extend(spare);
            short.extend((missing > 0).then_some((*key, missing)));
        }
        let missing = short.iter().map(|(_, missing)| missing).sum();
        let allowed = self.staffing.takes(missing, self.habits.pods_a_second, self.now);
        if allowed == missing {
            for (key, missing) in short {
                (0..missing).for_each(|_| self.make_pod(key));
            }
        } else {
            for _ in 0..allowed {
                let next = self.staffing.turn(short.len());
                self.make_pod(short[next].0);
                short[next].1 -= 1;
                short.retain(|(_, missing)| *missing > 0);
            }
            let next = self.staffing.goes_on(self.now);
            next.into_iter().for_each(|at| self.plan(at, Event::Control));
        }
        surplus.into_iter().for_each(|pod| self.begin_end_of_pod(pod, None));
    }

    fn make_pod(&mut self, key: ObjectKey) {
        let now = self.now;
        let Some(pod) = self.workloads.get_mut(&key).map(|workload| workload.next_pod(now)) else { return };
        self.publish(Observation::Pod(Arc::new(pod)));
        self.touch_scheduler();
    }
}

/// How far the controllers are.
#[derive(Debug, Default)]
pub(super) struct Staffing {
    /// When the present tick began, and how many pods were made in it.
    tick: Option<(Timestamp, u32)>,
    /// When they go on.
    next: Option<Timestamp>,
    /// How often it was somebody's turn.
    turns: usize,
}

impl Staffing {
    /// How many of `missing` pods are made now.
    fn takes(&mut self, missing: u32, a_second: Option<u32>, now: Timestamp) -> u32 {
        let Some(a_second) = a_second else { return missing };
        let a_tick = (a_second / TICKS).max(1);
        let (began, made) = self.tick.filter(|(began, _)| now < *began + TICK).unwrap_or((now, 0));
        let takes = missing.min(a_tick - made);
        self.tick = Some((began, made + takes));
        takes
    }

    /// Whose turn it is, of so many.
    fn turn(&mut self, of: usize) -> usize {
        self.turns += 1;
        self.turns % of
    }

    /// When they go on, if nobody has been told yet.
    fn goes_on(&mut self, now: Timestamp) -> Option<Timestamp> {
        if self.next.is_some_and(|next| now < next) {
            return None;
        }
        self.next = self.tick.map(|(began, _)| began + TICK);
        self.next
    }
}
