//! The template engine with everything that could hurt taken away.
//!
//! There is no clock, chance, file, network or environment to ask. Instructions are counted by fuel, bytes by a meter:
//! every function and filter that builds a value pays for its size. Templates come from the commit and from the
//! binary, by names inside their folder only.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, UndefinedBehavior, Value, filters};

use crate::gitops::credential;
use crate::gitops::diagnostic::{Diagnostic, Place, Source};
use crate::gitops::fleet::{TEMPLATES, refused};
use crate::gitops::flow::{Steps, Trail};
use crate::gitops::lock;
use crate::gitops::meter::{
    Capped, Meter, OUTPUT_MAX, TOO_MUCH, TOO_MUCH_LOOKING, look, text_of_value, too_much, unpaid_text, weigh,
};
use crate::gitops::nesting;
use crate::gitops::read::text_of;
use crate::gitops::template::{
    self, ADD, CHARGE, CLOSE, EMIT, GIVEN, HELD, JOIN, LOOKED, MULTIPLY, Mark, NUMBER_END, OPEN, SIZED, STEP,
    Traced,
};
use crate::model::near::nearest;
use crate::model::repository::{Refusal, Repository};

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
        self.meter.reset();
        self.trail.begin(self.marks.len());
        let mut out = Capped { text: Vec::new() };
        if self.burnt.get() >= FUEL_TOTAL {
            return Err(Box::new(self.exhausted(name)));
        }
        let rendered = self.environment.get_template(name).and_then(|template| {
            // A rendering that fails may have burnt all that it was given.
            let before = self.burnt.replace(self.burnt.get() + FUEL);
            let captured = template.render_captured_to(context, &mut out)?;
            let burnt = captured.state().fuel_levels().map_or(FUEL, |(consumed, _)| consumed);
            self.burnt.set(before + burnt);
            Ok(())
        });
        match rendered {
            Ok(()) => Ok((String::from_utf8_lossy(&out.text).into_owned(), self.trail.taken())),
            Err(error) => Err(Box::new(self.failure(&error))),
        }
    }

    /// The renderings before have used up what an environment may burn.
    fn exhausted(&self, name: &str) -> Failure {
        let source = self.traced.get(name).map(|traced| traced.source.clone());
        let place = Place::start_of(&source.unwrap_or_else(|| Source::nameless_text(name.to_owned())));
        let message =
            format!("the templates of this environment run for more than {FUEL_TOTAL} instructions together");
        let diagnostic = Diagnostic::error("PRV1404", place, message)
            .help("a template that many pools use should do little: compute values once, in `variables`");
        Failure { diagnostic, undefined: None }
    }

    /// An engine's error in the words and positions of the original templates.
    fn failure(&self, error: &Error) -> Failure {
        let mut chain = vec![error];
        while let Some(inner) = source_of(chain[chain.len() - 1]) {
            chain.push(inner);
        }
        let places: Vec<Option<Place>> = chain.iter().map(|error| self.place(error)).collect();
        // The innermost error that has a position is the mistake; the others led there.
        let at = (0..chain.len()).rev().find(|at| places[*at].is_some()).unwrap_or(0);
        let place = places[at].clone().unwrap_or_else(|| {
            Place::start_of(&Source::nameless_text(error.name().unwrap_or("template").to_owned()))
        });
        let cause = chain[chain.len() - 1];
        let mut diagnostic = self.explained(cause, place);
        for place in places[..at].iter().rev().flatten() {
            if diagnostic.chain.len() < 8 && *place != diagnostic.place {
                diagnostic = diagnostic.also("included from here", place.clone());
            }
        }
        let variable = match cause.kind() {
            ErrorKind::UndefinedError => {
                Some(diagnostic.place.source.text[diagnostic.place.bytes()].to_owned())
            }
            _ => None,
        };
        Failure { diagnostic, undefined: variable }
    }

    fn place(&self, error: &Error) -> Option<Place> {
        let traced = self.traced.get(error.name()?)?;
        if let Some(range) = told_place(error).filter(|range| range.end <= traced.source.text.len()) {
            return Some(Place::new(&traced.source, range));
        }
        let range = match error.range() {
            Some(range) => traced.original(range),
            None => {
                let line = error.line()?;
                let start = traced.source.line_start(line);
                let text = traced.source.line(line);
                let lead = text.len() - text.trim_start().len();
                start + lead..start + text.trim_end().len()
            }
        };
        let mut place = Place::new(&traced.source, range.start..range.end.min(traced.source.text.len()));
        if error.kind() == ErrorKind::UndefinedError {
            let name = place.start as usize;
            place = match traced.asked.get(&name).filter(|_| !names_a_part(error)) {
                Some(parts) => {
                    Place::new(&traced.source, parts[asked_at(error).min(parts.len() - 1)].clone())
                }
                None => undefined_part(place, error),
            };
        }
        Some(place)
    }

    fn explained(&self, error: &Error, place: Place) -> Diagnostic {
        let detail = error.detail().unwrap_or_default();
        let text = &place.source.text[place.bytes()];
        match error.kind() {
            ErrorKind::UndefinedError if is_open_choice(text) => {
                let message =
                    format!("`{text}` comes to nothing: the condition is false, and there is no `else`");
                Diagnostic::error("PRV1403", place.clone(), message)
                    .help(format!("say what it is otherwise: `{text} else …`, with `none` for nothing"))
            }
            ErrorKind::UndefinedError => {
                let help =
                    format!("set it in `variables`, or write `{text} | default(\"…\")` if it may be missing");
                Diagnostic::error("PRV1403", place.clone(), format!("`{text}` is not defined")).help(help)
            }
            ErrorKind::OutOfFuel => {
                let message = format!("the template runs for more than {FUEL} instructions");
                Diagnostic::error("PRV1404", place, message)
                    .help("loop over less, or compute the value in the strategy")
            }
            ErrorKind::UnknownFunction
            | ErrorKind::UnknownMethod
            | ErrorKind::UnknownFilter
            | ErrorKind::UnknownTest => unknown(error.kind(), detail, place),
            ErrorKind::TemplateNotFound => self.missing_template(detail, place),
            ErrorKind::InvalidOperation if detail.starts_with(TOO_MUCH) => {
                Diagnostic::error("PRV1405", place, detail.to_owned())
                    .help("render less, or split the environment")
            }
            ErrorKind::InvalidOperation if detail.starts_with(TOO_MUCH_LOOKING) => {
                Diagnostic::error("PRV1404", place, detail.to_owned())
                    .help("search once and keep the answer, or use a table instead of a list")
            }
            ErrorKind::WriteFailure => {
                let message = format!("the template renders more than {OUTPUT_MAX} bytes");
                Diagnostic::error("PRV1405", place, message).help("render less, or split the environment")
            }
            ErrorKind::InvalidOperation if detail.contains("recursion limit") => {
                match self.cycle(place.file()) {
                    Some(cycle) => {
                        let message =
                            format!("templates include each other in a circle: {}", cycle.join(" → "));
                        Diagnostic::error("PRV1407", place, message)
                            .help("remove one `include` of the circle")
                    }
                    None => Diagnostic::error("PRV1407", place, "templates or macros are nested too deeply")
                        .help("call and include fewer of them inside each other"),
                }
            }
            ErrorKind::InvalidOperation if let Some(help) = lock::help_for(detail) => {
                Diagnostic::error("PRV1414", place, detail.to_owned()).help(help)
            }
            ErrorKind::MissingArgument if let Some(lacking) = self.lacking(&place) => lacking,
            kind => {
                let message = if detail.is_empty() { kind.to_string() } else { detail.to_owned() };
                Diagnostic::error("PRV1409", place, message)
                    .help("see docs/guide/strategy.md for what templates can do")
            }
        }
    }

    /// What a filter, a test or a function at `place` is to be given, and is not.
    fn lacking(&self, place: &Place) -> Option<Diagnostic> {
        let (start, text) = (place.start as usize, &place.source.text);
        let rest = &text[start..];
        let name = &rest[..rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len())];
        let (_, wanted) = NEEDS.iter().find(|(known, _)| *known == name)?;
        let traced = self.traced.values().find(|traced| traced.source == place.source)?;
        // What is asked about counts as the first. Of a function nothing is known but that it is not enough.
        let given = traced.asked.get(&start).map_or(0, |asked| asked.len() - 1);
        let lacks = wanted.get(given).or(wanted.last())?;
        let message = format!("`{name}` is given no `{lacks}`");
        let help = format!("it is used as `{name}({})`", wanted.join(", "));
        Some(Diagnostic::error("PRV1409", place.clone(), message).help(help))
    }

    fn missing_template(&self, detail: &str, place: Place) -> Diagnostic {
        let name = detail.split(['"', '\'']).nth(1).unwrap_or(detail);
        let is_escape = name.split('/').any(|part| part == ".." || part.starts_with('.'))
            || name.starts_with('/')
            || name.contains('\\')
            || name.contains(':');
        if is_escape {
            let message = format!("`{name}` is outside of templates/, and only templates can be included");
            return Diagnostic::error("PRV1406", place, message)
                .help("include templates by their name below templates/, without `..`, dot-files and absolute paths");
        }
        let path = format!("{TEMPLATES}{name}");
        let is_part = |refused: &str| {
            path.strip_prefix(refused).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if let Some((at, refusal)) = self.refused.iter().find(|(refused, _)| is_part(refused)) {
            return refused(at, *refusal).also("included here", place);
        }
        let diagnostic = Diagnostic::error("PRV1412", place, format!("there is no template `{name}`"));
        match nearest(name, self.traced.keys().map(|name| &**name)) {
            Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
            None => diagnostic.help(format!("add {TEMPLATES}{name}")),
        }
    }

    /// A circle of constant includes that starts at a template.
    fn cycle(&self, path: &str) -> Option<Vec<String>> {
        let start = self.traced.iter().find(|(_, traced)| &*traced.source.path == path)?.0;
        let mut trail = vec![start.to_string()];
        self.follow(&mut trail).then(|| {
            let first = trail.iter().position(|name| name == &trail[trail.len() - 1]).unwrap_or(0);
            trail[first..].to_vec()
        })
    }

    fn follow(&self, trail: &mut Vec<String>) -> bool {
        let Some(traced) = self.traced.get(trail[trail.len() - 1].as_str()) else { return false };
        for (name, _) in &traced.uses {
            let is_known = trail.contains(name);
            trail.push(name.clone());
            if is_known || self.follow(trail) {
                return true;
            }
            trail.pop();
        }
        false
    }
}

