//! A recording fed to an engine again, and its decisions compared with those that were recorded.
//!
//! The engine is told what it was told then, at the moments of then. As it is the same program, it decides the same; where it does
//! not, the first decision that differs is named, and nothing after it is compared: what was recorded then follows from what was
//! decided then.
//!
//! Where the beginning of a run is missing, the engine begins with the objects as they were. What the recorded one remembered
//! besides fades within the hour: what differs until then is set aside, and judging begins after it.

use jiff::{SignedDuration, Timestamp};
use serde::de::IgnoredAny;

use super::what_if::WhatIf;
use crate::capacity::engine::Engine;
use crate::capacity::recording::{Decided, Done, Header, Joins, Line, Reader, Scribe, Unreadable};
use crate::model::observation::Observation;

/// So long an engine remembers what is on no object: by then it has told again what it told last ([`crate::capacity`]). Only how
/// long spot did not last it remembers for a day.
const MEMORY: SignedDuration = SignedDuration::from_hours(1);

/// Takes in a recording line by line.
#[derive(Clone, Debug, Default)]
pub struct Replay {
    reader: Reader,
    /// Writes down what is decided now, as it was written then.
    scribe: Scribe,
    engine: Option<Engine>,
    header: Option<Header>,
    /// The lines are a picture of objects that the engine knows already.
    is_picture_known: bool,
    in_picture: bool,
    /// Set if the engine did not begin where the recorded one did.
    makeshift: Option<Makeshift>,
    /// What the engine is told instead of what was.
    what_if: Option<WhatIf>,
    outcome: Outcome,
}

/// A beginning that is made of the objects as they were.
#[derive(Clone, Debug)]
struct Makeshift {
    why: String,
    /// When the objects were so.
    since: Option<Timestamp>,
    /// Decisions from there on, and how many of them are not judged: up to the last that was set aside.
    decisions: u64,
    unjudged: u64,
    judged_from: Option<Timestamp>,
}

/// What a replay came to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Lives of engines that were replayed.
    pub runs: u64,
    pub observations: u64,
    pub decisions: u64,
    pub actions: u64,
    /// Decisions that were not judged: where the beginning of a run is missing, those until the engine knew what it has to.
    pub unjudged: u64,
    pub first: Option<Timestamp>,
    pub last: Option<Timestamp>,
    /// The first decision that differs.
    pub difference: Option<Difference>,
    /// What has to be known of the answer: what is missing of the recording, who wrote it.
    pub notices: Vec<String>,
}

/// A decision that is not the one that was recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub at: Timestamp,
    /// Its place among the decisions of the recording, from 1.
    pub number: u64,
    /// What is different, in one sentence.
    pub what: String,
    /// The first action that differs, or what else does; `None`: there is none on this side.
    pub recorded: Option<String>,
    pub replayed: Option<String>,
    /// The engine did not begin where the recorded one did, which alone may be why.
    pub is_approximate: bool,
}

impl Replay {
    /// Tells the engine of another pool than was there.
    pub fn asking(what_if: Option<WhatIf>) -> Self {
        Self { what_if, ..Self::default() }
    }

    /// When something was last told or decided.
    pub fn last_moment(&self) -> Option<Timestamp> {
        self.outcome.last
    }

    /// The engine as it is by now.
    pub fn engine(&self) -> Option<&Engine> {
        self.engine.as_ref()
    }

    /// Takes in a line. `Ok(false)`: a decision differs, and there is nothing more to compare.
    pub fn take(&mut self, line: &str) -> Result<bool, Unreadable> {
        let Some(said) = self.reader.read::<IgnoredAny>(line)? else { return Ok(true) };
        match said {
            Line::Header(header) => self.begin(*header),
            Line::Picture { is_over, .. } => self.in_picture = !is_over,
            Line::Committed { .. } => {}
            Line::Seen { at, what } => self.see(at, what),
            Line::Decided { at, .. } => return self.compare(at, line),
        }
        Ok(true)
    }

