//! Pods that were planned for before they were there take their places.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::Engine;
use crate::capacity::decision::Steps;
use crate::capacity::lifecycle;
use crate::capacity::scheduling::Place;
use crate::model::name::{ClaimName, NodeName, ObjectKey};
use crate::model::pod::Pod;

impl Engine {
    /// Whether `pod`, which was known as `former`, has the place of one that stood in for it.
    pub(super) fn see_arrival(&mut self, at: Timestamp, former: Option<&Arc<Pod>>, pod: &Arc<Pod>) -> bool {
        if !self.settings.foresees_pods {
            return false;
        }
        // Those of the first list were made at any time.
        let made = pod.created.filter(|_| !self.is_synced).map_or(at, |created| created.min(at));
        let stand_in = self.arrivals.see(former, pod, made);
        let place = stand_in.and_then(|stand_in| self.plans.take_over(&stand_in, pod.key));
        match place {
            Some(Place::Claim(claim)) => {
                self.claims_due.touch(claim);
                let is_coming = self.cluster.claims.get(&claim).is_some_and(|claim| claim.deleted.is_none());
                if is_coming {
                    self.provisioning.foresee(pod.uid);
                    self.arrived.insert(pod.key);
                }
                is_coming
            }
            // If kube-scheduler finds no place for it there, the plan was wrong.
            Some(Place::Node(_)) => self.arrived.insert(pod.key),
            None => false,
        }
    }

    /// Whether pods that are yet to be made are to run on the machine of `claim`.
    pub(super) fn awaits_arrivals(&self, claim: ClaimName) -> bool {
        !self.arrivals.is_empty() && self.plans.pods_of(claim).any(|pod| self.arrivals.stands_in(&pod))
    }

    /// Who has come is told its place, and who will not come loses it.
    pub(super) fn tend_arrivals(&mut self, now: Timestamp, out: &mut Steps) {
        let arrived = std::mem::take(&mut self.arrived);
        let mut steps = Steps::default();
        let mut joined: BTreeMap<(ClaimName, NodeName), Vec<ObjectKey>> = BTreeMap::new();
        for pod in arrived {
            let Some(place) = self.plans.places().get(&pod).map(|planned| planned.place) else { continue };
            super::rounds::nominate(&[pod], &place, &self.cluster, &mut steps);
            if let Place::Claim(claim) = place {
                let machine = self.closed_node_of(claim).map(|node| (claim, node));
                machine.into_iter().for_each(|machine| joined.entry(machine).or_default().push(pod));
            }
        }
        for (machine, pods) in joined {
            self.join(machine, &pods, now, &mut steps);
        }
        let void = self.arrivals.give_up(&self.cluster, now);
        self.revision += u64::from(!void.is_empty());
        for stand_in in void {
            if let Some(Place::Claim(claim)) = self.plans.places().get(&stand_in).map(|planned| planned.place)
            {
                self.claims_due.touch(claim);
            }
            self.plans.forget(&stand_in);
        }
        if let Some(set) = self.arrivals.behind(&self.cluster, now) {
            self.batch.trigger(set, now);
        }
        self.take(steps, now, out);
    }

    /// The node of `claim` that has joined and is not open yet.
    fn closed_node_of(&self, claim: ClaimName) -> Option<NodeName> {
        let claim = self.cluster.claims.get(&claim).filter(|claim| claim.deleted.is_none())?;
        let node = self.cluster.node_of(claim).filter(|node| node.deleted.is_none())?;
        (claim.node == Some(node.name) && lifecycle::is_closed(node)).then_some(node.name)
    }

    /// `pods` are planned on a node that has joined and is not open yet: it keeps room for them, too.
    pub(super) fn join(
        &mut self,
        machine: (ClaimName, NodeName),
        pods: &[ObjectKey],
        now: Timestamp,
        steps: &mut Steps,
    ) {
        self.nominations.promise_more(&self.plans, machine, pods, &mut self.cluster, now);
        match self.openings.grows(machine.1, now) {
            true => steps.append(self.nominations.tell(&[machine.1], &self.cluster, now)),
            false => self.touch_node(machine.1),
        }
    }
}
