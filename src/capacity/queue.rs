//! Pods that a scheduler has yet to look at, in the order in which it will.
//!
//! Whom it looks at while the pod's own node is closed forgets what it was told, and on which side of an opening the turn of those
//! falls who come next is not known. So they are told when they have been looked at.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use crate::model::name::{ObjectKey, Uid};
use crate::model::pod::Pod;
use crate::model::symbol::Symbol;

/// So many come next: about as many as kube-scheduler looks at while pods are told and their nodes open, because each of them that it
/// finds no place for takes it 60 to 100 ms. With 16 and with 50 about as few pods were bound elsewhere than planned (performance.md).
const NEXT: usize = 16;
/// If none was looked at for so long, the scheduler has something else to do, and nobody comes next.
const STALL: SignedDuration = SignedDuration::from_secs(2);

/// The more important first, then who came first. API objects tell the second in which they were made, watches the order within it.
type Position = (Reverse<i32>, Option<Timestamp>, Timestamp, ObjectKey);

#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// One of each scheduler.
    lines: BTreeMap<Symbol, Line>,
    positions: BTreeMap<Uid, (Symbol, Position)>,
}

#[derive(Clone, Debug)]
struct Line {
    waiting: BTreeSet<Position>,
    /// When one of them was last looked at, or the first came.
    moved: Timestamp,
}

impl Line {
    fn stalls_at(&self) -> Timestamp {
        self.moved + STALL
    }
}

impl Queue {
    pub fn see(&mut self, pod: &Pod, now: Timestamp) {
        if !pod.is_unjudged() {
            return self.forget(pod, now);
        }
        if self.positions.contains_key(&pod.uid) {
            return;
        }
        let scheduler = pod.shape.scheduler_name;
        let position = (Reverse(pod.shape.priority), pod.created, now, pod.key);
        self.positions.insert(pod.uid, (scheduler, position));
        let line = self.lines.entry(scheduler);
        let line = line.or_insert_with(|| Line { waiting: BTreeSet::new(), moved: now });
        line.waiting.insert(position);
    }

    /// It was looked at, or is gone.
    pub fn forget(&mut self, pod: &Pod, now: Timestamp) {
        let Some((scheduler, position)) = self.positions.remove(&pod.uid) else { return };
        let Some(line) = self.lines.get_mut(&scheduler) else { return };
        line.waiting.remove(&position);
        if pod.is_unschedulable || pod.node.is_some() || pod.nominated_node.is_some() {
            line.moved = now;
        }
        if line.waiting.is_empty() {
            self.lines.remove(&scheduler);
        }
    }

    /// Where it stands among those of its scheduler.
    pub fn position_of(&self, pod: &Pod) -> Option<Position> {
        self.positions.get(&pod.uid).map(|(_, position)| *position)
    }

    /// Those that come next, and until when they do if none of them is looked at.
    pub fn next(&self, now: Timestamp) -> impl Iterator<Item = (ObjectKey, Timestamp)> {
        let moving = self.lines.values().filter(move |line| now < line.stalls_at());
        moving.flat_map(|line| line.waiting.iter().take(NEXT).map(|(.., pod)| (*pod, line.stalls_at())))
    }
}
