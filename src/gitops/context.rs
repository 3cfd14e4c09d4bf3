//! What a template sees: the pool or class with its short forms spelt out, and the environment around it.

use std::sync::Arc;

use minijinja::Value;
use minijinja::value::Serde;
use serde_json::{Map, Value as Json, json};

use crate::api::ec2nodeclass::FAMILIES;
use crate::gitops::diagnostic::Diagnostic;
use crate::gitops::lock::{Book, catalog_function};
use crate::gitops::migrate::RENAMED;
use crate::gitops::tree::{Node, Tree};

/// Strategies that come with a class of their own, which has the same name.
pub(crate) const OWN_CLASS: [&str; 2] = ["bottlerocket", "self-managed"];

/// The order in which templates see the entries of tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MapOrder {
    /// By key, whatever the order in the files.
    #[default]
    Sorted,
    /// The other way round, to find templates whose output depends on it.
    Reversed,
}

/// The same for all templates of an environment.
#[derive(Clone, Debug)]
pub(crate) struct Surroundings {
    pub order: MapOrder,
    pub fleet: String,
    pub environment: String,
    pub engine: String,
    pub cluster: String,
    pub region: Option<String>,
    pub variables: Node,
    pub pools: Vec<String>,
    pub book: Arc<Book>,
}

impl Surroundings {
    fn context(&self, what: &str, value: Json, variables: &Node) -> Value {
        let mut root = Map::new();
        root.insert("fleet".to_owned(), json!({ "name": self.fleet }));
        root.insert("env".to_owned(), json!({ "name": self.environment, "engine": self.engine }));
        root.insert("cluster".to_owned(), json!(self.cluster));
        if let Some(region) = &self.region {
            root.insert("region".to_owned(), json!(region));
        }
        root.insert("pools".to_owned(), json!(self.pools));
        root.insert("vars".to_owned(), variables.to_json());
        root.insert(what.to_owned(), value);
        let plain = Value::from(Serde(&ordered(Json::Object(root), self.order)));
        minijinja::context! { catalog => catalog_function(&self.book, self.region.as_deref()), ..plain }
    }

    pub fn for_pool(&self, name: &str, pool: &Node, variables: &Node) -> Value {
        self.context("pool", pool_value(name, pool), variables)
    }

    pub fn for_class(&self, class: &ClassInput<'_>, variables: &Node) -> Value {
        self.context("class", class_value(class), variables)
    }
}

fn ordered(value: Json, order: MapOrder) -> Json {
    match value {
        Json::Object(map) => {
            let mut entries: Vec<(String, Json)> = map.into_iter().collect();
            entries.sort_by(|a, b| match order {
                MapOrder::Sorted => a.0.cmp(&b.0),
                MapOrder::Reversed => b.0.cmp(&a.0),
            });
            Json::Object(entries.into_iter().map(|(key, value)| (key, ordered(value, order))).collect())
        }
        Json::Array(items) => items.into_iter().map(|item| ordered(item, order)).collect(),
        other => other,
    }
}

/// A class before it is rendered.
pub(crate) struct ClassInput<'a> {
    pub name: &'a str,
    pub node: &'a Node,
    pub preset: &'a str,
    /// The text of `user-data-file`.
    pub user_data: Option<String>,
}

/// Fields that choose instances, with the label and the operator that they stand for.
const INSTANCE_FIELDS: [(&str, &str, &str); 7] = [
    ("instance-types", "node.kubernetes.io/instance-type", "In"),
    ("instance-families", "karpenter.k8s.aws/instance-family", "In"),
    ("instance-categories", "karpenter.k8s.aws/instance-category", "In"),
    ("instance-sizes", "karpenter.k8s.aws/instance-size", "In"),
    ("instance-generation-min", "karpenter.k8s.aws/instance-generation", "Gt"),
    ("instance-cpu-min", "karpenter.k8s.aws/instance-cpu", "Gt"),
    ("instance-cpu-max", "karpenter.k8s.aws/instance-cpu", "Lt"),
];

/// Other fields that become requirements.
const PLACEMENT_FIELDS: [(&str, &str, &str); 3] = [
    ("zones", "topology.kubernetes.io/zone", "In"),
    ("capacity-types", "karpenter.sh/capacity-type", "In"),
    ("architectures", "kubernetes.io/arch", "In"),
];

/// Labels whose values say which instances a pool has. All others only narrow the choice.
const CHOOSING: [&str; 5] = [
    "beta.kubernetes.io/instance-type",
    "karpenter.k8s.aws/instance-category",
    "karpenter.k8s.aws/instance-family",
    "karpenter.k8s.aws/instance-size",
    "node.kubernetes.io/instance-type",
];

