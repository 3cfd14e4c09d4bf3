//! Mistakes that hide behind others: what is wrong by itself is left out, and what remains is rendered and judged, so that
//! all mistakes are told at once.

use std::collections::BTreeSet;

use crate::gitops::diagnostic::{Diagnostic, Diagnostics, Place};
use crate::gitops::tree::{Map, Node, Tree};

/// What is no consequence of something that was left out.
const ITS_OWN: [&str; 22] = [
    "PRV1401", "PRV1503", "PRV1507", "PRV1508", "PRV1509", "PRV1601", "PRV1602", "PRV1603", "PRV1604",
    "PRV1605", "PRV1609", "PRV1611", "PRV1612", "PRV1613", "PRV1614", "PRV1616", "PRV1618", "PRV1621",
    "PRV1622", "PRV1623", "PRV1625", "PRV1626",
];

/// `found`, and those of `beside` that are mistakes of their own.
pub(crate) fn with_hidden(mut found: Diagnostics, beside: Diagnostics) -> Diagnostics {
    let line = |one: &Diagnostic| (one.place.file().clone(), one.place.position().0);
    let told: BTreeSet<_> = found.iter().map(line).collect();
    // A class is missing by itself, unless what was wrong is its own table.
    let is_left_out = |name: &str| {
        let lines = found.iter().map(|other| other.place.source.line(other.place.position().0 as usize));
        let is_table = |line: &str| {
            let words = line.trim_start_matches([' ', '"', '\'']);
            words.starts_with(name) || words.contains("classes") && words.contains(name)
        };
        lines.into_iter().any(is_table)
    };
    let is_its_own = |one: &Diagnostic| match one.code {
        "PRV1607" => !one.message.split('`').nth(1).is_some_and(is_left_out),
        code => ITS_OWN.contains(&code),
    };
    let beside: Vec<Diagnostic> = beside
        .into_iter()
        .filter(|one| one.is_error() && is_its_own(one) && !told.contains(&line(one)))
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
