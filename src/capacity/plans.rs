//! Where pods that need a place were planned last.
//!
//! A plan is carried out over minutes: machines boot, kube-scheduler binds pod after pod. Until a pod runs, each new round would
//! find it a place anew, and a pod that may be anywhere could take the room that was bought for one that may not. So
//! every round puts pods first where they were planned before, if that still holds.

use std::collections::{BTreeMap, BTreeSet};

use super::scheduling::{Place, Planned};
use crate::model::name::{ClaimName, ObjectKey};

#[derive(Clone, Debug, Default)]
pub(crate) struct Plans {
    place_of: BTreeMap<ObjectKey, Planned>,
    turn: usize,
    /// The other way round, of claims.
    pods_of: BTreeMap<ClaimName, BTreeSet<ObjectKey>>,
}

impl Plans {
    /// What is planned from here on comes after all that was.
    pub fn take_turn(&mut self) -> usize {
        self.turn += 1;
        self.turn
    }

    /// `pods` were planned on `place`.
    pub fn plan(&mut self, pods: impl IntoIterator<Item = ObjectKey>, place: Place) {
        for pod in pods {
            if self.place_of.get(&pod).is_some_and(|known| known.place == place) {
                continue;
            }
            self.forget(&pod);
            self.place_of.insert(pod, Planned { turn: self.turn, place });
            if let Place::Claim(claim) = place {
                self.pods_of.entry(claim).or_default().insert(pod);
            }
        }
    }

    /// The pods that were planned on `claim`.
    pub fn pods_of(&self, claim: ClaimName) -> impl Iterator<Item = ObjectKey> + '_ {
        self.pods_of.get(&claim).into_iter().flatten().copied()
    }

    /// Claims that pods are planned on.
    pub fn claims(&self) -> impl Iterator<Item = ClaimName> + '_ {
        self.pods_of.keys().copied()
    }

    /// `pod` has the place of `other` from now on.
    pub fn take_over(&mut self, other: &ObjectKey, pod: ObjectKey) -> Option<Place> {
        let planned = *self.place_of.get(other)?;
        self.forget(other);
        self.forget(&pod);
        self.place_of.insert(pod, planned);
        if let Place::Claim(claim) = planned.place {
            self.pods_of.entry(claim).or_default().insert(pod);
        }
        Some(planned.place)
    }

    /// `pod` runs somewhere, or is gone.
    pub fn forget(&mut self, pod: &ObjectKey) {
        if let Some(Planned { place: Place::Claim(claim), .. }) = self.place_of.remove(pod)
            && let Some(pods) = self.pods_of.get_mut(&claim)
        {
            pods.remove(pod);
            if pods.is_empty() {
                self.pods_of.remove(&claim);
            }
        }
    }

    pub fn forget_claim(&mut self, claim: ClaimName) {
        for pod in self.pods_of.remove(&claim).unwrap_or_default() {
            self.place_of.remove(&pod);
        }
    }

    pub fn places(&self) -> &BTreeMap<ObjectKey, Planned> {
        &self.place_of
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_planned_in_one_place() {
        let mut plans = Plans::default();
        let (web, api) = (ObjectKey::new("default", "web"), ObjectKey::new("default", "api"));
        let (one, other) = (ClaimName::new("one"), ClaimName::new("other"));
        plans.plan([web, api], Place::Claim(one));
        plans.plan([web], Place::Claim(other));
        assert_eq!(plans.pods_of(one).collect::<Vec<_>>(), [api]);
        assert_eq!(plans.places()[&web].place, Place::Claim(other));
        plans.forget_claim(one);
        plans.forget(&web);
        assert!(plans.place_of.is_empty() && plans.pods_of.is_empty());
    }
}
