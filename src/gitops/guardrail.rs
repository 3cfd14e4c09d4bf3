//! What may not be, whoever wants it: rules in CEL from the files of `policies/`, judged on what was rendered.
//!
//! A commit never weakens its own judge: the rules of the commit that is in force count beside its own. Rules are checked
//! when they are read, as far as that can be known: a field that does not exist or an answer that is no yes or no
//! rejects them all. A rule that fails while it judges is broken, not kept: `deny` then denies.
//!
//! There is no clock and no limit of time, so that one commit always gets one verdict. What bounds the work is the size of
//! the expressions, how deeply their loops may nest, and how long the lists are that they could go over.

mod subject;

use std::fmt;
use std::sync::Arc;

use cel::common::ast::{EntryExpr, Expr, IdedExpr};
use cel::{Context, ExecutionError, Program, Value};
use jiff::Timestamp;
use serde::{Serialize, Serializer};
use serde_json::{Value as Json, json};

use crate::gitops::credential;
use crate::gitops::diagnostic::{Diagnostic, Place, Source, listed};
use crate::gitops::fleet::refused;
use crate::gitops::read::{Format, document, text_of};
use crate::gitops::rendered::Draft;
use crate::gitops::schema::SchemaKind;
use crate::gitops::shape::shape_of;
use crate::gitops::tree::Node;
use crate::gitops::waiver::{Waived, Waiver, WaiverPolicy, breach_name, judge_waivers};
use crate::model::near::nearest;
use crate::model::repository::Repository;
use subject::{ENV_FIELDS, POOL_FIELDS, REVIEW_FIELDS, pool_value, sample_env, sample_pool, sample_review};

/// The warning that a commit changes rules that are in force.
pub const RULES_CHANGE: &str = "PRV1806";
/// Where rules stand.
pub(crate) const POLICIES: &str = "policies/";
/// Bytes of one expression.
const EXPRESSION_MAX: usize = 4096;
/// Brackets of any kind inside each other in one expression.
const BRACKETS_MAX: usize = 32;
/// Bytes of the stack on which expressions are read and judged: the parser goes down for every bracket and every operator,
/// and what fits into one expression must never bring the program down. Only what is used takes memory.
const STACK: usize = 256 * 1024 * 1024;
/// Loops (`all`, `exists`, `map`, …) inside each other.
const LOOPS_MAX: usize = 2;
/// Turns of all loops of one rule over one thing, counted before it is judged: as if every list were the longest there is, and
/// with one turn more for every kilobyte of the longest text.
const TURNS_MAX: u128 = 1_000_000;
/// Letters of an error of the evaluation; the rest may be values.
const ERROR_MAX: usize = 120;

/// Names of types, which are values too.
const TYPES: [&str; 10] =
    ["bool", "bytes", "double", "int", "list", "map", "null_type", "string", "type", "uint"];

/// What a rule judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Environment,
    Pool,
    Object,
    /// What a proposal would do; only a review knows.
    Review,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Severity {
    Deny,
    Warn,
}

/// One rule, ready to judge.
struct Rule {
    id: Arc<str>,
    severity: Severity,
    scope: Scope,
    applies: Option<Program>,
    check: Program,
    message: Option<Program>,
    owners: Vec<Arc<str>>,
    waiver: WaiverPolicy,
    place: Place,
    /// Loops inside each other, at most.
    loops: u32,
    /// Lists may be put together so often.
    joins: u128,
    /// All of it as text: two rules that say the same judge once.
    text: String,
}

impl fmt::Debug for Rule {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.id, self.text)
    }
}

/// The rules of one commit.
#[derive(Debug, Default)]
pub struct Guardrails {
    rules: Vec<Rule>,
    waivers: Vec<Waiver>,
    mistakes: Vec<Diagnostic>,
}

impl Guardrails {
    pub fn read(repository: &Repository) -> Self {
        if !repository.files.keys().chain(repository.refused.keys()).any(|path| path.starts_with(POLICIES)) {
            return Self::default();
        }
        on_a_tall_stack(|| Self::read_all(repository))
    }

