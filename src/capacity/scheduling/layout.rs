//! What was placed so far: nodes less what is on them now, new nodes, the counts of rules, what limits still allow.
//!
//! A copy shares all that is not touched afterwards, so that a question can go on from where another one ended.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::amounts;
use super::bin::{Bin, Guest};
use super::ground::Ground;
use super::marks::Marks;
use super::reservations::Reservations;
use super::room::Room;
use super::template::Template;
use super::topology::Topology;
use super::volumes::Attached;
use super::{Mode, Request};
use crate::capacity::cluster::Cluster;
use crate::model::hash::FastMap;
use crate::model::name::PoolName;
use crate::model::pod::HostPort;
use crate::model::quantity::Resources;

#[derive(Clone)]
pub(super) struct Layout {
    /// What the limits of each template still allow, and the ways to buy within them.
    pub limits: Vec<Option<(Resources, Arc<FixedBitSet>)>>,
    pub rooms: Rooms,
    pub bins: Vec<Rc<Bin>>,
    pub order: Order,
    pub topology: Topology,
    pub reservations: Reservations,
    /// By size of requests: rooms and bins that are too full.
    pub too_full: Vec<Rc<(Marks, Marks)>>,
    /// Number of pods.
    pub placed: usize,
}

impl Layout {
    /// Nothing is placed yet.
    pub fn new(ground: &Ground, request: &Request) -> Self {
        let limits = ground.templates.iter().map(|template| {
            let pool = &template.pool.name;
            let mut used = ground.used().get(pool).cloned().unwrap_or_default();
            if let Some(least) = request.used_at_least.get(pool) {
                used.raise(least);
            }
            let left = template.left(Some(&used))?;
            let within = template.within_limits(&left);
            Some((left, within))
        });
        Self {
            limits: limits.collect(),
            rooms: Rooms::new(ground, request),
            bins: Vec::new(),
            order: Order::default(),
            topology: Topology::default(),
            reservations: ground.reservations.clone(),
            too_full: Vec::new(),
            placed: 0,
        }
    }
}

impl Layout {
    /// Limits allow so much more of each pool.
    pub fn give_back(&mut self, returned: &BTreeMap<PoolName, Resources>, templates: &[Template]) {
        for (limits, template) in self.limits.iter_mut().zip(templates) {
            let (Some((left, within)), Some(more)) = (limits, returned.get(&template.pool.name)) else {
                continue;
            };
            *left = left.iter().map(|(name, amount)| (name, amount.saturating_add(more.get(name)))).collect();
            *within = template.within_limits(left);
        }
    }
}

/// Rooms, less what was placed on them.
#[derive(Clone)]
pub(super) struct Rooms {
    /// A row for each, one after the other.
    left: Vec<i64>,
    width: usize,
    /// Ports and volumes, where they are not what they were.
    changed: FastMap<usize, Rc<(Vec<HostPort>, Attached)>>,
    /// Those that take pods at all; and those that take pods that have a place.
    pub open: Marks,
    pub settled: Marks,
    /// Those that take only pods that were planned there.
    pub shut: Marks,
    /// In what order they are asked, if not in that of their names.
    pub order: Option<Queue>,
}

/// An order in which rooms are asked.
#[derive(Clone)]
pub(super) struct Queue {
    rooms: Rc<[usize]>,
    /// By room.
    positions: Rc<[usize]>,
}

/// So many times fewer rooms than all are put in order by themselves.
const FEW: usize = 16;

impl Queue {
    pub fn new(rooms: impl Iterator<Item = usize>) -> Self {
        let rooms: Rc<[usize]> = rooms.collect();
        let mut positions = vec![usize::MAX; rooms.iter().max().map_or(0, |most| most + 1)];
        for (position, room) in rooms.iter().enumerate() {
            positions[*room] = position;
        }
        Self { rooms, positions: positions.into() }
    }

    pub fn rooms(&self) -> &[usize] {
        &self.rooms
    }

