//! `provisor catalog`: what the cloud sells, as decisions see it.

use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::plan::read_input;
use crate::io::clock;
use crate::io::cloud::CloudError;
use crate::io::cloud::aws::describe_catalog;
use crate::model::catalog::{Catalog, PriceSource};
use crate::model::class::NodeClass;
use crate::model::count::counted;
use crate::model::near::nearest;
use crate::model::offering::{CapacityType, InstanceType};
use crate::model::quantity::{ResourceName, resource};
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};
use crate::ui::table::Table;

/// The region of the built-in catalogue if nothing tells a better one.
pub const REGION: &str = "us-east-1";

/// Show or renew what the cloud sells: instance types, sizes, prices
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    verb: CatalogVerb,
}

#[derive(Debug, clap::Subcommand)]
enum CatalogVerb {
    Show(ShowArgs),
    Refresh(RefreshArgs),
}

/// List instance types with what they hold for pods and what they cost
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  provisor catalog show m7i c7g                           two families
  provisor catalog show --region eu-west-1 m7i.large
  provisor catalog show --catalog prices.csv --output json")]
struct ShowArgs {
    /// Types, families (`m7i`) or beginnings of names; all by default
    #[arg(value_name = "TYPE")]
    types: Vec<String>,
    #[command(flatten)]
    catalog: CatalogArgs,
}

/// Ask AWS for the current prices and write a catalogue file for --catalog
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Needs a build with the feature `aws` (`cargo build --release --features aws`); other builds exit with 64.

Example:
  provisor catalog refresh --region eu-west-1 > prices.csv")]
struct RefreshArgs {
    /// The AWS region to ask for
    #[arg(long)]
    region: Option<String>,
}

/// Which catalogue a verb decides with.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct CatalogArgs {
    /// Instance types and prices to use instead of the built-in ones, as CSV
    #[arg(long, value_name = "FILE")]
    catalog: Option<PathBuf>,
    /// The AWS region of the built-in catalogue; by default the one that the input speaks of, else us-east-1
    // Not of the environment: it decides for a fleet that names its own region, and the same command would plan something else
    // in another shell.
    #[arg(long, conflicts_with = "catalog")]
    region: Option<String>,
}

impl CatalogArgs {
    /// The region that the command line names, where the catalogue itself comes from the cloud.
    pub fn region_alone(&self) -> Result<Option<&str>, Failure> {
        match &self.catalog {
            Some(_) => Err(Failure::usage(
                "EC2 itself says what it sells; --catalog is for machines that are not bought",
            )),
            None => Ok(self.region.as_deref()),
        }
    }

