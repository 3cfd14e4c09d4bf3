//! Words that are compared all day (label keys, label values, names), stored once.
//!
//! Comparing two symbols for equality is comparing two addresses; ordering them is ordering their text, so
//! nothing that a person sees depends on the order in which words were first met. A word is never
//! given back: a process that sees ten million different node names in its life keeps about a gigabyte of them.

use std::collections::HashSet;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::sync::{LazyLock, RwLock};

static WORDS: LazyLock<RwLock<HashSet<&'static str>>> = LazyLock::new(Default::default);

/// An interned word.
#[derive(Clone, Copy)]
pub struct Symbol(&'static str);

impl Symbol {
    pub fn new(text: &str) -> Self {
        if let Some(known) = WORDS.read().expect("no holder of the word list panics").get(text) {
            return Self(known);
        }
        let mut words = WORDS.write().expect("no holder of the word list panics");
        if let Some(known) = words.get(text) {
            return Self(known);
        }
        let kept: &'static str = Box::leak(text.into());
        words.insert(kept);
        Self(kept)
    }

    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl PartialEq for Symbol {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl Eq for Symbol {}

impl Hash for Symbol {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.as_ptr().hash(state);
    }
}

impl Ord for Symbol {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        if self == other { std::cmp::Ordering::Equal } else { self.0.cmp(other.0) }
    }
}

impl PartialOrd for Symbol {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Deref for Symbol {
    type Target = str;

    fn deref(&self) -> &str {
        self.0
    }
}

impl From<&str> for Symbol {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

impl fmt::Display for Symbol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.0)
    }
}

impl fmt::Debug for Symbol {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:?}", self.0)
    }
}

impl serde::Serialize for Symbol {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.0)
    }
}

impl<'de> serde::Deserialize<'de> for Symbol {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        Ok(Self::new(&text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_words_are_one_and_order_is_by_text() {
        let (late, early) = (Symbol::new("zebra-late"), Symbol::new("aard-early"));
        assert_eq!(late, Symbol::new(&String::from("zebra-late")));
        assert!(early < late, "order is by text, not by when a word was first met");
    }
}
