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
    /// `fleet`, `environment`, `policy`, `lock`, `simulation`, `output/VERB`, `crd` for every CustomResourceDefinition, or `crd/PLURAL` for one
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
            "trials" => "provisor simulate --weeks, --shrink or --trial --output json".to_owned(),
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::{Path, PathBuf};

    use crate::gitops::diagnostic::Source;
    use crate::gitops::policy::RepositoryRules;
    use crate::gitops::read::{Format, document};
    use crate::gitops::shape::Shape;

    fn root(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
    }

    fn text(path: &Path) -> String {
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// Every file below a folder, in order.
    fn files_below(folder: &str) -> Vec<PathBuf> {
        let mut open = vec![root(folder)];
        let mut files = Vec::new();
        while let Some(path) = open.pop() {
            match std::fs::read_dir(&path) {
                Ok(entries) => open.extend(entries.map(|entry| entry.expect("an entry").path())),
                Err(_) => files.push(path),
            }
        }
        files.sort();
        files
    }

    /// The schema of a file, as its path or its first line says it; `None` for what has none.
    fn kind_of(path: &str, text: &str) -> Option<&'static str> {
        let named = text.lines().next().and_then(|line| line.strip_prefix("# ")).unwrap_or_default();
        match () {
            () if path.ends_with(".yaml") && path.contains("/workload/") => None,
            () if text.contains("config-schema/simulation") || path.ends_with("simulation.toml") => {
                Some("simulation")
            }
            () if named == "fleet.toml" || path.ends_with("fleet.toml") => Some("fleet"),
            () if named == "provisor.lock" || path.ends_with("provisor.lock") => Some("lock"),
            () if text.contains("[[guardrail]]") => Some("policy"),
            () if text.contains("[[windows]]") => Some("windows"),
            // Of `simulate --trial`, which has no schema.
            () if text.contains("[[fleet.pools]]") => None,
            () => Some("environment"),
        }
    }

    /// The examples by the name of their place: blocks of the guide and of pages for people, files of examples and of the
    /// starter.
    fn examples() -> Vec<(String, Format, String)> {
        let mut found = Vec::new();
        let pages = ["docs", "examples"].iter().flat_map(|folder| files_below(folder));
        let pages =
            pages.chain([root("README.md")]).filter(|path| path.extension().is_some_and(|end| end == "md"));
        for page in pages {
            for (at, block) in text(&page).split("```").skip(1).step_by(2).enumerate() {
                let Some((language, block)) = block.split_once('\n') else { continue };
                let format = match (language, block.starts_with("# provisor.lock")) {
                    ("toml", _) | ("text", true) => Format::Toml,
                    ("yaml", _) => Format::Yaml,
                    _ => continue,
                };
                found.push((format!("{} block {at}", page.display()), format, block.to_owned()));
            }
        }
        for folder in ["examples", "src/ui/cli/init/starter", "benches/peer-kwok/fleet"] {
            for file in files_below(folder) {
                let name = file.display().to_string();
                if let Some(format) = Format::of(&name) {
                    // `provisor init` fills this in.
                    found.push((name, format, text(&file).replace("\"FLEET\"", "\"shop\"")));
                }
            }
        }
        found
    }

    #[test]
    fn ren_038_emitted_schemas_take_every_example_and_fixture_in_both_drafts() {
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, format, text) in examples() {
            let Some(kind) = kind_of(&name, &text) else { continue };
            *seen.entry(kind).or_default() += 1;
            let read = || {
                let mut found = Vec::new();
                let tree = document(&Source::new(name.as_str(), text.as_str()), format, &mut found);
                tree.unwrap_or_else(|| panic!("{name}: {found:?}"))
            };
            if kind == "windows" {
                let rules = serde_json::from_value::<RepositoryRules>(read().to_json());
                rules.unwrap_or_else(|error| panic!("{name}: {error}"));
                continue;
            }
            for draft in ["", ".draft4"] {
                let schema = self::text(&root(&format!("config-schema/{kind}{draft}.schema.json")));
                let shape = Shape::compile(&serde_json::from_str(&schema).expect("a schema is JSON"));
                let mut found = Vec::new();
                shape.check(&read(), &mut found);
                assert!(found.is_empty(), "{name} is no {kind}{draft}: {found:#?}");
            }
        }
        let least = [
            ("environment", 18),
            ("fleet", 9),
            ("lock", 1),
            ("policy", 2),
            ("simulation", 6),
            ("windows", 1),
        ];
        for (kind, least) in least {
            let seen = seen.get(kind).copied().unwrap_or_default();
            assert!(seen >= least, "{seen} examples of {kind}, fewer than {least}");
        }
    }
}
