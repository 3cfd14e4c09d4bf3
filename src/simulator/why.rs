//! Why a node, claim or pod is as it is, from what was recorded: what was done to it and by which rule, what else could have been
//! bought, what keeps it.
//!
//! Nothing is decided again. Lines are looked at one by one, whatever was before them, so that most of a long recording can be
//! left packed: the index says which parts speak of a name.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::Value;

use crate::capacity::recording::{
    Committed, Decided, Done, Glance, Kept, Key, PodGlance, Purchase, Started, Stayed, Unreadable, glance,
    is_turn, subjects_of,
};
use crate::model::action::LaunchOption;
use crate::model::money::UsdPerHour;
use crate::model::name::{TypeName, Zone};
use crate::model::offering::CapacityType;
use crate::model::pod::PodPhase;

/// What is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Node,
    Claim,
    Pod,
}

/// A question, and what was found so far.
#[derive(Clone, Debug)]
pub struct Inquiry {
    kind: Kind,
    name: String,
    until: Timestamp,
    /// All names of the same thing: the node, its claim, its machine.
    names: BTreeSet<String>,
    in_picture: bool,
    found: Found,
}

/// What is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Found {
    pub node: Option<String>,
    pub claim: Option<String>,
    pub pool: Option<String>,
    /// It was there before anything was recorded.
    pub was_there: Option<Timestamp>,
    pub bought: Option<Bought>,
    /// Disruption that took it, or will.
    pub started: Vec<(Timestamp, Started)>,
    /// Everything that was done to it or happened to it, in order.
    pub events: Vec<Happened>,
    /// What should be done to it, and is not.
    pub stays: Option<(Timestamp, Stayed)>,
    /// Why it stays.
    pub kept: Option<(Timestamp, Kept)>,
    pub pod: Option<PodStanding>,
    pub is_gone: bool,
    /// Commits that came into force, in order.
    pub commits: Vec<(Timestamp, Committed)>,
}

/// Something that was done, or happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happened {
    pub at: Timestamp,
    /// The same happened so often, for the last time at `last`.
    pub times: u64,
    pub last: Timestamp,
    /// The kind of action, such as `CreateClaim`, or of news, such as `Launched`.
    pub what: String,
    /// The rule: a stable word.
    pub code: String,
    pub why: String,
}

/// How a machine was bought.
#[derive(Clone, Debug, PartialEq)]
pub struct Bought {
    pub at: Timestamp,
    pub code: String,
    pub why: String,
    /// The pods that were planned on it then.
    pub pods: Vec<String>,
    /// How many ways there were to buy it, and the cheapest of each kind.
    pub ways: usize,
    pub best: Vec<LaunchOption>,
    pub machine: Option<Machine>,
    /// What could not be had.
    pub failures: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    pub instance_type: TypeName,
    pub zone: Zone,
    pub capacity_type: CapacityType,
    /// `None`: it is none of the cheapest, and its price was not recorded.
    pub price: Option<UsdPerHour>,
}

/// How a pod stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodStanding {
    pub created: Option<Timestamp>,
    pub phase: Option<PodPhase>,
    pub is_unschedulable: bool,
    pub is_gated: bool,
    /// Where it runs, and since when.
    pub node: Option<(Timestamp, String)>,
    /// Where it was planned last: `node/NAME` or `nodeclaim/NAME`.
    pub planned: Option<(Timestamp, String)>,
    /// Why no place was found last.
    pub refused: Option<(Timestamp, String)>,
}

/// The words before the place in which a pod is planned.
const PLANNED_ON: &str = "should schedule on ";

impl Inquiry {
    pub fn new(kind: Kind, name: &str, until: Timestamp) -> Self {
        Self {
            kind,
            name: name.to_owned(),
            until,
            names: BTreeSet::from([name.to_owned()]),
            in_picture: false,
            found: Found::default(),
        }
    }

    /// The numbers under which its parts of a recording are found.
    pub fn keys(&self) -> Vec<u32> {
        self.names.iter().map(|name| Key::About(name).number()).collect()
    }

    /// The number of parts that say why a node stays.
    pub fn kept_key(&self) -> Option<u32> {
        self.found.node.as_deref().map(|node| Key::Kept(node).number())
    }

    /// Takes in a line; whether the thing has a name that was not known before: then everything before is to be looked at again.
    pub fn take(&mut self, line: &str) -> Result<bool, Unreadable> {
        let speaks = self.names.iter().any(|name| line.contains(name.as_str()));
        if !speaks && !line.starts_with("{\"picture\"") {
            return Ok(false);
        }
        Ok(glance(line)?.is_some_and(|glance| self.take_in(&glance)))
    }

