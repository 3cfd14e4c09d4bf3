//! `provisor plan`: what would Provisor do, and why? Everything is read, nothing is changed.
//!
//! The cluster is a file of its objects; with a repository, the environment's objects take the place of the cluster's own
//! NodePools, node classes and overlays, and the answer also says what that changes.

pub mod document;
mod answer;
mod text;
mod picture;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use jiff::{SignedDuration, Timestamp};

use super::catalog::CatalogArgs;
use super::render::{States, sorted, states};
use super::repository::{self, CommitArgs};
use crate::api::scheduler_config;
use crate::api::snapshot::PODS_MAX;
use crate::capacity::disruption;
use crate::capacity::engine::EngineSettings;
use crate::capacity::scheduling::{MinValuesPolicy, PreferencePolicy, Settings, UnsupportedStorage};
use crate::gitops::desired::DesiredState;
use crate::gitops::fleet::Fleet;
use crate::gitops::render::{RenderSettings, list_environments};
use crate::gitops::tree::Node;
use crate::io::clock;
use crate::model::near::nearest;
use crate::model::pod::Spread;
use crate::model::repository::Repository;
use crate::model::symbol::Symbol;
use crate::model::time::parse_duration;
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};
pub use picture::{Picture, read_input};

/// Say what would be bought, what would go, and why, for a cluster in a file
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 planned, 2 the input is wrong, 3 the outside world failed; with --detailed-exitcode
0 nothing to do, 4 something to do.

Examples:
  kubectl get nodes,pods,nodeclaims,nodepools,ec2nodeclasses,daemonsets -A -o yaml | provisor plan --snapshot -
  provisor plan --snapshot cluster.yaml --catalog prices.csv --output json
  provisor plan prod --snapshot cluster.yaml               with the NodePools that this directory wants
  provisor plan prod --repo https://git.example.com/fleet.git --ref next --snapshot cluster.yaml
  provisor plan --snapshot cluster.yaml --until-settled    where the cluster would end")]
pub struct Args {
    /// The environment whose objects replace the snapshot's; may be left out if the fleet has one only
    #[arg(value_name = "ENVIRONMENT")]
    environment: Option<String>,
    /// The fleet: a directory, read as it is on disk, or the address of a Git repository
    #[arg(long, value_name = "PATH_OR_URL", env = "PROVISOR_REPO")]
    repo: Option<String>,
    #[command(flatten)]
    at: CommitArgs,
    /// Kubernetes objects that stand for the cluster, as YAML documents or JSON; `-` is standard input
    #[arg(long, value_name = "FILE")]
    snapshot: Option<PathBuf>,
    /// How many pods may be made up for controllers that have none in the snapshot
    #[arg(long, value_name = "N", default_value_t = PODS_MAX)]
    max_pods: u32,
    #[command(flatten)]
    catalog: CatalogArgs,
    /// The moment to take as the present; by default the latest one in the snapshot, else the clock
    #[arg(long, value_name = "RFC3339")]
    now: Option<Timestamp>,
    /// Carry the plan out in memory until nothing is left to do, and show where that ends
    #[arg(long)]
    until_settled: bool,
    /// Exit with 4 if there is something to do
    #[arg(long)]
    detailed_exitcode: bool,
    #[command(flatten)]
    behavior: BehaviorArgs,
}

