//! `provisor why`: why a node, claim or pod is as it is, from a recording, in about ten lines.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::recording::unreadable;
use crate::capacity::disruption::stays;
use crate::capacity::recording::{Beaten, Committed, Glance, Key, Started, Unreadable, glance, subjects_of};
use crate::io::recording::{Block, Segment, segments};
use crate::model::action::LaunchOption;
use crate::model::count::{agreeing, counted};
use crate::model::near::nearest;
use crate::simulator::why::{Bought, Found, Happened, Inquiry, Kind};
use crate::ui::console::{Console, Tone};
use crate::ui::exit::{Exit, Failure};

/// Say why a node, claim or pod is as it is, from a recording: what was done, by which rule, and what else could have been
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Of a node or claim: why it was bought, for which pods, at which price and instead of what; why it stays, or what took it and
what that saved. Of a pod: where it was planned, where it runs, or why it waits. And the commit that was in force.

Exit codes: 0 answered, 2 the recording cannot be read, or speaks of nothing of that name.

Examples:
  provisor simulate --record day.jsonl.zst
  provisor why node node-5e1f0003 --recording day.jsonl.zst
  provisor why pod shop/store-1 --recording day.jsonl.zst --at 2026-03-02T08:00:30Z
  provisor why claim general-x7x2c --recording /var/lib/provisor/recording --output json")]
pub struct Args {
    /// What it is
    #[arg(value_name = "KIND", value_enum)]
    kind: KindWord,
    /// Its name; of a pod NAMESPACE/NAME
    #[arg(value_name = "NAME")]
    name: String,
    /// The moment to ask about, such as 2026-03-02T08:30:00Z; the end of the recording by default
    #[arg(long, value_name = "TIME")]
    at: Option<String>,
    /// The file, or the directory with all files, of a recording
    #[arg(long, value_name = "FILE_OR_DIR", env = "PROVISOR_RECORD")]
    recording: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum KindWord {
    Node,
    Claim,
    Pod,
}

impl KindWord {
    fn as_str(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Claim => "claim",
            Self::Pod => "pod",
        }
    }
}

impl From<KindWord> for Kind {
    fn from(word: KindWord) -> Self {
        match word {
            KindWord::Node => Self::Node,
            KindWord::Claim => Self::Claim,
            KindWord::Pod => Self::Pod,
        }
    }
}

