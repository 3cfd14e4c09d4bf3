//! The file of `--catalog`: instance types and prices to use instead of the built-in ones.

use std::collections::BTreeMap;

use crate::model::money::UsdPerHour;
use crate::model::name::{TypeName, Zone};
use crate::model::offering::CapacityType;
use crate::model::quantity::{Quantity, ResourceName, Resources, resource};
use crate::model::symbol::Symbol;

use super::facts::{Accelerator, Capability, Gpu, TypeFacts};
use super::{Catalog, PriceSource};

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

/// A mistake in a catalogue file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}:{column}: {message}")]
pub struct TableError {
    pub file: String,
    /// From 1.
    pub line: u64,
    /// The field of the line, from 1.
    pub column: usize,
    pub message: String,
}

impl Catalog {
    /// Reads the format that docs/reference/catalog.md describes. All mistakes at once, at most fifty.
    pub fn parse_csv(text: &str, file: &str) -> Result<Self, Vec<TableError>> {
        let mut errors = Vec::new();
        let mut reader =
            csv::ReaderBuilder::new().trim(csv::Trim::All).flexible(true).from_reader(text.as_bytes());
        let at = |line, column, message: String| TableError { file: file.to_string(), line, column, message };
        let header = match reader.headers() {
            Ok(header) => header.clone(),
            Err(error) => return Err(vec![at(1, 1, error.to_string())]),
        };
        if let Some((index, wanted)) =
            COLUMNS.iter().enumerate().find(|(index, wanted)| header.get(*index) != Some(**wanted))
        {
            let found = header.get(index).unwrap_or("nothing");
            let message =
                format!("column `{wanted}` expected, found `{found}`; the header is {}", COLUMNS.join(","));
            return Err(vec![at(1, index + 1, message)]);
        }
        let mut types: BTreeMap<TypeName, (u64, TypeFacts)> = BTreeMap::new();
        for record in reader.records() {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    let line = error.position().map_or(0, csv::Position::line);
                    errors.push(at(line, 1, error.to_string()));
                    continue;
                }
            };
            let line = record.position().map_or(0, csv::Position::line);
            let mut row = Row { record: &record, faults: Vec::new() };
            let facts = row.read();
            errors.extend(row.faults.into_iter().map(|(column, message)| at(line, column + 1, message)));
            if let Some((former, _)) = types.get(&facts.name) {
                errors.push(at(line, 1, format!("{} is on line {former} already", facts.name)));
            } else {
                types.insert(facts.name, (line, facts));
            }
        }
        if types.is_empty() && errors.is_empty() {
            errors.push(at(1, 1, "the catalogue has no instance type".to_string()));
        }
        if !errors.is_empty() {
            errors.truncate(50);
            return Err(errors);
        }
        let facts: Vec<TypeFacts> = types.into_values().map(|(_, facts)| facts).collect();
        // Zones are named for their region, with one letter more.
        let zone = facts.iter().flat_map(|facts| &facts.zones).next().map_or("", |zone| zone.as_str());
        let region = zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
        let region = if region.is_empty() || region.ends_with('-') { zone } else { region };
        Ok(Self { region: region.into(), prices: PriceSource::File, facts })
    }
}

/// One line, with what is wrong in it: `(field from 0, message)`.
struct Row<'r> {
    record: &'r csv::StringRecord,
    faults: Vec<(usize, String)>,
}

