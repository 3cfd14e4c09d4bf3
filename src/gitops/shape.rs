//! Is a tree written in the words of the language? Checked against the same JSON Schema that editors use.
//!
//! The checker never stops at the first mistake: it walks on and says of each what was found, what is expected, and
//! one example that would do.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use serde_json::Value;

use crate::gitops::diagnostic::{Diagnostic, listed};
use crate::gitops::overlay::identity_fields;
use crate::gitops::rendered::joined;
use crate::gitops::schema::{Draft, ENTRY_REMOVAL, SchemaKind, schema_value};
use crate::gitops::text_form;
use crate::gitops::tree::{Map, Node, Quoting, Tree};
use crate::model::near::nearest;
use crate::model::quantity::Quantity;

/// A compiled schema.
#[derive(Debug)]
pub(crate) struct Shape {
    nodes: Vec<Kind>,
    root: usize,
}

#[derive(Debug)]
enum Kind {
    Anything,
    Bool,
    Int { min: Option<i64>, max: Option<i64>, example: String },
    Text { form: Option<String>, one_of: Vec<String>, example: String },
    List { inner: usize, example: String },
    Table(Table),
    Choice(Vec<usize>),
}

#[derive(Debug)]
struct Table {
    fields: BTreeMap<String, usize>,
    required: Vec<String>,
    /// The shape of keys that are not fields; `None` refuses them.
    others: Option<usize>,
    names: Option<String>,
    notes: bool,
}

/// How far fields are followed into each other, choices and lists counted.
const FIELDS_DEEP: usize = 12;

static FLEET: LazyLock<Shape> =
    LazyLock::new(|| Shape::compile(&schema_value(SchemaKind::Fleet, Draft::Latest)));
static ENVIRONMENT: LazyLock<Shape> =
    LazyLock::new(|| Shape::compile(&schema_value(SchemaKind::Environment, Draft::Latest)));
static POLICY: LazyLock<Shape> =
    LazyLock::new(|| Shape::compile(&schema_value(SchemaKind::Policy, Draft::Latest)));
static LOCK: LazyLock<Shape> =
    LazyLock::new(|| Shape::compile(&schema_value(SchemaKind::Lock, Draft::Latest)));

/// The shape of one kind of file.
pub(crate) fn shape_of(kind: SchemaKind) -> &'static Shape {
    match kind {
        SchemaKind::Fleet => &FLEET,
        SchemaKind::Environment => &ENVIRONMENT,
        SchemaKind::Policy => &POLICY,
        SchemaKind::Lock => &LOCK,
    }
}

impl Shape {
    /// Understands what our generator writes, in both drafts.
    pub fn compile(schema: &Value) -> Self {
        let mut shape = Shape { nodes: Vec::new(), root: 0 };
        let mut names = BTreeMap::new();
        shape.root = shape.add(schema, schema, &mut names);
        shape
    }

    fn add(&mut self, root: &Value, schema: &Value, names: &mut BTreeMap<String, usize>) -> usize {
        if let Some(target) = schema["$ref"].as_str() {
            if let Some(known) = names.get(target) {
                return *known;
            }
            let at = self.push(Kind::Anything);
            names.insert(target.to_owned(), at);
            let resolved = root.pointer(target.trim_start_matches('#')).unwrap_or(&Value::Null);
            self.nodes[at] = self.kind(root, resolved, names);
            return at;
        }
        let kind = self.kind(root, schema, names);
        self.push(kind)
    }

    fn push(&mut self, kind: Kind) -> usize {
        self.nodes.push(kind);
        self.nodes.len() - 1
    }

