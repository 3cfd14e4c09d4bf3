//! Reading a JSON tree field by field while remembering where one is, so that every mistake of an object is found at once.
//!
//! A [`Field`] is a place in the tree, whether or not something is there. Its readers return `None` both for what is absent
//! and for what is wrong; what is wrong is also noted, with its path, in the [`Findings`] that all fields of an object share.

use std::cell::RefCell;
use std::fmt;

use jiff::Timestamp;
use serde_json::{Map, Value};

use crate::model::near::nearest;
use crate::model::quantity::{Quantity, ResourceName, Resources};
use crate::model::symbol::Symbol;

/// Who refuses a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// The API server: by schema or rule, before the object is stored.
    Admission,
    /// The controller: the object is stored and then reported as not valid.
    Runtime,
    /// Nobody: the API server drops a field that it does not know, so it has no effect.
    UnknownField,
    /// Nobody, for it is a word of ours: the pool is used, and what the word is about is not done.
    Terms,
}

/// What is wrong with one field.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct FieldError {
    /// Dotted, such as `spec.template.spec.requirements[0].operator`; empty for the object as a whole.
    pub path: String,
    pub message: String,
    /// What to do about it.
    pub help: Option<String>,
    pub stage: Stage,
    /// The key at the end of `path` is wrong, whatever stands there.
    pub is_of_key: bool,
}

impl fmt::Display for FieldError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.path.is_empty() {
            write!(out, "{}: ", self.path)?;
        }
        out.write_str(&self.message)?;
        match &self.help {
            Some(help) => write!(out, "; {help}"),
            None => Ok(()),
        }
    }
}

/// What was found wrong with an object so far.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    errors: RefCell<Vec<FieldError>>,
    /// Whoever printed the object writes `null` for what is not set, as programs in Go do.
    nulls_are_absent: bool,
}

impl Findings {
    /// For an object that a program printed: there `null` says no more than leaving the field out.
    pub(crate) fn of_printed() -> Self {
        Self { nulls_are_absent: true, ..Self::default() }
    }

    pub(crate) fn into_errors(self) -> Vec<FieldError> {
        self.errors.into_inner()
    }

    pub(crate) fn has(&self, stage: Stage) -> bool {
        self.errors.borrow().iter().any(|error| error.stage == stage)
    }

    /// All that belongs to `stage`, as one sentence; `None` if there is nothing.
    pub(crate) fn told(&self, stage: Stage) -> Option<Symbol> {
        let errors = self.errors.borrow();
        let messages: Vec<String> =
            errors.iter().filter(|error| error.stage == stage).map(ToString::to_string).collect();
        (!messages.is_empty()).then(|| Symbol::new(&messages.join("; ")))
    }
}

#[derive(Clone, Copy)]
enum Segment<'p> {
    Root,
    Key(&'p str),
    Index(usize),
}

/// A place in a JSON tree.
#[derive(Clone, Copy)]
pub(crate) struct Field<'p, 'v> {
    /// `None`: nothing there. `null` counts as nothing.
    value: Option<&'v Value>,
    segment: Segment<'p>,
    parent: Option<&'p Field<'p, 'v>>,
    findings: &'p Findings,
}

/// Fields that the API server fills when they are `null`; elsewhere it refuses `null`.
const DEFAULTED: [&str; 12] = [
    "disruption",
    "budgets",
    "nodes",
    "consolidateAfter",
    "consolidationPolicy",
    "expireAfter",
    "metadataOptions",
    "httpEndpoint",
    "httpProtocolIPv6",
    "httpPutResponseHopLimit",
    "httpTokens",
    "provisioningStrategy",
];

impl<'p, 'v> Field<'p, 'v> {
    pub(crate) fn root(value: &'v Value, findings: &'p Findings) -> Self {
        Self { value: Some(value), segment: Segment::Root, parent: None, findings }
    }

    // ------------------------------------------------------------------------------------------------- moving around

