//! What is remembered of objects besides their meaning: versions, and the lists that can only be written as a whole.

use std::collections::HashMap;
use std::sync::Mutex;

use serde_json::Value;

use super::Kind;
use crate::model::name::{ObjectKey, Uid};
use crate::model::observation::Observation;

/// `metadata.resourceVersion`: of two versions of one object the larger is the newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u64);

impl Version {
    /// That of an object as the API server tells of it.
    pub fn of(object: &Value) -> Self {
        let text = object.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        Self(text.and_then(|text| text.parse().ok()).unwrap_or_default())
    }
}

/// One piece of news from the API server.
#[derive(Clone, Debug)]
pub struct Change {
    pub kind: Kind,
    /// Cluster-scoped objects are under the empty namespace.
    pub key: ObjectKey,
    pub version: Version,
    pub is_gone: bool,
    /// What it means for the node half; nothing for objects that it does not observe.
    pub observation: Option<Observation>,
    pub record: Option<Record>,
    /// The whole object, of the kinds that a repository describes.
    pub manifest: Option<Value>,
}

/// What has to be known of an object to change it without harm to what others wrote.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Record {
    pub uid: Option<Uid>,
    pub version: Version,
    pub generation: i64,
    /// Deletion was asked for.
    pub is_deleting: bool,
    pub finalizers: Vec<String>,
    pub owners: Vec<Value>,
    pub taints: Vec<Value>,
}

impl Record {
    pub(super) fn of(object: &Value) -> Self {
        let list =
            |pointer: &str| object.pointer(pointer).and_then(Value::as_array).cloned().unwrap_or_default();
        let text = |value: Value| value.as_str().map(str::to_owned);
        Self {
            uid: object.pointer("/metadata/uid").and_then(Value::as_str).map(Uid::new),
            version: Version::of(object),
            generation: object.pointer("/metadata/generation").and_then(Value::as_i64).unwrap_or_default(),
            is_deleting: object.pointer("/metadata/deletionTimestamp").is_some_and(|at| !at.is_null()),
            finalizers: list("/metadata/finalizers").into_iter().filter_map(text).collect(),
            owners: list("/metadata/ownerReferences"),
            taints: list("/spec/taints"),
        }
    }
}

/// The newest record of each object that we may write.
#[derive(Debug, Default)]
pub(super) struct Records(Mutex<HashMap<(Kind, ObjectKey), Record>>);

impl Records {
    pub fn get(&self, kind: Kind, key: ObjectKey) -> Option<Record> {
        self.0.lock().expect("no holder of the records panics").get(&(kind, key)).cloned()
    }

    /// Takes in news, unless something newer is known.
    pub fn note(&self, change: &Change) {
        let mut records = self.0.lock().expect("no holder of the records panics");
        let at = (change.kind, change.key);
        if records.get(&at).is_some_and(|known| known.version > change.version) {
            return;
        }
        match &change.record {
            Some(record) if !change.is_gone => drop(records.insert(at, record.clone())),
            _ => drop(records.remove(&at)),
        }
    }
}
