//! The findings of a review in the forms that other programs read: SARIF, JUnit, GitLab's code quality and GitHub's
//! annotations.
//!
//! They differ in what they can say. SARIF has the rules and both places. JUnit has no warnings: those are tests that were
//! skipped. GitLab wants a place for everything, and what has none stands at the head of `fleet.toml`. GitHub obeys lines
//! that begin with two colons, so nothing of the repository may begin one.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::finding::{Finding, Findings, Level};
use super::report::{OriginReview, Verdict};

/// The version of this form, and where it is described.
const SARIF: &str = "2.1.0";
const SARIF_SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json";

/// One SARIF log with one run. `version` is that of this program.
pub fn sarif(findings: &Findings, version: &str) -> Value {
    let rules: BTreeSet<&str> = findings.findings.iter().map(|finding| finding.rule.as_str()).collect();
    let rules: Vec<&str> = rules.into_iter().collect();
    let results: Vec<Value> = findings
        .findings
        .iter()
        .map(|finding| {
            let mut result = json!({
                "ruleId": finding.rule,
                "ruleIndex": rules.binary_search(&finding.rule.as_str()).unwrap_or_default(),
                "level": level(finding, ["error", "warning"]),
                "message": { "text": without_links(&said(finding)) },
                "locations": [{ "physicalLocation": location(&place(findings, finding)) }],
                "partialFingerprints": { "provisorFinding/v1": finding.fingerprint },
            });
            if let Some(rule) = &finding.broken_rule {
                result["relatedLocations"] =
                    json!([{ "physicalLocation": location(rule), "message": { "text": "the guardrail" } }]);
            }
            result
        })
        .collect();
    let passed = findings.verdict.is_some();
    json!({
        "$schema": SARIF_SCHEMA,
        "version": SARIF,
        "runs": [{
            "tool": { "driver": {
                "name": "provisor",
                "semanticVersion": version,
                "rules": rules.iter().map(|rule| json!({ "id": rule })).collect::<Vec<_>>(),
            } },
            "automationDetails": { "id": format!("provisor review/{}/", findings.set) },
            "invocations": [{ "executionSuccessful": passed }],
            "columnKind": "unicodeCodePoints",
            "results": results,
            "properties": { "headline": findings.headline, "verdict": verdict(findings) },
        }],
    })
}

fn location(origin: &OriginReview) -> Value {
    json!({
        "artifactLocation": { "uri": address(&origin.file), "uriBaseId": "%SRCROOT%" },
        "region": { "startLine": origin.line.max(1), "startColumn": origin.column.max(1) },
    })
}

/// A path as a relative address: all but plain letters is written in digits.
fn address(path: &str) -> String {
    let mut address = String::new();
    for byte in path.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                address.push(byte.into());
            }
            byte => _ = write!(address, "%{byte:02X}"),
        }
    }
    address
}

/// SARIF takes `[text](address)` in a sentence for a link, unless the bracket is escaped.
fn without_links(text: &str) -> String {
    match text.contains("](") {
        true => text.replace('\\', "\\\\").replace('[', "\\[").replace(']', "\\]"),
        false => text.to_owned(),
    }
}

/// A report of tests: a suite for the proposal, and one for each environment.
pub fn junit(findings: &Findings) -> String {
    let mut suites = vec![suite(findings, None)];
    suites.extend(findings.environments.iter().map(|environment| suite(findings, Some(environment))));
    let body: String = suites.iter().map(|suite| suite.text.as_str()).collect();
    let sum = |count: fn(&Suite) -> usize| suites.iter().map(count).sum::<usize>();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"provisor review\" tests=\"{}\" failures=\"{}\" errors=\"{}\">\n{body}</testsuites>\n",
        sum(|suite| suite.tests),
        sum(|suite| suite.failures),
        sum(|suite| suite.errors)
    )
}

struct Suite {
    tests: usize,
    failures: usize,
    errors: usize,
    text: String,
}

