//! Both halves on a real cluster: watches in, requests out, nothing decided here.
//!
//! News is told to the halves as it comes, they are asked what to do, and that is carried out while the loop goes on listening.
//! A wake-up is the earliest moment that anything asked for. An object that we are writing is not believed until the answer is
//! there: what is older than our own write would only take it back.

mod believed;

use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use super::confirm::Listener;
use super::fleet::fleet_of;
use super::git_half::{GitHalf, Synced};
use super::perform::{Answer, Done, ObjectId, Performer};
use super::recorder::Recorder;
use super::rules::Rules;
use super::standing::Teller;
use crate::capacity::decision::Decision;
use crate::capacity::engine::{Engine, EngineSettings};
use crate::capacity::recording::{Committed, Event as Recorded};
use crate::gitops::live::Fleet;
use crate::gitops::policy::SyncPolicy;
use crate::gitops::sync::{GitEvent, SyncDecision};
use crate::io::clock;
use crate::io::cloud::{CloudProvider, Notices, Receipt};
use crate::io::kube::apply::Writer;
use crate::io::kube::lease::Permit;
use crate::io::kube::watch::{Event, Watches};
use crate::io::kube::{Change, Kind, Kube, KubeError};
use crate::model::name::{ClaimName, NodeName};
use crate::model::observation::Observation;
use crate::model::provisioner::Provisioner;
use believed::Believed;

pub use super::git_half::Ledger;

/// News taken in before anything is decided on it.
const NEWS_MAX: usize = 4096;
/// How often prices are asked for, and how often all machines are listed.
const CATALOG_PERIOD: Duration = Duration::from_secs(5 * 60);
/// Soon after the start, when a former process may have left something, and then at rest (aws.md 8.2).
const INSTANCES_PERIODS: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(120));
const INSTANCES_SOON: usize = 20;
/// The Git half is told of nodes that came and went at most so often.
const FLEET_REST: SignedDuration = SignedDuration::from_secs(2);
/// Whoever asks for less would keep the loop busy for nothing.
const WAKE_LEAST: SignedDuration = SignedDuration::from_millis(1);

/// What one environment on one cluster needs to know.
pub struct LiveSettings {
    pub environment: String,
    pub policy: SyncPolicy,
    pub engine: EngineSettings,
    pub ledger: Ledger,
    /// Writes down what the node half hears and decides.
    pub recorder: Option<Recorder>,
}

/// What happened, for whoever shows it.
#[derive(Debug)]
pub enum Report {
    /// Everything was listed: so many nodes and pods are there.
    Synced {
        nodes: usize,
        pods: usize,
    },
    Decided(Decision),
    /// A round of planning for pods took so long.
    Planned(Duration),
    Git(SyncDecision),
}

/// Why a live environment ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Another replica may act now.
    PermitLost,
    /// Nobody tells of commits any more.
    SourceGone,
    /// A commit that may be applied says that somebody else provisions from now on.
    ProvisionerChanged(Provisioner),
}

/// One environment on one cluster, in one cloud.
pub struct Live<P> {
    watches: Watches,
    writer: Writer,
    provider: Arc<P>,
    permit: Permit,
    engine: Engine,
    recorder: Option<Recorder>,
    /// The commit that was recorded last.
    recorded: Option<Arc<str>>,
    git: GitHalf,
    teller: Teller,
    listener: Listener,
    rules: Rules,
    performer: Performer<P>,
    believed: Believed,
    answers: mpsc::UnboundedReceiver<Answer>,
    synced: mpsc::UnboundedReceiver<Synced>,
    /// Kinds that were not listed completely yet.
    missing: Vec<Kind>,
    /// What the cloud tells again until its consequences are written.
    told: Vec<Notices>,
    fleet: Fleet,
    fleet_due: Option<Timestamp>,
    on_seen: Box<dyn Fn(&Observation) + Send>,
    reports: mpsc::UnboundedSender<Report>,
}