    fn kind(&mut self, root: &Value, schema: &Value, names: &mut BTreeMap<String, usize>) -> Kind {
        let choices = schema.get("anyOf").or_else(|| schema.get("oneOf"));
        if let Some(choices) = choices.and_then(Value::as_array) {
            let removal =
                |choice: &&Value| choice["$ref"].as_str().is_some_and(|target| target.ends_with("/Removal"));
            // Documented words of an enumeration come one by one.
            let words: Option<Vec<String>> = choices.iter().map(constant).collect();
            if let Some(one_of) = words {
                return Kind::Text { form: None, example: quoted(&one_of[0]), one_of };
            }
            let kept: Vec<&Value> = choices.iter().filter(|choice| !removal(choice)).collect();
            if let [only] = kept.as_slice() {
                // Examples stand beside the choice between a value and its removal.
                let mut only = (*only).clone();
                if only.get("$ref").is_none() && only.get("examples").is_none() {
                    only["examples"] = schema["examples"].clone();
                }
                let at = self.add(root, &only, names);
                return Kind::Choice(vec![at]);
            }
            return Kind::Choice(kept.into_iter().map(|choice| self.add(root, choice, names)).collect());
        }
        let example = schema["examples"].get(0).map(shown).unwrap_or_default();
        match schema["type"].as_str() {
            Some("boolean") => Kind::Bool,
            Some("integer") => Kind::Int {
                min: schema["minimum"].as_i64(),
                max: schema["maximum"].as_i64(),
                example: if example.is_empty() { "1".to_owned() } else { example },
            },
            Some("string") => {
                let one_of: Vec<String> = schema["enum"]
                    .as_array()
                    .map(|words| words.iter().filter_map(|word| word.as_str().map(str::to_owned)).collect())
                    .unwrap_or_default();
                let form = schema["format"].as_str().map(str::to_owned);
                let example = one_of.first().map(|word| quoted(word)).unwrap_or(example);
                Kind::Text { form, one_of, example }
            }
            Some("array") => Kind::List { inner: self.add(root, entry_of(&schema["items"]), names), example },
            Some("object") => Kind::Table(self.table(root, schema, names)),
            _ => Kind::Anything,
        }
    }

    fn table(&mut self, root: &Value, schema: &Value, names: &mut BTreeMap<String, usize>) -> Table {
        let mut fields = BTreeMap::new();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            fields.insert(name.clone(), self.add(root, field, names));
        }
        let required = schema["required"].as_array().into_iter().flatten();
        let others = match &schema["additionalProperties"] {
            Value::Bool(false) => None,
            // Names by pattern come as the only pattern; ours stand for `NameText`.
            Value::Null | Value::Bool(true) => Some(self.push(Kind::Anything)),
            inner => Some(self.add(root, inner, names)),
        };
        let mut table = Table {
            fields,
            required: required.filter_map(|name| name.as_str().map(str::to_owned)).collect(),
            others,
            names: schema["propertyNames"]["format"].as_str().map(str::to_owned),
            notes: false,
        };
        for (pattern, inner) in schema["patternProperties"].as_object().into_iter().flatten() {
            if pattern == "^x-" {
                table.notes = true;
            } else {
                table.others = Some(self.add(root, inner, names));
                table.names = Some("name".to_owned());
            }
        }
        table
    }

    /// Whether a path of keys leads to a field of the language, `*` standing for any; else the key that does not.
    pub fn leads(&self, path: &[String]) -> Result<(), (usize, Vec<&str>)> {
        let mut at = self.root;
        // Labels and the like are keys with dots of their own, so that the rest of a path is one of them.
        let mut is_free = false;
        for (index, key) in path.iter().enumerate() {
            let table = loop {
                match &self.nodes[at] {
                    Kind::Anything => return Ok(()),
                    Kind::Table(table) => break table,
                    Kind::Choice(choices) => match choices.first() {
                        Some(first) => at = *first,
                        None => return Ok(()),
                    },
                    _ if is_free => return Ok(()),
                    _ => return Err((index, Vec::new())),
                }
            };
            is_free = !table.fields.contains_key(key) && table.names.is_none();
            let is_name =
                |key: &str| table.names.as_deref().is_none_or(|form| text_form::check(form, key).is_ok());
            at = match (table.fields.get(key), table.others) {
                (Some(field), _) => *field,
                (None, Some(others)) if key == "*" || is_name(key) => others,
                _ => return Err((index, table.fields.keys().map(String::as_str).collect())),
            };
        }
        Ok(())
    }

    /// The paths of all fields below a path of keys, lists by their first entry.
    pub fn fields_below(&self, path: &[&str]) -> Vec<String> {
        let mut fields = Vec::new();
        if let Some(at) = path.iter().try_fold(self.root, |at, key| self.below(at, key)) {
            self.note_fields(at, "", FIELDS_DEEP, &mut fields);
        }
        fields
    }

    fn below(&self, at: usize, key: &str) -> Option<usize> {
        match &self.nodes[at] {
            Kind::Table(table) => table.fields.get(key).copied().or(table.others),
            Kind::Choice(choices) => choices.iter().find_map(|kind| self.below(*kind, key)),
            _ => None,
        }
    }

    fn note_fields(&self, at: usize, path: &str, deep: usize, out: &mut Vec<String>) {
        if deep == 0 {
            return;
        }
        match &self.nodes[at] {
            Kind::Table(table) => {
                for (name, field) in &table.fields {
                    let path = joined(path, name);
                    out.push(path.clone());
                    self.note_fields(*field, &path, deep - 1, out);
                }
            }
            Kind::Choice(choices) => {
                choices.iter().for_each(|kind| self.note_fields(*kind, path, deep - 1, out))
            }
            Kind::List { inner, .. } => self.note_fields(*inner, &format!("{path}[0]"), deep - 1, out),
            _ => {}
        }
    }

    /// Every mistake in `node`.
    pub fn check(&self, node: &Node, found: &mut Vec<Diagnostic>) {
        Check { shape: self, found }.at(self.root, node, "the file");
    }
}

