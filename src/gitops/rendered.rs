//! Rendered text back into objects, each value with the place that a person would edit to change it.
//!
//! The marks of the template say which expression or line produced a stretch of text. What [`flow`](crate::gitops::flow)
//! follows back to the strategy (`pool.limits`) belongs to the key there; everything else belongs to the template. A key
//! belongs to whoever wrote the key, whatever gives it its value.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use crate::gitops::context;
use crate::gitops::desired::Origin;
use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::flow::{Follow, Giver, Steps};
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

/// One object before it is completed.
#[derive(Debug)]
pub(crate) struct Draft {
    pub manifest: Value,
    pub origins: Origins,
    /// The places of keys that somebody wrote, by the same paths.
    pub keys: Origins,
}

/// The place of every value by dotted path; `""` is the object.
pub(crate) type Origins = BTreeMap<Arc<str>, Place>;

/// A stretch of output and the step it came from.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    end: usize,
    step: usize,
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
    (marked, steps): &(String, Steps),
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
    let follow = Follow::new(marks, steps, &roots.roots);
    let trace = Trace { clean: &clean, follow, roots };
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
        let mut draft = Draft { manifest: tree.to_json(), origins: Origins::new(), keys: Origins::new() };
        trace.walk(&tree, "", None, &mut draft);
        draft.origins.insert("".into(), roots.entry.clone());
        drafts.push(draft);
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
                    out.expressions.push((start, Stretch { end: out.text.len(), step: number }));
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
            out.lines.push(Stretch { end: out.text.len(), step: number });
        }
    }
    out.text.push_str(rest);
    out
}

struct Trace<'a> {
    clean: &'a Clean,
    follow: Follow<'a>,
    roots: &'a Roots<'a>,
}

/// The expression that a value is a part of, by its place in the output, and who gave that part.
type Given<'a> = (usize, Giver<'a>);

impl<'a> Trace<'a> {
    /// The expression whose text covers a byte.
    fn expression(&self, byte: usize) -> Option<(usize, Stretch)> {
        let at = self.clean.expressions.partition_point(|(start, _)| *start <= byte).checked_sub(1)?;
        let (start, stretch) = self.clean.expressions[at];
        (byte < stretch.end.max(start + 1)).then_some((at, stretch))
    }

    /// The template line that wrote a byte of plain text.
    fn line(&self, byte: usize) -> Option<&'a Place> {
        let at = self.clean.lines.partition_point(|stretch| stretch.end <= byte);
        let line = self.clean.lines.get(at)?;
        Some(&self.follow.marks.get(line.step)?.place)
    }

    /// Who gave what the expression at a byte put out.
    fn given(&self, byte: usize, value: Option<&Node>) -> Option<Given<'a>> {
        let (at, stretch) = self.expression(byte)?;
        Some((at, self.follow.giver(stretch.step, value)?))
    }

    fn place(&self, byte: usize) -> Place {
        let given = self.given(byte, None).map(|(_, giver)| giver.place());
        given.or_else(|| self.line(byte)).unwrap_or(&self.roots.entry).clone()
    }

    /// Notes the origin of a value and of everything inside. `known` is who gave it, if an expression covers more than it.
    fn walk(&self, node: &Node, path: &str, known: Option<Given<'a>>, draft: &mut Draft) {
        let byte = node.place.start as usize;
        let given = match (self.expression(byte), known) {
            (Some((at, _)), Some((known_at, giver))) if at == known_at => Some((at, giver)),
            (Some(_), _) => self.given(byte, Some(node)),
            (None, _) => None,
        };
        let place = match given {
            Some((_, giver)) => giver.place().clone(),
            None => self.place(byte),
        };
        draft.origins.insert(path.into(), place);
        match &node.value {
            Tree::Map(map) => {
                for (key, entry) in map.iter() {
                    let path = joined(path, key);
                    let inner = given.map(|(at, giver)| {
                        (at, self.follow.entry_of(giver, key, &entry.node).unwrap_or(giver))
                    });
                    if let Some(place) = self.key(given, key, &entry.key) {
                        draft.keys.insert(path.as_str().into(), place);
                    }
                    self.walk(&entry.node, &path, inner, draft);
                }
            }
            Tree::List(items) => {
                for (index, item) in items.iter().enumerate() {
                    let inner = given
                        .map(|(at, giver)| (at, self.follow.item_of(giver, index, item).unwrap_or(giver)));
                    self.walk(item, &format!("{path}[{index}]"), inner, draft);
                }
            }
            _ => {}
        }
    }

    /// Who wrote a key: the table that an expression gave as a whole, or the template.
    fn key(&self, table: Option<Given<'a>>, key: &str, place: &Place) -> Option<Place> {
        match table {
            Some((_, Giver::Strategy(node))) => {
                let entry = node.entry(key).or_else(|| node.entry(&key.replace('_', "-")))?;
                Some(entry.key.clone())
            }
            Some((_, Giver::Template(..))) => None,
            None => Some(self.place(place.start as usize)),
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
        let mark = on_line.and_then(|(_, stretch)| {
            let mark = self.follow.steps.mark(stretch.step);
            Some(&self.follow.marks.get(mark)?.place)
        });
        let template = mark.or_else(|| self.line(byte)).unwrap_or(&self.roots.entry).clone();
        let value = on_line.and_then(|(_, stretch)| self.follow.giver(stretch.step, None));
        let value = value.map(|giver| giver.place().clone()).filter(|value| {
            let is_inside =
                value.source == template.source && template.start <= value.start && value.end <= template.end;
            !is_inside
        });
        let (why, help) = match has_long_key(&line) {
            true => (
                format!("a key has more than {KEY_MAX} letters"),
                "shorten it: the names of labels, taints and resources are far shorter",
            ),
            false => (problem.message.clone(), "put values into the template through `| tojson`"),
        };
        let message = format!("{} does not render to YAML: {why}", self.roots.subject);
        let shown = problem.place.excerpt().text.trim().to_owned();
        let diagnostic = match value {
            Some(value) => Diagnostic::error("PRV1501", value, message)
                .also(format!("put into the template here, giving the line `{shown}`"), template),
            None => Diagnostic::error("PRV1501", template, message).also(
                format!("rendered for {}, giving the line `{shown}`", self.roots.subject),
                self.roots.entry.clone(),
            ),
        };
        diagnostic.help(help)
    }
}