    fn read_all(repository: &Repository) -> Self {
        let mut all = Self::default();
        for (path, refusal) in &repository.refused {
            if policy_format(path).is_some() {
                all.mistakes.push(refused(path, *refusal));
            }
        }
        for (path, bytes) in &repository.files {
            let found = &mut all.mistakes;
            let Some(format) = policy_format(path) else {
                found.extend(path.strip_prefix(POLICIES).and_then(|file| stranger(path, file)));
                continue;
            };
            let Some(source) = text_of(path, bytes, found) else { continue };
            let tree = document(&source, format, found);
            credential::check(&source, tree.as_ref(), tree.is_some(), found);
            let Some(tree) = tree else { continue };
            shape_of(SchemaKind::Policy).check(&tree, found);
            for node in tree.get("guardrail").and_then(Node::as_list).unwrap_or_default() {
                let Some(rule) = rule(node, &mut all.mistakes) else { continue };
                if let Some(first) = all.rules.iter().find(|known| known.id == rule.id) {
                    all.mistakes.push(
                        Diagnostic::error(
                            "PRV1805",
                            rule.place.clone(),
                            format!("two guardrails are called `{}`", rule.id),
                        )
                        .also("the other one", first.place.clone())
                        .help("rename one of the two"),
                    );
                    continue;
                }
                all.rules.push(rule);
            }
            let waivers = tree.get("waiver").and_then(Node::as_list).unwrap_or_default();
            all.waivers.extend(waivers.iter().filter_map(|node| Waiver::read(node, &mut all.mistakes)));
        }
        if !all.mistakes.iter().any(Diagnostic::is_error) {
            let lost: Vec<_> = all.waivers.iter().filter_map(|waiver| all.without_rule(waiver)).collect();
            all.mistakes.extend(lost);
        }
        all
    }

    fn without_rule(&self, waiver: &Waiver) -> Option<Diagnostic> {
        if self.rules.iter().any(|rule| *rule.id == *waiver.rule) {
            return None;
        }
        let message = format!("there is no guardrail `{}` that could be waived", waiver.rule);
        let wrong = Diagnostic::error("PRV1807", waiver.place.clone(), message);
        Some(wrong.help(match nearest(&waiver.rule, self.rules.iter().map(|rule| &*rule.id)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "take the waiver away".to_owned(),
        }))
    }

    /// What is wrong with the rules; with an error among them nothing may be rendered.
    pub(crate) fn mistakes(&self) -> &[Diagnostic] {
        &self.mistakes
    }

    /// Judges an environment by these rules, and by those of `standing` that are others. Waivers are those of `standing`, or
    /// these if there is none; without a `now` none holds.
    pub(crate) fn judge(
        &self,
        standing: Option<&Self>,
        case: &Case<'_>,
        now: Option<Timestamp>,
    ) -> Vec<Breach> {
        self.judge_with(standing, case.environment, now, |rule, found| rule.judge(case, found))
    }

    /// Judges what a proposal would do to an environment, with the numbers that only its review has. `environment` is what
    /// the rules see as `env`, and a number that is not in `review` is not known: a rule that needs it cannot be judged.
    pub fn judge_review(
        &self,
        standing: Option<&Self>,
        environment: &Json,
        review: &Json,
        place: &Place,
        now: Option<Timestamp>,
    ) -> Vec<Breach> {
        self.judge_with(standing, environment, now, |rule, found| {
            if rule.scope == Scope::Review {
                let review = Some(("review", review.clone()));
                rule.judge_one(environment, review, "the proposal", place, found);
            }
        })
    }

    fn judge_with(
        &self,
        standing: Option<&Self>,
        environment: &Json,
        now: Option<Timestamp>,
        mut judge: impl FnMut(&Rule, &mut Vec<Breach>),
    ) -> Vec<Breach> {
        let others = || standing.into_iter().flat_map(|standing| standing.not_in(self));
        if self.rules.is_empty() && others().next().is_none() {
            return Vec::new();
        }
        on_a_tall_stack(|| {
            let waivers = &standing.unwrap_or(self).waivers;
            let environment = environment["name"].as_str().unwrap_or_default();
            let mut found = Vec::new();
            for rule in self.rules.iter().chain(others()) {
                let mut breaches = Vec::new();
                judge(rule, &mut breaches);
                if rule.severity == Severity::Deny && !breaches.is_empty() {
                    rule.waive(waivers, environment, now, &mut breaches);
                }
                found.extend(breaches);
            }
            found
        })
    }

