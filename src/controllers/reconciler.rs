//! Both halves over one cluster: what a commit wants becomes objects, and what pods want becomes nodes.
//!
//! The reconciler carries values around and decides nothing: the Git half and the node half do, each in its `decide`.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::fleet::FleetReader;
use super::recorder::{Journal, Place, RecordingSettings};
use crate::capacity::decision::Decision;
use crate::capacity::engine::{Engine, EngineSettings};
use crate::capacity::ledger::{Ledger, Statement};
use crate::capacity::recording::{Committed, Event};
use crate::gitops::desired::{DesiredState, ObjectRef};
use crate::gitops::diagnostic::Diagnostics;
use crate::gitops::live::{Fleet, LiveObject, LiveState};
use crate::gitops::plan::SyncPlan;
use crate::gitops::policy::SyncPolicy;
use crate::gitops::promotion::{Memory, PromotionDecision, Promotions, Standing};
use crate::gitops::sync::{GitEvent, ObjectResult, Outcome, Sync, SyncAction, SyncDecision};
use crate::io::cloud::simulated::SimulatedCluster;
use crate::io::recording::RecordingError;
use crate::model::action::Action;
use crate::model::money::UsdPerHour;
use crate::model::observation::Observation;
use crate::model::repository::Repository;

/// Rounds of deciding at one moment before the reconciler lets time pass all the same.
const ROUNDS_MAX: usize = 200;

/// What the two halves decided in one turn, for whoever reports it.
#[derive(Debug, Default)]
pub struct Turn {
    pub syncs: Vec<SyncDecision>,
    pub decisions: Vec<Decision>,
    /// What is proposed for environments that take values from this one, or why nothing is.
    pub promotions: Vec<PromotionDecision>,
    /// The next moment at which either half wants to be asked again.
    pub wake_at: Option<Timestamp>,
}

/// Hears events.
type Listener = Box<dyn FnMut(&Event)>;

/// One environment on one cluster.
pub struct Reconciler {
    cluster: SimulatedCluster,
    engine: Engine,
    sync: Sync,
    /// The nodes of pools as the Git half last saw them.
    fleet: Fleet,
    reader: FleetReader,
    /// What the newest usable commit wants.
    desired: Option<Arc<DesiredState>>,
    promotions: Promotions,
    /// What the nodes cost, by what the engine is told and decides.
    ledger: Ledger,
    recording: Option<Journal>,
    /// Hears everything that is seen, decided and applied, in order.
    listener: Option<Listener>,
    /// The commit that was told of last.
    committed: Option<Arc<str>>,
}

impl Reconciler {
    pub fn new(
        cluster: SimulatedCluster,
        environment: &str,
        policy: SyncPolicy,
        settings: EngineSettings,
    ) -> Self {
        let mut sync = Sync::new(environment, policy, None);
        let live = LiveState::from_manifests(cluster.manifests().cloned(), Fleet::default());
        sync.observe(cluster.now(), GitEvent::Live(live));
        Self {
            cluster,
            engine: Engine::new(settings),
            sync,
            fleet: Fleet::default(),
            reader: FleetReader::default(),
            desired: None,
            promotions: Promotions::default(),
            ledger: Ledger::default(),
            recording: None,
            listener: None,
            committed: None,
        }
    }

    /// Writes down everything from here on; before the first turn, or a replay has no beginning.
    pub fn record(&mut self, place: Place, run: String) {
        let settings = RecordingSettings {
            place,
            run,
            environment: self.sync.environment().to_owned(),
            is_simulated: true,
            engine: self.engine.settings().clone(),
        };
        self.recording = Some(Journal::new(settings));
    }

    /// Ends the recording in order, if there is one.
    pub fn end_recording(&mut self) -> Result<(), RecordingError> {
        self.recording.take().map_or(Ok(()), Journal::finish)
    }

    /// Lets somebody hear everything from here on; before the first turn, or its story has no beginning.
    pub fn listen(&mut self, listener: impl FnMut(&Event) + 'static) {
        self.listener = Some(Box::new(listener));
    }

