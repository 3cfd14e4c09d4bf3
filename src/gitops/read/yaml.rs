//! YAML 1.2 into the tree: the core schema, no tags, no merge keys, aliases within a budget.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use granit_parser::{ErrorKind, Event, Parser, ScalarStyle, ScanError, Span, StrInput, Tag};

use super::{DOCUMENTS_MAX, NESTING_MAX, NODES_MAX, too_deep, too_many_nodes};
use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::tree::{Entry, Map, Node, Quoting, Tree};

/// All documents; an empty text has none.
pub(super) fn parse(source: &Arc<Source>, found: &mut Vec<Diagnostic>) -> Option<Vec<Node>> {
    let options = granit_parser::options! {
        emit_comments: false,
        emit_unresolved_aliases: true,
        disallow_directives: true,
        flow_nesting_limit: NESTING_MAX,
        block_nesting_limit: NESTING_MAX,
    };
    let text: &str = &source.text;
    let offset = if text.starts_with('\u{feff}') { '\u{feff}'.len_utf8() } else { 0 };
    let parser = Parser::new_from_str_with_options(&text[offset..], options);
    let mut reader = Reader { source, offset, parser, anchors: HashMap::new(), nodes: 0 };
    match reader.stream() {
        Ok(documents) => Some(documents),
        Err(diagnostic) => {
            found.push(*diagnostic);
            None
        }
    }
}

struct Reader<'s> {
    source: &'s Arc<Source>,
    /// Bytes skipped at the start.
    offset: usize,
    parser: Parser<'s, StrInput<'s>>,
    /// Finished anchors with their size; an anchor that is still open has no entry.
    anchors: HashMap<usize, (Node, usize)>,
    nodes: usize,
}

type Read<T> = Result<T, Box<Diagnostic>>;

impl<'s> Reader<'s> {
    fn stream(&mut self) -> Read<Vec<Node>> {
        let mut documents = Vec::new();
        loop {
            let (event, span) = self.next()?;
            match event {
                Event::StreamEnd => return Ok(documents),
                Event::DocumentStart(..) => {
                    if documents.len() == DOCUMENTS_MAX {
                        let message = format!("the file holds more than {DOCUMENTS_MAX} documents");
                        let place = self.place(&span);
                        return Err(Box::new(
                            Diagnostic::error("PRV1014", place, message).help("split the file"),
                        ));
                    }
                    let (event, span) = self.next()?;
                    let is_empty =
                        matches!(&event, Event::Scalar(text, ScalarStyle::Plain, ..) if text.is_empty());
                    let node = self.node(event, span, 0)?;
                    if !is_empty {
                        documents.push(node);
                    }
                }
                _ => {}
            }
        }
    }

