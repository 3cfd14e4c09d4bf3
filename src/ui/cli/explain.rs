//! `provisor explain`: where every value of a pool comes from, layer by layer, and what the layers become.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::document::OriginDocument;
use super::repository::RepositoryArgs;
use super::validate::settings;
use crate::gitops::diff::show;
use crate::gitops::explain::{ExplainedField, Headroom, HeldBack, explain};
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
#[serde(rename_all = "camelCase")]
pub struct ExplainDocument {
    version: u32,
    environment: String,
    pool: String,
    /// First what the pool says (`limits.cpu`), then what its NodePool has (`spec.limits.cpu`).
    fields: Vec<Field>,
    /// Values of other environments that promotion keeps from the pool until they proved themselves there.
    held_back: Vec<HeldBackDocument>,
    /// Room that is kept free on nodes of the pool; null if none is.
    headroom: Option<HeadroomDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct HeldBackDocument {
    /// As in the strategy: `limits.cpu`.
    path: String,
    /// The environment that it comes from.
    stage: String,
    /// The value today; null if there is none.
    today: Value,
    /// The value there; null if promotion would take it away.
    there: Value,
    /// The line of the other environment that sets it.
    comes_from: Option<OriginDocument>,
    /// How long it has to stand there.
    soak: String,
    /// And how: `healthy` or `healthy+rolled-out`.
    require: String,
}

#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
struct HeadroomDocument {
    /// Pods that there is room for.
    pods: Value,
    /// What each of them asks for, by resource.
    requests: Value,
    /// The CapacityBuffer that keeps it: `default/headroom-general`.
    buffer: String,
    origin: Option<OriginDocument>,
}

#[derive(Debug, Serialize, JsonSchema)]
struct Field {
    /// Keys with dots between them.
    path: String,
    /// The value that counts; null if it was taken away.
    value: Value,
    /// Everything that set it or took it away (`value` is null), the winner last.
    layers: Vec<Layer>,
    /// The field of the NodePool whose override decides a value of the pool: `spec.limits.cpu`. Null if none does.
    overridden: Option<String>,
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
            held_back: found.held_back.iter().map(HeldBackDocument::from).collect(),
            headroom: found.headroom.as_ref().map(HeadroomDocument::from),
        })?;
        return Ok(Exit::Done);
    }
    let is_of_object = |field: &&ExplainedField| field.path.starts_with("spec.");
    let pool = table(found.fields.iter().filter(|field| !is_of_object(field)));
    let object = table(found.fields.iter().filter(is_of_object));
    let titles = [
        (format!("Pool {} of {}", found.pool, found.environment), pool),
        (format!("NodePool {}", found.pool), object),
        ("Held back by promotion".to_owned(), held_back(&found.held_back)),
        ("Kept free".to_owned(), kept_free(found.headroom.as_ref())),
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
        overridden: field.overridden.clone(),
    }
}

fn held_back(held: &[HeldBack]) -> Table {
    let mut table = Table::new(&["FIELD", "TODAY", "THERE", "WHERE", "UNTIL"]);
    for one in held {
        let place = one.comes_from.as_ref().map(|origin| format!(", {origin}")).unwrap_or_default();
        table.row([
            one.path.clone(),
            show(one.today.as_ref()).into_owned(),
            show(one.there.as_ref()).into_owned(),
            format!("{}{place}", one.stage),
            format!("{} was {} for {}", one.stage, one.require, one.soak),
        ]);
    }
    table
}

fn kept_free(headroom: Option<&Headroom>) -> Table {
    let mut table = Table::new(&[">PODS", "EACH ASKS", "KEPT BY", "SET BY"]);
    if let Some(one) = headroom {
        let requests = one.requests.as_object().into_iter().flatten();
        let requests: Vec<String> =
            requests.map(|(name, amount)| format!("{name} {}", show(Some(amount)))).collect();
        table.row([
            show(Some(&one.pods)).into_owned(),
            requests.join(", "),
            format!("CapacityBuffer {}", one.buffer),
            one.origin.as_ref().map(ToString::to_string).unwrap_or_default(),
        ]);
    }
    table
}

impl From<&HeldBack> for HeldBackDocument {
    fn from(held: &HeldBack) -> Self {
        Self {
            path: held.path.clone(),
            stage: held.stage.to_string(),
            today: held.today.clone().unwrap_or_default(),
            there: held.there.clone().unwrap_or_default(),
            comes_from: held.comes_from.as_ref().map(OriginDocument::from),
            soak: held.soak.clone(),
            require: held.require.into(),
        }
    }
}

impl From<&Headroom> for HeadroomDocument {
    fn from(headroom: &Headroom) -> Self {
        Self {
            pods: headroom.pods.clone(),
            requests: headroom.requests.clone(),
            buffer: headroom.buffer.clone(),
            origin: headroom.origin.as_ref().map(OriginDocument::from),
        }
    }
}

/// One line per value, and below it one for every layer that it replaced.
fn table<'a>(fields: impl Iterator<Item = &'a ExplainedField>) -> Table {
    let mut table = Table::new(&["FIELD", "VALUE", "SET BY"]);
    for field in fields {
        let mut layers = field.layers.iter().rev();
        let mut winner = layers.next().map(|layer| layer.origin.to_string()).unwrap_or_default();
        if let Some(path) = &field.overridden {
            winner.push_str(&format!(" (overrides {path})"));
        } else if field.layers.last().is_some_and(|last| last.value.is_null()) {
            winner.push_str(" (takes it away)");
        }
        table.row([field.path.clone(), show(Some(&field.value)).into_owned(), winner]);
        for layer in layers {
            let was = match &layer.value {
                Value::Null => "(taken away)".to_owned(),
                value => format!("(was {})", show(Some(value))),
            };
            table.row(["  ↳".to_owned(), was, layer.origin.to_string()]);
        }
    }
    table
}