    /// The same of what a line says.
    pub(super) fn take_in(&mut self, glance: &Glance) -> bool {
        let known = self.names.len();
        match glance {
            Glance::Committed { .. } | Glance::Header { .. } => {}
            Glance::Picture { is_over } => self.in_picture = !is_over,
            Glance::Seen { at, what } if *at <= self.until => self.see(*at, what),
            Glance::Pod { at, pod } if *at <= self.until => self.see_pod(*at, pod),
            Glance::Decided { at, decision } if *at <= self.until => self.hear(*at, decision),
            _ => {}
        }
        self.names.len() > known
    }

    /// All names that it is known by.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    /// Why its node stays.
    pub(super) fn note_kept(&mut self, at: Timestamp, kept: &Kept) {
        self.found.kept = Some((at, kept.clone()));
    }

    /// Begins from the start, with all names that are known by now.
    pub fn again(&mut self) {
        let Found { node, claim, .. } = std::mem::take(&mut self.found);
        self.found = Found { node, claim, ..Found::default() };
        self.in_picture = false;
    }

    /// Takes in a line for what it says of why the node stays.
    pub fn take_kept(&mut self, line: &str) -> Result<(), Unreadable> {
        let Some(node) = self.found.node.clone().filter(|node| line.contains(node.as_str())) else {
            return Ok(());
        };
        if let Some(Glance::Decided { at, decision }) = glance(line)?
            && at <= self.until
            && let Some(kept) = decision.kept.into_iter().find(|kept| kept.node.as_str() == node)
        {
            self.note_kept(at, &kept);
        }
        Ok(())
    }

    /// Takes in a line for the commit that it says came into force.
    pub fn take_commit(&mut self, line: &str) -> Result<(), Unreadable> {
        if line.starts_with("{\"committed\"")
            && let Some(Glance::Committed { at, commit }) = glance(line)?
            && at <= self.until
            && self.found.commits.last().is_none_or(|(_, last)| *last != commit)
        {
            self.found.commits.push((at, commit));
        }
        Ok(())
    }

    /// What was found; `None` if nothing speaks of it.
    pub fn answer(self) -> Option<Found> {
        let found = self.found;
        let is_known = match self.kind {
            Kind::Pod => found.pod.is_some(),
            Kind::Node => found.node.as_deref() == Some(self.name.as_str()),
            Kind::Claim => found.claim.as_deref() == Some(self.name.as_str()),
        };
        is_known.then_some(found)
    }

