//! NodePool `karpenter.sh/v1`: defaults, rules (api.md 4), into the model and back.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::field::{Field, Stage};
use super::requirement::Place;
use super::{condition, hash, metadata, render, requirement, roll, taint, terms};
use crate::model::label::{self, annotation};
use crate::model::name::{ClassName, PoolName};
use crate::model::owner::Owner;
use crate::model::pool::{
    Budget, BudgetNodes, BudgetWindow, ClassRef, ConsolidationPolicy, Disruption, DisruptionReason, NodePool,
    NodeTemplate, PoolUse,
};
use crate::model::schedule;
use crate::model::symbol::Symbol;
use crate::model::time::{Patience, SignedDuration, parse_duration, render_duration};

pub(crate) const API_VERSION: &str = "karpenter.sh/v1";
/// What `expireAfter` is if a pool or claim does not say: thirty days.
pub(crate) const EXPIRE_AFTER_DEFAULT: &str = "720h";
pub(crate) const CONSOLIDATE_AFTER_DEFAULT: &str = "0s";
pub(crate) const LABELS_MAX: usize = 100;
pub(crate) const BUDGETS_MAX: usize = 50;
pub(crate) const POLICIES: [&str; 3] = ["WhenEmptyOrUnderutilized", "WhenEmpty", "Balanced"];
pub(crate) const REASONS: [&str; 3] = ["Underutilized", "Empty", "Drifted"];

pub(crate) fn read(object: &Field<'_, '_>) -> Option<NodePool> {
    object.only(&["apiVersion", "kind", "metadata", "spec", "status"]);
    let metadata = metadata::read(object);
    let annotations = metadata::read_annotations(object);
    let spec = object.get("spec").required();
    spec.only(&["template", "disruption", "limits", "weight", "replicas"]);
    let template = read_template(&spec.get("template").required());
    let disruption = read_disruption(&spec.get("disruption"));
    let terms = terms::read(object);
    let limits = spec.get("limits").resources();
    let weight = spec.get("weight").integer_in(1..=100);
    let replicas = spec.get("replicas").integer_in(0..=i64::MAX);
    if spec.get("replicas").is_present() {
        check_static(&spec);
    }
    let status = object.get("status");
    let conditions = condition::read(&status.get("conditions"));
    let used = status.get("resources").resources().map(|resources| PoolUse {
        resources,
        nodes: status.get("nodes").integer().and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
    });
    let fault = object.findings().told(Stage::Runtime);
    let is_ready = condition::is_ready(object).unwrap_or(fault.is_none());
    let template = template?;
    let annotated = |key: Symbol| annotations.get(&key).copied();
    let (found, version) =
        (annotated(*annotation::NODEPOOL_HASH), annotated(*annotation::NODEPOOL_HASH_VERSION));
    let (hash, hash_version) =
        hash::stored_or(found, version, hash::NODEPOOL_VERSION, || hash::of_template(&template));
    let new_stamp = hash::new_stamp((found, version), &template);
    let (roll, roll_failures) = roll::read(&annotations);
    Some(NodePool {
        name: PoolName(metadata.name),
        uid: metadata.uid,
        created: metadata.created,
        owner: Owner::who_applied(&annotations, "karpenter.sh/NodePool", metadata.name),
        is_deleting: metadata.deleted.is_some(),
        hash: Some(hash),
        hash_version: Some(hash_version),
        template: Arc::new(template),
        disruption,
        terms: Box::new(terms),
        limits,
        weight: weight.and_then(|weight| weight.try_into().ok()).unwrap_or(0),
        replicas: replicas.map(|count| u32::try_from(count).unwrap_or(u32::MAX)),
        roll,
        roll_failures,
        is_ready,
        new_stamp,
        fault,
        conditions,
        is_judged_earlier: condition::is_judged_earlier(object),
        used,
    })
}

/// A pool of a fixed size takes no demand, so nothing may limit it but the count of its nodes.
fn check_static(spec: &Field<'_, '_>) {
    for (name, limit) in spec.get("limits").entries() {
        if name != "nodes" {
            limit.error_with_help(
                format!("`{name}` may not be limited when spec.replicas is set"),
                "only `nodes` may be; leave the others out",
            );
        }
    }
    let weight = spec.get("weight");
    if weight.is_present() {
        weight.error_with_help("may not be set when spec.replicas is set".into(), "leave it out");
    }
}

