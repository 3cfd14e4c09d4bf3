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

    /// `hosts`: the labels and names of nodes with pods.
    pub fn number<'a>(
        &mut self,
        key: Symbol,
        hosts: impl Iterator<Item = (&'a Labels, Symbol)>,
        rooms: &[Room],
    ) -> KeyId {
        if let Some(known) = self.by_key.get(&key) {
            return *known;
        }
        let spellings = label::spellings(key);
        let is_by_host = key == *label::HOSTNAME;
        let mut table = Table {
            key,
            is_by_host,
            symbols: Vec::new(),
            numbers: FastMap::default(),
            hosts: Vec::new(),
            rooms: Vec::with_capacity(rooms.len()),
            rooms_in: Vec::new(),
            rooms_nowhere: Marks::default(),
            rooms_open: Marks::default(),
            rooms_at: Vec::new(),
        };
        for (labels, name) in hosts {
            let value = spellings.iter().find_map(|spelling| labels.get(spelling).copied());
            let value = value.or_else(|| is_by_host.then_some(name));
            let domain = value.map(|value| table.number(value));
            table.hosts.push(domain);
        }
        for (at, room) in rooms.iter().enumerate() {
            let domain = match room.may_be(key) {
                None => RoomDomain::Nowhere,
                Some(requirement) => match requirement.single() {
                    Some(value) => RoomDomain::In(table.number(value)),
                    None => RoomDomain::Open,
                },
            };
            match domain {
                RoomDomain::Nowhere => table.rooms_nowhere.insert(at),
                RoomDomain::Open => table.rooms_open.insert(at),
                RoomDomain::In(domain) => {
                    table.rooms_at.push((domain, at));
                    if !is_by_host {
                        let index = domain as usize;
                        if index >= table.rooms_in.len() {
                            table.rooms_in.resize(index + 1, Marks::default());
                        }
                        table.rooms_in[index].insert(at);
                    }
                }
            }
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
