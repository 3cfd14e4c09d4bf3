//! The CustomResourceDefinitions of the kinds we serve, so that an API server refuses what our own readers refuse.
//!
//! Names and numbers are those of the readers beside this folder; the wire is Karpenter's, word for word. The files in
//! `deploy/crds` are printed from here (`provisor schema crd`).

pub(crate) mod schema;
mod constraints;
mod nodepool;
mod nodeclaim;
mod ec2nodeclass;
mod nodeoverlay;
mod capacitybuffer;

use serde_json::{Map, Value, json};

pub(crate) use constraints::{Detail, conditions};
use schema::Schema;

/// A column of `kubectl get`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) path: &'static str,
    /// Shown with `--output wide` only.
    pub(crate) is_wide: bool,
}

pub(crate) const fn column(name: &'static str, kind: &'static str, path: &'static str) -> Column {
    Column { name, kind, path, is_wide: false }
}

pub(crate) const fn wide(name: &'static str, kind: &'static str, path: &'static str) -> Column {
    Column { name, kind, path, is_wide: true }
}

pub(crate) const READY: Column =
    column("Ready", "string", r#".status.conditions[?(@.type=="Ready")].status"#);
pub(crate) const AGE: Column = column("Age", "date", ".metadata.creationTimestamp");

/// A kind that the API server is taught.
#[derive(Debug)]
pub struct Definition {
    pub(crate) group: &'static str,
    pub(crate) version: &'static str,
    pub(crate) kind: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) short: &'static [&'static str],
    pub(crate) category: &'static str,
    pub(crate) is_namespaced: bool,
    pub(crate) about: &'static str,
    pub(crate) columns: Vec<Column>,
    pub(crate) spec: Schema,
    pub(crate) status: Schema,
    /// Where `kubectl scale` writes and reads the count.
    pub(crate) scale: Option<(&'static str, &'static str)>,
}

impl Definition {
    /// `nodepools.karpenter.sh`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.plural, self.group)
    }

    /// The name of its file in `deploy/crds`, without the ending.
    pub fn file(&self) -> String {
        format!("{}_{}", self.group, self.plural)
    }

    /// As a YAML document.
    pub fn yaml(&self) -> String {
        serde_saphyr::to_string(&self.manifest())
            .expect("a schema is made of texts, numbers, lists and tables")
    }

    pub fn manifest(&self) -> Value {
        let singular = self.kind.to_lowercase();
        let mut names = json!({
            "kind": self.kind, "listKind": format!("{}List", self.kind), "plural": self.plural,
            "singular": singular, "categories": [self.category],
        });
        if !self.short.is_empty() {
            names["shortNames"] = self.short.into();
        }
        let columns: Vec<Value> = self.columns.iter().map(print_column).collect();
        let mut subresources = json!({"status": {}});
        if let Some((spec, status)) = self.scale {
            subresources["scale"] = json!({"specReplicasPath": spec, "statusReplicasPath": status});
        }
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": self.name()},
            "spec": {
                "group": self.group,
                "names": names,
                "scope": if self.is_namespaced { "Namespaced" } else { "Cluster" },
                "versions": [{
                    "name": self.version, "served": true, "storage": true,
                    "additionalPrinterColumns": columns,
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": self.root()},
                }],
            },
        })
    }

    fn root(&self) -> Value {
        let fields = [
            ("apiVersion", Schema::text("The group and version of this form of the object.")),
            ("kind", Schema::text("What the object is.")),
            ("metadata", Schema::object("", [])),
            ("spec", self.spec.clone()),
            ("status", self.status.clone()),
        ];
        Schema::object(self.about, fields).required(&["spec"]).into()
    }
}

fn print_column(column: &Column) -> Value {
    let mut printed = Map::new();
    printed.insert("name".into(), column.name.into());
    printed.insert("type".into(), column.kind.into());
    printed.insert("jsonPath".into(), column.path.into());
    if column.is_wide {
        printed.insert("priority".into(), 1.into());
    }
    printed.into()
}

/// Every kind of Karpenter's that we serve.
pub fn definitions() -> Vec<Definition> {
    vec![
        nodepool::definition(),
        nodeclaim::definition(),
        ec2nodeclass::definition(),
        nodeoverlay::definition(),
        capacitybuffer::definition(),
    ]
}