/// Why a template did not render.
#[derive(Debug)]
pub(crate) struct Failure {
    pub diagnostic: Diagnostic,
    /// The expression that was not defined.
    pub undefined: Option<String>,
}

fn source_of(error: &Error) -> Option<&Error> {
    std::error::Error::source(error)?.downcast_ref::<Error>()
}

/// Which of what a filter or test was asked is undefined: the first is what it is asked about.
fn asked_at(error: &Error) -> usize {
    let argument = error.detail().and_then(|detail| detail.strip_prefix(ARGUMENT));
    argument.and_then(|at| at.parse().ok()).unwrap_or(0)
}

/// Where something stands that was found to be undefined, if the error says it.
fn told_place(error: &Error) -> Option<Range<usize>> {
    let (start, end) = error.detail()?.strip_prefix(STANDS)?.split_once(' ')?;
    Some(start.parse().ok()?..end.parse().ok()?)
}

/// Whether an expression is a choice without `else`: were what it chooses undefined, that would be told.
fn is_open_choice(text: &str) -> bool {
    let inner = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(text);
    let mut depth = 0i32;
    let outside: String = inner
        .chars()
        .filter(|letter| {
            depth +=
                i32::from(matches!(letter, '(' | '[' | '{')) - i32::from(matches!(letter, ')' | ']' | '}'));
            depth == 0
        })
        .collect();
    let has = |wanted: &str| outside.split_whitespace().any(|word| word == wanted);
    has("if") && !has("else")
}

