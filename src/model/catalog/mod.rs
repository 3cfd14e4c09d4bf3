//! What the cloud sells: every instance type of a region, what it costs, and what pods can use of it.
//!
//! A catalogue holds facts (`facts`), never a finished node: how many pods fit into an `m7i.large` depends on the node
//! class that boots it, so shapes are worked out for one class at a time (`capacity`, `labels`). Facts come from the tables
//! in this folder (`builtin`) or from a file of the user (`file`); prices change while the facts stay.

mod facts;
mod capacity;
mod labels;
mod table;
mod file;
mod builtin;
mod memory;
mod change;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub use builtin::{UnknownRegion, region_of, regions};
pub use capacity::{CapacitySettings, EFA};
pub use change::{CatalogChange, Misfit};
pub use facts::{Accelerators, EbsAttachments, EniLimits, Gpus, NameParts, Stated, TypeFacts};
pub use table::TableError;

use super::class::NodeClass;
use super::money::UsdPerHour;
use super::name::{TypeName, Zone};
use super::offering::{CapacityType, InstanceType, Offering};
use super::requirement::Requirements;
use super::symbol::Symbol;

/// Where the on-demand and spot prices of a catalogue come from.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum PriceSource {
    /// Published for this region.
    Published,
    /// No public price list of this region was at hand: those of another stand in.
    StandIn { region: Symbol },
    /// From a file that a person gave.
    File,
}

/// What types cost on demand, anywhere in a region.
pub type OnDemandPrices = BTreeMap<TypeName, UsdPerHour>;

/// What types cost as spot, by zone.
pub type SpotPrices = BTreeMap<(TypeName, Zone), UsdPerHour>;

/// The place of a type in its catalogue; types are ordered by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TypeId(pub u16);

/// Instance types and their offerings in one region.
#[derive(Clone, Debug)]
pub struct Catalog {
    /// `several` if a catalogue file names zones that are not of one region.
    pub region: Arc<str>,
    pub prices: PriceSource,
    notes: Arc<[String]>,
    settings: CapacitySettings,
    facts: Arc<Vec<TypeFacts>>,
    /// Where something is sold, by name.
    zones: Arc<[Zone]>,
    /// In the order of `facts`: the labels that no class changes.
    labels: Arc<Vec<Requirements>>,
    shapes: memory::Memory,
}

impl Catalog {
    /// What EC2 sells in `region`, from the tables that are part of the program (docs/reference/catalog.md).
    pub fn builtin(region: &str) -> Result<Self, UnknownRegion> {
        builtin::load(region)
    }

    /// Reads a catalogue file (`--catalog`); `file` is its name in messages. All mistakes are reported at once.
    pub fn parse_csv(text: &str, file: &str) -> Result<Self, Vec<TableError>> {
        file::parse(text, file)
    }

    /// What EC2 described of `region`: each type with its zones and whether it is sold as spot, and what spot costs; and what the
    /// price list says of on demand. Without the list, and of types that it leaves out, prices are those of the built-in catalogue;
    /// so are spot prices where EC2 has told none at all.
    pub fn described(
        region: &str,
        types: Vec<(TypeFacts, bool)>,
        spot: Option<&SpotPrices>,
        on_demand: Option<&OnDemandPrices>,
    ) -> Self {
        builtin::described(region, types, spot, on_demand)
    }

    /// The catalogue as a file for `--catalog`: what is left for pods under a class without settings, and every price.
    pub fn to_csv(&self) -> String {
        file::render(self)
    }

    fn new(
        region: Option<Symbol>,
        prices: PriceSource,
        notes: Vec<String>,
        mut facts: Vec<TypeFacts>,
        labels: impl Fn(&TypeFacts) -> Requirements,
    ) -> Self {
        facts.sort_by_key(|facts| facts.name);
        Self {
            region: region.map_or("several", Symbol::as_str).into(),
            prices,
            notes: notes.into(),
            settings: CapacitySettings::default(),
            labels: Arc::new(facts.iter().map(|facts| labels(facts).fitted()).collect()),
            zones: zones_of(&facts),
            facts: Arc::new(facts),
            shapes: memory::Memory::default(),
        }
    }

