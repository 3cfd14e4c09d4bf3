//! JSON Schemas of the strategy language, made from its types.
//!
//! Draft 2020-12 for most editors, and draft 4 for TOML language servers that know nothing newer. Both allow `x-`
//! keys in every table for notes, and the removal marker wherever a higher layer may take a value away.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value, json};

use crate::gitops::overlay::identity_fields;
use crate::gitops::strategy::{EnvironmentFile, Fleet, LockFile, PolicyFile, Requirement, Taint};

/// The files that a schema exists for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SchemaKind {
    Fleet,
    Environment,
    /// `policies/*.toml`.
    Policy,
    /// `provisor.lock`.
    Lock,
}

impl SchemaKind {
    pub const ALL: [SchemaKind; 4] =
        [SchemaKind::Fleet, SchemaKind::Environment, SchemaKind::Policy, SchemaKind::Lock];

    pub fn name(self) -> &'static str {
        match self {
            SchemaKind::Fleet => "fleet",
            SchemaKind::Environment => "environment",
            SchemaKind::Policy => "policy",
            SchemaKind::Lock => "lock",
        }
    }

    /// The kind by its name, as `provisor schema NAME` takes it.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Draft {
    /// 2020-12.
    Latest,
    Draft4,
}

/// The schema of one kind of file, pretty-printed with a final newline.
pub fn schema_of(kind: SchemaKind, draft: Draft) -> String {
    let value = schema_value(kind, draft);
    let mut text = serde_json::to_string_pretty(&value).expect("a schema has text keys only");
    text.push('\n');
    text
}

pub(crate) fn schema_value(kind: SchemaKind, draft: Draft) -> Value {
    let generator = SchemaSettings::draft2020_12().into_generator();
    let schema = match kind {
        SchemaKind::Fleet => generator.into_root_schema_for::<Fleet>(),
        SchemaKind::Environment => generator.into_root_schema_for::<EnvironmentFile>(),
        SchemaKind::Policy => generator.into_root_schema_for::<PolicyFile>(),
        SchemaKind::Lock => generator.into_root_schema_for::<LockFile>(),
    };
    let mut value = schema.to_value();
    adapt(&mut value);
    let root = value.as_object_mut().expect("a schema of a struct is an object");
    let definitions = root.entry("$defs").or_insert_with(|| json!({}));
    definitions["Removal"] = json!({
        "description": "Takes away what a lower layer set.",
        "type": "object",
        "properties": { "$remove": { "const": true } },
        "required": ["$remove"],
        "additionalProperties": false,
    });
    let has_lists = matches!(kind, SchemaKind::Fleet | SchemaKind::Environment);
    for list in KEYED_LISTS.into_iter().filter(|_| has_lists) {
        definitions[removal_of(list)] = removal_by(identity_fields(list));
    }
    if let Some(properties) = root.get_mut("properties").and_then(Value::as_object_mut) {
        // Editors put a link to the schema into YAML and JSON files.
        properties.insert(
            "$schema".to_owned(),
            json!({ "type": "string", "description": "Where this schema is." }),
        );
    }
    match draft {
        Draft::Latest => value,
        Draft::Draft4 => lowered(value),
    }
}

/// `null` is not a value of the language, notes are welcome, and values can be removed.
fn adapt(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(adapt),
        Value::Object(map) => {
            without_null(map);
            let required: Vec<String> = map
                .get("required")
                .and_then(Value::as_array)
                .map(|names| names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
                .unwrap_or_default();
            for (key, inner) in map.iter_mut() {
                if !matches!(key.as_str(), "examples" | "default" | "enum" | "const") {
                    adapt(inner);
                }
            }
            // Tables of named things have a pattern for the names; all others take notes.
            if let Some(Value::Object(named)) = map.get_mut("patternProperties") {
                named.values_mut().for_each(removable);
            } else if map.get("additionalProperties") == Some(&Value::Bool(false)) {
                map.insert("patternProperties".to_owned(), json!({ "^x-": true }));
            }
            if let Some(Value::Object(properties)) = map.get_mut("properties") {
                for (name, property) in properties.iter_mut().filter(|(name, _)| !required.contains(name)) {
                    if KEYED_LISTS.contains(&name.as_str()) {
                        entries_removable(name, property);
                    }
                    removable(property);
                }
            }
            if let Some(others @ Value::Object(_)) = map.get_mut("additionalProperties") {
                removable(others);
            }
        }
        _ => {}
    }
}

