//! Keeps machines named after their nodes, so that people find them in the cloud's console. Nothing decides by these names.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::perform::Answer;
use crate::capacity::cluster::Cluster;
use crate::io::clock;
use crate::io::cloud::CloudProvider;
use crate::io::kube::apply::Writer;
use crate::io::kube::lease::Permit;
use crate::io::kube::{Change, Kind};
use crate::model::action::ClaimChange;
use crate::model::claim::{ConditionType, NodeClaim};
use crate::model::label::{Labels, annotation};
use crate::model::name::{ClaimName, NodeName, ProviderId};
use crate::model::observation::Observation;
use crate::model::symbol::Symbol;

/// Names are given at most so often: calls that change something are few, and machines are bought by the same.
const PERIOD: SignedDuration = SignedDuration::from_secs(1);
/// How soon after the cloud refused one it is asked again, and how soon for another: what it refuses may be all of them.
const RETRY: SignedDuration = SignedDuration::from_mins(5);
const PAUSE: SignedDuration = SignedDuration::from_mins(1);

pub(super) struct Names<P> {
    provider: Arc<P>,
    writer: Writer,
    permit: Permit,
    answers: mpsc::UnboundedSender<Answer>,
    /// Claims whose machine has no name yet, and when it is to get one at the earliest.
    unnamed: BTreeMap<ClaimName, Timestamp>,
    next: Timestamp,
    /// One at a time.
    task: JoinSet<(ClaimName, Named)>,
}

enum Named {
    Done,
    /// There is nothing to be named.
    Void,
    Later,
}

impl<P: CloudProvider> Names<P> {
    pub fn new(
        provider: Arc<P>,
        writer: Writer,
        permit: Permit,
        answers: mpsc::UnboundedSender<Answer>,
    ) -> Self {
        Self {
            provider,
            writer,
            permit,
            answers,
            unnamed: BTreeMap::new(),
            next: Timestamp::MIN,
            task: JoinSet::new(),
        }
    }

    pub fn observe(&mut self, change: &Change) {
        if change.kind != Kind::NodeClaim || !self.provider.has_belongings() {
            return;
        }
        let name = ClaimName(change.key.name);
        match &change.observation {
            Some(Observation::Claim(claim)) if to_name(claim).is_some() => {
                self.unnamed.entry(name).or_insert(Timestamp::MIN);
            }
            _ => drop(self.unnamed.remove(&name)),
        }
    }

    /// A machine has its name, or not.
    pub async fn tend(&mut self) {
        let Some(done) = self.task.join_next().await else { return std::future::pending().await };
        let Ok((claim, named)) = done else { return };
        match named {
            Named::Done | Named::Void => drop(self.unnamed.remove(&claim)),
            Named::Later => {
                let after = |wait| clock::now().saturating_add(wait).unwrap_or(Timestamp::MAX);
                self.unnamed.entry(claim).and_modify(|at| *at = after(RETRY));
                self.next = after(PAUSE);
            }
        }
    }

    /// Names the next machine, if it is time; when to be asked again.
    pub fn decide(&mut self, cluster: &Cluster, now: Timestamp) -> Option<Timestamp> {
        if !self.task.is_empty() || self.unnamed.is_empty() {
            return None;
        }
        if now < self.next {
            return Some(self.next);
        }
        let due = self.unnamed.iter().filter(|(_, at)| **at <= now);
        // Those of others are not among the claims.
        let mut ours = due.filter_map(|(name, _)| cluster.claims.get(name).and_then(|claim| to_name(claim)));
        let Some((claim, machine, node)) = ours.next() else {
            return self.unnamed.values().copied().filter(|at| *at > now).min();
        };
        self.next = now + PERIOD;
        self.name(claim, machine, node);
        None
    }

    fn name(&mut self, claim: ClaimName, machine: ProviderId, node: NodeName) {
        let (provider, writer) = (self.provider.clone(), self.writer.clone());
        let (permit, answers) = (self.permit.clone(), self.answers.clone());
        self.task.spawn(async move {
            match provider.name(machine, node, claim).await {
                Ok(true) if permit.is_valid() => {}
                Ok(true) => return (claim, Named::Later),
                Ok(false) => return (claim, Named::Void),
                Err(error) => {
                    tracing::warn!("machine {} is not named after node {node}: {error}", machine.instance());
                    return (claim, Named::Later);
                }
            }
            let annotations = Labels::from_iter([(*annotation::TAGGED, Symbol::new("true"))]);
            let change = ClaimChange { annotations, ..ClaimChange::default() };
            match writer.change_claim(claim, &change).await {
                Ok(Some(change)) => {
                    drop(answers.send(Answer::Changed(Box::new(change))));
                    (claim, Named::Done)
                }
                Ok(None) => (claim, Named::Void),
                Err(error) => {
                    tracing::warn!(
                        "it is not written on NodeClaim {claim} that its machine has a name: {error}"
                    );
                    (claim, Named::Later)
                }
            }
        });
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
