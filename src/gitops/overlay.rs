//! Base and environment, merged. Later layers win, value by value.
//!
//! Tables merge deeply, scalars and lists are replaced, and the few lists whose entries have a name merge by it:
//! requirements by label, taints by key and effect, budgets by name, volumes by device. Nothing disappears by being left
//! out; it is removed by `{ "$remove" = true }`. Every value keeps its own place, so the merged tree knows the origin
//! of each of its fields, and the layers below it tell the history.

use std::sync::Arc;

use crate::gitops::diagnostic::{Diagnostic, Place};
use crate::gitops::inheritance;
use crate::gitops::tree::{Entry, Map, Node, Tree};

/// One file's contribution, lowest first in a list of layers.
#[derive(Clone, Debug)]
pub(crate) struct Layer {
    /// In the shape of an environment.
    pub tree: Node,
    /// Paths that higher layers may not touch, with the place of the wish.
    pub finals: Vec<(Vec<String>, Place)>,
}

/// Where in the language a value stands, which decides how it merges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    /// Removal markers take effect.
    Language,
    /// Inside `overrides`: markers are for the rendered object and stay.
    Verbatim,
}

/// All layers in one tree, every pool and class with the defaults below it. Mistakes of the layering itself are pushed to
/// `found`.
pub(crate) fn merge(layers: &[Layer], found: &mut Vec<Diagnostic>) -> Option<Node> {
    check_finals(layers, found);
    let lowest = layers.first()?;
    let mut merged = Node::map(lowest.tree.place.clone());
    for layer in layers {
        merged = over(merged, &inheritance::without_heirs(&layer.tree), "", Manner::Language, found);
    }
    inheritance::lay(layers, &mut merged, found);
    Some(merged)
}

/// `upper` merged over `lower`.
pub(crate) fn merged(lower: &Node, upper: &Node, found: &mut Vec<Diagnostic>) -> Node {
    over(lower.clone(), upper, "", Manner::Language, found)
}

fn over(lower: Node, upper: &Node, key: &str, manner: Manner, found: &mut Vec<Diagnostic>) -> Node {
    let manner = if key == "overrides" { Manner::Verbatim } else { manner };
    let place = upper.place.clone();
    if upper.is_removal() {
        return upper.clone();
    }
    match (lower.value, &upper.value) {
        (Tree::Map(lower), Tree::Map(upper)) => {
            Node { value: Tree::Map(merge_maps(lower, upper, manner, found)), place }
        }
        (Tree::List(lower), Tree::List(upper)) if manner == Manner::Language => {
            let value = match identity(key) {
                Some(identity) => merge_keyed(lower, upper, identity, key, found),
                None => upper.clone(),
            };
            Node { value: Tree::List(value), place }
        }
        _ if manner == Manner::Verbatim => upper.clone(),
        _ => without_removals(upper.clone(), found),
    }
}

fn merge_maps(mut lower: Map, upper: &Map, manner: Manner, found: &mut Vec<Diagnostic>) -> Map {
    for (key, entry) in upper.iter() {
        let is_removal = manner == Manner::Language && entry.node.is_removal();
        match (lower.0.shift_remove_full(key), is_removal) {
            (Some(_), true) => {}
            (None, true) => found.push(nothing_to_remove(key, entry)),
            (Some((at, _, below)), false) => {
                let node = over(below.node, &entry.node, key, manner, found);
                // The last entry is gone: nothing is said any more, which is not the same as an empty list.
                let is_used_up = node.as_list().is_some_and(<[Node]>::is_empty)
                    && entry.node.as_list().is_some_and(|list| !list.is_empty());
                if is_used_up && manner == Manner::Language {
                    continue;
                }
                lower.0.shift_insert(at, key.clone(), Entry { key: entry.key.clone(), node });
            }
            (None, false) => {
                let node = match manner == Manner::Verbatim || &**key == "overrides" {
                    true => entry.node.clone(),
                    false => without_removals(entry.node.clone(), found),
                };
                lower.0.insert(key.clone(), Entry { key: entry.key.clone(), node });
            }
        }
    }
    lower
}