    /// The rules of these that another set does not have as they are.
    fn not_in<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = &'a Rule> {
        self.rules.iter().filter(|rule| !other.rules.iter().any(|own| own.text == rule.text))
    }

    /// Says which of these rules a commit with `newer` ones changes.
    pub fn changed_in(&self, newer: &Self) -> Vec<Diagnostic> {
        let changed = self.not_in(newer).map(|rule| {
            let is_there = newer.rules.iter().any(|own| own.id == rule.id);
            let what = if is_there { "changes" } else { "removes" };
            let message = format!(
                "this commit {what} the guardrail `{}`, which still judges the commit itself",
                rule.id
            );
            Diagnostic::warning(RULES_CHANGE, rule.place.clone(), message)
                .help("look twice: the next commit is judged without it")
        });
        changed.collect()
    }
}

/// The format of a file with rules; `None`: it has none.
fn policy_format(path: &str) -> Option<Format> {
    let file = path.strip_prefix(POLICIES)?;
    Format::of(file).filter(|_| !file.starts_with('.') && !file.contains("/."))
}

/// A file among those with rules that is none of them. Pages for people and hidden files are nobody's mistake.
fn stranger(path: &Arc<str>, file: &str) -> Option<Diagnostic> {
    if file.starts_with('.') || file.contains("/.") || file.to_ascii_lowercase().ends_with(".md") {
        return None;
    }
    let place = Place::start_of(&Source::nameless_text(path.clone()));
    let warning = Diagnostic::warning("PRV1105", place, "this file has no guardrails and is ignored");
    Some(warning.help("guardrails are in policies/NAME.toml, .yaml or .yml"))
}

/// Work where deep recursion has room.
fn on_a_tall_stack<T>(work: impl FnOnce() -> T) -> T {
    stacker::grow(STACK, work)
}