/// Whether the engine says itself what it is.
fn names_a_part(error: &Error) -> bool {
    error.detail().is_some_and(|detail| detail.contains("` is undefined"))
}

/// The engine names the expression that was undefined; it stands on the line of the error, if not at its very place.
fn undefined_part(mut place: Place, error: &Error) -> Place {
    let named = error.detail().and_then(|detail| {
        let before = detail.split("` is undefined").next().filter(|before| before.len() < detail.len())?;
        before.rsplit('`').next()
    });
    let (line, _) = place.position();
    let start = place.source.line_start(line as usize);
    let text = place.source.line(line as usize);
    let at = place.start as usize - start;
    if let Some(named) = named.filter(|named| !named.is_empty()) {
        // The nearest mention that is not a part of a longer word.
        let mentions = text.match_indices(named).map(|(found, _)| found).filter(|found| {
            let is_word = |c: char| c.is_alphanumeric() || c == '_';
            let before = text[..*found].chars().next_back().is_some_and(|c| is_word(c) || c == '.');
            let after = text[found + named.len()..].chars().next().is_some_and(is_word);
            !before && !after
        });
        if let Some(found) = mentions.min_by_key(|found| found.abs_diff(at)) {
            place.start = (start + found) as u32;
            place.end = place.start + named.len() as u32;
        }
    }
    place
}

