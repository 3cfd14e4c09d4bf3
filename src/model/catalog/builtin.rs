//! The catalogue that is part of the program: three tables of facts, zones and prices (docs/reference/catalog.md).
//!
//! Only one region has a public price list with a date, so everywhere else its prices stand in; a spot price that nobody
//! recorded is estimated. Both are marked, never passed off as the region's own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{LazyLock, Mutex, PoisonError};

use super::facts::{Accelerators, EbsAttachments, EniLimits, Gpus, NameParts, TypeFacts};
use super::labels;
use super::table::{Row, Table, TableError};
use super::{Catalog, OnDemandPrices, PriceSource, SpotPrices};
use crate::model::money::UsdPerHour;
use crate::model::name::{TypeName, Zone};
use crate::model::near::nearest;
use crate::model::offering::CapacityType;
use crate::model::symbol::Symbol;

/// The region whose prices stand in for regions without a price list.
const HOME: &str = "us-east-1";
const PRICES_DATE: &str = "2026-07-20";
/// What the EBS CSI driver takes for a type that it does not know (pkg/cloud/limits of aws-ebs-csi-driver).
const EBS_ATTACHMENTS_DEFAULT: EbsAttachments = EbsAttachments { count: 27, is_dedicated: false };
/// The same of machines without Nitro, whatever EC2 says of their interfaces.
const EBS_ATTACHMENTS_OF_XEN: EbsAttachments = EbsAttachments { count: 39, is_dedicated: true };
const SPOT_DATE: &str = "2023-08-30";
/// Regions with a column of their own in the price table.
const PRICED: [&str; 3] = [HOME, "us-gov-east-1", "us-gov-west-1"];

/// A region that the built-in catalogue does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the built-in catalogue has no region `{region}`")]
pub struct UnknownRegion {
    pub region: String,
    /// The name that was most likely meant, if one is near.
    pub nearest: Option<String>,
}

impl UnknownRegion {
    /// What to do about it.
    pub fn help(&self) -> String {
        match &self.nearest {
            Some(near) => format!("did you mean `{near}`?"),
            None => {
                let known: Vec<&str> = TABLES.sold.keys().copied().collect();
                format!("it knows {}", known.join(", "))
            }
        }
    }
}

/// Every region of the built-in catalogue with its zones, by name.
pub fn regions() -> BTreeMap<String, Vec<Zone>> {
    let zones = |region: &str, families: &Sold| {
        let letters: BTreeSet<char> =
            families.values().flat_map(BTreeMap::values).flat_map(|letters| letters.chars()).collect();
        letters.into_iter().map(|letter| Zone::new(&format!("{region}{letter}"))).collect()
    };
    TABLES.sold.iter().map(|(region, families)| ((*region).to_owned(), zones(region, families))).collect()
}

/// The region that a zone belongs to: `us-west-2` for `us-west-2a` and for the local zone `us-west-2-lax-1a`. `None` if it is
/// not named like a zone of EC2.
pub fn region_of(zone: Zone) -> Option<&'static str> {
    let text = zone.as_str();
    let mut at = 0;
    for (place, part) in text.split('-').enumerate() {
        let is_last_of_region = place >= 2 && part.starts_with(|letter: char| letter.is_ascii_digit());
        let digits = part.bytes().take_while(u8::is_ascii_digit).count();
        if is_last_of_region {
            // A zone adds a letter, or words after a hyphen.
            let rest = &text[at + digits..];
            let is_letter = rest.len() == 1 && rest.as_bytes()[0].is_ascii_lowercase();
            return (is_letter || rest.starts_with('-')).then(|| &text[..at + digits]);
        }
        if part.is_empty() || !part.bytes().all(|byte| byte.is_ascii_lowercase()) {
            return None;
        }
        at += part.len() + 1;
    }
    None
}

/// The built-in facts of a type, without zones and prices. For one that is not named as those of EC2 are (`m7g.large`) the tables are not
/// even read, which would cost some megabytes for good.
pub(super) fn facts_of(name: TypeName) -> Option<&'static TypeFacts> {
    if !name.as_str().contains('.') {
        return None;
    }
    TABLES.types.get(&name).map(|described| &described.facts)
}