fn without_null(map: &mut Map<String, Value>) {
    if let Some(Value::Array(kinds)) = map.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = kinds.as_slice() {
            let only = only.clone();
            map.insert("type".to_owned(), only);
        }
    }
    let Some(Value::Array(choices)) = map.get_mut("anyOf") else { return };
    choices.retain(|choice| choice.get("type") != Some(&json!("null")));
    if let [Value::Object(only)] = choices.as_mut_slice() {
        let only = std::mem::take(only);
        map.remove("anyOf");
        for (key, value) in only {
            map.entry(key).or_insert(value);
        }
    }
}

fn removable(schema: &mut Value) {
    let Value::Object(map) = schema else { return };
    let notes = ["description", "examples", "default", "title"];
    let (kept, inner): (Map<_, _>, Map<_, _>) =
        std::mem::take(map).into_iter().partition(|(key, _)| notes.contains(&key.as_str()));
    *map = kept;
    map.insert("anyOf".to_owned(), json!([inner, { "$ref": "#/$defs/Removal" }]));
}

/// Lists whose entries have names: a higher layer may take one of them away.
const KEYED_LISTS: [&str; 6] = ["budgets", "requirements", "startup-taints", "taints", "volumes", "windows"];
/// How the names of such removals begin in `$defs`.
pub(crate) const ENTRY_REMOVAL: &str = "RemovalBy";

fn removal_of(list: &str) -> String {
    let fields =
        identity_fields(list).iter().map(|field| format!("{}{}", field[..1].to_uppercase(), &field[1..]));
    format!("{ENTRY_REMOVAL}{}", fields.collect::<Vec<_>>().join("And"))
}

fn removal_by(fields: &[&str]) -> Value {
    let named = fields.iter().map(|field| (field.to_string(), json!({ "type": "string" })));
    let properties: Map<String, Value> =
        named.chain([("$remove".to_owned(), json!({ "const": true }))]).collect();
    let required: Vec<&str> = fields.iter().copied().chain(["$remove"]).collect();
    json!({
        "description": "Takes away the entry that a lower layer set.",
        "type": "object",
        "properties": properties,
        "patternProperties": { "^x-": true },
        "required": required,
        "additionalProperties": false,
    })
}

/// Lets every entry of a list be removed by what names it.
fn entries_removable(list: &str, schema: &mut Value) {
    let Some(items) = schema.get_mut("items") else { return };
    let reference = format!("#/$defs/{}", removal_of(list));
    *items = json!({ "anyOf": [items.take(), { "$ref": reference }] });
}

/// The same schema in the words of draft 4.
pub fn lowered(value: Value) -> Value {
    match value {
        Value::Array(items) => items.into_iter().map(lowered).collect(),
        Value::Object(map) => {
            let mut out = Map::new();
            for (key, inner) in map {
                match (key.as_str(), &inner) {
                    ("$schema", Value::String(_)) => {
                        out.insert(key, json!("http://json-schema.org/draft-04/schema#"));
                    }
                    ("$defs", _) => {
                        out.insert("definitions".to_owned(), lowered(inner));
                    }
                    ("$ref", Value::String(target)) => {
                        out.insert(key, json!(target.replace("#/$defs/", "#/definitions/")));
                    }
                    ("const", _) => {
                        out.insert("enum".to_owned(), json!([inner]));
                    }
                    // Draft 4 has neither: names are checked by `provisor validate`.
                    ("propertyNames", _) => {}
                    ("^x-", Value::Bool(true)) => {
                        out.insert(key, json!({}));
                    }
                    ("examples" | "default" | "enum", _) => {
                        out.insert(key, inner);
                    }
                    _ => {
                        out.insert(key, lowered(inner));
                    }
                }
            }
            Value::Object(out)
        }
        other => other,
    }
}