fn is_template(name: &str) -> bool {
    name.ends_with(".j2") && !name.split('/').any(|part| part.starts_with('.'))
}

fn unquoted(place: Place) -> Diagnostic {
    let text = place.source.text[place.bytes()].to_owned();
    Diagnostic::warning("PRV1410", place, format!("`{text}` goes into YAML without quotes"))
        .help(format!("write `{text} | tojson`, so that `: `, `#` and quotes in it do no harm"))
}

fn syntax(source: &Arc<Source>, error: &Error) -> Diagnostic {
    let range = error.range().unwrap_or_else(|| {
        let line = error.line().unwrap_or(1);
        let start = source.line_start(line);
        start..start + source.line(line).len()
    });
    let place = Place::new(source, range.start..range.end.min(source.text.len()));
    let detail = error.detail().map_or_else(|| error.kind().to_string(), str::to_owned);
    Diagnostic::error("PRV1402", place, format!("this is not a template: {detail}"))
        .help("expressions stand in `{{ }}`, statements in `{% %}`, comments in `{# #}`")
}

fn unknown(kind: ErrorKind, detail: &str, place: Place) -> Diagnostic {
    let (what, names): (_, &[&str]) = match kind {
        ErrorKind::UnknownFilter => ("filter", &FILTER_NAMES),
        ErrorKind::UnknownTest => ("test", &[]),
        _ => ("function", &["catalog", "range", "dict", "namespace"]),
    };
    let name = unknown_name(detail);
    let diagnostic = Diagnostic::error("PRV1408", place, format!("unknown {what} `{name}`"));
    match nearest(name, names.iter().copied()) {
        Some(near) => diagnostic.help(format!("did you mean `{near}`?")),
        None => diagnostic.help(
            "templates only compute: there is no clock, chance, environment, file or network; see docs/guide/strategy.md",
        ),
    }
}

/// `now is unknown`, `filter foo is unknown`: the name before the verb.
fn unknown_name(detail: &str) -> &str {
    let before = detail.split(" is unknown").next().unwrap_or(detail);
    let before = before.split(" has no method named ").last().unwrap_or(before);
    before.rsplit(' ').next().unwrap_or(before)
}

/// How an error says where what is undefined stands: by the bytes of its beginning and end.
const STANDS: &str = "stands at ";

/// A value that must be defined.
fn defined(value: Value, start: u32, end: u32) -> Result<Value, Error> {
    match value.is_undefined() {
        true => Err(undefined(&format!("{STANDS}{start} {end}"))),
        false => Ok(value),
    }
}

