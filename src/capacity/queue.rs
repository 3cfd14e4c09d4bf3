//! Pods that kube-scheduler has yet to look at, in the order in which it will.
//!
//! Whom it looks at while the pod's own node is closed forgets what it was told. So who comes next is told later, once it has been
//! looked at: until then it is not known on which side of the opening its turn falls.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::model::name::Uid;
use crate::model::pod::Pod;

/// So many come next: about as many as kube-scheduler looks at while pods are told and their nodes open, because each of them that it
/// finds no place for takes it 60 to 100 ms. With 16 and with 50 equally few pods were bound elsewhere than planned (performance.md).
const NEXT: usize = 16;
/// If none was looked at for so long, kube-scheduler has something else to do, and nobody comes next.
const STALL: SignedDuration = SignedDuration::from_secs(2);

/// The more important first, then who came first. API objects tell the second in which they were made, watches the order within it.
pub(super) type Turn = (Reverse<i32>, Option<Timestamp>, Timestamp, Uid);

#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    turns: BTreeMap<Uid, Turn>,
    waiting: BTreeSet<Turn>,
    /// When one was last looked at.
    moved: Option<Timestamp>,
}

impl Queue {
    pub fn see(&mut self, pod: &Pod, now: Timestamp) {
        if !pod.is_unjudged() {
            return self.forget(pod.uid, now);
        }
        if !self.turns.contains_key(&pod.uid) {
            let turn = (Reverse(pod.shape.priority), pod.created, now, pod.uid);
            self.turns.insert(pod.uid, turn);
            self.waiting.insert(turn);
        }
    }

    /// It was looked at, or is gone.
    pub fn forget(&mut self, pod: Uid, now: Timestamp) {
        if let Some(turn) = self.turns.remove(&pod) {
            self.waiting.remove(&turn);
            self.moved = Some(now);
        }
    }

    pub fn turn_of(&self, pod: Uid) -> Option<Turn> {
        self.turns.get(&pod).copied()
    }

    /// The first that does not come next; `None`: all do.
    pub fn end_of_next(&self) -> Option<Turn> {
        self.waiting.iter().nth(NEXT).copied()
    }

    /// When it stalls, unless one is looked at before; `None`: it is empty.
    pub fn stalls_at(&self) -> Option<Timestamp> {
        let (_, _, came, _) = self.waiting.first()?;
        Some(self.moved.map_or(*came, |moved| moved.max(*came)) + STALL)
    }
}
