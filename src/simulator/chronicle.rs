//! A run as it can be drawn: how many nodes there were and what they cost, which pods waited, and everything that was done to nodes,
//! each with why.
//!
//! It hears the events of a run while they happen, or reads them from a recording, and decides nothing. What it says of a node is
//! what an [`Inquiry`] finds, so that a picture and `provisor why` have the same words.

mod curve;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use curve::Curve;
pub use curve::{Peak, Peaks};

use super::why::{Found, Inquiry, Kind, failure_in_words, notice_in_words};
use crate::capacity::ledger::{Account, Ledger, Rate, Statement};
use crate::capacity::recording::{
    Abridger, Committed, Decided, Event, Glance, Header, Joins, Line, Purchase, Started, is_turn, subjects_of,
};
use crate::model::action::Action;
use crate::model::claim::ConditionType;
use crate::model::money::{Usd, UsdPerHour};
use crate::model::name::{ClaimName, ObjectKey, ProviderId};
use crate::model::observation::{InterruptionNotice, Observation};

/// Why a claim is written to when what was to take it is taken back: the node serves on.
const TAKEN_BACK: &str = "DisruptionFailed";

/// Takes in the events of a run, in order.
#[derive(Default)]
pub struct Chronicle {
    environment: String,
    is_simulated: bool,
    ledger: Ledger,
    abridger: Abridger,
    /// Pods without a node.
    waiting: BTreeSet<ObjectKey>,
    accounts: Vec<Account>,
    curve: Curve,
    /// How often what runs had changed, and how many pods waited, when that was last looked at.
    marked: Option<(u64, usize)>,
    /// The first moment, and the one that is being told of.
    span: Option<(Timestamp, Timestamp)>,
    machines: Vec<Told>,
    /// Which of them a claim, a node or an instance is.
    by_name: BTreeMap<String, usize>,
    moves: Vec<Move>,
    commits: Vec<(Timestamp, Committed)>,
    /// Claims that go by a disruption, an interruption or another decision that is told already; a disruption may be taken back.
    leaving: BTreeSet<String>,
    /// Instances that were told to end.
    ending: BTreeSet<ProviderId>,
    /// The lines of a recording are a picture of objects.
    in_picture: bool,
    /// The run and the segment of the recording that was read last.
    segment: Option<(String, u32)>,
    /// The end of that segment is missing.
    is_torn: bool,
    /// The machines that are there, while a life of an engine lists what it finds.
    listed: Option<BTreeSet<usize>>,
    notes: Vec<String>,
}

/// A claim, while it is told of.
struct Told {
    claim: String,
    inquiry: Inquiry,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    usd_per_hour: Option<UsdPerHour>,
}

/// How things stood from a moment on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    pub at: Timestamp,
    /// Machines that run, by the place of their account; accounts that came later are left out.
    pub machines: Vec<u32>,
    pub waiting_pods: usize,
    pub usd_per_hour: UsdPerHour,
    /// Spent until then.
    pub usd: Usd,
}

/// Something that was done, or happened, to nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Move {
    pub at: Timestamp,
    pub what: Turn,
    /// The places of the machines that it concerns.
    pub machines: Vec<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Turn {
    /// A commit came into force.
    Committed(Committed),
    Launched,
    LaunchFailed(String),
    /// The cloud gave notice.
    Interrupted(String),
    /// The machine is gone, and nobody had told it to end.
    Lost,
    Disrupted(Started),
    /// A claim was given up without a disruption: by this rule, and why.
    GivenUp {
        code: String,
        why: String,
    },
}

/// A run that is over.
#[derive(Clone, Debug)]
pub struct Run {
    pub environment: String,
    pub is_simulated: bool,
    pub from: Timestamp,
    pub to: Timestamp,
    pub accounts: Vec<Account>,
    /// Every change of a run with few of them.
    pub curve: Vec<Moment>,
    /// A moment of the curve stands for a stretch of time.
    pub is_thinned: bool,
    pub peaks: Peaks,
    pub moves: Vec<Move>,
    pub machines: Vec<MachineStory>,
    pub commits: Vec<(Timestamp, Committed)>,
    pub spent: Statement,
    pub usd_per_hour: UsdPerHour,
    /// What has to be known of it, such as that something was not recorded.
    pub notes: Vec<String>,
}

