//! The catalogue that is compiled in: every current EC2 type. docs/reference/catalog.md says where its figures come from and when.

use std::collections::BTreeMap;

use crate::model::money::UsdPerHour;
use crate::model::name::{TypeName, Zone};
use crate::model::offering::CapacityType;
use crate::model::symbol::Symbol;

use super::facts::{Accelerator, Capability, Gpu, Nics, TypeFacts};
use super::{Catalog, PriceSource};

const TYPES: &str = include_str!("types.csv");
const REGIONS: &str = include_str!("regions.csv");
/// Regions whose price list is included; for all others the first stands in.
const PRICED: [&str; 3] = ["us-east-1", "us-gov-east-1", "us-gov-west-1"];

/// A region that the built-in catalogue does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the built-in catalogue has no region `{region}`")]
pub struct UnknownRegion {
    pub region: String,
    /// The most similar name.
    pub nearest: Option<String>,
}

/// Every region of the built-in catalogue with its zones, by name.
pub fn regions() -> BTreeMap<String, Vec<Zone>> {
    let mut reader = csv::Reader::from_reader(REGIONS.as_bytes());
    let rows = reader.records().map(|row| row.expect("the included table is well formed"));
    rows.map(|row| (row[0].to_string(), row[1].split(' ').map(Zone::new).collect())).collect()
}

impl Catalog {
    /// The types of `region`, all in each of its zones.
    pub fn builtin(region: &str) -> Result<Self, UnknownRegion> {
        let regions = regions();
        let Some(zones) = regions.get(region) else {
            let nearest = regions.keys().min_by_key(|known| strsim::levenshtein(known, region)).cloned();
            return Err(UnknownRegion { region: region.to_string(), nearest });
        };
        let priced = PRICED.into_iter().find(|priced| *priced == region);
        let prices = priced.map_or(PriceSource::StandIn { region: PRICED[0] }, |_| PriceSource::Published);
        let price_column = format!("usd_{}", priced.unwrap_or(PRICED[0]));
        let mut reader = csv::Reader::from_reader(TYPES.as_bytes());
        let header: BTreeMap<String, usize> = {
            let names = reader.headers().expect("the included table has a header");
            names.iter().enumerate().map(|(at, name)| (name.to_string(), at)).collect()
        };
        let rows = reader.records().map(|row| row.expect("the included table is well formed"));
        let facts = rows
            .filter_map(|row| read(&Cells { header: &header, row: &row }, &price_column, zones))
            .collect();
        Ok(Self { region: region.into(), prices, facts })
    }
}

struct Cells<'c> {
    header: &'c BTreeMap<String, usize>,
    row: &'c csv::StringRecord,
}

impl Cells<'_> {
    fn text(&self, name: &str) -> &str {
        let at = self.header.get(name).unwrap_or_else(|| panic!("the included table has a column {name}"));
        &self.row[*at]
    }

    /// `None` for an empty cell.
    fn get<T: std::str::FromStr>(&self, name: &str) -> Option<T> {
        let text = self.text(name);
        if text.is_empty() { None } else { text.parse().ok() }
    }

    fn symbol(&self, name: &str) -> Option<Symbol> {
        Some(self.text(name)).filter(|text| !text.is_empty()).map(Symbol::new)
    }
}

