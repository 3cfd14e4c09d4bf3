//! Topology keys and their domains, as numbers.
//!
//! A rule asks about a domain for every node and every pod. Which domain a node is in is looked up once per key; after that a
//! domain is an index into counts.

use super::super::marks::Marks;
use super::super::room::Room;
use crate::model::hash::FastMap;
use crate::model::label::{self, Labels};
use crate::model::requirement::Requirement;
use crate::model::symbol::Symbol;

pub(in super::super) type KeyId = usize;
pub(in super::super) type DomainId = u32;

/// Where an existing node is, by one key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in super::super) enum RoomDomain {
    Nowhere,
    In(DomainId),
    /// A claim that may still become one of several things.
    Open,
}

/// The domains that a node may be in.
#[derive(Clone, Debug)]
pub(in super::super) struct Reach {
    /// Of those that are known: all that it does not rule out.
    pub domains: Vec<DomainId>,
    pub single: Option<DomainId>,
    /// It names them itself.
    pub is_listed: bool,
    /// It says nothing of the key.
    pub is_absent: bool,
    /// How many domains were known when this was found.
    among: usize,
}

pub(in super::super) struct Table {
    pub key: Symbol,
    pub is_by_host: bool,
    symbols: Vec<Symbol>,
    numbers: FastMap<Symbol, DomainId>,
    /// Of each bound pod's node.
    pub hosts: Vec<Option<DomainId>>,
    pub rooms: Vec<RoomDomain>,
    /// By domain; not kept for hosts, which have one room each.
    pub rooms_in: Vec<Marks>,
    pub rooms_nowhere: Marks,
    pub rooms_open: Marks,
    /// Rooms by domain, in the order of domains.
    rooms_at: Vec<(DomainId, usize)>,
}

impl Table {
    pub fn symbol(&self, domain: DomainId) -> Symbol {
        self.symbols[domain as usize]
    }

    pub fn len(&self) -> usize {
        self.symbols.len()
    }

    pub fn number(&mut self, symbol: Symbol) -> DomainId {
        let Self { symbols, numbers, .. } = self;
        *numbers.entry(symbol).or_insert_with(|| {
            symbols.push(symbol);
            DomainId::try_from(symbols.len() - 1).expect("there are fewer domains than words")
        })
    }

    /// The domain of a node with `labels` that is called `name`.
    fn domain(&mut self, labels: &Labels, name: Symbol) -> Option<DomainId> {
        let value = label::spellings(self.key).iter().find_map(|spelling| labels.get(spelling).copied());
        let value = value.or_else(|| self.is_by_host.then_some(name));
        value.map(|value| self.number(value))
    }

    /// The node at `host` is this one now, or none.
    pub fn put_host(&mut self, host: usize, node: Option<(&Labels, Symbol)>) {
        let domain = node.and_then(|(labels, name)| self.domain(labels, name));
        if host >= self.hosts.len() {
            self.hosts.resize(host + 1, None);
        }
        self.hosts[host] = domain;
    }

    /// The room at `at` is this one now, or none.
    pub fn put_room(&mut self, at: usize, room: Option<&Room>) {
        if at >= self.rooms.len() {
            self.rooms.resize(at + 1, RoomDomain::Nowhere);
        }
        self.rooms_nowhere.remove(at);
        self.rooms_open.remove(at);
        if let RoomDomain::In(former) = self.rooms[at] {
            if let Ok(index) = self.rooms_at.binary_search(&(former, at)) {
                self.rooms_at.remove(index);
            }
            if let Some(within) = self.rooms_in.get_mut(former as usize) {
                within.remove(at);
            }
        }
        self.rooms[at] = RoomDomain::Nowhere;
        let Some(room) = room else { return };
        let domain = self.of_room(room);
        self.rooms[at] = domain;
        if let RoomDomain::In(domain) = domain {
            let index = self.rooms_at.binary_search(&(domain, at)).unwrap_or_else(|index| index);
            self.rooms_at.insert(index, (domain, at));
        }
        self.mark(at, domain);
    }

    fn of_room(&mut self, room: &Room) -> RoomDomain {
        match room.may_be(self.key) {
            None => RoomDomain::Nowhere,
            Some(requirement) => match requirement.single() {
                Some(value) => RoomDomain::In(self.number(value)),
                None => RoomDomain::Open,
            },
        }
    }

