//! The template engine with everything that could hurt taken away.
//!
//! There is no clock, chance, file, network or environment to ask. Instructions are counted by fuel, bytes by a meter:
//! every function and filter that builds a value pays for its size. Templates come from the commit and from the
//! binary, by names inside their folder only.

mod failure;
mod offered;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::Arc;

use minijinja::{Environment, Value};

use crate::gitops::credential;
use crate::gitops::diagnostic::{Diagnostic, Source};
use crate::gitops::fleet::TEMPLATES;
use crate::gitops::flow::{Steps, Trail};
use crate::gitops::meter::{Capped, Meter};
use crate::gitops::nesting;
use crate::gitops::read::text_of;
use crate::gitops::template::{self, Mark, Traced};
use crate::model::repository::{Refusal, Repository};

pub(crate) use failure::Failure;
use failure::{syntax, unquoted};
use offered::restricted;
pub(crate) use offered::undefined;

/// Instructions of one rendering.
const FUEL: u64 = 500_000;
/// Levels of the engine's own count: an include costs ten of them, a macro four.
const RECURSION: usize = 64;
/// Instructions of all renderings of an environment that come to their end.
const FUEL_TOTAL: u64 = 20 * FUEL;
/// Instructions of all renderings of an environment that fail: these take none from the others.
const FUEL_FAILING: u64 = 40 * FUEL;
/// A rendering is given no more than this part of what those that fail have left, so that something is always left for the
/// next one.
const FAILING_PARTS: u64 = 20;

/// The templates that are compiled in.
const BUILT_IN: [(&str, &str); 12] = [
    ("nodepool.yaml.j2", include_str!("../../env-templates/nodepool.yaml.j2")),
    ("ec2nodeclass.yaml.j2", include_str!("../../env-templates/ec2nodeclass.yaml.j2")),
    ("kubeadm-join.sh.j2", include_str!("../../env-templates/kubeadm-join.sh.j2")),
    ("spot.yaml.j2", include_str!("../../env-templates/spot.yaml.j2")),
    (
        "spot-with-on-demand-fallback.yaml.j2",
        include_str!("../../env-templates/spot-with-on-demand-fallback.yaml.j2"),
    ),
    ("on-demand.yaml.j2", include_str!("../../env-templates/on-demand.yaml.j2")),
    ("gpu-spot.yaml.j2", include_str!("../../env-templates/gpu-spot.yaml.j2")),
    ("gpu-premium.yaml.j2", include_str!("../../env-templates/gpu-premium.yaml.j2")),
    ("gpu.yaml.j2", include_str!("../../env-templates/gpu.yaml.j2")),
    ("static.yaml.j2", include_str!("../../env-templates/static.yaml.j2")),
    ("bottlerocket.yaml.j2", include_str!("../../env-templates/bottlerocket.yaml.j2")),
    ("self-managed.yaml.j2", include_str!("../../env-templates/self-managed.yaml.j2")),
];

/// The ready strategies, in the order in which the guide explains them.
pub const BUILT_IN_STRATEGIES: [&str; 8] = [
    "spot",
    "spot-with-on-demand-fallback",
    "on-demand",
    "gpu-spot",
    "gpu-premium",
    "static",
    "bottlerocket",
    "self-managed",
];

/// All templates of a commit, ready to render one after the other.
pub(crate) struct Engine {
    environment: RefCell<Environment<'static>>,
    pub marks: Vec<Mark>,
    traced: BTreeMap<Arc<str>, Traced>,
    /// Mistakes found while loading, of templates of the repository.
    pub found: Vec<Diagnostic>,
    /// Paths of the commit that are not read, and why: an include may name one.
    refused: BTreeMap<Arc<str>, Refusal>,
    meter: Arc<Meter>,
    trail: Arc<Trail>,
    /// Instructions of the renderings of this environment.
    burnt: Cell<u64>,
    /// Instructions of those that failed.
    lost: Cell<u64>,
}

impl Engine {
    pub fn new(repository: &Repository) -> Self {
        let meter = Arc::new(Meter::default());
        let trail = Arc::new(Trail::default());
        let mut engine = Self {
            environment: RefCell::new(restricted(&meter, &trail)),
            marks: Vec::new(),
            traced: BTreeMap::new(),
            found: Vec::new(),
            refused: repository.refused.clone(),
            meter,
            trail,
            burnt: Cell::new(0),
            lost: Cell::new(0),
        };
        for (name, text) in BUILT_IN {
            let source = Source::new(format!("built-in:{name}"), text);
            engine.add(&format!("built-in/{name}"), &source);
            if !repository.files.contains_key(format!("{TEMPLATES}{name}").as_str()) {
                engine.add(name, &source);
            }
        }
        for (path, bytes) in &repository.files {
            let Some(name) = path.strip_prefix(TEMPLATES).filter(|name| is_template(name)) else { continue };
            if let Some(source) = text_of(path, bytes, &mut engine.found) {
                credential::check(&source, None, true, &mut engine.found);
                engine.add(name, &source);
            }
        }
        engine
    }