/// Whether a requirement takes the place of the strategy's own choice. What only excludes some does not say which.
fn chooses_instances(requirement: &Json) -> bool {
    requirement["operator"] == "In" && requirement["key"].as_str().is_some_and(|key| CHOOSING.contains(&key))
}

/// The part of a pool that asks for a label: a short field or an entry of `requirements`.
pub(crate) fn requirement_source<'n>(pool: &'n Node, label: &str, operator: &str) -> Option<&'n Node> {
    let entries = pool.get("requirements").and_then(Node::as_list).unwrap_or_default();
    let text = |entry: &Node, key: &str| entry.get(key).and_then(Node::as_text).cloned();
    let is_exact = |entry: &&Node| {
        text(entry, "key").as_deref() == Some(label) && text(entry, "operator").as_deref() == Some(operator)
    };
    let entry = entries.iter().find(is_exact);
    entry.or_else(|| {
        let mut fields = PLACEMENT_FIELDS.iter().chain(&INSTANCE_FIELDS);
        fields.find_map(|(field, key, op)| (*key == label && *op == operator).then(|| pool.get(field))?)
    })
}

fn pool_value(name: &str, pool: &Node) -> Json {
    let mut out = Map::new();
    let mut requirements = Vec::new();
    for (key, entry) in pool.as_map().into_iter().flat_map(|map| map.iter()) {
        let value = match (&**key, &entry.node.value) {
            ("overrides" | "variables" | "requirements", _) => continue,
            ("limits", Tree::Map(limits)) => limits
                .iter()
                .map(|(key, entry)| (key.to_string(), worded(&entry.node)))
                .collect::<Map<_, _>>()
                .into(),
            ("budgets", Tree::List(budgets)) => budgets.iter().map(budget).collect(),
            _ => entry.node.to_json(),
        };
        out.insert(key.replace('-', "_"), value);
    }
    for (field, label, operator) in PLACEMENT_FIELDS.iter().chain(&INSTANCE_FIELDS) {
        if let Some(node) = pool.get(field) {
            requirements.push(json!({ "key": label, "operator": operator, "values": bound(field, node) }));
        }
    }
    for entry in pool.get("requirements").and_then(Node::as_list).unwrap_or_default() {
        requirements.push(entry.to_json());
    }
    // Templates of older repositories know these by their old names.
    for (old, new) in RENAMED {
        if let Some(value) = out.get(&new.replace('-', "_")).cloned() {
            out.insert(old.replace('-', "_"), value);
        }
    }
    let chooses = requirements.iter().any(chooses_instances);
    out.insert("name".to_owned(), json!(name));
    out.insert("class".to_owned(), json!(class_of(pool)));
    out.insert("requirements".to_owned(), Json::Array(requirements));
    out.insert("chooses_instances".to_owned(), json!(chooses));
    Json::Object(out)
}

/// The class that a pool uses.
pub(crate) fn class_of(pool: &Node) -> &str {
    let text = |key: &str| pool.get(key).and_then(Node::as_text).map(|text| &**text);
    let own = || text("strategy").filter(|strategy| OWN_CLASS.contains(strategy));
    text("class").or_else(own).unwrap_or("default")
}

/// The values of a requirement; bounds are inclusive in the language and exclusive in the object.
fn bound(field: &str, node: &Node) -> Json {
    match &node.value {
        Tree::Int(number) if field.ends_with("-min") => json!([(number - 1).to_string()]),
        Tree::Int(number) if field.ends_with("-max") => json!([(number + 1).to_string()]),
        _ => node.to_json(),
    }
}

/// Quantities and the like are texts in the object.
fn worded(node: &Node) -> Json {
    match &node.value {
        Tree::Int(number) => json!(number.to_string()),
        Tree::Float(text) => json!(text),
        _ => node.to_json(),
    }
}

fn budget(node: &Node) -> Json {
    let mut out = Map::new();
    for (key, entry) in node.as_map().into_iter().flat_map(|map| map.iter()) {
        match &**key {
            "name" => {}
            "nodes" => {
                out.insert("nodes".to_owned(), worded(&entry.node));
            }
            key if key.starts_with("x-") => {}
            _ => {
                out.insert(key.to_string(), entry.node.to_json());
            }
        }
    }
    out.entry("nodes").or_insert_with(|| json!("10%"));
    Json::Object(out)
}

