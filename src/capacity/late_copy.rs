//! A value that copies share until one of them changes it.
//!
//! Every pass over all nodes judges a picture of its own. Most passes change nothing in it, and what they do change is a small part:
//! only that is copied.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// Reads like a `T`, and is changed like one: the first change copies what others still see.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LateCopy<T>(Arc<T>);

impl<T> Deref for LateCopy<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Clone> DerefMut for LateCopy<T> {
    fn deref_mut(&mut self) -> &mut T {
        Arc::make_mut(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_copy_is_a_value_of_its_own_and_costs_nothing_until_it_differs() {
        let mut one: LateCopy<BTreeMap<u32, u32>> = LateCopy::default();
        one.insert(1, 10);
        let mut other = one.clone();
        assert!(std::ptr::eq(&*one, &*other), "nothing was copied");
        other.insert(2, 20);
        assert_eq!((one.len(), other.len()), (1, 2));
    }
}
