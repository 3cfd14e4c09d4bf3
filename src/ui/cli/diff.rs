//! `provisor diff`: two states of a fleet compared, field by field, each with what it does to nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Value, json};

use super::render::{but_not, states};
use super::repository::RepositoryArgs;
use crate::gitops::desired::DesiredState;
use crate::gitops::diagnostic::Diagnostics;
use crate::gitops::diff::{DiffKind, NodeImpact, ObjectDiff, diff_states, show, without_bookkeeping};
use crate::gitops::render::{RenderSettings, list_environments};
use crate::io::clock;
use crate::model::count::counted;
use crate::model::repository::{Repository, Revision};
use crate::ui::console::{Console, Tone};
use crate::ui::exit::{Exit, Failure};
use crate::ui::table::Table;

/// Compare two states of a fleet: what is on disk with a commit, two commits, or two environments
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 the same, 1 they differ, 2 the input is wrong.

Examples:
  provisor diff                          what is on disk against the last commit, all environments
  provisor diff prod --revision v1.4.0   what prod would become since that tag
  provisor diff prod --revision v1.4.0 --ref main
  provisor diff --revision HEAD~1        and what is on disk since the commit before the last
  provisor diff --env dev --env prod     what sets two environments apart")]
pub struct Args {
    /// An environment by name; all that are not abstract by default
    #[arg(value_name = "ENV", conflicts_with = "env")]
    environment: Option<String>,
    /// Compare two environments of one state: give it twice
    #[arg(long, value_name = "ENV", action = clap::ArgAction::Append, conflicts_with = "revision")]
    env: Vec<String>,
    /// The commit to compare with, as --ref names one: v1.4.0, main, HEAD~1, 8c1f0a9
    #[arg(long, value_name = "REF", default_value = "HEAD")]
    revision: String,
    #[command(flatten)]
    repository: RepositoryArgs,
    /// Exit with 0 although there are differences
    #[arg(long)]
    no_exit_code: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct DiffDocument {
    version: u32,
    same: bool,
    comparisons: Vec<Comparison>,
    /// Environments that cannot be compared because a side does not render; the error on stderr says why.
    broken: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Comparison {
    base: Side,
    head: Side,
    /// Objects that differ: `object`, `kind` (`added`, `changed`, `removed`), `impact`, `fields` with `path`, `from`, `to`,
    /// `origin` and `impact`.
    objects: Vec<Value>,
    #[serde(skip)]
    found: Vec<ObjectDiff>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Side {
    /// Null if the environment does not exist on this side.
    environment: Option<String>,
    /// Null for the files of a directory.
    commit: Option<String>,
    /// 64 digits that stand for the files of a directory; null for a commit.
    files: Option<String>,
    reference: Option<String>,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let mut broken = BTreeMap::new();
    let comparisons = match args.env.as_slice() {
        [] => between_commits(args, console, &mut broken)?,
        [base, head] => {
            let repository = args.repository.open(console)?;
            let (base, head) = (one(&repository, base)?, one(&repository, head)?);
            vec![compare(Some(&base), Some(&head), &repository, &repository)]
        }
        _ => {
            return Err(Failure::usage("`--env` names the two environments to compare")
                .help("provisor diff --env dev --env prod"));
        }
    };
    let same = broken.is_empty() && comparisons.iter().all(|comparison| comparison.found.is_empty());
    if console.is_json() {
        let names = broken.keys().map(ToString::to_string).collect();
        console.json(&DiffDocument { version: 1, same, comparisons, broken: names })?;
    } else {
        console.data(&text(&comparisons, console))?;
    }
    if !broken.is_empty() {
        return Err(but_not(broken, "compared"));
    }
    Ok(if same || args.no_exit_code { Exit::Done } else { Exit::No })
}

/// What all environments, or the named one, become. An environment that a side cannot render is `broken`, and keeps none of
/// the others back.
fn between_commits(
    args: &Args,
    console: &Console,
    broken: &mut BTreeMap<Arc<str>, Diagnostics>,
) -> Result<Vec<Comparison>, Failure> {
    let head = args.repository.open(console)?;
    let base = args.repository.open_at(&args.revision, console)?;
    let known_before = concrete(&base).map_err(|failure| of_commit(failure, &base))?;
    let known_after = concrete(&head).map_err(|failure| of_commit(failure, &head))?;
    let names: BTreeSet<&String> = match &args.environment {
        Some(name) => [name].into(),
        None => known_before.iter().chain(&known_after).collect(),
    };
    let mut comparisons = Vec::new();
    let mut first = None;
    for name in names {
        let (is_before, is_after) = (known_before.contains(name), known_after.contains(name));
        // A name that neither side knows is reported by rendering it.
        let side = |repository| one(repository, name).map_err(|failure| of_commit(failure, repository));
        let sides = is_before.then(|| side(&base)).transpose().and_then(|before| {
            let after = (is_after || !is_before).then(|| side(&head)).transpose()?;
            Ok((before, after))
        });
        match sides {
            Ok((before, after)) => {
                comparisons.push(compare(before.as_ref(), after.as_ref(), &base, &head));
            }
            Err(failure) if args.environment.is_some() => return Err(failure),
            Err(failure) => {
                broken.insert(name.as_str().into(), failure.diagnostics.clone());
                first.get_or_insert(failure);
            }
        }
    }
    match first {
        Some(failure) if comparisons.is_empty() => Err(failure),
        _ => Ok(comparisons),
    }
}

/// A failure of files that are not those on disk says whose they are.
fn of_commit(mut failure: Failure, repository: &Repository) -> Failure {
    if repository.is_directory() {
        return failure;
    }
    let whose =
        format!("the file as commit {} has it, not the one on disk", repository.revision.commit.short());
    let mut found = Diagnostics::default();
    found.extend(failure.diagnostics.iter().map(|one| one.clone().also(whose.as_str(), one.place.clone())));
    failure.diagnostics = found;
    failure
}

/// Names of the environments that can be rendered.
fn concrete(repository: &Repository) -> Result<Vec<String>, Failure> {
    let environments = list_environments(repository)?;
    let concrete = environments.into_iter().filter(|environment| !environment.is_abstract);
    Ok(concrete.map(|environment| environment.name.to_string()).collect())
}

fn one(repository: &Repository, environment: &str) -> Result<DesiredState, Failure> {
    let mut found = states(repository, Some(environment), &RenderSettings::at(clock::now_in_seconds()))?;
    found.states.pop().ok_or_else(|| {
        Failure::input(format!("there is no environment `{environment}`"))
            .help("`provisor validate` names those that there are.")
    })
}

fn compare(
    base: Option<&DesiredState>,
    head: Option<&DesiredState>,
    base_files: &Repository,
    head_files: &Repository,
) -> Comparison {
    let nothing = |other: &DesiredState| DesiredState { objects: Default::default(), ..other.clone() };
    let found = match (base, head) {
        (Some(base), Some(head)) => diff_states(base, head, None),
        (Some(base), None) => diff_states(base, &nothing(base), None),
        (None, Some(head)) => diff_states(&nothing(head), head, None),
        (None, None) => Vec::new(),
    };
    let found = found.into_iter().filter_map(without_bookkeeping).collect::<Vec<_>>();
    let side = |state: Option<&DesiredState>, repository: &Repository| {
        let Revision { commit, reference, .. } = &repository.revision;
        let is_directory = repository.is_directory();
        let id = || Some(commit.to_string());
        Side {
            environment: state.map(|state| state.environment.to_string()),
            commit: id().filter(|_| !is_directory),
            files: id().filter(|_| is_directory),
            reference: reference.as_ref().map(ToString::to_string),
        }
    };
    Comparison {
        base: side(base, base_files),
        head: side(head, head_files),
        objects: found.iter().map(|diff| json!(diff)).collect(),
        found,
    }
}

fn text(comparisons: &[Comparison], console: &Console) -> String {
    let mut parts = Vec::new();
    for comparison in comparisons.iter().filter(|comparison| !comparison.found.is_empty()) {
        let mut table = Table::new(&["OBJECT", "CHANGE", "FIELD", "FROM", "TO", "NODES", "WHERE"]);
        for diff in &comparison.found {
            let object = diff.object.to_string();
            let (symbol, word) = match diff.kind {
                DiffKind::Added => ('+', "added"),
                DiffKind::Removed => ('-', "removed"),
                DiffKind::Changed | DiffKind::Same => ('~', "changed"),
            };
            let change = format!("{symbol} {word}");
            let origin = |origin: &Option<_>| origin.as_ref().map(ToString::to_string).unwrap_or_default();
            if diff.fields.is_empty() {
                let impact = impact(diff.impact);
                table.row([object, change, "".into(), "".into(), "".into(), impact, origin(&diff.origin)]);
                continue;
            }
            for field in &diff.fields {
                table.row([
                    object.clone(),
                    change.clone(),
                    field.short_path().to_owned(),
                    show(field.from.as_ref()).into_owned(),
                    show(field.to.as_ref()).into_owned(),
                    impact(field.impact),
                    origin(&field.origin),
                ]);
            }
        }
        let title = match (&comparison.base.environment, &comparison.head.environment) {
            (Some(base), Some(head)) if base != head => format!("{base} → {head}"),
            (Some(base), None) => format!("{base} (removed)"),
            (None, Some(head)) => format!("{head} (new)"),
            (_, head) => head.clone().unwrap_or_default(),
        };
        let count = counted(comparison.found.len(), "object");
        let differ = if comparison.found.len() == 1 { "differs" } else { "differ" };
        parts.push(format!("{}: {count} {differ}\n{table}", console.paint(Tone::Strong, &title)));
    }
    parts.join("\n")
}

fn impact(impact: NodeImpact) -> String {
    match impact {
        NodeImpact::NoRoll => String::new(),
        impact => impact.to_string(),
    }
}
