//! What was sold out when it was last asked for: left alone for a while, so that the next launch tries something else.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::scheduling::OfferingKey;

/// Offerings that had no room when they were last asked for, and until when they are left alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shortages(BTreeMap<OfferingKey, Timestamp>);

impl Shortages {
    pub fn note(&mut self, offering: OfferingKey, until: Timestamp) {
        let end = self.0.entry(offering).or_insert(until);
        *end = (*end).max(until);
    }

    /// Forgets what is over at `now`; tells whether there was any.
    pub fn expire(&mut self, now: Timestamp) -> bool {
        let before = self.0.len();
        self.0.retain(|_, until| now < *until);
        self.0.len() < before
    }

    pub fn offerings(&self) -> BTreeSet<OfferingKey> {
        self.0.keys().copied().collect()
    }

    /// When the next one is over.
    pub fn next_end(&self) -> Option<Timestamp> {
        self.0.values().min().copied()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