fn constant(choice: &Value) -> Option<String> {
    choice["const"].as_str().or_else(|| choice["enum"].as_array()?.first()?.as_str()).map(str::to_owned)
}

fn quoted(word: &str) -> String {
    format!("\"{word}\"")
}

fn shown(example: &Value) -> String {
    example.to_string()
}

struct Check<'a> {
    shape: &'a Shape,
    found: &'a mut Vec<Diagnostic>,
}

impl Check<'_> {
    fn at(&mut self, kind: usize, node: &Node, name: &str) {
        if node.is_removal() {
            return self.found.extend(beside_removal(node, &[]));
        }
        let shape = self.shape;
        match &shape.nodes[kind] {
            Kind::Anything => self.rounded(node),
            Kind::Choice(choices) => self.choice(choices, node, name),
            Kind::Bool => {
                if !matches!(node.value, Tree::Bool(_)) {
                    self.wrong_type(node, name, "true or false", "true", None);
                }
            }
            Kind::Int { min, max, example } => match node.value {
                Tree::Int(number) => {
                    if min.is_some_and(|min| number < min) || max.is_some_and(|max| number > max) {
                        self.out_of_range(node, name, *min, *max);
                    }
                }
                _ if is_huge(node) => self.out_of_range(node, name, *min, *max),
                _ => self.wrong_type(node, name, "a whole number", example, None),
            },
            Kind::Text { form, one_of, example } => self.text(node, name, form.as_deref(), one_of, example),
            Kind::List { inner, .. } => match &node.value {
                Tree::List(items) => self.list(*inner, items, name),
                _ => {
                    let example = self.example(kind);
                    self.wrong_type(node, name, "a list", &example, None);
                }
            },
            Kind::Table(table) => match &node.value {
                Tree::Map(map) => self.table(table, map, node, name),
                _ => self.wrong_type(node, name, "a table", "{ … }", None),
            },
        }
    }

    /// A whole number that is more than any field holds would be another one in the rendered object.
    fn rounded(&mut self, node: &Node) {
        if is_huge(node) {
            let message = format!("the number {} is too large", node.shown());
            self.found
                .push(Diagnostic::error("PRV1206", node.place.clone(), message).help("write it as a text"));
        }
        node.as_list().into_iter().flatten().for_each(|item| self.rounded(item));
        let entries = node.as_map().into_iter().flat_map(|map| map.iter());
        entries.for_each(|(_, entry)| self.rounded(&entry.node));
    }

    fn list(&mut self, inner: usize, items: &[Node], name: &str) {
        let identity = identity_fields(name);
        for (at, item) in items.iter().enumerate() {
            if item.is_removal() {
                self.found.extend(beside_removal(item, identity));
                continue;
            }
            self.at(inner, item, name);
            // Requirements on one label add up; of budgets and disks with one name all but one would be lost.
            let [field] = identity else { continue };
            let named = |node: &Node| node.get(field).and_then(Node::as_text).cloned();
            let Some(own) = named(item).filter(|_| name != "requirements") else { continue };
            if let Some(first) = items[..at].iter().find(|other| named(other).as_ref() == Some(&own)) {
                let place = item.get(field).map_or(&item.place, |node| &node.place).clone();
                let first = first.get(field).map_or(&first.place, |node| &node.place).clone();
                let message = format!("two entries of `{name}` have the {field} `{own}`");
                self.found.push(
                    Diagnostic::error("PRV1625", place, message)
                        .also("the first one", first)
                        .help(format!("give each a {field} of its own, or make them one")),
                );
            }
        }
    }

    /// The first choice that takes this kind of value judges it.
    fn choice(&mut self, choices: &[usize], node: &Node, name: &str) {
        let is_amount = |kind: &usize| matches!(&self.shape.nodes[*kind], Kind::Text { form: Some(form), .. } if form == "quantity");
        if choices.iter().any(is_amount) && self.is_wrong_amount(node, name) {
            return;
        }
        if self.is_list_of_tables(choices, node, name) {
            return;
        }
        if let Some(kind) = choices.iter().find(|kind| self.takes(**kind, node)) {
            return self.at(*kind, node, name);
        }
        if let [only] = choices {
            return self.at(*only, node, name);
        }
        let expected: Vec<String> = choices.iter().map(|kind| self.expected(*kind)).collect();
        let example = match text_form::amount_of(name).filter(|_| choices.iter().any(is_amount)) {
            Some(form) => text_form::example_of(form).to_owned(),
            None => self.example(choices[0]),
        };
        let how = match &node.value {
            Tree::Float(number) if choices.iter().any(is_amount) => in_quotes_as_amount(number, name),
            _ if choices.iter().any(|kind| self.is_free_text(*kind)) => in_quotes(node),
            _ => None,
        };
        self.wrong_type(node, name, &expected.join(" or "), &example, how);
    }

    /// One table in brackets, where words are listed or a table stands by itself.
    fn is_list_of_tables(&mut self, choices: &[usize], node: &Node, name: &str) -> bool {
        let kinds = || choices.iter().map(|kind| &self.shape.nodes[*kind]);
        let Some([first, others @ ..]) = node.as_list() else { return false };
        let is_table = |item: &Node| item.as_map().is_some() && !item.is_removal();
        let takes_tables = |kind: &Kind| match kind {
            Kind::List { inner, .. } => self.takes(*inner, first),
            _ => false,
        };
        let has = |wanted: fn(&Kind) -> bool| kinds().any(wanted);
        let is_choice =
            has(|kind| matches!(kind, Kind::Table(_))) && has(|kind| matches!(kind, Kind::List { .. }));
        if !is_choice || !is_table(first) || !others.iter().all(is_table) || kinds().any(takes_tables) {
            return false;
        }
        let message = format!("`{name}` is a list of tables where a list of values or one table is expected");
        let written = &first.place.source.text[first.place.bytes()];
        let help = match (others.is_empty(), written.starts_with('{') && !written.contains('\n')) {
            (true, true) => format!("leave out the brackets: {written}"),
            (true, false) => "write the table without the list around it".to_owned(),
            (false, _) => format!("keep one, or write all of them as a list: [{{ key = \"{name}\", … }}, …]"),
        };
        self.found.push(Diagnostic::error("PRV1202", head(node), message).help(help));
        true
    }

    /// Any text will do.
    fn is_free_text(&self, kind: usize) -> bool {
        match &self.shape.nodes[kind] {
            Kind::Text { form: None, one_of, .. } => one_of.is_empty(),
            Kind::Choice(choices) => choices.iter().any(|kind| self.is_free_text(*kind)),
            _ => false,
        }
    }

    /// Limits of a resource take amounts of that resource: cores, bytes or a count.
    fn is_wrong_amount(&mut self, node: &Node, resource: &str) -> bool {
        let text = match &node.value {
            Tree::Text(text, _) => text.to_string(),
            Tree::Int(number) => number.to_string(),
            Tree::Float(text) => text.to_string(),
            _ => return false,
        };
        // Negative numbers are told by their range.
        let Some(form) = text_form::amount_of(resource).filter(|_| !text.starts_with('-')) else {
            return false;
        };
        let Err(wrong) = text_form::check(form, &text) else { return false };
        let message = format!("`{resource}` is {}, which is not {}", node.shown(), wrong.expected);
        let help = wrong.help.unwrap_or_else(|| format!("write it like {}", wrong.example));
        self.found.push(Diagnostic::error("PRV1203", node.place.clone(), message).help(help));
        true
    }

    fn takes(&self, kind: usize, node: &Node) -> bool {
        match &self.shape.nodes[kind] {
            Kind::Anything => true,
            Kind::Bool => matches!(node.value, Tree::Bool(_)),
            Kind::Int { .. } => matches!(node.value, Tree::Int(_)),
            Kind::Text { .. } => matches!(node.value, Tree::Text(..)),
            Kind::List { .. } => matches!(node.value, Tree::List(_)),
            Kind::Table(_) => matches!(node.value, Tree::Map(_)),
            Kind::Choice(choices) => choices.iter().any(|kind| self.takes(*kind, node)),
        }
    }

    fn expected(&self, kind: usize) -> String {
        match &self.shape.nodes[kind] {
            Kind::Anything => "a value".to_owned(),
            Kind::Bool => "true or false".to_owned(),
            Kind::Int { .. } => "a whole number".to_owned(),
            Kind::Text { form, .. } => match form.as_deref().and_then(text_form::described) {
                Some(form) => form.to_owned(),
                None => "a text".to_owned(),
            },
            Kind::List { .. } => "a list".to_owned(),
            Kind::Table(_) => "a table".to_owned(),
            Kind::Choice(choices) => {
                choices.iter().map(|kind| self.expected(*kind)).collect::<Vec<_>>().join(" or ")
            }
        }
    }

    fn example(&self, kind: usize) -> String {
        match &self.shape.nodes[kind] {
            Kind::Int { example, .. } | Kind::Text { example, .. } => example.clone(),
            Kind::Bool => "true".to_owned(),
            Kind::List { example, .. } if !example.is_empty() => example.clone(),
            Kind::List { inner, .. } => format!("[{}]", self.example(*inner)),
            Kind::Table(_) => "{ … }".to_owned(),
            Kind::Choice(choices) => self.example(choices[0]),
            Kind::Anything => String::new(),
        }
    }

    fn text(&mut self, node: &Node, name: &str, form: Option<&str>, one_of: &[String], example: &str) {
        let Tree::Text(text, quoting) = &node.value else {
            let expected = form.and_then(text_form::described).unwrap_or("a text");
            let how = if form.is_none() && one_of.is_empty() { in_quotes(node) } else { None };
            return self.wrong_type(node, name, expected, example, how);
        };
        if *quoting == Quoting::Bare && is_old_boolean(text) {
            let message = format!("`{text}` is a text here, although YAML 1.1 reads it as true or false");
            self.found.push(
                Diagnostic::warning("PRV1018", node.place.clone(), message)
                    .help(format!("write \"{text}\" if you mean the word")),
            );
        }
        if !one_of.is_empty() && !one_of.iter().any(|word| **word == **text) {
            let words = one_of.iter().map(String::as_str);
            let message = format!("`{name}` is {}, which is not one of its words", node.shown());
            let allowed = listed(words.clone());
            let help = match nearest(text, words) {
                Some(near) => format!("did you mean `{near}`? It takes {allowed}"),
                None => format!("it takes {allowed}"),
            };
            self.found.push(Diagnostic::error("PRV1205", node.place.clone(), message).help(help));
        }
        if let Some(form) = form
            && let Err(wrong) = text_form::check(form, text)
        {
            let message = format!("`{name}` is {}, which is not {}", node.shown(), wrong.expected);
            let example = if example.is_empty() { wrong.example } else { example };
            let of_file = named_as_file(text).filter(|_| form == "name" && name == "extends");
            let help = of_file.or(wrong.help).unwrap_or_else(|| format!("write it like {example}"));
            let code = if form == "name" { "PRV1207" } else { "PRV1203" };
            self.found.push(Diagnostic::error(code, node.place.clone(), message).help(help));
        }
    }

    fn table(&mut self, table: &Table, map: &Map, node: &Node, name: &str) {
        for (key, entry) in map.iter() {
            if let Some(field) = table.fields.get(&**key) {
                self.at(*field, &entry.node, key);
            } else if let Some(others) = table.others {
                if let Some(form) = &table.names
                    && let Err(wrong) = text_form::check(form, key)
                {
                    let message = format!("\"{}\" is not {}", key.escape_debug(), wrong.expected);
                    let help = wrong.help.unwrap_or_else(|| format!("write it like {}", wrong.example));
                    self.found.push(Diagnostic::error("PRV1207", entry.key.clone(), message).help(help));
                }
                self.at(others, &entry.node, key);
            } else if !(table.notes && key.starts_with("x-")) {
                self.unknown(table, key, entry.key.clone(), name);
            }
        }
        for missing in table.required.iter().filter(|name| map.get(name).is_none()) {
            let message = format!("{} has no `{missing}`", subject(name));
            let example = table.fields.get(missing).map(|field| self.example(*field)).unwrap_or_default();
            let help = if example.is_empty() {
                format!("add `{missing}`")
            } else {
                format!("add `{missing}`, such as {example}")
            };
            self.found.push(Diagnostic::error("PRV1204", head(node), message).help(help));
        }
    }

    fn unknown(
        &mut self,
        table: &Table,
        key: &Arc<str>,
        place: crate::gitops::diagnostic::Place,
        name: &str,
    ) {
        let names = table.fields.keys().map(String::as_str).filter(|name| *name != "$schema");
        let message = format!("{} has no field `{}`", subject(name), key.escape_debug());
        let allowed = listed(names.clone());
        let help = match nearest(key, names) {
            Some(near) => format!("did you mean `{near}`? The fields are {allowed}"),
            None => format!("the fields are {allowed}; keys for notes start with `x-`"),
        };
        self.found.push(Diagnostic::error("PRV1201", place, message).help(help));
    }

    /// `how` is a better help than the example.
    fn wrong_type(&mut self, node: &Node, name: &str, expected: &str, example: &str, how: Option<String>) {
        let code = if expected == "true or false" || matches!(node.value, Tree::List(_) | Tree::Map(_)) {
            "PRV1202"
        } else {
            "PRV1203"
        };
        let is = if matches!(node.value, Tree::List(_) | Tree::Map(_) | Tree::Null) {
            node.kind().to_owned()
        } else {
            format!("{} ({})", node.shown(), node.kind())
        };
        let message = format!("`{name}` is {is} where {expected} is expected");
        let help = how.unwrap_or_else(|| match example {
            "" | "[]" if expected == "a text" => "write one text, in quotes".to_owned(),
            "" | "[]" => format!("write {expected}; texts are in quotes"),
            example => format!("write it like {example}"),
        });
        self.found.push(Diagnostic::error(code, head(node), message).help(help));
    }

    fn out_of_range(&mut self, node: &Node, name: &str, min: Option<i64>, max: Option<i64>) {
        let range = match (min, max) {
            (Some(min), Some(max)) => format!("from {min} to {max}"),
            (Some(min), None) => format!("{min} or more"),
            (None, Some(max)) => format!("at most {max}"),
            (None, None) => format!("from {} to {}", i64::MIN, i64::MAX),
        };
        let message = format!("`{name}` is {}, which is out of range", node.shown());
        let help = format!("it takes whole numbers {range}");
        self.found.push(Diagnostic::error("PRV1206", node.place.clone(), message).help(help));
    }
}

