//! An environment into the objects that should exist.
//!
//! Pools and classes go through their templates, then `overrides` are merged on, then everything is checked together.
//! Each step goes on after a mistake, so that one run tells all of them; but with a single error nothing comes out.

mod class;
mod sealed;

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value, json};

use self::sealed::Subject;
use crate::gitops::beside;
use crate::gitops::check::{self, Instances};
use crate::gitops::context::{self, MapOrder, OWN_CLASS, Surroundings};
use crate::gitops::credential;
use crate::gitops::desired::{DesiredObject, DesiredState, ObjectRef};
use crate::gitops::diagnostic::{Diagnostic, Diagnostics, Place, Source, listed};
use crate::gitops::engine::{Engine, Failure};
use crate::gitops::fleet::{Environment, Fleet, Resolved, TEMPLATES, refused};
use crate::gitops::guardrail::{Breach, Case, Guardrails};
use crate::gitops::headroom;
use crate::gitops::hidden::{Rest, with_hidden};
use crate::gitops::inheritance::with_own;
use crate::gitops::lock::{Book, LockFailure, LockPlan, Renewal, plan_lock};
use crate::gitops::overrides;
use crate::gitops::promotion;
use crate::gitops::rendered::{
    self, Draft, Origins, Roots, as_origins, note_keys, note_places, trace_requirements,
};
use crate::gitops::roll;
use crate::gitops::terms;
use crate::gitops::text_form::is_name;
use crate::gitops::tree::{Node, Tree};
use crate::model::near::nearest;
use crate::model::provisioner::Provisioner;
use crate::model::repository::{Refusal, Repository};

/// Objects of one environment.
pub(crate) const OBJECTS_MAX: usize = 500;
/// What makes the node classes.
const CLASS_TEMPLATE: &str = "ec2nodeclass.yaml.j2";
/// Bytes that the templates of one environment may render together.
const RENDERED_MAX: usize = 8 * 1024 * 1024;

/// What rendering needs to know besides the commit.
#[derive(Clone, Debug, Default)]
pub struct RenderSettings {
    /// The instance types that exist, to find misspelt and impossible ones. Without it the built-in catalogue of the
    /// environment's `region` counts, and without a region they are taken on trust.
    pub instances: Option<Arc<Instances>>,
    /// In which order templates see tables; only [`check_determinism`] changes it.
    pub order: MapOrder,
    /// The lock to use instead of the commit's own; only [`lock_of`] sets it.
    pub book: Option<Arc<Book>>,
    /// The guardrails of the commit that is in force: they judge beside the commit's own.
    pub standing: Option<Arc<Guardrails>>,
    pub judging: Judging,
    /// The present, for waivers of guardrails: without it none of them holds.
    pub now: Option<Timestamp>,
}

impl RenderSettings {
    /// As usual, at a moment.
    pub fn at(now: Timestamp) -> Self {
        Self { now: Some(now), ..Self::default() }
    }
}

/// What comes of a guardrail that denies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Judging {
    /// Nothing is rendered.
    #[default]
    Enforced,
    /// All is rendered, and [`render_and_judge`] hands over what the rules say.
    Told,
}

/// An environment, and what its guardrails say of it.
#[derive(Clone, Debug)]
pub struct Judged {
    pub state: DesiredState,
    pub warnings: Vec<Diagnostic>,
    pub breaches: Vec<Breach>,
    /// What the rules saw as `env`.
    pub subject: Value,
    /// Where what concerns all of it is shown.
    pub place: Place,
}

/// The objects of an environment and what is worth a look.
pub type Rendered = (DesiredState, Vec<Diagnostic>);

/// All environments of a repository, the abstract ones included, by name.
pub fn list_environments(repository: &Repository) -> Result<Vec<Environment>, Diagnostics> {
    let fleet = Fleet::load(repository)?;
    if fleet.fleet_found().iter().any(Diagnostic::is_error) {
        return Err(collected(fleet.fleet_found().to_vec()));
    }
    Ok(fleet.environments().collect())
}

/// Renders one environment. The warnings are those of its files.
pub fn render_environment(
    repository: &Repository,
    environment: &str,
    settings: &RenderSettings,
) -> Result<Rendered, Diagnostics> {
    let fleet = Fleet::load(repository)?;
    let engine = Engine::new(repository);
    render(&fleet, &engine, environment, settings)
}

