//! Conditions: what is said about an object, each with a word why and since when.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::symbol::Symbol;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Condition {
    pub status: ConditionStatus,
    pub reason: Symbol,
    pub message: Symbol,
    /// When `status` last changed.
    pub since: Option<Timestamp>,
}

/// The condition types of one kind of object.
pub trait ConditionKind: Copy + Ord + 'static {
    fn all() -> &'static [Self];
    /// As the object writes it.
    fn word(self) -> &'static str;

    fn from_word(text: &str) -> Option<Self> {
        Self::all().iter().copied().find(|kind| kind.word() == text)
    }
}

/// The conditions of an object whose condition types are `K`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(transparent, bound(deserialize = "K: serde::Deserialize<'de> + Ord"))]
pub struct ConditionSet<K>(BTreeMap<K, Condition>);

impl<K> Default for ConditionSet<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: ConditionKind> ConditionSet<K> {
    pub fn get(&self, kind: K) -> Option<&Condition> {
        self.0.get(&kind)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn is_true(&self, kind: K) -> bool {
        self.get(kind).is_some_and(|condition| condition.status == ConditionStatus::True)
    }

    /// When `kind` became true, if it is.
    pub fn true_since(&self, kind: K) -> Option<Timestamp> {
        self.get(kind)
            .filter(|condition| condition.status == ConditionStatus::True)
            .and_then(|condition| condition.since)
    }

    /// Sets a condition; the moment of the last change stays unless `status` differs.
    pub fn set(&mut self, kind: K, status: ConditionStatus, reason: &str, message: &str, now: Timestamp) {
        let same = self.0.get(&kind).filter(|present| present.status == status);
        let since = same.map_or(Some(now), |present| present.since);
        self.0.insert(kind, Condition { status, reason: reason.into(), message: message.into(), since });
    }

    pub fn insert(&mut self, kind: K, condition: Condition) {
        self.0.insert(kind, condition);
    }

    pub fn clear(&mut self, kind: K) {
        self.0.remove(&kind);
    }

    /// Sets `root` to what follows from `parts`: true if all are, false as soon as one is (api.md 8).
    pub fn conclude(&mut self, root: K, parts: &[K], now: Timestamp) {
        let status_of = |kind: &K| self.get(*kind).map_or(ConditionStatus::Unknown, |known| known.status);
        let missing: Vec<String> = parts
            .iter()
            .filter(|kind| status_of(kind) != ConditionStatus::True)
            .map(|kind| format!("{}={}", kind.word(), status_of(kind).as_str()))
            .collect();
        let (status, reason) = if missing.is_empty() {
            (ConditionStatus::True, root.word())
        } else if parts.iter().any(|kind| status_of(kind) == ConditionStatus::False) {
            (ConditionStatus::False, "UnhealthyDependents")
        } else {
            (ConditionStatus::Unknown, "ReconcilingDependents")
        };
        self.set(root, status, reason, &missing.join(", "), now);
    }

    pub fn iter(&self) -> impl Iterator<Item = (K, &Condition)> {
        self.0.iter().map(|(kind, condition)| (*kind, condition))
    }
}