/// The entry of a list, without the choice to remove one.
fn entry_of(items: &Value) -> &Value {
    let is_removal =
        |choice: &Value| choice["$ref"].as_str().is_some_and(|target| target.contains(ENTRY_REMOVAL));
    match items["anyOf"].as_array().map(Vec::as_slice) {
        Some([entry, removal]) if is_removal(removal) => entry,
        _ => items,
    }
}

/// What stands beside `"$remove" = true` would be lost with it. A list's entry is named by its identity.
pub(crate) fn beside_removal(marker: &Node, identity: &[&str]) -> Option<Diagnostic> {
    let is_lost = |key: &str| key != "$remove" && !identity.contains(&key) && !key.starts_with("x-");
    let (key, entry) = marker.as_map()?.iter().find(|(key, _)| is_lost(key))?;
    let message =
        format!("`{}` stands beside `\"$remove\" = true`, which takes the whole away", key.escape_debug());
    let help = "remove one of the two: the marker, or what stands beside it";
    Some(Diagnostic::error("PRV1307", entry.key.clone(), message).help(help))
}

fn subject(name: &str) -> String {
    if name == "the file" { name.to_owned() } else { format!("`{name}`") }
}

/// A whole number with more digits than there are.
fn is_huge(node: &Node) -> bool {
    let is_whole = |text: &str| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    matches!(&node.value, Tree::Float(text) if is_whole(text))
}

