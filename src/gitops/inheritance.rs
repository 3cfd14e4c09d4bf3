//! Pools and classes over what they start from: the variables and the `defaults` of all layers, then what each layer says
//! of them.
//!
//! The order matters where something is taken away: a marker of a pool meets everything below it, wherever that was said,
//! and what it took away does not come back.

use std::sync::Arc;

use crate::gitops::diagnostic::Diagnostic;
use crate::gitops::overlay::{Layer, merged, nothing_to_remove};
use crate::gitops::tree::{Entry, Map, Node, Tree};

/// Tables whose entries have defaults, with the name of those.
pub(crate) const HEIRS: [(&str, &str); 2] = [("pools", "pool"), ("classes", "class")];

/// A layer without what [`lay`] merges.
pub(crate) fn without_heirs(tree: &Node) -> Node {
    let mut out = Node::map(tree.place.clone());
    for (key, entry) in tree.as_map().into_iter().flat_map(Map::iter) {
        if &**key != "defaults" && HEIRS.iter().all(|(table, _)| **key != **table) {
            out.set(key, entry.key.clone(), entry.node.clone());
        }
    }
    out
}

/// Puts `defaults`, `pools` and `classes` of all layers into `tree`, which has the rest of them.
///
/// `variables` of an entry hold what [`with_own`] lays over those of the environment.
pub(crate) fn lay(layers: &[Layer], tree: &mut Node, found: &mut Vec<Diagnostic>) {
    let variables = tree.get("variables").cloned();
    let mut defaults = Node::map(tree.place.clone());
    for (table, kind) in HEIRS {
        let mut fold = Fold { variables: variables.as_ref(), found };
        let start = fold.defaults(layers, kind);
        let heirs = fold.table(layers, table, start.as_ref());
        if let Some(Heir { entry, is_seeded }) = start {
            let node = fold.own_part(entry.node, is_seeded);
            defaults.set(kind, entry.key, node);
        }
        if let Some(heirs) = heirs {
            tree.set(table, heirs.key, heirs.node);
        }
    }
    if defaults.as_map().is_some_and(|map| !map.is_empty()) {
        tree.set("defaults", defaults.place.clone(), defaults);
    }
}

/// An entry on its way up through the layers.
#[derive(Clone)]
struct Heir {
    entry: Entry,
    /// Whether the environment's variables lie below its own.
    is_seeded: bool,
}

struct Fold<'a> {
    variables: Option<&'a Node>,
    found: &'a mut Vec<Diagnostic>,
}

