//! `provisor migrate`: strategy files in the newest version of the language, rewritten word by word.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Serialize;

use super::rewrite;
use crate::gitops::fleet::{FLEET_FILE, Fleet};
use crate::gitops::migrate::{MigratedFile, migrate, texts};
use crate::model::count::counted;
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};
use crate::ui::table::Table;

/// Rewrite strategy files of an older format version; comments, order and spaces stay
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Only the words that have another name today are replaced, and `format_version`. A file that cannot be rewritten safely
stops the whole: then nothing is written, and the place is shown. Commit the result like any other change.

Exit codes: 0 done, also if there was nothing to do; 1 with --check if there is; 2 a file is wrong; 3 it cannot be written.

Examples:
  provisor migrate                  the files of this directory
  provisor migrate fleet --check    only say what would change, for CI")]
pub struct Args {
    /// The directory of the fleet
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// Write nothing; exit with 1 if a file would change
    #[arg(long)]
    check: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct MigrateDocument {
    version: u32,
    /// False with `--check`.
    written: bool,
    files: Vec<FileDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct FileDocument {
    file: String,
    changes: Vec<ChangeDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ChangeDocument {
    /// From 1.
    line: u32,
    from: String,
    to: String,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let repository = rewrite::read(&args.dir)?;
    if !repository.files.contains_key(FLEET_FILE) {
        // Nothing here could be in an old version; this says why there is no fleet.
        Fleet::load(&repository)?;
    }
    let files = migrate(&repository)?;
    if !args.check && !files.is_empty() {
        rewrite::write(&args.dir, &texts(&files))?;
    }
    if console.is_json() {
        console.json(&MigrateDocument {
            version: 1,
            written: !args.check,
            files: files.iter().map(file).collect(),
        })?;
    } else if files.is_empty() {
        console.talk("Every file is in the newest version.");
    } else {
        let mut table = Table::new(&["FILE", "LINE", "FROM", "TO"]);
        for file in &files {
            for change in &file.changes {
                table.row([
                    file.path.to_string(),
                    change.line.to_string(),
                    change.from.clone(),
                    change.to.clone(),
                ]);
            }
        }
        console.data(&table.to_string())?;
        let done = if args.check { "would be rewritten" } else { "rewritten" };
        console.talk(&format!("{} {done}", counted(files.len(), "file")));
    }
    Ok(if args.check && !files.is_empty() { Exit::No } else { Exit::Done })
}

fn file(file: &MigratedFile) -> FileDocument {
    let change = |change: &crate::gitops::migrate::WordChange| ChangeDocument {
        line: change.line,
        from: change.from.clone(),
        to: change.to.clone(),
    };
    FileDocument { file: file.path.to_string(), changes: file.changes.iter().map(change).collect() }
}
