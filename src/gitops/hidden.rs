//! Mistakes that hide behind others: what is wrong by itself is left out, and what remains is rendered and judged, so that
//! all mistakes are told at once.

use std::collections::BTreeSet;

use crate::gitops::diagnostic::{Diagnostic, Diagnostics, Place};
use crate::gitops::fleet::Resolved;
use crate::gitops::tree::{Map, Node, Tree};
use crate::model::near::nearest;

/// The layers of an environment without what is wrong in them by itself.
pub(crate) struct Rest {
    pub resolved: Resolved,
    /// Whether every layer could be read: otherwise anything may have been in the others.
    pub is_whole: bool,
}

/// What may follow from something that was left out, so that it is told only once that is repaired: always, or if a field
/// with one of these names was left out. Whatever is not here is a mistake of its own.
const MAY_FOLLOW: [(&str, &[&str]); 13] = [
    ("PRV1204", &["strategy"]),
    ("PRV1305", &[]),
    ("PRV1403", &[]),
    ("PRV1409", &[]),
    ("PRV1414", &[]),
    ("PRV1501", &[]),
    ("PRV1506", &[]),
    ("PRV1610", &["class", "preset", "strategy"]),
    ("PRV1615", &["expire-after", "termination-grace-period"]),
    ("PRV1629", &["iops", "throughput", "type"]),
    ("PRV1801", &[]),
    ("PRV1803", &[]),
    ("PRV1806", &[]),
];

/// `found`, and those of `beside` that are mistakes of their own.
pub(crate) fn with_hidden(mut found: Diagnostics, beside: Diagnostics, is_whole: bool) -> Diagnostics {
    let line = |one: &Diagnostic| (one.place.file().clone(), one.place.position().0);
    let told: BTreeSet<_> = found.iter().map(line).collect();
    let left_out: Vec<&str> = found
        .iter()
        .filter(|one| one.is_error())
        .map(|one| one.place.source.line(one.place.position().0 as usize))
        .collect();
    // A class is missing by itself, unless what was wrong is its own table.
    let is_table = |name: &str| {
        left_out.iter().any(|line| {
            let words = line.trim_start_matches([' ', '"', '\'']);
            words.starts_with(name) || words.contains("classes") && words.contains(name)
        })
    };
    // Misspelt it was left out as well.
    let is_named = |names: &[&str]| {
        let words = left_out.iter().flat_map(|line| {
            line.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '-' && letter != '_')
        });
        words.into_iter().any(|word| names.contains(&word) || nearest(word, names.iter().copied()).is_some())
    };
    let follows = |one: &Diagnostic| match MAY_FOLLOW.iter().find(|(code, _)| *code == one.code) {
        _ if one.code == "PRV1607" => !is_whole || one.message.split('`').nth(1).is_some_and(is_table),
        Some((_, names)) => !is_whole || names.is_empty() || is_named(names),
        None => false,
    };
    let beside: Vec<Diagnostic> = beside
        .into_iter()
        .filter(|one| one.is_error() && !follows(one) && !told.contains(&line(one)))
        .collect();
    found.extend(beside);
    found.sorted()
}

/// `node` without the entries that `wrong` points at.
pub(crate) fn without(node: &Node, wrong: &[Place]) -> Node {
    let is_wrong = |place: &Place, inner: bool| {
        wrong.iter().any(|one| {
            one == place
                || inner && one.source == place.source && place.start <= one.start && one.end <= place.end
        })
    };
    let is_leaf = |node: &Node| !matches!(node.value, Tree::Map(_) | Tree::List(_));
    let value = match &node.value {
        Tree::Map(map) => {
            let right = map.0.iter().filter(|(_, entry)| {
                !is_wrong(&entry.key, false) && !is_wrong(&entry.node.place, is_leaf(&entry.node))
            });
            let kept = right.map(|(key, entry)| {
                let mut entry = entry.clone();
                entry.node = without(&entry.node, wrong);
                (key.clone(), entry)
            });
            Tree::Map(Map(kept.collect()))
        }
        Tree::List(items) => {
            let right = items.iter().filter(|item| !is_wrong(&item.place, is_leaf(item)));
            Tree::List(right.map(|item| without(item, wrong)).collect())
        }
        other => other.clone(),
    };
    Node { value, place: node.place.clone() }
}