    /// The file, or the built-in types of the region that the command line or `guess` names.
    pub fn open(&self, guess: impl FnOnce() -> Option<String>) -> Result<Arc<Catalog>, Failure> {
        let Some(file) = &self.catalog else {
            let region = self.region.clone().or_else(guess).unwrap_or_else(|| REGION.into());
            return Catalog::builtin(&region).map(Arc::new).map_err(|error| {
                let help = error.help();
                Failure::usage(error.to_string()).help(help)
            });
        };
        let (bytes, name) = read_input(file)?;
        let text = String::from_utf8(bytes).map_err(|error| {
            let right = &error.as_bytes()[..error.utf8_error().valid_up_to()];
            let right = String::from_utf8_lossy(right);
            let right = right.strip_prefix('\u{feff}').unwrap_or(&right);
            let (line, column) = (right.matches('\n').count(), right.rsplit('\n').next().unwrap_or_default());
            let place = format!("{name}:{}:{}", line + 1, column.chars().count() + 1);
            Failure::input(format!("{place}: this is not UTF-8 text")).help("Save the catalogue as UTF-8.")
        })?;
        Catalog::parse_csv(&text, &name).map(Arc::new).map_err(|errors| {
            let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Failure::input(lines.join("\n")).help("docs/reference/catalog.md describes the columns.")
        })
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CatalogDocument {
    version: u32,
    region: String,
    /// `published`, `file`, or the region whose price list stands in.
    prices: String,
    instance_types: Vec<TypeDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct TypeDocument {
    name: String,
    architecture: String,
    vcpus: u32,
    /// As advertised.
    memory_mib: u64,
    /// What a node without special settings leaves for pods, as Kubernetes quantities.
    allocatable: std::collections::BTreeMap<String, String>,
    offerings: Vec<OfferingDocument>,
    /// Whether the spot price is a guess from similar types.
    is_spot_estimated: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OfferingDocument {
    zone: String,
    capacity_type: String,
    usd_per_hour: String,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    match &args.verb {
        CatalogVerb::Show(args) => show(args, console),
        CatalogVerb::Refresh(args) => refresh(args, console),
    }
}

fn show(args: &ShowArgs, console: &Console) -> Result<Exit, Failure> {
    let catalog = args.catalog.open(|| None)?;
    let class: Option<&NodeClass> = None;
    let all = catalog.instance_types(class);
    let is_wanted = |kind: &&InstanceType| {
        args.types.is_empty() || args.types.iter().any(|beginning| kind.name.as_str().starts_with(beginning))
    };
    let types: Vec<&InstanceType> = all.iter().filter(is_wanted).collect();
    if let Some(unknown) = args
        .types
        .iter()
        .find(|beginning| !types.iter().any(|kind| kind.name.as_str().starts_with(*beginning)))
    {
        let near = nearest(unknown, all.iter().map(|kind| kind.name.as_str()));
        let failure =
            Failure::input(format!("no instance type of {} begins with `{unknown}`", catalog.region));
        return Err(match near {
            Some(near) => failure.help(format!("did you mean `{near}`?")),
            None => failure.help("`provisor catalog show` without a type lists all of them"),
        });
    }
    if console.is_json() {
        console.json(&document(&catalog, &types))?;
    } else {
        console.data(&table(&catalog, &types).to_string())?;
        let prices = match &catalog.prices {
            PriceSource::Published => "published prices".to_owned(),
            PriceSource::StandIn { region } => format!("prices of {region} stand in"),
            PriceSource::File => "prices from the file".to_owned(),
        };
        console.talk(&format!("{} in {}; {prices}", counted(types.len(), "type"), catalog.region));
    }
    Ok(Exit::Done)
}

fn document(catalog: &Catalog, types: &[&InstanceType]) -> CatalogDocument {
    CatalogDocument {
        version: 1,
        region: catalog.region.to_string(),
        prices: match &catalog.prices {
            PriceSource::Published => "published".into(),
            PriceSource::StandIn { region } => region.as_str().into(),
            PriceSource::File => "file".into(),
        },
        instance_types: types
            .iter()
            .filter_map(|kind| Some((kind, catalog.find(kind.name.as_str())?)))
            .map(|(kind, facts)| TypeDocument {
                name: kind.name.to_string(),
                architecture: facts.arch.to_string(),
                vcpus: facts.vcpus,
                memory_mib: facts.memory_mib,
                allocatable: kind
                    .allocatable
                    .iter()
                    .map(|(name, amount)| (name.to_string(), name.render(amount)))
                    .collect(),
                offerings: kind
                    .offerings
                    .iter()
                    .map(|offering| OfferingDocument {
                        zone: offering.zone.to_string(),
                        capacity_type: offering.capacity_type.to_string(),
                        usd_per_hour: offering.price.to_string(),
                    })
                    .collect(),
                is_spot_estimated: facts.is_spot_estimated,
            })
            .collect(),
    }
}

fn table(catalog: &Catalog, types: &[&InstanceType]) -> Table {
    let mut table = Table::new(&[
        "TYPE",
        "ARCH",
        ">VCPU",
        ">MEMORY",
        ">PODS",
        "DEVICES",
        ">ON-DEMAND/H",
        ">SPOT/H",
        ">ZONES",
    ]);
    for kind in types {
        let Some(facts) = catalog.find(kind.name.as_str()) else { continue };
        let price = |capacity_type| {
            facts.prices.get(&capacity_type).map(|price| format!("${price}")).unwrap_or_default()
        };
        let usual = |name: ResourceName| {
            matches!(name.0.as_str(), "cpu" | "memory" | "pods" | "ephemeral-storage")
                || name.0.starts_with("vpc.amazonaws.com/")
        };
        let devices: Vec<String> = kind
            .capacity
            .iter()
            .filter(|(name, amount)| !usual(*name) && *amount > 0)
            .map(|(name, amount)| format!("{name}={amount}"))
            .collect();
        table.row([
            kind.name.to_string(),
            facts.arch.to_string(),
            facts.vcpus.to_string(),
            format!("{} MiB", facts.memory_mib),
            kind.capacity.get(*resource::PODS).to_string(),
            devices.join(" "),
            price(CapacityType::OnDemand),
            price(CapacityType::Spot),
            facts.zones.len().to_string(),
        ]);
    }
    table
}

fn refresh(args: &RefreshArgs, console: &Console) -> Result<Exit, Failure> {
    let region = args.region.as_deref().unwrap_or(REGION);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::outside(format!("no runtime to ask AWS with: {error}")))?;
    let catalog = runtime.block_on(describe_catalog(region, clock::now())).map_err(|error| match error {
        CloudError::Unavailable(_) => without_aws("prices come from AWS"),
        CloudError::Failed { .. } | CloudError::Empty { .. } => Failure::outside(error.to_string())
            .help("Credentials and region are found as by every AWS tool; ec2:Describe* must be allowed."),
    })?;
    console.data(&catalog.to_csv())?;
    for note in catalog.notes() {
        console.talk(note);
    }
    Ok(Exit::Done)
}

/// What to say when AWS is asked for in a build that cannot talk to it.
pub fn without_aws(why: &str) -> Failure {
    Failure::usage(format!("{why}, and this build has no AWS support"))
        .help("Build it with `cargo build --release --features aws`; the SDK takes some minutes.")
}
