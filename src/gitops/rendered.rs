//! Rendered text back into objects, each value with the place that a person would edit to change it.
//!
//! The marks of the template say which expression or line produced a stretch of text. An expression that is a path into
//! the strategy (`pool.limits`) leads on to the key there; everything else belongs to the template.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::gitops::desired::Origin;
use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::meter::OUTPUT_MAX;
use crate::gitops::read::documents;
use crate::gitops::template::{CLOSE, LINE, Mark, NUMBER_END, OPEN};
use crate::gitops::tree::{Node, Tree};

/// What the names of a template stand for in the strategy.
pub(crate) struct Roots<'a> {
    pub roots: Vec<(&'static str, &'a Node)>,
    /// The entry that is being rendered, for what leads nowhere else.
    pub entry: Place,
    /// Such as "pool `general`".
    pub subject: String,
}

impl<'a> Roots<'a> {
    fn find(&self, path: &[String]) -> Option<&'a Node> {
        let (root, rest) = path.split_first()?;
        let mut node = self.roots.iter().find(|(name, _)| name == root)?.1;
        for name in rest {
            if name == "*" {
                return Some(node);
            }
            node = child(node, name)?;
        }
        Some(node)
    }
}

/// Templates write `startup_taints` for what the strategy calls `startup-taints`.
fn child<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    node.get(name).or_else(|| node.get(&name.replace('_', "-")))
}

/// One object before it is completed.
#[derive(Debug)]
pub(crate) struct Draft {
    pub manifest: Value,
    pub origins: Origins,
}

/// The place of every value by dotted path; `""` is the object.
pub(crate) type Origins = BTreeMap<Arc<str>, Place>;

/// A stretch of output and the mark it came from.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    end: usize,
    mark: usize,
}

/// Text without marks, and the stretches that had them, in order.
#[derive(Debug)]
struct Clean {
    text: String,
    expressions: Vec<(usize, Stretch)>,
    lines: Vec<Stretch>,
}

/// Reads the marked text of one rendering.
pub(crate) fn read(
    marked: &str,
    marks: &[Mark],
    roots: &Roots<'_>,
    found: &mut Vec<Diagnostic>,
) -> Vec<Draft> {
    let clean = clean(marked);
    if clean.text.len() > OUTPUT_MAX {
        let message =
            format!("{} renders to {} bytes, more than {OUTPUT_MAX}", roots.subject, clean.text.len());
        found.push(Diagnostic::error("PRV1405", roots.entry.clone(), message).help("render less"));
        return Vec::new();
    }
    let source = Source::new("rendered", clean.text.as_str());
    let mut problems = Vec::new();
    let trees = documents(&source, &mut problems).unwrap_or_default();
    let trace = Trace { clean: &clean, marks, roots };
    found.extend(problems.into_iter().map(|problem| trace.traced(problem)));
    let mut drafts = Vec::new();
    for tree in trees {
        if tree.as_map().is_none() {
            let place = trace.place(tree.place.start as usize);
            let message = format!("{} renders {} where an object is expected", roots.subject, tree.kind());
            found.push(
                Diagnostic::error("PRV1501", place, message).help("write `apiVersion`, `kind` and so on"),
            );
            continue;
        }
        let mut origins = Origins::new();
        origins.insert("".into(), roots.entry.clone());
        if let Some(map) = tree.as_map() {
            for (key, entry) in map.iter() {
                trace.walk(&entry.node, key, None, &mut origins);
            }
        }
        drafts.push(Draft { manifest: tree.to_json(), origins });
    }
    drafts
}

fn clean(marked: &str) -> Clean {
    let mut out =
        Clean { text: String::with_capacity(marked.len()), expressions: Vec::new(), lines: Vec::new() };
    let mut open: Vec<(usize, usize)> = Vec::new();
    let mut rest = marked;
    while let Some(at) = rest.find([OPEN, CLOSE, LINE]) {
        out.text.push_str(&rest[..at]);
        let mark = rest[at..].chars().next().unwrap_or(CLOSE);
        rest = &rest[at + mark.len_utf8()..];
        if mark == CLOSE {
            if let Some((number, start)) = open.pop() {
                // An expression inside another is a detail of that.
                if open.is_empty() {
                    out.expressions.push((start, Stretch { end: out.text.len(), mark: number }));
                }
            }
            continue;
        }
        let Some(end) = rest.find(NUMBER_END) else { continue };
        let number = rest[..end].parse().unwrap_or(0);
        rest = &rest[end + NUMBER_END.len_utf8()..];
        if mark == OPEN {
            open.push((number, out.text.len()));
        } else if open.is_empty() {
            out.lines.push(Stretch { end: out.text.len(), mark: number });
        }
    }
    out.text.push_str(rest);
    out
}

struct Trace<'a> {
    clean: &'a Clean,
    marks: &'a [Mark],
    roots: &'a Roots<'a>,
}