    fn add(&mut self, name: &str, source: &Arc<Source>) {
        if let Some(too_deep) = nesting::check(source) {
            self.found.push(too_deep);
            return;
        }
        let added = template::trace(source, &mut self.marks).and_then(|traced| {
            self.environment.get_mut().add_template_owned(name.to_owned(), traced.text.clone())?;
            Ok(traced)
        });
        match added {
            Ok(traced) if !traced.refused.is_empty() => self.found.extend(traced.refused),
            Ok(traced) => {
                if !source.path.starts_with("built-in:") {
                    self.found.extend(traced.unquoted.iter().cloned().map(unquoted));
                }
                self.traced.insert(name.into(), traced);
            }
            Err(error) => self.found.push(syntax(source, &error)),
        }
    }

    pub fn has(&self, name: &str) -> bool {
        self.traced.contains_key(name)
    }

    /// Whether a template of the repository failed to load, so that its name is taken but cannot be used.
    pub fn is_broken(&self, name: &str) -> bool {
        let path = format!("{TEMPLATES}{name}");
        let is_wrong = |diagnostic: &Diagnostic| diagnostic.is_error() && **diagnostic.place.file() == *path;
        !self.has(name) && self.found.iter().any(is_wrong)
    }

    /// What looks like a secret in a template and in those that it includes.
    pub fn secrets(&self, name: &str) -> Vec<Diagnostic> {
        let secrets = || self.found.iter().filter(|one| one.code == credential::CODE);
        if secrets().next().is_none() {
            return Vec::new();
        }
        let mut names = vec![name];
        let mut at = 0;
        while let Some(name) = names.get(at) {
            at += 1;
            let uses = self.traced.get(*name).into_iter().flat_map(|traced| &traced.uses);
            let new: Vec<&str> = uses.map(|(name, _)| &**name).filter(|name| !names.contains(name)).collect();
            names.extend(new);
        }
        let is_used = |one: &&Diagnostic| {
            one.place.file().strip_prefix(TEMPLATES).is_some_and(|file| names.contains(&file))
        };
        secrets().filter(is_used).cloned().collect()
    }

    /// Names of strategies that templates exist for.
    pub fn strategies(&self) -> impl Iterator<Item = &str> {
        let parts = ["nodepool", "ec2nodeclass", "gpu"];
        self.traced
            .keys()
            .filter_map(|name| name.strip_suffix(".yaml.j2"))
            .filter(move |name| !name.contains('/') && !parts.contains(name))
    }

    /// Begins another environment, with fuel of its own.
    pub fn refuel(&self) {
        self.burnt.set(0);
        self.lost.set(0);
    }

    /// Renders to marked text, with the steps that its numbers mean.
    pub fn render(&self, name: &str, context: Value) -> Result<(String, Steps), Box<Failure>> {
        if self.burnt.get() >= FUEL_TOTAL {
            return Err(Box::new(self.exhausted(name)));
        }
        let given = FUEL.min((FUEL_FAILING - self.lost.get()) / FAILING_PARTS);
        let (rendered, burnt) = self.run(name, context, given);
        let account = if rendered.is_ok() { &self.burnt } else { &self.lost };
        account.set(account.get() + burnt);
        match rendered {
            Ok(text) => Ok((text, self.trail.taken())),
            Err(error) if given < FUEL && failure::is_out_of_fuel(&error) => {
                Err(Box::new(Failure::Unfinished))
            }
            Err(error) => Err(Box::new(self.failure(&error))),
        }
    }

    /// One rendering, and the instructions that it burnt.
    ///
    /// The engine forgets its count when a template fails, but not when a block does: so the template is included in one.
    fn run(&self, name: &str, context: Value, given: u64) -> (Result<String, minijinja::Error>, u64) {
        self.meter.reset();
        self.trail.begin(self.marks.len());
        self.environment.borrow_mut().set_fuel(Some(given));
        let environment = self.environment.borrow();
        let name = serde_json::Value::from(name);
        let around =
            format!("{{% if false %}}{{% block all %}}{{% include {name} %}}{{% endblock %}}{{% endif %}}");
        let begun = environment.template_from_str(&around).and_then(|around| around.render_captured(context));
        let mut begun = match begun {
            Ok(begun) => begun,
            Err(error) => return (Err(error), given),
        };
        let mut out = Capped { text: Vec::new() };
        begun.with_state_mut(|state| {
            let rendered = state.render_block_to_write("all", &mut out);
            let burnt = match &rendered {
                // What it was stopped for costs more than its instructions.
                Err(error) if failure::is_limit(error) => given,
                _ => state.fuel_levels().map_or(given, |(burnt, _)| burnt),
            };
            (rendered.map(|()| String::from_utf8_lossy(&out.text).into_owned()), burnt)
        })
    }
}

fn is_template(name: &str) -> bool {
    name.ends_with(".j2") && !name.split('/').any(|part| part.starts_with('.'))
}
