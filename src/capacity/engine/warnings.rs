//! What the cloud says of machines: heard, answered, and done with.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::Engine;
use crate::capacity::decision::Steps;
use crate::capacity::disruption::interruption;
use crate::model::name::ProviderId;
use crate::model::observation::InterruptionNotice;

/// A warning about a machine that no claim speaks of yet is remembered so long.
const PATIENCE: SignedDuration = SignedDuration::from_mins(10);

/// What was heard of each machine and is not answered, in the order in which it was heard. One machine may be advised about,
/// taken back and stopped at once: nothing that is said of it hides anything else.
#[derive(Clone, Debug, Default)]
pub(super) struct Warnings(BTreeMap<ProviderId, Vec<(Timestamp, InterruptionNotice)>>);

impl Warnings {
    /// What is told again counts from when it was first told.
    pub fn hear(&mut self, at: Timestamp, machine: ProviderId, notice: InterruptionNotice) {
        let heard = self.0.entry(machine).or_default();
        if heard.iter().all(|(_, known)| *known != notice) {
            heard.push((at, notice));
        }
    }

    fn has(&self, machine: ProviderId) -> bool {
        self.0.contains_key(&machine)
    }
}

impl Engine {
    /// Whether what follows from a notice is on objects for everybody to see, so that nobody has to be told again.
    pub fn is_answered(&self, machine: ProviderId, notice: InterruptionNotice) -> bool {
        let Some(claim) = self.cluster.claim_by_instance(machine) else {
            return !self.may_be_claimed(machine, notice);
        };
        let is_advice = notice == InterruptionNotice::RebalanceRecommendation;
        is_advice || (interruption::is_agreed(claim, notice) && !self.unconfirmed.has_claim(claim.name))
    }

    /// Whether a claim may be about to say that it has this machine, which is still worth saving then.
    fn may_be_claimed(&self, machine: ProviderId, notice: InterruptionNotice) -> bool {
        use InterruptionNotice::{RebalanceRecommendation, StateChange, Terminating};
        !matches!(notice, RebalanceRecommendation | StateChange | Terminating)
            && self.warnings.has(machine)
            && !self.cluster.strangers.has_machine(machine)
            && self.cluster.claims.values().any(|claim| claim.provider_id.is_none())
    }

    pub(super) fn answer_warnings(&mut self, now: Timestamp, out: &mut Steps) {
        for (machine, heard) in std::mem::take(&mut self.warnings).0 {
            for (at, notice) in heard {
                self.answer_warning((at, machine, notice), now, out);
            }
        }
    }

    fn answer_warning(
        &mut self,
        (at, machine, notice): (Timestamp, ProviderId, InterruptionNotice),
        now: Timestamp,
        out: &mut Steps,
    ) {
        let Some(claim) = self.cluster.claim_by_instance(machine).cloned() else {
            if now.duration_since(at) < PATIENCE {
                self.warnings.hear(at, machine, notice);
            }
            return;
        };
        let mut steps = Steps::default();
        interruption::note_shortage(&claim, notice, &mut self.shortages, now);
        if claim.deleted.is_some() {
            interruption::hurry(&claim, notice, now, &mut steps);
        } else {
            interruption::respond(&self.cluster, &claim, notice, now, &mut steps);
        }
        self.take(steps, now, out);
    }
}
