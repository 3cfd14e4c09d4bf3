//! Words of a pool that its NodePool has no field for: they travel as annotations, each the compact JSON of what the strategy says.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::api::terms::{WORDS, annotation_of, expiration_of, faults, windows_of};
use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::rendered::{Draft, joined};
use crate::gitops::tree::Node;
use crate::model::pool::DisruptionReason;
use crate::model::time::render_duration;
use crate::model::window::REASONS;

/// The weeks after this Monday stand for all others.
const SAMPLE: &str = "2026-01-05T00:00:00Z";

/// Puts the words of `pool` onto the NodePool of `drafts`, over what its template says.
pub(crate) fn annotate(pool: &Node, drafts: &mut [Draft]) {
    for draft in drafts.iter_mut().filter(|draft| draft.manifest["kind"] == "NodePool") {
        for word in WORDS {
            let Some(entry) = pool.entry(word) else { continue };
            let said = said(&entry.node);
            // What is wrong with it is told at its own line.
            if !faults(word, &said).is_empty() {
                continue;
            }
            let metadata = &mut draft.manifest["metadata"];
            if !metadata["annotations"].is_object() {
                metadata["annotations"] = json!({});
            }
            let key = annotation_of(word);
            let path = joined("metadata.annotations", &key);
            metadata["annotations"][key] = said.to_string().into();
            draft.origins.insert(path.as_str().into(), entry.key.clone());
            draft.keys.insert(path.into(), entry.key.clone());
        }
    }
}

/// What the form of the words does not show: each mistake at the line where it stands.
pub(crate) fn check(pool: &Node, engine: &str, found: &mut Vec<Diagnostic>) {
    for word in WORDS {
        let Some(entry) = pool.entry(word) else { continue };
        if engine == "karpenter" {
            let message =
                format!("`{word}` has no effect: in this environment an installed Karpenter provisions");
            found.push(
                Diagnostic::warning("PRV1634", entry.key.clone(), message)
                    .help("leave it out, or write `engine = \"provisor\"`; budgets hold with either"),
            );
        }
        for fault in faults(word, &said(&entry.node)) {
            let place = place_of(&entry.node, &fault.path).unwrap_or(&entry.key).clone();
            let is_told = |one: &Diagnostic| one.is_error() && one.place == place;
            if found.iter().any(is_told) {
                continue;
            }
            let message = match fault.path.is_empty() {
                true => format!("`{word}` {}", fault.message),
                false => format!("`{}`: {}", joined_below(word, &fault.path), fault.message),
            };
            let diagnostic = Diagnostic::error("PRV1203", place, message);
            found.push(diagnostic.help(fault.help.unwrap_or_else(|| "correct it, or leave it out".into())));
        }
    }
    check_windows(pool, found);
    check_expiration(pool, found);
}

/// Windows that never let anything go, for some reason or for all.
fn check_windows(pool: &Node, found: &mut Vec<Diagnostic>) {
    let Some(entry) = pool.entry("windows") else { return };
    let Some(windows) = windows_of(&said(&entry.node)) else { return };
    let Ok(monday) = SAMPLE.parse::<Timestamp>() else { return };
    let never = REASONS.into_iter().filter(|reason| windows.longest_wait(*reason, monday).is_none());
    let never: Vec<&str> = never.map(DisruptionReason::as_str).collect();
    if never.is_empty() {
        return;
    }
    let reasons = if never.len() == REASONS.len() { "any reason".to_owned() } else { never.join(", ") };
    let message = format!("these windows never let a node go for {reasons}");
    found.push(Diagnostic::warning("PRV1633", entry.key.clone(), message).help(
        "a denial wins over everything that allows; leave room between them if nodes are to go some time",
    ));
}

/// An expiration that says nothing, or whose deadline comes before any window opens.
fn check_expiration(pool: &Node, found: &mut Vec<Diagnostic>) {
    let Some(entry) = pool.entry("expiration") else { return };
    let Some(expiration) = expiration_of(&said(&entry.node)) else { return };
    if pool.get("expire-after").and_then(Node::as_text).is_some_and(|text| &**text == "Never") {
        found.push(
            Diagnostic::warning(
                "PRV1635",
                entry.key.clone(),
                "`expiration` has no effect: no node of the pool ever expires",
            )
            .help("leave it out, or set `expire-after`"),
        );
        return;
    }
    let windows = pool.get("windows").and_then(|windows| windows_of(&said(windows)));
    let Some((windows, deadline)) = windows.zip(expiration.deadline) else { return };
    let Ok(monday) = SAMPLE.parse::<Timestamp>() else { return };
    let wait = windows.longest_wait(DisruptionReason::Expired, monday);
    if wait.is_none_or(|wait| deadline < wait) {
        let place = entry.node.get("deadline").map_or(&entry.key, |node| &node.place).clone();
        let wait =
            wait.map_or_else(|| "for good".to_owned(), |wait| format!("for up to {}", render_duration(wait)));
        let message = format!(
            "nodes may go outside of their windows: those are closed {wait}, and after {} nodes go by force",
            render_duration(deadline)
        );
        found.push(
            Diagnostic::warning("PRV1635", place, message)
                .help("make `deadline` longer, or `never`, if windows are to hold in any case"),
        );
    }
}

/// `word` with a path below it, which may begin with an entry of a list.
fn joined_below(word: &str, path: &str) -> String {
    if path.starts_with('[') { format!("{word}{path}") } else { joined(word, path) }
}

/// The place of what is at `path` below `node`, or of as much of it as is there.
fn place_of<'n>(node: &'n Node, path: &str) -> Option<&'n Place> {
    let mut at = node;
    for step in path.split(['.', '[']).filter(|step| !step.is_empty()) {
        let below = match step.strip_suffix(']') {
            Some(index) => at.as_list().zip(index.parse::<usize>().ok()).and_then(|(list, at)| list.get(at)),
            None => at.get(step),
        };
        let Some(below) = below else { break };
        at = below;
    }
    (!path.is_empty()).then_some(&at.place)
}

/// What is said, without notes and without the names by which layers know entries of a list.
fn said(node: &Node) -> Value {
    if let Some(list) = node.as_list() {
        return list.iter().map(said).collect();
    }
    let Some(map) = node.as_map() else { return node.to_json() };
    let own = map.iter().filter(|(key, _)| !key.starts_with("x-") && &***key != "name");
    Value::Object(own.map(|(key, entry)| (key.to_string(), said(&entry.node))).collect::<Map<_, _>>())
}