/// A marker that meets nothing is a mistake, most likely a misspelt name.
pub(crate) fn nothing_to_remove(key: &str, entry: &Entry) -> Diagnostic {
    let message = format!("`{key}` is removed, but no lower layer sets it");
    Diagnostic::error("PRV1305", entry.key.clone(), message).help(
        "remove the line, or correct the name; lower layers are `defaults` and the files that are extended",
    )
}

fn without_removals(mut node: Node, found: &mut Vec<Diagnostic>) -> Node {
    match &mut node.value {
        Tree::Map(map) => {
            map.0.retain(|key, entry| {
                let is_removal = entry.node.is_removal();
                if is_removal {
                    found.push(nothing_to_remove(key, entry));
                } else if &**key != "overrides" {
                    let inner = std::mem::replace(&mut entry.node.value, Tree::Null);
                    let whole = Node { value: inner, place: entry.node.place.clone() };
                    entry.node = without_removals(whole, found);
                }
                !is_removal
            });
        }
        Tree::List(items) => items.retain(|item| {
            if item.is_removal() {
                let message = "an entry is removed, but no lower layer has it";
                found
                    .push(Diagnostic::error("PRV1305", item.place.clone(), message).help("remove the entry"));
            }
            !item.is_removal()
        }),
        _ => {}
    }
    node
}

/// The fields that name an entry of a keyed list, and whether entries merge or replace each other.
struct Identity {
    fields: &'static [&'static str],
    merges: bool,
}

/// The fields that name an entry of a list of the language; none for lists that are replaced as a whole.
pub(crate) fn identity_fields(list: &str) -> &'static [&'static str] {
    identity(list).map_or(&[], |identity| identity.fields)
}

fn identity(key: &str) -> Option<Identity> {
    let (fields, merges): (&[&str], bool) = match key {
        "requirements" => (&["key"], false),
        "taints" | "startup-taints" => (&["key", "effect"], false),
        "budgets" | "windows" => (&["name"], true),
        "volumes" => (&["device"], true),
        _ => return None,
    };
    Some(Identity { fields, merges })
}

impl Identity {
    /// `None` for an entry without a name, such as an unnamed budget.
    fn of(&self, node: &Node) -> Option<Vec<Arc<str>>> {
        self.fields.iter().map(|field| node.get(field)?.as_text().cloned()).collect()
    }
}

/// Entries of `upper` take the place of those of `lower` with the same name; new ones follow. A list with an unnamed
/// entry replaces the whole.
fn merge_keyed(
    lower: Vec<Node>,
    upper: &[Node],
    identity: Identity,
    key: &str,
    found: &mut Vec<Diagnostic>,
) -> Vec<Node> {
    let is_named = |list: &[Node]| list.iter().all(|node| identity.of(node).is_some());
    let only_removes = upper.iter().all(Node::is_removal) && !upper.is_empty();
    if !(is_named(&lower) || only_removes) || !is_named(upper) {
        let mut whole = upper.to_vec();
        whole.retain(|node| !is_told_as_nothing(node, key, found));
        return whole.into_iter().map(|node| without_removals(node, found)).collect();
    }
    let mut out = Vec::new();
    let mut used = vec![false; upper.len()];
    let mut replaced = std::collections::BTreeSet::new();
    for below in lower {
        let name = identity.of(&below);
        let same: Vec<usize> = (0..upper.len()).filter(|at| identity.of(&upper[*at]) == name).collect();
        if same.is_empty() {
            out.push(below);
            continue;
        }
        for at in &same {
            used[*at] = true;
        }
        if upper[same[0]].is_removal() || !replaced.insert(name) {
            continue;
        }
        match identity.merges {
            true => out.push(over(below, &upper[same[0]], "", Manner::Language, found)),
            false => out.extend(same.iter().map(|at| upper[*at].clone())),
        }
    }
    for (node, _) in upper.iter().zip(used).filter(|(_, used)| !used) {
        if !is_told_as_nothing(node, key, found) {
            out.push(without_removals(node.clone(), found));
        }
    }
    out
}

/// Whether an entry is a marker, which meets nothing here.
fn is_told_as_nothing(node: &Node, key: &str, found: &mut Vec<Diagnostic>) -> bool {
    let is_removal = node.is_removal();
    if is_removal {
        let message = format!("an entry of `{key}` is removed, but no lower layer has it");
        found.push(Diagnostic::error("PRV1305", node.place.clone(), message).help("remove the entry"));
    }
    is_removal
}