fn suite(findings: &Findings, environment: Option<&String>) -> Suite {
    let name = environment.map_or("proposal", String::as_str);
    let class = attribute(&format!("provisor.review.{name}"));
    let (mut failures, mut errors, mut skipped) = (0, 0, 0);
    let case = |title: &str, inner: &str| {
        format!("    <testcase classname=\"{class}\" name=\"{}\">{inner}</testcase>\n", attribute(title))
    };
    let mut cases: Vec<String> = Vec::new();
    for (gate, message) in findings.passed.iter().filter(|_| environment.is_none()) {
        cases.push(case(&format!("gate/{gate}: {message}"), ""));
    }
    let own = findings.findings.iter().filter(|finding| finding.environment.as_ref() == environment);
    for finding in own {
        let element = match (finding.level, findings.verdict) {
            (Level::Warning, _) => "skipped",
            (Level::Error, Some(_)) => "failure",
            (Level::Error, None) => "error",
        };
        match element {
            "skipped" => skipped += 1,
            "failure" => failures += 1,
            _ => errors += 1,
        }
        let (rule, message) = (attribute(&finding.rule), attribute(&finding.message));
        let at = finding.origin.as_ref().map(at).unwrap_or_default();
        let title = format!("{}: {} [{}]", finding.rule, finding.message, finding.fingerprint);
        let inner =
            format!("<{element} type=\"{rule}\" message=\"{message}\">{}</{element}>", attribute(&at));
        cases.push(case(&title, &inner));
    }
    // A suite without a test looks like one that did not run.
    if cases.is_empty() {
        cases.push(case("nothing to say", ""));
    }
    let (tests, cases) = (cases.len(), cases.concat());
    let name = attribute(name);
    let text = format!(
        "  <testsuite name=\"{name}\" tests=\"{tests}\" failures=\"{failures}\" errors=\"{errors}\" skipped=\"{skipped}\">\n{cases}  </testsuite>\n"
    );
    Suite { tests, failures, errors, text }
}

/// Text inside of quotes, or between tags. Letters that cannot be seen are shown before, so that none is left that XML
/// does not have.
fn attribute(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&apos;"),
            letter => safe.push(letter),
        }
    }
    safe
}

/// What GitLab calls a report of code quality.
pub fn gitlab(findings: &Findings) -> Value {
    let issue = |finding: &Finding| {
        let OriginReview { file, line, .. } = place(findings, finding);
        json!({
            "description": said(finding),
            "check_name": finding.rule,
            "fingerprint": finding.fingerprint,
            "severity": level(finding, ["major", "minor"]),
            "location": { "path": file, "lines": { "begin": line.max(1) } },
        })
    };
    findings.findings.iter().map(issue).collect()
}

/// Commands that a runner of GitHub takes from the output of a step, one on each line.
pub fn github(findings: &Findings) -> String {
    let mut lines = format!(
        "::notice title=provisor review::{}\n",
        data(&format!("{}: {}", verdict(findings), findings.headline))
    );
    for finding in &findings.findings {
        let mut properties = Vec::new();
        if let Some(OriginReview { file, line, column }) = &finding.origin {
            properties.push(format!("file={},line={line},col={column}", property(file)));
        }
        properties.push(format!("title={}", property(&finding.rule)));
        let command = level(finding, ["error", "warning"]);
        lines.push_str(&format!("::{command} {}::{}\n", properties.join(","), data(&said(finding))));
    }
    lines
}

/// What stands behind the second pair of colons.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// What stands between commas and colons.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

fn level<'a>(finding: &Finding, words: [&'a str; 2]) -> &'a str {
    match finding.level {
        Level::Error => words[0],
        Level::Warning => words[1],
    }
}

fn verdict(findings: &Findings) -> &'static str {
    match findings.verdict {
        Some(Verdict::Pass) => "pass",
        Some(Verdict::Fail) => "fail",
        None => "not reviewed",
    }
}

/// The sentence, with the environment that it is about.
fn said(finding: &Finding) -> String {
    match &finding.environment {
        Some(environment) => format!("{environment}: {}", finding.message),
        None => finding.message.clone(),
    }
}

fn at(origin: &OriginReview) -> String {
    format!("{}:{}:{}", origin.file, origin.line, origin.column)
}

/// Of what has no place of its own, the head of the fleet.
fn place(findings: &Findings, finding: &Finding) -> OriginReview {
    let head = || OriginReview { file: findings.fleet_file.clone(), line: 1, column: 1 };
    finding.origin.clone().unwrap_or_else(head)
}
