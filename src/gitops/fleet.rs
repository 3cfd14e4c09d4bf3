//! A repository as a fleet: its files parsed once, its environments as layers.
//!
//! A mistake stays where it is: an environment fails only if one of its own layers is wrong, so the others can be
//! rendered and synced while one is being repaired.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use crate::gitops::diagnostic::{Diagnostic, Diagnostics, Place, Source};
use crate::gitops::guardrail::Guardrails;
use crate::gitops::hidden::{Rest, without};
use crate::gitops::lock::{Book, LOCK_FILE};
use crate::gitops::migrate::modernise_tree;
use crate::gitops::normal;
use crate::gitops::overlay::{Layer, merge};
use crate::gitops::read::{Format, NESTING_MAX, document, text_of};
use crate::gitops::schema::SchemaKind;
use crate::gitops::shape::shape_of;
use crate::gitops::text_form::is_name;
use crate::gitops::tree::{Node, Tree};
use crate::model::near::nearest;
use crate::model::repository::{Refusal, Repository};

/// Files that extend each other, the environment included.
const EXTENDS_MAX: usize = 5;

pub(crate) const FLEET_FILE: &str = "fleet.toml";
pub(crate) const ENVIRONMENTS: &str = "environments/";
pub(crate) const TEMPLATES: &str = "templates/";

/// What is known of an environment before it is rendered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Environment {
    pub name: Arc<str>,
    pub file: Arc<str>,
    /// Only extended, never rendered.
    pub is_abstract: bool,
    pub extends: Option<Arc<str>>,
    pub description: Option<Arc<str>>,
}

/// One parsed file of `environments/`.
#[derive(Debug)]
struct File {
    path: Arc<str>,
    source: Arc<Source>,
    /// `None` when it could not be read.
    tree: Option<Node>,
    found: Vec<Diagnostic>,
}

/// All strategy files of one commit.
#[derive(Debug)]
pub(crate) struct Fleet<'r> {
    pub repository: &'r Repository,
    pub name: Arc<str>,
    fleet: File,
    files: BTreeMap<Arc<str>, File>,
    pub book: Arc<Book>,
    pub guardrails: Guardrails,
    /// What concerns no single environment.
    pub stray: Vec<Diagnostic>,
}

/// One environment with its layers merged.
#[derive(Debug)]
pub(crate) struct Resolved {
    pub name: Arc<str>,
    pub file: Arc<str>,
    pub layers: Vec<Layer>,
    pub tree: Node,
    /// Warnings of the layers.
    pub warnings: Vec<Diagnostic>,
}

impl<'r> Fleet<'r> {
    /// Reads `fleet.toml` and everything in `environments/`. Fails only if there is no fleet at all.
    pub fn load(repository: &'r Repository) -> Result<Self, Diagnostics> {
        let mut stray = Vec::new();
        let fleet = load_fleet_file(repository)?;
        let mut files: BTreeMap<Arc<str>, File> = BTreeMap::new();
        for (path, refusal) in &repository.refused {
            let is_folder =
                [ENVIRONMENTS, TEMPLATES].iter().any(|folder| **path == folder[..folder.len() - 1]);
            let is_read = is_folder || path.starts_with(ENVIRONMENTS) || path.starts_with(TEMPLATES);
            if *refusal == Refusal::Ignored {
                continue;
            }
            if is_read && environment_of(path).is_none() {
                stray.push(refused(path, *refusal));
            } else if is_read && let Some((name, _)) = environment_of(path) {
                let source = Source::nameless_text(path.clone());
                let found = vec![refused(path, *refusal)];
                files.insert(name.into(), File { path: path.clone(), source, tree: None, found });
            }
        }
        for (path, bytes) in &repository.files {
            if !path.starts_with(ENVIRONMENTS) {
                continue;
            }
            let Some((name, format)) = environment_of(path) else {
                stray.extend(stranger(path));
                continue;
            };
            let file = load_environment(path, name, format, bytes);
            match files.get_mut(name) {
                Some(first) => first.found.push(twice(name, first, &file)),
                None => {
                    files.insert(name.into(), file);
                }
            }
        }
        let name = fleet.tree.as_ref().and_then(|tree| tree.get("name")?.as_text().cloned());
        let name = name.unwrap_or_else(|| "fleet".into());
        for path in repository.files.keys() {
            let Some(file) = file_meant(path) else { continue };
            let place = Place::start_of(&Source::nameless_text(path.clone()));
            let message = format!("this file is ignored: it would have to be {file}");
            stray.push(
                Diagnostic::warning("PRV1105", place, message)
                    .help(format!("move what it says to {file}, and remove it")),
            );
        }
        if files.is_empty() {
            stray.push(
                Diagnostic::error("PRV1102", Place::start_of(&fleet.source), "the fleet has no environments")
                    .help("add a file such as `environments/dev.toml`, or run `provisor init`"),
            );
        }
        let mut found = Vec::new();
        for file in std::iter::once(&fleet).chain(files.values()) {
            found.push(finals(file, &files));
        }
        let mut found = found.into_iter();
        let mut fleet = fleet;
        fleet.found.extend(found.next().unwrap_or_default());
        files.values_mut().zip(found).for_each(|(file, found)| file.found.extend(found));
        let (book, guardrails) = (Book::read(repository, false), Guardrails::read(repository));
        Ok(Self { repository, name, fleet, files, book, guardrails, stray })
    }

