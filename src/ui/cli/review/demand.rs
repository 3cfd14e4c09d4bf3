//! On whose pods a review is played: those of a snapshot, those of the base's script, or none.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::Args;
use super::life::Beginning;
use crate::api::snapshot::PODS_MAX;
use crate::api::{self, Object};
use crate::capacity::cluster::Cluster;
use crate::capacity::engine::EngineSettings;
use crate::gitops::desired::DesiredState;
use crate::gitops::fleet::Fleet;
use crate::gitops::tracking::LABEL_ENVIRONMENT;
use crate::gitops::tree::Node;
use crate::io::clock;
use crate::model::catalog::Catalog;
use crate::model::count::{agreeing, counted};
use crate::model::name::{ClaimName, ObjectKey, PoolName};
use crate::model::pool::NodePool;
use crate::model::repository::Repository;
use crate::review::impact::Demand;
use crate::review::report::Remark;
use crate::simulator::script::Script;
use crate::simulator::stage::Stage;
use crate::simulator::workload::{Workload, WorkloadKind};
use crate::ui::cli::plan::Picture;
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};
use crate::ui::play::{price_notice, script_of};
use crate::ui::script::{self, SCRIPT};

/// Workloads that the sentence about the demand names.
const NAMED_MAX: usize = 5;

pub struct Source {
    pub played: Played,
    /// Whose pods these are.
    pub sentence: String,
    pub data_as_of: Option<Timestamp>,
    pub remarks: Vec<Remark>,
    prices: Option<String>,
}

pub enum Played {
    Nothing,
    Script(Box<Beginning>),
    Snapshot { environment: String, stage: Box<Stage> },
}

impl Source {
    /// What an environment is played on, from one state to the other.
    pub fn of(&self, name: &str, before: Option<&DesiredState>, after: Option<&DesiredState>) -> Demand {
        let is_changed = |(before, after): &(&DesiredState, &DesiredState)| before.digest != after.digest;
        match &self.played {
            Played::Script(beginning) if beginning.environment == name => match before.zip(after) {
                Some((before, after)) if is_changed(&(before, after)) => {
                    Demand::Lived(beginning.live(before, after))
                }
                _ => Demand::Pods(beginning.stage()),
            },
            Played::Snapshot { environment, stage } if environment == name => {
                Demand::Cluster((**stage).clone())
            }
            _ => Demand::None,
        }
    }

    pub fn assumptions(&self) -> Vec<String> {
        let mut lines = vec![self.sentence.clone()];
        if !matches!(self.played, Played::Nothing) {
            lines.push(
                "Launches succeed as the cheapest offering; list prices, 730 hours a month; disks, addresses and traffic are not counted."
                    .into(),
            );
            lines.push(
                "Cost is that of the steady state: the same pods on nodes bought anew, before and after."
                    .into(),
            );
            lines.extend(self.prices.clone());
        }
        lines
    }
}

pub fn source(
    args: &Args,
    base: &Repository,
    head: &Repository,
    names: &[String],
    console: &Console,
) -> Result<Source, Failure> {
    if let Some(file) = &args.snapshot {
        return of_snapshot(args, file, base, head, names, console);
    }
    let mut remarks = Vec::new();
    let script_of_base = base.files.get(SCRIPT);
    if script_of_base.is_some() && script_of_base != head.files.get(SCRIPT) {
        remarks
            .push(note("DemandChanges", "the proposal changes simulation.toml; that of the base is played"));
    }
    // The base says what the demand is: a proposal does not choose its own test, not even the first one.
    if script_of_base.is_none() {
        if head.files.contains_key(SCRIPT) {
            let message = "simulation.toml comes with the proposal and is not played: reviews play it once it is merged";
            remarks.push(note("DemandIsNew", message));
        }
        let sentence = "No snapshot was given and the base has no simulation.toml: only objects are compared, nothing was played.";
        return Ok(unplayed(sentence, remarks));
    }
    let only = (args.env != "all").then_some(args.env.as_str());
    let (script, objects) = match scripted(base, only) {
        Ok(scripted) => scripted,
        // The proposal is not blamed for it, least of all one that mends it.
        Err(failure) if failure.exit == Exit::Input => {
            let mistakes = failure.diagnostics.iter().map(|mistake| mistake.message.as_str());
            let why = Some(failure.message.as_str()).into_iter().chain(mistakes);
            let why: Vec<&str> = why.filter(|text| !text.is_empty()).collect();
            let message =
                format!("the simulation of the base is not valid, and is not played: {}", why.join("; "));
            let sentence = "No snapshot was given and the base's simulation is not valid: only objects are compared, nothing was played.";
            return Ok(unplayed(sentence, vec![note("DemandNotValid", &message)]));
        }
        Err(failure) => return Err(failure),
    };
    if head.files.contains_key(SCRIPT) {
        scripted(head, None)?;
    }
    of_script(args, &script, objects, remarks)
}