    /// Types by name.
    pub fn facts(&self) -> &[TypeFacts] {
        &self.facts
    }

    pub fn find(&self, name: &str) -> Option<&TypeFacts> {
        let at = self.facts.binary_search_by(|facts| facts.name.as_str().cmp(name)).ok()?;
        Some(&self.facts[at])
    }

    /// What a machine costs an hour by this list; what is reserved is paid for already. `None`: nobody sells it there.
    pub fn list_price(&self, name: TypeName, zone: Zone, capacity_type: CapacityType) -> Option<UsdPerHour> {
        let facts = self.find(name.as_str())?;
        match capacity_type {
            CapacityType::Reserved => Some(UsdPerHour::ZERO),
            CapacityType::Spot | CapacityType::OnDemand => facts.price(zone, capacity_type),
        }
    }

    /// The place of a type by name.
    pub fn id(&self, name: TypeName) -> Option<TypeId> {
        let at = self.facts.binary_search_by_key(&name, |facts| facts.name).ok()?;
        u16::try_from(at).ok().map(TypeId)
    }

    /// Every zone in which something is sold, by name.
    pub fn zones(&self) -> &[Zone] {
        &self.zones
    }

    /// What a reader of the prices must know: their dates, which of them stand in for others, which are estimated.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The same types under other cluster-wide settings.
    pub fn with_settings(&self, settings: CapacitySettings) -> Self {
        Self { settings, shapes: memory::Memory::default(), ..self.clone() }
    }

    /// The shapes that nodes of `class` would have, by name; without a class, those of an AL2023 class without settings. A
    /// type that an image of the class cannot boot, and a zone that the class has no subnet in, are listed as unavailable.
    ///
    /// Worked out once for classes that shape alike, and then shared.
    pub fn instance_types(&self, class: Option<&NodeClass>) -> Arc<Vec<InstanceType>> {
        let machine = capacity::Machine::of(class, self.settings);
        let subnets: &[Zone] = class.map_or(&[], |class| &class.zones);
        // Subnets everywhere leave nothing out.
        let is_everywhere = self.zones.iter().all(|zone| subnets.contains(zone));
        let subnets = if is_everywhere { &[] } else { subnets };
        self.shapes.recall(&machine, subnets, || {
            self.facts
                .iter()
                .zip(self.labels.iter())
                .map(|(facts, labels)| shape(facts, labels, &machine, subnets))
                .collect()
        })
    }

    /// A copy in which the given capacity types have new prices in every zone; `None` takes them off the market. Others
    /// stay.
    pub fn with_prices(&self, changes: &BTreeMap<(TypeName, CapacityType), Option<UsdPerHour>>) -> Self {
        self.changed(|facts| {
            for capacity_type in CapacityType::ALL {
                let Some(change) = changes.get(&(facts.name, capacity_type)) else { continue };
                facts.zone_prices.retain(|(_, known), _| *known != capacity_type);
                match change {
                    Some(price) => drop(facts.prices.insert(capacity_type, *price)),
                    None => drop(facts.prices.remove(&capacity_type)),
                }
                facts.is_spot_estimated &= capacity_type != CapacityType::Spot;
            }
        })
    }

    /// A copy with spot prices as the cloud states them, by zone. A type that the answer names has no spot offering in the
    /// zones for which it names no price; types that it does not name keep what is known.
    pub fn with_spot_prices(&self, observed: &SpotPrices) -> Self {
        self.changed(|facts| {
            let first = Zone(Symbol::new(""));
            let mut seen = observed
                .range((facts.name, first)..)
                .take_while(|((name, _), _)| *name == facts.name)
                .map(|((_, zone), price)| (*zone, *price))
                .peekable();
            if seen.peek().is_none() {
                return;
            }
            let seen: BTreeMap<Zone, UsdPerHour> = seen.collect();
            facts.prices.extend(seen.values().min().map(|least| (CapacityType::Spot, *least)));
            for zone in &facts.zones {
                facts.zone_prices.insert((*zone, CapacityType::Spot), seen.get(zone).copied());
            }
            facts.is_spot_estimated = false;
        })
    }

