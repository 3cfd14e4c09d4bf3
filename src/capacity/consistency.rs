//! Whether a node is what its machine was sold as. A much smaller one is told of, and goes on being used: its pods run.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::cluster::Cluster;
use super::decision::Steps;
use crate::model::action::{Action, ClaimChange, Notice, Subject};
use crate::model::claim::{ConditionStatus, ConditionType, NodeClaim};
use crate::model::name::ClaimName;
use crate::model::node::Node;

/// A node is looked at at most so often, as in Karpenter.
const PERIOD: SignedDuration = SignedDuration::from_mins(10);
/// So much of what was promised has to be there: kernels and hypervisors keep a little for themselves.
const LEAST_PERCENT: i128 = 90;

const KIND: ConditionType = ConditionType::ConsistentStateFound;

/// When claims were last compared with their nodes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checks(BTreeMap<ClaimName, Timestamp>);

impl Checks {
    pub fn forget(&mut self, claim: ClaimName) {
        self.0.remove(&claim);
    }

    /// Compares `claim` with its node, if that is due. It is called whenever one of them changed.
    pub fn check(&mut self, cluster: &Cluster, claim: &NodeClaim, now: Timestamp, steps: &mut Steps) {
        if claim.deleted.is_some() || !claim.conditions.is_true(ConditionType::Initialized) {
            return;
        }
        let Some(node) = cluster.node_of(claim) else { return };
        if let Some(next) = self.0.get(&claim.name).map(|last| *last + PERIOD).filter(|next| now < *next) {
            // What changed meanwhile is seen then; a node that is as it should be has nothing new to tell.
            if !claim.conditions.is_true(KIND) || shortfall(claim, node).is_some() {
                steps.wake(next);
            }
            return;
        }
        self.0.insert(claim.name, now);
        let (status, reason, message) = match shortfall(claim, node) {
            None => (ConditionStatus::True, KIND.as_str(), String::new()),
            Some(message) => {
                let notice = Notice {
                    subject: Subject::Claim(claim.name),
                    is_warning: true,
                    reason: "FailedConsistencyCheck".into(),
                    message: message.as_str().into(),
                };
                steps.push(Action::Publish(notice), "FailedConsistencyCheck", message.clone());
                steps.wake(now + PERIOD);
                (ConditionStatus::False, "ConsistencyCheckFailed", message)
            }
        };
        let known = claim.conditions.get(KIND);
        if known.is_some_and(|known| known.status == status && *known.message == *message) {
            return;
        }
        let mut conditions = claim.conditions.clone();
        conditions.set(KIND, status, reason, &message, now);
        let change = ClaimChange { conditions: Some(conditions), ..ClaimChange::default() };
        let shown = if message.is_empty() { "its node is what was launched".into() } else { message };
        steps.push(Action::UpdateClaim { claim: claim.name, change }, reason, shown);
    }
}

/// What `node` has much less of than was promised, of the resources that its pods ask for.
fn shortfall(claim: &NodeClaim, node: &Node) -> Option<String> {
    let requested = claim.spec.requests.iter().filter(|(_, amount)| *amount > 0);
    requested.map(|(name, _)| name).find_map(|name| {
        let (expected, found) = (i128::from(claim.capacity.get(name)), i128::from(node.capacity.get(name)));
        (found * 100 < expected * LEAST_PERCENT).then(|| {
            let print = |amount: i128| name.render(i64::try_from(amount).unwrap_or(i64::MAX));
            format!(
                "expected {} of resource {name}, but found {} ({}% of expected)",
                print(expected),
                print(found),
                found * 100 / expected
            )
        })
    })
}
