//! A pool as the solver sees it: what its nodes demand, and every way to buy one.
//!
//! Each way to buy (type, zone, capacity type) has a position, and a set of ways is a bit set over positions. What a
//! requirement leaves is computed once and remembered, so narrowing a node is a few `and`s.

use std::cell::{OnceCell, RefCell};
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use super::amounts::{self, Amounts, Columns};
use super::daemons::Daemon;
use super::explain::{Code, NoTypes};
use crate::model::action::LaunchOption;
use crate::model::hash::FastMap;
use crate::model::label;
use crate::model::money::UsdPerHour;
use crate::model::offering::{InstanceType, Offering};
use crate::model::pod::HostPort;
use crate::model::pool::NodePool;
use crate::model::quantity::{ResourceName, Resources, resource};
use crate::model::requirement::{Requirement, Requirements};
use crate::model::symbol::Symbol;
use crate::model::taint::Taint;

/// Where the offerings of one type stand, and how much room it has.
pub(super) struct TypeRow {
    pub positions: Range<usize>,
    /// Allocatable, and volumes that it can attach, less the daemons that will run on it.
    pub room: Amounts,
    pub capacity: Resources,
    /// Which daemons will run on it.
    pub daemons: usize,
}

/// Daemons that types have in common.
pub(super) struct DaemonGroup {
    members: Vec<usize>,
    pub requests: Amounts,
    pub ports: Vec<HostPort>,
}

pub(super) struct Template {
    pub pool: Arc<NodePool>,
    /// Of every node: the pool's requirements, its labels, its own name and that of its class.
    pub requirements: Requirements,
    pub types: Arc<Vec<InstanceType>>,
    pub rows: Vec<TypeRow>,
    /// Position to (type, offering).
    pub positions: Vec<(usize, usize)>,
    /// What the requirements leave and is on sale.
    pub open: Arc<FixedBitSet>,
    pub daemons: Vec<DaemonGroup>,
    /// The most that any type has of each resource.
    most: Resources,
    /// Positions, cheapest first, once anybody wants to know.
    by_price: OnceCell<Vec<usize>>,
    /// Positions that draw on a reservation.
    reserved: Vec<usize>,
    masks: RefCell<FastMap<(Symbol, Requirement), Arc<FixedBitSet>>>,
}

impl Template {
    pub fn new(
        pool: &Arc<NodePool>,
        types: Arc<Vec<InstanceType>>,
        daemons: &[Daemon],
        columns: &Columns,
    ) -> Self {
        let requirements = requirements_of(pool);
        let mut positions = Vec::new();
        let mut rows: Vec<TypeRow> = Vec::with_capacity(types.len());
        let mut groups: Vec<DaemonGroup> = Vec::new();
        // Daemons may ask for the labels that every node of ours gets when it joins.
        let mut joined = requirements.clone();
        joined.add(*label::REGISTERED, Requirement::one("true".into()));
        joined.add(*label::INITIALIZED, Requirement::one("true".into()));
        for (at, kind) in types.iter().enumerate() {
            let start = positions.len();
            positions.extend((0..kind.offerings.len()).map(|offering| (at, offering)));
            let taints = &pool.template.taints;
            let runs = |daemon: &Daemon| {
                daemon.runs_on(taints, &joined, crate::model::requirement::Undefined::WellKnown)
                    && daemon.runs_on_type(&joined, &kind.requirements)
            };
            let members: Vec<usize> = (0..daemons.len()).filter(|index| runs(&daemons[*index])).collect();
            let group = groups.iter().position(|group| group.members == members).unwrap_or_else(|| {
                groups.push(DaemonGroup::new(members, daemons, columns));
                groups.len() - 1
            });
            let mut room = columns.room(&kind.allocatable, &kind.volumes_max);
            amounts::subtract(&mut room, &groups[group].requests);
            let capacity = kind.capacity.clone();
            rows.push(TypeRow { positions: start..positions.len(), room, capacity, daemons: group });
        }
        let mut most = Resources::new();
        for kind in types.iter() {
            most.raise(&kind.capacity);
        }
        let mut template = Self {
            pool: pool.clone(),
            most,
            open: Arc::default(),
            by_price: OnceCell::new(),
            reserved: Vec::new(),
            requirements,
            types,
            rows,
            positions,
            daemons: groups,
            masks: RefCell::default(),
        };
        let mut open = template.matching(&template.requirements);
        for at in 0..template.positions.len() {
            if !template.offering(at).is_available {
                open.set(at, false);
            }
        }
        template.open = Arc::new(open);
        template.reserved = (0..template.positions.len())
            .filter(|position| template.offering(*position).reservation.is_some())
            .collect();
        template
    }