/// The same for what is to be applied: of an environment that is only extended nothing ever is.
pub fn render_concrete(
    repository: &Repository,
    environment: &str,
    settings: &RenderSettings,
) -> Result<Rendered, Diagnostics> {
    let fleet = Fleet::load(repository)?;
    let mark = fleet.own(environment).and_then(|(_, tree)| tree?.get("abstract"));
    if let Some(mark) = mark.filter(|mark| mark.value == Tree::Bool(true)) {
        let message =
            format!("`{environment}` is abstract: it is only extended, and nothing of it is applied");
        return Err(Diagnostic::error("PRV1306", mark.place.clone(), message)
            .help("follow an environment that extends it, or remove `abstract = true`")
            .into());
    }
    render(&fleet, &Engine::new(repository), environment, settings)
}

/// Renders one environment and says what its guardrails find, which refuse nothing here.
pub fn render_and_judge(
    repository: &Repository,
    environment: &str,
    settings: &RenderSettings,
) -> Result<Judged, Diagnostics> {
    let settings = RenderSettings { judging: Judging::Told, ..settings.clone() };
    judged(&Fleet::load(repository)?, &Engine::new(repository), environment, &settings)
}

/// Renders every environment that is not abstract; one that fails does not keep the others back.
pub fn render_all(
    repository: &Repository,
    settings: &RenderSettings,
) -> Result<BTreeMap<Arc<str>, Result<Rendered, Diagnostics>>, Diagnostics> {
    let fleet = Fleet::load(repository)?;
    let engine = Engine::new(repository);
    let concrete = fleet.environments().filter(|environment| !environment.is_abstract);
    Ok(concrete.map(|one| (one.name.clone(), render(&fleet, &engine, &one.name, settings))).collect())
}

/// Renders an environment a second time with all tables turned round. Output that differs depends on the order in which
/// something happened to be written; the error names the first such value.
pub fn check_determinism(
    repository: &Repository,
    environment: &str,
    settings: &RenderSettings,
) -> Result<Rendered, Diagnostics> {
    let first = render_environment(repository, environment, settings)?;
    let turned = RenderSettings { order: MapOrder::Reversed, ..settings.clone() };
    let (second, _) = render_environment(repository, environment, &turned)?;
    for (name, object) in &first.0.objects {
        let other = second.objects.get(name).map_or(&Value::Null, |other| &other.manifest);
        let Some(path) = first_difference(&object.manifest, other, "") else { continue };
        let origin = object.origin(&path).map_or_else(|| name.to_string(), ToString::to_string);
        let place = Place::start_of(&Source::nameless_text(format!("environments/{environment}")));
        let message = format!("{name} {path} depends on the order of a table's keys");
        let help = format!("sort what the template loops over (`| dictsort`); the value comes from {origin}");
        return Err(Diagnostic::error("PRV1413", place, message).help(help).into());
    }
    Ok(first)
}

fn first_difference(a: &Value, b: &Value, path: &str) -> Option<String> {
    match (a, b) {
        (Value::Object(left), Value::Object(right)) => {
            let keys: std::collections::BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            keys.into_iter().find_map(|key| first_difference(&a[key], &b[key], &rendered::joined(path, key)))
        }
        (Value::Array(left), Value::Array(right)) if left.len() == right.len() => {
            let pairs = left.iter().zip(right).enumerate();
            pairs.into_iter().find_map(|(at, (a, b))| first_difference(a, b, &format!("{path}[{at}]")))
        }
        _ => (a != b).then(|| path.to_owned()),
    }
}

/// The lock that a fleet needs: see [`plan_lock`].
pub fn lock_of(
    repository: &Repository,
    images: &BTreeMap<Arc<str>, Arc<str>>,
    renewal: Renewal,
) -> Result<LockPlan, LockFailure> {
    plan_lock(repository, images, renewal, |book| {
        let settings = RenderSettings { book: Some(book.clone()), ..RenderSettings::default() };
        match render_all(repository, &settings) {
            Ok(all) => {
                let failed = all.into_values().filter_map(Result::err);
                collected(failed.flatten().filter(Diagnostic::is_error).collect()).into_iter().collect()
            }
            Err(found) => found.into_iter().collect(),
        }
    })
}

/// What a commit does to one environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    Unchanged,
    Changed,
    Added,
    Removed,
    /// One of the two commits does not render.
    Broken,
}

