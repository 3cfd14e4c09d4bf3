//! `provisor.lock`: what changes outside of Git, as it was when somebody last looked and committed it.
//!
//! Prices, facts of instance types and versions of images move by themselves. A template that asks `catalog("m7i.large")`
//! and a class whose `ami` is `al2023@locked` get what the lock says, so the same commit renders the same objects for
//! ever. What the lock does not have is an error that names the command which adds it; rendering never asks the world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::{Error, ErrorKind, Value};
use serde_json::{Map, Value as Json, json};

use crate::gitops::credential;
use crate::gitops::diagnostic::Diagnostic;
use crate::gitops::fleet::refused;
use crate::gitops::read::{Format, document, text_of};
use crate::gitops::schema::SchemaKind;
use crate::gitops::shape::shape_of;
use crate::gitops::tree::{Node, Tree};
use crate::model::catalog::Catalog;
use crate::model::catalog::TypeFacts;
use crate::model::near::nearest;
use crate::model::offering::CapacityType;
use crate::model::repository::Repository;

/// Where the lock stands.
pub const LOCK_FILE: &str = "provisor.lock";
/// The version of its form.
const VERSION: i64 = 1;
/// What stands behind the `@` of an image whose version the lock knows.
const LOCKED: &str = "@locked";
/// Starts the detail of an error about a missing entry, to tell it from others; the command follows.
pub(crate) const MISSING: &str = "provisor.lock has no ";

/// Something of the lock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Entry {
    /// The version of an image family, such as `al2023`.
    Image { family: Arc<str> },
    /// An instance type in a region.
    Type { region: Arc<str>, name: Arc<str> },
}

impl Entry {
    /// The command that adds it.
    pub fn command(&self) -> String {
        match self {
            Self::Image { family } => format!("provisor lock --image {family}=VERSION"),
            Self::Type { .. } => "provisor lock".to_owned(),
        }
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Image { family } => write!(out, "version of the image `{family}`"),
            Self::Type { region, name } => write!(out, "instance type `{name}` of {region}"),
        }
    }
}

/// What a lock says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Lock {
    pub images: BTreeMap<Arc<str>, Arc<str>>,
    /// By region and name.
    pub catalog: BTreeMap<Arc<str>, BTreeMap<Arc<str>, Json>>,
}

impl Lock {
    /// The lock of a commit; empty if it has none. Mistakes are pushed to `found`.
    pub(crate) fn read(repository: &Repository, found: &mut Vec<Diagnostic>) -> Self {
        let path: Arc<str> = LOCK_FILE.into();
        if let Some(refusal) = repository.refused.get(&path) {
            found.push(refused(&path, *refusal));
        }
        let Some(bytes) = repository.files.get(&path) else { return Self::default() };
        let Some(source) = text_of(&path, bytes, found) else { return Self::default() };
        let tree = document(&source, Format::Toml, found);
        credential::check(&source, tree.as_ref(), tree.is_some(), found);
        let Some(tree) = tree else { return Self::default() };
        let before = found.len();
        if let Some(version) = tree.get("version")
            && matches!(version.value, Tree::Int(number) if number > VERSION)
        {
            let message =
                format!("the lock has the version {}, and this build reads {VERSION}", version.shown());
            found.push(Diagnostic::error("PRV1208", version.place.clone(), message).help("update provisor"));
        } else {
            shape_of(SchemaKind::Lock).check(&tree, found);
        }
        if found[before..].iter().any(Diagnostic::is_error) {
            return Self::default();
        }
        let tables = |node: Option<&Node>| -> Vec<(Arc<str>, Node)> {
            let map = node.and_then(Node::as_map).into_iter().flat_map(|map| map.iter());
            map.map(|(name, entry)| (name.clone(), entry.node.clone())).collect()
        };
        let images = tables(tree.get("images")).into_iter();
        let regions = tables(tree.get("catalog")).into_iter();
        Self {
            images: images
                .filter_map(|(family, version)| Some((family, version.as_text()?.clone())))
                .collect(),
            catalog: regions
                .map(|(region, types)| {
                    let types = tables(Some(&types)).into_iter();
                    (region, types.map(|(name, facts)| (name, facts.to_json())).collect())
                })
                .collect(),
        }
    }

