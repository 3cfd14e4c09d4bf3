//! What is told at objects of what was seen: what became of evictions, what a person has to do before something is to be had.

use std::sync::Arc;

use super::Engine;
use crate::capacity::decision::Steps;
use crate::capacity::disruption::command;
use crate::model::action::{Action, Notice, Subject};
use crate::model::name::{ClaimName, ClassName, ObjectKey};
use crate::model::observation::EvictionBlock;
use crate::model::symbol::Symbol;

impl Engine {
    /// Tells that a pod was evicted, and for whose sake.
    pub(super) fn note_eviction(&mut self, key: ObjectKey) {
        let Some(pod) = self.cluster.pods.get(&key) else { return };
        let claim = pod.node.and_then(|node| self.cluster.claim_of(self.cluster.nodes.get(&node)?));
        let message = match claim.map(|claim| command::reason_of(claim)) {
            Some(why) => format!("evicted from its node: {why}"),
            None => "evicted from its node".to_owned(),
        };
        self.remark(Subject::Pod(key), false, "Evicted", &message);
    }

    pub(super) fn note_blocked_eviction(&mut self, key: ObjectKey, why: EvictionBlock, message: &str) {
        let meaning = match why {
            EvictionBlock::Budget => "evicting it violates a disruption budget",
            EvictionBlock::Fault => {
                "the API server cannot evict it; where several disruption budgets select it, leave one"
            }
        };
        self.remark(Subject::Pod(key), true, "FailedDraining", &format!("{meaning}: {message}"));
    }

    pub(super) fn note_class_stays(&mut self, class: ClassName, message: &str) {
        let message = format!("It stays until what was made for it is deleted: {message}");
        self.remark(Subject::Class(class), true, "NodeClassTerminationFailed", &message);
    }

    fn remark(&mut self, subject: Subject, is_warning: bool, reason: &'static str, message: &str) {
        let notice = Notice { subject, is_warning, reason: reason.into(), message: message.into() };
        self.remarks.push((notice, reason));
    }

    /// Tells what somebody has to do for the machine of `claim`.
    pub(super) fn advise(&mut self, claim: ClaimName, reason: Symbol, message: Arc<str>) {
        let notice = Notice { subject: Subject::Claim(claim), is_warning: true, reason, message };
        self.remarks.push((notice, "Advice"));
    }

    pub(super) fn tell_remarks(&mut self, out: &mut Steps) {
        for (notice, code) in std::mem::take(&mut self.remarks) {
            let message = notice.message.to_string();
            out.push(Action::Publish(notice), code, message);
        }
    }
}