    /// Those of `open` that are in it.
    pub fn of<'a>(&'a self, open: &'a Marks) -> impl Iterator<Item = usize> + 'a {
        let are_few = open.count() * FEW < self.rooms.len();
        let mut few: Vec<usize> = match are_few {
            true => open.iter().filter_map(|room| self.positions.get(room).copied()).collect(),
            false => Vec::new(),
        };
        few.sort_unstable();
        let few = few.into_iter().filter_map(|position| self.rooms.get(position).copied());
        let all = (!are_few).then(|| self.rooms.iter().copied().filter(|room| open.contains(*room)));
        few.chain(all.into_iter().flatten())
    }
}

impl Rooms {
    fn new(ground: &Ground, request: &Request) -> Self {
        let open = ground.places.present().clone();
        let mut settled = open.clone();
        if let Mode::Simulation { settling } = request.mode {
            for room in settling.iter().filter_map(|node| ground.room(*node)) {
                settled.remove(room);
            }
        }
        Self {
            left: ground.places.rooms().iter().flat_map(|room| &room.left).copied().collect(),
            width: ground.columns.len(),
            changed: FastMap::default(),
            open,
            settled,
            shut: Marks::default(),
            order: None,
        }
    }

    /// The room takes only pods that were planned there.
    pub fn shut(&mut self, room: usize) {
        if self.open.contains(room) {
            self.close(room);
            self.shut.insert(room);
        }
    }

    /// The room takes no pods any more.
    pub fn close(&mut self, room: usize) {
        self.open.remove(room);
        self.settled.remove(room);
        self.shut.remove(room);
    }

    /// Where in the order the room is.
    pub fn position(&self, room: usize) -> Option<usize> {
        let position = self.order.as_ref()?.positions.get(room).copied()?;
        (position != usize::MAX).then_some(position)
    }

    /// A row for each room, one after the other.
    pub fn rows(&self) -> &[i64] {
        &self.left
    }

    pub fn row(&self, at: usize) -> &[i64] {
        &self.left[at * self.width..(at + 1) * self.width]
    }

    /// Ports that are taken, and volumes that are attached.
    pub fn held<'a>(
        &'a self,
        at: usize,
        room: &'a Room,
        cluster: &Cluster,
    ) -> (&'a [HostPort], &'a Attached) {
        match self.changed.get(&at).map(|changed| &**changed) {
            Some((ports, attached)) => (ports, attached),
            None => (&room.ports, room.attached(cluster)),
        }
    }

    pub fn take(&mut self, at: usize, room: &Room, guest: &Guest, cluster: &Cluster) {
        amounts::subtract(&mut self.left[at * self.width..(at + 1) * self.width], &guest.demand.requests);
        let ports = &guest.level.shape.host_ports;
        if !ports.is_empty() || !guest.volumes.attached.is_empty() {
            let changed = self.changed.entry(at);
            let changed =
                changed.or_insert_with(|| Rc::new((room.ports.clone(), room.attached(cluster).clone())));
            let (held, attached) = Rc::make_mut(changed);
            held.extend(ports.iter().copied());
            attached.attach(&guest.volumes.attached);
        }
    }
}

/// New nodes by number of pods, then age.
#[derive(Clone, Default)]
pub(super) struct Order {
    by_pods: Vec<(usize, Marks)>,
}

impl Order {
    pub fn put(&mut self, bin: usize, pods: usize) {
        if pods >= self.by_pods.len() {
            self.by_pods.resize(pods + 1, Default::default());
        }
        self.by_pods[pods].0 += 1;
        self.by_pods[pods].1.insert(bin);
    }

    pub fn take(&mut self, bin: usize, pods: usize) {
        self.by_pods[pods].0 -= 1;
        self.by_pods[pods].1.remove(bin);
    }

    pub fn levels(&self) -> impl Iterator<Item = &Marks> {
        self.by_pods.iter().filter(|(count, _)| *count > 0).map(|(_, bins)| bins)
    }
}
