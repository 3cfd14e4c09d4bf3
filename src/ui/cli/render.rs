//! `provisor render`: the Kubernetes objects that a fleet stands for.

use std::borrow::Cow;

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::document::OriginDocument;
use super::repository::RepositoryArgs;
use super::validate::settings;
use crate::gitops::desired::DesiredState;
use crate::gitops::diagnostic::{Diagnostic, Diagnostics};
use crate::gitops::render::{RenderSettings, Rendered, check_determinism, render_all, render_environment};
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
    let (states, warnings) = states(&repository, args.environment.as_deref(), &settings)?;
    console.warn(&sorted(warnings));
    if args.check_determinism {
        for state in &states {
            check_determinism(&repository, &state.environment, &settings)?;
        }
    }
    if console.is_json() {
        console.json(&RenderDocument { version: 1, environments: states.iter().map(document).collect() })?;
    } else {
        let is_one = states.len() == 1;
        let mut text = String::new();
        for state in &states {
            if !is_one {
                text.push_str(&format!("# Environment {}\n", state.environment));
            }
            text.push_str(&yaml(state, args.origins)?);
        }
        console.data(&text)?;
    }
    Ok(Exit::Done)
}

pub fn sorted(found: Vec<Diagnostic>) -> Diagnostics {
    let mut all = Diagnostics::default();
    all.extend(found);
    all.sorted()
}

/// The named environment, or all that can be rendered, with their warnings.
pub fn states(
    repository: &Repository,
    environment: Option<&str>,
    settings: &RenderSettings,
) -> Result<(Vec<DesiredState>, Vec<Diagnostic>), Failure> {
    let rendered: Vec<Result<Rendered, Diagnostics>> = match environment {
        Some(name) => vec![render_environment(repository, name, settings)],
        None => render_all(repository, settings)?.into_values().collect(),
    };
    let mut states = Vec::new();
    let mut warnings = Vec::new();
    let mut mistakes = Diagnostics::default();
    for one in rendered {
        match one {
            Ok((state, found)) => {
                states.push(state);
                warnings.extend(found);
            }
            Err(found) => mistakes.extend(found),
        }
    }
    if mistakes.is_empty() { Ok((states, warnings)) } else { Err(mistakes.sorted().into()) }
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
