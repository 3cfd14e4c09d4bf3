//! A person's yes to a plan, as it is read from the Environment object: `provisor.dev/confirm: DIGITS`.
//!
//! Nothing is written there, so a word stays after it was heard. It counts once: what was there already when the question was
//! asked is no answer to it, and what was heard is not heard again until somebody writes it anew. Who may write there is for
//! the cluster's own rules to say.

use serde_json::Value;

use super::tracking::{ANNOTATION_CONFIRM, annotation};

/// A word as it was written, and when the API server says that was.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Written {
    digits: String,
    /// Moments in seconds, one of each writer; empty for stores that keep no `managedFields`.
    at: Vec<String>,
}

/// Listens while something waits for a person.
#[derive(Debug, Default)]
pub struct Confirmations {
    /// What was there at the last look; `None` before the first.
    known: Option<Option<Written>>,
}

/// What a look at the object tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Nothing,
    /// Older than the question.
    TooOld {
        digits: String,
    },
    /// Somebody says yes to the plan of these digits.
    Yes {
        digits: String,
    },
}

impl Confirmations {
    /// Nothing waits any more: what is written now is no answer to the next question.
    pub fn end(&mut self) {
        self.known = None;
    }

    /// Looks at the Environment object; `None` if nobody made one.
    pub fn look(&mut self, object: Option<&Value>) -> Heard {
        let written = object.and_then(written);
        let known = self.known.replace(written.clone());
        let Some(word) = written else { return Heard::Nothing };
        match known {
            None => Heard::TooOld { digits: word.digits },
            Some(Some(former)) if former == word => Heard::Nothing,
            Some(_) => Heard::Yes { digits: word.digits },
        }
    }
}

fn written(object: &Value) -> Option<Written> {
    let digits = annotation(object, ANNOTATION_CONFIRM)?.trim().to_owned();
    let field = format!("f:{ANNOTATION_CONFIRM}");
    let writes = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    let ours = writes
        .into_iter()
        .flatten()
        .filter(|write| write["fieldsV1"]["f:metadata"]["f:annotations"].get(&field).is_some());
    let at = ours.filter_map(|write| write["time"].as_str().map(str::to_owned)).collect();
    (!digits.is_empty()).then_some(Written { digits, at })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn annotated(digits: &str, at: &str) -> Value {
        json!({ "metadata": {
            "annotations": { ANNOTATION_CONFIRM: digits },
            "managedFields": [
                { "manager": "argocd", "time": "2026-03-04T10:00:00Z", "fieldsV1": { "f:spec": {} } },
                { "manager": "kubectl-annotate", "time": at, "fieldsV1": {
                    "f:metadata": { "f:annotations": { format!("f:{ANNOTATION_CONFIRM}"): {} } },
                } },
            ],
        } })
    }

    fn yes(digits: &str) -> Heard {
        Heard::Yes { digits: digits.into() }
    }

    #[test]
    fn a_word_counts_once_and_only_after_the_question() {
        let mut heard = Confirmations::default();
        let early = annotated("abcdef0", "2026-03-04T10:00:00Z");
        assert_eq!(heard.look(Some(&early)), Heard::TooOld { digits: "abcdef0".into() });
        assert_eq!(heard.look(Some(&early)), Heard::Nothing, "told once");
        let again = annotated("abcdef0", "2026-03-04T10:00:07Z");
        assert_eq!(heard.look(Some(&again)), yes("abcdef0"), "the same digits, written anew");
        assert_eq!(heard.look(Some(&again)), Heard::Nothing);
        assert_eq!(heard.look(Some(&annotated("1234567", "2026-03-04T10:00:07Z"))), yes("1234567"));
        // The plan is carried out; months later one of the same digits waits.
        heard.end();
        let left = annotated("1234567", "2026-03-04T10:00:07Z");
        assert_eq!(heard.look(Some(&left)), Heard::TooOld { digits: "1234567".into() });
        assert_eq!(heard.look(Some(&json!({ "metadata": {} }))), Heard::Nothing);
        assert_eq!(heard.look(Some(&left)), yes("1234567"), "taken away and written again");
    }

    #[test]
    fn an_object_that_is_made_for_the_answer_counts() {
        let mut heard = Confirmations::default();
        assert_eq!((heard.look(None), heard.look(None)), (Heard::Nothing, Heard::Nothing));
        assert_eq!(heard.look(Some(&annotated(" abcdef0\n", "2026-03-04T10:00:00Z"))), yes("abcdef0"));
        assert_eq!(heard.look(Some(&annotated(" ", "2026-03-04T10:00:01Z"))), Heard::Nothing);
    }
}
