//! `provisor validate`: a whole repository judged, every mistake with its place.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::catalog::REGION;
use super::document::DiagnosticDocument;
use super::repository::{self, CommitArgs};
use crate::gitops::check::Instances;
use crate::gitops::render::{RenderSettings, Report, validate_repository};
use crate::io::clock::now_in_seconds;
use crate::model::catalog::Catalog;
use crate::model::count::counted;
use crate::ui::console::{Console, Tone};
use crate::ui::exit::{Exit, Failure};
use crate::ui::script;

/// Judge a fleet repository: every file, environment and template, and its simulation.toml
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Exit codes: 0 everything is right (warnings may be shown), 2 something is wrong.

Examples:
  provisor validate                                      the files of this directory
  provisor validate fleet --ref main                     the last commit of a branch
  provisor validate fleet --ref HEAD~1                   the commit before the last
  provisor validate fleet --semver '>=1.0 <2.0'          the newest tag in a range of versions
  provisor validate https://git.example.com/fleet.git    a repository elsewhere
  provisor validate --output json | jq '.diagnostics[].message'")]
pub struct Args {
    /// A directory, read as it is on disk, or the address of a Git repository
    #[arg(value_name = "DIR_OR_URL", default_value = ".")]
    place: String,
    #[command(flatten)]
    at: CommitArgs,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ValidateDocument {
    version: u32,
    valid: bool,
    /// Files that were read.
    files: usize,
    /// Node pools of all environments together.
    pools: usize,
    errors: usize,
    warnings: usize,
    environments: Vec<EnvironmentDocument>,
    /// Errors and warnings by file and position, at most fifty.
    diagnostics: Vec<DiagnosticDocument>,
    /// How many more there are.
    hidden: usize,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct EnvironmentDocument {
    name: String,
    file: String,
    /// Only extended, never rendered.
    is_abstract: bool,
    /// Names the rendered objects by their content; null if there are none or something is wrong.
    digest: Option<String>,
    objects: usize,
    pools: usize,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let repository = repository::open(&args.place, &args.at, console)?;
    let mut report = validate_repository(&repository, &settings());
    let mut found = Vec::new();
    script::judge(&repository, &mut found);
    report.diagnostics.extend(found);
    report.diagnostics = report.diagnostics.sorted();
    let is_valid = report.is_valid() && (!args.strict || report.diagnostics.is_empty());
    let pools: usize = report.environments.iter().map(|environment| environment.pools).sum();
    if console.is_json() {
        console.json(&document(&report, is_valid, pools))?;
    }
    let failure = Failure { diagnostics: report.diagnostics.clone(), ..Failure::input("") };
    let errors = report.diagnostics.errors();
    let warnings = report.diagnostics.len() - errors;
    if !is_valid {
        if !console.is_json() {
            console.complain(&failure);
            let found = [(errors, "error"), (warnings, "warning")];
            let found: Vec<String> = found
                .iter()
                .filter(|(count, _)| *count > 0)
                .map(|(count, what)| counted(count, what))
                .collect();
            console.talk(&format!("\n{} in {}", found.join(", "), counted(report.files, "file")));
            return Ok(Exit::Input);
        }
        return Err(failure);
    }
    if !console.is_json() {
        console.complain(&failure);
        console.data(&format!(
            "{}, {}, {}: {}\n",
            counted(report.files, "file"),
            counted(report.environments.len(), "environment"),
            counted(pools, "pool"),
            console.paint(Tone::Good, "ok")
        ))?;
    }
    Ok(Exit::Done)
}

/// What is known besides the commit: the instance types that exist. Their names and shapes are the same in every region.
pub fn settings() -> RenderSettings {
    let types = Catalog::builtin(REGION).ok().map(|catalog| catalog.instance_types(None));
    RenderSettings {
        instances: types.map(|types| Arc::new(Instances::anywhere(types))),
        now: Some(now_in_seconds()),
        ..RenderSettings::default()
    }
}

fn document(report: &Report, is_valid: bool, pools: usize) -> ValidateDocument {
    let errors = report.diagnostics.errors();
    ValidateDocument {
        version: 1,
        valid: is_valid,
        files: report.files,
        pools,
        errors,
        warnings: report.diagnostics.len() - errors,
        environments: report
            .environments
            .iter()
            .map(|environment| EnvironmentDocument {
                name: environment.name.to_string(),
                file: environment.file.to_string(),
                is_abstract: environment.is_abstract,
                digest: environment.digest.as_ref().map(ToString::to_string),
                objects: environment.objects,
                pools: environment.pools,
            })
            .collect(),
        diagnostics: report.diagnostics.shown().iter().map(DiagnosticDocument::from).collect(),
        hidden: report.diagnostics.hidden(),
    }
}