impl Row<'_> {
    fn cell(&self, column: usize) -> &str {
        self.record.get(column).unwrap_or("")
    }

    fn parse<T>(&mut self, column: usize, example: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let text = self.cell(column).to_string();
        let value = read(&text);
        if value.is_none() {
            self.faults.push((
                column,
                format!("`{text}` is no value for {}; write for example `{example}`", COLUMNS[column]),
            ));
        }
        value
    }

    fn optional<T>(&mut self, column: usize, example: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        if self.cell(column).is_empty() { None } else { self.parse(column, example, read) }
    }

    fn read(&mut self) -> TypeFacts {
        if self.record.len() != COLUMNS.len() {
            let message = format!("{} fields expected, {} found", COLUMNS.len(), self.record.len());
            self.faults.push((self.record.len().min(COLUMNS.len() - 1), message));
        }
        let number = |text: &str| text.parse::<u32>().ok();
        let amount = |name: ResourceName| move |text: &str| Some(name.amount(text.parse::<Quantity>().ok()?));
        let price = |text: &str| text.parse::<UsdPerHour>().ok().filter(|price| price.0 >= 0);
        let name = self.parse(0, "m7i.large", |text| (!text.is_empty()).then(|| TypeName::new(text)));
        let arch =
            self.parse(1, "amd64", |text| matches!(text, "amd64" | "arm64").then(|| Symbol::new(text)));
        let vcpus = self.parse(2, "2", number);
        let memory_mib = self.parse(3, "8192", |text| text.parse::<u64>().ok());
        let mut allocatable = Resources::new();
        for (column, name, example) in
            [(4, *resource::CPU, "1930m"), (5, *resource::MEMORY, "6903Mi"), (6, *resource::PODS, "29")]
        {
            allocatable.set(name, self.parse(column, example, amount(name)).unwrap_or(0));
        }
        let gpus = self.optional(7, "1", number).filter(|count| *count > 0);
        let neurons = self.optional(8, "1", number).filter(|count| *count > 0);
        for (count, name) in [(gpus, "nvidia.com/gpu"), (neurons, "aws.amazon.com/neuron")] {
            if let Some(count) = count {
                allocatable.set(ResourceName::new(name), i64::from(count));
            }
        }
        let mut prices = BTreeMap::new();
        for (column, capacity_type) in [(9, CapacityType::OnDemand), (10, CapacityType::Spot)] {
            if let Some(price) = self.optional(column, "0.096", price) {
                prices.insert(capacity_type, price);
            }
        }
        let zones = self.cell(11).split_whitespace().map(Zone::new).collect();
        let mut sold = Vec::new();
        for word in self.cell(12).to_string().split_whitespace() {
            match CapacityType::parse(word) {
                Some(capacity_type) => sold.push(capacity_type),
                None => self
                    .faults
                    .push((12, format!("`{word}` is no capacity type: on-demand, spot or reserved"))),
            }
        }
        prices.retain(|capacity_type, _| sold.contains(capacity_type));
        TypeFacts {
            name: name.unwrap_or(TypeName::new("")),
            arch: arch.unwrap_or(Symbol::new("amd64")),
            vcpus: vcpus.unwrap_or(0),
            memory_mib: memory_mib.unwrap_or(0),
            zones,
            prices,
            is_spot_estimated: false,
            gpu: gpus.map(|count| Gpu { name: None, manufacturer: "nvidia".into(), count, memory_mib: None }),
            accelerator: neurons.map(|count| Accelerator {
                name: None,
                manufacturer: "aws".into(),
                count,
                neuron_devices: count,
            }),
            details: Capability::Given { allocatable },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "instance_type,arch,vcpu,memory_mib,alloc_cpu,alloc_memory,alloc_pods,nvidia_gpu,neuron,on_demand_usd_per_hour,spot_usd_per_hour,zones,capacity_types\n";

    #[test]
    fn a_file_is_read_as_given() {
        let text = format!(
            "{HEADER}m5.large,amd64,2,8192,1930m,6903Mi,29,,,0.096,0.0537,us-west-2a us-west-2b,on-demand spot\n"
        );
        let catalog = Catalog::parse_csv(&text, "c.csv").unwrap();
        assert_eq!(&*catalog.region, "us-west-2");
        let types = catalog.instance_types(None);
        assert_eq!(types[0].offerings.len(), 4);
        assert_eq!(types[0].offerings[0].price, UsdPerHour(53_700));
        assert_eq!(types[0].allocatable.cpu().0, 1930);
        assert_eq!(types[0].allocatable.pods(), 29);
    }

    #[test]
    fn an_empty_price_is_no_offering() {
        let text =
            format!("{HEADER}m5.large,amd64,2,8192,1930m,6903Mi,29,,,0.096,,us-west-2a,on-demand spot\n");
        assert_eq!(Catalog::parse_csv(&text, "c.csv").unwrap().instance_types(None)[0].offerings.len(), 1);
    }

    #[test]
    fn all_mistakes_are_named_with_their_place() {
        let text = format!(
            "{HEADER}m5.large,x86,two,8192,1930m,6903Mi,29,,,0.096,,a,on-demand\nm5.large,amd64,2,8192,1,1Gi,29,,,1,1,a,cheap\n"
        );
        let errors = Catalog::parse_csv(&text, "c.csv").unwrap_err();
        let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            shown,
            [
                "c.csv:2:2: `x86` is no value for arch; write for example `amd64`",
                "c.csv:2:3: `two` is no value for vcpu; write for example `2`",
                "c.csv:3:13: `cheap` is no capacity type: on-demand, spot or reserved",
                "c.csv:3:1: m5.large is on line 2 already",
            ]
        );
        assert!(
            Catalog::parse_csv("a,b\n", "c.csv").unwrap_err()[0]
                .message
                .starts_with("column `instance_type`")
        );
        assert!(Catalog::parse_csv(HEADER, "c.csv").is_err());
    }
}
