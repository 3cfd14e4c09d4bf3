//! What is to be carried, and the machines that could: pods that differ in nothing that counts here are one group, offerings that carry the
//! same pods and have the same room are one machine at the lowest of their prices.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use crate::capacity::scheduling::amounts::Amounts;
use crate::capacity::scheduling::ground::Ground;
use crate::capacity::scheduling::outlook::can_become;
use crate::capacity::scheduling::pods::required_alternatives;
use crate::capacity::scheduling::template::Template;
use crate::capacity::scheduling::{Request, Settings, Solution};
use crate::model::hash::{FastMap, FastSet};
use crate::model::name::ObjectKey;
use crate::model::pod::PodShape;
use crate::model::symbol::Symbol;
use crate::model::taint::Effect;

/// What each template could sell to some pods: ways to buy on which they may be.
pub(in super::super) type Ways = Vec<FixedBitSet>;

/// Equal pods.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Group {
    pub requests: Amounts,
    pub count: i64,
    /// What it may be on, as a number of [`Market::companies`].
    company: usize,
}

/// A way to buy room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Machine {
    pub price: i64,
    /// Whose it is at that price.
    pub template: usize,
    /// Less daemons.
    pub room: Amounts,
    /// Of each group, the most pods that it has room for if it carries no others; 0 if it may carry none.
    pub most: Vec<i64>,
    /// Companies that may be on it.
    suits: FixedBitSet,
}

/// Capacity that is paid for already, and how often it can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in super::super) struct Reserved {
    pub machines: Vec<Machine>,
    pub count: i64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in super::super) struct Market {
    /// Number of resources that somebody asks for.
    pub width: usize,
    pub groups: Vec<Group>,
    /// Cheapest first, without those that another one outdoes.
    pub machines: Vec<Machine>,
    pub reserved: Vec<Reserved>,
    /// How many sets of offerings there are that pods may be on.
    companies: usize,
}

/// What `machines` are made from: room, who may be there, price, template.
type Lot = (Amounts, FixedBitSet, i64, usize);

/// What is left of a reservation, and what can be had of it.
type Paid = (u32, Vec<Lot>);

impl Market {
    pub fn of(ground: &Ground, request: &Request, solution: &Solution) -> Self {
        let on_new: FastSet<ObjectKey> =
            solution.new_nodes.iter().flat_map(|node| node.pods.iter().copied()).collect();
        let mut companies = Companies::default();
        let mut by_address: FastMap<usize, (usize, usize)> = FastMap::default();
        let mut known: Vec<Amounts> = Vec::new();
        let mut by_shape: Vec<i64> = Vec::new();
        for pod in request.pods.iter().filter(|pod| on_new.contains(&pod.key)) {
            let address = std::sync::Arc::as_ptr(&pod.shape) as usize;
            let (at, _) = *by_address.entry(address).or_insert_with(|| {
                let company = companies.of(ground, &pod.shape);
                known.push(ground.columns.row(&pod.shape.requests));
                by_shape.push(0);
                companies.of_shape.push(company);
                (known.len() - 1, company)
            });
            by_shape[at] += 1;
        }
        let wanted = known.into_iter().zip(by_shape).zip(&companies.of_shape);
        let wanted = wanted.map(|((requests, count), company)| (*company, requests, count)).collect();
        Self::carrying(ground, request.settings, &companies.sets, wanted).0
    }

    /// Of `wanted`, each a company, requests, and how many pods; `companies`: what those may be on. And which group each has
    /// become part of.
    pub fn carrying(
        ground: &Ground,
        settings: &Settings,
        companies: &[Ways],
        wanted: Vec<(usize, Amounts, i64)>,
    ) -> (Self, Vec<usize>) {
        let asked: Vec<usize> = (0..ground.columns.len())
            .filter(|at| wanted.iter().any(|(_, row, count)| *count > 0 && row[*at] > 0))
            .collect();
        let narrow = |row: &[i64]| -> Amounts { asked.iter().map(|at| row[*at]).collect() };
        let keys: Vec<(usize, Amounts)> = wanted
            .iter()
            .map(|(company, row, _)| (*company, narrow(row).iter().map(|amount| (*amount).max(0)).collect()))
            .collect();
        let mut merged: BTreeMap<&(usize, Amounts), i64> = BTreeMap::new();
        for (key, (_, _, count)) in keys.iter().zip(&wanted) {
            *merged.entry(key).or_default() += count;
        }
        let numbers: BTreeMap<&(usize, Amounts), usize> = merged.keys().copied().zip(0..).collect();
        let groups = merged.iter().map(|((company, requests), count)| Group {
            requests: requests.clone(),
            count: *count,
            company: *company,
        });
        let groups: Vec<Group> = groups.collect();
        let (lots, reserved) = lots(ground, settings, companies, &narrow);
        let mut market = Self { width: asked.len(), groups, companies: companies.len(), ..Self::default() };
        market.machines = market.machines_of(lots);
        market.reserved = reserved
            .into_values()
            .map(|(count, lots)| Reserved { machines: market.machines_of(lots), count: i64::from(count) })
            .filter(|reserved| reserved.count > 0 && !reserved.machines.is_empty())
            .collect();
        (market, keys.iter().map(|key| numbers[key]).collect())
    }

