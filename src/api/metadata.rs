//! What every Kubernetes object says about itself.

use jiff::Timestamp;

use super::field::{Field, Stage};
use crate::model::label::{self, Labels};
use crate::model::name::Uid;
use crate::model::pod::Owner;
use crate::model::symbol::Symbol;

/// The fields of `metadata` that an API server knows.
const KNOWN: [&str; 16] = [
    "name",
    "generateName",
    "namespace",
    "selfLink",
    "uid",
    "resourceVersion",
    "generation",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "labels",
    "annotations",
    "ownerReferences",
    "finalizers",
    "managedFields",
    "clusterName",
];

/// The finalizer that Karpenter puts on claims and nodes.
pub(crate) const TERMINATION_FINALIZER: &str = "karpenter.sh/termination";

pub(crate) struct Metadata {
    pub(crate) name: Symbol,
    /// `default` if the object does not say.
    pub(crate) namespace: Symbol,
    pub(crate) uid: Uid,
    pub(crate) labels: Labels,
    pub(crate) created: Option<Timestamp>,
    pub(crate) deleted: Option<Timestamp>,
    pub(crate) has_finalizer: bool,
    pub(crate) owners: Vec<Owner>,
}

/// Reads `metadata`. An object without a uid gets one from its namespace and name.
pub(crate) fn read(object: &Field<'_, '_>) -> Metadata {
    let metadata = object.get("metadata").required();
    let name = metadata.get("name");
    let name = match name.text() {
        Some(text) if !text.is_empty() => text,
        _ => {
            if metadata.map().is_some() {
                name.required_text();
            }
            ""
        }
    };
    let namespace = metadata.get("namespace").text().filter(|text| !text.is_empty()).unwrap_or("default");
    let uid = match metadata.get("uid").text().filter(|text| !text.is_empty()) {
        Some(uid) => Uid::new(uid),
        None => made_up_uid(namespace, name),
    };
    Metadata {
        name: name.into(),
        namespace: namespace.into(),
        uid,
        labels: read_labels(&metadata.get("labels")),
        created: metadata.get("creationTimestamp").timestamp(),
        deleted: metadata.get("deletionTimestamp").timestamp(),
        has_finalizer: metadata
            .get("finalizers")
            .items()
            .any(|item| item.text() == Some(TERMINATION_FINALIZER)),
        owners: metadata.get("ownerReferences").items().map(|owner| read_owner(&owner)).collect(),
    }
}

/// The uid of an object that has none, because it was never on a server.
pub(crate) fn made_up_uid(namespace: &str, name: &str) -> Uid {
    Uid::new(&format!("{namespace}/{name}"))
}

/// Checks of `metadata` that only matter before an object is stored.
pub(crate) fn check(object: &Field<'_, '_>) {
    let metadata = object.get("metadata");
    if !metadata.only(&KNOWN) {
        return;
    }
    let name = metadata.get("name");
    if let Some(text) = name.value().and_then(|value| value.as_str()).filter(|text| !text.is_empty())
        && !is_dns_name(text)
    {
        name.error_with_help(
            format!("`{text}` is not a name"),
            "use lower-case letters, digits, `-` and `.`, at most 253, beginning and ending with a letter or digit",
        );
    }
    for (key, value) in metadata.get("labels").entries() {
        check_key(&value, key);
        if let Some(text) = value.value().and_then(|value| value.as_str())
            && !label::is_label_value(text)
        {
            value.error(format!("`{text}` is not a label value"));
        }
    }
    for (key, value) in metadata.get("annotations").entries() {
        check_key(&value, &key.to_lowercase());
    }
}

fn check_key(field: &Field<'_, '_>, key: &str) {
    if !label::is_qualified_name(key) {
        field.note_key(Stage::Admission, format!("`{key}` is not a label key"), None);
    }
}

/// A DNS subdomain: what most Kubernetes names must be.
pub(crate) fn is_dns_name(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    text.len() <= 253
        && text.split('.').all(|part| {
            let bytes = part.as_bytes();
            bytes.first().is_some_and(|byte| is_plain(*byte))
                && bytes.last().is_some_and(|byte| is_plain(*byte))
                && bytes.iter().all(|byte| is_plain(*byte) || *byte == b'-')
        })
}

/// A map of label keys to label values.
pub(crate) fn read_labels(labels: &Field<'_, '_>) -> Labels {
    let pairs = labels.entries().filter_map(|(key, value)| Some((Symbol::new(key), value.symbol()?)));
    pairs.collect()
}

/// The annotations of an object, less the copy of itself that `kubectl apply` leaves there.
pub(crate) fn read_annotations(object: &Field<'_, '_>) -> Labels {
    let mut annotations = read_labels(&object.get("metadata").get("annotations"));
    annotations.remove(&Symbol::new("kubectl.kubernetes.io/last-applied-configuration"));
    annotations
}

fn read_owner(owner: &Field<'_, '_>) -> Owner {
    let text = |key: &str| Symbol::new(owner.get(key).text().unwrap_or_default());
    Owner {
        kind: text("kind"),
        api_version: text("apiVersion"),
        name: text("name"),
        uid: Uid(text("uid")),
        is_controller: owner.get("controller").boolean().unwrap_or(false),
    }
}