    fn tell(&mut self, event: impl FnOnce() -> Event) {
        if self.recording.is_none() && self.listener.is_none() {
            return;
        }
        let event = event();
        if let Some(recording) = &mut self.recording {
            recording.record(&event);
        }
        if let Some(listener) = &mut self.listener {
            listener(&event);
        }
    }

    /// What the nodes cost until now.
    pub fn spent(&self) -> Statement {
        self.ledger.statement(self.cluster.now())
    }

    /// What all nodes that run now cost.
    pub fn usd_per_hour(&self) -> UsdPerHour {
        self.ledger.usd_per_hour()
    }

    pub fn cluster(&self) -> &SimulatedCluster {
        &self.cluster
    }

    pub fn cluster_mut(&mut self) -> &mut SimulatedCluster {
        &mut self.cluster
    }

    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    pub fn sync(&self) -> &Sync {
        &self.sync
    }

    pub fn now(&self) -> Timestamp {
        self.cluster.now()
    }

    /// Tells the Git half what the source said.
    pub fn observe(&mut self, event: GitEvent) {
        let now = self.cluster.now();
        if let GitEvent::Rendered { desired, .. } = &event {
            desired.external_classes().for_each(|class| self.cluster.suppose_class(class));
            self.desired = Some(desired.clone());
        }
        self.sync.observe(now, event);
    }

    /// Tells what the files of a commit say about promoting values of this environment to others.
    pub fn observe_promotions(&mut self, repository: &Repository) -> Result<(), Diagnostics> {
        let now = self.cluster.now();
        let environment = self.sync.environment().to_owned();
        self.promotions.take_commit(now, repository, &environment)
    }

    /// What must be remembered of promotions beyond this process.
    pub fn remember(&self) -> Memory {
        self.promotions.memory(self.cluster.now())
    }

    /// Takes up what a former process remembered, before the first commit.
    pub fn recall(&mut self, memory: Memory) {
        self.promotions.recall(memory);
    }

    /// Asks the promotions once both halves have settled for the moment.
    fn promote(&mut self, turn: &mut Turn) {
        let Some(desired) = self.desired.as_ref().filter(|_| !self.promotions.is_empty()) else { return };
        let now = self.cluster.now();
        let standing = Standing::of(&self.sync.status(now), desired);
        self.promotions.observe(now, self.sync.environment(), &standing);
        let decisions = self.promotions.decide(now);
        let wake_at = decisions.iter().filter_map(|decision| decision.wake_at).filter(|at| *at > now).min();
        turn.wake_at = earliest([turn.wake_at, wake_at]);
        turn.promotions.extend(decisions.into_iter().filter(|decision| decision.is_news));
    }

    /// Lets the Git half plan what it was told, without acting, so that the plan can be shown first.
    pub fn preview(&mut self) -> Option<Arc<SyncPlan>> {
        self.sync.preview(self.cluster.now())
    }

    /// Decides and acts until nothing more is to be done at this moment.
    pub fn turn(&mut self) -> Turn {
        let mut turn = Turn::default();
        for _ in 0..ROUNDS_MAX {
            let now = self.cluster.now();
            let has_news = self.take_news();
            let synced = self.sync_once(now, &mut turn);
            if let Some(recording) = &mut self.recording {
                recording.tend(now, self.engine.cluster());
            }
            let decision = self.engine.decide(now);
            self.tell(|| Event::Decided { at: now, decision: decision.clone() });
            for planned in &decision.actions {
                self.ledger.decide(now, &planned.action);
                self.cluster.perform(&planned.action);
                self.tell_verdict(&planned.action);
            }
            let acted = !decision.actions.is_empty();
            turn.wake_at = earliest([synced.1, decision.wake_at]);
            if acted || !decision.stays.is_empty() {
                turn.decisions.push(decision);
            }
            if !has_news && !synced.0 && !acted {
                break;
            }
        }
        self.promote(&mut turn);
        turn
    }

    /// Lets the cluster live until `until`, deciding whenever something happens or is due. `report` sees every turn.
    pub fn run_until(&mut self, until: Timestamp, mut report: impl FnMut(&Self, Turn)) {
        loop {
            let turn = self.turn();
            let wake = turn.wake_at;
            report(self, turn);
            if self.cluster.now() >= until {
                return;
            }
            // A wake-up that is due already would stand still: let at least a moment pass.
            let soonest = self.cluster.now() + SignedDuration::from_millis(100);
            let next = wake.map_or(until, |wake| wake.max(soonest)).min(until);
            self.cluster.world_mut().advance(next);
        }
    }

