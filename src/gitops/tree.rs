//! TOML and YAML as one tree in which every key and every value knows its place.
//!
//! Everything before the typed model works on it: layers merge, the shape is checked, `explain` finds origins.
//! Numbers that are not whole keep their text, so that nothing is rounded on the way.

use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;

use crate::gitops::diagnostic::Place;
use crate::model::secret::masked;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub value: Tree,
    pub place: Place,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Tree {
    Null,
    Bool(bool),
    Int(i64),
    /// A number with a fraction or an exponent, as written.
    Float(Arc<str>),
    Text(Arc<str>, Quoting),
    List(Vec<Node>),
    Map(Map),
}

/// Whether a text was written bare, which only YAML allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quoting {
    Bare,
    Quoted,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub key: Place,
    pub node: Node,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Map(pub IndexMap<Arc<str>, Entry>);

impl Map {
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.0.get(key).map(|entry| &entry.node)
    }

    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Entry)> {
        self.0.iter()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Node {
    pub fn map(place: Place) -> Self {
        Self { value: Tree::Map(Map::default()), place }
    }

    pub fn text(text: &str, place: Place) -> Self {
        Self { value: Tree::Text(text.into(), Quoting::Quoted), place }
    }

    pub fn as_map(&self) -> Option<&Map> {
        match &self.value {
            Tree::Map(map) => Some(map),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&[Node]> {
        match &self.value {
            Tree::List(list) => Some(list),
            _ => None,
        }
    }

    pub fn as_text(&self) -> Option<&Arc<str>> {
        match &self.value {
            Tree::Text(text, _) => Some(text),
            _ => None,
        }
    }

    pub fn get(&self, key: &str) -> Option<&Node> {
        self.as_map()?.get(key)
    }

    /// A table of the one entry `key`, if there is one.
    pub fn only(&self, key: &str) -> Option<Node> {
        let (key, entry) = self.as_map()?.0.get_key_value(key)?;
        let map = Map([(key.clone(), entry.clone())].into_iter().collect());
        Some(Node { value: Tree::Map(map), place: self.place.clone() })
    }

    /// The entry of a table, with the place of its key.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.as_map()?.0.get(key)
    }

    /// Follows keys downwards.
    pub fn at<'k>(&self, path: impl IntoIterator<Item = &'k str>) -> Option<&Node> {
        path.into_iter().try_fold(self, |node, key| node.get(key))
    }

    pub fn set(&mut self, key: &str, place: Place, node: Node) {
        if let Tree::Map(map) = &mut self.value {
            map.0.insert(key.into(), Entry { key: place, node });
        }
    }

    /// `{ "$remove" = true }`: the wish that a value of a lower layer goes away. In a keyed list the key stands beside it.
    pub fn is_removal(&self) -> bool {
        self.get("$remove").is_some_and(|marker| marker.value == Tree::Bool(true))
    }

    /// What kind of value it is, for a sentence: "a number".
    pub fn kind(&self) -> &'static str {
        match &self.value {
            Tree::Null => "nothing",
            Tree::Bool(_) => "true or false",
            Tree::Int(_) | Tree::Float(_) => "a number",
            Tree::Text(..) => "a text",
            Tree::List(_) => "a list",
            Tree::Map(_) => "a table",
        }
    }

    /// The value as a person wrote it, for a sentence.
    pub fn shown(&self) -> String {
        match &self.value {
            Tree::Null => "nothing".to_owned(),
            Tree::Bool(value) => format!("`{value}`"),
            Tree::Int(value) => format!("`{value}`"),
            Tree::Float(text) => format!("`{text}`"),
            Tree::Text(text, _) => format!("\"{}\"", shortened(text)),
            Tree::List(_) => "a list".to_owned(),
            Tree::Map(_) => "a table".to_owned(),
        }
    }

    pub fn to_json(&self) -> Value {
        match &self.value {
            Tree::Null => Value::Null,
            Tree::Bool(value) => Value::Bool(*value),
            Tree::Int(value) => Value::from(*value),
            Tree::Float(text) => float(text),
            Tree::Text(text, _) => Value::from(&**text),
            Tree::List(list) => list.iter().map(Node::to_json).collect(),
            Tree::Map(map) => Value::Object(
                map.iter().map(|(key, entry)| (key.to_string(), entry.node.to_json())).collect(),
            ),
        }
    }
}

/// A fraction as JSON; what JSON cannot say stays text, for the validator to refuse.
fn float(text: &str) -> Value {
    let number: Option<serde_json::Number> = serde_json::from_str(text.trim_start_matches('+')).ok();
    number.map_or_else(|| Value::from(text), Value::Number)
}

/// One line of at most forty characters. A secret is not only cut.
fn shortened(text: &str) -> String {
    let text: &str = &masked(text);
    let line = text.lines().next().unwrap_or_default();
    match line.char_indices().nth(40) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None if line.len() < text.len() => format!("{line}…"),
        None => line.to_owned(),
    }
}