/// How deeply the brackets of an expression are nested, texts left out as far as that is known before it is parsed.
fn bracket_depth(text: &str) -> usize {
    let (mut depth, mut deepest, mut quote) = (0usize, 0usize, None);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match (quote, letter) {
            (Some(_), '\\') => drop(letters.next()),
            (Some(open), letter) if letter == open => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(letter),
            (None, '(' | '[' | '{') => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            (None, ')' | ']' | '}') => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

/// What one rule says of something that does not hold it.
#[derive(Clone, Debug, PartialEq)]
pub struct Breach {
    pub rule: Arc<str>,
    /// What people name it by who approve a waiver.
    pub name: Arc<str>,
    /// `deny`, and nobody waives it; else `warn`.
    pub denies: bool,
    pub waived: Option<Waived>,
    /// In the words of the rule, if it has any.
    pub why: String,
    /// The words for it, with its place: an error if it denies.
    pub diagnostic: Diagnostic,
}

/// What is judged.
pub(crate) struct Case<'a> {
    pub environment: &'a Json,
    pub drafts: &'a [Draft],
    /// Where what concerns the whole environment is shown.
    pub place: Place,
}

impl Rule {
    fn judge(&self, case: &Case<'_>, found: &mut Vec<Breach>) {
        let environment = case.environment;
        match self.scope {
            Scope::Review => {}
            Scope::Environment => self.judge_one(environment, None, "the environment", &case.place, found),
            Scope::Pool => {
                for draft in case.drafts.iter().filter(|draft| draft.manifest["kind"] == "NodePool") {
                    let name = draft.manifest["metadata"]["name"].as_str().unwrap_or_default();
                    let pool = ("pool", pool_value(draft, case.drafts));
                    let place = &draft.origins[""];
                    self.judge_one(environment, Some(pool), &format!("pool `{name}`"), place, found);
                }
            }
            Scope::Object => {
                for draft in case.drafts {
                    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
                    let (kind, name) =
                        (text(&draft.manifest["kind"]), text(&draft.manifest["metadata"]["name"]));
                    let object = ("object", draft.manifest.clone());
                    let place = &draft.origins[""];
                    self.judge_one(environment, Some(object), &format!("{kind}/{name}"), place, found);
                }
            }
        }
    }

    fn judge_one(
        &self,
        environment: &Json,
        subject: Option<(&str, Json)>,
        what: &str,
        place: &Place,
        found: &mut Vec<Breach>,
    ) {
        let mut extent = Extent::default();
        extent.take(environment);
        subject.iter().for_each(|(_, value)| extent.take(value));
        let mut context = Context::default();
        bind(&mut context, "env", environment);
        if let Some((name, value)) = &subject {
            bind(&mut context, name, value);
        }
        let verdict = self.affords(&extent).and_then(|()| self.holds(&context));
        let why = match &verdict {
            Ok(true) => return,
            Ok(false) => self.words(&context).unwrap_or_else(|| format!("{what} does not hold it")),
            Err(error) => format!("it cannot be judged for {what}: {}", cut(error)),
        };
        let message = match self.severity {
            Severity::Deny => format!("denied by the guardrail `{}`: {why}", self.id),
            Severity::Warn => format!("guardrail `{}`: {why}", self.id),
        };
        let code = if verdict.is_err() { "PRV1803" } else { "PRV1801" };
        let diagnostic = match self.severity {
            Severity::Deny => Diagnostic::error(code, place.clone(), message),
            Severity::Warn => Diagnostic::warning(code, place.clone(), message),
        };
        let diagnostic = diagnostic.also("the guardrail", self.place.clone());
        let diagnostic = match self.owners.is_empty() {
            true => diagnostic.help("change what it is about, or talk about the rule"),
            false => diagnostic.help(format!("change what it is about, or ask {}", self.owners.join(", "))),
        };
        let denies = self.severity == Severity::Deny;
        let name = breach_name(&self.id, environment["name"].as_str().unwrap_or_default(), what, &why);
        found.push(Breach { rule: self.id.clone(), name, denies, waived: None, why, diagnostic });
    }

    /// Turns the breaches of this rule in one environment into warnings, if a waiver holds for all of them.
    fn waive(&self, waivers: &[Waiver], environment: &str, now: Option<Timestamp>, breaches: &mut [Breach]) {
        let names: Vec<Arc<str>> = breaches.iter().map(|breach| breach.name.clone()).collect();
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        let verdict = judge_waivers(waivers, &self.id, &self.waiver, environment, &names, now);
        for breach in breaches {
            match &verdict {
                Ok(waived) => {
                    let message = format!(
                        "guardrail `{}`: {}; waived until {} by {}: {}",
                        self.id,
                        breach.why,
                        waived.until,
                        waived.approvers.join(", "),
                        waived.reason
                    );
                    breach.denies = false;
                    breach.waived = Some(waived.clone());
                    let place = breach.diagnostic.place.clone();
                    breach.diagnostic = Diagnostic::warning(breach.diagnostic.code, place, message)
                        .also("the guardrail", self.place.clone());
                }
                Err(objections) => {
                    for (place, why) in objections {
                        let words = format!("this waiver does not hold: {why}");
                        breach.diagnostic = breach.diagnostic.clone().also(words, place.clone());
                    }
                }
            }
        }
    }

    /// Whether it can be judged in bounded time: there is no clock that could stop it.
    fn affords(&self, extent: &Extent) -> Result<(), String> {
        let entries = extent.entries.saturating_mul(self.joins + 1);
        let turns = entries.saturating_pow(self.loops).saturating_mul(1 + extent.letters / 1024);
        if self.loops > 0 && turns > TURNS_MAX {
            return Err(format!(
                "its loops could take {turns} turns over lists of {} entries, and may take {TURNS_MAX}",
                extent.entries
            ));
        }
        Ok(())
    }

    fn holds(&self, context: &Context<'_, '_>) -> Result<bool, String> {
        if let Some(applies) = &self.applies
            && !truth(applies, context)?
        {
            return Ok(true);
        }
        truth(&self.check, context)
    }

    fn words(&self, context: &Context<'_, '_>) -> Option<String> {
        match self.message.as_ref()?.execute(context) {
            Ok(Value::String(text)) => Some(text.to_string()),
            _ => None,
        }
    }
}

/// The longest list and the longest text among values.
#[derive(Default)]
struct Extent {
    entries: u128,
    letters: u128,
}

impl Extent {
    fn take(&mut self, value: &Json) {
        match value {
            Json::Array(items) => {
                self.entries = self.entries.max(items.len() as u128);
                items.iter().for_each(|item| self.take(item));
            }
            Json::Object(map) => {
                self.entries = self.entries.max(map.len() as u128);
                map.values().for_each(|entry| self.take(entry));
            }
            Json::String(text) => self.letters = self.letters.max(text.len() as u128),
            _ => {}
        }
    }
}

fn truth(program: &Program, context: &Context<'_, '_>) -> Result<bool, String> {
    match program.execute(context) {
        Ok(Value::Bool(truth)) => Ok(truth),
        Ok(other) => Err(format!("the answer is {}, neither true nor false", other.type_of())),
        Err(error) => Err(error.to_string()),
    }
}

fn bind(context: &mut Context<'_, '_>, name: &str, value: &Json) {
    // Every JSON value is a value of CEL.
    let value = cel::to_value(Signed(value)).unwrap_or(Value::Null);
    context.add_variable_from_value(name, value);
}

/// A value whose whole numbers are all of one type: `pool.weight + 1` must not depend on the sign.
struct Signed<'a>(&'a Json);