    /// Mistakes of `fleet.toml`; with any, no environment can be rendered.
    pub fn fleet_found(&self) -> &[Diagnostic] {
        &self.fleet.found
    }

    /// Mistakes of each environment file by itself.
    pub fn files_found(&self) -> impl Iterator<Item = &Diagnostic> {
        self.files.values().flat_map(|file| &file.found)
    }

    pub fn files_count(&self) -> usize {
        self.files.len()
    }

    pub fn environments(&self) -> impl Iterator<Item = Environment> + '_ {
        self.files.iter().map(|(name, file)| {
            let text = |key: &str| file.tree.as_ref()?.get(key)?.as_text().cloned();
            Environment {
                name: name.clone(),
                file: file.path.clone(),
                is_abstract: is_abstract(file),
                extends: text("extends"),
                description: text("description"),
            }
        })
    }

    /// The file of an environment by itself, its path and what it says.
    pub fn own(&self, name: &str) -> Option<(&Arc<str>, Option<&Node>)> {
        self.files.get(name).map(|file| (&file.path, file.tree.as_ref()))
    }

    /// The layers of an environment, merged; or everything that is wrong with them.
    pub fn resolve(&self, name: &str) -> Result<Resolved, Diagnostics> {
        let mut found = self.fleet.found.clone();
        let Some(file) = self.files.get(name) else {
            found.push(self.unknown(name, Place::start_of(&self.fleet.source)));
            return Err(sorted(found));
        };
        let chain = match self.chain(file) {
            Ok(chain) => chain,
            Err(diagnostic) => {
                found.extend(file.found.iter().cloned());
                // What cannot be a name is told already.
                if !found.iter().any(|one| one.is_error() && one.place == diagnostic.place) {
                    found.push(*diagnostic);
                }
                return Err(sorted(found));
            }
        };
        for file in &chain {
            found.extend(file.found.iter().cloned());
        }
        let files = || std::iter::once(&self.fleet).chain(chain.iter().copied());
        if files().any(|file| file.tree.is_none()) {
            return Err(sorted(found));
        }
        let layers: Vec<Layer> = files().filter_map(layer).collect();
        let tree = merge(&layers, &mut found);
        match tree {
            Some(tree) if !found.iter().any(Diagnostic::is_error) => {
                Ok(Resolved { name: name.into(), file: file.path.clone(), layers, tree, warnings: found })
            }
            _ => Err(sorted(found)),
        }
    }

    /// The layers of an environment without what is wrong in them by itself; `None` if its own cannot be read.
    pub fn resolve_rest(&self, name: &str) -> Option<Rest> {
        // Under a name that cannot be, every object would be wrong.
        let file = self.files.get(name).filter(|file| is_name(name) && file.tree.is_some())?;
        let chain = self.chain(file);
        let is_chain = chain.is_ok();
        let right = |file: &File| {
            let wrong = file.found.iter().filter(|found| found.is_error()).map(|found| found.place.clone());
            let tree = without(file.tree.as_ref()?, &wrong.collect::<Vec<_>>());
            Some(File {
                path: file.path.clone(),
                source: file.source.clone(),
                tree: Some(tree),
                found: Vec::new(),
            })
        };
        let files: Vec<&File> =
            std::iter::once(&self.fleet).chain(chain.unwrap_or_else(|_| vec![file])).collect();
        let layers: Vec<Layer> = files.iter().filter_map(|file| layer(&right(file)?)).collect();
        let is_whole = is_chain && layers.len() == files.len();
        let tree = merge(&layers, &mut Vec::new())?;
        let (name, file) = (name.into(), file.path.clone());
        Some(Rest { resolved: Resolved { name, file, layers, tree, warnings: Vec::new() }, is_whole })
    }

    /// The file and what it extends, lowest first.
    fn chain<'f>(&'f self, file: &'f File) -> Result<Vec<&'f File>, Box<Diagnostic>> {
        let mut chain = vec![file];
        let mut at = file;
        while let Some(link) = at.tree.as_ref().and_then(|tree| tree.get("extends")) {
            let Some(parent) = link.as_text() else { break };
            let Some(next) = self.files.get(parent) else {
                return Err(Box::new(self.missing_parent(parent, link, &chain)));
            };
            let path = || {
                let names = chain.iter().map(|file| &*file.path).chain([&*next.path]);
                names.collect::<Vec<_>>().join(" → ")
            };
            if chain.iter().any(|known| known.path == next.path) {
                let message = format!("`extends` goes in a circle: {}", path());
                let help = "remove one `extends` of the circle";
                let at = chain[0].tree.as_ref().and_then(|tree| tree.get("extends")).unwrap_or(link);
                let mut diagnostic = Diagnostic::error("PRV1302", at.place.clone(), message).help(help);
                if at.place != link.place {
                    diagnostic = diagnostic.also("the circle closes here", link.place.clone());
                }
                return Err(Box::new(diagnostic));
            }
            if chain.len() == EXTENDS_MAX {
                let message = format!("`extends` is more than {EXTENDS_MAX} files deep: {}", path());
                let place = link.place.clone();
                return Err(Box::new(
                    Diagnostic::error("PRV1303", place, message).help("merge two of the bases into one"),
                ));
            }
            chain.push(next);
            at = next;
        }
        chain.reverse();
        Ok(chain)
    }

    fn missing_parent(&self, parent: &str, link: &Node, chain: &[&File]) -> Diagnostic {
        let files = ["toml", "yaml", "yml"].map(|ending| format!("{ENVIRONMENTS}{parent}.{ending}"));
        if let Some((at, refusal)) = files.iter().find_map(|file| self.repository.refusal_of(file)) {
            return refused(&at.into(), refusal).also("extended here", link.place.clone());
        }
        let message =
            format!("`extends` names `{parent}`, and there is no environments/{parent}.toml or .yaml");
        let mut diagnostic = Diagnostic::error("PRV1301", link.place.clone(), message);
        let names = self.files.keys().map(|name| &**name);
        if let Some(near) = nearest(parent, names) {
            diagnostic = diagnostic.help(format!("did you mean `{near}`?"));
        } else {
            diagnostic = diagnostic.help("add the file, or remove `extends`");
        }
        for file in chain[..chain.len() - 1].iter().rev() {
            if let Some(link) = file.tree.as_ref().and_then(|tree| tree.get("extends")) {
                diagnostic = diagnostic.also("extended from here", link.place.clone());
            }
        }
        diagnostic
    }

    fn unknown(&self, name: &str, place: Place) -> Diagnostic {
        let message = format!("PathNotFound: there is no environment `{name}` {}", self.repository.place());
        let concrete = self.files.iter().filter(|(_, file)| !is_abstract(file));
        let names: Vec<&str> = concrete.map(|(name, _)| &**name).collect();
        let help = match nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if names.is_empty() => format!("add environments/{name}.toml"),
            None => format!("the environments are {}", crate::gitops::diagnostic::listed(names)),
        };
        Diagnostic::error("PRV1103", place, message).help(help)
    }
}