    /// The segment ended in the middle, for this reason: what follows has a gap before it.
    pub fn note_torn(&mut self, file: &str, why: &str) {
        self.outcome.notices.push(format!("{file} is torn: {why}; what was whole before that counts"));
        self.header = None;
    }

    pub fn outcome(mut self) -> Outcome {
        self.end_makeshift();
        self.outcome
    }

    /// Says from when on a run without its beginning was judged.
    fn end_makeshift(&mut self) {
        let Some(Makeshift { why, since, unjudged, judged_from, .. }) = self.makeshift.take() else { return };
        self.outcome.unjudged += unjudged;
        let from = judged_from.or(since).map_or_else(String::new, |from| {
            format!("; judged is what is done from {from} on ({unjudged} decisions before it are not)")
        });
        self.notice(format!("{why}{from}"));
    }

    fn begin(&mut self, header: Header) {
        let follows = self.header.as_ref().is_some_and(|former| {
            header.joins == Joins::Previous
                && former.run == header.run
                && former.segment.checked_add(1) == Some(header.segment)
                && former.settings == header.settings
        });
        let begun = self.scribe.begin(&header, Timestamp::UNIX_EPOCH);
        drop(begun);
        self.is_picture_known = follows;
        if follows {
            self.header = Some(header);
            return;
        }
        self.end_makeshift();
        if header.provisor != env!("CARGO_PKG_VERSION") {
            self.notice(format!(
                "it was recorded by Provisor {} and is replayed by {}, which may rightly decide otherwise",
                header.provisor,
                env!("CARGO_PKG_VERSION")
            ));
        }
        let missing = match &header.joins {
            Joins::Beginning => None,
            Joins::Previous => Some(format!(
                "the beginning of run {} is missing: the engine begins with the objects as they were before segment {}, \
                 without what the recorded one remembered",
                header.run, header.segment
            )),
            Joins::Gap(why) => Some(format!(
                "something is missing before segment {} of run {} ({why}): the engine begins anew with the objects as they \
                 were, without what the recorded one remembered",
                header.segment, header.run
            )),
        };
        self.makeshift =
            missing.map(|why| Makeshift { why, since: None, decisions: 0, unjudged: 0, judged_from: None });
        self.outcome.runs += 1;
        self.engine = Some(Engine::new(header.settings.clone()));
        self.header = Some(header);
    }

    fn notice(&mut self, text: String) {
        if !self.outcome.notices.contains(&text) {
            self.outcome.notices.push(text);
        }
    }

    fn see(&mut self, at: Timestamp, what: Observation) {
        if self.in_picture && self.is_picture_known {
            return;
        }
        self.outcome.first.get_or_insert(at);
        self.outcome.last = Some(at);
        self.outcome.observations += 1;
        let what = match &self.what_if {
            Some(what_if) => what_if.apply_to(what),
            None => what,
        };
        if let Some(engine) = &mut self.engine {
            engine.observe(at, what);
        }
    }

    fn compare(&mut self, at: Timestamp, line: &str) -> Result<bool, Unreadable> {
        let Some(engine) = &mut self.engine else { return Err(Unreadable::NoHeader) };
        self.outcome.first.get_or_insert(at);
        self.outcome.last = Some(at);
        self.outcome.decisions += 1;
        let decision = engine.decide(at);
        self.outcome.actions += decision.actions.len() as u64;
        let page = self.scribe.decided(at, &decision);
        if let Some(makeshift) = &mut self.makeshift {
            makeshift.since.get_or_insert(at);
            makeshift.decisions += 1;
        }
        if page.text.trim_end_matches('\n') == line {
            return Ok(true);
        }
        let (mut recorded, mut replayed) = (decided(line)?, decided(&page.text)?);
        if let Some(makeshift) = &mut self.makeshift {
            (recorded, replayed) = (deeds(recorded), deeds(replayed));
            if recorded == replayed {
                return Ok(true);
            }
            if makeshift.since.is_none_or(|since| at.duration_since(since) < MEMORY) {
                makeshift.unjudged = makeshift.decisions;
                makeshift.judged_from = Some(at);
                return Ok(true);
            }
        }
        let (what, recorded, replayed) = first_difference(&recorded, &replayed);
        self.outcome.difference = Some(Difference {
            at,
            number: self.outcome.decisions,
            what,
            recorded,
            replayed,
            is_approximate: self.makeshift.is_some(),
        });
        Ok(false)
    }
}

