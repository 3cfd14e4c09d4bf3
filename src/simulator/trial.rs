//! One week as a trial: a fleet, a list of what happens to it, and the engine that has to keep its promises through all of it.
//!
//! The same trial gives the same verdict and the same trace, byte for byte. A trial is a value that can be written to a file,
//! cut down ([`super::shrink`]) and played again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::faults::{self, Event, Incident, Span};
use super::fleet::{self, FleetPlan};
use super::invariants::{Broken, Moment, Promise, Witness};
use super::wire::{self, Wire};
use super::world::{Habits, World};
use crate::capacity::decision::Planned;
use crate::capacity::disruption::command::replacements_in;
use crate::capacity::engine::{Engine, EngineSettings};
use crate::capacity::ledger::Statement;
use crate::model::action::Action;
use crate::model::name::{ClaimName, PoolName, ProviderId};
use crate::model::observation::{InterruptionNotice, Observation};

/// A Monday morning.
const START: &str = "2026-03-02T00:00:00Z";
/// A drawn trial: a week, of which the last day is quiet.
const WEEK: SignedDuration = SignedDuration::from_hours(7 * 24);
const QUIET: SignedDuration = SignedDuration::from_hours(30);
/// What a written trial may ask for at most.
const DURATION_MAX: SignedDuration = SignedDuration::from_hours(4 * 7 * 24);
const PODS_MAX: u32 = 2_000;
const EVENTS_MAX: usize = 10_000;
/// Rounds of deciding at one moment before time passes all the same.
const ROUNDS_MAX: usize = 200;
/// More decisions than this in one day are a loop without end. What only tries again to evict does not count: a drain that is held up
/// does so every ten seconds, for ever.
const TURNS_MAX: u64 = 40_000;
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Where nothing is under way and nobody waits, the engine is asked again so seldom unless something happens: what a pass over an
/// unchanged cluster comes to is known, and weeks are mostly that.
const REST_MOST: SignedDuration = SignedDuration::from_mins(90);
/// How often all machines are listed: soon after a start, and at rest.
const LISTING_SOON: SignedDuration = SignedDuration::from_secs(10);
const LISTING_REST: SignedDuration = SignedDuration::from_mins(2);
const LISTINGS_SOON: u32 = 5;

/// A fleet and what happens to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Trial {
    /// One sentence about what it shows.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub about: String,
    /// Of all chance that the events leave open: how long things take, which of equal nodes a pod gets.
    pub seed: u64,
    pub duration: Span,
    #[serde(default)]
    pub fleet: FleetPlan,
    #[serde(default)]
    pub events: Vec<Event>,
}

/// What came of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub broken: Option<Broken>,
    /// A hash of everything that happened and was decided, in order.
    pub trace: String,
    /// The same in lines, if that was asked for.
    pub lines: Vec<String>,
    pub ledger: Statement,
    /// How often each kind of thing happened.
    pub counts: BTreeMap<&'static str, u64>,
    /// The most machines that ran at one time.
    pub most_machines: usize,
}

impl Trial {
    /// When every trial starts.
    pub fn start() -> Timestamp {
        START.parse().expect("the constant is a time stamp")
    }

    /// The week of `seed`.
    pub fn drawn(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let fleet = FleetPlan::draw(&mut rng);
        let events = faults::draw(&fleet, WEEK - QUIET, &mut rng);
        Self { about: String::new(), seed, duration: Span(WEEK), fleet, events }
    }

    /// What of a trial that somebody wrote cannot be played.
    pub fn check(&self) -> Result<(), String> {
        if self.duration.0 > DURATION_MAX {
            return Err("it lasts longer than four weeks".into());
        }
        if self.events.iter().any(|event| event.at > self.duration) {
            return Err("an event comes after its end".into());
        }
        let scaled = self.events.iter().map(|event| match event.what {
            Incident::Scale { to, .. } => to,
            Incident::Run { pods, .. } => pods,
            _ => 0,
        });
        let pods = self.fleet.workloads.iter().map(|workload| workload.replicas).chain(scaled).max();
        if pods.is_some_and(|pods| pods > PODS_MAX) {
            return Err(format!("a workload wants more than {PODS_MAX} pods"));
        }
        if self.events.len() > EVENTS_MAX || self.fleet.workloads.len() + self.fleet.pools.len() > 100 {
            return Err("it has more events, workloads or pools than a trial may have".into());
        }
        Ok(())
    }

