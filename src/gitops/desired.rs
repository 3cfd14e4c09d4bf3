//! The objects that one commit wants for one environment, each value with the place that set it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::model::provisioner::Provisioner;
use crate::model::repository::Revision;

/// Names one Kubernetes object. Ordered so that what others refer to comes first: classes, overlays, pools.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectRef {
    /// `group/version`, such as `karpenter.sh/v1`.
    pub api_version: Arc<str>,
    pub kind: Arc<str>,
    /// Empty for cluster-scoped kinds, as all of ours are.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

const OLD_BUFFER: &str = "autoscaling.x-k8s.io/v1alpha1";
const NEW_BUFFER: &str = "autoscaling.x-k8s.io/v1beta1";

impl ObjectRef {
    /// Which object a manifest is; `None` without `apiVersion`, `kind` or `metadata.name`.
    pub fn of(manifest: &Value) -> Option<Self> {
        let text = |value: &Value| value.as_str().map(Arc::<str>::from);
        let metadata = &manifest["metadata"];
        let api_version = text(&manifest["apiVersion"])?;
        Some(Self {
            // Both versions are of one object.
            api_version: if *api_version == *OLD_BUFFER { NEW_BUFFER.into() } else { api_version },
            kind: text(&manifest["kind"])?,
            namespace: text(&metadata["namespace"]).unwrap_or_else(|| "".into()),
            name: text(&metadata["name"])?,
        })
    }

    /// Position in apply order: EC2NodeClass, NodeOverlay, NodePool, PodTemplate, CapacityBuffer, then the rest.
    pub fn rank(&self) -> u8 {
        match &*self.kind {
            "EC2NodeClass" => 0,
            "NodeOverlay" => 1,
            "NodePool" => 2,
            "PodTemplate" => 3,
            "CapacityBuffer" => 4,
            _ => 5,
        }
    }

    /// Whether a fleet may describe objects of its kind.
    pub(super) fn is_of_fleets(&self) -> bool {
        self.rank() < 5
    }

    /// Whether teams that deploy pods make objects of its kind as well, of which a fleet knows nothing.
    pub(super) fn is_of_teams(&self) -> bool {
        matches!(&*self.kind, "PodTemplate" | "CapacityBuffer")
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
    /// Brings a manifest into canonical form.
    pub fn new(manifest: Value, origins: BTreeMap<Arc<str>, Origin>) -> Self {
        let mut manifest = canonical(manifest);
        normalise_quantities(&mut manifest);
        Self { manifest, origins }
    }

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

/// Sorted keys, and no `null`: to Kubernetes that is the same as nothing.
fn canonical(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let sorted: BTreeMap<String, Value> =
                map.into_iter().filter(|(_, value)| !value.is_null()).collect();
            Value::Object(sorted.into_iter().map(|(key, value)| (key, canonical(value))).collect())
        }
        Value::Array(items) => items.into_iter().map(canonical).collect(),
        other => other,
    }
}

/// `1000m` and `1` are one limit, so they are written the same.
fn normalise_quantities(manifest: &mut Value) {
    for table in ["/spec/limits", "/spec/capacity"] {
        let Some(Value::Object(quantities)) = manifest.pointer_mut(table) else { continue };
        for quantity in quantities.values_mut() {
            let text = match &*quantity {
                Value::String(text) => text.clone(),
                Value::Number(number) => number.to_string(),
                _ => continue,
            };
            if let Some(short) = shortest_quantity(&text) {
                *quantity = Value::String(short);
            }
        }
    }
}