/// A type, if it is sold where the prices are from.
fn read(cells: &Cells, price_column: &str, zones: &[Zone]) -> Option<TypeFacts> {
    let on_demand: UsdPerHour = cells.get(price_column)?;
    let mut prices = BTreeMap::from([(CapacityType::OnDemand, on_demand)]);
    if let Some(spot) = cells.get::<UsdPerHour>("spot_usd") {
        prices.insert(CapacityType::Spot, spot);
    }
    let nics = match (cells.get("enis"), cells.get("ipv4_per_eni")) {
        (Some(interfaces), Some(addresses)) => Nics::Limits { interfaces, addresses },
        _ => Nics::Pods(cells.get("max_pods").unwrap_or(0)),
    };
    let gpu = cells.get("gpu_count").zip(cells.symbol("gpu_manufacturer")).map(|(count, manufacturer)| Gpu {
        name: cells.symbol("gpu_name"),
        manufacturer,
        count,
        memory_mib: cells.get("gpu_memory_mib"),
    });
    let accelerator = cells.get("accelerator_count").zip(cells.symbol("accelerator_manufacturer")).map(
        |(count, manufacturer)| Accelerator {
            name: cells.symbol("accelerator_name"),
            manufacturer,
            count,
            neuron_devices: cells.get("neuron").unwrap_or(0),
        },
    );
    Some(TypeFacts {
        name: TypeName::new(cells.text("instance_type")),
        arch: cells.symbol("arch")?,
        vcpus: cells.get("vcpu")?,
        memory_mib: cells.get("memory_mib")?,
        zones: zones.to_vec(),
        prices,
        is_spot_estimated: cells.text("spot_source") == "estimate",
        gpu,
        accelerator,
        details: Capability::Described {
            nics,
            cpu_manufacturer: cells.symbol("cpu_manufacturer").unwrap_or(Symbol::new("")),
            cpu_clock_mhz: cells.get("cpu_clock_mhz"),
            hypervisor: Symbol::new(cells.text("hypervisor")),
            encrypts_in_transit: cells.text("encryption_in_transit") == "true",
            ebs_mbps: cells.get("ebs_mbps"),
            network_mbps: cells.get("network_mbps"),
            local_nvme_gib: cells.get("local_nvme_gib"),
            efa_interfaces: cells.get("efa").unwrap_or(0),
            branch_interfaces: cells.get("pod_eni").unwrap_or(0),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_included_tables_hold_together() {
        let catalog = Catalog::builtin("us-east-1").unwrap();
        assert!(catalog.facts().len() > 1300, "{}", catalog.facts().len());
        assert!(catalog.facts().windows(2).all(|pair| pair[0].name < pair[1].name), "sorted, no type twice");
        assert!(
            catalog
                .facts()
                .iter()
                .all(|facts| facts.vcpus > 0 && facts.memory_mib > 0 && !facts.prices.is_empty())
        );
        assert_eq!(catalog.prices, PriceSource::Published);
        assert_eq!(
            Catalog::builtin("ap-northeast-2").unwrap().prices,
            PriceSource::StandIn { region: "us-east-1" }
        );
        assert!(Catalog::builtin("us-gov-west-1").unwrap().facts().len() < catalog.facts().len());
    }

    #[test]
    fn an_unknown_region_names_the_nearest() {
        let error = Catalog::builtin("eu-wst-1").unwrap_err();
        assert_eq!(error.nearest.as_deref(), Some("eu-west-1"));
    }

    /// What AL2023 nodes without settings have left for pods, as Karpenter's reference of instance types states it (2026-07-11).
    #[test]
    fn the_formulas_reproduce_published_figures() {
        let types = Catalog::builtin("us-east-1").unwrap().instance_types(None);
        for (name, cpu, memory_mib, pods) in [
            ("m5.large", 1930, 6903, 29),
            ("c5.4xlarge", 15890, 27381, 234),
            ("m5.24xlarge", 95690, 355262, 737),
            ("g4dn.12xlarge", 47810, 178933, 234),
            ("m6g.large", 1930, 6844, 29),
            ("t3.small", 1930, 1418, 11),
            ("inf2.xlarge", 3920, 14162, 58),
        ] {
            let kind = types.iter().find(|kind| kind.name.as_str() == name).unwrap();
            assert_eq!(kind.allocatable.cpu().0, cpu, "{name}");
            assert!((kind.allocatable.memory().0 / (1 << 20) - memory_mib).abs() <= 1, "{name}");
            assert_eq!(kind.allocatable.pods(), pods, "{name}");
        }
    }
}
