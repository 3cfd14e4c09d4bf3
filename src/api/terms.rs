//! Our own words on a NodePool: annotations whose values are JSON, as the strategy file has them.

use jiff::SignedDuration;
use serde_json::Value;

use super::field::{Field, FieldError, Findings, Stage};
use crate::model::symbol::Symbol;
use crate::model::terms::{Return, Terms, Word};
use crate::model::time::parse_duration;

/// The words, as strategy files and, behind `provisor.dev/`, annotations name them.
pub(crate) const WORDS: [&str; 1] = ["return"];

/// The longest value that is read.
const TEXT_MAX: usize = 16 * 1024;
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
    Terms { returns: read_word(&annotations, "return", read_return) }
}

/// The words of `terms`, for the annotations of a rendered pool.
pub(crate) fn render(terms: &Terms) -> impl Iterator<Item = (String, Value)> {
    let returns = terms.returns.as_ref().map(|word| ("return", word.text));
    [returns].into_iter().flatten().map(|(word, text)| (annotation_of(word), text.as_str().into()))
}

/// What is wrong with `value`, which a strategy file has for `word`; paths begin below it.
pub(crate) fn faults(word: &str, value: &Value) -> Vec<FieldError> {
    let findings = Findings::default();
    let root = Field::root(value, &findings);
    if word == "return" {
        read_return(&root);
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