/// A text with a form of its own: the schema carries a pattern for editors and a `format` for our checker.
macro_rules! formatted {
    ($(#[$doc:meta])* $name:ident, $format:literal, $pattern:literal, $example:literal) => {
        $(#[$doc])*
        pub struct $name;

        impl JsonSchema for $name {
            fn schema_name() -> Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({
                    "type": "string",
                    "format": $format,
                    "pattern": $pattern,
                    "examples": [$example],
                })
            }

            fn inline_schema() -> bool {
                true
            }
        }
    };
}

formatted!(
    /// A name that Kubernetes accepts for our objects.
    NameText, "name", r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", "general"
);
formatted!(
    /// Hours, minutes and seconds.
    DurationText, "duration", r"^([0-9]+(s|m|h))+$", "30m"
);
formatted!(
    /// A duration or `Never`.
    ExpiryText, "duration-or-never", r"^(([0-9]+(s|m|h))+|Never)$", "720h"
);
formatted!(
    /// A duration or `never`.
    WaitText, "wait", r"^(([0-9]+(s|m|h))+|[Nn]ever)$", "30m"
);
formatted!(
    /// A part of a whole.
    PercentText, "percent", r"^[0-9]{1,2}%$", "10%"
);
formatted!(
    /// Weekdays.
    DaysText, "weekdays", r"^[A-Za-z]{3}(-[A-Za-z]{3})?(, ?[A-Za-z]{3}(-[A-Za-z]{3})?)*$", "mon-fri"
);
formatted!(
    /// A time of the day.
    ClockText, "clock", r"^[0-9]{1,2}:[0-9]{2}$", "22:00"
);
formatted!(
    /// The name of a time zone.
    ZoneText, "time-zone", r"^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$", "Asia/Seoul"
);
formatted!(
    /// Five cron fields or a macro.
    CronText, "cron", r"^(@(annually|yearly|monthly|weekly|daily|midnight|hourly)|\S+(\s+\S+){4})$", "0 9 * * mon-fri"
);
formatted!(
    /// A commit, by its first seven digits or more.
    CommitText, "commit", r"^[0-9a-fA-F]{7,64}$", "3f2a9c1"
);
formatted!(
    /// The size of a disk.
    VolumeSize, "volume-size", r"^[0-9]+(G|T|Gi|Ti)$", "100Gi"
);

/// A Kubernetes quantity; whole numbers need no quotes.
pub struct Quantity;

impl JsonSchema for Quantity {
    fn schema_name() -> Cow<'static, str> {
        "Quantity".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {
                    "type": "string",
                    "format": "quantity",
                    "pattern": r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$",
                    "examples": ["4Gi"],
                },
                { "type": "integer", "minimum": 0, "examples": [8] },
            ],
        })
    }
}

/// A number of nodes or a percentage.
pub struct BudgetNodes;

impl JsonSchema for BudgetNodes {
    fn schema_name() -> Cow<'static, str> {
        "BudgetNodes".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "anyOf": [
                {
                    "type": "string",
                    "format": "nodes-or-percent",
                    "pattern": r"^((100|[0-9]{1,2})%|[0-9]+)$",
                    "examples": ["10%"],
                },
                { "type": "integer", "minimum": 0, "examples": [1] },
            ],
        })
    }
}

/// Any value.
pub struct Mixed;

impl JsonSchema for Mixed {
    fn schema_name() -> Cow<'static, str> {
        "Mixed".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }

    fn inline_schema() -> bool {
        true
    }
}

/// A list of words; whole numbers need no quotes.
pub struct WordList;

impl JsonSchema for WordList {
    fn schema_name() -> Cow<'static, str> {
        "WordList".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": "array",
            "items": { "anyOf": [{ "type": "string", "examples": ["c"] }, { "type": "integer", "examples": [4] }] },
        })
    }
}

/// A taint as text or table.
pub struct TaintText;

impl JsonSchema for TaintText {
    fn schema_name() -> Cow<'static, str> {
        "TaintText".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let table = generator.subschema_for::<Taint>();
        json_schema!({
            "anyOf": [
                {
                    "type": "string",
                    "format": "taint",
                    "pattern": r"^[^=:\s]+(=[^=:\s]*)?:(NoSchedule|PreferNoSchedule|NoExecute)$",
                    "examples": ["dedicated=batch:NoSchedule"],
                },
                table,
            ],
        })
    }
}

/// Requirements as a list or as a table by label.
pub struct RequirementSet;

impl JsonSchema for RequirementSet {
    fn schema_name() -> Cow<'static, str> {
        "RequirementSet".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<Requirement>();
        let words = generator.subschema_for::<WordList>();
        let mut list = json!({ "type": "array", "items": one.clone() });
        entries_removable("requirements", &mut list);
        json_schema!({
            "anyOf": [
                list,
                { "type": "object", "additionalProperties": { "anyOf": [words, one] } },
            ],
        })
    }
}
