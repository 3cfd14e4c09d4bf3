//! Attempts to reach one wanted state: what failed, when it is tried again, and what ends the waiting.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::heal;
use super::operation::back_off;
use crate::gitops::desired::ObjectRef;

/// Pause before the first retry of a failed operation; it doubles up to `RETRY_PAUSE_MAX` (as Argo CD).
pub const RETRY_PAUSE: SignedDuration = SignedDuration::from_secs(5);
pub const RETRY_PAUSE_MAX: SignedDuration = SignedDuration::from_secs(180);
/// Retries of one wanted state before a person or a new commit is waited for.
pub const RETRIES_MAX: u32 = 5;

/// How often it is looked whether a right is there that was missing.
pub const RIGHT_PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// What an object may be refused for want of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Lack {
    Kind(Arc<str>),
    Namespace(Arc<str>),
}

#[derive(Clone, Debug, Default)]
pub(super) struct Chain {
    pub digest: Option<Arc<str>>,
    pub retries: u32,
    pub retry_at: Option<Timestamp>,
    /// Objects that the API server refuses for what they are; not tried again for this state.
    pub refused: BTreeMap<ObjectRef, String>,
    /// Those that only a right is missing for, and when they are tried again.
    forbidden: BTreeSet<ObjectRef>,
    pub look_again_at: Option<Timestamp>,
    /// Why no further attempt is made.
    pub given_up: Option<String>,
    /// What came while an operation ran, which knows nothing of it.
    came: BTreeSet<Lack>,
    /// The failure may pass by itself once the cluster changes.
    is_transient: bool,
    /// It passes once what was waited for gets ready.
    is_unready: bool,
    /// It is about what was refused and nothing else.
    is_refused: bool,
    /// How often an operation was planned anew because somebody undid what it waited for, and when that may be next.
    restarts: u32,
    restart_at: Option<Timestamp>,
}

impl Chain {
    /// Another state is wanted. What came is of use to that, too.
    pub fn turn_to(&mut self, digest: Arc<str>) {
        *self = Self { digest: Some(digest), came: std::mem::take(&mut self.came), ..Self::default() };
    }

    /// A person asks, or other rules hold: what failed before is tried again.
    pub fn try_again(&mut self) {
        self.begin_anew();
        (self.restarts, self.restart_at) = (0, None);
        self.refused.clear();
    }

    fn begin_anew(&mut self) {
        self.given_up = None;
        (self.is_unready, self.is_refused) = (false, false);
        self.retries = 0;
        self.retry_at = None;
    }

    /// What some objects were refused for want of may be there now: they are tried again, after the operation that runs.
    pub fn no_longer_lacks(&mut self, lack: Lack, is_running: bool) {
        if is_running {
            self.came.insert(lack);
            return;
        }
        let before = self.refused.len();
        self.refused.retain(|object, _| match &lack {
            Lack::Kind(kind) => object.kind != *kind,
            Lack::Namespace(namespace) => object.namespace != *namespace,
        });
        if self.refused.len() < before {
            self.begin_anew();
        }
    }

    pub fn forbidden(&mut self, now: Timestamp, object: ObjectRef, why: String) {
        self.forbidden.insert(object.clone());
        self.refused.insert(object, why);
        self.look_again_at = now.checked_add(RIGHT_PAUSE).ok();
    }

    /// Tries again what a right was missing for, if it is time.
    pub fn look_again(&mut self, now: Timestamp) {
        if self.look_again_at.is_some_and(|at| at <= now) {
            self.look_again_at = None;
            for object in std::mem::take(&mut self.forbidden) {
                self.refused.remove(&object);
            }
            self.begin_anew();
        }
    }

    /// Why nothing new is tried. What the API server refuses for what it is stops nothing beside it.
    pub fn stopped_by(&self) -> Option<&String> {
        self.given_up.as_ref().filter(|_| !self.is_refused)
    }

    /// Whether it was given up because something did not get ready in time.
    pub fn waits_in_vain(&self) -> bool {
        self.is_unready && self.given_up.is_some()
    }

    /// What was waited for in vain is ready now: what had to wait is tried again.
    pub fn got_ready(&mut self) {
        self.begin_anew();
    }

    /// Whether an operation may be planned anew for what somebody undid: then that counts as done. Ever more slowly, and not for ever.
    pub fn may_begin_anew(&mut self, now: Timestamp) -> bool {
        if self.restarts >= RETRIES_MAX || self.restart_at.is_some_and(|at| now < at) {
            return false;
        }
        self.restarts += 1;
        self.restart_at = now.checked_add(heal::pause(self.restarts)).ok();
        true
    }

    /// When that may be next.
    pub fn begins_anew_at(&self) -> Option<Timestamp> {
        self.restart_at.filter(|_| self.restarts < RETRIES_MAX)
    }

    /// A person does not want it.
    pub fn cancelled(&mut self) {
        self.failed("cancelled by a person".into(), false);
        self.is_refused = false;
    }

    /// The operation is over, and what came meanwhile counts.
    pub fn operation_ended(&mut self) {
        for lack in std::mem::take(&mut self.came) {
            self.no_longer_lacks(lack, false);
        }
    }

    /// A transient failure may be over once what is wanted of some object is different.
    pub fn cluster_moved(&mut self, is_different: bool) {
        if is_different && self.is_transient && self.given_up.is_some() {
            self.given_up = None;
            self.retries = 0;
        }
    }

    pub fn succeeded(&mut self) {
        self.retries = 0;
        self.retry_at = None;
        self.is_transient = false;
    }

    /// For a reason that may pass.
    pub fn failed_for_now(&mut self, now: Timestamp, why: &str) {
        self.is_transient = true;
        self.retries += 1;
        if self.retries > RETRIES_MAX {
            (self.is_unready, self.is_refused) = (false, false);
            self.given_up = Some(format!("gave up after {RETRIES_MAX} retries: {why}"));
        } else {
            let pause = back_off(RETRY_PAUSE, 2, self.retries - 1, RETRY_PAUSE_MAX);
            self.retry_at = now.checked_add(pause).ok();
        }
    }

    /// For a reason that does not pass by itself; `is_unready`: until something gets ready, and else because something was refused.
    pub fn failed(&mut self, why: String, is_unready: bool) {
        self.is_transient = false;
        (self.is_unready, self.is_refused) = (is_unready, !is_unready);
        self.given_up = Some(why);
    }
}