/// The region that was asked for last is kept: the checks of a commit, the simulated cloud and the engine ask for the same, and
/// share what they know of it, which is megabytes.
pub(super) fn load(region: &str) -> Result<Catalog, UnknownRegion> {
    static LAST: Mutex<Option<Catalog>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(known) = last.as_ref().filter(|known| &*known.region == region) {
        return Ok(known.clone());
    }
    Ok(last.insert(read(region)?).clone())
}

fn read(region: &str) -> Result<Catalog, UnknownRegion> {
    let tables = &*TABLES;
    let Some(sold) = tables.sold.get(region) else {
        let nearest = nearest(region, tables.sold.keys().copied());
        return Err(UnknownRegion { region: region.into(), nearest: nearest.map(str::to_owned) });
    };
    let region = Symbol::new(region);
    let listing = PRICED.iter().position(|priced| *priced == region.as_str());
    let others = sold.get("*").and_then(|sizes| sizes.get("*"));
    let mut facts = Vec::new();
    for Described { facts: described, is_spot_sold } in tables.types.values() {
        let (family, size) = described.name.as_str().split_once('.').unwrap_or((described.name.as_str(), ""));
        let prices = tables.prices.get(&described.name).copied().unwrap_or_default();
        let on_demand = prices.on_demand[listing.unwrap_or(0)];
        let listed = sold.get(family).and_then(|sizes| sizes.get(size).or_else(|| sizes.get("*")));
        let Some(letters) = listed.or(others.filter(|_| on_demand.is_some())) else {
            // It exists, so it has a name here, and nobody sells it.
            facts.push(described.clone());
            continue;
        };
        let mut kind = described.clone();
        kind.zones = letters.chars().map(|letter| Zone::new(&format!("{region}{letter}"))).collect();
        kind.prices.extend(on_demand.map(|price| (CapacityType::OnDemand, price)));
        if *is_spot_sold {
            tables.add_spot(&mut kind, prices, on_demand, listing);
        }
        facts.push(kind);
    }
    let prices = listing.map_or(PriceSource::StandIn { region: HOME.into() }, |_| PriceSource::Published);
    Ok(Catalog::new(Some(region), prices, notes(region, listing), facts, |facts| {
        labels::of_facts(facts, region)
    }))
}

/// What EC2 described of `region`, each type with whether it is sold as spot, and what spot costs there. What nobody told
/// (on-demand prices that are not `listed`, interfaces for pods' security groups) is taken from the tables.
pub(super) fn described(
    region: &str,
    mut types: Vec<(TypeFacts, bool)>,
    spot: Option<&SpotPrices>,
    listed: Option<&OnDemandPrices>,
) -> Catalog {
    let tables = &*TABLES;
    let region = Symbol::new(region);
    let listing = PRICED.iter().position(|priced| *priced == region.as_str());
    for (facts, is_spot_sold) in &mut types {
        let known = facts_of(facts.name);
        facts.branch_enis = known.and_then(|known| known.branch_enis);
        facts.ebs_attachments = known.map_or(Some(EBS_ATTACHMENTS_DEFAULT), |known| known.ebs_attachments);
        let prices = tables.prices.get(&facts.name).copied().unwrap_or_default();
        let told = listed.and_then(|listed| listed.get(&facts.name).copied());
        let on_demand = told.or(prices.on_demand[listing.unwrap_or(0)]);
        facts.prices.extend(on_demand.map(|price| (CapacityType::OnDemand, price)));
        let Some(spot) = spot else {
            if *is_spot_sold {
                tables.add_spot(facts, prices, on_demand, listing);
            }
            continue;
        };
        // Without a record there is no price, hence no offering; so nothing is estimated.
        for zone in facts.zones.iter().filter(|_| *is_spot_sold) {
            let price = spot.get(&(facts.name, *zone)).copied();
            if let Some(price) = price {
                let least = facts.prices.entry(CapacityType::Spot).or_insert(price);
                *least = (*least).min(price);
            }
            facts.zone_prices.insert((*zone, CapacityType::Spot), price);
        }
    }
    let is_own = listing.is_some() || listed.is_some();
    let prices = if is_own { PriceSource::Published } else { PriceSource::StandIn { region: HOME.into() } };
    let spot = if spot.is_some() { "EC2's own" } else { "those that are built in" };
    let note = match listing {
        _ if listed.is_some() => {
            let currency = if region.starts_with("cn-") { ", in CNY" } else { "" };
            format!("On-demand prices are AWS's price list of {region}, spot prices {spot}{currency}.")
        }
        Some(_) => format!(
            "On-demand prices are the price list of {region} of {PRICES_DATE}; spot prices are {spot}."
        ),
        None => format!(
            "Spot prices are {spot}. No price list of {region} was at hand: on-demand prices of {HOME} of \
             {PRICES_DATE} stand in."
        ),
    };
    let facts = types.into_iter().map(|(facts, _)| facts).collect();
    Catalog::new(Some(region), prices, vec![note], facts, |facts| labels::of_facts(facts, region))
}