fn class_value(class: &ClassInput<'_>) -> Json {
    let mut out = Map::new();
    for (key, entry) in class.node.as_map().into_iter().flat_map(|map| map.iter()) {
        let value = match &**key {
            "overrides" | "variables" | "user-data-file" => continue,
            "ami" => images(&entry.node),
            "subnets" => selectors(&entry.node),
            "security-groups" => selectors(&entry.node),
            "volumes" => entry.node.as_list().unwrap_or_default().iter().map(underscored).collect(),
            _ => entry.node.to_json(),
        };
        out.insert(key.replace('-', "_"), value);
    }
    if let Some(text) = &class.user_data {
        out.insert("user_data".to_owned(), json!(text));
    }
    out.insert("name".to_owned(), json!(class.name));
    out.insert("preset".to_owned(), json!(class.preset));
    Json::Object(out)
}

fn underscored(node: &Node) -> Json {
    let fields = node.as_map().into_iter().flat_map(|map| map.iter());
    Json::Object(fields.map(|(key, entry)| (key.replace('-', "_"), entry.node.to_json())).collect())
}

fn images(node: &Node) -> Json {
    match &node.value {
        Tree::Text(text, _) => json!([image(text)]),
        Tree::List(items) => items
            .iter()
            .map(|item| item.as_text().map_or_else(|| item.to_json(), |text| image(text)))
            .collect(),
        Tree::Map(_) => json!([node.to_json()]),
        _ => node.to_json(),
    }
}

/// An id, an alias, a parameter or a name, told apart by their looks.
fn image(text: &str) -> Json {
    if text.starts_with("ami-") {
        json!({ "id": text })
    } else if text.starts_with('/') || text.starts_with("arn:") {
        json!({ "ssmParameter": text })
    } else if text.contains('@') {
        json!({ "alias": text })
    } else {
        json!({ "name": text })
    }
}

/// A table is tags, a text is an id, a list holds either or whole terms.
fn selectors(node: &Node) -> Json {
    let term = |node: &Node| match &node.value {
        Tree::Text(text, _) if text.starts_with("subnet-") || text.starts_with("sg-") => {
            json!({ "id": text })
        }
        Tree::Text(text, _) => json!({ "name": text }),
        Tree::Map(map)
            if map.iter().all(|(key, _)| matches!(&**key, "tags" | "id" | "name")) && !map.is_empty() =>
        {
            node.to_json()
        }
        Tree::Map(_) => json!({ "tags": node.to_json() }),
        _ => node.to_json(),
    };
    match &node.value {
        Tree::List(items) => items.iter().map(term).collect(),
        _ => json!([term(node)]),
    }
}

/// Whether `ami`, `subnets` and `security-groups` have a form that can be understood.
pub(crate) fn check_class(class: &Node, found: &mut Vec<Diagnostic>) {
    for (key, what, example) in [
        ("ami", "an alias, an image id or a list of selector terms", "\"al2023@latest\""),
        (
            "subnets",
            "a table of tags, an id or a list of them",
            "{ \"karpenter.sh/discovery\" = \"shop-prod\" }",
        ),
        (
            "security-groups",
            "a table of tags, an id or a list of them",
            "{ \"karpenter.sh/discovery\" = \"shop-prod\" }",
        ),
    ] {
        let Some(node) = class.get(key) else { continue };
        if !matches!(node.value, Tree::Text(..) | Tree::List(_) | Tree::Map(_)) {
            let message = format!("`{key}` is {} ({}) where {what} is expected", node.shown(), node.kind());
            found.push(
                Diagnostic::error("PRV1203", node.place.clone(), message)
                    .help(format!("write it like {example}")),
            );
        }
    }
    if let Some(ami) = class.get("ami") {
        let images = ami.as_list().unwrap_or(std::slice::from_ref(ami));
        found.extend(images.iter().filter_map(no_version));
    }
}

/// A family of images where an image is expected. It would be taken for the name of an image, and no image is named so.
fn no_version(node: &Node) -> Option<Diagnostic> {
    let text = node.as_text().filter(|text| !text.trim().is_empty())?;
    // No image has these letters in its name, so this is an alias with another sign than `@`.
    let (family, version) = text.split_once([':', '=']).unwrap_or((text, "latest"));
    let (_, name, alias) = FAMILIES
        .iter()
        .find(|(_, name, alias)| [*name, *alias].iter().any(|it| it.eq_ignore_ascii_case(family)))?;
    let named = format!("if you do mean an image of that name, write `[{{ name = \"{text}\" }}]`");
    let (message, help) = match *alias {
        "" => (
            format!("`{text}` is a family of images of your own, and no image"),
            format!(
                "name the image itself, such as \"ami-0123456789abcdef0\", and set `ami-family = \"{name}\"`; {named}"
            ),
        ),
        alias => (
            format!("`{text}` is a family of images without a version"),
            format!("write \"{alias}@{version}\"; {named}"),
        ),
    };
    Some(Diagnostic::error("PRV1203", node.place.clone(), message).help(help))
}