impl<P: CloudProvider> Live<P> {
    /// Reads what a former process left and starts watching. `on_seen` hears everything that the node half hears.
    pub async fn start(
        kube: Kube,
        provider: Arc<P>,
        permit: Permit,
        settings: LiveSettings,
        on_seen: Box<dyn Fn(&Observation) + Send>,
        reports: mpsc::UnboundedSender<Report>,
    ) -> Result<Self, KubeError> {
        let kube = kube.under(permit.clone());
        let wants_companions = !settings.engine.scheduling.default_spreads.is_empty();
        let watches = Watches::start(&kube, wants_companions).await?;
        let inventory = settings.ledger.open(&kube).await?;
        let teller = Teller::new(&settings.environment, kube.clone(), permit.clone());
        let listener = Listener::new(&settings.environment, kube.clone(), permit.clone());
        let rules =
            Rules::follow(&settings.environment, settings.policy.clone(), kube.clone(), permit.clone())
                .await?;
        let writer = Writer::new(kube);
        let (answer_sender, answers) = mpsc::unbounded_channel();
        let (result_sender, synced) = mpsc::unbounded_channel();
        let git = GitHalf::new(
            &settings.environment,
            settings.policy,
            inventory,
            settings.ledger,
            writer.clone(),
            permit.clone(),
            result_sender,
        );
        Ok(Self {
            watches,
            performer: Performer::new(writer.clone(), provider.clone(), permit.clone(), answer_sender),
            writer,
            provider,
            permit,
            engine: Engine::new(settings.engine),
            recorder: settings.recorder,
            recorded: None,
            git,
            teller,
            listener,
            rules,
            believed: Believed::default(),
            answers,
            synced,
            missing: Kind::ALL.to_vec(),
            told: Vec::new(),
            fleet: Fleet::default(),
            fleet_due: None,
            on_seen,
            reports,
        })
    }

    fn be_ruled(&mut self, rules: Vec<GitEvent>) {
        if !rules.is_empty() {
            rules.into_iter().for_each(|rule| self.git.observe(clock::now(), rule));
            self.teller.touch(clock::now());
        }
    }

