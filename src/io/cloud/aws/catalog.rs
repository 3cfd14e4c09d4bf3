//! What EC2 sells in a region: instance types, where they are offered, and what spot costs now (aws.md 3.1, 3.7).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use aws_sdk_ec2::Client;
use aws_sdk_ec2::error::DisplayErrorContext;
use aws_sdk_ec2::primitives::DateTime;
use aws_sdk_ec2::types::{
    ArchitectureType, EbsOptimizedSupport, EphemeralNvmeSupport, Filter, InstanceTypeInfo, LocationType,
    NetworkInfo, NitroEnclavesSupport, UsageClassType,
};
use jiff::Timestamp;

use super::super::CloudError;
use super::prices;
use super::signed::SignedClient;
use crate::model::catalog::{Accelerators, Catalog, EniLimits, Gpus, SpotPrices, TypeFacts};
use crate::model::money::UsdPerHour;
use crate::model::name::{TypeName, Zone};
use crate::model::symbol::Symbol;

const TYPES_PER_PAGE: i32 = 100;
const OFFERINGS_PER_PAGE: i32 = 1000;
const PRICES_PER_PAGE: i32 = 2000;
/// Both kinds of Linux that spot prices are told for.
const PRODUCTS: [&str; 2] = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"];

/// Asks AWS what `region` sells at `now`, and what it costs. Without an answer of the price list, which is told, on-demand prices
/// are those of the built-in catalogue.
pub async fn describe_catalog(region: &str, now: Timestamp) -> Result<Catalog, CloudError> {
    let config = super::Account::of_environment(Some(region)).await?.0;
    let on_demand = if prices::are_listed(region) {
        let listed = prices::on_demand(&SignedClient::new(&config, region), region).await;
        listed
            .map_err(|error| tracing::warn!("{error}; on-demand prices are those of the built-in catalogue"))
            .ok()
    } else {
        None
    };
    let client = Client::new(&config);
    let (described, spot) = tokio::try_join!(describe(&client, region), spot_prices(&client, region, now))?;
    Ok(Catalog::described(region, described, Some(&spot), on_demand.as_ref()))
}

/// Every type that a Kubernetes node can be, where it is offered, and whether it is sold as spot.
pub(super) async fn describe(client: &Client, region: &str) -> Result<Vec<(TypeFacts, bool)>, CloudError> {
    let (types, zones) = tokio::try_join!(types(client, region), zones(client, region))?;
    let described = types
        .into_iter()
        .filter_map(|(mut facts, is_spot_sold)| {
            facts.zones = zones.get(&facts.name)?.iter().copied().collect();
            Some((facts, is_spot_sold))
        })
        .collect();
    Ok(described)
}

fn filter(name: &str, values: &[&str]) -> Filter {
    Filter::builder()
        .name(name)
        .set_values(Some(values.iter().map(|value| (*value).to_owned()).collect()))
        .build()
}

fn failed<E: std::error::Error>(call: &'static str, region: &str) -> impl Fn(E) -> CloudError {
    move |error| CloudError::Failed {
        call,
        region: region.into(),
        message: DisplayErrorContext(&error).to_string(),
    }
}

/// Every type that a Kubernetes node can be, and whether it is sold as spot.
async fn types(client: &Client, region: &str) -> Result<Vec<(TypeFacts, bool)>, CloudError> {
    const CALL: &str = "DescribeInstanceTypes";
    let mut answer = client
        .describe_instance_types()
        .filters(filter("supported-virtualization-type", &["hvm"]))
        .filters(filter("processor-info.supported-architecture", &["x86_64", "arm64"]))
        .into_paginator()
        .page_size(TYPES_PER_PAGE)
        .items()
        .send();
    let mut types = Vec::new();
    while let Some(info) = answer.next().await {
        types.extend(read_type(&info.map_err(failed(CALL, region))?));
    }
    if types.is_empty() {
        return Err(CloudError::Empty { call: CALL, region: region.into() });
    }
    Ok(types)
}