    fn next(&mut self) -> Read<(Event<'s>, Span)> {
        match self.parser.next_event() {
            Some(Ok(next)) => Ok(next),
            Some(Err(error)) => Err(Box::new(self.explained(&error))),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'s>, span: Span, depth: usize) -> Read<Node> {
        let before = self.nodes;
        self.count(1, &span)?;
        if depth > NESTING_MAX {
            return Err(Box::new(too_deep(self.source, self.range(&span))));
        }
        let place = self.place(&span);
        let (tree, anchor) = match event {
            Event::Scalar(text, style, anchor, tag) => {
                let is_text = self.check_tag(tag.as_deref(), &span)?;
                let tree = match style {
                    ScalarStyle::Plain if !is_text => resolved(&text),
                    _ => Tree::Text(text.into(), Quoting::Quoted),
                };
                (tree, anchor)
            }
            Event::SequenceStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), &span)?;
                let mut items = Vec::new();
                let end = loop {
                    match self.next()? {
                        (Event::SequenceEnd, span) => break span,
                        (event, span) => items.push(self.node(event, span, depth + 1)?),
                    }
                };
                let place = self.collection(&span, &end);
                return Ok(self.finish(Tree::List(items), place, anchor, before));
            }
            Event::MappingStart(_, anchor, tag) => {
                self.check_tag(tag.as_deref(), &span)?;
                let (map, end) = self.mapping(depth)?;
                let place = self.collection(&span, &end);
                return Ok(self.finish(Tree::Map(map), place, anchor, before));
            }
            Event::Alias(id) => return self.alias(id, &span),
            Event::UnresolvedAlias(name) => {
                return Err(Box::new(
                    Diagnostic::error(
                        "PRV1016",
                        place,
                        format!("there is no anchor `&{name}` before this alias"),
                    )
                    .help("define the anchor above, in the same file"),
                ));
            }
            _ => {
                let message = "this is not YAML: a value is missing";
                let help = "write a value here, or take the key away";
                return Err(Box::new(Diagnostic::error("PRV1010", place, message).help(help)));
            }
        };
        Ok(self.finish(tree, place, anchor, before))
    }

    fn finish(&mut self, value: Tree, place: Place, anchor: usize, before: usize) -> Node {
        let node = Node { value, place };
        if anchor != 0 {
            self.anchors.insert(anchor, (node.clone(), self.nodes - before));
        }
        node
    }

    fn mapping(&mut self, depth: usize) -> Read<(Map, Span)> {
        let mut map = Map::default();
        loop {
            let (event, span) = self.next()?;
            if event == Event::MappingEnd {
                return Ok((map, span));
            }
            let key_place = self.place(&span);
            let Event::Scalar(key, _, _, tag) = event else {
                let message = "a key must be a single word or text";
                return Err(Box::new(Diagnostic::error("PRV1010", key_place, message).help("quote the key")));
            };
            self.check_tag(tag.as_deref(), &span)?;
            if &*key == "<<" {
                let message = "YAML 1.2 has no merge key `<<`";
                return Err(Box::new(
                    Diagnostic::error("PRV1010", key_place, message)
                        .help("share values with `extends`, `defaults` or `variables`"),
                ));
            }
            if let Some(first) = map.0.get(&*key) {
                return Err(Box::new(
                    Diagnostic::error("PRV1011", key_place, format!("the key `{key}` is set twice"))
                        .also("first set here", first.key.clone())
                        .help("keep one of the two"),
                ));
            }
            let (event, span) = self.next()?;
            let node = self.node(event, span, depth + 1)?;
            map.0.insert(key.into(), Entry { key: key_place, node });
        }
    }

    fn alias(&mut self, id: usize, span: &Span) -> Read<Node> {
        let Some((node, size)) = self.anchors.get(&id) else {
            let message = "an anchor cannot contain itself";
            let place = self.place(span);
            return Err(Box::new(Diagnostic::error("PRV1016", place, message).help("remove the alias")));
        };
        let (size, mut node) = (*size, node.value.clone_within(*size, NODES_MAX - self.nodes.min(NODES_MAX)));
        self.count(size.saturating_sub(1), span)?;
        let place = self.place(span);
        Ok(Node { value: node.take().unwrap_or(Tree::Null), place })
    }

    fn count(&mut self, more: usize, span: &Span) -> Read<()> {
        self.nodes += more;
        match self.nodes > NODES_MAX {
            true => Err(Box::new(too_many_nodes(self.source, self.range(span)))),
            false => Ok(()),
        }
    }

    /// Whether a tag says that the value is a text. Every tag outside the core schema is refused.
    fn check_tag(&self, tag: Option<&Tag>, span: &Span) -> Read<bool> {
        let Some(tag) = tag else { return Ok(false) };
        if tag.is_yaml_core_schema() {
            return Ok(tag.is_yaml_core_schema_tag("str"));
        }
        let at = span.tag_span().unwrap_or(*span);
        let message = format!("the tag `{}` is not allowed", tag.original());
        Err(Box::new(
            Diagnostic::error("PRV1015", self.place(&at), message)
                .help("write the value itself; nothing is constructed or included by tags"),
        ))
    }

    fn range(&self, span: &Span) -> Range<usize> {
        let start = span.start.byte_offset().unwrap_or(0) + self.offset;
        let end = span.end.byte_offset().unwrap_or(0) + self.offset;
        start..end.max(start)
    }

    fn place(&self, span: &Span) -> Place {
        Place::new(self.source, self.range(span))
    }

    /// From the start of a collection to its last line that is not blank.
    fn collection(&self, start: &Span, end: &Span) -> Place {
        let start = self.range(start).start;
        let end = self.range(end).end.max(start);
        let trimmed = self.source.text[start..end].trim_end().len();
        Place::new(self.source, start..start + trimmed)
    }

    /// A tab that indents a line, or the next one that is not blank: there the reader trips over the line before.
    fn tab_near(&self, line: usize) -> Option<Place> {
        let text = &self.source.text;
        let start = self.source.line_start(line);
        let mut at = start;
        for line in text[start..].split_inclusive('\n') {
            let indent = line.len() - line.trim_start_matches([' ', '\t']).len();
            if let Some(tab) = line[..indent].find('\t').filter(|_| !line.trim().is_empty()) {
                return Some(Place::new(self.source, at + tab..at + tab + 1));
            }
            if at > start && !line.trim().is_empty() {
                return None;
            }
            at += line.len();
        }
        None
    }

    fn explained(&self, error: &ScanError) -> Diagnostic {
        let at = error.marker().byte_offset().unwrap_or(0) + self.offset;
        let at = at.min(self.source.text.len());
        let place = Place::new(self.source, at..at);
        let info = error.info();
        match error.kind() {
            ErrorKind::DirectiveDisallowed => {
                Diagnostic::error("PRV1010", place, "YAML directives are not allowed")
                    .help("remove the `%` line")
            }
            kind if format!("{kind:?}").contains("Nesting") || format!("{kind:?}").contains("Recursion") => {
                too_deep(self.source, at..at)
            }
            _ => {
                if let Some(tab) = self.tab_near(place.position().0 as usize) {
                    return Diagnostic::error("PRV1010", tab, "this is not YAML: a tab indents the line")
                        .help("indent with spaces: YAML does not allow tabs");
                }
                let line = self.source.line(place.position().0 as usize);
                let help = if line.contains(" = ") && !line.contains(": ") {
                    "YAML writes `key: value`; name the file .toml if it is TOML"
                } else {
                    "check the indentation and quotes of this line and the one above"
                };
                Diagnostic::error("PRV1010", place, format!("this is not YAML: {info}")).help(help)
            }
        }
    }
}

