//! What the cloud sells: instance types, where, and for how much.
//!
//! Facts about a type are kept as EC2 states them. What a node of that type offers to pods depends on the node class that boots
//! it, and is computed when asked for: [`Catalog::instance_types`].

mod facts;
mod capacity;
mod labels;
mod builtin;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use builtin::{UnknownRegion, regions};
pub use facts::{Accelerator, Capability, Gpu, Nics, TypeFacts};
pub use table::TableError;

use super::class::NodeClass;
use super::money::UsdPerHour;
use super::name::{TypeName, Zone};
use super::offering::{CapacityType, InstanceType, Offering};

/// Where the on-demand and spot prices of a catalogue come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PriceSource {
    /// Published for this region.
    Published,
    /// No public price list of this region was at hand: those of another stand in.
    StandIn { region: &'static str },
    /// From a file that a person gave.
    File,
}

/// Instance types and their offerings in one region.
#[derive(Clone, Debug)]
pub struct Catalog {
    pub region: Arc<str>,
    pub prices: PriceSource,
    facts: Vec<TypeFacts>,
}

impl Catalog {
    /// Types by name.
    pub fn facts(&self) -> &[TypeFacts] {
        &self.facts
    }

    pub fn find(&self, name: &str) -> Option<&TypeFacts> {
        let at = self.facts.binary_search_by(|facts| facts.name.as_str().cmp(name)).ok()?;
        Some(&self.facts[at])
    }

    /// Every zone in which something is sold.
    pub fn zones(&self) -> Vec<Zone> {
        let mut zones: Vec<Zone> = self.facts.iter().flat_map(|facts| facts.zones.iter().copied()).collect();
        zones.sort();
        zones.dedup();
        zones
    }

    /// The shapes that nodes of `class` would have, by name; without a class, those of an AL2023 class without settings.
    ///
    /// Costs a pass over all types: keep the answer as long as the class stays the same.
    pub fn instance_types(&self, class: Option<&NodeClass>) -> Arc<Vec<InstanceType>> {
        let settings = capacity::Boot::of(class);
        Arc::new(self.facts.iter().filter_map(|facts| self.shape(facts, &settings)).collect())
    }

    fn shape(&self, facts: &TypeFacts, boot: &capacity::Boot) -> Option<InstanceType> {
        if !boot.suits(facts) {
            return None;
        }
        let zones: Vec<Zone> = facts.zones.iter().copied().filter(|zone| boot.reaches(*zone)).collect();
        let (capacity, allocatable) = capacity::of(facts, boot);
        let mut offerings: Vec<Offering> = zones
            .iter()
            .flat_map(|zone| {
                facts.prices.iter().map(|(capacity_type, price)| (*zone, *capacity_type, *price))
            })
            .map(|(zone, capacity_type, price)| Offering {
                zone,
                capacity_type,
                price,
                is_available: true,
                reservation: None,
            })
            .collect();
        offerings.sort_by_key(|offering| (offering.price, offering.zone, offering.capacity_type));
        let requirements = labels::of(facts, &self.region, &zones, boot);
        Some(InstanceType { name: facts.name, requirements, capacity, allocatable, offerings })
    }

    /// A copy in which the given offerings have new prices; `None` takes an offering away. Others stay.
    pub fn with_prices(&self, changes: &BTreeMap<(TypeName, CapacityType), Option<UsdPerHour>>) -> Self {
        let mut catalog = self.clone();
        for facts in &mut catalog.facts {
            for capacity_type in CapacityType::ALL {
                match changes.get(&(facts.name, capacity_type)) {
                    Some(Some(price)) => drop(facts.prices.insert(capacity_type, *price)),
                    Some(None) => drop(facts.prices.remove(&capacity_type)),
                    None => {}
                }
            }
        }
        catalog
    }
}