fn notes(region: Symbol, listing: Option<usize>) -> Vec<String> {
    let prices = match listing {
        Some(0) => format!(
            "On-demand prices are the price list of {region} of {PRICES_DATE}; spot prices were seen there on {SPOT_DATE}."
        ),
        Some(_) => format!("On-demand prices are the price list of {region} of {PRICES_DATE}."),
        None => format!(
            "No price list of {region} was at hand: prices of {HOME} stand in (on-demand of {PRICES_DATE}, spot of \
             {SPOT_DATE})."
        ),
    };
    let spot = "A spot price that nobody recorded is estimated: the on-demand price times what spot usually costs of it.";
    vec![prices, spot.into()]
}

// ------------------------------------------------------------------------------------------------------- the tables

/// Zones (letters) by family and size. The size `*` is every size of the family, the family `*` every type with a price.
type Sold = BTreeMap<&'static str, BTreeMap<&'static str, &'static str>>;

struct Tables {
    types: BTreeMap<TypeName, Described>,
    prices: BTreeMap<TypeName, Prices>,
    /// By region.
    sold: BTreeMap<&'static str, Sold>,
    shares: SpotShares,
}

/// A type without zones and prices.
struct Described {
    facts: TypeFacts,
    is_spot_sold: bool,
}

#[derive(Clone, Copy, Default)]
struct Prices {
    on_demand: [Option<UsdPerHour>; 3],
    spot: Option<UsdPerHour>,
    /// The on-demand price of the day on which `spot` was seen.
    on_demand_then: Option<UsdPerHour>,
}

static TABLES: LazyLock<Tables> =
    LazyLock::new(|| Tables::read().expect("the tables are generated, and a test reads them"));

impl Tables {
    /// What spot costs as far as the tables know: as it was seen, or what it usually is of the price `on_demand`.
    fn add_spot(
        &self,
        facts: &mut TypeFacts,
        prices: Prices,
        on_demand: Option<UsdPerHour>,
        listing: Option<usize>,
    ) {
        // A spot price of the home region says nothing about a region with a price list of its own.
        let seen = prices.spot.filter(|_| listing.is_none_or(|column| column == 0));
        let spot = seen.or_else(|| on_demand.map(|price| self.shares.estimate(facts, price)));
        facts.is_spot_estimated = seen.is_none() && spot.is_some();
        facts.prices.extend(spot.map(|price| (CapacityType::Spot, price)));
    }

    fn read() -> Result<Self, Vec<TableError>> {
        let types = each(include_str!("data/types.csv"), "types.csv", &["instance_type"], read_facts)?;
        let columns = ["instance_type", "spot", "on_demand_then"];
        let prices = each(include_str!("data/prices.csv"), "prices.csv", &columns, read_prices)?;
        let types = types.into_iter().map(|described| (described.facts.name, described)).collect();
        let prices: BTreeMap<TypeName, Prices> = prices.into_iter().collect();
        let shares = SpotShares::of(&prices);
        Ok(Self { types, prices, sold: read_sold(include_str!("data/offers.csv")), shares })
    }
}