    fn is_ours(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    fn learn(&mut self, name: &str) {
        if !name.is_empty() {
            self.names.insert(name.to_owned());
        }
    }

    fn happened(&mut self, at: Timestamp, what: &str, code: &str, why: impl Into<String>) {
        let (what, code, why) = (what.to_owned(), code.to_owned(), why.into());
        let events = &mut self.found.events;
        match events.iter_mut().find(|one| one.what == what && one.code == code && one.why == why) {
            Some(same) => (same.times, same.last) = (same.times + 1, at),
            None => events.push(Happened { at, times: 1, last: at, what, code, why }),
        }
    }

    fn hear(&mut self, at: Timestamp, decision: &Decided) {
        for done in &decision.actions {
            let mut is_ours = false;
            subjects_of(done, |name| is_ours |= self.is_ours(name));
            if is_ours && is_turn(done) {
                self.act(at, done, decision);
            }
        }
        for command in &decision.started {
            let nodes = command.nodes.iter().map(|name| name.as_str());
            let mut named = nodes.chain(command.claims.iter().map(|name| name.as_str()));
            if self.kind != Kind::Pod && named.any(|name| self.is_ours(name)) {
                self.found.started.push((at, command.clone()));
            }
        }
        for stay in &decision.stays {
            if self.is_ours(&stay.subject.to_string()) {
                self.found.stays = Some((at, stay.clone()));
            }
        }
    }

    fn act(&mut self, at: Timestamp, done: &Done, decision: &Decided) {
        self.happened(at, done.kind(), &done.code, &*done.why);
        let body = done.body();
        let text = |key: &str| body.pointer(key).and_then(Value::as_str);
        if self.kind == Kind::Pod {
            return self.act_on_pod(at, done);
        }
        match done.kind() {
            "CreateClaim" => {
                let Some(claim) = text("/name") else { return };
                self.found.claim = Some(claim.to_owned());
                self.found.pool = text("/labels/karpenter.sh~1nodepool").map(str::to_owned);
                self.found.bought = Some(Bought {
                    at,
                    code: done.code.clone(),
                    why: done.why.clone(),
                    pods: planned_on(decision, &format!("nodeclaim/{claim}")),
                    ways: 0,
                    best: Vec::new(),
                    machine: None,
                    failures: Vec::new(),
                });
            }
            "Launch" => {
                if let (Some(bought), Ok(purchase)) =
                    (&mut self.found.bought, serde_json::from_value::<Purchase>(body.clone()))
                {
                    (bought.ways, bought.best) = (purchase.ways, purchase.best);
                }
            }
            "UpdateClaim" => {
                if let (Some(claim), Some(node)) = (text("/claim"), text("/change/node")) {
                    self.is_one(claim, node);
                }
            }
            _ => {}
        }
    }

    fn act_on_pod(&mut self, at: Timestamp, done: &Done) {
        let standing = self.found.pod.get_or_insert_default();
        match (done.kind(), done.code.as_str()) {
            ("Publish", "Nominated") => {
                if let Some(place) = done.why.strip_prefix(PLANNED_ON) {
                    standing.planned = Some((at, place.to_owned()));
                    standing.refused = None;
                }
            }
            ("Publish", "FailedScheduling") => standing.refused = Some((at, done.why.clone())),
            _ => {}
        }
    }

    /// A claim and a node are the same machine.
    fn is_one(&mut self, claim: &str, node: &str) {
        (self.found.claim, self.found.node) = (Some(claim.to_owned()), Some(node.to_owned()));
        self.learn(claim);
        self.learn(node);
    }

    fn see(&mut self, at: Timestamp, what: &Value) {
        let Some((word, news)) = what.as_object().and_then(|what| what.iter().next()) else { return };
        let text = |key: &str| news.pointer(key).and_then(Value::as_str).unwrap_or_default();
        if self.kind == Kind::Pod {
            if news.as_str() == Some(&self.name) && word == "PodGone" {
                self.found.is_gone = true;
                return self.happened(at, "Gone", "Gone", "it is gone");
            }
            if text("/pod") == self.name && word == "EvictionBlocked" {
                self.happened(at, word, text("/why"), text("/message"));
            }
            return;
        }
        match word.as_str() {
            "Claim" if self.is_ours(text("/name")) => {
                self.note_there(at);
                self.found.claim = Some(text("/name").to_owned());
                self.found.pool = Some(text("/labels/karpenter.sh~1nodepool").to_owned());
                self.learn(text("/provider_id"));
                if !text("/node").is_empty() {
                    self.is_one(text("/name"), text("/node"));
                }
            }
            "Node" if self.is_ours(text("/name")) || self.is_ours(text("/provider_id")) => {
                self.note_there(at);
                self.found.node = Some(text("/name").to_owned());
                self.learn(text("/name"));
                self.learn(text("/provider_id"));
                let pool = text("/labels/karpenter.sh~1nodepool");
                if !pool.is_empty() {
                    self.found.pool = Some(pool.to_owned());
                }
            }
            "Launched" if self.is_ours(text("/claim")) => self.launched(at, news),
            "LaunchFailed" if self.is_ours(text("/claim")) => {
                let failure = failure_in_words(news.get("failure").unwrap_or(&Value::Null));
                self.happened(at, word, "LaunchFailed", &*failure);
                if let Some(bought) = &mut self.found.bought {
                    bought.failures.push(failure);
                }
            }
            "Interruption" if self.is_ours(text("/instance")) => {
                let notice = news.get("notice").map(notice_in_words).unwrap_or_default();
                self.happened(at, word, "Interruption", notice);
            }
            "Terminated" if self.is_ours(text("/instance")) => {
                self.happened(at, word, "Terminated", "its machine is gone");
            }
            "NodeGone" | "ClaimGone" if news.as_str().is_some_and(|name| self.is_ours(name)) => {
                self.found.is_gone = true;
                let what = if word == "NodeGone" { "the node is gone" } else { "the claim is gone" };
                self.happened(at, word, "Gone", what);
            }
            _ => {}
        }
    }

    /// It is there. If nobody saw it come, it was there before.
    fn note_there(&mut self, at: Timestamp) {
        if self.found.bought.is_none() && self.found.events.is_empty() {
            self.found.was_there.get_or_insert(at);
        }
    }

    fn launched(&mut self, at: Timestamp, news: &Value) {
        let instance = news.get("instance").unwrap_or(&Value::Null);
        let text = |key: &str| instance.get(key).and_then(Value::as_str).unwrap_or_default();
        self.learn(text("provider_id"));
        let capacity_type = CapacityType::parse(text("capacity_type")).unwrap_or(CapacityType::OnDemand);
        let mut machine = Machine {
            instance_type: TypeName::new(text("instance_type")),
            zone: Zone::new(text("zone")),
            capacity_type,
            price: None,
        };
        if let Some(bought) = &mut self.found.bought {
            let is_it = |option: &&LaunchOption| {
                option.instance_type == machine.instance_type && option.capacity_type == capacity_type
            };
            machine.price = bought.best.iter().find(is_it).map(|option| option.price);
            if let Some(shortage) = news.get("shortage").filter(|shortage| !shortage.is_null()) {
                bought.failures.push(shortage_in_words(shortage));
            }
            bought.machine = Some(machine.clone());
        }
        let Machine { instance_type, zone, capacity_type, .. } = machine;
        self.happened(at, "Launched", "Launched", format!("{instance_type} in {zone}, {capacity_type}"));
    }

    fn see_pod(&mut self, at: Timestamp, pod: &PodGlance) {
        if self.kind != Kind::Pod || pod.key.to_string() != self.name {
            return;
        }
        if self.found.pod.is_none() && self.in_picture {
            self.found.was_there = Some(at);
        }
        let standing = self.found.pod.get_or_insert_default();
        let former = standing.node.as_ref().map(|(_, node)| node.clone());
        let is_bound = pod.node.map(|node| node.to_string());
        (standing.created, standing.phase) = (pod.created, Some(pod.phase));
        (standing.is_unschedulable, standing.is_gated) = (pod.is_unschedulable, pod.is_gated);
        if former != is_bound {
            standing.node = is_bound.clone().map(|node| (at, node));
            if let Some(node) = is_bound {
                self.happened(at, "Bound", "Bound", format!("kube-scheduler put it on {node}"));
            }
        }
        if pod.deleted.is_some() && !self.found.events.iter().any(|event| event.what == "Deleted") {
            self.happened(at, "Deleted", "Deleted", "it is being deleted");
        }
    }
}

impl Found {
    /// The commit that was in force at a moment.
    pub fn commit_at(&self, at: Timestamp) -> Option<&(Timestamp, Committed)> {
        self.commits.iter().rev().find(|(since, _)| *since <= at)
    }