/// A path marked `final` by a layer may not be set above it.
fn check_finals(layers: &[Layer], found: &mut Vec<Diagnostic>) {
    for (index, layer) in layers.iter().enumerate() {
        for (path, wish) in &layer.finals {
            for above in &layers[index + 1..] {
                let mut hits = Vec::new();
                collect_hits(&above.tree, path, &mut hits);
                for (table, kind) in inheritance::HEIRS {
                    // A pool that says nothing of the word itself has it from the defaults.
                    let is_inherited = path.len() > 2
                        && path[0] == table
                        && (path[1] == "*" || !layers[..=index].iter().any(|lower| says(&lower.tree, path)));
                    if is_inherited {
                        collect_hits_at(&above.tree, &["defaults", kind], &path[2..], &mut hits);
                        collect_lost_defaults(&layers[..=index], &above.tree, kind, &path[2..], &mut hits);
                    }
                }
                if let [first, rest @ ..] = path.as_slice()
                    && first == "variables"
                {
                    collect_own_variables(&above.tree, rest, &mut hits);
                }
                for place in hits {
                    let message = format!("`{}` is final and may not be changed here", path.join("."));
                    found.push(
                        Diagnostic::error("PRV1304", place, message)
                            .also("marked final here", wish.clone())
                            .help("remove it here, or lift the mark there"),
                    );
                }
            }
        }
    }
}

fn says(tree: &Node, path: &[String]) -> bool {
    let mut hits = Vec::new();
    collect_hits(tree, path, &mut hits);
    !hits.is_empty()
}

fn collect_hits_at(tree: &Node, below: &[&str], path: &[String], hits: &mut Vec<Place>) {
    if let Some(node) = tree.at(below.iter().copied()) {
        collect_hits(node, path, hits);
    }
}

/// Defaults that are taken away as a whole take the words away that lower layers gave in them.
fn collect_lost_defaults(lower: &[Layer], tree: &Node, kind: &str, path: &[String], hits: &mut Vec<Place>) {
    let Some(all) = tree.entry("defaults") else { return };
    let gone = match all.node.is_removal() {
        true => Some(all),
        false => all.node.entry(kind).filter(|own| own.node.is_removal()),
    };
    let Some(gone) = gone else { return };
    if lower.iter().filter_map(|layer| layer.tree.at(["defaults", kind])).any(|below| says(below, path)) {
        hits.push(gone.key.clone());
    }
}

/// Pools and classes lay variables of their own over those of the environment.
fn collect_own_variables(tree: &Node, path: &[String], hits: &mut Vec<Place>) {
    let tables = ["pools", "classes", "defaults"].into_iter().filter_map(|table| tree.get(table)?.as_map());
    for (_, owner) in tables.flat_map(Map::iter) {
        let Some(own) = owner.node.entry("variables") else { continue };
        if path.is_empty() || own.node.is_removal() {
            hits.push(own.key.clone());
        } else {
            collect_hits(&own.node, path, hits);
        }
    }
}