    /// The way to buy at `position`.
    fn option(&self, position: usize) -> LaunchOption {
        let offering = self.offering(position);
        LaunchOption {
            price: offering.price,
            instance_type: self.types[self.positions[position].0].name,
            zone: offering.zone,
            capacity_type: offering.capacity_type,
            reservation: offering.reservation.map(|reservation| reservation.id),
        }
    }

    /// The ways to buy of `open`, cheapest first.
    pub fn options(&self, open: &FixedBitSet) -> Vec<LaunchOption> {
        let by_price = self.by_price.get_or_init(|| {
            let mut by_price: Vec<usize> = (0..self.positions.len()).collect();
            by_price.sort_by_cached_key(|at| option_order(&self.option(*at)));
            by_price
        });
        by_price.iter().filter(|at| open.contains(**at)).map(|at| self.option(*at)).collect()
    }

    /// Positions that draw on a reservation.
    pub fn reserved(&self) -> &[usize] {
        &self.reserved
    }

    pub fn reserved_set(&self) -> FixedBitSet {
        let mut set = FixedBitSet::with_capacity(self.positions.len());
        set.extend(self.reserved.iter().copied());
        set
    }

    /// Reservations that ways of `open` draw on.
    pub fn reservations(&self, open: &FixedBitSet) -> BTreeSet<Symbol> {
        let of = |at: &usize| self.offering(*at).reservation.map(|reservation| reservation.id);
        self.reserved.iter().filter(|at| open.contains(**at)).filter_map(of).collect()
    }

    /// The room of types of `open` than which no other has more of everything.
    pub fn largest(&self, open: &FixedBitSet) -> Vec<Amounts> {
        let mut largest: Vec<Amounts> = Vec::new();
        for kind in self.alive(open) {
            let room = &self.rows[kind].room;
            let is_within =
                |one: &[i64], other: &[i64]| one.iter().zip(other).all(|(one, other)| one <= other);
            if largest.iter().any(|known| is_within(room, known)) {
                continue;
            }
            largest.retain(|known| !is_within(known, room));
            largest.push(room.clone());
        }
        // What is overdrawn holds nothing.
        largest.retain(|room| room.iter().all(|amount| *amount >= 0));
        largest.sort_unstable_by(|one, other| other.cmp(one));
        largest
    }

    /// Prices of `open` and the room they buy, cheapest first, without those that buy no room which a lower one does not.
    pub fn prices(&self, open: &FixedBitSet) -> Vec<(UsdPerHour, Amounts)> {
        let cheapest = self.alive(open).filter_map(|kind| {
            let row = &self.rows[kind];
            let sold = row.positions.clone().filter(|at| open.contains(*at));
            Some((sold.map(|at| self.offering(at).price).min()?, &row.room))
        });
        let mut all: Vec<(UsdPerHour, &Amounts)> = cheapest.collect();
        all.sort();
        let mut prices: Vec<(UsdPerHour, Amounts)> = Vec::new();
        for (price, room) in all {
            if !prices.iter().any(|(_, known)| room.iter().zip(known).all(|(one, other)| one <= other)) {
                prices.push((price, room.clone()));
            }
        }
        prices
    }

    pub fn taints(&self) -> &[Taint] {
        &self.pool.template.taints
    }

    pub fn offering(&self, position: usize) -> &Offering {
        let (kind, offering) = self.positions[position];
        &self.types[kind].offerings[offering]
    }

    pub fn is_any_open(&self, kind: usize, open: &FixedBitSet) -> bool {
        open.contains_any_in_range(self.rows[kind].positions.clone())
    }

    /// Types with an open offering.
    pub fn alive<'a>(&'a self, open: &'a FixedBitSet) -> impl Iterator<Item = usize> + 'a {
        (0..self.rows.len()).filter(move |kind| self.is_any_open(*kind, open))
    }

    pub fn close_type(&self, kind: usize, open: &mut FixedBitSet) {
        open.set_range(self.rows[kind].positions.clone(), false);
    }

