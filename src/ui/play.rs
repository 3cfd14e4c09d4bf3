//! A fleet repository played on a simulated cluster, as its `simulation.toml` says: the one way behind `demo`, `simulate` and `run`.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::exit::Failure;
use super::script::{self, SCRIPT};
use crate::api::Object;
use crate::api::snapshot;
use crate::capacity::engine::EngineSettings;
use crate::controllers::reconciler::{Reconciler, Turn};
use crate::controllers::source::{Usable, render_commit};
use crate::gitops::desired::DesiredState;
use crate::gitops::diagnostic::Diagnostics;
use crate::gitops::fleet::Fleet;
use crate::gitops::guardrail::Guardrails;
use crate::gitops::policy::{BlastLimits, PruneMode, SyncMode, SyncPolicy};
use crate::gitops::render::{RenderSettings, list_environments};
use crate::gitops::tree::Node;
use crate::io::cloud::simulated::SimulatedCluster;
use crate::model::catalog::{Catalog, PriceSource};
use crate::model::provisioner::Provisioner;
use crate::model::repository::{CommitId, Repository, Revision};
use crate::model::time::render_duration;
use crate::simulator::cloud::{CloudHabits, OfferingKey};
use crate::simulator::script::{Commit, Expectation, Script, Shortage};
use crate::simulator::world::Habits;

/// A workload for fleets that bring none: five pods of one CPU come and go.
const STAND_IN_KEY: &str = "default/inflate";
const STAND_IN: &str = include_str!("../../examples/inflate-lab/workload/inflate.yaml");

/// What a script asks for that the cluster does not do by itself.
#[derive(Clone, Debug)]
pub enum Stop {
    Commit(Commit),
    Expect(Expectation),
}

/// Whether an expectation held.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Verdict {
    pub at: Timestamp,
    pub about: String,
    pub failures: Vec<String>,
}

pub struct Play {
    pub script: Script,
    pub reconciler: Reconciler,
    /// How the prices were come by.
    pub prices: PriceSource,
    start: Timestamp,
    stops: VecDeque<(Timestamp, Stop)>,
    verdicts: Vec<Verdict>,
    repository: Repository,
    notices: Diagnostics,
    /// The guardrails of the commit in force, which judge the next.
    standing: Option<Arc<Guardrails>>,
}

/// What is played, and what a person should know of it.
pub struct Chosen {
    pub script: Script,
    pub notice: Option<String>,
    pub warnings: Diagnostics,
}

/// The script of `repository`, or one that is made up, with a notice.
pub fn script_of(repository: &Repository, environment: Option<&str>) -> Result<Chosen, Failure> {
    let (script, warnings) = script::read(repository)?;
    if let Some(mut script) = script {
        if let Some(environment) = environment {
            script.environment = environment.to_string();
        }
        return Ok(Chosen { script, notice: None, warnings });
    }
    let environments: Vec<String> = list_environments(repository)?
        .into_iter()
        .filter(|known| !known.is_abstract)
        .map(|known| known.name.to_string())
        .collect();
    let chosen = match (environment, environments.as_slice()) {
        (Some(environment), _) => environment.to_string(),
        (None, [only]) => only.clone(),
        (None, _) => {
            return Err(Failure::usage("several environments, and no simulation.toml that names one")
                .help(format!("add --env with one of {}", environments.join(", "))));
        }
    };
    let script = Script::made_up(&chosen, STAND_IN_KEY, region_of(repository, &chosen));
    let notice = format!(
        "the fleet has no {SCRIPT}, so a made-up workload is played: five pods of one CPU come after a minute and go after fifteen"
    );
    Ok(Chosen { script, notice: Some(notice), warnings })
}

/// The rules of a script: its commits are as good as reviewed, and nobody could be asked.
pub fn scripted_policy() -> SyncPolicy {
    SyncPolicy {
        mode: SyncMode::AutoHeal,
        prune: PruneMode::Retire,
        limits: BlastLimits::none(),
        ..SyncPolicy::new("simulated")
    }
}

/// The region that an environment names, if it does.
pub fn region_of(repository: &Repository, environment: &str) -> Option<String> {
    word_of(repository, environment, "region")
}

/// Who sells an environment's machines, if it says so.
pub fn cloud_of(repository: &Repository, environment: &str) -> Option<String> {
    word_of(repository, environment, "cloud")
}

/// What an environment writes for a field of its own, inherited or not.
fn word_of(repository: &Repository, environment: &str, field: &str) -> Option<String> {
    let fleet = Fleet::load(repository).ok()?;
    let resolved = fleet.resolve(environment).ok()?;
    resolved.tree.get(field).and_then(Node::as_text).map(ToString::to_string)
}