fn unplayed(sentence: &str, remarks: Vec<Remark>) -> Source {
    Source { played: Played::Nothing, sentence: sentence.into(), data_as_of: None, remarks, prices: None }
}

/// The script, and what its manifests hold.
fn scripted(repository: &Repository, only: Option<&str>) -> Result<(Script, Vec<Object>), Failure> {
    let script = script_of(repository, only)?.script;
    let mut objects = Vec::new();
    for path in &script.workloads {
        let text = script::workload(repository, path)?;
        let read = api::snapshot::read(&text, path)
            .map_err(|error| Failure::input(error.to_string()).help(script::MANIFESTS))?;
        objects.extend(read.objects);
    }
    Ok((script, objects))
}

fn note(code: &str, message: &str) -> Remark {
    Remark { code: code.into(), message: message.into(), origin: None }
}

fn of_script(
    args: &Args,
    script: &Script,
    manifests: Vec<Object>,
    remarks: Vec<Remark>,
) -> Result<Source, Failure> {
    let catalog = args.catalog.open(|| Some(script.region.clone()))?;
    let prices = price_notice(&catalog.prices, &script.region);
    let now = args.now.unwrap_or(script.start);
    let (mut workloads, mut objects) = (Vec::new(), Vec::new());
    let peaks = peaks(script);
    let mut said: Vec<(u32, String)> = Vec::new();
    for object in manifests {
        match object {
            Object::Workload(workload) => {
                let pods = peaks.get(&workload.key).copied().unwrap_or(0).max(workload.pods);
                if pods > 0 {
                    said.push((pods, workload.key.to_string()));
                }
                // At its peak all of it runs at once, and a Job as long as anything else.
                let kind = WorkloadKind::Deployment;
                workloads.push(Workload::new(workload.key, kind, workload.shape, pods));
            }
            // Pods of a controller are made from the controller, as often as they are needed.
            Object::Pod(pod) if pod.controller().is_some() => {}
            other => objects.extend(other.into_observation()),
        }
    }
    said.sort_by(|a, b| b.0.cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
    let pods: u32 = said.iter().map(|(pods, _)| pods).sum();
    let more = said.len().saturating_sub(NAMED_MAX);
    let mut names: Vec<String> =
        said.iter().take(NAMED_MAX).map(|(pods, name)| format!("{pods} × {name}")).collect();
    names.extend((more > 0).then(|| format!("{more} more")));
    let sentence = format!(
        "The demand is simulated: {} for {}, the peak of simulation.toml ({}).",
        counted(pods, "pod"),
        script.environment,
        names.join(", ")
    );
    let environment = script.environment.clone();
    let seed = script.seed;
    let played =
        Played::Script(Box::new(Beginning { environment, catalog, start: now, seed, workloads, objects }));
    Ok(Source { played, sentence, data_as_of: None, remarks, prices })
}

/// The most pods that each workload is ever scaled to.
fn peaks(script: &Script) -> BTreeMap<ObjectKey, u32> {
    let mut peaks = BTreeMap::new();
    for scale in script.events.iter().filter_map(|event| event.scale.as_ref()) {
        if let Some(key) = scale.workload() {
            let peak = peaks.entry(key).or_insert(0);
            *peak = scale.to.max(*peak);
        }
    }
    peaks
}

fn of_snapshot(
    args: &Args,
    file: &std::path::Path,
    base: &Repository,
    head: &Repository,
    names: &[String],
    console: &Console,
) -> Result<Source, Failure> {
    let picture = Picture::read(file, PODS_MAX, console)?;
    let environment = environment_of(args, &picture, names)?;
    let region = || {
        // A proposal does not choose whose price list it is judged by, but for an environment that is new.
        let named = [base, head].into_iter().find_map(|side| {
            let resolved = Fleet::load(side).ok()?.resolve(&environment).ok()?;
            resolved.tree.get("region").and_then(Node::as_text).map(ToString::to_string)
        });
        named.or_else(|| picture.region())
    };
    let catalog: std::sync::Arc<Catalog> = args.catalog.open(region)?;
    let data_as_of = picture.latest_moment();
    let now = args.now.or(data_as_of).unwrap_or_else(clock::now_in_seconds);
    let sentence = match data_as_of {
        Some(moment) => format!("The cluster of {environment} is that of a snapshot of {moment}."),
        None => format!("The cluster of {environment} is that of a snapshot without any time stamp."),
    };
    let mut cluster = picture.into_cluster(catalog, now);
    let others = set_others_aside(&mut cluster, &environment);
    if !others.is_empty() {
        console.notice(&format!(
            "{} of somebody else: nothing is bought from {}, and {} nodes stay as they are",
            others.join(", "),
            agreeing(others.len(), "it", "them"),
            agreeing(others.len(), "its", "their"),
        ));
    }
    if cluster.nodes.is_empty() && cluster.pods.is_empty() {
        return Err(Failure::input(format!(
            "{}: there is neither a node nor a pod in it, so it says nothing of what the proposal does; did what should have \
             written it fail? Without --snapshot the objects alone are compared",
            file.display()
        )));
    }
    let stage = Box::new(Stage::new(cluster, now, EngineSettings::default()));
    let played = Played::Snapshot { environment, stage };
    Ok(Source { played, sentence, data_as_of, remarks: Vec::new(), prices: None })
}

/// Pools that `environment` does not own go, where it owns some: `run` leaves them alone as well. Their nodes stay, and nobody gives
/// them back. Their names.
fn set_others_aside(cluster: &mut Cluster, environment: &str) -> Vec<String> {
    let is_ours = |pool: &NodePool| pool.owner.is_some_and(|owner| owner.environment.as_str() == environment);
    let pools = cluster.pools.values();
    let (ours, others): (Vec<PoolName>, Vec<PoolName>) = {
        let (ours, others): (Vec<_>, Vec<_>) = pools.partition(|pool| is_ours(pool));
        let names = |pools: Vec<&std::sync::Arc<NodePool>>| pools.iter().map(|pool| pool.name).collect();
        (names(ours), names(others))
    };
    if ours.is_empty() {
        return Vec::new();
    }
    for pool in &others {
        let claims: Vec<ClaimName> = cluster.claims_of(*pool).map(|claim| claim.name).collect();
        claims.into_iter().for_each(|claim| cluster.remove_claim(claim));
        cluster.pools.remove(pool);
    }
    others.iter().map(|pool| format!("NodePool/{pool}")).collect()
}

/// Whose cluster a snapshot is: as the command line says, as its own objects say, or of the only environment there is.
fn environment_of(args: &Args, picture: &Picture, names: &[String]) -> Result<String, Failure> {
    if args.env != "all" {
        return Ok(args.env.clone());
    }
    let labelled: BTreeSet<&str> = picture.labels(LABEL_ENVIRONMENT).collect();
    if let [one] = labelled.into_iter().collect::<Vec<_>>().as_slice()
        && names.iter().any(|name| name == one)
    {
        return Ok((*one).to_owned());
    }
    match names {
        [one] => Ok(one.clone()),
        names => Err(Failure::usage("a snapshot is one cluster, and the fleet has several environments")
            .help(format!("Say whose it is with --env: {}.", names.join(", ")))),
    }
}