/// How an error names an argument of a test: by its place behind it.
const ARGUMENT: &str = "argument ";

pub(crate) fn undefined(what: &str) -> Error {
    Error::new(ErrorKind::UndefinedError, what.to_owned())
}

/// An engine with metered operators, metered filters and nothing else.
fn restricted(meter: &Arc<Meter>, trail: &Arc<Trail>) -> Environment<'static> {
    let mut environment = Environment::empty();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    environment.set_recursion_limit(RECURSION);
    environment.set_debug(true);
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    let metered = meter.clone();
    environment.set_formatter(move |out, _, value| {
        let text = text_of_value(&metered, value)?;
        out.write_str(&text).map_err(Error::from)
    });
    add_operators(&mut environment, meter);
    add_notes(&mut environment, meter, trail);
    add_filters(&mut environment, meter);
    add_tests(&mut environment, meter);
    // Lazy, so it costs nothing until something is made of it.
    environment.add_function("range", minijinja::functions::range);
    let dict = Value::from_function(minijinja::functions::dict);
    let metered = meter.clone();
    environment.add_function("dict", move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
        let args = args.into_values();
        args.iter().try_for_each(|input| weigh(&metered, input, true))?;
        dict.call(state, &args)
    });
    environment.add_function("namespace", minijinja::functions::namespace);
    environment
}

/// What says where values come from.
fn add_notes(environment: &mut Environment<'static>, meter: &Arc<Meter>, trail: &Arc<Trail>) {
    let (metered, noted) = (meter.clone(), trail.clone());
    let emit = move |state: &mut State<'_, '_>, mark: u32, value: Value, read: Option<Value>| {
        if value.is_undefined() {
            return Err(undefined(EMIT));
        }
        // The formatter charges for it.
        let text = unpaid_text(&metered, &value)?;
        let step = noted.step(state, mark as usize, read.as_ref());
        Ok(format!("{OPEN}{step}{NUMBER_END}{text}{CLOSE}"))
    };
    environment.add_function(EMIT, emit);
    let noted = trail.clone();
    environment.add_function(STEP, move |state: &mut State<'_, '_>, mark: u32, read: Option<Value>| {
        noted.step(state, mark as usize, read.as_ref()) as u64
    });
}

fn add_operators(environment: &mut Environment<'static>, meter: &Arc<Meter>) {
    let metered = meter.clone();
    environment.add_function(CHARGE, move |bytes: u32| metered.charge(bytes as usize).map(|()| ""));
    let metered = meter.clone();
    environment.add_function(SIZED, move |value: Value| weigh(&metered, &value, true).map(|()| value));
    environment.add_function(GIVEN, defined);
    let metered = meter.clone();
    environment.add_function(HELD, move |value: Value, start: u32, end: u32| {
        let value = defined(value, start, end)?;
        weigh(&metered, &value, false).map(|()| value)
    });
    let metered = meter.clone();
    environment.add_function(LOOKED, move |value: Value| look(&metered, &value).map(|()| value));
    let metered = meter.clone();
    environment.add_function(JOIN, move |left: Value, right: Value| {
        if left.is_undefined() || right.is_undefined() {
            return Err(undefined("~"));
        }
        let mut text = text_of_value(&metered, &left)?;
        text.push_str(&text_of_value(&metered, &right)?);
        metered.charge(text.len())?;
        Ok(text)
    });
    let metered = meter.clone();
    environment.add_function(ADD, move |left: Value, right: Value| add(&metered, &left, &right));
    environment.add_function(MULTIPLY, |left: Value, right: Value| {
        if left.is_undefined() || right.is_undefined() {
            return Err(undefined("*"));
        }
        if !(left.is_number() && right.is_number()) {
            let detail = "only numbers can be multiplied: texts and lists are not repeated";
            return Err(Error::new(ErrorKind::InvalidOperation, detail));
        }
        numbers(&left, &right, i128::checked_mul, |a, b| a * b)
    });
}

