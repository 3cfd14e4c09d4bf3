//! `roll` of a pool: an annotation on its NodePool, whatever its template makes of it.

use serde_json::{Map, Value, json};

use crate::api::roll::{KEYS, parse};
use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::rendered::{Draft, place_of};
use crate::gitops::tree::Node;
use crate::model::label::annotation;

const UNREADABLE: &str = "PRV1640";
const IGNORED: &str = "PRV1641";

/// Writes what `pool` says of its rolls on its NodePool among `drafts`; what cannot be read is [`check`]'s to tell.
pub(crate) fn annotate(name: &str, pool: &Node, drafts: &mut [Draft]) {
    let Some(entry) = pool.entry("roll") else { return };
    let text = text_of(&entry.node);
    if text == "{}" || parse(&text).is_err() {
        return;
    }
    let is_pool = |draft: &&mut Draft| draft.manifest["kind"] == "NodePool";
    let is_only_one = drafts.iter().filter(|draft| draft.manifest["kind"] == "NodePool").count() == 1;
    let mut pools = drafts.iter_mut().filter(is_pool);
    let Some(draft) = pools.find(|draft| is_only_one || draft.manifest["metadata"]["name"] == name) else {
        return;
    };
    let Some(metadata) = draft.manifest["metadata"].as_object_mut() else { return };
    let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
    if let Some(annotations) = annotations.as_object_mut() {
        annotations.insert(annotation::ROLL.to_string(), text.into());
        draft.origins.insert(path().into(), entry.node.place.clone());
        draft.keys.insert(path().into(), entry.key.clone());
    }
}

fn path() -> String {
    format!("metadata.annotations.{}", *annotation::ROLL)
}

/// The given fields in compact JSON, always in one order.
fn text_of(roll: &Node) -> String {
    let given = KEYS.into_iter().filter_map(|key| Some((key.to_owned(), roll.get(key)?.to_json())));
    Value::Object(given.collect::<Map<String, Value>>()).to_string()
}

/// Checks what `pool` says of its rolls.
pub(crate) fn check(pool: &Node, engine: &str, found: &mut Vec<Diagnostic>) {
    let Some(entry) = pool.entry("roll") else { return };
    if let Err(error) = parse(&text_of(&entry.node)) {
        let field = error.key.and_then(|key| entry.node.get(key));
        let place = field.map_or_else(|| entry.key.clone(), |field| field.place.clone());
        found.push(unreadable(place, error.key, &error.message));
    }
    if engine == "karpenter" {
        let message = "`roll` has no effect: an installed Karpenter provisions here, and knows nothing of it";
        found.push(
            Diagnostic::warning(IGNORED, entry.key.clone(), message)
                .help("leave it out, or hold nodes back by `budgets`, which Karpenter keeps as well"),
        );
    }
}

/// Checks an annotation that a template or `overrides` wrote.
pub(crate) fn check_draft(draft: &Draft, found: &mut Vec<Diagnostic>) {
    let written = &draft.manifest["metadata"]["annotations"][annotation::ROLL.as_str()];
    // That it has to be a text is said of every annotation.
    let Some(text) = written.as_str() else { return };
    if let Err(error) = parse(text) {
        let place = place_of(&draft.origins, &path()).unwrap_or(&draft.origins[""]).clone();
        found.push(unreadable(place, error.key, &format!("{}: {}", *annotation::ROLL, error.message)));
    }
}

fn unreadable(place: Place, key: Option<&str>, message: &str) -> Diagnostic {
    let help = match key {
        Some("soak") => "write it like 10m, 90s or 1h30m",
        Some("surge") => "write it like 2 or \"10%\"",
        _ => {
            "a table such as { canary = 1, soak = \"10m\", surge = \"10%\", paused = false, halt-after = 3 }"
        }
    };
    let of = key.map_or_else(String::new, |key| format!(" `{key}`"));
    Diagnostic::error(UNREADABLE, place, format!("`roll`{of} cannot be used: {message}")).help(help)
}
