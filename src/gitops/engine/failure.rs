//! Why a template did not render, in the words and at the places of the files that people wrote.

use std::ops::Range;
use std::sync::Arc;

use minijinja::{Error, ErrorKind};

use super::offered::{ARGUMENT, FILTER_NAMES, NAMED, NEEDS, STANDS};
use super::{Engine, FUEL, FUEL_TOTAL};
use crate::gitops::diagnostic::{Diagnostic, Place, Source, listed};
use crate::gitops::fleet::{TEMPLATES, refused};
use crate::gitops::lock;
use crate::gitops::meter::{OUTPUT_MAX, TOO_MUCH, TOO_MUCH_LOOKING};
use crate::model::near::nearest;

/// Why a template did not render.
#[derive(Debug)]
pub(crate) enum Failure {
    /// It cannot be rendered; `undefined` is the expression that was not defined.
    Mistake { diagnostic: Diagnostic, undefined: Option<String> },
    /// It may be right: the templates that fail have left it too few instructions to come to its end.
    Unfinished,
}

impl Engine {
    /// The renderings before have used up what an environment may burn.
    pub(super) fn exhausted(&self, name: &str) -> Failure {
        let source = self.traced.get(name).map(|traced| traced.source.clone());
        let place = Place::start_of(&source.unwrap_or_else(|| Source::nameless_text(name.to_owned())));
        let message =
            format!("the templates of this environment run for more than {FUEL_TOTAL} instructions together");
        let diagnostic = Diagnostic::error("PRV1404", place, message)
            .help("a template that many pools use should do little: compute values once, in `variables`");
        Failure::Mistake { diagnostic, undefined: None }
    }

    /// An engine's error in the words and positions of the original templates.
    pub(super) fn failure(&self, error: &Error) -> Failure {
        // The outermost is only about the block that includes the template.
        let mut chain = vec![source_of(error).unwrap_or(error)];
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
        let undefined = match cause.kind() {
            ErrorKind::UndefinedError => {
                Some(diagnostic.place.source.text[diagnostic.place.bytes()].to_owned())
            }
            _ => None,
        };
        Failure::Mistake { diagnostic, undefined }
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
        let is_of_arguments = matches!(
            error.kind(),
            ErrorKind::InvalidOperation | ErrorKind::MissingArgument | ErrorKind::TooManyArguments
        );
        if is_of_arguments && let Some(misnamed) = misnamed(&place) {
            return misnamed;
        }
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
        let start = place.start as usize;
        let (name, _) = parted_name(&place.source.text[start..]);
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

/// What a filter, a test or a function at `place` is given by a name that it does not know.
fn misnamed(place: &Place) -> Option<Diagnostic> {
    let (name, behind) = parted_name(&place.source.text[place.start as usize..]);
    let of = |table: &[(&str, &'static [&'static str])]| {
        table.iter().find(|(known, _)| *known == name).map(|(_, arguments)| *arguments)
    };
    let (wanted, named) = (of(&NEEDS), of(&NAMED));
    if wanted.is_none() && named.is_none() && !FILTER_NAMES.contains(&name) {
        return None;
    }
    let named = named.unwrap_or_default();
    let argument = names_given(behind).into_iter().find(|argument| !named.contains(argument))?;
    let message = format!("`{name}` takes no argument by the name `{argument}`");
    let help = match (wanted, named) {
        (Some(wanted), []) => {
            format!("it is used as `{name}({})`, with values in the place of names", wanted.join(", "))
        }
        (_, named @ [_, ..]) => format!("by name it takes {}", listed(named.iter().copied())),
        (None, []) => "its arguments have no names: write the values alone, in their order".to_owned(),
    };
    Some(Diagnostic::error("PRV1409", place.clone(), message).help(help))
}

/// The name that a text begins with, and what is behind it.
fn parted_name(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len()))
}

/// The names of arguments in the call whose brackets a text begins with.
fn names_given(text: &str) -> Vec<&str> {
    let Some(inside) = text.trim_start().strip_prefix('(') else { return Vec::new() };
    let (mut names, mut depth, mut quote, mut begin) = (Vec::new(), 0, None, 0);
    let mut was_escaped = false;
    for (at, letter) in inside.char_indices() {
        match (quote, letter) {
            (Some(open), _) => {
                quote = Some(open).filter(|open| *open != letter || was_escaped);
                was_escaped = letter == '\\' && !was_escaped;
            }
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(' | '[' | '{') => depth += 1,
            (None, ')' | ']' | '}') if depth == 0 => break,
            (None, ')' | ']' | '}') => depth -= 1,
            (None, ',') if depth == 0 => begin = at + 1,
            (None, '=') if depth == 0 => {
                // A comparison has more than a name before its sign, or another sign behind.
                let (name, gap) = parted_name(inside[begin..at].trim_start());
                if !name.is_empty() && gap.trim().is_empty() && !inside[at + 1..].starts_with('=') {
                    names.push(name);
                }
                begin = inside.len().min(at + 1);
            }
            _ => {}
        }
    }
    names
}

/// Whether it was stopped for its instructions.
pub(super) fn is_out_of_fuel(error: &Error) -> bool {
    error.kind() == ErrorKind::OutOfFuel || source_of(error).is_some_and(is_out_of_fuel)
}

/// Whether it was stopped for something else that it costs.
pub(super) fn is_limit(error: &Error) -> bool {
    let detail = error.detail().unwrap_or_default();
    error.kind() == ErrorKind::WriteFailure
        || detail.starts_with(TOO_MUCH)
        || detail.starts_with(TOO_MUCH_LOOKING)
        || source_of(error).is_some_and(is_limit)
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

pub(super) fn unquoted(place: Place) -> Diagnostic {
    let text = place.source.text[place.bytes()].to_owned();
    Diagnostic::warning("PRV1410", place, format!("`{text}` goes into YAML without quotes"))
        .help(format!("write `{text} | tojson`, so that `: `, `#` and quotes in it do no harm"))
}

pub(super) fn syntax(source: &Arc<Source>, error: &Error) -> Diagnostic {
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
