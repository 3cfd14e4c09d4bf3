//! Whether an earlier review still speaks of what would be merged: a base that moved elsewhere changes nothing in it.

use std::path::Path;

use serde::Deserialize;

use super::Args;
use crate::gitops::reads::{Reads, WatchPath};
use crate::model::repository::Repository;
use crate::ui::cli::plan::read_input;
use crate::ui::cli::repository::{CommitArgs, Proposal, open, open_proposal};
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};
use crate::ui::play::script_of;
use crate::ui::script::SCRIPT;

/// As much of a report as has to be known.
#[derive(Deserialize)]
struct Report {
    version: u32,
    base: Side,
    head: Side,
    environments: Vec<Environment>,
}

#[derive(Deserialize)]
struct Side {
    commit: String,
}

#[derive(Deserialize)]
struct Environment {
    name: String,
    change: String,
}

pub fn still_holds(args: &Args, file: &Path, at: &CommitArgs, console: &Console) -> Result<Exit, Failure> {
    let report = read(file)?;
    let Proposal { base, head, .. } = open_proposal(&args.repo, args.base(), &args.head, at, console)?;
    let stale = if head.revision.commit.to_string() != report.head.commit {
        Some(format!("the proposal is {} now, and was {}", head.revision.commit, report.head.commit))
    } else if base.revision.commit.to_string() == report.base.commit {
        None
    } else {
        let at = CommitArgs { reference: Some(report.base.commit.clone()), ..at.clone() };
        let former = open(&args.repo, &at, console)?;
        let changed: Vec<&str> = report
            .environments
            .iter()
            .filter(|environment| environment.change != "unchanged")
            .map(|environment| environment.name.as_str())
            .filter(|name| reads_differ(name, &former, &base, &head))
            .collect();
        let message = || {
            let (from, to) = (&report.base.commit, &base.revision.commit);
            format!("the base went from {from} to {to}, which changes what {} reads", changed.join(", "))
        };
        (!changed.is_empty()).then(message)
    };
    match stale {
        Some(why) => {
            console.data(&format!("stale: {why}\n"))?;
            Ok(Exit::Stale)
        }
        None => {
            console.data("holds: nothing that the review read has changed\n")?;
            Ok(Exit::Done)
        }
    }
}

fn read(file: &Path) -> Result<Report, Failure> {
    let (bytes, name) = read_input(file)?;
    let report: Report = serde_json::from_slice(&bytes)
        .map_err(|error| Failure::input(format!("{name} is no review: {error}")).help(WRITTEN_BY))?;
    if report.version != 1 {
        let message = format!("{name} is a review of version {}, and version 1 is known", report.version);
        return Err(Failure::input(message).help(WRITTEN_BY));
    }
    // What stands there is a commit, and never another way to name one.
    for side in [&report.base, &report.head] {
        let is_commit = side.commit.len() >= 40 && side.commit.bytes().all(|byte| byte.is_ascii_hexdigit());
        if !is_commit {
            let message = format!("{name} names no commit but `{}`", side.commit);
            return Err(Failure::input(message).help(WRITTEN_BY));
        }
    }
    Ok(report)
}

pub(super) const WRITTEN_BY: &str = "`provisor review --output json` writes what is expected here.";

/// Whether two bases differ in something that the review of an environment takes in.
fn reads_differ(name: &str, former: &Repository, base: &Repository, head: &Repository) -> bool {
    let mut watched = vec![SCRIPT.to_owned()];
    for side in [former, base] {
        watched.extend(script_of(side, Some(name)).map(|chosen| chosen.script.workloads).unwrap_or_default());
    }
    let watched: Vec<WatchPath> = watched.iter().filter_map(|path| WatchPath::parse(path).ok()).collect();
    [former, base, head].into_iter().any(|side| {
        let reads = Reads::of(side, name, &watched);
        reads.fingerprint(former) != reads.fingerprint(base)
    })
}