    /// Plays it.
    pub fn play(&self) -> Outcome {
        self.play_spoiled(false, &mut |_, _| {})
    }

    /// The same, and the lines of its trace.
    pub fn play_traced(&self) -> Outcome {
        self.play_spoiled(true, &mut |_, _| {})
    }

    /// Plays it with an engine whose decisions `spoil` changes before they are carried out.
    pub fn play_spoiled(&self, keeps_lines: bool, spoil: Spoil) -> Outcome {
        Course::new(self, keeps_lines, spoil).run()
    }
}

/// Changes what was decided: how tests see that a broken promise is found.
pub type Spoil<'a> = &'a mut dyn FnMut(&World, &mut Vec<Planned>);

/// A trial under way.
struct Course<'a> {
    trial: &'a Trial,
    spoil: Spoil<'a>,
    world: World,
    wire: Wire,
    /// `None` while the process is dead.
    engine: Option<Engine>,
    starts: u64,
    restart_at: Option<Timestamp>,
    /// So many more actions are carried out before the process dies for so long.
    doom: Option<(u32, SignedDuration)>,
    skew: (SignedDuration, Timestamp),
    wake: Option<Timestamp>,
    listing_at: Timestamp,
    listings: u32,
    /// What the engine was last told of all machines, and whether anything changed since.
    listed: Option<Arc<[crate::model::observation::Instance]>>,
    is_listing_due: bool,
    notices: Vec<(ProviderId, InterruptionNotice)>,
    events: VecDeque<(Timestamp, Incident)>,
    start: Timestamp,
    end: Timestamp,
    /// When the last fault is over, of those that have struck.
    calm_since: Timestamp,
    jobs: usize,
    generations: BTreeMap<PoolName, u32>,
    witness: Witness,
    trace: Trace,
    turns: u64,
    day_ends: Timestamp,
}

struct Trace {
    hash: Sha256,
    lines: Option<Vec<String>>,
    told: usize,
    counts: BTreeMap<&'static str, u64>,
}

impl Trace {
    fn add(&mut self, now: Timestamp, kind: &'static str, line: &str) {
        *self.counts.entry(kind).or_default() += 1;
        let line = format!("{now} {kind} {line}");
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        self.lines.iter_mut().for_each(|lines| lines.push(line.clone()));
    }
}

impl<'a> Course<'a> {
    fn new(trial: &'a Trial, keeps_lines: bool, spoil: Spoil<'a>) -> Self {
        let start = Trial::start();
        // Machines are taken back by events of the trial alone.
        let mut habits = Habits::default();
        habits.cloud.spot_life = None;
        // In a third of them the controllers make pods one by one.
        habits.pods_a_second = trial.seed.is_multiple_of(3).then_some(20);
        let mut world = World::new(trial.seed, start, fleet::catalog(), habits);
        trial.fleet.furnish(&mut world);
        world.take_news();
        let mut events: Vec<(Timestamp, Incident)> =
            trial.events.iter().map(|event| (start + event.at.0, event.what.clone())).collect();
        events.sort_by_key(|(at, _)| *at);
        let end = start + trial.duration.0;
        let quiet_at = events.iter().map(|(at, what)| *at + what.lasts()).max().unwrap_or(start);
        Self {
            trial,
            spoil,
            witness: Witness::new(&trial.fleet, &world, quiet_at, end),
            world,
            wire: Wire::new(trial.seed ^ 0x77_69_72_65),
            engine: None,
            starts: 0,
            restart_at: Some(start),
            doom: None,
            skew: (SignedDuration::ZERO, start),
            wake: None,
            listing_at: start,
            listings: 0,
            listed: None,
            is_listing_due: true,
            notices: Vec::new(),
            events: events.into(),
            start,
            end,
            calm_since: start,
            jobs: 0,
            generations: BTreeMap::new(),
            trace: Trace {
                hash: Sha256::new(),
                lines: keeps_lines.then(Vec::new),
                told: 0,
                counts: BTreeMap::new(),
            },
            turns: 0,
            day_ends: start + DAY,
        }
    }