/// Which environments a change reaches, each named, the unchanged ones too.
pub fn reach(
    before: &Repository,
    after: &Repository,
    settings: &RenderSettings,
) -> Result<BTreeMap<Arc<str>, Reach>, Diagnostics> {
    let old = render_all(before, settings)?;
    let new = render_all(after, settings)?;
    let names: std::collections::BTreeSet<Arc<str>> = old.keys().chain(new.keys()).cloned().collect();
    let of = |name: Arc<str>| {
        let reach = match (old.get(&name), new.get(&name)) {
            (None, _) => Reach::Added,
            (_, None) => Reach::Removed,
            (Some(Ok((old, _))), Some(Ok((new, _)))) if old.digest == new.digest => Reach::Unchanged,
            (Some(Ok(_)), Some(Ok(_))) => Reach::Changed,
            _ => Reach::Broken,
        };
        (name, reach)
    };
    Ok(names.into_iter().map(of).collect())
}

/// What `provisor validate` says about a whole repository.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// Everything found, errors and warnings, sorted by file and position.
    pub diagnostics: Diagnostics,
    pub environments: Vec<EnvironmentReport>,
    /// Files that were read.
    pub files: usize,
}

/// How one environment fares.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct EnvironmentReport {
    pub name: Arc<str>,
    pub file: Arc<str>,
    pub is_abstract: bool,
    /// The digest of its objects; absent if it is abstract or has errors.
    pub digest: Option<Arc<str>>,
    pub objects: usize,
    pub pools: usize,
}

impl Report {
    pub fn is_valid(&self) -> bool {
        !self.diagnostics.has_errors()
    }
}

/// Judges every file of a repository: those of all environments, abstract ones and unused templates included.
pub fn validate_repository(repository: &Repository, settings: &RenderSettings) -> Report {
    let mut diagnostics = Diagnostics::default();
    let fleet = match Fleet::load(repository) {
        Ok(fleet) => fleet,
        Err(found) => return Report { diagnostics: found, environments: Vec::new(), files: 0 },
    };
    let engine = Engine::new(repository);
    let mut promotion_found = Vec::new();
    diagnostics.extend(fleet.fleet_found().iter().cloned());
    diagnostics.extend(fleet.files_found().cloned());
    diagnostics.extend(fleet.guardrails.mistakes().iter().cloned());
    diagnostics.extend(fleet.book.mistakes().iter().cloned());
    promotion::rules::read(&fleet, &mut promotion_found);
    diagnostics.extend(promotion_found);
    diagnostics.extend(engine.found.iter().cloned());
    let mut environments = Vec::new();
    for environment in fleet.environments() {
        let mut report = EnvironmentReport {
            name: environment.name.clone(),
            file: environment.file.clone(),
            is_abstract: environment.is_abstract,
            digest: None,
            objects: 0,
            pools: 0,
        };
        if environment.is_abstract {
            match fleet.resolve(&environment.name) {
                Ok(resolved) => diagnostics.extend(resolved.warnings),
                Err(found) => diagnostics.extend(found),
            }
        } else {
            match render(&fleet, &engine, &environment.name, settings) {
                Ok((state, warnings)) => {
                    report.digest = Some(state.digest.clone());
                    report.objects = state.objects.len();
                    report.pools = state.objects.keys().filter(|object| &*object.kind == "NodePool").count();
                    diagnostics.extend(warnings);
                }
                Err(found) => diagnostics.extend(found),
            }
        }
        environments.push(report);
    }
    // A path that an environment needed was told with the place that needs it.
    let is_told = |one: &Diagnostic| {
        let is_same = |other: &Diagnostic| other.code == one.code && other.message == one.message;
        diagnostics.iter().any(|other| is_same(other) && other.place.file() == one.place.file())
    };
    let stray: Vec<Diagnostic> = fleet.stray.iter().filter(|one| !is_told(one)).cloned().collect();
    diagnostics.extend(stray);
    if !environments.is_empty() && environments.iter().all(|one| one.is_abstract) {
        let place = Place::start_of(&Source::nameless_text(environments[0].file.clone()));
        diagnostics.push(
            Diagnostic::warning("PRV1306", place, "every environment is abstract, so nothing is rendered")
                .help("add an environment that extends this one, or remove `abstract = true`"),
        );
    }
    let templates = repository.files.keys().filter(|path| path.starts_with("templates/")).count();
    Report { diagnostics: diagnostics.sorted(), environments, files: 1 + fleet.files_count() + templates }
}

pub(crate) fn render(
    fleet: &Fleet<'_>,
    engine: &Engine,
    environment: &str,
    settings: &RenderSettings,
) -> Result<Rendered, Diagnostics> {
    let Judged { state, warnings, .. } = judged(fleet, engine, environment, settings)?;
    Ok((state, warnings))
}

