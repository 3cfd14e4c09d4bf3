//! What the engine decides: actions with their reasons, and everything it looked at and left alone, with the reason too.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;

use super::disruption::{Command, DisruptionPlan, Method};
use super::scheduling::{EffectiveZone, Rejected, Solution};
use super::static_capacity::Keeping;
use crate::model::action::{Action, Subject};

/// Why something is done: a stable word for programs, a sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    pub code: &'static str,
    pub message: String,
}

impl Reason {
    pub fn new(code: &'static str, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// One action and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Planned {
    pub action: Action,
    pub reason: Reason,
}

impl Planned {
    pub fn new(action: Action, code: &'static str, message: impl Into<String>) -> Self {
        Self { action, reason: Reason::new(code, message) }
    }
}

/// One picture judged: which waiting pod goes where, and which node may go.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// What becomes of static pools, by name. The engine's own plan has none: there they are seen to at once, by actions.
    pub kept: Vec<Keeping>,
    pub provisioning: Solution,
    /// Waiting pods that cannot be planned for as they are written.
    pub rejected: Vec<Rejected>,
    /// How many of the waiting pods could come to run in which zone, before anything was placed.
    pub pending_zones: BTreeMap<EffectiveZone, usize>,
    /// Shared, because most rounds place pods and judge no node.
    pub disruption: Arc<DisruptionPlan>,
}

/// Something that should happen and does not: what stays as it is, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stay {
    pub subject: Subject,
    pub reason: Reason,
}

/// The answer to "what now?".
#[derive(Clone, Debug, Default)]
pub struct Decision {
    /// In the order in which they are to be carried out.
    pub actions: Vec<Planned>,
    /// What is not done although it should be, each once until its reason is another one.
    pub stays: Vec<Stay>,
    /// Disruption that begins with these actions.
    pub started: Vec<Command>,
    /// Of disruption that did not stand a second look: by which method it was found, and how many nodes stay.
    pub withdrawn: Vec<(Method, usize)>,
    /// What was judged last, done and not done; shared, because most decisions judge nothing anew.
    pub plan: Arc<Plan>,
    /// Ask again by then, even if nothing happens. `None`: only when something happens.
    pub wake_at: Option<Timestamp>,
}

/// What one part of the engine wants done, and when it wants to be asked again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Steps {
    pub actions: Vec<Planned>,
    pub started: Vec<Command>,
    pub withdrawn: Vec<(Method, usize)>,
    pub wake_at: Option<Timestamp>,
}

impl Steps {
    /// Takes over what `other` wants.
    pub fn append(&mut self, other: Steps) {
        self.actions.extend(other.actions);
        self.started.extend(other.started);
        self.withdrawn.extend(other.withdrawn);
        if let Some(at) = other.wake_at {
            self.wake(at);
        }
    }

    /// Whether nothing is done, though something may be told.
    pub fn is_idle(&self) -> bool {
        self.actions.iter().all(|planned| matches!(planned.action, Action::Publish(_)))
    }

    pub fn push(&mut self, action: Action, code: &'static str, message: impl Into<String>) {
        self.actions.push(Planned::new(action, code, message));
    }

    /// Asks to be looked at again at `at` or before.
    pub fn wake(&mut self, at: Timestamp) {
        self.wake_at = Some(self.wake_at.map_or(at, |known| known.min(at)));
    }
}
