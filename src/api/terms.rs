//! Our own words on a NodePool: annotations whose values are JSON, as the strategy file has them.

use std::str::FromStr;

use jiff::SignedDuration;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::field::{Field, FieldError, Findings, Stage};
use super::nodepool::parse_budget_nodes;
use crate::model::pool::{BudgetNodes, DisruptionReason};
use crate::model::symbol::Symbol;
use crate::model::terms::{Expiration, Return, Terms, Word};
use crate::model::time::parse_duration;
use crate::model::window::{self, Clock, Days, REASONS, Window, WindowKind, Windows};

/// The words, as strategy files and, behind `provisor.dev/`, annotations name them.
pub(crate) const WORDS: [&str; 3] = ["return", "windows", "expiration"];

/// The longest value that is read.
const TEXT_MAX: usize = 16 * 1024;
/// The most windows of one pool.
const WINDOWS_MAX: usize = 50;
/// The longest wait, about ten years: what is longer is a slip.
const WAIT_MAX: SignedDuration = SignedDuration::from_hours(10 * 366 * 24);

/// The annotation that carries `word`.
pub(crate) fn annotation_of(word: &str) -> String {
    format!("provisor.dev/{word}")
}

/// The words of the pool `object`.
pub(crate) fn read(object: &Field<'_, '_>) -> Terms {
    let metadata = object.get("metadata");
    let annotations = metadata.get("annotations");
    Terms {
        returns: read_word(&annotations, "return", read_return),
        windows: read_word(&annotations, "windows", read_windows),
        expiration: read_word(&annotations, "expiration", read_expiration),
    }
}

/// The words of `terms`, for the annotations of a rendered pool.
pub(crate) fn render(terms: &Terms) -> impl Iterator<Item = (String, Value)> {
    let returns = terms.returns.as_ref().map(|word| ("return", word.text));
    let windows = terms.windows.as_ref().map(|word| ("windows", word.text));
    let expiration = terms.expiration.as_ref().map(|word| ("expiration", word.text));
    [returns, windows, expiration]
        .into_iter()
        .flatten()
        .map(|(word, text)| (annotation_of(word), text.as_str().into()))
}

/// What is wrong with `value`, which a strategy file has for `word`; paths begin below it.
pub(crate) fn faults(word: &str, value: &Value) -> Vec<FieldError> {
    let findings = Findings::default();
    let root = Field::root(value, &findings);
    match word {
        "return" => drop(read_return(&root)),
        "windows" => drop(read_windows(&root)),
        "expiration" => drop(read_expiration(&root)),
        _ => {}
    }
    let mut errors = findings.into_errors();
    errors.sort();
    errors
}

fn read_word<T>(
    annotations: &Field<'_, '_>,
    word: &str,
    read: impl Fn(&Field<'_, '_>) -> Option<T>,
) -> Option<Word<T>> {
    let key = annotation_of(word);
    let annotation = annotations.get(&key);
    let text = annotation.text()?;
    let meaning = meaning_of(text, read);
    if let Err(why) = &meaning {
        let help = format!("correct it, or take it away; in a strategy file it is `{word}` of the pool");
        annotation.note(Stage::Terms, format!("cannot be read: {why}"), Some(help));
    }
    Some(Word { text: Symbol::new(text), meaning: meaning.map_err(|why| Symbol::new(&why)) })
}

fn meaning_of<T>(text: &str, read: impl Fn(&Field<'_, '_>) -> Option<T>) -> Result<T, String> {
    if text.len() > TEXT_MAX {
        return Err(format!("it has {} bytes; {TEXT_MAX} is the most", text.len()));
    }
    let value: Value = serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    let findings = Findings::default();
    let found = read(&Field::root(&value, &findings));
    let mut errors = findings.into_errors();
    errors.sort();
    let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
    match found {
        Some(found) if told.is_empty() => Ok(found),
        _ if told.is_empty() => Err("it says nothing".into()),
        _ => Err(told.join("; ")),
    }
}

fn read_return(value: &Field<'_, '_>) -> Option<Return> {
    if !value.only(&["after"]) {
        return None;
    }
    let after = value.get("after");
    match after.is_present() {
        true => Some(Return { after: read_wait(&after)? }),
        false => Some(Return { after: Some(Return::AFTER_DEFAULT) }),
    }
}

/// What a strategy file has of expiration as `value`; `None` if anything about it is wrong.
pub(crate) fn expiration_of(value: &Value) -> Option<Expiration> {
    let findings = Findings::default();
    let found = read_expiration(&Field::root(value, &findings));
    found.filter(|_| findings.into_errors().is_empty())
}

fn read_expiration(value: &Field<'_, '_>) -> Option<Expiration> {
    if !value.only(&["jitter", "replace-first", "nodes", "deadline"]) {
        return None;
    }
    let usual = Expiration::default();
    let jitter = read_parsed(&value.get("jitter"), Percent(usual.jitter));
    let replaces_first = value.get("replace-first");
    let (nodes, deadline) = (value.get("nodes"), value.get("deadline"));
    Some(Expiration {
        jitter: jitter?.0,
        replaces_first: match replaces_first.is_present() {
            true => replaces_first.boolean()?,
            false => usual.replaces_first,
        },
        nodes: if nodes.is_present() { Some(read_nodes(&nodes)?) } else { usual.nodes },
        deadline: if deadline.is_present() { read_wait(&deadline)? } else { usual.deadline },
    })
}