/// How a number or a word is written that shall be a text.
fn in_quotes(node: &Node) -> Option<String> {
    if !matches!(node.value, Tree::Int(_) | Tree::Float(_) | Tree::Bool(_)) {
        return None;
    }
    let written = &node.place.source.text[node.place.bytes()];
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+' | b'_');
    let written = match !written.is_empty() && written.bytes().all(is_plain) {
        true => written.to_owned(),
        false => node.shown().replace('`', ""),
    };
    Some(format!("put it in quotes: \"{written}\""))
}

/// How a fraction is written that shall be an amount; `None`: it is none.
fn in_quotes_as_amount(number: &str, resource: &str) -> Option<String> {
    let quantity: Quantity = number.parse().ok().filter(|_| text_form::is_quantity(number))?;
    let quoted = format!("put it in quotes, \"{number}\"");
    match resource {
        "cpu" => Some(format!("{quoted}, or count thousandths of a core: \"{}m\"", quantity.millis())),
        _ => Some(quoted),
    }
}

/// The name of an environment where its file is written.
fn named_as_file(text: &str) -> Option<String> {
    let file = text.rsplit('/').next().unwrap_or(text);
    let name = [".toml", ".yaml", ".yml"].iter().find_map(|ending| file.strip_suffix(ending)).unwrap_or(file);
    (name != text && text_form::is_name(name))
        .then(|| format!("write the name without folder and ending: `extends = \"{name}\"`"))
}

