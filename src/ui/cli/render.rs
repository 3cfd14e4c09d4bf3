//! `provisor render`: the Kubernetes objects that a fleet stands for.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::document::OriginDocument;
use super::repository::RepositoryArgs;
use super::validate::settings;
use crate::gitops::desired::DesiredState;
use crate::gitops::diagnostic::{Diagnostic, Diagnostics, listed};
use crate::gitops::render::{RenderSettings, check_determinism, render_all, render_environment};
use crate::model::count::agreeing;
use crate::model::repository::Repository;
use crate::model::visible::{visible, visible_yaml};
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};

/// Print the Kubernetes objects that an environment stands for
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  provisor render dev                           one environment as YAML
  provisor render dev | kubectl diff -f -       against a cluster
  provisor render                               all environments
  provisor render prod --repo https://git.example.com/fleet.git --ref v1.4.0")]
pub struct Args {
    /// An environment by name; all that are not abstract by default
    #[arg(value_name = "ENV")]
    environment: Option<String>,
    #[command(flatten)]
    repository: RepositoryArgs,
    /// Say above every object where it comes from
    #[arg(long)]
    origins: bool,
    /// Render twice with all tables turned round, and fail if the output depends on their order
    #[arg(long)]
    check_determinism: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct RenderDocument {
    version: u32,
    environments: Vec<EnvironmentDocument>,
    /// Environments that cannot be rendered; the error on stderr says why.
    broken: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct EnvironmentDocument {
    name: String,
    /// The commit, or 64 digits that stand for the files of a directory.
    commit: String,
    /// Names the objects by their content.
    digest: String,
    objects: Vec<ObjectDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct ObjectDocument {
    manifest: Value,
    /// Where the object comes from.
    origin: Option<OriginDocument>,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let repository = args.repository.open(console)?;
    let settings = settings();
    let States { states, warnings, broken } = states(&repository, args.environment.as_deref(), &settings)?;
    console.warn(&sorted(warnings));
    if args.check_determinism {
        for state in &states {
            check_determinism(&repository, &state.environment, &settings)?;
        }
    }
    if console.is_json() {
        console.json(&RenderDocument {
            version: 1,
            environments: states.iter().map(document).collect(),
            broken: broken.keys().map(ToString::to_string).collect(),
        })?;
    } else {
        let is_one = states.len() + broken.len() == 1;
        let mut text = String::new();
        for state in &states {
            if !is_one {
                text.push_str(&format!("# Environment {}\n", state.environment));
            }
            text.push_str(&yaml(state, args.origins)?);
        }
        console.data(&text)?;
    }
    match broken.is_empty() {
        true => Ok(Exit::Done),
        false => Err(but_not(broken, "rendered")),
    }
}

/// What is told of broken environments once the others were `done`.
pub fn but_not(broken: BTreeMap<Arc<str>, Diagnostics>, done: &str) -> Failure {
    let verb = agreeing(broken.len(), "is", "are");
    let names = listed(broken.keys().map(|name| &**name));
    let mut mistakes = Diagnostics::default();
    broken.into_values().for_each(|found| mistakes.extend(found));
    let mut failure = Failure::from(mistakes.sorted());
    failure.message = format!("{names} {verb} not {done}; the other environments are");
    failure
}

pub fn sorted(found: Vec<Diagnostic>) -> Diagnostics {
    let mut all = Diagnostics::default();
    all.extend(found);
    all.sorted()
}

/// Environments that were rendered, with their warnings, and the mistakes of those that could not be.
pub struct States {
    pub states: Vec<DesiredState>,
    pub warnings: Vec<Diagnostic>,
    pub broken: BTreeMap<Arc<str>, Diagnostics>,
}

/// The named environment, or all that can be rendered. Fails if there is nothing to show.
pub fn states(
    repository: &Repository,
    environment: Option<&str>,
    settings: &RenderSettings,
) -> Result<States, Failure> {
    let rendered = match environment {
        Some(name) => [(name.into(), render_environment(repository, name, settings))].into(),
        None => render_all(repository, settings)?,
    };
    let mut all = States { states: Vec::new(), warnings: Vec::new(), broken: BTreeMap::new() };
    for (name, one) in rendered {
        match one {
            Ok((state, found)) => {
                all.states.push(state);
                all.warnings.extend(found);
            }
            Err(found) => drop(all.broken.insert(name, found)),
        }
    }
    if all.states.is_empty() && !all.broken.is_empty() {
        let mut mistakes = Diagnostics::default();
        all.broken.into_values().for_each(|found| mistakes.extend(found));
        return Err(mistakes.sorted().into());
    }
    Ok(all)
}

fn document(state: &DesiredState) -> EnvironmentDocument {
    EnvironmentDocument {
        name: state.environment.to_string(),
        commit: state.revision.commit.to_string(),
        digest: state.digest.to_string(),
        objects: state
            .objects
            .values()
            .map(|object| ObjectDocument {
                manifest: object.manifest.clone(),
                origin: object.origin("").map(OriginDocument::from),
            })
            .collect(),
    }
}

fn yaml(state: &DesiredState, with_origins: bool) -> Result<String, Failure> {
    let mut text = String::new();
    for object in state.objects.values() {
        text.push_str("---\n");
        if with_origins && let Some(origin) = object.origin("") {
            text.push_str(&format!("# {origin}\n"));
        }
        text.push_str(document_text(&object.manifest)?.trim_end());
        text.push('\n');
    }
    Ok(text)
}

/// As YAML; in the form of JSON, which is YAML too, if it holds a letter that cannot be seen: there every letter has an escape.
fn document_text(manifest: &Value) -> Result<String, Failure> {
    let text = serde_saphyr::to_string(manifest)
        .map_err(|error| Failure::outside("the objects cannot be written as YAML").caused_by(&error))?;
    match visible(&text) {
        Cow::Borrowed(_) => Ok(text),
        Cow::Owned(_) => Ok(visible_yaml(&format!("{manifest:#}")).into_owned()),
    }
}