    /// Ways to buy that `requirement` on `key` leaves, available or not.
    fn mask(&self, key: Symbol, requirement: &Requirement) -> Arc<FixedBitSet> {
        let known = self.masks.borrow().get(&(key, requirement.clone())).cloned();
        known.unwrap_or_else(|| {
            let mut mask = FixedBitSet::with_capacity(self.positions.len());
            for (kind, row) in self.types.iter().zip(&self.rows) {
                if kind.requirements.get(key).is_none_or(|theirs| theirs.agrees_with(requirement)) {
                    mask.set_range(row.positions.clone(), true);
                }
            }
            let is_of_offering = [*label::ZONE, *label::CAPACITY_TYPE, *label::RESERVATION_ID].contains(&key);
            if is_of_offering {
                let alone: Requirements = [(key, requirement.clone())].into_iter().collect();
                for at in 0..self.positions.len() {
                    if !self.offering(at).suits(&alone) {
                        mask.set(at, false);
                    }
                }
            }
            let mask = Arc::new(mask);
            self.masks.borrow_mut().insert((key, requirement.clone()), mask.clone());
            mask
        })
    }

    /// Whether some type or offering has an opinion on `key`.
    fn knows(&self, key: Symbol) -> bool {
        key != *label::HOSTNAME
    }

    pub fn matching(&self, requirements: &Requirements) -> FixedBitSet {
        let mut open = FixedBitSet::with_capacity(self.positions.len());
        open.set_range(.., true);
        self.narrow(&mut open, &Requirements::new(), requirements);
        open
    }

    /// Closes what `after` rules out and `before` did not.
    pub fn narrow(&self, open: &mut FixedBitSet, before: &Requirements, after: &Requirements) {
        for (key, requirement) in after.iter() {
            if before.get(key) != Some(requirement) && self.knows(key) {
                open.intersect_with(&self.mask(key, requirement));
            }
        }
    }

    /// What is left of `open` for `requests`.
    pub fn with_room(&self, open: &FixedBitSet, requests: &[i64]) -> FixedBitSet {
        let mut open = open.clone();
        for (kind, row) in self.rows.iter().enumerate() {
            if !amounts::fits(requests, &row.room) {
                self.close_type(kind, &mut open);
            }
        }
        open
    }

    /// Closes types whose daemons hold one of `ports`; the port if none is left.
    pub fn keep_free_ports(&self, open: &mut FixedBitSet, ports: &[HostPort]) -> Result<(), u16> {
        let clash = |group: &DaemonGroup| {
            ports.iter().find(|port| group.ports.iter().any(|taken| taken.clashes_with(port)))
        };
        let clashes: Vec<Option<&HostPort>> = self.daemons.iter().map(clash).collect();
        let Some(first) = clashes.iter().flatten().next() else { return Ok(()) };
        for (kind, row) in self.rows.iter().enumerate() {
            if clashes[row.daemons].is_some() {
                self.close_type(kind, open);
            }
        }
        if open.is_clear() { Err(first.port) } else { Ok(()) }
    }

    /// How many different values of `key` the open ways to buy still offer under `requirements`.
    pub fn distinct_values(&self, key: Symbol, requirements: &Requirements, open: &FixedBitSet) -> usize {
        let asked = requirements.get(key);
        let is_allowed = |value: &Symbol| asked.is_none_or(|asked| asked.has(*value));
        let mut values: BTreeSet<Symbol> = BTreeSet::new();
        if key == *label::ZONE || key == *label::CAPACITY_TYPE {
            for at in open.ones() {
                let offering = self.offering(at);
                values.insert(if key == *label::ZONE {
                    offering.zone.0
                } else {
                    offering.capacity_type.symbol()
                });
            }
        } else {
            for kind in self.alive(open) {
                let theirs = self.types[kind].requirements.get(key).and_then(Requirement::listed);
                values.extend(theirs.into_iter().flatten().copied());
            }
        }
        values.into_iter().filter(is_allowed).count()
    }

    /// The first requirement whose minimum of distinct values is not met, with what is there.
    pub fn missing_values(&self, requirements: &Requirements, open: &FixedBitSet) -> Vec<(Symbol, u32, u32)> {
        let short = |(key, requirement): (Symbol, &Requirement)| {
            let wanted = requirement.min_values?;
            let found = u32::try_from(self.distinct_values(key, requirements, open)).unwrap_or(u32::MAX);
            (found < wanted).then_some((key, wanted, found))
        };
        requirements.iter().filter_map(short).collect()
    }

    /// What the limits allow of new nodes, `used` being in use.
    pub fn left(&self, used: Option<&Resources>) -> Option<Resources> {
        let used = |name| used.map_or(0, |used| used.get(name));
        let limits = self.pool.limits.as_ref()?;
        Some(limits.iter().map(|(name, limit)| (name, limit.saturating_sub(used(name)))).collect())
    }