/// The first line of a value, so that a caret does not underline a whole table.
pub(crate) fn head(node: &Node) -> crate::gitops::diagnostic::Place {
    let mut place = node.place.clone();
    let text = &place.source.text[place.bytes()];
    if let Some(end) = text.find('\n') {
        place.end = place.start + text[..end].trim_end().len() as u32;
    }
    place
}

/// What YAML 1.1 took for a boolean and 1.2 reads as text.
fn is_old_boolean(text: &str) -> bool {
    matches!(text.to_ascii_lowercase().as_str(), "yes" | "no" | "on" | "off" | "y" | "n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gitops::diagnostic::{Place, Source};
    use crate::gitops::read::{Format, document};

    /// The schemas as they are checked in, both drafts of each.
    fn emitted(kind: SchemaKind) -> [Shape; 2] {
        let texts = match kind {
            SchemaKind::Fleet => [
                include_str!("../../config-schema/fleet.schema.json"),
                include_str!("../../config-schema/fleet.draft4.schema.json"),
            ],
            SchemaKind::Environment => [
                include_str!("../../config-schema/environment.schema.json"),
                include_str!("../../config-schema/environment.draft4.schema.json"),
            ],
            SchemaKind::Policy => [
                include_str!("../../config-schema/policy.schema.json"),
                include_str!("../../config-schema/policy.draft4.schema.json"),
            ],
            SchemaKind::Lock => [
                include_str!("../../config-schema/lock.schema.json"),
                include_str!("../../config-schema/lock.draft4.schema.json"),
            ],
        };
        texts.map(|text| Shape::compile(&serde_json::from_str(text).expect("a schema is JSON")))
    }

    fn mistakes(shape: &Shape, format: Format, text: &str) -> Vec<&'static str> {
        let mut found = Vec::new();
        let node = document(&Source::new("file", text), format, &mut found).expect("it parses");
        shape.check(&node, &mut found);
        found.into_iter().map(|one| one.code).collect()
    }

    #[test]
    fn every_value_of_a_wrong_kind_gets_a_help() {
        let source = Source::new("file", "?");
        let place = Place::new(&source, 0..1);
        let node = |value: Tree| Node { value, place: place.clone() };
        let text = |text: &str| node(Tree::Text(text.into(), Quoting::Bare));
        let mut table = Node::map(place.clone());
        table.set("no such field", place.clone(), node(Tree::Null));
        let values = [
            node(Tree::Null),
            node(Tree::Bool(true)),
            node(Tree::Int(-7)),
            node(Tree::Float("1.5".into())),
            node(Tree::Float("nan".into())),
            text("? : ="),
            text("yes"),
            node(Tree::List(Vec::new())),
            node(Tree::List(vec![text("?"), node(Tree::Null), node(Tree::Float("0.1".into()))])),
            node(Tree::List(vec![table.clone()])),
            node(Tree::List(vec![table.clone(), table.clone()])),
            table,
        ];
        let mut told = 0;
        for kind in [SchemaKind::Fleet, SchemaKind::Environment, SchemaKind::Policy, SchemaKind::Lock] {
            let shape = shape_of(kind);
            for (at, value) in
                (0..shape.nodes.len()).flat_map(|at| values.iter().map(move |value| (at, value)))
            {
                for name in ["field", "cpu", "memory"] {
                    let mut found = Vec::new();
                    Check { shape, found: &mut found }.at(at, value, name);
                    let lacks =
                        |one: &&Diagnostic| one.help.as_ref().is_none_or(|help| help.trim().is_empty());
                    assert_eq!(found.iter().find(lacks), None, "{:?}", shape.nodes[at]);
                    told += found.len();
                }
            }
        }
        assert!(told > 1_000, "{told}");
    }

    #[test]
    fn ren_038_emitted_schemas_refuse_what_is_wrong_in_both_drafts() {
        for (text, code) in [
            ("pools.a.limts = { cpu = 1 }", "PRV1201"),
            ("pools.a.weight = 101", "PRV1206"),
            ("pools.a.weight = 'high'", "PRV1203"),
            ("pools.a.expire-after = '7 days'", "PRV1203"),
            ("pools.a.limits = { memory = '4GB' }", "PRV1203"),
            ("pools.a.limits = { memory = '500m' }", "PRV1203"),
            ("pools.a.limits = { memory = 800 }", "PRV1203"),
            ("pools.a.limits = { cpu = '4Gi' }", "PRV1203"),
            ("pools.a.limits = { nodes = '10%' }", "PRV1203"),
            ("pools.a = { '$remove' = true, weight = 4 }", "PRV1307"),
            ("pools.a.budgets = [{ name = 'n', '$remove' = true, nodes = 1 }]", "PRV1307"),
            ("pools.a.budgets = [{ name = 'n' }, { name = 'n', nodes = 1 }]", "PRV1625"),
            ("classes.a.volumes = [{ device = '/dev/xvda' }, { device = '/dev/xvda' }]", "PRV1625"),
            ("pools.a.taints = ['gpu']", "PRV1203"),
            ("pools.a.consolidation-policy = 'WhenUnderutilized'", "PRV1205"),
            ("pools.a.zones = 'a'", "PRV1203"),
            ("pools.'A b'.weight = 1", "PRV1207"),
            ("pools.a.budgets = [{ nodes = '110%' }]", "PRV1203"),
            ("classes.a.volumes = [{ size = '100GB' }]", "PRV1203"),
            ("classes.a.ami-family = 'Ubuntu'", "PRV1205"),
            ("engine = 'other'", "PRV1205"),
            ("cloud = 'gcp'", "PRV1205"),
        ] {
            for shape in emitted(SchemaKind::Environment) {
                assert_eq!(mistakes(&shape, Format::Toml, text), [code], "{text}");
            }
        }
        for shape in emitted(SchemaKind::Fleet) {
            assert_eq!(mistakes(&shape, Format::Toml, "defaults.pool.weight = 1"), ["PRV1204"]);
        }
    }
}