    /// The file, sorted, with a first line that says what it is.
    pub fn to_text(&self) -> String {
        let mut out = format!(
            "# What changes outside of Git, as it was when it was locked. `provisor lock` writes this file; commit it.\nversion = {VERSION}\n"
        );
        if !self.images.is_empty() {
            out.push_str("\n[images]\n");
            for (family, version) in &self.images {
                out.push_str(&format!("{} = {}\n", key(family), json!(version)));
            }
        }
        for (region, types) in &self.catalog {
            for (name, facts) in types {
                out.push_str(&format!("\n[catalog.{}.{}]\n", key(region), key(name)));
                for (field, value) in facts.as_object().into_iter().flatten() {
                    let value = match value {
                        Json::Array(items) => {
                            let items: Vec<String> = items.iter().map(Json::to_string).collect();
                            format!("[{}]", items.join(", "))
                        }
                        other => other.to_string(),
                    };
                    out.push_str(&format!("{} = {value}\n", key(field)));
                }
            }
        }
        out
    }
}

/// A key of TOML, quoted if it must be.
fn key(text: &str) -> String {
    let is_bare = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if !text.is_empty() && text.chars().all(is_bare) { text.to_owned() } else { json!(text).to_string() }
}

/// Facts of a type as the lock writes them.
fn facts_of(facts: &TypeFacts) -> Json {
    let mut out = Map::new();
    out.insert("arch".into(), json!(facts.arch.as_str()));
    out.insert("cpu".into(), json!(facts.vcpus));
    out.insert("memory-mib".into(), json!(facts.memory_mib));
    out.insert("gpus".into(), json!(facts.gpus.map_or(0, |gpus| gpus.count)));
    let zones: Vec<&str> = facts.zones.iter().map(|zone| zone.as_str()).collect();
    out.insert("zones".into(), json!(zones));
    for (kind, field) in
        [(CapacityType::OnDemand, "on-demand-usd-per-hour"), (CapacityType::Spot, "spot-usd-per-hour")]
    {
        if let Some(price) = facts.prices.get(&kind) {
            out.insert(field.into(), json!(price.to_string()));
        }
    }
    Json::Object(out)
}

/// The lock while something is rendered: what was asked for, and whether a gap is an error.
#[derive(Debug)]
pub struct Book {
    lock: Lock,
    /// What is wrong with the file itself; told to whoever needs it.
    mistakes: Vec<Diagnostic>,
    /// Gaps are filled from the built-in catalogue instead of refused, to learn all that is needed.
    is_collecting: bool,
    asked: Mutex<BTreeSet<Entry>>,
}

impl Book {
    pub(crate) fn read(repository: &Repository, is_collecting: bool) -> Arc<Self> {
        let mut mistakes = Vec::new();
        let lock = Lock::read(repository, &mut mistakes);
        Arc::new(Self { lock, mistakes, is_collecting, asked: Mutex::default() })
    }

    pub(crate) fn mistakes(&self) -> &[Diagnostic] {
        &self.mistakes
    }

    fn asks(&self, entry: Entry) {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(entry);
    }

