//! `provisor explain`: where every value of a pool comes from, layer by layer, and what the layers become.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::document::OriginDocument;
use super::repository::RepositoryArgs;
use super::validate::settings;
use crate::gitops::diff::show;
use crate::gitops::explain::{ExplainedField, explain};
use crate::ui::console::{Console, Tone};
use crate::ui::exit::{Exit, Failure};
use crate::ui::table::Table;

/// Say where the values of a pool come from, down to the line
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  provisor explain prod general                   every field, and the lines that set it
  provisor explain prod general limits.cpu        one field of the strategy
  provisor explain prod general spec.disruption   fields of the rendered NodePool")]
pub struct Args {
    /// An environment by name
    #[arg(value_name = "ENV")]
    environment: String,
    /// A pool of it by name
    #[arg(value_name = "POOL")]
    pool: String,
    /// A field of the pool or of the rendered NodePool, with dots between keys; everything below it is shown
    #[arg(value_name = "FIELD")]
    field: Option<String>,
    #[command(flatten)]
    repository: RepositoryArgs,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct ExplainDocument {
    version: u32,
    environment: String,
    pool: String,
    /// First what the pool says (`limits.cpu`), then what its NodePool has (`spec.limits.cpu`).
    fields: Vec<Field>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Field {
    /// Keys with dots between them.
    path: String,
    /// The value that counts.
    value: Value,
    /// Everything that set it, the winner last.
    layers: Vec<Layer>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Layer {
    value: Value,
    #[serde(flatten)]
    origin: OriginDocument,
}

pub fn run(args: &Args, console: &Console) -> Result<Exit, Failure> {
    let repository = args.repository.open(console)?;
    let found = explain(&repository, &args.environment, &args.pool, args.field.as_deref(), &settings())?;
    if console.is_json() {
        console.json(&ExplainDocument {
            version: 1,
            environment: found.environment.to_string(),
            pool: found.pool.to_string(),
            fields: found.fields.iter().map(field).collect(),
        })?;
        return Ok(Exit::Done);
    }
    let is_of_object = |field: &&ExplainedField| field.path.starts_with("spec.");
    let pool = table(found.fields.iter().filter(|field| !is_of_object(field)));
    let object = table(found.fields.iter().filter(is_of_object));
    let titles = [
        (format!("Pool {} of {}", found.pool, found.environment), pool),
        (format!("NodePool {}", found.pool), object),
    ];
    let parts: Vec<String> = titles
        .into_iter()
        .filter(|(_, table)| !table.is_empty())
        .map(|(title, table)| format!("{}\n{table}", console.paint(Tone::Strong, &title)))
        .collect();
    console.data(&parts.join("\n"))?;
    Ok(Exit::Done)
}

fn field(field: &ExplainedField) -> Field {
    let layer = |value: &Value, origin| Layer { value: value.clone(), origin: OriginDocument::from(origin) };
    Field {
        path: field.path.clone(),
        value: field.value.clone(),
        layers: field.layers.iter().map(|one| layer(&one.value, &one.origin)).collect(),
    }
}

/// One line per value, and below it one for every layer that it replaced.
fn table<'a>(fields: impl Iterator<Item = &'a ExplainedField>) -> Table {
    let mut table = Table::new(&["FIELD", "VALUE", "SET BY"]);
    for field in fields {
        let mut layers = field.layers.iter().rev();
        let winner = layers.next().map(|layer| layer.origin.to_string()).unwrap_or_default();
        table.row([field.path.clone(), show(Some(&field.value)).into_owned(), winner]);
        for layer in layers {
            let was = format!("(was {})", show(Some(&layer.value)));
            table.row(["  ↳".to_owned(), was, layer.origin.to_string()]);
        }
    }
    table
}