impl Tree {
    /// A copy, unless it is larger than what the file may still hold.
    fn clone_within(&self, size: usize, room: usize) -> Option<Tree> {
        (size <= room + 1).then(|| self.clone())
    }
}

/// A bare scalar by the core schema of YAML 1.2.
fn resolved(text: &str) -> Tree {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Tree::Null,
        "true" | "True" | "TRUE" => return Tree::Bool(true),
        "false" | "False" | "FALSE" => return Tree::Bool(false),
        _ => {}
    }
    let first = text.as_bytes()[0];
    if first.is_ascii_digit() || matches!(first, b'-' | b'+' | b'.') {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let is_whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = match text.get(..2) {
            Some("0x") => i64::from_str_radix(&text[2..], 16).ok(),
            Some("0o") => i64::from_str_radix(&text[2..], 8).ok(),
            _ if is_whole => text.strip_prefix('+').unwrap_or(text).parse().ok(),
            _ => None,
        };
        if let Some(number) = number {
            return Tree::Int(number);
        }
        if is_float(digits) {
            return Tree::Float(text.into());
        }
    }
    Tree::Text(text.into(), Quoting::Bare)
}

/// Digits with a fraction or an exponent.
fn is_float(text: &str) -> bool {
    let (mantissa, exponent) = match text.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (text, None),
    };
    let all_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let is_number = !(whole.is_empty() && fraction.is_empty()) && all_digits(whole) && all_digits(fraction);
    let is_scaled = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    is_number && is_scaled
}
