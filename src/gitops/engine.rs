//! The template engine with everything that could hurt taken away.
//!
//! There is no clock, chance, file, network or environment to ask. Instructions are counted by fuel, bytes by a meter:
//! every function and filter that builds a value pays for its size. Templates come from the commit and from the
//! binary, by names inside their folder only.

mod failure;
mod offered;

use std::cell::Cell;
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
/// Instructions of all renderings of an environment together.
const FUEL_TOTAL: u64 = 20 * FUEL;

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
    environment: Environment<'static>,
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
}

impl Engine {
    pub fn new(repository: &Repository) -> Self {
        let meter = Arc::new(Meter::default());
        let trail = Arc::new(Trail::default());
        let mut engine = Self {
            environment: restricted(&meter, &trail),
            marks: Vec::new(),
            traced: BTreeMap::new(),
            found: Vec::new(),
            refused: repository.refused.clone(),
            meter,
            trail,
            burnt: Cell::new(0),
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
            self.environment.add_template_owned(name.to_owned(), traced.text.clone())?;
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
    }

    /// Renders to marked text, with the steps that its numbers mean.
    pub fn render(&self, name: &str, context: Value) -> Result<(String, Steps), Box<Failure>> {
        if self.burnt.get() >= FUEL_TOTAL {
            return Err(Box::new(self.exhausted(name)));
        }
        match self.run(&self.environment, name, context.clone()) {
            Ok((text, burnt)) => {
                self.burnt.set(self.burnt.get() + burnt);
                Ok((text, self.trail.taken()))
            }
            Err(error) => {
                self.burnt.set(self.burnt.get() + self.burnt_failing(name, &context, &error));
                Err(Box::new(self.failure(&error)))
            }
        }
    }

    /// The text and the instructions of one rendering.
    fn run(
        &self,
        environment: &Environment<'_>,
        name: &str,
        context: Value,
    ) -> Result<(String, u64), minijinja::Error> {
        self.meter.reset();
        self.trail.begin(self.marks.len());
        let mut out = Capped { text: Vec::new() };
        let template = environment.get_template(name)?;
        let captured = template.render_captured_to(context, &mut out)?;
        let burnt = captured.state().fuel_levels().map_or(FUEL, |(consumed, _)| consumed);
        Ok((String::from_utf8_lossy(&out.text).into_owned(), burnt))
    }

    /// At least the instructions of a rendering that failed, and of those that find it out.
    ///
    /// The engine does not tell how far it came. So it is given a little, and more while that is not enough to come to the
    /// same mistake: nobody pays for what a mistake of somebody else might have burnt.
    fn burnt_failing(&self, name: &str, context: &Value, error: &minijinja::Error) -> u64 {
        if failure::is_limit(error) {
            return FUEL;
        }
        let mut burnt = 0;
        let mut given = FUEL / 256;
        let mut environment = self.environment.clone();
        while given < FUEL {
            environment.set_fuel(Some(given));
            burnt += given;
            match self.run(&environment, name, context.clone()) {
                Err(error) if failure::is_limit(&error) => given *= 4,
                _ => return burnt + given,
            }
        }
        burnt + FUEL
    }
}

fn is_template(name: &str) -> bool {
    name.ends_with(".j2") && !name.split('/').any(|part| part.starts_with('.'))
}