fn read_template(template: &Field<'_, '_>) -> Option<NodeTemplate> {
    template.only(&["metadata", "spec"]);
    let metadata = template.get("metadata");
    metadata.only(&["labels", "annotations"]);
    let labels = metadata.get("labels");
    labels.at_most(LABELS_MAX);
    for (key, value) in labels.entries() {
        if !label::is_qualified_name(key) {
            value.note_key(Stage::Runtime, format!("`{key}` is not a label key"), None);
        }
        requirement::check_domain(&value, key, Place::Pool);
        if let Some(text) = value.text().filter(|text| !label::is_label_value(text)) {
            value.error_with_help(
                format!("`{text}` is not a label value"),
                "use at most 63 letters, digits, `-`, `_` and `.`, beginning and ending with a letter or digit",
            );
        }
    }
    for (key, value) in metadata.get("annotations").entries() {
        if !label::is_qualified_name(&key.to_lowercase()) {
            value.note_key(Stage::Runtime, format!("`{key}` is not an annotation key"), None);
        }
    }
    let spec = template.get("spec").required();
    spec.only(&[
        "taints",
        "startupTaints",
        "requirements",
        "nodeClassRef",
        "terminationGracePeriod",
        "expireAfter",
    ]);
    let taints = taint::read_checked(&spec.get("taints"));
    let startup_taints = taint::read_checked(&spec.get("startupTaints"));
    taint::check_duplicates(&spec, &taints, &startup_taints);
    let requirements = requirement::read(&spec.get("requirements").required_list(), Place::Pool);
    let class = read_class_ref(&spec.get("nodeClassRef").required());
    let termination_grace = read_grace(&spec.get("terminationGracePeriod"));
    let expire_after = read_patience(&spec.get("expireAfter"), EXPIRE_AFTER_DEFAULT);
    Some(NodeTemplate {
        labels: metadata::read_labels(&labels),
        annotations: metadata::read_labels(&metadata.get("annotations")),
        taints,
        startup_taints,
        requirements,
        class: class?,
        termination_grace,
        expire_after,
    })
}

pub(crate) fn read_class_ref(class: &Field<'_, '_>) -> Option<ClassRef> {
    class.only(&["group", "kind", "name"]);
    if class.value().is_some_and(|value| !value.is_object()) || !class.is_present() {
        return None;
    }
    let group = class.get("group");
    let group_text = group.required_text();
    if group_text.is_some_and(|text| text.contains('/')) {
        group.error_with_help(
            "may not contain a slash".into(),
            "it is the group alone, without a version: karpenter.k8s.aws",
        );
    }
    let kind = class.get("kind").required_text();
    let name = class.get("name").required_text();
    Some(ClassRef { group: group_text?.into(), kind: kind?.into(), name: ClassName::new(name?) })
}

/// A duration or `Never`.
pub(crate) fn read_patience(field: &Field<'_, '_>, default: &str) -> Patience {
    let written = field.text().and_then(|text| match text.parse() {
        Ok(patience) => Some(patience),
        Err(error) => {
            field.error(format!("{error}, or `Never`"));
            None
        }
    });
    written.unwrap_or_else(|| default.parse().expect("a default is a duration"))
}

pub(crate) fn read_expire_after(spec: &Field<'_, '_>) -> Patience {
    read_patience(&spec.get("expireAfter"), EXPIRE_AFTER_DEFAULT)
}

/// A duration that cannot be `Never`.
pub(crate) fn read_grace(field: &Field<'_, '_>) -> Option<SignedDuration> {
    match parse_duration(field.text()?) {
        Ok(duration) => Some(duration),
        Err(error) => {
            field.error(error.to_string());
            None
        }
    }
}

fn read_disruption(disruption: &Field<'_, '_>) -> Disruption {
    disruption.only(&["consolidateAfter", "consolidationPolicy", "budgets"]);
    let policy = disruption.get("consolidationPolicy");
    if policy.text() == Some("WhenUnderutilized") {
        policy.error_with_help(
            "`WhenUnderutilized` is the name that v1beta1 had".into(),
            "v1 calls it WhenEmptyOrUnderutilized",
        );
    }
    let policy = match policy.text() {
        Some("WhenUnderutilized") => None,
        _ => policy.choice(&POLICIES),
    };
    let budgets = disruption.get("budgets");
    budgets.at_most(BUDGETS_MAX);
    let mut read: Vec<Budget> = budgets.items().filter_map(|budget| read_budget(&budget)).collect();
    if !budgets.is_present() {
        let default = BudgetNodes::Percent(10);
        read.push(Budget { nodes: default, reasons: Vec::new(), window: None });
    }
    Disruption {
        consolidate_after: read_patience(&disruption.get("consolidateAfter"), CONSOLIDATE_AFTER_DEFAULT),
        policy: match policy {
            Some("WhenEmpty") => ConsolidationPolicy::WhenEmpty,
            Some("Balanced") => ConsolidationPolicy::Balanced,
            _ => ConsolidationPolicy::WhenEmptyOrUnderutilized,
        },
        budgets: read,
    }
}