/// What is done of a decision. What is told and when to ask again follows from what was told last, and so do the moments at which
/// nodes were looked at.
fn deeds(decided: Decided) -> Decided {
    let mut actions = decided.actions;
    actions.retain(|done| done.kind() != "Publish");
    Decided { actions, started: decided.started, withdrawn: decided.withdrawn, ..Decided::default() }
}

/// The decision that a line holds.
fn decided(line: &str) -> Result<Decided, Unreadable> {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    enum Wire {
        Decided { decision: Decided },
    }
    let Wire::Decided { decision } = serde_json::from_str(line)?;
    Ok(decision)
}

fn first_difference(recorded: &Decided, replayed: &Decided) -> (String, Option<String>, Option<String>) {
    fn at<T: PartialEq>(recorded: &[T], replayed: &[T]) -> Option<usize> {
        let most = recorded.len().max(replayed.len());
        (0..most).find(|at| recorded.get(*at) != replayed.get(*at))
    }
    fn both<T>(
        what: String,
        at: usize,
        (recorded, replayed): (&[T], &[T]),
        tell: impl Fn(&T) -> String,
    ) -> (String, Option<String>, Option<String>) {
        (what, recorded.get(at).map(&tell), replayed.get(at).map(&tell))
    }
    if let Some(place) = at(&recorded.actions, &replayed.actions) {
        let what = format!("action {} differs", place + 1);
        return both(what, place, (&recorded.actions, &replayed.actions), told);
    }
    if let Some(place) = at(&recorded.started, &replayed.started) {
        let tell = |one: &crate::capacity::recording::Started| {
            let nodes: Vec<&str> = one.nodes.iter().map(|node| node.as_str()).collect();
            format!("{} of {}: {}", one.method, nodes.join(", "), one.why)
        };
        let what = "what is disrupted differs".to_owned();
        return both(what, place, (&recorded.started, &replayed.started), tell);
    }
    if let Some(place) = at(&recorded.stays, &replayed.stays) {
        let tell = |one: &crate::capacity::recording::Stayed| {
            format!("{} stays: {}: {}", one.subject, one.code, one.why)
        };
        let what = "what stays although it should not differs".to_owned();
        return both(what, place, (&recorded.stays, &replayed.stays), tell);
    }
    if let Some(place) = at(&recorded.kept, &replayed.kept) {
        let tell = |one: &crate::capacity::recording::Kept| {
            format!("{} is kept: {}: {}", one.node, one.code, one.why)
        };
        let what = "why a node is kept differs".to_owned();
        return both(what, place, (&recorded.kept, &replayed.kept), tell);
    }
    if recorded.wake != replayed.wake {
        let tell = |wake: &Option<Timestamp>| wake.map(|at| format!("asks again at {at}"));
        return ("when it asks again differs".into(), tell(&recorded.wake), tell(&replayed.wake));
    }
    let tell = |all: &Decided| Some(format!("{:?}", all.withdrawn));
    ("what was taken back differs".into(), tell(recorded), tell(replayed))
}

/// An action in a line: what, to whom, why.
fn told(done: &Done) -> String {
    const BODY_MOST: usize = 400;
    let body: String = done.body().to_string().chars().take(BODY_MOST).collect();
    format!("{} ({}: {}) {body}", done.kind(), done.code, done.why)
}