/// Marks of a file that protect nothing: no path of the language, or of something that no file has.
fn finals(file: &File, files: &BTreeMap<Arc<str>, File>) -> Vec<Diagnostic> {
    let list = file.tree.as_ref().and_then(|tree| tree.get("final")?.as_list()).unwrap_or_default();
    let mut found = Vec::new();
    for (path, node) in list.iter().filter_map(|node| Some((node.as_text()?, node))) {
        let steps: Vec<String> = path.split('.').map(str::to_owned).collect();
        if steps.len() > NESTING_MAX {
            let message = format!("a path of {} parts leads to no field, so nothing is final", steps.len());
            let help = "write it like `pools.general.budgets` or `pools.*.limits.cpu`";
            found.push(Diagnostic::error("PRV1308", node.place.clone(), message).help(help));
            continue;
        }
        if let Err((at, fields)) = shape_of(SchemaKind::Environment).leads(&steps) {
            let message =
                format!("\"{}\" is not the path of a field, so nothing is final", path.escape_debug());
            let help = match nearest(&steps[at], fields) {
                Some(near) => {
                    let meant = [&steps[..at], &[near.to_owned()], &steps[at + 1..]].concat().join(".");
                    format!("did you mean `{meant}`?")
                }
                None => "write it like `pools.general.budgets` or `pools.*.limits.cpu`".to_owned(),
            };
            found.push(Diagnostic::error("PRV1308", node.place.clone(), message).help(help));
            continue;
        }
        let [kind, name, ..] = steps.as_slice() else { continue };
        if !matches!(kind.as_str(), "pools" | "classes" | "overlays" | "buffers") || name == "*" {
            continue;
        }
        let trees = || files.values().filter_map(|file| file.tree.as_ref()?.get(kind)?.as_map());
        if !trees().any(|map| map.get(name).is_some()) {
            let names: Vec<&str> = trees().flat_map(|map| map.iter()).map(|(name, _)| &**name).collect();
            let help = match nearest(name, names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => "correct the name, or write `*` for all".to_owned(),
            };
            let message = format!("no environment has `{kind}.{name}`, so nothing is final");
            found.push(Diagnostic::warning("PRV1308", node.place.clone(), message).help(help));
        }
    }
    found
}