/// Settings of the node engine, under the names that Karpenter gave them.
#[derive(Clone, Debug, clap::Args)]
pub struct BehaviorArgs {
    /// What becomes of preferred affinity and ScheduleAnyway
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        default_value_t,
        value_name = "POLICY",
        env = "PREFERENCE_POLICY"
    )]
    preference_policy: PreferenceChoice,
    /// What happens when a pool's minValues cannot be met
    #[arg(
        long,
        value_enum,
        ignore_case = true,
        default_value_t,
        value_name = "POLICY",
        env = "MIN_VALUES_POLICY"
    )]
    min_values_policy: MinValuesChoice,
    /// Optional behaviour, such as `SpotToSpotConsolidation=true,NodeOverlay=false`
    #[arg(long, value_name = "GATE=BOOL,…", value_delimiter = ',', env = "FEATURE_GATES")]
    feature_gates: Vec<String>,
    /// How pods are spread that say nothing about it: a `podTopologySpread` with `defaultConstraints`, as YAML or JSON text
    #[arg(
        long,
        value_name = "TEXT",
        default_value = "",
        hide_default_value = true,
        env = "SCHEDULER_CONFIG"
    )]
    scheduler_config: String,
    /// CSI drivers that the machines do not run: pods whose volumes need one wait for other nodes
    #[arg(long, value_name = "DRIVER,…", value_delimiter = ',', env = "UNSUPPORTED_STORAGE_DRIVERS")]
    unsupported_storage_drivers: Vec<String>,
    /// Topology keys of storage classes that the machines are not labelled with
    #[arg(long, value_name = "KEY,…", value_delimiter = ',', env = "UNSUPPORTED_STORAGE_TOPOLOGIES")]
    unsupported_storage_topologies: Vec<String>,
    /// How long nodes may take to drain whose pool does not say; by default as long as it takes
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "",
        hide_default_value = true,
        env = "TERMINATION_GRACE_PERIOD"
    )]
    termination_grace_period: String,
}

/// What a list on the command line names; a variable that is set to nothing names nothing.
fn words(list: &[String]) -> BTreeSet<Symbol> {
    list.iter().map(|word| word.trim()).filter(|word| !word.is_empty()).map(Symbol::new).collect()
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
enum PreferenceChoice {
    /// Demands until nothing meets them, then given up one by one
    #[default]
    Respect,
    Ignore,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "PascalCase")]
enum MinValuesChoice {
    /// The node is not bought
    #[default]
    Strict,
    /// It is, and the minimum is lowered to what is there
    BestEffort,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let settings = args.behavior.settings(console)?;
    let mut picture = match &args.snapshot {
        Some(file) => Picture::read(file, args.max_pods, console)?,
        None => Picture::default(),
    };
    let (desired, region) = desired(args, console)?.unzip();
    let now = args.now.or_else(|| picture.latest_moment()).unwrap_or_else(clock::now_in_seconds);
    let mut sync = document::Sync::default();
    if let Some(state) = &desired {
        sync = picture.sync(state, now);
        picture.replace_desired(state)?;
    }
    let catalog = args.catalog.open(|| region.flatten().or_else(|| picture.region()))?;
    let cluster = picture.into_cluster(catalog, now);
    let answer = answer::answer(&cluster, now, &settings, args.until_settled);
    let plan =
        document::PlanDocument { version: document::VERSION, now: now.to_string(), capacity: answer, sync };
    if console.is_json() {
        console.json(&plan)?;
    } else {
        console.data(&text::render(&plan, console))?;
    }
    Ok(if args.detailed_exitcode && !plan.is_empty() { Exit::ToDo } else { Exit::Done })
}

/// What the repository wants, if the command line speaks of one, and the region it names.
fn desired(args: &Args, console: &Console) -> Result<Option<(DesiredState, Option<String>)>, Failure> {
    let place = match (&args.repo, &args.environment, &args.snapshot) {
        (Some(place), ..) => place,
        (None, Some(_), _) => ".",
        (None, None, _) if args.at.is_asked()? => ".",
        (None, None, Some(_)) => return Ok(None),
        (None, None, None) => {
            return Err(Failure::usage("there is nothing to plan for").help(
                "Give a cluster with --snapshot FILE, the name of an environment of the fleet in this directory, or both.",
            ));
        }
    };
    let repository = repository::open(place, &args.at, console)?;
    let name = match &args.environment {
        Some(name) => name.clone(),
        None => only_environment(&repository)?,
    };
    let States { mut states, warnings, .. } = states(
        &repository,
        Some(&name),
        &RenderSettings::at(args.now.unwrap_or_else(clock::now_in_seconds)),
    )?;
    console.warn(&sorted(warnings));
    let region = Fleet::load(&repository)?
        .resolve(&name)?
        .tree
        .get("region")
        .and_then(Node::as_text)
        .map(ToString::to_string);
    Ok(states.pop().map(|state| (state, region)))
}

