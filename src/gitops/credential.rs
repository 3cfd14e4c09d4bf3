//! Secrets do not belong into a repository. What looks like one is refused, and never repeated.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::rendered::{Draft, joined, place_of};
use crate::gitops::tree::{Node, Tree};
use crate::model::secret::{credential, named_secret};

pub(crate) const CODE: &str = "PRV1609";
/// Nothing shorter is taken for a secret.
const SHORTEST: usize = 16;

/// Looks through a file that people write: every text of its tree, and what is in no text, such as comments. Where the
/// tree is not whole, the letters of the file say where a secret is.
pub(crate) fn check(source: &Arc<Source>, tree: Option<&Node>, is_whole: bool, found: &mut Vec<Diagnostic>) {
    let mut told = Vec::new();
    if let Some(tree) = tree {
        look(tree, "", &mut told);
    }
    for stretch in source.secrets().stretches() {
        let is_told = |(_, place): &(_, Place)| {
            let bytes = place.bytes();
            bytes.start < stretch.end && stretch.start < bytes.end
        };
        let by_shape = credential(lines_around(&source.text, stretch));
        let what = by_shape.or_else(|| (!is_whole).then_some("a secret"));
        if let Some(what) = what.filter(|_| !told.iter().any(is_told)) {
            told.push((what, Place::new(source, stretch.clone())));
        }
    }
    found.extend(told.into_iter().map(|(what, place)| refusal(what, place)));
}

/// The whole lines of a stretch: a name beside it tells what it is.
fn lines_around<'t>(text: &'t str, stretch: &Range<usize>) -> &'t str {
    let start = text[..stretch.start].rfind('\n').map_or(0, |end| end + 1);
    let end = text[stretch.end..].find('\n').map_or(text.len(), |end| stretch.end + end);
    &text[start..end]
}

/// Looks through objects that were rendered: whatever a template puts together must not reach a cluster either.
pub(crate) fn check_drafts(drafts: &[Draft], found: &mut Vec<Diagnostic>) {
    // What the files say is told at their lines.
    if found.iter().any(|one| one.code == CODE) {
        return;
    }
    for draft in drafts {
        let mut told = Vec::new();
        look_rendered(&draft.manifest, "", "", &mut told);
        for (what, path) in told {
            let place = place_of(&draft.origins, &path).unwrap_or(&draft.origins[""]).clone();
            let kind = draft.manifest["kind"].as_str().unwrap_or_default();
            found.push(
                refusal(what, place)
                    .also(format!("rendered into {path} of this {kind}"), draft.origins[""].clone()),
            );
        }
    }
}

fn look_rendered(value: &Value, key: &str, path: &str, told: &mut Vec<(&'static str, String)>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                // What it is called by would say the secret again.
                match credential(key) {
                    Some(what) => told.push((what, path.to_owned())),
                    None => look_rendered(value, key, &joined(path, key), told),
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                look_rendered(item, key, &format!("{path}[{at}]"), told);
            }
        }
        Value::String(text) if text.len() >= SHORTEST => {
            if let Some(what) = text.lines().find_map(credential).or_else(|| named_secret(key, text)) {
                told.push((what, path.to_owned()));
            }
        }
        _ => {}
    }
}

fn look(node: &Node, key: &str, told: &mut Vec<(&'static str, Place)>) {
    match &node.value {
        Tree::Map(map) => map.iter().for_each(|(key, entry)| look(&entry.node, key, told)),
        Tree::List(items) => items.iter().for_each(|item| look(item, key, told)),
        Tree::Text(text, _) => {
            if let Some(what) = credential(text).or_else(|| named_secret(key, text)) {
                told.push((what, node.place.clone()));
            }
        }
        _ => {}
    }
}

/// Looks through a whole file, such as user data.
pub(crate) fn check_text(source: &Arc<Source>, found: &mut Vec<Diagnostic>) {
    let mut at = 0;
    for line in source.text.split_inclusive('\n') {
        if let Some(what) = credential(line) {
            let start = at + line.len() - line.trim_start().len();
            found.push(refusal(what, Place::new(source, start..at + line.trim_end().len())));
        }
        at += line.len();
    }
}

fn refusal(what: &str, place: Place) -> Diagnostic {
    // The excerpt of a diagnostic shows the line, so the place points into a copy without it.
    let (line, column) = place.position();
    let blank = format!("{}{}***", "\n".repeat(line as usize - 1), " ".repeat(column as usize - 1));
    let start = blank.len() - 3;
    let redacted = Source::new(place.file().clone(), blank);
    Diagnostic::error(
        CODE,
        Place::new(&redacted, start..start + 3),
        format!("this looks like {what} (value hidden)"),
    )
    .help("revoke it, keep it in a Secret or a parameter store, and name that here")
}