fn add(meter: &Meter, left: &Value, right: &Value) -> Result<Value, Error> {
    if left.is_undefined() || right.is_undefined() {
        return Err(undefined("+"));
    }
    if let (Some(left), Some(right)) = (left.as_str(), right.as_str()) {
        meter.charge(left.len() + right.len())?;
        return Ok(Value::from([left, right].concat()));
    }
    let is_list = |value: &Value| matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable);
    if is_list(left) && is_list(right) {
        weigh(meter, left, true)?;
        weigh(meter, right, true)?;
        let items: Vec<Value> = left.try_iter()?.chain(right.try_iter()?).collect();
        return Ok(Value::from(items));
    }
    if left.is_number() && right.is_number() {
        return numbers(left, right, i128::checked_add, |a, b| a + b);
    }
    let detail = format!("{} and {} cannot be added", left.kind(), right.kind());
    Err(Error::new(ErrorKind::InvalidOperation, detail))
}

fn numbers(
    left: &Value,
    right: &Value,
    whole: fn(i128, i128) -> Option<i128>,
    fraction: fn(f64, f64) -> f64,
) -> Result<Value, Error> {
    if left.is_integer() && right.is_integer() {
        let (left, right) = (i128::try_from(left.clone())?, i128::try_from(right.clone())?);
        let sum = whole(left, right);
        return match sum.map(|sum| i64::try_from(sum).map_or_else(|_| Value::from(sum), Value::from)) {
            Some(sum) => Ok(sum),
            None => Err(Error::new(ErrorKind::InvalidOperation, "the number is too large")),
        };
    }
    Ok(Value::from(fraction(f64::try_from(left.clone())?, f64::try_from(right.clone())?)))
}

/// What filters, tests and functions cannot do without, besides what they are asked about.
const NEEDS: [(&str, &[&str]); 20] = [
    ("attr", &["name"]),
    ("batch", &["count"]),
    ("catalog", &["type"]),
    ("divisibleby", &["number"]),
    ("endingwith", &["text"]),
    ("eq", &["other"]),
    ("ge", &["other"]),
    ("groupby", &["attribute"]),
    ("gt", &["other"]),
    ("in", &["values"]),
    ("le", &["other"]),
    ("lt", &["other"]),
    ("ne", &["other"]),
    ("overlaid", &["upper"]),
    ("range", &["end"]),
    ("rejectattr", &["attribute"]),
    ("replace", &["from", "to"]),
    ("selectattr", &["attribute"]),
    ("slice", &["count"]),
    ("startingwith", &["text"]),
];

/// Names for suggestions.
const FILTER_NAMES: [&str; 46] = [
    "abs",
    "attr",
    "batch",
    "bool",
    "capitalize",
    "count",
    "d",
    "default",
    "dictsort",
    "first",
    "float",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "lines",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "overlaid",
    "quote",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "split",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "unique",
    "upper",
    "zip",
    "chain",
];