    /// The lowest price of all.
    pub fn cheapest(&self) -> Option<i64> {
        let reserved = self.reserved.iter().flat_map(|reserved| &reserved.machines);
        self.machines.iter().chain(reserved).map(|machine| machine.price).min()
    }

    /// How many there are to carry.
    pub fn pods(&self) -> i64 {
        self.groups.iter().map(|group| group.count).sum()
    }

    /// As if there were no end of what is paid for already.
    pub fn with_endless_reservations(&self) -> Self {
        let reserved = self.reserved.iter().flat_map(|reserved| &reserved.machines);
        let mut all = Self { reserved: Vec::new(), ..self.clone() };
        all.machines = self.machines_of(lots_of(self.machines.iter().chain(reserved)));
        all
    }

    /// Machines that carry anything, cheapest first, without those that another one outdoes.
    fn machines_of(&self, lots: Vec<Lot>) -> Vec<Machine> {
        let mut total = vec![0_i64; self.width];
        for group in &self.groups {
            for (sum, amount) in total.iter_mut().zip(&group.requests) {
                *sum = sum.saturating_add(amount.saturating_mul(group.count));
            }
        }
        let mut cheapest: BTreeMap<(Amounts, FixedBitSet), (i64, usize)> = BTreeMap::new();
        for (mut room, suits, price, template) in lots {
            // More than all pods together need is of no use.
            room.iter_mut().zip(&total).for_each(|(there, needed)| *there = (*there).min(*needed));
            let known = cheapest.entry((room, suits)).or_insert((price, template));
            *known = (*known).min((price, template));
        }
        let mut offers: Vec<((i64, usize), Amounts, FixedBitSet)> =
            cheapest.into_iter().map(|((room, suits), price)| (price, room, suits)).collect();
        offers.sort_by(|one, other| (one.0, &other.1, &other.2).cmp(&(other.0, &one.1, &one.2)));
        let mut kept: Vec<((i64, usize), Amounts, FixedBitSet)> = Vec::new();
        for (price, room, suits) in offers {
            let is_outdone = kept.iter().any(|(_, larger, wider)| {
                room.iter().zip(larger).all(|(one, other)| one <= other) && suits.is_subset(wider)
            });
            if !is_outdone {
                kept.push((price, room, suits));
            }
        }
        kept.into_iter()
            .map(|((price, template), room, suits)| {
                let most = self.groups.iter().map(|group| most(group, &room, &suits)).collect();
                Machine { price, template, room, most, suits }
            })
            .filter(|machine| machine.most.iter().any(|most| *most > 0))
            .collect()
    }

    /// The same machines with at most about `groups_max` groups, each of pods that ask for a little less, and which of them each group is in;
    /// `None` if there are not more now.
    pub fn coarse(&self, groups_max: usize) -> Option<(Self, Vec<usize>)> {
        if self.groups.len() <= groups_max {
            return None;
        }
        let key = |group: &Group, bits: u32| -> (usize, Amounts) {
            (group.company, group.requests.iter().map(|amount| leading(*amount, bits)).collect())
        };
        let merged = |bits: u32| {
            let mut merged: BTreeMap<(usize, Amounts), i64> = BTreeMap::new();
            for group in &self.groups {
                *merged.entry(key(group, bits)).or_default() += group.count;
            }
            (bits, merged)
        };
        let (bits, merged) = (0..6).rev().map(merged).find(|(_, merged)| merged.len() <= groups_max)?;
        let numbers: BTreeMap<&(usize, Amounts), usize> = merged.keys().zip(0..).collect();
        let part_of = self.groups.iter().map(|group| numbers[&key(group, bits)]).collect();
        let mut coarse = Self {
            width: self.width,
            companies: self.companies,
            groups: merged
                .into_iter()
                .map(|((company, requests), count)| Group { requests, count, company })
                .collect(),
            ..Self::default()
        };
        let seen = |machines: &[Machine]| -> Vec<Machine> {
            let most =
                |of: &Machine| coarse.groups.iter().map(|group| most(group, &of.room, &of.suits)).collect();
            machines.iter().map(|machine| Machine { most: most(machine), ..machine.clone() }).collect()
        };
        let machines = seen(&self.machines);
        let reserved = self
            .reserved
            .iter()
            .map(|reserved| Reserved { machines: seen(&reserved.machines), count: reserved.count });
        coarse.reserved = reserved.collect();
        coarse.machines = machines;
        Some((coarse, part_of))
    }
}

fn lots_of<'a>(machines: impl IntoIterator<Item = &'a Machine>) -> Vec<Lot> {
    let lot = |one: &Machine| (one.room.clone(), one.suits.clone(), one.price, one.template);
    machines.into_iter().map(lot).collect()
}