    /// Lives until the permit is lost or the source of commits is gone. `newest` is what the source said so far.
    pub async fn run(
        mut self,
        newest: Vec<GitEvent>,
        commits: &mut mpsc::UnboundedReceiver<GitEvent>,
    ) -> Ended {
        let said = self.rules.take_first().into_iter().chain(newest);
        said.for_each(|event| self.git.observe(clock::now(), event));
        let permit = self.permit.clone();
        let provisioner = self.engine.settings().provisioner;
        let (cloud_sender, mut cloud) = mpsc::unbounded_channel();
        let _asking = ask_cloud(self.provider.clone(), cloud_sender);
        let mut wake: Option<Timestamp> = None;
        loop {
            let pause =
                wake.map(|at| Duration::try_from(at.duration_since(clock::now())).unwrap_or_default());
            let timer = async move {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = permit.lost() => return Ended::PermitLost,
                () = self.performer.tend() => continue,
                Some(answer) = self.answers.recv() => {
                    self.answered(answer);
                    for _ in 0..NEWS_MAX {
                        let Ok(answer) = self.answers.try_recv() else { break };
                        self.answered(answer);
                    }
                }
                Some(done) = self.synced.recv() => {
                    self.git.finished(clock::now(), done);
                    self.teller.touch(clock::now());
                }
                Some(news) = cloud.recv() => match news {
                    News::Seen(seen) => self.see(seen),
                    News::Told(told) => self.be_told(told),
                },
                Some(rules) = self.rules.next() => self.be_ruled(rules),
                Some((object, word)) = self.listener.next() => {
                    // What the object says besides holds for what is said yes to.
                    let rules = self.rules.hear(Some(&object));
                    self.be_ruled(rules);
                    self.git.observe(clock::now(), word);
                }
                commit = commits.recv() => match commit {
                    Some(event) => self.git.observe(clock::now(), event),
                    None => return Ended::SourceGone,
                },
                event = self.watches.next() => {
                    let Some(event) = event else { return Ended::PermitLost };
                    self.take(event);
                    for _ in 0..NEWS_MAX {
                        let Some(event) = self.watches.next_ready() else { break };
                        self.take(event);
                    }
                }
                () = timer => {}
            }
            if let Some(named) = self.git.provisioner(clock::now()).filter(|named| *named != provisioner) {
                return Ended::ProvisionerChanged(named);
            }
            wake = self.decide();
            self.acknowledge();
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Changed(change) => {
                self.writer.note(&change);
                if let Some(change) = self.believed.watched(*change) {
                    self.hear(&change);
                }
            }
            Event::Defined(kind) => self.git.defined(clock::now(), kind),
            Event::Listed(kind) => {
                self.missing.retain(|missing| *missing != kind);
                if self.missing.is_empty() {
                    self.see(Observation::Synced);
                    let cluster = self.engine.cluster();
                    self.git.synced(clock::now(), cluster);
                    let (nodes, pods) = (cluster.nodes.len(), cluster.pods.len());
                    drop(self.reports.send(Report::Synced { nodes, pods }));
                }
            }
        }
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Changed(change) => {
                if let Some(change) = self.believed.answered(*change) {
                    self.hear(&change);
                }
            }
            Answer::Observed(seen) => self.see(seen),
            Answer::Done(Done { mut objects, mut failed, broken }) => {
                if let Some(broken) = broken {
                    let (void, without) = self.performer.break_off(&broken);
                    objects.extend(void);
                    failed.extend(without);
                }
                failed.into_iter().for_each(|seen| self.see(seen));
                for change in self.believed.written(&objects) {
                    self.hear(&change);
                }
                self.see_through(&objects);
            }
        }
    }

    /// What is through of `objects` has not long to be seen.
    fn see_through(&mut self, objects: &[ObjectId]) {
        let (mut claims, mut nodes) = (Vec::new(), Vec::new());
        for object in objects.iter().filter(|object| !self.believed.is_writing(object)) {
            match object {
                (Kind::NodeClaim, key) => claims.push(ClaimName(key.name)),
                (Kind::Node, key) => nodes.push(NodeName(key.name)),
                _ => {}
            }
        }
        if !claims.is_empty() || !nodes.is_empty() {
            self.see(Observation::CarriedOut { claims, nodes });
        }
    }

    /// Tells everybody whom it concerns of an object.
    fn hear(&mut self, change: &Change) {
        let now = clock::now();
        self.git.see(now, change);
        let Some(seen) = &change.observation else { return };
        let cluster = self.engine.cluster();
        if matches!(change.kind, Kind::NodeClaim | Kind::Node)
            && self.fleet_due.is_none()
            && !believed::is_same_machine(seen, cluster)
        {
            self.fleet_due = Some(now + FLEET_REST);
        }
        // Of a pod that we nominated the engine knows less than it is told.
        let is_told = matches!(seen, Observation::Pod(pod) if self.engine.has_nominated(pod.uid));
        if is_told || !believed::is_known(seen, cluster) {
            self.see(seen.clone());
        }
    }

    fn see(&mut self, seen: Observation) {
        (self.on_seen)(&seen);
        let at = clock::now();
        if let Some(recorder) = &mut self.recorder {
            recorder.record(Recorded::Seen { at, what: seen.clone() });
        }
        self.engine.observe(at, seen);
    }

    fn be_told(&mut self, told: Notices) {
        for (instance, notice) in told.notices.iter().copied() {
            self.see(Observation::Interruption { instance, notice });
        }
        // The same again has newer receipts.
        self.told.retain(|former| former.notices != told.notices);
        self.told.push(told);
    }

    /// Lets the cloud forget what a successor would find on objects.
    fn acknowledge(&mut self) {
        if self.told.is_empty() || !self.missing.is_empty() {
            return;
        }
        let engine = &self.engine;
        let is_answered = |told: &mut Notices| {
            told.notices.iter().all(|(instance, notice)| engine.is_answered(*instance, *notice))
        };
        let answered = self.told.extract_if(.., is_answered);
        let receipts: Vec<Receipt> = answered.flat_map(|told| told.receipts).collect();
        if receipts.is_empty() {
            return;
        }
        let provider = self.provider.clone();
        tokio::spawn(async move {
            if let Err(error) = provider.acknowledge(receipts).await {
                tracing::warn!("notices will be told again: {error}");
            }
        });
    }

    /// Asks both halves; the next moment at which to ask again.
    fn decide(&mut self) -> Option<Timestamp> {
        if !self.missing.is_empty() {
            return None;
        }
        let now = clock::now();
        if let Some(recorder) = &mut self.recorder {
            recorder.tend(now, self.engine.cluster());
        }
        let engine = &mut self.engine;
        let (rounds, watch) = (engine.rounds(), clock::Stopwatch::start());
        let mut decision = tokio::task::block_in_place(|| engine.decide(now));
        if let Some(recorder) = &mut self.recorder {
            recorder.record(Recorded::Decided { at: now, decision: decision.clone() });
        }
        if engine.rounds() != rounds {
            drop(self.reports.send(Report::Planned(watch.elapsed())));
        }
        let mut wakes = vec![decision.wake_at];
        if !decision.actions.is_empty() || !decision.stays.is_empty() {
            let objects = self.performer.take(decision.actions.clone(), self.engine.cluster());
            self.believed.writing(&objects);
            decision.wake_at = None;
            drop(self.reports.send(Report::Decided(decision)));
        }
        if self.fleet_due.is_some_and(|due| due <= now) {
            self.fleet_due = None;
            let fleet = fleet_of(self.engine.cluster());
            if fleet != self.fleet {
                self.fleet = fleet.clone();
                self.git.observe(now, GitEvent::FleetChanged(fleet));
                self.teller.touch(now);
            }
        }
        wakes.push(self.fleet_due);
        if self.git.is_ready() {
            let decision = self.git.decide(now);
            wakes.push(decision.wake_at);
            self.listener.wait(decision.awaits.is_some());
            if !decision.news.is_empty() || !decision.actions.is_empty() {
                self.teller.touch(now);
                drop(self.reports.send(Report::Git(decision)));
            }
            self.record_commit(now);
            let git = &self.git;
            wakes.push(self.teller.tell(now, || git.standing(now)));
        }
        let earliest = wakes.into_iter().flatten().min();
        earliest.map(|at| at.max(now + WAKE_LEAST))
    }

    fn record_commit(&mut self, now: Timestamp) {
        let Some(recorder) = &mut self.recorder else { return };
        let Some((id, subject)) = self.git.applied().filter(|(id, _)| self.recorded.as_ref() != Some(id))
        else {
            return;
        };
        self.recorded = Some(id.clone());
        recorder.record(Recorded::Committed { at: now, commit: Committed { id, subject } });
    }
}

