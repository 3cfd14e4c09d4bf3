//! What is kept beside machines ([`crate::capacity::upkeep`]): whose classes and claims it is about, and what came of it.

use std::sync::Arc;

use jiff::Timestamp;

use super::Engine;
use crate::capacity::decision::Steps;
use crate::capacity::upkeep::{Asked, Upkeep};
use crate::model::action::Subject;
use crate::model::class::NodeClass;
use crate::model::name::ClassName;
use crate::model::observation::Observation;

/// How the subject of a failure begins that is about a class.
const CLASS: &str = "EC2NodeClass ";

/// Whether a failure is about a class: pools and others may have the same name.
pub(super) fn is_class(subject: &str) -> bool {
    subject.starts_with(CLASS)
}

impl Engine {
    /// Takes in what matters for it.
    pub(super) fn see_kept(&mut self, at: Timestamp, seen: &Observation) {
        let Some(upkeep) = self.settings.upkeep else { return };
        match seen {
            Observation::Class(class) => self.classes.see(self.cluster.classes.get(&class.name), class),
            Observation::Pool(_) | Observation::PoolGone(_) => self.classes.touch(),
            Observation::ClassGone(name) => {
                self.classes.forget(*name);
                self.told.forget(Subject::Class(*name));
            }
            Observation::ClassResolved { class, is_known } => {
                self.classes.resolved(*class, *is_known, at);
            }
            Observation::ClearFailed { class, message } => {
                self.classes.refused(*class, at);
                self.note_class_stays(*class, message);
            }
            Observation::ActionFailed { subject, .. } => {
                if let Some(class) = subject.strip_prefix(CLASS) {
                    self.classes.refused(ClassName::new(class), at);
                }
            }
            Observation::Claim(claim) if upkeep == Upkeep::Belongings => self.names.see(claim),
            Observation::ClaimGone(name) => self.names.forget(*name),
            Observation::MachineNamed { claim, naming } => self.names.answered(*claim, *naming, at),
            _ => {}
        }
    }

    /// Classes need nothing that is sold.
    pub(super) fn keep_classes(&mut self, now: Timestamp, out: &mut Steps) {
        let Some(upkeep) = self.settings.upkeep else { return };
        if self.classes.is_due(now) {
            let kept = self.own_classes().filter(|class| !class.is_deleting).cloned().map(Asked::Kept);
            // It may be that no pool says any more whose they are. What another cloud holds is let go by whom the class belongs to.
            let is_ours = |class: &&Arc<NodeClass>| match upkeep {
                Upkeep::Belongings => self.may_let_go(class),
                Upkeep::Classes => self.own_classes().any(|own| own.name == class.name),
            };
            let going = self.cluster.classes.values().filter(|class| class.is_deleting);
            let going = going.filter(is_ours).cloned().map(Asked::Going);
            let asked: Vec<Asked> = kept.chain(going).collect();
            self.classes.tend(upkeep, asked, &self.cluster, now, out);
        }
        self.classes.next().into_iter().for_each(|at| out.wake(at));
    }

    pub(super) fn keep_names(&mut self, now: Timestamp, out: &mut Steps) {
        if self.settings.upkeep == Some(Upkeep::Belongings) {
            let mut steps = Steps::default();
            self.names.tend(&self.cluster, now, &mut steps);
            steps.wake_at.into_iter().for_each(|at| out.wake(at));
            self.take(steps, now, out);
        }
    }
}
