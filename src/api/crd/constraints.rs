//! What pools, claims and overlays have in common: requirements, taints, the reference to a class, conditions.

use super::schema::{Schema, cel_list};
use crate::api::requirement::{COUNT_MAX, KEY_CHARS_MAX, Place};
use crate::api::taint::EFFECTS;
use crate::model::label;
use crate::model::requirement::Operator;

/// A label or taint key: an optional DNS prefix and a name.
const KEY: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*(\/))?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$";
pub(super) const LABEL_VALUE: &str = "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$";
pub(super) const DURATION: &str = "^([0-9]+(s|m|h))+$";
pub(super) const DURATION_OR_NEVER: &str = "^(([0-9]+(s|m|h))+|Never)$";
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";

/// Rules for label keys, each with its message; `key` is what CEL calls the key.
fn key_rules(place: Place, key: &str) -> Vec<(String, String)> {
    let nodepool = label::NODEPOOL.as_str();
    let hostname = label::HOSTNAME.as_str();
    let open = cel_list([label::CAPACITY_TYPE.as_str(), nodepool]);
    let aws: Vec<String> = label::OF_AWS.iter().map(|name| format!("karpenter.k8s.aws/{name}")).collect();
    let aws = cel_list(aws.iter().map(String::as_str));
    let domain = format!("{key}.split('/')[0]");
    let mut rules = vec![
        (
            "the domain karpenter.sh is the provisioner's own: use a domain of yours".to_owned(),
            format!("{key} in {open} || !{domain}.endsWith('karpenter.sh')"),
        ),
        (
            "nodes of EC2 have no such label in the domain karpenter.k8s.aws".to_owned(),
            format!("!{domain}.endsWith('karpenter.k8s.aws') || {key} in {aws}"),
        ),
        (
            format!("{hostname} may not be asked for: a node's name is not known before it starts"),
            format!("{key} != '{hostname}'"),
        ),
    ];
    if place == Place::Pool {
        let message = format!("{nodepool} may not be set: nodes of a pool always carry its name");
        rules.push((message, format!("{key} != '{nodepool}'")));
    }
    rules
}

/// Labels of a pool's nodes. The rules go through the keys.
pub(super) fn labels(about: &str, count_max: usize) -> Schema {
    let value = Schema::text("").chars_max(63).pattern(LABEL_VALUE);
    let labels = Schema::map(about, value).entries_max(count_max).atomic();
    key_rules(Place::Pool, "key")
        .into_iter()
        .fold(labels, |labels, (message, rule)| labels.rule(&message, &format!("self.all(key, {rule})")))
}

pub(super) fn requirements(about: &str, place: Place) -> Schema {
    let key = Schema::text("The label that the nodes' values are compared with.").chars_max(KEY_CHARS_MAX);
    let key = key_rules(place, "self")
        .into_iter()
        .fold(key.pattern(KEY), |key, (message, rule)| key.rule(&message, &rule));
    let values = Schema::list(
        "What the operator compares with: one or more texts for In, one whole number for Gt, Lt, Gte and Lte.",
        Schema::text(""),
    );
    let mut fields = vec![
        ("key", key),
        ("operator", Schema::text("How it is compared.").one_of(&Operator::ALL.map(Operator::as_str))),
        ("values", values.atomic()),
    ];
    if place != Place::Overlay {
        let flexibility =
            "How many different values must stay possible when nodes are bought; an alpha feature.";
        fields.push(("minValues", Schema::integer(flexibility).between(1, 50)));
    }
    let one = Schema::object("A condition on one label.", fields).required(&["key", "operator"]);
    let mut list = Schema::list(about, one).items_max(COUNT_MAX).atomic().rule(
        "operator In needs at least one value",
        "self.all(one, one.operator != 'In' || (has(one.values) && one.values.size() > 0))",
    );
    list = list.rule(
        "operators Gt, Lt, Gte and Lte need exactly one whole number of 0 or more",
        "self.all(one, !(one.operator in ['Gt', 'Lt', 'Gte', 'Lte']) || \
         (has(one.values) && one.values.size() == 1 && int(one.values[0]) >= 0))",
    );
    match place {
        Place::Overlay => list.rule(
            "operator NotIn needs at least one value",
            "self.all(one, one.operator != 'NotIn' || (has(one.values) && one.values.size() > 0))",
        ),
        Place::Pool | Place::Claim => list.rule(
            "minValues may not ask for more values than In lists",
            "self.all(one, one.operator != 'In' || !has(one.minValues) || one.values.size() >= one.minValues)",
        ),
    }
}

pub(super) fn taints(about: &str) -> Schema {
    let fields = [
        ("effect", Schema::text("What happens to pods that do not tolerate it.").one_of(&EFFECTS)),
        ("key", Schema::text("The taint's name.").not_empty().pattern(KEY)),
        ("timeAdded", Schema::moment("Since when it is there.")),
        ("value", Schema::text("A word that tolerations may compare.").pattern(KEY)),
    ];
    let taint = Schema::object("Keeps pods away that do not tolerate it.", fields);
    Schema::list(about, taint.required(&["effect", "key"])).atomic()
}

/// The reference to a class; a pool may later name another class, but only of the same kind.
pub(super) fn class_ref(is_fixed: bool) -> Schema {
    let word = |about: &str| Schema::text(about).rule("must not be empty", "self != ''");
    let fields = [
        ("group", word("The API group of the class, without a version.").pattern("^[^/]*$")),
        ("kind", word("The kind of the class.")),
        ("name", word("The name of the class.")),
    ];
    let about = "The class that says how machines are made: images, networks, disks.";
    let reference = Schema::object(about, fields).required(&["group", "kind", "name"]);
    if !is_fixed {
        return reference;
    }
    reference
        .rule("the group cannot change: make another pool", "self.group == oldSelf.group")
        .rule("the kind cannot change: make another pool", "self.kind == oldSelf.kind")
}

/// How much a condition must say.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    Full,
    /// Reason and message may be missing.
    Terse,
}

pub(crate) fn conditions(detail: Detail) -> Schema {
    let list = unkeyed_conditions(detail);
    list.with("x-kubernetes-list-map-keys", vec!["type"]).with("x-kubernetes-list-type", "map")
}

/// As one list that its writer replaces.
pub(super) fn unkeyed_conditions(detail: Detail) -> Schema {
    let reason = Schema::text("Why, as one word for programs.").chars_max(1024);
    let (reason, required): (_, &[&str]) = match detail {
        Detail::Full => (
            reason.not_empty().pattern("^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
            &["lastTransitionTime", "message", "reason", "status", "type"],
        ),
        Detail::Terse => (
            reason.pattern("^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?|)$"),
            &["lastTransitionTime", "status", "type"],
        ),
    };
    let fields = [
        ("lastTransitionTime", Schema::moment("Since when the status is what it is.")),
        ("message", Schema::text("Why, for people.").chars_max(32_768)),
        ("observedGeneration", Schema::large("The generation of the object that was judged.").at_least(0)),
        ("reason", reason),
        ("status", Schema::text("Whether it holds.").one_of(&["True", "False", "Unknown"])),
        ("type", Schema::text("What is judged.").chars_max(316).pattern(CONDITION_TYPE)),
    ];
    let one = Schema::object("One fact about the object.", fields).required(required);
    Schema::list("What is known about the object's state.", one)
}