fn each<T>(
    text: &str,
    file: &str,
    columns: &[&str],
    read: impl Fn(&mut Row<'_>) -> Option<T>,
) -> Result<Vec<T>, Vec<TableError>> {
    let table = Table::read(text, file, columns)?;
    let mut values = Vec::new();
    let mut errors: Vec<TableError> = table.misfits().collect();
    for mut row in table.rows() {
        values.extend(read(&mut row));
        errors.extend(row.errors());
    }
    if errors.is_empty() { Ok(values) } else { Err(errors) }
}

fn read_facts(row: &mut Row<'_>) -> Option<Described> {
    let flag = |row: &Row<'_>, column: &str| row.text(column) == "yes";
    let eni = match (row.count("enis"), row.count("ipv4_per_eni"), row.count("network_cards")) {
        (Some(interfaces), Some(ipv4_per_interface), Some(network_cards)) => {
            Some(EniLimits { interfaces, ipv4_per_interface, network_cards })
        }
        _ => None,
    };
    let gpus = match (row.symbol("gpu_name"), row.symbol("gpu_manufacturer")) {
        (Some(name), Some(manufacturer)) => Some(Gpus {
            name,
            manufacturer,
            count: row.count("gpu_count")?,
            memory_mib: row.count("gpu_memory_mib")?,
        }),
        _ => None,
    };
    let accelerators = match (row.symbol("accelerator_name"), row.symbol("accelerator_manufacturer")) {
        (Some(name), Some(manufacturer)) => Some(Accelerators {
            name,
            manufacturer,
            count: row.count("accelerator_count")?,
            cores: row.count("neuron_cores").unwrap_or(0),
        }),
        _ => None,
    };
    let facts = TypeFacts {
        name: TypeName::new(row.required("instance_type")?),
        arch: Symbol::new(row.required("arch")?),
        vcpus: row.count("vcpu")?,
        memory_mib: u64::from(row.count("memory_mib")?),
        zones: Vec::new(),
        prices: BTreeMap::new(),
        zone_prices: BTreeMap::new(),
        is_spot_estimated: false,
        cpu_manufacturer: row.symbol("cpu_manufacturer"),
        cpu_clock_mhz: row.count("cpu_clock_mhz"),
        hypervisor: row.symbol("hypervisor"),
        has_encryption_in_transit: flag(row, "encryption_in_transit"),
        has_nitro_enclaves: (!row.text("nitro_enclaves").is_empty()).then(|| flag(row, "nitro_enclaves")),
        ebs_bandwidth_mbps: row.count("ebs_bandwidth_mbps"),
        ebs_attachments: Some(ebs_attachments(row)),
        network_bandwidth_mbps: row.count("network_bandwidth_mbps"),
        eni,
        branch_enis: row.count("branch_enis"),
        efa_interfaces: row.count("efa").unwrap_or(0),
        instance_store_gb: row.count("instance_store_gb"),
        local_nvme_gb: row.count("local_nvme_gb"),
        gpus,
        accelerators,
        stated: None,
    };
    Some(Described { facts, is_spot_sold: flag(row, "spot") })
}

fn ebs_attachments(row: &mut Row<'_>) -> EbsAttachments {
    if row.text("hypervisor") == "xen" {
        return EBS_ATTACHMENTS_OF_XEN;
    }
    let is_dedicated = row.text("ebs_limit") == "dedicated";
    row.count("ebs_attachments")
        .map_or(EBS_ATTACHMENTS_DEFAULT, |count| EbsAttachments { count, is_dedicated })
}

fn read_prices(row: &mut Row<'_>) -> Option<(TypeName, Prices)> {
    let mut price = |column: &str| row.value(column, "a price", "dollars an hour, such as `0.096`");
    let prices = Prices {
        on_demand: PRICED.map(&mut price),
        spot: price("spot"),
        on_demand_then: price("on_demand_then"),
    };
    Some((TypeName::new(row.required("instance_type")?), prices))
}

/// Plain lines without quotes: read without a copy of any cell.
fn read_sold(text: &'static str) -> BTreeMap<&'static str, Sold> {
    let mut sold: BTreeMap<&'static str, Sold> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')).skip(1) {
        let mut cells = line.split(',');
        let (Some(region), Some(family), Some(sizes), Some(zones)) =
            (cells.next(), cells.next(), cells.next(), cells.next())
        else {
            continue;
        };
        let family = sold.entry(region).or_default().entry(family).or_default();
        family.extend(sizes.split(' ').map(|size| (size, zones)));
    }
    sold
}