fn collect_hits(node: &Node, path: &[String], hits: &mut Vec<Place>) {
    let (Some((first, rest)), Some(map)) = (path.split_first(), node.as_map()) else { return };
    // A label's key has dots of its own: then the rest of the path is one key.
    let whole = path.join(".");
    for (key, entry) in map.iter() {
        let is_whole = **key == *whole;
        if !is_whole && first != "*" && first.as_str() != &**key {
            continue;
        }
        // A value in the place of a table takes away what the table has.
        let is_replaced = first != "*"
            && match &entry.node.value {
                Tree::Map(_) => false,
                Tree::List(_) => identity(key).is_none(),
                _ => true,
            };
        if rest.is_empty() || is_whole || is_replaced || entry.node.is_removal() {
            hits.push(entry.key.clone());
        } else {
            collect_hits(&entry.node, rest, hits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gitops::diagnostic::Source;
    use crate::gitops::read::{Format, document};
    use serde_json::json;

    fn tree(file: &str, text: &str) -> Node {
        let mut found = Vec::new();
        let node = document(&Source::new(file, text), Format::Toml, &mut found);
        assert_eq!(found, []);
        node.expect("it parses")
    }

    fn layer(file: &str, text: &str) -> Layer {
        Layer { tree: tree(file, text), finals: Vec::new() }
    }

    #[test]
    fn ren_031_keyed_lists_merge_by_key_and_others_are_replaced() {
        let base = layer(
            "base",
            "requirements = [{ key = 'arch', values = ['a'] }, { key = 'zone', values = ['x'] }]\nzones = ['a', 'b']",
        );
        let top = layer("top", "requirements = [{ key = 'zone', values = ['y'] }]\nzones = ['c']");
        let mut found = Vec::new();
        let merged = merge(&[base, top], &mut found).expect("two layers");
        assert_eq!(found, []);
        assert_eq!(
            merged.to_json(),
            json!({
                "requirements": [{ "key": "arch", "values": ["a"] }, { "key": "zone", "values": ["y"] }],
                "zones": ["c"],
            })
        );
    }

    /// What is final stays, however it would go.
    #[test]
    fn ren_034_no_way_leads_around_a_final_path() {
        let refused = |path: &str, base: &str, top: &str| {
            let finals = vec![(path.split('.').map(str::to_owned).collect(), tree("base", base).place)];
            let base = Layer { finals, ..layer("base", base) };
            let mut found = Vec::new();
            merge(&[base, layer("top", top)], &mut found);
            found.iter().filter(|one| one.code == "PRV1304").count() == 1
        };
        let limits = "defaults.pool.limits.cpu = 10\ndefaults.class.metadata-options.hops = 1";
        for way in ["defaults", "defaults.pool", "defaults.pool.limits", "defaults.pool.limits.cpu"] {
            let removal = format!("{way} = {{ '$remove' = true }}");
            assert!(refused("pools.*.limits.cpu", limits, &removal), "{way}");
            assert!(refused("pools.general.limits.cpu", limits, &removal), "{way}");
        }
        let own = format!("{limits}\npools.general.limits.cpu = 5");
        assert!(!refused("pools.general.limits.cpu", &own, "defaults.pool.limits.cpu = 7"), "it has its own");
        assert!(refused("pools.general.limits.cpu", limits, "defaults.pool.limits.cpu = 7"));
        assert!(refused("classes.*.metadata-options", limits, "defaults.class = { '$remove' = true }"));
        assert!(
            !refused("pools.*.weight", limits, "defaults.pool = { '$remove' = true }"),
            "it was not there"
        );
        let net = "variables.net = { cidr = 'a', size = 1 }";
        for (path, top, is_refused) in [
            ("variables.net.cidr", "variables.net = 'b'", true),
            ("variables.net.cidr", "variables.net = ['b']", true),
            ("variables.net.cidr", "variables.net = { '$remove' = true }", true),
            ("variables.net.cidr", "variables.net.size = 2", false),
            ("variables.net.cidr", "pools.general.variables.net = 'b'", true),
        ] {
            assert_eq!(refused(path, net, top), is_refused, "{path}: {top}");
        }
    }

    #[test]
    fn removal_takes_away_and_needs_something_to_take() {
        let base = layer("base", "pools.a.weight = 1\npools.b.weight = 2");
        let top = layer("top", "pools.a = { '$remove' = true }\npools.c = { '$remove' = true }");
        let mut found = Vec::new();
        let merged = merge(&[base, top], &mut found).expect("two layers");
        assert_eq!(merged.to_json(), json!({ "pools": { "b": { "weight": 2 } } }));
        let messages: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(messages.len(), 1);
        assert!(messages[0].starts_with("top:2:7: error[PRV1305]: `c` is removed"), "{}", messages[0]);
    }

    #[test]
    fn markers_inside_overrides_stay() {
        let base = layer("base", "overrides.spec.weight = 1");
        let top = layer("top", "overrides.spec.weight = { '$remove' = true }");
        let mut found = Vec::new();
        let merged = merge(&[base, top], &mut found).expect("two layers");
        assert_eq!(found, []);
        assert!(merged.at(["overrides", "spec", "weight"]).expect("still there").is_removal());
    }
}
