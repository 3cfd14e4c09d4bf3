//! Which claims and nodes are looked at again after news: those that it is about, and those that depend on them.

use super::Engine;
use crate::capacity::disruption::command::is_waiting;
use crate::capacity::lifecycle;
use crate::model::name::{ClaimName, NodeName, ObjectKey, ProviderId};

impl Engine {
    pub(super) fn touch_claim(&mut self, name: ClaimName) {
        self.claims_due.touch(name);
        self.tally.touch(name);
        if let Some(claim) = self.cluster.claims.get(&name).cloned() {
            if is_waiting(&claim) && claim.deleted.is_none() {
                self.waiting.insert(name);
            } else {
                self.waiting.remove(&name);
            }
            self.change_pools(claim.pool());
            if let Some(node) = self.cluster.node_of(&claim).map(|node| node.name) {
                self.nodes_due.touch(node);
            }
        }
        self.touch_waiting();
    }

    /// Something is seen of a claim or a node for which some may wait.
    pub(super) fn touch_waiting(&mut self) {
        self.waiting.iter().for_each(|name| self.claims_due.touch(*name));
        self.touch_drains();
    }

    /// Drains that wait for places elsewhere may go on.
    pub(super) fn touch_drains(&mut self) {
        self.endings.take_waiting().into_iter().for_each(|node| self.nodes_due.touch(node));
    }

    /// What was decided about these claims and others did not come to pass: whatever relied on it is open again.
    pub(super) fn look_again(&mut self, claims: Vec<ClaimName>) {
        self.revision += 1;
        for name in claims {
            self.claims_due.touch(name);
            if !self.cluster.claims.contains_key(&name) {
                self.nominations.forget_claim(name);
            }
        }
        self.touch_waiting();
    }

    pub(super) fn touch_node(&mut self, name: NodeName) {
        self.nodes_due.touch(name);
        let machine = self.cluster.nodes.get(&name).and_then(|node| node.provider_id);
        for claim in machine.into_iter().flat_map(|machine| self.cluster.claims_by_instance(machine)) {
            self.claims_due.touch(claim.name);
            self.tally.touch(claim.name);
        }
    }

    /// Nodes that are not open yet may have another reason to be.
    pub(super) fn touch_closed_nodes(&mut self) {
        let closed = self.cluster.nodes.values().filter(|node| lifecycle::is_closed(node));
        let closed: Vec<NodeName> = closed.map(|node| node.name).collect();
        closed.into_iter().for_each(|node| self.touch_node(node));
    }

    /// A pod's news matters to its node only while that is emptied.
    pub(super) fn touch_going(&mut self, name: NodeName) {
        if self.cluster.nodes.get(&name).is_some_and(|node| node.deleted.is_some()) {
            self.nodes_due.touch(name);
        }
    }

    pub(super) fn touch_node_of(&mut self, pod: ObjectKey) {
        if let Some(node) = self.cluster.pods.get(&pod).and_then(|pod| pod.node) {
            self.touch_going(node);
        }
    }

    pub(super) fn touch_instance(&mut self, instance: ProviderId) {
        if let Some(claim) = self.cluster.claim_by_instance(instance).map(|claim| claim.name) {
            self.touch_claim(claim);
        }
    }
}
