//! Secrets do not belong into a repository. What looks like one is refused, and never repeated.

use std::sync::Arc;

use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::tree::{Node, Tree};
use crate::model::secret::{credential, named_secret};

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
        let by_shape = credential(&source.text[stretch.clone()]);
        let what = by_shape.or_else(|| (!is_whole).then_some("a secret"));
        if let Some(what) = what.filter(|_| !told.iter().any(is_told)) {
            told.push((what, Place::new(source, stretch.clone())));
        }
    }
    found.extend(told.into_iter().map(|(what, place)| refusal(what, place)));
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
        "PRV1609",
        Place::new(&redacted, start..start + 3),
        format!("this looks like {what} (value hidden)"),
    )
    .help("revoke it, keep it in a Secret or a parameter store, and name that here")
}
