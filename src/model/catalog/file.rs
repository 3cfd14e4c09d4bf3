//! A catalogue file (`--catalog`): instance types and prices to use in place of the built-in ones.
//!
//! A row states what pods can use, so the formulas do not apply to it: only `kubelet.maxPods` and `podsPerCore` of a class
//! still change its pods, and its volumes the storage. A cell that is empty for `alloc_*` is worked out like a built-in type.
//! Rows of one type are one type, sold in several ways; they must agree about everything but zones and prices.

use std::collections::BTreeMap;

use super::builtin;
use super::facts::{Accelerators, Gpus, Stated, TypeFacts};
use super::labels;
use super::table::{Row, Table, TableError};
use super::{Catalog, PriceSource};
use crate::model::money::UsdPerHour;
use crate::model::name::{TypeName, Zone};
use crate::model::offering::CapacityType;
use crate::model::quantity::{Quantity, ResourceName, resource};
use crate::model::symbol::Symbol;

const COLUMNS: [&str; 13] = [
    "instance_type",
    "arch",
    "vcpu",
    "memory_mib",
    "alloc_cpu",
    "alloc_memory",
    "alloc_pods",
    "nvidia_gpu",
    "neuron",
    "on_demand_usd_per_hour",
    "spot_usd_per_hour",
    "zones",
    "capacity_types",
];

/// Prices by zone and capacity type, as one row gives them.
type Offers = BTreeMap<(Zone, CapacityType), UsdPerHour>;

pub(super) fn parse(text: &str, file: &str) -> Result<Catalog, Vec<TableError>> {
    let table = Table::read(text, file, &COLUMNS)?;
    let mut errors: Vec<TableError> = table.misfits().collect();
    let mut types: BTreeMap<TypeName, (TypeFacts, Offers)> = BTreeMap::new();
    for mut row in table.rows() {
        if let Some((facts, offers)) = read_row(&mut row) {
            match types.get_mut(&facts.name) {
                Some((first, _)) if *first != facts => row.refuse(
                    "instance_type",
                    format!("this row describes `{}` differently from an earlier one", facts.name),
                    "rows of one type may differ in zones, capacity types and prices only",
                ),
                Some((_, known)) => match offers.keys().find(|offer| known.contains_key(*offer)) {
                    Some((zone, capacity_type)) => {
                        let message =
                            format!("`{}` has a second price as {capacity_type} in {zone}", facts.name);
                        row.refuse("instance_type", message, "remove one of the rows");
                    }
                    None => known.extend(offers),
                },
                None => {
                    types.insert(facts.name, (facts, offers));
                }
            }
        }
        errors.extend(row.errors());
    }
    let whole_file =
        |message: String, help: String| TableError { file: file.into(), line: 1, column: 1, message, help };
    if types.len() > usize::from(u16::MAX) {
        let message = format!("{} instance types are more than a catalogue can hold", types.len());
        errors.push(whole_file(message, format!("keep at most {}", u16::MAX)));
    }
    if types.is_empty() && errors.is_empty() {
        errors
            .push(whole_file("the catalogue has no instance type".into(), "add a line for each type".into()));
    }
    if !errors.is_empty() {
        errors.sort_by_key(|error| (error.line, error.column));
        return Err(errors);
    }
    let mut regions = types
        .values()
        .flat_map(|(_, offers)| offers.keys())
        .map(|(zone, _)| builtin::region_of(*zone).map(Symbol::new));
    let first = regions.next().flatten();
    let region = first.filter(|_| regions.all(|region| region == first));
    let facts = types.into_values().map(|(facts, offers)| sold(facts, offers)).collect();
    Ok(Catalog::new(region, PriceSource::File, Vec::new(), facts, |facts| {
        labels::of_row(facts, region, builtin::facts_of(facts.name))
    }))
}

/// `facts` with where and for how much it is sold.
fn sold(mut facts: TypeFacts, offers: Offers) -> TypeFacts {
    facts.zones = offers.keys().map(|(zone, _)| *zone).collect();
    facts.zones.dedup();
    for ((_, capacity_type), price) in &offers {
        let least = facts.prices.entry(*capacity_type).or_insert(*price);
        *least = (*least).min(*price);
    }
    for zone in facts.zones.clone() {
        for (capacity_type, usual) in &facts.prices {
            let price = offers.get(&(zone, *capacity_type)).copied();
            if price != Some(*usual) {
                facts.zone_prices.insert((zone, *capacity_type), price);
            }
        }
    }
    facts
}