/// A claim and its machine, from beginning to end.
#[derive(Clone, Debug)]
pub struct MachineStory {
    pub claim: String,
    pub found: Found,
    /// When it was launched, or first seen; `None`: nothing was bought.
    pub from: Option<Timestamp>,
    /// When it was told to end, or was gone.
    pub to: Option<Timestamp>,
    pub usd_per_hour: Option<UsdPerHour>,
}

impl Run {
    /// The commit that was in force at a moment.
    pub fn commit_at(&self, at: Timestamp) -> Option<&(Timestamp, Committed)> {
        self.commits.iter().rev().find(|(since, _)| *since <= at)
    }
}

impl Chronicle {
    /// Of a run that is simulated, and heard from its beginning.
    pub fn simulated(environment: &str) -> Self {
        Self { environment: environment.to_owned(), is_simulated: true, ..Self::default() }
    }

    /// Takes in an event.
    pub fn hear(&mut self, event: &Event) {
        match event {
            Event::Seen { at, what } => self.see(*at, what),
            Event::Decided { at, decision } => {
                self.pass(*at);
                decision.actions.iter().for_each(|planned| self.act(*at, &planned.action));
                let decided = self.abridger.abridge(decision);
                self.decided(*at, decided);
            }
            Event::Committed { at, commit } => self.committed(*at, commit),
        }
    }

    /// Takes in a line of a recording.
    pub fn read(&mut self, line: Line<Decided>) {
        match line {
            Line::Header(header) => self.begin(*header),
            Line::Picture { is_over, .. } => self.in_picture = !is_over,
            Line::Seen { at, what } => self.see(at, &what),
            Line::Decided { at, decision } => {
                self.pass(at);
                for done in &decision.actions {
                    self.act_as_recorded(at, done.kind(), done.body());
                }
                self.decided(at, decision);
            }
            Line::Committed { at, commit } => self.committed(at, &commit),
        }
    }

    /// The segment ended in the middle, for this reason.
    pub fn note_torn(&mut self, file: &str, why: &str) {
        self.note(format!("{file} is torn: {why}. What was whole before that is drawn."));
        self.is_torn = true;
    }

    fn begin(&mut self, header: Header) {
        let Header { run, segment, joins, .. } = header;
        (self.environment, self.is_simulated) = (header.environment, header.is_simulated);
        self.in_picture = false;
        let is_torn = std::mem::take(&mut self.is_torn);
        let is_same_run = self.segment.as_ref().is_some_and(|(former, _)| *former == run);
        let is_next = self.segment.as_ref().and_then(|(_, former)| former.checked_add(1)) == Some(segment);
        let follows = is_same_run && is_next && !is_torn;
        if let Joins::Gap(why) = &joins {
            self.note(format!("Something is missing in the recording: {why}."));
        }
        if joins != Joins::Beginning && !follows {
            self.note(if is_same_run {
                format!("Something of run {run} is missing before its segment {segment}: it is not drawn, and not in what was spent.")
            } else {
                format!(
                    "The beginning of run {run} is missing: what was before its segment {segment} is not drawn, and not in what was spent."
                )
            });
        }
        let goes_on = follows && joins == Joins::Previous;
        self.segment = Some((run, segment));
        if goes_on {
            return;
        }
        // The next life learns anew what is there.
        self.waiting.clear();
        self.listed = Some(BTreeSet::new());
        if let Some((_, now)) = self.span {
            self.ledger.let_go(now);
        }
    }

    /// Everything is listed: machines that are not among it ended while nobody told of them.
    fn end_listing(&mut self, at: Timestamp) {
        let Some(listed) = self.listed.take() else { return };
        for place in (0..self.machines.len()).filter(|place| !listed.contains(place)) {
            let told = &mut self.machines[place];
            if told.from.is_none() || told.to.is_some() {
                continue;
            }
            told.to = Some(at);
            let gone = Observation::ClaimGone(ClaimName::new(&told.claim));
            self.tell(at, &gone, [place]);
        }
    }

