//! Who has to be looked at: at once because something about them changed, or at a moment of their own.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

#[derive(Clone, Debug)]
pub(crate) struct Agenda<K> {
    changed: BTreeSet<K>,
    due: BTreeSet<(Timestamp, K)>,
    due_at: BTreeMap<K, Timestamp>,
}

impl<K> Default for Agenda<K> {
    fn default() -> Self {
        Self { changed: BTreeSet::new(), due: BTreeSet::new(), due_at: BTreeMap::new() }
    }
}

impl<K: Ord + Copy> Agenda<K> {
    /// `key` is looked at next.
    pub fn touch(&mut self, key: K) {
        self.changed.insert(key);
    }

    /// `key` is looked at again at `at`, instead of whatever was agreed before.
    pub fn schedule(&mut self, key: K, at: Option<Timestamp>) {
        if let Some(former) = self.due_at.remove(&key) {
            self.due.remove(&(former, key));
        }
        if let Some(at) = at {
            self.due_at.insert(key, at);
            self.due.insert((at, key));
        }
    }

    pub fn forget(&mut self, key: K) {
        self.changed.remove(&key);
        self.schedule(key, None);
    }

    /// Everybody whose turn it is at `now`, in order.
    pub fn take(&mut self, now: Timestamp) -> BTreeSet<K> {
        let mut turn = std::mem::take(&mut self.changed);
        while let Some((_, key)) = self.due.first().copied().filter(|(at, _)| *at <= now) {
            self.schedule(key, None);
            turn.insert(key);
        }
        turn
    }

    pub fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(at, _)| *at)
    }
}
