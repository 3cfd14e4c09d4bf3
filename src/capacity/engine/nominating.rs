//! Pods are told the nodes that were bought for them, and the nodes open.

use jiff::Timestamp;

use super::Engine;
use crate::capacity::decision::Steps;
use crate::capacity::lifecycle::{self, Held};
use crate::capacity::openings::Due;
use crate::model::action::{Action, ClaimChange};
use crate::model::claim::NodeClaim;

impl Engine {
    /// Pods have their room on a node once it has joined; those that nobody has told yet are told before it opens to all.
    pub(super) fn nominate(&mut self, steps: &Steps, now: Timestamp, out: &mut Steps) {
        for planned in &steps.actions {
            if let Action::UpdateClaim { claim, change: ClaimChange { node: Some(node), .. } } =
                &planned.action
            {
                self.nominations.promise(&self.plans, *claim, *node, &mut self.cluster, now);
            }
        }
        let opens = steps.actions.iter().find_map(|planned| match &planned.action {
            Action::UpdateNode { node, change } if change.opens() => Some(*node),
            _ => None,
        });
        if let Some(node) = opens {
            let told = self.nominations.tell(&[node], &self.cluster, now);
            self.take(told, now, out);
        }
    }

    /// What the node of `claim` waits for, which could open otherwise.
    pub(super) fn holds_closed(&mut self, claim: &NodeClaim, now: Timestamp) -> Option<Held> {
        let nodes: Vec<_> = self.cluster.nodes_of(claim).cloned().collect();
        let [node] = nodes.as_slice() else { return None };
        let is_ready = lifecycle::is_closed(node) && lifecycle::could_take_pods(node);
        let awaits_arrivals = self.awaits_arrivals(claim.name);
        match self.nominations.keeps_room(node.name, &self.cluster) {
            _ if !is_ready => None,
            // Whoever is there already would take their room.
            _ if awaits_arrivals && !self.openings.has_turn(node.name) => Some(Held::ForPods),
            true => (!self.openings.admits(node.name)).then_some(Held::ForTurn),
            false if self.nominations.is_of_crowd(claim.name) => {
                (!self.openings.admits_last(node.name, now)).then_some(Held::ForTurn)
            }
            false => None,
        }
    }

    /// A wave of nodes opens, or grows, or another begins.
    pub(super) fn tend_openings(&mut self, now: Timestamp, out: &mut Steps) {
        if self.openings.is_empty() {
            return;
        }
        match self.openings.due(&self.nominations, &self.plans, &self.cluster, now) {
            Due::Nothing => {}
            Due::Tell(nodes) => {
                let told = self.nominations.tell(&nodes, &self.cluster, now);
                if told.actions.is_empty() {
                    out.wake(now);
                }
                self.take(told, now, out);
            }
            Due::Open(nodes) => {
                for node in nodes {
                    let claim = self.cluster.nodes.get(&node).and_then(|node| self.cluster.claim_of(node));
                    if let Some(claim) = claim.map(|claim| claim.name) {
                        self.tend_claim(claim, now, out);
                    }
                }
            }
        }
        self.openings.next(now).into_iter().for_each(|at| out.wake(at));
    }

    /// Pods that forgot their node are told again, and those for which room was kept in vain wait again.
    pub(super) fn tend_nominations(&mut self, now: Timestamp, out: &mut Steps) {
        let again = self.nominations.tell_again(&self.cluster, now);
        again.wake_at.into_iter().for_each(|at| out.wake(at));
        self.take(again, now, out);
        let (void, next) = self.nominations.give_up(&mut self.cluster, now);
        next.into_iter().for_each(|at| out.wake(at));
        self.revision += u64::from(!void.is_empty());
        for pod in void.iter().filter_map(|key| self.cluster.pods.get(key)) {
            self.batch.trigger(pod.uid, now);
        }
    }
}
