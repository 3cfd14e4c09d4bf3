//! `provisor schema`: what a strategy file and an answer look like, for editors and other programs.

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::Serialize;

use super::document::output_schemas;
use crate::gitops::environment::definitions;
use crate::gitops::schema::{Draft, SchemaKind, lowered, schema_of};
use crate::simulator::script;
use crate::ui::console::Console;
use crate::ui::exit::{Exit, Failure};
use crate::ui::table::Table;

/// Print the schema of strategy files, of JSON answers and of the objects in a cluster
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  provisor schema                                            which schemas there are
  provisor schema environment > environment.schema.json      of environments/NAME.toml and .yaml
  provisor schema environment --draft 4                      for taplo and other TOML language servers
  provisor schema simulation --draft 4                       of simulation.toml
  provisor schema output/plan                                of `provisor plan --output json`
  provisor schema crd | kubectl apply --server-side -f -     teach a cluster the kinds")]
pub struct Args {
    /// `fleet`, `environment`, `simulation`, `output/VERB`, `crd` for every CustomResourceDefinition, or `crd/PLURAL` for one
    kind: Option<String>,
    /// The draft of JSON Schema for strategy files
    #[arg(long, value_enum, default_value_t)]
    draft: DraftChoice,
}

/// The answer of a bare `provisor schema --output json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct SchemaDocument {
    version: u32,
    schemas: Vec<SchemaEntry>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct SchemaEntry {
    /// What `provisor schema` takes.
    kind: String,
    /// What has this form.
    of: String,
}

/// The schema of a simulation's script.
const SIMULATION: &str = "simulation";

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum DraftChoice {
    #[default]
    #[value(name = "2020-12")]
    Latest,
    #[value(name = "4")]
    Four,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let Some(wanted) = &args.kind else { return list(console) };
    let draft = match args.draft {
        DraftChoice::Latest => Draft::Latest,
        DraftChoice::Four => Draft::Draft4,
    };
    if let Some(plural) = wanted.strip_prefix("crd") {
        let plural = plural.strip_prefix('/');
        let documents: Vec<String> = definitions()
            .iter()
            .filter(|definition| plural.is_none_or(|plural| plural == definition.plural))
            .map(|definition| format!("---\n{}", definition.yaml()))
            .collect();
        if documents.is_empty() {
            return Err(unknown(wanted));
        }
        console.data(&documents.concat())?;
        return Ok(Exit::Done);
    }
    if wanted == SIMULATION {
        let schema = match draft {
            Draft::Latest => script::schema(),
            Draft::Draft4 => lowered(script::schema()),
        };
        console.json_text(&format!("{schema:#}\n"))?;
        return Ok(Exit::Done);
    }
    let text = match (SchemaKind::parse(wanted), wanted.strip_prefix("output/")) {
        (Some(kind), _) => schema_of(kind, draft),
        (None, Some(verb)) => {
            let schemas = output_schemas();
            let (_, schema) =
                schemas.iter().find(|(name, _)| *name == verb).ok_or_else(|| unknown(wanted))?;
            format!("{schema:#}\n")
        }
        _ => return Err(unknown(wanted)),
    };
    console.json_text(&text)?;
    Ok(Exit::Done)
}

fn names() -> Vec<(String, String)> {
    let inputs = SchemaKind::ALL.into_iter().map(|kind| {
        let of = match kind {
            SchemaKind::Fleet => "fleet.toml",
            SchemaKind::Environment => "environments/NAME.toml, .yaml, .yml",
            SchemaKind::Policy => "policies/NAME.toml",
            SchemaKind::Lock => "provisor.lock",
        };
        (kind.name().to_owned(), of.to_owned())
    });
    let outputs = output_schemas().into_iter().map(|(verb, _)| {
        let of = match verb {
            "error" => "standard error under --output json, if a verb fails".to_owned(),
            "notice" => "standard error under --output json, a line for what a person should know".to_owned(),
            "run" | "demo" => format!("each line of provisor {verb} --output json"),
            verb => format!("provisor {verb} --output json"),
        };
        (format!("output/{verb}"), of)
    });
    let kinds = definitions().into_iter().map(|definition| {
        let of = format!("the CustomResourceDefinition of {}", definition.kind);
        (format!("crd/{}", definition.plural), of)
    });
    let script = [(SIMULATION.to_owned(), "simulation.toml".to_owned())];
    inputs.chain(script).chain(outputs).chain(kinds).collect()
}

fn list(console: &Console) -> Result<Exit, Failure> {
    if console.is_json() {
        let schemas: Vec<SchemaEntry> =
            names().into_iter().map(|(kind, of)| SchemaEntry { kind, of }).collect();
        console.json(&SchemaDocument { version: 1, schemas })?;
    } else {
        let mut table = Table::new(&["KIND", "OF"]);
        for (kind, of) in names() {
            table.row([kind, of]);
        }
        console.data(&table.to_string())?;
    }
    Ok(Exit::Done)
}

fn unknown(kind: &str) -> Failure {
    let names: Vec<String> = names().into_iter().map(|(name, _)| name).collect();
    Failure::usage(format!("there is no schema `{kind}`")).help(format!("There are {}.", names.join(", ")))
}
