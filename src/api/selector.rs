//! Label selectors, affinity terms and spread constraints on the wire.

use super::field::Field;
use super::metadata;
use crate::model::name::Namespace;
use crate::model::pod::{NodeTerm, PodTerm, Selector, SelectorTerm, Spread, Weighted};
use crate::model::requirement::Operator;
use crate::model::symbol::Symbol;

const LABEL_OPERATORS: [&str; 4] = ["In", "NotIn", "Exists", "DoesNotExist"];

/// A label selector; `None` if there is none, which selects nothing.
pub(crate) fn read(selector: &Field<'_, '_>) -> Option<Selector> {
    selector.map()?;
    let pairs = metadata::read_labels(&selector.get("matchLabels"));
    let of_pair = |(key, value)| SelectorTerm { key, operator: Operator::In, values: vec![value] };
    let mut terms: Vec<SelectorTerm> = pairs.into_iter().map(of_pair).collect();
    let expressions = selector.get("matchExpressions");
    terms.extend(expressions.items().filter_map(|entry| read_expression(&entry, &LABEL_OPERATORS)));
    // Order has no meaning; one order lets equal selectors be equal.
    terms.sort();
    terms.dedup();
    Some(Selector { terms })
}

fn read_expression(entry: &Field<'_, '_>, operators: &[&'static str]) -> Option<SelectorTerm> {
    let key = entry.get("key").required_text();
    let operator = entry.get("operator").required().choice(operators).and_then(Operator::parse);
    let mut values: Vec<Symbol> = entry.get("values").items().filter_map(|value| value.symbol()).collect();
    values.sort();
    values.dedup();
    Some(SelectorTerm { key: key?.into(), operator: operator?, values })
}

pub(crate) fn read_node_term(term: &Field<'_, '_>) -> NodeTerm {
    let operators = Operator::ALL.map(Operator::as_str);
    let expressions = term.get("matchExpressions");
    NodeTerm {
        expressions: expressions.items().filter_map(|entry| read_expression(&entry, &operators)).collect(),
        has_fields: term.get("matchFields").len() > 0,
    }
}

pub(crate) fn read_weight(item: &Field<'_, '_>) -> i32 {
    let weight = item.get("weight").integer().unwrap_or(1);
    i32::try_from(weight).unwrap_or(1)
}

pub(crate) fn read_required_pod_terms(affinity: &Field<'_, '_>) -> Vec<PodTerm> {
    let terms = affinity.get("requiredDuringSchedulingIgnoredDuringExecution");
    terms.items().filter_map(|term| read_pod_term(&term)).collect()
}

pub(crate) fn read_preferred_pod_terms(affinity: &Field<'_, '_>) -> Vec<Weighted<PodTerm>> {
    let terms = affinity.get("preferredDuringSchedulingIgnoredDuringExecution");
    let read = |item: Field<'_, '_>| {
        Some((read_weight(&item), read_pod_term(&item.get("podAffinityTerm").required())?))
    };
    terms.items().filter_map(read).collect()
}

fn read_pod_term(term: &Field<'_, '_>) -> Option<PodTerm> {
    let keys =
        |key: &str| -> Vec<Symbol> { term.get(key).items().filter_map(|item| item.symbol()).collect() };
    let mut namespaces: Vec<Namespace> = keys("namespaces").into_iter().map(Namespace).collect();
    namespaces.sort();
    Some(PodTerm {
        selector: read(&term.get("labelSelector")),
        topology_key: term.get("topologyKey").required_text()?.into(),
        namespaces,
        namespace_selector: read(&term.get("namespaceSelector")),
        match_label_keys: keys("matchLabelKeys"),
        mismatch_label_keys: keys("mismatchLabelKeys"),
    })
}

pub(crate) fn read_spread(constraint: &Field<'_, '_>) -> Spread {
    let honors = |key: &str, default: bool| match constraint.get(key).text() {
        Some(policy) => policy == "Honor",
        None => default,
    };
    let count = |key: &str| constraint.get(key).integer().and_then(|count| u32::try_from(count).ok());
    let when = constraint.get("whenUnsatisfiable").choice(&["DoNotSchedule", "ScheduleAnyway"]);
    let keys = constraint.get("matchLabelKeys");
    Spread {
        max_skew: count("maxSkew").unwrap_or(1).max(1),
        topology_key: constraint.get("topologyKey").required_text().unwrap_or_default().into(),
        is_required: when != Some("ScheduleAnyway"),
        selector: read(&constraint.get("labelSelector")),
        min_domains: count("minDomains"),
        honors_affinity: honors("nodeAffinityPolicy", true),
        honors_taints: honors("nodeTaintsPolicy", false),
        match_label_keys: keys.items().filter_map(|item| item.symbol()).collect(),
    }
}