fn sorted(found: Vec<Diagnostic>) -> Diagnostics {
    let mut all = Diagnostics::default();
    all.extend(found);
    all.sorted()
}

fn is_abstract(file: &File) -> bool {
    let mark = file.tree.as_ref().and_then(|tree| tree.get("abstract"));
    mark.is_some_and(|mark| mark.value == Tree::Bool(true))
}

/// Name and format of a file directly inside `environments/`.
pub(crate) fn environment_of(path: &str) -> Option<(&str, Format)> {
    let file = path.strip_prefix(ENVIRONMENTS)?;
    let format = Format::of(file)?;
    let name = &file[..file.rfind('.')?];
    (!name.contains('/') && !name.starts_with('.') && !name.is_empty()).then_some((name, format))
}

fn stranger(path: &Arc<str>) -> Option<Diagnostic> {
    let file = path.rsplit('/').next().unwrap_or(path);
    if file.starts_with('.') || file.eq_ignore_ascii_case("readme.md") {
        return None;
    }
    let place = Place::start_of(&Source::nameless_text(path.clone()));
    Some(
        Diagnostic::warning("PRV1105", place, "this file is not an environment and is ignored")
            .help("environments are environments/NAME.toml, .yaml or .yml"),
    )
}

fn twice(name: &str, first: &File, second: &File) -> Diagnostic {
    let message = format!("the environment `{name}` has two files");
    Diagnostic::error("PRV1104", Place::start_of(&second.source), message)
        .also("the other file", Place::start_of(&first.source))
        .help("keep one of the two")
}

fn load_fleet_file(repository: &Repository) -> Result<File, Diagnostics> {
    let path: Arc<str> = FLEET_FILE.into();
    if let Some(refusal) = repository.refused.get(&path) {
        return Err(refused(&path, *refusal).into());
    }
    let Some(bytes) = repository.files.get(&path) else {
        return Err(no_fleet(repository, &path).into());
    };
    let mut file = load(&path, Format::Toml, bytes, SchemaKind::Fleet);
    if let Some(pool) = file.tree.as_mut().and_then(|tree| child(child(tree, "defaults")?, "pool")) {
        normal::pool(pool);
    }
    Ok(file)
}

fn no_fleet(repository: &Repository, path: &Arc<str>) -> Diagnostic {
    let place = Place::start_of(&Source::nameless_text(path.clone()));
    if repository.files.is_empty() && repository.refused.is_empty() {
        return Diagnostic::error("PRV1101", place, "the repository is empty: there is no fleet.toml")
            .help("run `provisor init` in it, commit and push");
    }
    if let Some(other) = repository.files.keys().find(|path| file_meant(path) == Some(FLEET_FILE)) {
        let place = Place::start_of(&Source::nameless_text(other.clone()));
        let message = format!("there is no fleet.toml; `{other}` is there, and nothing reads it");
        let help = "write it as TOML, with `name = \"…\"` at its head, and call it fleet.toml";
        return Diagnostic::error("PRV1101", place, message).help(help);
    }
    let elsewhere = repository.files.keys().find(|file| file.ends_with("/fleet.toml"));
    let diagnostic = Diagnostic::error("PRV1101", place, "there is no fleet.toml");
    match elsewhere {
        Some(file) => {
            let folder = file.trim_end_matches("/fleet.toml");
            diagnostic.help(format!("there is one in `{folder}`: point the source's path there"))
        }
        None => diagnostic.help("add one with `name = \"…\"`, or run `provisor init`"),
    }
}