    pub(crate) fn get<'s>(&'s self, key: &'s str) -> Field<'s, 'v> {
        let value = self.value.and_then(|value| value.get(key)).filter(|value| !value.is_null());
        Field { value, segment: Segment::Key(key), parent: Some(self), findings: self.findings }
    }

    fn item<'s>(&'s self, index: usize, value: &'v Value) -> Field<'s, 'v> {
        Field {
            value: Some(value),
            segment: Segment::Index(index),
            parent: Some(self),
            findings: self.findings,
        }
    }

    pub(crate) fn is_present(&self) -> bool {
        self.value.is_some()
    }

    pub(crate) fn value(&self) -> Option<&'v Value> {
        self.value
    }

    /// The elements of a list; none if it is absent or no list.
    pub(crate) fn items<'s>(&'s self) -> impl Iterator<Item = Field<'s, 'v>> + use<'s, 'p, 'v> {
        let list = match self.value {
            Some(Value::Array(list)) => list.as_slice(),
            Some(other) => {
                self.wrong_type("a list", other);
                &[]
            }
            None => &[],
        };
        list.iter().enumerate().map(|(index, value)| self.item(index, value))
    }

    pub(crate) fn len(&self) -> usize {
        match self.value {
            Some(Value::Array(list)) => list.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    /// The entries of a map, in the order they were written.
    pub(crate) fn entries<'s>(&'s self) -> impl Iterator<Item = (&'v str, Field<'s, 'v>)> + use<'s, 'p, 'v> {
        self.map().into_iter().flatten().map(move |(key, value)| {
            let field = Field {
                value: Some(value),
                segment: Segment::Key(key),
                parent: Some(self),
                findings: self.findings,
            };
            (key.as_str(), field)
        })
    }

    pub(crate) fn map(&self) -> Option<&'v Map<String, Value>> {
        match self.value? {
            Value::Object(map) => Some(map),
            other => {
                self.wrong_type("a map", other);
                None
            }
        }
    }

    // -------------------------------------------------------------------------------------------------------- scalars

    pub(crate) fn text(&self) -> Option<&'v str> {
        match self.value? {
            Value::String(text) => Some(text),
            other => {
                let help = match other {
                    Value::Number(_) | Value::Bool(_) => Some(format!("put it in quotes: \"{other}\"")),
                    _ => None,
                };
                self.note(Stage::Admission, format!("must be text, but it is {}", describe(other)), help);
                None
            }
        }
    }

    /// What stands there, as it was written; empty for nothing.
    pub(crate) fn written(&self) -> String {
        match self.value {
            None => String::new(),
            Some(Value::String(text)) => text.clone(),
            Some(other) => other.to_string(),
        }
    }

    pub(crate) fn symbol(&self) -> Option<Symbol> {
        self.text().map(Symbol::new)
    }

    pub(crate) fn integer(&self) -> Option<i64> {
        let value = self.value?;
        // JSON does not tell 5 from 5.0; neither does the API server.
        let whole = value.as_i64().or_else(|| {
            value.as_f64().filter(|number| number.fract() == 0.0 && number.abs() < 9e15).map(|n| n as i64)
        });
        if whole.is_none() {
            self.wrong_type("a whole number", value);
        }
        whole
    }

    /// An integer within `range`.
    pub(crate) fn integer_in(&self, range: std::ops::RangeInclusive<i64>) -> Option<i64> {
        let number = self.integer()?;
        if range.contains(&number) {
            return Some(number);
        }
        let (low, high) = (range.start(), range.end());
        match *high {
            i64::MAX => self.error(format!("must be {low} or more, but it is {number}")),
            _ => self.error(format!("must be from {low} to {high}, but it is {number}")),
        }
        None
    }

    pub(crate) fn boolean(&self) -> Option<bool> {
        let value = self.value?;
        if value.as_bool().is_none() {
            self.wrong_type("true or false", value);
        }
        value.as_bool()
    }

    pub(crate) fn quantity(&self) -> Option<Quantity> {
        let text = match self.value? {
            Value::String(text) => text.clone(),
            Value::Number(number) if number.as_i64().is_some() => number.to_string(),
            other => {
                self.note(
                    Stage::Admission,
                    format!("must be a quantity, but it is {}", describe(other)),
                    Some("write a whole number, or text such as \"500m\" or \"4Gi\"".into()),
                );
                return None;
            }
        };
        match text.parse() {
            Ok(quantity) => Some(quantity),
            Err(error) => {
                self.error(format!("{error}"));
                None
            }
        }
    }

    /// A map of quantities by resource.
    pub(crate) fn resources(&self) -> Option<Resources> {
        self.value?;
        let mut resources = Resources::new();
        for (name, amount) in self.entries() {
            let name = ResourceName::new(name);
            let Some(quantity) = amount.quantity() else { continue };
            let quantity = name.amount(quantity);
            if quantity < 0 {
                amount.error("must not be negative: Kubernetes takes no such amount".into());
            } else {
                resources.set(name, quantity);
            }
        }
        Some(resources)
    }

    pub(crate) fn timestamp(&self) -> Option<Timestamp> {
        let text = self.text()?;
        match text.parse() {
            Ok(at) => Some(at),
            Err(_) => {
                self.error(format!("`{text}` is not a moment; write it like 2026-03-04T10:30:00Z"));
                None
            }
        }
    }

    /// One of `choices`, or nothing and a note that names them.
    pub(crate) fn choice(&self, choices: &[&'static str]) -> Option<&'static str> {
        let text = self.text()?;
        let chosen = choices.iter().find(|choice| **choice == text);
        if chosen.is_none() {
            let help = nearest(text, choices.iter().copied()).map(|near| format!("did you mean `{near}`?"));
            let message = format!("`{text}` is none of {}", choices.join(", "));
            self.note(Stage::Admission, message, help);
        }
        chosen.copied()
    }

    // --------------------------------------------------------------------------------------------------------- checks

    /// Checks that this is a map of no other fields than `known`, and says whether it is there.
    pub(crate) fn only(&self, known: &[&str]) -> bool {
        let Some(map) = self.map() else {
            return false;
        };
        for (key, value) in map {
            let field = Field {
                value: Some(value),
                segment: Segment::Key(key),
                parent: Some(self),
                findings: self.findings,
            };
            if !known.contains(&key.as_str()) {
                let help = moved(&field.path())
                    .or_else(|| {
                        nearest(key, known.iter().copied()).map(|near| format!("did you mean `{near}`?"))
                    })
                    .or_else(|| Some(format!("known here: {}", known.join(", "))));
                field.note_key(Stage::UnknownField, format!("there is no field `{key}`"), help);
            } else if value.is_null() && !self.findings.nulls_are_absent && !DEFAULTED.contains(&key.as_str())
            {
                let help = Some("give it a value or leave it out".into());
                field.note(Stage::Admission, "must not be empty (null)".into(), help);
            }
        }
        true
    }

    /// Notes that it is missing, unless it is there. A `null` that counts is noted by [`only`](Self::only).
    pub(crate) fn required(self) -> Self {
        let is_told = self.is_null() && !self.findings.nulls_are_absent;
        // What a missing parent should have held is not told as well.
        let has_parent = self.parent.is_none_or(|parent| parent.value.is_some());
        if self.value.is_none() && !is_told && has_parent {
            self.error("is required".into());
        }
        self
    }

    /// The same for a list: programs in Go print an empty one as `null`.
    pub(crate) fn required_list(self) -> Self {
        if self.is_null() { self } else { self.required() }
    }

    /// Whether `null` was written here.
    fn is_null(&self) -> bool {
        match (self.segment, self.parent.and_then(|parent| parent.value)) {
            (Segment::Key(key), Some(Value::Object(map))) => map.get(key).is_some_and(Value::is_null),
            _ => false,
        }
    }

    /// Text that is there and not empty.
    pub(crate) fn required_text(&self) -> Option<&'v str> {
        let text = self.required().text()?;
        if text.is_empty() {
            self.error("must not be empty".into());
            return None;
        }
        Some(text)
    }

    pub(crate) fn at_most(&self, count: usize) {
        if self.len() > count {
            self.error(format!("has {} entries; {count} is the most", self.len()));
        }
    }

    // ---------------------------------------------------------------------------------------------------------- notes

    /// The API server refuses this.
    pub(crate) fn error(&self, message: String) {
        self.note(Stage::Admission, message, None);
    }

    pub(crate) fn error_with_help(&self, message: String, help: &str) {
        self.note(Stage::Admission, message, Some(help.into()));
    }

    /// The API server stores this, and the controller then refuses it.
    pub(crate) fn runtime_error(&self, message: String) {
        self.note(Stage::Runtime, message, None);
    }

    pub(crate) fn note(&self, stage: Stage, message: String, help: Option<String>) {
        let error = FieldError { path: self.path(), message, help, stage, is_of_key: false };
        self.findings.errors.borrow_mut().push(error);
    }

    /// Whether this is the entry `key` of a map.
    pub(crate) fn is_entry(&self, key: &str) -> bool {
        matches!(self.segment, Segment::Key(own) if own == key)
    }

    /// The same where the key is wrong, and not what it has.
    pub(crate) fn note_key(&self, stage: Stage, message: String, help: Option<String>) {
        let error = FieldError { path: self.path(), message, help, stage, is_of_key: true };
        self.findings.errors.borrow_mut().push(error);
    }

    pub(crate) fn findings(&self) -> &'p Findings {
        self.findings
    }

    fn wrong_type(&self, wanted: &str, found: &Value) {
        self.error(format!("must be {wanted}, but it is {}", describe(found)));
    }

    pub(crate) fn path(&self) -> String {
        let mut path = self.parent.map(Field::path).unwrap_or_default();
        match self.segment {
            Segment::Root => {}
            Segment::Key(key) => {
                if !path.is_empty() {
                    path.push('.');
                }
                path.push_str(key);
            }
            Segment::Index(index) => path.push_str(&format!("[{index}]")),
        }
        path
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "empty (null)".into(),
        Value::Bool(flag) => format!("the boolean {flag}"),
        Value::Number(number) => format!("the number {number}"),
        Value::String(text) => format!("the text \"{text}\""),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "a map".into(),
    }
}