/// What the cloud says.
enum News {
    Seen(Observation),
    Told(Notices),
}

/// Asks the cloud what it sells and what is running, again and again, and waits for its notices.
fn ask_cloud<P: CloudProvider>(
    provider: Arc<P>,
    news: mpsc::UnboundedSender<News>,
) -> tokio::task::JoinSet<()> {
    let mut tasks = tokio::task::JoinSet::new();
    {
        let (provider, news) = (provider.clone(), news.clone());
        tasks.spawn(async move {
            let mut known = None;
            loop {
                let wait = match provider.catalog().await {
                    Ok(catalog) => {
                        if known.as_ref().is_none_or(|known| !Arc::ptr_eq(known, &catalog)) {
                            known = Some(catalog.clone());
                            drop(news.send(News::Seen(Observation::Catalog(catalog))));
                        }
                        CATALOG_PERIOD
                    }
                    Err(error) => {
                        tracing::warn!("what the cloud sells is not known: {error}; trying again");
                        Duration::from_secs(10)
                    }
                };
                tokio::time::sleep(wait).await;
            }
        });
    }
    {
        let (provider, news) = (provider.clone(), news.clone());
        tasks.spawn(async move {
            for count in 0.. {
                let (soon, later) = INSTANCES_PERIODS;
                tokio::time::sleep(if count < INSTANCES_SOON { soon } else { later }).await;
                match provider.instances().await {
                    Ok(list) => drop(news.send(News::Seen(Observation::Instances(list.into())))),
                    Err(error) => tracing::warn!("the machines are not listed: {error}"),
                }
            }
        });
    }
    tasks.spawn(async move {
        loop {
            match provider.notices().await {
                Ok(told) if told.notices.is_empty() => {}
                Ok(told) => drop(news.send(News::Told(told))),
                Err(error) => {
                    tracing::warn!("notices of the cloud are not heard: {error}; trying again");
                    tokio::time::sleep(Duration::from_secs(10)).await;
                }
            }
        }
    });
    tasks
}
