//! What was found out about single nodes in earlier passes and still holds: it is not asked again.
//!
//! Most passes find nothing, and find it about nodes that nothing has happened to. Why each of them stays was worked out by looking
//! for places for its pods, which is the dear part of a pass. That answer is kept with what it relied on ([`Relied`]), and
//! asked for again once any of that is another. What prices, policies and averages make of it is worked out every time.
//!
//! Whoever begins without this comes to the same answers, only later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::candidates::Candidate;
use super::removal::Refused;
use super::returning;
use super::round::Round;
use crate::capacity::late_copy::LateCopy;
use crate::capacity::pod_budgets::PodBudgets;
use crate::capacity::scheduling::{Chain, Fit, Footing, OfferingKey, Relied};
use crate::model::hash::FastMap;
use crate::model::money::UsdPerHour;
use crate::model::name::NodeName;
use crate::model::workload::PodDisruptionBudget;

#[derive(Clone, Debug, Default)]
pub(crate) struct Remembered {
    /// How things stood when all that is here held.
    footing: Option<Footing>,
    doubted: BTreeMap<OfferingKey, Timestamp>,
    budgets: LateCopy<PodBudgets>,
    answers: FastMap<(NodeName, Fit), Remembrance>,
    /// Nodes whose pods have been given places before.
    planned: BTreeSet<NodeName>,
}

#[derive(Clone, Debug)]
struct Remembrance {
    relied: Relied,
    price: UsdPerHour,
    is_spot: bool,
    answer: Answer,
}

/// Where the pods of one node go if it goes alone.
#[derive(Clone, Debug)]
pub(crate) enum Answer {
    /// To nodes that are there.
    There,
    /// To new ones as well; what would be saved.
    New(Result<UsdPerHour, Refused>),
    /// Some have no place, none without a new node, or only one that cannot be counted on.
    Nowhere(Refused),
}

impl Remembered {
    /// Forgets what does not hold in `round` any more. `chain`: nothing is taken up yet.
    pub fn follow(&mut self, round: &Round, chain: &Chain) {
        let footing = if round.is_followable() { round.footing(chain) } else { None };
        let is_comparable = self.doubted == round.doubted && have_same_terms(&self.budgets, round);
        let former = self.footing.take().filter(|_| is_comparable);
        match footing.as_ref().zip(former).and_then(|(now, former)| now.since(&former)) {
            Some(mut differences) => {
                self.answers.retain(|_, known| round.still_answers(chain, &mut differences, &known.relied));
            }
            None => self.answers.clear(),
        }
        if footing.is_some() {
            self.doubted.clone_from(&round.doubted);
            self.budgets.clone_from(&round.cluster.budgets);
        }
        let pods = round.planned.keys().filter_map(|pod| round.cluster.pods.get(pod)?.node);
        self.planned = pods.collect();
        self.footing = footing;
    }

    /// What is known of `candidate`.
    pub fn answer(&self, candidate: &Candidate, fit: Fit) -> Option<&Answer> {
        let known = self.answers.get(&(candidate.node, fit))?;
        let is_same = known.price == candidate.price && known.is_spot == candidate.is_spot;
        (is_same && !self.planned.contains(&candidate.node)).then_some(&known.answer)
    }

    /// Keeps an answer that relied on this.
    pub fn keep(
        &mut self,
        round: &Round,
        candidate: &Candidate,
        fit: Fit,
        relied: Option<&Relied>,
        answer: Answer,
    ) {
        let Some(relied) = relied.filter(|_| self.footing.is_some()) else { return };
        let pool = round.cluster.pools.get(&candidate.pool);
        // Of these, time changes the answer.
        let waits = pool.is_none_or(|pool| returning::is_fallback(pool, round.claim(candidate)))
            || round.cluster.pods_of(candidate.node).any(|pod| pod.shape.do_not_disrupt.is_some());
        if waits || self.planned.contains(&candidate.node) {
            return;
        }
        let known = Remembrance {
            relied: relied.clone(),
            price: candidate.price,
            is_spot: candidate.is_spot,
            answer,
        };
        self.answers.insert((candidate.node, fit), known);
    }
}

/// Whether the budgets of pods ask in `round` for what those of `known` do: by their terms some pods are never evicted. How many may be
/// away now is not looked at here.
fn have_same_terms(known: &PodBudgets, round: &Round) -> bool {
    let is_same = |one: &PodDisruptionBudget, other: &PodDisruptionBudget| {
        one.key == other.key
            && one.selector == other.selector
            && one.min_available == other.min_available
            && one.max_unavailable == other.max_unavailable
            && one.always_allows_unhealthy == other.always_allows_unhealthy
    };
    let now = &round.cluster.budgets;
    known.len() == now.len()
        && known.values().zip(now.values()).all(|(one, other)| Arc::ptr_eq(one, other) || is_same(one, other))
}
