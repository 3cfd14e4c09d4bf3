//! The story of a cluster as lines that a person can follow while it happens.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::cli::line::LineDocument;
use super::console::{Console, Tone};
use super::exit::Failure;
use crate::capacity::decision::Reason;
use crate::controllers::reconciler::{Reconciler, Turn};
use crate::model::action::{Action, Subject};
use crate::model::name::NodeName;
use crate::model::taint::Taint;
use crate::model::time::render_duration;
use crate::simulator::story::Happening;

/// Says something about the telling itself: a line for people, a document of a line for programs.
pub fn say(console: &Console, text: &str) -> Result<(), Failure> {
    if !console.is_json() {
        return console.data(text);
    }
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.try_for_each(|message| LineDocument::new("Note", message).tell(console))
}

/// Something that was decided, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decided {
    /// A stable word for programs: what was done to nodes, or what the Git half says.
    pub kind: String,
    pub subject: String,
    pub message: String,
}

/// What a turn decided that somebody may ask about later: syncs, machines asked for and machines given up.
pub fn decided(reconciler: &Reconciler, turn: &Turn) -> Vec<Decided> {
    let mut told = Vec::new();
    for reason in turn.syncs.iter().flat_map(|sync| &sync.news) {
        let subject = reconciler.sync().environment().to_string();
        told.push(Decided { kind: reason.reason.to_string(), subject, message: reason.message.clone() });
    }
    for planned in turn.decisions.iter().flat_map(|decision| &decision.actions) {
        if let Action::CreateClaim(claim) = &planned.action {
            let Reason { code, message } = &planned.reason;
            let (kind, subject) = (code.to_string(), claim.name.to_string());
            told.push(Decided { kind, subject, message: message.clone() });
        }
    }
    told.extend(decided_about_nodes(reconciler, turn));
    told
}

/// Which nodes a turn decided to give up, each once.
fn decided_about_nodes(reconciler: &Reconciler, turn: &Turn) -> Vec<Decided> {
    let objects = reconciler.cluster().world().objects();
    let mut told: Vec<Decided> = Vec::new();
    for planned in turn.decisions.iter().flat_map(|decision| &decision.actions) {
        let subject = match &planned.action {
            Action::DeleteClaim { claim } => {
                let node = objects.claims.get(claim).and_then(|claim| claim.node);
                node.map_or_else(|| claim.to_string(), |node| node.to_string())
            }
            Action::UpdateNode { node, change } if change.add_taints.contains(&Taint::disrupted()) => {
                node.to_string()
            }
            _ => continue,
        };
        let Reason { code, message } = &planned.reason;
        if !told.iter().any(|known| known.subject == subject && known.message == *message) {
            told.push(Decided { kind: code.to_string(), subject, message: message.clone() });
        }
    }
    told
}

/// What a turn found that should happen and does not, and why.
pub fn stays(turn: &Turn) -> impl Iterator<Item = Decided> {
    turn.decisions.iter().flat_map(|decision| &decision.stays).map(|stay| Decided {
        kind: stay.reason.code.to_owned(),
        subject: stay.subject.to_string(),
        message: stay.reason.message.clone(),
    })
}

/// Prints what is new since the last time: lines for people, one JSON document a line for programs.
pub struct Narrator<'c> {
    console: &'c Console,
    start: Timestamp,
    told: usize,
}

/// One line: when, what, to whom.
struct Line {
    at: Timestamp,
    tone: Tone,
    word: &'static str,
    text: String,
}

impl<'c> Narrator<'c> {
    pub fn new(console: &'c Console, start: Timestamp) -> Self {
        Self { console, start, told: 0 }
    }

