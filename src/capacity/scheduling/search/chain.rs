//! Questions one after the other, each about the pods of one more node that goes. What was placed for earlier ones stays where it is, so a
//! question costs what is new in it: the pods of that node, and those that an earlier one had put there.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use super::super::amounts;
use super::super::demand::DemandId;
use super::super::ground::Ground;
use super::super::layout::{Layout, Queue};
use super::super::marks::Marks;
use super::super::sellers::new_node;
use super::super::{NewNode, Place, Request, Settings, Unschedulable};
use super::footing::{Differences, Footing, Relied, is_plain};
use super::{Beginning, Change, Fit, Search, prepare};
use crate::model::hash::FastMap;
use crate::model::pod::Pod;

/// All that was placed by the questions that were taken up.
pub(crate) struct Chain {
    layout: Layout,
    /// Sizes of requests for which it was found out which nodes are too full.
    judged: Marks,
    /// By room: which placement it was, and of whom.
    on_rooms: FastMap<usize, Vec<(usize, Arc<Pod>)>>,
    /// What the last answer relied on; `None`: on more than can be followed.
    pub relied: Option<Relied>,
}

/// What one more question comes to. It counts once it is taken up.
pub(crate) struct Link {
    layout: Layout,
    on_rooms: Vec<(usize, usize, Arc<Pod>)>,
    emptied: Vec<usize>,
    /// Where the pods of the question go, and those whose place is gone.
    pub moved: Vec<(Arc<Pod>, To)>,
    /// Those of them that have no place.
    pub left: Vec<Unschedulable>,
    /// Nothing but room matters to any of them: they may be there, whichever of the others are.
    pub is_plain: bool,
    /// One of them needs a new node, and none was to be given: nothing is said of the others.
    pub needs_new: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum To {
    Existing(Place),
    /// A new node, by its number in the chain.
    New(usize),
}

impl Chain {
    /// Goes on from `beginning`. Pods are offered to what is at `order` in that order, and to nothing else that is there.
    pub fn after(beginning: &Beginning, ground: &Ground, order: &[Place]) -> Self {
        let mut layout = beginning.layout.clone();
        layout.rooms.order = Some(Queue::new(order.iter().filter_map(|place| ground.number(*place))));
        Self { layout, judged: Marks::default(), on_rooms: beginning.on_rooms.clone(), relied: None }
    }

    /// How many new nodes there are.
    pub fn new_nodes(&self) -> usize {
        self.layout.bins.len()
    }

    /// Where the pods of `request` go, after all that was taken up, without what it takes away.
    pub fn ask(&mut self, ground: &mut Ground, request: &Request, fit: Fit) -> Link {
        prepare(&mut self.layout, ground, request);
        self.find_too_full(ground, request);
        let mut change = Change::of(ground, request);
        let emptied: Vec<usize> = change.closed.iter().copied().collect();
        let mut pods = request.pods.to_vec();
        for room in &emptied {
            for (placement, pod) in self.on_rooms.get(room).into_iter().flatten() {
                change.withdrawn.push(*placement);
                pods.push(pod.clone());
            }
        }
        let request = Request { pods: &pods, ..*request };
        let mut search = Search { fit, ..Search::new(&request, ground, self.layout.clone(), change) };
        search.run();
        let left = search.unschedulable();
        let Search { ground, layout, on_rooms, on_bins, demands, tried, needs_new, .. } = search;
        let reached = reached(&tried, &demands, &on_rooms, &layout);
        let is_plain = reached.iter().all(|(demand, _)| is_plain(*demand, &layout, ground));
        self.relied = match emptied.as_slice() {
            [room] if is_plain && !self.on_rooms.contains_key(room) => {
                Some(Relied { room: *room, used: on_rooms.keys().copied().collect(), demands: reached })
            }
            _ => None,
        };
        let rooms = on_rooms.iter().flat_map(|(room, placed)| {
            placed.iter().map(|(placement, pod)| (*room, *placement, pods[*pod].clone()))
        });
        let on_rooms: Vec<(usize, usize, Arc<Pod>)> = rooms.collect();
        let existing = on_rooms
            .iter()
            .map(|(room, _, pod)| (pod.clone(), To::Existing(ground.places.room(*room).place)));
        let new = on_bins.iter().map(|(bin, pod)| (pods[*pod].clone(), To::New(*bin)));
        let mut moved: Vec<(Arc<Pod>, To)> = existing.chain(new).collect();
        moved.sort_by_key(|(pod, _)| pod.key);
        Link { layout, on_rooms, emptied, moved, left, is_plain, needs_new }
    }

    /// What answers rely on, as long as none was taken up.
    pub fn footing(&self, ground: &Ground) -> Option<Footing> {
        Footing::of(&self.layout, ground)
    }

    /// Whether an answer that relied on this, in a picture from which this one has these `differences`, would be the same here.
    pub fn still_answers(&self, relied: &Relied, differences: &mut Differences, ground: &mut Ground) -> bool {
        differences.spare(relied, &self.layout, ground) && !self.on_rooms.contains_key(&relied.room)
    }

    /// Which nodes are too full for pods of `request`: every question that comes after would find the same.
    fn find_too_full(&mut self, ground: &mut Ground, request: &Request) {
        for pod in request.pods {
            let demand = ground.demand(request, pod);
            let demand = ground.demands.get(demand);
            if self.judged.contains(demand.size) {
                continue;
            }
            self.judged.insert(demand.size);
            let Layout { rooms, too_full, .. } = &mut self.layout;
            if demand.size >= too_full.len() {
                too_full.resize(demand.size + 1, Default::default());
            }
            let full = rooms.open.iter().filter(|room| !amounts::fits(&demand.requests, rooms.row(*room)));
            let full: Marks = full.collect();
            Rc::make_mut(&mut too_full[demand.size]).0.add_all(&full);
        }
    }

    /// What `link` says holds from here on.
    pub fn take_up(&mut self, link: Link) {
        self.layout = link.layout;
        for room in link.emptied {
            self.on_rooms.remove(&room);
        }
        for (room, placement, pod) in link.on_rooms {
            self.on_rooms.entry(room).or_default().push((placement, pod));
        }
    }
}

/// By demand: the last node that was asked by any of its pods; `None`: all were, because some pod found no place there. `tried`: the pods
/// that were asked about, besides those that have room. `demands`: by number of the pod.
fn reached(
    tried: &[usize],
    demands: &[DemandId],
    on_rooms: &FastMap<usize, Vec<(usize, usize)>>,
    layout: &Layout,
) -> Vec<(DemandId, Option<usize>)> {
    let mut rooms: BTreeMap<usize, Option<usize>> = tried.iter().map(|pod| (*pod, None)).collect();
    for (room, placed) in on_rooms {
        rooms.extend(placed.iter().map(|(_, pod)| (*pod, Some(*room))));
    }
    let mut reached: BTreeMap<DemandId, Option<usize>> = BTreeMap::new();
    for (pod, room) in rooms {
        let last = reached.entry(demands[pod]).or_insert(room);
        let position = |room: usize| layout.rooms.position(room);
        *last = last.zip(room).map(|(one, other)| if position(other) > position(one) { other } else { one });
    }
    reached.into_iter().collect()
}

impl Link {
    /// The new node of that number.
    pub fn new_node(&self, ground: &mut Ground, settings: &Settings, at: usize) -> NewNode {
        new_node(&self.layout.bins[at], settings, ground)
    }

    pub fn new_nodes(&self) -> usize {
        self.layout.bins.len()
    }
}