/// Who provisions an environment in a cluster.
pub fn provisioner_of(repository: &Repository, environment: &str) -> Provisioner {
    word_of(repository, environment, "engine")
        .map_or_else(Provisioner::default, |word| Provisioner::of(&word))
}

/// What a simulation of the environment does otherwise than its cluster, because somebody else provisions there.
pub fn engine_notice(repository: &Repository, environment: &str) -> Option<String> {
    (provisioner_of(repository, environment) == Provisioner::Karpenter).then(|| {
        format!(
            "{environment} has `engine = \"karpenter\"`: in its cluster Provisor only renders and syncs the objects, and the \
             Karpenter installed there provisions. No Karpenter runs here: Provisor's own engine stands in for it, and what \
             it buys, moves and gives back shows what the objects allow, not what that Karpenter would choose"
        )
    })
}

impl Play {
    /// Sets the stage: an empty cluster, the workloads of the script, everything that will happen. Nothing is rendered yet.
    pub fn new(
        repository: Repository,
        mut script: Script,
        seed: Option<u64>,
        policy: SyncPolicy,
    ) -> Result<Self, Failure> {
        script.seed = seed.unwrap_or(script.seed);
        let catalog = Catalog::builtin(&script.region).map_err(|error| {
            let help = error.help();
            Failure::input(error.to_string()).help(help)
        })?;
        let prices = catalog.prices.clone();
        let catalog = Arc::new(catalog);
        let cloud = CloudHabits { spot_life: script.spot_life, ..CloudHabits::default() };
        let cluster = SimulatedCluster::new(
            script.seed,
            script.start,
            catalog.clone(),
            Habits { cloud, ..Habits::default() },
        );
        let settings = EngineSettings { seed: script.seed, nominates: true, ..EngineSettings::default() };
        let reconciler = Reconciler::new(cluster, &script.environment, policy, settings);
        let start = script.start;
        let mut play = Self {
            prices,
            start,
            stops: VecDeque::new(),
            verdicts: Vec::new(),
            repository,
            reconciler,
            script,
            notices: Diagnostics::default(),
            standing: None,
        };
        play.load_workloads()?;
        play.schedule_events(&catalog)?;
        Ok(play)
    }

    fn load_workloads(&mut self) -> Result<(), Failure> {
        let mut texts = Vec::new();
        for path in &self.script.workloads {
            texts.push((path.clone(), script::workload(&self.repository, path)?));
        }
        if !self.repository.files.contains_key(SCRIPT) {
            texts.push(("the made-up workload".to_string(), STAND_IN.to_string()));
        }
        for (path, text) in texts {
            let read = snapshot::read(&text, &path)
                .map_err(|error| Failure::input(error.to_string()).help(script::MANIFESTS))?;
            for object in read.objects {
                // Pods of a controller are made by the world, as often as they are needed.
                if !matches!(&object, Object::Pod(pod) if pod.controller().is_some()) {
                    self.reconciler.cluster_mut().add(object);
                }
            }
        }
        Ok(())
    }

    fn schedule_events(&mut self, catalog: &Catalog) -> Result<(), Failure> {
        let mut stops = Vec::new();
        for event in self.script.events.clone() {
            let at = self.start + event.at;
            let world = self.reconciler.cluster_mut().world_mut();
            if let Some(scale) = &event.scale {
                let workload = scale.workload().expect("a script is checked when it is read");
                world.scale_at(at, workload, scale.to);
            }
            for _ in 0..event.reclaim.unwrap_or(0) {
                world.reclaim_at(at);
            }
            if let Some(shortage) = &event.shortage {
                world.shortage_at(at, short_offerings(catalog, shortage), shortage.lasts);
            }
            if let Some(zone) = &event.lose_zone {
                world.lose_zone_at(at, zone.as_str().into());
            }
            if let Some(commit) = event.commit {
                stops.push((at, Stop::Commit(commit)));
            }
        }
        for expectation in &self.script.expect {
            stops.push((self.start + expectation.at, Stop::Expect(expectation.clone())));
        }
        // A commit of the same moment comes before what is expected of it.
        stops.sort_by_key(|(at, stop)| (*at, matches!(stop, Stop::Expect(_))));
        self.stops = stops.into();
        Ok(())
    }

    pub fn start(&self) -> Timestamp {
        self.start
    }

    /// The commit that was taken last.
    pub fn repository(&self) -> &Repository {
        &self.repository
    }

