//! What is ours and what is somebody else's. Others' pools and claims are set aside before anything is decided on them; their
//! nodes and pods are seen, because pods of ours may run there, but never written. So is what cannot be read, with the machines
//! that hang on it: an object that nobody understands is no reason to end one.

use std::sync::Arc;

use jiff::Timestamp;

use super::Engine;
use crate::capacity::decision::Steps;
use crate::model::action::{Action, ClaimChange};
use crate::model::claim::NodeClaim;
use crate::model::class::NodeClass;
use crate::model::label::{self, Labels, annotation};
use crate::model::name::PoolName;
use crate::model::node::Node;
use crate::model::observation::{Observation, Unreadable};
use crate::model::owner::Owner;
use crate::model::pool::NodePool;
use crate::model::symbol::Symbol;

impl Engine {
    /// Whether something that `owner` describes may be written to; without a settled owner everything may.
    pub(super) fn owns(&self, owner: Option<Owner>) -> bool {
        self.settings.owner.is_none_or(|us| owner == Some(us))
    }

    /// The node classes whose status we keep: our own, and those that nobody else describes but pools of ours refer to.
    pub fn own_classes(&self) -> impl Iterator<Item = &Arc<NodeClass>> {
        self.cluster.classes.values().filter(|class| match class.owner {
            Some(_) => self.owns(class.owner),
            None => {
                let refers = |pool: &Arc<NodePool>| {
                    pool.template.class.is_ours() && pool.template.class.name == class.name
                };
                self.owns(None) || self.cluster.pools.values().any(refers)
            }
        })
    }

    /// Whether no other environment would clear away what was made for machines of `class`: none describes it, or we do.
    pub fn may_let_go(&self, class: &NodeClass) -> bool {
        class.owner.is_none() || self.owns(class.owner)
    }

    /// Whether a node without a claim of ours was made by us all the same.
    pub(super) fn owns_node(&self, node: &Node) -> bool {
        if self.cluster.claim_of(node).is_some() {
            return true;
        }
        let pool = node.labels.get(&*label::NODEPOOL).map(|name| PoolName(*name));
        let has_other_claim = node.provider_id.is_some_and(|id| self.cluster.strangers.has_machine(id));
        let is_other_pool = pool.is_some_and(|pool| self.cluster.strangers.pools.contains(&pool));
        if self.settings.owner.is_none() {
            return pool.is_some() && !has_other_claim && !is_other_pool;
        }
        let is_own_pool = pool.is_some_and(|pool| self.cluster.pools.contains_key(&pool));
        let is_made_by_us = Owner::who_made(&node.annotations).is_some_and(|owner| self.owns(Some(owner)));
        !has_other_claim && !is_other_pool && (is_own_pool || is_made_by_us)
    }

    /// A claim belongs to whom its pool belongs to. Without its pool it belongs to whoever made it. One that refers to another
    /// provisioner's class is launched, and ended, by that one.
    fn owns_claim(&self, claim: &NodeClaim) -> bool {
        if !claim.spec.class.is_ours() {
            return false;
        }
        if self.cluster.strangers.hides_node_of(claim) {
            return false;
        }
        let pool = claim.pool();
        if pool.is_some_and(|pool| self.cluster.pools.contains_key(&pool)) {
            return true;
        }
        if pool.is_some_and(|pool| self.cluster.strangers.pools.contains(&pool)) {
            return false;
        }
        if self.settings.owner.is_none() {
            return true;
        }
        match Owner::who_made(&claim.annotations) {
            Some(owner) => self.owns(Some(owner)),
            // Its pool went before we could write our name on it.
            None => self.cluster.claims.contains_key(&claim.name),
        }
    }

