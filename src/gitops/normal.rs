//! The short forms of the language in their long form, so that layers merge the same whichever way they are written.

use std::sync::Arc;

use crate::gitops::text_form;
use crate::gitops::tree::{Entry, Map, Node, Quoting, Tree};

/// Rewrites the pools of an environment file.
pub(crate) fn environment(tree: &mut Node) {
    let Tree::Map(map) = &mut tree.value else { return };
    if let Some(pools) = map.0.get_mut("pools")
        && let Tree::Map(pools) = &mut pools.node.value
    {
        pools.0.values_mut().for_each(|entry| pool(&mut entry.node));
    }
    if let Some(defaults) = map.0.get_mut("defaults")
        && let Tree::Map(defaults) = &mut defaults.node.value
        && let Some(entry) = defaults.0.get_mut("pool")
    {
        pool(&mut entry.node);
    }
}

/// Rewrites one pool.
pub(crate) fn pool(node: &mut Node) {
    let Tree::Map(map) = &mut node.value else { return };
    if let Some(entry) = map.0.get_mut("requirements") {
        requirements(&mut entry.node);
    }
    for key in ["taints", "startup-taints"] {
        if let Some(entry) = map.0.get_mut(key)
            && let Tree::List(items) = &mut entry.node.value
        {
            items.iter_mut().for_each(taint);
        }
    }
}

/// `{ label = [...] }` and `{ label = { operator, values } }` become the list of the NodePool.
fn requirements(node: &mut Node) {
    if node.is_removal() {
        return;
    }
    if let Tree::Map(map) = &mut node.value {
        let list = std::mem::take(&mut map.0).into_iter().map(|(label, entry)| requirement(&label, entry));
        node.value = Tree::List(list.collect());
    }
    if let Tree::List(items) = &mut node.value {
        items.iter_mut().for_each(values_as_text);
    }
}

fn requirement(label: &Arc<str>, entry: Entry) -> Node {
    let place = entry.node.place.clone();
    let mut out = Node::map(entry.key.clone());
    out.place.end = out.place.end.max(if out.place.source == place.source { place.end } else { 0 });
    out.set("key", entry.key.clone(), Node::text(label, entry.key.clone()));
    match entry.node.value {
        Tree::List(_) => {
            out.set("operator", place.clone(), Node::text("In", place.clone()));
            out.set("values", place, entry.node);
        }
        Tree::Map(Map(fields)) => {
            for (name, field) in fields {
                out.set(&name, field.key, field.node);
            }
        }
        _ => {}
    }
    out
}

fn values_as_text(requirement: &mut Node) {
    let Tree::Map(map) = &mut requirement.value else { return };
    if map.get("operator").is_none()
        && let Some(values) = map.get("values")
    {
        let place = values.place.clone();
        map.0.insert("operator".into(), Entry { key: place.clone(), node: Node::text("In", place) });
    }
    let Some(entry) = map.0.get_mut("values") else { return };
    let Tree::List(items) = &mut entry.node.value else { return };
    for item in items {
        if let Tree::Int(number) = item.value {
            item.value = Tree::Text(number.to_string().into(), Quoting::Quoted);
        }
    }
}

/// `key=value:Effect` becomes a table.
fn taint(node: &mut Node) {
    let Some(text) = node.as_text().cloned() else { return };
    let Some((key, value, effect)) = text_form::taint(&text) else { return };
    let place = node.place.clone();
    let mut out = Node::map(place.clone());
    out.set("key", place.clone(), Node::text(key, place.clone()));
    if let Some(value) = value {
        out.set("value", place.clone(), Node::text(value, place.clone()));
    }
    out.set("effect", place.clone(), Node::text(effect, place.clone()));
    *node = out;
}
