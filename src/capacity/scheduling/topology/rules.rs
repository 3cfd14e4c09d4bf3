//! What a pod's spec says about other pods, as rules.

use std::collections::BTreeSet;

use super::group::{Kind, Namespaces, NodeFilter, Rule};
use crate::capacity::cluster::Cluster;
use crate::model::label::{self, Labels};
use crate::model::name::Namespace;
use crate::model::pod::{PodShape, PodTerm, Selector, SelectorTerm, Spread};
use crate::model::requirement::{Operator, Requirements};
use crate::model::symbol::Symbol;

/// The rules that a pod of `shape` must keep, its wishes that are still held included. `alternatives`: what it wants of nodes
/// before any of them is given up; kube-scheduler knows only those.
pub(super) fn owned(
    shape: &PodShape,
    alternatives: &[Requirements],
    cluster: &Cluster,
    known: &BTreeSet<Namespace>,
) -> Vec<Rule> {
    let spreads = shape.spreads.iter();
    let mut rules: Vec<Rule> = spreads.map(|spread| spread_rule(shape, alternatives, spread)).collect();
    let near = shape.affinity_required.iter().chain(shape.affinity_preferred.iter().map(|(_, term)| term));
    rules.extend(near.map(|term| term_rule(shape, term, Kind::Affinity, cluster, known)));
    let far =
        shape.anti_affinity_required.iter().chain(shape.anti_affinity_preferred.iter().map(|(_, term)| term));
    rules.extend(far.map(|term| term_rule(shape, term, Kind::AntiAffinity, cluster, known)));
    rules
}

/// The rules by which a pod of `shape` keeps others away. A wish to be alone keeps nobody away.
pub(super) fn shunning(shape: &PodShape, cluster: &Cluster, known: &BTreeSet<Namespace>) -> Vec<Rule> {
    let required = shape.anti_affinity_required.iter();
    required.map(|term| term_rule(shape, term, Kind::Shunned, cluster, known)).collect()
}

/// Whether rules of a pod of `shape` depend on which namespaces there are.
pub(super) fn asks_namespaces(shape: &PodShape) -> bool {
    let required = shape.affinity_required.iter().chain(&shape.anti_affinity_required);
    let preferred = shape.affinity_preferred.iter().chain(&shape.anti_affinity_preferred);
    required.chain(preferred.map(|(_, term)| term)).any(|term| term.namespace_selector.is_some())
}

fn spread_rule(shape: &PodShape, alternatives: &[Requirements], spread: &Spread) -> Rule {
    let is_open = !spread.honors_affinity || alternatives.iter().any(Requirements::is_empty);
    Rule {
        kind: Kind::Spread { max_skew: i64::from(spread.max_skew), min_domains: spread.min_domains },
        key: label::canonical(spread.topology_key),
        namespaces: Namespaces::Listed(BTreeSet::from([shape.namespace])),
        selector: with_own_values(&spread.selector, &shape.labels, &spread.match_label_keys, &[]),
        filter: NodeFilter {
            alternatives: if is_open { Vec::new() } else { alternatives.to_vec() },
            tolerations: spread.honors_taints.then(|| shape.tolerations.clone()),
        },
    }
}

fn term_rule(
    shape: &PodShape,
    term: &PodTerm,
    kind: Kind,
    cluster: &Cluster,
    known: &BTreeSet<Namespace>,
) -> Rule {
    Rule {
        kind,
        key: label::canonical(term.topology_key),
        namespaces: namespaces(shape, term, cluster, known),
        selector: with_own_values(
            &term.selector,
            &shape.labels,
            &term.match_label_keys,
            &term.mismatch_label_keys,
        ),
        filter: NodeFilter::default(),
    }
}

/// The listed namespaces and those that the selector selects; neither: the pod's own.
fn namespaces(
    shape: &PodShape,
    term: &PodTerm,
    cluster: &Cluster,
    known: &BTreeSet<Namespace>,
) -> Namespaces {
    let Some(selector) = &term.namespace_selector else {
        let own = [shape.namespace];
        let listed = if term.namespaces.is_empty() { &own[..] } else { &term.namespaces };
        return Namespaces::Listed(listed.iter().copied().collect());
    };
    if selector.terms.is_empty() {
        return Namespaces::All;
    }
    // The name of a namespace is a label of it.
    let is_selected = |namespace: &Namespace| {
        let mut labels =
            cluster.namespaces.get(namespace).map_or_else(Labels::new, |facts| facts.labels.clone());
        labels.entry(Symbol::new("kubernetes.io/metadata.name")).or_insert(namespace.0);
        selector.selects(&labels)
    };
    let all = known.iter().copied().chain([shape.namespace]);
    let mut chosen: BTreeSet<Namespace> = all.filter(is_selected).collect();
    chosen.extend(term.namespaces.iter().copied());
    Namespaces::Listed(chosen)
}

/// The selector, extended by the pod's own values of some labels; in one spelling, so that equal rules are equal.
fn with_own_values(
    selector: &Option<Selector>,
    own: &Labels,
    same: &[Symbol],
    other: &[Symbol],
) -> Option<Selector> {
    let mut terms = selector.as_ref()?.terms.clone();
    let mut add = |keys: &[Symbol], operator| {
        for key in keys {
            if let Some(value) = own.get(key) {
                terms.push(SelectorTerm { key: *key, operator, values: vec![*value] });
            }
        }
    };
    add(same, Operator::In);
    add(other, Operator::NotIn);
    for term in &mut terms {
        term.values.sort();
        term.values.dedup();
    }
    terms.sort();
    terms.dedup();
    Some(Selector { terms })
}