    /// What `left`, of the limits, leaves of what is open for one more node.
    pub fn within_limits(&self, left: &Resources) -> Arc<FixedBitSet> {
        let is_ample = |(name, left): (ResourceName, i64)| {
            name == *resource::NODES || (left >= 0 && self.most.get(name) <= left)
        };
        if left.iter().all(is_ample) {
            return self.open.clone();
        }
        let mut open = (*self.open).clone();
        for (kind, row) in self.rows.iter().enumerate() {
            let exceeds = |(name, left): (ResourceName, i64)| {
                name != *resource::NODES && (left < 0 || row.capacity.get(name) > left)
            };
            if left.iter().any(exceeds) {
                self.close_type(kind, &mut open);
            }
        }
        Arc::new(open)
    }

    /// What a new node takes from limits: as if the largest of its types were bought.
    pub fn charge(&self, open: &FixedBitSet) -> Resources {
        let mut most = Resources::new();
        for kind in self.alive(open) {
            most.raise(&self.rows[kind].capacity);
        }
        most.set(*resource::NODES, 1);
        most
    }

    /// The daemons that will certainly run: what every group that still has a type asks for.
    pub fn least_daemons(&self, open: &FixedBitSet) -> Option<Amounts> {
        let groups: BTreeSet<usize> = self.alive(open).map(|kind| self.rows[kind].daemons).collect();
        let mut rows = groups.into_iter().map(|group| self.daemons[group].requests.clone());
        let mut least = rows.next()?;
        for row in rows {
            for (amount, other) in least.iter_mut().zip(&row) {
                *amount = (*amount).min(*other);
            }
        }
        Some(least)
    }

    /// Which criteria rule out every type.
    pub fn why_none(&self, requirements: &Requirements, requests: &[i64], columns: &Columns) -> NoTypes {
        let matching = self.matching(requirements);
        let types_matching: BTreeSet<usize> = {
            let agrees = |kind: &usize| self.types[*kind].requirements.intersects(requirements).is_ok();
            (0..self.types.len()).filter(agrees).collect()
        };
        let is_large = |kind: &usize| amounts::fits(requests, &self.rows[*kind].room);
        let is_sold = |kind: &usize| {
            let positions = self.rows[*kind].positions.clone();
            positions.into_iter().any(|at| matching.contains(at) && self.offering(at).is_available)
        };
        let code = if types_matching.is_empty() {
            Code::NoTypeMatchesRequirements
        } else if !(0..self.types.len()).any(|kind| is_large(&kind)) {
            Code::ResourcesExceedEveryType
        } else if !types_matching.iter().any(is_sold) {
            Code::NoOfferingAvailable
        } else if !types_matching.iter().any(is_large) {
            Code::ResourcesExceedEveryType
        } else {
            Code::NoTypeMatchesEverything
        };
        let with_daemons = |group: &DaemonGroup| columns.told(&amounts::sum(requests, &group.requests));
        let totals: Vec<Resources> = self.daemons.iter().map(with_daemons).collect();
        let least =
            totals.iter().min_by_key(|total| (total.cpu(), total.memory())).cloned().unwrap_or_default();
        let most =
            totals.iter().max_by_key(|total| (total.cpu(), total.memory())).cloned().unwrap_or_default();
        NoTypes { code, requirements: requirements.clone(), requests: (least, most) }
    }
}

impl DaemonGroup {
    fn new(members: Vec<usize>, daemons: &[Daemon], columns: &Columns) -> Self {
        let mut requests = columns.row(&Resources::new());
        let mut ports = Vec::new();
        for member in &members {
            amounts::add(&mut requests, &columns.row(&daemons[*member].shape.requests));
            ports.extend(daemons[*member].shape.host_ports.iter().copied());
        }
        Self { members, requests, ports }
    }
}

/// Cheapest first; a total order.
fn option_order(option: &LaunchOption) -> impl Ord + use<> {
    (option.price, option.instance_type, option.capacity_type, option.zone, option.reservation)
}

/// What every node of `pool` is labelled with or limited to.
pub fn requirements_of(pool: &NodePool) -> Requirements {
    let mut requirements = pool.template.requirements.clone();
    requirements.add_all(&Requirements::of_labels(&pool.template.labels));
    requirements.add(*label::NODEPOOL, Requirement::one(pool.name.0));
    let class = &pool.template.class;
    requirements.add(class.label_key(), Requirement::one(class.name.0));
    requirements
}