/// The other way round: one row for each type, or several where zones ask different prices. Reading it again gives the same
/// offerings, and the same room for pods under a class without settings.
pub(super) fn render(catalog: &Catalog) -> String {
    let mut text = catalog.notes().iter().map(|note| format!("# {note}\n")).collect::<String>();
    text.push_str(&COLUMNS.join(","));
    text.push('\n');
    let shapes = catalog.instance_types(None);
    for (facts, kind) in catalog.facts().iter().zip(shapes.iter()) {
        // Zones by what they ask, in the order of the first zone of each.
        let mut groups: Vec<([Option<UsdPerHour>; 2], Vec<&str>)> = Vec::new();
        for zone in &facts.zones {
            let prices = [CapacityType::OnDemand, CapacityType::Spot].map(|way| facts.price(*zone, way));
            match groups.iter_mut().find(|(known, _)| *known == prices) {
                Some((_, zones)) => zones.push(zone.as_str()),
                None => groups.push((prices, vec![zone.as_str()])),
            }
        }
        for ([on_demand, spot], zones) in groups {
            let cell = |price: Option<UsdPerHour>| price.map(|price| price.to_string()).unwrap_or_default();
            let device = |name: &str| {
                let count = kind.capacity.get(ResourceName::new(name));
                if count > 0 { count.to_string() } else { String::new() }
            };
            let mut ways = Vec::new();
            ways.extend(on_demand.map(|_| "on-demand"));
            ways.extend(spot.map(|_| "spot"));
            let left = |name: ResourceName| name.render(kind.allocatable.get(name));
            let cells = [
                facts.name.to_string(),
                facts.arch.to_string(),
                facts.vcpus.to_string(),
                facts.memory_mib.to_string(),
                left(*resource::CPU),
                left(*resource::MEMORY),
                left(*resource::PODS),
                device("nvidia.com/gpu"),
                device("aws.amazon.com/neuron"),
                cell(on_demand),
                cell(spot),
                zones.join(" "),
                ways.join(" "),
            ];
            text.push_str(&cells.join(","));
            text.push('\n');
        }
    }
    text
}

/// `None` if the row is wrong, which it then says.
fn read_row(row: &mut Row<'_>) -> Option<(TypeFacts, Offers)> {
    let name = row.required("instance_type");
    let arch = row.required("arch");
    if let Some(arch) = arch.filter(|arch| !matches!(*arch, "amd64" | "arm64")) {
        row.refuse("arch", format!("`{arch}` is not an architecture"), "write `amd64` or `arm64`");
    }
    let vcpu = positive(row, "vcpu");
    let memory_mib = positive(row, "memory_mib");
    let stated = Stated {
        cpu: quantity(row, "alloc_cpu", *resource::CPU),
        memory: quantity(row, "alloc_memory", *resource::MEMORY),
        pods: quantity(row, "alloc_pods", *resource::PODS),
    };
    check_stated(row, &stated, vcpu, memory_mib);
    let gpus = row.count("nvidia_gpu").filter(|count| *count > 0);
    let devices = row.count("neuron").filter(|count| *count > 0);
    let offers = offers(row);
    let name = TypeName::new(name?);
    let known = builtin::facts_of(name);
    let facts = TypeFacts {
        name,
        arch: Symbol::new(arch.filter(|arch| matches!(*arch, "amd64" | "arm64"))?),
        vcpus: vcpu?,
        memory_mib: u64::from(memory_mib?),
        zones: Vec::new(),
        prices: BTreeMap::new(),
        zone_prices: BTreeMap::new(),
        is_spot_estimated: false,
        cpu_manufacturer: None,
        cpu_clock_mhz: None,
        hypervisor: None,
        has_encryption_in_transit: false,
        has_nitro_enclaves: None,
        ebs_bandwidth_mbps: None,
        ebs_attachments: known.and_then(|known| known.ebs_attachments),
        network_bandwidth_mbps: None,
        // Of use only where the row leaves something to the formulas.
        eni: known.and_then(|known| known.eni),
        branch_enis: None,
        efa_interfaces: 0,
        instance_store_gb: known.and_then(|known| known.instance_store_gb),
        local_nvme_gb: None,
        gpus: gpus.map(|count| Gpus {
            name: known.and_then(|known| known.gpus).map_or(Symbol::new(""), |gpus| gpus.name),
            manufacturer: Symbol::new("nvidia"),
            count,
            memory_mib: 0,
        }),
        accelerators: devices.map(|count| Accelerators {
            name: Symbol::new(""),
            manufacturer: Symbol::new("aws"),
            count,
            cores: 0,
        }),
        stated: Some(stated),
    };
    Some((facts, offers?))
}