    /// Hands what was seen to the node half; the Git half learns of nodes that came, went or drifted.
    fn take_news(&mut self) -> bool {
        let news = self.cluster.take_news();
        let concerns_fleet = news.iter().any(|(_, seen)| {
            matches!(
                seen,
                Observation::Claim(_)
                    | Observation::ClaimGone(_)
                    | Observation::Node(_)
                    | Observation::NodeGone(_)
            )
        });
        let has_news = !news.is_empty();
        for (at, seen) in news {
            self.tell(|| Event::Seen { at, what: seen.clone() });
            self.ledger.observe(at, &seen);
            self.engine.observe(at, seen);
        }
        if concerns_fleet {
            let fleet = self.reader.read(self.cluster.world().objects());
            if fleet != self.fleet {
                self.fleet = fleet.clone();
                self.sync.observe(self.cluster.now(), GitEvent::FleetChanged(fleet));
            }
        }
        has_news
    }

    /// Tells the Git half what the node half makes of an object of its own.
    fn tell_verdict(&mut self, action: &Action) {
        let (kind, name) = match action {
            Action::UpdatePool { pool, .. } => ("NodePool", pool.to_string()),
            Action::UpdateOverlay { overlay, .. } => ("NodeOverlay", overlay.to_string()),
            _ => return,
        };
        let Some(manifest) = self.cluster.manifest(kind, &name) else { return };
        let (Some(object), live) = (ObjectRef::of(manifest), LiveObject::new(manifest.clone())) else {
            return;
        };
        if self.sync.readiness_of(&object) != Some(live.readiness()) {
            let news = GitEvent::ObjectChanged { object, live: Some(live) };
            self.sync.observe(self.cluster.now(), news);
        }
    }

    /// One decision of the Git half, carried out. Whether it acted, and when it wants to be asked again.
    fn sync_once(&mut self, now: Timestamp, turn: &mut Turn) -> (bool, Option<Timestamp>) {
        let decision = self.sync.decide(now);
        let results: Vec<ObjectResult> =
            decision.actions.iter().map(|action| self.carry_out(action)).collect();
        let acted = !results.is_empty();
        let wake_at = decision.wake_at;
        if let Some(plan) = decision.plan.clone().filter(|_| acted) {
            self.sync.observe(now, GitEvent::Applied { plan, results });
        }
        if acted || !decision.reasons.is_empty() {
            turn.syncs.push(decision);
        }
        self.tell_commit(now);
        (acted, wake_at)
    }

    fn tell_commit(&mut self, now: Timestamp) {
        let Some((id, subject)) = self.sync.applied() else { return };
        if self.committed.as_ref() != Some(&id) {
            self.committed = Some(id.clone());
            self.tell(|| Event::Committed { at: now, commit: Committed { id, subject } });
        }
    }

    fn carry_out(&mut self, action: &SyncAction) -> ObjectResult {
        let object = action.object().clone();
        let outcome = match action {
            SyncAction::Apply { manifest, .. } => match self.cluster.apply(manifest) {
                Ok(stored) => Outcome::Applied(LiveObject {
                    last_applied: Some(manifest.clone()),
                    ..LiveObject::new(stored)
                }),
                Err(refused) => Outcome::Permanent(refused.to_string()),
            },
            SyncAction::Delete { object: ObjectRef { kind, name, .. }, .. } => {
                self.cluster.delete(kind, name);
                Outcome::Deleted
            }
        };
        let gone = matches!(outcome, Outcome::Deleted);
        if gone {
            // Without finalizers of its own the object is gone at once.
            self.sync
                .observe(self.cluster.now(), GitEvent::ObjectChanged { object: object.clone(), live: None });
        }
        ObjectResult { object, outcome }
    }
}

fn earliest(moments: [Option<Timestamp>; 2]) -> Option<Timestamp> {
    moments.into_iter().flatten().min()
}
