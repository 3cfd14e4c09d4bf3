//! Pods that stay where they were: those that an earlier round planned, and those that have room that is there while others are placed again.

use std::rc::Rc;

use fixedbitset::FixedBitSet;

use super::super::bin::Guest;
use super::super::ground::Ground;
use super::super::layout::Layout;
use super::super::{Place, Planned, Request, Solution};
use super::{Change, Search};
use crate::model::hash::FastMap;
use crate::model::name::ObjectKey;

/// Where fewer pods than this have room that is there, they are placed again with the others.
const KEPT_MIN: usize = 500;

/// Where every try begins: what has room that is there keeps it.
pub(super) struct Start {
    layout: Layout,
    on_rooms: FastMap<usize, Vec<(usize, usize)>>,
    /// Pods of the request that are still to be placed.
    waiting: Rc<[usize]>,
}

impl Start {
    /// From `first`, an answer to `request`, if so many pods have room there that their order among the others decides little.
    pub fn of(ground: &mut Ground, request: &Request, first: &Solution) -> Option<Self> {
        let places = first.existing.iter().flat_map(|(place, pods)| pods.iter().map(|pod| (*pod, *place)));
        let places: FastMap<ObjectKey, Place> = places.collect();
        if places.len() < KEPT_MIN {
            return None;
        }
        let mut search = Search::begin(request, ground);
        let mut waiting = search.ordered();
        waiting.retain(|pod| {
            let pod_itself = &request.pods[*pod];
            let place = places.get(&pod_itself.key).filter(|_| pod_itself.buffer().is_none());
            !place.is_some_and(|place| search.settle(*pod, *place))
        });
        Some(Self { layout: search.layout, on_rooms: search.on_rooms, waiting: waiting.into() })
    }

    /// A search that goes on from here.
    pub fn search<'a, 'g>(&self, request: &'a Request<'a>, ground: &'g mut Ground) -> Search<'a, 'g> {
        let search = Search::new(request, ground, self.layout.clone(), Change::default());
        Search { on_rooms: self.on_rooms.clone(), waiting: Some(self.waiting.clone()), ..search }
    }
}

impl Search<'_, '_> {
    /// Puts pods where they were planned before, those first that were planned first, as far as that still holds; the others in
    /// their order. Some hold only once others are where they were. Pods that stand for room keep none from a real one.
    pub(super) fn keep_plans(&mut self, mut order: Vec<usize>) -> Vec<usize> {
        let planned = self.request.planned;
        if planned.is_empty() {
            return order;
        }
        let mut kept: Vec<(usize, usize, Place)> = order
            .iter()
            .filter_map(|pod| {
                let Planned { turn, place } = *planned.get(&self.request.pods[*pod].key)?;
                Some((turn, *pod, place))
            })
            .collect();
        kept.sort_by_key(|(turn, ..)| *turn);
        let mut placed = FixedBitSet::with_capacity(self.request.pods.len());
        loop {
            let count = kept.len();
            kept.retain(|(_, pod, place)| {
                let is_kept = self.keep_plan(*pod, *place);
                placed.set(*pod, is_kept);
                !is_kept
            });
            if kept.len() == count {
                order.retain(|pod| !placed.contains(*pod));
                return order;
            }
        }
    }

    fn keep_plan(&mut self, pod: usize, planned: Place) -> bool {
        let place = match planned {
            Place::Claim(name) => self.request.place_of(name),
            Place::Node(_) => planned,
        };
        self.request.pods[pod].buffer().is_none() && self.settle(pod, place)
    }

    /// Puts the pod there, if that is legal.
    fn settle(&mut self, pod: usize, place: Place) -> bool {
        let Some(room) = self.ground.number(place) else { return false };
        let demand = self.ground.demands.get(self.demands[pod]);
        if demand.volumes.is_err() || demand.shape.has_resource_claims {
            return false;
        }
        let mut at = 0;
        while let Some(level) = self.level(&demand, at) {
            let shunned = self.shunned(&demand);
            let stances =
                self.layout.topology.stances(&level.owned, &shunned, level.asked(), &self.ground.book);
            let volumes = demand.volumes.as_ref().expect("looked at above");
            let guest = Guest { demand: &demand, level: &level, volumes, stances: &stances };
            if self.first_room(at, &guest, Some(room)).is_some() {
                self.take_room(pod, room, &guest);
                return true;
            }
            at += 1;
        }
        false
    }
}