fn read_budget(budget: &Field<'_, '_>) -> Option<Budget> {
    budget.only(&["nodes", "reasons", "schedule", "duration"]);
    let nodes = budget.get("nodes");
    let count = match nodes.is_present() {
        true => nodes.text().and_then(|text| {
            let count = parse_budget_nodes(text);
            if count.is_none() {
                nodes.error_with_help(
                    format!("`{text}` is neither a number of nodes nor a percentage of them"),
                    "write it like \"5\" or \"10%\", up to 100%",
                );
            }
            count
        }),
        false => Some(BudgetNodes::Percent(10)),
    };
    let reasons = budget.get("reasons");
    reasons.at_most(BUDGETS_MAX);
    let mut named: Vec<DisruptionReason> = Vec::new();
    for reason in reasons.items() {
        let reason = match reason.choice(&REASONS) {
            Some("Underutilized") => DisruptionReason::Underutilized,
            Some("Empty") => DisruptionReason::Empty,
            Some("Drifted") => DisruptionReason::Drifted,
            _ => continue,
        };
        if !named.contains(&reason) {
            named.push(reason);
        }
    }
    let (schedule, duration) = (budget.get("schedule"), budget.get("duration"));
    let schedule_text = schedule.text();
    if let Some(text) = schedule_text {
        check_schedule(&schedule, text);
    }
    let length = duration.text().and_then(|text| match parse_budget_duration(text) {
        Some(length) => Some(length),
        None => {
            duration.error_with_help(
                format!("`{text}` is not a duration of hours and minutes"),
                "write it like 8h, 30m or 8h30m; a schedule has no seconds",
            );
            None
        }
    });
    if schedule.is_present() != duration.is_present() {
        let (there, missing) =
            if schedule.is_present() { ("schedule", "duration") } else { ("duration", "schedule") };
        budget.error_with_help(
            format!("has `{there}` without `{missing}`"),
            "a window needs both: when it begins and how long it lasts",
        );
    }
    let window = schedule_text.zip(length);
    Some(Budget {
        nodes: count?,
        reasons: named,
        window: window.map(|(schedule, duration)| BudgetWindow { schedule: schedule.into(), duration }),
    })
}

pub(crate) fn parse_budget_nodes(text: &str) -> Option<BudgetNodes> {
    let is_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if let Some(digits) = text.strip_suffix('%') {
        let is_short = is_digits(digits) && (digits.len() <= 2 || digits == "100");
        return is_short.then(|| digits.parse().ok().map(BudgetNodes::Percent))?;
    }
    // More nodes than a cluster can have are all nodes.
    is_digits(text).then(|| BudgetNodes::Count(text.parse().unwrap_or(u32::MAX)))
}

/// Hours, minutes, or both in this order; Go prints `0s` after them.
fn parse_budget_duration(text: &str) -> Option<SignedDuration> {
    let short = text.strip_suffix("0s").filter(|rest| rest.ends_with(['h', 'm'])).unwrap_or(text);
    let groups = short.matches(['h', 'm']).count();
    let is_ordered = groups == 1 || (groups == 2 && short.ends_with('m') && short.contains('h'));
    let duration = parse_duration(short).ok()?;
    (is_ordered && !short.contains('s')).then_some(duration)
}

pub(crate) const MACROS: [&str; 7] =
    ["@annually", "@yearly", "@monthly", "@weekly", "@daily", "@midnight", "@hourly"];

fn check_schedule(field: &Field<'_, '_>, text: &str) {
    let help =
        "write five fields (minute hour day month weekday, in UTC) such as `0 9 * * mon-fri`, or @daily";
    if MACROS.contains(&text) {
        return;
    }
    let starts_with_macro = MACROS.iter().any(|name| text.starts_with(name));
    if !starts_with_macro && text.split_whitespace().count() < 5 {
        field.error_with_help(format!("`{text}` is not a schedule"), help);
        return;
    }
    // The schema lets more through than cron understands; the pool would then never disrupt anything.
    if starts_with_macro || schedule::parse(text).is_err() {
        field.note(Stage::Runtime, format!("`{text}` is not a cron schedule"), Some(help.into()));
    }
}

