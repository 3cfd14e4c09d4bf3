//! Events: what a person who describes an object will want to read.

use jiff::Timestamp;
use serde_json::json;

use super::{Kind, Kube, KubeError, Resource};
use crate::model::action::{Notice, Subject};
use crate::model::name::{Namespace, ObjectKey, Uid};

/// The API server takes no longer ones.
const MESSAGE_MAX: usize = 1000;

/// What is told at an object.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    pub is_warning: bool,
    /// A stable word.
    pub reason: &'a str,
    pub message: &'a str,
}

/// Tells about `notice` at the object that it is about, whose uid is what `kubectl describe` finds it by.
pub async fn publish(
    kube: &Kube,
    notice: &Notice,
    uid: Option<Uid>,
    now: Timestamp,
) -> Result<(), KubeError> {
    let cluster = |name| ObjectKey { namespace: Namespace::new(""), name };
    let (kind, key) = match notice.subject {
        Subject::Pool(name) => (Kind::NodePool, cluster(name.0)),
        Subject::Class(name) => (Kind::NodeClass, cluster(name.0)),
        Subject::Claim(name) => (Kind::NodeClaim, cluster(name.0)),
        Subject::Node(name) => (Kind::Node, cluster(name.0)),
        Subject::Pod(key) => (Kind::Pod, key),
    };
    let told = Told { is_warning: notice.is_warning, reason: &notice.reason, message: &notice.message };
    tell(kube, (kind, key), uid, told, now).await
}

/// Tells something at an object, whose uid is what `kubectl describe` finds it by.
pub async fn tell(
    kube: &Kube,
    (kind, key): (Kind, ObjectKey),
    uid: Option<Uid>,
    told: Told<'_>,
    now: Timestamp,
) -> Result<(), KubeError> {
    let resource = kind.resource();
    // Events about cluster-scoped objects live in `default`.
    let namespace = if key.namespace.as_str().is_empty() { "default" } else { key.namespace.as_str() };
    let moment = Timestamp::from_second(now.as_second()).unwrap_or(now).to_string();
    let mut about =
        json!({ "apiVersion": resource.api_version, "kind": resource.kind, "name": key.name.as_str() });
    if !key.namespace.as_str().is_empty() {
        about["namespace"] = key.namespace.as_str().into();
    }
    if let Some(uid) = uid {
        about["uid"] = uid.as_str().into();
    }
    let message: String = told.message.chars().take(MESSAGE_MAX).collect();
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "generateName": format!("{}.", key.name), "namespace": namespace },
        "involvedObject": about,
        "reason": told.reason,
        "message": message,
        "type": if told.is_warning { "Warning" } else { "Normal" },
        "count": 1,
        "firstTimestamp": moment,
        "lastTimestamp": moment,
        "source": { "component": "provisor" },
        "reportingComponent": "provisor",
        "reportingInstance": "",
    });
    kube.create(Resource::EVENT, Some(namespace), &event).await.map(drop)
}