fn judged(
    fleet: &Fleet<'_>,
    engine: &Engine,
    environment: &str,
    settings: &RenderSettings,
) -> Result<Judged, Diagnostics> {
    match fleet.resolve(environment) {
        Ok(resolved) => judged_as(fleet, engine, &resolved, settings),
        Err(found) => {
            let Some(Rest { resolved, is_whole }) = fleet.resolve_rest(environment) else {
                return Err(found);
            };
            let beside = judged_as(fleet, engine, &resolved, settings).err();
            Err(with_hidden(found, beside.unwrap_or_default(), is_whole))
        }
    }
}

fn judged_as(
    fleet: &Fleet<'_>,
    engine: &Engine,
    resolved: &Resolved,
    settings: &RenderSettings,
) -> Result<Judged, Diagnostics> {
    engine.refuel();
    let mut run = Run::new(fleet, engine, resolved, settings);
    run.pools();
    run.classes();
    run.plain("overlays", "karpenter.sh/v1alpha1", "NodeOverlay");
    run.plain("buffers", "autoscaling.x-k8s.io/v1beta1", "CapacityBuffer");
    run.finish()
}

/// The NodePool of a pool as its template makes it, before `overrides`.
pub(crate) fn before_overrides(
    fleet: &Fleet<'_>,
    engine: &Engine,
    resolved: &Resolved,
    settings: &RenderSettings,
    pool: &str,
) -> Option<DesiredObject> {
    engine.refuel();
    let mut run = Run::new(fleet, engine, resolved, settings);
    let (name, entry) = run.entries("pools").find(|(name, _)| ***name == *pool)?;
    let mut drafts = run.pool(name, &entry.node, &entry.key)?.into_iter();
    let is_it =
        |draft: &Draft| draft.manifest["kind"] == "NodePool" && draft.manifest["metadata"]["name"] == pool;
    let draft = drafts.find(is_it)?;
    let origins = as_origins(&draft.origins);
    Some(DesiredObject::new(draft.manifest, origins))
}

fn collected(found: Vec<Diagnostic>) -> Diagnostics {
    let mut all = Diagnostics::default();
    all.extend(found);
    all.sorted()
}

/// One environment being rendered.
struct Run<'a> {
    fleet: &'a Fleet<'a>,
    engine: &'a Engine,
    resolved: &'a Resolved,
    settings: &'a RenderSettings,
    surroundings: Surroundings,
    found: Vec<Diagnostic>,
    drafts: Vec<Draft>,
    bytes: usize,
    /// What others that fail have left too few instructions for, with its entry.
    unfinished: Vec<(String, Place)>,
    /// Presets that the pools of a class want.
    presets: BTreeMap<String, Vec<(&'static str, Place)>>,
}

impl<'a> Run<'a> {
    fn new(
        fleet: &'a Fleet<'a>,
        engine: &'a Engine,
        resolved: &'a Resolved,
        settings: &'a RenderSettings,
    ) -> Self {
        let tree = &resolved.tree;
        let text = |key: &str| tree.get(key).and_then(Node::as_text).map(|text| text.to_string());
        let names = |key: &str| tree.get(key).and_then(Node::as_map).into_iter().flat_map(|map| map.iter());
        let mut pools: Vec<String> = names("pools").map(|(name, _)| name.to_string()).collect();
        pools.sort();
        let surroundings = Surroundings {
            order: settings.order,
            fleet: fleet.name.to_string(),
            environment: resolved.name.to_string(),
            engine: text("engine").unwrap_or_else(|| "provisor".to_owned()),
            cluster: text("cluster").unwrap_or_else(|| format!("{}-{}", fleet.name, resolved.name)),
            region: text("region"),
            variables: tree.get("variables").cloned().unwrap_or_else(|| Node::map(tree.place.clone())),
            pools,
            book: settings.book.clone().unwrap_or_else(|| fleet.book.clone()),
        };
        let found = resolved.warnings.clone();
        Self {
            fleet,
            engine,
            resolved,
            settings,
            surroundings,
            found,
            drafts: Vec::new(),
            bytes: 0,
            unfinished: Vec::new(),
            presets: BTreeMap::new(),
        }
    }

