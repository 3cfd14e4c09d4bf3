//! The objects that one commit wants for one environment, each value with the place that set it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::model::repository::Revision;

/// Names one Kubernetes object. Ordered so that what others refer to comes first: classes, overlays, pools.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// `group/version`, such as `karpenter.sh/v1`.
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    /// Empty for cluster-scoped kinds, as all of ours are.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl ObjectRef {
    /// Position in apply order: EC2NodeClass, NodeOverlay, NodePool, then the rest.
    pub fn rank(&self) -> u8 {
        match &*self.kind {
            "EC2NodeClass" => 0,
            "NodeOverlay" => 1,
            "NodePool" => 2,
            _ => 3,
        }
    }

    fn order(&self) -> (u8, &str, &str, &str, &str) {
        (self.rank(), &self.kind, &self.namespace, &self.name, &self.api_version)
    }
}

impl Ord for ObjectRef {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.order().cmp(&other.order())
    }
}

impl PartialOrd for ObjectRef {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(out, "{}/{}", self.kind, self.name)
        } else {
            write!(out, "{}/{}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// A place in a file that a person edits; lines and columns count from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Origin {
    pub file: Arc<str>,
    pub line: u32,
    pub column: u32,
}

impl fmt::Display for Origin {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One wanted object in canonical form (sorted keys, normalised quantities).
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredObject {
    pub manifest: Value,
    /// Where a value came from, by dotted path (`spec.limits.cpu`, `spec.disruption.budgets[0].nodes`). A path without
    /// an entry inherits that of its nearest parent; `""` is the object as a whole and always present.
    pub origins: BTreeMap<Arc<str>, Origin>,
}

impl DesiredObject {
    /// The place that set `path`, or its nearest parent that has one.
    pub fn origin(&self, path: &str) -> Option<&Origin> {
        let mut at = path;
        loop {
            if let Some(origin) = self.origins.get(at) {
                return Some(origin);
            }
            if at.is_empty() {
                return None;
            }
            at = at.rfind(['.', '[']).map_or("", |end| &at[..end]);
        }
    }
}

/// All objects of one environment at one commit.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredState {
    pub environment: Arc<str>,
    pub revision: Revision,
    /// SHA-256 over the canonical objects, in hexadecimal: independent of comments and formatting of the inputs.
    pub digest: Arc<str>,
    pub objects: BTreeMap<ObjectRef, DesiredObject>,
}