    fn run(mut self) -> Outcome {
        loop {
            self.let_happen();
            self.live();
            self.tell_story();
            if self.witness.broken.is_some() || self.turns > TURNS_MAX {
                break;
            }
            let now = self.world.now();
            if now >= self.end {
                break;
            }
            if now >= self.day_ends {
                (self.turns, self.day_ends) = (0, now + DAY);
            }
            let moments = [
                self.events.front().map(|(at, _)| *at),
                self.wire.next(),
                self.restart_at,
                self.engine.as_ref().and(self.wake),
                (self.engine.is_some() && self.is_listing_due).then_some(self.listing_at),
                Some(self.end),
            ];
            let next = moments.into_iter().flatten().min().unwrap_or(self.end);
            let next = next.max(now + SignedDuration::from_millis(100)).min(self.end);
            let seen_by = self.world.next_event().map_or(next, |event| event.min(next));
            let moment = self.moment();
            self.witness.wait(&self.world, &moment, seen_by);
            self.world.advance(next);
            let news = self.world.take_news();
            self.hear(news, None);
        }
        if self.turns > TURNS_MAX {
            let what = format!("it decided {TURNS_MAX} times in one day and found no rest");
            self.witness.fail(Promise::ComesToRest, self.world.now(), what);
        }
        if self.witness.broken.is_none() {
            let moment = self.moment();
            self.witness.end(&self.world, &moment);
        }
        self.finish()
    }

    fn finish(self) -> Outcome {
        let Trace { hash, lines, counts, .. } = self.trace;
        let trace: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Outcome {
            broken: self.witness.broken,
            trace,
            lines: lines.unwrap_or_default(),
            ledger: self.world.bill(),
            counts,
            most_machines: self.witness.most_machines,
        }
    }

    fn moment(&self) -> Moment {
        Moment {
            believed: self.believed_now(),
            is_current: self.engine.is_some() && self.wire.is_clear() && self.skew.0.is_zero(),
            calm_since: self.calm_since,
        }
    }

    /// How late the engine believes it to be.
    fn believed_now(&self) -> Timestamp {
        let (skew, until) = self.skew;
        let now = self.world.now();
        if now < until { now + skew } else { now }
    }

    fn hear(&mut self, news: Vec<(Timestamp, Observation)>, action: Option<&Action>) {
        let now = self.world.now();
        for (_, seen) in &news {
            match seen {
                Observation::Interruption { instance, notice } => self.notices.push((*instance, *notice)),
                Observation::Claim(_)
                | Observation::ClaimGone(_)
                | Observation::Node(_)
                | Observation::Terminated { .. }
                | Observation::Launched { .. } => self.is_listing_due = true,
                _ => {}
            }
        }
        if self.engine.is_some() {
            self.wire.send(news, now, action);
        }
    }

    // What happens.

    fn let_happen(&mut self) {
        let now = self.world.now();
        if now >= self.skew.1 {
            self.skew.0 = SignedDuration::ZERO;
        }
        while let Some((_, what)) = self.events.pop_front_if(|(at, _)| *at <= now) {
            self.trace.add(now, "Incident", &format!("{what:?}"));
            if what.is_fault() {
                self.calm_since = self.calm_since.max(now + what.lasts());
            }
            self.is_listing_due = true;
            match &what {
                Incident::Crash { after, down } => self.doom = Some((*after, down.0)),
                Incident::ClockJumps { seconds, lasts } => {
                    self.skew = (SignedDuration::from_secs(*seconds), now + lasts.0);
                }
                Incident::Run { name, pods, cpu, lasts } => {
                    self.jobs += 1;
                    self.world.add_workload(fleet::job(name, self.jobs, *pods, *cpu, lasts.0));
                }
                Incident::Drift { pool } => self.drift(pool),
                other => {
                    self.world.suffer(other);
                    self.wire.suffer(other, now);
                }
            }
        }
        let news = self.world.take_news();
        self.hear(news, None);
        self.die_if_idle();
        if self.restart_at.is_some_and(|at| at <= now) {
            self.start_process();
        }
    }

    fn drift(&mut self, name: &str) {
        let Some(plan) = self.trial.fleet.pool(name) else { return };
        let generation = self.generations.entry(PoolName::new(name)).or_default();
        *generation += 1;
        let created = self.world.objects().pools.get(&PoolName::new(name)).and_then(|pool| pool.created);
        let pool = plan.object(*generation, created.unwrap_or(self.start));
        self.world.apply(Observation::Pool(Arc::new(pool)));
    }