    fn changed(&self, change: impl FnMut(&mut TypeFacts)) -> Self {
        let mut facts = (*self.facts).clone();
        facts.iter_mut().for_each(change);
        Self { facts: Arc::new(facts), shapes: memory::Memory::default(), ..self.clone() }
    }
}

fn zones_of(facts: &[TypeFacts]) -> Arc<[Zone]> {
    let zones: BTreeSet<Zone> = facts.iter().flat_map(|facts| facts.zones.iter().copied()).collect();
    zones.into_iter().collect()
}

fn shape(
    facts: &TypeFacts,
    labels: &Requirements,
    machine: &capacity::Machine,
    subnets: &[Zone],
) -> InstanceType {
    let (capacity, allocatable) = machine.amounts(facts);
    let is_bootable = machine.boots(facts);
    let is_reachable = |zone: &Zone| subnets.is_empty() || subnets.contains(zone);
    let offerings: Vec<Offering> = facts
        .offers()
        .into_iter()
        .map(|(price, zone, capacity_type)| Offering {
            zone,
            capacity_type,
            price,
            is_available: is_bootable && is_reachable(&zone),
            reservation: None,
        })
        .collect();
    let mut requirements = labels.clone();
    labels::add_class_dependent(&mut requirements, &offerings, is_reachable, machine.family);
    let volumes_max = machine.volumes_max(facts);
    let requirements = Arc::new(requirements.fitted());
    InstanceType { name: facts.name, requirements, capacity, allocatable, volumes_max, offerings }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price(dollars: &str) -> UsdPerHour {
        dollars.parse().unwrap()
    }

    /// Rows: AWS-395, AWS-396
    #[test]
    fn aws_395_spot_prices_are_those_of_the_zones_that_name_one() {
        let before = Catalog::builtin("us-east-1").unwrap();
        let (large, zone) = (TypeName::new("m5.large"), Zone::new("us-east-1b"));
        let after = before.with_spot_prices(&BTreeMap::from([((large, zone), price("0.0401"))]));
        let facts = after.find("m5.large").unwrap();
        assert_eq!(facts.price(zone, CapacityType::Spot), Some(price("0.0401")));
        assert_eq!(facts.price(Zone::new("us-east-1a"), CapacityType::Spot), None);
        assert_eq!(facts.price(Zone::new("us-east-1a"), CapacityType::OnDemand), Some(price("0.096")));
        assert_eq!(after.find("m5.xlarge"), before.find("m5.xlarge"), "not in the answer, so as before");
        let types = after.instance_types(None);
        let kind = types.iter().find(|kind| kind.name == large).unwrap();
        assert_eq!(kind.offerings[0].price, price("0.0401"));
        assert_eq!(kind.offerings.iter().filter(|o| o.capacity_type == CapacityType::Spot).count(), 1);
    }

    #[test]
    fn a_price_can_change_or_go() {
        let before = Catalog::builtin("us-east-1").unwrap();
        let large = TypeName::new("m5.large");
        let after = before.with_prices(&BTreeMap::from([
            ((large, CapacityType::OnDemand), Some(price("1"))),
            ((large, CapacityType::Spot), None),
        ]));
        let kind = after.instance_types(None).iter().find(|kind| kind.name == large).unwrap().clone();
        assert!(kind.offerings.iter().all(|offering| offering.price == price("1")));
        assert_eq!(before.find("m5.large").unwrap().prices.len(), 2, "the first catalogue stays as it was");
    }

    #[test]
    fn aws_360_classes_that_shape_alike_share_their_shapes() {
        let catalog = Catalog::builtin("us-east-1").unwrap();
        assert!(Arc::ptr_eq(&catalog.instance_types(None), &catalog.instance_types(None)));
        let other = catalog.with_settings(CapacitySettings { vm_memory_overhead: 0, reserved_enis: 0 });
        assert!(!Arc::ptr_eq(&catalog.instance_types(None), &other.instance_types(None)));
    }
}