fn add_filters(environment: &mut Environment<'static>, meter: &Arc<Meter>) {
    // What only looks at its input, or makes something no larger than it.
    let plain: [(&'static str, Value); 37] = [
        ("abs", Value::from_function(filters::abs)),
        ("attr", Value::from_function(filters::attr)),
        ("batch", Value::from_function(filters::batch)),
        ("bool", Value::from_function(filters::bool)),
        ("capitalize", Value::from_function(filters::capitalize)),
        ("chain", Value::from_function(filters::chain)),
        ("count", Value::from_function(filters::length)),
        ("dictsort", Value::from_function(filters::dictsort)),
        ("first", Value::from_function(filters::first)),
        ("float", Value::from_function(filters::float)),
        ("groupby", Value::from_function(filters::groupby)),
        ("int", Value::from_function(filters::int)),
        ("items", Value::from_function(filters::items)),
        ("last", Value::from_function(filters::last)),
        ("length", Value::from_function(filters::length)),
        ("lines", Value::from_function(filters::lines)),
        ("list", Value::from_function(filters::list)),
        ("lower", Value::from_function(filters::lower)),
        ("map", Value::from_function(filters::map)),
        ("max", Value::from_function(filters::max)),
        ("min", Value::from_function(filters::min)),
        ("reject", Value::from_function(filters::reject)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("reverse", Value::from_function(filters::reverse)),
        ("round", Value::from_function(filters::round)),
        ("safe", Value::from_function(filters::safe)),
        ("select", Value::from_function(filters::select)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("slice", Value::from_function(filters::slice)),
        ("sort", Value::from_function(filters::sort)),
        ("split", Value::from_function(filters::split)),
        ("sum", Value::from_function(filters::sum)),
        ("title", Value::from_function(filters::title)),
        ("trim", Value::from_function(filters::trim)),
        ("unique", Value::from_function(filters::unique)),
        ("upper", Value::from_function(filters::upper)),
        ("zip", Value::from_function(filters::zip)),
    ];
    for (name, filter) in plain {
        let metered = meter.clone();
        environment.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            if args.first().is_some_and(Value::is_undefined) {
                return Err(undefined(name));
            }
            // Its result is at most a copy of the input, which is paid before it is made.
            for input in args.iter() {
                match input.as_str() {
                    Some(text) => metered.charge(text.len())?,
                    None => weigh(&metered, input, true)?,
                }
            }
            // These two make as many lists, or entries of one, as their count says.
            if let ("batch" | "slice", Some(count)) = (name, args.get(1)) {
                let count = usize::try_from(count.clone()).unwrap_or(usize::MAX);
                metered.charge(count.saturating_mul(4 * size_of::<Value>()))?;
            }
            filter.call(state, &args)
        });
    }
    environment.add_filter("default", filters::default);
    environment.add_filter("d", filters::default);
    add_text_filters(environment, meter);
}

fn add_text_filters(environment: &mut Environment<'static>, meter: &Arc<Meter>) {
    for name in ["tojson", "quote"] {
        let metered = meter.clone();
        environment.add_filter(name, move |value: Value| json(&metered, &value, name));
    }
    let metered = meter.clone();
    environment.add_filter("string", move |value: Value| {
        if value.is_undefined() { Err(undefined("string")) } else { text_of_value(&metered, &value) }
    });
    let metered = meter.clone();
    environment.add_filter("join", move |values: Value, separator: Option<String>| {
        if values.is_undefined() {
            return Err(undefined("join"));
        }
        let separator = separator.unwrap_or_default();
        let mut out = String::new();
        for (at, value) in values.try_iter()?.enumerate() {
            if value.is_undefined() {
                return Err(undefined("join"));
            }
            if at > 0 {
                metered.charge(separator.len())?;
                out.push_str(&separator);
            }
            out.push_str(&text_of_value(&metered, &value)?);
        }
        Ok(out)
    });
    let metered = meter.clone();
    environment.add_filter("replace", move |text: Value, from: String, to: String| {
        if text.is_undefined() {
            return Err(undefined("replace"));
        }
        let text = text_of_value(&metered, &text)?;
        let hits = if from.is_empty() { text.chars().count() + 1 } else { text.matches(&from).count() };
        metered.charge(text.len().saturating_add(hits.saturating_mul(to.len())))?;
        Ok(text.replace(&from, &to))
    });
    let metered = meter.clone();
    environment.add_filter("indent", move |text: Value, width: Option<u32>, kwargs: Kwargs| {
        if text.is_undefined() {
            return Err(undefined("indent"));
        }
        let width = width.map_or_else(|| kwargs.get("width"), Ok).unwrap_or(4).min(100) as usize;
        let first: bool = kwargs.get::<Option<bool>>("first")?.unwrap_or(false);
        kwargs.assert_all_used()?;
        let text = text_of_value(&metered, &text)?;
        metered.charge(text.len().saturating_add(text.lines().count().saturating_mul(width)))?;
        let pad = " ".repeat(width);
        let mut out = String::new();
        for (at, line) in text.split_inclusive('\n').enumerate() {
            if !line.trim().is_empty() && (at > 0 || first) {
                out.push_str(&pad);
            }
            out.push_str(line);
        }
        Ok(out)
    });
    let metered = meter.clone();
    environment.add_filter("overlaid", move |lower: Value, upper: Value, fields: Rest<String>| {
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        overlaid(&metered, &lower, &upper, if fields.is_empty() { &["key"] } else { &fields })
    });
}

/// JSON, which is also YAML that nothing inside the value can break.
fn json(meter: &Meter, value: &Value, name: &str) -> Result<Value, Error> {
    if value.is_undefined() {
        return Err(undefined(name));
    }
    weigh(meter, value, false)?;
    let mut out = Capped { text: Vec::new() };
    serde_json::to_writer(&mut out, value).map_err(|error| match error.is_io() {
        true => too_much(),
        false => Error::new(ErrorKind::BadSerialization, error.to_string()),
    })?;
    meter.charge(out.text.len())?;
    Ok(Value::from_safe_string(String::from_utf8_lossy(&out.text).into_owned()))
}

/// Two lists of tables as one: entries of `lower` whose `field` also occurs in `upper` give way to those.
fn overlaid(meter: &Meter, lower: &Value, upper: &Value, fields: &[&str]) -> Result<Value, Error> {
    if lower.is_undefined() || upper.is_undefined() {
        return Err(undefined("overlaid"));
    }
    let name_of = |entry: &Value| -> Result<Vec<Value>, Error> {
        fields.iter().map(|field| entry.get_attr(field)).collect()
    };
    let names: Vec<Vec<Value>> = upper.try_iter()?.map(|entry| name_of(&entry)).collect::<Result<_, _>>()?;
    let mut out = Vec::new();
    for entry in lower.try_iter()? {
        let name = name_of(&entry)?;
        meter.look(names.len() * fields.len())?;
        if !names.contains(&name) {
            out.push(entry);
        }
    }
    out.extend(upper.try_iter()?);
    meter.charge(out.len() * size_of::<Value>())?;
    Ok(Value::from(out))
}

fn add_tests(environment: &mut Environment<'static>, meter: &Arc<Meter>) {
    use minijinja::tests;
    let plain: [(&'static str, Value); 23] = [
        ("none", Value::from_function(tests::is_none)),
        ("boolean", Value::from_function(tests::is_boolean)),
        ("odd", Value::from_function(tests::is_odd)),
        ("even", Value::from_function(tests::is_even)),
        ("divisibleby", Value::from_function(tests::is_divisibleby)),
        ("number", Value::from_function(tests::is_number)),
        ("integer", Value::from_function(tests::is_integer)),
        ("float", Value::from_function(tests::is_float)),
        ("string", Value::from_function(tests::is_string)),
        ("sequence", Value::from_function(tests::is_sequence)),
        ("iterable", Value::from_function(tests::is_iterable)),
        ("mapping", Value::from_function(tests::is_mapping)),
        ("startingwith", Value::from_function(tests::is_startingwith)),
        ("endingwith", Value::from_function(tests::is_endingwith)),
        ("eq", Value::from_function(tests::is_eq)),
        ("ne", Value::from_function(tests::is_ne)),
        ("lt", Value::from_function(tests::is_lt)),
        ("le", Value::from_function(tests::is_le)),
        ("gt", Value::from_function(tests::is_gt)),
        ("ge", Value::from_function(tests::is_ge)),
        ("in", Value::from_function(tests::is_in)),
        ("true", Value::from_function(tests::is_true)),
        ("false", Value::from_function(tests::is_false)),
    ];
    for (name, test) in plain {
        let metered = meter.clone();
        environment.add_test(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            if let Some(at) = args.iter().position(Value::is_undefined) {
                return Err(undefined(&format!("{ARGUMENT}{at}")));
            }
            args.iter().try_for_each(|looked| look(&metered, looked))?;
            Ok::<_, Error>(test.call(state, &args)?.is_true())
        });
    }
    // The ones that are about being there.
    environment.add_test("defined", |value: &Value| !value.is_undefined());
    environment.add_test("undefined", |value: &Value| value.is_undefined());
}
