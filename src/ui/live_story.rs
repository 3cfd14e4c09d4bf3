//! What a live cluster's halves decide, as lines for people and documents for programs.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::cli::line::LineDocument;
use super::console::{Console, Tone};
use super::exit::Failure;
use crate::capacity::decision::{Decision, Planned, Reason};
use crate::controllers::live::Report;
use crate::gitops::sync::SyncDecision;
use crate::gitops::tracking::ANNOTATION_CONFIRM;
use crate::io::clock;
use crate::model::action::{Action, Subject};
use crate::model::count::{agreeing, counted};

/// How a person says yes to a plan here.
pub struct Consent {
    pub environment: String,
    /// Somebody sits at a terminal.
    pub can_type: bool,
}

impl Consent {
    /// What to do, for the plan of these digits.
    fn invitation(&self, digits: &str) -> String {
        let typed = if self.can_type { format!(" type `confirm {digits}`, or") } else { String::new() };
        let environment = &self.environment;
        format!(
            "to let it happen,{typed} annotate the Environment, which somebody must have made (docs/guide/sync.md): kubectl annotate \
             environments.provisor.dev {environment} {ANNOTATION_CONFIRM}={digits}"
        )
    }
}

/// Prints decisions as they are made.
pub struct LiveStory<'c> {
    console: &'c Console,
    consent: Consent,
}

impl<'c> LiveStory<'c> {
    pub fn new(console: &'c Console, consent: Consent) -> Self {
        Self { console, consent }
    }

    pub fn tell(&self, report: &Report) -> Result<(), Failure> {
        let now = clock::now();
        match report {
            Report::Synced { nodes, pods } => {
                let message =
                    format!("the cluster is read: {}, {}", counted(nodes, "node"), counted(pods, "pod"));
                self.line(now, Tone::Faint, "watch", "Synced", "", &message)
            }
            Report::Git(decision) => self.tell_sync(now, decision),
            Report::Decided(decision) => self.tell_decision(now, decision),
            Report::Planned(_) => Ok(()),
        }
    }

    fn tell_sync(&self, now: Timestamp, decision: &SyncDecision) -> Result<(), Failure> {
        for reason in &decision.news {
            self.line(now, Tone::Notice, "sync", reason.reason, "", &reason.message)?;
        }
        if let Some(plan) = &decision.asks {
            let message = self.consent.invitation(plan.short());
            self.line(now, Tone::Strong, "confirm", "Confirm", plan.as_str(), &message)?;
        }
        Ok(())
    }

    fn tell_decision(&self, now: Timestamp, decision: &Decision) -> Result<(), Failure> {
        for command in &decision.started {
            let code = command.reason().as_str();
            self.line(now, Tone::Notice, "disrupt", code, "", &command.describe())?;
        }
        let mut evicted: BTreeMap<&'static str, usize> = BTreeMap::new();
        for planned in &decision.actions {
            if matches!(planned.action, Action::Evict { .. }) {
                *evicted.entry(planned.reason.code).or_default() += 1;
            }
            let Some((tone, word, subject)) = shown(planned, self.console.is_json()) else { continue };
            self.line(now, tone, word, planned.reason.code, &subject, &planned.reason.message)?;
        }
        for stay in &decision.stays {
            // Programs have what is an event at an object already.
            if !(self.console.is_json() && matches!(stay.subject, Subject::Pool(_))) {
                let Reason { code, message } = &stay.reason;
                self.line(now, Tone::Notice, "stays", code, &stay.subject.to_string(), message)?;
            }
        }
        for (code, pods) in evicted {
            let message = format!("{} {} asked to go", counted(pods, "pod"), agreeing(pods, "is", "are"));
            self.line(now, Tone::Notice, "evict", code, "", &message)?;
        }
        Ok(())
    }

    fn line(
        &self,
        at: Timestamp,
        tone: Tone,
        word: &str,
        kind: &str,
        subject: &str,
        message: &str,
    ) -> Result<(), Failure> {
        if self.console.is_json() {
            return LineDocument::event(at, kind, subject.to_owned(), message.to_owned()).tell(self.console);
        }
        let word = self.console.paint(tone, &format!("{word:<10}"));
        let about = if subject.is_empty() { String::new() } else { format!("{subject}: ") };
        let moment = at.strftime("%H:%M:%S");
        self.console.data(&format!("{moment}  {word}  {about}{message}\n"))
    }
}

/// What a person wants to follow; the rest is in the objects' status and events. Programs are told all that is an event.
fn shown(planned: &Planned, is_for_programs: bool) -> Option<(Tone, &'static str, String)> {
    Some(match &planned.action {
        Action::Launch { claim, .. } => (Tone::Good, "launch", claim.to_string()),
        Action::UpdateClaim { claim, change } if change.node.is_some() => {
            (Tone::Good, "joined", claim.to_string())
        }
        Action::DeleteClaim { claim } => (Tone::Notice, "give back", claim.to_string()),
        Action::FinalizeClaim { claim } => (Tone::Notice, "gone", claim.to_string()),
        Action::Terminate { instance } => (Tone::Notice, "terminate", instance.instance().to_string()),
        Action::DeletePod { pod, .. } => (Tone::Bad, "force", pod.to_string()),
        Action::Publish(notice)
            if is_for_programs || (notice.is_warning && !matches!(notice.subject, Subject::Node(_))) =>
        {
            (Tone::Bad, "trouble", notice.subject.to_string())
        }
        _ => return None,
    })
}
