//! The annotations about rolls on a NodePool. What cannot be read lets nothing be rolled, so every mistake is told.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::model::label::{Labels, annotation};
use crate::model::pool::{BudgetNodes, NodePool};
use crate::model::roll::{Roll, RollFailures, RollFault};
use crate::model::symbol::Symbol;
use crate::model::time::{parse_duration, render_duration};

/// The longest text that is looked at.
const TEXT_MAX: usize = 1024;
const CANARY_MAX: u32 = 1000;
const HALT_AFTER_MAX: u32 = 1000;

/// The words, as a strategy has them, too.
pub(crate) const KEYS: [&str; 5] = ["paused", "canary", "soak", "surge", "halt-after"];

/// What is wrong with the text, and with which of its words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RollError {
    pub key: Option<&'static str>,
    pub message: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Written {
    paused: Option<bool>,
    canary: Option<u32>,
    soak: Option<String>,
    surge: Option<Value>,
    halt_after: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFailures {
    failures: u32,
    goal: String,
}

/// Reads what a person says of a roll: a table in JSON.
pub(crate) fn parse(text: &str) -> Result<Roll, RollError> {
    let of_all = |message: String| RollError { key: None, message };
    if text.len() > TEXT_MAX {
        return Err(of_all(format!("it is longer than {TEXT_MAX} bytes")));
    }
    // Read twice: the one knows words that come twice, the other those that are there and say nothing.
    let written: Written = serde_json::from_str(text).map_err(|error| of_all(error.to_string()))?;
    let given: Map<String, Value> = serde_json::from_str(text).map_err(|error| of_all(error.to_string()))?;
    if let Some((key, _)) = given.iter().find(|(_, value)| value.is_null()) {
        return Err(of_all(format!("`{key}` is null")));
    }
    let default = Roll::default();
    let canary = bounded("canary", written.canary, 0, CANARY_MAX)?;
    let halt_after = bounded("halt-after", written.halt_after, 1, HALT_AFTER_MAX)?;
    let soak = written.soak.map(|text| parse_duration(&text)).transpose();
    let soak = soak.map_err(|error| RollError { key: Some("soak"), message: error.to_string() })?;
    Ok(Roll {
        is_paused: written.paused.unwrap_or(default.is_paused),
        canary: canary.unwrap_or(default.canary),
        soak: soak.unwrap_or(default.soak),
        surge: written.surge.as_ref().map(surge).transpose()?,
        halt_after: halt_after.unwrap_or(default.halt_after),
    })
}

fn bounded(key: &'static str, value: Option<u32>, least: u32, most: u32) -> Result<Option<u32>, RollError> {
    match value {
        Some(number) if !(least..=most).contains(&number) => {
            Err(RollError { key: Some(key), message: format!("{number} is not from {least} to {most}") })
        }
        value => Ok(value),
    }
}

/// A number of nodes or a part of them, at least one.
fn surge(value: &Value) -> Result<BudgetNodes, RollError> {
    let read = match value {
        Value::Number(number) => {
            number.as_u64().and_then(|count| u32::try_from(count).ok()).map(BudgetNodes::Count)
        }
        Value::String(text) => super::nodepool::parse_budget_nodes(text),
        _ => None,
    };
    let error = |message: String| RollError { key: Some("surge"), message };
    match read {
        Some(BudgetNodes::Count(0) | BudgetNodes::Percent(0)) => {
            Err(error("with 0 nothing could ever be replaced; `paused` holds a roll back".into()))
        }
        Some(nodes) => Ok(nodes),
        None => {
            Err(error(format!("{value} is neither a number of nodes nor a percentage of them, up to 100%")))
        }
    }
}

/// What the annotations of a pool say of its rolls, and of those that failed.
pub(crate) fn read(annotations: &Labels) -> (Result<Roll, RollFault>, Option<RollFailures>) {
    let fault = |key: Symbol, text: Symbol, error: RollError| {
        let word = error.key.map_or_else(String::new, |key| format!("{key}: "));
        RollFault { key, text, message: Symbol::new(&format!("{word}{}", error.message)) }
    };
    let roll = annotations
        .get(&*annotation::ROLL)
        .map(|text| parse(text).map_err(|error| fault(*annotation::ROLL, *text, error)));
    let failures = annotations.get(&*annotation::ROLL_FAILURES).map(|text| {
        let read: Result<WrittenFailures, _> = serde_json::from_str(text.as_str());
        let failures =
            read.map(|read| RollFailures { count: read.failures, goal: read.goal.as_str().into() });
        let error = |error: serde_json::Error| RollError { key: None, message: error.to_string() };
        failures.map_err(|why| fault(*annotation::ROLL_FAILURES, *text, error(why)))
    });
    let roll = roll.unwrap_or(Ok(Roll::default()));
    match failures.transpose() {
        Ok(failures) => (roll, failures.filter(|failures| failures.count > 0)),
        Err(fault) => (roll.and(Err(fault)), None),
    }
}

/// The annotations that [`read`] makes the same of.
pub(crate) fn annotations(pool: &NodePool) -> Map<String, Value> {
    let mut annotations = Map::new();
    match &pool.roll {
        Ok(roll) if *roll == Roll::default() => {}
        Ok(roll) => drop(annotations.insert(annotation::ROLL.to_string(), render(roll).into())),
        Err(fault) => drop(annotations.insert(fault.key.to_string(), fault.text.as_str().into())),
    }
    if let Some(text) = pool.roll_failures.as_ref().and_then(render_failures) {
        annotations.insert(annotation::ROLL_FAILURES.to_string(), text.into());
    }
    annotations
}

fn render(roll: &Roll) -> String {
    let mut written = json!({
        "paused": roll.is_paused,
        "canary": roll.canary,
        "soak": render_duration(roll.soak),
        "halt-after": roll.halt_after,
    });
    if let Some(surge) = roll.surge {
        written["surge"] = match surge {
            BudgetNodes::Count(count) => count.into(),
            BudgetNodes::Percent(share) => format!("{share}%").into(),
        };
    }
    written.to_string()
}

/// `None`: there is nothing to remember, so that the annotation goes.
pub(crate) fn render_failures(failures: &RollFailures) -> Option<String> {
    let text = json!({ "failures": failures.count, "goal": failures.goal.as_str() }).to_string();
    (failures.count > 0).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::SignedDuration;

    #[test]
    fn what_is_given_is_read_and_the_rest_is_as_usual() {
        assert_eq!(parse("{}"), Ok(Roll::default()));
        let all = parse(r#"{"canary":2,"soak":"90s","surge":"20%","paused":true,"halt-after":5}"#).unwrap();
        let expected = Roll {
            is_paused: true,
            canary: 2,
            soak: SignedDuration::from_secs(90),
            surge: Some(BudgetNodes::Percent(20)),
            halt_after: 5,
        };
        assert_eq!(all, expected);
        assert_eq!(parse(r#"{"surge":3}"#).unwrap().surge, Some(BudgetNodes::Count(3)));
        assert_eq!(parse(r#"{"surge":"3"}"#).unwrap().surge, Some(BudgetNodes::Count(3)));
    }

    #[test]
    fn what_nobody_can_be_sure_of_is_refused() {
        for (text, key) in [
            ("", None),
            ("[]", None),
            ("true", None),
            (r#"{"pause":true}"#, None),
            (r#"{"paused":"yes"}"#, None),
            (r#"{"paused":null}"#, None),
            (r#"{"paused":false,"paused":true}"#, None),
            (r#"{"canary":-1}"#, None),
            (r#"{"canary":1.5}"#, None),
            (r#"{"canary":1001}"#, Some("canary")),
            (r#"{"soak":"10"}"#, Some("soak")),
            (r#"{"soak":"-1m"}"#, Some("soak")),
            (r#"{"surge":0}"#, Some("surge")),
            (r#"{"surge":"0%"}"#, Some("surge")),
            (r#"{"surge":"101%"}"#, Some("surge")),
            (r#"{"surge":-1}"#, Some("surge")),
            (r#"{"halt-after":0}"#, Some("halt-after")),
            (r#"{"canary":1} {"canary":0}"#, None),
        ] {
            let error = parse(text).expect_err(text);
            assert_eq!(error.key, key, "{text}: {}", error.message);
        }
        let long = format!(r#"{{"soak":"{}1m"}}"#, "0".repeat(TEXT_MAX));
        assert!(parse(&long).unwrap_err().message.contains("longer"));
    }

    #[test]
    fn failures_are_read_as_they_were_written_and_nothing_else_is() {
        let failures = RollFailures { count: 3, goal: "ab12".into() };
        let with = |key: Symbol, text: &str| read(&Labels::from([(key, text.into())]));
        let text = render_failures(&failures).unwrap();
        assert_eq!(with(*annotation::ROLL_FAILURES, &text), (Ok(Roll::default()), Some(failures)));
        assert_eq!(render_failures(&RollFailures { count: 0, ..failures }), None);
        for text in ["", "3", r#"{"failures":3}"#, r#"{"failures":-1,"goal":"a"}"#] {
            let (roll, failures) = with(*annotation::ROLL_FAILURES, text);
            assert_eq!((roll.map_err(|fault| fault.key), failures), (Err(*annotation::ROLL_FAILURES), None));
        }
    }
}