    pub fn end(&self) -> Timestamp {
        self.start + self.script.duration
    }

    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// Renders a commit and tells the Git half of it. A commit that cannot be used is told too: the last good state stays.
    pub fn take_commit(&mut self, repository: Repository) -> Result<Arc<DesiredState>, Diagnostics> {
        let now = self.reconciler.now();
        let settings = RenderSettings { standing: self.standing.clone(), ..RenderSettings::at(now) };
        let (event, rendered) = render_commit(&repository, &self.script.environment, &settings);
        self.reconciler.observe(event);
        let rendered = rendered.map(|Usable { desired, warnings }| {
            self.take_rules(&repository);
            self.notices.extend(warnings);
            desired
        });
        self.repository = repository;
        rendered
    }

    /// Takes in what a commit that is in force says beside its objects: guardrails for the next, and promotions.
    pub fn take_rules(&mut self, repository: &Repository) {
        self.notices = Diagnostics::default();
        self.standing = Some(Arc::new(Guardrails::read(repository)));
        if let Err(mistakes) = self.reconciler.observe_promotions(repository) {
            self.notices.extend(mistakes);
        }
    }

    /// What a person should know of the last commit although it is carried out: its warnings, if it was rendered here, and
    /// that its promotion rules are wrong and the old ones stay.
    pub fn take_notices(&mut self) -> Diagnostics {
        std::mem::take(&mut self.notices)
    }

    /// Lives on until the next commit of the script, or its end. `report` sees every turn; expectations are checked on the way.
    pub fn run_to_commit(&mut self, mut report: impl FnMut(&Reconciler, &Turn)) -> Option<Commit> {
        while let Some((at, stop)) = self.stops.pop_front() {
            self.reconciler.run_until(at, |reconciler, turn| report(reconciler, &turn));
            match stop {
                Stop::Commit(commit) => return Some(commit),
                Stop::Expect(expectation) => {
                    let failures = expectation.failures(self.reconciler.cluster().world().objects());
                    self.verdicts.push(Verdict { at, about: expectation.about.clone(), failures });
                }
            }
        }
        let end = self.end();
        self.reconciler.run_until(end, |reconciler, turn| report(reconciler, &turn));
        None
    }

    /// Files of the repository after a commit of the script.
    pub fn changed_files(&self, commit: &Commit) -> Result<BTreeMap<Arc<str>, Arc<[u8]>>, Failure> {
        let mut changed = BTreeMap::new();
        for (path, from) in &commit.files {
            let Some(content) = self.repository.files.get(from.as_str()) else {
                return Err(Failure::input(format!(
                    "{SCRIPT}: the commit `{}` needs {from}, which is not there",
                    commit.message
                ))
                .help(format!("Add the file, or correct the commit in {SCRIPT}.")));
            };
            changed.insert(Arc::from(path.as_str()), content.clone());
        }
        Ok(changed)
    }

    /// The repository after a commit of the script, without any Git: its id is made from its content.
    pub fn committed(&self, commit: &Commit) -> Result<Repository, Failure> {
        let mut repository = self.repository.clone();
        repository.files.extend(self.changed_files(commit)?);
        let mut hash = Sha256::new();
        hash.update(repository.revision.commit.as_str());
        hash.update(&commit.message);
        for (path, content) in &repository.files {
            hash.update(path.as_bytes());
            hash.update([0]);
            hash.update(content);
        }
        let digits: String = hash.finalize().iter().take(20).map(|byte| format!("{byte:02x}")).collect();
        let id = CommitId::parse(&digits).expect("forty hexadecimal digits are a commit id");
        repository.revision =
            Revision { commit: id, subject: commit.message.as_str().into(), ..repository.revision };
        Ok(repository)
    }

    /// How far into the script the cluster is: `12m30s`.
    pub fn elapsed(&self, at: Timestamp) -> String {
        render_duration(at.duration_since(self.start))
    }
}

fn short_offerings(catalog: &Catalog, shortage: &Shortage) -> Vec<OfferingKey> {
    let mut offerings = Vec::new();
    for facts in catalog.facts() {
        for zone in &facts.zones {
            for capacity_type in facts.prices.keys() {
                if shortage.covers(facts.name.as_str(), *zone, *capacity_type) {
                    offerings.push((facts.name, *zone, *capacity_type));
                }
            }
        }
    }
    offerings
}

/// A sentence about prices that are not those of the region, if so.
pub fn price_notice(prices: &PriceSource, region: &str) -> Option<String> {
    match prices {
        PriceSource::StandIn { region: other } => {
            Some(format!("prices of {other} stand in for those of {region}"))
        }
        PriceSource::Published | PriceSource::File => None,
    }
}
