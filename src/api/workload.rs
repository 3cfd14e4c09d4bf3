//! What makes pods, guards them and groups them: DaemonSet, Deployment and its kin, PodDisruptionBudget, Service.

use std::sync::Arc;

use super::field::Field;
use super::pod::{PodShapes, Priorities, read_shape};
use super::{metadata, selector};
use crate::model::name::{Namespace, ObjectKey, Uid};
use crate::model::pod::{Owner, PodShape, Selector, SelectorTerm};
use crate::model::requirement::Operator;
use crate::model::symbol::Symbol;
use crate::model::workload::{CountOrPercent, DaemonSet, PodDisruptionBudget, Service};

/// A controller that keeps a number of equal pods: Deployment, ReplicaSet, StatefulSet, ReplicationController or Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workload {
    pub api_version: Symbol,
    pub kind: Symbol,
    pub key: ObjectKey,
    pub uid: Uid,
    pub owners: Vec<Owner>,
    /// How many pods it wants at once: none while it is suspended or done.
    pub pods: u32,
    /// Of a Job: how many of its pods have yet to succeed. `None`: one is enough, and ends it.
    pub completions: Option<u32>,
    pub shape: Arc<PodShape>,
    /// Of the pods that are its own; a Job has none that is known beforehand.
    pub selector: Option<Selector>,
    /// Of a StatefulSet: the name of each volume claim template and its storage class.
    pub claim_templates: Vec<(Symbol, Option<Symbol>)>,
    /// Of a ReplicaSet or a ReplicationController: the API server refused the last pod that was to be made for it.
    pub is_refused: bool,
}

pub(crate) fn read(
    object: &Field<'_, '_>,
    shapes: &mut PodShapes,
    priorities: &Priorities,
) -> Option<Workload> {
    let metadata = metadata::read(object);
    let spec = object.get("spec").required();
    let template = spec.get("template").required();
    let pod = template.get("spec").required();
    let shape = read_shape(&template, Namespace(metadata.namespace), &pod, None, priorities);
    let kind = object.get("kind").symbol()?;
    let completions = (&*kind == "Job").then(|| completions(object, &spec)).flatten();
    let claims = spec.get("volumeClaimTemplates");
    let claim = |template: Field<'_, '_>| {
        let name = template.get("metadata").get("name").symbol()?;
        Some((name, template.get("spec").get("storageClassName").symbol()))
    };
    Some(Workload {
        api_version: object.get("apiVersion").symbol()?,
        kind,
        key: ObjectKey { namespace: Namespace(metadata.namespace), name: metadata.name },
        uid: metadata.uid,
        owners: metadata.owners,
        pods: if metadata.deleted.is_some() { 0 } else { count(object, &spec, &kind, completions) },
        completions,
        selector: read_selector(&spec.get("selector"), &kind, &shape),
        shape: shapes.share(shape),
        claim_templates: claims.items().filter_map(claim).collect(),
        is_refused: has_condition(object, &["ReplicaFailure"]),
    })
}

/// Whether one of `kinds` is true of it.
fn has_condition(object: &Field<'_, '_>, kinds: &[&str]) -> bool {
    object.get("status").get("conditions").items().any(|condition| {
        condition.get("type").text().is_some_and(|kind| kinds.contains(&kind))
            && condition.get("status").text() == Some("True")
    })
}

fn read_selector(selector: &Field<'_, '_>, kind: &str, shape: &PodShape) -> Option<Selector> {
    match kind {
        "Job" => None,
        "ReplicationController" => {
            // It selects by plain labels, those of its template if it names none.
            let labels =
                if selector.len() > 0 { metadata::read_labels(selector) } else { shape.labels.clone() };
            let of_label = |(key, value)| SelectorTerm { key, operator: Operator::In, values: vec![value] };
            Some(Selector { terms: labels.into_iter().map(of_label).collect() })
        }
        _ => selector::read(selector),
    }
}

fn number(spec: &Field<'_, '_>, key: &str) -> Option<u32> {
    spec.get(key).integer_in(0..=i64::from(i32::MAX)).and_then(|number| u32::try_from(number).ok())
}

/// How many pods of a Job have yet to succeed. One is meant by a Job that says neither how many nor how many at once.
fn completions(object: &Field<'_, '_>, spec: &Field<'_, '_>) -> Option<u32> {
    let asked = number(spec, "completions");
    let asked = asked.or_else(|| (!spec.get("parallelism").is_present()).then_some(1))?;
    let done = object.get("status").get("succeeded").integer().and_then(|done| u32::try_from(done).ok());
    Some(asked.saturating_sub(done.unwrap_or(0)))
}

fn count(object: &Field<'_, '_>, spec: &Field<'_, '_>, kind: &str, completions: Option<u32>) -> u32 {
    let number = |key: &str| number(spec, key);
    if kind != "Job" {
        return number("replicas").unwrap_or(1);
    }
    let status = object.get("status");
    let is_over = status.get("completionTime").is_present() || has_condition(object, &["Complete", "Failed"]);
    if is_over || spec.get("suspend").boolean() == Some(true) {
        return 0;
    }
    let parallelism = number("parallelism").unwrap_or(1);
    completions.map_or(parallelism, |left| left.min(parallelism))
}

pub(crate) fn read_daemon_set(
    object: &Field<'_, '_>,
    shapes: &mut PodShapes,
    priorities: &Priorities,
) -> DaemonSet {
    let metadata = metadata::read(object);
    let spec = object.get("spec").required();
    let template = spec.get("template").required();
    let pod = template.get("spec").required();
    let namespace = Namespace(metadata.namespace);
    let shape = read_shape(&template, namespace, &pod, None, priorities);
    DaemonSet {
        key: ObjectKey { namespace, name: metadata.name },
        uid: metadata.uid,
        shape: shapes.share(shape),
    }
}

pub(crate) fn read_service(object: &Field<'_, '_>) -> Service {
    let metadata = metadata::read(object);
    Service {
        key: ObjectKey { namespace: Namespace(metadata.namespace), name: metadata.name },
        selector: metadata::read_labels(&object.get("spec").get("selector")),
    }
}

pub(crate) fn read_budget(object: &Field<'_, '_>) -> PodDisruptionBudget {
    let metadata = metadata::read(object);
    let spec = object.get("spec").required();
    PodDisruptionBudget {
        key: ObjectKey { namespace: Namespace(metadata.namespace), name: metadata.name },
        selector: selector::read(&spec.get("selector")),
        min_available: read_count(&spec.get("minAvailable")),
        max_unavailable: read_count(&spec.get("maxUnavailable")),
        disruptions_allowed: object.get("status").get("disruptionsAllowed").integer(),
        always_allows_unhealthy: spec.get("unhealthyPodEvictionPolicy").text() == Some("AlwaysAllow"),
    }
}

/// A whole number, or a percentage as text.
fn read_count(field: &Field<'_, '_>) -> Option<CountOrPercent> {
    let value = field.value()?;
    if let Some(text) = value.as_str() {
        let share =
            text.strip_suffix('%').and_then(|digits| digits.parse().ok()).map(CountOrPercent::Percent);
        // A number in quotes is a number to the API server only if written without them; it says so.
        if share.is_none() {
            field.error_with_help(
                format!("`{text}` is neither a number of pods nor a percentage"),
                "write a number without quotes, or a percentage such as \"25%\"",
            );
        }
        return share;
    }
    field.integer_in(0..=i64::from(i32::MAX)).map(CountOrPercent::Count)
}
