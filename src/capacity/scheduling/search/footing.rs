//! What the answer to a first question relies on, and whether it still stands.
//!
//! Where nothing was taken up, the pods of a node find the same places and the same new nodes as they did in an earlier picture, if the
//! nodes that took some of them are as they were, and each that is not takes none of them now. The nodes that refused them count for
//! nothing: they may change in any way that does not let them take one.
//!
//! Followed is room only. An answer about pods that other pods matter to, or that have volumes, relies on more.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::super::amounts;
use super::super::demand::DemandId;
use super::super::ground::Ground;
use super::super::layout::Layout;
use super::super::marks::Marks;
use super::super::places::Changes;
use crate::model::hash::FastMap;
use crate::model::quantity::Resources;

/// How things stand before anything is taken up.
#[derive(Clone, Debug)]
pub(crate) struct Footing {
    ground: Arc<()>,
    /// What nodes have left, a row for each.
    left: Vec<i64>,
    width: usize,
    open: Marks,
    settled: Marks,
    order: Vec<usize>,
    changes: Vec<Changes>,
    limits: Vec<Option<(Resources, Arc<FixedBitSet>)>>,
}

/// What one answer relies on, the node aside that its pods leave.
#[derive(Clone, Debug)]
pub(crate) struct Relied {
    /// The node whose pods were asked about.
    pub room: usize,
    /// Nodes that took some.
    pub used: Vec<usize>,
    /// Each with the last node that was asked for it; `None`: all of them were.
    pub demands: Vec<(DemandId, Option<usize>)>,
}

/// What differs between two footings.
pub(crate) struct Differences {
    /// Nodes that may take other pods than before.
    rooms: Marks,
    /// Nodes with something new, be it only about their own pods.
    touched: Marks,
    /// By demand: how far ahead in the order the first of those nodes is that takes its pods now.
    takers: FastMap<DemandId, Option<usize>>,
}

impl Footing {
    /// `None`: new nodes were opened before any question, and each answer may rely on them.
    pub(super) fn of(layout: &Layout, ground: &Ground) -> Option<Self> {
        let order = layout.rooms.order.as_ref()?;
        layout.bins.is_empty().then(|| Self {
            ground: ground.identity().clone(),
            left: layout.rooms.rows().to_vec(),
            width: ground.columns.len(),
            open: layout.rooms.open.clone(),
            settled: layout.rooms.settled.clone(),
            order: order.rooms().to_vec(),
            changes: ground.places.changes().to_vec(),
            limits: layout.limits.clone(),
        })
    }

    fn row(&self, room: usize) -> Option<&[i64]> {
        self.left.get(room * self.width..(room + 1) * self.width)
    }

    /// What differs from `former`; `None`: no answer of then can be followed to here.
    pub fn since(&self, former: &Self) -> Option<Differences> {
        if !Arc::ptr_eq(&self.ground, &former.ground) || self.limits != former.limits {
            return None;
        }
        let (mut rooms, mut touched) = (Marks::default(), Marks::default());
        for (room, changes) in self.changes.iter().enumerate() {
            let known = former.changes.get(room);
            if known != Some(changes) {
                touched.insert(room);
            }
            let is_same = known.is_some_and(|known| known.of_itself == changes.of_itself)
                && self.open.contains(room) == former.open.contains(room)
                && self.settled.contains(room) == former.settled.contains(room)
                && self.row(room) == former.row(room);
            if !is_same {
                rooms.insert(room);
            }
        }
        mark_moved(&former.order, &self.order, &mut rooms);
        Some(Differences { rooms, touched, takers: FastMap::default() })
    }
}

/// Adds to `rooms` until all others are in the same order in `former` and `now`.
fn mark_moved(former: &[usize], now: &[usize], rooms: &mut Marks) {
    let (mut one, mut other) = (0, 0);
    loop {
        while former.get(one).is_some_and(|room| rooms.contains(*room)) {
            one += 1;
        }
        while now.get(other).is_some_and(|room| rooms.contains(*room)) {
            other += 1;
        }
        match (former.get(one), now.get(other)) {
            (None, None) => return,
            (Some(before), Some(after)) if before == after => (one, other) = (one + 1, other + 1),
            (before, after) => before.into_iter().chain(after).for_each(|room| rooms.insert(*room)),
        }
    }
}

impl Differences {
    /// Whether an answer that relied on this is the same in the picture that begins with `layout`.
    pub(super) fn spare(&mut self, relied: &Relied, layout: &Layout, ground: &mut Ground) -> bool {
        !self.touched.contains(relied.room)
            && !self.rooms.contains(relied.room)
            && relied.used.iter().all(|room| !self.rooms.contains(*room))
            && relied.demands.iter().all(|(demand, last)| {
                let last = last.and_then(|room| layout.rooms.position(room));
                let first = self.first_taker(*demand, layout, ground);
                first.is_none_or(|first| last.is_some_and(|last| last < first))
            })
    }

    fn first_taker(&mut self, id: DemandId, layout: &Layout, ground: &mut Ground) -> Option<usize> {
        let Self { rooms, takers, .. } = self;
        *takers.entry(id).or_insert_with(|| {
            if !is_plain(id, layout, ground) {
                return Some(0);
            }
            let demand = ground.demands.get(id);
            let all = if demand.is_homeless { &layout.rooms.open } else { &layout.rooms.settled };
            let takes = |room: &usize| {
                all.contains(*room) && amounts::fits(&demand.requests, layout.rooms.row(*room))
            };
            rooms.iter().filter(takes).filter_map(|room| layout.rooms.position(room)).min()
        })
    }
}

/// Whether pods of `demand` look at nothing but room.
pub(super) fn is_plain(demand: DemandId, layout: &Layout, ground: &mut Ground) -> bool {
    let Ground { demands, book, .. } = ground;
    let demand = demands.get(demand);
    demands.is_plain(&demand) && layout.topology.shunned(demand.standing.class, book).is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_order_only_what_moved_counts() {
        let moved = |former: &[usize], now: &[usize], known: &[usize]| {
            let mut rooms: Marks = known.iter().copied().collect();
            mark_moved(former, now, &mut rooms);
            rooms.iter().collect::<Vec<_>>()
        };
        assert!(moved(&[3, 1, 2], &[3, 1, 2], &[]).is_empty());
        assert_eq!(moved(&[3, 1, 2], &[3, 2], &[]), [1, 2], "one is gone, and one was taken for moved");
        assert_eq!(moved(&[3, 1, 2], &[3, 2], &[1]), [1], "it was known to be gone");
        assert_eq!(moved(&[1, 2, 3, 4], &[2, 3, 4, 1], &[]), [1, 2]);
        assert_eq!(moved(&[], &[5], &[]), [5]);
    }
}