    /// Says something about the whole.
    pub fn note(&mut self, text: String) {
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// The run until `end`, or until its last event if that is later. Nothing of it if nothing was heard and there is no end.
    pub fn finish(mut self, end: Option<Timestamp>) -> Option<Run> {
        let (from, last) = self.span.or(end.map(|end| (end, end)))?;
        let to = end.map_or(last, |end| end.max(last));
        self.pass(to);
        self.mark(None);
        let end = Moment { usd: self.ledger.usd(to), ..self.moment() };
        let (curve, peaks, is_thinned) = self.curve.finish(end);
        let commits = self.commits;
        let stories = self.machines.into_iter().map(|told| {
            let Told { claim, inquiry, from, to, usd_per_hour } = told;
            let mut found = inquiry.answer().unwrap_or_default();
            found.commits.clone_from(&commits);
            MachineStory { claim, found, from, to, usd_per_hour }
        });
        Some(Run {
            environment: self.environment,
            is_simulated: self.is_simulated,
            from,
            to,
            accounts: self.accounts,
            curve,
            is_thinned,
            peaks,
            moves: self.moves,
            machines: stories.collect(),
            spent: self.ledger.statement(to),
            usd_per_hour: self.ledger.usd_per_hour(),
            notes: self.notes,
            commits,
        })
    }

    /// Time has come to `at`: how things stood before is written down.
    fn pass(&mut self, at: Timestamp) {
        let (first, now) = *self.span.get_or_insert((at, at));
        if at > now {
            self.mark(Some(at));
            self.span = Some((first, at));
        }
    }

    /// Writes down how things stand until `next`, or until the end. What was spent is added up for the few moments that are kept:
    /// all machines are looked at for it.
    fn mark(&mut self, next: Option<Timestamp>) {
        let standing = Some((self.ledger.changes(), self.waiting.len()));
        let has_changed = self.marked != standing;
        self.marked = standing;
        let at = self.span.map(|(_, now)| now).unwrap_or_default();
        if !has_changed && !self.curve.ends_between(at, next) {
            return;
        }
        let now = self.moment();
        if !has_changed || self.curve.change(&now, next) {
            self.curve.keep(Moment { usd: self.ledger.usd(at), ..now });
        }
    }

    fn moment(&mut self) -> Moment {
        let at = self.span.map(|(_, now)| now).unwrap_or_default();
        let rates = self.ledger.rates();
        for account in rates.keys().filter(|account| !self.accounts.contains(account)).collect::<Vec<_>>() {
            self.accounts.push(*account);
        }
        let of = |account: &Account| rates.get(account).map_or(0, |rate: &Rate| rate.machines);
        let mut machines: Vec<u32> = self.accounts.iter().map(of).collect();
        while machines.last() == Some(&0) {
            machines.pop();
        }
        Moment {
            at,
            machines,
            waiting_pods: self.waiting.len(),
            usd_per_hour: rates.values().map(|rate| rate.usd_per_hour).sum(),
            usd: Usd(0),
        }
    }

    // What is seen.

    fn see(&mut self, at: Timestamp, what: &Observation) {
        self.pass(at);
        self.ledger.observe(at, what);
        match what {
            Observation::Pod(pod) if pod.node.is_none() && pod.is_active() => {
                self.waiting.insert(pod.key);
            }
            Observation::Pod(pod) => drop(self.waiting.remove(&pod.key)),
            Observation::PodGone(pod) => drop(self.waiting.remove(pod)),
            Observation::Claim(claim) => {
                let place = self.place_of(claim.name.as_str());
                self.tell(at, what, [place]);
                if let Some(listed) = &mut self.listed {
                    listed.insert(place);
                    // What took it is not known, or was given up meanwhile.
                    let is_leaving =
                        claim.deleted.is_some() || claim.conditions.is_true(ConditionType::DisruptionReason);
                    if !is_leaving {
                        self.leaving.remove(claim.name.as_str());
                    }
                }
                if let Some(id) = claim.provider_id {
                    self.bought(place, at, id);
                }
            }
            Observation::Node(node) => {
                let names = [Some(node.name.as_str()), node.provider_id.as_ref().map(|id| id.as_str())];
                let places = names.into_iter().flatten().find_map(|name| self.by_name.get(name).copied());
                self.tell(at, what, places);
            }
            Observation::Launched { claim, instance, .. } => {
                let place = self.place_of(claim.as_str());
                self.listed.iter_mut().for_each(|listed| listed.extend([place]));
                let is_new = self.machines[place].from.is_none();
                self.tell(at, what, [place]);
                self.bought(place, instance.launched.min(at), instance.provider_id);
                if is_new {
                    self.add(at, Turn::Launched, vec![place]);
                }
            }
            Observation::LaunchFailed { claim, failure } => {
                let place = self.place_of(claim.as_str());
                self.tell(at, what, [place]);
                let failure = serde_json::to_value(failure).unwrap_or_default();
                self.add(at, Turn::LaunchFailed(failure_in_words(&failure)), vec![place]);
            }
            Observation::Interruption { instance, notice } => {
                let place = self.by_name.get(instance.as_str()).copied();
                self.tell(at, what, place);
                let is_advice = *notice == InterruptionNotice::RebalanceRecommendation;
                if let Some(place) = place.filter(|_| !is_advice) {
                    self.leaving.insert(self.machines[place].claim.clone());
                }
                let notice = notice_in_words(&serde_json::to_value(notice).unwrap_or_default());
                let turn = Turn::Interrupted(notice);
                let machines: Vec<usize> = place.into_iter().collect();
                let is_known = |known: &Move| known.what == turn && known.machines == machines;
                if !self.moves.iter().rev().take(64).any(is_known) {
                    self.add(at, turn, machines);
                }
            }
            Observation::Terminated { instance } => {
                let place = self.by_name.get(instance.as_str()).copied();
                self.tell(at, what, place);
                if let Some(place) = place.filter(|place| self.machines[*place].to.is_none()) {
                    self.machines[place].to = Some(at);
                    if !self.ending.contains(instance) {
                        self.add(at, Turn::Lost, vec![place]);
                    }
                }
            }
            Observation::NodeGone(name) => {
                let place = self.by_name.get(name.as_str()).copied();
                self.tell(at, what, place);
            }
            Observation::ClaimGone(name) => {
                let place = self.by_name.get(name.as_str()).copied();
                self.tell(at, what, place);
                if let Some(place) = place.filter(|place| self.machines[*place].from.is_some()) {
                    self.machines[place].to.get_or_insert(at);
                }
            }
            Observation::Synced => self.end_listing(at),
            _ => {}
        }
    }

    /// The machine of a claim is known from now on.
    fn bought(&mut self, place: usize, from: Timestamp, id: ProviderId) {
        let told = &mut self.machines[place];
        told.from.get_or_insert(from);
        told.usd_per_hour = told.usd_per_hour.or(self.ledger.price_of(id));
        self.by_name.entry(id.as_str().to_owned()).or_insert(place);
    }

    fn add(&mut self, at: Timestamp, what: Turn, machines: Vec<usize>) {
        self.moves.push(Move { at, what, machines });
    }

    /// Where a claim is told of.
    fn place_of(&mut self, claim: &str) -> usize {
        if let Some(place) = self.by_name.get(claim) {
            return *place;
        }
        let place = self.machines.len();
        let inquiry = Inquiry::new(Kind::Claim, claim, Timestamp::MAX);
        let claim = claim.to_owned();
        self.by_name.insert(claim.clone(), place);
        self.machines.push(Told { claim, inquiry, from: None, to: None, usd_per_hour: None });
        place
    }

    fn tell(&mut self, at: Timestamp, what: &Observation, places: impl IntoIterator<Item = usize>) {
        let mut places = places.into_iter().peekable();
        if places.peek().is_none() {
            return;
        }
        // Everything that has a name in it can be written.
        let glance = Glance::Seen { at, what: serde_json::to_value(what).unwrap_or_default() };
        places.for_each(|place| self.tell_of(place, &glance));
    }

    fn tell_of(&mut self, place: usize, glance: &Glance) {
        let inquiry = &mut self.machines[place].inquiry;
        if inquiry.take_in(glance) {
            for name in inquiry.names() {
                self.by_name.entry(name.to_owned()).or_insert(place);
            }
        }
    }

    // What is decided.

    fn act(&mut self, at: Timestamp, action: &Action) {
        self.ledger.decide(at, action);
        if let Action::Terminate { instance } = action {
            self.end(at, *instance);
        }
    }

    /// The same from what a recording has of an action: of a launch the best ways.
    fn act_as_recorded(&mut self, at: Timestamp, kind: &str, body: &serde_json::Value) {
        match kind {
            "Launch" => {
                if let Ok(Purchase { claim, best, .. }) = serde_json::from_value(body.clone()) {
                    self.act(at, &Action::Launch { claim, options: best });
                }
            }
            "Terminate" => {
                if let Some(id) = body.get("instance").and_then(serde_json::Value::as_str) {
                    self.act(at, &Action::Terminate { instance: ProviderId::new(id) });
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, at: Timestamp, id: ProviderId) {
        self.ending.insert(id);
        if let Some(place) = self.by_name.get(id.as_str()) {
            self.machines[*place].to.get_or_insert(at);
        }
    }

    fn decided(&mut self, at: Timestamp, decision: Decided) {
        let mut concerned = BTreeSet::new();
        for done in &decision.actions {
            if done.kind() == "CreateClaim"
                && let Some(claim) = done.body().get("name").and_then(serde_json::Value::as_str)
            {
                self.place_of(claim);
            }
            if is_turn(done) {
                subjects_of(done, |name| concerned.extend(self.by_name.get(name).copied()));
            }
        }
        let place = |name: &str| self.by_name.get(name).copied();
        concerned.extend(decision.stays.iter().filter_map(|stay| place(&stay.subject.to_string())));
        for started in &decision.started {
            let claims = started.claims.iter().map(|claim| claim.as_str());
            let places: BTreeSet<usize> =
                claims.chain(started.nodes.iter().map(|node| node.as_str())).filter_map(place).collect();
            self.leaving.extend(started.claims.iter().map(ClaimName::to_string));
            concerned.extend(places.iter().copied());
            self.moves.push(Move {
                at,
                what: Turn::Disrupted(started.clone()),
                machines: places.into_iter().collect(),
            });
        }
        for done in &decision.actions {
            let Some(claim) = done.body().get("claim").and_then(serde_json::Value::as_str) else { continue };
            if done.kind() == "UpdateClaim" && done.code == TAKEN_BACK {
                self.leaving.remove(claim);
            }
            if done.kind() == "DeleteClaim" && self.leaving.insert(claim.to_owned()) {
                let turn = Turn::GivenUp { code: done.code.clone(), why: done.why.clone() };
                let machines = self.by_name.get(claim).copied().into_iter().collect();
                self.add(at, turn, machines);
            }
        }
        for kept in &decision.kept {
            if let Some(place) = self.by_name.get(kept.node.as_str()) {
                self.machines[*place].inquiry.note_kept(at, kept);
            }
        }
        if !concerned.is_empty() {
            let glance = Glance::Decided { at, decision };
            concerned.into_iter().for_each(|place| self.tell_of(place, &glance));
        }
    }

    fn committed(&mut self, at: Timestamp, commit: &Committed) {
        self.pass(at);
        if self.commits.last().is_none_or(|(_, last)| last != commit) {
            self.commits.push((at, commit.clone()));
            if !self.in_picture {
                self.add(at, Turn::Committed(commit.clone()), Vec::new());
            }
        }
    }
}
