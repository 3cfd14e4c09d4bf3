//! Recordings on the command line: where to write one, and how to read it.

use std::path::{Path, PathBuf};

use crate::capacity::recording::Unreadable;
use crate::controllers::recorder::Place;
use crate::io::clock;
use crate::io::recording::{Cap, RecordingError, Segment, segments};
use crate::model::quantity::Quantity;
use crate::ui::console::Console;
use crate::ui::exit::Failure;
use crate::ui::play::Play;

/// Where a simulation is recorded.
#[derive(Debug, clap::Args)]
pub struct RecordFileArgs {
    /// Record everything that is seen and decided into this file, for `provisor replay` and `provisor why`
    #[arg(long, value_name = "FILE")]
    record: Option<PathBuf>,
}

impl RecordFileArgs {
    /// Before the first turn.
    pub fn begin(&self, play: &mut Play) {
        if let Some(path) = &self.record {
            let run = format!("seed-{}", play.script.seed);
            play.reconciler.record(Place::File(path.clone()), run);
        }
    }

    /// Whoever asked for a recording wants to know that there is none.
    pub fn end(&self, play: &mut Play) -> Result<(), Failure> {
        Ok(play.reconciler.end_recording()?)
    }
}

/// Where a cluster is recorded for as long as it runs.
#[derive(Debug, clap::Args)]
pub struct RecordDirectoryArgs {
    /// Record everything that is seen and decided into files of this directory, for `provisor replay` and `provisor why`
    #[arg(long, value_name = "DIR", env = "PROVISOR_RECORD")]
    record: Option<PathBuf>,
    /// What all files of the recording may have together; the oldest are deleted
    #[arg(long, value_name = "SIZE", default_value = "1Gi", env = "PROVISOR_RECORD_MAX")]
    record_max: String,
}

/// Below this nothing useful could be kept.
const TOTAL_MIN: i64 = 16 << 20;

impl RecordDirectoryArgs {
    pub fn begin(&self, play: &mut Play) -> Result<(), Failure> {
        if let Some(place) = self.place()? {
            play.reconciler.record(place, run_now());
        }
        Ok(())
    }

    /// Losing a recording changes nothing about the cluster.
    pub fn end(&self, play: &mut Play, console: &Console) {
        if let Err(error) = play.reconciler.end_recording() {
            console.complain(&Failure::from(error));
        }
    }

    /// Where to record, if anything is to be.
    pub fn place(&self) -> Result<Option<Place>, Failure> {
        let help = "write it such as `1Gi` or `500Mi`, at least 16Mi";
        let refused = || Failure::usage(format!("`--record-max {}` is no size", self.record_max)).help(help);
        let total: Quantity = self.record_max.parse().map_err(|_| refused())?;
        let total = Some(total.units()).filter(|total| *total >= TOTAL_MIN).ok_or_else(refused)?;
        let cap = Cap::of(total.unsigned_abs());
        Ok(self.record.clone().map(|path| Place::Directory { path, cap }))
    }
}

/// A name for a life of the engine that begins now. By name, lives are in the order of time.
pub fn run_now() -> String {
    clock::now().strftime("%Y%m%dT%H%M%S.%6fZ").to_string()
}

/// What a reader of lines wants next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Line,
    Nothing,
}

/// Goes through all lines of a recording, oldest first. `torn` hears of files that end in the middle.
pub fn read_lines<R>(
    path: &Path,
    reader: &mut R,
    mut line: impl FnMut(&mut R, &str) -> Result<Next, Unreadable>,
    mut torn: impl FnMut(&mut R, &str, &str),
) -> Result<(), Failure> {
    for path in segments(path)? {
        let segment = Segment::open(&path)?;
        let mut number = 0;
        for block in &segment.blocks {
            let text = segment.text(block)?;
            for words in text.lines.lines() {
                number += 1;
                match line(reader, words) {
                    Ok(Next::Line) => {}
                    Ok(Next::Nothing) => return Ok(()),
                    Err(error) => return Err(unreadable(&path, number, &error)),
                }
            }
            if let Some(why) = &text.torn {
                torn(reader, &path.display().to_string(), why);
            }
        }
    }
    Ok(())
}

/// A line that cannot be understood.
pub fn unreadable(path: &Path, number: usize, error: &Unreadable) -> Failure {
    let help = match error {
        Unreadable::Newer { .. } => "use that version of Provisor, or a newer one",
        Unreadable::NoHeader => "name a file that `--record` wrote",
        _ => "the file was changed, or written by something else; copy it anew",
    };
    let failure = Failure::input(format!("{}: line {number}: {error}", path.display())).help(help);
    match std::error::Error::source(error) {
        Some(cause) => failure.caused_by(cause),
        None => failure,
    }
}

impl From<RecordingError> for Failure {
    fn from(error: RecordingError) -> Self {
        let failure = match &error {
            RecordingError::Io { what: "read", .. }
            | RecordingError::Empty { .. }
            | RecordingError::TooLarge { .. }
            | RecordingError::NoRecording { .. } => Self::input(error.to_string()),
            RecordingError::Io { .. } | RecordingError::TooLong { .. } => Self::outside(error.to_string()),
        };
        let failure = failure.help(error.help());
        match std::error::Error::source(&error) {
            Some(cause) => failure.caused_by(cause),
            None => failure,
        }
    }
}
