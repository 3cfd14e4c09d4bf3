//! `provisor replay`: a recording decided again, and the first decision that differs.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use super::recording::{Next, read_lines};
use crate::model::count::counted;
use crate::model::time::render_duration;
use crate::simulator::replay::{Outcome, Replay};
use crate::ui::console::{Console, Tone};
use crate::ui::exit::{Exit, Failure};
use crate::ui::progress::Progress;

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
  zstd -dc day.jsonl.zst | jq .                             the recording itself")]
pub struct Args {
    /// The file, or the directory with all files, of a recording
    #[arg(value_name = "FILE_OR_DIR")]
    recording: PathBuf,
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
    /// Decisions that were compared.
    pub decisions: u64,
    pub actions: u64,
    /// The moments of the first and last event; null if there is none.
    pub from: Option<String>,
    pub to: Option<String>,
    /// The first decision that differs; nothing after it was compared.
    pub difference: Option<DifferenceDocument>,
    /// What has to be known of the answer, such as that the beginning of the recording is missing.
    pub notices: Vec<String>,
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
    let progress = Progress::start(console, "replaying");
    let mut replay = Replay::default();
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
    drop(progress);
    let document = document(replay.outcome());
    if console.is_json() {
        console.json(&document)?;
    } else {
        document.notices.iter().for_each(|notice| console.notice(notice));
        console.data(&text(&document, console))?;
    }
    Ok(if document.same { Exit::Done } else { Exit::No })
}

fn document(outcome: Outcome) -> ReplayDocument {
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
        actions: outcome.actions,
        from: outcome.first.map(|at| at.to_string()),
        to: outcome.last.map(|at| at.to_string()),
        difference,
        notices: outcome.notices,
    }
}

fn text(document: &ReplayDocument, console: &Console) -> String {
    let decisions = counted(document.decisions, "decision");
    let span = document.from.as_ref().zip(document.to.as_ref()).map_or_else(String::new, |(from, to)| {
        let moment = |text: &str| text.parse::<jiff::Timestamp>().unwrap_or_default();
        format!(", {} from {from}", render_duration(moment(to).duration_since(moment(from))))
    });
    let Some(difference) = &document.difference else {
        return format!(
            "{}: {decisions}, {}{span}\n",
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
        "{} at {}, decision {}: {}\n  recorded: {}\n  now:      {}\n{approximate}",
        console.paint(Tone::Bad, "differs"),
        difference.at,
        difference.number,
        difference.what,
        difference.recorded.clone().unwrap_or_else(nothing),
        difference.replayed.clone().unwrap_or_else(nothing),
    )
}