    fn entries(
        &self,
        key: &str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a crate::gitops::tree::Entry)> + use<'a> {
        let map = self.resolved.tree.get(key).and_then(Node::as_map);
        map.into_iter().flat_map(|map| map.iter())
    }

    fn variables(&self, node: &Node) -> Node {
        match node.get("variables") {
            Some(own) => with_own(&self.surroundings.variables, own),
            None => self.surroundings.variables.clone(),
        }
    }

    fn pools(&mut self) {
        for (name, entry) in self.entries("pools") {
            let pool = &entry.node;
            let Some(mut drafts) = self.pool(name, pool, &entry.key) else { continue };
            let subject = Subject { table: "pools", name, node: pool, key: &entry.key };
            self.check_sealed(&subject, &drafts, |run, node| run.pool(name, node, &entry.key));
            self.override_one(&mut drafts, "NodePool", name, pool, &format!("pool `{name}`"), &entry.key);
            self.note_preset(pool, entry);
            check::pool_fields(pool, &mut self.found);
            roll::check(pool, &self.surroundings.engine, &mut self.found);
            terms::check(pool, &self.surroundings.engine, &mut self.found);
            let room = pool.entry("headroom").map(|entry| headroom::drafts(name, entry, &drafts));
            self.add(drafts, &format!("pools.{name}"));
            self.add(room.unwrap_or_default(), &format!("pools.{name}.headroom"));
        }
    }

    /// What the template of a pool makes of it.
    fn pool(&mut self, name: &str, pool: &Node, key: &Place) -> Option<Vec<Draft>> {
        let template = self.template(name, pool, key)?;
        let variables = self.variables(pool);
        let context = self.surroundings.for_pool(name, pool, &variables);
        let mut roots = Roots {
            roots: vec![("pool", pool), ("vars", &variables)],
            entry: key.clone(),
            subject: format!("pool `{name}`"),
        };
        roots.roots.extend(self.resolved.tree.get("region").map(|region| ("region", region)));
        let mut drafts = self.rendered(&template, context, &roots, key);
        drafts.iter_mut().for_each(|draft| trace_requirements(draft, pool));
        roll::annotate(name, pool, &mut drafts);
        terms::annotate(pool, &mut drafts);
        Some(drafts)
    }

    /// The name of the template that makes a pool.
    fn template(&mut self, name: &str, pool: &Node, key: &Place) -> Option<String> {
        let Some(strategy) = pool.get("strategy") else {
            self.found.push(
                Diagnostic::error("PRV1204", key.clone(), format!("pool `{name}` has no `strategy`")).help(
                    format!(
                        "add one, such as `strategy = \"{}\"`",
                        crate::gitops::engine::BUILT_IN_STRATEGIES[1]
                    ),
                ),
            );
            return None;
        };
        let wanted = strategy.as_text()?;
        let template = format!("{wanted}.yaml.j2");
        if template == CLASS_TEMPLATE {
            let known = listed(self.engine.strategies());
            let message = format!("`{wanted}` is no strategy: its template makes classes, and no pools");
            self.found.push(
                Diagnostic::error("PRV1401", strategy.place.clone(), message)
                    .help(format!("the strategies are {known}")),
            );
            return None;
        }
        if self.engine.is_broken(&template) {
            let broken = self.engine.found.iter().filter(|found| found.is_error());
            let path = format!("templates/{template}");
            self.found.extend(broken.filter(|found| **found.place.file() == *path).cloned());
            return None;
        }
        // What was meant to take the place of a built-in template must not silently not do so.
        let refusal = self.fleet.repository.refusal_of(&format!("{TEMPLATES}{template}"));
        let is_there = self.engine.has(&template);
        if let Some((path, refusal)) = refusal.filter(|(_, why)| !is_there || *why != Refusal::Ignored) {
            self.found.push(refused(&path.into(), refusal).also("used here", strategy.place.clone()));
            return None;
        }
        if is_there {
            return Some(template);
        }
        let message =
            format!("there is no strategy `{wanted}`: neither templates/{template} nor a built-in one");
        let known: Vec<&str> = self.engine.strategies().collect();
        let help = match nearest(wanted, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the strategies are {}", listed(known)),
        };
        self.found.push(Diagnostic::error("PRV1401", strategy.place.clone(), message).help(help));
        None
    }

    fn rendered(
        &mut self,
        template: &str,
        context: minijinja::Value,
        roots: &Roots<'_>,
        entry: &Place,
    ) -> Vec<Draft> {
        self.found.extend(self.engine.secrets(template));
        match self.engine.render(template, context) {
            Ok(rendered) => {
                self.bytes += rendered.0.len();
                let found = self.found.len();
                let drafts = rendered::read(&rendered, &self.engine.marks, roots, &mut self.found);
                // Silence would take the pool away from the cluster.
                if drafts.is_empty() && self.found[found..].iter().all(|one| !one.is_error()) {
                    let message = format!("the template of {} renders nothing", roots.subject);
                    self.found.push(
                        Diagnostic::error("PRV1506", entry.clone(), message)
                            .help("remove the entry, or `\"$remove\" = true` if it is inherited, instead of rendering nothing"),
                    );
                }
                drafts
            }
            Err(failure) => {
                match *failure {
                    Failure::Mistake { diagnostic, undefined } => {
                        self.mistaken(diagnostic, undefined, roots, entry);
                    }
                    Failure::Unfinished => self.unfinished.push((roots.subject.clone(), entry.clone())),
                }
                Vec::new()
            }
        }
    }

    fn mistaken(
        &mut self,
        mut diagnostic: Diagnostic,
        undefined: Option<String>,
        roots: &Roots<'_>,
        entry: &Place,
    ) {
        if diagnostic.code == "PRV1414" {
            // A lock that cannot be read has no entries; why is the real news.
            self.found.extend(self.surroundings.book.mistakes().iter().cloned());
        }
        if let Some(name) = undefined.and_then(|name| self.suggestion(&name, roots)) {
            diagnostic = diagnostic.help(format!("did you mean `{name}`?"));
        }
        self.found.push(diagnostic.also(format!("rendered for {}", roots.subject), entry.clone()));
    }

    /// Says once what cannot be judged before others are mended.
    fn check_unfinished(&mut self) {
        let Some((first, place)) = self.unfinished.first() else { return };
        let subjects = match self.unfinished.len() {
            1 => format!("{first} is not judged"),
            count => format!("{first} and {} more are not judged", count - 1),
        };
        let message = format!("{subjects}: templates that fail have burnt most of their instructions");
        self.found.push(
            Diagnostic::error("PRV1404", place.clone(), message)
                .help("nothing is said against what is not judged: mend the other mistakes first"),
        );
    }

    /// A name near to an undefined one.
    fn suggestion(&self, name: &str, roots: &Roots<'_>) -> Option<String> {
        let (base, last) = name.rsplit_once('.').unwrap_or(("", name));
        if base.is_empty() {
            let known = ["catalog", "cluster", "env", "fleet", "pools", "region", "vars"];
            let roots = roots.roots.iter().map(|(name, _)| *name);
            return nearest(last, known.into_iter().chain(roots)).map(str::to_owned);
        }
        let (root, rest) = base.split_once('.').unwrap_or((base, ""));
        let node = roots.roots.iter().find(|(name, _)| *name == root)?.1;
        let keys = rest.split('.').filter(|part| !part.is_empty());
        let keys = keys.map(|key| key.replace('_', "-")).collect::<Vec<_>>();
        let node = node.at(keys.iter().map(String::as_str))?;
        let names = node.as_map()?.iter().map(|(key, _)| &**key);
        Some(format!("{base}.{}", nearest(last, names)?.replace('-', "_")))
    }

    fn override_one(
        &mut self,
        drafts: &mut [Draft],
        kind: &str,
        name: &str,
        node: &Node,
        subject: &str,
        key: &Place,
    ) {
        let is_kind = |draft: &&mut Draft| draft.manifest["kind"] == kind;
        let count = drafts.iter().filter(|draft| draft.manifest["kind"] == kind).count();
        let is_rendered = !drafts.is_empty();
        let target = match count {
            1 => drafts.iter_mut().find(is_kind),
            _ => drafts.iter_mut().filter(is_kind).find(|draft| draft.manifest["metadata"]["name"] == name),
        };
        match (target, node.get("overrides")) {
            (Some(draft), Some(overrides)) => overrides::apply(draft, overrides, &mut self.found),
            (None, _) if is_rendered => {
                let message = format!("the template of {subject} renders no {kind} named `{name}`");
                self.found.push(
                    Diagnostic::error("PRV1506", key.clone(), message)
                        .help(format!("write `kind: {kind}` and `name: {{{{ … }}}}` in the template")),
                );
            }
            _ => {}
        }
    }

    fn note_preset(&mut self, pool: &Node, entry: &crate::gitops::tree::Entry) {
        let strategy = pool.get("strategy").and_then(Node::as_text);
        let own = OWN_CLASS.iter().find(|own| strategy.is_some_and(|strategy| **strategy == ***own));
        let wanted = self.presets.entry(context::class_of(pool).to_owned()).or_default();
        wanted.push((own.copied().unwrap_or("al2023"), entry.key.clone()));
    }

    fn classes(&mut self) {
        let mut wanted: BTreeMap<String, Option<&'a crate::gitops::tree::Entry>> =
            self.entries("classes").map(|(name, entry)| (name.to_string(), Some(entry))).collect();
        for draft in &self.drafts {
            let reference = &draft.manifest["spec"]["template"]["spec"]["nodeClassRef"];
            if draft.manifest["kind"] != "NodePool" || reference["kind"] != "EC2NodeClass" {
                continue;
            }
            let Some(name) = reference["name"].as_str() else { continue };
            let is_rendered = self.drafts.iter().any(|other| {
                other.manifest["kind"] == "EC2NodeClass" && other.manifest["metadata"]["name"] == name
            });
            if wanted.contains_key(name) || is_rendered {
                continue;
            }
            if name == "default" || OWN_CLASS.contains(&name) {
                wanted.insert(name.to_owned(), None);
                continue;
            }
            let place = rendered::place_of(&draft.origins, "spec.template.spec.nodeClassRef.name");
            let place = place
                .cloned()
                .unwrap_or_else(|| Place::start_of(&Source::nameless_text(self.resolved.file.clone())));
            let message = format!("there is no class `{name}`");
            let names = wanted.keys().map(String::as_str).chain(["default"]);
            let help = match nearest(name, names) {
                Some(near) => format!("did you mean `{near}`?"),
                None => format!("add `[classes.{name}]`, with `external = true` if it is made elsewhere"),
            };
            self.found.push(Diagnostic::error("PRV1607", place, message).help(help));
        }
        for (name, entry) in wanted {
            self.class(&name, entry);
        }
    }

    /// Objects that are written as their `spec`.
    fn plain(&mut self, key: &str, api_version: &str, kind: &str) {
        for (name, entry) in self.entries(key) {
            let mut spec = entry.node.to_json();
            let mut metadata = json!({ "name": &**name });
            if kind == "CapacityBuffer" {
                if let Some(namespace) = entry.node.get("namespace")
                    && let Some(text) = namespace.as_text().filter(|text| !is_name(text))
                {
                    let message = format!("\"{}\" cannot be the name of a namespace", text.escape_debug());
                    self.found.push(
                        Diagnostic::error("PRV1207", namespace.place.clone(), message)
                            .help("namespaces are named with lower-case letters, digits and hyphens"),
                    );
                }
                let namespace = spec.as_object_mut().and_then(|spec| spec.shift_remove("namespace"));
                metadata["namespace"] = namespace.unwrap_or_else(|| json!("default"));
            }
            if let Some(map) = spec.as_object_mut() {
                map.retain(|key, _| !key.starts_with("x-"));
            }
            let (mut origins, mut keys) = (Origins::new(), Origins::new());
            origins.insert("".into(), entry.key.clone());
            note_places(&entry.node, "spec", &mut origins);
            note_keys(&entry.node, "spec", &mut keys);
            let manifest =
                json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata, "spec": spec });
            self.add(vec![Draft { manifest, origins, keys }], &format!("{key}.{name}"));
        }
    }

    /// Completes drafts with what every object of ours carries, on its own metadata only.
    fn add(&mut self, drafts: Vec<Draft>, origin: &str) {
        for mut draft in drafts {
            let file = self.resolved.file.clone();
            let metadata = &mut draft.manifest["metadata"];
            if metadata.is_null() {
                *metadata = Value::Object(Map::new());
            }
            if let Some(metadata) = metadata.as_object_mut() {
                put(metadata, "labels", "provisor.dev/environment", &self.resolved.name);
                put(metadata, "annotations", "provisor.dev/origin", &format!("{file}#{origin}"));
            }
            self.drafts.push(draft);
        }
    }

    /// Guardrails judge what would be right otherwise: of broken objects there is nothing more to say.
    fn judge(&mut self, subject: &Value) -> Vec<Breach> {
        let guardrails = &self.fleet.guardrails;
        self.found.extend(guardrails.mistakes().iter().cloned());
        let locked = self.fleet.book.mistakes().iter();
        self.found.extend(locked.filter(|one| one.code == credential::CODE).cloned());
        credential::check_drafts(&self.drafts, &mut self.found);
        if self.found.iter().any(Diagnostic::is_error) {
            return Vec::new();
        }
        let standing = self.settings.standing.as_deref();
        self.found.extend(standing.into_iter().flat_map(|standing| standing.changed_in(guardrails)));
        let place = Place::start_of(&self.resolved.tree.place.source);
        let case = Case { environment: subject, drafts: &self.drafts, place };
        guardrails.judge(standing, &case, self.settings.now)
    }

    /// The environment as rules see it.
    /// Who sells the machines, if the environment says so.
    fn cloud(&self) -> Option<&Arc<str>> {
        self.resolved.tree.get("cloud").and_then(Node::as_text)
    }

    fn subject(&self) -> Value {
        let surroundings = &self.surroundings;
        json!({
            "cloud": self.cloud().map_or("", |word| word),
            "cluster": surroundings.cluster,
            "engine": surroundings.engine,
            "fleet": surroundings.fleet,
            "name": surroundings.environment,
            "pools": surroundings.pools,
            "region": surroundings.region.as_deref().unwrap_or_default(),
            "variables": surroundings.variables.to_json(),
        })
    }

    fn finish(mut self) -> Result<Judged, Diagnostics> {
        self.check_unfinished();
        if self.bytes > 2 * RENDERED_MAX {
            let message = format!("the environment renders to more than {RENDERED_MAX} bytes");
            self.found.push(
                Diagnostic::error("PRV1405", self.resolved.tree.place.clone(), message)
                    .help("split the environment"),
            );
        }
        if self.drafts.len() > OBJECTS_MAX {
            let message =
                format!("the environment has {} objects, more than {OBJECTS_MAX}", self.drafts.len());
            let place = Place::start_of(&self.resolved.tree.place.source);
            self.found.push(Diagnostic::error("PRV1505", place, message).help("split the environment"));
        }
        let region = self.surroundings.region.as_deref();
        let instances = Instances::in_region(self.settings.instances.clone(), region);
        check::drafts(&self.drafts, instances.as_deref(), region, &mut self.found);
        if let Some(region) = self.resolved.tree.get("region") {
            check::region(region, &mut self.found);
        }
        if let Some(cluster) = self.resolved.tree.get("cluster") {
            check::cluster(cluster, &mut self.found);
        }
        if Provisioner::of(&self.surroundings.engine) == Provisioner::Karpenter {
            beside::check(&self.resolved.tree, &self.drafts, &mut self.found);
        }
        let has_pools = self.entries("pools").next().is_some();
        let is_pool = |draft: &Draft| draft.manifest["kind"] == "NodePool";
        let is_extra =
            |draft: &Draft| matches!(draft.manifest["kind"].as_str(), Some("NodeOverlay" | "CapacityBuffer"));
        if !self.found.iter().any(Diagnostic::is_error)
            && !has_pools
            && !self.drafts.iter().any(|draft| is_pool(draft) || is_extra(draft))
        {
            let place = Place::start_of(&self.resolved.tree.place.source);
            self.found.push(
                Diagnostic::warning("PRV1306", place, "the environment has no pools, so it has no nodes")
                    .help("add `[pools.NAME]`, or mark a file that is only extended with `abstract = true`"),
            );
        }
        let subject = self.subject();
        let cloud = self.cloud().cloned();
        let breaches = self.judge(&subject);
        if self.settings.judging == Judging::Enforced {
            self.found.extend(breaches.iter().map(|breach| breach.diagnostic.clone()));
        }
        let place = Place::start_of(&self.resolved.tree.place.source);
        let sources: Vec<Arc<Source>> =
            self.resolved.layers.iter().map(|layer| layer.tree.place.source.clone()).collect();
        let known = credential::known_to(&self.drafts, &sources);
        let mut objects: BTreeMap<ObjectRef, DesiredObject> = BTreeMap::new();
        let mut places: BTreeMap<ObjectRef, Place> = BTreeMap::new();
        for draft in self.drafts {
            let Some(name) = ObjectRef::of(&draft.manifest) else { continue };
            let place = draft.origins[""].clone();
            if let Some(first) = places.get(&name) {
                let at = rendered::place_of(&draft.origins, "metadata.name").cloned().unwrap_or(place);
                let message = format!("{name} is rendered twice");
                self.found.push(
                    Diagnostic::error("PRV1504", at, message)
                        .also("the other one comes from here", first.clone())
                        .help("rename one of the two"),
                );
                continue;
            }
            places.insert(name.clone(), place);
            let origins = as_origins(&draft.origins);
            objects.insert(name, DesiredObject::new(draft.manifest, origins));
        }
        if !known.is_empty() {
            self.found = self.found.into_iter().map(|one| one.without(&known)).collect();
        }
        let all = collected(self.found);
        if all.has_errors() {
            return Err(all);
        }
        let revision = self.fleet.repository.revision.clone();
        let provisioner = Provisioner::of(&self.surroundings.engine);
        let state = DesiredState::new(self.resolved.name.clone(), revision, (provisioner, cloud), objects);
        Ok(Judged { state, warnings: all.into_iter().collect(), breaches, subject, place })
    }
}

fn put(metadata: &mut Map<String, Value>, table: &str, key: &str, value: &str) {
    let table = metadata.entry(table).or_insert_with(|| json!({}));
    if let Some(table) = table.as_object_mut() {
        table.insert(key.to_owned(), json!(value));
    }
}