impl Fold<'_> {
    fn defaults(&mut self, layers: &[Layer], kind: &str) -> Option<Heir> {
        let mut start: Option<Heir> = None;
        let mut is_any = false;
        for layer in layers {
            let Some(all) = layer.tree.entry("defaults") else { continue };
            if all.node.is_removal() {
                // Both kinds go at once, and that is told once.
                if !is_any && kind == HEIRS[0].1 {
                    self.found.push(nothing_to_remove("defaults", all));
                }
                (start, is_any) = (None, false);
                continue;
            }
            is_any = true;
            let Some(own) = all.node.entry(kind) else { continue };
            start = match own.node.is_removal() {
                true => {
                    if start.is_none() {
                        self.found.push(nothing_to_remove(kind, own));
                    }
                    None
                }
                false => Some(self.over(start, own)),
            };
        }
        start
    }

    fn table(&mut self, layers: &[Layer], table: &str, start: Option<&Heir>) -> Option<Entry> {
        let mut whole: Option<Entry> = None;
        let mut heirs: indexmap::IndexMap<Arc<str>, Heir> = indexmap::IndexMap::new();
        for layer in layers {
            let Some(all) = layer.tree.entry(table) else { continue };
            if all.node.is_removal() {
                if whole.take().is_none() {
                    self.found.push(nothing_to_remove(table, all));
                }
                heirs.clear();
                continue;
            }
            let Some(map) = all.node.as_map() else { continue };
            whole = Some(Entry { key: all.key.clone(), node: Node::map(all.node.place.clone()) });
            for (name, own) in map.iter() {
                let below = heirs.shift_remove_full(name);
                if own.node.is_removal() {
                    if below.is_none() {
                        self.found.push(nothing_to_remove(name, own));
                    }
                    continue;
                }
                let at = below.as_ref().map_or(heirs.len(), |(at, ..)| *at);
                let below = below.map(|(_, _, heir)| heir).or_else(|| start.cloned());
                heirs.shift_insert(at, name.clone(), self.over(below, own));
            }
        }
        let mut whole = whole?;
        for (name, Heir { entry, is_seeded }) in heirs {
            let node = self.own_part(entry.node, is_seeded);
            whole.node.set(&name, entry.key, node);
        }
        Some(whole)
    }

    fn over(&mut self, below: Option<Heir>, own: &Entry) -> Heir {
        let below = below.unwrap_or_else(|| Heir {
            entry: Entry { key: own.key.clone(), node: Node::map(own.node.place.clone()) },
            is_seeded: false,
        });
        let Heir { mut entry, mut is_seeded } = below;
        if let (Some(variables), Some(over), false) = (self.variables, own.node.entry("variables"), is_seeded)
        {
            entry.node.set("variables", over.key.clone(), variables.clone());
            is_seeded = true;
        }
        let node = merged(&entry.node, &own.node, self.found);
        Heir { entry: Entry { key: own.key.clone(), node }, is_seeded }
    }

    /// An entry with no more of the environment's variables than it changes.
    fn own_part(&self, mut node: Node, is_seeded: bool) -> Node {
        let Some(variables) = self.variables.and_then(Node::as_map).filter(|_| is_seeded) else {
            return node;
        };
        let Tree::Map(map) = &mut node.value else { return node };
        let place = node.place.clone();
        let all = map.0.shift_remove("variables");
        let all = all.unwrap_or_else(|| Entry { key: place.clone(), node: Node::map(place) });
        let Some(own) = all.node.as_map().map(|own| difference(variables, own, &all.node)) else {
            return node;
        };
        if own.as_map().is_some_and(|own| !own.is_empty()) {
            node.set("variables", all.key, own);
        }
        node
    }
}

/// What has to be laid over `lower` to get `upper`.
fn difference(lower: &Map, upper: &Map, node: &Node) -> Node {
    let mut out = Node::map(node.place.clone());
    for (key, entry) in upper.iter() {
        let changed = match (lower.get(key).map(|below| (below, below.as_map())), entry.node.as_map()) {
            (Some((below, _)), _) if *below == entry.node => continue,
            (Some((_, Some(below))), Some(above)) => difference(below, above, &entry.node),
            _ => entry.node.clone(),
        };
        out.set(key, entry.key.clone(), changed);
    }
    for (key, _) in lower.iter().filter(|(key, _)| upper.get(key).is_none()) {
        let mut marker = Node::map(node.place.clone());
        let yes = Node { value: Tree::Bool(true), place: node.place.clone() };
        marker.set("$remove", node.place.clone(), yes);
        out.set(key, node.place.clone(), marker);
    }
    out
}

/// The variables of a pool or a class: those of the environment with its own `difference` over them.
pub(crate) fn with_own(variables: &Node, own: &Node) -> Node {
    let (Some(lower), Some(upper)) = (variables.as_map(), own.as_map()) else { return own.clone() };
    let mut out = lower.clone();
    for (key, entry) in upper.iter() {
        if entry.node.is_removal() {
            out.0.shift_remove(key);
            continue;
        }
        let node = match out.get(key) {
            Some(below) => with_own(below, &entry.node),
            None => entry.node.clone(),
        };
        out.0.insert(key.clone(), Entry { key: entry.key.clone(), node });
    }
    Node { value: Tree::Map(out), place: own.place.clone() }
}