    /// Everything that was asked for.
    fn asked(&self) -> BTreeSet<Entry> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What templates call `catalog(NAME)`.
    fn facts(&self, region: Option<&str>, name: &str) -> Result<Json, Error> {
        let refuse = |detail: String| Error::new(ErrorKind::InvalidOperation, detail);
        let Some(region) = region else {
            return Err(refuse(
                "the environment has no `region`, and what is sold at which price depends on it".into(),
            ));
        };
        let entry = Entry::Type { region: region.into(), name: name.into() };
        let locked = self.lock.catalog.get(region).and_then(|types| types.get(name)).cloned();
        if locked.is_some() || !self.is_collecting {
            self.asks(entry.clone());
            return locked.ok_or_else(|| refuse(format!("{MISSING}{entry}")));
        }
        let catalog = Catalog::builtin(region).map_err(|error| refuse(error.to_string()))?;
        let Some(facts) = catalog.find(name) else {
            let names = catalog.facts().iter().map(|facts| facts.name.as_str());
            let near =
                nearest(name, names).map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
            return Err(refuse(format!("{region} has no instance type `{name}`{near}")));
        };
        self.asks(entry);
        Ok(facts_of(facts))
    }

    /// The image with the version that the lock has for it, if it asks for that.
    fn version(&self, image: &str) -> Option<Result<String, Entry>> {
        let family: Arc<str> = image.strip_suffix(LOCKED)?.into();
        let entry = Entry::Image { family: family.clone() };
        self.asks(entry.clone());
        Some(match self.lock.images.get(&family) {
            Some(version) => Ok(format!("{family}@{version}")),
            // Any version does, as long as nobody applies it.
            None if self.is_collecting => Ok(format!("{family}@v20000101")),
            None => Err(entry),
        })
    }
}

/// The function `catalog` of templates in one region.
pub(crate) fn catalog_function(book: &Arc<Book>, region: Option<&str>) -> Value {
    let (book, region) = (book.clone(), region.map(str::to_owned));
    Value::from_function(move |name: String| {
        let facts = book.facts(region.as_deref(), &name)?;
        let fields = facts.as_object().into_iter().flatten();
        let fields: BTreeMap<String, Json> =
            fields.map(|(field, value)| (field.replace('-', "_"), value.clone())).collect();
        Ok(Value::from(minijinja::value::Serde(&fields)))
    })
}

/// Help for a template's error about a missing entry.
pub(crate) fn help_for(detail: &str) -> Option<String> {
    detail
        .starts_with(MISSING)
        .then(|| "run `provisor lock` in the repository and commit provisor.lock".to_owned())
}

/// A class with its locked images in place.
pub(crate) fn resolve_images(class: &Node, book: &Book, found: &mut Vec<Diagnostic>) -> Node {
    let mut class = class.clone();
    let Tree::Map(map) = &mut class.value else { return class };
    if let Some(entry) = map.0.get_mut("ami") {
        resolve_image(&mut entry.node, book, found);
    }
    class
}

fn resolve_image(node: &mut Node, book: &Book, found: &mut Vec<Diagnostic>) {
    match &mut node.value {
        Tree::List(items) => items.iter_mut().for_each(|item| resolve_image(item, book, found)),
        Tree::Map(map) => {
            if let Some(entry) = map.0.get_mut("alias") {
                resolve_image(&mut entry.node, book, found);
            }
        }
        Tree::Text(text, quoting) => {
            match book.version(text) {
                Some(Ok(version)) => node.value = Tree::Text(version.into(), *quoting),
                Some(Err(entry)) => {
                    found.extend(book.mistakes.iter().cloned());
                    found.push(
                    Diagnostic::error("PRV1414", node.place.clone(), format!("{MISSING}{entry}")).help(format!(
                        "run `{}` with the version you want, such as v20250920, and commit {LOCK_FILE}",
                        entry.command()
                    )),
                );
                }
                None => {}
            }
        }
        _ => {}
    }
}

/// What becomes of the lock.
#[derive(Clone, Debug, PartialEq)]
pub struct LockPlan {
    pub lock: Lock,
    pub changes: Vec<LockChange>,
    /// Entries that stay as they are.
    pub kept: usize,
}

/// One entry that comes, changes or goes.
#[derive(Clone, Debug, PartialEq)]
pub struct LockChange {
    pub entry: Entry,
    pub from: Option<Json>,
    pub to: Option<Json>,
}