    /// What `seen` means to us: others' objects are as if they were not there.
    pub(super) fn sort(&mut self, at: Timestamp, seen: Observation) -> Option<Observation> {
        match seen {
            Observation::Unreadable(what) => self.set_aside(at, what),
            // A pool of another provisioner's class is that one's.
            Observation::Pool(pool) if self.owns(pool.owner) && pool.template.class.is_ours() => {
                self.cluster.strangers.pools.remove(&pool.name);
                let name = pool.name;
                self.take_in(at, Observation::Pool(pool));
                self.sort_claims_again(at, name);
                None
            }
            Observation::Pool(pool) => {
                self.cluster.strangers.pools.insert(pool.name);
                self.sort_claims_again(at, pool.name);
                let is_known = self.cluster.pools.contains_key(&pool.name);
                if is_known {
                    self.take_in(at, Observation::PoolGone(pool.name));
                    self.sort_claims_again(at, pool.name);
                }
                None
            }
            Observation::PoolGone(name) if self.cluster.strangers.pools.remove(&name) => {
                self.sort_claims_again(at, name);
                None
            }
            Observation::Claim(claim) => {
                let name = claim.name;
                self.cluster.strangers.unreadable_claims.remove(&name);
                if self.owns_claim(&claim) {
                    self.cluster.strangers.claims.remove(&name);
                    return Some(Observation::Claim(claim));
                }
                self.cluster.strangers.claims.insert(name, claim);
                self.cluster.claims.contains_key(&name).then_some(Observation::ClaimGone(name))
            }
            Observation::ClaimGone(name) => {
                let strangers = &mut self.cluster.strangers;
                let was_unreadable = strangers.unreadable_claims.remove(&name).is_some();
                let was_strange = strangers.claims.remove(&name).is_some() || was_unreadable;
                (!was_strange).then_some(Observation::ClaimGone(name))
            }
            Observation::Node(_) | Observation::NodeGone(_)
                if !self.cluster.strangers.unreadable_nodes.is_empty() =>
            {
                self.see_legible_node(at, seen);
                None
            }
            other => Some(other),
        }
    }

    /// What hangs on something unreadable is somebody else's until it can be read. A pool that could be read before stays in
    /// force as it was.
    fn set_aside(&mut self, at: Timestamp, what: Unreadable) -> Option<Observation> {
        match what {
            Unreadable::Pool(name) => {
                if !self.cluster.pools.contains_key(&name) && self.cluster.strangers.pools.insert(name) {
                    self.sort_claims_again(at, name);
                }
                None
            }
            Unreadable::Claim { name, machine } => {
                // Machines do not change; of a claim that could be read once its own is known.
                let known = self.cluster.claims.get(&name).or(self.cluster.strangers.claims.get(&name));
                let machine = machine.or(known.and_then(|claim| claim.provider_id));
                self.cluster.strangers.unreadable_claims.insert(name, machine);
                self.cluster.strangers.claims.remove(&name);
                self.cluster.claims.contains_key(&name).then_some(Observation::ClaimGone(name))
            }
            Unreadable::Node { name, machine } => {
                let known = self.cluster.nodes.get(&name).and_then(|node| node.provider_id);
                let machine = machine.or(known);
                self.cluster.strangers.unreadable_nodes.insert(name, machine);
                let hides = |claim: &&Arc<NodeClaim>| self.cluster.strangers.hides_node_of(claim);
                let claims = self.cluster.claims.values().filter(hides).cloned().collect();
                self.sort_again(at, claims);
                None
            }
        }
    }

    /// A node that can be read, or is gone, while others cannot be: its claim may be ours again. The node goes first, so that
    /// no claim of ours seems to have lost it.
    fn see_legible_node(&mut self, at: Timestamp, seen: Observation) {
        let name = match &seen {
            Observation::Node(node) => node.name,
            Observation::NodeGone(name) => *name,
            _ => return,
        };
        let was_unreadable = self.cluster.strangers.unreadable_nodes.remove(&name).is_some();
        self.take_in(at, seen);
        if was_unreadable {
            let claims: Vec<_> = self.cluster.strangers.claims.values().cloned().collect();
            self.sort_again(at, claims);
        }
    }

    /// The pool `name` belongs to somebody else than before, so its claims may.
    fn sort_claims_again(&mut self, at: Timestamp, name: PoolName) {
        let strangers = self.cluster.strangers.claims.values();
        let mut claims: Vec<Arc<NodeClaim>> =
            strangers.filter(|claim| claim.pool() == Some(name)).cloned().collect();
        claims.extend(self.cluster.claims_of(name).cloned());
        self.sort_again(at, claims);
    }

    fn sort_again(&mut self, at: Timestamp, claims: Vec<Arc<NodeClaim>>) {
        for claim in claims {
            let is_strange = self.cluster.strangers.claims.contains_key(&claim.name);
            if is_strange == self.owns_claim(&claim)
                && let Some(seen) = self.sort(at, Observation::Claim(claim))
            {
                self.take_in(at, seen);
            }
        }
    }

    /// Our name on a claim that was made by a former owner of its pool: it may outlive the pool.
    pub(super) fn sign(&self, claim: &NodeClaim) -> Option<Steps> {
        let us = self.settings.owner?;
        if Owner::who_made(&claim.annotations) == Some(us) {
            return None;
        }
        let mut steps = Steps::default();
        let annotations = Labels::from([(*annotation::OWNER, Symbol::new(&us.to_string()))]);
        let change = ClaimChange { annotations, ..ClaimChange::default() };
        let message = format!("its pool belongs to environment {} now", us.environment);
        steps.push(Action::UpdateClaim { claim: claim.name, change }, "Adopted", message);
        Some(steps)
    }
}