/// More decimals than a price keeps: it would be another price.
fn is_too_fine(price: &str) -> bool {
    price.split_once('.').is_some_and(|(_, decimals)| decimals.trim_end_matches('0').len() > 6)
}

/// Nothing has more for pods than it has.
fn check_stated(row: &mut Row<'_>, stated: &Stated, vcpu: Option<u32>, memory_mib: Option<u32>) {
    let most = [
        ("alloc_cpu", *resource::CPU, stated.cpu, vcpu.map(|count| i64::from(count) * 1_000), "vcpu"),
        (
            "alloc_memory",
            *resource::MEMORY,
            stated.memory,
            memory_mib.map(|mib| i64::from(mib) << 20),
            "memory_mib",
        ),
    ];
    for (column, name, left, most, of) in most {
        if let (Some(left), Some(most)) = (left, most)
            && left > most
        {
            let message =
                format!("`{column}` is {}, and the machine has {}", name.render(left), name.render(most));
            row.refuse(column, message, &format!("write what is left for pods, at most `{of}`"));
        }
    }
}

fn positive(row: &mut Row<'_>, column: &str) -> Option<u32> {
    row.required(column)?;
    let count = row.count(column)?;
    if count == 0 {
        row.refuse(column, format!("`{column}` is zero"), "a machine has at least one");
        return None;
    }
    Some(count)
}

fn quantity(row: &mut Row<'_>, column: &str, name: ResourceName) -> Option<i64> {
    let quantity: Quantity = row.value(column, "a quantity", "one such as `1930m`, `6903Mi` or `29`")?;
    if quantity.is_negative() {
        row.refuse(column, format!("`{column}` is negative"), "write what is left for pods, at least 0");
    }
    Some(name.amount(quantity))
}

fn offers(row: &mut Row<'_>) -> Option<Offers> {
    let mut prices = Vec::new();
    for (capacity_type, column) in
        [(CapacityType::OnDemand, "on_demand_usd_per_hour"), (CapacityType::Spot, "spot_usd_per_hour")]
    {
        let price: Option<UsdPerHour> = row.value(column, "a price", "dollars an hour, such as `0.096`");
        if price.is_some() && is_too_fine(row.text(column)) {
            let message = format!("`{}` in `{column}` is finer than a micro-dollar", row.text(column));
            row.refuse(column, message, "prices are exact to the micro-dollar: write at most six decimals");
        }
        if price.is_some_and(|price| price.0 < 0) {
            row.refuse(
                column,
                format!("`{column}` is negative"),
                "leave it empty if it is not sold that way",
            );
        }
        prices.extend(price.map(|price| (capacity_type, price)));
    }
    let mut is_right = true;
    let mut sold = Vec::new();
    for word in row.text("capacity_types").split_ascii_whitespace() {
        match CapacityType::parse(word) {
            Some(CapacityType::Reserved) | None => {
                is_right = false;
                let message = format!("`{word}` is not a capacity type that a catalogue can price");
                row.refuse(
                    "capacity_types",
                    message,
                    "write `on-demand`, `spot` or both, with a space between",
                );
            }
            Some(capacity_type) => sold.push(capacity_type),
        }
    }
    let mut zones: Vec<Zone> = row.text("zones").split_ascii_whitespace().map(Zone::new).collect();
    zones.sort();
    zones.dedup();
    let refused = zones.iter().find(|zone| !crate::model::label::is_label_value(zone.as_str())).copied();
    if let Some(zone) = refused {
        is_right = false;
        row.refuse("zones", format!("`{zone}` is not a zone"), "write zones with spaces between");
    }
    let offers = prices
        .into_iter()
        .filter(|(capacity_type, _)| sold.contains(capacity_type))
        .flat_map(|(capacity_type, price)| zones.iter().map(move |zone| ((*zone, capacity_type), price)))
        .collect();
    is_right.then_some(offers)
}