/// Why a lock cannot be made.
#[derive(Clone, Debug, PartialEq)]
pub enum LockFailure {
    /// Files of the fleet are wrong.
    Files(Vec<Diagnostic>),
    /// Versions that nobody gave.
    Unknown(Vec<Entry>),
    /// A version was given for an image that nobody asks for; which ones are asked for.
    Unasked { family: Arc<str>, asked: Vec<Arc<str>> },
}

/// What is to be kept, and what is to be looked up again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// Only what is missing.
    Missing,
    /// Everything that the built-in catalogue knows.
    All,
}

/// The lock that a fleet needs: what it has, what is missing, `images` as given, and nothing that nobody asks for.
///
/// `render` renders the whole fleet with a book that collects, and returns the errors.
pub(crate) fn plan_lock(
    repository: &Repository,
    images: &BTreeMap<Arc<str>, Arc<str>>,
    renewal: Renewal,
    render: impl FnOnce(&Arc<Book>) -> Vec<Diagnostic>,
) -> Result<LockPlan, LockFailure> {
    let book = Book::read(repository, true);
    let mut errors = book.mistakes.clone();
    if errors.is_empty() {
        errors = render(&book);
    }
    if !errors.is_empty() {
        return Err(LockFailure::Files(errors));
    }
    let old = &book.lock;
    let mut lock = Lock::default();
    let mut unknown = Vec::new();
    let needed = book.asked();
    let asked = needed.iter().filter_map(|entry| match entry {
        Entry::Image { family } => Some(family.clone()),
        Entry::Type { .. } => None,
    });
    let asked: Vec<Arc<str>> = asked.collect();
    if let Some(family) = images.keys().find(|family| !asked.contains(family)) {
        return Err(LockFailure::Unasked { family: family.clone(), asked });
    }
    for entry in needed {
        match &entry {
            Entry::Image { family } => match images.get(family).or_else(|| old.images.get(family)) {
                Some(version) => drop(lock.images.insert(family.clone(), version.clone())),
                None => unknown.push(entry),
            },
            Entry::Type { region, name } => {
                let known = old.catalog.get(region).and_then(|types| types.get(name));
                let catalog = Catalog::builtin(region).ok();
                let fresh = || catalog.as_ref().and_then(|catalog| catalog.find(name)).map(facts_of);
                let facts = match renewal {
                    Renewal::Missing => known.cloned().or_else(fresh),
                    Renewal::All => fresh().or_else(|| known.cloned()),
                };
                match facts {
                    Some(facts) => {
                        lock.catalog.entry(region.clone()).or_default().insert(name.clone(), facts);
                    }
                    None => unknown.push(entry),
                }
            }
        }
    }
    if !unknown.is_empty() {
        return Err(LockFailure::Unknown(unknown));
    }
    let value = |lock: &Lock, entry: &Entry| match entry {
        Entry::Image { family } => lock.images.get(family).map(|version| json!(version)),
        Entry::Type { region, name } => lock.catalog.get(region).and_then(|types| types.get(name)).cloned(),
    };
    let mut all: BTreeSet<Entry> = entries(old);
    all.extend(entries(&lock));
    let mut changes = Vec::new();
    let mut kept = 0;
    for entry in all {
        let (from, to) = (value(old, &entry), value(&lock, &entry));
        match from == to {
            true => kept += 1,
            false => changes.push(LockChange { entry, from, to }),
        }
    }
    Ok(LockPlan { lock, changes, kept })
}

fn entries(lock: &Lock) -> BTreeSet<Entry> {
    let images = lock.images.keys().map(|family| Entry::Image { family: family.clone() });
    let types = lock.catalog.iter().flat_map(|(region, types)| {
        types.keys().map(|name| Entry::Type { region: region.clone(), name: name.clone() })
    });
    images.chain(types).collect()
}