/// Which file of a fleet is under a name that it does not have.
fn file_meant(path: &str) -> Option<&'static str> {
    let lower = path.to_ascii_lowercase();
    let is_meant = |file: &&str| match file.strip_suffix(".toml") {
        Some(stem) => lower
            .rsplit_once('.')
            .is_some_and(|(name, ending)| name == stem && ["toml", "yaml", "yml", "json"].contains(&ending)),
        None => lower == **file,
    };
    [FLEET_FILE, "simulation.toml", LOCK_FILE].into_iter().find(is_meant).filter(|file| path != *file)
}

fn load_environment(path: &Arc<str>, name: &str, format: Format, bytes: &[u8]) -> File {
    let mut file = load(path, format, bytes, SchemaKind::Environment);
    if !is_name(name) {
        let message = format!("`{name}` cannot be the name of an environment");
        file.found.push(
            Diagnostic::error("PRV1106", Place::start_of(&file.source), message)
                .help("name the file with lower-case letters, digits and hyphens"),
        );
    }
    if let Some(tree) = &mut file.tree {
        normal::environment(tree);
    }
    file
}

fn load(path: &Arc<str>, format: Format, bytes: &[u8], kind: SchemaKind) -> File {
    let mut found = Vec::new();
    let source = text_of(path, bytes, &mut found);
    let mut tree = source.as_ref().and_then(|source| document(source, format, &mut found));
    if let Some(source) = &source {
        let is_whole = tree.is_some() && !found.iter().any(Diagnostic::is_error);
        crate::gitops::credential::check(source, tree.as_ref(), is_whole, &mut found);
    }
    if let Some(tree) = &mut tree {
        modernise_tree(tree, kind, &mut found);
        shape_of(kind).check(tree, &mut found);
    }
    let source = source.unwrap_or_else(|| Source::nameless_text(path.clone()));
    // A tree with mistakes of form is kept only for its names; nothing is rendered from it.
    File { path: path.clone(), source, tree, found }
}

/// Why a path of the commit was not read.
pub(crate) fn refused(path: &Arc<str>, refusal: Refusal) -> Diagnostic {
    let place = Place::start_of(&Source::nameless_text(path.clone()));
    let code = match refusal {
        Refusal::TooLarge { .. } => "PRV1003",
        Refusal::Symlink | Refusal::Link(_) => "PRV1004",
        Refusal::Submodule => "PRV1005",
        Refusal::LfsPointer => "PRV1006",
        Refusal::UnsafePath | Refusal::Ignored | Refusal::NotAFile => "PRV1007",
    };
    Diagnostic::error(code, place, format!("the path {refusal}")).help(refusal.help())
}

fn child<'n>(node: &'n mut Node, key: &str) -> Option<&'n mut Node> {
    match &mut node.value {
        Tree::Map(map) => map.0.get_mut(key).map(|entry| &mut entry.node),
        _ => None,
    }
}

/// A file as a layer in the shape of an environment.
fn layer(file: &File) -> Option<Layer> {
    let tree = file.tree.as_ref()?;
    let mut out = Node::map(tree.place.clone());
    let is_fleet = &*file.path == FLEET_FILE;
    let from = if is_fleet { tree.get("defaults") } else { Some(tree) };
    let mut defaults = Node::map(tree.place.clone());
    for (key, entry) in from.and_then(Node::as_map).into_iter().flat_map(|map| map.iter()) {
        match &**key {
            "pool" | "class" if is_fleet => defaults.set(key, entry.key.clone(), entry.node.clone()),
            "engine" | "cloud" | "region" | "cluster" | "variables" | "defaults" | "pools" | "classes"
            | "overlays" | "buffers" => out.set(key, entry.key.clone(), entry.node.clone()),
            _ => {}
        }
    }
    if is_fleet && defaults.as_map().is_some_and(|map| !map.is_empty()) {
        out.set("defaults", defaults.place.clone(), defaults);
    }
    let finals = tree.get("final").and_then(Node::as_list).unwrap_or_default();
    let finals = finals.iter().filter_map(|path| {
        let text = path.as_text()?;
        Some((text.split('.').map(str::to_owned).collect(), path.place.clone()))
    });
    Some(Layer { tree: out, finals: finals.collect() })
}
