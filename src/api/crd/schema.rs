//! The parts that schemas of CustomResourceDefinitions are put together from.

use serde_json::{Map, Value, json};

/// Names of resources to quantities, as an API server reads quantities.
const QUANTITY: &str = r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$";

/// The schema of one value, with what it is for.
#[derive(Clone, Debug)]
pub(crate) struct Schema(Map<String, Value>);

impl Schema {
    fn new(kind: &str, about: &str) -> Self {
        let mut map = Map::new();
        if !about.is_empty() {
            map.insert("description".into(), about.into());
        }
        map.insert("type".into(), kind.into());
        Self(map)
    }

    pub(crate) fn text(about: &str) -> Self {
        Self::new("string", about)
    }

    pub(crate) fn boolean(about: &str) -> Self {
        Self::new("boolean", about)
    }

    pub(crate) fn integer(about: &str) -> Self {
        Self::new("integer", about)
    }

    /// A whole number of 32 bits.
    pub(crate) fn small(about: &str) -> Self {
        Self::new("integer", about).with("format", "int32")
    }

    /// A whole number of 64 bits.
    pub(crate) fn large(about: &str) -> Self {
        Self::new("integer", about).with("format", "int64")
    }

    pub(crate) fn moment(about: &str) -> Self {
        Self::text(about).with("format", "date-time")
    }

    pub(crate) fn list(about: &str, items: Self) -> Self {
        Self::new("array", about).with("items", items)
    }

    /// A table with names of the user's choice.
    pub(crate) fn map(about: &str, values: Self) -> Self {
        Self::new("object", about).with("additionalProperties", values)
    }

    pub(crate) fn resources(about: &str) -> Self {
        let quantity = json!({
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "pattern": QUANTITY,
            "x-kubernetes-int-or-string": true,
        });
        Self::new("object", about).with("additionalProperties", quantity)
    }

    /// A table whose every value may be of any shape.
    pub(crate) fn open(about: &str) -> Self {
        Self::new("object", about).with("x-kubernetes-preserve-unknown-fields", true)
    }

    pub(crate) fn object<'n>(about: &str, fields: impl IntoIterator<Item = (&'n str, Self)>) -> Self {
        let fields: Map<String, Value> =
            fields.into_iter().map(|(name, schema)| (name.to_owned(), schema.into())).collect();
        let schema = Self::new("object", about);
        if fields.is_empty() { schema } else { schema.with("properties", Value::Object(fields)) }
    }

    pub(crate) fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.0.insert(key.to_owned(), value.into());
        self
    }

    pub(crate) fn required(self, fields: &[&str]) -> Self {
        self.with("required", fields)
    }

    pub(crate) fn pattern(self, pattern: &str) -> Self {
        self.with("pattern", pattern)
    }

    pub(crate) fn one_of(self, words: &[&str]) -> Self {
        self.with("enum", words)
    }

    pub(crate) fn between(self, min: i64, max: i64) -> Self {
        self.at_least(min).with("maximum", max)
    }

    pub(crate) fn at_least(self, min: i64) -> Self {
        self.with("minimum", min)
    }

    pub(crate) fn default(self, value: impl Into<Value>) -> Self {
        self.with("default", value)
    }

    pub(crate) fn items_max(self, count: usize) -> Self {
        self.with("maxItems", count)
    }

    pub(crate) fn entries_max(self, count: usize) -> Self {
        self.with("maxProperties", count)
    }

    pub(crate) fn chars_max(self, count: usize) -> Self {
        self.with("maxLength", count)
    }

    pub(crate) fn not_empty(self) -> Self {
        self.with("minLength", 1)
    }

    /// Owned and replaced as a whole by server-side apply.
    pub(crate) fn atomic(self) -> Self {
        let key = if self.0["type"] == "array" { "x-kubernetes-list-type" } else { "x-kubernetes-map-type" };
        self.with(key, "atomic")
    }

    /// A rule in CEL, and what is said to whoever breaks it.
    pub(crate) fn rule(mut self, message: &str, rule: &str) -> Self {
        let rules = self.0.entry("x-kubernetes-validations").or_insert_with(|| json!([]));
        if let Value::Array(rules) = rules {
            rules.push(json!({"message": message, "rule": rule}));
        }
        self
    }
}

impl From<Schema> for Value {
    fn from(schema: Schema) -> Self {
        Value::Object(schema.0)
    }
}

/// A list for CEL: `['a', 'b']`.
pub(crate) fn cel_list<'w>(words: impl IntoIterator<Item = &'w str>) -> String {
    let quoted: Vec<String> = words.into_iter().map(|word| format!("'{word}'")).collect();
    format!("[{}]", quoted.join(", "))
}
