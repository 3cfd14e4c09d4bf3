//! TOML into the tree.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{NESTING_MAX, NODES_MAX, too_deep, too_many_nodes};
use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::tree::{Entry, Map, Node, Quoting, Tree};

pub(super) fn parse(source: &Arc<Source>, found: &mut Vec<Diagnostic>) -> Option<Node> {
    if let Some(at) = overlong_key(&source.text) {
        found.push(too_deep(source, at));
        return None;
    }
    // Positions count from the text without its mark: the parser refuses a mark in the middle only.
    let (table, errors) = DeTable::parse_recoverable(&source.text);
    if !errors.is_empty() {
        let mut seen = HashSet::new();
        // A file without any `=` is not TOML with many mistakes, but something else.
        let told = if source.text.contains('=') { errors.len() } else { 1 };
        for error in &errors[..told] {
            let span = error.span().unwrap_or(0..0);
            if seen.insert(span.start) {
                found.push(explained(source, &table, error.message(), span));
            }
        }
        return None;
    }
    let mut build = Build { source, found, nodes: 0 };
    build.table(table.get_ref(), table.span(), 0)
}

struct Build<'a> {
    source: &'a Arc<Source>,
    found: &'a mut Vec<Diagnostic>,
    nodes: usize,
}

impl Build<'_> {
    fn table(&mut self, table: &DeTable<'_>, span: Range<usize>, depth: usize) -> Option<Node> {
        let mut map = Map::default();
        for (key, value) in table.iter() {
            let key_place = Place::new(self.source, key.span());
            let node = self.value(value, depth + 1)?;
            map.0.insert(key.get_ref().as_ref().into(), Entry { key: key_place, node });
        }
        Some(Node { value: Tree::Map(map), place: Place::new(self.source, span) })
    }

    fn value(&mut self, value: &Spanned<DeValue<'_>>, depth: usize) -> Option<Node> {
        let span = value.span();
        self.nodes += 1;
        if self.nodes > NODES_MAX {
            self.found.push(too_many_nodes(self.source, span));
            return None;
        }
        if depth > NESTING_MAX {
            self.found.push(too_deep(self.source, span));
            return None;
        }
        let tree = match value.get_ref() {
            DeValue::String(text) => Tree::Text(text.as_ref().into(), Quoting::Quoted),
            DeValue::Integer(number) => match i64::from_str_radix(number.as_str(), number.radix()) {
                Ok(number) => Tree::Int(number),
                // Which numbers would do, only the field knows.
                Err(_) if number.radix() == 10 => Tree::Float(number.as_str().into()),
                Err(_) => {
                    let place = Place::new(self.source, span);
                    let message = format!("the number {} is too large", number.as_str());
                    self.found.push(Diagnostic::error("PRV1009", place, message).help("write it as a text"));
                    return None;
                }
            },
            DeValue::Float(number) => Tree::Float(number.as_str().into()),
            DeValue::Boolean(value) => Tree::Bool(*value),
            DeValue::Datetime(date) => Tree::Text(date.to_string().into(), Quoting::Bare),
            DeValue::Array(items) => {
                let items: Option<Vec<Node>> = items.iter().map(|item| self.value(item, depth + 1)).collect();
                Tree::List(items?)
            }
            DeValue::Table(table) => return self.table(table, span, depth),
        };
        Some(Node { value: tree, place: Place::new(self.source, span) })
    }
}

/// A key such as `a.a.a.…` makes as many tables as it has dots; found before the parser builds them.
fn overlong_key(text: &str) -> Option<Range<usize>> {
    let bytes = text.as_bytes();
    let (mut at, mut dots, mut start) = (0, 0, 0);
    while at < bytes.len() {
        match bytes[at] {
            b'#' => at = text[at..].find('\n').map_or(bytes.len(), |end| at + end),
            quote @ (b'"' | b'\'') => {
                let triple = [quote; 3];
                at = if bytes[at..].starts_with(&triple) {
                    let end = text[at + 3..].find(if quote == b'"' { "\"\"\"" } else { "'''" });
                    end.map_or(bytes.len(), |end| at + 3 + end + 3)
                } else {
                    end_of_string(bytes, at)
                };
                continue;
            }
            b'.' => {
                dots += 1;
                if dots > NESTING_MAX {
                    return Some(start..at);
                }
            }
            b'\n' | b'=' | b',' | b'{' | b'}' | b'[' | b']' => {
                dots = 0;
                start = at + 1;
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// Behind the closing quote of a one-line string that opens at `start`.
fn end_of_string(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() && bytes[at] != bytes[start] && bytes[at] != b'\n' {
        at += if bytes[at] == b'\\' && bytes[start] == b'"' { 2 } else { 1 };
    }
    (at + 1).min(bytes.len())
}

fn explained(
    source: &Arc<Source>,
    table: &Spanned<DeTable<'_>>,
    message: &str,
    span: Range<usize>,
) -> Diagnostic {
    let place = Place::new(source, span.clone());
    if message.contains("recursion") {
        return too_deep(source, span);
    }
    if message.starts_with("duplicate key") {
        let named = source.text[span.clone()].trim_matches(['[', ']']);
        let name = named.rsplit('.').next().unwrap_or(named).trim_matches(['"', '\'', ' ']);
        let diagnostic =
            Diagnostic::error("PRV1011", place.clone(), format!("the key `{name}` is set twice"))
                .help("keep one of the two");
        let first =
            first_key(table.get_ref(), name, span.start).or_else(|| same_header(source, &place, name));
        return match first {
            Some(first) => diagnostic.also("first set here", Place::new(source, first)),
            None => diagnostic,
        };
    }
    let text: String = message.split('\n').collect::<Vec<_>>().join(", ");
    Diagnostic::error("PRV1009", place, format!("this is not TOML: {text}")).help(hint(&source.text, span))
}

fn hint(text: &str, span: Range<usize>) -> &'static str {
    let line_start = text[..span.start.min(text.len())].rfind('\n').map_or(0, |end| end + 1);
    let line = text[line_start..].lines().next().unwrap_or_default();
    if (line.contains(": ") || line.trim_end().ends_with(':')) && !line.contains('=') {
        "TOML writes `key = value`; name the file .yaml if it is YAML"
    } else {
        "texts are quoted, tables are [headed], lists use [ ]"
    }
}

/// The key in an earlier line that reads the same: a second header takes the table of the first out of the tree.
fn same_header(source: &Source, place: &Place, name: &str) -> Option<Range<usize>> {
    let (last, _) = place.position();
    let header = source.line(last as usize).trim();
    let line = (1..last as usize).find(|line| source.line(*line).trim() == header)?;
    let at = source.line_start(line) + source.line(line).rfind(name)?;
    Some(at..at + name.len())
}

/// The nearest key of that name before `limit`.
fn first_key(table: &DeTable<'_>, name: &str, limit: usize) -> Option<Range<usize>> {
    let mut best: Option<Range<usize>> = None;
    let mut open = vec![table];
    while let Some(table) = open.pop() {
        for (key, value) in table.iter() {
            let span = key.span();
            let is_better = best.as_ref().is_none_or(|best| best.start < span.start);
            if key.get_ref() == name && span.start < limit && is_better {
                best = Some(span);
            }
            match value.get_ref() {
                DeValue::Table(inner) => open.push(inner),
                DeValue::Array(items) => open.extend(items.iter().filter_map(|item| match item.get_ref() {
                    DeValue::Table(inner) => Some(inner),
                    _ => None,
                })),
                _ => {}
            }
        }
    }
    best
}
