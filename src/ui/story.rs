//! The story of a cluster as lines that a person can follow while it happens.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::json;

use super::console::{Console, Tone};
use super::exit::Failure;
use crate::controllers::reconciler::{Reconciler, Turn};
use crate::model::action::Subject;
use crate::model::name::NodeName;
use crate::model::time::render_duration;
use crate::simulator::story::Happening;

/// Says something about the telling itself: a line for people, a document of a line for programs.
pub fn say(console: &Console, text: &str) -> Result<(), Failure> {
    if !console.is_json() {
        return console.data(text);
    }
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.into_iter().try_for_each(|message| {
        console.data(&format!(
            "{}\n",
            json!({ "version": 1, "simulated": true, "kind": "Note", "message": message })
        ))
    })
}

/// Prints what is new since the last time: lines for people, one JSON document a line for programs.
pub struct Narrator<'c> {
    console: &'c Console,
    start: Timestamp,
    told: usize,
    /// What the Git half said last: the same again is no news.
    said: String,
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
        Self { console, start, told: 0, said: String::new() }
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
        let mut lines = Vec::new();
        let now = reconciler.now();
        for sync in turn.syncs.iter().filter(|sync| sync.is_news) {
            for reason in &sync.reasons {
                if self.said != reason.message {
                    self.said.clone_from(&reason.message);
                    lines.push(Line {
                        at: now,
                        tone: Tone::Notice,
                        word: "sync",
                        text: reason.message.clone(),
                    });
                }
            }
        }
        let story = reconciler.cluster().world().story();
        let mut bound: BTreeMap<NodeName, Vec<String>> = BTreeMap::new();
        let mut evicted: BTreeMap<NodeName, Vec<String>> = BTreeMap::new();
        for (at, happening) in story.since(self.told) {
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
        let document = |at: Timestamp, kind: &str, subject: String, message: String| {
            let document = json!({
                "version": 1, "simulated": true, "at": at.to_string(), "kind": kind, "subject": subject, "message": message,
            });
            self.console.data(&format!("{document}\n"))
        };
        for sync in turn.syncs.iter().filter(|sync| sync.is_news) {
            for reason in &sync.reasons {
                let subject = reconciler.sync().environment().to_string();
                document(reconciler.now(), reason.reason, subject, reason.message.clone())?;
            }
        }
        let story = reconciler.cluster().world().story();
        for (at, happening) in story.since(self.told) {
            document(*at, happening.kind(), happening.subject(), happening.message())?;
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