impl Serialize for Signed<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Json::Number(number) => match (number.as_i64(), number.as_f64()) {
                (Some(whole), _) => to.serialize_i64(whole),
                (None, Some(fraction)) => to.serialize_f64(fraction),
                (None, None) => to.serialize_str(&number.to_string()),
            },
            Json::Array(items) => to.collect_seq(items.iter().map(Signed)),
            Json::Object(map) => to.collect_map(map.iter().map(|(key, value)| (key, Signed(value)))),
            other => other.serialize(to),
        }
    }
}

/// The start of an error's text.
fn cut(text: &str) -> String {
    match text.char_indices().nth(ERROR_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn rule(node: &Node, found: &mut Vec<Diagnostic>) -> Option<Rule> {
    let before = found.len();
    let text = |key: &str| node.get(key).and_then(Node::as_text);
    let id = text("id")?.clone();
    let applies = node.get("applies").and_then(|node| compile(node, Wanted::Truth, found));
    let check = node.get("check").and_then(|node| compile(node, Wanted::Truth, found));
    let message = node.get("message").and_then(|node| compile(node, Wanted::Text, found));
    if found.len() > before {
        return None;
    }
    let check = check?;
    let expressions = || [applies.as_ref(), Some(&check), message.as_ref()].into_iter().flatten();
    let names = |name: &str| expressions().any(|program| program.references().has_variable(name));
    let subjects = [("pool", Scope::Pool), ("object", Scope::Object), ("review", Scope::Review)];
    let named: Vec<_> = subjects.into_iter().filter(|(name, _)| names(name)).collect();
    let scope = match named.as_slice() {
        [] => Scope::Environment,
        [(_, scope)] => *scope,
        [(one, _), (other, _), ..] => {
            found.push(
                Diagnostic::error(
                    "PRV1804",
                    node.get("check")?.place.clone(),
                    format!("a guardrail judges `{one}` or `{other}`, not both"),
                )
                .help("make two of it; a NodePool is an `object` too, and `pool.spec` is its `spec`"),
            );
            return None;
        }
    };
    let loops = expressions().map(|program| {
        let mut walk = Walk::default();
        walk.expression(program.expression());
        walk.deepest as u32
    });
    let loops = loops.max().unwrap_or(0);
    let written = ["applies", "check", "message"].into_iter().filter_map(&text);
    let joins = written.map(|text| text.matches('+').count() as u128).sum();
    let owners = node.get("owners").and_then(Node::as_list).unwrap_or_default();
    Some(Rule {
        id,
        severity: match text("severity").map(|word| &**word) {
            Some("warn") => Severity::Warn,
            _ => Severity::Deny,
        },
        scope,
        applies,
        check,
        message,
        owners: owners.iter().filter_map(|owner| owner.as_text().cloned()).collect(),
        waiver: WaiverPolicy::read(node),
        place: node.get("id")?.place.clone(),
        loops,
        joins,
        text: node.to_json().to_string(),
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Truth,
    Text,
}

/// An expression, if it can be judged with; else what is wrong with it.
fn compile(node: &Node, wanted: Wanted, found: &mut Vec<Diagnostic>) -> Option<Program> {
    let text = node.as_text()?;
    let mut refuse = |place: Place, message: String, help: String| {
        found.push(Diagnostic::error("PRV1804", place, message).help(help));
    };
    if text.len() > EXPRESSION_MAX {
        let message = format!("the expression has {} bytes, and may have {EXPRESSION_MAX}", text.len());
        refuse(node.place.clone(), message, "make two guardrails of it".into());
        return None;
    }
    if bracket_depth(text) > BRACKETS_MAX {
        let message = format!("brackets are nested more than {BRACKETS_MAX} levels deep");
        refuse(node.place.clone(), message, "make two guardrails of it".into());
        return None;
    }
    let program = match Program::compile(text) {
        Ok(program) => program,
        Err(errors) => {
            for error in errors.errors.iter().take(3) {
                let (line, column) = (error.pos.0.max(1) as usize, error.pos.1.max(1) as usize);
                let start = text.split('\n').take(line - 1).map(|line| line.len() + 1).sum::<usize>();
                let at = (start + column - 1).min(text.len());
                let message = format!("this is not CEL: {}", cut(&error.msg));
                let help = "write it like `pool.taints.size() > 0`; docs/guide/guardrails.md has more";
                refuse(inside(node, text, at..at + 1), message, help.into());
            }
            return None;
        }
    };
    let mut walk = Walk::default();
    walk.expression(program.expression());
    if let Some((name, message, help)) = walk.wrong {
        let at = text.find(&name).unwrap_or(0);
        refuse(inside(node, text, at..at + name.len()), message, help);
        return None;
    }
    let mut context = Context::default();
    bind(&mut context, "env", &sample_env());
    bind(&mut context, "pool", &sample_pool());
    bind(&mut context, "object", &json!({}));
    bind(&mut context, "review", &sample_review());
    let answer = program.execute(&context);
    let wrong = match (&answer, wanted) {
        (Ok(Value::Bool(_)), Wanted::Truth) | (Ok(Value::String(_)), Wanted::Text) => return Some(program),
        (Ok(other), Wanted::Truth) => format!("the answer is {}, neither true nor false", other.type_of()),
        (Ok(other), Wanted::Text) => format!("a message is a text, and this is {}", other.type_of()),
        (Err(error), _) if depends_on_values(error) => return Some(program),
        (Err(error), _) => cut(&error.to_string()),
    };
    let help = match wanted {
        Wanted::Truth => "compare something, such as `pool.weight > 0`",
        Wanted::Text => "put texts together, such as `'pool ' + pool.name`; numbers with `string(…)`",
    };
    refuse(node.place.clone(), wrong, help.into());
    None
}

/// Errors that another pool might not have.
fn depends_on_values(error: &ExecutionError) -> bool {
    matches!(
        error,
        ExecutionError::NoSuchKey(_)
            | ExecutionError::DivisionByZero(_)
            | ExecutionError::RemainderByZero(_)
            | ExecutionError::Overflow(..)
            | ExecutionError::IndexOutOfBounds(_)
            | ExecutionError::FunctionError { .. }
            | ExecutionError::DuplicateKey(_)
    )
}

/// A part of an expression in its file, if it stands there as it is.
fn inside(node: &Node, text: &str, part: std::ops::Range<usize>) -> Place {
    let written = &node.place.source.text[node.place.bytes()];
    let Some(start) = written.find(text) else { return node.place.clone() };
    let start = node.place.start as usize + start;
    let end = (start + part.end).min(node.place.end as usize);
    let range = (start + part.start).min(end)..end;
    match node.place.source.text.get(range.clone()) {
        Some(_) => Place::new(&node.place.source, range),
        None => node.place.clone(),
    }
}

/// Looks for names that do not exist, and for loops that could run for long.
#[derive(Default)]
struct Walk<'e> {
    bound: Vec<&'e str>,
    loops: usize,
    /// The most that stand inside each other.
    deepest: usize,
    /// The first mistake: the words that are wrong, why, and what to do.
    wrong: Option<(String, String, String)>,
}

impl<'e> Walk<'e> {
    fn refuse(&mut self, name: &str, message: String, help: String) {
        self.wrong.get_or_insert((name.to_owned(), message, help));
    }

    fn expression(&mut self, node: &'e IdedExpr) {
        match &node.expr {
            Expr::Unspecified | Expr::Struct(_) => {
                self.refuse(
                    "",
                    "this form of expression has no meaning here".into(),
                    "compare values".into(),
                );
            }
            Expr::Literal(_) => {}
            Expr::Ident(name) => self.name(name),
            Expr::Select(select) => {
                if let Some((root, field)) = known_field(node) {
                    self.field(root, field);
                }
                self.expression(&select.operand);
            }
            Expr::Call(call) => {
                call.target.iter().for_each(|target| self.expression(target));
                call.args.iter().for_each(|argument| self.expression(argument));
            }
            Expr::List(list) => list.elements.iter().for_each(|element| self.expression(element)),
            Expr::Map(map) => {
                for entry in &map.entries {
                    match &entry.expr {
                        EntryExpr::MapEntry(entry) => {
                            self.expression(&entry.key);
                            self.expression(&entry.value);
                        }
                        EntryExpr::StructField(field) => self.expression(&field.value),
                    }
                }
            }
            Expr::Comprehension(comprehension) => {
                self.expression(&comprehension.iter_range);
                self.expression(&comprehension.accu_init);
                self.loops += 1;
                self.deepest = self.deepest.max(self.loops);
                if self.loops > LOOPS_MAX {
                    let message = format!("more than {LOOPS_MAX} loops stand inside each other");
                    self.refuse("", message, "make two guardrails of it".into());
                }
                let before = self.bound.len();
                self.bound.push(&comprehension.iter_var);
                self.bound.extend(comprehension.iter_var2.as_deref());
                self.bound.push(&comprehension.accu_var);
                self.expression(&comprehension.loop_cond);
                self.expression(&comprehension.loop_step);
                self.expression(&comprehension.result);
                self.bound.truncate(before);
                self.loops -= 1;
            }
        }
    }

    fn name(&mut self, name: &str) {
        let is_known = ["env", "pool", "object", "review"].contains(&name) || TYPES.contains(&name);
        if is_known || self.bound.contains(&name) {
            return;
        }
        let help = match nearest(name, ["env", "pool", "object", "review"]) {
            Some(near) => format!("did you mean `{near}`?"),
            None => "rules see `env`, and one of `pool`, `object` and `review`".to_owned(),
        };
        self.refuse(name, format!("there is no `{name}`"), help);
    }

    fn field(&mut self, root: &str, field: &str) {
        if self.bound.contains(&root) {
            return;
        }
        let known: &[&str] = match root {
            "env" => &ENV_FIELDS,
            "review" => &REVIEW_FIELDS,
            _ => &POOL_FIELDS,
        };
        if known.contains(&field) {
            return;
        }
        let help = match nearest(field, known.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the fields are {}", listed(known.iter().copied())),
        };
        self.refuse(&format!(".{field}"), format!("`{root}` has no field `{field}`"), help);
    }
}

/// `env.FIELD`, `review.FIELD`, `pool.FIELD` and `pool.after.FIELD`: the fields that are known beforehand.
fn known_field(node: &IdedExpr) -> Option<(&str, &str)> {
    let Expr::Select(select) = &node.expr else { return None };
    let root = match &select.operand.expr {
        Expr::Ident(name) => name,
        Expr::Select(inner) if inner.field == "after" => match &inner.operand.expr {
            Expr::Ident(name) if name == "pool" => name,
            _ => return None,
        },
        _ => return None,
    };
    ["env", "pool", "review"].contains(&&**root).then_some((root.as_str(), select.field.as_str()))
}
