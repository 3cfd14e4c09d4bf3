//! Machines are named after their nodes, so that people find them in the cloud's console. Nothing decides by these names.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use crate::capacity::cluster::Cluster;
use crate::capacity::decision::Steps;
use crate::model::action::{Action, ClaimChange};
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::label::{Labels, annotation};
use crate::model::name::{ClaimName, NodeName, ProviderId};
use crate::model::observation::Naming;
use crate::model::symbol::Symbol;

/// Names are given at most so often: calls that change something are few, and machines are bought by the same.
const PERIOD: SignedDuration = SignedDuration::from_secs(1);
/// How long an answer may take before it counts as lost. A cloud that cannot be reached is given up after minutes.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);
/// How soon after the cloud refused one it is asked again, and how soon for another: what it refuses may be all of them.
const RETRY: SignedDuration = SignedDuration::from_mins(5);
const PAUSE: SignedDuration = SignedDuration::from_mins(1);

/// Which machines have no name yet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Names {
    /// By claim, and when its machine is to get one at the earliest; `None`: it may at once.
    unnamed: BTreeMap<ClaimName, Option<Timestamp>>,
    /// No name is asked for before.
    next: Option<Timestamp>,
    /// The machine of this one is being named.
    asked: Option<ClaimName>,
    /// Those of these have got their names, which is to be written.
    named: Vec<ClaimName>,
}

impl Names {
    pub fn see(&mut self, claim: &NodeClaim) {
        if to_name(claim).is_some() {
            self.unnamed.entry(claim.name).or_default();
        } else {
            self.forget(claim.name);
        }
    }

    pub fn forget(&mut self, claim: ClaimName) {
        self.unnamed.remove(&claim);
    }

    /// What came of an [`Action::NameMachine`].
    pub fn answered(&mut self, claim: ClaimName, naming: Naming, now: Timestamp) {
        if self.asked == Some(claim) {
            self.asked = None;
            self.next = Some(now + if naming == Naming::Failed { PAUSE } else { PERIOD });
        }
        match naming {
            // Should it not be written, the name is given once more.
            Naming::Done if self.unnamed.contains_key(&claim) => self.named.push(claim),
            Naming::NotThere => self.forget(claim),
            Naming::Done | Naming::Failed => {}
        }
        self.unnamed.entry(claim).and_modify(|later| *later = Some(now + RETRY));
    }

    /// Names the next machine, if it is time.
    pub fn tend(&mut self, cluster: &Cluster, now: Timestamp, steps: &mut Steps) {
        for claim in std::mem::take(&mut self.named) {
            if cluster.claims.get(&claim).is_some_and(|claim| to_name(claim).is_some()) {
                let annotations = Labels::from_iter([(*annotation::TAGGED, Symbol::new("true"))]);
                let change = ClaimChange { annotations, ..ClaimChange::default() };
                steps.push(
                    Action::UpdateClaim { claim, change },
                    "Named",
                    "its machine has its name in the cloud",
                );
            }
        }
        if let Some(next) = self.next.filter(|next| *next > now) {
            if !self.unnamed.is_empty() {
                steps.wake(next);
            }
            return;
        }
        let due = self.unnamed.iter().filter(|(_, at)| at.is_none_or(|at| at <= now));
        let mut found = due.filter_map(|(name, _)| cluster.claims.get(name).and_then(|claim| to_name(claim)));
        let Some((claim, machine, node)) = found.next() else {
            let later = self.unnamed.values().flatten().copied().filter(|at| *at > now).min();
            later.into_iter().for_each(|at| steps.wake(at));
            return;
        };
        // One at a time; an answer that takes longer counts as lost.
        self.asked = Some(claim);
        self.next = Some(now + PATIENCE);
        self.unnamed.insert(claim, Some(now + PATIENCE));
        steps.push(
            Action::NameMachine { claim, machine, node },
            "Naming",
            "its node is known, and people look for its name",
        );
        steps.wake(now + PATIENCE);
    }
}

/// What is to be named after what; `None` if it is named, or nothing is there to be.
fn to_name(claim: &NodeClaim) -> Option<(ClaimName, ProviderId, NodeName)> {
    let is_named = claim.annotations.contains_key(&*annotation::TAGGED);
    if is_named || claim.deleted.is_some() || !claim.conditions.is_true(ConditionType::Registered) {
        return None;
    }
    Some((claim.name, claim.provider_id?, claim.node?))
}
