//! `provisor replay`: a recording decided again, and the first decision that differs.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use super::recording::{Next, read_lines};
use super::report::{ReportArgs, command_line, write};
use crate::capacity::recording::{Decided, Reader};
use crate::model::count::counted;
use crate::model::time::render_duration;
use crate::simulator::chronicle::Chronicle;
use crate::simulator::replay::{Outcome, Replay};
use crate::simulator::what_if::{FIELDS, Rest, WhatIf};
use crate::ui::console::{Console, Tone};
use crate::ui::exit::{Exit, Failure};
use crate::ui::progress::Progress;
use crate::ui::report::{About, ReportFile};

/// Decide a recording again and name the first decision that differs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
A recording of `provisor run --record DIR`, `provisor simulate --record FILE` or `provisor demo --record FILE` has all that the
engine was told, and all that it decided. The same program decides the same again; another version may not, and this says
where it begins to.

Exit codes: 0 every decision is the same, 1 one differs, 2 the recording cannot be read.

Examples:
  provisor simulate --record day.jsonl.zst && provisor replay day.jsonl.zst
  provisor replay /var/lib/provisor/recording --output json
  provisor replay day.jsonl.zst --what-if pools.general.limits.nodes=3
  provisor replay day.jsonl.zst --report day.html           the recorded run as a page for a browser
  zstd -dc day.jsonl.zst | jq .                             the recording itself")]
pub struct Args {
    /// The file, or the directory with all files, of a recording
    #[arg(value_name = "FILE_OR_DIR")]
    recording: PathBuf,
    /// Change one field of a pool, such as pools.general.consolidate-after=10m, and say what that would have changed first, and what the cluster would come to at the end
    #[arg(long, value_name = "pools.NAME.FIELD=VALUE")]
    what_if: Option<String>,
    #[command(flatten)]
    report: ReportArgs,
}

