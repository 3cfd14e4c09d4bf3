//! Secrets do not belong into a repository. What looks like one is refused, and never repeated.

use std::sync::Arc;

use serde_json::Value;

use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::rendered::{Draft, joined, place_of};
use crate::gitops::tree::{Node, Tree};
use crate::model::secret::{Known, What, credential, is_secret_flag, is_secret_name, secret_in};

pub(crate) const CODE: &str = "PRV1609";

/// Looks through a file that people write: every text of its tree, and what is in no text, such as comments. Where the
/// tree is not whole, the letters of the file say where a secret is.
pub(crate) fn check(source: &Arc<Source>, tree: Option<&Node>, is_whole: bool, found: &mut Vec<Diagnostic>) {
    let mut told = Vec::new();
    if let Some(tree) = tree {
        look(tree, "", &mut told);
    }
    let secrets = source.secrets();
    let certain = secrets.findings().iter().map(|one| (one.what, &one.stretch));
    let guessed = secrets.stretches().iter().filter(|_| !is_whole).map(|stretch| (What::NAMED, stretch));
    for (what, stretch) in certain.chain(guessed) {
        let is_told = |(_, place): &(_, Place)| {
            let bytes = place.bytes();
            bytes.start < stretch.end && stretch.start < bytes.end
        };
        if !told.iter().any(is_told) {
            told.push((what, Place::new(source, stretch.clone())));
        }
    }
    found.extend(told.into_iter().map(|(what, place)| refusal(what, place)));
}

/// What was found in objects that were rendered.
struct Rendered<'d> {
    what: What,
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

fn look_rendered<'v>(value: &'v Value, key: &str, path: &str, told: &mut Vec<(What, String, &'v str)>) {
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
            let mut before = None;
            for (at, item) in items.iter().enumerate() {
                look_rendered(item, before.unwrap_or(key), &format!("{path}[{at}]"), told);
                before = item.as_str().filter(|word| is_secret_flag(word));
            }
        }
        Value::String(text) => {
            if let Some(one) = secret_in(key, text) {
                told.push((one.what, path.to_owned(), &text[one.stretch]));
            }
        }
        _ => {}
    }
}

/// What a value is called by: its key, unless an entry beside it gives it a name.
fn name_of<'n>(key: &'n str, given: Option<&'n str>) -> &'n str {
    given.filter(|_| matches!(key, "value" | "values")).unwrap_or(key)
}

fn look(node: &Node, key: &str, told: &mut Vec<(What, Place)>) {
    match &node.value {
        Tree::Map(map) => {
            let given = name_given(|key| map.get(key)?.as_text().map(|text| &**text));
            map.iter().for_each(|(key, entry)| look(&entry.node, name_of(key, given), told));
        }
        Tree::List(items) => {
            let mut before = None;
            for item in items {
                look(item, before.unwrap_or(key), told);
                before = item.as_text().map(|text| &**text).filter(|word| is_secret_flag(word));
            }
        }
        Tree::Text(text, _) => {
            if let Some(one) = secret_in(key, text) {
                told.push((one.what, node.place.clone()));
            }
        }
        _ => {}
    }
}

/// Looks through a whole file that is no strategy, such as user data or a manifest.
pub(crate) fn check_text(source: &Arc<Source>, found: &mut Vec<Diagnostic>) {
    let secrets = source.secrets().findings();
    found.extend(secrets.iter().map(|one| refusal(one.what, Place::new(source, one.stretch.clone()))));
}

fn refusal(what: What, place: Place) -> Diagnostic {
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