fn only_environment(repository: &Repository) -> Result<String, Failure> {
    let environments = list_environments(repository)?;
    let names: Vec<String> = environments
        .iter()
        .filter(|environment| !environment.is_abstract)
        .map(|environment| environment.name.to_string())
        .collect();
    match names.as_slice() {
        [one] => Ok(one.clone()),
        names => Err(Failure::usage("the fleet has more than one environment")
            .help(format!("Name one of them: {}.", names.join(", ")))),
    }
}

/// Gates that Karpenter's command line may carry with values that are not heeded here, and what is done whatever they say.
const WITHOUT_EFFECT: [(&str, bool, &str); 1] =
    [("StaticCapacity", false, "pools with `replicas` keep that many nodes")];

/// The gates of Karpenter that are known here.
const GATES: [&str; 6] = [
    "CapacityBuffer",
    "NodeOverlay",
    "NodeRepair",
    "ReservedCapacity",
    "SpotToSpotConsolidation",
    "StaticCapacity",
];

/// Gates that the command line sets, by name.
#[derive(Debug, Default)]
struct Gates(BTreeMap<&'static str, bool>);

impl Gates {
    fn get(&self, name: &str, default: bool) -> bool {
        self.0.get(name).copied().unwrap_or(default)
    }
}

impl BehaviorArgs {
    fn gates(&self) -> Result<Gates, Failure> {
        let mut gates = Gates::default();
        for word in self.feature_gates.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            let known = GATES.into_iter().find(|known| *known == name.trim()).ok_or_else(|| {
                let help = match nearest(name, GATES) {
                    Some(near) => format!("Did you mean `{near}`?"),
                    None => format!("There are {}.", GATES.join(", ")),
                };
                Failure::usage(format!("there is no feature gate `{name}`")).help(help)
            })?;
            let value = match value.trim().to_ascii_lowercase().as_str() {
                "true" => true,
                "false" => false,
                _ => {
                    return Err(Failure::usage(format!("the feature gate `{word}` has no value"))
                        .help(format!("Write `{known}=true` or `{known}=false`.")));
                }
            };
            gates.0.insert(known, value);
        }
        Ok(gates)
    }

    /// What the engine is told; `console` names what it does not heed.
    pub fn settings(&self, console: &Console) -> Result<EngineSettings, Failure> {
        let gates = self.gates()?;
        for (name, value, what_is) in WITHOUT_EFFECT {
            if gates.0.get(name) == Some(&value) {
                console.notice(&format!("the feature gate `{name}={value}` changes nothing: {what_is}"));
            }
        }
        let scheduling = Settings {
            preferences: match self.preference_policy {
                PreferenceChoice::Respect => PreferencePolicy::Respect,
                PreferenceChoice::Ignore => PreferencePolicy::Ignore,
            },
            min_values: match self.min_values_policy {
                MinValuesChoice::Strict => MinValuesPolicy::Strict,
                MinValuesChoice::BestEffort => MinValuesPolicy::BestEffort,
            },
            reserved_capacity: gates.get("ReservedCapacity", true),
            node_overlay: gates.get("NodeOverlay", true),
            capacity_buffer: gates.get("CapacityBuffer", true),
            default_spreads: self.default_spreads()?,
            unsupported_storage: UnsupportedStorage {
                drivers: words(&self.unsupported_storage_drivers),
                topology_keys: words(&self.unsupported_storage_topologies),
            },
            termination_grace: self.termination_grace()?,
        };
        let disruption = disruption::Settings { spot_to_spot: gates.get("SpotToSpotConsolidation", false) };
        let repairs = gates.get("NodeRepair", false);
        Ok(EngineSettings { scheduling, disruption, repairs, ..EngineSettings::default() })
    }

    fn termination_grace(&self) -> Result<Option<SignedDuration>, Failure> {
        let text = self.termination_grace_period.trim();
        let parsed = (!text.is_empty()).then(|| parse_duration(text)).transpose();
        parsed.map_err(|error| Failure::usage(format!("--termination-grace-period: {error}")))
    }

    fn default_spreads(&self) -> Result<Vec<Spread>, Failure> {
        scheduler_config::parse(&self.scheduler_config).map_err(|errors| {
            let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
            Failure::usage(format!("--scheduler-config: {}", told.join("\n")))
        })
    }
}