async fn zones(client: &Client, region: &str) -> Result<BTreeMap<TypeName, BTreeSet<Zone>>, CloudError> {
    const CALL: &str = "DescribeInstanceTypeOfferings";
    let mut answer = client
        .describe_instance_type_offerings()
        .location_type(LocationType::AvailabilityZone)
        .into_paginator()
        .page_size(OFFERINGS_PER_PAGE)
        .items()
        .send();
    let mut zones: BTreeMap<TypeName, BTreeSet<Zone>> = BTreeMap::new();
    while let Some(offering) = answer.next().await {
        let offering = offering.map_err(failed(CALL, region))?;
        if let (Some(name), Some(zone)) = (offering.instance_type(), offering.location()) {
            zones.entry(TypeName::new(name.as_str())).or_default().insert(Zone::new(zone));
        }
    }
    if zones.is_empty() {
        return Err(CloudError::Empty { call: CALL, region: region.into() });
    }
    Ok(zones)
}

/// The newest price of each type and zone. Records without a time or with an unreadable price are passed over.
pub(super) async fn spot_prices(
    client: &Client,
    region: &str,
    now: Timestamp,
) -> Result<SpotPrices, CloudError> {
    let mut answer = client
        .describe_spot_price_history()
        .set_product_descriptions(Some(PRODUCTS.map(str::to_owned).to_vec()))
        .start_time(DateTime::from_secs(now.as_second()))
        .into_paginator()
        .page_size(PRICES_PER_PAGE)
        .items()
        .send();
    let mut newest: BTreeMap<(TypeName, Zone), (DateTime, UsdPerHour)> = BTreeMap::new();
    while let Some(record) = answer.next().await {
        let record = record.map_err(failed("DescribeSpotPriceHistory", region))?;
        let price = record.spot_price().and_then(|price| price.parse::<UsdPerHour>().ok());
        let (Some(name), Some(zone), Some(at), Some(price)) =
            (record.instance_type(), record.availability_zone(), record.timestamp(), price)
        else {
            continue;
        };
        let entry = newest.entry((TypeName::new(name.as_str()), Zone::new(zone))).or_insert((*at, price));
        if entry.0 < *at {
            *entry = (*at, price);
        }
    }
    Ok(newest.into_iter().map(|(offering, (_, price))| (offering, price)).collect())
}

/// `known` prices, and those that were `told` since: a type that an answer names has those of the answer, and no others.
pub(super) fn updated(mut known: SpotPrices, told: SpotPrices) -> SpotPrices {
    let named: BTreeSet<TypeName> = told.keys().map(|(name, _)| *name).collect();
    known.retain(|(name, _), _| !named.contains(name));
    known.extend(told);
    known
}

/// `None` for what no node can be, such as a Mac.
fn read_type(info: &InstanceTypeInfo) -> Option<(TypeFacts, bool)> {
    let processor = info.processor_info()?;
    let arch = match processor.supported_architectures() {
        [ArchitectureType::Arm64, ..] => "arm64",
        listed if listed.contains(&ArchitectureType::X8664) => "amd64",
        _ => return None,
    };
    let ebs = info.ebs_info();
    let is_ebs_optimised =
        ebs.is_some_and(|ebs| ebs.ebs_optimized_support() == Some(&EbsOptimizedSupport::Default));
    let store = info.instance_storage_info().filter(|_| info.instance_storage_supported() == Some(true));
    let store_gb = store.and_then(|store| u32::try_from(store.total_size_in_gb()?).ok());
    let has_nvme = store.and_then(|store| store.nvme_support()).is_some_and(|support| {
        matches!(support, EphemeralNvmeSupport::Required | EphemeralNvmeSupport::Supported)
    });
    let network = info.network_info();
    let facts = TypeFacts {
        name: TypeName::new(info.instance_type()?.as_str()),
        arch: Symbol::new(arch),
        vcpus: u32::try_from(info.v_cpu_info()?.default_v_cpus()?).ok()?,
        memory_mib: u64::try_from(info.memory_info()?.size_in_mib()?).ok()?,
        zones: Vec::new(),
        prices: BTreeMap::new(),
        zone_prices: BTreeMap::new(),
        is_spot_estimated: false,
        cpu_manufacturer: processor.manufacturer().map(word),
        cpu_clock_mhz: processor.sustained_clock_speed_in_ghz().and_then(in_thousandths),
        hypervisor: info.hypervisor().map(|hypervisor| Symbol::new(hypervisor.as_str())),
        has_encryption_in_transit: network
            .is_some_and(|network| network.encryption_in_transit_supported() == Some(true)),
        has_nitro_enclaves: info
            .nitro_enclaves_support()
            .map(|support| *support == NitroEnclavesSupport::Supported),
        ebs_bandwidth_mbps: ebs
            .filter(|_| is_ebs_optimised)
            .and_then(|ebs| count(ebs.ebs_optimized_info()?.maximum_bandwidth_in_mbps())),
        // Told by the built-in tables, as the EBS CSI driver has its own.
        ebs_attachments: None,
        network_bandwidth_mbps: network.and_then(bandwidth),
        eni: network.and_then(eni_limits),
        branch_enis: None,
        efa_interfaces: network
            .and_then(|network| count(network.efa_info()?.maximum_efa_interfaces()))
            .unwrap_or(0),
        instance_store_gb: store_gb,
        local_nvme_gb: store_gb.filter(|_| has_nvme),
        gpus: gpus(info),
        accelerators: accelerators(info),
        stated: None,
    };
    Some((facts, info.supported_usage_classes().contains(&UsageClassType::Spot)))
}

