//! What the engine remembers to spare repetition: what it has told people, and which of its own changes nobody confirmed.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::capacity::decision::Planned;
use crate::capacity::scheduling::{Ground, Supply};
use crate::model::action::{Action, Notice, Subject};
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::name::{ClaimName, NodeName};
use crate::model::node::Node;
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;

/// The same thing is told again after so long: fifteen minutes, as in Karpenter.
const REPEAT_AFTER: SignedDuration = SignedDuration::from_mins(15);
/// The same thing in other words is told again sooner.
const REWORD_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// A change that is not seen so long after it was carried out is taken for lost.
const CONFIRM_WITHIN: SignedDuration = SignedDuration::from_secs(30);
/// One of which nobody says that it was carried out: an API server or a cloud may take minutes for what it is asked. Whoever forgot
/// a claim meanwhile would buy another machine for its pods, and end the one that comes.
const CARRY_OUT_WITHIN: SignedDuration = SignedDuration::from_mins(15);
/// After a write that was refused twice nothing is decided about the claim for so long, and for twice as long each time that it is refused
/// again: what the API server has too much to do for passes, what it does not allow may not.
const REFUSED_LEAST: SignedDuration = SignedDuration::from_millis(100);
const REFUSED_MOST: SignedDuration = SignedDuration::from_secs(30);
/// Notices are forgotten in bulk once there are so many.
const TOLD_MAX: usize = 50_000;

/// What the scheduler has made of the cluster and of a supply, kept from round to round. A copy of the engine makes its own.
#[derive(Default)]
pub(super) struct Prepared(Mutex<Option<(Arc<Supply>, Box<Ground>)>>);

impl Prepared {
    /// What was made with `supply`.
    pub fn take(&mut self, supply: &Arc<Supply>) -> Option<Box<Ground>> {
        let kept = self.0.get_mut().ok()?.take();
        kept.filter(|(made_with, _)| Arc::ptr_eq(made_with, supply)).map(|(_, ground)| ground)
    }

    pub fn put(&mut self, supply: &Arc<Supply>, ground: Box<Ground>) {
        if let Ok(kept) = self.0.get_mut() {
            *kept = Some((supply.clone(), ground));
        }
    }
}

impl Clone for Prepared {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Prepared {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Prepared")
    }
}

/// What people were told, and when.
#[derive(Clone, Debug, Default)]
pub(super) struct Told(BTreeMap<(Subject, Symbol), (Arc<str>, Timestamp)>);

impl Told {
    /// Leaves out of `actions` what was told already.
    pub fn keep_news(&mut self, actions: &mut Vec<Planned>, now: Timestamp) {
        actions.retain(|planned| match &planned.action {
            Action::Publish(notice) => self.is_news(notice, now),
            _ => true,
        });
    }

    /// It is gone: another one of its name is told of anew.
    pub fn forget(&mut self, gone: Subject) {
        self.0.retain(|(subject, _), _| *subject != gone);
    }

    /// Whether `notice` says something new; it counts as told from now on.
    pub fn is_news(&mut self, notice: &Notice, now: Timestamp) -> bool {
        let key = (notice.subject, notice.reason);
        let is_known = self.0.get(&key).is_some_and(|(message, at)| {
            let patience = if *message == notice.message { REPEAT_AFTER } else { REWORD_AFTER };
            now.duration_since(*at) < patience
        });
        if !is_known {
            if self.0.len() >= TOLD_MAX {
                self.0.retain(|_, (_, at)| now.duration_since(*at) < REPEAT_AFTER);
            }
            self.0.insert(key, (notice.message.clone(), now));
        }
        !is_known
    }
}

/// Claims about which something could not be written, and until when they are left alone.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(BTreeMap<ClaimName, (u32, Timestamp)>);

impl Refusals {
    /// Another one: not at all the first time, which a conflict may be, and then twice as long as the last time.
    pub fn refused(&mut self, claim: ClaimName, now: Timestamp) {
        let (count, until) = self.0.entry(claim).or_insert((0, now));
        if let Some(more) = count.checked_sub(1) {
            *until = now + (REFUSED_LEAST * 2_i32.pow(more.min(16))).min(REFUSED_MOST);
        }
        *count += 1;
    }

    pub fn until(&self, claim: ClaimName, now: Timestamp) -> Option<Timestamp> {
        self.0.get(&claim).map(|(_, until)| *until).filter(|until| now < *until)
    }

    pub fn forget(&mut self, claim: ClaimName) {
        self.0.remove(&claim);
    }
}

/// Objects that the engine changed in its own picture and has not seen since: as they were, and when the change counts as lost.
#[derive(Clone, Debug, Default)]
pub(super) struct Unconfirmed {
    claims: BTreeMap<ClaimName, (Option<Arc<NodeClaim>>, Timestamp)>,
    nodes: BTreeMap<NodeName, (Option<Arc<Node>>, Timestamp)>,
}

impl Unconfirmed {
    pub fn note(&mut self, action: &Action, cluster: &Cluster, now: Timestamp) {
        let until = now + CARRY_OUT_WITHIN;
        match action {
            Action::CreateClaim(claim) => self.claims.entry(claim.name).or_insert((None, now)).1 = until,
            Action::DeleteClaim { claim }
            | Action::UpdateClaim { claim, .. }
            | Action::FinalizeClaim { claim } => {
                if let Some(known) = cluster.claims.get(claim) {
                    self.claims.entry(*claim).or_insert_with(|| (Some(known.clone()), now)).1 = until;
                }
            }
            Action::UpdateNode { node, .. } | Action::DeleteNode { node } | Action::FinalizeNode { node } => {
                if let Some(known) = cluster.nodes.get(node) {
                    self.nodes.entry(*node).or_insert_with(|| (Some(known.clone()), now)).1 = until;
                }
            }
            _ => {}
        }
    }

