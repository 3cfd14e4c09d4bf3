//! Capacity that is paid for in advance: who may still draw on it.
//!
//! A new node keeps every reservation that it might be launched into, because nobody knows yet which it will be. So the
//! count kept here is what is left for other nodes.

use std::collections::{BTreeMap, BTreeSet};

use fixedbitset::FixedBitSet;

use super::template::Template;
use crate::model::symbol::Symbol;

/// Room left by reservation.
#[derive(Clone, Debug, Default)]
pub(super) struct Reservations(BTreeMap<Symbol, u32>);

/// The reservations that a node may keep.
pub(super) struct Wanted {
    pub ids: BTreeSet<Symbol>,
    /// There are some that would suit, and none can be had.
    pub is_refused: bool,
}

impl Reservations {
    /// The least that any pool says is left of each.
    pub fn of(templates: &[Template]) -> Self {
        let mut left = BTreeMap::new();
        for offering in templates.iter().flat_map(|of| of.types.iter()).flat_map(|kind| &kind.offerings) {
            if let Some(reservation) = offering.reservation {
                let count = left.entry(reservation.id).or_insert(reservation.remaining);
                *count = (*count).min(reservation.remaining);
            }
        }
        Self(left)
    }

    /// What a node with these ways to buy could draw on, given what it holds.
    pub fn wanted(
        &self,
        of: &Template,
        open: &FixedBitSet,
        held: &BTreeSet<Symbol>,
        is_enabled: bool,
    ) -> Wanted {
        let mut wanted = Wanted { ids: BTreeSet::new(), is_refused: false };
        if !is_enabled || self.0.is_empty() {
            return wanted;
        }
        let suiting = of.reservations(open);
        wanted.ids = suiting.iter().copied().filter(|id| self.can_hold(*id, held)).collect();
        wanted.is_refused = !suiting.is_empty() && wanted.ids.is_empty();
        wanted
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn can_hold(&self, id: Symbol, held: &BTreeSet<Symbol>) -> bool {
        held.contains(&id) || self.0.get(&id).is_some_and(|left| *left > 0)
    }

    /// Gives back what a node no longer keeps and takes what it newly does. Keeping is once per node and reservation.
    pub fn exchange(&mut self, before: &BTreeSet<Symbol>, after: &BTreeSet<Symbol>) {
        for id in before.difference(after) {
            *self.0.get_mut(id).expect("a held reservation is known") += 1;
        }
        for id in after.difference(before) {
            let left = self.0.get_mut(id).expect("a reservation that is taken is known");
            *left = left.checked_sub(1).expect("a reservation is taken only while it has room");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(left: u32) -> Reservations {
        Reservations(BTreeMap::from([("r".into(), left)]))
    }

    fn left(reservations: &Reservations) -> u32 {
        reservations.0[&Symbol::new("r")]
    }

    fn only(id: &str) -> BTreeSet<Symbol> {
        BTreeSet::from([Symbol::new(id)])
    }

    #[test]
    fn sch_245_a_node_keeps_a_reservation_once_and_gives_it_back_once() {
        let (none, r) = (BTreeSet::new(), only("r"));
        let mut reservations = with(3);
        reservations.exchange(&none, &r);
        assert_eq!(left(&reservations), 2);
        reservations.exchange(&r, &r);
        assert_eq!(left(&reservations), 2, "it has it already");
        reservations.exchange(&r, &none);
        assert_eq!(left(&reservations), 3);
        reservations.exchange(&none, &none);
        assert_eq!(left(&reservations), 3, "there is nothing to give back");
    }

    #[test]
    fn sch_246_whoever_holds_the_last_one_may_go_on_holding_it() {
        let reservations = with(0);
        assert!(reservations.can_hold("r".into(), &only("r")));
        assert!(!reservations.can_hold("r".into(), &BTreeSet::new()));
    }

    /// Rows: SCH-248
    #[test]
    #[should_panic(expected = "a reservation that is taken is known")]
    fn taking_what_nobody_knows_is_loud() {
        with(1).exchange(&BTreeSet::new(), &only("unknown"));
    }

    /// Rows: SCH-248
    #[test]
    #[should_panic(expected = "only while it has room")]
    fn taking_more_than_there_is_is_loud() {
        with(0).exchange(&BTreeSet::new(), &only("r"));
    }
}