    /// A crash that waits for actions strikes when the next one begins, or now if none has to be waited for.
    fn die_if_idle(&mut self) {
        if self.doom.is_some_and(|(left, _)| left == 0) {
            self.die();
        }
    }

    fn die(&mut self) {
        let Some((_, down)) = self.doom.take() else { return };
        let now = self.world.now();
        self.trace.add(now, "Crash", "");
        self.engine = None;
        self.wire.cut();
        self.restart_at = Some(now + down);
        // It may have struck long after it was announced.
        self.calm_since = self.calm_since.max(now + down);
    }

    fn start_process(&mut self) {
        self.restart_at = None;
        self.starts += 1;
        let now = self.believed_now();
        let seed = self.trial.seed.wrapping_mul(1000).wrapping_add(self.starts);
        let settings =
            EngineSettings { seed, foresees_pods: true, nominates: true, ..EngineSettings::default() };
        let mut engine = Engine::new(settings);
        wire::everything(self.world.objects()).into_iter().for_each(|seen| engine.observe(now, seen));
        engine.observe(now, Observation::Synced);
        // What nobody has answered is told again.
        for (instance, notice) in &self.notices {
            engine.observe(now, Observation::Interruption { instance: *instance, notice: *notice });
        }
        self.engine = Some(engine);
        self.wake = None;
        self.listings = 0;
        self.listed = None;
        self.is_listing_due = true;
        self.listing_at = self.world.now() + LISTING_SOON;
    }

    // What is decided.

    fn live(&mut self) {
        for _ in 0..ROUNDS_MAX {
            let now = self.world.now();
            let believed = self.believed_now();
            let Some(engine) = &mut self.engine else { break };
            let mut seen = self.wire.due(now);
            seen.extend(self.wire.list_again(now, engine.cluster(), self.world.objects()));
            if self.is_listing_due && self.listing_at <= now {
                seen.extend(self.list_machines());
            }
            let Some(engine) = &mut self.engine else { break };
            let has_news = !seen.is_empty();
            seen.into_iter().for_each(|seen| engine.observe(believed, seen));
            let mut decision = engine.decide(believed);
            self.notices.retain(|(instance, notice)| !engine.is_answered(*instance, *notice));
            let is_drain = |planned: &Planned| matches!(planned.action, Action::Evict { .. });
            // What follows from news alone ends with them.
            let counts = match decision.actions.is_empty() {
                true => !has_news,
                false => !decision.actions.iter().all(is_drain),
            };
            if counts {
                self.turns += 1;
            }
            let lead = believed.duration_since(now);
            self.wake = decision.wake_at.map(|at| at - lead);
            let is_idle = !has_news && decision.actions.is_empty();
            if is_idle && self.witness.is_at_ease(&self.world) {
                // It would look at the same picture again every five minutes.
                self.wake = self.wake.map(|at| at.max(now + REST_MOST));
            }
            (self.spoil)(&self.world, &mut decision.actions);
            if is_idle && decision.actions.is_empty() {
                break;
            }
            // Of what it does now it is told later.
            let knew_all = self.moment().is_current;
            self.carry_out(&decision.actions);
            let moment = Moment { is_current: knew_all, ..self.moment() };
            self.witness.step(&self.world, &moment);
            if self.witness.broken.is_some() {
                break;
            }
        }
        let moment = self.moment();
        self.witness.step(&self.world, &moment);
    }

    /// Lists all machines. What would say the same again is not asked for until something changes.
    fn list_machines(&mut self) -> Option<Observation> {
        let now = self.world.now();
        self.listings += 1;
        let pause = if self.listings < LISTINGS_SOON { LISTING_SOON } else { LISTING_REST };
        self.listing_at = now + pause;
        let list = self.world.listing();
        let is_same = self.listed.as_ref() == Some(&list);
        if is_same && self.listings > LISTINGS_SOON && now >= self.calm_since {
            self.is_listing_due = false;
        }
        self.listed = Some(list.clone());
        Some(Observation::Instances(list))
    }