/// A number of nodes or a percentage of them.
fn read_nodes(nodes: &Field<'_, '_>) -> Option<BudgetNodes> {
    let written = nodes.written();
    let found = parse_budget_nodes(&written);
    if found.is_none() {
        let help = "write it like \"5\" or \"10%\", up to 100%";
        nodes.error_with_help(format!("`{written}` is neither a number of nodes nor a percentage"), help);
    }
    found
}

/// A part of a lifetime.
struct Percent(u8);

impl FromStr for Percent {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let most = Expiration::JITTER_MOST;
        let digits = text.strip_suffix('%').filter(|digits| {
            (1..=2).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_digit())
        });
        let part = digits.and_then(|digits| digits.parse::<u8>().ok()).filter(|part| *part <= most);
        part.map(Self).ok_or_else(|| format!("`{text}` is no percentage from 0% to {most}%"))
    }
}

/// The windows that a strategy file has as `value`; `None` if anything about them is wrong.
pub(crate) fn windows_of(value: &Value) -> Option<Windows> {
    let findings = Findings::default();
    let found = read_windows(&Field::root(value, &findings));
    found.filter(|_| findings.into_errors().is_empty())
}

fn read_windows(value: &Field<'_, '_>) -> Option<Windows> {
    value.at_most(WINDOWS_MAX);
    let windows: Vec<Option<Window>> = value.items().map(|window| read_window(&window)).collect();
    let is_list = value.value().is_some_and(Value::is_array);
    windows.into_iter().collect::<Option<Vec<Window>>>().filter(|_| is_list).map(Windows)
}

fn read_window(window: &Field<'_, '_>) -> Option<Window> {
    if !window.only(&["kind", "reasons", "days", "from", "until", "time-zone"]) {
        return None;
    }
    let kind = match window.get("kind").required().choice(&["allow", "deny"]) {
        Some("allow") => Some(WindowKind::Allow),
        Some(_) => Some(WindowKind::Deny),
        None => None,
    };
    let words = REASONS.map(DisruptionReason::as_str);
    let of_reason = |reason: Field<'_, '_>| reason.choice(&words).and_then(DisruptionReason::parse);
    let reasons: Vec<Option<DisruptionReason>> = window.get("reasons").items().map(of_reason).collect();
    let days = read_parsed(&window.get("days"), Days::ALL);
    let (from, until) = (window.get("from"), window.get("until"));
    let begins = read_parsed(&from, Clock::MIDNIGHT);
    let ends = read_parsed(&until, Clock::END_OF_DAY);
    if begins == Some(Clock::END_OF_DAY) {
        from.error_with_help("is the end of a day".into(), "write `00:00`, and the days after");
    } else if begins.is_some() && begins == ends {
        until.error_with_help(
            "is when the window begins, so it has no length".into(),
            "leave out both `from` and `until` for whole days",
        );
    }
    let zone = read_zone(&window.get("time-zone"));
    Some(Window {
        kind: kind?,
        reasons: reasons.into_iter().collect::<Option<_>>()?,
        days: days?,
        from: begins?,
        until: ends?,
        zone: zone?,
    })
}

/// `default` if nothing is there.
fn read_parsed<T: FromStr<Err = String>>(field: &Field<'_, '_>, default: T) -> Option<T> {
    if !field.is_present() {
        return Some(default);
    }
    match field.text()?.parse() {
        Ok(read) => Some(read),
        Err(why) => {
            field.error(why);
            None
        }
    }
}

fn read_zone(field: &Field<'_, '_>) -> Option<TimeZone> {
    if !field.is_present() {
        return Some(TimeZone::UTC);
    }
    let name = field.text()?;
    let found = window::zone(name);
    if found.is_none() {
        let help = match window::nearest_zone(name) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "write a name such as `Asia/Seoul`, or `UTC`".into(),
        };
        field.error_with_help(format!("`{name}` is no time zone of the IANA database"), &help);
    }
    found
}

/// A duration, or `never`.
fn read_wait(field: &Field<'_, '_>) -> Option<Option<SignedDuration>> {
    let text = field.text()?;
    if text.eq_ignore_ascii_case("never") {
        return Some(None);
    }
    read_duration(field, ", or `never`").map(Some)
}

/// `or`: what else could stand there.
fn read_duration(field: &Field<'_, '_>, or: &str) -> Option<SignedDuration> {
    match parse_duration(field.text()?) {
        Ok(duration) if duration <= WAIT_MAX => Some(duration),
        Ok(_) => {
            field.error(format!("is longer than ten years{or}"));
            None
        }
        Err(error) => {
            field.error(format!("{error}{or}"));
            None
        }
    }
}
