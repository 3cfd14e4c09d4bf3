//! Resources as short rows of integers.
//!
//! Inside one solve every resource that anybody names gets a column, so that adding and comparing are loops over a
//! few integers instead of look-ups by name.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::name::ObjectKey;
use crate::model::quantity::{ResourceName, Resources};
use crate::model::symbol::Symbol;

/// One amount per column of [`Columns`].
pub(super) type Amounts = Vec<i64>;

/// More than can be asked for.
const ENDLESS: i64 = i64::MAX / 2;

/// The resources of one solve, in the order of their names; then, by CSI driver, volumes to attach.
#[derive(Clone)]
pub(super) struct Columns {
    names: Vec<ResourceName>,
    resources: usize,
    drivers: BTreeMap<Symbol, usize>,
}

impl Columns {
    /// `drivers`: those whose volumes count.
    pub fn of(names: impl Iterator<Item = ResourceName>, drivers: &BTreeSet<Symbol>) -> Self {
        let names: BTreeSet<ResourceName> = names.collect();
        let resources = names.len();
        let of_driver = |driver: &Symbol| ResourceName::new(&format!("attachable-volumes-csi-{driver}"));
        let names = names.into_iter().chain(drivers.iter().map(of_driver)).collect();
        let drivers = drivers.iter().copied().zip(resources..).collect();
        Self { names, resources, drivers }
    }

    pub fn names(&self) -> &[ResourceName] {
        &self.names
    }

    pub fn has(&self, name: ResourceName) -> bool {
        self.names.contains(&name)
    }

    pub fn position(&self, name: ResourceName) -> Option<usize> {
        self.names.iter().position(|known| *known == name)
    }

    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whose volumes count.
    pub fn drivers(&self) -> impl Iterator<Item = Symbol> + '_ {
        self.drivers.keys().copied()
    }

    /// What is asked for.
    pub fn row(&self, resources: &Resources) -> Amounts {
        self.names.iter().map(|name| resources.get(*name)).collect()
    }

    /// What is there: `volumes_max` by driver, and no end of other volumes.
    pub fn room(&self, resources: &Resources, volumes_max: &[(Symbol, u32)]) -> Amounts {
        let mut row = self.row(resources);
        for (driver, at) in &self.drivers {
            let most = volumes_max.iter().find(|(of, _)| of == driver);
            row[*at] = most.map_or(ENDLESS, |(_, most)| i64::from(*most));
        }
        row
    }

    /// Asks for `volumes` as well.
    pub fn attach<'v>(&self, volumes: impl IntoIterator<Item = &'v (Symbol, ObjectKey)>, row: &mut [i64]) {
        volumes.into_iter().filter_map(|(driver, _)| self.drivers.get(driver)).for_each(|at| row[*at] += 1);
    }

    /// Does not ask for `volumes` any more.
    pub fn detach<'v>(&self, volumes: impl IntoIterator<Item = &'v (Symbol, ObjectKey)>, row: &mut [i64]) {
        volumes.into_iter().filter_map(|(driver, _)| self.drivers.get(driver)).for_each(|at| row[*at] -= 1);
    }

    /// The amounts that are not zero, without volumes.
    pub fn resources(&self, row: &[i64]) -> Resources {
        self.told(&row[..self.resources])
    }

    /// The amounts that are not zero.
    pub fn told(&self, row: &[i64]) -> Resources {
        self.names.iter().copied().zip(row.iter().copied()).filter(|(_, amount)| *amount != 0).collect()
    }
}

pub(super) fn add(row: &mut [i64], other: &[i64]) {
    for (amount, more) in row.iter_mut().zip(other) {
        *amount = amount.saturating_add(*more);
    }
}

pub(super) fn subtract(row: &mut [i64], other: &[i64]) {
    for (amount, less) in row.iter_mut().zip(other) {
        *amount = amount.saturating_sub(*less);
    }
}

pub(super) fn sum(row: &[i64], other: &[i64]) -> Amounts {
    row.iter().zip(other).map(|(a, b)| a.saturating_add(*b)).collect()
}

/// Whether `request` fits into `total`: nothing fits an overdrawn total, and a request of zero always fits otherwise.
pub(super) fn fits(request: &[i64], total: &[i64]) -> bool {
    request.iter().zip(total).all(|(asked, there)| *there >= 0 && asked <= there)
}
