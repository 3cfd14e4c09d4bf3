//! Secrets do not belong into a repository. What looks like one is refused, and never repeated.

use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::rendered::{Draft, joined, place_of};
use crate::gitops::tree::{Node, Tree};
use crate::model::secret::{Known, assigned_secrets, credential, is_secret_name, named_secret};

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

/// What was found in objects that were rendered.
struct Rendered<'d> {
    what: &'static str,
    draft: &'d Draft,
    path: String,
    value: &'d str,
}

fn rendered(drafts: &[Draft]) -> Vec<Rendered<'_>> {
    let mut all = Vec::new();
    for draft in drafts {
        let mut told = Vec::new();
        look_rendered(&draft.manifest, "", "", &mut told);
        all.extend(told.into_iter().map(|(what, path, value)| Rendered { what, draft, path, value }));
    }
    all
}

/// Looks through objects that were rendered: whatever a template puts together must not reach a cluster either.
pub(crate) fn check_drafts(drafts: &[Draft], found: &mut Vec<Diagnostic>) {
    // What the files say is told at their lines.
    if found.iter().any(|one| one.code == CODE) {
        return;
    }
    for Rendered { what, draft, path, .. } in rendered(drafts) {
        let place = place_of(&draft.origins, &path).unwrap_or(&draft.origins[""]).clone();
        let kind = draft.manifest["kind"].as_str().unwrap_or_default();
        found.push(
            refusal(what, place)
                .also(format!("rendered into {path} of this {kind}"), draft.origins[""].clone()),
        );
    }
}

/// What no diagnostic of a rendering may show: the secrets of its objects, and those of the files that it is made of, which
/// templates write into sentences about other files.
pub(crate) fn known_to(drafts: &[Draft], sources: &[Arc<Source>]) -> Known {
    let of_objects = rendered(drafts).into_iter().map(|one| one.value);
    let of_files = sources
        .iter()
        .flat_map(|source| source.secrets().stretches().iter().map(|stretch| &source.text[stretch.clone()]));
    Known::of(of_objects.chain(of_files))
}

/// The name under which a table of two entries gives a value: `name` and `value`, `key` and `values`.
fn name_given<'n>(text: impl Fn(&str) -> Option<&'n str>) -> Option<&'n str> {
    ["key", "name"].into_iter().filter_map(text).find(|name| is_secret_name(name))
}

fn look_rendered<'v>(
    value: &'v Value,
    key: &str,
    path: &str,
    told: &mut Vec<(&'static str, String, &'v str)>,
) {
    match value {
        Value::Object(map) => {
            let given = name_given(|key| map.get(key)?.as_str());
            for (key, value) in map {
                // What it is called by would say the secret again.
                match credential(key) {
                    Some(what) => told.push((what, path.to_owned(), key)),
                    None => look_rendered(value, name_of(key, given), &joined(path, key), told),
                }
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                look_rendered(item, key, &format!("{path}[{at}]"), told);
            }
        }
        Value::String(text) if text.len() >= SHORTEST => {
            if let Some(what) = text.lines().find_map(credential) {
                told.push((what, path.to_owned(), text));
            } else if let Some(what) = named_secret(key, text) {
                told.push((what, path.to_owned(), text));
            } else if let Some(stretch) = assigned_secrets(text).into_iter().next() {
                told.push(("a secret", path.to_owned(), &text[stretch]));
            }
        }
        _ => {}
    }
}

/// What a value is called by: its key, unless an entry beside it gives it a name.
fn name_of<'n>(key: &'n str, given: Option<&'n str>) -> &'n str {
    given.filter(|_| matches!(key, "value" | "values")).unwrap_or(key)
}

fn look(node: &Node, key: &str, told: &mut Vec<(&'static str, Place)>) {
    match &node.value {
        Tree::Map(map) => {
            let given = name_given(|key| map.get(key)?.as_text().map(|text| &**text));
            map.iter().for_each(|(key, entry)| look(&entry.node, name_of(key, given), told));
        }
        Tree::List(items) => items.iter().for_each(|item| look(item, key, told)),
        Tree::Text(text, _) => {
            let assigned = || assigned_secrets(text).first().map(|_| "a secret");
            if let Some(what) = credential(text).or_else(|| named_secret(key, text)).or_else(assigned) {
                told.push((what, node.place.clone()));
            }
        }
        _ => {}
    }
}

/// Looks through a whole file that is no strategy, such as user data or a manifest.
pub(crate) fn check_text(source: &Arc<Source>, found: &mut Vec<Diagnostic>) {
    let assigned = assigned_secrets(&source.text);
    let mut at = 0;
    for line in source.text.split_inclusive('\n') {
        let start = at + line.len() - line.trim_start().len();
        let end = at + line.trim_end().len();
        let is_inside = |stretch: &&Range<usize>| at <= stretch.start && stretch.start < at + line.len();
        if let Some(what) = credential(line) {
            found.push(refusal(what, Place::new(source, start..end)));
        } else if let Some(stretch) = assigned.iter().find(is_inside) {
            found.push(refusal("a secret", Place::new(source, stretch.clone())));
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