    fn mark(&mut self, at: usize, domain: RoomDomain) {
        match domain {
            RoomDomain::Nowhere => self.rooms_nowhere.insert(at),
            RoomDomain::Open => self.rooms_open.insert(at),
            RoomDomain::In(_) if self.is_by_host => {}
            RoomDomain::In(domain) => {
                let index = domain as usize;
                if index >= self.rooms_in.len() {
                    self.rooms_in.resize(index + 1, Marks::default());
                }
                self.rooms_in[index].insert(at);
            }
        }
    }

    pub fn rooms_at(&self, domain: DomainId) -> impl Iterator<Item = usize> + '_ {
        let start = self.rooms_at.partition_point(|(other, _)| *other < domain);
        self.rooms_at[start..].iter().take_while(move |(other, _)| *other == domain).map(|(_, room)| *room)
    }
}

/// The keys of all rules that were met.
#[derive(Default)]
pub(in super::super) struct Keys {
    tables: Vec<Table>,
    by_key: FastMap<Symbol, KeyId>,
}

impl Keys {
    pub fn get(&self, key: KeyId) -> &Table {
        &self.tables[key]
    }

    pub fn get_mut(&mut self, key: KeyId) -> &mut Table {
        &mut self.tables[key]
    }

    pub fn len(&self) -> usize {
        self.tables.len()
    }

    /// How many domains are known, of all keys.
    pub fn domains(&self) -> usize {
        self.tables.iter().map(Table::len).sum()
    }

    /// `hosts`: the labels and names of nodes; `None`: there is none at this place any more. So it is with rooms that are vacant.
    pub fn number<'a>(
        &mut self,
        key: Symbol,
        hosts: impl Iterator<Item = Option<(&'a Labels, Symbol)>>,
        rooms: &[Room],
    ) -> KeyId {
        if let Some(known) = self.by_key.get(&key) {
            return *known;
        }
        let mut table = Table {
            key,
            is_by_host: key == *label::HOSTNAME,
            symbols: Vec::new(),
            numbers: FastMap::default(),
            hosts: Vec::new(),
            rooms: Vec::with_capacity(rooms.len()),
            rooms_in: Vec::new(),
            rooms_nowhere: Marks::default(),
            rooms_open: Marks::default(),
            rooms_at: Vec::new(),
        };
        for node in hosts {
            let domain = node.and_then(|(labels, name)| table.domain(labels, name));
            table.hosts.push(domain);
        }
        for (at, room) in rooms.iter().enumerate() {
            if room.is_vacant {
                table.rooms.push(RoomDomain::Nowhere);
                continue;
            }
            let domain = table.of_room(room);
            if let RoomDomain::In(domain) = domain {
                table.rooms_at.push((domain, at));
            }
            table.mark(at, domain);
            table.rooms.push(domain);
        }
        table.rooms_at.sort_unstable();
        self.tables.push(table);
        self.by_key.insert(key, self.tables.len() - 1);
        self.tables.len() - 1
    }

    /// The domains that `requirement` (`None`: anything) leaves.
    pub fn reach(&mut self, key: KeyId, requirement: Option<&Requirement>) -> Reach {
        let table = &mut self.tables[key];
        let single = requirement.and_then(Requirement::single).map(|value| table.number(value));
        let (is_listed, is_absent) =
            (requirement.is_some_and(|found| found.listed().is_some()), requirement.is_none());
        let domains = match requirement.and_then(Requirement::listed) {
            Some(values) => values.iter().map(|value| table.number(*value)).collect(),
            None => {
                let all = (0..).zip(&table.symbols);
                all.filter(|(_, symbol)| requirement.is_none_or(|requirement| requirement.has(**symbol)))
                    .map(|(domain, _)| domain)
                    .collect()
            }
        };
        Reach { domains, single, is_listed, is_absent, among: table.len() }
    }

    /// Whether nothing was learnt since that would change `reach`.
    pub fn is_current(&self, key: KeyId, reach: &Reach) -> bool {
        reach.is_listed || reach.among == self.tables[key].len()
    }
}