impl<'a> Trace<'a> {
    /// The expression whose text covers a byte.
    fn expression(&self, byte: usize) -> Option<(usize, &'a Mark)> {
        let at = self.clean.expressions.partition_point(|(start, _)| *start <= byte).checked_sub(1)?;
        let (start, stretch) = self.clean.expressions[at];
        (byte < stretch.end.max(start + 1)).then(|| (at, &self.marks[stretch.mark]))
    }

    /// The template line that wrote a byte of plain text.
    fn line(&self, byte: usize) -> Option<&'a Mark> {
        let at = self.clean.lines.partition_point(|stretch| stretch.end <= byte);
        Some(&self.marks[self.clean.lines.get(at)?.mark])
    }

    fn place(&self, byte: usize) -> Place {
        if let Some((_, mark)) = self.expression(byte) {
            let target = mark.path.as_deref().and_then(|path| self.roots.find(path));
            return target.map_or_else(|| mark.place.clone(), |node| node.place.clone());
        }
        self.line(byte).map_or_else(|| self.roots.entry.clone(), |mark| mark.place.clone())
    }

    /// Notes the origin of a value and of everything inside. `known` is the expression that already covers it, with the
    /// part of the strategy that this value is.
    fn walk(&self, node: &Node, path: &str, known: Option<(usize, Option<&Node>)>, origins: &mut Origins) {
        let byte = node.place.start as usize;
        let here = match (self.expression(byte), known) {
            (Some((at, _)), Some((known_at, part))) if at == known_at => Some((at, part)),
            (Some((at, mark)), _) => Some((at, mark.path.as_deref().and_then(|path| self.roots.find(path)))),
            (None, _) => None,
        };
        let place = match here {
            Some((_, Some(part))) => part.place.clone(),
            Some((at, None)) => self.marks[self.clean.expressions[at].1.mark].place.clone(),
            None => self.place(byte),
        };
        origins.insert(path.into(), place);
        match &node.value {
            Tree::Map(map) => {
                for (key, entry) in map.iter() {
                    let part = here.map(|(at, part)| (at, part.map(|part| child(part, key).unwrap_or(part))));
                    self.walk(&entry.node, &joined(path, key), part, origins);
                }
            }
            Tree::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let part = here.map(|(at, part)| {
                        let inner =
                            part.map(|part| part.as_list().and_then(|list| list.get(index)).unwrap_or(part));
                        (at, inner)
                    });
                    self.walk(item, &format!("{path}[{index}]"), part, origins);
                }
            }
            _ => {}
        }
    }

    /// A mistake in the rendered text, told at the place that caused it.
    fn traced(&self, problem: Diagnostic) -> Diagnostic {
        let byte = problem.place.start as usize;
        let line = problem.place.source.line(problem.place.position().0 as usize).to_owned();
        let line_start = problem.place.source.line_start(problem.place.position().0 as usize);
        // The value on the same line is the likely cause, even if the reader tripped behind it.
        let on_line = self.clean.expressions.iter().rev().find(|(start, stretch)| {
            *start <= byte && stretch.end >= line_start && *start < line_start + line.len() + 1
        });
        let template = match on_line {
            Some((_, stretch)) => self.marks[stretch.mark].place.clone(),
            None => self.line(byte).map_or_else(|| self.roots.entry.clone(), |mark| mark.place.clone()),
        };
        let value = on_line
            .and_then(|(_, stretch)| self.marks[stretch.mark].path.as_deref())
            .and_then(|path| self.roots.find(path))
            .map(|node| node.place.clone());
        let message = format!("{} does not render to YAML: {}", self.roots.subject, problem.message);
        let shown = problem.place.excerpt().text.trim().to_owned();
        let mut diagnostic = match value {
            Some(value) => Diagnostic::error("PRV1501", value, message)
                .also(format!("put into the template here, giving the line `{shown}`"), template),
            None => Diagnostic::error("PRV1501", template, message).also(
                format!("rendered for {}, giving the line `{shown}`", self.roots.subject),
                self.roots.entry.clone(),
            ),
        };
        diagnostic.help = Some("put values into the template through `| tojson`".to_owned());
        diagnostic
    }
}

/// A path one key longer. Keys with dots in them stand as they are: the parents of a path are found by cutting it.
pub(crate) fn joined(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// The nearest known place for a path.
pub(crate) fn place_of<'o>(origins: &'o Origins, path: &str) -> Option<&'o Place> {
    let plain = path.replace("[\"", ".").replace("\"]", "");
    let mut at = plain.as_str();
    loop {
        if let Some(place) = origins.get(at) {
            return Some(place);
        }
        if at.is_empty() {
            return None;
        }
        at = at.rfind(['.', '[']).map_or("", |end| &at[..end]);
    }
}

/// Places as other modules see them: file, line and column.
pub(crate) fn as_origins(origins: &Origins) -> BTreeMap<Arc<str>, Origin> {
    origins.iter().map(|(path, place)| (path.clone(), place.origin())).collect()
}