// --------------------------------------------------------------------------------------------------- spot estimates

/// What spot costs of the on-demand price, in ten thousandths: the median of a family, of a category and generation, of a
/// category, of all.
struct SpotShares {
    medians: BTreeMap<String, i64>,
}

impl SpotShares {
    fn of(prices: &BTreeMap<TypeName, Prices>) -> Self {
        let mut seen: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (name, prices) in prices {
            let (Some(spot), Some(then)) = (prices.spot, prices.on_demand_then) else { continue };
            for group in groups(*name).into_iter().filter(|_| then.0 > 0) {
                seen.entry(group).or_default().push(spot.0 * 10_000 / then.0);
            }
        }
        let median = |mut shares: Vec<i64>| {
            shares.sort_unstable();
            shares[(shares.len() - 1) / 2]
        };
        Self { medians: seen.into_iter().map(|(group, shares)| (group, median(shares))).collect() }
    }

    fn estimate(&self, facts: &TypeFacts, on_demand: UsdPerHour) -> UsdPerHour {
        let share = groups(facts.name).iter().find_map(|group| self.medians.get(group)).copied();
        UsdPerHour(on_demand.0 * share.unwrap_or(10_000) / 10_000)
    }
}

/// The groups whose prices behave alike, the closest first.
fn groups(name: TypeName) -> Vec<String> {
    let mut groups = Vec::new();
    if let Some(parts) = NameParts::of(name.as_str()) {
        groups.push(format!("family {}", parts.family));
        groups.push(format!("category {}{}", parts.category, parts.generation));
        groups.push(format!("category {}", parts.category));
    }
    groups.push("all".into());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_zone_tells_its_region() {
        let region = |zone| region_of(Zone::new(zone));
        assert_eq!(region("us-west-2a"), Some("us-west-2"));
        assert_eq!(region("us-gov-west-1b"), Some("us-gov-west-1"));
        assert_eq!(region("us-west-2-lax-1a"), Some("us-west-2"));
        for zone in ["test-zone-1", "zone-a", "us-west-2", "", "a-b-2A", "us-west-"] {
            assert_eq!(region(zone), None, "{zone}");
        }
    }

    #[test]
    fn the_tables_read_without_a_mistake_and_say_their_dates() {
        let tables = Tables::read().map_err(|errors| errors[0].to_string()).unwrap();
        assert!(tables.types.len() > 1_300, "{}", tables.types.len());
        assert!(tables.prices.keys().all(|name| tables.types.contains_key(name)));
        let text = include_str!("data/prices.csv");
        assert!(text.contains(PRICES_DATE) && text.contains(SPOT_DATE), "the notes repeat the table's dates");
    }

    #[test]
    fn an_unknown_region_is_refused_with_the_nearest() {
        let error = load("eu-wst-1").err().unwrap();
        assert_eq!(error.nearest.as_deref(), Some("eu-west-1"));
        assert!(error.to_string().contains("`eu-wst-1`"), "{error}");
        let error = load("mars-1").err().unwrap();
        assert_eq!(error.nearest, None);
        assert!(error.help().starts_with("it knows af-south-1, "), "{}", error.help());
    }
}