/// `amount` with so many binary digits after the first one.
fn leading(amount: i64, bits: u32) -> i64 {
    let dropped = (63 - amount.max(1).leading_zeros()).saturating_sub(bits);
    amount >> dropped << dropped
}

fn most(group: &Group, room: &[i64], suits: &FixedBitSet) -> i64 {
    if !suits.contains(group.company) {
        return 0;
    }
    let fitting = group.requests.iter().zip(room).map(|(asked, there)| match asked {
        0 => group.count,
        _ => (there / asked).max(0),
    });
    fitting.min().unwrap_or(group.count).min(group.count)
}

/// Sets of offerings that pods may be on, by template.
#[derive(Default)]
struct Companies {
    sets: Vec<Ways>,
    of_shape: Vec<usize>,
    numbers: BTreeMap<Ways, usize>,
    met: Vec<(PodShape, usize)>,
}

impl Companies {
    fn of(&mut self, ground: &Ground, shape: &PodShape) -> usize {
        let asks_same = |other: &PodShape| {
            other.node_selector == shape.node_selector
                && other.node_required == shape.node_required
                && other.tolerations == shape.tolerations
        };
        if let Some((_, known)) = self.met.iter().find(|(other, _)| asks_same(other)) {
            return *known;
        }
        let set: Ways = ground.templates.iter().map(|of| suiting(of, shape)).collect();
        let next = self.sets.len();
        let number = *self.numbers.entry(set.clone()).or_insert(next);
        if number == next {
            self.sets.push(set);
        }
        self.met.push((shape.clone(), number));
        number
    }
}

/// The ways to buy a node of `template` on which a pod of `shape` may be, whatever it wishes.
fn suiting(template: &Template, shape: &PodShape) -> FixedBitSet {
    let nowhere = FixedBitSet::with_capacity(template.open.len());
    let stops = |taint: &crate::model::taint::Taint| {
        taint.effect != Effect::PreferNoSchedule
            && !shape.tolerations.iter().any(|toleration| toleration.tolerates(taint))
    };
    if template.taints().iter().any(stops) {
        return nowhere;
    }
    let mut suiting = nowhere;
    for alternative in required_alternatives(shape) {
        if can_become(template, &template.requirements, &alternative).is_ok() {
            let mut both = template.requirements.clone();
            both.add_all(&alternative);
            let mut open = template.matching(&both);
            open.intersect_with(&template.open);
            suiting.union_with(&open);
        }
    }
    suiting
}

/// Every way to buy on which some pod may be; those that draw on a reservation by its name, with what is left of it.
fn lots(
    ground: &Ground,
    settings: &Settings,
    companies: &[Ways],
    narrow: &impl Fn(&[i64]) -> Amounts,
) -> (Vec<Lot>, BTreeMap<Symbol, Paid>) {
    let mut lots = Vec::new();
    let mut reserved: BTreeMap<Symbol, Paid> = BTreeMap::new();
    for (at, template) in ground.templates.iter().enumerate() {
        for row in template.rows.iter().filter(|row| row.room.iter().all(|amount| *amount >= 0)) {
            let mut cheapest: BTreeMap<FixedBitSet, i64> = BTreeMap::new();
            for position in row.positions.clone().filter(|position| template.open.contains(*position)) {
                let mut suits = FixedBitSet::with_capacity(companies.len());
                suits.extend(
                    (0..companies.len()).filter(|company| companies[*company][at].contains(position)),
                );
                if suits.is_clear() {
                    continue;
                }
                let offering = template.offering(position);
                let price = offering.price.0;
                match offering.reservation.filter(|_| settings.reserved_capacity) {
                    Some(reservation) => {
                        let (left, lots) =
                            reserved.entry(reservation.id).or_insert((reservation.remaining, Vec::new()));
                        *left = (*left).max(reservation.remaining);
                        lots.push((narrow(&row.room), suits, price, at));
                    }
                    None => {
                        let known = cheapest.entry(suits).or_insert(price);
                        *known = (*known).min(price);
                    }
                }
            }
            lots.extend(cheapest.into_iter().map(|(suits, price)| (narrow(&row.room), suits, price, at)));
        }
    }
    (lots, reserved)
}

#[cfg(test)]
impl Market {
    /// Pods as (requests, count), machines as (room, price); every pod may be everywhere.
    pub fn made(groups: &[(Amounts, i64)], machines: &[(Amounts, i64)]) -> Self {
        let mut everybody = FixedBitSet::with_capacity(1);
        everybody.insert(0);
        let mut market = Self {
            width: groups.first().map_or(0, |(requests, _)| requests.len()),
            companies: 1,
            groups: groups
                .iter()
                .map(|(requests, count)| Group { requests: requests.clone(), count: *count, company: 0 })
                .collect(),
            ..Self::default()
        };
        let lots = machines.iter().map(|(room, price)| (room.clone(), everybody.clone(), *price, 0));
        market.machines = market.machines_of(lots.collect());
        market
    }
}
