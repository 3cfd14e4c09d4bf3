//! `provisor lock`: what changes outside of Git written down, so that a commit renders the same for ever.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::rewrite;
use crate::gitops::diagnostic::Diagnostics;
use crate::gitops::lock::{Entry, LOCK_FILE, LockChange, LockFailure, Renewal};
use crate::gitops::render::lock_of;
use crate::model::near::nearest;
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};
use crate::ui::table::Table;

/// Write provisor.lock: prices, instance types and image versions that templates and classes ask for
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The fleet is rendered to learn what it asks for. What the lock has stays as it is; what it lacks is taken from the
built-in catalogue; what nobody asks for goes. Versions of images are yours to give. Commit the result.

Exit codes: 0 done, also if there was nothing to do; 1 with --check if there is; 2 a file is wrong or a version is missing.

Examples:
  provisor lock                              add what is missing, in this directory
  provisor lock --image al2023=v20250920     what `ami = \"al2023@locked\"` means from now on
  provisor lock fleet --update               today's prices and facts for all entries
  provisor lock --check                      is the lock complete? For CI; writes nothing")]
pub struct Args {
    /// The directory of the fleet
    #[arg(value_name = "DIR", default_value = ".")]
    dir: PathBuf,
    /// The version of an image family; once for each
    #[arg(long = "image", value_name = "FAMILY=VERSION", value_parser = image)]
    images: Vec<(String, String)>,
    /// Look everything up again, not only what is missing
    #[arg(long)]
    update: bool,
    /// Write nothing; exit with 1 if the lock would change
    #[arg(long)]
    check: bool,
}

fn image(text: &str) -> Result<(String, String), String> {
    let (family, version) = text.split_once('=').ok_or("write FAMILY=VERSION, such as al2023=v20250920")?;
    let is_word = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    };
    if !is_word(family) || !is_word(version) {
        return Err("write FAMILY=VERSION, such as al2023=v20250920".into());
    }
    // No image has another form of version, and one of a wrong form is found by nobody.
    let digits = version.strip_prefix('v').unwrap_or_default();
    if !digits.starts_with(|letter: char| letter.is_ascii_digit()) {
        let meant =
            if version.starts_with(|letter: char| letter.is_ascii_digit()) { version } else { "20250920" };
        return Err(format!("`{version}` is no version: name one, such as v{meant}"));
    }
    Ok((family.to_owned(), version.to_owned()))
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct LockDocument {
    version: u32,
    file: String,
    /// False with `--check`, and if nothing changed.
    written: bool,
    /// Entries that stayed as they are.
    kept: usize,
    changes: Vec<ChangeDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ChangeDocument {
    /// `images.al2023` or `catalog.us-east-1.m7i.large`.
    entry: String,
    /// Null if it is new.
    from: Value,
    /// Null if it goes.
    to: Value,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let repository = rewrite::read(&args.dir)?;
    let images: BTreeMap<Arc<str>, Arc<str>> = args
        .images
        .iter()
        .map(|(family, version)| (family.as_str().into(), version.as_str().into()))
        .collect();
    let renewal = if args.update { Renewal::All } else { Renewal::Missing };
    let plan = lock_of(&repository, &images, renewal).map_err(refused)?;
    let is_changed = !plan.changes.is_empty();
    if is_changed && !args.check {
        let text = plan.lock.to_text();
        let file = BTreeMap::from([(Arc::from(LOCK_FILE), Arc::from(text.as_bytes()))]);
        rewrite::write(&args.dir, &file)?;
    }
    if console.is_json() {
        console.json(&LockDocument {
            version: 1,
            file: LOCK_FILE.into(),
            written: is_changed && !args.check,
            kept: plan.kept,
            changes: plan.changes.iter().map(change).collect(),
        })?;
    } else if is_changed {
        let mut table = Table::new(&["ENTRY", "CHANGE", "DETAIL"]);
        for change in &plan.changes {
            let (word, detail) = told(change);
            table.row([entry(&change.entry), word.to_owned(), detail]);
        }
        console.data(&table.to_string())?;
        let done = if args.check { "would change" } else { "written; commit it" };
        console.talk(&format!("{LOCK_FILE} {done} ({} kept)", plan.kept));
    } else {
        console.talk(&format!("{LOCK_FILE} has everything that is asked for ({} entries)", plan.kept));
    }
    Ok(if args.check && is_changed { Exit::No } else { Exit::Done })
}

fn refused(failure: LockFailure) -> Failure {
    match failure {
        LockFailure::Files(found) => {
            let mut all = Diagnostics::default();
            all.extend(found);
            all.sorted().into()
        }
        LockFailure::Unasked { family, asked } => {
            let known = asked.iter().map(|family| &**family);
            let help = match nearest(&family, known.clone()) {
                Some(near) => format!("did you mean {near}?"),
                None if asked.is_empty() => {
                    format!(
                        "write `ami = \"{family}@locked\"` into a class first; what nobody asks for is not kept"
                    )
                }
                None => format!("asked for are {}", known.collect::<Vec<_>>().join(", ")),
            };
            Failure::input(format!("no class asks for a locked version of the image `{family}`")).help(help)
        }
        LockFailure::Unknown(entries) => {
            let names: Vec<String> = entries.iter().map(ToString::to_string).collect();
            let commands: Vec<String> = entries.iter().map(Entry::command).collect();
            Failure::input(format!("nobody said the {}", names.join(", nor the ")))
                .help(format!("run `{}` with the version you want, such as v20250920", commands.join("`, `")))
        }
    }
}

fn entry(entry: &Entry) -> String {
    match entry {
        Entry::Image { family } => format!("images.{family}"),
        Entry::Type { region, name } => format!("catalog.{region}.{name}"),
    }
}

fn change(change: &LockChange) -> ChangeDocument {
    ChangeDocument {
        entry: entry(&change.entry),
        from: change.from.clone().unwrap_or_default(),
        to: change.to.clone().unwrap_or_default(),
    }
}

/// What happens to an entry, and the values that differ.
fn told(change: &LockChange) -> (&'static str, String) {
    match (&change.from, &change.to) {
        (None, Some(Value::String(version))) => ("new", version.clone()),
        (None, _) => ("new", "from the built-in catalogue".to_owned()),
        (Some(_), None) => ("gone", "nobody asks for it".to_owned()),
        (Some(Value::Object(old)), Some(Value::Object(new))) => {
            let keys: std::collections::BTreeSet<&String> = old.keys().chain(new.keys()).collect();
            let differs = |key: &&&String| old.get(**key) != new.get(**key);
            let shown = |value: Option<&Value>| crate::gitops::diff::show(value).into_owned();
            let fields = keys
                .iter()
                .filter(differs)
                .map(|key| format!("{key} {} → {}", shown(old.get(*key)), shown(new.get(*key))));
            ("changed", fields.collect::<Vec<_>>().join(", "))
        }
        (Some(old), Some(new)) => {
            let shown = |value| crate::gitops::diff::show(Some(value)).into_owned();
            ("changed", format!("{} → {}", shown(old), shown(new)))
        }
    }
}