/// A quantity in its one spelling: whole numbers without suffix, else thousandths, and binary ones with the largest
/// suffix that fits. `None` for what is not a quantity or has parts below a thousandth.
fn shortest_quantity(text: &str) -> Option<String> {
    const BINARY: [(&str, u128); 6] = [
        ("Ei", 1 << 60),
        ("Pi", 1 << 50),
        ("Ti", 1 << 40),
        ("Gi", 1 << 30),
        ("Mi", 1 << 20),
        ("Ki", 1 << 10),
    ];
    const DECIMAL: [&str; 8] = ["m", "", "k", "M", "G", "T", "P", "E"];
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let suffix = &text[number.len()..];
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 18 || fraction.len() > 9 || !is_digits(whole) || !is_digits(fraction)
    {
        return None;
    }
    let binary = BINARY.iter().find(|(name, _)| *name == suffix);
    let unit = match binary {
        Some((_, unit)) => unit * 1000,
        None => 1000u128.pow(DECIMAL.iter().position(|name| *name == suffix)? as u32),
    };
    // In thousandths, exactly.
    let scale = 10u128.pow(fraction.len() as u32);
    let scaled = format!("{whole}{fraction}").parse::<u128>().ok()?.checked_mul(unit)?;
    if !scaled.is_multiple_of(scale) {
        return None;
    }
    let thousandths = scaled / scale;
    let fitting = BINARY
        .iter()
        .find(|(_, unit)| binary.is_some() && thousandths > 0 && thousandths.is_multiple_of(unit * 1000));
    Some(match fitting {
        Some((name, unit)) => format!("{}{name}", thousandths / (unit * 1000)),
        None if thousandths.is_multiple_of(1000) => (thousandths / 1000).to_string(),
        None => format!("{thousandths}m"),
    })
}

/// All objects of one environment at one commit.
#[derive(Clone, Debug, PartialEq)]
pub struct DesiredState {
    pub environment: Arc<str>,
    pub revision: Revision,
    /// SHA-256 over the canonical objects, in hexadecimal: independent of comments and formatting of the inputs.
    pub digest: Arc<str>,
    pub provisioner: Provisioner,
    /// Who sells the machines, as the environment writes it.
    pub cloud: Option<Arc<str>>,
    pub objects: BTreeMap<ObjectRef, DesiredObject>,
}

impl DesiredState {
    /// Names a set of objects by its content.
    pub fn new(
        environment: Arc<str>,
        revision: Revision,
        (provisioner, cloud): (Provisioner, Option<Arc<str>>),
        objects: BTreeMap<ObjectRef, DesiredObject>,
    ) -> Self {
        let mut hash = Sha256::new();
        for object in objects.values() {
            hash.update(object.manifest.to_string());
            hash.update("\n");
        }
        let digest: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Self { environment, revision, digest: digest.into(), provisioner, cloud, objects }
    }

    /// Classes of EC2 that pools name and that are made elsewhere.
    pub fn external_classes(&self) -> impl Iterator<Item = &str> {
        let is_made = |class: &str| {
            self.objects.keys().any(|object| &*object.kind == "EC2NodeClass" && &*object.name == class)
        };
        let pools = self.objects.iter().filter(|(object, _)| &*object.kind == "NodePool");
        let pools = pools.map(|(_, wanted)| &wanted.manifest).filter(|pool| {
            pool.pointer("/spec/template/spec/nodeClassRef/kind").is_some_and(|kind| kind == "EC2NodeClass")
        });
        pools.filter_map(class_of).filter(move |class| !is_made(class))
    }
}

/// The name of the node class that a NodePool manifest refers to.
pub(crate) fn class_of(pool: &Value) -> Option<&str> {
    pool.pointer("/spec/template/spec/nodeClassRef/name").and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_quantities_are_written_the_same() {
        for (text, short) in [
            ("1000m", "1"),
            ("1", "1"),
            ("1500m", "1500m"),
            ("1.5", "1500m"),
            ("4096Mi", "4Gi"),
            ("4Gi", "4Gi"),
            ("200", "200"),
            ("200000", "200000"),
            ("0.5Gi", "512Mi"),
            ("0", "0"),
        ] {
            assert_eq!(shortest_quantity(text).as_deref(), Some(short), "{text}");
        }
        assert_eq!(shortest_quantity("4GB"), None);
    }
}