/// Where a field of an older version went.
fn moved(path: &str) -> Option<String> {
    let known = [
        ("spec.disruption.expireAfter", "v1 has it at spec.template.spec.expireAfter"),
        ("spec.template.spec.kubelet", "v1 has it on the EC2NodeClass, at spec.kubelet"),
        (
            "spec.template.spec.nodeClassRef.apiVersion",
            "v1 has `group` instead: the part before the slash, such as karpenter.k8s.aws",
        ),
        ("spec.nodeClassRef.apiVersion", "v1 has `group` instead: the part before the slash"),
        ("spec.template.spec.resources", "it never had an effect; leave it out"),
        ("spec.limits.resources", "v1 lists the resources directly under spec.limits"),
        ("spec.ttlSecondsAfterEmpty", "v1 has spec.disruption.consolidateAfter"),
        ("spec.ttlSecondsUntilExpired", "v1 has spec.template.spec.expireAfter"),
        ("spec.consolidation", "v1 has spec.disruption.consolidationPolicy"),
        ("spec.providerRef", "v1 has spec.template.spec.nodeClassRef"),
        ("spec.requirements", "a NodePool has them at spec.template.spec.requirements"),
        ("spec.taints", "a NodePool has them at spec.template.spec.taints"),
        ("spec.labels", "a NodePool has them at spec.template.metadata.labels"),
        ("spec.subnetSelector", "v1 has spec.subnetSelectorTerms"),
        ("spec.securityGroupSelector", "v1 has spec.securityGroupSelectorTerms"),
        ("spec.amiSelector", "v1 has spec.amiSelectorTerms"),
    ];
    known.iter().find(|(old, _)| *old == path).map(|(_, help)| (*help).to_owned())
}