    /// The disruption that took it last, or is about to.
    pub fn taken_by(&self) -> Option<&(Timestamp, Started)> {
        self.started.last()
    }
}

impl Bought {
    /// What else could have been bought, cheapest first: the best way of every other kind.
    pub fn alternatives(&self) -> impl Iterator<Item = &LaunchOption> {
        let taken = self.machine.as_ref().map(|machine| (machine.instance_type, machine.capacity_type));
        let taken = taken.or_else(|| self.best.first().map(|best| (best.instance_type, best.capacity_type)));
        self.best.iter().filter(move |option| Some((option.instance_type, option.capacity_type)) != taken)
    }
}

/// The pods that a decision planned on `place`.
fn planned_on(decision: &Decided, place: &str) -> Vec<String> {
    let told = decision.actions.iter().filter(|done| done.kind() == "Publish" && done.code == "Nominated");
    let there = told.filter(|done| done.why.strip_prefix(PLANNED_ON) == Some(place));
    let mut pods = Vec::new();
    there.for_each(|done| subjects_of(done, |pod| pods.push(pod.to_owned())));
    pods
}

fn shortage_in_words(shortage: &Value) -> String {
    let offerings = shortage.get("offerings").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let word = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or("?").to_owned();
    let told: Vec<String> = offerings
        .iter()
        .take(3)
        .map(|one| format!("{} {} in {}", word(one.get(0)), word(one.get(2)), word(one.get(1))))
        .collect();
    let more = match offerings.len().saturating_sub(told.len()) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("EC2 had no {}{more}", told.join(", "))
}

pub(super) fn failure_in_words(failure: &Value) -> String {
    if let Some(shortage) = failure.get("InsufficientCapacity") {
        return shortage_in_words(shortage);
    }
    let inside = failure.as_object().and_then(|failure| failure.values().next());
    let message = inside.and_then(|inside| inside.get("message")).and_then(Value::as_str);
    message.unwrap_or("the launch failed").to_owned()
}

pub(super) fn notice_in_words(notice: &Value) -> String {
    let word = notice.as_str().or_else(|| notice.as_object()?.keys().next().map(String::as_str));
    match word {
        Some("SpotReclaim") => "EC2 takes the spot machine back",
        Some("RebalanceRecommendation") => "EC2 may soon take the spot machine back",
        Some("StateChange") => "its machine stops",
        Some("Terminating") => "its machine ends",
        Some("ReservationReclaim") => "EC2 takes back the capacity that was reserved for its machine",
        Some("ScheduledChange") => "EC2 has maintenance for its machine",
        Some("StatusCheckFailed") => "EC2's own check of its machine fails",
        _ => "EC2 says something about its machine",
    }
    .to_owned()
}