/// Letters of a key on one line that YAML allows.
const KEY_MAX: usize = 1024;

fn has_long_key(line: &str) -> bool {
    let parts: Vec<&str> = line.split('"').collect();
    parts.windows(2).any(|pair| pair[0].len() > KEY_MAX && pair[1].trim_start().starts_with(':'))
}

pub(crate) fn note_places(node: &Node, path: &str, origins: &mut Origins) {
    origins.insert(path.into(), node.place.clone());
    match &node.value {
        Tree::Map(map) => {
            map.iter().for_each(|(key, entry)| note_places(&entry.node, &joined(path, key), origins));
        }
        Tree::List(items) => {
            items
                .iter()
                .enumerate()
                .for_each(|(at, item)| note_places(item, &format!("{path}[{at}]"), origins));
        }
        _ => {}
    }
}

pub(crate) fn note_keys(node: &Node, path: &str, keys: &mut Origins) {
    match &node.value {
        Tree::Map(map) => {
            for (key, entry) in map.iter() {
                let path = joined(path, key);
                keys.insert(path.as_str().into(), entry.key.clone());
                note_keys(&entry.node, &path, keys);
            }
        }
        Tree::List(items) => {
            items.iter().enumerate().for_each(|(at, item)| note_keys(item, &format!("{path}[{at}]"), keys));
        }
        _ => {}
    }
}

/// Requirements come together from many fields; each goes back to the one that asked for it.
pub(crate) fn trace_requirements(draft: &mut Draft, pool: &Node) {
    let Some(requirements) = draft.manifest["spec"]["template"]["spec"]["requirements"].as_array() else {
        return;
    };
    for (at, requirement) in requirements.iter().enumerate() {
        let (Some(key), Some(operator)) = (requirement["key"].as_str(), requirement["operator"].as_str())
        else {
            continue;
        };
        let Some(source) = context::requirement_source(pool, key, operator) else { continue };
        let path = format!("spec.template.spec.requirements[{at}]");
        draft.origins.retain(|known, _| !known.starts_with(&path));
        match source.get("values") {
            Some(_) => note_places(source, &path, &mut draft.origins),
            None => {
                draft.origins.insert(path.as_str().into(), source.place.clone());
                let values = source.as_list().unwrap_or_default();
                for (index, value) in values.iter().enumerate() {
                    draft.origins.insert(format!("{path}.values[{index}]").into(), value.place.clone());
                }
            }
        }
    }
}

/// Fields of a disk in the strategy, and where they come to stand.
const DISK_FIELDS: [(&str, &str); 9] = [
    ("device", "deviceName"),
    ("size", "ebs.volumeSize"),
    ("type", "ebs.volumeType"),
    ("iops", "ebs.iops"),
    ("throughput", "ebs.throughput"),
    ("encrypted", "ebs.encrypted"),
    ("kms-key", "ebs.kmsKeyID"),
    ("snapshot", "ebs.snapshotID"),
    ("delete-on-termination", "ebs.deleteOnTermination"),
];

/// Disks are written by a loop, and user data may be a file; each goes back to what asked for it.
pub(crate) fn trace_class(draft: &mut Draft, class: &Node) {
    let disks = draft.manifest["spec"]["blockDeviceMappings"].as_array().map_or(0, Vec::len);
    let volumes =
        class.get("volumes").filter(|volumes| volumes.as_list().is_some_and(|list| list.len() == disks));
    for (at, volume) in volumes.and_then(Node::as_list).unwrap_or_default().iter().enumerate() {
        let path = format!("spec.blockDeviceMappings[{at}]");
        draft.origins.insert(path.as_str().into(), volume.place.clone());
        for (field, rendered) in DISK_FIELDS {
            let known = draft.origins.get_mut(format!("{path}.{rendered}").as_str());
            if let (Some(known), Some(node)) = (known, volume.get(field)) {
                *known = node.place.clone();
            }
        }
    }
    if let (Some(known), Some(file)) = (draft.origins.get_mut("spec.userData"), class.get("user-data-file")) {
        *known = file.place.clone();
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