// ------------------------------------------------------------------------------------------------------ the way back

pub(crate) fn render(pool: &NodePool) -> Value {
    let mut metadata = json!({ "name": pool.name.as_str(), "uid": pool.uid.as_str() });
    if let Some(created) = pool.created {
        metadata["creationTimestamp"] = created.to_string().into();
    }
    let mut annotations = roll::annotations(pool);
    annotations.extend(terms::render(&pool.terms));
    if let (Some(hash), Some(version)) = (pool.hash, pool.hash_version) {
        annotations.insert(annotation::NODEPOOL_HASH.to_string(), hash.as_str().into());
        annotations.insert(annotation::NODEPOOL_HASH_VERSION.to_string(), version.as_str().into());
    }
    if !annotations.is_empty() {
        metadata["annotations"] = annotations.into();
    }
    let mut spec = Map::new();
    spec.insert("template".into(), render_template(&pool.template));
    spec.insert("disruption".into(), render_disruption(&pool.disruption));
    if let Some(limits) = &pool.limits {
        spec.insert("limits".into(), render::resources(limits));
    }
    if pool.weight > 0 {
        spec.insert("weight".into(), pool.weight.into());
    }
    if let Some(replicas) = pool.replicas {
        spec.insert("replicas".into(), replicas.into());
    }
    json!({
        "apiVersion": API_VERSION,
        "kind": "NodePool",
        "metadata": metadata,
        "spec": spec,
        "status": render_status(pool),
    })
}

/// The status of a pool; one that nobody reported on yet says at least whether it is ready.
pub(crate) fn render_status(pool: &NodePool) -> Value {
    let mut status = Map::new();
    if let Some(used) = &pool.used {
        status.insert("resources".into(), render::resources(&used.resources));
        status.insert("nodes".into(), used.nodes.into());
    }
    let ready = if pool.is_ready { "True" } else { "False" };
    let conditions = match pool.conditions.is_empty() {
        true => json!([{ "type": "Ready", "status": ready }]),
        false => condition::render(&pool.conditions),
    };
    status.insert("conditions".into(), conditions);
    status.into()
}

fn render_template(template: &NodeTemplate) -> Value {
    let mut metadata = Map::new();
    for (name, map) in [("labels", &template.labels), ("annotations", &template.annotations)] {
        if !map.is_empty() {
            metadata.insert(name.into(), render::labels(map));
        }
    }
    let mut spec = Map::new();
    render::constraints(&mut spec, &template.taints, &template.startup_taints);
    spec.insert("requirements".into(), requirement::render(&template.requirements));
    spec.insert("nodeClassRef".into(), render::class_ref(&template.class));
    if let Some(grace) = template.termination_grace {
        spec.insert("terminationGracePeriod".into(), render_duration(grace).into());
    }
    spec.insert("expireAfter".into(), template.expire_after.to_string().into());
    if metadata.is_empty() { json!({ "spec": spec }) } else { json!({ "metadata": metadata, "spec": spec }) }
}

fn render_disruption(disruption: &Disruption) -> Value {
    let policy = disruption.policy.as_str();
    let budget = |budget: &Budget| {
        let nodes = match budget.nodes {
            BudgetNodes::Count(count) => count.to_string(),
            BudgetNodes::Percent(share) => format!("{share}%"),
        };
        let mut entry = json!({ "nodes": nodes });
        if !budget.reasons.is_empty() {
            entry["reasons"] = budget.reasons.iter().map(|reason| reason.as_str()).collect();
        }
        if let Some(window) = &budget.window {
            entry["schedule"] = window.schedule.text().into();
            entry["duration"] = render_budget_duration(window.duration).into();
        }
        entry
    };
    json!({
        "consolidateAfter": disruption.consolidate_after.to_string(),
        "consolidationPolicy": policy,
        "budgets": disruption.budgets.iter().map(budget).collect::<Value>(),
    })
}

/// Hours and minutes only, zero included.
fn render_budget_duration(duration: SignedDuration) -> String {
    let minutes = duration.as_mins();
    match (minutes / 60, minutes % 60) {
        (0, minutes) => format!("{minutes}m"),
        (hours, 0) => format!("{hours}h"),
        (hours, minutes) => format!("{hours}h{minutes}m"),
    }
}