    /// Tells of a turn; `pause` is called before each line with its moment, for those who watch.
    pub fn tell(
        &mut self,
        reconciler: &Reconciler,
        turn: &Turn,
        mut pause: impl FnMut(Timestamp),
    ) -> Result<(), Failure> {
        if self.console.is_json() {
            return self.tell_programs(reconciler, turn);
        }
        let now = reconciler.now();
        let story = reconciler.cluster().world().story();
        let happened = || story.since(self.told).iter();
        // What was decided comes after its causes.
        let causes = happened().filter(|(_, happening)| is_cause(happening));
        let mut lines: Vec<Line> = causes.filter_map(|(at, happening)| line(*at, happening)).collect();
        for reason in turn.syncs.iter().flat_map(|sync| &sync.news) {
            lines.push(Line { at: now, tone: Tone::Notice, word: "sync", text: reason.message.clone() });
        }
        for Decided { subject, message, .. } in decided_about_nodes(reconciler, turn) {
            let text = format!("{subject}: {message}");
            lines.push(Line { at: now, tone: Tone::Notice, word: "decide", text });
        }
        for Decided { subject, message, .. } in stays(turn) {
            lines.push(Line {
                at: now,
                tone: Tone::Notice,
                word: "stays",
                text: format!("{subject}: {message}"),
            });
        }
        for decision in &turn.promotions {
            let tone = if decision.outcome.is_ok() { Tone::Good } else { Tone::Notice };
            lines.push(Line { at: now, tone, word: "promote", text: decision.to_string() });
        }
        let mut bound: BTreeMap<NodeName, Vec<String>> = BTreeMap::new();
        let mut evicted: BTreeMap<NodeName, Vec<String>> = BTreeMap::new();
        for (at, happening) in happened().filter(|(_, happening)| !is_cause(happening)) {
            match happening {
                Happening::Bound { pod, node } => bound.entry(*node).or_default().push(pod.name.to_string()),
                Happening::Evicted { pod, node: Some(node) } => {
                    evicted.entry(*node).or_default().push(pod.name.to_string());
                }
                _ => lines.extend(line(*at, happening)),
            }
        }
        for (node, pods) in evicted {
            let text = format!("{node} lets go of {}", listed(&pods));
            lines.push(Line { at: now, tone: Tone::Notice, word: "evict", text });
        }
        for (node, pods) in bound {
            let text = format!("{node} takes {}", listed(&pods));
            lines.push(Line { at: now, tone: Tone::Good, word: "bound", text });
        }
        self.told = story.len();
        for line in lines {
            pause(line.at);
            let elapsed = render_duration(line.at.duration_since(self.start));
            let word = self.console.paint(line.tone, &format!("{:<10}", line.word));
            self.console.data(&format!("{elapsed:>8}  {word}  {}\n", line.text))?;
        }
        Ok(())
    }
}

impl Narrator<'_> {
    fn tell_programs(&mut self, reconciler: &Reconciler, turn: &Turn) -> Result<(), Failure> {
        let now = reconciler.now();
        for decision in &turn.promotions {
            LineDocument::promotion(now, decision).tell(self.console)?;
        }
        for Decided { kind, subject, message } in decided(reconciler, turn).into_iter().chain(stays(turn)) {
            LineDocument::event(now, &kind, subject, message).tell(self.console)?;
        }
        let story = reconciler.cluster().world().story();
        for (at, happening) in story.since(self.told) {
            LineDocument::event(*at, happening.kind(), happening.subject(), happening.message())
                .tell(self.console)?;
        }
        self.told = story.len();
        Ok(())
    }
}

/// Names, at most four of them.
fn listed(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown = names.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    match names.len().checked_sub(SHOWN) {
        Some(more) if more > 0 => format!("{shown} and {more} more"),
        _ => shown,
    }
}

/// A line for what a person wants to follow; `None` for the rest, which the JSON of `simulate` has.
/// Whether it comes from elsewhere; the rest is what became of decisions.
fn is_cause(happening: &Happening) -> bool {
    matches!(
        happening,
        Happening::NodeReady { .. }
            | Happening::Scaled { .. }
            | Happening::SpotWarning { .. }
            | Happening::Shortage { .. }
            | Happening::ZoneLost { .. }
    )
}

fn line(at: Timestamp, happening: &Happening) -> Option<Line> {
    let (tone, word) = match happening {
        Happening::Launched { .. } => (Tone::Good, "launch"),
        Happening::NodeReady { .. } => (Tone::Good, "ready"),
        Happening::NoCapacity { .. } => (Tone::Bad, "no room"),
        Happening::Scaled { .. } => (Tone::Strong, "demand"),
        Happening::SpotWarning { .. } => (Tone::Bad, "warning"),
        Happening::Shortage { .. } | Happening::ZoneLost { .. } => (Tone::Bad, "cloud"),
        Happening::Evicted { .. } => (Tone::Notice, "evict"),
        Happening::Terminating { .. } => (Tone::Notice, "give back"),
        Happening::NodeGone { .. } => (Tone::Notice, "gone"),
        Happening::Notice(notice) if notice.is_warning && !matches!(notice.subject, Subject::Node(_)) => {
            (Tone::Bad, "trouble")
        }
        Happening::Notice(_)
        | Happening::Bound { .. }
        | Happening::ClaimCreated { .. }
        | Happening::NodeJoined { .. } => return None,
    };
    Some(Line { at, tone, word, text: format!("{}: {}", happening.subject(), happening.message()) })
}
