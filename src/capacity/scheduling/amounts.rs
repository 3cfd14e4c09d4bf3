//! Resources as short rows of integers.
//!
//! Inside one solve every resource that anybody names gets a column, so that adding and comparing are loops over a
//! few integers instead of look-ups by name.

use std::collections::BTreeSet;

use crate::model::quantity::{ResourceName, Resources};

/// One amount per column of [`Columns`].
pub(super) type Amounts = Vec<i64>;

/// The resources of one solve, in the order of their names.
#[derive(Clone)]
pub(super) struct Columns(Vec<ResourceName>);

impl Columns {
    pub fn of(names: impl Iterator<Item = ResourceName>) -> Self {
        let names: BTreeSet<ResourceName> = names.collect();
        Self(names.into_iter().collect())
    }

    pub fn names(&self) -> &[ResourceName] {
        &self.0
    }

    pub fn has(&self, name: ResourceName) -> bool {
        self.0.contains(&name)
    }

    pub fn position(&self, name: ResourceName) -> Option<usize> {
        self.0.iter().position(|known| *known == name)
    }

    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn row(&self, resources: &Resources) -> Amounts {
        self.0.iter().map(|name| resources.get(*name)).collect()
    }

    /// The amounts that are not zero.
    pub fn resources(&self, row: &[i64]) -> Resources {
        self.0.iter().copied().zip(row.iter().copied()).filter(|(_, amount)| *amount != 0).collect()
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