/// The answer of `why --output json`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhyDocument {
    /// 1.
    version: u32,
    /// `node`, `claim` or `pod`.
    kind: String,
    name: String,
    /// The moment that is asked about.
    at: String,
    environment: String,
    simulated: bool,
    /// The node, once it has joined.
    node: Option<String>,
    claim: Option<String>,
    pool: Option<String>,
    /// It is gone by then.
    gone: bool,
    /// Since when it is known, if nobody recorded how it came.
    was_there: Option<String>,
    bought: Option<BoughtDocument>,
    /// Why the node stays; null if it goes, or was not judged yet.
    kept: Option<KeptDocument>,
    /// What should be done to it, and is not.
    held: Option<HeldDocument>,
    /// Disruption that took it, in order.
    disrupted: Vec<DisruptedDocument>,
    pod: Option<PodDocument>,
    /// Everything that was done to it or happened to it, in the order of the first time. What is only bookkeeping is left out.
    events: Vec<EventDocument>,
    /// The commit in force then.
    commit: Option<CommitDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct BoughtDocument {
    at: String,
    /// The rule, such as `Provisioned` or `Drifted`.
    code: String,
    why: String,
    /// Pods that it was bought for.
    pods: Vec<String>,
    /// What was bought; null as long as nothing was.
    machine: Option<OptionDocument>,
    /// How many ways there were to buy it.
    ways: usize,
    /// The best of the other types and capacity types, cheapest first.
    alternatives: Vec<OptionDocument>,
    /// What could not be had.
    failures: Vec<String>,
    /// The commit in force when it was bought.
    commit: Option<CommitDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct OptionDocument {
    instance_type: String,
    zone: String,
    capacity_type: String,
    /// US dollars an hour; null if it was not recorded.
    usd_per_hour: Option<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct KeptDocument {
    since: String,
    /// It may have been so before: that was the first time that anybody looked.
    or_earlier: bool,
    /// The rule, such as `PodDisruptionBudget`.
    code: String,
    why: String,
    /// When time alone may let it go; null: something else has to change.
    next_look: Option<String>,
    /// What has to happen first, time aside.
    waits_for: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct HeldDocument {
    since: String,
    /// The rule, such as `BudgetExhausted`.
    code: String,
    why: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct DisruptedDocument {
    at: String,
    /// Such as `single-node-consolidation`.
    method: String,
    why: String,
    /// The nodes that go together.
    nodes: Vec<String>,
    /// What is bought in their place.
    replacements: Vec<OptionDocument>,
    /// US dollars an hour; negative if it costs more.
    savings_usd_per_hour: String,
    /// What moving the pods has to be worth; null where that does not count.
    least_savings_usd_per_hour: Option<String>,
    /// How many pods move.
    pods: usize,
    /// What it was preferred to: first what would save most.
    alternatives: Vec<BeatenDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct BeatenDocument {
    nodes: Vec<String>,
    replacements: Vec<OptionDocument>,
    savings_usd_per_hour: String,
    pods: usize,
    /// Why it was not done.
    code: String,
    why: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct PodDocument {
    created: Option<String>,
    phase: Option<String>,
    /// Where it runs, and since when.
    node: Option<String>,
    node_since: Option<String>,
    /// Where it was planned last: `node/NAME` or `nodeclaim/NAME`.
    planned: Option<String>,
    planned_at: Option<String>,
    /// Why no place was found; null if one was, or nobody looked.
    refused: Option<String>,
    refused_at: Option<String>,
    /// kube-scheduler found no place for it.
    unschedulable: bool,
    /// Scheduling gates hold it back.
    gated: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EventDocument {
    at: String,
    /// An action such as `CreateClaim`, or news such as `Launched`.
    what: String,
    /// The rule.
    code: String,
    why: String,
    /// How often the same happened, and when for the last time.
    times: u64,
    last: String,
}

#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct CommitDocument {
    id: String,
    /// The first line of its message; empty if it was not recorded.
    subject: String,
    /// When it was applied.
    since: String,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let at = match &args.at {
        None => None,
        Some(text) => Some(text.parse::<Timestamp>().map_err(|error| {
            Failure::usage(format!("`--at {text}` is no moment: {error}"))
                .help("write it such as `2026-03-02T08:30:00Z`")
        })?),
    };
    let shelf = Shelf::open(&args.recording)?;
    let end = shelf.end().or(at).unwrap_or(Timestamp::MAX);
    let until = at.unwrap_or(end);
    let mut inquiry = Inquiry::new(args.kind.into(), &args.name, until);
    shelf.ask(&mut inquiry, until)?;
    let Some(found) = inquiry.answer() else { return Err(shelf.unknown(args, until)?) };
    let (environment, simulated) = shelf.header(until)?;
    let document = document((args.kind, &args.name), &found, until, environment, simulated);
    if console.is_json() {
        console.json(&document)?;
    } else {
        console.data(&text(&document, &found, console))?;
    }
    Ok(Exit::Done)
}

/// All files of a recording, of which most stays packed.
struct Shelf {
    segments: Vec<Segment>,
}

/// The names of one kind that a recording speaks of are looked through as far as this.
const NAMES_MAX: usize = 200_000;

impl Shelf {
    fn open(path: &Path) -> Result<Self, Failure> {
        let segments: Result<Vec<Segment>, _> =
            segments(path)?.iter().map(|path| Segment::open(path)).collect();
        Ok(Self { segments: segments? })
    }

    /// The last moment that is recorded in order; what a crash left open may be a little younger.
    fn end(&self) -> Option<Timestamp> {
        let blocks = self.segments.iter().flat_map(|segment| &segment.blocks);
        // An open frame has no period: then the end is open.
        let ends: Option<Vec<i64>> = blocks.map(|block| block.period().map(|(_, last)| last)).collect();
        // Moments are kept in milliseconds, and events happen in between.
        ends?.into_iter().max().and_then(|last| Timestamp::from_millisecond(last + 1).ok())
    }

    /// The blocks that may speak of `keys` until then, oldest first.
    fn blocks<'s>(
        &'s self,
        keys: &'s [u32],
        until: Timestamp,
    ) -> impl DoubleEndedIterator<Item = (&'s Segment, &'s Block)> {
        let blocks =
            self.segments.iter().flat_map(|segment| segment.blocks.iter().map(move |block| (segment, block)));
        let has_begun =
            move |block: &Block| block.period().is_none_or(|(first, _)| first <= until.as_millisecond());
        blocks.filter(move |(_, block)| has_begun(block) && block.speaks_of(keys))
    }

    /// Looks for everything about what is asked.
    fn ask(&self, inquiry: &mut Inquiry, until: Timestamp) -> Result<(), Failure> {
        loop {
            let keys = inquiry.keys();
            let mut has_learned = false;
            for (segment, block) in self.blocks(&keys, until) {
                each_line(segment, block, |line| {
                    has_learned |= inquiry.take(line)?;
                    Ok(())
                })?;
            }
            if !has_learned {
                break;
            }
            inquiry.again();
        }
        if let Some(key) = inquiry.kept_key()
            && let Some((segment, block)) = self.blocks(&[key], until).next_back()
        {
            each_line(segment, block, |line| inquiry.take_kept(line))?;
        }
        for (segment, block) in self.blocks(&[Key::Commit.number()], until) {
            each_line(segment, block, |line| inquiry.take_commit(line))?;
        }
        Ok(())
    }

    /// The environment that was recorded then, and whether it was simulated.
    fn header(&self, until: Timestamp) -> Result<(String, bool), Failure> {
        let mut begun = self.segments.iter().filter(|segment| {
            let first = segment.blocks.first().and_then(Block::period);
            first.is_none_or(|(first, _)| first <= until.as_millisecond())
        });
        let Some(segment) = begun.next_back().or(self.segments.first()) else {
            return Ok((String::new(), false));
        };
        let Some(block) = segment.blocks.first() else { return Ok((String::new(), false)) };
        let text = segment.text(block)?;
        let line = text.lines.lines().next().unwrap_or_default();
        match glance(line).map_err(|error| unreadable(&segment.path, 1, &error))? {
            Some(Glance::Header { environment, is_simulated, .. }) => Ok((environment, is_simulated)),
            _ => Err(unreadable(&segment.path, 1, &Unreadable::NoHeader)),
        }
    }

    /// Nothing speaks of it: perhaps of something that is named almost like it.
    fn unknown(&self, args: &Args, until: Timestamp) -> Result<Failure, Failure> {
        let mut names = BTreeSet::new();
        for segment in &self.segments {
            for block in &segment.blocks {
                each_line(segment, block, |line| {
                    if names.len() < NAMES_MAX {
                        names.extend(names_in(args.kind, line)?);
                    }
                    Ok(())
                })?;
            }
        }
        let kind = args.kind.as_str();
        let failure = Failure::input(format!(
            "until {} the recording speaks of no {kind} `{}`",
            moment(until),
            args.name
        ));
        let pod_of = |name: &&String| {
            args.kind == KindWord::Pod && name.split_once('/').is_some_and(|(_, short)| short == args.name)
        };
        let near = names.iter().find(pod_of).map(String::as_str);
        Ok(match near.or_else(|| nearest(&args.name, names.iter().map(String::as_str))) {
            Some(near) if near == args.name => {
                failure.help("it came later; leave --at away, or name a later moment")
            }
            Some(near) => failure.help(format!("did you mean `{near}`?")),
            None => failure.help(format!("it speaks of {}", counted(names.len(), kind))),
        })
    }
}

/// The names of a kind that a line brings up first.
fn names_in(kind: KindWord, line: &str) -> Result<Vec<String>, Unreadable> {
    let mut names = Vec::new();
    match (kind, glance(line)?) {
        (KindWord::Pod, Some(Glance::Pod { pod, .. })) => names.push(pod.key.to_string()),
        (KindWord::Node, Some(Glance::Seen { what, .. })) => {
            names.extend(what.pointer("/Node/name").and_then(Value::as_str).map(str::to_owned));
        }
        (KindWord::Claim, Some(Glance::Seen { what, .. })) => {
            names.extend(what.pointer("/Claim/name").and_then(Value::as_str).map(str::to_owned));
        }
        (KindWord::Claim, Some(Glance::Decided { decision, .. })) => {
            let made = decision.actions.iter().filter(|done| done.kind() == "CreateClaim");
            made.for_each(|done| subjects_of(done, |name| names.push(name.to_owned())));
        }
        _ => {}
    }
    Ok(names)
}

fn each_line(
    segment: &Segment,
    block: &Block,
    mut take: impl FnMut(&str) -> Result<(), Unreadable>,
) -> Result<(), Failure> {
    let text = segment.text(block)?;
    for (at, line) in text.lines.lines().enumerate() {
        take(line).map_err(|error| unreadable(&segment.path, at + 1, &error))?;
    }
    Ok(())
}

fn document(
    (kind, name): (KindWord, &str),
    found: &Found,
    at: Timestamp,
    environment: String,
    simulated: bool,
) -> WhyDocument {
    let commit = |at| {
        found.commit_at(at).map(|(since, commit)| CommitDocument {
            id: commit.id.to_string(),
            subject: commit.subject.to_string(),
            since: since.to_string(),
        })
    };
    let is_leaving = found.is_gone
        || found
            .taken_by()
            .is_some_and(|(began, _)| found.kept.as_ref().is_none_or(|(since, _)| since <= began));
    WhyDocument {
        version: 1,
        kind: kind.as_str().into(),
        name: name.to_owned(),
        at: at.to_string(),
        environment,
        simulated,
        node: found.node.clone().filter(|_| kind != KindWord::Pod),
        claim: found.claim.clone(),
        pool: found.pool.clone().filter(|pool| !pool.is_empty()),
        gone: found.is_gone,
        was_there: found.was_there.map(|at| at.to_string()),
        bought: found
            .bought
            .as_ref()
            .map(|bought| BoughtDocument { commit: commit(bought.at), ..bought_document(bought) }),
        kept: found.kept.as_ref().filter(|_| !is_leaving).map(|(at, kept)| KeptDocument {
            since: kept.since.unwrap_or(*at).to_string(),
            or_earlier: kept.or_earlier,
            code: kept.code.clone(),
            why: kept.why.clone(),
            next_look: kept.next_look.map(|at| at.to_string()),
            waits_for: stays::awaited(&kept.code).to_owned(),
        }),
        held: found.stays.as_ref().filter(|_| !found.is_gone).map(|(since, stay)| HeldDocument {
            since: since.to_string(),
            code: stay.code.clone(),
            why: stay.why.clone(),
        }),
        disrupted: found.started.iter().map(|(at, started)| disrupted(*at, started)).collect(),
        pod: found.pod.as_ref().map(|pod| PodDocument {
            created: pod.created.map(|at| at.to_string()),
            phase: pod.phase.map(|phase| format!("{phase:?}")),
            node: pod.node.as_ref().map(|(_, node)| node.clone()),
            node_since: pod.node.as_ref().map(|(at, _)| at.to_string()),
            planned: pod.planned.as_ref().map(|(_, place)| place.clone()),
            planned_at: pod.planned.as_ref().map(|(at, _)| at.to_string()),
            refused: pod.refused.as_ref().map(|(_, why)| why.clone()),
            refused_at: pod.refused.as_ref().map(|(at, _)| at.to_string()),
            unschedulable: pod.is_unschedulable,
            gated: pod.is_gated,
        }),
        events: found.events.iter().map(event).collect(),
        commit: commit(at),
    }
}

fn bought_document(bought: &Bought) -> BoughtDocument {
    BoughtDocument {
        at: bought.at.to_string(),
        code: bought.code.clone(),
        why: bought.why.clone(),
        pods: bought.pods.clone(),
        machine: bought.machine.as_ref().map(|machine| OptionDocument {
            instance_type: machine.instance_type.to_string(),
            zone: machine.zone.to_string(),
            capacity_type: machine.capacity_type.to_string(),
            usd_per_hour: machine.price.map(|price| price.to_string()),
        }),
        ways: bought.ways,
        alternatives: bought.alternatives().map(option).collect(),
        failures: bought.failures.clone(),
        commit: None,
    }
}

fn option(option: &LaunchOption) -> OptionDocument {
    OptionDocument {
        instance_type: option.instance_type.to_string(),
        zone: option.zone.to_string(),
        capacity_type: option.capacity_type.to_string(),
        usd_per_hour: Some(option.price.to_string()),
    }
}

fn disrupted(at: Timestamp, started: &Started) -> DisruptedDocument {
    DisruptedDocument {
        at: at.to_string(),
        method: started.method.clone(),
        why: started.why.clone(),
        nodes: started.nodes.iter().map(ToString::to_string).collect(),
        replacements: started.replacements.iter().map(option).collect(),
        savings_usd_per_hour: started.savings.to_string(),
        least_savings_usd_per_hour: started.least.map(|least| least.to_string()),
        pods: started.pods,
        alternatives: started.over.iter().map(beaten).collect(),
    }
}

fn beaten(one: &Beaten) -> BeatenDocument {
    BeatenDocument {
        nodes: one.nodes.iter().map(ToString::to_string).collect(),
        replacements: one.replacements.iter().map(option).collect(),
        savings_usd_per_hour: one.savings.to_string(),
        pods: one.pods,
        code: one.code.clone(),
        why: one.why.clone(),
    }
}

fn event(event: &Happened) -> EventDocument {
    EventDocument {
        at: event.at.to_string(),
        what: event.what.clone(),
        code: event.code.clone(),
        why: event.why.clone(),
        times: event.times,
        last: event.last.to_string(),
    }
}

// --------------------------------------------------------------------------------------------------------- for people

/// So many names are told of a list.
const NAMES_TOLD: usize = 5;
/// So many of the last events are told.
const EVENTS_TOLD: usize = 3;
/// So many alternatives are told.
const ALTERNATIVES_TOLD: usize = 3;

/// To the second: nobody who asks why wants to read more.
fn moment(at: Timestamp) -> String {
    Timestamp::from_second(at.as_second()).unwrap_or(at).to_string()
}

fn moment_of(text: &str) -> String {
    text.parse().map_or_else(|_| text.to_owned(), moment)
}

/// A word, and what is said under it.
pub type Row = (&'static str, String);

/// What `provisor why claim NAME` says of a claim and its node.
pub fn rows_of_claim(name: &str, found: &Found, at: Timestamp) -> Vec<Row> {
    rows(&document((KindWord::Claim, name), found, at, String::new(), false), found)
}

/// What it says of a disruption that began.
pub fn rows_of_disruption(at: Timestamp, started: &Started) -> Vec<Row> {
    let mut rows = Vec::new();
    disruption_rows(&disrupted(at, started), &mut rows);
    rows
}

/// What it says of the commit in force.
pub fn row_of_commit(since: Timestamp, commit: &Committed) -> Row {
    let document = CommitDocument {
        id: commit.id.to_string(),
        subject: commit.subject.to_string(),
        since: since.to_string(),
    };
    ("commit", commit_in_words(&document))
}

fn rows(document: &WhyDocument, found: &Found) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    match &document.pod {
        Some(pod) => pod_rows(document, pod, &mut rows),
        None => machine_rows(document, &mut rows),
    }
    let told = found.events.iter().filter(|event| !is_told_already(event));
    let mut last: Vec<&Happened> = told.collect();
    last.sort_by_key(|event| event.last);
    for event in last.iter().rev().take(EVENTS_TOLD).rev() {
        let times = if event.times > 1 { format!(" ({} times)", event.times) } else { String::new() };
        let code = if event.code == event.what { String::new() } else { format!("{}: ", event.code) };
        rows.push(("did", format!("{} {} {code}{}{times}", moment(event.last), event.what, event.why)));
    }
    if let Some(commit) = &document.commit {
        rows.push(("commit", commit_in_words(commit)));
    }
    rows
}

fn text(document: &WhyDocument, found: &Found, console: &Console) -> String {
    let simulated = if document.simulated { " (simulated)" } else { "" };
    let title = format!("{} {} at {}", document.kind, document.name, moment_of(&document.at));
    let mut text =
        format!("{}, environment {}{simulated}\n", console.paint(Tone::Strong, &title), document.environment);
    for (word, said) in rows(document, found) {
        text.push_str(&format!("  {word:<8} {said}\n"));
    }
    text
}

/// What other rows say better.
fn is_told_already(event: &Happened) -> bool {
    matches!(
        event.what.as_str(),
        "CreateClaim" | "Launch" | "Launched" | "LaunchFailed" | "Bound" | "UpdateNode" | "UpdateClaim"
    ) || matches!(
        event.code.as_str(),
        "Nominated" | "FailedScheduling" | "Unconsolidatable" | "DisruptionBlocked"
    )
}

fn machine_rows(document: &WhyDocument, rows: &mut Vec<Row>) {
    let other = match document.kind.as_str() {
        "node" => document.claim.as_ref().map(|claim| format!("claim {claim}")),
        _ => document.node.as_ref().map(|node| format!("node {node}")),
    };
    let pool = document.pool.as_ref().map(|pool| format!("pool {pool}"));
    let machine = document.bought.as_ref().and_then(|bought| bought.machine.as_ref()).map(option_in_words);
    let parts: Vec<String> = [other, pool, machine].into_iter().flatten().collect();
    if !parts.is_empty() {
        rows.push(("is", parts.join(", ")));
    }
    if let Some(since) = &document.was_there {
        let said = format!("how it came was not recorded: it was there at {}", moment_of(since));
        rows.push(("bought", said));
    }
    if let Some(bought) = &document.bought {
        rows.push(("bought", format!("{} {}: {}", moment_of(&bought.at), bought.code, bought.why)));
        if !bought.pods.is_empty() {
            rows.push(("for", some_of(&bought.pods)));
        }
        let price = bought.machine.as_ref().and_then(|machine| machine.usd_per_hour.clone());
        let others: Vec<String> = bought
            .alternatives
            .iter()
            .take(ALTERNATIVES_TOLD)
            .map(|other| format!("{}{}", option_in_words(other), dearer(price.as_deref(), other)))
            .collect();
        if !others.is_empty() {
            let ways = counted(bought.ways, "way");
            rows.push(("over", format!("{}; {ways} in all", others.join("; "))));
        }
        if let Some(failure) = bought.failures.last() {
            rows.push(("lacked", failure.clone()));
        }
        let id_now = document.commit.as_ref().map(|commit| &commit.id);
        if let Some(commit) = bought.commit.as_ref().filter(|commit| Some(&commit.id) != id_now) {
            rows.push(("under", commit_in_words(commit)));
        }
    }
    if let Some(started) = document.disrupted.last() {
        disruption_rows(started, rows);
    }
    if let Some(kept) = &document.kept {
        let earlier = if kept.or_earlier { " or before" } else { "" };
        rows.push((
            "stays",
            format!("since {}{earlier} {}: {}", moment_of(&kept.since), kept.code, kept.why),
        ));
        let next = kept.next_look.as_deref().map(|at| format!("at {}, or ", moment_of(at)));
        rows.push(("again", format!("{}once {}", next.unwrap_or_default(), kept.waits_for)));
    }
    if let Some(held) = &document.held {
        rows.push(("held", format!("since {} {}: {}", moment_of(&held.since), held.code, held.why)));
    }
    if document.gone {
        rows.push(("gone", "it is not there any more".into()));
    } else if document.kept.is_none() && document.disrupted.is_empty() && document.node.is_some() {
        rows.push(("stays", "nobody has judged yet whether it may go".into()));
    } else if document.node.is_none() {
        rows.push(("waits", "its machine has not joined the cluster".into()));
    }
}

fn disruption_rows(started: &DisruptedDocument, rows: &mut Vec<Row>) {
    let pods = format!("{} {}", counted(started.pods, "pod"), agreeing(started.pods, "moves", "move"));
    rows.push(("went", format!("{} {}: {}; {pods}", moment_of(&started.at), started.method, started.why)));
    let replacements: Vec<String> = started.replacements.iter().map(option_in_words).collect();
    if !replacements.is_empty() {
        rows.push(("replaced", format!("by {}", some_of(&replacements))));
    }
    let beaten: Vec<String> =
        started.alternatives.iter().map(|other| beaten_in_words(other, &started.nodes)).collect();
    if !beaten.is_empty() {
        rows.push(("instead", format!("of {}", beaten.join("; of "))));
    }
}

fn pod_rows(document: &WhyDocument, pod: &PodDocument, rows: &mut Vec<Row>) {
    let since = |at: &Option<String>| at.as_deref().map(moment_of).unwrap_or_default();
    if let Some(created) = &pod.created {
        rows.push(("created", moment_of(created)));
    }
    if let Some(place) = &pod.planned {
        rows.push(("planned", format!("{} on {place}", since(&pod.planned_at))));
    }
    if document.gone {
        rows.push(("gone", "it is not there any more".into()));
    } else if let Some(node) = &pod.node {
        let phase = pod.phase.as_deref().unwrap_or("there");
        rows.push(("runs", format!("on {node} since {} ({phase})", since(&pod.node_since))));
    } else if let Some(why) = &pod.refused {
        rows.push(("waits", format!("since {}: {why}", since(&pod.refused_at))));
    } else if pod.gated {
        rows.push((
            "waits",
            "scheduling gates hold it back; nothing is bought for it before they are gone".into(),
        ));
    } else if pod.planned.is_some() {
        rows.push(("waits", "for its place to be ready, and for kube-scheduler".into()));
    } else if pod.unschedulable {
        rows.push(("waits", "for the next round of planning: kube-scheduler found no place for it".into()));
    } else {
        rows.push(("waits", "for kube-scheduler, which has not said that there is no place for it".into()));
    }
}

fn option_in_words(option: &OptionDocument) -> String {
    let OptionDocument { instance_type, zone, capacity_type, usd_per_hour } = option;
    let price = usd_per_hour.as_ref().map(|price| format!(" ${price}/h")).unwrap_or_default();
    format!("{instance_type} {capacity_type} in {zone}{price}")
}

/// What might have been done instead of something with `nodes`: `delete (would save $0.192/h: 2 of the 3 pods find no place on what stays)`.
fn beaten_in_words(other: &BeatenDocument, nodes: &[String]) -> String {
    let verb = if other.replacements.is_empty() { "delete" } else { "replace" };
    let which = if other.nodes == nodes { String::new() } else { format!(" {}", some_of(&other.nodes)) };
    let types: Vec<String> = other.replacements.iter().map(|one| one.instance_type.clone()).collect();
    let by = if types.is_empty() { String::new() } else { format!(" by {}", some_of(&types)) };
    let money = match other.savings_usd_per_hour.strip_prefix('-') {
        Some(cost) => format!("would cost ${cost}/h"),
        None => format!("would save ${}/h", other.savings_usd_per_hour),
    };
    format!("{verb}{which}{by} ({money}: {})", other.why)
}

/// How much dearer another way is: ` (+$0.004)`.
fn dearer(price: Option<&str>, other: &OptionDocument) -> String {
    let amount = |text: &str| text.parse::<crate::model::money::UsdPerHour>().ok();
    let both = price.and_then(amount).zip(other.usd_per_hour.as_deref().and_then(amount));
    both.map_or_else(String::new, |(price, other)| match other - price {
        more if more.0 < 0 => format!(" (-${})", -more),
        more => format!(" (+${more})"),
    })
}

fn some_of(names: &[String]) -> String {
    let told = names.iter().take(NAMES_TOLD).cloned().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(NAMES_TOLD) {
        0 => told,
        more => format!("{told} and {more} more"),
    }
}

/// Its short id and the first line of its message.
pub fn name_of_commit(commit: &Committed) -> String {
    short_commit(&commit.id, &commit.subject)
}

fn commit_in_words(commit: &CommitDocument) -> String {
    format!("{}, in force since {}", short_commit(&commit.id, &commit.subject), moment_of(&commit.since))
}

fn short_commit(id: &str, subject: &str) -> String {
    let id = id.rsplit([':', '@']).next().unwrap_or(id);
    let short: String = id.chars().take(7).collect();
    let subject = if subject.is_empty() { String::new() } else { format!(" \"{subject}\"") };
    format!("{short}{subject}")
}