    pub fn len(&self) -> usize {
        self.claims.len() + self.nodes.len()
    }

    pub fn has_claim(&self, name: ClaimName) -> bool {
        self.claims.contains_key(&name)
    }

    /// Whether `claim`, which is initialized, was seen so, and its node as well: not only decided to be.
    pub fn has_seen_initialized(&self, claim: &NodeClaim) -> bool {
        let is_claim_so = self.claims.get(&claim.name).is_none_or(|(seen, _)| {
            seen.as_ref().is_some_and(|seen| seen.conditions.is_true(ConditionType::Initialized))
        });
        let is_open = |node: &Node| !node.taints.iter().any(Taint::keeps_closed);
        let node = claim.node.and_then(|node| self.nodes.get(&node));
        is_claim_so && node.is_none_or(|(seen, _)| seen.as_ref().is_some_and(|seen| is_open(seen)))
    }

    pub fn confirm_claim(&mut self, name: ClaimName) {
        self.claims.remove(&name);
    }

    /// Whether anything was waited for.
    pub fn confirm_node(&mut self, name: NodeName) -> bool {
        self.nodes.remove(&name).is_some()
    }

    /// What was decided about these is through: the cluster tells what came of it within a time.
    pub fn carried_out(&mut self, claims: &[ClaimName], nodes: &[NodeName], now: Timestamp) {
        let until = now + CONFIRM_WITHIN;
        for name in claims {
            self.claims.entry(*name).and_modify(|(_, lost_at)| *lost_at = until);
        }
        for name in nodes {
            self.nodes.entry(*name).and_modify(|(_, lost_at)| *lost_at = until);
        }
    }

    pub fn next(&self) -> Option<Timestamp> {
        let claims = self.claims.values().map(|(_, until)| *until);
        claims.chain(self.nodes.values().map(|(_, until)| *until)).min()
    }

    /// Takes back what was not seen for too long; tells which claims that concerns.
    pub fn expire(&mut self, now: Timestamp, cluster: &mut Cluster) -> Vec<ClaimName> {
        // A machine is bought only for a claim that was there: who forgot it would end the machine as nobody's.
        for (name, (former, until)) in &mut self.claims {
            let has_machine = cluster.claims.get(name).is_some_and(|claim| claim.provider_id.is_some());
            if former.is_none() && has_machine && *until <= now {
                *until = now + CARRY_OUT_WITHIN;
            }
        }
        self.restore(cluster, |_, until| until <= now)
    }

    /// Takes back what was assumed of the object that `subject` names, alone or after a slash or a space.
    pub fn take_back(&mut self, subject: &str, cluster: &mut Cluster) -> Vec<ClaimName> {
        let name = subject.rsplit(['/', ' ']).next().unwrap_or(subject);
        self.restore(cluster, |other, _| other == name)
    }

    fn restore(
        &mut self,
        cluster: &mut Cluster,
        is_lost: impl Fn(&str, Timestamp) -> bool,
    ) -> Vec<ClaimName> {
        let mut names = Vec::new();
        self.nodes.retain(|name, (former, until)| {
            let is_lost = is_lost(name.as_str(), *until);
            if is_lost {
                let claim = cluster.nodes.get(name).and_then(|node| cluster.claim_of(node));
                names.extend(claim.map(|claim| claim.name));
                match former.take() {
                    Some(former) => cluster.put_node(former),
                    None => cluster.remove_node(*name),
                }
            }
            !is_lost
        });
        self.claims.retain(|name, (former, until)| {
            let is_lost = is_lost(name.as_str(), *until);
            if is_lost {
                names.push(*name);
                match former.take() {
                    Some(former) => cluster.put_claim(former),
                    None => cluster.remove_claim(*name),
                }
            }
            !is_lost
        });
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: OBS-007
    #[test]
    fn obs_007_an_event_is_told_once_until_it_is_old_or_says_something_else() {
        let mut told = Told::default();
        let notice = |node: &str, reason: &str, message: &str| Notice {
            subject: Subject::Node(NodeName::new(node)),
            is_warning: false,
            reason: Symbol::new(reason),
            message: message.into(),
        };
        let at = |seconds: i64| Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds);
        let first = notice("a", "DisruptionBlocked", "one pod");
        assert!(told.is_news(&first, at(0)));
        assert!(!told.is_news(&first, at(119)), "the same within two minutes");
        assert!(told.is_news(&notice("b", "DisruptionBlocked", "one pod"), at(119)), "of another node");
        assert!(told.is_news(&notice("a", "Unconsolidatable", "one pod"), at(119)), "another reason");
        let reworded = notice("a", "DisruptionBlocked", "two pods");
        assert!(!told.is_news(&reworded, at(59)), "in other words too soon");
        assert!(told.is_news(&reworded, at(60)));
        assert!(!told.is_news(&reworded, at(60 + 15 * 60 - 1)));
        assert!(told.is_news(&reworded, at(60 + 15 * 60)), "it is old");
    }
}