/// The answer of `replay --output json`.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReplayDocument {
    /// 1.
    pub version: u32,
    /// Every decision is the one that was recorded.
    pub same: bool,
    /// Lives of engines in the recording.
    pub runs: u64,
    pub observations: u64,
    pub decisions: u64,
    /// Decisions that were not judged, because the beginning of their run is missing and the engine lacked what the recorded one
    /// remembered.
    pub unjudged: u64,
    pub actions: u64,
    /// The moments of the first and last event; null if there is none.
    pub from: Option<String>,
    pub to: Option<String>,
    /// The first decision that differs; nothing after it was compared.
    pub difference: Option<DifferenceDocument>,
    /// The answer to `--what-if`; null if nothing was asked.
    pub what_if: Option<WhatIfDocument>,
    /// What has to be known of the answer, such as that the beginning of the recording is missing.
    pub notices: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WhatIfDocument {
    /// What was changed, as it was asked.
    pub change: String,
    /// What the cluster at the end of the recording comes to if nothing more happens.
    pub as_it_is: RestDocument,
    /// The same with the change.
    pub changed: RestDocument,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestDocument {
    /// Nodes of pools.
    pub nodes: usize,
    /// US dollars an hour.
    pub usd_per_hour: String,
    /// Pods without a place.
    pub waiting_pods: usize,
}

impl From<Rest> for RestDocument {
    fn from(rest: Rest) -> Self {
        Self { nodes: rest.nodes, usd_per_hour: rest.price.to_string(), waiting_pods: rest.waiting }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DifferenceDocument {
    pub at: String,
    /// Its place among the decisions, from 1.
    pub number: u64,
    pub what: String,
    /// What was recorded; null: nothing in this place.
    pub recorded: Option<String>,
    /// What was decided now; null: nothing in this place.
    pub replayed: Option<String>,
    /// Something before it is missing in the recording, which alone may be why.
    pub approximate: bool,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let what_if = args.what_if.as_ref().map(|text| text.parse::<WhatIf>());
    let what_if = what_if.transpose().map_err(|error| {
        Failure::usage(error.to_string())
            .help(format!("the fields of a pool that can be asked about are {FIELDS}"))
    })?;
    let page = args.report.prepare()?;
    let replay = replay(args, Replay::asking(what_if.clone()), console)?;
    let compared = match &what_if {
        Some(what_if) => Some(at_the_end(args, what_if, console)?),
        None => None,
    };
    if let Some(file) = page {
        draw(args, file, console)?;
    }
    let document = document(replay.outcome(), compared);
    if console.is_json() {
        console.json(&document)?;
    } else {
        document.notices.iter().for_each(|notice| console.notice(notice));
        console.data(&text(&document, console))?;
    }
    Ok(if document.same { Exit::Done } else { Exit::No })
}

fn replay(args: &Args, mut replay: Replay, console: &Console) -> Result<Replay, Failure> {
    let progress = Progress::start(console, "replaying");
    let mut lines: u64 = 0;
    read_lines(
        &args.recording,
        &mut replay,
        |replay, line| {
            lines += 1;
            if lines.is_multiple_of(4096) {
                progress.step("replaying", &counted(lines, "line"));
            }
            Ok(if replay.take(line)? { Next::Line } else { Next::Nothing })
        },
        Replay::note_torn,
    )?;
    Ok(replay)
}

/// Draws what was recorded, whatever would be decided today.
fn draw(args: &Args, file: ReportFile, console: &Console) -> Result<(), Failure> {
    let progress = Progress::start(console, "drawing");
    let mut told = (Reader::default(), Chronicle::default());
    read_lines(
        &args.recording,
        &mut told,
        |(reader, chronicle), line| {
            if let Some(line) = reader.read::<Decided>(line)? {
                chronicle.read(line);
            }
            Ok(Next::Line)
        },
        |(_, chronicle), file, why| chronicle.note_torn(file, why),
    )?;
    drop(progress);
    let recording = args.recording.display().to_string();
    let command = command_line(["provisor", "replay", &recording]);
    write(file, told.1, None, &About { command, ..About::default() }, console)
}

/// What the cluster that was recorded comes to, as it is and with the change.
fn at_the_end(args: &Args, what_if: &WhatIf, console: &Console) -> Result<WhatIfDocument, Failure> {
    let replay = replay(args, Replay::default(), console)?;
    let no_pool = || {
        let pools = replay.engine().into_iter().flat_map(|engine| engine.cluster().pools.keys());
        let pools: Vec<&str> = pools.map(|name| name.as_str()).collect();
        Failure::input(format!("at its end the recording has no pool `{}`", what_if.pool))
            .help(format!("it has {}", pools.join(", ")))
    };
    let end = replay.last_moment();
    let compared = replay.engine().zip(end).and_then(|(engine, now)| what_if.compare_at_rest(engine, now));
    let (as_it_is, changed) = compared.ok_or_else(no_pool)?;
    Ok(WhatIfDocument { change: what_if.to_string(), as_it_is: as_it_is.into(), changed: changed.into() })
}

fn document(outcome: Outcome, what_if: Option<WhatIfDocument>) -> ReplayDocument {
    let difference = outcome.difference.map(|difference| DifferenceDocument {
        at: difference.at.to_string(),
        number: difference.number,
        what: difference.what,
        recorded: difference.recorded,
        replayed: difference.replayed,
        approximate: difference.is_approximate,
    });
    ReplayDocument {
        version: 1,
        same: difference.is_none(),
        runs: outcome.runs,
        observations: outcome.observations,
        decisions: outcome.decisions,
        unjudged: outcome.unjudged,
        actions: outcome.actions,
        from: outcome.first.map(|at| at.to_string()),
        to: outcome.last.map(|at| at.to_string()),
        difference,
        what_if,
        notices: outcome.notices,
    }
}

fn text(document: &ReplayDocument, console: &Console) -> String {
    let decisions = counted(document.decisions, "decision");
    let span = document.from.as_ref().zip(document.to.as_ref()).map_or_else(String::new, |(from, to)| {
        let moment = |text: &str| text.parse::<jiff::Timestamp>().unwrap_or_default();
        format!(", {} from {from}", render_duration(moment(to).duration_since(moment(from))))
    });
    let at_rest = document.what_if.as_ref().map(at_rest).unwrap_or_default();
    let Some(difference) = &document.difference else {
        return format!(
            "{}: {decisions}, {}{span}\n{at_rest}",
            console.paint(Tone::Good, "same"),
            counted(document.actions, "action"),
        );
    };
    let nothing = || "nothing".to_owned();
    let approximate = if difference.approximate {
        "the recording has no beginning, or a gap, before it: that alone may be why\n"
    } else {
        ""
    };
    format!(
        "{} at {}, decision {}: {}\n  recorded: {}\n  now:      {}\n{approximate}{at_rest}",
        console.paint(Tone::Bad, "differs"),
        difference.at,
        difference.number,
        difference.what,
        difference.recorded.clone().unwrap_or_else(nothing),
        difference.replayed.clone().unwrap_or_else(nothing),
    )
}

fn at_rest(asked: &WhatIfDocument) -> String {
    let told = |rest: &RestDocument| {
        let waiting = counted(rest.waiting_pods, "pod");
        format!("{}, ${} an hour, {waiting} without a place", counted(rest.nodes, "node"), rest.usd_per_hour)
    };
    format!(
        "at the end, left alone, the cluster comes to\n  as it is: {}\n  with {}: {}\n",
        told(&asked.as_it_is),
        asked.change,
        told(&asked.changed),
    )
}