fn count(number: Option<i32>) -> Option<u32> {
    u32::try_from(number?).ok()
}

/// Lower case, hyphens for spaces: a label value.
fn word(text: impl fmt::Display) -> Symbol {
    Symbol::new(&text.to_string().to_lowercase().replace(' ', "-"))
}

/// The SDK gives gigahertz and gigabits as fractions.
fn in_thousandths(number: f64) -> Option<u32> {
    let rounded = (number * 1000.0).round();
    (rounded > 0.0 && rounded <= f64::from(u32::MAX)).then_some(rounded as u32)
}

fn bandwidth(network: &NetworkInfo) -> Option<u32> {
    in_thousandths(network.network_cards().iter().filter_map(|card| card.baseline_bandwidth_in_gbps()).sum())
}

fn eni_limits(network: &NetworkInfo) -> Option<EniLimits> {
    let index = network.default_network_card_index().unwrap_or(0);
    let cards = network.network_cards();
    let default = cards.iter().find(|card| card.network_card_index() == Some(index));
    let of_default = default.and_then(|card| card.maximum_network_interfaces());
    Some(EniLimits {
        interfaces: count(of_default.or(network.maximum_network_interfaces()))?,
        ipv4_per_interface: count(network.ipv4_addresses_per_interface())?,
        network_cards: u32::try_from(cards.len().max(1)).ok()?,
    })
}

/// Only if all GPUs are of one kind, because a label has one value.
fn gpus(info: &InstanceTypeInfo) -> Option<Gpus> {
    let [gpu] = info.gpu_info()?.gpus() else { return None };
    Some(Gpus {
        name: word(gpu.name()?),
        manufacturer: word(gpu.manufacturer()?),
        count: count(gpu.count())?,
        memory_mib: count(gpu.memory_info()?.size_in_mib())?,
    })
}

fn accelerators(info: &InstanceTypeInfo) -> Option<Accelerators> {
    let [device] = info.neuron_info()?.neuron_devices() else { return None };
    Some(Accelerators {
        name: word(device.name()?),
        manufacturer: Symbol::new("aws"),
        count: count(device.count())?,
        cores: count(device.core_info()?.count())?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: AWS-395, AWS-396
    #[test]
    fn a_type_that_a_later_answer_leaves_out_keeps_its_prices() {
        let prices = |told: &[(&str, &str, &str)]| -> SpotPrices {
            let price = |price: &str| price.parse::<UsdPerHour>().unwrap();
            let each =
                told.iter().map(|(name, zone, usd)| ((TypeName::new(name), Zone::new(zone)), price(usd)));
            each.collect()
        };
        let known =
            prices(&[("m5.large", "a", "0.04"), ("m5.large", "b", "0.05"), ("c5.large", "a", "0.03")]);
        let told = prices(&[("m5.large", "b", "0.06")]);
        let expected = prices(&[("m5.large", "b", "0.06"), ("c5.large", "a", "0.03")]);
        assert_eq!(updated(known, told), expected);
    }
}