    fn carry_out(&mut self, actions: &[Planned]) {
        // What follows a write that failed, about the same objects, is not tried.
        let mut failed: BTreeSet<String> = BTreeSet::new();
        let now = self.world.now();
        for Planned { action, reason } in actions {
            if let Action::Publish(notice) = action {
                self.trace.add(now, "Notice", &format!("{} {}", notice.reason, notice.subject));
                continue;
            }
            if let Some((left, _)) = &mut self.doom {
                if *left == 0 {
                    return self.die();
                }
                *left -= 1;
            }
            let row = self.row_of(action);
            let is_skipped = row.as_ref().is_some_and(|row| failed.contains(row));
            if is_skipped || self.wire.refuses(action, now) {
                self.trace.add(now, "Refused", &named(action));
                failed.extend(row);
                if let Action::UpdateClaim { change, .. } = action {
                    // Nor is a replacement made that what it replaces does not name.
                    failed.extend(replacements_in(&change.annotations).iter().map(ToString::to_string));
                }
                if let Some(subject) = wire::subject_of(action) {
                    let message = "the API server is not there: simulated".into();
                    let seen = Observation::ActionFailed { subject: subject.into(), message };
                    self.wire.send(vec![(now, seen)], now, None);
                }
                continue;
            }
            self.trace.add(now, "Action", &format!("{} {}: {}", named(action), reason.code, reason.message));
            let moment = self.moment();
            self.witness.before(&self.world, &moment, action);
            self.world.perform(action);
            let news = self.world.take_news();
            self.hear(news, Some(action));
        }
        let (claims, nodes) = wire::objects_of(actions.iter().map(|planned| &planned.action));
        if !claims.is_empty() || !nodes.is_empty() {
            self.wire.send(vec![(now, Observation::CarriedOut { claims, nodes })], now, None);
        }
    }

    /// What has to be carried out in order: all that concerns one claim and its node.
    fn row_of(&self, action: &Action) -> Option<String> {
        let objects = self.world.objects();
        let of_claim = |name: ClaimName| Some(name.to_string());
        match action {
            Action::CreateClaim(claim) => of_claim(claim.name),
            Action::DeleteClaim { claim }
            | Action::UpdateClaim { claim, .. }
            | Action::FinalizeClaim { claim }
            | Action::Launch { claim, .. } => of_claim(*claim),
            Action::Terminate { instance } => {
                objects.claim_by_instance(*instance).and_then(|claim| of_claim(claim.name))
            }
            Action::UpdateNode { node, .. } | Action::DeleteNode { node } | Action::FinalizeNode { node } => {
                let known = objects.nodes.get(node)?;
                objects.claim_of(known).map_or(Some(node.to_string()), |claim| of_claim(claim.name))
            }
            _ => None,
        }
    }

    fn tell_story(&mut self) {
        let story = self.world.story();
        for (at, happening) in story.since(self.trace.told) {
            let line = format!("{} {}", happening.subject(), happening.message());
            self.trace.add(*at, happening.kind(), &line);
        }
        self.trace.told = story.len();
    }
}

/// An action in a few words.
fn named(action: &Action) -> String {
    match action {
        Action::CreateClaim(claim) => format!("CreateClaim {}", claim.name),
        Action::DeleteClaim { claim } => format!("DeleteClaim {claim}"),
        Action::UpdateClaim { claim, .. } => format!("UpdateClaim {claim}"),
        Action::FinalizeClaim { claim } => format!("FinalizeClaim {claim}"),
        Action::Launch { claim, .. } => format!("Launch {claim}"),
        Action::Terminate { instance } => format!("Terminate {instance}"),
        Action::NameMachine { machine, .. } => format!("NameMachine {machine}"),
        Action::HoldClass { class, .. } => format!("HoldClass {class}"),
        Action::ResolveClass { class } => format!("ResolveClass {class}"),
        Action::ClearClass { class, .. } => format!("ClearClass {class}"),
        Action::UpdateNode { node, .. } => format!("UpdateNode {node}"),
        Action::DeleteNode { node } => format!("DeleteNode {node}"),
        Action::FinalizeNode { node } => format!("FinalizeNode {node}"),
        Action::NominatePod { pod, node, .. } => format!("NominatePod {pod} {node}"),
        Action::Evict { pod, .. } => format!("Evict {pod}"),
        Action::DeletePod { pod, .. } => format!("DeletePod {pod}"),
        Action::UpdatePool { pool, .. } => format!("UpdatePool {pool}"),
        Action::UpdateOverlay { overlay, .. } => format!("UpdateOverlay {overlay}"),
        Action::UpdateBuffer { buffer, .. } => format!("UpdateBuffer {buffer}"),
        Action::Publish(notice) => format!("Publish {}", notice.subject),
    }
}
