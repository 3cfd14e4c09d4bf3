//! Who provisions: a commit changes that as it changes objects, by the same rules.

use jiff::Timestamp;

use super::{Initiator, Sync};
use crate::gitops::desired::DesiredState;
use crate::gitops::policy::{SyncMode, SyncPolicy};
use crate::gitops::window::{Answer, ChangeClass, Question};
use crate::model::provisioner::Provisioner;

impl Sync {
    /// Who provisions, as a commit says that may be applied now; `None` while nothing may.
    pub fn provisioner(&self, now: Timestamp) -> Option<Provisioner> {
        let (desired, _) = self.wanted.good.as_ref()?;
        let is_usable = self.wanted.render_errors.is_empty() && self.wanted.held.is_none();
        let is_free = match self.policy.mode {
            // What a person says yes to is its objects: once they are there, all of it is.
            SyncMode::Manual => {
                self.has_applied(desired) && is_open(&self.policy, &desired.environment, true, now)
            }
            SyncMode::Auto | SyncMode::AutoHeal => may_change(&self.policy, &desired.environment, now),
        };
        (is_usable && !self.is_suspended(now) && is_free).then_some(desired.provisioner)
    }

    fn is_suspended(&self, now: Timestamp) -> bool {
        self.suspension.as_ref().is_some_and(|suspension| suspension.until.is_none_or(|until| now < until))
    }

    /// Whether all of it is there, or nothing but readiness is missing, which only whoever is to provision may judge.
    fn has_applied(&self, desired: &DesiredState) -> bool {
        let was_asked_for = || {
            let mut history = self.history.iter();
            history.any(|entry| {
                entry.digest == desired.digest && matches!(entry.initiator, Initiator::Person { .. })
            })
        };
        self.applied_revision.as_deref() == Some(desired.revision.commit.as_str())
            || (self.chain.waits_in_vain() && was_asked_for())
    }
}

/// Whether a commit may change who provisions by itself: it decides about every machine.
pub(in crate::gitops) fn may_change(policy: &SyncPolicy, environment: &str, now: Timestamp) -> bool {
    policy.mode != SyncMode::Manual && is_open(policy, environment, false, now)
}

fn is_open(policy: &SyncPolicy, environment: &str, is_manual: bool, now: Timestamp) -> bool {
    let class = ChangeClass::Destructive;
    let question = Question { environment, pool: None, class, is_manual, started: None };
    !policy.read_only && policy.ask_windows(&question, now) == Answer::Open
}
